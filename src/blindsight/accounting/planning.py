"""Privacy arithmetic in every direction: noise for an epsilon, rounds for an epsilon, groups, adaptive clips."""

import functools
import math
from collections.abc import Callable
from typing import Literal

from scipy import optimize

from blindsight.accounting import accountants
from blindsight.accounting.events import Event, Relation
from blindsight.errors import InvalidInput, PrivacyError, RelationMismatch, UnknownEvent

__all__ = ["group_privacy", "rounds_for", "solve_noise", "split_noise"]

_SMALLEST_NOISE, _LARGEST_NOISE = 2.0**-6, 2.0**20
_BEYOND = 1e6  # an epsilon that guarantees nothing
_MOST_ROUNDS = 10**9
_SECANTS = 5
_SIX_DIGITS = 100_000
_LONGEST_STEP = math.log(8)  # far from the answer some accountants are slow or lose their precision


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
    aim = reached(noise, rough=True) / fine * epsilon if (fine := reached(noise)) > 0 else epsilon
    if not math.isclose(aim, epsilon, rel_tol=1e-9):
        noise = _root(functools.partial(reached, rough=True), aim, delta, start=noise)
    too_little = _largest(lambda place: reached(_five_digits(place)) > epsilon, _place(noise))
    return _five_digits(too_little + 1)


def _fine_epsilon(event: Event, delta: float, relation: Relation) -> float:
    return accountants.epsilon(event, delta, relation).epsilon


def _five_digits(place: int) -> float:
    """The five-digit numbers in ascending order: 1.0000 is number 0, 1.0001 number 1, 0.99999 number -1."""
    exponent, digits = divmod(place, 90_000)
    return float(f"{10_000 + digits}e{exponent - 4}")


def _place(number: float) -> int:
    """The place of the number of five digits that is nearest to `number`."""
    digits, exponent = f"{number:.4e}".split("e")
    return 90_000 * int(exponent) + int(digits.replace(".", "")) - 10_000


def _root(reached: Callable[[float], float], epsilon: float, delta: float, start: float = 1.0) -> float:
    """The noise at which `reached` is `epsilon`, searched from `start`."""

    def gap(log_noise: float) -> float:
        return math.log(epsilon) - math.log(max(reached(math.exp(log_noise)), 1e-12))  # nearly linear: few steps

    ends = math.log(_SMALLEST_NOISE), math.log(_LARGEST_NOISE)
    low, high = _bracket(gap, math.log(start), ends)
    if gap(high) < 0:
        raise PrivacyError(f"no noise reaches epsilon {epsilon} at delta {delta:.3g}: use fewer rounds")
    if gap(low) >= 0:
        raise InvalidInput(f"epsilon {epsilon} needs almost no noise; choose a smaller epsilon")
    return math.exp(float(optimize.brentq(gap, low, high, xtol=1e-6, rtol=1e-8)))  # pyright: ignore[reportArgumentType]


def _bracket(gap: Callable[[float], float], start: float, ends: tuple[float, float]) -> tuple[float, float]:
    """Two numbers between which the increasing function `gap` changes its sign, or the end at which it has not yet."""
    step = math.log(1.1)  # a good start is close
    low = high = start
    if gap(start) < 0:
        while high < ends[1] and gap(high) < 0:
            low, high, step = high, min(high + step, ends[1]), min(3 * step, _LONGEST_STEP)
    else:
        while low > ends[0] and gap(low) >= 0:
            low, high, step = max(low - step, ends[0]), low, min(3 * step, _LONGEST_STEP)
    return low, high


def rounds_for(
    make_event: Callable[[int], Event], *, epsilon: float, delta: float, relation: Relation = Relation.ADD_OR_REMOVE
) -> int:
    """The largest number of rounds for which `make_event(rounds)` is (epsilon, delta)-DP; 0 if not even one is.

    Rounded down to five digits, and at most 10^9, which is practically unlimited.
    """
    _check_epsilon(epsilon)

    def reached(rounds: int, *, rough: bool = False) -> float:
        return (accountants.rough_epsilon if rough else _fine_epsilon)(make_event(rounds), delta, relation)

    def fits(number: int) -> bool:
        rounds = _rounds_numbered(number)
        return rounds < 1 or (rounds <= _MOST_ROUNDS and reached(rounds) <= epsilon)

    guess = _rounds_near(functools.partial(reached, rough=True), epsilon, 1)
    if 0 < guess < _MOST_ROUNDS and (fine := reached(guess)) > 0:  # aim as for the noise
        aimed = _rounds_near(functools.partial(reached, rough=True), reached(guess, rough=True) / fine * epsilon, guess)
        guess = _by_secants(reached, epsilon, guess, aimed)
    return _rounds_numbered(_largest(fits, _number_of(guess)))


def _rounds_numbered(number: int) -> int:
    """The whole numbers of at most five digits in their order, from 0 on, and then zeros."""
    return number if number < _SIX_DIGITS else round(_five_digits(number - _SIX_DIGITS + _place(_SIX_DIGITS)))


def _number_of(rounds: int) -> int:
    return rounds if rounds < _SIX_DIGITS else _place(rounds) - _place(_SIX_DIGITS) + _SIX_DIGITS


def _by_secants(reached: Callable[[int], float], epsilon: float, before: int, guess: int) -> int:
    """About how many rounds reach `epsilon`, which is nearly a power of them, from two guesses that are close."""
    for _ in range(_SECANTS):
        if not (abs(guess - before) > 1 and 0 < guess < _MOST_ROUNDS):
            break
        ends = [math.log(max(reached(rounds), 1e-12) / epsilon) for rounds in (before, guess)]
        if ends[0] == ends[1]:
            break
        better = guess * (guess / before) ** (-ends[1] / (ends[1] - ends[0]))
        before, guess = guess, round(min(max(better, guess / 2), 2 * guess))
    return guess


def _rounds_near(reached: Callable[[int], float], epsilon: float, start: int) -> int:
    """About how many rounds reach `epsilon`."""

    def gap(log_rounds: float) -> float:
        return math.log(max(reached(round(math.exp(log_rounds))), 1e-12)) - math.log(epsilon)

    low, high = _bracket(gap, math.log(start), (0.0, math.log(_MOST_ROUNDS)))
    if gap(low) >= 0 or gap(high) < 0:  # at an end
        return round(math.exp(low if gap(low) >= 0 else high))
    return round(math.exp(float(optimize.brentq(gap, low, high, xtol=1e-6, rtol=1e-8))))  # pyright: ignore[reportArgumentType]


def _largest(holds: Callable[[int], bool], guess: int) -> int:
    """The largest whole number for which `holds`, which is true up to some number and false beyond it.

    Steps away from `guess` double until the answer changes: a guess that is a little wrong costs a few of them, and
    one that is very wrong not many more.
    """
    low = high = guess
    step = 1
    if holds(guess):
        while holds(high := low + step):
            low, step = high, 2 * step
    else:
        while not holds(low := high - step):
            high, step = low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
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
