"""Randomness with a name: every random number descends from a root key by purpose and index.

A root comes from the operating system and is stored nowhere, unless a run is reproducible. Then its guarantee says so,
because anyone who knows the seed can subtract the noise and list the cohorts. Two purposes, rounds or clients never
share a stream, and the same path from the same root always gives the same stream.
"""

import dataclasses
import functools
import hashlib
import operator
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["Key", "Stream", "digest_of", "lots", "reproducible", "root"]


@dataclasses.dataclass(frozen=True, repr=False)
class Key:
    """32 secret bytes. Derive before use: `key.derive("noise", round)`; `repr` shows none of them."""

    secret: bytes
    is_reproducible: bool = False

    def __post_init__(self) -> None:
        if type(self.secret) is not bytes or len(self.secret) != 32:
            raise InvalidInput("a key must have 32 bytes: use keys.root(), or keys.reproducible(seed) for a simulation")

    def __repr__(self) -> str:
        return "Key(reproducible)" if self.is_reproducible else "Key(secret)"

    def derive(self, purpose: str, *indices: int) -> "Key":
        """The key for `purpose` (a word) and `indices` (round, client, ...), independent of all others.

        >>> root().derive("noise", 3) == root().derive("noise", 3)
        False
        >>> reproducible(7).derive("noise", 3) == reproducible(7).derive("noise", 3)
        True
        """
        try:
            word = purpose.encode()
            path = len(word).to_bytes(8, "little") + word
            path += b"".join(operator.index(index).to_bytes(8, "little") for index in indices)
        except (AttributeError, TypeError, OverflowError, UnicodeEncodeError):
            word = path = b""
        if not word:
            raise InvalidInput(f"a key is derived from a purpose and whole-number indices, got {purpose!r}, {indices}")
        return Key(hashlib.blake2b(path, key=self.secret, digest_size=32).digest(), self.is_reproducible)

    def bound_to(self, facts: Callable[[], Any]) -> "Key":
        """The key for the question that `facts()` describes: all data and settings that affect what is released.

        A reproducible root is rebuilt from its seed for every question, and a secret one may be passed on to the next:
        unbound, two questions would draw the same noise, and their difference would have none. Nobody has to repeat
        what a secret root draws, so it is mixed with fresh bits of the operating system instead.

        >>> seven = reproducible(7)
        >>> [seven.bound_to(lambda: ["who", 0.5]) == seven.bound_to(lambda: ["who", low]) for low in (0.5, 0.5 + 1e-12)]
        [True, False]
        """
        return self.derive(f"question {digest_of(facts()) if self.is_reproducible else secrets.token_hex(32)}")

    def for_one_release(self) -> "Key":
        """A secret key mixed with fresh bits, so that no second release can have the same noise.

        A reproducible key is returned as it is: its noise has to be the same again, and ledgers know it by `noise_on`.
        """
        return self if self.is_reproducible else self.bound_to(lambda: None)

    def stream(self) -> "Stream":
        """A cryptographic stream of uniform bits."""
        return Stream(self)

    def jax(self) -> Any:
        """A JAX key, for compiled simulation. It holds 64 of the 256 bits and is not cryptographic."""
        import jax

        return jax.random.wrap_key_data(jax.numpy.asarray(self.jax_words()), impl="threefry2x32")

    def jax_words(self) -> np.ndarray:
        """The two words of `jax()`."""
        return np.frombuffer(self.secret[:8], dtype=np.uint32)


def root() -> Key:
    """A fresh root from the operating system's generator, to be kept in memory only."""
    return Key(secrets.token_bytes(32))


def reproducible(seed: int) -> Key:
    """A root that anyone who knows `seed` can rebuild, for simulations. Guarantees list it as an assumption."""
    return Key(hashlib.blake2b(f"blindsight reproducible {seed}".encode(), digest_size=32).digest(), True)


def digest_of(facts: Any) -> str:
    """32 hex digits that change with any of the facts: numbers to the last bit, arrays, texts, mappings, dataclasses.

    A function is represented by its name alone, anything else by its `repr` without addresses.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts_of(facts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts_of(value: Any) -> Iterator[bytes]:
    """The parts of a value as bytes, in a fixed order."""
    if value is None or isinstance(value, str | bytes | bool | int | float):
        text = value.hex() if isinstance(value, float) else repr(value)
        yield f"{type(value).__name__} {text}".encode("utf-8", "surrogatepass")
    elif isinstance(value, Mapping):
        items: list[tuple[Any, Any]] = sorted(value.items(), key=lambda item: repr(item[0]))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownLambdaType]
        yield f"mapping {len(items)}".encode()
        for item in items:
            yield from _parts_of(item)
    elif isinstance(value, list | tuple):
        yield f"sequence {len(value)}".encode()  # pyright: ignore[reportUnknownArgumentType]
        for one in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _parts_of(one)
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        yield f"array {array.dtype} {array.shape}".encode()
        yield repr(array.tolist()).encode() if array.dtype.kind in "TO" else np.ascontiguousarray(array).tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield f"{type(value).__module__}.{type(value).__qualname__}".encode()
        yield from _parts_of({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif isinstance(value, functools.partial):
        yield from _parts_of(["partial", value.func, value.args, value.keywords])  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    else:
        yield re.sub(r" at 0x[0-9a-f]+", "", f"{getattr(value, '__module__', '')} {value!r}").encode()


def lots(names: Iterable[str], seed: bytes) -> np.ndarray:
    """A number in [0, 1) for each name, to split clients. It depends only on the name, not on order or other clients.

    A public split has to work this way. If adding or removing one client moved others between parts, a guarantee for
    one client would not cover the effect.

    >>> bool(lots(["ann", "bob"], b"halves")[1] == lots(["bob"], b"halves")[0])
    True
    """
    drawn = b"".join(hashlib.blake2b(name.encode(), key=seed[:64], digest_size=8).digest() for name in names)
    return (np.frombuffer(drawn, "<u8") >> np.uint64(11)) * 2.0**-53


class Stream:
    """Uniform random words from SHAKE-256 in counter mode, as numpy arrays.

    SHAKE-256 keyed with 32 secret bytes is a pseudo-random function: without the key its output is indistinguishable
    from uniform bits. About 400 MB/s, from Python's standard library. The n-th word does not depend on how earlier
    words were requested.
    """

    _BLOCK_WORDS = 1 << 11

    def __init__(self, key: Key) -> None:
        self._secret = key.secret
        self._counter = 0
        self._buffer = np.empty(0, dtype=np.uint64)

    def words(self, count: int) -> np.ndarray:
        """`count` independent uniform 64-bit words."""
        if not count >= 0:
            raise InvalidInput(f"the number of words must be 0 or more, got {count}")
        missing = count - len(self._buffer)
        if missing > 0:
            blocks = [self._block() for _ in range(-(-missing // self._BLOCK_WORDS))]
            self._buffer = np.concatenate([self._buffer, *blocks])
        words, self._buffer = self._buffer[:count], self._buffer[count:]
        return words

    def below(self, bound: int, count: int) -> np.ndarray:
        """`count` independent whole numbers, exactly uniform on [0, bound); `bound` at most 2^63."""
        bound = operator.index(bound)
        if not 1 <= bound <= 1 << 63:
            raise InvalidInput(f"bound must lie between 1 and 2^63, got {bound}")
        if bound & (bound - 1) == 0:
            return (self.words(count) & np.uint64(bound - 1)).astype(np.int64)
        largest = np.uint64((1 << 64) // bound * bound - 1)  # words above it would favour small remainders
        words = self.words(count)
        while (rejected := np.flatnonzero(words > largest)).size:
            words[rejected] = self.words(rejected.size)
        return (words % np.uint64(bound)).astype(np.int64)

    def bernoulli(self, probability: float, count: int) -> np.ndarray:
        """`count` coins that show True with `probability`, rounded down to a multiple of 2^-64 (never up)."""
        if not 0 <= probability <= 1:
            raise InvalidInput(f"a probability must lie between 0 and 1, got {probability}")
        threshold = int(probability * 2.0**64)
        if threshold >= 1 << 64:
            return np.ones(count, dtype=bool)
        return self.words(count) < np.uint64(threshold)

    def subset(self, size: int, count: int) -> np.ndarray:
        """`count` of the indices 0..size-1, every subset equally likely (up to ties of 64-bit words)."""
        if not 0 <= count <= size:
            raise InvalidInput(f"a subset of {size} must have between 0 and {size} members, got {count}")
        if count == size:
            return np.arange(size)
        return np.argpartition(self.words(size), count)[:count]

    def _block(self) -> np.ndarray:
        seed = self._secret + self._counter.to_bytes(8, "little")
        self._counter += 1
        block = np.frombuffer(hashlib.shake_256(seed).digest(8 * self._BLOCK_WORDS), dtype="<u8")
        return block.astype(np.uint64, copy=False)
