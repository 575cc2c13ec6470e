"""Events: frozen descriptions of what a mechanism did, which accountants read and the ledger stores.

An event describes one release well enough to bound its privacy loss, and reveals nothing about the data. Multipliers
are always *noise scale divided by the bound on one client's contribution*. The accountant, never the caller, decides
whether neighbouring populations are one bound apart or two.

::

    Gaussian(z)                         N(0, (z * l2_bound)^2) on a bounded sum
    Laplace(z)                          Laplace(z * l1_bound) on a bounded sum
    RandomizedResponse(epsilon, k)      k-ary randomised response on each client
    PureDP(epsilon)                     any mechanism with a pure epsilon, such as the exponential mechanism
    Poisson(rate, event)                each client takes part with probability `rate`
    TruncatedPoisson(N, rate, B, event) the same, at most B kept, chosen at random
    FixedSize(N, m, event)              exactly m of N clients, without replacement
    Thresholded(delta, event)           `event`, and what only one client has shows with a chance below `delta`
    Repeated(event, count)              `event`, adaptively, `count` times
    Composed(events)                    all of `events`, adaptively
    NonPrivate()                        no protection at all: epsilon = inf
"""

import dataclasses
import enum
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from blindsight.accounting.event_fields import (
    check_epsilon,
    check_flag,
    check_rate,
    check_real,
    check_whole,
    require,
)
from blindsight.errors import InvalidInput, UnknownEvent

__all__ = [
    "Composed",
    "Event",
    "FixedSize",
    "Gaussian",
    "Laplace",
    "NonPrivate",
    "Poisson",
    "PureDP",
    "RandomizedResponse",
    "Relation",
    "Repeated",
    "Thresholded",
    "TruncatedPoisson",
    "Unit",
    "flatten",
    "from_json",
    "to_json",
]


class Relation(enum.StrEnum):
    """Which pairs of populations count as neighbours."""

    ADD_OR_REMOVE = "add_or_remove"
    REPLACE = "replace"

    @property
    def in_words(self) -> str:
        """`add or remove one` / `replace one`."""
        return {"add_or_remove": "add or remove one", "replace": "replace one"}[self.value]


class Unit(enum.StrEnum):
    """What the guarantee protects: all of a client's data, one example, or one coordinate of a release in isolation."""

    CLIENT = "client"
    EXAMPLE = "example"
    FEATURE = "feature"


@dataclasses.dataclass(frozen=True)
class Event:
    """The base class of all events; `name` is the spelling in the ledger.

    Fields are checked and normalised (`1` becomes `1.0`, a numpy integer an `int`): equal events have equal text.
    """

    name: ClassVar[str] = ""


@dataclasses.dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise of standard deviation `noise_multiplier * l2_bound` on a bounded sum.

    `rounded` noise is the ideal continuous Gaussian rounded to whole steps (`mechanisms.rounded_gaussian`): it costs
    what the ideal one costs. A `kl_slack` above zero means that the noise was discrete Gaussian, on a grid of 2^12 to
    2^24 steps per scale s: the sum of 1/(320 s^4) over the numbers released, which bounds the Kullback-Leibler
    divergence of the actual noise from the rounded one; `slack` computes its cost. With neither, the noise came from
    the `float` sampler, which only claims to be ideal; if that holds for some of the numbers, the event is
    `partly_float`.
    Anyone who knows the seed can redraw `reproducible` noise and subtract it; the guarantee says so. If `sites` is not
    zero, that many sites drew shares of the noise (`fleet.noise_shares`): the event still holds if only `fewest` of
    them are in the sum and `colluding` of those disclose theirs.
    """

    name: ClassVar[str] = "gaussian"
    noise_multiplier: float
    kl_slack: float = 0.0
    reproducible: bool = False
    partly_float: bool = False
    rounded: bool = False
    sites: int = 0
    fewest: int = 0
    colluding: int = 0

    def __post_init__(self) -> None:
        check_real(self, "noise_multiplier")
        check_real(self, "kl_slack")
        require(self.kl_slack < 1, self, "kl_slack", "in [0, 1)")
        check_flag(self, "reproducible")
        check_flag(self, "partly_float")
        check_flag(self, "rounded")
        for field in ("sites", "fewest", "colluding"):
            check_whole(self, field, 0)
        require(self.fewest <= self.sites, self, "fewest", "at most the number of sites")
        require(self.colluding < max(self.fewest, 1), self, "colluding", "less than the fewest sites of a sum")

    @property
    def is_ideal(self) -> bool:
        """Whether some of the noise is claimed to be ideal, which floating point cannot prove."""
        return self.partly_float or not (self.rounded or self.kl_slack > 0)


@dataclasses.dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale `noise_multiplier * l1_bound` on a bounded sum.

    `discrete` noise, drawn on a grid, is bounded only by its pure epsilon, without the continuous shape;
    `reproducible` as in `Gaussian`.
    """

    name: ClassVar[str] = "laplace"
    noise_multiplier: float
    discrete: bool = False
    reproducible: bool = False

    def __post_init__(self) -> None:
        check_real(self, "noise_multiplier")
        check_flag(self, "discrete")
        check_flag(self, "reproducible")


@dataclasses.dataclass(frozen=True)
class RandomizedResponse(Event):
    """Each client reports its bucket or another one; probabilities for any two buckets differ by at most e^epsilon.

    An infinite epsilon means no protection; the ledger has no text for it, and refuses it.
    """

    name: ClassVar[str] = "randomized_response"
    epsilon: float
    buckets: int

    def __post_init__(self) -> None:
        check_epsilon(self)
        check_whole(self, "buckets", 2)


@dataclasses.dataclass(frozen=True)
class PureDP(Event):
    """Any mechanism that is (epsilon, 0)-DP under `relation`."""

    name: ClassVar[str] = "pure_dp"
    epsilon: float
    relation: Relation = Relation.ADD_OR_REMOVE

    def __post_init__(self) -> None:
        check_epsilon(self)
        require(self.relation in tuple(Relation), self, "relation", "add_or_remove or replace")
        object.__setattr__(self, "relation", Relation(self.relation))  # a ledger holds it as text


@dataclasses.dataclass(frozen=True)
class Poisson(Event):
    """`event` on a cohort in which every client takes part independently with probability `rate`."""

    name: ClassVar[str] = "poisson"
    rate: float
    event: Event

    def __post_init__(self) -> None:
        check_rate(self)
        _nested(self)


@dataclasses.dataclass(frozen=True)
class TruncatedPoisson(Event):
    """`Poisson`, but a cohort larger than `limit` is cut to `limit` clients chosen uniformly at random."""

    name: ClassVar[str] = "truncated_poisson"
    population: int
    rate: float
    limit: int
    event: Event

    def __post_init__(self) -> None:
        check_whole(self, "population", 1)
        check_rate(self)
        check_whole(self, "limit", 1)
        _nested(self)


@dataclasses.dataclass(frozen=True)
class FixedSize(Event):
    """`event` on exactly `cohort` of `population` clients, drawn uniformly without replacement."""

    name: ClassVar[str] = "fixed_size"
    population: int
    cohort: int
    event: Event

    def __post_init__(self) -> None:
        check_whole(self, "population", 1)
        check_whole(self, "cohort", 1)
        require(self.cohort <= self.population, self, "cohort", f"between 1 and {self.population}")
        _nested(self)


@dataclasses.dataclass(frozen=True)
class Thresholded(Event):
    """`event` on sums over names that nobody listed, of which only those above a threshold are released.

    Names that one client alone has are released, all of them together, with a probability of at most `delta` / 3.

    **Why (0, delta) beside `event` covers it.** Let P and Q be all releases with a client and without it, adaptively
    chosen, and P~ those with it but without the names that only it has. P~ and Q differ by `event` alone. P and P~ are
    the same unless such a name is released, so P <= P~ + d and, as noise is drawn for each name by itself,
    P >= P~ (1 - d) for d = delta / 3 added up over releases. Hence P <= e^epsilon Q + delta_event + d. The other way,
    Q <= e^epsilon P~ + delta_event <= e^epsilon P / (1 - d) + delta_event: where e^epsilon P < 1 that is at most
    d / (1 - d) more, and where it is not there is nothing to show. When a client is replaced both happen, and
    d + d / (1 - d) <= delta up to a total delta of 1.
    """

    name: ClassVar[str] = "thresholded"
    delta: float
    event: Event

    def __post_init__(self) -> None:
        check_real(self, "delta")
        require(0 < self.delta < 1, self, "delta", "between 0 and 1")
        require(isinstance(self.event, Gaussian), self, "event", "Gaussian noise")  # pyright: ignore[reportUnnecessaryIsInstance]


@dataclasses.dataclass(frozen=True)
class NonPrivate(Event):
    """A release without any protection."""

    name: ClassVar[str] = "non_private"


@dataclasses.dataclass(frozen=True)
class Repeated(Event):
    """`event`, adaptively, `count` times."""

    name: ClassVar[str] = "repeated"
    event: Event
    count: int

    def __post_init__(self) -> None:
        check_whole(self, "count", 0)
        _nested(self)


@dataclasses.dataclass(frozen=True)
class Composed(Event):
    """All of `events`, each allowed to depend on the results of those before."""

    name: ClassVar[str] = "composed"
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        require(all(isinstance(part, Event) for part in self.events), self, "events", "events")  # pyright: ignore[reportUnnecessaryIsInstance]


def flatten(event: Event) -> Counter[Event]:
    """How often each elementary event occurs in `event`; expands repetition and composition.

    Counting happens only here, so no accountant can forget a count.

    >>> flatten(Composed((Laplace(1.0), Repeated(Repeated(Laplace(1.0), 3), 2))))
    Counter({Laplace(noise_multiplier=1.0, discrete=False, reproducible=False): 7})
    """
    if isinstance(event, Repeated):
        return Counter({leaf: n * event.count for leaf, n in flatten(event.event).items() if event.count})
    if isinstance(event, Composed):
        total: Counter[Event] = Counter()
        for part in event.events:
            total.update(flatten(part))
        return total
    return Counter({event: 1})


_DEEPEST = 50  # nesting levels of events; far more than any run needs, far fewer than Python's stack allows
_SAID_IF_TRUE = (
    "partly_float",
    "rounded",
    "sites",
    "fewest",
    "colluding",
)  # otherwise omitted, so that events of older ledgers keep their text
_BY_NAME: Mapping[str, Callable[..., Event]] = {
    kind.name: kind
    for kind in (
        Gaussian,
        Laplace,
        RandomizedResponse,
        PureDP,
        Poisson,
        TruncatedPoisson,
        FixedSize,
        Thresholded,
        NonPrivate,
        Repeated,
        Composed,
    )
}


def to_json(event: Event) -> str:
    """One line of canonical JSON: sorted keys, no spaces; the ledger hashes it.

    >>> to_json(Poisson(0.01, Laplace(1.0)))
    '{"event":{"discrete":false,"name":"laplace","noise_multiplier":1.0,"reproducible":false},"name":"poisson","rate":0.01}'
    """
    try:
        return json.dumps(_encode(event, _DEEPEST), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"this {type(event).__name__} cannot be written as text: {error}") from error


def from_json(text: str) -> Event:
    """The event that `to_json` wrote; unknown names and fields are refused, never guessed."""
    try:
        return _decode(json.loads(text, parse_constant=_refuse), _DEEPEST)
    except (TypeError, ValueError, RecursionError) as error:
        start = str(text)[:200]
        raise UnknownEvent(f"this version of Blindsight does not know this event ({error}): {start}") from error


def _encode(event: Event, depth: int) -> dict[str, Any]:
    if event.name not in _BY_NAME:
        raise UnknownEvent(f"this version of Blindsight does not know the event {type(event).__name__}")
    if depth == 0:
        raise ValueError("it is nested too deeply")
    fields: dict[str, Any] = {"name": event.name}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name in _SAID_IF_TRUE and not value:
            continue
        if isinstance(value, Event):
            value = _encode(value, depth - 1)
        elif isinstance(value, tuple):
            value = [_encode(part, depth - 1) for part in value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        fields[field.name] = value
    return fields


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _decode(fields: Any, depth: int) -> Event:
    if not isinstance(fields, dict) or depth == 0:
        raise ValueError("not an object" if depth else "nested too deeply")
    arguments: dict[str, Any] = dict(fields)
    name = arguments.pop("name", None)
    if name not in _BY_NAME:
        raise ValueError(f"event {name!r}")
    if "event" in arguments:
        arguments["event"] = _decode(arguments["event"], depth - 1)
    if "events" in arguments:
        if not isinstance(arguments["events"], list):
            raise ValueError("events must be a list")
        arguments["events"] = tuple(_decode(part, depth - 1) for part in arguments["events"])
    return _BY_NAME[name](**arguments)


def _nested(event: Event) -> None:
    require(isinstance(getattr(event, "event"), Event), event, "event", "an event")  # noqa: B009
