"""Faults planted in all examples of some public clients: what would these clients send? Each is computed once.

Explanations and detection limits ask for the same faults, so both go through one `Planter`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from blindsight.codings.features import Features
from blindsight.data import faults
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.answering import Round
from blindsight.inspection.contrast.averages import encoded, part_of_evidence
from blindsight.inspection.contrast.question import Comparing, Quarters
from blindsight.inspection.contrast.rounds import features_of, observe
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.question import Public
from blindsight.models.primary import Primary, gather

__all__ = ["Change", "Planter"]

_AT_ONCE = 20_000_000  # values of clients that are looked at together
_CHECKED = 5  # public clients on which a model is tried row by row

Change = Callable[[Population], Population]
"""What happens to clients' examples."""


class Planter:
    """Public clients with a fault each, as they look after they have run the model and computed their cues.

    `most` is the number of public clients that faults are planted in; `changes` are those that the library of faults
    does not have, by name.
    """

    def __init__(
        self, question: Comparing, public: Public, *, most: int = 60, changes: Mapping[str, Change] | None = None
    ) -> None:
        self.question, self.most, self.changes = question, most, dict(changes or {})
        self.public = dataclasses.replace(public, model=_by_row(question, public))
        self.rivals: dict[str, Change] = {}  # without a name, planted only to be compared with faults
        self._seen: dict[str, Population | None] = {}

    @property
    def planted(self) -> list[str]:
        """The faults that have been planted so far."""
        return [fault for fault, seen in self._seen.items() if seen is not None and fault not in self.rivals]

    @functools.cached_property
    def healthy(self) -> Population | None:
        """All public clients, as they are; None without a reference."""
        reference = self.public.reference
        return None if reference is None else self._observed(reference)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """The public clients that faults are planted in: the first ones that have examples."""
        reference = self.public.reference
        return np.zeros(0, int) if reference is None else np.flatnonzero(reference.sizes > 0)[: self.most]

    def sent(self, fault: str, one: Round, names: Sequence[str]) -> dict[str, np.ndarray] | None:
        """What these clients would send for the named parts (of moments, their means); None if a field has no room."""
        if fault not in self._seen:
            self.plant([fault])
        seen = self._seen[fault]
        if seen is None:
            return None
        return client_vectors(seen, one.arms, [part_of_evidence(one.by_name[name]) for name in names])

    def plant(self, listed: Sequence[str], most: int | None = None) -> None:
        """Plant several faults at once, in the first `most` of the clients: a model is fastest on many examples."""
        reference = self.public.reference
        new = [fault for fault in listed if fault not in self._seen]
        self._seen |= dict.fromkeys(new)
        if reference is None or not new:
            return
        some = reference.select(self.rows[:most])
        some = some.replace(some.columns)  # generated once
        values = sum(column.size for column in some.columns.values())
        size = max(_AT_ONCE // max(values, 1), 1)
        for start in range(0, len(new), size):
            chosen = new[start : start + size]
            damaged = {fault: one for fault in chosen if (one := self.damaged(some, fault)) is not None}
            if damaged:
                self._look_at(damaged)

    def damaged(self, some: Population, fault: str) -> Population | None:
        """These clients with the fault on all of their examples; None if their fields have no room for it."""
        change = self.changes.get(fault) or self.rivals.get(fault)
        try:
            damaged = faults.apply(some, fault) if change is None else change(some)
            return damaged.replace(damaged.columns)
        except InvalidInput:
            return None

    @functools.cached_property
    def _features(self) -> Features | None:
        arms, empty = self.question.compared, self.question.schema.population()
        return features_of(self.question, self.public, empty, 2 if isinstance(arms, Quarters) else len(arms))

    def _observed(self, population: Population) -> Population:
        seen = observe(self.question, self.public, population, is_public=True)
        return seen if self._features is None else encoded(seen, self._features)

    def _look_at(self, damaged: Mapping[str, Population]) -> None:
        everyone = _joined(list(damaged.values()))
        seen = self._observed(everyone)
        large = [name for name, (_, shape) in seen.fields.items() if len(shape) >= 2]  # images have been looked at
        seen = seen.replace({name: column for name, column in seen.columns.items() if name not in large})
        ends = np.cumsum([one.size for one in damaged.values()]).tolist()
        for (fault, one), end in zip(damaged.items(), ends, strict=True):
            self._seen[fault] = seen.select(np.arange(end - one.size, end))


def _joined(populations: Sequence[Population]) -> Population:
    """One population of the clients of all, in order."""
    first = populations[0]
    columns = {name: np.concatenate([one.columns[name] for one in populations]) for name in first.columns}
    sizes = np.concatenate([one.sizes for one in populations])
    return Population(columns, sizes=sizes, name=first.name, classes=first.classes)


def _by_row(question: Comparing, public: Public) -> Primary | None:
    """The model, run on many public clients at once if that changes no score; no privacy depends on it."""
    model, reference = public.model, public.reference
    if model is None or model.by_row or reference is None:
        return model
    some = reference.select(np.flatnonzero(reference.sizes > 0)[:_CHECKED])
    if not some.size or any(field not in some.fields for field in question.inputs):
        return model
    rows = gather(some.columns, question.inputs)
    try:
        is_alike = np.allclose(model.scores(rows), model.scores_by_client(rows, some.sizes), rtol=1e-4, atol=1e-5)
    except Exception:  # `check` refuses the model with a reason
        return model
    return dataclasses.replace(model, by_row=True) if is_alike else model
