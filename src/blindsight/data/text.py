"""Text preprocessing for language models: sentences, tokens, vocabularies, and populations of token ids.

Everything here runs on the client, example by example; only a `Vocabulary` is shared. It is public: given, counted on
public data, or released by a mechanism (`algorithms.vocabulary`), never counted on clients without noise.
"""

import collections
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from blindsight.data.population import TEXT, Columns, Population, as_text
from blindsight.errors import BlindsightError, InvalidInput

__all__ = ["END", "END_OF_WORD", "PAD", "START", "START_OF_WORD", "UNKNOWN", "Case", "Vocabulary", "sentences"]
__all__ += ["split_sentences", "tokens", "unknown_words", "word_bytes", "word_tokens"]

Case = Literal["lower", "keep"]

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""Ids of the special tokens."""
MARKS = ("PAD", "START", "END", "UNK")

START_OF_WORD, END_OF_WORD = 256, 257
"""Special tokens of a byte-level model, after the 256 bytes of UTF-8."""

_CAPITALS = "A-ZÀ-ÖØ-ÞΑ-ΩА-ЯЁ"
_SENTENCE_END = re.compile(
    rf"(?:(?<=[.!?…])|(?<=[.!?…][\"')”’»]))\s+(?=[{_CAPITALS}\"'“‘«(¿¡])|(?<=[。！？])|\n+",
)
_VOWEL_SIGNS = (  # written after or around a letter, not letters by themselves
    "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u0e00-\u0e7f\u200c\u200d"
)
_TOKEN = re.compile(
    rf"<url>|<email>|@user|[^\W_](?:[^\W_]|['’\-{_VOWEL_SIGNS}]|\u00a0(?=[^\W_]))*|\S",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """The sentences of a text: split at line ends, and after . ! ? before a capital, a quotation or a bracket.

    >>> sentences("It works! See e.g. the log. (Or ask.)")
    ['It works!', 'See e.g. the log.', '(Or ask.)']
    """
    return [piece for piece in map(str.strip, _SENTENCE_END.split(text)) if piece]


def tokens(text: str, *, case: Case = "lower") -> list[str]:
    """Words, and every other character by itself. Words joined by a no-break space are one token.

    >>> tokens("Don't e-mail me, see <url>")
    ["don't", 'e-mail', 'me', ',', 'see', '<url>']
    """
    return _TOKEN.findall(text.lower() if case == "lower" else text)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A model's words, most frequent first, numbered after the special tokens PAD, START, END and UNKNOWN.

    >>> vocabulary = Vocabulary(("the", "cat"))
    >>> vocabulary.encode([["the", "dog"]], length=4).tolist()
    [[1, 4, 3, 2, 0]]
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words:
            raise InvalidInput("the vocabulary has no words: give some, or count them on public text")
        if not all(isinstance(word, str) and word for word in self.words):  # pyright: ignore
            raise InvalidInput("the vocabulary has an empty word: every line of its file is one word")
        if len(self._numbers) < len(self.words):
            twice = next(word for word, count in collections.Counter(self.words).items() if count > 1)
            raise InvalidInput(f"the vocabulary has {twice!r} twice: list every word once")

    @property
    def size(self) -> int:
        """Number of token ids: one per word, and the four special tokens."""
        return len(MARKS) + len(self.words)

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, len(MARKS))}

    def __contains__(self, word: str) -> bool:
        return word in self._numbers

    def id(self, word: str) -> int:
        """The word's token id; UNKNOWN if it has none."""
        return self._numbers.get(word, UNKNOWN)

    def word(self, number: int) -> str:
        """The word with that token id; special tokens are shown by name."""
        return MARKS[number] if number < len(MARKS) else self.words[number - len(MARKS)]

    def encode(self, texts: Iterable[Sequence[str]], *, length: int) -> np.ndarray:
        """Token ids as int32 of (texts, length + 1): START, the words, END, then PAD; truncated after `length`."""
        numbers = self._numbers
        rows = [[numbers.get(word, UNKNOWN) for word in text[:length]] + [END] for text in texts]
        return _filled(rows, START, PAD, length)

    def decode(self, row: Iterable[int]) -> list[str]:
        """The words of a row of token ids up to END, without START and PAD."""
        words = itertools.takewhile(lambda number: number != END, map(int, row))
        return [self.word(number) for number in words if number not in (START, PAD)]

    def save(self, path: str | Path) -> None:
        """Write the words as JSON."""
        content = json.dumps({"format": 1, "words": self.words}, ensure_ascii=False, indent=0)
        try:
            Path(path).write_text(content + "\n", encoding="utf-8")
        except OSError as error:
            raise BlindsightError(f"cannot write {path} ({error.strerror}): choose another folder") from error

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """The vocabulary in a file: JSON as `save` writes it, or text with one word per line."""
        try:
            content = Path(path).read_text(encoding="utf-8-sig")
            is_json = content.lstrip().startswith("{")
            words = json.loads(content)["words"] if is_json else map(str.strip, content.splitlines())
        except OSError as error:
            raise InvalidInput(f"cannot read the vocabulary {path} ({error.strerror}): choose another file") from error
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start:,}): save it in UTF-8") from error
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path} is not a vocabulary, or it is damaged: write one word per line") from error
        return cls(tuple(words))

    @classmethod
    def most_frequent(
        cls, texts: Iterable[str] | Population, size: int = 10_000, *, field: str = "text", case: Case = "lower"
    ) -> "Vocabulary":
        """The most frequent tokens of public text, with a `Vocabulary.size` of at most `size`.

        On clients' text this would be a query without noise: `simulation_only`. Equally frequent words are in
        alphabetical order, so that the same text always gives the same token ids.
        """
        if size <= len(MARKS):
            raise InvalidInput(f"size must be above 4, because four special tokens come first, got {size}")
        if isinstance(texts, Population):
            texts = _text_of(texts.columns, field, texts.name)
        counts = collections.Counter(itertools.chain.from_iterable(tokens(text, case=case) for text in texts))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(tuple(ordered[: size - len(MARKS)]))


def split_sentences(
    population: Population, *, field: str = "text", most: int = 200, least_words: int = 2
) -> Population:
    """The same clients with one sentence per example, each client's first `most`; other fields are repeated."""
    if most < 1:
        raise InvalidInput(f"most, the sentences kept per client, must be at least 1, got {most}")
    pieces = [
        [piece for piece in sentences(text) if len(piece.split()) >= least_words]
        for text in _text_of(population.columns, field, population.name)
    ]
    rows, sizes = _first_of_each_client(population, np.array([len(some) for some in pieces], np.int64), most)
    number = _places(rows)
    columns: Columns = {name: column[rows] for name, column in population.columns.items()}
    columns[field] = np.array([pieces[row][place] for row, place in zip(rows, number, strict=True)], dtype=TEXT)
    return _of_the_same_clients(population, columns, sizes)


def word_tokens(
    population: Population, vocabulary: Vocabulary, *, field: str = "text", length: int = 20, case: Case = "lower"
) -> Population:
    """The same examples with a field `tokens`: `length + 1` token ids each, as `Vocabulary.encode` returns them."""

    def number(clients: np.ndarray, columns: Columns) -> Columns:
        texts = (tokens(text, case=case) for text in _text_of(columns, field, population.name))
        return columns | {"tokens": vocabulary.encode(texts, length=length)}

    return population.transform(number, name=population.name)


def unknown_words(
    population: Population,
    vocabulary: Vocabulary,
    *,
    field: str = "text",
    length: int = 20,
    most: int = 200,
    case: Case = "lower",
) -> Population:
    """The same clients with one out-of-vocabulary word per example, each client's first `most`.

    Fields: `word`; `tokens`, its bytes as `word_bytes` returns them; `position`, its index in its text, from 0. Clients
    without such words have no examples.

    Args:
        population: Clients with texts.
        vocabulary: Words that are known.
        field: Field holding the text.
        length: Bytes of a word; longer ones are cut off.
        most: Words of each client; the first ones are used.
        case: Whether words that differ only in capitals are distinct.
    """
    missing = [
        [(word, place) for place, word in enumerate(tokens(text, case=case)) if word not in vocabulary]
        for text in _text_of(population.columns, field, population.name)
    ]
    rows, sizes = _first_of_each_client(population, np.array([len(some) for some in missing], np.int64), most)
    kept = [missing[row][place] for row, place in zip(rows, _places(rows), strict=True)]
    words = [word for word, _ in kept]
    columns = {
        "word": as_text(words),
        "tokens": word_bytes(words, length=length),
        "position": np.array([place for _, place in kept], np.int32),
    }
    return _of_the_same_clients(population, columns, sizes)


def word_bytes(words: Iterable[str], *, length: int) -> np.ndarray:
    """UTF-8 as int32 of (words, length + 1): START_OF_WORD, bytes, END_OF_WORD to the end; truncated after `length`."""
    return _filled([[*word.encode(), END_OF_WORD] for word in words], START_OF_WORD, END_OF_WORD, length)


def _filled(rows: list[list[int]], start: int, fill: int, length: int) -> np.ndarray:
    """`start` and a row on each line, truncated or padded."""
    if length < 1:
        raise InvalidInput(f"length must be at least 1 token, got {length}")
    table = np.full((len(rows), length + 1), fill, np.int32)
    table[:, 0] = start
    lengths = np.minimum(np.array([len(row) for row in rows], np.int64), length)
    is_filled = np.arange(1, length + 1) <= lengths[:, None]
    flat = itertools.chain.from_iterable(row[:length] for row in rows)
    table[:, 1:][is_filled] = np.fromiter(flat, np.int32, count=int(lengths.sum()))
    return table


def _first_of_each_client(population: Population, counts: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """If examples become `counts` pieces each: the example of every kept piece, and the clients' new sizes."""
    before = np.concatenate([[0], np.cumsum(counts)])[population.offsets]  # pieces before each client's first
    sizes = np.minimum(np.diff(before), most)
    rows = np.repeat(np.arange(population.n_examples), counts)
    in_client = np.arange(len(rows)) - np.repeat(before[:-1], np.diff(before))
    return rows[in_client < most], sizes


def _places(rows: np.ndarray) -> np.ndarray:
    """0, 1, 2 ... within each run of equal rows."""
    begins = np.concatenate([[True], rows[1:] != rows[:-1]]) if len(rows) else np.zeros(0, bool)
    return np.arange(len(rows)) - np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))


def _of_the_same_clients(population: Population, columns: Columns, sizes: np.ndarray) -> Population:
    classes = {field: names for field, names in population.classes.items() if field in columns}
    options: Any = {"ids": population.ids, "classes": classes, "synthetic": population.synthetic}
    return Population(columns, sizes=sizes, name=population.name, **options)


def _text_of(columns: Columns, field: str, name: str) -> list[str]:
    if field not in columns:
        raise InvalidInput(f"there is no field {field!r} in {name}: it has {', '.join(columns)}")
    if columns[field].dtype != TEXT:
        raise InvalidInput(f"field {field!r} of {name} is not text: name the text field")
    return columns[field].tolist()
