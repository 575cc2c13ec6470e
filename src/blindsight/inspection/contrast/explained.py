"""What explains a release: the candidates that were tried, and the one that is named. No JAX, for readers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from blindsight.data import faults
from blindsight.inspection.contrast.changed import Unknown
from blindsight.samples import as_json
from blindsight.wording import percent, span

__all__ = [
    "ANYTHING",
    "CLOSE",
    "FACELESS",
    "NAMELESS",
    "SEVERAL",
    "UNKNOWN",
    "Explanation",
    "FaultShare",
    "group_of",
    "statement_of",
    "tolerance_of",
    "verdict_on",
]

UNKNOWN, SEVERAL = "unknown", "several"
FACELESS = "mistakes alone"
"""A candidate without a signature: clients on which the model fails, and which look like any other."""
NAMELESS = "unnamed change: "
"""How rivals of all names begin: plain changes of a field, which no name stands for."""
ANYTHING = "anything else"
"""The alternative to all candidates: a fault that moves clients in a direction drawn at random."""
CLOSE = 9.0
"""Candidates whose deviance differs by less cannot be told apart."""

_POOR = 0.04  # a candidate whose misfit is exceeded less often than this explains nothing
_DISTINCT = 2.0  # by how much the deviance of a name must be below that of changes without one
_BETTER = (10.0, 24.0)  # by how much the deviance of one fault, or of two, must be below that of anything else
_TOLERATED = 0.2  # an enlargement that rounds to other pixels moves clients by a fifth differently


@dataclasses.dataclass(frozen=True)
class FaultShare:
    """A fault with the share of all clients that it would affect, and the 95 % interval."""

    fault: str
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        share = percent(self.share, within=(self.low, self.high))
        return f"{self.fault}, {share} of clients (95 %: {span(self.low, self.high)})"


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A candidate with the share of all clients that it would affect, and how well it predicts what was released.

    `deviance` is minus twice the log-likelihood, up to a constant; `p_value` says how often populations with the fault
    deviate as much from their best fit, None if it was not tried. Two faults at once have two `parts`. `mismatch` is
    the share of its movement by which clients' version of a fault seems to differ from the library's.
    """

    fault: str
    share: float
    low: float
    high: float
    deviance: float
    p_value: float | None = None
    parts: tuple[FaultShare, ...] = ()
    mismatch: float = 0.0

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "parts", (FaultShare(self.fault, self.share, self.low, self.high),))

    @classmethod
    def of(cls, parts: Sequence[FaultShare], deviance: float, mismatch: float = 0.0) -> "Explanation":
        """The explanation by one fault, or by several at once."""
        share, low, high = (min(sum(getattr(part, end) for part in parts), 1.0) for end in ("share", "low", "high"))
        return cls(
            " + ".join(part.fault for part in parts), share, low, high, deviance, mismatch=mismatch, parts=tuple(parts)
        )

    @property
    def fits(self) -> bool:
        """Whether what was released looks like this fault, at a share that is not zero."""
        return self.p_value is not None and self.p_value >= _POOR and all(part.low > 0 for part in self.parts)

    @property
    def is_nameless(self) -> bool:
        """Whether this is a plain change of a field, and no fault of the library."""
        return self.fault.startswith(NAMELESS)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Explanation":
        """The explanation that `to_dict` was called on."""
        fields = as_json.finite_or_not(value, "share", "low", "high", "deviance", "p_value")
        fields["parts"] = tuple(FaultShare(**part) for part in value.get("parts", ()))
        return cls(**fields)


def group_of(fault: str) -> str:
    """The fault without graded parameters: different factors of one field are one fault."""
    name, *settings = fault.split(":")
    if name not in faults.FAULTS:
        return fault
    graded = faults.FAULTS[name].graded
    return ":".join([name, *(one for one in settings if one.partition("=")[0] not in graded)])


def tolerance_of(fault: str) -> float:
    """The share of its movement by which others' version of a fault may differ from the library's."""
    damage = faults.FAULTS.get(fault.partition(":")[0])
    return _TOLERATED if damage is not None and damage.varies else 0.0


def verdict_on(tried: Sequence[Explanation]) -> tuple[str, tuple[Explanation, ...]]:
    """The fault that is named, `UNKNOWN` or `SEVERAL`; and the candidates that fit and cannot be told apart.

    A fault is unknown if no candidate fits, if it takes no signature of one to predict what was released, or if a
    change without a name, or a fault of any other kind, predicts it nearly as well.
    """
    fitting = [one for one in tried if one.fits and not one.is_nameless]
    close = tuple(one for one in fitting if one.deviance - fitting[0].deviance < CLOSE)
    anything = min((one.deviance for one in tried if one.fault == ANYTHING), default=float("inf"))
    if not close or any(part.fault == FACELESS for one in close for part in one.parts):
        return UNKNOWN, ()
    plain = min((one.deviance for one in tried if one.is_nameless), default=float("inf"))
    if close[0].deviance > plain - _DISTINCT:
        return UNKNOWN, ()
    if close[0].deviance > anything - _BETTER[len(close[0].parts) - 1]:
        return UNKNOWN, ()
    best = {" + ".join(group_of(part.fault) for part in one.parts): one for one in reversed(close)}
    kept = tuple(one for one in close if one in best.values())
    return (kept[0].fault if len(kept) == 1 else SEVERAL), kept


def statement_of(tried: Sequence[Explanation], unknown: Unknown | None = None) -> str:
    """What explains the release, in one sentence."""
    fault, close = verdict_on(tried)
    if fault == UNKNOWN:
        return "An unknown fault: no candidate predicts what was released." if unknown is None else str(unknown)
    named = [" and ".join(map(str, one.parts)) for one in close]
    return f"{named[0]}." if fault != SEVERAL else f"One of these: {'; '.join(named)}."
