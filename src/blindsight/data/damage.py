"""Faults that occur in data pipelines, as functions on columns of examples; `faults` chooses the affected clients.

Image faults are here, table faults in `table_faults`, and text faults in `text_faults`.

A function takes the affected examples of one field and the fault's parameters. It returns the same number of examples,
of the same dtype and shape. `restore` inverts it exactly on integers and text, and on floats to within rounding. Where
information is lost there is no `restore`, and `lost` says why.
"""

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["DAMAGES", "Damage", "FieldFacts", "Suspects", "as_pixels", "white"]

ColumnFunction = Callable[..., Any]
"""Maps affected examples of a field to the same number of damaged ones; for rows, all columns to the changed ones."""

Suspects = Callable[[np.dtype[Any], tuple[int, ...]], Sequence[str]]
"""Maps a field's dtype and shape to parameter settings such as `axis=vertical`; an empty string means the defaults."""


@dataclasses.dataclass(frozen=True)
class FieldFacts:
    """Public facts about a field: its kind (see `Damage`), dtype, shape, range of numbers and names of classes."""

    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    ends: tuple[float, float] | None = None
    classes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Damage:
    """A type of fault: the type of field it affects, its parameters with their defaults, and its inverse.

    Without an exact inverse, `nearly` may come close enough for a model to recognise the example, and for texts `mend`
    may guess a sentence from the words of a vocabulary. `suspects` lists the parameters that clients vote on by
    default, for a field of that type and shape; `explains` does the same for texts, with the meaning of each.
    `variants` lists the parameters that are planted in public data to explain a release, for a field with these facts
    (for rows: all fields); clients need not be able to undo them. By default they are `suspects`.
    Values of a `graded` parameter differ by degree: close ones are the same fault. A fault `varies` if others would
    implement it with a slightly different result: where pixels are resampled, at a degree between ours, or
    in another encoding.
    """

    kind: str  # image, text, label (a field with named classes), number, or row (all fields)
    description: str
    change: ColumnFunction
    restore: ColumnFunction | None = None
    lost: str = ""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    nearly: ColumnFunction | None = None
    suspects: Suspects | None = None
    variants: Callable[[Any], Sequence[str]] | None = None
    graded: Sequence[str] = ()
    varies: bool = False
    mend: Callable[..., str] | None = None
    explains: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])

    @property
    def undo(self) -> ColumnFunction | None:
        """Its exact or approximate inverse; None if clients cannot recover the original."""
        return self.restore or self.nearly

    def planted(self, field: FieldFacts | Mapping[str, FieldFacts]) -> Sequence[str]:
        """The parameters to plant in a field with these facts."""
        if self.variants is not None:
            return self.variants(field)
        is_listed = self.suspects is not None and isinstance(field, FieldFacts)
        return self.suspects(field.dtype, field.shape) if is_listed else ()  # pyright: ignore

    def fits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
        """Whether it can affect a field of its kind with this dtype and shape."""
        return self.suspects is None or bool(self.suspects(dtype, shape))

    def why_not_undone(self, parameters: Mapping[str, Any]) -> str:
        """Why it cannot be undone with these parameters; empty if it can."""
        if self.restore is _shift_back and not parameters["wrap"]:
            return "pixels shifted out of the frame are lost (with wrap=yes they reappear on the opposite side)"
        return self.lost


def white(image: np.ndarray) -> Any:
    """The maximum pixel value of this dtype; 1 for floats."""
    return 1 if image.dtype.kind == "f" else np.iinfo(image.dtype).max


def as_pixels(image: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Computed values in the dtype of `image`, rounded if it holds integers."""
    return (values if image.dtype.kind == "f" else np.rint(values)).astype(image.dtype)


def _invert(image: np.ndarray) -> np.ndarray:
    return (white(image) - image).astype(image.dtype)


def _rotate90(image: np.ndarray, turns: int) -> np.ndarray:
    if turns % 2 and image.shape[1] != image.shape[2]:
        raise InvalidInput(f"images of {image.shape[1]}x{image.shape[2]} cannot be rotated by 90 degrees: use turns=2")
    return np.rot90(image, turns, axes=(1, 2))


def _flip(image: np.ndarray, axis: str) -> np.ndarray:
    return np.flip(image, axis={"horizontal": 2, "vertical": 1}[axis])


def _shift(image: np.ndarray, right: int, down: int, wrap: bool) -> np.ndarray:
    moved = np.roll(image, (down, right), axis=(1, 2))
    if not wrap:
        moved[:, slice(0, down) if down >= 0 else slice(down, None)] = 0
        moved[:, :, slice(0, right) if right >= 0 else slice(right, None)] = 0
    return moved


def _shift_back(image: np.ndarray, right: int, down: int, wrap: bool) -> np.ndarray:
    return _shift(image, -right, -down, wrap)


def _crop(image: np.ndarray, margin: float) -> np.ndarray:
    if not 0 <= margin < 0.5:
        raise InvalidInput(f"the margin of crop must be a fraction of the side below 0.5, got {margin:g}")
    cuts = [round(margin * side) for side in image.shape[1:3]]
    rows, columns = (  # the nearest pixel to the middle of each
        cut + (2 * np.arange(side) + 1) * (side - 2 * cut) // (2 * side)
        for cut, side in zip(cuts, image.shape[1:3], strict=True)
    )
    return image[:, rows][:, :, columns]


def _blur(image: np.ndarray, radius: int) -> np.ndarray:
    blurred = image.astype(np.float32)
    for axis in (1, 2):
        blurred = np.mean([np.roll(blurred, step, axis) for step in range(-radius, radius + 1)], axis=0)
    return as_pixels(image, blurred)


def _gamma(image: np.ndarray, exponent: float) -> np.ndarray:
    share = np.clip(image.astype(np.float32) / white(image), 0, 1)
    return as_pixels(image, share ** np.float32(exponent) * white(image))


def _constant(image: np.ndarray, value: float) -> np.ndarray:
    return np.full_like(image, as_pixels(image, np.asarray(value * white(image))))


def _occlude(image: np.ndarray, side: str, share: float) -> np.ndarray:
    if not 0 < share <= 1:
        raise InvalidInput(f"the share of occlude must be above 0 and at most 1, got {share:g}")
    axis, is_first = (1 if side in ("top", "bottom") else 2), side in ("top", "left")
    length = image.shape[axis]
    cut = round(share * length)
    hidden = np.arange(length) < cut if is_first else np.arange(length) >= length - cut
    covered = image.copy()
    covered[(slice(None), hidden) if axis == 1 else (slice(None), slice(None), hidden)] = 0
    return covered


def _zoom(image: np.ndarray, factor: float) -> np.ndarray:
    """Nearest pixels about the centre; black where a smaller image leaves room."""
    if not factor > 0:
        raise InvalidInput(f"the factor of zoom must be above 0, got {factor:g}")
    places = [((np.arange(side) + 0.5 - side / 2) / factor + side / 2) for side in image.shape[1:3]]
    rows, columns = (np.floor(place).astype(int) for place in places)
    inside = [(one >= 0) & (one < side) for one, side in zip((rows, columns), image.shape[1:3], strict=True)]
    zoomed = image[:, np.clip(rows, 0, image.shape[1] - 1)][:, :, np.clip(columns, 0, image.shape[2] - 1)]
    zoomed[:, ~inside[0]] = 0
    zoomed[:, :, ~inside[1]] = 0
    return zoomed


def _block_noise(image: np.ndarray, share: float) -> np.ndarray:
    """White blocks of a seventh of the side; which ones depends on the image alone."""
    if not 0 < share <= 1:
        raise InvalidInput(f"the share of block_noise must be above 0 and at most 1, got {share:g}")
    sides = [max(1, side // 7) for side in image.shape[1:3]]
    grid = [-(-length // side) for length, side in zip(image.shape[1:3], sides, strict=True)]
    seeds = [zlib.crc32(one.tobytes()) for one in np.ascontiguousarray(image)]
    lost = np.stack([np.random.default_rng(seed).random(grid) < share for seed in seeds] or [np.zeros(grid, bool)])
    lost = lost.repeat(sides[0], axis=1).repeat(sides[1], axis=2)[: len(image), : image.shape[1], : image.shape[2]]
    return np.where(lost.reshape(*lost.shape, *(1,) * (image.ndim - 3)), white(image), image).astype(image.dtype)


def _channel_swap(image: np.ndarray) -> np.ndarray:
    if image.ndim < 4 or image.shape[3] < 3:
        raise InvalidInput("channel_swap needs colour images")
    return image[..., [2, 1, 0, *range(3, image.shape[3])]]


def _byte_swap(image: np.ndarray) -> np.ndarray:
    if image.dtype.itemsize > 1:
        return image.byteswap()
    flat = image.reshape(len(image), -1).copy()
    even = flat.shape[1] // 2 * 2
    flat[:, :even] = flat[:, :even].reshape(len(flat), -1, 2)[..., ::-1].reshape(len(flat), even)
    return flat.reshape(image.shape)


def _always(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sequence[str]:
    """The defaults, for every field."""
    return ("",)


def _shifts(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sequence[str]:
    step = max(1, shape[1] // 7)
    return [f"{way}={by}" for way in ("right", "down") for by in (step, -step)]


DAMAGES: dict[str, Damage] = {
    "invert": Damage("image", "bright and dark change places", _invert, _invert, suspects=_always),
    "rotate90": Damage(
        "image",
        "turned by quarter turns, anticlockwise",
        _rotate90,
        lambda image, turns: _rotate90(image, -turns),
        parameters={"turns": 1},
        suspects=lambda dtype, shape: ("", "turns=3", "turns=2") if shape[0] == shape[1] else ("turns=2",),
    ),
    "flip": Damage(
        "image",
        "mirrored, axis=horizontal (left and right change places) or vertical",
        _flip,
        _flip,
        parameters={"axis": ("horizontal", "vertical")},
        suspects=lambda dtype, shape: ("", "axis=vertical"),
    ),
    "shift": Damage(
        "image",
        "moved to the right and down by that many pixels; with wrap=yes they reappear on the opposite side",
        _shift,
        _shift_back,
        parameters={"right": 5, "down": 0, "wrap": False},
        suspects=_shifts,
    ),
    "crop": Damage(
        "image",
        "a margin all round, a share of the side, is cut off, and the rest is enlarged to the old size",
        _crop,
        lost="the margin that was cut off is gone",
        parameters={"margin": 0.2},
        variants=lambda field: ("margin=0.1", "margin=0.15", ""),
        graded=("margin",),
        varies=True,
    ),
    "zoom": Damage(
        "image",
        "enlarged about the centre by a factor, or shrunk with a black border",
        _zoom,
        lost="pixels that were left out are gone",
        parameters={"factor": 0.7},
        variants=lambda field: ("", "factor=0.5"),
        graded=("factor",),
        varies=True,
    ),
    "blur": Damage(
        "image",
        "every pixel becomes the mean of its neighbourhood of that radius",
        _blur,
        lost="fine detail is gone",
        parameters={"radius": 2},
        variants=lambda field: ("radius=1", ""),
        graded=("radius",),
        varies=True,
    ),
    "gamma": Damage(
        "image",
        "brightness raised to a power, as on a wrongly set screen",
        _gamma,
        lost="different greys became the same one",
        parameters={"exponent": 3.0},
        nearly=lambda image, exponent: _gamma(image, 1 / exponent),
        suspects=lambda dtype, shape: ("exponent=3", "exponent=0.33"),
        varies=True,
    ),
    "constant": Damage(
        "image",
        "one grey all over, between 0 (black) and 1 (white), as from a dead sensor",
        _constant,
        lost="the pictures are gone",
        parameters={"value": 0.0},
        variants=lambda field: ("", "value=1"),
    ),
    "occlude": Damage(
        "image",
        "a share of the image at side=top, bottom, left or right is black, as behind an obstacle",
        _occlude,
        lost="what was covered is gone",
        parameters={"side": ("top", "bottom", "left", "right"), "share": 0.5},
        variants=lambda field: [f"side={side}" for side in ("top", "bottom", "left", "right")],
        varies=True,
    ),
    "block_noise": Damage(
        "image",
        "a share of the blocks of an image is white, as after errors in transmission",
        _block_noise,
        lost="what was covered is gone",
        parameters={"share": 0.15},
        variants=lambda field: ("", "share=0.3"),
        graded=("share",),
        varies=True,
    ),
    "channel_swap": Damage(
        "image",
        "red and blue change places, as in BGR images read as RGB",
        _channel_swap,
        _channel_swap,
        suspects=lambda dtype, shape: ("",) if len(shape) == 3 and shape[2] >= 3 else (),
    ),
    "byte_swap": Damage(
        "image",
        "bytes change places in pairs, as words read in the wrong byte order do",
        _byte_swap,
        _byte_swap,
        suspects=_always,
    ),
}
"""Faults of images.

A parameter with several possible values lists them, the default first.
"""
