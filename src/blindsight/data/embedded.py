"""Embedded data. `digits` is real: 1,797 handwritten digits of 8x8 pixels that come with scikit-learn."""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Digits", "digits"]


class Digits(NamedTuple):
    """One image and its label per client."""

    images: np.ndarray  # (1797, 8, 8) float32 in [0, 1]
    labels: np.ndarray  # (1797,) int32, 0 to 9


def digits() -> Digits:
    """The digits, as if each lay on a client of its own."""
    from sklearn.datasets import load_digits  # a second to import

    loaded: Any = load_digits()
    return Digits((loaded["images"] / 16.0).astype(np.float32), loaded["target"].astype(np.int32))
