"""Privacy arithmetic in every direction: noise for an epsilon, rounds for an epsilon, groups, adaptive clips."""

import functools
import math
from collections.abc import Callable
from typing import Literal

from scipy import optimize

from blindsight.accounting import accountants
from blindsight.accounting.events import Event, Relation
from blindsight.accounting.guarantee import round_down, round_up
from blindsight.errors import InvalidInput, PrivacyError, RelationMismatch, UnknownEvent

__all__ = ["group_privacy", "rounds_for", "solve_noise", "split_noise"]

_SMALLEST_NOISE, _LARGEST_NOISE = 2.0**-6, 2.0**20
_BEYOND = 1e6  # an epsilon that guarantees nothing


def solve_noise(
    make_event: Callable[[float], Event], *, epsilon: float, delta: float, relation: Relation = Relation.ADD_OR_REMOVE
) -> float:
    """The smallest noise multiplier for which `make_event(noise_multiplier)` is (epsilon, delta)-DP.

    Rounded up to five digits, so that the printed value is the one that was certified.

    >>> from blindsight.accounting.events import Gaussian
    >>> solve_noise(Gaussian, epsilon=1.0, delta=1e-5)
    3.7307
    """
    _check_epsilon(epsilon)

    def reached(noise: float, *, rough: bool = False) -> float:
        bound = accountants.rough_epsilon if rough else _fine_epsilon
        try:
            return bound(make_event(noise), delta, relation)
        except (UnknownEvent, RelationMismatch):
            raise
        except PrivacyError:  # with this little noise even the difference from ideal noise cannot be bounded
            return _BEYOND

    # The rough bound exceeds the fine one by nearly the same factor at similar noise: aim it at the fine target.
    noise = _root(functools.partial(reached, rough=True), epsilon, delta)
    if (fine := reached(noise)) > 0:
        noise = _root(functools.partial(reached, rough=True), reached(noise, rough=True) / fine * epsilon, delta)
    noise = float(round_up(noise, 5))
    while reached(noise) > epsilon:
        noise = float(round_up(noise * (1 + 1e-9), 5))
    while reached(less := float(round_down(noise * (1 - 1e-9), 5))) <= epsilon:
        noise = less
    return noise


def _fine_epsilon(event: Event, delta: float, relation: Relation) -> float:
    return accountants.epsilon(event, delta, relation).epsilon


def _root(reached: Callable[[float], float], epsilon: float, delta: float) -> float:
    """The noise at which `reached` is `epsilon`."""

    def gap(log_noise: float) -> float:
        return math.log(max(reached(math.exp(log_noise)), 1e-12)) - math.log(epsilon)  # nearly linear: few steps

    low, high = 0.0, 0.0
    while gap(high) > 0:
        low, high = high, high + math.log(2)
        if high > math.log(_LARGEST_NOISE):
            raise PrivacyError(f"no noise reaches epsilon {epsilon} at delta {delta:.3g}: use fewer rounds")
    if high == 0.0:
        low = -math.log(2)
        while gap(low) <= 0:
            low, high = low - math.log(2), low
            if low < math.log(_SMALLEST_NOISE):
                raise InvalidInput(f"epsilon {epsilon} needs almost no noise; choose a smaller epsilon")
    root = float(optimize.brentq(gap, low, high, xtol=1e-6, rtol=1e-8))  # pyright: ignore[reportArgumentType]
    return math.exp(root)


def rounds_for(
    make_event: Callable[[int], Event], *, epsilon: float, delta: float, relation: Relation = Relation.ADD_OR_REMOVE
) -> int:
    """The largest number of rounds for which `make_event(rounds)` is (epsilon, delta)-DP; 0 if not even one is."""
    _check_epsilon(epsilon)

    def fits(rounds: int, *, rough: bool = False) -> bool:
        bound = accountants.rough_epsilon if rough else _fine_epsilon
        return bound(make_event(rounds), delta, relation) <= epsilon

    certain = _largest(functools.partial(fits, rough=True), 0)  # the rough bound is never too small
    return _largest(fits, certain)


def _largest(fits: Callable[[int], bool], start: int) -> int:
    """The largest whole number that fits, at least `start`, which is known to; steps double until one does not fit."""
    low, step = start, 1
    while fits(low + step):
        low, step = low + step, 2 * step
        if low > 10**9:
            return low  # an event that does not grow with the rounds
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def split_noise(noise_multiplier: float, cohort: float, *, count_std: float | None = None) -> tuple[float, float]:
    """The split of a noise budget between updates and counts in adaptive clipping (Andrew et al. 2021, Theorem 1).

    Each round releases the clipped sum and the number of clients with an update shorter than the clip; a client moves
    that count, centred at 1/2, by 1/2. Together they cost as much as one Gaussian release at `noise_multiplier` if the
    updates are noised at the returned multiplier and the count with the returned standard deviation (default:
    cohort / 20, the paper's).

    >>> split_noise(1.0, 1000)
    (1.0000500037503126, 50.0)
    """
    std = cohort / 20 if count_std is None else count_std
    if not 0 < noise_multiplier < 2 * std:
        raise InvalidInput(
            f"adaptive clipping needs noise_multiplier < {2 * std:g} (twice the count's noise), got "
            f"{noise_multiplier}: use a larger cohort, or a fixed clip"
        )
    return (noise_multiplier**-2 - (2 * std) ** -2) ** -0.5, std


def group_privacy(
    epsilon: float, delta: float, members: int, *, method: Literal["tight", "textbook"] = "tight"
) -> tuple[float, float]:
    """The (epsilon, delta) of a group of `members`, given that of one client.

    Chaining the definition gives delta * (1 + e^epsilon + ... + e^((k-1) epsilon)); textbooks bound each of the k terms
    by the largest. Ramaswamy et al. 2020 quote the textbook for 16 clients at (1, 1e-8): (16, 0.53).

    >>> [round(group_privacy(1.0, 1e-8, 16, method=m)[1], 3) for m in ("textbook", "tight")]
    [0.523, 0.052]
    """
    if not 1 <= members < math.inf or members != int(members):
        raise InvalidInput(f"members must be a whole number of at least 1, got {members}")
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise InvalidInput(f"epsilon must be >= 0 and delta between 0 and 1, got ({epsilon}, {delta})")
    if members == 1 or delta == 0:
        return members * epsilon, delta
    if method == "textbook":
        factor = math.log(members) + (members - 1) * epsilon
    elif epsilon == 0:
        factor = math.log(members)
    else:  # log of expm1(k e) / expm1(e), without overflow
        factor = (members - 1) * epsilon + math.log(-math.expm1(-members * epsilon)) - math.log(-math.expm1(-epsilon))
    return members * epsilon, math.exp(min(0.0, math.log(delta) + factor))


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"epsilon must be positive and finite, got {epsilon}")
