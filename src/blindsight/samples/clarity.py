"""Signal-to-noise ratio of a release, which shows whether samples drawn from it are meaningful.

The noise level of a release is known, so its signal can be estimated from the released numbers alone. Samples of a
release that is mostly noise still look plausible because generators smooth, so they come with a warning. `fidelity`
compares samples with real examples, where access to these is allowed.
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
    """Upper bound on the signal-to-noise ratio of training: all updates have the clip's norm and the same direction.

    Over rounds the signal grows linearly and the noise with the square root. Both are relative to the clip, and the
    noise has `weights` dimensions.
    """
    if noise_multiplier <= 0:
        return math.inf
    return cohort * math.sqrt(rounds) / (noise_multiplier * math.sqrt(weights))


def warning(ratio: float | None) -> str:
    """The warning to show with samples; empty if the ratio is high enough or unknown."""
    if ratio is None or ratio >= LEAST:
        return ""
    return (
        f"These samples show little but noise: the signal of the release is {ratio:.2g} standard deviations of its "
        "noise. Read nothing into them; ask more clients, or raise epsilon."
    )
