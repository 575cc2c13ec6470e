"""`Privacy` is valid or does not exist, keeps what it promises, and `plan` compares like with like."""

import dataclasses
import json
import math

import pytest

from blindsight import Privacy, plan
from blindsight.accounting import accountants
from blindsight.accounting.events import Gaussian, Relation, Repeated
from blindsight.errors import InvalidInput

SMALL = Privacy(population=1000, cohort=20, rounds=10, noise_multiplier=1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"population": 0}, {"population": 10.5}, {"population": math.nan}, {"cohort": 0}, {"cohort": 1001},
        {"cohort": math.nan}, {"rounds": 0}, {"rounds": 1.5}, {"clip": 0.0}, {"clip": math.inf}, {"clip": math.nan},
        {"noise_multiplier": -1.0}, {"noise_multiplier": math.nan}, {"noise_multiplier": math.inf},
        {"participation": "lottery"}, {"max_participations": 0}, {"participation": "fixed", "cohort": 2.5},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change):
    with pytest.raises(InvalidInput):
        dataclasses.replace(SMALL, **change)


@pytest.mark.parametrize("participation", ["poisson", "fixed", "full", "unproven"])
def test_calibration_keeps_its_promise_and_wastes_nothing(participation):
    wanted = dataclasses.replace(SMALL, participation=participation, noise_multiplier=None)
    found = wanted.calibrate(epsilon=2.0, delta=1e-5)
    assert wanted.noise_multiplier is None  # a new value
    assert found.guarantee(delta=1e-5).epsilon <= 2.0
    assert found.noise_multiplier is not None
    less = dataclasses.replace(found, noise_multiplier=0.999 * found.noise_multiplier)
    assert less.guarantee(delta=1e-5).epsilon > 2.0


def test_rounds_are_as_many_as_fit():
    found = SMALL.calibrate_rounds(epsilon=2.0, delta=1e-5)
    assert found.guarantee(delta=1e-5).epsilon <= 2.0
    assert dataclasses.replace(found, rounds=found.rounds + 1).guarantee(delta=1e-5).epsilon > 2.0
    with pytest.raises(InvalidInput, match="not even one round"):
        SMALL.calibrate_rounds(epsilon=1e-6, delta=1e-5)


def test_no_noise_yet_is_said():
    with pytest.raises(InvalidInput, match="calibrate"):
        dataclasses.replace(SMALL, noise_multiplier=None).guarantee(delta=1e-5)


def test_each_participation_is_accounted_under_its_own_relation():
    found = plan(SMALL, delta=1e-5)
    assert set(found.alternatives) == {"fixed", "full", "unproven"}
    fixed = dataclasses.replace(SMALL, participation="fixed")
    assert fixed.relation is Relation.REPLACE
    assert found.alternatives["fixed"].epsilon == accountants.epsilon(fixed.event, 1e-5, Relation.REPLACE).epsilon
    everyone = accountants.epsilon(Repeated(Gaussian(1.0), 10), 1e-5).epsilon
    assert found.alternatives["full"].epsilon == found.alternatives["unproven"].epsilon == everyone
    assert found.guarantee.epsilon < everyone


def test_a_limit_per_client_is_worth_its_rounds_only():
    thrice = dataclasses.replace(SMALL, participation="unproven", max_participations=3)
    assert thrice.event == Repeated(Gaussian(1.0), 3)
    promise = thrice.guarantee(delta=1e-5)
    assert "at most 3 of 10 rounds" in promise.participation
    assert any("claims nothing" in words for words in promise.assumptions)
    more_than_rounds = dataclasses.replace(thrice, max_participations=99)
    assert more_than_rounds.event == Repeated(Gaussian(1.0), 10)


def test_fixed_has_a_bracket_with_the_truth_in_it():
    found = plan(dataclasses.replace(SMALL, participation="fixed"), delta=1e-5, as_published=True)
    lower, upper = found.guarantee.lower, found.guarantee.epsilon
    assert lower is not None
    assert 0 < lower < upper
    assert found.published is not None
    assert found.published < upper
    values = found.to_dict()
    assert (values["lower"], values["upper"]) == (lower, upper)
    assert values["alternatives"]["poisson"].keys() == {"epsilon"}


def test_the_plan_is_json_even_without_noise():
    none = plan(dataclasses.replace(SMALL, noise_multiplier=0.0), delta=1e-5, group=3).to_dict()
    assert json.loads(json.dumps(none, allow_nan=False))["epsilon"] == "inf"
    assert none["alternatives"]["fixed"] == {"lower": "inf", "upper": "inf"}


def test_a_group_shares_the_promise():
    found = plan(SMALL, delta=1e-5, group=2).to_dict()["group"]
    alone = SMALL.guarantee(delta=1e-5)
    assert found["epsilon"] == 2 * alone.epsilon
    assert found["delta"] == pytest.approx(1e-5 * (1 + math.exp(alone.epsilon)))


def test_the_promise_of_the_issue_rows():
    first = Privacy(population=250_000, cohort=1000, rounds=1000, noise_multiplier=1.0)
    assert round(first.guarantee(delta=4e-8).epsilon, 2) == 1.03
    language = Privacy(population=342_477, cohort=5000, rounds=2000, noise_multiplier=1.0)
    assert round(language.guarantee(delta=2.92e-6).epsilon, 2) == 4.22
    assert language.calibrate(epsilon=4, delta=2.92e-6).noise_multiplier == 1.0285
    production = Privacy(population=4_000_000, cohort=20_000, rounds=2000, noise_multiplier=0.8)
    assert round(production.guarantee(delta=4e6**-1.1).epsilon, 2) == 3.06
