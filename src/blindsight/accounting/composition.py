"""The combined cost of all entries of one population: sequential composition, parallel where arms are disjoint.

**Why disjoint arms cost the maximum, under add/remove.** A split puts every client into at most one arm, by a rule that
reads only that client's data and values already public. Add or remove one client: the arm it falls into changes by that
client, every other arm of the split is the same set of clients as before. Given what was released earlier, a release on
an unchanged arm has the same distribution in both worlds and reveals nothing about the difference. So the client is
exposed to the common releases and to those on its own arms, one arm of each split, and the population's loss is the
largest over the combinations of arms. (Sequential composition bounds each combination, whatever the order.)

**Why not under replace.** The client's new data may fall into another arm than its old data. Then two arms change, one
by losing a client and one by gaining one, and an observer of both adds up the evidence: all arms are composed in
sequence. **Why not for examples.** One more example may change its client's arm and so move all of the client's other
examples; no composition of example-level events bounds that, so it is refused.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Self

from blindsight.accounting import accountants
from blindsight.accounting import assumptions as words
from blindsight.accounting.events import Composed, Event, Relation, Repeated, Unit, flatten, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.errors import InvalidInput, PrivacyError, RelationMismatch, UnknownEvent

__all__ = ["Share", "Split", "certified", "check_accountable", "is_parallel", "share_of"]

_MOST_COMBINATIONS = 64
_MOST_RELEASES = 2**63 - 1
_WITHOUT_IDENTITY = "inspection"  # name of inspections' splits before splits had an identity


@dataclasses.dataclass(frozen=True)
class Split:
    """A division of a population into arms that share no client.

    `rule` says in words how a client determines its arm, from its own data and public values only. `identity` adds what
    words omit: together with the rule it must determine each client's arm (the run, the model's digest, the thresholds
    to their last digit). Two splits are the same only if name, rule, identity and arms are all equal; releases on
    different splits are composed in sequence.

    >>> Split("accuracy", "accuracy of model 3f1c < 0.882 / >= 0.939", ("failing", "healthy")).name
    'accuracy'
    """

    name: str
    rule: str
    arms: tuple[str, ...]
    identity: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", tuple(self.arms))
        if not isinstance(self.identity, str) or not _is_storable(self.identity):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"the identity of a split must be text, got {self.identity!r}")
        texts = (self.name, self.rule, *self.arms)
        if not all(isinstance(text, str) and text.strip() and _is_storable(text) for text in texts):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"name, rule and arms of a split must be text and not empty, got {self}")
        if len(self.arms) < 2 or len(set(self.arms)) < len(self.arms):
            raise InvalidInput(f"a split needs at least two arms with different names, got {self.arms}")

    def to_json(self) -> str:
        """Canonical JSON, as the ledger stores it."""
        fields = {name: value for name, value in dataclasses.asdict(self).items() if value or name != "identity"}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))  # older splits have no identity

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The split that `to_json` wrote."""
        return cls(**json.loads(text))


@dataclasses.dataclass(frozen=True)
class Share:
    """`times` equal entries of a population's ledger; `split` is canonical JSON, or empty."""

    event: Event
    unit: Unit
    relation: Relation
    split: str = ""
    arm: str = ""
    times: int = 1

    @functools.cached_property
    def leaves(self) -> Counter[Event]:
        """How often each elementary event occurs in all of them together."""
        return flatten(Repeated(self.event, self.times))


def share_of(event: Event, *, unit: Unit, relation: Relation, split: Split | None, arm: str) -> Share:
    """One entry's share; refuses an event that cannot be counted."""
    try:
        share = Share(event, Unit(unit), Relation(relation), split.to_json() if split else "", arm)
        counts = share.leaves.values()
        again = from_json(to_json(event))
    except UnknownEvent:
        raise
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"this {type(event).__name__} cannot be recorded ({error}): record an event") from error
    if again != event:
        raise InvalidInput(f"this event would read back from the ledger as a different one: {event!r:.200}")
    if not all(isinstance(count, int) and 0 < count <= _MOST_RELEASES for count in counts) or not counts:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(
            f"an event must count between 1 and 2^63 - 1 releases, got {event!r:.200}: record what will be released"
        )
    if (split is None) != (arm == "") or (split is not None and arm not in split.arms):
        has = f"has the arms {', '.join(split.arms)}" if split else "is missing"
        raise InvalidInput(f"arm {arm!r} needs a split that has it, but the split {has}: name both, or neither")
    if split and share.unit is not Unit.CLIENT:
        raise RelationMismatch(
            "arms divide clients, and one more example can move all of its client's examples to "
            "another arm: record arms with unit='client', or record without a split"
        )
    return share


def certified(shares: Sequence[Share], delta: float) -> Guarantee:
    """The guarantee for everything in `shares`, at `delta`: that of the client in the costliest arms."""
    unit, relation = _unit_and_relation(shares)
    assumptions = [
        words.DISJOINT_ARMS.format(split=repr(split.name), rule=split.rule)
        for split in map(Split.from_json, dict.fromkeys(share.split for share in shares if is_parallel(share)))
    ]
    if sum(share.times for share in shares) > 1:
        assumptions.append(words.PLANNED)
    with _computable():
        every = [
            certify(_event(world), delta=delta, unit=unit, relation=relation, assumptions=tuple(assumptions))
            for world in _worlds(shares)
        ]
    worst = max(every, key=lambda guarantee: guarantee.epsilon)
    # the guarantee covers the clients of the other arms too, so it lists their assumptions as well
    listed = dict.fromkeys(sentence for one in (worst, *every) for sentence in one.assumptions)
    releases = sum(share.leaves.total() for share in shares)
    return dataclasses.replace(worst, assumptions=tuple(listed), releases=releases)


def check_accountable(kinds: Iterable[Event], new: Share) -> None:
    """Refuses an event that could never be accounted, alone or together with the types of events already recorded."""
    try:
        _epsilon(
            frozenset([*((leaf, 1) for leaf in kinds if leaf not in new.leaves), *new.leaves.items()]), new.relation
        )
    except (UnknownEvent, RelationMismatch):
        raise
    except PrivacyError:  # no number at this delta; there may be one at another
        return


def _unit_and_relation(shares: Sequence[Share]) -> tuple[Unit, Relation]:
    terms = {(share.unit, share.relation) for share in shares} or {(Unit.CLIENT, Relation.ADD_OR_REMOVE)}
    if len(terms) > 1:
        raise RelationMismatch(
            "entries with different units or relations have no common epsilon: report them separately"
        )
    return terms.pop()


def _worlds(shares: Sequence[Share]) -> list[Counter[Event]]:
    """The releases a client can be exposed to: common ones plus one arm of each split, for all combinations of arms."""
    common: Counter[Event] = Counter()
    splits: dict[str, dict[str, Counter[Event]]] = {}
    for share in shares:
        arm = splits.setdefault(share.split, {}).setdefault(share.arm, Counter()) if is_parallel(share) else common
        arm.update(share.leaves)
    worlds = [common]
    for arms in splits.values():
        choices = _largest(list(arms.values()))
        if len(worlds) * len(choices) > _MOST_COMBINATIONS:
            choices = [sum(arms.values(), Counter())]  # too many: in sequence, which never undercounts
        worlds = [world + choice for world, choice in itertools.product(worlds, choices)]
    return worlds


def _largest(arms: list[Counter[Event]]) -> list[Counter[Event]]:
    """The arms without those that cost no more than another: usually one is left."""
    distinct = [arm for i, arm in enumerate(arms) if arm not in arms[:i]]
    return [arm for arm in distinct if not any(arm < other for other in distinct)]


def _is_storable(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def is_parallel(share: Share) -> bool:
    """Whether only one arm of the share's split is paid for."""
    is_by_client = share.relation is Relation.ADD_OR_REMOVE and share.unit is Unit.CLIENT
    return bool(share.split) and is_by_client and _tells_arms(share.split)


@functools.lru_cache(maxsize=256)
def _tells_arms(split: str) -> bool:
    """Whether equal splits mean equal arms. Older inspections used the same text for different models."""
    parsed = Split.from_json(split)
    return bool(parsed.identity) or parsed.name != _WITHOUT_IDENTITY


def _event(world: Mapping[Event, int]) -> Event:
    """The composed event, in a fixed order, so that the same releases cost the same to the last digit."""
    return Composed(tuple(Repeated(leaf, world[leaf]) for leaf in sorted(world, key=to_json)))


@functools.lru_cache(maxsize=256)
def _epsilon(leaves: frozenset[tuple[Event, int]], relation: Relation) -> float:
    with _computable():
        return accountants.epsilon(_event(dict(leaves)), 1e-6, relation).epsilon


@contextlib.contextmanager
def _computable() -> Generator[None]:
    try:
        yield
    except ArithmeticError as error:
        raise UnknownEvent(f"the privacy loss is beyond what can be computed ({error}): use more noise") from error
