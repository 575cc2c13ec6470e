"""What goes wrong in pipelines, and what each does to a column of examples; `faults` says to whose.

A function takes the damaged examples of one field and the fault's parameters and returns as many, of the same dtype
and shape. `restore` undoes it exactly on whole numbers and text (on fractions to within rounding); where information
is lost there is none, and the sentence in its place says why.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["FAULTS", "Damage", "Kind"]

Change = Callable[..., np.ndarray]
Kind = str
"""image, text, label (a field whose classes have names) or number."""


@dataclasses.dataclass(frozen=True)
class Damage:
    """One thing that goes wrong: the kind of field it befalls, its parameters with their defaults, and its inverse."""

    kind: Kind
    about: str
    change: Change
    restore: Change | None = None
    lost: str = ""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def why_not_undone(self, parameters: Mapping[str, Any]) -> str:
        """Why it cannot be undone with these parameters, or nothing."""
        if self.restore is _shift_back and not parameters["wrap"]:
            return "what was shifted out of the frame is gone (with wrap=yes it comes in on the other side)"
        return self.lost


def white(image: np.ndarray) -> Any:
    """The brightest value that pixels of this dtype have: 1 for fractions."""
    return 1 if image.dtype.kind == "f" else np.iinfo(image.dtype).max


def _as(image: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Computed values as pixels of the dtype of `image`."""
    return (values if image.dtype.kind == "f" else np.rint(values)).astype(image.dtype)


def _invert(image: np.ndarray) -> np.ndarray:
    return (white(image) - image).astype(image.dtype)


def _rotate90(image: np.ndarray, turns: int) -> np.ndarray:
    if turns % 2 and image.shape[1] != image.shape[2]:
        raise InvalidInput(f"images of {image.shape[1]}x{image.shape[2]} cannot be turned by 90 degrees: use turns=2")
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
        raise InvalidInput(f"the margin of crop is a share of the side below 0.5, got {margin:g}")
    cuts = [round(margin * side) for side in image.shape[1:3]]
    rows, columns = (
        cut + np.arange(side) * (side - 2 * cut) // side for cut, side in zip(cuts, image.shape[1:3], strict=True)
    )
    return image[:, rows][:, :, columns]


def _blur(image: np.ndarray, radius: int) -> np.ndarray:
    blurred = image.astype(np.float32)
    for axis in (1, 2):
        blurred = np.mean([np.roll(blurred, step, axis) for step in range(-radius, radius + 1)], axis=0)
    return _as(image, blurred)


def _gamma(image: np.ndarray, exponent: float) -> np.ndarray:
    share = np.clip(image.astype(np.float32) / white(image), 0, 1)
    return _as(image, share ** np.float32(exponent) * white(image))


def _constant(image: np.ndarray, value: float) -> np.ndarray:
    return np.full_like(image, _as(image, np.asarray(value * white(image))))


def _byte_swap(image: np.ndarray) -> np.ndarray:
    if image.dtype.itemsize > 1:
        return image.byteswap()
    flat = image.reshape(len(image), -1).copy()
    even = flat.shape[1] // 2 * 2
    flat[:, :even] = flat[:, :even].reshape(len(flat), -1, 2)[..., ::-1].reshape(len(flat), even)
    return flat.reshape(image.shape)


def _each(text: np.ndarray, change: Callable[[str], str]) -> np.ndarray:
    return np.array([change(one) for one in text.ravel().tolist()], dtype=text.dtype).reshape(text.shape)


def _token_join(text: np.ndarray, where: str, glue: str) -> np.ndarray:
    glue = "\u00a0" if glue == "space" else glue  # no-break: two words stay two, and are one token
    first_gap = re.compile(r"(^|[.!?]\s+|\n)([^\s.!?]+)[^\S\n]+(?=\w)")
    if where == "all":
        return _each(text, lambda one: re.sub(r"(?<=\w)[^\S\n]+(?=\w)", lambda _: glue, one))
    return _each(text, lambda one: first_gap.sub(lambda found: found[1] + found[2] + glue, one))


def _case(text: np.ndarray, to: str) -> np.ndarray:
    return _each(text, {"upper": str.upper, "lower": str.lower, "title": str.title, "swapped": str.swapcase}[to])


def _truncation(text: np.ndarray, characters: int) -> np.ndarray:
    return _each(text, lambda one: one[:characters])


def _encoding_damage(text: np.ndarray) -> np.ndarray:
    """A keyboard makes quotes, dashes and dots typographic; a reader takes the UTF-8 for Windows-1252."""
    smart = [(r"(?<=\w)'|'(?=\w)", "\u2019"), (r'(^|(?<=\s))"', "\u201c"), (r'"', "\u201d"), (r"\.\.\.", "\u2026")]
    smart += [(r"(?<=\s)--?(?=\s)", "\u2013")]

    def damage(one: str) -> str:
        for pattern, sign in smart:
            one = re.sub(pattern, sign, one)
        return "".join(bytes([byte]).decode("cp1252", "replace") for byte in one.encode())

    return _each(text, damage)


def _label_swap(label: np.ndarray, a: int, b: int) -> np.ndarray:
    return np.where(label == a, b, np.where(label == b, a, label)).astype(label.dtype)


def _unit_change(number: np.ndarray, factor: float) -> np.ndarray:
    return _number(number, number * factor, f"times {factor:g}")


def _unit_restore(number: np.ndarray, factor: float) -> np.ndarray:
    if number.dtype.kind != "f" and factor != round(factor):
        raise InvalidInput(f"unit_change cannot be undone: whole numbers were rounded after they were times {factor:g}")
    return _number(number, number / factor, f"divided by {factor:g}")


def _missing_fill(number: np.ndarray, value: float) -> np.ndarray:
    return _number(number, np.full(number.shape, float(value)), f"filled with {value:g}")


def _number(number: np.ndarray, values: np.ndarray, what: str) -> np.ndarray:
    """The values in the dtype of the field, refused where it has no room for them."""
    if number.dtype.kind != "f" and values.size:
        room, exact = np.iinfo(number.dtype), 2**53  # beyond it, fractions of 64 bits skip whole numbers
        if values.min() < max(room.min, -exact) or values.max() > min(room.max, exact):
            raise InvalidInput(f"a field of {number.dtype} has no room for its values {what}: use another one")
    return _as(number, values)


FAULTS: dict[str, Damage] = {
    "invert": Damage("image", "bright and dark change places", _invert, _invert),
    "rotate90": Damage(
        "image",
        "turned by quarter turns, anticlockwise",
        _rotate90,
        lambda image, turns: _rotate90(image, -turns),
        parameters={"turns": 1},
    ),
    "flip": Damage(
        "image",
        "mirrored, axis=horizontal (left and right change places) or vertical",
        _flip,
        _flip,
        parameters={"axis": ("horizontal", "vertical")},
    ),
    "shift": Damage(
        "image",
        "moved by pixels to the right and down; wrap=yes brings in on one side what leaves on the other",
        _shift,
        _shift_back,
        parameters={"right": 5, "down": 0, "wrap": False},
    ),
    "crop": Damage(
        "image",
        "cut off by a margin all round, a share of the side, and enlarged to the old size",
        _crop,
        lost="the margin that was cut off is gone",
        parameters={"margin": 0.2},
    ),
    "blur": Damage(
        "image",
        "every pixel becomes the mean of its neighbourhood of that radius",
        _blur,
        lost="fine detail is gone",
        parameters={"radius": 2},
    ),
    "gamma": Damage(
        "image",
        "brightness raised to a power, as on a wrongly set screen",
        _gamma,
        lost="different greys became the same one",
        parameters={"exponent": 3.0},
    ),
    "constant": Damage(
        "image",
        "one grey all over, between 0 (black) and 1 (white), as from a dead sensor",
        _constant,
        lost="the pictures are gone",
        parameters={"value": 0.0},
    ),
    "byte_swap": Damage(
        "image", "bytes change places in pairs, as words read in the wrong byte order do", _byte_swap, _byte_swap
    ),
    "token_join": Damage(
        "text",
        "words run together: the first two of each sentence (where=first) or all; glue=space keeps a space in it",
        _token_join,
        lost="where words ended is gone",
        parameters={"where": ("first", "all"), "glue": ""},
    ),
    "case": Damage(
        "text",
        "letters changed to=upper, lower, title or swapped",
        _case,
        lost="which letters were capitals is gone",
        parameters={"to": ("upper", "lower", "title", "swapped")},
    ),
    "truncation": Damage(
        "text",
        "truncated after a number of characters",
        _truncation,
        lost="the ends are gone",
        parameters={"characters": 24},
    ),
    "encoding_damage": Damage(
        "text",
        "typographic signs and accents read in the wrong encoding: don't becomes donâ€™t",
        _encoding_damage,
        lost="which quotes were straight is gone",
    ),
    "label_swap": Damage(
        "label",
        "two classes, a and b, change places; the first two unless named",
        _label_swap,
        _label_swap,
        parameters={"a": None, "b": None},
    ),
    "unit_change": Damage(
        "number",
        "multiplied by a factor: grams for kilograms, milliseconds for seconds",
        _unit_change,
        _unit_restore,
        parameters={"factor": 1000.0},
    ),
    "missing_fill": Damage(
        "number",
        "replaced by the value that stands for missing",
        _missing_fill,
        lost="the true values are gone",
        parameters={"value": -1.0},
    ),
}
"""Every fault by name. A parameter with several possible values lists them, the default first."""
