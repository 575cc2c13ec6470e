"""What a question that compares arms could find, before any client is asked: from the reference alone.

Every fault that can happen to the inputs is planted in public clients, and populations of the size at hand are drawn
from them (`simulating`). Nothing here reads a client, so the answer may decide whether clients are asked at all.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from blindsight.accounting.guarantee import certify
from blindsight.data import faults
from blindsight.data.population import TEXT
from blindsight.inspection.answering import Round
from blindsight.inspection.contrast.limits import Limit, is_blind
from blindsight.inspection.contrast.planted import Planter
from blindsight.inspection.contrast.planting import candidates
from blindsight.inspection.contrast.probes import numbers_of, probes
from blindsight.inspection.contrast.question import Comparing
from blindsight.inspection.contrast.reading import Usual, usual
from blindsight.inspection.contrast.rounds import MEASURE, rounds
from blindsight.inspection.contrast.simulating import GRID, SimulatedPopulations, Thresholds, noise_of
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.question import Public
from blindsight.inspection.sections.detection import Detection
from blindsight.mechanisms.gaussian_mechanism import joint

__all__ = ["Foresight"]

_LEAST = 20  # minimum number of public clients for detection limits
_MOST = 40  # faults that are planted
_FEW = 30  # public clients in which each of many faults is planted: enough for a limit, too few for a name


class Foresight:
    """What a question could find, from the reference alone; nothing without one.

    `planted` is the number of public clients that a single fault is planted in.
    """

    def __init__(self, question: Comparing, public: Public, *, planted: int = 60) -> None:
        changes = {} if public.reference is None else probes(public.reference, question.inputs)
        self.question = question
        self.planter = Planter(question, public, most=planted, changes=changes)

    @property
    def is_possible(self) -> bool:
        """Whether there are enough public clients."""
        reference = self.planter.public.reference
        return reference is not None and reference.size >= _LEAST and len(self.planter.rows) > 0

    @functools.cached_property
    def round(self) -> Round:
        """The round that measures; thresholds that clients will decide are those of public clients."""
        public, question, healthy = self.planter.public, self.question, self.planter.healthy
        dialogue = rounds(question, public)
        one = next(dialogue)
        while one.name != MEASURE and healthy is not None:
            sent, noise = client_vectors(healthy, one.arms, one.parts), noise_of(one)
            event = joint(*(one.mechanisms[part.name].planned_event for part in one.parts))
            scale = question.clients / healthy.size
            parts = {name: Measured(scale * sent[name].sum(axis=0), noise[name], 0.0) for name in sent}
            guarantee = certify(event, delta=question.delta)
            one = dialogue.send(Measurement(parts, tuple(one.arms), question.clients, event, guarantee))
        return one

    def faults(self) -> list[str]:
        """What can happen to the inputs: faults of the library, and changes of single fields."""
        question, empty = self.question, self.round.empty
        listed = candidates(empty, question.inputs, question.schema.label, question.suspects)
        if any(empty.fields[field][0] == TEXT for field in question.inputs):
            listed += [name for name, damage in faults.FAULTS.items() if damage.kind == "text"]
        changes = list(self.planter.changes)
        return [*_some(list(dict.fromkeys(listed)), max(_MOST - len(changes), _MOST // 2)), *changes]

    def blind(self) -> str:
        """Why nothing could be found, not even on all clients; empty if something could, or if it cannot be told."""
        if not self.is_possible:
            return ""
        first, *others = self.faults() or [""]
        for some in ([first], others):  # one visible fault is enough
            self.planter.plant(some, None if some == [first] else _FEW)
            if not is_blind(list(self.limits(among=some))):
                return ""
        tried = len(self.planter.planted)
        return f"each of {tried} faults planted in public data would be missed, even on all clients" if tried else ""

    def notes(self) -> Sequence[str]:
        """A remark if there are too few public clients."""
        if self.is_possible:
            return ()
        return (f"What could be detected is unknown: pass public data of at least {_LEAST} clients as the reference.",)

    def detection(self, one: Round | None = None, public: Usual | None = None) -> Detection | None:
        """The limit of every fault, for a report."""
        self.planter.plant(self.faults() if self.is_possible else (), _FEW)
        return self.detection_of(self.planter.planted, one, public)

    def detection_of(
        self, listed: Sequence[str], one: Round | None = None, public: Usual | None = None
    ) -> Detection | None:
        """The limits of these faults."""
        limits = tuple(self.limits(one, public, listed))
        if not limits or self.planter.public.reference is None:
            return None
        ranges = self.question.ranges
        vague = [name for name in numbers_of(self.round.empty, self.question.inputs) if name not in ranges]
        return Detection(limits, self.planter.public.reference.size, tuple(vague))

    def limits(
        self, one: Round | None = None, public: Usual | None = None, among: Sequence[str] | None = None
    ) -> Iterator[Limit]:
        """The limit of every fault, or of those `among` them, in the round that was asked or will be."""
        simulation = self.simulation(one, public, most=_FEW)
        if simulation is None:
            return
        for fault in self.faults() if among is None else among:
            sent = self.planter.sent(fault, one or self.round, simulation.parts)
            if sent is not None:
                yield simulation.limit(fault, sent)

    def simulation(
        self,
        one: Round | None = None,
        public: Usual | None = None,
        *,
        shares: Sequence[float] = GRID,
        populations: int = 120,
        most: int | None = None,
    ) -> SimulatedPopulations | None:
        """Populations of the size at hand; None if the reference is too small to draw them from.

        Args:
            one: The round; by default the one that will be asked.
            public: What every public client sends in it.
            shares: Shares of clients that have the fault.
            populations: Number of populations for each share.
            most: Use this many of the public clients that faults are planted in.
        """
        healthy, clients = self.planter.healthy, self.question.clients
        if healthy is None or not self.is_possible:
            return None
        one = one or self.round
        public = public or usual(one.by_name, one.arms, healthy)
        rows, is_hit = self.planter.rows[:most], _able(one, public)
        if not is_hit[rows].any():
            return None
        tests = Thresholds.of(one, public, clients)
        return SimulatedPopulations(
            tests, public, rows, is_hit, clients=clients, shares=shares, populations=populations
        )


def _able(one: Round, public: Usual) -> np.ndarray:
    """The public clients that a fault can hit: all of them, or those in the first arm if a public field divides them.

    Arms by a model's mistakes change with the fault; a fault of all versions makes no difference between versions.
    """
    if len(one.arms) == 1 or {"is_correct"} & set(one.arms.fields):
        return np.ones(public.clients, bool)
    return public.exact["cues"][:, one.by_name["cues"].block - 1] > 0


def _some(listed: list[str], most: int) -> list[str]:
    """At most `most` of them, evenly spread over the list, which is ordered by type and field."""
    if len(listed) <= most:
        return listed
    return [listed[round(place * (len(listed) - 1) / (most - 1))] for place in range(most)]
