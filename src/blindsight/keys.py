"""Randomness with a name: every random number descends from a root key by purpose and index.

A root comes from the operating system and is stored nowhere, unless a run is asked to be reproducible; then its
guarantee says so, because whoever knows the seed can subtract the noise and list the cohorts. Two purposes, rounds or
clients never share a stream, and the same path from the same root always gives the same one.
"""

import dataclasses
import hashlib
import secrets
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["Key", "Stream", "reproducible", "root"]


@dataclasses.dataclass(frozen=True, repr=False)
class Key:
    """32 secret bytes. Derive before use: `key.derive("noise", round)`; `repr` shows none of them."""

    secret: bytes
    is_reproducible: bool = False

    def __post_init__(self) -> None:
        if len(self.secret) != 32:
            raise InvalidInput(f"a key has 32 bytes, got {len(self.secret)}")

    def __repr__(self) -> str:
        return "Key(reproducible)" if self.is_reproducible else "Key(secret)"

    def derive(self, purpose: str, *indices: int) -> "Key":
        """The key for `purpose` (a word) and `indices` (round, client, ...), independent of all others.

        >>> root().derive("noise", 3) == root().derive("noise", 3)
        False
        >>> reproducible(7).derive("noise", 3) == reproducible(7).derive("noise", 3)
        True
        """
        if not purpose or any(index < 0 or index >= 1 << 64 for index in indices):
            raise InvalidInput(f"a key is derived for a named purpose and whole indices, got {purpose!r}, {indices}")
        word = purpose.encode()
        path = len(word).to_bytes(8, "little") + word + b"".join(index.to_bytes(8, "little") for index in indices)
        return Key(hashlib.blake2b(path, key=self.secret, digest_size=32).digest(), self.is_reproducible)

    def stream(self) -> "Stream":
        """A cryptographic stream of uniform bits."""
        return Stream(self)

    def jax(self) -> Any:
        """A JAX key, for compiled simulation. It holds 64 of the 256 bits and is not cryptographic."""
        import jax

        words = jax.numpy.asarray(np.frombuffer(self.secret[:8], dtype=np.uint32))
        return jax.random.wrap_key_data(words, impl="threefry2x32")


def root() -> Key:
    """A fresh root from the operating system's generator, to be kept in memory only."""
    return Key(secrets.token_bytes(32))


def reproducible(seed: int) -> Key:
    """A root that anyone who knows `seed` can rebuild: for simulations. Guarantees made with it say so."""
    return Key(hashlib.blake2b(f"blindsight reproducible {seed}".encode(), digest_size=32).digest(), True)


class Stream:
    """Uniform random words from SHAKE-256 in counter mode, in blocks, as numpy arrays.

    SHAKE-256 keyed with 32 secret bytes is a pseudo-random function: without the key its output cannot be told from
    uniform bits. About 400 MB/s, from Python's standard library.
    """

    _BLOCK_BYTES = 1 << 23

    def __init__(self, key: Key) -> None:
        self._secret = key.secret
        self._counter = 0
        self._buffer = np.empty(0, dtype=np.uint64)

    def words(self, count: int) -> np.ndarray:
        """`count` independent uniform 64-bit words."""
        parts: list[np.ndarray] = []
        while count > len(self._buffer):
            parts.append(self._buffer)
            count -= len(self._buffer)
            self._buffer = self._block(max(8 * count, 512))
        parts.append(self._buffer[:count])
        self._buffer = self._buffer[count:]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def below(self, bound: int, count: int) -> np.ndarray:
        """`count` independent whole numbers, exactly uniform on [0, bound); `bound` at most 2^63."""
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
        threshold = int(probability * 2.0**64)
        if threshold >= 1 << 64:
            return np.ones(count, dtype=bool)
        return self.words(count) < np.uint64(threshold)

    def subset(self, size: int, count: int) -> np.ndarray:
        """`count` of the indices 0..size-1, every subset equally likely (up to ties of 64-bit words)."""
        if count >= size:
            return np.arange(size)
        return np.argpartition(self.words(size), count)[:count]

    def _block(self, at_least_bytes: int) -> np.ndarray:
        size = min(self._BLOCK_BYTES, -(-at_least_bytes // 8) * 8)
        seed = self._secret + self._counter.to_bytes(8, "little")
        self._counter += 1
        return np.frombuffer(bytearray(hashlib.shake_256(seed).digest(size)), dtype="<u8").astype(np.uint64, copy=False)
