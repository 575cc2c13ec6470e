"""Cues: named statistics of single examples, all between 0 and 1, that respond to faults.

Each client computes them on its own rows, whole columns at a time, as the field `cues`. For each arm a client sends the
mean of its examples' cues, centred at the public constant 1/2, its square, and a 1 that counts the client:

    [m_1 - 1/2, ..., m_d - 1/2, (m_1 - 1/2)^2, ..., (m_d - 1/2)^2, 1]

A cue of a missing value is NaN, except the one that counts missing values, and the mean is over the others. A client
without any sends a public constant instead (`neutral`), so that missing values move no other cue. Whatever the
examples, |m - 1/2| <= 1/2, so the L2 norm of the block is at most sqrt(d (1/4 + 1/16) + 1). The squares give an
estimate of the variance between clients from the release itself.
"""

import dataclasses
import math
import re
import string
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data.missing import TRUTH, is_missing
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.image_cues import image_cues
from blindsight.inspection.contrast.released import ABSENT, DECADES, MAGNITUDE, OTHERS, ArmCues
from blindsight.inspection.measuring import Measured

__all__ = ["FIELD", "ArmCues", "Cues", "cues_part", "in_steps", "observe", "settled"]

FIELD = "cues"
UNCHANGED = "same as the one before"
_GRADED = (
    "place in its range",
    "last digit",
    "length",
    "word length",
    "commas in numbers",
    MAGNITUDE,
)  # other cues of values are shares
_MOST_CLASSES = 16
_PUNCTUATION = frozenset(string.punctuation)
_IN_NUMBERS = re.compile(r"(?<=\d)[.,](?=\d)")


@dataclasses.dataclass(frozen=True)
class Cues:
    """The part of a measurement that holds cues: one block for each arm."""

    names: tuple[str, ...]
    arms: tuple[str, ...]
    disjoint_by_client: bool
    name: str = "cues"
    neutral: tuple[float, ...] = ()  # of every cue, for a client whose values are all missing; 1/2 by default

    @property
    def block(self) -> int:
        """Coordinates for one arm."""
        return 2 * len(self.names) + 1

    @property
    def coordinates(self) -> int:
        """Coordinates for all arms."""
        return self.block * len(self.arms)

    @property
    def bound(self) -> float:
        """The L2 norm that no client's part exceeds; a client with examples in several arms has a block in each."""
        blocks = 1 if self.disjoint_by_client else len(self.arms)
        return math.sqrt(blocks * (len(self.names) * (1 / 4 + 1 / 16) + 1))

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """Mean cues over the client's examples in each arm; zeros for arms without examples."""
        del key
        values = batch[FIELD].astype(jnp.float32)  # (examples, cues)
        is_there = jnp.isfinite(values)
        counts = jnp.sum(masks, axis=1, keepdims=True)
        there = masks @ is_there.astype(jnp.float32)  # (arms, cues)
        totals = masks @ jnp.where(is_there, values, 0.0)
        neutral = jnp.asarray(self.neutral or (0.5,) * len(self.names), jnp.float32)[None]
        mean = jnp.clip(jnp.where(there > 0, totals / jnp.maximum(there, 1.0), neutral), 0.0, 1.0) - 0.5
        blocks = jnp.concatenate([mean, mean**2, jnp.ones_like(counts)], axis=1)
        return jnp.where(counts > 0, blocks, jnp.zeros_like(blocks)).ravel()

    def read(self, measured: Measured) -> dict[str, ArmCues]:
        """The estimates of each arm from the noisy sums."""
        sums = np.asarray(measured.sums, np.float64)
        rows = np.moveaxis(sums.reshape(*sums.shape[:-1], len(self.arms), self.block), -2, 0)
        return {arm: _read(arm, self.names, row, measured.noise_std) for arm, row in zip(self.arms, rows, strict=True)}

    def everyone(self, measured: Measured) -> ArmCues:
        """All arms together, if they share no client and leave none out: the comparison of a sanity check."""
        if not self.disjoint_by_client:
            raise InvalidInput("clients in several arms would count several times: measure everything as one arm")
        sums = np.asarray(measured.sums, np.float64).reshape(len(self.arms), self.block).sum(axis=0)
        return _read("everyone", self.names, sums, measured.noise_std * math.sqrt(len(self.arms)))


def _read(arm: str, names: tuple[str, ...], row: np.ndarray, noise_std: float) -> ArmCues:
    """Means, and the standard deviation between clients.

    The variance between clients is E[(m - 1/2)^2] - E[m - 1/2]^2, computed from two noisy sums. Where noise makes it
    too small, tests would detect what is not there, so 1.64 standard deviations of its own noise are added for them (it
    is then too small in 5 % of cases). That costs little, because noise in the variance weighs 1/count against the
    noise of the mean. Intervals use the plain estimate.
    """
    cues = len(names)
    counted = row[..., -1:] if row.ndim > 1 else float(row[-1])
    count = np.maximum(counted, 1.0)
    centred = np.clip(row[..., :cues] / count, -0.5, 0.5)
    variance = row[..., cues : 2 * cues] / count - centred**2
    slack = 1.64 * noise_std * np.sqrt(1 + 4 * centred**2) / count
    spread, likely = (np.sqrt(np.clip(variance + more, 0.0, 0.25 - centred**2)) for more in (slack, 0.0))
    return ArmCues(arm, names, counted, noise_std, centred + 0.5, spread, likely)


def cues_part(
    population: Population, arms: tuple[str, ...], *, disjoint_by_client: bool, public: Population | None = None
) -> Cues:
    """The part that measures the cues of `population`, which `observe` has computed.

    A client whose values are all missing sends the mean of `public` data, if they are observed too, so that it looks
    like any other; without them shares are 0, and other cues 1/2.
    """
    if FIELD not in population.fields:
        raise InvalidInput(f"{population.name} has no cues: pass the population that cues.observe returns")
    names = population.classes[FIELD]
    if public is not None and public.classes[FIELD] != names:
        other = sorted({name.rpartition(": ")[0] or name for name in {*names} ^ {*public.classes[FIELD]}})
        raise InvalidInput(
            f"the reference has values of another kind in {', '.join(other)} than the clients' schema says"
        )
    if not any(name.rpartition(": ")[2] == ABSENT for name in names):  # images are never missing
        return Cues(names, tuple(arms), disjoint_by_client)
    usual = _usual(names)
    if public is not None and len(public.columns[FIELD]):
        values = public.columns[FIELD]
        there = np.isfinite(values)
        means = np.where(there, values, 0.0).sum(axis=0, dtype=np.float64) / np.maximum(there.sum(axis=0), 1)
        usual = in_steps(np.where(there.any(axis=0), means, usual).astype(np.float32))
    return Cues(names, tuple(arms), disjoint_by_client, neutral=tuple(usual.tolist()))


def _usual(names: tuple[str, ...]) -> np.ndarray:
    """What a missing value counts as where nothing is known: half of a graded cue, and no share."""
    return np.array([0.5 if name.rpartition(": ")[2] in _GRADED else 0.0 for name in names], np.float32)


def settled(population: Population) -> Population:
    """The observed population with a constant for each cue of a missing value, for measures that cannot skip it."""
    values = population.columns[FIELD]
    usual = np.where(np.isfinite(values), values, _usual(population.classes[FIELD])).astype(np.float32)
    changed = population.replace({**population.columns, FIELD: usual})
    changed.classes[FIELD] = population.classes[FIELD]
    return changed


def observe(
    population: Population,
    inputs: tuple[str, ...] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    reference: Population | None = None,
) -> Population:
    """The population with the field `cues`: one number between 0 and 1 for each example and each cue.

    `inputs` names the fields to read, by default all but derived ones. Numbers with a public range (`ranges`) are
    measured relative to it, and against the quartiles of public data (`reference`). The names of the cues are the
    classes of the field `cues`.
    """
    columns = dict(population.columns)
    chosen = inputs or tuple(field for field in columns if field not in _DERIVED)
    names, values = list[str](), list[np.ndarray]()
    for field in chosen:
        if field not in columns:
            raise InvalidInput(f"{population.name} has no field {field!r}: choose one of {', '.join(columns)}")
        field_facts = _Facts(population.classes.get(field), (ranges or {}).get(field), _middle_of(reference, field))
        cues_of_field = _cues_of(field, columns[field], field_facts)
        if MAGNITUDE in cues_of_field:  # a number
            cues_of_field[UNCHANGED] = _unchanged(columns[field], population.offsets)
        for name, value in cues_of_field.items():
            names.append(name if len(chosen) == 1 or columns[field].ndim >= 3 else f"{field}: {name}")
            values.append(value)
    if names and all(columns[field].ndim == 1 for field in chosen):
        names.append("repeated rows")
        values.append(_repeated(population, chosen))
    if not names:
        raise InvalidInput(f"{population.name} has no field to read cues from: name images, numbers or text")
    observed = population.replace({**columns, FIELD: in_steps(np.stack(values, axis=1).astype(np.float32))})
    observed.classes[FIELD] = tuple(names)
    return observed


def in_steps(values: np.ndarray) -> np.ndarray:
    """Values between 0 and 1 as multiples of 2^-12: sums over 4,096 of them are exact, in any order."""
    return np.round(values * np.float32(4096)) / np.float32(4096)


_DERIVED = ("predicted", "confidence", "is_correct", "repaired", "tried", FIELD)


@dataclasses.dataclass(frozen=True)
class _Facts:
    """What is public about a field: its classes, its range, and the middle half of public values."""

    classes: tuple[str, ...] | None
    ends: tuple[float, float] | None
    middle: tuple[float, float] | None


def _cues_of(field: str, column: np.ndarray, facts: _Facts) -> dict[str, np.ndarray]:
    if column.dtype == TEXT:
        return _text_cues(column)
    if column.dtype.kind == "b":
        return {"share of true": column}
    if facts.classes is not None:
        return _category_cues(column, facts.classes)
    if column.ndim >= 3:
        return image_cues(column)
    if column.ndim == 1:
        return _number_cues(column, facts.ends) | _middle_cues(column, facts.middle)
    raise InvalidInput(f"cues are read from images, single numbers and text, but {field!r} holds vectors")


def _middle_of(reference: Population | None, field: str) -> tuple[float, float] | None:
    """The quartiles of a number in public data; None if half of the values are equal."""
    if reference is None or field in reference.classes or field not in reference.fields:
        return None
    dtype, shape = reference.fields[field]
    if shape or dtype == TEXT or dtype.kind not in "iuf":
        return None
    values = reference.columns[field].astype(np.float64)
    values = values[np.isfinite(values)]
    low, high = np.quantile(values, (0.25, 0.75)).tolist() if values.size else (0.0, 0.0)
    return (low, high) if low < high else None


def _repeated(population: Population, fields: tuple[str, ...]) -> np.ndarray:
    """Whether an example equals an earlier one of the same client."""
    owner = np.repeat(np.arange(population.size), population.sizes)
    rows = list(zip(owner.tolist(), *(population.columns[field].tolist() for field in fields), strict=True))
    seen = set[tuple[object, ...]]()
    return np.array([row in seen or bool(seen.add(row)) for row in rows], bool)


def _unchanged(column: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Whether a value equals the one before it of the same client: a code that stands for missing values repeats.

    NaN where there is nothing to compare: at a client's first value, and beside missing ones.
    """
    values = column.astype(np.float64)
    before = np.concatenate([[np.nan], values[:-1]])[: len(values)]
    before[offsets[:-1][offsets[:-1] < len(values)]] = np.nan
    return np.where(is_missing(values) | is_missing(before), np.nan, values == before)


# --- numbers, categories and text


def _category_cues(column: np.ndarray, classes: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The share of missing values, and among the rest those of the public list and of all others together."""
    missing = is_missing(column, has_classes=True)
    is_other = (column < 0) | (column >= len(classes))
    shares = {f"share of {name}": column == number for number, name in enumerate(classes[:_MOST_CLASSES])}
    shares = {"share of true": column == 1} if classes == TRUTH else {OTHERS: is_other, **shares}
    return {ABSENT: missing, **{name: np.where(missing, np.nan, share) for name, share in shares.items()}}


def _number_cues(column: np.ndarray, ends: tuple[float, float] | None) -> dict[str, np.ndarray]:
    """Cues of single numbers: a change of units moves the magnitude, a filled gap the shares of unusual values."""
    values = column.astype(np.float64)
    missing = is_missing(values)
    values = np.where(missing, np.nan, values)
    size = np.abs(values)
    last = np.mod(size, 10) / 10  # rounding, and factors of ten
    if ends is not None:  # relative to a public range, small shifts become visible
        place = (values - ends[0]) / (ends[1] - ends[0])
        return {
            ABSENT: missing,
            "negative": np.where(missing, np.nan, values < 0),
            "beyond its range": np.where(missing, np.nan, (place < 0) | (place > 1)),
            "place in its range": np.clip(place, 0, 1),
            MAGNITUDE: np.clip(np.log10(1 + size) / DECADES, 0, 1),
            "last digit": last,
        }
    return {
        ABSENT: missing,
        "negative": np.where(missing, np.nan, values < 0),
        "zero": np.where(missing, np.nan, size == 0),
        MAGNITUDE: np.clip(np.log10(1 + size) / DECADES, 0, 1),  # a factor of 1000 moves it by 3/8
        "last digit": last,
    }


def _middle_cues(column: np.ndarray, middle: tuple[float, float] | None) -> dict[str, np.ndarray]:
    """A change of the distribution moves its middle half even where the mean stays, as if two columns are swapped."""
    if middle is None:
        return {}
    values = column.astype(np.float64)
    inside = (values >= middle[0]) & (values <= middle[1])
    return {"middle half": np.where(is_missing(values), np.nan, inside)}


def _text_cues(column: np.ndarray) -> dict[str, np.ndarray]:
    """Cues of texts: length, shares of character classes, length of words, where texts end, and how numbers look.

    Rare characters count by the square root of their share, which makes small changes of it visible.
    """
    texts, missing = column.tolist(), is_missing(column)
    lengths = np.array([len(text) for text in texts], np.float64)
    words = np.array([len(text.split()) for text in texts], np.float64)

    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    signs, which = np.unique(codes, return_inverse=True)
    owner = np.repeat(np.arange(len(texts)), lengths.astype(np.int64))

    def share(of: Callable[[str], bool]) -> np.ndarray:
        is_one = np.array([of(chr(sign)) for sign in signs.tolist()], np.float64)[which]
        return np.bincount(owner, is_one, len(texts)) / np.maximum(lengths, 1)

    shares = {
        "length": np.clip(np.log10(1 + lengths) / 4, 0, 1),
        "upper case": np.sqrt(share(str.isupper)),
        "lower case": share(str.islower),
        "spaces": share(str.isspace),
        "digits": np.sqrt(share(str.isdigit)),
        "not ASCII": np.sqrt(share(lambda sign: not sign.isascii())),
        "punctuation": np.sqrt(share(_PUNCTUATION.__contains__)),
        "word length": np.clip(lengths / np.maximum(words, 1) / 12, 0, 1),
        "cut off": np.array([text[-1:].isalnum() for text in texts], bool),
        "commas in numbers": np.array([_commas(text) for text in texts], np.float64),
    }
    return {ABSENT: missing, **{name: np.where(missing, np.nan, cue) for name, cue in shares.items()}}


def _commas(text: str) -> float:
    """The share of commas among the points and commas between digits; a half if there are none."""
    signs = _IN_NUMBERS.findall(text)
    return signs.count(",") / len(signs) if signs else 0.5
