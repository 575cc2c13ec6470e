"""`handwriting`: characters written by synthetic writers, 28x28 grey, ink bright on black.

A writer has a slant, a pen, a size, a way of writing each character and a personal deformation of it; each character
they write varies a little around that. An image is a sum of dabs along the pen's path, each a round spot of ink. A
round spot is the product of a function of x and one of y, so an image is the product of two small matrices, and
hundreds of thousands render in seconds.
"""

import functools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from blindsight.data.dice import Dice
from blindsight.data.embedded.sizes import Range, even_sizes, least_and_most
from blindsight.data.embedded.strokes import CHARACTERS, POINTS, templates
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Columns, as_text, ranges
from blindsight.errors import InvalidInput

__all__ = ["handwriting"]

SIDE = 28  # pixels
CHUNK = 128  # images rendered at once, so that their dabs stay in the processor's cache
FEW = 16  # chunks that are not worth starting threads for
GLYPHS = {"digits": CHARACTERS[:10], "all": CHARACTERS}


def handwriting(
    clients: int = 500, *, seed: int = 0, glyphs: str = "digits", examples: Range = (30, 150)
) -> GeneratedPopulation:
    """Writers and their characters: `image` (28, 28) uint8 and `label`.

    `glyphs` is "digits" (10 classes) or "all" (62: digits, capitals, small letters); `examples` are the minimum and
    maximum number of characters per writer. Synthetic.
    """
    if glyphs not in GLYPHS:
        raise InvalidInput(f'glyphs must be "digits" or "all", got {glyphs!r}')
    span = least_and_most(examples)
    dice = Dice(seed, "handwriting")
    everyone = np.arange(clients)
    return GeneratedPopulation(
        functools.partial(_draw, dice, len(GLYPHS[glyphs]), span),
        sizes=even_sizes(dice, span, everyone),
        ids=np.strings.add("writer-", as_text(everyone)),
        name="handwriting",
        recipe=("handwriting", dice.seed, glyphs, span),
        classes={"label": GLYPHS[glyphs]},
        synthetic=True,
        keep=True,
    )


def _draw(dice: Dice, classes: int, examples: Range, clients: np.ndarray) -> Columns:
    """The examples of these clients. Every throw depends only on the client and the number of its example."""
    sizes = even_sizes(dice, examples, clients)
    writer = np.repeat(clients, sizes)
    example = ranges(np.zeros_like(sizes), sizes)
    image = np.empty((len(writer), SIDE, SIDE), dtype=np.uint8)
    label = np.empty(len(writer), dtype=np.int32)

    def draw(start: int) -> None:
        some = slice(start, start + CHUNK)
        label[some] = _labels(dice, classes, writer[some], example[some])
        image[some] = _write(dice, label[some], writer[some], example[some])

    starts = range(0, len(writer), CHUNK)
    if len(starts) < FEW:
        for start in starts:
            draw(start)
    else:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
            list(pool.map(draw, starts))  # NumPy lets other threads run while it computes
    return {"image": image, "label": label}


def _labels(dice: Dice, classes: int, writer: np.ndarray, example: np.ndarray) -> np.ndarray:
    """The label of each example: a writer writes some characters up to twice as often as others."""
    people, who = np.unique(writer, return_inverse=True)
    liking = np.exp(0.3 * dice.bell("liking", people[:, None], np.arange(classes)))
    ceiling = np.cumsum(liking, axis=1)
    throw = dice.uniform("label", writer, example) * ceiling[who, -1]
    return np.minimum((throw[:, None] >= ceiling[who]).sum(axis=1), classes - 1)


class Style(NamedTuple):
    """A writer's style, the same in all their characters. One number per image."""

    slant: np.ndarray
    turn: np.ndarray  # radians
    height: np.ndarray  # pixels of a capital
    width: np.ndarray  # relative to the usual
    pen: np.ndarray  # pixels: the spread of a dab
    roundness: np.ndarray  # 0 for sharp turns, 1 for cut corners
    unrest: np.ndarray  # how far characters vary from the writer's own way, in heights
    pressure: np.ndarray  # how much the pen's width varies along the path
    tone: np.ndarray  # brightness of full ink
    drift: np.ndarray  # pixels above the middle


def _style(dice: Dice, writer: np.ndarray) -> Style:
    bell = lambda name: dice.bell(name, writer)  # noqa: E731
    return Style(
        slant=0.14 + 0.21 * bell("slant"),
        turn=0.05 * bell("turn"),
        height=18.0 * np.exp(0.07 * bell("height")),
        width=1.02 * np.exp(0.14 * bell("width")),
        pen=0.92 * np.exp(0.19 * bell("pen")),
        roundness=np.clip(0.45 + 0.4 * bell("roundness"), 0, 1.3),
        unrest=0.024 * np.exp(0.35 * bell("unrest")),
        pressure=0.14 * np.abs(bell("pressure")),
        tone=np.minimum(1, 1.03 - 0.05 * np.abs(bell("tone"))),
        drift=0.5 * bell("drift"),
    )


def _write(dice: Dice, label: np.ndarray, writer: np.ndarray, example: np.ndarray) -> np.ndarray:
    """The images: the writer's path of each character, placed in the frame and inked."""
    style = _style(dice, writer)
    way = _way(dice, label, writer)
    path = _bent_path(dice, style, way, label, writer, example)
    path = _lay(dice, style, path, writer, example)
    return _ink(dice, style, path, templates().joined[way], writer, example)


def _way(dice: Dice, label: np.ndarray, writer: np.ndarray) -> np.ndarray:
    """The way in which the writer writes this character: the first is the most common, the last the least."""
    ways = templates()
    throw = dice.uniform("way", writer, label) ** 1.4
    return ways.first[label] + (throw * ways.number[label]).astype(np.int64)


def _bent_path(
    dice: Dice, style: Style, way: np.ndarray, label: np.ndarray, writer: np.ndarray, example: np.ndarray
) -> np.ndarray:
    """The path in heights of a capital: the template, the writer's deformation of it, and this example's wobble."""
    ways = templates()
    kinds = ways.bends.shape[2]
    fade = np.array([1, 1, 0.8, 0.6, 0.45, *[1] * (kinds - 5)], dtype=np.float32)  # a hand bends slowly
    number = np.arange(2 * kinds)
    personal = 0.032 * dice.bell("habit", writer[:, None], label[:, None], number)
    wobble = style.unrest[:, None] * dice.bell("wobble", writer[:, None], example[:, None], number)
    bend = (personal + wobble).reshape(-1, kinds, 2) * fade[:, None]
    path = ways.sharp[way] + style.roundness[:, None, None] * (ways.round[way] - ways.sharp[way])
    return path + ways.bends[way] @ bend


def _lay(dice: Dice, style: Style, path: np.ndarray, writer: np.ndarray, example: np.ndarray) -> np.ndarray:
    """The path in pixels, y downward: slanted, rotated, scaled, and placed near the middle of the frame."""
    chance = dice.bell("lay", writer[:, None], example[:, None], np.arange(5)).T
    slant = style.slant + 0.05 * chance[0]
    turn = style.turn + 0.045 * chance[1]
    height = style.height * np.exp(0.045 * chance[2])
    x = (path[..., 0] + slant[:, None] * path[..., 1]) * style.width[:, None]
    y = path[..., 1]
    cos, sin = np.cos(turn)[:, None], np.sin(turn)[:, None]
    x, y = cos * x - sin * y, -(sin * x + cos * y)
    extent = np.maximum(np.ptp(x, axis=1), np.ptp(y, axis=1))
    height = height * np.clip(extent, 0.4, 1) ** -0.4  # small letters are enlarged somewhat
    height = np.minimum(height, (SIDE - 8) / extent)[:, None]  # large writing is kept within the frame
    middle = (SIDE - 1) / 2
    x = middle + (x - _centre(x)) * height + 0.5 * chance[3][:, None]
    y = middle + (y - _centre(y)) * height + (0.5 * chance[4] - style.drift)[:, None]
    return np.stack([x, y], axis=-1).astype(np.float32)


def _centre(coordinate: np.ndarray) -> np.ndarray:
    """Half-way between the middle of the extent and the centre of mass, as an eye would place a character."""
    middle = (coordinate.min(axis=1) + coordinate.max(axis=1)) / 2
    return ((middle + coordinate.mean(axis=1)) / 2)[:, None]


def _ink(
    dice: Dice, style: Style, path: np.ndarray, joined: np.ndarray, writer: np.ndarray, example: np.ndarray
) -> np.ndarray:
    """Grey images of dabs along the paths."""
    chance = dice.bell("ink", writer[:, None], example[:, None], np.arange(2))
    along = np.linspace(-1, 1, POINTS, dtype=np.float32)
    press = style.pressure[:, None] * (chance[:, :1] * along + chance[:, 1:] * (1.5 * along**2 - 0.5))
    spread = np.clip(style.pen[:, None] * np.exp(press), 0.6, 1.7)
    step = np.sqrt(np.square(np.diff(path, axis=1)).sum(axis=2)) * joined
    length = np.zeros(path.shape[:2], dtype=np.float32)  # of the path that a dab represents
    length[:, 1:] += step / 2
    length[:, :-1] += step / 2
    full = length / (spread * math.sqrt(2 * math.pi))  # so that the middle of a straight line has value 1
    pixel = np.arange(SIDE, dtype=np.float32)
    scale = (math.sqrt(0.5) / spread)[..., None]
    across = _bells(scale * pixel - scale * path[..., :1])
    down = _bells(scale * pixel - scale * path[..., 1:])
    down *= full[..., None]
    wet = down.transpose(0, 2, 1) @ across
    wet -= 0.22  # ink flows together where there is much of it, and leaves no trace where there is little
    wet *= (255 / 0.4) * style.tone[:, None, None]
    return np.clip(wet, 0, 255 * style.tone[:, None, None], out=wet).astype(np.uint8)


def _bells(distance: np.ndarray) -> np.ndarray:
    np.square(distance, out=distance)
    np.negative(distance, out=distance)
    return np.exp(distance, out=distance)
