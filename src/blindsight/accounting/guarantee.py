"""The guarantee that accompanies every released number."""

import dataclasses
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from blindsight.accounting import accountants
from blindsight.accounting import assumptions as words
from blindsight.accounting.events import (
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    RandomizedResponse,
    Relation,
    Thresholded,
    TruncatedPoisson,
    Unit,
    flatten,
)

__all__ = ["Guarantee", "certify", "round_down", "round_up"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(epsilon, delta)-differential privacy, with everything a reader needs to judge it.

    `str()` is one line, `explain()` a paragraph for a privacy officer, `to_dict()` the same for machines. Epsilon is
    an upper bound and is printed rounded up; `lower`, if set, is a lower bound that no analysis can beat.

    >>> print(Guarantee(epsilon=1.0324, delta=4e-8, accountant="PLD", participation="truncated Poisson, 1000 of 250000",
    ...                 releases=1000))
    (1.033, 4e-08)-DP per client, add or remove one; 1,000 releases; truncated Poisson, 1000 of 250000; PLD
    """

    epsilon: float
    delta: float
    accountant: str
    participation: str
    releases: int
    unit: Unit = Unit.CLIENT
    relation: Relation = Relation.ADD_OR_REMOVE
    assumptions: tuple[str, ...] = ()
    lower: float | None = None

    @property
    def is_private(self) -> bool:
        """Whether there is any guarantee."""
        return math.isfinite(self.epsilon)

    def __str__(self) -> str:
        if not self.is_private:
            return f"epsilon = inf: no privacy guarantee ({self.participation})"
        releases = f"{self.releases:,} release" + ("" if self.releases == 1 else "s")
        return (
            f"({round_up(self.epsilon)}, {self.delta:.3g})-DP per {self.unit}, {self.relation.in_words}; "
            f"{releases}; {self.participation}; {self.accountant}"
        )

    def explain(self) -> str:
        """A paragraph in plain words: what is protected, how well, and under which assumptions."""
        if not self.is_private:
            return "There is no privacy guarantee: anyone who sees the result may learn a participant's data exactly."
        thing = {
            Unit.CLIENT: "all data of any one client",
            Unit.EXAMPLE: "any one example",
            Unit.FEATURE: "all data of any one client, to someone who looks at a single coordinate,",
        }[self.unit]
        change = {
            Relation.ADD_OR_REMOVE: f"if {thing} were added or removed",
            Relation.REPLACE: f"if {thing} were replaced by anything else",
        }[self.relation]
        covered = "the one release" if self.releases == 1 else f"the {self.releases:,} releases"
        lines = [
            f"This covers {covered} counted here: they would have looked almost the same {change}, "
            f"no result becomes more than {_times(self.epsilon)} as likely, except with probability {self.delta:.3g}. "
            f"Otherwise, someone who gave even odds to either case beforehand could, after seeing them, be at "
            f"most {_certainty(self.epsilon)} % sure. "
            f"Epsilon is {round_up(self.epsilon)}, an upper bound computed by {self.accountant}; "
            f"participation: {self.participation}.",
        ]
        if self.lower is not None:
            lines.append(f"No better analysis can bring it below {round_down(self.lower)}.")
        if self.assumptions:
            lines.append("This holds if: " + "; ".join(self.assumptions) + ".")
        return " ".join(lines)

    def _repr_html_(self) -> str:
        from blindsight import pages

        if not self.is_private:
            return pages.card("epsilon = inf", [("participation", self.participation)], about="no privacy guarantee")
        rows = [("protects", f"one {self.unit}, {self.relation.in_words}"), ("releases", f"{self.releases:,}")]
        rows += [("participation", self.participation), ("accountant", self.accountant)]
        rows += [] if self.lower is None else [("no analysis can go below", round_down(self.lower))]
        title = f"epsilon = {round_up(self.epsilon)} at delta = {self.delta:.3g}"
        return pages.card(title, rows, notes=self.assumptions)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon becomes the string `"inf"`."""
        fields = dataclasses.asdict(self)
        return {name: "inf" if value == math.inf else value for name, value in fields.items()}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Guarantee":
        """The guarantee that `to_dict` was called on."""
        fields: dict[str, Any] = {name: math.inf if item == "inf" else item for name, item in value.items()}
        fields |= {"unit": Unit(value["unit"]), "relation": Relation(value["relation"])}
        fields["assumptions"] = tuple(value["assumptions"])
        return cls(**fields)


def certify(
    event: Event,
    *,
    delta: float,
    unit: Unit = Unit.CLIENT,
    relation: Relation = Relation.ADD_OR_REMOVE,
    participation: str | None = None,
    assumptions: tuple[str, ...] = (),
) -> Guarantee:
    """The guarantee of `event`: its epsilon at `delta`, with all assumptions in words.

    Args:
        event: What was released.
        delta: Delta of the guarantee.
        unit: What is protected, a client or an example.
        relation: Which data sets are neighbours.
        participation: Description of who took part; derived from the event by default.
        assumptions: Further assumptions, listed before those derived from the event.
    """
    bound = accountants.epsilon(event, delta, relation)
    leaves = flatten(event)
    derived = [sentence for leaf in leaves for sentence in _assumptions(leaf, unit)]
    if bound.epsilon < math.inf:
        protected = Unit.CLIENT if unit is Unit.FEATURE else unit
        derived += [words.NUMBER_PUBLIC.format(unit=protected), words.CLIPPED.format(unit=protected)]
    return Guarantee(
        epsilon=bound.epsilon,
        delta=delta,
        accountant=bound.accountant,
        participation=participation or "; ".join(dict.fromkeys(_participation(leaf) for leaf in leaves)) or "nothing",
        releases=leaves.total(),
        unit=unit,
        relation=relation,
        assumptions=tuple(dict.fromkeys((*assumptions, *derived))),
    )


def _participation(leaf: Event) -> str:
    if isinstance(leaf, TruncatedPoisson):
        expected = leaf.rate * leaf.population
        return f"truncated Poisson, {expected:,.0f} of {leaf.population:,} expected, at most {leaf.limit:,}"
    if isinstance(leaf, Poisson):
        return f"Poisson at rate {leaf.rate:.4g}"
    if isinstance(leaf, FixedSize):
        return f"fixed size, {leaf.cohort:,} of {leaf.population:,} without replacement"
    return "no protection" if isinstance(leaf, NonPrivate) else "no sampling assumed"


def _assumptions(leaf: Event, unit: Unit) -> list[str]:
    listed: list[str] = []
    if isinstance(leaf, Poisson | TruncatedPoisson):
        listed.append(words.COIN.format(unit=unit))
    if isinstance(leaf, FixedSize):
        listed.append(words.FIXED_SIZE)
    if isinstance(leaf, Thresholded):
        listed.append(words.TRUSTED_WITH_NAMES.format(unit=unit))
    noise = leaf.event if isinstance(leaf, Poisson | TruncatedPoisson | FixedSize | Thresholded) else leaf
    if (isinstance(noise, Gaussian) and noise.is_ideal) or (isinstance(noise, Laplace) and not noise.discrete):
        listed.append(words.IDEAL_NOISE)
    if isinstance(noise, Gaussian | Laplace) and noise.reproducible:
        listed.append(words.SEED)
    if isinstance(noise, Gaussian) and noise.sites:
        listed.append(words.NOISE_SHARES.format(unit=unit, sites=noise.sites, colluding=noise.colluding))
        listed.append(words.SECURE_SUM.format(fewest=noise.fewest))
    if isinstance(noise, RandomizedResponse):
        listed.append(words.RANDOMISED.format(unit=unit))
    return listed


def round_up(value: float, digits: int = 4) -> str:
    """`value` rounded up to `digits` significant digits: for upper bounds."""
    return _round(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """`value` rounded down to `digits` significant digits: for lower bounds."""
    return _round(value, digits, ROUND_FLOOR)


def _round(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return str(value)
    rounded = Context(prec=digits, rounding=rounding).create_decimal(Decimal(value))
    return f"{rounded:.{digits - 1}e}".replace("e+", "e") if abs(rounded) >= 10**5 else f"{rounded:f}"


def _times(epsilon: float) -> str:
    if epsilon > 20:
        return f"e^{round_up(epsilon)} times"
    return f"{round_up(math.exp(epsilon), 3)} times"


def _certainty(epsilon: float) -> str:
    """The posterior of someone with even prior odds, in per cent; rounded up, since it is an upper bound."""
    posterior = 1 / (1 + math.exp(-min(epsilon, 700)))
    return round_up(100 * posterior, 4 if posterior < 0.999 else 6)
