r"""Gaussian noise rounded to whole numbers: exactly distributed, at the speed of floating point.

**What is drawn.** ChaCha20 gives every pair of coordinates two endless strings of random bits, read as real numbers u
and v in [0, 1). By Box and Muller, sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2 pi v) are independent standard
normals, as real numbers. The noise is their multiple by s = 2^bits, rounded to the nearest whole number: a function of
the bits and of nothing else. For whole x, x + round(g) = round(x + g), so a sum plus this noise is post-processing of
the continuous Gaussian mechanism, and every bound for that one holds without slack.

**How it is computed.** From the first 64 bits of u and v, in float64, an approximation h of g is computed with a proved
bound on |h - g|. If no boundary between whole numbers lies within a margin m of h, then round(h) = round(g). Otherwise
(twice in 10^7 coordinates) `decide` reads more bits and computes with more digits until the same test passes. So every
machine draws the same numbers from the same key, whatever its rounding.

**The bound.** Let e = 2^-53. Only +, -, *, / and sqrt of float64 are used, each with a relative error of at most e
(IEEE 754; CUDA rounds all five correctly in double precision), and no library's logarithm, sine or cosine. A fused
multiplication and addition rounds once instead of twice, which the bound allows. Constants are correct to a relative e.
Products of constants do not occur, except with powers of two, so that no compiler can merge two into one. No number is
so small (all but 0 exceed 2^-200) that it matters how a processor treats subnormal ones. What would break the
bound is a compiler that reorders sums: on CPUs `-ffast-math` is turned off here whatever `XLA_FLAGS` says, and on
accelerators other than GPUs, whose float64 may be emulated or missing, NumPy draws on the host.

* u, as hat u = (64 bits + 1/2) 2^-64: the bits left out are worth at most 2^-65, the conversion e:
  |hat u - u| <= 2^-65 + e u.
* L = -ln(hat u) = E ln 2 - ln(1 + f), where 1 + f is in [1/sqrt 2, sqrt 2) and f is exact. With t = f/(2 + f), at most
  2e wrong, ln(1 + f) = 2t (1 + t^2/3 + t^4/5 + ...). Since t^2 < 0.0295, the series after t^22/23 is worth 2^-65, its
  error and that of its argument less than 1.2e, and the product's 1e: ln(1 + f) is 5e wrong at most, E ln 2 is 2e, and
  their sum e. With |ln(1 + f)| <= 0.35 and E ln 2 <= L + 0.35 that is |error of L| <= e (3L + 2.5). The error of u
  adds 2^-65/u + e, each times at most 1.01.
* r = sqrt(2L): half of the relative error of L, plus e for the root. In all at most
  2.5e + 1.8e/L + 0.51 * 2^-65/(uL), as long as the relative error of L is below 2^-10.
* The angle: the first three bits of v choose an eighth of the circle, exactly; the others are x in [0, 1), measured
  from the nearer axis. a = x pi/4 is 4e wrong (bits left out: 2^-62 = 2^-9 e, in all below). The series of sin a / a
  and cos a in a^2 < 0.617 after a^18/19! and a^18/18! are worth less than 2^-67. The error of a^2, 9e, changes sin a by
  at most 0.11 * 9e of it and cos a by 0.28 * 9e; rounding while summing adds 1.4e and 1.9e; sin a has 5e more from the
  factor a. So sin a <= 0.71 is at most 5.3e wrong and cos a at most 4.5e, in absolute numbers.
* The product with r rounds once more, with s not at all.

In all |h - g| <= b = s r (9e + 1.8e/L + 0.51 * 2^-65/(uL)). The code takes m = s r (32e + 8e/L + 2^-64/(uL)), computed
from hat u and hat L, and decides again wherever the bracket exceeds 2^-20 or is not a number. That is more than 2b:
a compiler may compute h twice, in one kernel to round it and in another to test it, and not with the same roundings. If
no boundary lies within m of the tested one, none lies within m - b >= b of g, nor therefore between g and the rounded
one. The rest of m - 2b, at least s r (14e + 4.4e/L) >= 44e, covers what is not in the bound: the errors of hat u and
hat L themselves (below 2^-10 of the bracket), and the comparison, in which h - round(h) is exact, or rounded once, by
at most e/2, where it is fused with the last product, and its distance from 1/2 is rounded by at most e/2.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from blindsight import trees
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.mechanisms import chacha

__all__ = [
    "LARGEST_BITS",
    "WORTH_COMPILING",
    "BegunNoise",
    "begin",
    "decide",
    "drawn",
    "rounded_gaussian",
    "rounded_gaussians",
]

LARGEST_BITS = 24
"""Largest log2 of a scale: a sum of half a million clients plus noise stays far below 2^53."""

_EPSILON = 2.0**-53
_PER_BLOCK = 8  # coordinates: four pairs of 64-bit numbers
_CHUNK_BLOCKS = 1 << 12  # small enough for a processor's cache
_MOST = _PER_BLOCK << 32
WORTH_COMPILING = 1 << 17  # coordinates: NumPy needs 20 ms for these, and every shape is compiled for seconds
_UNSURE_AT_ONCE = 64
_AS_WRITTEN = {"xla_cpu_enable_fast_math": False}  # stronger than XLA_FLAGS: sums are not reordered
_MAIN, _MORE = 0, 1  # first word of the nonce: the bits everyone needs, and those that `decide` adds
_LOGARITHM = [1 / (2 * k + 1) for k in range(12)]
_SINE = [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)]
_COSINE = [(-1) ** k / math.factorial(2 * k) for k in range(10)]


def rounded_gaussian(bits: int, count: int, secret: bytes) -> np.ndarray:
    """The first `count` coordinates of the noise of scale 2^bits that belongs to `secret`, as int64."""
    return rounded_gaussians(bits, count, [secret])[0]


def rounded_gaussians(bits: int, count: int, secrets: Sequence[bytes]) -> np.ndarray:
    """The noise of every secret in a row of its own: little noise for many is drawn faster at once."""
    _check(bits, count)
    blocks, keys = -(-count // _PER_BLOCK), np.stack([chacha.key_words(secret) for secret in secrets], axis=1)
    drawn = np.empty(len(secrets) * blocks * _PER_BLOCK, np.int64)
    for begin in range(0, len(secrets) * blocks, _CHUNK_BLOCKS):
        rows, counters = np.divmod(np.arange(begin, min(begin + _CHUNK_BLOCKS, len(secrets) * blocks)), blocks)
        noise, unsure = _approximate(keys[:, rows], counters.astype(np.uint32), bits)
        offset = begin * _PER_BLOCK
        for place in np.flatnonzero(unsure):
            row, index = divmod(offset + int(place), blocks * _PER_BLOCK)
            noise[place] = decide(secrets[row], index, bits)
        drawn[offset : offset + noise.size] = noise
    return drawn.reshape(len(secrets), -1)[:, :count]


def drawn(bits: int, count: int, secret: bytes) -> np.ndarray:
    """What `rounded_gaussian` draws, as int32 or int64: compiled if there is enough of it, a third of the time."""
    return begin(count, bits, secret, on_device=False).numbers()


def begin(count: int, bits: int, secret: bytes, *, on_device: bool) -> "BegunNoise":
    """Start to draw the noise of `count` coordinates, before the sum that it is for is ready.

    An accelerator computes what it is asked for in order. Asked for the noise first and for the sum second, it still
    computes the sum while the host decides what is unsure about the noise, so that neither waits for the other.
    """
    _check(bits, count)
    backend = jax.default_backend()
    if backend == "gpu" and (on_device or count >= WORTH_COMPILING):
        draw, chunk = _draw_on_gpu, 0
    elif backend == "cpu" and count >= WORTH_COMPILING:
        draw, chunk = _draw_on_cpu, _CHUNK_BLOCKS
    else:
        return BegunNoise(rounded_gaussian(bits, count, secret), None, bits, secret)
    with jax.enable_x64(True):
        noise, unsure, number = draw(chacha.key_words(secret), count, bits, chunk)
    return BegunNoise(noise, (unsure, number), bits, secret)


class BegunNoise:
    """The noise of one release; used for a second one, it would cancel in their difference.

    `source` is the secret that it is drawn from, or names it where the noise is an argument of a compiled program.
    """

    def __init__(self, noise: Any, unsure: tuple[jax.Array, jax.Array] | None, bits: int, source: Any) -> None:
        self.bits, self.source = bits, source
        self._noise, self._unsure, self._is_used = noise, unsure, False

    def numbers(self) -> np.ndarray:
        """The noise alone, for callers that add it to a sum elsewhere."""
        return np.asarray(self.decided())

    def decided(self) -> np.ndarray | jax.Array:
        """The noise alone, where it was drawn, with its few unsure coordinates decided on the host."""
        self._use()
        return self._noise if self._unsure is None else self._settled(*self._unsure)

    def added_to(self, tree: Any, factor: float) -> Any:
        """(leaf + noise) * factor in float32 for every leaf of whole numbers."""
        leaves, structure = jax.tree.flatten(tree)
        leaves = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in leaves]  # a plain number is one
        if trees.size(leaves) != self._noise.size:
            raise InvalidInput(f"noise for {self._noise.size:,} coordinates, but the sum has {trees.size(leaves):,}")
        noise = self.decided()
        if isinstance(noise, np.ndarray):
            ends = np.cumsum([leaf.size for leaf in leaves])
            parts = np.split(noise, ends[:-1]) if leaves else []
            noised = [_scaled(np.asarray(leaf), part, factor) for leaf, part in zip(leaves, parts, strict=True)]
            return jax.tree.unflatten(structure, noised)
        with jax.enable_x64(True):
            noised = _add_compiled(leaves, noise, np.float64(factor))
        return jax.tree.unflatten(structure, noised)

    def _use(self) -> None:
        if self._is_used:
            raise PrivacyError("this noise has been released with another sum: draw separate noise for each")
        self._is_used = True

    def _settled(self, unsure: jax.Array, number: jax.Array) -> jax.Array:
        left = int(number)
        if not left:
            return self._noise
        places = np.asarray(_places(unsure) if left <= _UNSURE_AT_ONCE else np.flatnonzero(unsure))
        # anything above 128 standard deviations is an error, never cut off
        answers = [decide(self.source, place, self.bits) if place < unsure.size else 0 for place in places.tolist()]
        return _corrected(self._noise, places, np.array(answers, np.int32))


def decide(secret: bytes, index: int, bits: int) -> int:
    """Coordinate `index` of the noise, from as many bits and digits as it takes.

    As in the fast computation, the distance to the nearest boundary is compared with a bound on the error: 2^-(P - 16)
    relative for P digits, and the bits of u and v that have not been read.
    """
    pair, is_sine = index // _PER_BLOCK * 4 + index % 4, index % _PER_BLOCK >= 4
    key = chacha.key_words(secret)
    words = [int(word[0]) for word in chacha.blocks(key, _nonce(_MAIN), np.array([pair // 4], np.uint32))]
    u, v = (words[place + pair % 4] << 32 | words[place + 4 + pair % 4] for place in (0, 8))
    known = 64
    while True:
        precision = known + 192
        with mpmath.workprec(precision):
            first, second = (mpmath.ldexp(mpmath.mpf(2 * number + 1), -known - 1) for number in (u, v))
            length = -mpmath.log(first)
            radius = mpmath.ldexp(mpmath.sqrt(2 * length), bits)
            turn = mpmath.sinpi(2 * second) if is_sine else mpmath.cospi(2 * second)
            exact = radius * turn
            nearest: Any = mpmath.nint(exact)
            unread = mpmath.ldexp(1, -known) * (4 + 1 / (first * length))
            margin = radius * (mpmath.ldexp(1 + 1 / length, 16 - precision) + unread)
            if mpmath.mpf(1) / 2 - abs(exact - nearest) > margin and unread < 2.0**-20:
                return int(nearest)
        more = chacha.blocks(key, _nonce(_MORE, pair), np.array([(known - 64) // 256], np.uint32))
        for word in more[:8]:
            u = u << 32 | int(word[0])
        for word in more[8:]:
            v = v << 32 | int(word[0])
        known += 256


def _check(bits: int, count: int) -> None:
    if not 1 <= bits <= LARGEST_BITS:
        raise InvalidInput(f"the scale must be 2^1 to 2^{LARGEST_BITS}, got 2^{bits}")
    if not 0 <= count <= _MOST:
        raise InvalidInput(f"one key has noise for 0 to {_MOST:,} coordinates, got {count:,}: use several keys")


def _nonce(purpose: int, pair: int = 0) -> tuple[np.uint32, ...]:
    return np.uint32(purpose), np.uint32(pair & 0xFFFFFFFF), np.uint32(pair >> 32)


def _approximate(key: Any, counters: Any, bits: int) -> tuple[Any, Any]:
    """The noise of the blocks with these counters, and whether each coordinate has to be decided again.

    The eight coordinates of a block stand together: the cosines of its four pairs, then their sines.
    """
    xp: Any = np if isinstance(counters, np.ndarray) else jnp
    words = chacha.blocks(key, _nonce(_MAIN), counters)
    normals, margin = _normals([xp.stack(words[place : place + 4], axis=-1) for place in (0, 4, 8, 12)], bits, xp)
    nearest = xp.round(normals)
    sure = 0.5 - xp.abs(normals - nearest) > margin
    return nearest.astype(np.int64).reshape(-1), ~sure.reshape(-1)


def _normals(words: Sequence[Any], bits: int, xp: Any) -> tuple[Any, Any]:
    """Two approximate normals of scale 2^bits from the two words of u and those of v, and the margin m."""
    high, low, angle_high, angle_low = words
    uniform = _joined(high, low) * 2.0**-64
    length = _minus_log(uniform, xp)
    radius = xp.sqrt(2.0 * length) * 2.0**bits
    with np.errstate(divide="ignore", invalid="ignore"):  # a length of zero has no bound
        error = 32 * _EPSILON + (8 * _EPSILON + 2.0**-64 / uniform) / length
        margin = xp.where(error < 2.0**-20, radius * error, np.inf)
    normals = radius[..., None, :] * xp.stack(_cosine_and_sine(angle_high, angle_low, xp), axis=-2)
    return normals, margin[..., None, :]


def _joined(high: Any, low: Any) -> Any:
    """The 64-bit number plus one half, rounded once."""
    return high.astype(np.float64) * 2.0**32 + (low.astype(np.float64) + 0.5)


def _minus_log(uniform: Any, xp: Any) -> Any:
    mantissa, exponent = xp.frexp(uniform)
    is_small = mantissa < math.sqrt(0.5)
    excess = xp.where(is_small, mantissa * 2.0, mantissa) - 1.0
    halvings = is_small.astype(np.float64) - exponent.astype(np.float64)
    ratio = excess / (2.0 + excess)
    return halvings * math.log(2) - 2.0 * ratio * _series(_LOGARITHM, ratio * ratio)


def _cosine_and_sine(high: Any, low: Any, xp: Any) -> tuple[Any, Any]:
    """cos and sin of the turn with these 64 bits, from a series on an eighth of the circle."""
    eighth = high >> np.uint32(29)
    is_odd = (eighth & np.uint32(1)) == 1
    inside = high & np.uint32(0x1FFFFFFF)
    inside, low = xp.where(is_odd, inside ^ np.uint32(0x1FFFFFFF), inside), xp.where(is_odd, ~low, low)
    angle = _joined(inside, low) * (2.0**-61 * (math.pi / 4))
    square = angle * angle
    sine, cosine = angle * _series(_SINE, square), _series(_COSINE, square)
    swapped = ((eighth + np.uint32(1)) & np.uint32(2)) == 2  # eighths 1, 2, 5 and 6 lie nearer the other axis
    across, up = xp.where(swapped, sine, cosine), xp.where(swapped, cosine, sine)
    is_left, is_down = ((eighth + np.uint32(2)) & np.uint32(4)) == 4, eighth >= 4
    return xp.where(is_left, -across, across), xp.where(is_down, -up, up)


def _series(coefficients: list[float], x: Any) -> Any:
    """A polynomial by Horner's rule."""
    total = coefficients[-1] * x + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        total = total * x + coefficient
    return total


def _scaled(whole: Any, noise: Any, factor: Any) -> Any:
    """After the noise, arithmetic is post-processing."""
    noisy = whole.astype(np.int64) + noise.astype(np.int64).reshape(whole.shape)
    return (noisy.astype(np.float64) * factor).astype(np.float32)


def _drawn(key: jax.Array, total: int, bits: int, chunk: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The noise, which coordinates are unsure, and their number; 128 standard deviations fit into 32 bits."""
    count = -(-total // _PER_BLOCK)
    if chunk and count > chunk:  # in pieces that stay in the processor's cache
        starts = jnp.arange(-(-count // chunk), dtype=jnp.uint32) * np.uint32(chunk)
        within = jnp.arange(chunk, dtype=jnp.uint32)
        noise, unsure = jax.lax.map(lambda begin: _approximate(key, begin + within, bits), starts)
    else:
        noise, unsure = _approximate(key, jnp.arange(count, dtype=jnp.uint32), bits)
    unsure = unsure.reshape(-1)[:total]
    return noise.reshape(-1)[:total].astype(np.int32), unsure, jnp.sum(unsure, dtype=np.int32)


_draw_on_gpu = jax.jit(_drawn, static_argnums=(1, 2, 3))
_draw_on_cpu = jax.jit(_drawn, static_argnums=(1, 2, 3), compiler_options=_AS_WRITTEN)


@jax.jit
def _add_compiled(leaves: list[jax.Array], noise: jax.Array, factor: jax.Array) -> list[jax.Array]:
    ends = np.cumsum([leaf.size for leaf in leaves])
    return [
        _scaled(leaf, noise[end - leaf.size : end], factor) for leaf, end in zip(leaves, ends.tolist(), strict=True)
    ]


@jax.jit
def _places(unsure: jax.Array) -> jax.Array:
    return jnp.nonzero(unsure, size=_UNSURE_AT_ONCE, fill_value=unsure.size)[0]


@jax.jit
def _corrected(noise: jax.Array, places: jax.Array, answers: jax.Array) -> jax.Array:
    return noise.at[places].set(answers, mode="drop")
