"""Tests on the released sums of unknown words: honest where nothing has changed, and what they say is true."""

from typing import Any

import numpy as np
import pytest

from blindsight.inspection.measuring import Measured
from blindsight.inspection.unknowns import findings as module
from blindsight.inspection.unknowns.findings import compare, read
from blindsight.inspection.unknowns.words import RATES, SIGNS

LABELS = ("token_join", "token_join:where=all", "encoding_damage", "truncation", "none")
COUNT = len(RATES)


def released(
    dice: np.random.Generator, *, clients: int = 2000, std: float = 20.0, rise: float = 0.0, new: float = 0.0
) -> tuple[Measured, Measured, Measured]:
    """Sums over clients whose sides are alike, but for `rise` in the rate at position 1 and `new` joins."""
    habits = dice.beta(1, 12, (clients, COUNT))
    before, after = (np.clip(habits + dice.normal(0, 0.05, habits.shape), 0, 1) for _ in range(2))
    after[:, 1] = np.clip(after[:, 1] + rise, 0, 1)
    rates = np.concatenate([before - 0.5, after - 0.5, (after - before) ** 2 / 2, np.ones((clients, 1))], axis=1)
    way = np.sign(dice.integers(-3, 4, (clients, len(SIGNS))))
    signs = np.concatenate([way > 0, way < 0], axis=1).astype(float)
    joined = dice.random(clients) < new
    choice = dice.choice(len(LABELS), clients, p=[0.02, 0.02, 0.01, 0.01, 0.94])
    is_before = dice.random(clients) < 0.5
    votes = np.zeros((clients, 2, len(LABELS)))
    for side in range(2):
        own = np.where(is_before == (side == 0), choice, len(LABELS) - 1)
        own = np.where(joined & (side == 1), 0, own)
        votes[np.arange(clients), side, own] = 1
    sums = [rates.sum(axis=0), signs.sum(axis=0), votes.reshape(clients, -1).sum(axis=0)]
    first, second, third = (Measured(one + dice.normal(0, std, one.shape), std, 0.5) for one in sums)
    return first, second, third


def test_where_nothing_has_changed_something_is_found_in_five_runs_of_a_hundred_at_most():
    dice = np.random.default_rng(3)
    quiet = [compare(read(*released(dice, clients=500, std=6.0), LABELS))[0] for _ in range(300)]
    found = [any(one.verdict == "detected" for one in findings) for findings in quiet]
    assert np.mean(found) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)


def test_intervals_cover_the_truth():
    dice, inside = np.random.default_rng(4), list[bool]()
    for _ in range(150):
        reading = read(*released(dice, clients=500, std=6.0, rise=0.05), LABELS)
        by_name = {one.name: one for one in compare(reading)[0]}
        for name, truth in (("unknown words at position 1", 0.05), ("unknown words at position 2", 0.0)):
            inside.append(by_name[name].low <= truth <= by_name[name].high)
    assert np.mean(inside) >= 0.92


def test_a_rise_is_located_and_a_join_is_named():
    reading = read(*released(np.random.default_rng(5), clients=4000, rise=0.06, new=0.1), LABELS)
    findings, (diagnosis,) = compare(reading)
    said = {one.name: one for one in findings}
    assert said["unknown words at position 1"].verdict == "detected"
    assert "position 1 rose from" in said["unknown words at position 1"].statement
    assert "of sentences" in said["unknown words at position 1"].statement
    assert said["unknown words at position 2"].verdict == "not detected"
    assert diagnosis.fault == "token_join"
    assert diagnosis.statement.startswith("token_join: the first two words of sentences are joined, on ")
    assert diagnosis.low <= 0.1 <= diagnosis.high
    told = {one.name: one.effect for one in findings if one.kind == "votes"}
    assert diagnosis.tally[diagnosis.fault] == pytest.approx(diagnosis.share, abs=1e-6)  # one number on the page
    for name, share in told.items():
        assert diagnosis.tally[name] == pytest.approx(share, abs=1e-6)
    assert findings[0].p_value == min(one.p_value or 0.0 for one in findings)


def test_a_fault_that_was_worse_before_explains_nothing():
    rates, signs, votes = released(np.random.default_rng(6), new=0.3)
    mirrored = Measured(votes.sums.reshape(2, -1)[::-1].ravel(), votes.noise_std, votes.epsilon)
    _, (diagnosis,) = compare(read(rates, signs, mirrored, LABELS))
    assert diagnosis.fault == "none"


def test_too_few_clients_are_told_nothing_about():
    findings, (diagnosis,) = compare(read(*released(np.random.default_rng(7), clients=60, new=1.0), LABELS))
    assert all(one.verdict == "not detected" and one.p_value == 1.0 and one.smallest is None for one in findings)
    assert diagnosis.fault == "none"
    assert "Too few clients" in diagnosis.statement
    assert (findings[0].low, findings[0].high) == (-1.0, 1.0)


@pytest.mark.parametrize("side", [0, 1])
def test_rates_have_intervals_between_0_and_1(side):
    rates = read(*released(np.random.default_rng(8)), LABELS).rates(side)
    assert len(rates) == len(RATES)
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in rates)


def test_what_could_not_have_been_seen_shrinks_with_the_noise():
    def smallest(std: float) -> Any:
        findings, _ = compare(read(*released(np.random.default_rng(9), std=std), LABELS))
        return {one.name: one.smallest for one in findings}["token_join"]

    assert smallest(2.0) < smallest(20.0) < 1


def test_every_statement_is_one_sentence():
    for new in (0.0, 0.3):
        findings, diagnoses = compare(read(*released(np.random.default_rng(10), rise=new, new=new), LABELS))
        for one in [*findings, *diagnoses]:
            assert one.statement.endswith(".")
            assert "nan" not in one.statement
    assert module.SIDES == ("before", "after")
