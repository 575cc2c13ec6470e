"""Running totals of what one population's entries cost, so that a budget check need not recompose them."""

import numpy as np

from blindsight.accounting import filter as filters
from blindsight.accounting.composition import Share, is_parallel
from blindsight.accounting.events import Event, Relation, Unit
from blindsight.errors import RelationMismatch

__all__ = ["Spending"]


class Spending:
    """Running totals of costs (`filter`): common releases, and the largest arm of each split."""

    def __init__(self) -> None:
        self.total = filters.NOTHING
        self.once = True  # no client is in two entries: there is one, or all are on different arms of one split
        self.kinds: dict[tuple[object, ...], Event] = {}  # one elementary event of each type
        self._arms: dict[str, dict[str, np.ndarray]] = {}
        self._places: set[tuple[str, str]] = set()
        self._terms: tuple[Unit, Relation] | None = None

    def check_terms(self, population: str, new: Share) -> None:
        """Refuses a unit or relation other than that of earlier entries."""
        if self._terms not in (None, (new.unit, new.relation)):
            unit, relation = self._terms or ("", "")
            raise RelationMismatch(
                f"population {population!r} is accounted per {unit} under {relation}, but this release "
                f"per {new.unit} under {new.relation}; they have no common epsilon: use the same unit "
                "and relation as before"
            )

    def add(self, share: Share) -> None:
        """Counts one more share."""
        self.total = self.with_more(share)
        self.once = self.once_with(share)
        self._places.add(_place(share))
        if is_parallel(share):
            arms = self._arms.setdefault(share.split, {})
            arms[share.arm] = arms.get(share.arm, filters.NOTHING) + _cost(share)
        self.kinds |= {kind_of(leaf): leaf for leaf in share.leaves}
        self._terms = (share.unit, share.relation)

    def once_with(self, share: Share) -> bool:
        """Whether still no client would be in two entries after adding `share`."""
        if share.times > 1 or not self._places:
            return share.times == 1
        new, other_splits = _place(share), {split for split, _ in self._places} != {share.split}
        return self.once and is_parallel(share) and not other_splits and new not in self._places

    def with_more(self, share: Share) -> np.ndarray:
        """The total after adding `share`: of its split's arms only the largest is paid for."""
        more = _cost(share)
        if is_parallel(share):
            arms = self._arms.get(share.split, {})
            before = np.maximum.reduce([filters.NOTHING, *arms.values()])
            after = np.maximum(before, arms.get(share.arm, filters.NOTHING) + more)
            more = np.where(after == before, 0.0, after - np.where(np.isinf(before), 0.0, before))
        return self.total + more


def kind_of(leaf: Event) -> tuple[object, ...]:
    """The properties of an event that decide whether it can be composed with others."""
    return type(leaf), type(getattr(leaf, "event", None)), filters.has_a_limit_that_matters(leaf)


def _place(share: Share) -> tuple[str, str]:
    return (share.split, share.arm) if is_parallel(share) else ("", "")


def _cost(share: Share) -> np.ndarray:
    return share.times * filters.cost(share.event, share.relation)
