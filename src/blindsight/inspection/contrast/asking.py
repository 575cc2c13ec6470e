"""What an inspection asks for: the clients after they have looked at their own data, and what is measured on them."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from blindsight.algorithms import moments
from blindsight.algorithms.moments import MomentsPart
from blindsight.codings import features
from blindsight.codings.features import Features
from blindsight.codings.images_and_rows import Category, Number
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.inspection import measuring
from blindsight.inspection.contrast import cues
from blindsight.inspection.contrast import votes as diagnosis
from blindsight.inspection.measuring import Part, Priced
from blindsight.mechanisms import GaussianMechanism
from blindsight.models.primary import Primary
from blindsight.selection import Forming
from blindsight.selection import observe as observe_primary

__all__ = ["SHARES", "Asked", "Training", "check_reference", "observe", "parts_of"]

SHARES = {"thresholds": 0.1, "moments": 0.5, "cues": 0.2, "votes": 0.2}
"""How the precision of an inspection is divided among what it asks for."""

_ENOUGH = 5000  # public images tell how strong each frequency is


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How a GAN is trained on the clients of every arm in place of moments, for `share` of the epsilon.

    The defaults suit a few thousand clients; they were chosen on embedded handwriting.
    """

    rounds: int = 120
    cohort: float = 130
    clip: float = 0.2
    share: float = 0.75
    critic_rate: float = 0.2
    critic_steps: int = 1
    batch_size: int = 16
    generator_rate: float = 2e-3
    generator_steps: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInput(f"training may cost a share of the epsilon between 0 and 1, got {self.share}")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What an inspection is about: the clients after they have looked at their own data, and the settings."""

    clients: Population
    reference: Population | None
    inputs: str | Sequence[str]
    label: str
    ranges: Mapping[str, tuple[float, float]]
    epsilon: float
    delta: float
    forming: Forming
    shares: Mapping[str, float] | None
    training: Training | None = None

    @property
    def fields(self) -> list[str]:
        """What the primary model reads."""
        return [self.inputs] if isinstance(self.inputs, str) else list(self.inputs)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, where there are labels."""
        return self.clients.classes.get(self.label) if self.label in self.clients.fields else None

    def facts(self) -> dict[str, Any]:
        """Everything that moves what is released, with the clients' data after the model: what noise is bound to."""
        said = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return said | {name: said[name] and said[name].fingerprint for name in ("clients", "reference")}

    def mechanisms(self, parts: Sequence[Priced], *, with_thresholds: bool) -> dict[str, GaussianMechanism]:
        """The noise of each part, and of the thresholds, so that everything together costs (epsilon, delta)."""
        asked = [*([_Quantiles()] if with_thresholds else []), *parts]
        given = {**SHARES, **(self.shares or {})}
        unknown = sorted(set(given) - set(SHARES))
        if unknown:
            raise InvalidInput(f"precision is shared among {', '.join(SHARES)}, not {', '.join(unknown)}")
        shares = {part.name: given[part.name] for part in asked}
        left = self.epsilon * (1 - self.training.share) if self.training else self.epsilon
        return measuring.noise_for(asked, epsilon=left, delta=self.delta, shares=shares)


def check_reference(clients: Population, reference: Population | None) -> None:
    """Refuses the clients as their own reference, which is read without noise."""
    if reference is not None and (reference is clients or reference.fingerprint == clients.fingerprint):
        raise PrivacyError(
            f"the reference are the clients that are protected, and would be read without noise: name public data to "
            f"compare {clients.name} with"
        )


def observe(
    population: Population,
    *,
    model: Primary | None,
    inputs: str | Sequence[str],
    label: str,
    suspects: Sequence[str] | None,
    ranges: Mapping[str, tuple[float, float]],
    is_public: bool = False,
) -> Population:
    """The population after every client has run the model, undone every suspect, and looked at its own examples."""
    looked = [inputs] if isinstance(inputs, str) else list(inputs)
    if label and label not in ("label", *population.fields):  # many have one under that name, and nobody has to
        raise InvalidInput(
            f"{population.name} has no field {label!r} to be its label: choose one of {', '.join(population.fields)}"
        )
    if model is not None:
        population = observe_primary(population, model, inputs=inputs, label=label, is_public=is_public)
        if label in population.fields:
            faults = suspects or diagnosis.candidates(population, inputs, label)
            population = diagnosis.observe(population, model, faults, inputs=inputs, label=label)
    elif suspects:
        raise InvalidInput("nobody can vote for a fault without a primary model that it could repair: name the model")
    return cues.observe(population, tuple(looked), ranges)


def parts_of(population: Population, asked: Asked, arms: tuple[str, ...], *, disjoint_by_client: bool) -> list[Part]:
    """What is measured: cues always, votes with a model and labels, moments of images and of rows."""
    parts: list[Part] = [cues.cues_part(population, arms, disjoint_by_client=disjoint_by_client)]
    if diagnosis.FIELD in population.fields:
        parts.append(diagnosis.votes_part(population, arms, disjoint_by_client=disjoint_by_client))
    chosen = None if asked.training else _features(population, asked, len(arms))
    if chosen is not None:
        label = asked.label if asked.classes else None
        per_client = 1 if disjoint_by_client else len(arms)
        parts.append(MomentsPart(chosen, arms, asked.classes or ("all",), label, per_client))
    return parts


def _features(population: Population, asked: Asked, arms: int) -> Features | None:
    """Features of the images, or of the rows whose public ranges are known; texts are compared by cues alone."""
    shape = population.fields[asked.fields[0]][1]
    if len(shape) >= 2:
        noise = _usual_noise(asked.epsilon, asked.delta)
        classes = len(asked.classes or ("all",))
        channels = shape[2] if len(shape) == 3 else 1
        frequencies = moments.frequencies_for(
            noise, clients=asked.clients.size, classes=classes, arms=arms, channels=channels
        )
        public = None if asked.reference is None else asked.reference.columns[asked.fields[0]][:_ENOUGH]
        return features.images(shape, frequencies=frequencies, reference=public, field=asked.fields[0])
    columns = list[Number | Category]()
    for field in asked.fields:
        dtype, shape = population.fields[field]
        if field in population.classes:
            columns.append(Category(field, len(population.classes[field])))
        elif field in asked.ranges and dtype != TEXT and not shape:
            columns.append(Number(field, *asked.ranges[field], can_miss=dtype.kind == "f", whole=dtype.kind in "iu"))
        else:
            return None
    return features.rows(columns)


@functools.cache
def _usual_noise(epsilon: float, delta: float) -> float:
    """The noise multiplier of moments when everything is measured: public, so it may decide what is."""
    parts = [_Quantiles(1, name) for name in SHARES]
    return measuring.noise_for(parts, epsilon=epsilon, delta=delta, shares=SHARES)["moments"].noise_multiplier


@dataclasses.dataclass(frozen=True)
class _Quantiles:
    """Thresholds as one of the things that precision is divided among."""

    coordinates: int = measuring.CELLS
    name: str = "thresholds"
