"""The Gaussian mechanism: the mean without noise, and around it the noise that was promised, everywhere."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from blindsight import keys, trees
from blindsight.accounting import events
from blindsight.accounting.guarantee import certify
from blindsight.errors import InvalidInput, RelationMismatch, UnboundedContribution
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism, _normal, gaussian, joint
from blindsight.mechanisms.noise import AdditiveNoise
from blindsight.trees import BoundedSum

ALIKE, DIFFERENT = 1e-3, 1e-9
both = pytest.mark.parametrize("sampler", ["exact", "float"])
laws = settings(derandomize=True, deadline=None, max_examples=60)


def summed(mechanism: GaussianMechanism, updates: Any, *, bound: float = 1.0, n_expected: float = 1.0) -> BoundedSum:
    grid = mechanism.step(bound) if mechanism.sampler == "exact" else None
    return trees.sum_clients(updates, bound, n_expected=n_expected, grid=grid)


def zeros(mechanism: GaussianMechanism, tree: Any, *, bound: float = 1.0, n_expected: float = 1.0) -> BoundedSum:
    """The sum of nothing in the given shapes: released, it is noise alone."""
    exact = mechanism.sampler == "exact"
    value = jax.tree.map(
        lambda shape: np.zeros(shape, np.int64 if exact else np.float32), tree, is_leaf=lambda x: isinstance(x, tuple)
    )
    return BoundedSum(value, l2_bound=bound, n_expected=n_expected, grid=mechanism.step(bound) if exact else None)


def noise(mechanism: GaussianMechanism, tree: Any, seed: int = 0, **fields: float) -> Any:
    released = mechanism.release(zeros(mechanism, tree, **fields), key=keys.reproducible(seed)).value
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), released)


def likeness(draws: np.ndarray, std: float) -> float:
    """The p-value of a Kolmogorov-Smirnov test."""
    return float(stats.kstest(draws / std, special.ndtr, method="asymp").pvalue)


# Refusals.


@pytest.mark.parametrize("z", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, 2**-12 * (1 - 1e-15), 2**20 * (1 + 1e-15)])
def test_a_multiplier_out_of_range_is_refused(z):
    with pytest.raises(InvalidInput, match=r"between 0\.000244140625 and 1048576, got .* without noise is not private"):
        gaussian(z)


@pytest.mark.parametrize("z", [2**-12, 2**20])
def test_the_ends_of_the_range_are_within_it(z):
    mechanism = gaussian(z)
    assert float(np.std(noise(mechanism, (2000,)))) == pytest.approx(z, rel=0.1)


@pytest.mark.parametrize("sampler", ["Exact", "", None, "numpy"])
def test_an_unknown_sampler_is_refused(sampler):
    with pytest.raises(InvalidInput, match="'exact' or 'float'"):
        gaussian(1.0, sampler=sampler)


def test_exact_is_what_one_gets_unless_float_is_asked_for_by_name():
    assert gaussian(1.0) == GaussianMechanism(1.0, "exact")
    with pytest.raises(TypeError, match="positional"):
        gaussian(1.0, "float")  # pyright: ignore[reportCallIssue]
    assert AdditiveNoise(1.0).sampler == "exact"


@pytest.mark.parametrize("z", [1.1, 0.9, 2.0, 1 + 2**-52])
def test_a_sum_for_another_multiplier_is_refused(z):
    total = zeros(gaussian(1.0), (3,))
    for attempt in (gaussian(z).event, lambda total: gaussian(z).release(total, key=keys.reproducible(1))):
        with pytest.raises(RelationMismatch, match=r"exact noise needs a sum on the grid of step .*, got 5\.96"):
            attempt(total)


def test_a_sum_for_another_bound_is_refused():
    total = dataclasses.replace(zeros(gaussian(1.0), (3,), bound=1.0), l2_bound=1.5)
    with pytest.raises(RelationMismatch, match="grid of step"):
        gaussian(1.0).release(total, key=keys.reproducible(1))


def test_a_floating_sum_needs_the_float_sampler_and_a_sum_on_a_grid_the_exact_one():
    exact, float_ = gaussian(1.0), gaussian(1.0, sampler="float")
    with pytest.raises(RelationMismatch, match=r"got None: round every update with trees\.to_grid"):
        exact.release(zeros(float_, (3,)), key=keys.reproducible(1))
    with pytest.raises(RelationMismatch, match="lies on a grid: release it with sampler='exact'"):
        float_.release(zeros(exact, (3,)), key=keys.reproducible(1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_sum_that_is_not_finite_cannot_be_made(bad):
    with pytest.raises(UnboundedContribution, match="not finite"):
        BoundedSum(np.array([0.0, bad], np.float32), l2_bound=1.0, n_expected=1.0)


# The grid.


multipliers = st.floats(2**-12, 2**20) | st.builds(
    lambda k, way: float(min(max(np.nextafter(2.0**k, way), 2**-12), 2**20)),
    st.integers(-12, 20),
    st.sampled_from([-math.inf, math.inf]),
)


@settings(laws, max_examples=300)
@given(z=multipliers, bound=st.floats(1e-6, 1e6))
def test_the_grid_is_as_fine_as_it_can_be_and_the_noise_as_wide_as_it_must_be(z, bound):
    mechanism = gaussian(z)
    longest = bound / mechanism.step(bound)  # of one client, in steps: `to_grid` keeps within it
    assert longest <= 2**24
    assert 12 <= mechanism.bits <= 24
    assert mechanism.bits == 24 or longest > 2**23
    assert 2**mechanism.bits / longest == pytest.approx(z, rel=1e-14)


@pytest.mark.parametrize("z", [0.25, float(np.nextafter(0.25, 0)), float(np.nextafter(0.25, 1)), 1.0, 2**-12, 2**20])
def test_clients_can_round_to_it(z):
    """A logarithm that rounds would take the second for a quarter, and no client could round to its grid."""
    mechanism = gaussian(z)
    total = summed(mechanism, np.full((2, 3), 9.0, np.float32), bound=0.1)
    assert math.hypot(*total.value) <= 2 * 0.1 / mechanism.step(0.1)
    assert math.isfinite(float(np.sum(mechanism.release(total, key=keys.reproducible(1)).value)))


# The event.


@both
def test_the_event_is_what_the_noise_is(sampler):
    mechanism = gaussian(0.7, sampler=sampler)
    total = zeros(mechanism, {"w": (3, 4), "b": ()}, bound=0.3, n_expected=9.0)
    event = mechanism.event(total)
    assert event == mechanism.planned_event == mechanism.release(total, key=keys.reproducible(1)).event
    assert event.noise_multiplier == 0.7
    assert event.kl_slack == 0
    assert event.rounded == (sampler == "exact") == (not event.is_ideal)
    assert isinstance(event, events.Gaussian)


# Limit and closed form.


@both
def test_with_hardly_any_noise_it_is_the_plain_mean(sampler):
    rng = np.random.default_rng(0)
    updates = {"w": rng.normal(0, 0.1, (50, 3, 4)).astype(np.float32), "b": rng.normal(0, 0.1, 50).astype(np.float32)}
    mechanism = gaussian(2**-12, sampler=sampler)
    release = mechanism.release(summed(mechanism, updates, bound=10.0, n_expected=50.0), key=keys.reproducible(1))
    assert release.noise_std == 2**-12 * 10 / 50
    for name, leaf in updates.items():
        assert np.asarray(release.value[name]) == pytest.approx(leaf.mean(axis=0), abs=5 * release.noise_std)


@both
@pytest.mark.parametrize(("z", "bound", "n_expected"), [(1.0, 1.0, 1.0), (0.3, 2.0, 7.0), (40.0, 1e-3, 1000.0)])
def test_the_variance_of_each_coordinate_is_the_closed_form(sampler, z, bound, n_expected):
    mechanism = gaussian(z, sampler=sampler)
    total = zeros(mechanism, {"w": (2, 2), "b": (), "v": [(1,)]}, bound=bound, n_expected=n_expected)
    releases = [mechanism.release(total, key=keys.reproducible(i)) for i in range(300)]
    flat = np.array([[x for leaf in jax.tree.leaves(r.value) for x in np.ravel(leaf)] for r in releases], np.float64)
    assert flat.shape == (300, 6)
    std = z * bound / n_expected
    assert releases[0].noise_std == pytest.approx(std, rel=1e-12)

    def p_values(std: float) -> np.ndarray:
        below = stats.chi2.cdf(np.sum(flat**2, axis=0) / std**2, 300)
        return 2 * np.minimum(below, 1 - below)

    assert np.all(p_values(std) > ALIKE)
    assert np.all(p_values(std * 2 / 3) < DIFFERENT)
    assert np.all(p_values(std * 3 / 2) < DIFFERENT)
    assert np.all(np.abs(flat.mean(axis=0)) < 4 * std / math.sqrt(300))


@both
@pytest.mark.parametrize(
    ("z", "bound", "n_expected"), [(1.0, 1.0, 1.0), (0.3, 2.0, 7.0), (0.5, 0.1, 3.0), (5, 1e3, 10)]
)
def test_the_noise_is_normal_and_of_no_other_scale(sampler, z, bound, n_expected):
    drawn = noise(gaussian(z, sampler=sampler), {"a": (100, 100), "b": (5000,)}, 2, bound=bound, n_expected=n_expected)
    std = z * bound / n_expected
    for leaf in (drawn["a"].ravel(), drawn["b"]):
        assert likeness(leaf, std) > ALIKE
        for factor in (2 / 3, 3 / 2):
            assert likeness(leaf, factor * std) < DIFFERENT


@both
def test_noise_is_independent_between_coordinates_leaves_and_keys(sampler):
    mechanism = gaussian(1.0, sampler=sampler)
    drawn, again, other = (noise(mechanism, [(40_000,), (40_000,)], seed) for seed in (3, 3, 4))

    def dependence(left: np.ndarray, right: np.ndarray) -> float:
        views = ((left, right), (left**2, right**2))
        return max(abs(float(np.corrcoef(*view)[0, 1])) * math.sqrt(len(left)) for view in views)

    assert dependence(drawn[0], drawn[1]) < 4.5
    assert dependence(drawn[0], other[0]) < 4.5
    assert dependence(drawn[1], other[0]) < 4.5
    assert dependence(drawn[0][1:], drawn[0][:-1]) < 4.5
    assert dependence(drawn[0], drawn[0] + drawn[1]) > 100
    assert all(np.array_equal(one, same) for one, same in zip(drawn, again, strict=True))


@both
def test_rounds_of_one_root_have_noise_of_their_own(sampler):
    mechanism, root = gaussian(1.0, sampler=sampler), keys.reproducible(5)
    total = zeros(mechanism, {"w": (30,)})
    rounds = [np.asarray(mechanism.release(total, key=root.derive("noise", r)).value["w"]).tobytes() for r in range(20)]
    assert len(set(rounds)) == 20


# Division.


@both
def test_the_sum_is_divided_by_what_was_expected_not_by_what_came(sampler):
    mechanism = gaussian(0.01, sampler=sampler)
    updates = np.full((3, 5), 0.25, np.float32)  # three came
    release = mechanism.release(summed(mechanism, updates, n_expected=100.0), key=keys.reproducible(6))
    assert release.noise_std == pytest.approx(1e-4)
    assert np.asarray(release.value) == pytest.approx(np.full(5, 3 * 0.25 / 100), abs=6e-4)
    nobody = mechanism.release(summed(mechanism, updates[:0], n_expected=100.0), key=keys.reproducible(6))
    assert np.asarray(nobody.value) == pytest.approx(np.zeros(5), abs=6e-4)
    assert np.all(np.asarray(nobody.value) != 0)


@both
def test_the_sum_and_its_noise_are_divided_alike(sampler):
    mechanism = gaussian(1.0, sampler=sampler)
    total = summed(mechanism, np.eye(4, dtype=np.float32))
    one, eight = (
        np.asarray(mechanism.release(dataclasses.replace(total, n_expected=n), key=keys.reproducible(7)).value)
        for n in (1.0, 8.0)
    )
    assert np.array_equal(one, 8 * eight)


@both
def test_the_noise_does_not_depend_on_the_sum(sampler):
    mechanism = gaussian(1.0, sampler=sampler)
    updates = np.random.default_rng(0).normal(0, 0.1, (20, 6)).astype(np.float32)
    total = summed(mechanism, updates)
    bare = np.asarray(total.value) * (total.grid or 1)
    released = np.asarray(mechanism.release(total, key=keys.reproducible(8)).value)
    assert released - bare == pytest.approx(noise(mechanism, (6,), 8), abs=1e-5)
    assert bare == pytest.approx(updates.sum(axis=0), abs=1e-4)


# Structure.


shapes = st.sampled_from([(), (0,), (1,), (3,), (2, 2), (0, 3)])


@both
@settings(laws, max_examples=12)  # each compiles anew
@given(first=st.lists(shapes, max_size=4), second=shapes)
def test_structure_shapes_and_type_are_kept_and_no_coordinate_is_left_bare(sampler, first, second):
    mechanism = gaussian(1.0, sampler=sampler)
    total = zeros(mechanism, {"many": first, "one": [second]})
    release = mechanism.release(total, key=keys.reproducible(9))
    assert jax.tree.structure(release.value) == jax.tree.structure(total.value)
    for shape, leaf in zip([*first, second], jax.tree.leaves(release.value), strict=True):
        assert leaf.shape == shape
        assert leaf.dtype == np.float32
        assert np.all(np.asarray(leaf) != 0)
    drawn = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(release.value)])
    assert len(np.unique(drawn)) == len(drawn)
    assert release.event == mechanism.planned_event


@both
def test_a_tree_without_leaves_is_released_as_it_is(sampler):
    mechanism = gaussian(1.0, sampler=sampler)
    assert mechanism.release(zeros(mechanism, {"none": []}), key=keys.reproducible(1)).value == {"none": []}


@both
def test_many_leaves(sampler):
    mechanism = gaussian(1.0, sampler=sampler)
    drawn = np.array(noise(mechanism, [() for _ in range(40)], 10))
    assert len(np.unique(drawn)) == 40
    assert likeness(drawn, 1.0) > ALIKE


# The float sampler.


def test_float_noise_is_normal_to_a_thousandth():
    drawn = np.asarray(_normal((1000, 1000), keys.reproducible(11).jax()), np.float64).ravel()
    drawn.sort()
    assert likeness(drawn, 1.0) > ALIKE
    assert likeness(drawn, 0.98) < DIFFERENT
    for limit in (3.0, 4.0):
        beyond = int(np.count_nonzero(np.abs(drawn) > limit))
        assert stats.binomtest(beyond, 10**6, 2 * float(stats.norm.sf(limit))).pvalue > ALIKE
    assert float(np.mean(drawn**4)) == pytest.approx(3, abs=4 * math.sqrt(96 / 1e6))


def from_bits(monkeypatch: pytest.MonkeyPatch, *columns: tuple[int, ...]) -> np.ndarray:
    drawn = jnp.asarray(np.array(columns, np.uint32).T)

    def bits(key: Any, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        assert (shape, dtype) == (drawn.shape, drawn.dtype)  # beyond its end JAX would read the last row again
        return drawn

    with monkeypatch.context() as patch:
        patch.setattr(jax.random, "bits", bits)
        return np.asarray(_normal((len(columns),), jax.random.key(0)), np.float64)


MOST = 2**32 - 1


def test_the_tail_is_there_beyond_where_a_float32_normal_ends(monkeypatch):
    largest, opposite, next_word, least = from_bits(
        monkeypatch, (0, 0, 0), (0, 0, 2**31), (0, MOST, 0), (MOST, MOST, 0)
    )
    assert largest == pytest.approx(math.sqrt(2 * 65 * math.log(2)), rel=1e-6)
    assert largest > 9.4
    assert opposite == pytest.approx(-largest, rel=1e-6)
    assert next_word == pytest.approx(math.sqrt(2 * 32 * math.log(2)), rel=1e-6)  # 6.66: 5.42 is where others end
    assert least == pytest.approx(0, abs=1e-3)


def test_float_noise_is_box_and_muller_of_96_bits(monkeypatch):
    ends = [*range(3), *(2**k for k in range(2, 32, 3)), MOST - 1, MOST]
    random = np.random.default_rng(1).integers(0, 2**32, (2000, 3)).tolist()
    columns = [*itertools.product(ends, repeat=3), *map(tuple, random)]
    high, low, turn = np.array(columns, np.float64).T
    radius = np.sqrt(-2 * np.log(np.minimum(1, (high + (low + 0.5) / 2**32) / 2**32)))
    expected = radius * np.cos(2 * math.pi * turn / 2**32)
    assert from_bits(monkeypatch, *columns) == pytest.approx(expected, abs=1e-3)


# Several releases as one.


@pytest.mark.parametrize("samplers", list(itertools.product(["exact", "float"], repeat=3)))
def test_releases_that_are_one_rest_on_all_that_each_of_them_rests_on(samplers):
    parts = [gaussian(4.0 + number, sampler=sampler).planned_event for number, sampler in enumerate(samplers)]
    parts[0] = dataclasses.replace(parts[0], reproducible=samplers[-1] == "float")
    every = {words for part in parts for words in certify(part, delta=1e-6).assumptions}
    for together in (joint(*parts), joint(parts[0], joint(*parts[1:])), joint(joint(*parts[:2]), parts[2])):
        assert set(certify(together, delta=1e-6).assumptions) == every
        assert events.from_json(events.to_json(together)) == together
