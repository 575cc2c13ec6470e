"""`Finding` and `Diagnosis`, the results of tests, with what all rooms share: levels, correction, intervals."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from blindsight.samples import as_json

__all__ = ["ALPHA", "CAUTION", "POWER", "Diagnosis", "Finding", "agreeing", "holm"]

ALPHA, POWER = 0.05, 0.9
CAUTION = 1.5
"""Thresholds learned from public clients are estimates: a third of the 5 % is kept for their error."""

Verdict = Literal["detected", "not detected"]
_OLD_VERDICTS = {"found": "detected", "not found": "not detected"}  # as older reports spell them


@dataclasses.dataclass(frozen=True)
class Finding:
    """One test: the estimated effect, its uncertainty, and the detection limit.

    `low` and `high` are a 95 % interval, widened where needed to agree with the verdict, which is corrected for all
    tests: it includes `usual`, the effect where nothing is wrong, exactly if nothing was detected. `p_value` is
    corrected for all tests of the report. `epsilon` is that of the underlying release alone. `smallest` is the smallest
    fraction of the first arm's clients that the test detects with 90 % power, if the fault moves them as far as a fault
    can.
    """

    kind: Literal["cue", "votes", "share", "threshold", "fidelity"]
    name: str
    statement: str
    effect: float
    low: float
    high: float
    p_value: float | None
    verdict: Verdict
    epsilon: float
    smallest: float | None
    arms: tuple[str, str]
    usual: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self) | {"arms": list(self.arms)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Finding":
        """The finding that `to_dict` was called on."""
        fields = as_json.finite_or_not(value, "effect", "low", "high", "p_value", "epsilon", "smallest")
        fields["usual"] = float(value.get("usual", 0.0))  # older reports lack it
        fields["arms"] = tuple(value["arms"])
        fields["verdict"] = _OLD_VERDICTS.get(value["verdict"], value["verdict"])
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The fault that an arm's clients voted for, with its share and 95 % interval.

    `tally` has every noisy share; it is empty if there are too few votes to tell shares from noise.
    """

    fault: str
    share: float
    low: float
    high: float
    arm: str
    statement: str
    tally: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Diagnosis":
        """The diagnosis that `to_dict` was called on."""
        fields = as_json.finite_or_not(value, "share", "low", "high")
        fields["tally"] = as_json.finite_or_not(value["tally"], *value["tally"])
        return cls(**fields)


def agreeing(low: float, high: float, *, effect: float, is_detected: bool, usual: float = 0.0) -> tuple[float, float]:
    """The interval as it agrees with the verdict: it excludes `usual` exactly if a difference was detected.

    A verdict is corrected for all tests of a report and an interval is not, so that one could exclude zero beside "not
    detected". It then reaches to `usual`, which can only raise its coverage. One that belongs to a detection ends at
    `usual`, on which side of it the effect lies being what the test decided.
    """
    if not is_detected:
        return min(low, usual), max(high, usual)
    return (max(low, usual), high) if effect >= usual else (low, min(high, usual))


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values corrected after Holm 1979: the probability that any true null falls to 5 % is at most 5 %.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, np.float64)
    order = np.argsort(raw, kind="stable")
    factors = len(raw) - np.arange(len(raw))
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return corrected
