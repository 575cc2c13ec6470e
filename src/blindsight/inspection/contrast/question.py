"""Questions that compare arms of clients (Augenstein et al. 2020), and how samples are drawn.

============  ==================================================================================================
`Sanity`      T1: do the data look right at all? Everyone, against public data of the same type
`Mistakes`    T2: what does the model get wrong? Misclassified examples against those it classifies correctly
`Slices`      T4: on whom does it fail? Clients with low accuracy against those with high; or one class against another
`Contrast`    arms of your own
============  ==================================================================================================
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from blindsight.data import faults
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.question import Question
from blindsight.models.primary import Primary
from blindsight.selection import FORMINGS, Arms, Forming, by_accuracy, by_correctness, coded, everything, where

__all__ = ["SHARES", "Comparing", "Contrast", "Mistakes", "Quarters", "Sanity", "Slices", "Training"]

SHARES = {"thresholds": 0.1, "moments": 0.5, "cues": 0.2, "votes": 0.2}
"""How the precision of an inspection is divided among its parts."""

_MOST_SLICES = 12


@dataclasses.dataclass(frozen=True)
class Quarters:
    """Clients below the `low` and above the `high` quantile of accuracy (T4); both are estimated privately."""

    low: float = 0.25
    high: float = 0.75

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < 1:
            raise InvalidInput(f"quantiles must satisfy 0 < low <= high < 1, got {self.low} and {self.high}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Settings for training a GAN on each arm's clients instead of measuring moments, for `share` of the epsilon.

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
            raise InvalidInput(f"the share of epsilon for training must be between 0 and 1, got {self.share}")
        for name in ("rounds", "cohort", "clip", "critic_steps", "batch_size", "generator_steps"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} of a training must be positive, got {getattr(self, name)}")


def _arms(value: Mapping[str, Any]) -> Arms | Quarters:
    return Quarters(**value) if "low" in value else Arms.from_dict(value)


def _training(value: Mapping[str, Any] | None) -> Training | None:
    return None if value is None else Training(**value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparing(Question, abc.ABC):
    """A question that compares arms. `shares` changes how the precision can be divided among parts (`SHARES`).

    `per_class` is the number of samples of each class and arm.
    """

    forming: Forming = "zero_fill"
    training: Training | None = None
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])
    per_class: int = 8

    server: ClassVar[str] = "blindsight.inspection.contrast.task"
    free: ClassVar[str] = "per_class"
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"training": _training, "shares": dict}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.forming not in FORMINGS:
            raise InvalidInput(f"forming must be {' or '.join(FORMINGS)}, got {self.forming!r}")
        if not self.per_class >= 1:
            raise InvalidInput(f"per_class must be at least 1, got {self.per_class}")
        if unknown := sorted(set(self.shares) - set(SHARES)):
            raise InvalidInput(f"precision can be divided among {', '.join(SHARES)}, not {', '.join(unknown)}")
        for suspect in (one for words in self.suspects for one in faults.parse(words)):
            if suspect.field not in (None, *self.inputs, self.schema.label):
                raise InvalidInput(
                    f"the suspect {suspect} is about {suspect.field!r}: choose a field from {', '.join(self.inputs)}"
                )
        if self.suspects and not self.model:
            raise InvalidInput(
                "clients vote for the fault whose removal repairs the primary model: pass a model, or no suspects"
            )

    def samples_of(self, classes: int) -> int:
        """How many samples of each class are drawn, given the number of classes."""
        del classes
        return self.per_class

    @property
    def asks_for_votes(self) -> bool:
        """Whether clients vote for the fault whose removal repairs the model."""
        return True

    @property
    @abc.abstractmethod
    def compared(self) -> Arms | Quarters:
        """The arms: the first is compared with each of the others."""

    def prepare(self, population: Population, model: Primary | None, reference: Population | None) -> Population:
        """The population with the fields that the arms need, each client on its own."""
        del model, reference
        return population


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sanity(Comparing):
    """T1."""

    task: ClassVar[str] = "sanity"

    @property
    def title(self) -> str:
        return "Do the data look right?"

    @property
    def compared(self) -> Arms:
        return Arms({"everyone": everything()})

    def sentence(self, name: str) -> str:
        return f"What is in {name}, and how does it differ from public data of the same type?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistakes(Comparing):
    """T2; an arm includes only clients with at least `minimum` of its examples."""

    minimum: int = 5

    task: ClassVar[str] = "mistakes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.minimum >= 1:
            raise InvalidInput(f"minimum must be at least 1 example, got {self.minimum}")

    @property
    def title(self) -> str:
        return "What does the model get wrong?"

    @property
    def compared(self) -> Arms:
        return by_correctness(self.minimum)

    def sentence(self, name: str) -> str:
        return f"How do misclassified examples of {name} differ from correctly classified ones?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices(Comparing):
    """T4, by accuracy (`thresholds`, else quarters), or by a field with named classes or public `values`."""

    by: str = "accuracy"
    values: tuple[str, ...] = ()
    thresholds: tuple[float, float] | None = None

    task: ClassVar[str] = "slices"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by != "accuracy" and not 2 <= len(self.names) <= _MOST_SLICES:
            raise InvalidInput(
                f"slices need a field with 2 to {_MOST_SLICES} named classes or values, and {self.by!r} has "
                f"{len(self.names)}: choose another, list its values, or slice by accuracy"
            )
        if self.thresholds is not None:
            by_accuracy(*self.thresholds)  # refuses invalid thresholds

    @property
    def names(self) -> tuple[str, ...]:
        """The values that are compared."""
        return self.values or self.schema.classes.get(self.by, ())

    @property
    def compared(self) -> Arms | Quarters:
        if self.by != "accuracy":
            return Arms({name: where(self.by, name) for name in self.names})
        return Quarters() if self.thresholds is None else by_accuracy(*self.thresholds)

    @property
    def title(self) -> str:
        return "Which clients does the model fail on?" if self.by == "accuracy" else f"What differs by {self.by}?"

    def sentence(self, name: str) -> str:
        if self.by != "accuracy":
            return f"What differs between clients of {name} by {self.by}?"
        return f"How do clients of {name} on which the model fails differ from the others?"

    def prepare(self, population: Population, model: Primary | None, reference: Population | None) -> Population:
        return coded(population, self.by, self.values) if self.values else population


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast(Comparing):
    """Arms of your own."""

    arms: Arms | Quarters

    task: ClassVar[str] = "contrast"
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {**Comparing.readers, "arms": _arms}

    @property
    def title(self) -> str:
        return "What differs?"

    @property
    def compared(self) -> Arms | Quarters:
        return self.arms

    def sentence(self, name: str) -> str:
        arms = "quarters of clients by accuracy" if isinstance(self.arms, Quarters) else " and ".join(self.arms)
        return f"What differs between {arms} of {name}?"
