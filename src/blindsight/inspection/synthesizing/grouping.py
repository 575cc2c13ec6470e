"""Merges a field's values into a few groups, from its released table by label: post-processing, so groups are public.

A table of all pairs of values would be mostly noise. Neighbouring values are merged in the order of least loss. The
loss of a pair is the squared difference of their label shares, minus the part that noise of known variance explains,
times their mass. Values whose shares of labels cannot be told apart end in one group, while at least `LEAST` groups
remain, of about equal mass. Numbers have their order; categories are ordered by what they say about the label.
"""

import dataclasses
import itertools

import numpy as np

__all__ = ["LEAST", "groups_of"]

LEAST = 4  # groups of a field, however little its values say about the label
_EXPLAINED = 2.0  # variances of noise that a difference must exceed to count


@dataclasses.dataclass
class _Group:
    """Values that are merged: their sums by label, and how many sums of a cell that is."""

    cells: list[int]
    sums: np.ndarray

    def mass(self, noise_std: float) -> float:
        return max(float(self.sums.sum()), noise_std)


def groups_of(sums: np.ndarray, noise_std: float, *, most: int, is_ordered: bool) -> np.ndarray:
    """The group of every cell, of noisy `sums` (cells, labels): at most `most` groups."""
    order = np.arange(len(sums)) if is_ordered else _by_label(sums, noise_std)
    merged = [_Group([int(cell)], np.asarray(sums[cell], np.float64)) for cell in order]
    least = min(LEAST if sums.shape[1] > 1 else most, most)
    losses = [_loss(one, other, noise_std) for one, other in itertools.pairwise(merged)]
    while len(merged) > most or (len(merged) > least and min(losses)[0] <= 0):
        place = min(range(len(losses)), key=losses.__getitem__)
        one, other = merged[place], merged.pop(place + 1)
        merged[place] = _Group([*one.cells, *other.cells], one.sums + other.sums)
        losses.pop(place)
        for near in (place - 1, place):
            if 0 <= near < len(losses):
                losses[near] = _loss(merged[near], merged[near + 1], noise_std)
    groups = np.empty(len(sums), np.int64)
    for number, group in enumerate(merged):
        groups[group.cells] = number
    return groups


def _loss(one: _Group, other: _Group, noise_std: float) -> tuple[float, float]:
    """What merging loses: differences of labels beyond noise, then mass."""
    first, second = one.mass(noise_std), other.mass(noise_std)
    off = one.sums / first - other.sums / second
    variance = noise_std**2 * (len(one.cells) / first**2 + len(other.cells) / second**2)
    mass = first * second / (first + second)
    beyond = float(np.square(off).sum()) - _EXPLAINED * len(off) * variance
    return mass * max(beyond, 0.0), mass


def _by_label(sums: np.ndarray, noise_std: float) -> np.ndarray:
    """Cells by their shares of labels, along the direction in which these differ most; by mass without labels."""
    mass = np.maximum(sums.sum(axis=1), noise_std * sums.shape[1])
    if sums.shape[1] == 1:
        return np.argsort(-mass, kind="stable")
    shares = (sums + noise_std) / (np.maximum(sums.sum(axis=1), 0) + sums.shape[1] * noise_std)[:, None]
    centred = shares - (mass @ shares) / mass.sum()
    _, _, directions = np.linalg.svd(np.sqrt(mass)[:, None] * centred, full_matrices=False)
    return np.argsort(centred @ directions[0], kind="stable")
