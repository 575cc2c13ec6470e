"""Number of examples of each client, within a given range."""

import operator
from typing import Any

import numpy as np

from blindsight.data.dice import Dice
from blindsight.errors import InvalidInput

__all__ = ["Range", "even_sizes", "least_and_most", "skewed_sizes"]

Range = tuple[int, int]


def least_and_most(examples: Any) -> Range:
    """The option `examples` as two validated integers."""
    try:
        least, most = map(operator.index, examples)
    except (TypeError, ValueError):
        least, most = 0, 0
    if not 1 <= least <= most:
        raise InvalidInput(f"examples must be a minimum and a maximum per client, such as (30, 150), got {examples!r}")
    return least, most


def even_sizes(dice: Dice, examples: Range, clients: np.ndarray) -> np.ndarray:
    """Uniform sizes."""
    least, most = examples
    return least + dice.below(most - least + 1, "size", clients)


def skewed_sizes(dice: Dice, examples: Range, clients: np.ndarray) -> np.ndarray:
    """Skewed sizes: the logarithm is uniform, so most clients have few examples and a few have many."""
    least, most = examples
    return np.floor(least * ((most + 1) / least) ** dice.uniform("size", clients)).astype(np.int64)
