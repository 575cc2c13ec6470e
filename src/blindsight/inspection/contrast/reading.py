"""From noisy sums to words and pictures: what is shown of every arm, what was found, and what it rests on.

Nothing here sees a client: everything is computed from releases, or from public data.
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
from blindsight.inspection.contrast.cues import ArmCues, Cues
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.keys import Key
from blindsight.models import generators
from blindsight.samples.views import ArmView
from blindsight.selection import Arms

__all__ = ["notes", "read", "samples", "views"]

_SPREAD = 0.75  # of latents: nearer to what is typical, where pictures have less speckle
_REFERENCE = "reference"


def samples(
    measured: Measurement, part: MomentsPart, per_class: int, key: Key, progress: Callable[[int, int], None]
) -> tuple[Sequence[Mapping[str, np.ndarray]], np.ndarray | None]:
    """Examples of every arm from a generator that is fitted to its moments, and their labels, if there are any."""
    released = part.read(measured["moments"].sums, measured["moments"].noise_std)
    generator = moments.fit(released, key=key.derive("generator"), progress=progress)
    made, labels = generators.draw(generator, per_class, key=key.derive("samples"), spread=_SPREAD)
    seen: list[bool] = np.any(
        released.is_seen, axis=1
    ).tolist()  # of an arm without clients there would be a picture of the noise
    return [columns if one else {} for columns, one in zip(made, seen, strict=True)], labels if part.label else None


def views(
    measured: Measurement, cues: Cues, made: Sequence[Mapping[str, np.ndarray]], labels: np.ndarray | None
) -> tuple[ArmView, ...]:
    """Each arm as it is shown, the one in question last: how many clients it has, and synthetic samples of it."""
    counted = cues.read(measured["cues"])
    shown = [
        _view(counted[arm], measured.clients, columns, labels) for arm, columns in zip(measured.arms, made, strict=True)
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
    """What the sums say: the first arm against every other one, or against the reference, and the votes of all."""
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
            found, voted = findings.diagnose(votes, epsilon=measured["votes"].epsilon, background=usual, looks=looks)
            diagnoses.append(found)
            listed += voted
    return listed, diagnoses


def _expected(parts: Mapping[str, Any], arms: Arms, reference: Population | None) -> dict[str, dict[str, Any]] | None:
    """What the same arms of the public reference say, in which nothing is wrong; no noise, for it is public."""
    if reference is None:
        return None
    asked_for = [parts[name] for name in ("cues", "votes") if name in parts]
    sent = power.client_vectors(reference, arms, asked_for)
    return {part.name: part.read(Measured(sent[part.name].sum(axis=0), 0.0, 0.0)) for part in asked_for}


def notes(arms: Arms, guarantee: Guarantee, reference: Population | None) -> tuple[str, ...]:
    """What a reader should know beside the findings."""
    said = [
        f"Arms: {arms.rule}.",
        "Samples are synthetic: they come from a generator that knows clients only by what was released, and nobody's "
        "example is among them. They inherit the guarantee, because computing on a release costs nothing.",
        "Samples from moments are drawn near what is typical: rare cases are rarer among them than among clients.",
        "Tests are on the released sums, whose noise is known, never on samples.",
    ]
    if reference is None:
        said.append(
            "Clients on which a model fails differ from others even where nothing is broken. Name public data as the "
            "reference to test for what goes beyond that."
        )
    return (*said, *(f"Assumed: {words}." for words in guarantee.assumptions))
