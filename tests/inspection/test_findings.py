"""Findings: false alarms stay below what is promised, intervals cover, faults are found, words say what numbers do."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.chance import largest
from blindsight.inspection.contrast.counting import Background
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.findings import compare_cues, compare_members, diagnose, share_of_clients
from blindsight.inspection.contrast.released import ArmCues, ArmVotes, estimated_error
from blindsight.inspection.finding import agreeing, holm
from blindsight.inspection.measuring import Measured
from blindsight.inspection.sections.evidence import VotesSection

NAMES = tuple("abcdef")
PART = Cues(NAMES, ("first", "second"), True)


def released(first: np.ndarray, second: np.ndarray, noise_std: float, generator, stated: float | None = None):
    """What a round would say about two arms whose clients have these mean cues."""
    blocks = [
        np.concatenate([v - 0.5, (v - 0.5) ** 2, np.ones((len(v), 1))], axis=1).sum(axis=0) for v in (first, second)
    ]
    sums = np.concatenate(blocks)
    noisy = sums + generator.normal(0, noise_std, sums.shape)
    arms = PART.read(Measured(noisy, noise_std if stated is None else stated, 1.0))
    return arms["first"], arms["second"]


def clients(generator, count: int, shift: float = 0.0) -> np.ndarray:
    values = np.clip(
        generator.normal([0.1, 0.3, 0.5, 0.6, 0.8, 0.95], [0.02, 0.05, 0.1, 0.2, 0.05, 0.02], (count, 6)), 0, 1
    )
    values[:, 0] = np.clip(values[:, 0] + shift, 0, 1)
    return values


def alarms(noise_std: float, counts=(300, 500), runs: int = 400, stated: float | None = None) -> float:
    generator = np.random.default_rng(7)
    found = 0
    for _ in range(runs):
        arms = released(clients(generator, counts[0]), clients(generator, counts[1]), noise_std, generator, stated)
        found += any(finding.verdict == "detected" for finding in compare_cues(*arms, epsilon=1.0))
    return found / runs


@pytest.mark.parametrize("noise_std", [1.0, 12.0, 40.0])
def test_two_arms_of_the_same_clients_seldom_differ(noise_std):
    """5 % of 400 runs, and three deviations of that."""
    assert alarms(noise_std) <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_noise_that_is_wider_than_stated_would_be_noticed():
    assert alarms(12.0, stated=8.0) > 0.1


def test_a_spread_that_is_left_out_would_be_noticed():
    generator = np.random.default_rng(7)
    found = 0
    for _ in range(100):
        arms = released(clients(generator, 300), clients(generator, 500), 1.0, generator)
        still = [dataclasses.replace(arm, spread=np.zeros(6)) for arm in arms]
        found += any(finding.verdict == "detected" for finding in compare_cues(*still, epsilon=1.0))
    assert found > 30


def test_intervals_cover_the_difference_and_a_shift_is_found():
    generator = np.random.default_rng(3)
    truth = (
        clients(np.random.default_rng(0), 20_000, 0.3)[:, 0].mean()
        - clients(np.random.default_rng(0), 20_000)[:, 0].mean()
    )
    covered, found = 0, 0
    for _ in range(200):
        arms = released(clients(generator, 300, 0.3), clients(generator, 500), 12.0, generator)
        (finding,) = [one for one in compare_cues(*arms, epsilon=1.0) if one.name == "a"]
        covered += finding.low <= truth <= finding.high
        found += finding.verdict == "detected"
    assert covered / 200 >= 0.9
    assert found / 200 > 0.9


def test_clients_in_both_arms_may_be_off_in_both_directions():
    """Arms of one client's examples can be anti-correlated: errors due to clients are then added, not squared."""
    generator = np.random.default_rng(5)
    found = {True: 0, False: 0}
    for _ in range(200):
        base = generator.normal(0, 0.1, (400, 6))
        arms = released(np.clip(0.5 + base, 0, 1), np.clip(0.5 - base, 0, 1), 0.5, generator)
        for disjoint in found:
            seen = compare_cues(*arms, epsilon=1.0, disjoint_by_client=disjoint)
            found[disjoint] += any(finding.verdict == "detected" for finding in seen)
    assert found[False] / 200 <= 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5
    assert found[True] / 200 > 0.15


def test_what_public_data_show_too_is_no_finding():
    """Failing clients differ where nothing is broken: only what is beyond the expected difference counts."""
    generator = np.random.default_rng(9)

    def public(arm: str, shift: float) -> ArmCues:
        values = clients(generator, 300, shift)
        return ArmCues(arm, NAMES, len(values), 0.0, values.mean(axis=0), values.std(axis=0))

    expected = public("first", 0.1), public("second", 0.0)
    naive = informed = 0
    for _ in range(150):
        arms = released(clients(generator, 600, 0.1), clients(generator, 600), 10.0, generator)
        naive += any(finding.verdict == "detected" for finding in compare_cues(*arms, epsilon=1.0))
        informed += any(one.verdict == "detected" for one in compare_cues(*arms, epsilon=1.0, expected=expected))
    assert naive / 150 > 0.6
    assert informed / 150 <= 0.05 + 3 * (0.05 * 0.95 / 150) ** 0.5


def test_the_smallest_fraction_is_found_nine_times_in_ten():
    generator = np.random.default_rng(11)
    arms = released(clients(generator, 500), clients(generator, 500), 10.0, generator)
    (finding,) = [one for one in compare_cues(*arms, epsilon=1.0) if one.name == "a"]
    assert finding.smallest is not None
    assert 0.02 < finding.smallest < 0.25
    found = 0
    for _ in range(200):
        first = clients(generator, 500)
        first[: round(finding.smallest * 500), 0] += 0.9  # as far as a fault can move it
        seen = compare_cues(*released(first, clients(generator, 500), 10.0, generator), epsilon=1.0)
        found += any(one.name == "a" and one.verdict == "detected" for one in seen)
    assert 0.82 <= found / 200 <= 0.97


def test_intervals_of_cues_are_neither_too_short_nor_too_wide():
    """The variance is cautious for tests; as an interval it would cover 99 %."""
    generator, covered = np.random.default_rng(5), list[bool]()
    for _ in range(300):
        arms = released(clients(generator, 80), clients(generator, 120), 6.0, generator)
        wide = 1.96 * estimated_error(*arms, disjoint_by_client=True, expected=None)  # before it agrees with a verdict
        covered += (np.abs(arms[0].mean - arms[1].mean) <= wide).tolist()
    assert 0.93 <= np.mean(covered) <= 0.975


def test_intervals_agree_with_the_verdict_beside_them():
    """A verdict is corrected for all tests and an interval was not: one in twenty said the opposite."""
    generator = np.random.default_rng(6)
    for shift in np.linspace(0, 0.3, 100):
        first = clients(generator, 80) + np.float32(shift)
        found = compare_cues(*released(first, clients(generator, 120), 6.0, generator), epsilon=1.0)
        assert all((one.low <= 0 <= one.high) == (one.verdict == "not detected") for one in found if one.low * one.high)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.booleans(), st.floats(0, 0.5))
def test_agreeing_never_loses_what_an_undetected_effect_may_be(effect, below, above, is_detected, usual):
    low, high = agreeing(effect - below, effect + above, effect=effect, is_detected=is_detected, usual=usual)
    if is_detected:
        assert not low < usual < high
        assert low <= effect <= high
    else:
        assert low <= min(effect - below, usual)
        assert high >= max(effect + above, usual)


@pytest.mark.parametrize(("clients", "public"), [(100, 100), (1000, 100), (220, 1000)])
def test_the_interval_of_a_share_of_clients_counts_the_sampling_of_both_sides(clients, public):
    """Noise alone would cover no difference in one run of five where the reference is small."""
    generator, covered, alarms = np.random.default_rng(clients), 0, 0
    for _ in range(400):
        counted = generator.binomial(clients, 0.25) + generator.normal(0, 2.0)
        arm = ArmCues("failing", ("tone",), counted, 2.0, np.zeros(1), np.zeros(1))
        one = compare_members(arm, generator.binomial(public, 0.25), public, clients=clients, epsilon=1.0)
        covered, alarms = covered + (one.low <= 0 <= one.high), alarms + (one.verdict == "detected")
    assert 0.92 <= covered / 400 <= 0.98
    assert alarms / 400 <= 0.08


def test_an_arm_that_is_lost_in_noise_gives_no_verdict():
    generator = np.random.default_rng(1)
    arms = released(clients(generator, 30), clients(generator, 500), 12.0, generator)
    for finding in compare_cues(*arms, epsilon=1.0):
        assert (finding.verdict, finding.low, finding.high, finding.smallest) == ("not detected", -1.0, 1.0, None)
        assert finding.effect == 0.0  # a ratio of noise is no effect
        assert "Too few clients" in finding.statement
    with pytest.raises(InvalidInput, match="by the same cues"):
        compare_cues(arms[0], dataclasses.replace(arms[1], names=tuple("uvwxyz")), epsilon=1.0)


def test_a_change_of_units_is_told_as_a_ratio():
    means = (np.array([0.5, 0.5]), np.array([0.125, 0.5]))  # 10,000 against 10
    arms = [
        ArmCues(arm, ("pay: magnitude", "pay: zero"), 500.0, 1.0, m, np.full(2, 0.01))
        for arm, m in zip("ab", means, strict=True)
    ]
    ratio, other = compare_cues(arms[0], arms[1], epsilon=1.0)
    assert "; typical numbers are 1000 times as large (95 %: " in ratio.statement
    assert "times" not in other.statement
    low, high = (10 ** (8 * end) for end in (ratio.low, ratio.high))
    assert low < 1000 < high
    assert f"{high:.0f})" in ratio.statement


@pytest.mark.parametrize(
    ("arm", "who"),
    [("failing", "failing clients"), ("everyone", "all clients"), ("mistakes", "clients with mistakes")],
)
def test_an_arm_s_clients_are_called_by_their_name(arm, who):
    votes = dataclasses.replace(ballot([810, 40, 150]), arm=arm)
    assert diagnose(votes, epsilon=0.5, clients=1000)[0].statement == f"invert, 81 % of {who} (95 %: 78–84)."


def ballot(counts, noise_std: float = 8.0) -> ArmVotes:
    return ArmVotes("failing", ("invert", "flip", "none"), np.asarray(counts, np.float64), noise_std)


def test_the_diagnosis_is_the_most_voted_fault_with_its_interval():
    diagnosis, findings = diagnose(ballot([810, 40, 150]), epsilon=0.5, clients=1000)
    assert diagnosis.fault == "invert"
    assert diagnosis.statement == "invert, 81 % of failing clients (95 %: 78–84)."
    assert diagnosis.tally == {"invert": 0.81, "flip": 0.04, "none": 0.15}
    assert [finding.name for finding in findings] == ["invert", "flip"]
    assert [finding.verdict for finding in findings] == ["detected", "not detected"]
    assert findings[0].epsilon == 0.5
    assert diagnosis.to_dict()["arm"] == "failing"
    assert findings[0].to_dict()["arms"] == ["failing", "failing"]


def test_without_a_fault_beyond_its_background_the_diagnosis_is_none():
    diagnosis, _ = diagnose(ballot([20, -5, 985]), epsilon=0.5, clients=1000)
    assert diagnosis.fault == "none"
    assert diagnosis.statement.startswith("No candidate fault explains failing clients: 98 %")
    assert diagnose(ballot([100, -5, 905]), epsilon=0.5, clients=1000)[0].fault == "invert"
    public = ballot([90, 0, 910], 0.0)
    assert diagnose(ballot([100, -5, 905]), epsilon=0.5, clients=1000, public=public, public_clients=1000)[0].fault == (
        "none"
    )
    lost, findings = diagnose(ballot([30, 0, 10]), epsilon=0.5, clients=1000)
    assert lost.statement == "Too few failing clients for a diagnosis at this epsilon."
    assert (lost.fault, lost.low, lost.high) == ("none", 0.0, 1.0)
    assert {finding.verdict for finding in findings} == {"not detected"}


def test_votes_that_are_noise_are_no_shares():
    """Of too few voters a share is noise: five candidates had shown 60 to 100 % each."""
    unread: Any = None  # neither the report nor the console is read
    lost, _ = diagnose(ballot([30, 0, 10]), epsilon=0.5, clients=1000)
    assert lost.tally == {}
    (line,) = VotesSection((lost,)).lines(unread, unread)
    assert line == "Too few failing clients for a diagnosis at this epsilon."
    kept, _ = diagnose(ballot([810, 40, 150]), epsilon=0.5, clients=1000)
    (line,) = VotesSection((kept,)).lines(unread, unread)
    assert line == "Votes of failing: invert 81 %, none 15 %, flip 4.0 %"


def test_intervals_of_votes_cover_and_healthy_arms_are_seldom_accused():
    generator = np.random.default_rng(2)
    covered = accused = 0
    for _ in range(400):
        counts = generator.multinomial(600, [0.3, 0.01, 0.69]) + generator.normal(0, 8, 3)
        _, low, high = share_of_clients(ballot(counts), "invert")
        covered += low <= 0.3 <= high
        healthy = generator.multinomial(600, [0.02, 0.05, 0.93]) + generator.normal(0, 8, 3)
        public = ballot(generator.multinomial(100, [0.02, 0.05, 0.93]), 0.0)
        seen = diagnose(ballot(healthy), epsilon=1.0, clients=600, public=public, public_clients=100)
        accused += seen[0].fault != "none"
    assert 0.92 <= covered / 400 <= 0.98
    assert accused / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


@pytest.mark.parametrize("share", [0.002, 0.01, 0.05, 0.3])
def test_counts_beyond_those_of_public_clients_are_seldom_chance(share):
    """Whatever the true share, also where public clients happen to have none: p-values are never too small."""
    generator = np.random.default_rng(4)
    for clients_here, public_clients, noise in ((220, 100, 3.0), (1000, 100, 6.0), (5000, 1000, 6.0)):
        false = 0
        for _ in range(400):
            public = generator.binomial(public_clients, share)
            background = Background(public, public_clients, clients_here, noise)
            seen = generator.binomial(clients_here, share) + generator.normal(0, noise)
            false += min(background.p_more(seen), background.p_fewer(seen)) <= 0.025
        assert false / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


def test_a_candidate_without_public_votes_has_a_bound_and_not_zero():
    """0 of 100 public clients may be 3 %, and 3 % of 1,000 clients are 30 (the rule of three)."""
    few, many = Background(0, 100, 1000, 1.0), Background(0, 10_000, 1000, 1.0)
    assert few.p_more(28.0) > 0.05 > few.p_more(32.0)
    assert many.p_more(28.0) < 1e-6
    assert few.fewest_detected(0.05) == pytest.approx(30, abs=2)
    assert Background(0, 1, 1000, 1.0).fewest_detected(1e-6) == np.inf


def test_the_exact_and_the_fast_count_agree():
    exact, fast = (Background(12, 300, n, 5.0) for n in (4000, 4001))
    for seen in (150.0, 200.0, 260.0, 300.0):
        assert fast.p_more(seen) == pytest.approx(exact.p_more(seen), rel=0.05)


def test_chance_is_learned_from_public_clients_however_they_vary():
    """A rare trait of few public clients: the normal distribution accuses too often, learned thresholds do not."""
    generator = np.random.default_rng(6)

    def skewed(count: int) -> np.ndarray:
        return 0.02 + 0.96 * (generator.random((count, 6)) < 0.02)

    def sent(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values - 0.5, (values - 0.5) ** 2, np.ones((len(values), 1))], axis=1)

    part = Cues(NAMES, ("everyone",), True)
    learned = normal = 0
    for _ in range(150):
        private, public = skewed(1000), sent(skewed(30))
        noisy = sent(private).sum(axis=0) + generator.normal(0, 1.0, 13)
        seen = part.read(Measured(noisy, 1.0, 1.0))["everyone"]
        usual = part.read(Measured(public.sum(axis=0), 0.0, 0.0))["everyone"]
        null = largest(part, public, [("everyone", None)], clients=1000, noise_std=1.0)
        for chance in (null, None):
            found = any(one.verdict == "detected" for one in compare_cues(seen, usual, epsilon=1.0, chance=chance))
            learned, normal = (learned + found, normal) if chance is null else (learned, normal + found)
    assert learned / 150 <= 0.05 + 3 * (0.05 * 0.95 / 150) ** 0.5
    assert normal / 150 > 0.5


def test_only_candidates_have_shares():
    with pytest.raises(InvalidInput, match="'blur' was not on the ballot"):
        share_of_clients(ballot([1, 2, 3]), "blur")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_between_the_raw_value_and_bonferroni(raw):
    corrected = holm(raw)
    values = np.asarray(raw)
    assert (corrected >= values - 1e-12).all()
    assert (corrected <= np.minimum(values * len(values), 1) + 1e-12).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(corrected[order]) >= -1e-12).all()
    assert corrected.min() == pytest.approx(min(values.min() * len(values), 1))
