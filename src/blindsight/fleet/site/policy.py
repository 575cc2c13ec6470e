"""Whether a site answers a question: pure functions of the policy, the question and the amount spent.

A policy has limits, which nobody can override by approving a question, and says who approves what is within them. What
it decides may depend on the question, the settings and the ledger only, never on data.
"""

import dataclasses
import datetime
import enum
import math
import re
from typing import Any, Literal, NamedTuple

from blindsight.config.tables import require
from blindsight.errors import InvalidInput
from blindsight.fleet.codes import Code

__all__ = ["Asked", "AskerLimit", "EpsilonTotals", "Leaf", "Policy", "Ruling", "Standing", "decide"]

CLOCKS_DIFFER_S = 300.0
"""Seconds by which the clocks of the coordinator and a site may differ."""

_DIGEST = re.compile(r"[0-9a-f]{16,128}")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_LONGEST = 2000  # characters of a text in a question
_ALL = ("all",)


class Leaf(NamedTuple):
    """Numbers that leave the site, in a sum: their name, how many they are, and the L2 norm of one client's part."""

    name: str
    coordinates: int
    l2_bound: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """An officer's view of a question or a training run: everything that decides whether the site answers.

    Its texts are printable, so that nothing in them can change what a terminal shows.
    """

    job: str
    """Digest of everything that was asked, in lower-case hex."""
    kind: Literal["question", "training"]
    task: str
    asker: str
    """Who asks, in the coordinator's words."""
    epsilon: float
    delta: float
    unit: str = "client"
    sentence: str
    """The question in plain words."""
    leaves: tuple[Leaf, ...]
    """What leaves in every round: for a training, the model's parameters."""
    noise: str
    """Who adds the noise, and whom one has to trust."""
    reproducible: bool = False
    """Whether the asker knows the noise and who is in which cohort."""
    is_seen: bool = False
    """Whether the coordinator adds the noise, and so sees sums without it."""
    colluding: int = 0
    """Number of other sites that noise at the sites allows for."""
    rounds: int = 1
    version: str
    """The asker's version of Blindsight."""
    sent_at: datetime.datetime
    """By the coordinator's clock."""
    received_at: datetime.datetime
    """By the site's clock."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", tuple(Leaf(name, int(n), float(l2)) for name, n, l2 in self.leaves))
        _require(bool(_DIGEST.fullmatch(self.job)), "job", "a digest of 16 to 128 hex digits", self.job)
        _require(self.kind in ("question", "training"), "kind", "question or training", self.kind)
        _require(self.unit in ("client", "example", "feature"), "unit", "client, example or feature", self.unit)
        for name in ("task", "asker", "sentence", "noise", "version"):
            _require(_is_readable(getattr(self, name)), name, "printable text", getattr(self, name))
        _require(0 < self.epsilon < math.inf, "epsilon", "a finite number > 0", self.epsilon)
        _require(0 < self.delta < 1, "delta", "a number between 0 and 1", self.delta)
        _require(self.rounds >= 1, "rounds", ">= 1", self.rounds)
        fine = bool(self.leaves) and all(
            _is_readable(leaf.name) and leaf.coordinates >= 1 and 0 < leaf.l2_bound < math.inf for leaf in self.leaves
        )
        _require(fine, "leaves", "one or more names, each with a number of coordinates and a bound", self.leaves)
        for name in ("sent_at", "received_at"):
            _require(getattr(self, name).tzinfo is not None, name, "a time with its zone", getattr(self, name))

    @property
    def sum_in_words(self) -> str:
        """In what the numbers leave."""
        return "in a sum that the coordinator sees" if self.is_seen else "in a masked sum over all sites"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["leaves"] = [leaf._asdict() for leaf in self.leaves]
        return fields | {name: fields[name].isoformat() for name in ("sent_at", "received_at")}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> "Asked":
        """What `to_dict` was called on."""
        leaves = tuple(Leaf(**leaf) for leaf in value["leaves"])
        times = {name: datetime.datetime.fromisoformat(value[name]) for name in ("sent_at", "received_at")}
        fields: dict[str, Any] = {**value, **times, "leaves": leaves}
        return cls(**fields)


def _require(fine: bool, name: str, what: str, value: Any) -> None:
    if not fine:
        raise InvalidInput(f"{name} of a question must be {what}, got {value!r:.200}")


def _is_readable(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and text.isprintable() and text == text.strip()


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskerLimit:
    """What one asker may spend."""

    epsilon_total: float

    def __post_init__(self) -> None:
        _positive("epsilon_total", self.epsilon_total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Policy:
    """[policy]: what the site answers, how much it may cost, and who approves it."""

    tasks: tuple[str, ...]  # or "all"
    epsilon_per_question: float
    epsilon_total: float  # over all questions, by the ledger's filter
    delta: float  # of the total, and the largest that a question may have
    least_clients: int = 1  # the site does not answer if it declares fewer
    hours: str | None = None  # "08:00-18:00": when it answers, by the site's clock
    approve: Literal["by hand", "automatically"] = "by hand"
    askers: dict[str, AskerLimit] = dataclasses.field(default_factory=dict[str, AskerLimit])  # if given, nobody else
    reproducible: bool = False  # questions with noise that the asker knows: for made-up data
    noise: Literal["sites", "coordinator"] = "sites"  # "coordinator": also questions of which it sees exact sums
    colluding: int = 1  # noise at the sites has to allow for as many that tell others their shares

    def __post_init__(self) -> None:
        _positive("epsilon_per_question", self.epsilon_per_question)
        _positive("epsilon_total", self.epsilon_total)
        require(0 < self.delta < 1, "policy", "delta", "a number between 0 and 1", self.delta)
        require(self.least_clients >= 1, "policy", "least_clients", ">= 1", self.least_clients)
        require(self.colluding >= 0, "policy", "colluding", ">= 0", self.colluding)
        named = [name for name in self.askers if not _is_readable(name)]
        require(not named, "policy", "askers", "names without control characters or spaces at the ends", named)
        if self.hours is not None:
            spelled = bool(_HOURS.fullmatch(self.hours)) and self.hours[:5] != self.hours[6:]
            require(spelled, "policy", "hours", 'two times such as "08:00-18:00"', repr(self.hours))

    def allows(self, task: str) -> bool:
        """Whether questions of this task may be answered."""
        return self.tasks == _ALL or task in self.tasks

    def limit_of(self, asker: str) -> float:
        """Epsilon that this asker may spend over all questions; 0 for somebody who is not listed where some are."""
        if not self.askers:
            return self.epsilon_total
        return self.askers[asker].epsilon_total if asker in self.askers else 0.0

    def is_open(self, now: datetime.datetime) -> bool:
        """Whether the site answers at this time of day; a window may pass midnight."""
        if self.hours is None:
            return True
        start, end = (datetime.time.fromisoformat(part) for part in self.hours.split("-"))
        clock = now.time()
        return start <= clock < end if start < end else clock >= start or clock < end


def _positive(key: str, value: float) -> None:
    require(0 < value < math.inf, "policy", key, "a finite number > 0", value)


class Standing(enum.StrEnum):
    """Where a question stands at a site."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"


@dataclasses.dataclass(frozen=True)
class Ruling:
    """Whether a question is answered. If not, `code` goes to the coordinator; `sentence` stays at the site."""

    state: Standing
    code: Code | None
    sentence: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonTotals:
    """Epsilons at the policy's delta, by the ledger's filter: spent by all and by the asker, now and after a question.

    Epsilons of several releases do not add up, so only the ledger knows what they would be afterwards.
    """

    total: float = 0.0
    asker: float = 0.0
    total_after: float = 0.0
    asker_after: float = 0.0


def decide(
    policy: Policy, asked: Asked, *, clients: int, spent: EpsilonTotals, now: datetime.datetime, approved: bool = False
) -> Ruling:
    """Whether a site with this policy answers; `approved` says that its officer agreed.

    Args:
        policy: The site's policy.
        asked: What is asked.
        clients: The number of clients that the site declares.
        spent: What the ledger says.
        now: The site's own time of day.
        approved: Whether the officer approved the question by hand.
    """
    refusal = _over_a_limit(policy, asked, clients) or _over_a_budget(policy, asked, spent)
    if refusal is not None:
        return Ruling(Standing.DENIED, *refusal)
    if not approved and policy.approve == "by hand":
        return Ruling(Standing.PENDING, Code.pending, "it waits for approval: blindsight site review SITE.toml")
    if not policy.is_open(now):
        sentence = f"it is {now:%H:%M}, and [policy] hours are {policy.hours}: it waits until then"
        return Ruling(Standing.PENDING, Code.pending, sentence)
    who = "by hand" if approved else "automatically, as [policy] approve says"
    return Ruling(Standing.APPROVED, None, f"approved {who}")


def _over_a_limit(policy: Policy, asked: Asked, clients: int) -> tuple[Code, str] | None:
    """The first limit of the policy that the question does not keep."""
    apart_s = abs((asked.received_at - asked.sent_at).total_seconds())
    if apart_s > CLOCKS_DIFFER_S:
        return Code.clock, f"the coordinator's clock and this one differ by {apart_s / 60:.0f} minutes: set them right"
    if not policy.allows(asked.task):
        return Code.task, f"[policy] tasks are {', '.join(policy.tasks) or 'none'}, and this is {asked.task}"
    if asked.reproducible and not policy.reproducible:
        return Code.policy, "the asker would know its noise, which then protects nobody: [policy] reproducible is false"
    if asked.is_seen and policy.noise != "coordinator":
        return Code.policy, 'the coordinator would see sums without noise: [policy] noise is "sites"'
    if not asked.is_seen and asked.colluding < policy.colluding:
        most = policy.colluding
        return Code.policy, f"its noise allows for {asked.colluding} colluding sites, and [policy] colluding is {most}"
    if policy.askers and asked.asker not in policy.askers:
        return Code.policy, f"[policy] askers are {', '.join(policy.askers)}, and this is {asked.asker}"
    if clients < policy.least_clients:
        return Code.too_few_clients, f"the site has {clients:,} clients, and [policy] asks for {policy.least_clients:,}"
    if asked.epsilon > policy.epsilon_per_question:
        most = policy.epsilon_per_question
        return Code.policy, f"it costs epsilon {asked.epsilon:g}, and [policy] epsilon_per_question is {most:g}"
    if asked.delta > policy.delta:
        return Code.policy, f"its delta is {asked.delta:g}, and [policy] delta is {policy.delta:g}"
    return None


def _over_a_budget(policy: Policy, asked: Asked, spent: EpsilonTotals) -> tuple[Code, str] | None:
    """The first budget that would be exceeded if the question were answered."""
    limit = policy.limit_of(asked.asker)
    if spent.total_after > policy.epsilon_total:
        return Code.budget, (
            f"it would take the site from epsilon {spent.total:.3g} to {spent.total_after:.3g}, "
            f"over [policy] epsilon_total {policy.epsilon_total:g}"
        )
    if spent.asker_after > limit:
        return Code.budget, (
            f"it would take {asked.asker} from epsilon {spent.asker:.3g} to {spent.asker_after:.3g}, over {limit:g}"
        )
    return None
