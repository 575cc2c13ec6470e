"""Files of images as arrays: in folders, in Hugging Face data sets, and in columns of tables."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.reading import FileRows, existing
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput

__all__ = ["IMAGE_SUFFIXES", "MODES", "fitting_pixels", "pictures_of", "stack"]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

MODES = ("1", "L", "LA", "RGB", "RGBA", "I;16", "I", "F")  # a palette's numbers are not colours


def pictures_of(column: Any, rows: FileRows, field: str) -> np.ndarray:
    """One array of the images in a column of bytes, or of structs of bytes and a path: none missing, all alike."""
    sources: list[tuple[str, Any]] = []
    for row, value in enumerate(column.to_pylist()):
        where = rows.at(row, field)
        struct: dict[str, Any] = {"bytes": value} if isinstance(value, bytes) else value or {}
        content, path = struct.get("bytes"), struct.get("path")
        if not content and not path:
            raise InvalidInput(f"{where}: the image is missing; fill it in or leave the row out")
        sources.append((where, io.BytesIO(content) if content else existing(str(path))))
    return stack(sources)


def stack(sources: Sequence[tuple[str, Any]]) -> np.ndarray:
    """One array of all images, given as (location, file); all must have the same size and mode."""
    from PIL import Image

    stacked: Any = None
    first = ("", ("", (0, 0)))
    for row, (where, source) in enumerate(sources):
        try:
            with warnings.catch_warnings(action="error"), Image.open(source) as image:
                form = (image.mode, image.size)
                pixels = np.asarray(image)
        except Exception as error:  # a damaged image makes Pillow raise almost anything
            raise InvalidInput(f"{where} is not an image, or it is damaged ({_reason(error)}): replace it") from error
        if form[0] not in MODES:
            raise InvalidInput(f"{where} has mode {form[0]}: convert it to grey (L) or colour (RGB)")
        if stacked is None:
            first = (where, form)
            stacked = np.empty((len(sources), *pixels.shape), pixels.dtype)
        if form != first[1]:
            raise InvalidInput(
                f"{where} is {_picture(*form)}, but {first[0]} is {_picture(*first[1])}: make them alike"
            )
        stacked[row] = pixels
    return stacked


def fitting_pixels(source: Any, field: Field) -> np.ndarray | None:
    """The image if it has the field's shape; otherwise None, and nothing is decoded.

    `source` is a path, or the bytes of a file. A path named by data is never opened: it could be any file.
    """
    from PIL import Image

    try:
        opened = io.BytesIO(source) if isinstance(source, bytes) else Path(source)
        with warnings.catch_warnings(action="error"), Image.open(opened) as image:
            if image.mode not in MODES or image.size[::-1] != field.shape[:2]:
                return None
            return np.asarray(image)
    except Exception:  # a damaged image makes Pillow raise almost anything
        return None


def _reason(error: Exception) -> str:
    return "unknown format" if "BytesIO" in str(error) else str(error)


def _picture(mode: str, size: tuple[int, int]) -> str:
    return f"{mode} of {size[0]}x{size[1]} pixels"
