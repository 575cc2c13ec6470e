"""What chance alone produces, learned where it is free: on the clients of the public reference.

The null hypothesis: private clients are drawn from the same distribution as public ones. What every public client would
send is known, so populations of the size at hand can be drawn and read as often as we like.

A test statistic is a difference of cues divided by its estimated standard deviation. `largest` draws private clients
*and* public ones anew from the reference, adds noise, and reads both exactly as a real release is read (a bootstrap-t):
heavy tails, small arms and the reference's own sampling error are all in the result. It keeps the largest statistic
over all cues and arms, so comparing each one with it corrects for all tests at once (Westfall and Young 1993), whatever
their correlation. Counts of clients are in `counting`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.released import ArmCues, difference_of_cues, statistic
from blindsight.inspection.measuring import Measured

__all__ = ["ArmPairs", "largest"]

ArmPairs = Sequence[tuple[str, str | None]]
"""Arms to compare: two arms of the clients, or one arm and None for the same arm of public data."""

_POPULATIONS, _AT_ONCE = 999, 250


def largest(part: Cues, sent: np.ndarray, pairs: ArmPairs, *, clients: int, noise_std: float) -> np.ndarray:
    """The largest statistic of each of many populations drawn from public clients, in ascending order.

    Args:
        part: The part that holds cues.
        sent: What every public client would send, shape (public clients, coordinates).
        pairs: Arms to compare.
        clients: Private clients in a population.
        noise_std: Standard deviation of the noise in each private sum.
    """
    generator = np.random.default_rng(0)  # public data only: the same reference has the same thresholds
    maxima, even = list[np.ndarray](), np.full(len(sent), 1 / len(sent))
    for start in range(0, _POPULATIONS, _AT_ONCE):
        size = min(_AT_ONCE, _POPULATIONS - start)
        private, public = (generator.multinomial(n, even, size) @ sent for n in (clients, len(sent)))
        noisy = private + noise_std * generator.standard_normal(private.shape)
        seen, normal = part.read(Measured(noisy, noise_std, 0.0)), part.read(Measured(public, 0.0, 0.0))
        tested = [_sizes(pair, part, seen, normal) for pair in pairs]
        maxima.append(np.max(np.concatenate(tested, axis=1), axis=1))
    return np.sort(np.concatenate(maxima))


def _sizes(
    pair: tuple[str, str | None], part: Cues, seen: Mapping[str, ArmCues], public: Mapping[str, ArmCues]
) -> np.ndarray:
    """The statistics of one pair, shape (populations, cues); 0 where an arm is too small to be read."""
    first, second = pair
    if second is None:
        arms = (seen[first], public[first])
        return statistic(*difference_of_cues(*arms, is_pooled=True), *arms)
    arms, expected = (seen[first], seen[second]), (public[first], public[second])
    tested = difference_of_cues(*arms, disjoint_by_client=part.disjoint_by_client, expected=expected)
    return statistic(*tested, *arms, *expected)
