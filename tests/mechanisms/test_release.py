"""The event is on disk before the value exists, and it is the event of what really happened."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight import keys, participation
from blindsight.accounting import events
from blindsight.accounting.events import Event, Relation, Unit
from blindsight.accounting.ledger import Ledger, Split
from blindsight.errors import BudgetExceeded, RelationMismatch
from blindsight.keys import Key
from blindsight.mechanisms.gaussian_mechanism import gaussian
from blindsight.mechanisms.laplace_mechanism import laplace
from blindsight.mechanisms.release import Release, publish
from blindsight.mechanisms.tallies import votes
from blindsight.trees import BoundedSum

KEY = keys.Key(bytes(range(32)))
TOTAL = BoundedSum(np.zeros(3, np.float32), l2_bound=1.0, l1_bound=1.0, n_expected=2.0)


@dataclasses.dataclass
class Stub:
    """A mechanism that does as it is told while it makes its release."""

    meanwhile: Callable[[], object] = lambda: None
    calls: list[str] = dataclasses.field(default_factory=list)

    def event(self, total: BoundedSum) -> Event:
        self.calls.append("event")
        return events.Gaussian(2.0)

    def release(self, total: BoundedSum, *, key: Key) -> Release[Any]:
        self.calls.append("release")
        return Release((total, key, self.meanwhile()), events.NonPrivate(), 0.5)


@pytest.fixture
def ledger(ledger_path: Path) -> Ledger:
    return Ledger(ledger_path)


def test_the_entry_is_on_disk_before_the_value_is_made(ledger, ledger_path):
    def entries() -> list[str]:
        return [entry.event for entry in Ledger(ledger_path).entries("people")]  # as another process would see it

    stub = Stub(entries)
    release = publish(stub, TOTAL, key=KEY, ledger=ledger, population="people")
    total, _, seen = release.value
    assert (total, seen) == (TOTAL, [events.to_json(events.Gaussian(2.0))])
    assert stub.calls == ["event", "release"]
    assert release.noise_std == 0.5


def test_a_release_beyond_the_budget_draws_no_noise(ledger):
    ledger.set_budget("people", epsilon=0.1, delta=1e-6)
    stub = Stub()
    with pytest.raises(BudgetExceeded):
        publish(stub, TOTAL, key=KEY, ledger=ledger, population="people")
    assert stub.calls == ["event"]
    assert [entry.kind for entry in ledger.entries()] == ["budget"]
    publish(stub, TOTAL, key=KEY, ledger=ledger, population="other people")
    assert stub.calls == ["event", "event", "release"]


def test_a_crash_while_the_value_is_made_leaves_its_cost(ledger):
    def crash() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        publish(Stub(crash), TOTAL, key=KEY, ledger=ledger, population="people")
    [entry] = ledger.entries("people")
    assert entry.event == events.to_json(events.Gaussian(2.0))


def test_a_sum_that_does_not_fit_is_refused_without_a_trace(ledger, ledger_path):
    with pytest.raises(RelationMismatch):
        publish(gaussian(1.0), TOTAL, key=KEY, ledger=ledger, population="people")
    assert not ledger_path.exists()


@pytest.mark.parametrize(
    "chosen",
    [
        participation.poisson(1000, 10),
        participation.fixed_size(1000, 10),
        participation.full(1000),
        participation.unproven(1000, 10, max_participations=3),
    ],
    ids=lambda chosen: type(chosen).__name__,
)
def test_the_event_and_the_relation_are_those_of_the_participation(ledger, chosen):
    release = publish(Stub(), TOTAL, key=KEY, ledger=ledger, population="people", participation=chosen)
    assert release.event == chosen.event(events.Gaussian(2.0))
    [entry] = ledger.entries()
    assert entry.event == events.to_json(release.event)
    assert entry.relation == chosen.relation.value
    assert ledger.spent("people", 1e-6).relation is chosen.relation


def test_without_participation_nothing_is_amplified(ledger):
    release = publish(Stub(), TOTAL, key=KEY, ledger=ledger, population="people")
    assert release.event == events.Gaussian(2.0)
    [entry] = ledger.entries()
    assert (entry.relation, entry.unit) == (Relation.ADD_OR_REMOVE.value, Unit.CLIENT.value)


@pytest.mark.parametrize("chosen", [None, participation.poisson(1000, 10)], ids=["all", "Poisson"])
@pytest.mark.parametrize("make", [gaussian, laplace], ids=["gaussian", "laplace"])
def test_a_reproducible_key_is_written_down_as_such(ledger, make, chosen):
    if make is laplace and chosen is not None:
        chosen = participation.full(1000)
    mechanism = make(2.0, sampler="float")
    for key, marked in ((KEY, False), (keys.reproducible(1), True), (keys.reproducible(1).derive("noise"), True)):
        release = publish(mechanism, TOTAL, key=key, ledger=ledger, population="people", participation=chosen)
        bare = dataclasses.replace(mechanism.event(TOTAL), reproducible=marked)
        assert release.event == (chosen.event(bare) if chosen else bare)
        assert ledger.entries()[-1].event == events.to_json(release.event)
        assert ("reproducible" in " ".join(ledger.spent("people", 1e-6).assumptions)) is marked


def test_a_reproducible_key_leaves_other_events_as_they_are(ledger):
    class Pure(Stub):
        def event(self, total: BoundedSum) -> Event:
            return events.PureDP(1.0)

    release = publish(Pure(), TOTAL, key=keys.reproducible(1), ledger=ledger, population="people")
    assert release.event == events.PureDP(1.0)


def test_participation_that_has_no_bound_for_the_mechanism_is_refused(ledger, ledger_path):
    with pytest.raises(RelationMismatch):
        publish(
            laplace(1.0, sampler="float"),
            TOTAL,
            key=KEY,
            ledger=ledger,
            population="people",
            participation=participation.poisson(1000, 10),
        )
    assert not ledger_path.exists()


def test_details_go_into_the_entry(ledger):
    split = Split("accuracy", "accuracy < 0.9", ("failing", "healthy"))
    publish(
        Stub(), TOTAL, key=KEY, ledger=ledger, population="people", run="r1", note="first", split=split, arm="failing"
    )
    publish(Stub(), TOTAL, key=KEY, ledger=ledger, population="examples", unit=Unit.EXAMPLE)
    first, second = ledger.entries()
    assert (first.population, first.run, first.note, first.split, first.arm) == (
        "people",
        "r1",
        "first",
        split.to_json(),
        "failing",
    )
    assert (second.population, second.unit, second.arm) == ("examples", "example", "")


def test_what_is_published_is_the_mechanisms_release_with_the_whole_event(ledger):
    poll = votes(("a", "b", "c"), gaussian(1.0, sampler="float"))
    chosen, key = participation.poisson(1000, 2), keys.reproducible(4)
    published = publish(poll, TOTAL, key=key, ledger=ledger, population="people", participation=chosen)
    alone = poll.release(TOTAL, key=key)
    assert np.array_equal(published.value.counts, alone.value.counts)
    assert published.noise_std == alone.noise_std
    assert alone.event == events.Gaussian(1.0)
    assert published.event == chosen.event(events.Gaussian(1.0, reproducible=True))
    assert ledger.spent("people", 1e-6).releases == 1


def test_a_release_cannot_be_changed_and_publishing_goes_by_name():
    release = Release(1.0, events.Gaussian(1.0), 0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.event = events.NonPrivate()  # pyright: ignore[reportAttributeAccessIssue]
    by_name = [p.name for p in inspect.signature(publish).parameters.values() if p.kind is p.KEYWORD_ONLY]
    named = ["key", "ledger", "population", "participation", "unit", "run", "note", "split", "arm"]
    assert by_name == named
