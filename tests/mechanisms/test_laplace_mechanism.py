"""The Laplace mechanism: pure epsilon, for contributions bounded in L1 and for no others."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys, trees
from blindsight.accounting import accountants, events
from blindsight.errors import InvalidInput, RelationMismatch, UnboundedContribution
from blindsight.keys import Stream
from blindsight.mechanisms import noise as additive
from blindsight.mechanisms.laplace_mechanism import LaplaceMechanism, laplace
from blindsight.trees import BoundedSum

ALIKE, DIFFERENT = 1e-3, 1e-9
both = pytest.mark.parametrize("sampler", ["exact", "float"])


def zeros(mechanism: LaplaceMechanism, tree: Any, *, bound: float = 1.0, n_expected: float = 1.0) -> BoundedSum:
    """The sum of nothing in the given shapes: released, it is noise alone."""
    exact = mechanism.sampler == "exact"
    value = jax.tree.map(
        lambda shape: np.zeros(shape, np.int64 if exact else np.float32), tree, is_leaf=lambda x: isinstance(x, tuple)
    )
    grid = mechanism.step(bound) if exact else None
    return BoundedSum(value, l2_bound=bound, l1_bound=bound, n_expected=n_expected, grid=grid)


def likeness(draws: np.ndarray, scale: float) -> float:
    """The p-value of a Kolmogorov-Smirnov test."""
    return float(stats.kstest(draws, stats.laplace(0, scale).cdf, method="asymp").pvalue)


def spread(draws: np.ndarray, scale: float) -> float:
    """The p-value of the sum of magnitudes, twice which is chi-square distributed."""
    below = float(stats.chi2.cdf(2 * np.sum(np.abs(draws)) / scale, 2 * len(draws)))
    return 2 * min(below, 1 - below)


@both
@pytest.mark.parametrize(("z", "bound", "n_expected"), [(1.0, 1.0, 1.0), (0.3, 2.0, 7.0), (20.0, 1e-3, 100.0)])
def test_the_noise_has_the_scale_it_should_and_no_other(sampler, z, bound, n_expected):
    mechanism = laplace(z, sampler=sampler)
    total = zeros(mechanism, {"a": (100, 50), "b": (5000,)}, bound=bound, n_expected=n_expected)
    release = mechanism.release(total, key=keys.reproducible(1))
    scale = z * bound / n_expected
    assert release.noise_std == pytest.approx(math.sqrt(2) * scale, rel=1e-12)
    for leaf in (release.value["a"].ravel(), release.value["b"]):
        draws = leaf.astype(np.float64)
        for p_value in (likeness, spread):
            assert p_value(draws, scale) > ALIKE
            assert p_value(draws, scale * 2 / 3) < DIFFERENT
            assert p_value(draws, scale * 3 / 2) < DIFFERENT
        assert float(np.std(draws)) == pytest.approx(release.noise_std, rel=0.05)
        assert stats.binomtest(int(np.count_nonzero(draws > 0)), len(draws)).pvalue > ALIKE


@both
def test_each_coordinate_has_its_own_noise_at_each_release(sampler):
    mechanism = laplace(2.0, sampler=sampler)
    total = zeros(mechanism, {"w": (2, 2), "b": (), "none": (0, 3)}, n_expected=4.0)
    releases = [mechanism.release(total, key=keys.reproducible(i)) for i in range(400)]
    value = releases[0].value
    assert jax.tree.map(np.shape, value) == {"w": (2, 2), "b": (), "none": (0, 3)}
    assert {leaf.dtype for leaf in jax.tree.leaves(value)} == {np.dtype(np.float32)}
    flat = np.array([[*np.ravel(r.value["w"]), r.value["b"]] for r in releases], np.float64)
    for column in flat.T:
        assert spread(column, 0.5) > ALIKE
        assert spread(column, 0.5 * 2 / 3) < DIFFERENT
        assert spread(column, 0.5 * 3 / 2) < DIFFERENT
    correlations = np.asarray(np.corrcoef(flat.T))[np.triu_indices(5, 1)] * math.sqrt(400)
    assert np.all(np.abs(correlations) < 4)
    assert len(np.unique(flat)) == flat.size


@both
def test_with_hardly_any_noise_it_is_the_sum_over_what_was_expected(sampler):
    mechanism = laplace(2**-12, sampler=sampler)
    updates = np.random.default_rng(0).normal(0, 0.1, (30, 4)).astype(np.float32)  # thirty came, forty were expected
    grid = mechanism.step(5.0) if sampler == "exact" else None
    total = trees.sum_clients(updates, 5.0, n_expected=40.0, order=1, grid=grid)
    release = mechanism.release(total, key=keys.reproducible(2))
    assert release.value == pytest.approx(updates.sum(axis=0) / 40, abs=15 * release.noise_std)
    assert release.noise_std < 1e-4


def test_float_noise_has_the_tail_of_64_bits_and_a_sign_of_its_own(monkeypatch):
    words = np.array([0, 0, 2**64 - 1, 2**63, 2**63], dtype=np.uint64)
    signs = np.array([1, 2, 1, 2**64 - 1, 2**64 - 2], dtype=np.uint64)  # only the last bit counts
    monkeypatch.setattr(Stream, "words", lambda *_: np.concatenate([words, signs]))
    mechanism = laplace(3.0, sampler="float")
    value = mechanism.release(zeros(mechanism, (5,)), key=keys.reproducible(1)).value
    tail, half = 3 * 65 * math.log(2), 3 * math.log(2)
    assert value == pytest.approx([tail, -tail, 0, half, -half], rel=1e-6)


# Pure epsilon.


def log_weights(outputs: np.ndarray, at: int, bits: int) -> np.ndarray:
    """log of P(output) from input `at`, up to the constant that all inputs share."""
    return -np.abs(outputs - at) / 2**bits


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("z", [0.5, 1.0, 1.7, 3.0])
def test_no_output_becomes_more_likely_than_claimed(bits, z):
    outputs = np.arange(-50 * 2**bits, 50 * 2**bits)
    longest = math.floor(2**bits / z)  # of one client, in steps
    for distance in range(1, longest + 1):
        ratio = log_weights(outputs, 0, bits) - log_weights(outputs, distance, bits)
        assert np.max(np.abs(ratio)) == pytest.approx(distance / 2**bits)
        assert np.max(np.abs(ratio)) <= 1 / z + 1e-12
    too_far = log_weights(outputs, 0, bits) - log_weights(outputs, longest + 1, bits)
    assert np.max(np.abs(too_far)) > 1 / z


@pytest.mark.parametrize("z", [1.0, 2.0])
def test_drawn_on_a_coarse_grid_the_ratio_of_frequencies_is_what_the_event_claims(z, monkeypatch):
    """With a scale of 4 steps, all outputs can be counted: from a sum, and from its neighbour one bound away."""
    monkeypatch.setattr(additive, "LARGEST_BITS", 2)
    mechanism = laplace(z)
    assert mechanism.bits == 2
    step, distance = mechanism.step(1.0), round(4 / z)
    assert distance * step == pytest.approx(1.0)  # one client's bound
    outputs = np.arange(-8, 9)
    counts: list[np.ndarray] = []
    for seed, at in enumerate((0, distance)):
        total = BoundedSum(np.full(200_000, at), l2_bound=1.0, l1_bound=1.0, n_expected=1.0, grid=step)
        steps = mechanism.release(total, key=keys.reproducible(seed)).value / step
        assert np.array_equal(steps, np.rint(steps))
        counts.append(np.array([np.count_nonzero(steps == output) for output in outputs]))
    ratio = np.log(counts[0] / counts[1])
    error = np.sqrt(1 / counts[0] + 1 / counts[1])
    claimed = log_weights(outputs, 0, 2) - log_weights(outputs, distance, 2)
    p_value = float(stats.chi2.sf(np.sum(((ratio - claimed) / error) ** 2), len(outputs)))
    assert p_value > ALIKE
    epsilon = accountants.epsilon(mechanism.event(zeros(mechanism, (3,))), 1e-12).epsilon
    assert epsilon == pytest.approx(1 / z, rel=1e-3)
    assert np.all(ratio < epsilon + 4 * error)
    assert np.max(ratio) > 0.9 / z


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    update=st.lists(st.floats(-1e3, 1e3, width=32), min_size=5, max_size=5),
    z=st.sampled_from([0.1, 0.9, 1.0, 3.7, 50.0]),
    bound=st.sampled_from([1e-3, 1.0, 30.0]),
)
def test_one_client_moves_the_grid_by_no_more_than_the_noise_is_made_for(update, z, bound):
    mechanism = laplace(z)
    rounded = trees.to_grid(np.array(update, np.float32), bound, mechanism.step(bound), order=1)
    length = int(np.sum(np.abs(np.asarray(rounded, np.int64))))
    assert length / 2**mechanism.bits <= 1 / z * (1 + 1e-12)


@both
def test_the_event_is_a_pure_epsilon_for_exact_noise_alone(sampler):
    mechanism = laplace(0.5, sampler=sampler)
    total = zeros(mechanism, {"w": (3,)}, bound=2.0)
    assert mechanism.event(total) == events.Laplace(0.5, discrete=sampler == "exact")
    assert mechanism.release(total, key=keys.reproducible(1)).event == mechanism.event(total)


# Refusals.


@both
def test_a_sum_without_a_bound_in_l1_is_refused(sampler):
    mechanism = laplace(1.0, sampler=sampler)
    total = dataclasses.replace(zeros(mechanism, (3,)), l1_bound=None)
    for attempt in (mechanism.event, lambda total: mechanism.release(total, key=keys.reproducible(1))):
        with pytest.raises(UnboundedContribution, match="needs an L1 bound: clip with order=1"):
            attempt(total)


def test_the_bound_in_l1_counts_not_the_one_in_l2():
    mechanism = laplace(1.0)
    total = BoundedSum(np.zeros(2000, np.int64), l2_bound=1.0, l1_bound=8.0, n_expected=1.0, grid=mechanism.step(8.0))
    assert spread(mechanism.release(total, key=keys.reproducible(3)).value, 8.0) > ALIKE
    with pytest.raises(RelationMismatch, match="grid of step"):
        mechanism.event(dataclasses.replace(total, l1_bound=1.0, l2_bound=8.0))


def test_a_sum_that_does_not_fit_the_sampler_is_refused():
    exact, float_ = laplace(1.0), laplace(1.0, sampler="float")
    with pytest.raises(RelationMismatch, match="got None"):
        exact.release(zeros(float_, (3,)), key=keys.reproducible(1))
    with pytest.raises(RelationMismatch, match="lies on a grid"):
        float_.release(zeros(exact, (3,)), key=keys.reproducible(1))
    with pytest.raises(RelationMismatch, match="grid of step"):
        laplace(1.5).release(zeros(exact, (3,)), key=keys.reproducible(1))


@pytest.mark.parametrize("z", [0, -1.0, math.nan, math.inf, 1e-5, 1e7])
def test_a_multiplier_out_of_range_is_refused(z):
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        laplace(z)


def test_exact_is_what_one_gets_unless_float_is_asked_for_by_name():
    assert laplace(1.0) == LaplaceMechanism(1.0, "exact")
    with pytest.raises(TypeError, match="positional"):
        laplace(1.0, "float")  # pyright: ignore[reportCallIssue]
