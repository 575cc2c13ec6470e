"""From noisy sums to a report: what is shown of every arm, the findings, and the notes.

Nothing here reads client data: everything is computed from releases or from public data.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.accounting.guarantee import Guarantee
from blindsight.algorithms import moments
from blindsight.algorithms.moments import MomentsPart
from blindsight.data.population import Population
from blindsight.inspection.contrast import cautions, findings
from blindsight.inspection.contrast.chance import ArmPairs, largest
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.released import ArmCues
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.finding import CAUTION, Diagnosis, Finding
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.keys import Key
from blindsight.models import generators
from blindsight.models.primary import Primary
from blindsight.samples import clarity
from blindsight.samples.views import ArmView
from blindsight.selection import Arms, by_accuracy
from blindsight.selection.criteria import Accuracy

__all__ = ["Usual", "is_calibrated", "notes", "read", "samples", "signals", "usual", "views", "warnings"]

_SPREAD = 0.75  # of latents: closer to typical images, which have less speckle
_REFERENCE = "reference"
_FEW = 5  # public clients in an arm


def samples(
    measured: Measurement, part: MomentsPart, per_class: int, key: Key, progress: Callable[[int, int], None]
) -> tuple[Sequence[Mapping[str, np.ndarray]], np.ndarray | None]:
    """Examples of every arm from a generator fitted to its moments, and their labels, if any."""
    released = part.read(measured["moments"].sums, measured["moments"].noise_std)
    generator = moments.fit(released, key=key.derive("generator"), progress=progress)
    drawn, labels = generators.draw(generator, per_class, key=key.derive("samples"), spread=_SPREAD)
    seen: list[bool] = np.any(released.is_seen, axis=1).tolist()  # samples of an arm without clients would show noise
    return [columns if one else {} for columns, one in zip(drawn, seen, strict=True)], labels if part.label else None


def views(
    measured: Measurement,
    cues: Cues,
    examples: Sequence[Mapping[str, np.ndarray]],
    labels: np.ndarray | None,
    signals: Sequence[float],
) -> tuple[ArmView, ...]:
    """What is shown of each arm, the first arm last: its share of clients and synthetic samples."""
    counted = cues.read(measured["cues"])
    shown = [
        _view(counted[arm], measured.clients, columns, labels, signal)
        for arm, columns, signal in zip(measured.arms, examples, signals, strict=True)
    ]
    return (*shown[1:], shown[0])


def _view(
    arm: ArmCues, clients: int, columns: Mapping[str, np.ndarray], labels: np.ndarray | None, signal: float
) -> ArmView:
    images = [values for values in columns.values() if values.ndim >= 3]
    return ArmView(
        arm.arm,
        *arm.share(clients),
        samples=images[0] if images else None,
        rows=columns if columns and not images else None,
        labels=labels if columns else None,
        signal_to_noise=signal if columns else None,
    )


def signals(measured: Measurement, part: MomentsPart) -> list[float]:
    """The signal of every arm's moments, in standard deviations of their noise."""
    released = part.read(measured["moments"].sums, measured["moments"].noise_std)
    return [clarity.signal_to_noise(released.of_means[place], released.noise_std) for place in range(len(part.arms))]


@dataclasses.dataclass(frozen=True, eq=False)
class Usual:
    """What every public client would send for each part, in the clients' arms: what is usual where nothing is wrong.

    `members` is the number of public clients in each arm; `exact` is what they send for exactly the clients' arms.
    """

    vectors: Mapping[str, np.ndarray]
    members: Mapping[str, int]
    exact: Mapping[str, np.ndarray]

    @property
    def clients(self) -> int:
        """Number of public clients."""
        return len(self.vectors["cues"])

    def read(self, part: Any) -> dict[str, Any]:
        """A part of all public clients, without noise."""
        return part.read(Measured(self.vectors[part.name].sum(axis=0), 0.0, 0.0))


def usual(parts: Mapping[str, Any], arms: Arms, reference: Population) -> Usual:
    """The same round on public clients.

    If hardly any of them are in an arm by accuracy, their own quarters stand in for the expected difference: clients on
    which a model does worst differ from others, whatever its accuracy.
    """
    tested = [parts[name] for name in ("cues", "votes") if name in parts]
    exact = sent = client_vectors(reference, arms, tested)
    block, first = parts["cues"].block, sent["cues"]
    members = {arm: int((first[:, (place + 1) * block - 1] > 0).sum()) for place, arm in enumerate(arms)}
    is_by_accuracy = all(isinstance(one, Accuracy) for one in arms.values())
    if len(arms) > 1 and is_by_accuracy and min(members.values()) < _FEW <= reference.size / 4:
        owner = np.repeat(np.arange(reference.size), reference.sizes)
        right = np.bincount(owner, reference.columns["is_correct"], reference.size) / np.maximum(reference.sizes, 1)
        low, high = np.quantile(right[reference.sizes > 0], (0.25, 0.75))
        sent = client_vectors(reference, by_accuracy(max(low, 1e-3), max(low, high)), tested)
    return Usual(sent, members, exact)


def read(
    measured: Measurement, parts: Mapping[str, Any], arms: Arms, public: Usual | None
) -> tuple[list[Finding], list[Diagnosis]]:
    """Findings and diagnoses: the first arm against every other one, or against public data, and the votes of all."""
    part, released = parts["cues"], measured["cues"]
    seen = part.read(released)
    normal = {} if public is None else public.read(part)
    first, *others = arms
    pairs: ArmPairs = [(first, other) for other in others] or ([(first, None)] if public is not None else [])
    chance = None
    if public is not None:
        chance = np.array([np.inf])
        if is_calibrated(public, part):
            sent = public.vectors["cues"]
            chance = largest(part, sent, pairs, clients=measured.clients, noise_std=released.noise_std)
    families = (1 + ("votes" in parts or _counts_arms(arms, public))) * (1.0 if public is None else CAUTION)
    listed, diagnoses = list[Finding](), list[Diagnosis]()
    for one, other in pairs:
        listed += findings.compare_cues(
            seen[one],
            dataclasses.replace(normal[one], arm=_REFERENCE) if other is None else seen[other],
            epsilon=released.epsilon,
            disjoint_by_client=part.disjoint_by_client,
            expected=(normal[one], normal[other]) if normal and other is not None else None,
            chance=chance,
            looks=families,
        )
    looks = families * (len(arms) * ("votes" in parts) + _counts_arms(arms, public))
    if public is not None and _counts_arms(arms, public):
        counts = (seen[first], public.members[first], public.clients)
        listed.append(
            findings.compare_members(*counts, clients=measured.clients, epsilon=released.epsilon, looks=looks)
        )
    if "votes" in parts:
        voted_before = None if public is None else public.read(parts["votes"])
        for arm, votes in parts["votes"].read(measured["votes"]).items():
            diagnosis, voted = findings.diagnose(
                votes,
                epsilon=measured["votes"].epsilon,
                clients=measured.clients,
                public=None if voted_before is None else voted_before[arm],
                public_clients=0 if public is None else public.clients,
                looks=looks,
            )
            diagnoses.append(diagnosis)
            listed += voted
    return listed, diagnoses


def is_calibrated(public: Usual, part: Cues) -> bool:
    """Whether public clients show what is usual for cues: a handful of them in an arm show too little."""
    arms = public.read(part).values()
    return public.clients >= cautions.LEAST and all(arm.counted >= _FEW for arm in arms)


def _counts_arms(arms: Arms, public: Usual | None) -> bool:
    """Whether the share of clients in the first arm says how well the model does on them."""
    return public is not None and len(arms) > 1 and all(isinstance(one, Accuracy) for one in arms.values())


def notes(arms: Arms, guarantee: Guarantee, public: Usual | None) -> tuple[str, ...]:
    """Notes on how to read the findings."""
    sentences = [
        f"Arms: {arms.rule}.",
        "Samples are synthetic: the generator is fitted to releases and has no access to clients' examples. Samples "
        "inherit the guarantee, because post-processing costs no privacy.",
        "Samples from moments are drawn close to typical examples: rare cases are rarer in samples than on clients.",
        "Tests use the released sums, which have known noise, never synthetic samples.",
    ]
    if public is None:
        sentences.append(
            "Clients on which a model fails differ from others even where nothing is broken. Pass public data as the "
            "reference to test for differences beyond that."
        )
        return (*sentences, *_assumed(guarantee))
    sentences += cautions.resolution(public.clients)
    if few := [f"{public.members[arm]} in {arm}" for arm in arms if public.members[arm] < _FEW]:
        instead = (
            "too few to say which difference between arms is usual"
            if public.exact is public.vectors
            else "their own lowest and highest quarter by accuracy show which difference is usual"
        )
        sentences.append(f"The reference has {public.clients} clients, but only {', '.join(few)}: {instead}.")
    return (*sentences, *_assumed(guarantee))


def warnings(
    measured: Measurement, part: Cues, arms: Arms, public: Usual | None, model: Primary | None
) -> tuple[str, ...]:
    """Causes other than a fault that could explain the findings."""
    if public is None:
        return ()
    counts = {"clients": measured.clients, "public_clients": public.clients}
    return cautions.overfitting(part.read(measured["cues"]), arms, public.members, **counts, model=model)


def _assumed(guarantee: Guarantee) -> list[str]:
    return [f"Assumed: {words}." for words in guarantee.assumptions]
