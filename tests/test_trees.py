"""The laws of clipping, rounding and summing: checked in whole numbers, never in the arithmetic under test."""

import functools
import math
import unittest.mock
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blindsight import trees
from blindsight.errors import InvalidInput, UnboundedContribution
from blindsight.trees import BoundedSum

laws = settings(derandomize=True, deadline=None, max_examples=120)

SMALLEST_NORMAL = 2.0**-126  # what is smaller, processors may read as zero
LARGEST = float(np.finfo(np.float32).max)


# Exact arithmetic. A float32 times 2^149 is a whole number, which float64 holds exactly.


def values(tree: Any) -> np.ndarray:
    leaves = [np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves) if leaves else np.zeros(0, np.float32)


def units(tree: Any) -> list[int]:
    """The coordinates as whole multiples of 2^-149."""
    return [int(value) for value in np.ldexp(values(tree).astype(np.float64), 149)]


def power(whole: list[int], order: int) -> int:
    return sum(abs(value) ** order for value in whole)


def within(tree: Any, bound: Any, order: int = 2) -> bool:
    """Whether the exact norm is at most `bound`, in whole numbers."""
    return power(units(tree), order) <= (Fraction(float(bound)) * 2**149) ** order


def exact(tree: Any, order: int = 2) -> float:
    """The exact norm, rounded once."""
    total = power(units(tree), order)
    return float(Fraction(math.isqrt(total << 200) if order == 2 else total << 100, 1 << 249))


def grid_within(tree: Any, bound: float, step: float, order: int = 2) -> bool:
    return power(values(tree).tolist(), order) <= (Fraction(bound) / Fraction(step)) ** order


def flushed(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.where(np.abs(leaf) < SMALLEST_NORMAL, 0, leaf).astype(np.float32), tree)


def same_bits(left: Any, right: Any) -> bool:
    return jax.tree.structure(left) == jax.tree.structure(right) and all(
        np.asarray(a).dtype == np.asarray(b).dtype
        and np.shape(a) == np.shape(b)
        and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    )


# Trees of every kind of trouble.


KINDS = ("bits", "normal", "equal", "geometric", "one large", "wide", "denormal", "sparse")


def vector(kind: str, count: int, magnitude: float, seed: int) -> np.ndarray:
    """`count` finite float32 values, mostly around `magnitude`."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([-1.0, 1.0], count)
    if kind == "bits":
        drawn = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
        result = np.where(np.isfinite(drawn), drawn, np.float32(1)).astype(np.float64)
    elif kind == "normal":
        result = magnitude * rng.normal(size=count)
    elif kind == "equal":
        result = np.full(count, magnitude)
    elif kind == "geometric":
        result = sign * magnitude * rng.uniform(0.3, 0.999) ** np.arange(count)
    elif kind == "one large":
        result = sign * magnitude * 2.0**-12
        result[count // 2 : count // 2 + 1] = magnitude
    elif kind == "wide":
        result = sign * magnitude * 10 ** rng.uniform(-40, 0, count)
    elif kind == "denormal":
        result = sign * rng.integers(0, 1 << 23, count) * 2.0**-149
    else:
        result = magnitude * sign * (rng.random(count) < 0.1)
    return np.clip(result, -LARGEST, LARGEST).astype(np.float32)


@st.composite
def forests(draw: st.DrawFn) -> Any:
    """A pytree of finite float32 arrays, and an order."""
    magnitude = 10 ** draw(st.floats(-38, 38.53))

    def some(*shape: int) -> np.ndarray:
        flat = vector(draw(st.sampled_from(KINDS)), math.prod(shape), magnitude, draw(st.integers(0, 2**32)))
        return flat.reshape(shape)

    match draw(st.integers(0, 2)):  # few shapes, because each is compiled once
        case 0:
            return some(3)
        case 1:
            return some(37)
        case _:
            return [some(), (some(1), {"deep": some(2, 5)}), np.zeros((0, 4), np.float32), None]


orders = st.sampled_from([1, 2])
relative_bounds = st.one_of(
    st.floats(0.9999, 1.0001), st.floats(1 - 3e-7, 1 + 3e-7), st.floats(-30, 5).map(lambda p: 10.0**p), st.just(1.0)
)


def bound_for(tree: Any, order: int, relative: float) -> float:
    """A bound that `clip` accepts, at about `relative` times the norm."""
    return float(np.float32(min(max(exact(tree, order) * relative, 1.001e-20), LARGEST)))


eager = trees.clip
compiled = jax.jit(trees.clip, static_argnames="order")
_stacked = jax.jit(jax.vmap(trees.clip, in_axes=(0, None, None)), static_argnums=2)


def traced(tree: Any, bound: Any, order: int = 2) -> Any:
    return compiled(tree, jnp.float32(bound), order)


def stacked(tree: Any, bound: Any, order: int = 2) -> Any:
    """`clip` of the second of three clients that are clipped together."""
    three = jax.tree.map(lambda leaf: np.stack([np.ones_like(leaf), leaf, np.full_like(leaf, 1e9)]), tree)
    return jax.tree.map(lambda leaf: leaf[1], _stacked(three, jnp.float32(bound), order))


WAYS = {"eager": eager, "jit": traced, "vmap": stacked}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


# Closed forms.


def test_the_arithmetic_in_closed_form():
    left = {"a": jnp.array([1.0, 2.0]), "b": (jnp.array(3.0),)}
    right = {"a": jnp.array([10.0, -2.0]), "b": (jnp.array(0.5),)}
    assert same_bits(trees.add(left, right), {"a": jnp.array([11.0, 0.0]), "b": (jnp.array(3.5),)})
    assert same_bits(trees.sub(left, right), {"a": jnp.array([-9.0, 4.0]), "b": (jnp.array(2.5),)})
    assert same_bits(trees.scale(left, -2.0), {"a": jnp.array([-2.0, -4.0]), "b": (jnp.array(-6.0),)})
    assert same_bits(trees.scale(left, jnp.float32(-2.0)), trees.scale(left, -2.0))
    assert same_bits(trees.zeros_like(left), {"a": jnp.zeros(2), "b": (jnp.zeros(()),)})
    assert same_bits(trees.sub(trees.add(left, right), right), left)
    assert same_bits(trees.scale(jnp.ones(3, jnp.float16), 0.5), jnp.full(3, 0.5, jnp.float16))
    assert same_bits(trees.zeros_like(np.ones((2, 2), np.int32)), jnp.zeros((2, 2), jnp.int32))


def test_the_size_counts_coordinates():
    assert trees.size({"w": np.ones((3, 4)), "b": [1.0, np.ones(5)], "nothing": np.ones((0, 7))}) == 18
    assert trees.size({}) == 0
    assert trees.size(2.0) == 1
    assert type(trees.size(np.ones((2, 3)))) is int


@pytest.mark.parametrize(("order", "expected"), [(2, 13.0), (1, 19.0)])
def test_the_norm_in_closed_form(order, expected):
    tree = {"a": jnp.array([[-3.0], [4.0]]), "b": [jnp.array(12.0), jnp.zeros((0, 2))]}
    assert float(trees.norm(tree, order)) == pytest.approx(expected, rel=2e-6)
    assert float(trees.norm(tree, order)) >= expected
    assert trees.norm(tree, order).dtype == jnp.float32
    assert trees.norm(tree, order).shape == ()


def test_the_default_order_is_two():
    tree = jnp.array([3.0, 4.0])
    assert float(trees.norm(tree)) == pytest.approx(5.0, rel=2e-6)
    assert np.asarray(trees.clip(tree, 1.0)) == pytest.approx([0.6, 0.8], rel=1e-5)
    assert trees.to_grid(tree, 1.0, 1 / 1024).tolist() == [614, 819]


@pytest.mark.parametrize(
    "nothing", [{}, np.zeros((0, 4), np.float32), np.zeros(3, np.float32), [np.zeros((0, 2)), 0.0]]
)
def test_nothing_has_no_length_and_is_not_touched(nothing):
    assert float(trees.norm(nothing)) == float(trees.norm(nothing, 1)) == 0
    as_float32 = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), nothing)
    for bound in (1e-20, 1.0, math.inf):
        assert same_bits(trees.clip(nothing, bound), as_float32)
        assert same_bits(trees.clip(nothing, bound, 1), as_float32)
    assert same_bits(traced(nothing, 1e-20), as_float32)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(trees.to_grid(nothing, 1.0, 0.1)))


def test_clipping_in_closed_form():
    tree = {"a": jnp.array([3.0, 0.0]), "b": [-4.0]}
    clipped = trees.clip(tree, 2.5)
    assert values(clipped) == pytest.approx([1.5, 0.0, -2.0], rel=1e-5)
    assert values(trees.clip(tree, 3.5, order=1)) == pytest.approx([1.5, 0.0, -2.0], rel=1e-5)
    assert jax.tree.structure(clipped) == jax.tree.structure(tree)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32])
def test_every_leaf_comes_out_in_single_precision(dtype):
    leaf = np.array([3, -4], dtype)
    assert same_bits(trees.clip(leaf, 5.1), jnp.array([3.0, -4.0], jnp.float32))
    assert values(trees.clip(leaf, 0.5)) == pytest.approx([0.3, -0.4], rel=1e-5)
    assert values(trees.clip(leaf, 0.5)).dtype == np.float32


# The norm.


measured = jax.jit(trees.norm, static_argnums=1)


@laws
@given(tree=forests(), order=orders)
def test_the_norm_is_an_upper_bound_and_tight(tree, order):
    truth = exact(tree, order)
    length = float(trees.norm(tree, order))
    assert length == math.inf or within(flushed(tree), length, order)
    assert length <= truth * (1 + 5e-6) or truth > LARGEST * (1 - 5e-6)


@pytest.mark.parametrize("magnitude", [2.0**-126, 1e-37, 1e-30, 1e-20, 1e-3, 1.0, 1e19, 1e37, 2.0**126, LARGEST / 4])
@pytest.mark.parametrize("order", [1, 2])
def test_the_norm_is_tight_at_every_magnitude(magnitude, order):
    for tree in (vector("equal", 3, magnitude, 0), vector("one large", 37, magnitude, 1), np.float32(magnitude)):
        length = float(trees.norm(tree, order))
        assert within(flushed(tree), length, order)
        assert length == pytest.approx(exact(flushed(tree), order), rel=5e-6, abs=0)


def test_the_norm_of_what_is_too_long_or_not_a_number_is_not_finite():
    assert float(trees.norm(jnp.array([LARGEST, LARGEST]))) == math.inf
    assert float(trees.norm(jnp.array([LARGEST, LARGEST]), 1)) == math.inf
    for bad in (math.nan, -math.nan, math.inf, -math.inf):
        for order in (1, 2):
            for tree in (jnp.array([1.0, bad, 2.0]), [jnp.ones(3), {"b": jnp.array(bad)}], jnp.full(3, bad)):
                assert not math.isfinite(float(trees.norm(tree, order)))


@pytest.mark.parametrize("order", [0, 3, -1, 1.5, math.inf, math.nan, None])
def test_only_two_norms_are_known(order):
    with pytest.raises(InvalidInput, match="order must be 1 or 2"):
        trees.norm(jnp.ones(2), order)
    with pytest.raises(InvalidInput, match="order must be 1 or 2"):
        trees.clip(jnp.ones(2), 1.0, order)


# Clipping.


@laws
@given(tree=forests(), order=orders, relative=relative_bounds)
def test_a_clipped_tree_is_never_longer_than_its_bound(tree, order, relative):
    bound, length = bound_for(tree, order, relative), exact(tree, order)
    expected = values(tree).astype(np.float64) * min(1.0, bound / max(length, 1e-300))
    for name, way in WAYS.items():
        try:
            clipped = way(tree, bound, order)
        except UnboundedContribution:
            assert name == "eager"
            assert length > LARGEST * (1 - 5e-6)
            continue
        assert within(clipped, bound, order)
        if length <= bound * (1 - 5e-6):
            assert same_bits(clipped, tree)
        elif length < LARGEST * (1 - 5e-6) and length < bound * 8e37:  # the direction is kept
            assert values(clipped) == pytest.approx(expected, rel=2e-5, abs=SMALLEST_NORMAL)
        assert same_bits(way(clipped, bound, order), clipped)  # twice is once


shapes = st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), max_size=4)


@pytest.mark.slow
@settings(laws, max_examples=60)
@given(shapes=shapes, order=orders, kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32), relative=relative_bounds)
def test_any_shapes_will_do(shapes, order, kind, seed, relative):
    tree = {str(i): vector(kind, math.prod(s), 1.0, seed + i).reshape(s) for i, s in enumerate(shapes)}
    if exact(tree, order) > LARGEST * (1 - 5e-6):
        return
    bound = bound_for(tree, order, relative)
    for clipped in (eager(tree, bound, order), traced(tree, bound, order)):
        assert jax.tree.map(np.shape, clipped) == jax.tree.map(np.shape, tree)
        assert within(clipped, bound, order)
        assert exact(clipped, order) == pytest.approx(min(bound, exact(tree, order)), rel=2e-5, abs=1e-37)
    assert trees.size(tree) == sum(math.prod(s) for s in shapes)
    assert grid_within(trees.to_grid(tree, bound, bound / 1000, order), bound, bound / 1000, order)


@laws
@given(tree=forests(), order=orders, bound=st.floats(-20, 40).map(lambda p: max(10.0**p, 1e-20)))
@example(tree=vector("equal", 3, 1e38, 0), order=2, bound=3e38)
def test_the_bound_is_kept_in_double_precision(tree, order, bound):
    """A bound that float32 cannot hold is rounded down, never up."""
    if exact(tree, order) < LARGEST * (1 - 5e-6):
        assert within(eager(tree, bound, order), bound, order)


@pytest.mark.parametrize("bound", [0.1, 1 / 3, 0.7, math.pi, 1e-20, 1.1e-7, 16777217.0])
@pytest.mark.parametrize("count", [1, 3])
def test_a_bound_between_two_floats_is_rounded_down(bound, count):
    """Here the room that clipping leaves is no help: the longest vectors that may come back as they are."""
    start = np.float32(bound / math.sqrt(count))
    tree = np.full(count, start)
    while np.array_equal(eager(tree, bound), tree):
        tree = np.nextafter(tree, np.float32(np.inf))
    while not np.array_equal(eager(tree, bound), tree):
        tree = np.nextafter(tree, np.float32(0))
    assert within(tree, bound)
    assert not within(tree * np.float32(1 + 4e-6), bound)


@laws
@given(bound=st.floats(1e-20, 1e300))
@example(bound=0.1)
@example(bound=16777217.0)
@example(bound=LARGEST)
@example(bound=math.inf)
def test_below_is_the_largest_float32_that_does_not_exceed(bound):
    nearest = trees._below(bound)
    assert nearest == float(np.float32(nearest)) <= bound
    assert nearest == LARGEST or float(np.nextafter(np.float32(nearest), np.float32(np.inf))) > bound


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_clipped_to_its_own_norm_is_not_touched(kind, order):
    tree = vector(kind, 3, 1.0, 11)
    length = trees.norm(tree, order)
    if float(length) >= 1e-20:
        assert same_bits(eager(tree, float(length), order), tree)
        assert same_bits(eager(tree, length, order), tree)
        shorter = np.nextafter(np.float32(length), np.float32(0))
        assert within(eager(tree, float(shorter), order), float(shorter), order)
        assert not same_bits(eager(tree, float(shorter), order), tree)


@ways
@pytest.mark.parametrize("order", [1, 2])
def test_a_long_tree_loses_no_more_than_the_last_digits(way, order):
    for kind in ("normal", "equal", "geometric", "one large"):
        clipped = way(vector(kind, 37, 1.0, 3), 0.25, order)
        assert within(clipped, 0.25, order)
        assert not within(clipped, 0.25 * (1 - 1e-5), order)


@ways
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("magnitude", [0.0, 1e-45, 1e-39, 1e-20, 1.0, 1e37])
def test_within_the_bound_every_bit_is_kept(way, magnitude, order):
    tree = vector("normal", 3, magnitude, 5)
    tree[:2] = [-0.0, -2e-39]
    assert same_bits(way(tree, math.inf, order), tree)
    assert same_bits(way(tree, 1e38, order), tree)
    assert same_bits(way(tree, max(exact(tree, order) * (1 + 1e-5), 1e-19), order), tree)


@ways
@pytest.mark.parametrize("bound", [1e-10, 1.0, 1e10, 1e20, 1e38, 3e38])
def test_an_enormous_divisor_does_not_undo_the_clip(way, bound):
    """A reciprocal of 8.5e37 or more is flushed to zero, and clip([3e38, 3e38], 1) once returned its input."""
    for tree in (jnp.array([2e38, 2e38]), jnp.array([9e37, 1.0]), jnp.array([LARGEST / 1.01])):
        clipped = way(tree, bound)
        assert within(clipped, bound)
        if exact(tree) < 8e37 * bound:
            assert exact(clipped) == pytest.approx(min(bound, exact(tree)), rel=1e-5)


@pytest.mark.parametrize("bound", [1e-10, 1.0, 3e38, math.inf])
def test_a_norm_beyond_float32_is_refused_or_zeroed(bound):
    for order, tree in ((2, jnp.array([3e38, 3e38])), (1, {"a": jnp.array([2e38]), "b": jnp.array([2e38])})):
        with pytest.raises(UnboundedContribution, match="huge"):
            trees.clip(tree, bound, order)
        assert not np.any(values(traced(tree, bound, order)))
        assert not np.any(values(stacked(tree, bound, order)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("order", [1, 2])
def test_what_is_not_finite_is_refused_or_zeroed(bad, order):
    tree = {"a": jnp.array([1.0, bad]), "b": jnp.array([2.0, 3.0])}
    for bound in (1.0, math.inf):
        with pytest.raises(UnboundedContribution, match="drop the client"):
            trees.clip(tree, bound, order)
        zeros = trees.zeros_like(tree)
        assert same_bits(traced(tree, bound, order), zeros)
        assert same_bits(stacked(tree, bound, order), zeros)
    with pytest.raises(UnboundedContribution):
        trees.to_grid(tree, 1.0, 0.1, order)


BAD_BOUNDS = [math.nan, 0.0, -0.0, -1.0, -math.inf, 1e-45, 1e-30, 9.99e-21]


@pytest.mark.parametrize("bound", BAD_BOUNDS)
def test_a_bound_that_bounds_nothing_is_refused_or_lets_nothing_through(bound):
    spellings: list[Any] = [bound, np.float32(bound), jnp.float32(bound)]
    for spelling in spellings:
        with pytest.raises(InvalidInput, match="a clip bound must be positive"):
            trees.clip(jnp.array([3.0, 4.0]), spelling)
    with pytest.raises(InvalidInput, match="a clip bound must be positive"):
        trees.to_grid(jnp.array([3.0, 4.0]), bound, 1.0)
    with pytest.raises(InvalidInput, match="a clip bound must be positive"):
        trees.sum_clients(jnp.array([[3.0, 4.0]]), bound, n_expected=1)
    for tree in (jnp.array([3.0, 4.0]), jnp.array([0.0, 1e-42])):
        assert same_bits(traced(tree, bound), jnp.zeros(2))
        assert same_bits(stacked(tree, bound), jnp.zeros(2))


def test_the_smallest_bound_is_accepted_in_every_spelling():
    for spelling in (1e-20, np.float64(1e-20), jnp.float32(1.0001e-20)):
        assert within(trees.clip(jnp.array([3.0, 4.0]), spelling), 1.0001e-20)
        assert exact(trees.clip(jnp.array([3.0, 4.0]), spelling)) == pytest.approx(1e-20, rel=2e-4)
    assert exact(traced(jnp.array([3.0, 4.0]), 1e-20)) == pytest.approx(1e-20, rel=1e-5)


@pytest.mark.parametrize("way", [eager, traced], ids=["eager", "jit"])
@pytest.mark.parametrize("order", [1, 2])
def test_coordinates_that_processors_read_as_zero_cannot_add_up(way, order):
    """Once, bounds down to 1e-30 were accepted, and a thousand denormals went past the L1 norm uncounted."""
    bound = 1e-20
    tree = np.full(37, np.nextafter(np.float32(SMALLEST_NORMAL), np.float32(0)))
    for tree[0] in np.float32(bound) * (1 - np.arange(64) * np.float32(2**-24)):
        assert within(way(tree, bound, order), bound, order)


def test_bounds_may_be_python_numbers_numpy_numbers_or_arrays():
    tree = jnp.array([3.0, 4.0])
    spellings: list[Any] = [2, 2.0, np.float64(2), np.float32(2), np.int64(2), jnp.float32(2)]
    for bound in spellings:
        assert same_bits(trees.clip(tree, bound), trees.clip(tree, 2.0))
    assert values(compiled(tree, 2.0)) == pytest.approx(values(trees.clip(tree, 2.0)), rel=1e-6)


@pytest.mark.parametrize("bound", [LARGEST, 3.5e38, 1e39, 1e300, math.inf])
def test_a_bound_that_float32_cannot_reach_changes_nothing(bound):
    tree = jnp.array([-1e38, 2e38, 1.0])
    assert same_bits(trees.clip(tree, bound), tree)


# 1.6 million values, where a norm in single precision is visibly wrong.


MANY = 1_600_000


def double_norm(tree: np.ndarray, order: int) -> float:
    """Correctly rounded: squares of float32 are exact in float64, and so is `fsum` until its last step."""
    total = math.fsum(np.abs(tree.astype(np.float64)) ** order)
    return math.sqrt(total) if order == 2 else total


def many(kind: str) -> np.ndarray:
    return vector(kind, MANY, 0.1, 7)


@functools.cache
def clip_many(order: int) -> Any:
    return jax.jit(functools.partial(trees.clip, bound=1.0, order=order)).lower(many("equal")).compile()


def naive_clip(tree: np.ndarray) -> np.ndarray:
    length = np.sqrt(np.cumsum(tree * tree, dtype=np.float32)[-1])
    return tree * np.float32(min(1, 1 / length))


def test_a_million_values_fool_the_naive_norm_and_not_this_one():
    tree = many("equal")
    naive = float(np.sqrt(np.cumsum(tree * tree, dtype=np.float32)[-1]))
    assert naive < double_norm(tree, 2) * (1 - 2e-5)
    assert double_norm(naive_clip(tree), 2) > 1 + 2e-5
    clipped = np.asarray(clip_many(2)(tree))
    assert 1 - 2e-5 < double_norm(clipped, 2) <= 1
    assert np.array_equal(np.asarray(clip_many(2)(clipped)), clipped)
    length = float(measured(tree, 2))
    assert double_norm(tree, 2) <= length <= double_norm(tree, 2) * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("bits", "denormal")])
def test_a_million_values_of_every_kind(kind, order):
    tree = many(kind)
    clipped = np.asarray(clip_many(order)(tree))
    assert double_norm(clipped, order) <= 1
    expected = tree.astype(np.float64) * min(1.0, 1 / double_norm(tree, order))
    assert np.allclose(clipped, expected, rtol=2e-5, atol=SMALLEST_NORMAL)
    assert np.array_equal(np.asarray(clip_many(order)(clipped)), clipped)
    length = float(measured(tree, order))
    assert double_norm(tree, order) <= length <= double_norm(tree, order) * (1 + 1e-5)
    assert np.array_equal(np.asarray(trees.clip(clipped, 1.0, order)), clipped)


# The grid.


steps = st.one_of(st.floats(0, 24).map(lambda p: 2.0**p), st.integers(0, 24).map(lambda p: 2.0**p), st.just(0.5))


@laws
@given(tree=forests(), order=orders, relative=relative_bounds, resolution=steps)
def test_on_the_grid_no_tree_is_longer_than_its_bound(tree, order, relative, resolution):
    if exact(tree, order) > LARGEST * (1 - 5e-6):
        return
    bound = bound_for(tree, order, relative)
    step = bound / resolution
    step = step if bound / step <= 2**24 else math.nextafter(step, math.inf)
    on_grid = trees.to_grid(tree, bound, step, order)
    assert jax.tree.structure(on_grid) == jax.tree.structure(tree)
    assert values(on_grid).dtype == np.int32
    assert grid_within(on_grid, bound, step, order)
    clipped = values(trees.clip(tree, bound, order)).astype(np.float64) / step
    error = np.abs(values(on_grid) - clipped)
    rounding = 2.0**-22 * np.abs(clipped) + 1e-9  # of the division by the step in single precision
    assert np.all(error <= 1 + rounding)
    nearest = np.round(clipped)
    if np.linalg.norm(nearest, order) <= resolution * (1 - 1e-5) and np.all(rounding < 1e-3):
        assert np.all(error <= 0.5 + rounding)  # where there is room, to the nearest
    else:
        assert np.all((values(on_grid) == 0) | (np.sign(values(on_grid)) == np.sign(clipped)))


def test_the_grid_in_closed_form():
    tree = {"a": jnp.array([0.3, -0.26]), "b": jnp.array([[0.04]])}
    on_grid = trees.to_grid(tree, 1.0, 0.1)
    assert same_bits(on_grid, {"a": jnp.array([3, -3], jnp.int32), "b": jnp.array([[0]], jnp.int32)})
    cut = trees.to_grid(jnp.array([3.0, -0.6]), 1.0, 0.25, order=1)  # 0.83, -0.17: 3.3 and -0.7 steps of 4
    assert cut.tolist() in ([3, -1], [3, 0])
    full = trees.to_grid(jnp.array([9.9, 9.9]), 1.0, 0.1)  # 7.07 steps each
    assert full.tolist() == [7, 7]
    longer = trees.to_grid(jnp.array([1.0, 1.0, 1.0]), 1.0, 1.0)  # 0.58 each rounds to a norm of 1.7
    assert longer.tolist() == [0, 0, 0]


@pytest.mark.parametrize("order", [1, 2])
def test_rounding_that_would_lengthen_is_cut_instead(order):
    """Every coordinate at 0.6 of a step rounds up, and the tree would be 5/3 as long as it may be."""
    tree = np.full(37, 0.6, np.float32)
    bound = exact(tree, order) * (1 + 1e-5)
    assert power([1] * 37, order) > bound**order
    assert not np.any(trees.to_grid(tree, bound, 1.0, order))
    tree[-1] = 5.3
    bound = exact(tree, order) * (1 + 1e-5)
    assert values(trees.to_grid(tree, bound, 1.0, order)).tolist() == [0] * 36 + [5]


@pytest.mark.parametrize("step", [0.0, -0.1, math.nan, math.inf, -math.inf, 1 / (2**24 + 1), 1e-300])
def test_a_step_that_is_none_is_refused(step):
    with pytest.raises(InvalidInput, match=r"^a grid needs 0 < step and bound / step at most 2\^24, got step"):
        trees.to_grid(jnp.ones(2), 1.0, step)
    with pytest.raises(InvalidInput, match="a grid needs"):
        trees.sum_clients(jnp.ones((1, 2)), 1.0, n_expected=1, grid=step)


def test_the_finest_and_the_coarsest_step():
    finest = trees.to_grid(jnp.array([100.0]), 1.0, 2.0**-24)
    assert (1 - 1e-5) * 2**24 < int(finest[0]) <= 2**24
    assert not np.any(trees.to_grid(jnp.array([100.0]), 1.0, 1.5))
    assert not np.any(trees.to_grid(jnp.array([100.0]), 1.0, 1e300))
    with pytest.raises(InvalidInput, match="a grid needs"):
        trees.to_grid(jnp.array([100.0]), math.inf, 1.0)


def test_a_grid_can_be_compiled_and_stacked():
    rows = np.stack([vector(kind, 37, 0.1, 2) for kind in ("normal", "equal", "geometric", "sparse")])
    together = jax.jit(jax.vmap(lambda row: trees.to_grid(row, 0.3, 1e-4)))(rows)
    for row, on_grid in zip(rows, together, strict=True):
        assert np.all(np.abs(np.asarray(trees.to_grid(row, 0.3, 1e-4)) - np.asarray(on_grid)) <= 1)
        assert grid_within(on_grid, 0.3, 1e-4)


# Sums over clients.


def updates(seed: int = 0, clients: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(clients, 3)) * 10 ** rng.uniform(-3, 3, (clients, 1))).astype(np.float32)


def total(stack: Any, bound: float = 1.0, **options: Any) -> Any:
    return trees.sum_clients(stack, bound, n_expected=4.0, **options).value


GRID = 1e-6


@pytest.mark.parametrize("order", [1, 2])
def test_the_sum_is_the_sum_of_clipped_updates(order):
    stack = {"w": updates(1), "b": (updates(2)[:, 0],)}
    rows = [jax.tree.map(lambda leaf, i=i: leaf[i], stack) for i in range(6)]
    plain = trees.sum_clients(stack, 0.7, n_expected=4.5, order=order)
    twin = functools.reduce(trees.add, [trees.clip(row, 0.7, order) for row in rows])
    assert values(plain.value) == pytest.approx(values(twin), abs=1e-5)
    assert values(plain.value).dtype == np.float32
    assert (plain.l2_bound, plain.n_expected, plain.grid) == (0.7, 4.5, None)
    assert plain.l1_bound == (0.7 if order == 1 else None)

    exactly = trees.sum_clients(stack, 0.7, n_expected=4.5, order=order, grid=GRID)
    assert values(exactly.value).dtype == np.int64
    assert exactly.grid == GRID
    assert (exactly.l2_bound, exactly.l1_bound) == (plain.l2_bound, plain.l1_bound)
    assert values(exactly.value) * GRID == pytest.approx(values(twin), abs=1e-5)
    assert jax.tree.structure(exactly.value) == jax.tree.structure(rows[0])


def test_without_noise_and_without_clipping_it_is_the_plain_sum():
    stack = updates(3)
    assert total(stack, 1e9) == pytest.approx(stack.sum(axis=0), rel=1e-5)


@pytest.mark.parametrize("order", [1, 2])
def test_the_sum_on_the_grid_is_exact(order):
    stack = updates(4)
    parts = np.asarray(trees._grid_each(stack, 1.0, GRID, order))
    assert total(stack, order=order, grid=GRID).tolist() == [sum(column) for column in parts.T.tolist()]
    assert all(grid_within(part, 1.0, GRID, order) for part in parts)


def test_the_sum_on_the_grid_outgrows_32_bits():
    clients, step = 1000, 2.0**-24
    stack = np.full((clients, 2), [[9.0, 0.0]], np.float32)
    one = int(trees.to_grid(stack[0], 1.0, step)[0])
    result = trees.sum_clients(stack, 1.0, n_expected=clients, grid=step).value
    assert result.tolist() == [one * clients, 0]
    assert result[0] > 2**33


@laws
@given(seed=st.integers(0, 2**32), order=orders, client=st.integers(0, 5))
def test_one_client_changes_the_sum_by_no_more_than_the_bound(seed, order, client):
    """Sensitivity, exactly on the grid: removing a client moves the sum by one bound, replacing it by two."""
    stack, other = updates(seed), updates(seed + 1)
    without, replaced = stack.copy(), stack.copy()
    without[client], replaced[client] = 0, -other[client]
    with_it = total(stack, order=order, grid=GRID)
    removed = (with_it - total(without, order=order, grid=GRID)).tolist()
    assert power(removed, order) <= (1 / Fraction(GRID)) ** order
    assert removed == np.asarray(trees._grid_each(stack, 1.0, GRID, order))[client].tolist()
    moved = (with_it - total(replaced, order=order, grid=GRID)).tolist()
    assert power(moved, order) <= (2 / Fraction(GRID)) ** order
    floating = np.asarray(total(stack, order=order), np.float64) - total(without, order=order)
    assert np.linalg.norm(floating, order) <= 1 + 1e-5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("grid", [None, GRID])
def test_a_client_without_finite_numbers_contributes_nothing(bad, grid):
    stack, zeroed = {"a": updates(5), "b": updates(6)}, {"a": updates(5), "b": updates(6)}
    stack["a"][2, :2] = bad
    for leaf in zeroed.values():
        leaf[2] = 0
    assert same_bits(total(stack, grid=grid), total(zeroed, grid=grid))


@pytest.mark.parametrize("grid", [None, GRID])
def test_a_round_in_which_nobody_came_sums_to_zero(grid):
    assert total(np.zeros((0, 3), np.float32), grid=grid).tolist() == [0, 0, 0]


def test_the_order_of_clients_does_not_matter_on_the_grid():
    stack = updates(8)
    assert same_bits(total(stack[::-1].copy(), grid=GRID), total(stack, grid=GRID))


def test_the_expected_number_is_asked_for_by_name():
    with pytest.raises(TypeError, match="positional"):
        trees.sum_clients(updates(), 1.0, 4.0)  # type: ignore[misc]
    assert trees.sum_clients(updates(), bound=1.0, n_expected=4.0).n_expected == 4.0


def test_an_infinite_bound_bounds_nothing():
    with pytest.raises(UnboundedContribution, match="l2_bound must be positive and finite, got inf"):
        total(updates(), math.inf)


# Bounded sums.


def test_a_bounded_sum_is_frozen_and_keeps_what_it_is_given():
    one = BoundedSum({"a": np.ones(2), "b": 1.0}, 1.0, 2.5)
    assert (one.l2_bound, one.n_expected, one.l1_bound, one.grid) == (1.0, 2.5, None, None)
    with pytest.raises(AttributeError):
        one.l2_bound = 2.0  # type: ignore[misc]
    assert BoundedSum(np.ones(2, np.int64), 1.0, 1e-9, l1_bound=2.0, grid=0.5).l1_bound == 2.0
    assert BoundedSum({}, 1e-300, 1.0).value == {}


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_a_sum_without_a_bound_is_refused(bound):
    with pytest.raises(UnboundedContribution, match=r"^l2_bound must be positive and finite"):
        BoundedSum(np.ones(2), bound, 1.0)
    with pytest.raises(UnboundedContribution, match=r"^l1_bound must be positive and finite"):
        BoundedSum(np.ones(2), 1.0, 1.0, l1_bound=bound)


@pytest.mark.parametrize("count", [0, 0.0, -1, math.inf, math.nan])
def test_a_sum_over_nobody_is_refused(count):
    with pytest.raises(InvalidInput, match="n_expected must be positive"):
        BoundedSum(np.ones(2), 1.0, count)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_sum_that_is_not_finite_is_refused(bad):
    with pytest.raises(UnboundedContribution, match="not finite"):
        BoundedSum({"a": np.ones(2), "b": np.array([1.0, bad])}, 1.0, 1.0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_, np.uint8, np.complex64, object])
def test_a_sum_without_a_grid_has_floats(dtype):
    with pytest.raises(InvalidInput, match="a sum on a grid must hold whole numbers"):
        BoundedSum({"a": np.ones(2), "b": np.ones(2, dtype)}, 1.0, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.bool_, np.uint8, np.complex64, object])
def test_a_sum_on_a_grid_has_whole_numbers(dtype):
    with pytest.raises(InvalidInput, match="a sum on a grid must hold whole numbers"):
        BoundedSum({"a": np.ones(2, np.int64), "b": np.ones(2, dtype)}, 1.0, 1.0, grid=0.5)


@pytest.mark.parametrize("grid", [0.0, -1.0, math.inf, math.nan])
def test_a_grid_without_a_step_is_refused(grid):
    with pytest.raises(InvalidInput, match="the step of a grid"):
        BoundedSum(np.ones(2, np.int64), 1.0, 1.0, grid=grid)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 511, 513, 4095, 4097, 8**5 - 1, 10**6 + 7])
def test_a_pairwise_sum_rounds_no_more_often_than_its_proof_says(count):
    """Every number passes at most log2(n) + 4 additions; here an addition is the deeper side, plus one."""

    class Depth:
        def __init__(self, values):
            self.values, self.size = values, len(values)

        def __getitem__(self, where):
            return self.values[where]

        def __add__(self, other):
            return Depth(np.maximum(self.values, other.values) + 1)

    concatenate = lambda parts: Depth(np.concatenate([part.values for part in parts]))  # noqa: E731
    slice_of = lambda whole, first, end: Depth(whole.values[first[0] : end[0]])  # noqa: E731
    with (
        unittest.mock.patch.object(trees.jnp, "concatenate", concatenate),
        unittest.mock.patch.object(trees.jax.lax, "slice", slice_of),
    ):
        deepest = trees._pairwise_sum(Depth(np.zeros(count, int)))  # pyright: ignore[reportArgumentType]
    assert int(deepest) <= math.log2(count) + 4  # pyright: ignore[reportArgumentType]
    assert int(deepest) >= math.log2(count)  # pyright: ignore[reportArgumentType]
