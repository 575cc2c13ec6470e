"""Shares of noise: their sum is at least as private as the Gaussian it is accounted as, and not much larger."""

import functools
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
import secure_round
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from secure_round import names

from blindsight import keys, trees
from blindsight.accounting import Relation, certify, epsilon
from blindsight.accounting.events import Gaussian, Poisson, from_json, to_json
from blindsight.accounting.gaussian_curve import gaussian_delta
from blindsight.errors import InvalidInput, RelationMismatch
from blindsight.fleet.noise_shares import LEAST_BITS, NoisedSum, NoiseShares, SiteNoise, log_ratio_bound
from blindsight.fleet.secure_sum import Coordinator, Refused
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.mechanisms.release import Release


def released(plan: NoiseShares, total: np.ndarray, *, l2_bound: float, n_expected: float, survivors: int) -> Release:
    """The release of a sum that sites have unmasked."""
    summed = NoisedSum(
        identity="test",
        unmasked=lambda: (total, survivors),
        like=np.zeros(total.shape, np.float32),
        l2_bound=l2_bound,
        n_expected=n_expected,
        grid=plan.step(l2_bound),
    )
    return plan.release(summed, key=keys.root())


TEN = NoiseShares(noise_multiplier=1.0, sites=10, fewest=7, colluding=2, clients=1000)


# --- the law of the sum, by exact convolution


def rounded_pmf(scale: float) -> np.ndarray:
    """P(round(g) = k) for k = -K..K, in tails as precise as in the middle."""
    ends = np.arange(0, math.ceil(14 * scale) + 2) - 0.5
    upper = stats.norm.sf(ends / scale)
    half = upper[:-1] - upper[1:]  # k = 0, 1, 2, ...
    return np.concatenate([half[:0:-1], half])


@functools.cache
def summed_pmf(scale: float, shares: int) -> np.ndarray:
    one = rounded_pmf(scale)
    return functools.reduce(np.convolve, [one] * shares)


def hockey_stick(pmf: np.ndarray, shift: int, epsilon: float) -> float:
    """The exact delta at `epsilon` between the sum and the sum moved by `shift`: the larger of both directions."""
    here, there = np.pad(pmf, (0, shift)), np.pad(pmf, (shift, 0))
    ways = ((here, there), (there, here))
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in ways)


def claimed(scale: float, shares: int, shift: int, epsilon: float) -> float:
    """What the proof claims: the continuous Gaussian's delta, with eta."""
    eta = math.exp(log_ratio_bound(scale, shares))
    return math.exp(eta) * float(gaussian_delta(shift / (scale * math.sqrt(shares)), max(epsilon - 2 * eta, 0.0)))


CASES = [
    (scale, shares, shift)
    for scale, shares in itertools.product([1.0, 1.5, 2.0, 4.0, 16.0], [1, 2, 3, 7, 20])
    for shift in (1, max(1, round(scale)), max(2, round(3 * scale * math.sqrt(shares))))
]


@pytest.mark.parametrize(("scale", "shares", "shift"), CASES)
def test_the_claimed_delta_is_at_least_the_true_one(scale: float, shares: int, shift: int):
    pmf = summed_pmf(scale, shares)
    for wanted in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        true, bound = hockey_stick(pmf, shift, wanted), claimed(scale, shares, shift, wanted)
        assert true <= bound * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("shares", [2, 3, 7, 20])
def test_the_claim_is_tight_and_one_share_more_would_be_a_lie(shares: int):
    """A test that no sum of shares could fail would prove nothing."""
    scale, shift = 16.0, 16
    true = hockey_stick(summed_pmf(scale, shares), shift, 0.5 / math.sqrt(shares))
    assert true > 0.98 * claimed(scale, shares, shift, 0.5 / math.sqrt(shares))
    assert true > 1.01 * claimed(scale, shares + 1, shift, 0.5 / math.sqrt(shares))


def shifted(scale: float, shift: float, reach: int) -> np.ndarray:
    """The discrete Gaussian on the shifted grid, k = -reach..reach."""
    weights = np.exp(-((np.arange(-reach, reach + 1) + shift) ** 2) / (2 * scale**2))
    return weights / weights.sum()


@pytest.mark.parametrize("scale", [1.0, 1.2, 2.0])
@pytest.mark.parametrize("shares", [2, 3, 5])
def test_given_the_fractions_the_sum_is_one_discrete_gaussian_up_to_eta(scale: float, shares: int):
    """Steps 1 to 3 of the proof, pointwise; at scale 1 the distance can be seen, and the bound is not idle."""
    draw, reach = np.random.default_rng(5), math.ceil(12 * scale)
    worst = 0.0
    for _ in range(40):
        fractions = draw.uniform(-0.5, 0.5, shares)
        actual = functools.reduce(np.convolve, [shifted(scale, one, reach) for one in fractions])
        ideal = shifted(scale * math.sqrt(shares), float(fractions.sum()), reach * shares)
        middle = slice(reach * shares - 3 * reach // 4, reach * shares + 3 * reach // 4)  # free of cut tails
        worst = max(worst, float(np.abs(np.log(actual[middle] / ideal[middle])).max()))
    bound = math.exp(log_ratio_bound(scale, shares))
    assert worst <= bound + 1e-13
    if (scale, shares) == (1.0, 2):
        assert worst > bound / 3


def test_the_distance_vanishes_at_every_scale_in_use():
    assert log_ratio_bound(2.0**LEAST_BITS, 1000, 10**90) < -1000 * math.log(10)
    with pytest.raises(InvalidInput):
        log_ratio_bound(0.9, 2)


# --- how much noise each site adds


@st.composite
def plans(draw: st.DrawFn) -> NoiseShares:
    sites = draw(st.integers(3, 200))
    least = 2 * sites // 3 + 1
    return NoiseShares(
        noise_multiplier=draw(st.floats(0.05, 500)),
        sites=sites,
        fewest=draw(st.integers(least, sites)),
        colluding=draw(st.integers(0, 2 * least - sites - 1)),
        clients=draw(st.integers(1, 20_000)),
        modulus_bits=64,
    )


@given(plans(), st.floats(1e-6, 1e6))
def test_the_worst_case_that_is_allowed_for_keeps_the_stated_noise(plan: NoiseShares, bound: float):
    """Noise of the honest sites of the smallest sum over a client's largest norm on the grid; and not 1e-14 more."""
    honest = plan.fewest - plan.colluding
    multiplier = math.sqrt(honest) * 2**plan.bits / (bound / plan.step(bound))
    assert plan.noise_multiplier <= multiplier <= plan.noise_multiplier * (1 + 1e-14)
    assert plan.planned_event.noise_multiplier == plan.noise_multiplier
    assert bound / plan.step(bound) <= 2**24
    widest = plan.clients * bound / plan.step(bound) + 16 * math.sqrt(plan.sites) * 2**plan.bits
    assert widest <= 2 ** (plan.modulus_bits - 1)


def test_a_narrow_modulus_makes_the_grid_coarser_and_ends_where_the_proof_does():
    def bits(clients: int, modulus_bits: int) -> int:
        plan = NoiseShares(
            noise_multiplier=1.0, sites=10, fewest=7, colluding=0, clients=clients, modulus_bits=modulus_bits
        )
        widest = clients / plan.step(1.0) + 16 * math.sqrt(10) * 2**plan.bits
        assert widest <= 2 ** (modulus_bits - 1)
        return plan.bits

    assert bits(1000, 64) == 22
    assert bits(1000, 32) == 19
    assert bits(100_000, 32) == 12
    with pytest.raises(InvalidInput, match="use 64 bits"):
        bits(10**9, 32)


@pytest.mark.parametrize("clients", [10, 10_000, 100_000, 1_000_000, 5_000_000])
def test_what_clients_round_off_is_small_beside_the_noise_even_if_all_round_alike(clients: int):
    """Intervals count noise alone; everybody with the same age rounds it to the same step of the grid."""
    bound, values = 2.0, jnp.asarray([1.234567, 0.5, 0.1], jnp.float32)
    for plan in SiteNoise(sites=3, fewest=3, colluding=1, clients=clients).mechanisms([4.0, 7.0]):
        step = plan.step(bound)
        sent = np.asarray(trees.to_grid(values, bound, step), np.float64) * step
        off = clients * np.abs(sent - np.asarray(values, np.float64)).max()
        assert off <= 0.25 * plan.noise_multiplier * bound
        assert clients > 10_000 or plan.modulus_bits == 32, "and messages are short where that is enough"


@pytest.mark.parametrize("colluding", [0, 2])
def test_noise_with_nobody_dropped_is_what_the_sizing_costs(colluding: int):
    plan = NoiseShares(noise_multiplier=1.0, sites=10, fewest=7, colluding=colluding, clients=100, modulus_bits=64)
    part = trees.BoundedSum(np.zeros(40_000, np.int64), 1.0, 1.0, grid=plan.step(1.0))
    parts = [plan.contribution(part, place=place, key=keys.reproducible(place)) for place in range(10)]
    total = np.asarray(np.sum(parts, axis=0, dtype=np.uint64))
    release = released(plan, total, l2_bound=1.0, n_expected=1.0, survivors=10)
    assert release.noise_std == pytest.approx(math.sqrt(10 / (7 - colluding)))
    assert float(np.std(release.value)) == pytest.approx(release.noise_std, rel=0.02)  # 5.6 deviations; fixed keys
    for wrong in (2 / 3, 3 / 2):
        assert float(np.std(release.value)) != pytest.approx(wrong * release.noise_std, rel=0.2)


def test_sites_draw_different_noise_even_from_one_key():
    part = trees.BoundedSum(np.zeros(50, np.int64), 1.0, 1.0, grid=TEN.step(1.0))
    one, two = (TEN.contribution(part, place=place, key=keys.reproducible(1)) for place in (1, 2))
    again = TEN.contribution(part, place=1, key=keys.reproducible(1))
    np.testing.assert_array_equal(one, again)
    assert (one != two).mean() > 0.9


@pytest.mark.parametrize("modulus_bits", [32, 64])
def test_a_round_gives_the_mean_of_all_clients_with_the_noise_of_its_survivors(modulus_bits: int):
    """From clients to the release, through the secure sum, with a site that drops out: exact on the grid."""
    plan = NoiseShares(noise_multiplier=2.0, sites=5, fewest=4, colluding=1, clients=60, modulus_bits=modulus_bits)
    on = secure_round.terms(5, length=7, bits=modulus_bits, fewest=4)
    plan.check_terms(on)
    draw = np.random.default_rng(3)
    sums = {
        name: trees.sum_clients(draw.normal(size=(12, 7)).astype(np.float32), 1.5, n_expected=60, grid=plan.step(1.5))
        for name in names(5)
    }
    values = {
        name: plan.contribution(part, place=on.places[name], key=keys.reproducible(7)) for name, part in sums.items()
    }
    done = secure_round.Round(on, values, secure_round.make_sites(on, values), Coordinator(on))
    done.begin()
    done.step()
    done.step(lost=["site02"])
    done.step()
    done.step()
    release = released(plan, done.coordinator.total(), l2_bound=1.5, n_expected=60, survivors=4)
    without_noise = [
        plan.contribution(_zero(part), place=on.places[name], key=keys.reproducible(7)) for name, part in sums.items()
    ]
    dtype = np.dtype(f"i{modulus_bits // 8}")
    noise = sum(
        one.view(dtype).astype(np.int64) for one, name in zip(without_noise, names(5), strict=True) if name != "site02"
    )
    exact = sum(np.asarray(sums[name].value) for name in done.coordinator.survivors)
    np.testing.assert_array_equal(release.value, np.float32((exact + noise) * (plan.step(1.5) / 60)))
    assert release.event == plan.planned_event
    assert release.noise_std == pytest.approx(2.0 * 1.5 * math.sqrt(4 / 3) / 60)


def _zero(part: trees.BoundedSum) -> trees.BoundedSum:
    return trees.BoundedSum(np.zeros_like(np.asarray(part.value)), part.l2_bound, part.n_expected, grid=part.grid)


def test_negative_sums_come_back_negative():
    part = trees.BoundedSum(np.full(3, -(2**24)), 1.0, 1.0, grid=TEN.step(1.0))
    noised = TEN.contribution(part, place=1, key=keys.reproducible(1))
    assert (released(TEN, noised, l2_bound=1.0, n_expected=1.0, survivors=7).value < 0).all()


# --- refusals, and what the guarantee says


def test_a_sum_on_another_grid_gets_no_noise():
    for grid in (None, 2 * TEN.step(1.0)):
        value = np.zeros(3, np.int64) if grid else np.zeros(3, np.float32)
        with pytest.raises(RelationMismatch, match="grid"):
            TEN.contribution(trees.BoundedSum(value, 1.0, 1.0, grid=grid), place=1, key=keys.root())


NOT_ENOUGH = [{"sites": 2}, {"fewest": 6}, {"fewest": 11}, {"colluding": 4}, {"colluding": -1}, {"modulus_bits": 16}]
NOBODY = [{"clients": 0}]
NO_NOISE = [{"noise_multiplier": 0.0}, {"noise_multiplier": math.nan}]


@pytest.mark.parametrize("changed", [*NOT_ENOUGH, *NOBODY, *NO_NOISE])
def test_shares_that_would_not_protect_are_refused(changed: dict[str, float]):
    good = {"noise_multiplier": 1.0, "sites": 10, "fewest": 7, "colluding": 3, "clients": 10}
    NoiseShares(**good)  # pyright: ignore[reportArgumentType]
    with pytest.raises((InvalidInput, Refused)):
        NoiseShares(**{**good, **changed})  # pyright: ignore[reportArgumentType]


def test_noise_and_secure_sum_must_be_on_the_same_terms():
    TEN.check_terms(secure_round.terms(10))
    for on in (secure_round.terms(9), secure_round.terms(10, fewest=8), secure_round.terms(10, bits=64)):
        with pytest.raises(RelationMismatch, match="same terms"):
            TEN.check_terms(on)
    for survivors in (6, 11):
        with pytest.raises(Refused):
            released(TEN, np.zeros(3, np.uint32), l2_bound=1.0, n_expected=1.0, survivors=survivors)


def test_the_event_costs_what_the_gaussian_costs_and_says_whom_it_trusts():
    event = TEN.planned_event
    assert from_json(to_json(event)) == event
    assert epsilon(event, 1e-6).epsilon == epsilon(Gaussian(1.0, rounded=True), 1e-6).epsilon
    sampled = Poisson(0.1, event)
    for relation, one in (
        (Relation.REPLACE, event),
        (Relation.ADD_OR_REMOVE, event),
        (Relation.ADD_OR_REMOVE, sampled),
    ):
        said = " / ".join(certify(one, delta=1e-6, relation=relation).assumptions)
        assert "at most 2 of the 10 sites" in said
        assert "fewer than 7 sites" in said
        assert "ideal" not in said
    plain = certify(Gaussian(1.0, rounded=True), delta=1e-6).assumptions
    assert not any("site" in sentence for sentence in plain)


def test_parts_of_one_round_have_one_event_only_on_the_same_trust():
    assert joint(TEN.planned_event, TEN.planned_event).sites == 10
    assert joint(TEN.planned_event, TEN.planned_event).noise_multiplier == pytest.approx(1 / math.sqrt(2))
    with pytest.raises(RelationMismatch, match="different sites"):
        joint(TEN.planned_event, Gaussian(1.0, rounded=True))


@pytest.mark.parametrize("wrong", [{"sites": -1}, {"sites": 3, "fewest": 4}, {"sites": 3, "fewest": 3, "colluding": 3}])
def test_an_event_with_impossible_sites_does_not_exist(wrong: dict[str, int]):
    with pytest.raises(InvalidInput):
        Gaussian(1.0, **wrong)  # pyright: ignore[reportArgumentType]
