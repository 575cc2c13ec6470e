"""Detection limits: the share of clients above which a fault is detected with 90 % power. No JAX, for readers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from blindsight.samples import as_json
from blindsight.wording import percent

__all__ = ["SHOWN", "Limit", "in_words", "is_blind"]

SHOWN = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of clients at which a report states the power."""

_FEW = 4  # faults that are listed by name
_HALF = 0.5  # a question none of whose faults is found more often is not worth its epsilon


@dataclasses.dataclass(frozen=True)
class Limit:
    """The smallest share of clients at which `fault` is detected with 90 % power; None if there is none.

    `power` are the probabilities that something is found, at each share of `SHOWN`.
    """

    fault: str
    smallest: float | None
    power: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        power = {f"{share:g}": round(value, 3) for share, value in zip(SHOWN, self.power, strict=True)}
        return {"fault": self.fault, "smallest": self.smallest, "power": power}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Limit":
        """The limit that `to_dict` was called on."""
        fields = as_json.finite_or_not(value, "smallest")
        return cls(fields["fault"], fields["smallest"], tuple(value["power"].values()))


def is_blind(limits: Sequence[Limit]) -> bool:
    """Whether every fault would be missed more often than found, on whatever share of clients."""
    return all(one.smallest is None and max(one.power) < _HALF for one in limits)


def in_words(limits: Sequence[Limit]) -> str:
    """The range over all faults that were looked for, never the easiest one alone."""
    seen = sorted((one for one in limits if one.smallest is not None), key=lambda one: one.smallest or 0.0)
    unseen = [one.fault for one in limits if one.smallest is None]
    tried = f"{len(limits)} faults" if len(limits) > 1 else "the fault"
    if not seen and is_blind(limits):
        return f"Nothing could be detected: {tried} planted in public data would be missed even on all clients."
    if not seen:
        best = max(limits, key=lambda one: max(one.power))
        return (
            f"Of {tried} planted in public data, none is detected with 90 % power, even on all clients; the most "
            f"visible ({best.fault}) is detected in {percent(max(best.power), 2)} of cases at best."
        )
    easy, hard = seen[0], seen[-1]
    if len(limits) == 1:
        return f"{easy.fault}, planted in public data, is detected with 90 % power above {_share(easy)} of clients."
    words = f"the easiest ({easy.fault}) is detected with 90 % power above {_share(easy)} of clients"
    if len(seen) > 1:
        words += f", the hardest {'detectable one ' if unseen else ''}({hard.fault}) above {_share(hard)}"
    missed = "" if not unseen else f"; {_listed(unseen)} would be missed even on all clients"
    return f"Of {tried} planted in public data, {words}{missed}."


def _share(limit: Limit) -> str:
    return percent(limit.smallest or 0.0, 2)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_FEW]) if len(names) > _FEW + 1 else list(names)
    rest = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    *first, last = [*shown, *rest]
    return f"{', '.join(first)} and {last}" if first else last
