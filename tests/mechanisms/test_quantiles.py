"""A quantile in one release: every client sends the same length, and the answer is the right cell."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blindsight import keys
from blindsight.accounting import events
from blindsight.errors import InvalidInput
from blindsight.mechanisms.gaussian_mechanism import gaussian
from blindsight.mechanisms.quantiles import Quantile, QuantileEstimate, quantile

laws = settings(derandomize=True, deadline=None, max_examples=100)
both = pytest.mark.parametrize("sampler", ["exact", "float"])
QUIET = 2**-12


def middle(levels: int = 3, probability: float = 0.5, z: float = 1.0) -> Quantile:
    return quantile(probability, low=0.0, high=1.0, mechanism=gaussian(z), levels=levels)


def cells_of(some: Quantile, values: np.ndarray) -> np.ndarray:
    """The histograms without clipping, grid or noise."""
    return some.parts(values).sum(axis=0, dtype=np.float64)


def naive_quantile(values: np.ndarray, probability: float) -> float:
    """The smallest value that at least that share of all values does not exceed."""
    place = math.ceil(Fraction(probability) * len(values))
    return float(np.sort(values)[place - 1])


# What clients send.


@laws
@given(
    values=st.lists(st.floats(allow_nan=False) | st.floats(-3, 5), min_size=1, max_size=8), levels=st.integers(1, 10)
)
def test_every_part_has_the_same_length_whatever_the_value(values, levels):
    some = quantile(0.5, low=-2.0, high=4.0, mechanism=gaussian(1.0), levels=levels)
    parts = some.parts(np.array(values))
    assert parts.shape == (len(values), 2 ** (levels + 1) - 2)
    assert parts.dtype == np.float32
    assert set(np.unique(parts)) <= {0, 1}
    assert np.all(parts.sum(axis=1) == levels)
    assert some.l2_bound == math.sqrt(levels)


@laws
@given(value=st.floats(-3, 5), levels=st.integers(1, 6))
def test_a_value_is_marked_once_in_each_histogram(value, levels):
    some = quantile(0.5, low=-2.0, high=4.0, mechanism=gaussian(1.0), levels=levels)
    [part] = some.parts(np.array([value]))
    position = (np.float64(value) + 2) / 6
    start = 0
    for level in range(1, levels + 1):
        cells = 2**level
        own = min(max(math.floor(position * cells), 0), cells - 1)
        assert part[start : start + cells].tolist() == [float(i == own) for i in range(cells)]
        start += cells
    assert start == len(part)


def test_values_outside_count_at_the_ends():
    some = middle(2)
    far = some.parts(np.array([-math.inf, -1, 0, 1, 2, math.inf]))
    assert np.array_equal(far[:3], np.tile([1, 0, 1, 0, 0, 0], (3, 1)))
    assert np.array_equal(far[3:], np.tile([0, 1, 0, 0, 0, 1], (3, 1)))


def test_a_value_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidInput, match="NaN has no rank"):
        middle().parts(np.array([0.5, math.nan]))


@both
@settings(laws, max_examples=25)
@given(value=st.floats(-1, 2), other=st.floats(-1, 2))
def test_one_client_changes_the_sum_by_its_length_at_most(sampler, value, other):
    some = quantile(0.5, low=0.0, high=1.0, mechanism=gaussian(1.0, sampler=sampler), levels=3)
    parts = some.parts(np.array([value, other]))
    with_it, without = (some.count(rows, n_expected=2.0) for rows in (parts, parts * np.array([[0], [1]], np.float32)))
    moved = (np.asarray(with_it.value, np.float64) - np.asarray(without.value, np.float64)) * (with_it.grid or 1)
    assert with_it.l2_bound == math.sqrt(3)
    assert 0.999 * math.sqrt(3) < float(np.linalg.norm(moved)) <= math.sqrt(3) * (1 + (1e-12 if with_it.grid else 1e-6))


def test_a_part_that_is_too_long_is_cut():
    some = middle()
    total = some.count(1000 * some.parts(np.array([0.3])), n_expected=1.0)
    length = float(np.linalg.norm(np.asarray(total.value) * (total.grid or math.nan)))
    assert 0.999 * math.sqrt(3) < length <= math.sqrt(3)


# Without noise: naive twins.


@laws
@given(values=st.lists(st.floats(-0.5, 1.5), max_size=40), levels=st.integers(1, 7))
def test_prefixes_are_the_cumulative_histogram(values, levels):
    some = middle(levels)
    below, terms = some._prefixes(cells_of(some, np.array(values)))
    finest = np.array([min(max(math.floor(v * 2**levels), 0), 2**levels - 1) for v in values])
    assert below.tolist() == [np.count_nonzero(finest < edge) for edge in range(2**levels + 1)]
    assert terms.tolist() == [*(edge.bit_count() for edge in range(2**levels)), 2]


grids = st.lists(st.integers(-8, 40), min_size=1, max_size=30).map(lambda grid: np.array(grid) / 32)


@laws
@given(values=grids, eighths=st.integers(1, 7), levels=st.integers(1, 6))
def test_without_noise_it_is_the_cell_of_the_quantile(values, eighths, levels):
    some = middle(levels, eighths / 8)
    estimate = some.estimate(cells_of(some, values), 0.0)
    truth = min(max(naive_quantile(values, eighths / 8), 0.0), 1.0)
    left = min(math.floor(truth * 2**levels), 2**levels - 1) / 2**levels
    assert estimate == QuantileEstimate(left + 0.5 / 2**levels, left, left + 1 / 2**levels)


@laws
@given(seed=st.integers(0, 10**6), tenths=st.integers(1, 9), levels=st.integers(1, 6))
def test_the_interval_is_that_of_the_noise_at_each_edge(seed, tenths, levels):
    rng = np.random.default_rng(seed)
    some = quantile(tenths / 10, low=-1.0, high=3.0, mechanism=gaussian(1.0), levels=levels)
    cells = cells_of(some, rng.uniform(-1, 3, 50)) + 2.0 * rng.normal(size=2 ** (levels + 1) - 2)
    estimate = some.estimate(cells, 2.0)

    edges = 2**levels
    everyone = cells[0] + cells[1]
    histograms = [cells[2**level - 2 : 2 ** (level + 1) - 2] for level in range(levels + 1)]
    negative = 0
    bounds: list[tuple[float, float]] = []
    for edge in range(edges + 1):
        bits = [level for level in range(1, levels + 1) if edge >> (levels - level) & 1]
        below = sum(histograms[level][(edge >> (levels - level)) - 1] for level in bits)
        width = 1.96 * 2.0 * math.sqrt(len(bits) + 2 * (tenths / 10) ** 2)
        ends = {0: -math.inf, edges: math.inf}  # which are known without counting
        excess = ends[edge] if edge in ends else float(below - tenths / 10 * everyone)
        negative += excess < 0
        bounds.append((excess - width, excess + width))
    lowest = min(cell for cell in range(edges) if bounds[cell + 1][1] >= 0)
    highest = max(cell for cell in range(edges) if bounds[cell][0] < 0)
    scale = 4 / edges
    assert estimate.low == pytest.approx(-1 + scale * lowest)
    assert estimate.high == pytest.approx(-1 + scale * (highest + 1))
    assert estimate.value == pytest.approx(-1 + scale * (negative - 0.5))
    assert estimate.low < estimate.value < estimate.high


# With noise.


@both
@settings(laws, max_examples=40)
@given(
    values=st.lists(st.floats(-2, 6), min_size=40, max_size=40).map(np.array),
    probability=st.sampled_from([0.04, 0.1, 0.26, 0.5, 0.51, 0.77, 0.9, 0.99]),
)
def test_as_the_noise_goes_it_becomes_the_quantile_within_a_cell(sampler, values, probability):
    some = quantile(probability, low=-1.0, high=5.0, mechanism=gaussian(QUIET, sampler=sampler), levels=5)
    release = some.release(some.count(some.parts(values), n_expected=40.0), key=keys.reproducible(1))
    cell = 6 / 32
    lower, higher = (
        float(np.clip(np.quantile(values, probability, method=m), -1, 5)) for m in ("inverted_cdf", "higher")
    )
    higher = max(lower, higher)
    assert lower - cell <= release.value.value <= higher + cell
    assume(abs(probability * 40 - round(probability * 40)) > 0.01)  # else the noise decides between two of them
    assert abs(release.value.value - lower) <= cell / 2 * (1 + 1e-9)
    assert release.value.high - release.value.low == pytest.approx(cell)


@both
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_of_many_clients_it_is_numpys_quantile(sampler, probability):
    values = np.random.default_rng(1).beta(2, 5, 999)
    some = quantile(probability, low=0.0, high=1.0, mechanism=gaussian(0.1, sampler=sampler))
    release = some.release(some.count(some.parts(values), n_expected=999.0), key=keys.reproducible(2))
    assert release.value.value == pytest.approx(np.quantile(values, probability), abs=1 / 256)
    assert all(type(x) is float for x in (release.value.value, release.value.low, release.value.high))


CROWDS = {
    "uniform": np.random.default_rng(2).uniform(size=997),
    "skewed": np.random.default_rng(3).beta(2, 8, 997),
    "two camps": np.where(np.arange(997) < 480, 0.11, 0.87),
    "all alike": np.full(997, 0.5),
}
WIDEST = {"uniform": 0.12, "skewed": 0.04, "two camps": 0.8, "all alike": 0.005}


@pytest.mark.parametrize("crowd", list(CROWDS))
@pytest.mark.parametrize("probability", [0.2, 0.5])
def test_the_interval_covers_the_quantile_without_being_absurdly_wide(crowd, probability):
    """An interval from first crossing to first crossing, by right edges, covers 88 % of "skewed" and no "all alike"."""
    values = CROWDS[crowd]
    some = quantile(probability, low=0.0, high=1.0, mechanism=gaussian(3.0))
    total = some.count(some.parts(values), n_expected=997.0)
    truth = naive_quantile(values, probability)
    releases = [some.release(total, key=keys.reproducible(seed)) for seed in range(200)]
    estimates = [release.value for release in releases]
    covered = np.mean([e.low <= truth <= e.high for e in estimates])
    assert covered >= 0.95
    assert 1 / 256 <= np.mean([e.high - e.low for e in estimates]) <= WIDEST[crowd]
    assert releases[0].noise_std == pytest.approx(3 * math.sqrt(8))
    assert np.mean([abs(e.value - truth) for e in estimates]) <= WIDEST[crowd] / 2


def test_an_interval_for_less_noise_than_there_is_would_be_noticed():
    some = quantile(0.5, low=0.0, high=1.0, mechanism=gaussian(3.0))
    values = CROWDS["uniform"]
    total = some.count(some.parts(values), n_expected=997.0)
    truth = naive_quantile(values, 0.5)
    cells = [
        np.asarray(some.mechanism.release(total, key=keys.reproducible(s)).value, np.float64) * 997 for s in range(200)
    ]
    for shrink, fewest, most in ((1, 0.95, 1.0), (0.1, 0.0, 0.9)):
        intervals = [some.estimate(c, shrink * 3 * math.sqrt(8)) for c in cells]
        assert fewest <= np.mean([e.low <= truth <= e.high for e in intervals]) <= most


@both
def test_nobody_came(sampler):
    some = quantile(0.5, low=0.0, high=1.0, mechanism=gaussian(1.0, sampler=sampler), levels=4)
    release = some.release(some.count(some.parts(np.zeros(0)), n_expected=10.0), key=keys.reproducible(1))
    assert 0 <= release.value.low < release.value.value < release.value.high <= 1
    assert release.value.high - release.value.low > 0.9  # it says that it knows nothing


# Event and refusals.


@both
def test_the_event_is_one_release_of_all_cells(sampler):
    some = quantile(0.5, low=0.0, high=1.0, mechanism=gaussian(1.5, sampler=sampler), levels=4)
    total = some.count(some.parts(np.array([0.1])), n_expected=1.0)
    assert some.event(total) == gaussian(1.5, sampler=sampler).planned_event
    assert some.release(total, key=keys.reproducible(1)).event == some.event(total)
    assert isinstance(some.event(total), events.Gaussian)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_a_probability_out_of_range_is_refused(probability):
    with pytest.raises(InvalidInput, match="probability must lie between 0 and 1"):
        middle(probability=probability)


@pytest.mark.parametrize(
    "ends", [(1.0, 1.0), (2.0, 1.0), (-math.inf, 0.0), (0.0, math.inf), (math.nan, 1.0), (-1e308, 1e308)]
)
def test_a_range_without_a_finite_length_is_refused(ends):
    with pytest.raises(InvalidInput, match="range must be finite and not empty"):
        quantile(0.5, low=ends[0], high=ends[1], mechanism=gaussian(1.0))


def test_settings_go_by_name_and_an_estimate_cannot_be_changed():
    some = middle(1)
    with pytest.raises(TypeError, match="positional"):
        quantile(0.5, 0.0, 1.0, gaussian(1.0))  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="positional"):
        some.count(some.parts(np.array([0.5])), 1.0)  # pyright: ignore[reportCallIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        QuantileEstimate(0.5, 0.0, 1.0).value = 0.7  # pyright: ignore[reportAttributeAccessIssue]


def test_levels_are_limited():
    for levels in (0, -1, 21):
        with pytest.raises(InvalidInput, match="levels must lie between 1 and 20"):
            middle(levels)
    assert [middle(levels).levels for levels in (1, 20)] == [1, 20]
    assert quantile(0.5, low=0.0, high=1.0, mechanism=gaussian(1.0)).levels == 8
    assert Quantile(0.5, 0.0, 1.0, gaussian(1.0)).levels == 8


@pytest.mark.parametrize("levels", [2, 4])
def test_a_sum_over_other_cells_is_refused(levels):
    some, other = middle(3), middle(levels)
    total = other.count(other.parts(np.array([0.5])), n_expected=1.0)
    for attempt in (some.event, lambda total: some.release(total, key=keys.reproducible(1))):
        with pytest.raises(InvalidInput, match="not a sum over the 14 cells of 3 levels"):
            attempt(total)
