"""Privacy arithmetic in every direction: what is solved for is exact, and what is promised is kept."""

import math
from collections.abc import Callable
from decimal import Decimal

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.accounting import accountants, losses, planning
from blindsight.accounting.events import (
    Composed,
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    Relation,
    Repeated,
    Thresholded,
    TruncatedPoisson,
)
from blindsight.accounting.planning import group_privacy, rounds_for, solve_noise, split_noise
from blindsight.errors import InvalidInput, PrivacyError, RelationMismatch

laws = settings(derandomize=True, deadline=None, max_examples=100)


def reached(event: Event, delta: float, relation: Relation = Relation.ADD_OR_REMOVE) -> float:
    return accountants.epsilon(event, delta, relation).epsilon


def five_digits_below(value: float) -> float:
    """The next smaller number of five significant digits."""
    exact = Decimal(repr(value))
    step = Decimal(1).scaleb(exact.adjusted() - 4)
    below = exact - step
    return float(below if below.adjusted() == exact.adjusted() else exact - step / 10)


# Noise for an epsilon.


@pytest.mark.parametrize(
    ("make", "relation"),
    [
        (Gaussian, Relation.ADD_OR_REMOVE),
        (Gaussian, Relation.REPLACE),
        (lambda z: Repeated(Gaussian(z), 100), Relation.ADD_OR_REMOVE),
        (lambda z: Composed((Gaussian(z), Gaussian(20.0))), Relation.ADD_OR_REMOVE),
        (Laplace, Relation.ADD_OR_REMOVE),
    ],
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_noise_is_the_smallest_of_five_digits(make: Callable[[float], Event], relation: Relation, epsilon: float):
    noise = solve_noise(make, epsilon=epsilon, delta=1e-5, relation=relation)
    assert noise == float(f"{noise:.5g}")
    assert reached(make(noise), 1e-5, relation) <= epsilon
    assert reached(make(five_digits_below(noise)), 1e-5, relation) > epsilon


@pytest.mark.parametrize(
    "epsilon", [pytest.param(0.3, marks=pytest.mark.slow), 1.0, pytest.param(4.0, marks=pytest.mark.slow)]
)
def test_so_is_the_noise_of_fixed_size_rounds(epsilon: float):
    """Whose every epsilon takes a fifth of a second."""
    test_the_noise_is_the_smallest_of_five_digits(
        lambda noise: Repeated(FixedSize(100, 10, Gaussian(noise)), 2), Relation.REPLACE, epsilon
    )


@pytest.mark.parametrize("noise", [1.8646, 2.0975, 3.3785, 0.9, 0.75, 6.0, 9.9999])
def test_a_promise_a_little_below_what_some_noise_keeps_takes_the_next(noise: float):
    """Where a search that stops on the wrong side of the root would break the promise, or be a step too careful."""
    kept = reached(Gaussian(noise), 1e-5)
    assert solve_noise(Gaussian, epsilon=kept, delta=1e-5) == noise
    for less in (1e-10, 1e-8):
        more = solve_noise(Gaussian, epsilon=kept * (1 - less), delta=1e-5)
        assert five_digits_below(more) == noise


def test_a_promise_that_some_noise_keeps_with_epsilon_zero():
    """On the way to the root the epsilon is zero, and has no logarithm."""
    noise = solve_noise(Gaussian, epsilon=0.5, delta=0.5)
    assert reached(Gaussian(1.0), 0.5) == 0
    assert reached(Gaussian(noise), 0.5) <= 0.5 < reached(Gaussian(five_digits_below(noise)), 0.5)


@settings(laws, max_examples=25)
@given(epsilon=st.floats(0.01, 50), delta=st.floats(1e-12, 0.01))
def test_the_noise_of_one_gaussian_inverts_its_closed_form(epsilon: float, delta: float):
    noise = solve_noise(Gaussian, epsilon=epsilon, delta=delta)
    with mp.workdps(40):

        def exact(z: float) -> float:
            wide = mp.mpf(z)
            tail = mp.ncdf(1 / (2 * wide) - epsilon * wide)
            return float(tail - mp.exp(epsilon) * mp.ncdf(-1 / (2 * wide) - epsilon * wide))

        assert exact(noise) <= delta * (1 + 1e-9)
        assert exact(five_digits_below(noise)) > delta * (1 - 1e-9)


@pytest.mark.parametrize(
    ("rate", "rounds", "epsilon", "delta", "published"),
    [
        (0.004, 1000, 1.0, 4e-8, 1.0109),
        pytest.param(5000 / 342_477, 2000, 1.0, 2.92e-6, 2.7505, marks=pytest.mark.slow),
        (5000 / 342_477, 2000, 4.0, 2.92e-6, 1.0285),
    ],
)
def test_calibration_anchors(rate: float, rounds: int, epsilon: float, delta: float, published: float):
    """The published searches stopped a little early, at noise that is enough but not the least."""

    def run(noise: float) -> Event:
        return Repeated(Poisson(rate, Gaussian(noise)), rounds)

    noise = solve_noise(run, epsilon=epsilon, delta=delta)
    assert 0.997 * published <= noise <= published + 1e-4
    assert reached(run(noise), delta) <= epsilon < reached(run(five_digits_below(noise)), delta)


@settings(laws, max_examples=20)
@given(epsilon=st.floats(0.3, 5), delta=st.floats(1e-8, 1e-3), more=st.floats(1.1, 3), rounds=st.integers(1, 1000))
def test_a_stronger_promise_needs_more_noise(epsilon: float, delta: float, more: float, rounds: int):
    def noise(epsilon: float = epsilon, delta: float = delta, rounds: int = rounds) -> float:
        return solve_noise(lambda z: Repeated(Gaussian(z), rounds), epsilon=epsilon, delta=delta)

    base = noise()
    assert noise(epsilon=epsilon * more) <= base
    assert noise(delta=min(0.5, delta * more)) <= base
    assert noise(rounds=rounds + 1) >= base


def test_sampling_needs_less_noise():
    noises = [
        solve_noise(lambda z, rate=rate: Repeated(Poisson(rate, Gaussian(z)), 50), epsilon=0.5, delta=1e-5)
        for rate in (0.1, 0.3, 1.0)
    ]
    assert noises == sorted(noises)
    assert noises[-1] == pytest.approx(
        solve_noise(lambda z: Repeated(Gaussian(z), 50), epsilon=0.5, delta=1e-5), rel=1e-4
    )


def test_noise_is_found_where_the_first_guess_is_far_too_little():
    def event(noise: float) -> Event:
        return Repeated(Gaussian(noise, kl_slack=1e-18), 400)

    assert reached(event(1.0), 1e-6) > 200
    noise = solve_noise(event, epsilon=1.0, delta=1e-6)
    assert reached(event(noise), 1e-6) <= 1.0 < reached(event(0.999 * noise), 1e-6)


def test_a_promise_that_no_noise_keeps_or_every_noise_keeps_is_refused():
    with pytest.raises(PrivacyError, match="no noise reaches epsilon"):
        solve_noise(lambda z: Composed((Gaussian(z), NonPrivate())), epsilon=1.0, delta=1e-6)
    with pytest.raises(PrivacyError, match="no noise reaches epsilon"):
        solve_noise(lambda z: Composed((Gaussian(z), Gaussian(1.0))), epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="almost no noise"):
        solve_noise(lambda z: Gaussian(1000 * z), epsilon=1.0, delta=1e-6)
    with pytest.raises(RelationMismatch):
        solve_noise(lambda z: FixedSize(9, 3, Gaussian(z)), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("scale", [2.0**-4, 2.0**-3, 2.0**4, 2.0**21])
def test_noise_is_found_at_any_size(scale: float):
    """Noise is searched by doubling and halving from 1; the multiplier here is `scale` times what counts."""
    noise = solve_noise(lambda z: Gaussian(z / scale), epsilon=20.0, delta=1e-6)
    assert noise / scale == pytest.approx(solve_noise(Gaussian, epsilon=20.0, delta=1e-6), rel=1e-3)
    assert reached(Gaussian(noise / scale), 1e-6) <= 20 < reached(Gaussian(five_digits_below(noise) / scale), 1e-6)


def test_noise_is_found_quickly_where_the_rough_bound_misleads(monkeypatch: pytest.MonkeyPatch):
    """The two bounds change accountants at different noise here; a search by single last digits took 27,000 steps."""
    asked, tight = [0], accountants.epsilon

    def counting(event: Event, delta: float, relation: Relation = Relation.ADD_OR_REMOVE) -> accountants.Bound:
        asked[0] += 1
        return tight(event, delta, relation)

    def event(noise: float) -> Event:
        return Repeated(Poisson(0.1, Gaussian(noise)), 100_000)

    monkeypatch.setattr(accountants, "epsilon", counting)
    noise = solve_noise(event, epsilon=0.1, delta=1e-5)
    assert asked[0] <= 50
    assert reached(event(noise), 1e-5) <= 0.1 < reached(event(five_digits_below(noise)), 1e-5)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_an_epsilon_that_is_no_promise_is_refused(epsilon: float):
    with pytest.raises(InvalidInput, match="epsilon must be positive and finite"):
        solve_noise(Gaussian, epsilon=epsilon, delta=1e-6)
    with pytest.raises(InvalidInput, match="epsilon must be positive and finite"):
        rounds_for(lambda n: Repeated(Gaussian(1.0), n), epsilon=epsilon, delta=1e-6)


# Rounds for an epsilon.


@settings(laws, max_examples=25)
@given(noise=st.floats(1, 300), epsilon=st.floats(0.05, 10), relation=st.sampled_from(Relation))
def test_one_round_more_would_break_the_promise(noise: float, epsilon: float, relation: Relation):
    def run(rounds: int) -> Event:
        return Repeated(Gaussian(noise), rounds)

    rounds = rounds_for(run, epsilon=epsilon, delta=1e-6, relation=relation)
    assert rounds == 0 or reached(run(rounds), 1e-6, relation) <= epsilon
    more = 1 if rounds < 100_000 else 10 ** (len(str(rounds)) - 5)  # beyond, five digits are searched
    assert rounds % more == 0
    assert reached(run(rounds + more), 1e-6, relation) > epsilon


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 7, 8, 9, 1000])
def test_rounds_are_found_exactly(rounds: int):
    exactly = reached(Repeated(Gaussian(50.0), rounds), 1e-6)
    assert rounds_for(lambda n: Repeated(Gaussian(50.0), n), epsilon=exactly, delta=1e-6) == rounds
    assert rounds_for(lambda n: Repeated(Gaussian(50.0), n), epsilon=exactly - 1e-9, delta=1e-6) == rounds - 1


def test_rounds_of_sampled_noise_and_of_fixed_size():
    def sampled(rounds: int) -> Event:
        return Repeated(Poisson(0.05, Gaussian(3.0)), rounds)

    rounds = rounds_for(sampled, epsilon=0.3, delta=1e-6)
    assert rounds > 1
    assert reached(sampled(rounds), 1e-6) <= 0.3 < reached(sampled(rounds + 1), 1e-6)

    def fixed(rounds: int) -> Event:
        return Repeated(FixedSize(1000, 10, Gaussian(8.0)), rounds)

    rounds = rounds_for(fixed, epsilon=1.0, delta=1e-6, relation=Relation.REPLACE)
    assert reached(fixed(rounds), 1e-6, Relation.REPLACE) <= 1 < reached(fixed(rounds + 1), 1e-6, Relation.REPLACE)


def test_millions_of_rounds_are_found_in_few_steps(monkeypatch: pytest.MonkeyPatch):
    """Each step composes a distribution with itself; a search one round at a time took 56 of them."""
    asked, inner = list[Event](), planning._fine_epsilon
    monkeypatch.setattr(planning, "_fine_epsilon", lambda event, *about: (asked.append(event), inner(event, *about))[1])
    rounds = rounds_for(lambda n: Repeated(Poisson(1e-4, Gaussian(0.8)), n), epsilon=2.0, delta=4e-8)
    assert rounds % 100 == 0
    assert 3e6 < rounds < 4e6
    assert len(asked) < 25


def test_rounds_that_cost_nothing_more_end_somewhere():
    rounds = rounds_for(lambda n: Repeated(Gaussian(9.0), min(n, 3)), epsilon=5.0, delta=1e-6)
    assert 10**8 < rounds < 10**10
    assert rounds_for(lambda n: Gaussian(0.1), epsilon=1.0, delta=1e-6) == 0


# Adaptive clipping.


def test_the_published_split():
    assert split_noise(1.0, 1000) == (pytest.approx(1.0000500038, abs=5e-11), 50.0)


@laws
@given(noise=st.floats(1e-3, 100), ratio=st.floats(0.5001, 1e3), cohort=st.floats(1, 1e6))
def test_the_split_costs_what_it_replaces(noise: float, ratio: float, cohort: float):
    """z^-2 = z_delta^-2 + (2 sigma_b)^-2, and as events: one Gaussian equals the pair, exactly."""
    std = noise * ratio
    updates, count = split_noise(noise, cohort, count_std=std)
    assert count == std
    assert updates >= noise
    assert updates**-2 + (2 * std) ** -2 == pytest.approx(noise**-2, rel=1e-9)
    pair = Composed((Gaussian(updates), Gaussian(2 * count)))
    assert reached(pair, 1e-6) == pytest.approx(reached(Gaussian(noise), 1e-6), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("noise", "cohort", "std"),
    [
        (1.0, 10, None),
        (1.0, 1000, 0.5),
        (1.0, 1000, 0.4),
        (1.0, 1000, -5.0),
        (0.0, 1000, None),
        (-1.0, 1000, None),
        (math.nan, 1000, None),
        (1.0, 0, None),
        (1.0, math.nan, None),
    ],
)
def test_a_split_that_leaves_nothing_is_refused(noise: float, cohort: float, std: float | None):
    with pytest.raises(InvalidInput, match=r"needs noise_multiplier < .*larger cohort, or a fixed clip"):
        split_noise(noise, cohort, count_std=std)


@pytest.mark.parametrize(("cohort", "std"), [(10, None), (1000, None), (1000, 0.5), (1000, 30.0)])
def test_the_refusal_names_the_noise_that_is_too_much(cohort: float, std: float | None):
    with pytest.raises(InvalidInput) as refused:
        split_noise(1e6, cohort, count_std=std)
    named = float(str(refused.value).split("< ")[1].split()[0])
    assert split_noise(named * (1 - 1e-9), cohort, count_std=std)[0] > named
    with pytest.raises(InvalidInput):
        split_noise(named, cohort, count_std=std)


# Groups.


def test_the_published_group():
    assert group_privacy(1.0, 1e-8, 16, method="textbook") == (16.0, pytest.approx(0.523, abs=5e-4))
    assert group_privacy(1.0, 1e-8, 16) == (16.0, pytest.approx(0.0517, abs=5e-5))


@laws
@given(epsilon=st.floats(0, 20), delta=st.floats(1e-300, 1), members=st.integers(1, 40))
def test_groups_against_the_chain_word_for_word(epsilon: float, delta: float, members: int):
    with mp.workdps(40):
        chain = mp.fsum(mp.exp(mp.mpf(epsilon) * i) for i in range(members)) * mp.mpf(delta)
        textbook = members * mp.exp(mp.mpf(epsilon) * (members - 1)) * mp.mpf(delta)
        expected = [float(min(chain, 1)), float(min(textbook, 1))]
    tight, loose = (group_privacy(epsilon, delta, members, method=method) for method in ("tight", "textbook"))
    assert tight == (members * epsilon, pytest.approx(expected[0], rel=1e-9, abs=0))
    assert loose == (members * epsilon, pytest.approx(expected[1], rel=1e-9, abs=0))
    assert tight[1] <= loose[1] * (1 + 1e-12)


@laws
@given(epsilon=st.floats(0, 3), delta=st.floats(1e-30, 1e-6), members=st.integers(1, 6), groups=st.integers(1, 6))
def test_a_group_of_groups_is_a_group(epsilon: float, delta: float, members: int, groups: int):
    there = group_privacy(*group_privacy(epsilon, delta, members), groups)
    assert there == pytest.approx(group_privacy(epsilon, delta, members * groups), rel=1e-9, abs=0)


def test_one_member_is_the_promise_itself():
    for method in ("tight", "textbook"):
        assert group_privacy(0.7, 1e-8, 1, method=method) == (0.7, 1e-8)
        assert group_privacy(math.inf, 1.0, 1, method=method) == (math.inf, 1.0)


@pytest.mark.parametrize("method", ["tight", "textbook"])
def test_huge_groups_do_not_overflow(method):
    assert group_privacy(100.0, 1e-8, 10**9, method=method) == (1e11, 1.0)
    assert group_privacy(1e300, 1e-300, 3, method=method)[1] == 1
    assert group_privacy(math.inf, 1e-8, 3, method=method) == (math.inf, 1.0)
    assert group_privacy(800.0, 5e-324, 2, method=method) == (1600.0, 1.0)
    assert group_privacy(5.0, 0.0, 1000, method=method) == (5000.0, 0.0)
    assert group_privacy(0.0, 1e-8, 10, method=method) == (0.0, pytest.approx(1e-7))


@pytest.mark.parametrize(
    ("epsilon", "delta", "members"),
    [
        *((1.0, 1e-8, members) for members in (0, -2, 1.5, math.nan, math.inf)),
        *((epsilon, 1e-8, 2) for epsilon in (-1.0, math.nan)),
        *((1.0, delta, 2) for delta in (-1e-8, 1.1, math.nan)),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(epsilon: float, delta: float, members: int):
    with pytest.raises(InvalidInput, match=r"members must be|epsilon must be"):
        group_privacy(epsilon, delta, members)


# --- quick bounds


@pytest.mark.parametrize(
    "event",
    [
        Repeated(Poisson(0.09, Gaussian(1.05)), 150),
        Repeated(TruncatedPoisson(1000, 0.1, 190, Gaussian(0.7)), 20),
        Composed((Gaussian(2.0), Repeated(Poisson(0.01, Gaussian(1.0)), 500))),
        Thresholded(1e-7, Gaussian(3.0)),
        Gaussian(1.0),
    ],
    ids=str,
)
def test_quick_bounds_are_never_below_the_tight_one_and_not_far_above(event: Event):
    tight = accountants.epsilon(event, 1e-6).epsilon
    rough, by_renyi = accountants.rough_epsilon(event, 1e-6), accountants.epsilon_by_renyi(event, 1e-6)
    assert tight * (1 - 1e-9) <= rough <= 1.02 * tight
    assert tight <= by_renyi <= 1.5 * tight


def test_quick_bounds_claim_nothing_where_nothing_is_known():
    assert accountants.epsilon_by_renyi(NonPrivate(), 1e-6) == math.inf
    assert accountants.epsilon_by_renyi(Poisson(0.1, Laplace(1.0)), 1e-6) == math.inf
    assert accountants.epsilon_by_renyi(Thresholded(1e-5, Gaussian(3.0)), 1e-6) == math.inf
    assert accountants.epsilon_by_renyi(Composed(()), 1e-6) == 0.0


def test_rounds_that_no_grid_can_compose_are_not_put_on_one(monkeypatch: pytest.MonkeyPatch):
    """The rounding of 10^12 compositions exceeds delta: distributions would be composed for minutes, for nothing."""

    def composed(*_: object) -> None:
        raise AssertionError("a distribution was composed")

    monkeypatch.setattr(losses, "self_composed_pld", composed)
    for rounds in (10**12, 10**15):
        event = Repeated(Poisson(0.004, Gaussian(1.0)), rounds)
        assert 1e6 < accountants.epsilon(event, 1e-6).epsilon < math.inf
