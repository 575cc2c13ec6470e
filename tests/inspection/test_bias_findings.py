"""Laws of the tests against public data: they hold their level, see what is there, and count both draws."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from blindsight.inspection.bias.findings import compare_shares, compare_styles, conclude, style_p_value
from blindsight.inspection.bias.measures import Division, Limits, ReadShares, Shares, Styles
from blindsight.inspection.finding import CAUTION
from blindsight.inspection.measuring import Measured
from blindsight.inspection.unknowns.section import Rate

CLASSES = Division("label", ("common", "rare"), "class")


def drawn_p_values(clients: int, beyond: int, private: int, noise: float, runs: int = 4000) -> np.ndarray:
    """P-values of styles where nothing differs, with everything drawn: limits, clients and noise."""
    random = np.random.default_rng(clients)
    past = random.beta(beyond, clients + 1 - beyond, runs)  # of an order statistic
    seen = random.binomial(private, past) + noise * random.normal(size=runs)
    return np.array([style_p_value(one, beyond, clients, private, noise) for one in seen])


@pytest.mark.parametrize(("clients", "beyond"), [(20, 1), (100, 5), (600, 30)])
def test_a_habit_that_is_none_is_found_as_seldom_as_promised(clients, beyond):
    p_values = drawn_p_values(clients, beyond, private=1000, noise=10.0)
    for level in (0.05, 0.01):
        most = stats.binom.isf(1e-4, len(p_values), level) / len(p_values)
        assert (p_values <= level).mean() <= most
    assert (p_values <= 0.05).mean() > 0.02  # and is not simply never found


def test_taking_the_limit_for_known_would_call_luck_a_finding():
    """Twenty public clients say little about where the last twentieth begins: a normal test would not know."""
    p_values = drawn_p_values(20, 1, private=1000, noise=10.0)
    random = np.random.default_rng(1)
    seen = random.binomial(1000, random.beta(1, 20, len(p_values)))
    naive = stats.norm.sf((seen - 50) / np.sqrt(1000 * 0.05 * 0.95 + 100))
    assert (naive <= 0.01).mean() > 0.2
    assert (p_values <= 0.01).mean() < 0.02


def of(mean: float, spread: float, counted: float, noise: float = 0.0) -> ReadShares:
    return ReadShares(np.array([1 - mean, mean]), np.array([spread, spread]), counted, noise)


def p_of(serving: ReadShares, training: ReadShares) -> float:
    return compare_shares(serving, training, CLASSES, ("rare",), 1.0)[0].p_value


def test_a_class_that_public_data_lack_by_chance_is_no_finding():
    """One client in a hundred has it: a hundred public clients lack it a third of the time, and then have no spread."""
    assert p_of(of(0.01, 0.1, 4000, 5.0), of(0.0, 0.0, 100)) > 0.1
    assert p_of(of(0.01, 0.1, 4000, 5.0), of(0.05, 0.218, 100)) > 0.05  # five of them happen to have it


def test_a_share_that_differs_is_found_and_its_draws_count():
    assert p_of(of(0.1, 0.1, 2000, 5.0), of(0.0, 0.0, 400)) < 1e-6
    quiet = p_of(of(0.11, 0.1, 2000, 5.0), of(0.10, 0.1, 10_000))
    assert p_of(of(0.11, 0.1, 2000, 5.0), of(0.10, 0.1, 50)) > quiet  # fewer public clients
    assert p_of(of(0.11, 0.1, 2000, 50.0), of(0.10, 0.1, 10_000)) > quiet  # more noise


def test_shares_hold_their_level_where_nothing_differs():
    random, found = np.random.default_rng(0), 0
    for _ in range(1500):
        private, public = (random.beta(1, 9, count) for count in (500, 60))
        noise = 10.0
        mean = (private.sum() + noise * random.normal()) / 500
        serving = of(mean, float(private.std()), 500, noise)
        found += p_of(serving, of(public.mean(), float(public.std(ddof=1)), 60)) <= 0.05
    assert 0.02 < found / 1500 <= stats.binom.isf(1e-3, 1500, 0.05) / 1500


def test_too_few_clients_beside_the_noise_prove_nothing():
    (one,) = compare_shares(of(0.9, 0.1, 30, 10.0), of(0.0, 0.0, 400), CLASSES, ("rare",), 1.0)
    assert (one.p_value, one.is_measurable) == (1.0, False)
    findings, compared = conclude([one])
    assert (findings[0].verdict, findings[0].low, findings[0].high) == ("not detected", -1.0, 1.0)
    assert "Too few clients" in findings[0].statement
    assert compared[0].serving == (0.0, 0.0, 1.0)


def styles(above: float, counted: float = 1000, noise: float = 5.0) -> list:
    part = Styles("cues", (Limits("slant", 0.2, 0.8, 20, 400),))
    return compare_styles(Measured(np.array([50.0, above, counted / 2]), noise, 1.0), part, "style")


def test_everything_is_corrected_together_and_the_clearest_comes_first():
    tested = styles(200) + compare_shares(of(0.1, 0.1, 2000, 5.0), of(0.0, 0.0, 400), CLASSES, CLASSES.names, 1.0)
    findings, compared = conclude(tested)
    assert [one.verdict for one in findings] == ["detected", "detected", "detected", "not detected"]
    assert {one.verdict for one in compared} == {"more", "less", "alike"}
    raw = sorted(one.p_value for one in tested)
    assert findings[0].p_value == pytest.approx(CAUTION * 4 * raw[0], abs=0)
    text = " ".join(one.statement for one in findings)
    assert "Clients with more slant than nearly all training clients: 20 % in serving, 5.0 % in training" in text
    assert "Class rare is more frequent in serving than in training: 10 % in serving, 0 % in training" in text


@pytest.mark.parametrize(("serving", "told"), [(-0.003, -0.05), (0.011, -0.039), (-0.2, -0.05), (1.2, 0.95)])
def test_a_difference_is_that_of_the_shares_as_they_are_told(serving, told):
    """Noise can carry a share below zero: the sentence says 0 %, and the chart must not say more."""
    one = dataclasses.replace(styles(50)[0], effect=serving - 0.05, training=Rate(0.05, 0.03, 0.07), ends=None)
    (found,), _ = conclude([dataclasses.replace(one, serving=Rate(min(max(serving, 0.0), 1.0), 0.0, 1.0))])
    assert found.effect == pytest.approx(told)
    assert found.low <= found.effect <= found.high


def test_the_smallest_difference_is_what_would_just_be_seen():
    (_, quiet) = (one for one in styles(50))
    finding = next(one for one in conclude([quiet])[0])
    assert finding.smallest is not None
    random, seen = np.random.default_rng(0), 0
    for _ in range(300):
        past = random.beta(20, 381)
        counted = random.binomial(1000, min(past + finding.smallest, 1)) + 5 * random.normal()
        seen += style_p_value(counted, 20, 400, 1000, 5.0) <= 0.05
    assert 0.8 < seen / 300 < 0.99


def test_tied_means_leave_fewer_public_clients_past_a_limit_and_the_report_says_so():
    """Most clients have the same mean, as where a value is never missing: nobody is past it, here or there."""
    tied = Limits.of("missing", np.zeros(400))
    assert tied.past == (0, 0)
    assert tied.ranks == (1, 1)
    part = Styles("cues", (tied,))
    random, covered = np.random.default_rng(0), 0
    for _ in range(200):
        sums = np.array([0.0, 0.0, 500.0]) + 3.0 * random.normal(size=3)
        one, other = conclude(compare_styles(Measured(sums, 3.0, 1.0), part, "style"))[0]
        covered += (one.low <= 0 <= one.high) + (other.low <= 0 <= other.high)
        assert "detected" not in (one.verdict, other.verdict)
    assert covered / 400 >= 0.93
    untied = Limits.of("slant", np.arange(400.0))
    assert untied.ranks == (untied.beyond, untied.beyond) == (20, 20)


def test_intervals_of_shares_cover_the_truth_as_often_as_they_say():
    """Tests use a cautious variance; intervals must not, or they would be too wide."""
    random, covered, part = np.random.default_rng(0), 0, Shares((CLASSES,))
    for _ in range(1000):
        private, public = (random.beta(1, 9, count) for count in (300, 60))
        both = np.stack([1 - private, private], axis=1)
        sums = np.concatenate([both.sum(axis=0), 0.5 * (both**2).sum(axis=0), [0.5 * 300]])
        (serving,) = part.read(Measured(sums + 3.0 * random.normal(size=5), 3.0, 1.0))
        training = of(float(public.mean()), float(public.std(ddof=1)), 60)
        (one,) = compare_shares(serving, training, CLASSES, ("rare",), 1.0)
        covered += abs(one.effect) <= 1.96 * one.error
    assert 0.93 <= covered / 1000 <= 0.97


@pytest.mark.parametrize(
    ("clients", "beyond", "private", "noise"),
    [(1000, 50, 100, 0.5), (1000, 1, 220, 2.0), (100, 5, 1000, 2.0), (50, 2, 100, 2.0)],
)
def test_intervals_of_styles_cover_the_truth_as_often_as_they_say(clients, beyond, private, noise):
    """A share near 0 varies unevenly: intervals that are as long on both sides cover 91 to 99 % here."""
    random, covered, runs = np.random.default_rng(1), 0, 1500
    part = Styles("cues", (Limits("slant", 0.2, 0.8, beyond, clients),))
    for past in random.beta(beyond, clients + 1 - beyond, runs):
        sums = np.array([0.0, random.binomial(private, past), private / 2]) + noise * random.normal(size=3)
        one = compare_styles(Measured(sums, noise, 1.0), part, "style")[1]
        assert one.ends is not None
        covered += one.ends[0] <= 0 <= one.ends[1]
    assert 0.93 <= covered / runs <= 0.97


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03])
def test_intervals_of_tied_styles_cover_the_truth(share):
    """A limit that many clients reach: nobody, or few, lie past it on either side."""
    random, covered, private, noise = np.random.default_rng(2), 0, 1000, 3.0
    counted = random.binomial(100, share, 1500)
    tied = counted[counted < 4]
    for past in tied.tolist():
        part = Styles("cues", (Limits("negative", 0.0, 1.0, 5, 100, (0, past)),))
        sums = np.array([0.0, random.binomial(private, share), private / 2]) + noise * random.normal(size=3)
        one = compare_styles(Measured(sums, noise, 1.0), part, "style")[1]
        assert one.ends is not None
        covered += one.ends[0] <= 0 <= one.ends[1]
    assert covered / len(tied) >= 0.93
