"""Lengths within nested subspaces: the most important directions first, and a bound for each number of them."""

from collections.abc import Sequence

import numpy as np

__all__ = ["shorten"]

_TINY = np.float32(1e-30)


def shorten(
    changes: np.ndarray, inside: np.ndarray, basis: np.ndarray, bounds: Sequence[tuple[int, float]]
) -> np.ndarray:
    """Shorten each row of `changes` in place, so that its first `size` components are no longer than `radius`.

    `inside` are the components along the rows of `basis`; `bounds` are pairs of size and radius, the smallest first.
    The largest is applied first, and shortens all components alike: what is hostile in one direction leaves nothing
    in the others. Returns which rows were shortened.
    """
    kept = inside.copy()
    for size, radius in reversed(bounds):
        lengths = np.sqrt(np.einsum("ij,ij->i", kept[:, :size], kept[:, :size]))
        kept[:, :size] *= np.minimum(1, np.float32(radius) / np.maximum(lengths, _TINY))[:, None]
    too_much = inside - kept
    shortened = np.any(too_much != 0, axis=1)
    if shortened.any():
        changes -= too_much @ basis
    return shortened
