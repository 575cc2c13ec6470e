"""Unknown words on clients: words that a vocabulary lacks, sentence by sentence, before a change and after it.

A client takes the same number of sentences from both sides, the first ones; a client with sentences on only one side
sends zeros. Under the null hypothesis of no change its two sides are exchangeable, so every difference is as likely up
as down: the tests rely only on that (`findings`). It sends three vectors:

- **rates**: [b - 1/2, a - 1/2, (a - b)^2 / 2, 1] for its rates b before and a after, each between 0 and 1. In the worst
  case, b = 0 and a = 1, a rate takes 1/4 + 1/4 + 1/4, so the L2 norm for d rates is at most sqrt(3 d / 4 + 1).
- **signs**: for each trait of unknown words, whether the client has more of them after (`up`) or before (`down`). Rare
  traits show best here. Up and down exclude each other, so the L2 norm for s signs is at most sqrt(s).
- **votes**: every candidate fault is undone as far as possible (`data.text_faults`). The client votes for the one that
  resolves most words that are unknown after the change and not before, and in a mirrored vote for the one that does so
  before: two votes, with an L2 norm of sqrt(2).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data import faults, text
from blindsight.data.faults import Fault
from blindsight.data.population import TEXT, Population, ranges
from blindsight.data.text import Case, Vocabulary
from blindsight.data.text_faults import TEXT_FAULTS, KnownWords, mend
from blindsight.errors import InvalidInput
from blindsight.selection import Arms, where

__all__ = ["ARMS", "LENGTHS", "PLACES", "RATES", "SIDES", "SIGNS", "SUSPECTS", "TRAITS"]
__all__ += ["Rates", "SideVotes", "Signs", "joined", "observe", "paired", "sides_of", "suspects_of", "traits_of"]

SIDES = ("before", "after")
ARMS = Arms([(side, where("side", number)) for number, side in enumerate(SIDES)])

PLACES = (*(f"position {place}" for place in range(1, 11)), "later positions")
TRAITS = ("a space", "punctuation", "a capital", "a sign that is not ASCII", "a digit")
LENGTHS = ("1-3", "4-6", "7-9", "10-14", "15 or more")
RATES = (
    "unknown words",
    *(f"unknown words at {place}" for place in PLACES),
    *(f"unknown words with {trait}" for trait in TRAITS),
    *(f"unknown words, the longest of {length} letters" for length in LENGTHS),
)
"""The first rate is a share of words, the others are shares of sentences."""
SIGNS = (
    "unknown words",
    "unknown first words",
    *(f"unknown words with {trait}" for trait in TRAITS),
    f"unknown words of {LENGTHS[-1]} letters",
)
"""Counts that can differ between a client's sides."""

SUSPECTS: dict[str, str] = {
    f"{name}:{parameters}".rstrip(":"): words
    for name, fault in TEXT_FAULTS.items()
    for parameters, words in fault.explains.items()
}
"""The faults that clients can undo, with their meaning; ties go to the first."""

_LOOKED, _UNKNOWN, _WORDS, _REPAIRED = "looked", "unknown", "words", "repaired"
_ENDS = (3, 6, 9, 14)


def joined(before: Population, after: Population, *, field: str = "text") -> Population:
    """Both collections as one population: each client's texts, and in `side` whether they are from before or after.

    Equal ids mean the same client. Sites of a fleet join their own.
    """
    if before.is_elsewhere:
        return before
    ids = list(dict.fromkeys(itertools.chain(before.ids.tolist(), after.ids.tolist())))
    starts, sizes = np.zeros((len(ids), 2), np.int64), np.zeros((len(ids), 2), np.int64)
    for side, one in enumerate((before, after)):
        place = {client: number for number, client in enumerate(one.ids.tolist())}
        there = np.array([place.get(client, -1) for client in ids])
        starts[:, side] = np.where(there >= 0, one.offsets[there], 0) + side * before.n_examples
        sizes[:, side] = np.where(there >= 0, one.sizes[there], 0)
    rows = ranges(starts.ravel(), sizes.ravel())
    both = Population(
        {
            "text": np.concatenate([one.columns[field] for one in (before, after)])[rows],
            "side": np.repeat(np.tile(np.arange(2, dtype=np.int32), len(ids)), sizes.ravel()),
        },
        sizes=sizes.sum(axis=1),
        ids=np.array(ids, dtype=TEXT),
        name=after.name,
        classes={"side": SIDES},
        synthetic=before.synthetic and after.synthetic,
    )
    return both.with_types_of(before.types_read_off or after.types_read_off)


def sides_of(population: Population) -> tuple[Population, Population]:
    """The clients' texts before the change, and after it: what `joined` put together."""
    is_after = population.columns["side"] == 1
    owner = np.repeat(np.arange(population.size), population.sizes)

    def where(chosen: np.ndarray) -> Population:
        return Population(
            {"text": population.columns["text"][chosen]},
            sizes=np.bincount(owner[chosen], minlength=population.size),
            ids=population.ids,
            name=population.name,
            synthetic=population.synthetic,
        )

    return where(~is_after), where(is_after)


def paired(
    before: Population, after: Population, *, field: str = "text", most: int = 200, least_words: int = 2
) -> Population:
    """One population of everyone's sentences: for each client the same number from both sides, given by `side`.

    Equal ids mean the same client. A client that is missing on a side, or has no sentences there, has none here.
    """
    sides = [text.split_sentences(one, field=field, most=most, least_words=least_words) for one in (before, after)]
    places = [{client: place for place, client in enumerate(one.ids.tolist())} for one in sides]
    ids = list(dict.fromkeys(itertools.chain(*places)))
    starts, sizes = np.zeros((len(ids), 2), np.int64), np.zeros((len(ids), 2), np.int64)
    for side, (one, place) in enumerate(zip(sides, places, strict=True)):
        there = np.array([place.get(client, -1) for client in ids])
        starts[:, side] = np.where(there >= 0, one.offsets[there], 0) + side * sides[0].n_examples
        sizes[:, side] = np.where(there >= 0, one.sizes[there], 0)
    counts = np.repeat(sizes.min(axis=1), 2)
    rows = ranges(starts.ravel(), counts)
    joined = np.concatenate([one.columns[field] for one in sides])[rows]
    side = np.repeat(np.tile(np.arange(2, dtype=np.int32), len(ids)), counts)
    return Population(
        {"text": joined, "side": side},
        sizes=counts.reshape(-1, 2).sum(axis=1),
        ids=np.array(ids, dtype=TEXT),
        name=after.name,
        classes={"side": SIDES},
        synthetic=before.synthetic and after.synthetic,
    )


def suspects_of(names: Sequence[str] | None, case: Case) -> tuple[Fault, ...]:
    """The faults to vote on: those named, or all that can make a word unknown."""
    chosen = names or [name for name in SUSPECTS if name != "case" or case == "keep"]
    suspects = tuple(fault for name in chosen for fault in faults.parse(name))
    for fault in suspects:
        if fault.damage.mend is None:
            raise InvalidInput(f"{fault.name} is not a fault of words: choose from {', '.join(SUSPECTS)}")
    if len(set(map(str, suspects))) < len(suspects):
        raise InvalidInput(f"list each fault to vote on once, got {', '.join(map(str, suspects))}")
    return suspects


def observe(sentences: Population, vocabulary: Vocabulary, suspects: Sequence[Fault], case: Case) -> Population:
    """The sentences with numeric fields on their unknown words, each client from its own sentences."""
    known_words = KnownWords(vocabulary, case)
    texts = sentences.columns["text"].tolist()
    looked = np.zeros((len(texts), len(RATES) - 1), np.uint8)
    words, unknown = np.zeros(len(texts), np.int32), np.zeros(len(texts), np.int32)
    repaired = np.zeros((len(texts), len(suspects)), np.int32)
    for row, one in enumerate(texts):
        tokens = text.tokens(one, case="keep")
        missing = [(place, word) for place, word in enumerate(tokens) if word not in known_words]
        words[row], unknown[row] = len(tokens), len(missing)
        if missing:
            looked[row] = _look(missing)
            for number, fault in enumerate(suspects):
                whole = mend(one, fault.name, known_words, fault.settings)
                repaired[row, number] = 0 if whole == one else max(0, len(missing) - known_words.unknown(whole))
    columns = {"side": sentences.columns["side"], _LOOKED: looked, _WORDS: words, _UNKNOWN: unknown}
    return sentences.replace({**columns, _REPAIRED: repaired})


def _look(missing: list[tuple[int, str]]) -> list[bool]:
    """The positions of a sentence's unknown words, their traits, and the length of the longest."""
    places = {min(place, len(PLACES) - 1) for place, _ in missing}
    length = sum(max(len(word) for _, word in missing) > end for end in _ENDS)
    at = [place in places for place in range(len(PLACES))]
    return [*at, *traits_of("".join(word for _, word in missing)), *(length == n for n in range(len(LENGTHS)))]


def traits_of(word: str) -> list[bool]:
    """Whether the word has each of the `TRAITS`."""
    return [
        any(map(str.isspace, word)),
        any(not sign.isalnum() and not sign.isspace() for sign in word),
        any(map(str.isupper, word)),
        not all(sign.isascii() or sign.isspace() for sign in word),  # the no-break space counts as a space
        any(map(str.isdigit, word)),
    ]


@dataclasses.dataclass(frozen=True)
class Rates:
    """The part that holds rates: before, after, half the squared difference, and a 1 that counts the client."""

    name: str = "rates"

    @property
    def coordinates(self) -> int:
        """Three for each rate, and the count."""
        return 3 * len(RATES) + 1

    @property
    def bound(self) -> float:
        """The L2 norm that no client's vector exceeds."""
        return math.sqrt(0.75 * len(RATES) + 1)

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The client's rates on both sides; zeros if it has only one side."""
        del key
        counts = jnp.sum(masks, axis=1, keepdims=True)
        words, unknown = (masks @ batch[field].astype(jnp.float32) for field in (_WORDS, _UNKNOWN))
        shares = masks @ batch[_LOOKED].astype(jnp.float32) / jnp.maximum(counts, 1.0)
        rates = jnp.concatenate([(unknown / jnp.maximum(words, 1.0))[:, None], shares], axis=1)
        before, after = jnp.clip(rates, 0.0, 1.0) - 0.5
        vector = jnp.concatenate([before, after, (after - before) ** 2 / 2, jnp.ones(1, jnp.float32)])
        return jnp.where(jnp.all(counts > 0), vector, jnp.zeros_like(vector))


@dataclasses.dataclass(frozen=True)
class Signs:
    """The part that holds signs: whether a client has more unknown words of a trait after (`up`) or fewer (`down`)."""

    name: str = "signs"

    @property
    def coordinates(self) -> int:
        """Two for each sign."""
        return 2 * len(SIGNS)

    @property
    def bound(self) -> float:
        """The L2 norm that no client's vector exceeds: no count is both more and fewer."""
        return math.sqrt(len(SIGNS))

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The direction in which each trait changed; zeros if the client has only one side."""
        del key
        looked = masks @ batch[_LOOKED].astype(jnp.float32)  # (sides, rates)
        traits = slice(len(PLACES), len(PLACES) + len(TRAITS))
        unknown = masks @ batch[_UNKNOWN].astype(jnp.float32)[:, None]
        counts = jnp.concatenate([unknown, looked[:, :1], looked[:, traits], looked[:, -1:]], axis=1)
        change = counts[1] - counts[0]
        vector = jnp.concatenate([change > 0, change < 0]).astype(jnp.float32)
        return jnp.where(jnp.all(jnp.sum(masks, axis=1) > 0), vector, jnp.zeros_like(vector))


@dataclasses.dataclass(frozen=True)
class SideVotes:
    """The part that holds votes: one of the candidates or "none" for each side."""

    labels: tuple[str, ...]  # the candidates, then "none"
    name: str = "votes"

    @property
    def coordinates(self) -> int:
        """One for each candidate on each side, "none" included."""
        return 2 * len(self.labels)

    @property
    def bound(self) -> float:
        """Two votes."""
        return math.sqrt(2)

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The fault that explains the unknown words of each side beyond those of the other; zeros for only one side."""
        del key
        before, after = masks @ batch[_REPAIRED].astype(jnp.float32)  # (candidates,)
        gains = jnp.stack([before - after, after - before])
        choice = jnp.where(jnp.max(gains, axis=1) > 0, jnp.argmax(gains, axis=1), len(self.labels) - 1)
        vector = jax.nn.one_hot(choice, len(self.labels), dtype=jnp.float32).ravel()
        return jnp.where(jnp.all(jnp.sum(masks, axis=1) > 0), vector, jnp.zeros_like(vector))
