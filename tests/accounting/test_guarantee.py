"""The promise: rounded in the safe direction, explained correctly, and honest about what it rests on."""

import dataclasses
import json
import math
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.accounting import accountants
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
    TruncatedPoisson,
    Unit,
)
from blindsight.accounting.guarantee import Guarantee, certify, round_down, round_up
from blindsight.errors import InvalidInput, RelationMismatch

laws = settings(derandomize=True, deadline=None, max_examples=300)

IDEAL = "the noise is ideal"
COIN = "took part in each round by its own secret coin"
UNIFORM = "every cohort was drawn uniformly, in secret, at exact size"
OWN_ANSWER = "randomises its own answer"
SEED = "knows the seed of this reproducible run"
CLIPPED = "contribution was clipped to its bound"
PUBLIC = "is public: it is not hidden"


def promise(**changes: Any) -> Guarantee:
    fields: dict[str, Any] = {
        "epsilon": 1.0324,
        "delta": 4e-8,
        "accountant": "PLD",
        "participation": "truncated Poisson",
        "releases": 1000,
    }
    return Guarantee(**fields | changes)


# Rounding.


@laws
@given(value=st.floats(0, 1e300), digits=st.integers(1, 8))
def test_rounding_goes_one_way_and_not_far(value: float, digits: int):
    up, down = round_up(value, digits), round_down(value, digits)
    exact = Decimal(value)
    assert Decimal(down) <= exact <= Decimal(up)
    assert float(down) <= value <= float(up)
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)  # of the last digit that is kept
    assert Decimal(up) - exact < unit or Decimal(up) == exact
    assert exact - Decimal(down) < unit or Decimal(down) == exact
    assert len(Decimal(up).normalize().as_tuple().digits) <= digits


@laws
@given(digits=st.integers(1, 8), data=st.data())
def test_a_number_that_has_few_digits_is_printed_as_it_is(digits: int, data: st.DataObject):
    mantissa = data.draw(st.integers(1, 10**digits - 1))
    value = Decimal(mantissa).scaleb(data.draw(st.integers(-6, 6)))
    if Decimal(float(value)) == value:
        assert Decimal(round_up(float(value), digits)) == Decimal(round_down(float(value), digits)) == value


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (1.03241, "1.033", "1.032"),
        (0.0, "0", "0"),
        (1e-9, "0.000000001000", "0.0000000009999"),  # the float is a little above 1e-9 or below it
        (9.9999, "10.00", "9.999"),
        (99999.5, "1.000e5", "99990"),
        (1e5, "1.000e5", "1.000e5"),
        (99990.0, "99990", "99990"),
        (123456.0, "1.235e5", "1.234e5"),
        (9.99321e6, "9.994e6", "9.993e6"),
        (1e100, "1.001e100", "1.000e100"),
        (math.inf, "inf", "inf"),
    ],
)
def test_how_rounded_numbers_look(value: float, up: str, down: str):
    if value not in (1e-9, 1e100):  # which are not exactly what they are written as
        assert (round_up(value), round_down(value)) == (up, down)
    assert re.fullmatch(r"inf|\d+(\.\d+)?(e\d+)?", round_up(value))


# One line.


def test_str_is_the_documented_line():
    assert str(promise()) == ("(1.033, 4e-08)-DP per client, add or remove one; 1,000 releases; truncated Poisson; PLD")
    other = promise(relation=Relation.REPLACE, unit=Unit.EXAMPLE, releases=1, lower=0.9, assumptions=("so",))
    assert str(other) == "(1.033, 4e-08)-DP per example, replace one; 1 release; truncated Poisson; PLD"


@laws
@given(
    epsilon=st.floats(0, 1e12),
    delta=st.floats(1e-12, 0.5),
    releases=st.integers(0, 10**9),
    unit=st.sampled_from(Unit),
    relation=st.sampled_from(Relation),
)
def test_str_is_one_line_that_never_promises_more(
    epsilon: float, delta: float, releases: int, unit: Unit, relation: Relation
):
    text = str(promise(epsilon=epsilon, delta=delta, releases=releases, unit=unit, relation=relation))
    assert "\n" not in text
    found = re.match(r"\(([\d.e]+), ([\d.e+-]+)\)-DP per (\w+), ([\w ]+); ([\d,]+) releases?; ", text)
    assert found
    assert epsilon <= float(found[1]) <= epsilon * 1.0011
    assert float(found[2]) == pytest.approx(delta, rel=5e-3)
    assert (found[3], found[4]) == (unit, relation.in_words)
    assert int(found[5].replace(",", "")) == releases


def test_no_privacy_says_so():
    none = promise(epsilon=math.inf, participation="no protection")
    assert str(none) == "epsilon = inf: no privacy guarantee (no protection)"
    assert "no privacy guarantee" in none.explain()
    assert not none.is_private
    assert promise().is_private
    assert none.to_dict()["epsilon"] == "inf"


# A paragraph.


@laws
@given(epsilon=st.floats(0, 1000))
def test_the_odds_are_right_and_rounded_up(epsilon: float):
    """Even odds before: at most e^epsilon to 1 afterwards."""
    text = promise(epsilon=epsilon).explain()
    [sure] = re.findall(r"at most ([\d.]+) % sure", text)
    truth = 100 / (1 + math.exp(-epsilon))
    assert truth - 1e-12 <= float(sure) <= min(100.0, truth + 0.011)
    [times] = re.findall(r"more than (e\^)?([\d.e]+) times as likely", text)
    if times[0]:
        assert epsilon > 20
        assert epsilon <= float(times[1]) <= epsilon * 1.001
    else:
        assert math.exp(epsilon) <= float(times[1]) <= math.exp(epsilon) * 1.01


@pytest.mark.parametrize(
    ("epsilon", "times", "sure"),
    [
        (0.0, "1", "50"),
        (math.log(3), "3.01", "75"),
        (1.0, "2.72", "73.11"),
        (10.0, "22100", "99.9955"),
        (20.5, "e^20.5", "100.000"),
        (5000.0, "e^5000", "100"),
    ],
)
def test_odds_of_known_epsilons(epsilon: float, times: str, sure: str):
    text = promise(epsilon=epsilon).explain()
    assert f"more than {times} times as likely" in text
    assert f"at most {sure} % sure" in text


def test_the_paragraph_says_everything():
    text = promise(assumptions=("first thing", "second thing"), lower=0.98765).explain()
    said = [
        "1.033",
        "4e-08",
        "1,000",
        "PLD",
        "truncated Poisson",
        "all data of any one client",
        "were added or removed",
    ]
    for part in (*said, "This holds if: first thing; second thing.", "below 0.9876", "even odds"):
        assert part in text
    other = promise(unit=Unit.EXAMPLE, relation=Relation.REPLACE).explain()
    assert "any one example were replaced by anything else" in other
    assert "client" not in other
    assert "This holds if" not in other
    assert "No better analysis" not in other
    assert "\n" not in text


def test_to_dict_is_json_and_complete():
    full = promise(assumptions=("a", "b"), lower=0.5)
    fields = json.loads(json.dumps(full.to_dict(), allow_nan=False))
    assert set(fields) == {field.name for field in dataclasses.fields(Guarantee)}
    assert fields | {"assumptions": ("a", "b")} == dataclasses.asdict(full)
    assert (fields["unit"], fields["relation"]) == ("client", "add_or_remove")
    both = json.dumps(promise(epsilon=math.inf, lower=math.inf).to_dict(), allow_nan=False)
    assert json.loads(both)["lower"] == "inf"


# What is certified.


ASSUMED: list[tuple[Event, Relation, set[str], str]] = [
    (Gaussian(3.0), Relation.ADD_OR_REMOVE, {IDEAL}, "no sampling assumed"),
    (Gaussian(3.0, kl_slack=1e-20), Relation.ADD_OR_REMOVE, set(), "no sampling assumed"),
    (Gaussian(3.0, reproducible=True), Relation.ADD_OR_REMOVE, {IDEAL, SEED}, "no sampling assumed"),
    (Gaussian(3.0, 1e-20, reproducible=True), Relation.REPLACE, {SEED}, "no sampling assumed"),
    (Gaussian(3.0, 1e-20, partly_float=True), Relation.ADD_OR_REMOVE, {IDEAL}, "no sampling assumed"),
    (Gaussian(3.0, rounded=True), Relation.ADD_OR_REMOVE, set(), "no sampling assumed"),
    (Gaussian(3.0, partly_float=True, rounded=True), Relation.ADD_OR_REMOVE, {IDEAL}, "no sampling assumed"),
    (Laplace(3.0), Relation.ADD_OR_REMOVE, {IDEAL}, "no sampling assumed"),
    (Laplace(3.0, discrete=True), Relation.ADD_OR_REMOVE, set(), "no sampling assumed"),
    (Laplace(3.0, discrete=True, reproducible=True), Relation.ADD_OR_REMOVE, {SEED}, "no sampling assumed"),
    (PureDP(0.1), Relation.ADD_OR_REMOVE, set(), "no sampling assumed"),
    (RandomizedResponse(0.1, 4), Relation.REPLACE, {OWN_ANSWER}, "no sampling assumed"),
    (Poisson(0.0123456, Gaussian(3.0)), Relation.ADD_OR_REMOVE, {COIN, IDEAL}, "Poisson at rate 0.01235"),
    (Poisson(0.01, Gaussian(3.0, 1e-20)), Relation.ADD_OR_REMOVE, {COIN}, "Poisson at rate 0.01"),
    (
        TruncatedPoisson(20_000, 0.05, 1500, Gaussian(3.0, 1e-20)),
        Relation.ADD_OR_REMOVE,
        {COIN},
        "truncated Poisson, 1,000 of 20,000 expected, at most 1,500",
    ),
    (
        FixedSize(20_000, 1000, Gaussian(3.0, reproducible=True)),
        Relation.REPLACE,
        {UNIFORM, IDEAL, SEED},
        "fixed size, 1,000 of 20,000 without replacement",
    ),
]


@pytest.mark.parametrize(("event", "relation", "expected", "words"), ASSUMED)
@pytest.mark.parametrize("unit", list(Unit))
def test_each_event_rests_on_its_own_assumptions(
    event: Event, relation: Relation, expected: set[str], words: str, unit: Unit
):
    found = certify(event, delta=1e-6, unit=unit, relation=relation)
    for sentence in (IDEAL, COIN, UNIFORM, OWN_ANSWER, SEED):
        assert any(sentence in said for said in found.assumptions) == (sentence in expected), sentence
    assert len(found.assumptions) == len(expected) + 2
    assert CLIPPED in found.assumptions[-1]
    assert PUBLIC in found.assumptions[-2]
    assert found.participation == words
    assert found.releases == 1
    assert (found.unit, found.relation, found.delta, found.lower) == (unit, relation, 1e-6, None)
    bound = accountants.epsilon(event, 1e-6, relation)
    assert (found.epsilon, found.accountant) == (bound.epsilon, bound.accountant)
    if unit is Unit.EXAMPLE:
        assert not any("client" in said for said in found.assumptions)
    assert all(said in found.explain() for said in found.assumptions)


def test_a_composition_says_everything_once():
    rounds = Repeated(Poisson(0.01, Gaussian(3.0)), 7), Poisson(0.01, Gaussian(4.0))
    whole = Composed((*rounds, Repeated(Gaussian(9.0), 2), Laplace(30.0)))
    found = certify(whole, delta=1e-6, assumptions=("the caller's own", "the caller's own"))
    assert found.releases == 11
    assert found.participation == "Poisson at rate 0.01; no sampling assumed"
    assert found.assumptions[0] == "the caller's own"
    assert len(set(found.assumptions)) == len(found.assumptions) == 5


def test_words_of_the_caller_replace_the_derived_ones():
    assert certify(Gaussian(3.0), delta=1e-6, participation="everyone").participation == "everyone"


def test_nothing_and_everything():
    nothing = certify(Composed(()), delta=1e-6)
    assert (nothing.epsilon, nothing.releases, nothing.participation) == (0, 0, "nothing")
    everything = certify(Repeated(NonPrivate(), 3), delta=1e-6)
    assert (everything.epsilon, everything.releases, everything.participation) == (math.inf, 3, "no protection")
    assert everything.assumptions == ()
    noiseless = certify(Gaussian(0.0), delta=1e-6)
    assert not any(CLIPPED in said for said in noiseless.assumptions)


def test_what_cannot_be_accounted_is_not_certified():
    with pytest.raises(RelationMismatch):
        certify(FixedSize(9, 3, Gaussian(1.0)), delta=1e-6)
    with pytest.raises(InvalidInput):
        certify(Gaussian(1.0), delta=0.0)


def test_a_guarantee_survives_json():
    for one in (
        Guarantee(epsilon=1.5, delta=1e-6, accountant="PLD", participation="all", releases=3, assumptions=("a", "b")),
        Guarantee(epsilon=math.inf, delta=1e-6, accountant="none", participation="all", releases=1, lower=2.0),
    ):
        assert Guarantee.from_dict(json.loads(json.dumps(one.to_dict()))) == one
