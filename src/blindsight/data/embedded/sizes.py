"""How many examples each client has, between the least and the most that are asked for."""

import operator
from typing import Any

import numpy as np

from blindsight.data.dice import Dice
from blindsight.errors import InvalidInput

__all__ = ["Range", "even_sizes", "least_and_most", "skewed_sizes"]

Range = tuple[int, int]


def least_and_most(examples: Any) -> Range:
    """The option `examples` as two whole numbers, or a refusal."""
    try:
        least, most = map(operator.index, examples)
    except (TypeError, ValueError):
        least, most = 0, 0
    if not 1 <= least <= most:
        raise InvalidInput(f"examples are the least and the most of one client, such as (30, 150), got {examples!r}")
    return least, most


def even_sizes(dice: Dice, examples: Range, clients: np.ndarray) -> np.ndarray:
    """Every number as likely as the next."""
    least, most = examples
    return least + dice.below(most - least + 1, "size", clients)


def skewed_sizes(dice: Dice, examples: Range, clients: np.ndarray) -> np.ndarray:
    """Most have little, a few have much: the logarithm is uniform."""
    least, most = examples
    return np.floor(least * ((most + 1) / least) ** dice.uniform("size", clients)).astype(np.int64)
