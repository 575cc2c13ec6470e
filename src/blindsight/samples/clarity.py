"""How much of a release is signal: whether samples drawn from it can show anything.

The noise of a release is known, and what its numbers have beyond that is signal: no look at clients is needed. Samples
of a release that is mostly noise look like something all the same, because generators smooth; so they come with a
warning. `fidelity` measures samples against real examples, where those may be looked at.
"""

import math

import numpy as np

__all__ = ["LEAST", "signal_to_noise", "training_signal", "warning"]

LEAST = 2.0
"""Below this, samples come with a warning: on embedded handwriting, where a tenth of digits is classified as intended
by chance, a ratio of 1.8 gives 17 %, 2 to 3 gives 24 to 30 %, 4.5 gives 53 % and 9 gives 83 %."""


def signal_to_noise(values: np.ndarray, noise_std: float) -> float:
    """The root mean square of released numbers without their noise, in standard deviations of that noise.

    The noise adds its variance to the mean square, so subtracting it is unbiased; infinite without noise.

    >>> signal_to_noise(np.array([3.0, -5.0, 4.0, 5.0]), 2.0)
    1.920286436967152
    """
    if noise_std <= 0:
        return math.inf
    power = float(np.mean(np.square(np.asarray(values, np.float64)))) / noise_std**2
    return math.sqrt(max(power - 1.0, 0.0))


def training_signal(noise_multiplier: float, *, weights: int, cohort: float, rounds: int) -> float:
    """The most that training can be above its noise: all clients of all rounds pull in one direction, at the clip.

    Signal adds up over rounds, noise by its root; both are relative to the clip, and noise has `weights` directions.
    """
    if noise_multiplier <= 0:
        return math.inf
    return cohort * math.sqrt(rounds) / (noise_multiplier * math.sqrt(weights))


def warning(ratio: float | None) -> str:
    """What to say beside samples; empty if they can show something, or nothing is known."""
    if ratio is None or ratio >= LEAST:
        return ""
    return (
        f"These samples show little but noise: the signal of the release is {ratio:.2g} standard deviations of its "
        "noise. Read nothing into them; ask more clients, or raise epsilon."
    )
