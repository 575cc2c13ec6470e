"""An interpolated Kneser-Ney model of words: the n-gram baseline of a keyboard.

Kneser and Ney 1995, interpolated as in Chen and Goodman 1999: each order subtracts a discount from its counts and gives
the discounted mass to the order below, which counts the distinct words that came before. It reads the rows of
`data.text.Vocabulary.encode`. **No guarantee**: it counts without noise. Fit it on public data; a fit on clients is
`simulation_only`.
"""

import dataclasses
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["NGram", "fit_ngram"]

PAD, START, END, FIRST_WORD = 0, 1, 2, 4
_MOST_ORDERS = 3


@dataclasses.dataclass(frozen=True)
class _Level:
    """One order: the probability that each seen gram adds, and each seen context's weight for the order below."""

    grams: np.ndarray  # context * vocabulary + word, sorted
    gains: np.ndarray
    contexts: np.ndarray  # sorted
    leaves: np.ndarray


@dataclasses.dataclass(frozen=True)
class NGram:
    """Probabilities of the next token given the last few."""

    vocabulary: int
    levels: tuple[_Level, ...]

    @property
    def order(self) -> int:
        """Number of tokens in a gram."""
        return len(self.levels)

    def probability(self, contexts: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The probability of each word (m,) after the tokens before it (m, order - 1); 0 for PAD and START."""
        chance = np.where(np.isin(words, (PAD, START)), 0.0, 1 / (self.vocabulary - 2))
        for length, level in enumerate(self.levels):
            code = _code(contexts, length, self.vocabulary)
            chance = _find(level.grams, level.gains, code * self.vocabulary + words, 0.0) + chance * _find(
                level.contexts, level.leaves, code, 1.0
            )
        return chance

    def log_probability(self, tokens: np.ndarray) -> np.ndarray:
        """The log-probability of each row (n, time + 1), up to its end."""
        contexts, words, rows = _targets(tokens, self.order)
        return np.bincount(rows, np.log(self.probability(contexts, words)), minlength=len(tokens))

    def top(self, contexts: np.ndarray, count: int) -> np.ndarray:
        """The `count` most likely words after each context (m, order - 1): no special tokens; ties go to the first.

        Words never seen after a context are ranked as in the order below. So the most likely words were either seen
        after the context or are among the most likely of the order below, and only these are compared.
        """
        if not 1 <= count <= self.vocabulary - FIRST_WORD:
            raise InvalidInput(f"between 1 and {self.vocabulary - FIRST_WORD} words can be proposed, got {count}")
        words = np.arange(FIRST_WORD, self.vocabulary)
        nowhere = np.zeros((len(words), self.order - 1), np.int64)
        alone = NGram(self.vocabulary, self.levels[:1]).probability(nowhere, words)
        best = words[np.argsort(-alone, kind="stable")[:count]][None]
        parent_codes = np.zeros(1, np.int64)
        for length in range(1, self.order):
            below = NGram(self.vocabulary, self.levels[: length + 1])
            codes, first = np.unique(_code(contexts, length, self.vocabulary), return_index=True)
            some = contexts[first]
            parents = np.searchsorted(parent_codes, _code(some, length - 1, self.vocabulary))
            best, parent_codes = below._best(codes, some, best[parents]), codes
        return best[np.searchsorted(parent_codes, _code(contexts, self.order - 1, self.vocabulary))]

    def recall(self, tokens: np.ndarray, *, top: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Number of words of each row among the `top` predictions, and its number of words: as `cifg_lstm.recall`."""
        contexts, words, rows = _targets(tokens, self.order)
        is_word = words != END
        contexts, words, rows = contexts[is_word], words[is_word], rows[is_word]
        hit = np.any(self.top(contexts, top) == words[:, None], axis=1)
        return np.bincount(rows, hit, minlength=len(tokens)), np.bincount(rows, minlength=len(tokens)).astype(float)

    def _best(self, codes: np.ndarray, contexts: np.ndarray, likely: np.ndarray) -> np.ndarray:
        """The best words after each context, out of those seen there in the highest order and those likely below."""
        count, grams = likely.shape[1], self.levels[-1].grams
        starts, ends = (np.searchsorted(grams, edge * self.vocabulary) for edge in (codes, codes + 1))
        here = np.repeat(np.arange(len(codes)), ends - starts)
        seen = grams[np.arange(len(here)) + np.repeat(starts - np.cumsum(ends - starts) + ends - starts, ends - starts)]
        where = np.concatenate([here, np.repeat(np.arange(len(codes)), count)])
        words = np.concatenate([seen % self.vocabulary, likely.ravel()])
        pairs = np.unique(where * self.vocabulary + words)
        where, words = pairs // self.vocabulary, pairs % self.vocabulary
        where, words = where[words >= FIRST_WORD], words[words >= FIRST_WORD]
        order = np.lexsort((words, -self.probability(contexts[where], words), where))
        begins = np.searchsorted(where, np.arange(len(codes)))  # every context has at least `count`
        return words[order][begins[:, None] + np.arange(count)]


def fit_ngram(tokens: Any, vocabulary: int, *, order: int = 3) -> NGram:
    """The model of these rows (n, time + 1). No guarantee: fit it on public data, or mark it `simulation_only`."""
    rows = np.asarray(tokens)
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or not len(rows):
        raise InvalidInput(f"an n-gram model needs rows of whole numbers, got {rows.dtype} of shape {list(rows.shape)}")
    if not 1 <= order <= _MOST_ORDERS:
        raise InvalidInput(f"order must be between 1 and {_MOST_ORDERS}, got {order}")
    if not (rows.min() >= 0 and rows.max() < vocabulary <= 2_000_000):
        raise InvalidInput(f"tokens must lie between 0 and {vocabulary - 1:,}, and a vocabulary has at most 2,000,000")
    contexts, words, _ = _targets(rows, order)
    grams, counts = np.unique(_code(contexts, order - 1, vocabulary) * vocabulary + words, return_counts=True)
    levels = list[_Level]()
    for length in range(order - 1, -1, -1):
        levels.append(_level(grams, counts, vocabulary))
        if length:  # below, a word counts once for each distinct token before it
            grams, counts = np.unique(grams % vocabulary**length, return_counts=True)
    return NGram(vocabulary, tuple(reversed(levels)))


def _level(grams: np.ndarray, counts: np.ndarray, vocabulary: int) -> _Level:
    once, twice = np.sum(counts == 1), np.sum(counts == 2)
    discount = float(once / (once + 2 * twice)) if once and twice else 0.5
    contexts, first = np.unique(grams // vocabulary, return_index=True)
    totals = np.add.reduceat(counts, first)
    kinds = np.diff(np.append(first, len(grams)))
    gains = (counts - discount) / np.repeat(totals, kinds)
    return _Level(grams, gains, contexts, discount * kinds / totals)


def _targets(tokens: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every token that counts, the `order` - 1 tokens before it (padding before the start), and its row."""
    rows = np.asarray(tokens, np.int64)
    counted = (rows[:, :-1] != END) & (rows[:, :-1] != PAD)
    where, place = np.nonzero(counted)
    before = [np.where(place >= back, rows[where, np.maximum(place - back, 0)], PAD) for back in range(order - 1)]
    contexts = np.stack(before[::-1], axis=1) if before else np.zeros((len(where), 0), np.int64)
    return contexts, rows[where, place + 1], where


def _code(contexts: np.ndarray, length: int, vocabulary: int) -> np.ndarray:
    """The last `length` tokens of each context as one number."""
    code = np.zeros(len(contexts), np.int64)
    for place in range(contexts.shape[1] - length, contexts.shape[1]):
        code = code * vocabulary + contexts[:, place]
    return code


def _find(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, otherwise: float) -> np.ndarray:
    """The values of the wanted keys; `keys` are sorted."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], otherwise)
