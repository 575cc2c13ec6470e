"""Standardises rows of numbers before a classifier reads them."""

import dataclasses
from typing import Any

import numpy as np

from blindsight.models.primary import Learnt, Primary, Scaled, primary

__all__ = ["Scaling"]


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Standardises rows by the mean and spread of public or synthetic rows; a missing number becomes the mean."""

    middle: tuple[float, ...]
    spread: tuple[float, ...]

    @classmethod
    def of(cls, rows: np.ndarray) -> "Scaling":
        """The scaling that gives every column of these rows mean 0 and spread 1."""
        numbers = rows.reshape(len(rows), -1).astype(np.float64)  # a single input is a vector
        spread = np.nanstd(numbers, axis=0) + 1e-6
        return cls(tuple(np.nanmean(numbers, axis=0).tolist()), tuple(spread.tolist()))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        numbers = rows.reshape(len(rows), len(self.middle)).astype(np.float64)
        return np.nan_to_num((numbers - np.array(self.middle)) / np.array(self.spread)).astype(np.float32)

    def before(self, classifier: Any, *, name: str, learnt: Learnt) -> Primary:
        """The primary model that scales rows before a classifier."""
        return dataclasses.replace(self.scaled(primary(classifier), name=name), learnt=learnt)

    def scaled(self, scored: Primary, *, name: str) -> Primary:
        """The model `scored` on scaled rows. Scaling works row by row, so the result does if `scored` does."""
        model = primary(lambda rows: scored.scores(self(rows)), name=name)
        return dataclasses.replace(model, by_row=scored.by_row, origin=Scaled(scored, self))
