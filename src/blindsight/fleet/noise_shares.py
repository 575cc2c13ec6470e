r"""Noise at the sites: each adds a share before its part is masked, so that nobody ever sees a sum without noise.

Every site adds round(g) with g ~ N(0, s^2) to each of its whole numbers, s = 2^bits (`mechanisms.rounded_gaussian`).
At least `fewest` sites are in any sum that sites unmask, and at most `colluding` of these tell others their shares or
leave them out. So the noise that an adversary cannot subtract is the sum of m = fewest - colluding shares, or of more.
The grid is chosen so that sqrt(m) s grid steps are `noise_multiplier` times one client's bound. Who is in the sum does
not depend on the noise: whatever the coordinator sees before it decides is masked.

**Claim.** The sum of m such shares is as private as one continuous Gaussian of variance m s^2, up to a relative
eta < 10^-1000 in all probabilities. (A sum of rounded Gaussians is *not* a rounded Gaussian of the summed variance: it
is wider by m/12 or so. The claim needs only that it is no less private.)

**Proof.** Let f_i = g_i - round(g_i), and give all f_i of all coordinates to the adversary, too. They do not depend on
the data: sums are whole numbers. Consider one coordinate.

1. Given f_i, the share z_i = round(g_i) has P(z_i = k) proportional to rho_s(k + f_i), with
   rho_s(x) = exp(-x^2/(2 s^2)): a discrete Gaussian on a shifted grid. The z_i are independent given the f_i.
2. *Adding two.* Let z and w be such variables of scales a and b and shifts f and h, and c = k + f + h. Completing
   the square, P(z + w = k) is proportional to
   sum_j rho_a(j + f) rho_b(k - j + h) = rho_r(c) sum_j rho_q(j + f - c a^2/r^2), with r^2 = a^2 + b^2, q = a b/r.
   By Poisson's summation formula the last sum is q sqrt(2 pi) (1 + 2 sum_{l>=1} exp(-2 pi^2 q^2 l^2) cos(2 pi l t))
   for some t: within a factor 1 +- theta of a constant, theta <= 2.001 exp(-2 pi^2 q^2) if q^2 >= 1/2. So z + w
   has, up to a factor between (1 - theta)/(1 + theta) and its inverse, the law of one such variable of scale r and
   shift f + h.
3. *Adding all*, one after the other: adding an independent variable to two others keeps a bound on the ratio of their
   probabilities, and q^2 = j s^2/(j + 1) >= s^2/2. So given all f_i, z_1 + ... + z_m has the law of one discrete
   Gaussian of scale sqrt(m) s and shift F = f_1 + ... + f_m up to factors e^+-eta with
   eta <= 5 (m - 1) exp(-pi^2 s^2). The coordinates are independent, so over d coordinates of any number of releases
   eta <= 5 (m - 1) d exp(-pi^2 s^2), path by path, also if later releases depend on earlier ones.
4. *Replacing it by that one* gives an ideal release: the f_i, and x + Z with Z discrete Gaussian of scale sqrt(m) s and
   shift F. But that is post-processing of x + G with G ~ N(0, m s^2): the fractional part of G has the law of that of
   F, as g_1 + ... + g_m ~ N(0, m s^2) differs from F by a whole number; given it, round(G) has the law of Z by step
   1; and the f_i are drawn given F, without the data.
5. So if the continuous mechanism is (epsilon, delta)-DP, alone, amplified by sampling or composed, then the actual one
   is (epsilon + 2 eta, e^eta delta)-DP.

Scales are at least 2^4 = 16, so exp(-pi^2 s^2) < 10^-1097: with fewer than 10^90 numbers in all releases eta is below
10^-1000, which no accountant's arithmetic can tell from zero. The event is that of the continuous Gaussian.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from blindsight.accounting import events
from blindsight.errors import InvalidInput, RelationMismatch
from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.terms import FEWEST_SITES, Terms, least_threshold
from blindsight.keys import Key
from blindsight.mechanisms.release import Release
from blindsight.mechanisms.rounded_gaussian import LARGEST_BITS, drawn
from blindsight.trees import BoundedSum, Tree

__all__ = ["LEAST_BITS", "NoiseShares", "NoisedSum", "SiteNoise", "log_ratio_bound"]

LEAST_BITS = 4
"""Smallest log2 of a share's scale, for which the proof makes eta vanish."""

_FINE = 12  # log2 of a share's scale that makes rounding by clients negligible if they round in all directions
_ALIKE = 8.0  # the noise is as many times what clients round off together if all of them round alike
_LARGEST_CLIENT = 2.0**24  # grid steps in one client's bound that `trees.to_grid` allows
_DEVIATIONS = 16.0  # of the summed noise that fit beside all clients; more happen with probability 1e-57
_ROUNDED_UP = 1 + 2.0**-50  # a larger step means fewer steps in a client's bound: rounding errors go to the safe side


def log_ratio_bound(scale: float, shares: int, numbers: int = 1) -> float:
    """ln(eta): how far the sum of `shares` rounded Gaussians of this scale is from the ideal one, at most.

    >>> log_ratio_bound(2.0**LEAST_BITS, 1000, 10**80) < math.log(10) * -1000
    True
    """
    if scale < 1:
        raise InvalidInput(f"the bound is proved for scales of at least 1, got {scale}")
    return math.log(5 * max(shares - 1, 1) * numbers) - (math.pi * scale) ** 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseShares:
    """How much noise each site adds, and what all of it together costs a client.

    Args:
        noise_multiplier: Noise in units of one client's bound that remains in the worst case that is allowed for.
        sites: Number of sites that may take part.
        fewest: Smallest number of sites whose sum they unmask, as in `Terms`.
        colluding: Number of sites that may disclose or leave out their shares.
        clients: Largest number of clients of all sites together in one sum; public. The grid leaves room for them.
        modulus_bits: 32 or 64, as in `Terms`.
    """

    noise_multiplier: float
    sites: int
    fewest: int
    colluding: int
    clients: int
    modulus_bits: int = 32

    def __post_init__(self) -> None:
        if self.sites < FEWEST_SITES:
            raise Refused(Reason.TOO_FEW_SITES, f"noise at the sites needs {FEWEST_SITES} sites, got {self.sites}")
        least = least_threshold(self.sites)
        if not least <= self.fewest <= self.sites:
            raise Refused(
                Reason.TOO_FEW_SITES, f"of {self.sites} sites at least {least} must be in a sum, got {self.fewest}"
            )
        if not 0 <= self.colluding <= 2 * least - self.sites - 1:
            raise InvalidInput(
                f"a secure sum of {self.sites} sites withstands {2 * least - self.sites - 1} colluding ones, got "
                f"{self.colluding}"
            )
        if not 2**-12 <= self.noise_multiplier <= 2**20 or self.clients < 1 or self.modulus_bits not in (32, 64):
            raise InvalidInput(
                f"noise shares need a noise_multiplier between 2^-12 and 2^20, at least one client and 32 or 64 bits, "
                f"got {self}"
            )
        if self.bits < LEAST_BITS:
            raise InvalidInput(
                f"{self.clients:,} clients with a noise multiplier of {self.noise_multiplier:g} leave no room for "
                f"noise in {self.modulus_bits} bits: use 64 bits, or fewer clients in a round"
            )

    @property
    def counted(self) -> int:
        """m: the shares that the guarantee counts on."""
        return self.fewest - self.colluding

    @property
    def bits(self) -> int:
        """log2 of a share's scale in grid steps: as fine as the modulus and the clients' rounding allow."""
        client = math.sqrt(self.counted) / self.noise_multiplier  # bound of a client in units of a share's scale
        widest = self.clients * client + _DEVIATIONS * math.sqrt(self.sites)
        room = min(_LARGEST_CLIENT / client, 2.0 ** (self.modulus_bits - 1) / widest)
        return min(LARGEST_BITS, math.frexp(room / _ROUNDED_UP)[1] - 1)

    def step(self, l2_bound: float) -> float:
        """The grid step to which clients round contributions of at most `l2_bound`."""
        return self.noise_multiplier * l2_bound / (math.sqrt(self.counted) * 2**self.bits) * _ROUNDED_UP

    @property
    def planned_event(self) -> events.Gaussian:
        """The event of releasing one sum, with the trust it needs."""
        return events.Gaussian(
            self.noise_multiplier, rounded=True, sites=self.sites, fewest=self.fewest, colluding=self.colluding
        )

    def event(self, total: "BoundedSum | NoisedSum") -> events.Gaussian:
        """The event of releasing `total`; refuses a sum on another grid."""
        if total.grid != self.step(total.l2_bound):
            raise RelationMismatch(
                f"noise shares need a sum on the grid of step {self.step(total.l2_bound)!r}, got {total.grid!r}: round "
                f"every update with trees.to_grid"
            )
        return self.planned_event

    def grid(self, bound: float) -> float:
        """The grid step, as every mechanism says it."""
        return self.step(bound)

    def begin(self, like: Tree, *, key: Key) -> None:
        """Nothing is drawn here: the noise is the sites'."""
        del like, key

    def release(self, total: "BoundedSum | NoisedSum", *, key: Key, begun: object = None) -> Release[Any]:
        """The noised mean, its event, and the standard deviation of the noise in it.

        The sum of a fleet has the sites' noise in it and is unmasked now. To the sum of a simulation the shares of all
        sites are added, as they would be drawn from `key`.
        """
        del begun
        event = self.event(total)
        if isinstance(total, NoisedSum):
            numbers, survivors = total.unmasked()
        else:
            numbers, survivors = self._wrapped(_flat(total) + self.all_shares(total.size, key)), self.sites
        factor = self.step(total.l2_bound) / total.n_expected
        mean = (_signed(numbers, self.modulus_bits).astype(np.float64) * factor).astype(np.float32)
        like = total.like if isinstance(total, NoisedSum) else total.value
        return Release(_shaped(mean, like), event, self._noise_std(factor, survivors))

    def _noise_std(self, factor: float, survivors: int) -> float:
        if not self.fewest <= survivors <= self.sites:
            raise Refused(Reason.TOO_FEW_SITES, f"a sum needs {self.fewest} to {self.sites} sites, got {survivors}")
        return math.sqrt(survivors) * 2**self.bits * factor

    def check_terms(self, terms: Terms) -> None:
        """Refuse a secure sum on other terms than the noise is made for."""
        wanted = (self.sites, self.fewest, self.modulus_bits)
        actual = (len(terms.parties), terms.fewest, terms.bits)
        if wanted != actual or self.colluding > terms.most_colluding:
            raise RelationMismatch(
                f"the noise is made for {self.sites} sites, at least {self.fewest} in a sum, {self.colluding} "
                f"colluding and {self.modulus_bits} bits: run the secure sum on the same terms"
            )

    def contribution(self, part: BoundedSum, *, place: int, key: Key) -> np.ndarray:
        """A site's part plus its share of the noise, modulo 2^modulus_bits: ready to be masked.

        `place` is the site's place among the parties: sites with the same reproducible key still draw different noise.
        `key` must never be used for anything else.
        """
        self.event(part)
        return self._wrapped(_flat(part) + self.share(part.size, place, key))

    def share(self, size: int, place: int, key: Key) -> np.ndarray:
        """The share of the site at `place`."""
        return drawn(self.bits, size, key.derive("noise share", place).secret)

    def all_shares(self, size: int, key: Key) -> np.ndarray:
        """The sum of all sites' shares, if all draw them from one key: for simulations."""
        return np.sum([self.share(size, place, key) for place in range(1, self.sites + 1)], axis=0)

    def _wrapped(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.astype(f"<u{self.modulus_bits // 8}")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class NoisedSum:
    """A sum over sites that is still masked; the sites' noise is in it.

    Nobody can read it before `unmasked` is called, once it is paid for: a release unmasks it, and nothing else does.
    `like` has the shapes of the update; `unmasked` gives the numbers modulo the mechanism's modulus, and the number of
    sites that are in them. `identity` names this attempt at this sum: reproducible noise is drawn again for no other.
    """

    identity: str
    unmasked: Callable[[], tuple[np.ndarray, int]]
    like: Any
    l2_bound: float
    n_expected: float
    grid: float

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.like))


def _flat(total: BoundedSum) -> np.ndarray:
    leaves = [np.asarray(leaf).astype(np.int64).ravel() for leaf in jax.tree.leaves(total.value)]
    return np.concatenate(leaves) if leaves else np.zeros(0, np.int64)


def _signed(numbers: Any, bits: int) -> np.ndarray:
    return np.asarray(numbers).astype(f"<u{bits // 8}", casting="equiv").view(f"<i{bits // 8}")


def _shaped(flat: np.ndarray, like: Any) -> Any:
    """The numbers as a tree like that of the update."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    parts = [flat[end - math.prod(leaf.shape) : end] for leaf, end in zip(leaves, ends.tolist(), strict=True)]
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SiteNoise:
    """The terms on which the sites of a fleet add noise: public, and the same for every sum of a job.

    Args:
        sites: Number of sites that may take part.
        fewest: Smallest number of sites whose sum is unmasked.
        colluding: Number of sites that may disclose or leave out their shares.
        clients: Number of clients that all sites together declare.
    """

    sites: int
    fewest: int
    colluding: int
    clients: int

    def mechanisms(self, multipliers: Sequence[float]) -> list[NoiseShares]:
        """The mechanisms of parts that are summed together: all modulo 2^32 if that leaves a fine grid, else 2^64.

        Clients with equal values round alike, and their sum is off by up to half a step for each of them. Intervals
        count noise alone, so that has to be small beside it.
        """
        narrow = self._narrow(multipliers)
        is_fine = all(self.clients / 2 * _ALIKE <= math.sqrt(one.counted) * 2**one.bits for one in narrow)
        return narrow if narrow and is_fine else [self._shares(one, 64) for one in multipliers]

    def mechanism(self, noise_multiplier: float) -> NoiseShares:
        """The mechanism of a model's update, whose coordinates clients round in all directions."""
        return (self._narrow([noise_multiplier]) or [self._shares(noise_multiplier, 64)])[0]

    def _narrow(self, multipliers: Sequence[float]) -> list[NoiseShares]:
        """The mechanisms modulo 2^32; none if their grid is too coarse."""
        with contextlib.suppress(InvalidInput):
            narrow = [self._shares(one, 32) for one in multipliers]
            return narrow if all(one.bits >= _FINE for one in narrow) else []
        return []

    def _shares(self, noise_multiplier: float, modulus_bits: int) -> NoiseShares:
        terms = dataclasses.asdict(self)
        return NoiseShares(noise_multiplier=noise_multiplier, modulus_bits=modulus_bits, **terms)
