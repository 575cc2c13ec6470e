"""`Privacy` is valid or does not exist, keeps what it promises, and `plan` compares like with like."""

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from blindsight import Privacy, plan
from blindsight.accounting import accountants
from blindsight.accounting.as_published import fixed_size_epsilon
from blindsight.accounting.events import Composed, FixedSize, Gaussian, Relation, Repeated, TruncatedPoisson, Unit
from blindsight.accounting.planning import group_privacy
from blindsight.errors import InvalidInput
from blindsight.privacy import ParticipationName

SMALL = Privacy(population=1000, cohort=20, rounds=10, noise_multiplier=4.0)
NAMES: list[ParticipationName] = ["poisson", "fixed", "full", "unproven"]
RELATIONS = dict.fromkeys(NAMES, Relation.ADD_OR_REMOVE) | {"fixed": Relation.REPLACE}
every_participation = pytest.mark.parametrize("participation", NAMES)


def changed(**changes: Any) -> Privacy:
    return dataclasses.replace(SMALL, **changes)


@pytest.mark.parametrize("participation", NAMES)
@pytest.mark.parametrize(
    "change",
    [
        {"population": 0}, {"population": 10.5}, {"population": math.nan}, {"population": math.inf}, {"cohort": 0},
        {"cohort": -1}, {"cohort": 1001}, {"cohort": math.nan}, {"cohort": math.inf}, {"rounds": 0}, {"rounds": -1},
        {"rounds": 1.5}, {"rounds": math.nan}, {"rounds": math.inf}, {"clip": 0.0}, {"clip": -1.0}, {"clip": math.inf},
        {"clip": math.nan}, {"noise_multiplier": -1.0}, {"noise_multiplier": math.nan}, {"noise_multiplier": math.inf},
        {"max_participations": 0}, {"max_participations": -3}, {"max_participations": 2.5},
        {"max_participations": math.nan},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_whatever_the_participation(
    change: dict[str, Any], participation: ParticipationName
):
    """Also where a field is not used: `plan` compares with the participations that use it."""
    with pytest.raises(InvalidInput, match=next(iter(change)).split("_")[0]):
        changed(participation=participation, **change)


def test_a_participation_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput, match="poisson, fixed, full, unproven"):
        changed(participation="lottery")


def test_a_cohort_of_exact_size_is_a_whole_number():
    assert changed(cohort=2.5).sampling.n_expected == 2.5
    assert changed(cohort=2.5, participation="unproven").sampling.n_expected == 2.5
    assert changed(cohort=20.0, participation="fixed").sampling.limit == 20
    with pytest.raises(InvalidInput, match="whole number"):
        changed(cohort=2.5, participation="fixed")


def test_whole_numbers_may_be_written_as_floats():
    assert changed(population=1e3, rounds=1e1, max_participations=3.0) == changed(max_participations=3)
    assert type(changed(population=1e3).population) is int
    assert type(changed(rounds=10.0).rounds) is int


def test_privacy_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.rounds = 5  # pyright: ignore[reportAttributeAccessIssue]
    assert (SMALL.clip, SMALL.participation, SMALL.unit) == (1.0, "poisson", Unit.CLIENT)


@every_participation
def test_sampling_and_accounting_are_one_object(participation: ParticipationName):
    found = changed(participation=participation)
    assert found.relation is found.sampling.relation is RELATIONS[participation]
    assert found.event == found.sampling.event(Gaussian(4.0), 10)


def test_the_event_of_each_participation():
    poisson = changed().event
    assert isinstance(poisson, Repeated)
    assert isinstance(poisson.event, TruncatedPoisson)
    assert (poisson.count, poisson.event.population, poisson.event.rate) == (10, 1000, 0.02)
    assert poisson.event.event == Gaussian(4.0)
    assert changed(participation="fixed").event == Repeated(FixedSize(1000, 20, Gaussian(4.0)), 10)
    assert changed(participation="full").event == Repeated(Gaussian(4.0), 10)
    assert changed(participation="unproven").event == Repeated(Gaussian(4.0), 10)


def test_what_sums_are_divided_by():
    """The cohort that is expected; under full participation that is everyone, whatever `cohort` says."""
    assert {name: changed(participation=name).sampling.n_expected for name in NAMES} == {
        "poisson": 20,
        "fixed": 20,
        "full": 1000,
        "unproven": 20,
    }


@every_participation
def test_calibration_keeps_its_promise_and_wastes_nothing(participation: ParticipationName):
    wanted = changed(participation=participation, noise_multiplier=None)
    found = wanted.calibrate(epsilon=0.15, delta=1e-5)
    assert wanted.noise_multiplier is None  # a new value
    assert found.noise_multiplier is not None
    assert found == dataclasses.replace(wanted, noise_multiplier=found.noise_multiplier)
    assert found.guarantee(delta=1e-5).epsilon <= 0.15
    less = dataclasses.replace(found, noise_multiplier=0.999 * found.noise_multiplier)
    assert less.guarantee(delta=1e-5).epsilon > 0.15


@pytest.mark.parametrize("participation", ["full", "unproven"])
def test_what_was_released_before_is_within_the_promise(participation: ParticipationName):
    before = Gaussian(5.0)
    wanted = changed(participation=participation, noise_multiplier=None)
    alone, after = (wanted.calibrate(epsilon=1.5, delta=1e-5, before=given) for given in ((), (before,)))
    assert after.noise_multiplier is not None
    assert alone.noise_multiplier is not None
    assert after.noise_multiplier > 1.01 * alone.noise_multiplier
    both = Composed((before, after.event))
    promise = after.guarantee(delta=1e-5, before=(before,))
    assert promise.epsilon == pytest.approx(accountants.epsilon(both, 1e-5, RELATIONS[participation]).epsilon)
    assert 1.49 < promise.epsilon <= 1.5
    assert promise.releases == after.guarantee(delta=1e-5).releases + 1
    assert "before that" in promise.participation


def test_calibration_forgets_the_noise_there_was():
    wanted = changed(participation="full")
    assert wanted.calibrate(epsilon=0.5, delta=1e-5) == changed(participation="full", noise_multiplier=None).calibrate(
        epsilon=0.5, delta=1e-5
    )


def test_rounds_are_as_many_as_fit():
    found = SMALL.calibrate_rounds(epsilon=0.2, delta=1e-5)
    assert found == changed(rounds=found.rounds)
    assert found.guarantee(delta=1e-5).epsilon <= 0.2
    assert dataclasses.replace(found, rounds=found.rounds + 1).guarantee(delta=1e-5).epsilon > 0.2
    with pytest.raises(InvalidInput, match="not even one round"):
        SMALL.calibrate_rounds(epsilon=1e-6, delta=1e-5)


def test_no_noise_yet_is_said():
    with pytest.raises(InvalidInput, match="calibrate"):
        changed(noise_multiplier=None).guarantee(delta=1e-5)
    with pytest.raises(InvalidInput, match="calibrate"):
        plan(changed(noise_multiplier=None), delta=1e-5)


WORDS = {
    "poisson": "poisson: 20 of 1,000 expected",
    "fixed": "fixed: 20 of 1,000",
    "full": "full: all 1,000",
    "unproven": "unproven: each client in at most 10 of 10 rounds",
}


@every_participation
def test_the_guarantee_says_what_it_rests_on(participation: ParticipationName):
    found = changed(participation=participation, unit=Unit.EXAMPLE).guarantee(delta=1e-5)
    event = changed(participation=participation).event
    assert found.epsilon == accountants.epsilon(event, 1e-5, RELATIONS[participation]).epsilon
    assert (found.delta, found.unit, found.relation) == (1e-5, Unit.EXAMPLE, RELATIONS[participation])
    assert found.participation == WORDS[participation]
    assert found.releases == 10
    assert any("secret coin" in words for words in found.assumptions) == (participation == "poisson")
    assert any("drawn uniformly" in words for words in found.assumptions) == (participation == "fixed")
    assert any("claims nothing" in words for words in found.assumptions) == (participation == "unproven")
    assert any("does not depend on" in words for words in found.assumptions) == (participation == "unproven")


@pytest.mark.parametrize("unit", [Unit.CLIENT, Unit.EXAMPLE])
def test_every_participation_says_alike_that_the_number_of_units_is_public(unit: Unit):
    """Sums are divided by it and pages print it, so one more or less of them is no secret, under any relation."""
    said: set[str] = set()
    for name in NAMES:
        found = changed(participation=name, unit=unit).guarantee(delta=1e-5)
        [sentence] = [words for words in found.assumptions if f"the number of {unit}s is public" in words]
        said.add(sentence)
        assert sentence in found.explain()
        assert sentence in json.loads(json.dumps(found.to_dict()))["assumptions"]
        assert sentence in plan(changed(participation=name, unit=unit), delta=1e-5).to_dict()["assumptions"]
    assert len(said) == 1
    page = " ".join((Path(__file__).parents[1] / "docs" / "privacy.md").read_text(encoding="utf-8").split())
    assert "the number of clients is public" in page
    assert not any("is public" in words for words in changed(noise_multiplier=0.0).guarantee(delta=1e-5).assumptions)


def test_a_limit_per_client_is_worth_its_rounds_only():
    thrice = changed(participation="unproven", max_participations=3)
    assert thrice.event == Repeated(Gaussian(4.0), 3)
    promise = thrice.guarantee(delta=1e-5)
    assert "at most 3 of 10 rounds" in promise.participation
    assert promise.epsilon < changed(participation="unproven").guarantee(delta=1e-5).epsilon
    more_than_rounds = dataclasses.replace(thrice, max_participations=99)
    assert more_than_rounds.event == Repeated(Gaussian(4.0), 10)
    assert "at most 10 of 10 rounds" in more_than_rounds.guarantee(delta=1e-5).participation
    alternative = plan(changed(max_participations=3), delta=1e-5).alternatives["unproven"]
    assert alternative.epsilon == promise.epsilon


# Plans.


@every_participation
def test_a_plan_has_every_other_participation_with_the_same_noise(participation: ParticipationName):
    chosen = changed(participation=participation)
    found = plan(chosen, delta=1e-5)
    assert (found.privacy, found.published, found.group) == (chosen, None, 1)
    assert set(found.alternatives) == set(NAMES) - {participation}
    for name, alternative in found.alternatives.items():
        other = changed(participation=name)
        assert alternative.epsilon == other.guarantee(delta=1e-5).epsilon
        assert (alternative.lower is not None) == (name == "fixed")
    assert (found.guarantee.lower is not None) == (participation == "fixed")
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for name, alternative in values["alternatives"].items():
        assert set(alternative) == ({"lower", "upper"} if name == "fixed" else {"epsilon"})
    keys = {"epsilon", "delta", "noise_multiplier", "participation", "relation", "accountant", "assumptions"}
    keys |= {"alternatives", "population", "cohort", "rounds", "unit"}
    assert set(values) == keys | ({"lower", "upper"} if participation == "fixed" else set())
    assert values["epsilon"] == found.guarantee.epsilon
    assert values["relation"] == RELATIONS[participation]
    assert (values["noise_multiplier"], values["participation"], values["unit"]) == (4.0, participation, "client")
    assert (values["population"], values["cohort"], values["rounds"], values["delta"]) == (1000, 20, 10, 1e-5)


def test_fixed_has_a_bracket_with_the_truth_in_it():
    found = plan(changed(participation="fixed"), delta=1e-5, as_published=True)
    lower, upper = found.guarantee.lower, found.guarantee.epsilon
    assert lower is not None
    assert 0 < lower < upper
    published = fixed_size_epsilon(1000, 20, 4.0, 10, 1e-5)
    assert found.published == published < upper
    values = found.to_dict()
    assert (values["lower"], values["upper"], values["published"]) == (lower, upper, found.published)


def test_a_fraction_of_a_client_can_be_planned_too():
    found = plan(changed(population=100, cohort=0.4), delta=1e-5, as_published=True)
    assert found.published == fixed_size_epsilon(100, 1, 4.0, 10, 1e-5)
    assert set(found.alternatives) == {"fixed", "full", "unproven"}
    assert plan(changed(cohort=20.6), delta=1e-5).alternatives["fixed"].epsilon == (
        changed(cohort=21, participation="fixed").guarantee(delta=1e-5).epsilon
    )


def test_the_plan_is_json_even_without_noise():
    for participation in ("poisson", "fixed"):
        none = plan(changed(noise_multiplier=0.0, participation=participation), delta=1e-5, group=3).to_dict()
        values = json.loads(json.dumps(none, allow_nan=False))
        assert values["epsilon"] == "inf"
        assert values["group"]["epsilon"] == "inf"
    assert plan(changed(noise_multiplier=0.0), delta=1e-5).to_dict()["alternatives"]["fixed"] == {
        "lower": "inf",
        "upper": "inf",
    }


def test_a_group_shares_the_promise():
    found = plan(SMALL, delta=1e-5, group=2).to_dict()["group"]
    alone = SMALL.guarantee(delta=1e-5).epsilon
    assert (found["members"], found["epsilon"]) == (2, 2 * alone)
    assert found["delta"] == pytest.approx(1e-5 * (1 + math.exp(alone)))
    assert (found["epsilon"], found["delta"]) == group_privacy(alone, 1e-5, 2)
    assert "group" not in plan(SMALL, delta=1e-5).to_dict()


@every_participation
def test_a_plan_can_be_looked_at(participation: ParticipationName):
    found = plan(changed(participation=participation), delta=1e-5, as_published=True, group=5)
    screen = io.StringIO()
    Console(file=screen, width=200).print(found)
    text = screen.getvalue()
    for name in NAMES:
        assert f"\n{name} " in text
    assert "as published" in text
    assert "A group of 5 clients" in text
    assert str(found.guarantee) in text
    for alternative in found.alternatives.values():
        assert str(alternative) in text
    assert ("No analysis can bring it below" in text) == (participation == "fixed")


# The numbers of the papers.


def test_the_expected_numbers_of_000():
    """N = 250,000, 1,000 a round, z = 1, 1,000 rounds: 1.03 by coins; published 2.38; as run, 10.1 to 17.4."""
    first = Privacy(population=250_000, cohort=1000, rounds=1000, noise_multiplier=1.0)
    found = plan(first, delta=4e-8, as_published=True).to_dict()
    assert found["epsilon"] == pytest.approx(1.03, abs=5e-3)
    assert found["published"] == pytest.approx(2.38, abs=5e-3)
    assert found["alternatives"]["fixed"]["lower"] == pytest.approx(10.1, abs=0.05)
    assert found["alternatives"]["fixed"]["upper"] == pytest.approx(17.4, abs=0.05)


def test_the_expected_numbers_of_the_language_model_of_000():
    language = Privacy(population=342_477, cohort=5000, rounds=2000, noise_multiplier=1.0)
    assert language.guarantee(delta=2.92e-6).epsilon == pytest.approx(4.22, abs=5e-3)
    assert fixed_size_epsilon(342_477, 5000, 1.0, 2000, 2.92e-6) == pytest.approx(9.22, abs=5e-3)
    assert language.calibrate(epsilon=4, delta=2.92e-6).noise_multiplier == pytest.approx(1.0285, abs=2e-4)


def test_the_expected_numbers_of_001():
    production = Privacy(population=4_000_000, cohort=20_000, rounds=2000, noise_multiplier=0.8)
    assert production.guarantee(delta=4e6**-1.1).epsilon == pytest.approx(3.06, abs=5e-3)
    assert fixed_size_epsilon(4_000_000, 20_000, 0.8, 2000, 4e6**-1.1) == pytest.approx(5.36, abs=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "cohort", "rounds", "noise", "delta"),
    [(342_477, 5000, 2000, 1.0, 2.92e-6), (4_000_000, 20_000, 2000, 0.8, 4e6**-1.1)],
)
def test_the_published_numbers_are_below_what_is_true_of_rounds_as_they_were_run(
    population: int, cohort: int, rounds: int, noise: float, delta: float
):
    run = Privacy(population=population, cohort=cohort, rounds=rounds, noise_multiplier=noise, participation="fixed")
    found = plan(run, delta=delta, as_published=True)
    assert found.guarantee.lower is not None
    assert found.published is not None
    assert found.alternatives["poisson"].epsilon < found.published < found.guarantee.lower < found.guarantee.epsilon
