"""Images of synthetic samples for people: grids, means, signed differences, histograms, as arrays and as PNG.

Samples come in stacks (n, height, width[, channels]) of bytes. All arms of a report are drawn from the same latents in
the same class order, so sample i of one arm is paired with sample i of every other.
"""

import dataclasses
import functools
import io
from collections.abc import Sequence

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from blindsight.errors import InvalidInput

__all__ = [
    "Pixels",
    "as_bytes",
    "class_mean",
    "class_means",
    "contrast",
    "diverging",
    "from_png",
    "grid",
    "histogram",
    "luminance",
    "png",
    "side_by_side",
    "stamped",
]

WORD = "synthetic"
STRIP = 18  # height of the strip with the word, in pixels of the enlarged image
BLUE, WHITE, RED = np.array([[33, 102, 172], [247, 247, 247], [178, 24, 43]], np.float64)


def as_bytes(image: np.ndarray) -> np.ndarray:
    """Bytes for an image in [0, 1]; bytes stay as they are."""
    return image if image.dtype == np.uint8 else np.rint(255 * np.clip(image, 0.0, 1.0)).astype(np.uint8)


def luminance(stack: np.ndarray) -> np.ndarray:
    """Brightness in [0, 1] of a stack (n, height, width[, channels]), ignoring transparency."""
    values = stack / np.float64(255) if stack.dtype == np.uint8 else stack.astype(np.float64)
    return values[..., :3].mean(axis=-1) if values.ndim == 4 else values


def png(image: np.ndarray) -> bytes:
    """The image as lossless PNG; a comment inside says that it is synthetic."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    comment = PngInfo()
    comment.add_text("Source", WORD)
    buffer = io.BytesIO()
    picture = Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image)
    picture.save(buffer, format="PNG", pnginfo=comment)
    return buffer.getvalue()


def from_png(data: bytes) -> np.ndarray:
    """The bytes that `png` was given, without the axis of a single channel."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            return np.asarray(picture)
    except OSError as error:
        raise InvalidInput("an image in the report is not a valid PNG: the file was edited or damaged") from error


def stamped(image: np.ndarray, *, width: int = 112) -> np.ndarray:
    """The image scaled by an integer factor to roughly `width`, above a strip that says "synthetic".

    The word is part of the image, so copies keep it.
    """
    picture = as_bytes(image)
    picture = picture[..., 0] if picture.shape[2:] == (1,) else picture
    if picture.shape[1] >= 2 * width:
        picture = _reduced(picture, picture.shape[1] // width)
    factor = max(1, width // picture.shape[1])
    large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    strip = _strip(large.shape[1])
    if large.ndim == 3:
        strip = np.repeat(strip[..., None], large.shape[2], axis=2)
        strip[..., 3:] = 255
    return np.concatenate([large, strip])


def _reduced(picture: np.ndarray, factor: int) -> np.ndarray:
    """The means of blocks of `factor` by `factor` pixels; the remainder at the edges is cut off."""
    height, width = picture.shape[0] // factor, picture.shape[1] // factor
    if height == 0:
        return picture
    blocks = picture[: height * factor, : width * factor].reshape(height, factor, width, factor, *picture.shape[2:])
    return np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)


@functools.cache
def _strip(width: int) -> np.ndarray:
    from PIL import Image, ImageDraw, ImageFont

    strip = Image.new("L", (width, STRIP), 52)
    ImageDraw.Draw(strip).text(
        (width / 2, STRIP / 2), WORD, fill=228, anchor="mm", font=ImageFont.load_default(min(14.0, width / 5))
    )
    return np.asarray(strip)


def grid(samples: np.ndarray, *, columns: int = 10, width: int = 112) -> np.ndarray:
    """One sheet of all samples, row by row, each with its strip; empty cells are white."""
    tiles = [np.pad(stamped(image, width=width), _margin(image), constant_values=255) for image in samples]
    if not tiles:
        raise InvalidInput("a grid needs at least one sample")
    tiles += [np.full_like(tiles[0], 255)] * (-len(tiles) % columns)
    rows = [np.concatenate(tiles[start : start + columns], axis=1) for start in range(0, len(tiles), columns)]
    return np.concatenate(rows)


def _margin(image: np.ndarray) -> list[tuple[int, int]]:
    return [(2, 2), (2, 2)] + [(0, 0)] * (image.ndim - 2 if image.shape[2:] != (1,) else 0)


def class_means(samples: np.ndarray, labels: np.ndarray | None) -> dict[int, np.ndarray]:
    """The mean image of every class, in [0, 1]; without labels, that of all samples, as class 0."""
    if labels is None:
        return {0: samples.mean(axis=0) / 255}
    return {int(label): samples[labels == label].mean(axis=0) / 255 for label in np.unique(labels)}


def class_mean(samples: np.ndarray, labels: np.ndarray | None) -> np.ndarray:
    """The mean over classes of their mean images: no class weighs more because it was sampled more often."""
    return np.mean(list(class_means(samples, labels).values()), axis=0)


def contrast(stacks: Sequence[np.ndarray]) -> np.ndarray:
    """The distance between arms in each sample: the largest mean absolute difference from the first arm."""
    first, *others = [luminance(stack) for stack in stacks]
    if not others:
        return np.zeros(len(first))
    return np.max([np.abs(other - first).mean(axis=(1, 2)) for other in others], axis=0)


def diverging(signed: np.ndarray, limit: float) -> np.ndarray:
    """Colours for signed values in [-limit, limit]: blue below zero, white at zero, red above."""
    ratio = np.clip(signed / limit if limit > 0 else np.zeros_like(signed), -1.0, 1.0)[..., None]
    towards = np.where(ratio < 0, BLUE, RED)
    return np.rint(WHITE + np.abs(ratio) * (towards - WHITE)).astype(np.uint8)


def histogram(samples: np.ndarray, *, bins: int = 32) -> np.ndarray:
    """The share of all pixels in each of `bins` equal steps of brightness from black to white."""
    counts, _ = np.histogram(luminance(samples), bins=bins, range=(0.0, 1.0))
    return counts / max(1, counts.sum())


def side_by_side(images: Sequence[np.ndarray], *, gap: int = 2) -> np.ndarray:
    """Images of one height in a row, as (height, width, 3) in [0, 1], with a black gap between them."""
    coloured: list[np.ndarray] = []
    for image in images:
        values = image / np.float64(255) if image.dtype == np.uint8 else image
        values = values if values.ndim == 3 else values[..., None]
        coloured.append(np.repeat(values, 3, axis=2) if values.shape[2] == 1 else values[..., :3])
    spaced = [np.pad(image, ((0, 0), (0, gap), (0, 0))) for image in coloured[:-1]]
    return np.concatenate([*spaced, coloured[-1]], axis=1)


@dataclasses.dataclass(frozen=True)
class Pixels:
    """An image in [0, 1] (height, width[, 3]) for the terminal: half blocks in colour, or characters without."""

    image: np.ndarray

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        image = np.clip(self.image, 0.0, 1.0)
        if console.color_system is None:
            for row in luminance(image[None])[0]:
                yield Segment("".join(2 * " .:-=+*#%@"[min(9, int(10 * value))] for value in row) + "\n")
            return
        rgb = as_bytes(image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2))
        rgb = np.concatenate([rgb, np.zeros_like(rgb[: len(rgb) % 2])])
        for above, below in zip(rgb[::2], rgb[1::2], strict=True):
            for top, bottom in zip(above, below, strict=True):
                colours = [f"rgb({','.join(map(str, colour.tolist()))})" for colour in (top, bottom)]
                yield Segment("▀", Style.parse(" on ".join(colours)))
            yield Segment("\n")
