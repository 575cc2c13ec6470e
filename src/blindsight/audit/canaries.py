"""Canaries: random data given to synthetic clients, to see what a model memorises.

The federated Secret Sharer (Thakkar et al. 2020, arXiv:2006.07490; Ramaswamy et al. 2020, arXiv:2009.10031): phrases of
random words, each shared by n_u clients that hold n_e copies of it among sentences of a public corpus. And for the
one-run bound (`one_run`): clients that hold only copies of one phrase, or of one random image. All of it is generated
from its own key and never depends on client data.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.data.population import Columns, Population
from blindsight.data.text import END, PAD, START, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.keys import Key

__all__ = ["Canaries", "Marks", "phrase_clients", "phrases", "picture_clients", "secret_sharer", "sharing_clients"]

Marks = tuple[int, int, int]
"""The token numbers that start, end and pad a row."""

_WORDS: Marks = (START, END, PAD)


@dataclasses.dataclass(frozen=True, eq=False)
class Canaries:
    """Phrases as token numbers (n, words), the number of clients that share each (n_u), and of copies on each (n_e).

    An attacker knows the first `prefix` words of every phrase; the others are the secret.
    """

    phrases: np.ndarray
    clients: np.ndarray
    copies: np.ndarray
    prefix: int = 2

    def __post_init__(self) -> None:
        count, words = self.phrases.shape
        if self.clients.shape != (count,) or self.copies.shape != (count,):
            raise InvalidInput(f"give one number of clients and one number of copies for each of the {count} canaries")
        if not 1 <= self.prefix < words:
            raise InvalidInput(f"prefix must be between 1 and {words - 1} of the {words} words, got {self.prefix}")

    @property
    def size(self) -> int:
        """The number of canaries."""
        return len(self.phrases)

    @property
    def n_clients(self) -> int:
        """The number of synthetic clients that hold them."""
        return int(np.sum(self.clients))

    def contexts(self, start: int = START) -> np.ndarray:
        """The attacker's input to the model: start token and prefix, (n, 1 + prefix)."""
        prefixes = self.phrases[:, : self.prefix]
        return np.concatenate([np.full((self.size, 1), start, np.int32), prefixes], axis=1)

    @property
    def secrets(self) -> np.ndarray:
        """The words after the prefix, (n, words - prefix)."""
        return self.phrases[:, self.prefix :]

    def times_seen(self, rate: float, rounds: int) -> np.ndarray:
        """How often each is expected to be seen in training if its clients take part at `rate` (Table 3)."""
        return rate * rounds * self.clients * self.copies

    def to_dict(self, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """Plain values for JSON: phrases in words if a vocabulary is given, otherwise as numbers."""
        rows: list[list[Any]] = self.phrases.tolist()
        written = rows if vocabulary is None else [[vocabulary.word(number) for number in row] for row in rows]
        counts = {"clients": self.clients.tolist(), "copies": self.copies.tolist(), "prefix": self.prefix}
        return {"phrases": written, **counts}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], vocabulary: Vocabulary | None) -> "Canaries":
        """The canaries that `to_dict` was called on; their words must be in the vocabulary."""
        rows = value["phrases"]
        if vocabulary is not None:
            for word in itertools.chain.from_iterable(rows):
                if word not in vocabulary:
                    raise InvalidInput(f"the vocabulary lacks the canary word {word!r}: use the vocabulary of the run")
            rows = [[vocabulary.id(word) for word in row] for row in rows]
        counts = np.array(value["clients"], np.int64), np.array(value["copies"], np.int64)
        return cls(np.array(rows, np.int32), *counts, int(value["prefix"]))


def phrases(alphabet: np.ndarray, count: int, words: int, *, key: Key) -> np.ndarray:
    """`count` different phrases of `words` tokens, each drawn uniformly from `alphabet`; int32 (count, words)."""
    if not (count >= 1 and words >= 1):
        raise InvalidInput(f"there must be at least one phrase of at least one word, got {count} of {words}")
    if len(alphabet) ** words < 10 * count:
        raise InvalidInput(
            f"{len(alphabet)} words give too few phrases of {words} words for {count} random ones: "
            "use a larger vocabulary, longer phrases or fewer canaries"
        )
    stream = key.derive("phrases").stream()
    distinct: dict[tuple[int, ...], None] = {}
    while len(distinct) < count:
        drawn = alphabet[stream.below(len(alphabet), count * words)].reshape(count, words)
        distinct |= dict.fromkeys(map(tuple, drawn.tolist()))
    return np.array(list(distinct)[:count], np.int32)


def secret_sharer(
    alphabet: np.ndarray,
    *,
    key: Key,
    clients: Sequence[int] = (1, 4, 16),
    copies: Sequence[int] = (1, 14, 200),
    repeats: int = 3,
    words: int = 5,
    prefix: int = 2,
) -> Canaries:
    """Canaries for every pair of `clients` and `copies`, `repeats` per pair; by default 27 on 189 clients.

    Args:
        alphabet: Tokens to draw canaries from.
        key: Key of the canaries.
        clients: Numbers of clients that share a canary.
        copies: Numbers of copies on each of them.
        repeats: Canaries per pair.
        words: Tokens per canary.
        prefix: Tokens of a canary that the attacker knows.
    """
    if not (clients and copies and repeats >= 1 and min(clients) >= 1 and min(copies) >= 1):
        raise InvalidInput(
            f"clients, copies and repeats must be at least 1, got {list(clients)}, {list(copies)} and {repeats}"
        )
    pairs = np.array(list(itertools.product(clients, copies)), np.int64).repeat(repeats, axis=0)
    return Canaries(phrases(alphabet, len(pairs), words, key=key), pairs[:, 0], pairs[:, 1], prefix)


def sharing_clients(
    canaries: Canaries, public: np.ndarray, *, key: Key, sentences: int = 200, marks: Marks = _WORDS
) -> Population:
    """The synthetic clients, in the order of canaries: n_e copies each, and random rows of `public` (n, length + 1)."""
    if not sentences >= int(canaries.copies.max()):
        raise InvalidInput(
            f"a client of {sentences} sentences cannot hold {canaries.copies.max()} copies of a canary: use more"
        )
    if not len(public) and int(canaries.copies.min()) < sentences:
        raise InvalidInput("the public corpus has no sentences: choose another")
    secret = _rows(canaries.phrases, public.shape[1] - 1, marks)
    stream = key.derive("public sentences").stream()
    parts: list[np.ndarray] = []
    for number in np.repeat(np.arange(canaries.size), canaries.clients).tolist():
        copies = int(canaries.copies[number])
        others = public[stream.below(len(public), sentences - copies)] if copies < sentences else public[:0]
        parts += [np.broadcast_to(secret[number], (copies, secret.shape[1])), others]
    sizes = np.full(canaries.n_clients, sentences)
    return Population({"tokens": np.concatenate(parts)}, sizes=sizes, name="canaries", synthetic=True)


def phrase_clients(some: np.ndarray, *, length: int, sentences: int = 200, marks: Marks = _WORDS) -> Population:
    """One client per phrase, which holds only `sentences` copies of it."""
    rows = _rows(some, length, marks).repeat(sentences, axis=0)
    return Population({"tokens": rows}, sizes=np.full(len(some), sentences), name="canaries", synthetic=True)


def picture_clients(
    fields: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    *,
    label: str,
    classes: int,
    count: int,
    key: Key,
    examples: int = 20,
) -> Population:
    """Clients for classifiers: each holds `examples` copies of one random input with one random label.

    Inputs are noise of the fields' shapes: uniform bytes, random booleans, other integers 0 or 1, and numbers between
    -1 and 1.

    Args:
        fields: Type and shape of every field.
        label: Field holding the class.
        classes: Number of classes.
        count: Number of clients.
        key: Key of the inputs and labels.
        examples: Copies of the input on each client.
    """
    columns: Columns = {}
    for field, (dtype, shape) in fields.items():
        stream = key.derive(f"field {field}").stream()
        size = count * int(np.prod(shape, dtype=np.int64))
        if field == label:
            drawn = stream.below(classes, count)
        elif dtype.kind == "f":
            drawn = 2 * (stream.below(1 << 24, size) / 2.0**24) - 1
        elif dtype.kind in "biu":
            drawn = stream.below(256 if dtype == np.uint8 else 2, size)
        else:
            raise InvalidInput(f"the field {field!r} is not numeric, so no canary can be generated for it: remove it")
        columns[field] = drawn.astype(dtype).reshape(count, *shape).repeat(examples, axis=0)
    return Population(columns, sizes=np.full(count, examples), name="canaries", synthetic=True)


def _rows(some: np.ndarray, length: int, marks: Marks) -> np.ndarray:
    """Phrases as rows of `length + 1` numbers: start, words, end, padding."""
    start, end, pad = marks
    count, words = some.shape
    if not words < length:
        raise InvalidInput(
            f"rows of {length} tokens have no room for canaries of {words} words and an end: use a larger length"
        )
    table = np.full((count, length + 1), pad, np.int32)
    table[:, 0], table[:, 1 : words + 1], table[:, words + 1] = start, some, end
    return table
