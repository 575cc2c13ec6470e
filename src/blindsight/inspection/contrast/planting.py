"""Candidates planted in public clients: what would they send if they had the fault?"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from blindsight.data import faults
from blindsight.data.population import Population
from blindsight.data.table_faults import UNITS
from blindsight.errors import InvalidInput
from blindsight.inspection.answering import Round
from blindsight.inspection.contrast import cues, votes
from blindsight.inspection.contrast.averages import part_of_evidence, release_as_evidence
from blindsight.inspection.contrast.changed import Unknown, changed_statistics, share_with_it
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.explained import FACELESS, NAMELESS, Explanation, group_of
from blindsight.inspection.contrast.explaining import explain
from blindsight.inspection.contrast.nameless import nameless
from blindsight.inspection.contrast.planted import Planter
from blindsight.inspection.contrast.predicting import Evidence, PlantedAnswers
from blindsight.inspection.contrast.question import Comparing
from blindsight.inspection.contrast.quick_look import likeliest, likeliest_together, shortlist
from blindsight.inspection.contrast.reading import Usual
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.finding import Finding
from blindsight.inspection.measuring import Measurement
from blindsight.inspection.question import Public
from blindsight.selection import Arms, everything

__all__ = [
    "candidates",
    "explanations",
    "faceless",
    "odd_scales",
    "scaled_fields",
    "unknown_fault",
    "without_odd_scales",
    "worth_running",
]

_RIVALS = 16  # whether the model fails on them shows only if it runs
_VOTED = 4  # the model runs for the candidates with most votes, whatever their cues
_LEAST = 20  # minimum number of public clients for an explanation
_SCALED = 3  # fields of which every scale is tried
_SCALES = [10 ** (step / 20) for step in range(-60, 61) if abs(step) > 6]  # smaller ones are hard to tell
_IN_USE = {f"{factor:g}" for unit in UNITS for factor in (unit, 1 / unit)}
_PLAIN = 4.0  # squared distance by which an odd scale must predict better than a unit in use


def candidates(
    population: Population,
    inputs: tuple[str, ...],
    label: str,
    suspects: Sequence[str] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> list[str]:
    """The faults that can happen to these fields: those that clients vote on, and those that they cannot undo."""
    undone = list(suspects)
    if not undone:
        try:
            undone = [str(fault) for fault in votes.candidates(population, inputs, label)]
        except InvalidInput:  # nothing fits that can be undone
            undone = []
    facts = {field: one for field, one in faults.facts_of(population, ranges).items() if field in inputs}
    spelled = list[list[str]]()
    for name, damage in faults.FAULTS.items():
        if damage.kind == "row":
            spelled += [[name, words] for words in damage.planted(facts)]
        for field, one in facts.items():
            if damage.kind == one.kind and (damage.kind != "label" or damage.variants is not None):
                named = [f"field={field}"] if damage.kind in ("label", "number") else []
                spelled += [[name, *named, words] for words in damage.planted(one)]
    return list(dict.fromkeys([*undone, *(":".join(filter(None, words)) for words in spelled)]))


def explanations(
    question: Comparing,
    public: Public,
    one: Round,
    measured: Measurement,
    sent: dict[str, np.ndarray],
    planter: Planter,
) -> tuple[Explanation, ...]:
    """The candidates that could explain the release, the likeliest first; none if the reference is too small.

    Args:
        question: What was asked.
        public: The public inputs.
        one: The round that measured.
        measured: What it released.
        sent: What every public client would send as cues and votes, healthy.
        planter: Plants candidates in public clients, and has looked at the healthy ones.
    """
    reference = public.reference
    if reference is None or planter.healthy is None or reference.size < _LEAST:
        return ()
    rows = planter.rows
    if "moments" in one.by_name:
        sent = sent | client_vectors(planter.healthy, one.arms, [part_of_evidence(one.by_name["moments"])])
    planting = _Planting(question, planter, one, measured, sent, reference.select(rows))
    listed = candidates(one.empty, question.inputs, question.schema.label, question.suspects, question.ranges)
    seen, planted = planting.evidence(["cues"]), planting.by_cues(listed)
    numbers = [f for f, facts in faults.facts_of(planting.some).items() if facts.kind == "number"]
    planted |= planting.by_cues(odd_scales(scaled_fields(seen, planted, numbers)))
    rivals = nameless(reference, question.inputs)
    planter.rivals |= rivals
    planted = without_odd_scales(seen, planted) | planting.by_cues([*rivals])
    if list(sent) != ["cues"] or len(one.arms) > 1:  # the model has to run on each of them
        planted = planting.whole(planting.shortlist(planted))
    if one.arms.disjoint_by_client and len(one.arms) > 1:
        planted[FACELESS] = rows, faceless(one, {name: vectors[rows] for name, vectors in sent.items()})
    return explain(planting.evidence(list(sent)), planted)


def odd_scales(fields: Iterable[str]) -> list[str]:
    """A change of units that nobody suspects: every scale of these numbers."""
    return [f"unit_change:field={field}:factor={scale:.3g}" for field in fields for scale in _SCALES]


def scaled_fields(evidence: Evidence, planted: PlantedAnswers, numbers: Sequence[str]) -> list[str]:
    """The numbers that the likeliest candidates affect."""
    best = [fault for _, fault in likeliest(evidence, planted)[: 4 * _SCALED]]
    fields = [one.field for fault in best for one in faults.parse(fault) if one.field in numbers]
    return [*dict.fromkeys(field for field in fields if field)][:_SCALED]


def without_odd_scales(evidence: Evidence, planted: PlantedAnswers) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The candidates, without scales that predict hardly better than a unit in use."""
    plain, odd = dict[str, float](), dict[str, float]()
    for left, fault in likeliest(evidence, planted):
        if fault.startswith("unit_change") and fault.rpartition("=")[2] not in _IN_USE:
            odd[fault] = left
        else:
            plain[group_of(fault)] = min(left, plain.get(group_of(fault), np.inf))
    hardly = {fault for fault, left in odd.items() if left > plain.get(group_of(fault), np.inf) - _PLAIN}
    return {fault: sent for fault, sent in planted.items() if fault not in hardly}


def worth_running(
    seen: Evidence, planted: PlantedAnswers, labels: Sequence[str] = (), votes: np.ndarray | None = None
) -> list[str]:
    """The candidates worth running the model for: by cues, alone or two at once, and by the votes of the arms."""
    ranked = likeliest(seen, planted)
    named, rivals = shortlist(ranked)[0], [fault for _, fault in ranked if fault.startswith(NAMELESS)][:_RIVALS]
    best = [*named, *likeliest_together(seen, planted), *rivals]
    most = np.zeros(1) if votes is None else np.max(votes, axis=0)
    voted = [labels[int(place)] for place in np.argsort(-most[:-1])[:_VOTED]]
    return list(dict.fromkeys([*voted, *best]))


@dataclasses.dataclass(frozen=True, eq=False)
class _Planting:
    """Candidates planted in `some` public clients, the planter's rows of what all of them `sent`."""

    question: Comparing
    planter: Planter
    one: Round
    measured: Measurement
    sent: dict[str, np.ndarray]
    some: Population

    @property
    def rows(self) -> np.ndarray:
        return self.planter.rows

    def by_cues(self, listed: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What clients would send as cues; with several arms, as if the model failed on all that have the fault."""
        part, seen = self.one.by_name["cues"], dict[str, np.ndarray]()
        for fault in listed:
            damaged = self.planter.damaged(self.some, fault)
            if damaged is not None:
                prepared = self.question.prepare(damaged, None, None)
                inputs, ranges = self.question.inputs, self.question.ranges
                seen[fault] = cues.observe(prepared, inputs, ranges, self.planter.public.reference).columns[cues.FIELD]
        if not seen:
            return {}
        sizes = np.tile(self.some.sizes, len(seen))
        everyone = Population({cues.FIELD: np.concatenate([*seen.values()])}, sizes=sizes, name="planted")
        alone = Arms({"everyone": everything()})
        blocks = client_vectors(everyone, alone, [Cues(part.names, tuple(alone), True)])["cues"]
        vectors = np.zeros((len(blocks), part.coordinates), np.float32)
        vectors[:, : part.block] = blocks  # the first arm
        return dict(zip(seen, ((self.rows, one) for one in np.split(vectors, len(seen))), strict=True))

    def shortlist(self, planted: PlantedAnswers) -> list[str]:
        """The candidates that the model runs for."""
        if "votes" not in self.one.by_name:
            return worth_running(self.evidence(["cues"]), planted)
        votes = np.asarray(self.measured["votes"].sums).reshape(len(self.one.arms), -1)
        return worth_running(self.evidence(["cues"]), planted, self.one.by_name["votes"].labels, votes)

    def whole(self, listed: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What clients would send, once the model has run."""
        planted = dict[str, tuple[np.ndarray, np.ndarray]]()
        self.planter.plant(listed)
        for fault in listed:
            vectors = self.planter.sent(fault, self.one, list(self.sent))
            if vectors is not None:
                moved = np.concatenate([vectors[name] for name in self.sent], axis=1)
                planted[fault] = self.rows[: len(moved)], moved
        return planted

    def evidence(self, names: Sequence[str]) -> Evidence:
        """What was released of these parts."""
        released = [release_as_evidence(self.one.by_name[name], self.measured[name]) for name in names]
        return Evidence(
            sums=np.concatenate([part.sums for part in released]),
            noise_std=np.concatenate([np.full(part.sums.size, part.noise_std) for part in released]),
            clients=self.measured.clients,
            public=np.concatenate([self.sent[name] for name in names], axis=1),
        )


def unknown_fault(measured: Measurement, part: Cues, public: Usual, findings: Sequence[Finding]) -> Unknown:
    """Estimates for a fault without a name.

    Its share is estimated from all clients; with arms by accuracy, it is the share by which the first arm has grown.
    """
    changed = changed_statistics(findings)
    grown = next((one for one in findings if one.kind == "share" and one.verdict == "detected"), None)
    if grown is not None and grown.effect > 0:
        return Unknown(changed, grown.effect, max(grown.low, 0.0), grown.high)
    share = None
    if len(part.arms) == 1:
        seen, normal = part.read(measured["cues"])[part.arms[0]], public.read(part)[part.arms[0]]
        share = share_with_it(seen, normal, measured.clients)
    return Unknown(changed, *(share or ()))


def faceless(one: Round, sent: dict[str, np.ndarray]) -> np.ndarray:
    """What clients would send if the model failed on them for no visible reason: what they send, in the first arm.

    They vote for nothing. A client in no arm sends nothing; it takes the others' mean.
    """
    blocks = {name: vectors.reshape(len(vectors), len(one.arms), -1) for name, vectors in sent.items()}
    is_in = blocks["cues"][:, :, -1].sum(axis=1) > 0
    for name, vectors in blocks.items():
        own = vectors.sum(axis=1)
        own[~is_in] = own[is_in].mean(axis=0) if is_in.any() else 0.0
        if name == "votes":
            own = np.eye(own.shape[1])[np.full(len(own), -1)]
        blocks[name] = np.zeros_like(vectors)
        blocks[name][:, 0] = own
    return np.concatenate([vectors.reshape(len(vectors), -1) for vectors in blocks.values()], axis=1)
