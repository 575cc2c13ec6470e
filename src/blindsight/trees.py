"""Arithmetic on pytrees of arrays, and `BoundedSum`: a sum that carries a bound on the effect of one client.

Privacy depends on the clip, so its rounding error is proved. A plain float32 norm of 1.6 million values can be 2e-5 too
small, and then the "clipped" update is too long. Here squares are summed pairwise, which bounds the relative error by a
few units in the last place, and the scale leaves that much room: the result's exact norm never exceeds the clip, on any
backend.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from blindsight.errors import InvalidInput, UnboundedContribution

__all__ = ["BoundedSum", "add", "clip", "norm", "scale", "size", "sub", "sum_clients", "to_grid", "zeros_like"]

Tree = Any
"""A pytree whose leaves are floating-point arrays (or numbers)."""

_U = 2.0**-24  # unit round-off of float32
_SMALLEST_BOUND = 1e-20  # far above the norm of a trillion coordinates below 2^-126, which processors flush to zero
_LARGEST = float(np.finfo(np.float32).max)
_SMALL = 4096  # leaves with fewer coordinates are concatenated: copying them costs next to nothing


def add(left: Tree, right: Tree) -> Tree:
    """Leaf by leaf, `left + right`."""
    return jax.tree.map(lambda a, b: a + b, left, right)


def sub(left: Tree, right: Tree) -> Tree:
    """Leaf by leaf, `left - right`."""
    return jax.tree.map(lambda a, b: a - b, left, right)


def scale(tree: Tree, factor: float | jax.Array) -> Tree:
    """Every leaf times `factor`, in the leaf's own dtype."""
    return jax.tree.map(lambda leaf: leaf * jnp.asarray(factor, jnp.asarray(leaf).dtype), tree)


def zeros_like(tree: Tree) -> Tree:
    """A tree of zeros of the same shapes and dtypes."""
    return jax.tree.map(jnp.zeros_like, tree)


def size(tree: Tree) -> int:
    """The number of coordinates."""
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(tree))


def norm(tree: Tree, order: int = 2) -> jax.Array:
    """An upper bound on the exact L2 (or, `order=1`, L1) norm over all leaves, tight to about one part in 10^6.

    ===========================  ==================================================
    input                        result
    ===========================  ==================================================
    no leaves, or all zero       0
    any NaN or infinity          not finite
    exact norm above 3.4e38      infinite
    coordinates below 2^-126     may count as zero: processors flush them, and every
                                 bound that `clip` accepts is far larger
    ===========================  ==================================================

    Proof of the bound, with u = 2^-24 and n coordinates. Scaling by a power of two is exact (a division would not be:
    XLA multiplies by the reciprocal, which is flushed to zero for divisors above 8.5e37). Squaring costs (1-u) per
    coordinate at worst; squares that underflow are below 2^-126 while the largest is above 2^-52. A leaf of k
    coordinates, or all small leaves in a row, is added up in at most log2 k + 4 levels of additions of non-negative
    numbers, each losing at most (1-u), and the m sums in log2 m + 4 more. As k + m <= n + 1, that is at most
    2 log2(n + 1) + 6 levels, and the root halves their loss. The factor `1 + _slack(n)` with _slack =
    (2 log2 n + 16) u covers it twice; for the L1 norm, which has no root, once.
    """
    if order not in (1, 2):
        raise InvalidInput(f"order must be 1 or 2, got {order}")
    leaves = [jnp.ravel(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(tree)]
    return _length([leaf for leaf in leaves if leaf.size], order)


@functools.partial(jax.jit, static_argnums=1)  # called several times per update: traced and compiled once
def _length(leaves: list[jax.Array], order: int) -> jax.Array:
    if not leaves:
        return jnp.zeros((), jnp.float32)
    small = [leaf for leaf in leaves if leaf.size < _SMALL]
    parts = [leaf for leaf in leaves if leaf.size >= _SMALL]
    if small:  # as one long leaf: a program has a dozen instructions for each leaf and level
        parts.append(jnp.concatenate(small))
    largest = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(part)) for part in parts])
    exponent = jnp.clip(jnp.right_shift(jax.lax.bitcast_convert_type(largest, jnp.int32), 23) - 126, -100, 126)
    power, root = (jnp.square, jnp.sqrt) if order == 2 else (jnp.abs, jnp.abs)
    total = _pairwise_sum(jnp.stack([_pairwise_sum(power(part * _power_of_two(-exponent))) for part in parts]))
    return root(total) * jnp.float32(1 + _slack(size(leaves))) * _power_of_two(exponent)


def clip(tree: Tree, bound: float | jax.Array, order: int = 2) -> Tree:
    """`tree`, scaled down as a whole so that its exact L2 (or L1) norm is at most `bound`.

    **Guarantee**: the exact norm of the result, computed in real arithmetic over its float32 leaves, is at most
    `bound`; a tree already within it is returned bit for bit, and clipping is idempotent.

    ===========================  =========================================================================
    input                        result
    ===========================  =========================================================================
    norm 0                       unchanged
    bound infinite               unchanged
    bound NaN or below 1e-20     refused; inside a compiled function, which cannot raise, all zeros: the
                                 client contributes nothing
    any NaN or infinity          refused with `UnboundedContribution`; inside a compiled function, zeros
    norm above 8e37 bounds       zeros: the factor is too small for float32
    ===========================  =========================================================================

    >>> clip({"w": jnp.array([3.0, 4.0])}, 10.0)["w"].tolist()
    [3.0, 4.0]
    """
    _check_bound(bound)
    length = norm(tree, order)
    _refuse_non_finite(length)
    room = 1 - 2 * _slack(size(tree))  # so that the result passes when measured again
    limit = bound if isinstance(bound, jax.Array) else jnp.float32(_below(bound))
    inside = length <= limit
    factor = limit * jnp.float32(room) / jnp.where(inside, jnp.ones_like(length), length)
    usable = jnp.isfinite(length) & (limit >= jnp.float32(_below(_SMALLEST_BOUND)))

    def clip_leaf(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf, jnp.float32)
        return jnp.where(usable, jnp.where(inside, leaf, leaf * factor), jnp.zeros_like(leaf))

    return jax.tree.map(clip_leaf, tree)


def to_grid(tree: Tree, bound: float, step: float, order: int = 2) -> Tree:
    """`tree` clipped to `bound` and rounded to multiples of `step`: int32 leaves whose norm is at most `bound / step`.

    **Guarantee**: the exact integer norm of the result is at most `bound / step`. The update is clipped first. Rounding
    to nearest may lengthen it again, so the norm is checked after rounding; if it is too long, the coordinates are
    rounded towards zero instead, which never lengthens (`clip` leaves more room than the rounding error of the division
    by `step`). Non-finite input is refused as in `clip`.
    """
    _check_bound(bound)
    if not 0 < step < math.inf or not bound / step <= 2**24:
        raise InvalidInput(f"a grid needs 0 < step and bound / step at most 2^24, got step {step} for bound {bound}")
    units = jax.tree.map(lambda leaf: leaf * jnp.float32(1 / step), clip(tree, bound, order))
    nearest = jax.tree.map(jnp.round, units)
    # float32 holds every whole number up to 2^24, so `norm` of the rounded tree bounds its exact integer norm
    fits = norm(nearest, order) <= jnp.float32(_below(bound / step))
    chosen = jax.tree.map(lambda up, cut: jnp.where(fits, up, jnp.trunc(cut)), nearest, units)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.int32), chosen)


@dataclasses.dataclass(frozen=True)
class BoundedSum:
    """A sum over clients, each of which added at most `l2_bound` in L2 norm (and `l1_bound` in L1, if set).

    Only a sum that carries its bounds can be released. `n_expected` is its divisor: the expected number of clients,
    never the realised one. `grid`, if set, is the step that the integer leaves count in. `known_finite` is for
    backends, which clip every contribution themselves: a check would wait for the accelerator.
    """

    value: Tree
    l2_bound: float
    n_expected: float
    l1_bound: float | None = None
    grid: float | None = None
    known_finite: bool = dataclasses.field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, bound in (("l2_bound", self.l2_bound), ("l1_bound", self.l1_bound)):
            if bound is not None and not 0 < bound < math.inf:
                raise UnboundedContribution(f"{name} must be positive and finite, got {bound}: clip before summing")
        if not 0 < self.n_expected < math.inf:
            raise InvalidInput(f"n_expected must be positive, got {self.n_expected}: use the expected cohort size")
        if self.grid is not None and not 0 < self.grid < math.inf:
            raise InvalidInput(f"the step of a grid must be positive and finite, got {self.grid}")
        for leaf in jax.tree.leaves(self.value):
            dtype = leaf.dtype if isinstance(leaf, jax.Array) else np.asarray(leaf).dtype  # nothing is fetched
            if dtype.kind != ("f" if self.grid is None else "i"):
                raise InvalidInput(
                    "a sum on a grid must hold whole numbers, a sum without a grid floating-point numbers"
                )
        if self.grid is None and not self.known_finite and not bool(_all_finite(self.value)):
            raise UnboundedContribution("a sum that is not finite cannot be released: clip every update first")

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return size(self.value)


def sum_clients(
    stacked: Tree, bound: float, *, n_expected: float, order: int = 2, grid: float | None = None
) -> BoundedSum:
    """The bounded sum of updates stacked along the first axis, one per client, each clipped to `bound`.

    With `grid`, each is rounded to that step first and the sum is exact, in int64. A client with a non-finite update
    contributes nothing.

    >>> print(np.round(sum_clients(jnp.array([[3.0, 4.0], [0.0, 0.1]]), 1.0, n_expected=2).value, 3))
    [0.6 0.9]
    """
    if grid is None:
        total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), _clip_each(stacked, bound, order))
    else:
        total = jax.tree.map(
            lambda leaf: np.asarray(leaf).astype(np.int64).sum(axis=0), _grid_each(stacked, bound, grid, order)
        )
    return BoundedSum(total, l2_bound=bound, n_expected=n_expected, l1_bound=bound if order == 1 else None, grid=grid)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _clip_each(stacked: Tree, bound: float, order: int) -> Tree:
    return jax.vmap(lambda update: clip(update, bound, order))(stacked)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _grid_each(stacked: Tree, bound: float, step: float, order: int) -> Tree:
    return jax.vmap(lambda update: to_grid(update, bound, step, order))(stacked)


@jax.jit
def _all_finite(tree: Tree) -> jax.Array:
    """Computed on the sum's device: only the answer is fetched."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, finite, jnp.bool_(True))


def _pairwise_sum(values: jax.Array) -> jax.Array:
    """The pairwise sum of a vector of non-negative numbers: log2(n) + 4 roundings, not n.

    Three levels at a time, in one pass over memory: eight parts are added as ((a + b) + (c + d)) + ((e + f) + (g + h)).
    The remainder after division by eight is carried along, which costs the four levels.
    """
    while values.size > 1:
        ways = 8 if values.size >= 8 else 2
        length = values.size // ways
        parts = [jax.lax.slice(values, (part * length,), ((part + 1) * length,)) for part in range(ways)]
        while len(parts) > 1:
            parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=True)]
        rest = jax.lax.slice(values, (ways * length,), (values.size,))
        values = jnp.concatenate([parts[0], rest]) if rest.size else parts[0]
    return values[0]


def _power_of_two(exponent: jax.Array) -> jax.Array:
    """2^exponent as float32, exactly, for exponents from -126 to 127."""
    return jax.lax.bitcast_convert_type(jnp.left_shift(exponent + 127, 23), jnp.float32)


def _slack(count: int) -> float:
    return (2 * math.log2(max(count, 1)) + 16) * _U


def _below(bound: float) -> float:
    """The largest float32 that does not exceed `bound`."""
    nearest = np.float32(min(bound, _LARGEST))
    return float(nearest if float(nearest) <= bound else np.nextafter(nearest, np.float32(0)))


def _check_bound(bound: float | jax.Array) -> None:
    if not isinstance(bound, Tracer) and not bool(bound >= _SMALLEST_BOUND):
        raise InvalidInput(f"a clip bound must be positive (and at least 1e-20), got {bound}")


def _refuse_non_finite(length: jax.Array) -> None:
    if not isinstance(length, Tracer) and not bool(jnp.isfinite(length)):
        raise UnboundedContribution(
            "an update with NaN, infinite or huge coordinates cannot be clipped: find the "
            "division, logarithm or learning rate that caused it, or drop the client"
        )
