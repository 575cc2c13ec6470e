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
from blindsight.inspection.contrast import findings, power
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.contrast.released import ArmCues
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.keys import Key
from blindsight.models import generators
from blindsight.samples.views import ArmView
from blindsight.selection import Arms

__all__ = ["notes", "read", "samples", "views"]

_SPREAD = 0.75  # of latents: closer to typical images, which have less speckle
_REFERENCE = "reference"


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
    measured: Measurement, cues: Cues, examples: Sequence[Mapping[str, np.ndarray]], labels: np.ndarray | None
) -> tuple[ArmView, ...]:
    """What is shown of each arm, the first arm last: its share of clients and synthetic samples."""
    counted = cues.read(measured["cues"])
    shown = [
        _view(counted[arm], measured.clients, columns, labels)
        for arm, columns in zip(measured.arms, examples, strict=True)
    ]
    return (*shown[1:], shown[0])


def _view(arm: ArmCues, clients: int, columns: Mapping[str, np.ndarray], labels: np.ndarray | None) -> ArmView:
    images = [values for values in columns.values() if values.ndim >= 3]
    return ArmView(
        arm.arm,
        *arm.share(clients),
        samples=images[0] if images else None,
        rows=columns if columns and not images else None,
        labels=labels if columns else None,
    )


def read(
    measured: Measurement, parts: Mapping[str, Any], arms: Arms, reference: Population | None
) -> tuple[list[Finding], list[Diagnosis]]:
    """Findings and diagnoses: the first arm against every other one, or against the reference, and the votes of all."""
    seen = parts["cues"].read(measured["cues"])
    normal = _expected(parts, arms, reference)
    first, *others = arms
    compared = [(seen[first], seen[other]) for other in others]
    if not others and normal is not None:
        compared = [(seen[first], dataclasses.replace(normal["cues"][first], arm=_REFERENCE))]
    looks = len(compared) + (len(arms) if "votes" in parts else 0)
    listed, diagnoses = list[Finding](), list[Diagnosis]()
    for one, other in compared:
        public = [normal["cues"][arm.arm] for arm in (one, other)] if others and normal is not None else []
        listed += findings.compare_cues(
            one,
            other,
            epsilon=measured["cues"].epsilon,
            disjoint_by_client=arms.disjoint_by_client,
            expected=(public[0], public[1]) if public and all(arm.is_measurable for arm in public) else None,
            looks=looks,
        )
    if "votes" in parts:
        for arm, votes in parts["votes"].read(measured["votes"]).items():
            usual = None
            if normal is not None and normal["votes"][arm].is_measurable:
                usual = findings.usual_votes(normal["votes"][arm])
            epsilon = measured["votes"].epsilon
            diagnosis, voted = findings.diagnose(votes, epsilon=epsilon, background=usual, looks=looks)
            diagnoses.append(diagnosis)
            listed += voted
    return listed, diagnoses


def _expected(parts: Mapping[str, Any], arms: Arms, reference: Population | None) -> dict[str, dict[str, Any]] | None:
    """The same arms of the public reference, read without noise."""
    if reference is None:
        return None
    tested = [parts[name] for name in ("cues", "votes") if name in parts]
    sent = power.client_vectors(reference, arms, tested)
    return {part.name: part.read(Measured(sent[part.name].sum(axis=0), 0.0, 0.0)) for part in tested}


def notes(arms: Arms, guarantee: Guarantee, reference: Population | None) -> tuple[str, ...]:
    """Notes on how to read the findings."""
    sentences = [
        f"Arms: {arms.rule}.",
        "Samples are synthetic: the generator is fitted to releases and has no access to clients' examples. Samples "
        "inherit the guarantee, because post-processing costs no privacy.",
        "Samples from moments are drawn close to typical examples: rare cases are rarer in samples than on clients.",
        "Tests use the released sums, whose noise is known, never synthetic samples.",
    ]
    if reference is None:
        sentences.append(
            "Clients on which a model fails differ from others even where nothing is broken. Pass public data as the "
            "reference to test for differences beyond that."
        )
    return (*sentences, *(f"Assumed: {words}." for words in guarantee.assumptions))
