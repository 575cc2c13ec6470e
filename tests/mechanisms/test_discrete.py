"""The exact samplers have exactly the law they claim, and what they draw has no last bits to leak through."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys
from blindsight.accounting import accountants, events
from blindsight.errors import InvalidInput
from blindsight.keys import Stream
from blindsight.mechanisms import discrete
from blindsight.mechanisms.discrete import discrete_gaussian, discrete_laplace
from blindsight.mechanisms.gaussian_mechanism import gaussian
from blindsight.mechanisms.laplace_mechanism import laplace
from blindsight.trees import BoundedSum

pytestmark = pytest.mark.timeout(120)  # a sampler that never accepts would draw for ever

Sampler = Callable[[int, int, Stream], np.ndarray]
SAMPLERS: dict[str, Sampler] = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}
EXPONENT: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "gaussian": lambda x, scale: -(x**2) / (2 * scale**2),
    "laplace": lambda x, scale: -np.abs(x) / scale,
}
ALIKE, DIFFERENT = 1e-3, 1e-9
both = pytest.mark.parametrize("name", list(SAMPLERS))


def stream(seed: int, purpose: str = "noise") -> Stream:
    return keys.reproducible(seed).derive(purpose).stream()


class Scripted(Stream):
    """A stream that says what it is told to, and no more."""

    def __init__(self, *answers: Sequence[int]) -> None:
        super().__init__(keys.reproducible(0))
        self.answers = [np.array(answer, dtype=np.uint64) for answer in answers]

    def words(self, count: int) -> np.ndarray:
        answer = self.answers.pop(0)
        assert len(answer) == count
        return answer


def law(name: str, scale: float, reach: int = 0) -> np.ndarray:
    """The exact probabilities of -reach..reach."""
    reach = reach or round(40 * scale)
    weights = np.exp(EXPONENT[name](np.arange(-reach, reach + 1), scale))
    return weights / weights.sum()


def likeness(draws: np.ndarray, probabilities: np.ndarray) -> float:
    """The p-value of a chi-square test; cells expected fewer than ten times are put together at either end."""
    reach = len(probabilities) // 2
    assert np.abs(draws).max() <= reach
    observed = np.bincount(draws + reach, minlength=len(probabilities))
    expected = probabilities * len(draws)
    dense = np.flatnonzero(expected >= 10)
    starts = [0, *range(dense[0] + 1, dense[-1]), dense[-1]]
    return float(stats.chisquare(np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)).pvalue)


# Thresholds and coins, without chance.


def thresholds() -> list[int]:
    high, low = discrete._thresholds()
    return [int(h) << 64 | int(w) for h, w in zip(high, low, strict=True)]


def test_the_thresholds_are_exp_minus_k_to_128_bits_and_end_where_nothing_is_left():
    with mp.workdps(120):
        assert thresholds() == [int(mp.floor(mp.exp(-k) * 2**128)) for k in range(1, 89)]
        assert mp.exp(-89) * 2**128 < 1
    assert [part.dtype for part in discrete._thresholds()] == [np.uint64, np.uint64]
    assert discrete._thresholds() is discrete._thresholds()  # computed once


def near(values: Sequence[int]) -> list[int]:
    return sorted({value + shift for value in values for shift in (-1, 0, 1) if 0 <= value + shift < 2**64})


HIGH, LOW = near([t >> 64 for t in thresholds()]), near([t & (2**64 - 1) for t in thresholds()])


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    words=st.lists(
        st.tuples(st.sampled_from(HIGH) | st.integers(0, 2**64 - 1), st.sampled_from(LOW) | st.integers(0, 2**64 - 1)),
        max_size=6,
    )
)
def test_geometric_counts_the_thresholds_above_one_number_of_128_bits(words):
    first, second = [w for w, _ in words], [w for _, w in words]
    drawn = discrete._geometric(len(words), Scripted(first, second))
    naive = [sum((high << 64 | low) < t for t in thresholds()) for high, low in words]
    assert drawn.tolist() == naive
    assert drawn.dtype == np.int64


def test_a_tie_is_decided_by_one_second_word_for_every_threshold():
    for k, threshold in enumerate(thresholds()):
        high, low = threshold >> 64, threshold & (2**64 - 1)
        below, at = (discrete._geometric(1, Scripted([high], [word]))[0] for word in (low - 1, low))
        assert (below, at) == (k + 1, k)
    # the first word 0 ties with all thresholds from exp(-45) on: they must all be compared with the same second word
    script = Scripted([0, 2**63, 0], [thresholds()[50], 0, thresholds()[50] - 1])
    assert discrete._geometric(3, script).tolist() == [50, 0, 51]
    assert script.answers == []


def test_without_a_tie_no_second_word_is_drawn():
    script = Scripted([2, 2**64 - 1], [7, 7])  # 2 is between the first words of exp(-43) and exp(-44)
    assert discrete._geometric(2, script).tolist() == [43, 0]
    assert len(script.answers) == 1


def test_the_series_stops_at_its_first_failure_and_says_whether_the_place_was_odd():
    low = 2**64 - 1  # its last bits are ones: the largest number below any power of two, and odd
    assert discrete._exp_minus(np.array([5]), 3, Scripted([low])).tolist() == [True]  # 7 < 5 fails at once
    assert discrete._exp_minus(np.array([5]), 3, Scripted([4], [low], [0])).tolist() == [False]
    assert discrete._exp_minus(np.array([5]), 3, Scripted([4], [4], [1])).tolist() == [False]  # a half: 1 is a failure
    assert discrete._exp_minus(np.array([5]), 3, Scripted([4], [4], [0], [4], [2])).tolist() == [True]
    assert discrete._exp_minus(np.array([5]), 3, Scripted([4], [4], [0], [4], [0], [4], [1])).tolist() == [False]
    mixed = discrete._exp_minus(np.array([5, 2, 0, 7]), 3, Scripted([4, 2, 0, 6], [4, 6], [1, 0], [0], [1]))
    assert mixed.tolist() == [False, True, True, True]


def test_certain_and_impossible_coins():
    everything = np.array([0, 0, 0])
    for bits in (1, 7, 49):
        assert discrete._exp_minus(everything, bits, stream(1)).all()
        assert not discrete._exp_minus(everything + (89 << bits), bits, stream(1)).any()
    assert discrete._exp_minus(np.zeros(0, dtype=np.int64), 3, stream(1)).shape == (0,)


@pytest.mark.parametrize("bits", [1, 3, 49])
def test_coins_fall_with_exactly_their_probability(bits):
    exponents = np.arange(0, 3.5, 0.125) if bits > 1 else np.arange(0, 3.5, 0.5)
    numerators = np.repeat((exponents * 2**bits).astype(np.int64), 20_000)
    heads = discrete._exp_minus(numerators, bits, stream(2)).reshape(len(exponents), -1).mean(axis=1)
    assert heads[0] == 1

    def p_value(probabilities: np.ndarray) -> float:
        z = (heads - probabilities)[1:] / np.sqrt(probabilities * (1 - probabilities) / 20_000)[1:]
        return float(stats.chi2.sf(np.sum(z**2), len(z)))

    assert p_value(np.exp(-exponents)) > ALIKE
    assert p_value(np.exp(-1.05 * exponents)) < DIFFERENT
    rest = exponents % 1
    assert p_value(np.exp(-np.floor(exponents)) * (1 - rest + rest**2 / 2)) < 1e-4  # a series that ends too soon


# The law of the draws.


@both
@pytest.mark.parametrize("bits", [1, 2, 3, 6])
def test_draws_have_the_exact_law_and_no_other_scale(name, bits):
    draws = SAMPLERS[name](bits, 200_000, stream(bits))
    assert draws.dtype == np.int64
    assert likeness(draws, law(name, 2**bits)) > ALIKE
    for factor in (2 / 3, 0.95, 1.05, 3 / 2):
        assert likeness(draws, law(name, factor * 2**bits, 40 * 2**bits)) < DIFFERENT


def test_the_discrete_gaussian_is_not_a_rounded_one():
    ours = discrete_gaussian(1, 400_000, stream(1))
    rounded = np.rint(np.random.default_rng(1).normal(0, 2, 400_000)).astype(np.int64)
    edges = (np.arange(-80, 82) - 0.5) / 2
    rounded_law = np.diff(stats.norm.cdf(edges))
    assert likeness(ours, law("gaussian", 2)) > ALIKE
    assert likeness(rounded, rounded_law) > ALIKE
    assert likeness(rounded, law("gaussian", 2)) < DIFFERENT
    assert likeness(ours, rounded_law) < DIFFERENT


@both
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_zero_is_drawn_once_not_twice(name, bits):
    count = 100_000
    zeros = int(np.count_nonzero(SAMPLERS[name](bits, count, stream(10 + bits)) == 0))
    [probability] = law(name, 2**bits)[40 * 2**bits : 40 * 2**bits + 1]
    assert stats.binomtest(zeros, count, probability).pvalue > ALIKE
    doubled = 2 * probability / (1 + probability)  # both signs of zero kept
    assert stats.binomtest(zeros, count, doubled).pvalue < DIFFERENT


@both
def test_both_signs_are_equally_likely(name):
    draws = SAMPLERS[name](2, 100_000, stream(4))
    for magnitude in range(1, 5):
        positive, negative = (int(np.count_nonzero(draws == sign * magnitude)) for sign in (1, -1))
        assert stats.binomtest(positive, positive + negative).pvalue > ALIKE


MOMENTS = {"gaussian": (1, 3, 105), "laplace": (2, 24, 40320)}  # E x^2, E x^4 and E x^8 at scale 1


@both
@pytest.mark.parametrize("bits", [12, 20, 24])
def test_moments_at_large_scales(name, bits):
    count = 200_000
    draws = SAMPLERS[name](bits, count, stream(bits)) / 2**bits
    second, fourth, eighth = MOMENTS[name]

    def deviations(x: np.ndarray) -> tuple[float, float, float]:
        return (
            float(np.mean(x)) / math.sqrt(second / count),
            float(np.mean(x**2) - second) / math.sqrt((fourth - second**2) / count),
            float(np.mean(x**4) - fourth) / math.sqrt((eighth - fourth**2) / count),
        )

    assert np.all(np.abs(deviations(draws)) < 4)
    for factor in (2 / 3, 3 / 2):
        assert abs(deviations(factor * draws)[1]) > 20
    other = {"gaussian": "laplace", "laplace": "gaussian"}[name]  # the right variance, the wrong kurtosis
    impostor = SAMPLERS[other](bits, count, stream(bits)) / 2**bits * math.sqrt(second / MOMENTS[other][0])
    assert abs(deviations(impostor)[1]) < 8
    assert abs(deviations(impostor)[2]) > 20


@both
@pytest.mark.parametrize("bits", [12, 24])
def test_the_last_bits_are_uniform(name, bits):
    """Also those that a floating-point number of 24 bits would have rounded away."""
    draws = SAMPLERS[name](bits, 100_000, stream(7))
    assert stats.chisquare(np.bincount(draws & 15, minlength=16)).pvalue > ALIKE
    coarse = 2 * np.rint(draws / 2).astype(np.int64)
    assert stats.chisquare(np.bincount(coarse & 15, minlength=16) + 1e-9).pvalue < DIFFERENT


def dependence(left: np.ndarray, right: np.ndarray) -> float:
    """The largest of several correlations, in standard deviations of what chance does."""
    views: list[Callable[[np.ndarray], np.ndarray]] = [lambda x: x, np.abs, np.sign, lambda x: x & 1]
    return max(abs(float(np.corrcoef(f(left), f(right))[0, 1])) * math.sqrt(len(left)) for f in views)


@both
def test_coordinates_calls_and_keys_are_independent(name):
    source = stream(8)
    one, two = (SAMPLERS[name](6, 60_000, source) for _ in range(2))
    other = SAMPLERS[name](6, 60_000, stream(8, "something else"))
    assert dependence(one[1:], one[:-1]) < 4.5
    assert dependence(one[2:], one[:-2]) < 4.5
    assert dependence(one, two) < 4.5
    assert dependence(one, other) < 4.5
    assert dependence(one, one + two) > 100


@both
def test_the_same_key_draws_the_same_and_another_does_not(name):
    draw = SAMPLERS[name]
    assert np.array_equal(draw(5, 1000, stream(9)), draw(5, 1000, stream(9)))
    assert not np.array_equal(draw(5, 1000, stream(9)), draw(5, 1000, stream(10)))


@both
@pytest.mark.parametrize("count", [0, 1, 2, 17, 2**15 - 1, 2**15, 2**15 + 1, 70_000])
def test_exactly_as_many_as_asked_for(name, count):
    drawn = SAMPLERS[name](3, count, stream(11))
    assert drawn.shape == (count,)
    assert drawn.dtype == np.int64


def test_batches_stay_in_the_cache():
    sizes: list[int] = []

    def propose(size: int) -> np.ndarray:
        sizes.append(size)
        return np.arange(size, dtype=np.int64)[: size // 2]

    assert len(discrete._collect(200_000, 0.5, propose)) == 200_000
    assert max(sizes) == 2**15
    assert sizes[-1] < 2**15


def test_what_fits_into_one_batch_takes_one_and_little_more_than_needed():
    sizes: list[int] = []

    def propose(size: int) -> np.ndarray:
        sizes.append(size)
        return np.arange(size, dtype=np.int64)[: size // 2]

    discrete._collect(1000, 0.5, propose)
    assert len(sizes) == 1
    assert 2000 <= sizes[0] < 2050


@both
def test_a_thousand_draws_take_one_batch_of_proposals(name):
    bounds: list[int] = []

    class Counted(Stream):
        def below(self, bound: int, count: int) -> np.ndarray:
            bounds.append(bound)
            return super().below(bound, count)

    SAMPLERS[name](3, 1000, Counted(keys.reproducible(1)))
    assert bounds.count(2**4) == 1  # the sign and remainder of each proposal


@both
def test_batches_do_not_matter_for_the_law(name, monkeypatch):
    """Many small batches, and many small calls: the first, the last and the only draw are like any other."""
    monkeypatch.setattr(discrete, "_BATCH", 24)
    source = stream(12)
    draws = SAMPLERS[name](1, 15_000, source)
    singles = np.concatenate([SAMPLERS[name](1, 2, source) for _ in range(2_000)])
    for sample in (draws, singles):
        assert likeness(sample, law(name, 2)) > ALIKE
        for factor in (2 / 3, 3 / 2):
            assert likeness(sample, law(name, factor * 2, 80)) < DIFFERENT


@both
@pytest.mark.parametrize("bits", [-1, 0, 25, 64])
def test_a_scale_out_of_range_is_refused(name, bits):
    with pytest.raises(InvalidInput, match=rf"2\^1 to 2\^24, got 2\^{bits}"):
        SAMPLERS[name](bits, 1, stream(1))


def test_the_largest_scale_does_not_overflow():
    assert discrete.LARGEST_BITS == 24
    largest = (89 << 24) - 1  # every threshold passed and the largest remainder
    assert (largest - (1 << 24)) ** 2 < 2**63


# No floating-point number in between.


def attack(released: np.ndarray) -> float:
    """How often an output is near zero and not a multiple of 2^-24: impossible from 1, if drawn in floating point."""
    return float(np.mean((np.abs(released) < 0.25) & (released * 2**24 % 1 != 0)))


def test_the_known_attack_tells_float_releases_apart_and_not_exact_ones():
    noise = np.random.default_rng(1).standard_normal((2, 100_000), dtype=np.float32)
    naive = [attack(np.float32(x) + noise[x]) for x in (0, 1)]
    assert naive[0] > 0.1
    assert naive[1] == 0

    exact = gaussian(1.0)
    released = [
        exact.release(
            BoundedSum(np.full(100_000, x * 2**24), l2_bound=1.0, n_expected=1.0, grid=exact.step(1.0)),
            key=keys.reproducible(x),
        ).value
        for x in (0, 1)
    ]
    assert [attack(y) for y in released] == [0, 0]
    near_zero = [y[np.abs(y) < 0.25] * 2**24 for y in released]
    assert min(len(y) for y in near_zero) > 10_000
    odd = [float(np.mean(y % 2)) for y in near_zero]  # every multiple of 2^-24 comes from either input
    assert odd == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("make", [gaussian, laplace])
@pytest.mark.parametrize("noise_multiplier", [0.1, 1.0, 7.3])
@pytest.mark.parametrize("n_expected", [1.0, 3.0, 1000.0])
def test_every_exact_release_is_a_whole_number_of_steps(make, noise_multiplier, n_expected):
    mechanism = make(noise_multiplier)
    step = mechanism.step(0.5)
    value = np.arange(-2000, 2000)
    total = BoundedSum(value, l2_bound=0.5, l1_bound=0.5, n_expected=n_expected, grid=step)
    released: Any = mechanism.release(total, key=keys.reproducible(3)).value
    steps = released.astype(np.float64) * n_expected / step
    near_zero = np.abs(steps) < 2**20
    assert np.count_nonzero(near_zero) > 50
    assert np.all(np.abs(steps - np.rint(steps))[near_zero] <= 2.0**-4)  # float32 rounding of what is below 2^20
    uniform = np.random.default_rng(0).uniform(-(2**20), 2**20, 1000)
    assert np.mean(np.abs(uniform - np.rint(uniform)) <= 2.0**-4) < 0.3  # which hardly any other numbers pass


# How the discrete Gaussian is accounted.


def divergence(scale: int) -> tuple[Any, Any]:
    """KL(discrete Gaussian || rounded Gaussian), and the bound claimed for it, in 60 digits."""
    s = mp.mpf(scale)
    reach = 25 * scale
    weights = [mp.exp(-(mp.mpf(x) ** 2) / (2 * s**2)) for x in range(reach + 1)]
    total = 2 * mp.fsum(weights) - 1
    found = mp.mpf(0)
    for x, weight in enumerate(weights):
        upper, lower = ((x + shift) / s / mp.sqrt(2) for shift in (mp.mpf(0.5), mp.mpf(-0.5)))
        rounded = (mp.erfc(lower) - mp.erfc(upper)) / 2
        found += (1 if x == 0 else 2) * weight / total * mp.log(weight / total / rounded)
    return found, 1 / (320 * s**4)


@pytest.mark.parametrize("scale", [2, 4, 8, 16])
def test_the_divergence_from_a_rounded_gaussian_is_below_its_bound(scale):
    with mp.workdps(60):
        found, bound = divergence(scale)
        assert found <= bound + mp.exp(-18 * scale**2)
        assert found > bound / 2  # and the bound is no exaggeration


def test_what_the_grid_costs_is_counted_and_is_next_to_nothing():
    """1.3 million coordinates, 2,000 rounds."""
    ideal, real = (
        accountants.epsilon(
            events.Repeated(events.Poisson(5000 / 342_477, events.Gaussian(1.0, kl_slack=slack)), 2000), 2.92e-6
        )
        for slack in (0.0, 1_300_000 / (320 * 2.0**96))
    )
    assert (ideal.accountant, real.accountant) == ("PLD", "PLD")
    assert ideal.epsilon <= real.epsilon <= ideal.epsilon + 1e-3
    assert ideal.epsilon == pytest.approx(4.22, abs=0.01)
