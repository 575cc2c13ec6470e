"""Rows of numbers of any scale, standardised before a classifier reads them."""

import dataclasses
from typing import Any

import numpy as np

from blindsight.models.primary import Learnt, Primary, primary

__all__ = ["Scaling"]


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Rows standardised by the mean and spread of public or synthetic ones; a missing number becomes the mean."""

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
        """The primary model that scales rows for a classifier. Scaling and scoring treat each row alone."""
        scores = primary(classifier).scores
        model = primary(lambda rows: scores(self(rows)), name=name, learnt=learnt)
        return dataclasses.replace(model, by_row=True)
