"""`Privacy`: the settings that decide a guarantee, in one frozen value; and `Plan`, the page that compares them.

Sits above `participation`, which gives the event to compose, and below everything that trains.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from blindsight import participation
from blindsight.accounting import accountants, planning
from blindsight.accounting.as_published import fixed_size_epsilon
from blindsight.accounting.assumptions import NO_CLAIM, OTHERS_INDEPENDENT
from blindsight.accounting.events import Composed, Event, Gaussian, Relation, Unit
from blindsight.accounting.guarantee import Guarantee, certify, round_down, round_up
from blindsight.errors import InvalidInput
from blindsight.participation import FixedSizeRounds, Full, TruncatedPoissonRounds, Unproven

__all__ = ["Plan", "Privacy", "plan"]

ParticipationName = Literal["poisson", "fixed", "full", "unproven"]
_NAMES: tuple[ParticipationName, ...] = ("poisson", "fixed", "full", "unproven")
_UNCLIPPED = 2.0**60  # a bound that no sensible update reaches
_NO_CLAIM = (NO_CLAIM, OTHERS_INDEPENDENT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Privacy:
    """The privacy settings of a training run; invalid settings cannot be constructed.

    >>> privacy = Privacy(clip=0.1, population=342_477, cohort=5000, rounds=2000, noise_multiplier=1.0)
    >>> print(privacy.guarantee(delta=2.92e-6))
    (4.224, 2.92e-06)-DP per client, add or remove one; 2,000 releases; poisson: 5,000 of 342,477 expected; PLD
    """

    population: int
    cohort: float
    rounds: int
    noise_multiplier: float | None = None
    clip: float = 1.0
    participation: ParticipationName = "poisson"
    max_participations: int | None = None
    unit: Unit = Unit.CLIENT

    def __post_init__(self) -> None:
        if self.participation not in _NAMES:
            raise InvalidInput(f"participation must be one of {', '.join(_NAMES)}, got {self.participation!r}")
        for name in ("rounds", "max_participations"):
            value = getattr(self, name)
            if value is not None and (not 1 <= value < math.inf or value != int(value)):
                raise InvalidInput(f"{name} must be a whole number, at least 1, got {value}")
            object.__setattr__(self, name, value if value is None else int(value))
        if not 0 < self.clip < math.inf:
            raise InvalidInput(f"clip must be positive and finite, got {self.clip}")
        if self.noise_multiplier is not None and not 0 <= self.noise_multiplier < math.inf:
            raise InvalidInput(f"noise_multiplier must be 0 or more, got {self.noise_multiplier}")
        participation.poisson(self.population, self.cohort)  # checks both, whatever the participation rule
        object.__setattr__(self, "population", int(self.population))
        if self.participation == "fixed" and self.cohort != int(self.cohort):
            raise InvalidInput(f"a cohort of exact size must be a whole number, got {self.cohort}")

    @classmethod
    def none(
        cls, *, population: int, cohort: float, rounds: int, participation: ParticipationName = "poisson"
    ) -> "Privacy":
        """Settings without noise or clipping: the run protects nobody, and its epsilon is infinite.

        >>> print(Privacy.none(population=100, cohort=10, rounds=5).guarantee(delta=1e-5))
        epsilon = inf: no privacy guarantee (poisson: 10 of 100 expected)
        """
        settings: Any = {"population": population, "cohort": cohort, "rounds": rounds, "participation": participation}
        return cls(**settings, noise_multiplier=0.0, clip=_UNCLIPPED)

    @property
    def sampling(self) -> TruncatedPoissonRounds | FixedSizeRounds | Full | Unproven:
        """The participation rule, which draws cohorts and knows their event."""
        if self.participation == "poisson":
            return participation.poisson(self.population, self.cohort)
        if self.participation == "fixed":
            return participation.fixed_size(self.population, int(self.cohort))
        if self.participation == "full":
            return participation.full(self.population)
        often = self.rounds if self.max_participations is None else self.max_participations
        return participation.unproven(self.population, self.cohort, max_participations=often)

    @property
    def relation(self) -> Relation:
        """The neighbouring relation that the participation rule implies."""
        return self.sampling.relation

    @property
    def event(self) -> Event:
        """The event of the whole run, assuming ideal noise."""
        return self.sampling.event(Gaussian(self.known_noise), self.rounds)

    @property
    def known_noise(self) -> float:
        """The noise multiplier; refused if it is still to be calibrated."""
        if self.noise_multiplier is None:
            raise InvalidInput("Privacy has no noise_multiplier yet: call .calibrate(epsilon=..., delta=...) first")
        return self.noise_multiplier

    def guarantee(
        self,
        *,
        delta: float,
        release: Event | None = None,
        before: Sequence[Event] = (),
        assumptions: Sequence[str] = (),
    ) -> Guarantee:
        """The guarantee of the run: each round makes `release` on its cohort (default: ideal Gaussian noise).

        It includes releases about the same clients made `before` the rounds, such as a vocabulary, and lists further
        `assumptions`.
        """
        words = {
            "poisson": f"poisson: {self.cohort:,.0f} of {self.population:,} expected",
            "fixed": f"fixed: {self.cohort:,.0f} of {self.population:,}",
            "full": f"full: all {self.population:,}",
            "unproven": f"unproven: each client in at most {self._most_rounds:,} of {self.rounds:,} rounds",
        }[self.participation]
        rounds = self.event if release is None else self.sampling.event(release, self.rounds)
        return certify(
            Composed((*before, rounds)) if before else rounds,
            delta=delta,
            unit=self.unit,
            relation=self.relation,
            participation=f"{words}; before that, releases on everyone" if before else words,
            assumptions=(*assumptions, *(_NO_CLAIM if self.participation == "unproven" else ())),
        )

    def calibrate(
        self,
        *,
        epsilon: float,
        delta: float,
        release: Callable[[float], Event] = Gaussian,
        before: Sequence[Event] = (),
    ) -> "Privacy":
        """The same settings with the least noise that satisfies (epsilon, delta).

        `release` maps a noise multiplier to a round's event; for exact noise, `lambda z: gaussian(z).planned_event`.
        Releases made `before` the rounds are included.
        """
        noise = planning.solve_noise(
            lambda z: Composed((*before, self.sampling.event(release(z), self.rounds))),
            epsilon=epsilon,
            delta=delta,
            relation=self.relation,
        )
        return dataclasses.replace(self, noise_multiplier=noise)

    def calibrate_rounds(self, *, epsilon: float, delta: float) -> "Privacy":
        """The same settings with as many rounds as (epsilon, delta) allows."""
        rounds = planning.rounds_for(
            lambda n: dataclasses.replace(self, rounds=n).event, epsilon=epsilon, delta=delta, relation=self.relation
        )
        if rounds == 0:
            raise InvalidInput(f"not even one round fits epsilon {epsilon} with this noise: increase either")
        return dataclasses.replace(self, rounds=rounds)

    @property
    def _most_rounds(self) -> int:
        return min(self.rounds, self.max_participations or self.rounds)


@dataclasses.dataclass(frozen=True)
class Alternative:
    """The epsilon of the same noise under another participation rule; `lower` where only a bracket is known."""

    epsilon: float
    lower: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """`{"epsilon": ...}`, or `{"lower": ..., "upper": ...}` for a bracket."""
        if self.lower is None:
            return {"epsilon": _plain(self.epsilon)}
        return {"lower": _plain(self.lower), "upper": _plain(self.epsilon)}

    def __str__(self) -> str:
        return round_up(self.epsilon) if self.lower is None else f"{round_down(self.lower)} to {round_up(self.epsilon)}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run's guarantee, that of the same noise under every other participation, and optionally the papers' number."""

    privacy: Privacy
    guarantee: Guarantee
    alternatives: dict[str, Alternative]
    published: float | None = None
    group: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight plan --json`."""
        promise = self.guarantee
        fields: dict[str, Any] = {
            "epsilon": _plain(promise.epsilon),
            "delta": promise.delta,
            "noise_multiplier": self.privacy.noise_multiplier,
            "participation": self.privacy.participation,
            "relation": str(promise.relation),
            "accountant": promise.accountant,
            "assumptions": list(promise.assumptions),
            "alternatives": {name: alternative.to_dict() for name, alternative in self.alternatives.items()},
            "population": self.privacy.population,
            "cohort": self.privacy.cohort,
            "rounds": self.privacy.rounds,
            "unit": str(promise.unit),
        }
        if promise.lower is not None:
            fields |= {"lower": _plain(promise.lower), "upper": _plain(promise.epsilon)}
        if self.published is not None:
            fields["published"] = self.published
        if self.group > 1:
            epsilon, delta = planning.group_privacy(promise.epsilon, promise.delta, self.group)
            fields["group"] = {"members": self.group, "epsilon": _plain(epsilon), "delta": delta}
        return fields

    @property
    def _compared(self) -> list[tuple[str, str, str]]:
        """The participation, its epsilon, and what that rests on: of this plan and of the others."""
        promise = self.guarantee
        alternatives = {self.privacy.participation: Alternative(promise.epsilon, promise.lower), **self.alternatives}
        return [(name, str(alternatives[name]), _BASIS[name]) for name in _NAMES if name in alternatives]

    def _repr_html_(self) -> str:
        from blindsight import pages

        promise = self.guarantee
        title = f"epsilon = {round_up(promise.epsilon)} at delta = {promise.delta:.3g}"
        rows: list[tuple[str, ...]] = [*self._compared]
        rows += [] if self.published is None else [("as published", f"{self.published:.3g}", _BASIS["published"])]
        headings = ("the same noise", "epsilon", "what it rests on")
        return pages.card(title, rows, about=str(promise), headings=headings, notes=promise.assumptions)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        promise = self.guarantee
        yield f"[bold green]epsilon = {round_up(promise.epsilon)}[/] at delta = {promise.delta:.3g}"
        yield f"[dim]{escape(str(promise))}[/]"
        if promise.lower is not None:
            yield f"[dim]No analysis can bring it below {round_down(promise.lower)}.[/]"
        yield ""
        table = Table(box=None, pad_edge=False)
        table.add_column("the same noise")
        table.add_column("epsilon", justify="right")
        table.add_column("what it rests on")
        for name, epsilon, basis in self._compared:
            table.add_row(name, epsilon, basis, style="bold" if name == self.privacy.participation else "")
        if self.published is not None:
            number = f"{self.published:.2f}" if self.published < 1e5 else f"{self.published:.3g}"
            table.add_row("as published", number, _BASIS["published"], style="yellow")
        yield table
        if self.group > 1:
            epsilon, delta = planning.group_privacy(promise.epsilon, promise.delta, self.group)
            yield ""
            yield f"A group of {self.group} clients: ({round_up(epsilon)}, {delta:.3g})-DP."


_BASIS = {
    "poisson": "each client tosses its own secret coin every round (add or remove one)",
    "fixed": "exactly that many, drawn uniformly in secret (replace one; true value in between)",
    "full": "nothing: everyone is in every round (add or remove one)",
    "unproven": "only the limit of rounds per client (add or remove one)",
    "published": "the papers' arithmetic, which halves the sensitivity of fixed-size rounds: not a guarantee",
}


def plan(privacy: Privacy, *, delta: float, as_published: bool = False, group: int = 1) -> Plan:
    """The guarantee of `privacy`, next to those of the same noise under every other participation rule."""
    guarantee = privacy.guarantee(delta=delta)
    if privacy.participation == "fixed":
        guarantee = dataclasses.replace(guarantee, lower=accountants.fixed_size_lower(privacy.event, delta))
    others: list[ParticipationName] = [name for name in _NAMES if name != privacy.participation]
    return Plan(
        privacy=privacy,
        guarantee=guarantee,
        alternatives={name: _alternative(privacy, name, delta) for name in others},
        published=_published(privacy, delta) if as_published else None,
        group=group,
    )


def _alternative(privacy: Privacy, name: ParticipationName, delta: float) -> Alternative:
    cohort = _whole(privacy.cohort) if name == "fixed" else privacy.cohort
    other = dataclasses.replace(privacy, participation=name, cohort=cohort)
    epsilon = accountants.epsilon(other.event, delta, other.relation).epsilon
    return Alternative(epsilon, accountants.fixed_size_lower(other.event, delta) if name == "fixed" else None)


def _published(privacy: Privacy, delta: float) -> float:
    noise = privacy.noise_multiplier or 0.0
    return fixed_size_epsilon(privacy.population, _whole(privacy.cohort), noise, privacy.rounds, delta)


def _whole(cohort: float) -> int:
    return max(1, round(cohort))


def _plain(value: float) -> float | str:
    """JSON has no infinity."""
    return value if math.isfinite(value) else "inf"
