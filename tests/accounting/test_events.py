"""Events as data: what is written is what is read, what makes no sense does not exist, and nothing is counted twice."""

import builtins
import dataclasses
import importlib
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.accounting import events
from blindsight.accounting.events import (
    Composed,
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    PureDP,
    RandomizedResponse,
    Relation,
    Repeated,
    Thresholded,
    TruncatedPoisson,
    Unit,
    flatten,
    from_json,
    to_json,
)
from blindsight.errors import InvalidInput, PrivacyError, UnknownEvent

laws = settings(derandomize=True, deadline=None, max_examples=200)

noises = st.floats(0, 1e300)
rates = st.floats(0, 1)
counts = st.integers(1, 10**12)
elementary = st.one_of(
    st.builds(Gaussian, noises, st.floats(0, 1, exclude_max=True), st.booleans(), st.booleans()),
    st.builds(Laplace, noises, st.booleans(), st.booleans()),
    st.builds(RandomizedResponse, noises, st.integers(2, 10**6)),
    st.builds(PureDP, noises, st.sampled_from(Relation)),
    st.just(NonPrivate()),
)
sampled = st.one_of(
    st.builds(Poisson, rates, elementary),
    st.builds(TruncatedPoisson, counts, rates, counts, elementary),
    counts.flatmap(lambda n: st.builds(FixedSize, st.just(n), st.integers(1, n), elementary)),
)
thresholded = st.builds(Thresholded, st.floats(1e-300, 0.5), st.builds(Gaussian, noises))
nested = st.recursive(
    elementary | sampled | thresholded,
    lambda inner: st.one_of(
        st.builds(Repeated, inner, st.integers(0, 5)),
        st.builds(Composed, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)

EVERY_KIND: list[Event] = [
    Gaussian(1.5, 1e-9, reproducible=True, partly_float=True, rounded=True, sites=9, fewest=7, colluding=2),
    Laplace(2.0, discrete=True, reproducible=True),
    RandomizedResponse(1.0, 4),
    PureDP(0.5, Relation.REPLACE),
    Poisson(0.1, Gaussian(1.0)),
    TruncatedPoisson(1000, 0.1, 150, Gaussian(1.0)),
    FixedSize(1000, 100, Gaussian(1.0)),
    Thresholded(1e-9, Gaussian(1.0)),
    NonPrivate(),
    Repeated(Gaussian(1.0), 3),
    Composed((Gaussian(1.0), Laplace(1.0))),
]


def wrapped(depth: int) -> Event:
    event: Event = Gaussian(1.0)
    for _ in range(depth):
        event = Repeated(event, 1)
    return event


# Text.


def test_every_kind_has_a_name_of_its_own_and_is_tried_here():
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)} - {Event}
    assert kinds == {type(event) for event in EVERY_KIND}
    assert len({kind.name for kind in kinds}) == len(kinds)
    assert {kind.__name__ for kind in kinds} <= set(events.__all__)


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.name)
def test_every_kind_is_read_back(event: Event):
    text = to_json(event)
    assert from_json(text) == event
    assert json.loads(text)["name"] == event.name
    assert set(json.loads(text)) == {"name", *(field.name for field in dataclasses.fields(event))}


def test_events_of_older_ledgers_keep_their_text():
    """A run that goes on finds what it has paid for by this text."""
    assert to_json(Gaussian(1.0)) == '{"kl_slack":0.0,"name":"gaussian","noise_multiplier":1.0,"reproducible":false}'


@laws
@given(event=nested)
def test_what_is_written_is_what_is_read(event: Event):
    text = to_json(event)
    again = from_json(text)
    assert again == event
    assert hash(again) == hash(event)
    assert to_json(again) == text
    assert "\n" not in text
    assert flatten(again) == flatten(event)


@laws
@given(event=nested, random=st.randoms(use_true_random=False))
def test_text_is_canonical_whatever_the_order_and_the_spaces(event: Event, random: Any):
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, shuffled(part)) for key, part in value.items()]
            random.shuffle(items)
            return dict(items)
        return [shuffled(part) for part in value] if isinstance(value, list) else value

    text = to_json(event)
    loose = json.dumps(shuffled(json.loads(text)), indent=random.choice([None, 1, 4]))
    assert to_json(from_json(loose)) == text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Gaussian(1), Gaussian(1.0)),
        (Gaussian(1.0, 0), Gaussian(1.0, -0.0)),
        (Gaussian(np.float64(0.1)), Gaussian(0.1)),
        (Laplace(2), Laplace(2.0, False)),
        (PureDP(1), PureDP(1.0, "add_or_remove")),  # pyright: ignore[reportArgumentType]
        (PureDP(-0.0), PureDP(0)),
        (Poisson(1, Gaussian(1)), Poisson(1.0, Gaussian(1.0))),
        (Poisson(-0.0, Gaussian(1)), Poisson(0.0, Gaussian(1.0))),
        (Repeated(Gaussian(1.0), np.int64(3)), Repeated(Gaussian(1.0), 3)),  # pyright: ignore[reportArgumentType]
        (FixedSize(np.int32(9), 3, Gaussian(1.0)), FixedSize(9, 3, Gaussian(1.0))),  # pyright: ignore[reportArgumentType]
        (Composed([Gaussian(1.0)]), Composed((Gaussian(1.0),))),  # pyright: ignore[reportArgumentType]
    ],
)
def test_equal_events_have_equal_text(one: Event, other: Event):
    assert one == other
    assert hash(one) == hash(other)
    assert to_json(one) == to_json(other)


@laws
@given(one=nested, other=nested)
def test_different_events_have_different_text(one: Event, other: Event):
    assert (to_json(one) == to_json(other)) == (one == other)


def test_a_ledger_s_own_spelling_of_a_relation_is_understood():
    assert from_json('{"epsilon":1.0,"name":"pure_dp","relation":"replace"}') == PureDP(1.0, Relation.REPLACE)
    assert isinstance(PureDP(1.0, "replace").relation, Relation)  # pyright: ignore[reportArgumentType]
    assert to_json(PureDP(1.0, Relation.REPLACE)) == '{"epsilon":1.0,"name":"pure_dp","relation":"replace"}'
    assert [relation.in_words for relation in Relation] == ["add or remove one", "replace one"]
    assert [str(unit) for unit in Unit] == ["client", "example", "feature"]


def test_defaults_claim_nothing_special():
    assert Gaussian(1.0) == Gaussian(1.0, kl_slack=0.0, reproducible=False)
    assert Laplace(1.0) == Laplace(1.0, discrete=False, reproducible=False)
    assert PureDP(1.0) == PureDP(1.0, Relation.ADD_OR_REMOVE)


def test_a_default_may_be_left_out_of_the_text():
    assert from_json('{"name":"gaussian","noise_multiplier":2.0}') == Gaussian(2.0)


GARBAGE = [
    "", "{", "null", "true", "5", '"gaussian"', "[]", '["gaussian"]', "{}", "NaN", "Infinity", b"\xff",
    '{"noise_multiplier":1.0}',
    '{"name":null}', '{"name":5}', '{"name":[]}', '{"name":{}}', '{"name":""}', '{"name":"Gaussian"}',
    '{"name":"gaussian"}',
    '{"name":"gaussian","noise_multiplier":1.0,"sigma":2.0}',
    '{"name":"gaussian","noise_multiplier":1.0,"event":{"name":"non_private"}}',
    '{"name":"gaussian","noise_multiplier":"1.0"}',
    '{"name":"gaussian","noise_multiplier":null}',
    '{"name":"gaussian","noise_multiplier":[1.0]}',
    '{"name":"gaussian","noise_multiplier":true}',
    '{"name":"gaussian","noise_multiplier":-1.0}',
    '{"name":"gaussian","noise_multiplier":NaN}',
    '{"name":"gaussian","noise_multiplier":Infinity}',
    '{"name":"gaussian","noise_multiplier":1e999}',
    '{"name":"pure_dp","epsilon":Infinity}',
    '{"name":"pure_dp","epsilon":-Infinity}',
    '{"name":"pure_dp","epsilon":1.0,"relation":"swap"}',
    '{"name":"pure_dp","epsilon":1.0,"relation":null}',
    '{"name":"laplace","noise_multiplier":1.0,"discrete":"no"}',
    '{"name":"laplace","noise_multiplier":1.0,"discrete":0}',
    '{"name":"repeated","event":{"name":"non_private"},"count":1.5}',
    '{"name":"repeated","event":{"name":"non_private"},"count":2.0}',
    '{"name":"repeated","event":{"name":"non_private"},"count":-1}',
    '{"name":"repeated","event":{"name":"non_private"},"count":true}',
    '{"name":"repeated","event":"non_private","count":1}',
    '{"name":"repeated","event":null,"count":1}',
    '{"name":"repeated","event":[],"count":1}',
    '{"name":"poisson","rate":0.5,"event":{"name":"no_such_event"}}',
    '{"name":"poisson","rate":1.5,"event":{"name":"non_private"}}',
    '{"name":"composed","events":""}',
    '{"name":"composed","events":{}}',
    '{"name":"composed","events":null}',
    '{"name":"composed","events":5}',
    '{"name":"composed","events":["gaussian"]}',
    '{"name":"composed"}',
    '{"name":"non_private","why":"because"}',
]  # fmt: skip


@pytest.mark.parametrize("text", GARBAGE)
def test_what_is_no_event_is_refused(text: Any):
    with pytest.raises(UnknownEvent, match="does not know this event"):
        from_json(text)


words = st.sampled_from(["gaussian", "composed", "repeated", "events", "name"])
fields = st.sampled_from(["name", "event", "events", "count", "rate", "noise_multiplier"])
garbage = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | words,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(fields, part, max_size=4),
    max_leaves=10,
)


@laws
@given(text=st.text(max_size=60) | garbage.map(json.dumps))
def test_garbage_is_an_event_or_refused_and_never_crashes(text: str):
    try:
        event = from_json(text)
    except UnknownEvent:
        return
    assert from_json(to_json(event)) == event


def test_the_refusal_names_what_it_did_not_know_and_is_short():
    with pytest.raises(UnknownEvent, match="event 'no_such_thing'"):
        from_json('{"name":"no_such_thing"}')
    with pytest.raises(UnknownEvent, match="sigma"):
        from_json('{"name":"gaussian","sigma":2.0}')
    with pytest.raises(UnknownEvent) as refusal:
        from_json("[" + "1," * 10**5 + "1]")
    assert 200 < len(str(refusal.value)) < 400
    assert isinstance(refusal.value, PrivacyError)


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "json.loads", "blindsight.accounting.events.Gaussian"])
def test_no_name_from_the_data_is_ever_imported(name: str, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    original = builtins.__import__

    def watched(module: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(module)
        return original(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", watched)
    monkeypatch.setattr(importlib, "import_module", watched)
    for text in (f'{{"name":"{name}","command":"true"}}', f'{{"name":"{name}"}}'):
        with pytest.raises(UnknownEvent):
            from_json(text)
    monkeypatch.undo()
    assert name.split(".")[0] not in {module.split(".")[0] for module in asked}


def test_depth_is_limited_the_same_in_both_directions():
    deepest = wrapped(49)
    assert from_json(to_json(deepest)) == deepest
    composed: Event = Gaussian(1.0)
    for _ in range(49):
        composed = Composed((composed,))
    assert from_json(to_json(composed)) == composed
    text = to_json(deepest)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        to_json(Repeated(deepest, 1))
    with pytest.raises(UnknownEvent, match="nested too deeply"):
        from_json(f'{{"count":1,"event":{text},"name":"repeated"}}')
    with pytest.raises(InvalidInput, match="nested too deeply"):
        to_json(Composed((deepest,)))
    with pytest.raises(UnknownEvent, match="nested too deeply"):
        from_json(f'{{"events":[{text}],"name":"composed"}}')


@pytest.mark.parametrize("depth", [60, 900, 5000, 100_000])
def test_deep_nesting_is_refused_and_not_a_crash(depth: int):
    text = '{"count":1,"name":"repeated","event":' * depth + '{"name":"non_private"}' + "}" * depth
    with pytest.raises(UnknownEvent):
        from_json(text)
    with pytest.raises(UnknownEvent):
        from_json("[" * depth + "]" * depth)
    if depth <= 5000:
        with pytest.raises(InvalidInput):
            to_json(wrapped(depth))


def test_what_has_no_text_is_not_written():
    class Foreign(Event):
        name = "foreign"

    with pytest.raises(UnknownEvent, match="Foreign"):
        to_json(Foreign())
    with pytest.raises(UnknownEvent, match="Foreign"):
        to_json(Composed((Gaussian(1.0), Foreign())))
    with pytest.raises(UnknownEvent, match="Event"):
        to_json(Event())
    for infinite in (PureDP(math.inf), RandomizedResponse(math.inf, 2)):
        with pytest.raises(InvalidInput, match="cannot be written as text"):
            to_json(infinite)


# Fields.


BAD_REALS = [-1.0, -1e-300, math.nan, -math.inf, "1", None, 1j, [1.0], True, 10**400]
NOT_WHOLE = [0, -1, 2.5, 3.0, math.nan, math.inf, "3", None, True]
NOT_EVENTS = [None, "gaussian", Gaussian, 1.0, (Gaussian(1.0),)]
TRUNCATED = {"population": 9, "rate": 0.5, "limit": 3, "event": NonPrivate()}
FIXED = {"population": 9, "cohort": 3, "event": NonPrivate()}
SHARED = {"noise_multiplier": 1.0, "sites": 5, "fewest": 4, "colluding": 1}
BAD_FIELDS: list[tuple[type[Event], dict[str, Any], str, list[Any]]] = [
    (Gaussian, {"noise_multiplier": 1.0}, "noise_multiplier", [*BAD_REALS, math.inf]),
    (Gaussian, {"noise_multiplier": 1.0}, "kl_slack", [*BAD_REALS, math.inf, 1.0, 2.0]),
    (Gaussian, {"noise_multiplier": 1.0}, "reproducible", [1, 0, None, "yes"]),
    (Gaussian, {"noise_multiplier": 1.0}, "partly_float", [1, 0, None, "yes"]),
    (Gaussian, {"noise_multiplier": 1.0}, "rounded", [1, 0, None, "yes"]),
    (Gaussian, SHARED, "sites", [value for value in NOT_WHOLE if value != 0]),
    (Gaussian, SHARED, "fewest", [*(value for value in NOT_WHOLE if value != 0), 6]),
    (Gaussian, SHARED, "colluding", [*(value for value in NOT_WHOLE if value != 0), 4]),
    (Laplace, {"noise_multiplier": 1.0}, "noise_multiplier", [*BAD_REALS, math.inf]),
    (Laplace, {"noise_multiplier": 1.0}, "discrete", [1, 0, None, "yes"]),
    (Laplace, {"noise_multiplier": 1.0}, "reproducible", [1, 0, None, "yes"]),
    (RandomizedResponse, {"epsilon": 1.0, "buckets": 2}, "epsilon", BAD_REALS),
    (RandomizedResponse, {"epsilon": 1.0, "buckets": 2}, "buckets", [*NOT_WHOLE, 1]),
    (PureDP, {"epsilon": 1.0}, "epsilon", BAD_REALS),
    (PureDP, {"epsilon": 1.0}, "relation", ["swap", "", None, 1, []]),
    (Poisson, {"rate": 0.5, "event": NonPrivate()}, "rate", [*BAD_REALS, math.inf, 1 + 1e-15, 2]),
    (Poisson, {"rate": 0.5, "event": NonPrivate()}, "event", NOT_EVENTS),
    (TruncatedPoisson, TRUNCATED, "population", NOT_WHOLE),
    (TruncatedPoisson, TRUNCATED, "rate", [*BAD_REALS, math.inf, 1 + 1e-15, 2]),
    (TruncatedPoisson, TRUNCATED, "limit", NOT_WHOLE),
    (TruncatedPoisson, TRUNCATED, "event", NOT_EVENTS),
    (FixedSize, FIXED, "population", NOT_WHOLE),
    (FixedSize, FIXED, "cohort", [*NOT_WHOLE, 10]),
    (FixedSize, FIXED, "event", NOT_EVENTS),
    (Repeated, {"event": NonPrivate(), "count": 1}, "count", [value for value in NOT_WHOLE if value != 0]),
    (Repeated, {"event": NonPrivate(), "count": 1}, "event", NOT_EVENTS),
    (Composed, {"events": ()}, "events", ["ab", [None], (Gaussian,), [Gaussian(1.0), "x"]]),
]


@pytest.mark.parametrize(
    ("kind", "fields", "name", "value"),
    [(kind, fields, name, value) for kind, fields, name, values in BAD_FIELDS for value in values],
)
def test_a_field_that_makes_no_sense_is_refused_by_name(kind: type[Event], fields: dict, name: str, value: Any):
    assert isinstance(kind(**fields), kind)
    with pytest.raises(InvalidInput, match=rf"^{name} of a {kind.name} event must be"):
        kind(**fields | {name: value})


@pytest.mark.parametrize("kind", [kind for kind, *_ in BAD_FIELDS])
def test_every_field_of_every_kind_is_tried(kind: type[Event]):
    assert {name for other, _, name, _ in BAD_FIELDS if other is kind} == {f.name for f in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(0.0), Gaussian(1.7e308), Gaussian(1.0, 0.999), RandomizedResponse(0.0, 2), PureDP(math.inf),
        RandomizedResponse(math.inf, 2), Poisson(0.0, NonPrivate()), Poisson(1.0, NonPrivate()),
        TruncatedPoisson(1, 0.0, 1, NonPrivate()), TruncatedPoisson(1, 1.0, 10, NonPrivate()),
        FixedSize(1, 1, NonPrivate()), FixedSize(3, 3, NonPrivate()), Repeated(NonPrivate(), 0), Composed(()),
    ],
)  # fmt: skip
def test_the_edges_of_what_makes_sense_exist(event: Event):
    assert event == dataclasses.replace(event)


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.name)
def test_events_do_not_change(event: Event):
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, getattr(event, field.name))


# Counting.


def listed(event: Event) -> list[Event]:
    """The naive twin of `flatten`: every elementary event, as often as it happens."""
    if isinstance(event, Repeated):
        return [leaf for _ in range(event.count) for leaf in listed(event.event)]
    if isinstance(event, Composed):
        return [leaf for part in event.events for leaf in listed(part)]
    return [event]


@laws
@given(event=nested)
def test_flatten_counts_as_listing_does(event: Event):
    assert flatten(event) == Counter(listed(event))
    assert all(count > 0 for count in flatten(event).values())
    assert flatten(event).total() == len(listed(event))


@laws
@given(event=nested, count=st.integers(0, 4))
def test_repeating_is_listing(event: Event, count: int):
    assert flatten(Repeated(event, count)) == flatten(Composed((event,) * count))


def test_huge_counts_are_exact():
    assert flatten(Repeated(Repeated(Gaussian(1.0), 10**20), 10**20)) == {Gaussian(1.0): 10**40}
    assert flatten(Repeated(NonPrivate(), 0)) == Counter()
    assert flatten(Composed((Repeated(NonPrivate(), 0), Gaussian(1.0)))) == {Gaussian(1.0): 1}


def test_what_happens_inside_a_sampled_event_is_not_taken_apart():
    inner = Poisson(0.1, Repeated(Gaussian(1.0), 2))
    assert flatten(Repeated(inner, 3)) == {inner: 3}
