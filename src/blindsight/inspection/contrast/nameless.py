"""Changes of numbers and images that are not in the library of faults: rivals of every named fault.

A fault moves a field, and almost anything else that moves the same field looks like it in a noisy release. So a name
has to predict the release clearly better than plain changes of the field, which are planted in public clients like any
candidate: of a number's location and spread, and of an image's brightness, contrast, grain and shape, or of parts of
it. A change that predicts the release nearly as well leaves the fault unknown.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from blindsight.data.damage import as_pixels, white
from blindsight.data.population import Population
from blindsight.inspection.contrast.explained import NAMELESS
from blindsight.inspection.contrast.planted import Change
from blindsight.inspection.contrast.probes import centre, in_dtype, numbers_of

__all__ = ["nameless"]

_MOVES = (-4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0)  # in public standard deviations
_STRETCHES = {"half as spread out": 0.5, "twice as spread out": 2.0}


def nameless(reference: Population, inputs: Sequence[str]) -> dict[str, Change]:
    """The changes by name: numbers moved, drawn together and spread out about their mean; and images (`_LOOKS`)."""
    changes = dict[str, Change]()
    for field in numbers_of(reference, inputs):
        mean, std = centre(reference, field)
        if std <= 0:
            continue
        for by in _MOVES:
            name = f"{NAMELESS}{field} moved by {by:+g} standard deviations"
            changes[name] = functools.partial(_straight, field=field, mean=mean, factor=1.0, add=by * std)
        for words, factor in _STRETCHES.items():
            name = f"{NAMELESS}{field} {words}"
            changes[name] = functools.partial(_straight, field=field, mean=mean, factor=factor, add=0.0)
    for field in inputs:
        if field in reference.fields and len(reference.fields[field][1]) >= 2:
            for words, look in _LOOKS.items():
                changes[f"{NAMELESS}{field} {words}"] = functools.partial(_looking, field=field, look=look)
    return changes


def _straight(population: Population, *, field: str, mean: float, factor: float, add: float) -> Population:
    column = population.columns[field]
    values = mean + factor * (column.astype(np.float64) - mean) + add
    return population.replace({**population.columns, field: in_dtype(values, column.dtype)})


# --- images: shares of white, shape (examples, height, width[, colours])

_Look = Callable[[np.ndarray], np.ndarray]


def _looking(population: Population, *, field: str, look: _Look) -> Population:
    column = population.columns[field]
    changed = np.clip(look(column.astype(np.float32) / white(column)), 0, 1)
    return population.replace({**population.columns, field: as_pixels(column, changed * white(column))})


def _grainy(images: np.ndarray, share: float) -> np.ndarray:
    """Single pixels of that share are random."""
    dice = np.random.default_rng(0)
    return np.where(dice.random(images.shape) < share, dice.random(images.shape, np.float32), images)


def _partly_inverted(images: np.ndarray, axis: int) -> np.ndarray:
    changed = np.moveaxis(images.copy(), axis, 1)
    half = changed.shape[1] // 2
    changed[:, :half] = 1 - changed[:, :half]
    return np.moveaxis(changed, 1, axis)


def _stretched(images: np.ndarray, axis: int) -> np.ndarray:
    """Wider, or higher, by two fifths."""
    side = images.shape[axis]
    places = ((np.arange(side) + 0.5 - side / 2) / 1.4 + side / 2).astype(int)
    return np.take(images, places, axis)


def _slanted(images: np.ndarray, by: float) -> np.ndarray:
    """Every row moved to the side, the further from the middle the more."""
    height = images.shape[1]
    steps = np.rint(by * (np.arange(height) - height / 2)).astype(int).tolist()
    return np.stack([np.roll(images[:, row], step, axis=1) for row, step in enumerate(steps)], axis=1)


def _in_squares(images: np.ndarray, look: _Look, cells: int, share: float) -> np.ndarray:
    """The look in that share of the squares of a grid."""
    return np.where(_chosen(images, cells, share), look(images), images)


def _chosen(images: np.ndarray, cells: int, share: float) -> np.ndarray:
    grid = np.random.default_rng(0).random((len(images), cells, cells)) < share
    rows, columns = (np.arange(side) * cells // side for side in images.shape[1:3])
    return grid[:, rows][:, :, columns].reshape(*images.shape[:3], *(1,) * (images.ndim - 3))


def _jumbled(images: np.ndarray, cells: int) -> np.ndarray:
    """The squares of a grid in another order, for every image the same."""
    rows, columns = (_in_another_order(side, cells) for side in images.shape[1:3])
    return images[:, rows][:, :, columns]


def _in_another_order(side: int, cells: int) -> np.ndarray:
    order = np.random.default_rng(0).permutation(cells)
    return np.argsort(order[np.arange(side) * cells // side], kind="stable")


def _shaken(images: np.ndarray, by: int) -> np.ndarray:
    """Every row moved to the side at random, in every image alike."""
    steps = np.random.default_rng(0).integers(-by, by, images.shape[1], endpoint=True).tolist()
    return np.stack([np.roll(images[:, row], step, axis=1) for row, step in enumerate(steps)], axis=1)


_LOOKS: dict[str, _Look] = {
    "brighter": lambda images: images + 0.25,
    "darker": lambda images: images - 0.25,
    "with half the contrast": lambda images: 0.25 + 0.5 * images,
    "with twice the contrast": lambda images: 2 * images - 0.5,
    "a little grainy": functools.partial(_grainy, share=0.1),
    "grainy": functools.partial(_grainy, share=0.3),
    "inverted above": functools.partial(_partly_inverted, axis=1),
    "inverted on the left": functools.partial(_partly_inverted, axis=2),
    "stretched in height": functools.partial(_stretched, axis=1),
    "stretched in width": functools.partial(_stretched, axis=2),
    "slanted": functools.partial(_slanted, by=0.3),
    "slanted back": functools.partial(_slanted, by=-0.3),
    "inverted in squares": functools.partial(_in_squares, look=lambda images: 1 - images, cells=7, share=0.5),
    "grey in squares": functools.partial(_in_squares, look=lambda images: 0 * images + 0.5, cells=4, share=0.25),
    "with its squares jumbled": functools.partial(_jumbled, cells=4),
    "with its rows shaken": functools.partial(_shaken, by=3),
}
