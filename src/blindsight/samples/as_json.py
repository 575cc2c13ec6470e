"""Arrays, images and numbers as JSON and back, without loss: images as PNG, numbers to their last bit."""

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput
from blindsight.samples import gallery

__all__ = ["array_from", "array_to", "finite_or_not", "pictures_from", "pictures_to", "plain"]

TEXT = np.dtypes.StringDType()


def plain(value: Any) -> Any:
    """`value` in JSON types: numpy scalars become numbers, tuples lists, and non-finite numbers their names."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InvalidInput(f"a report can hold text, numbers, lists and mappings, not {type(value).__name__}")


def array_to(array: np.ndarray | None) -> dict[str, Any] | None:
    """An array of numbers, booleans or text."""
    if array is None:
        return None
    dtype = "text" if array.dtype.kind in "UT" else str(array.dtype)
    return {"dtype": dtype, "shape": list(array.shape), "values": plain(array.reshape(-1).tolist())}


def array_from(value: Mapping[str, Any] | None) -> np.ndarray | None:
    """The array that `array_to` was given; text comes back as numpy's variable-width strings."""
    if value is None:
        return None
    dtype = TEXT if value["dtype"] == "text" else np.dtype(value["dtype"])
    values = [float(item) for item in value["values"]] if dtype.kind == "f" else value["values"]
    return np.array(values, dtype=dtype).reshape(value["shape"])


def pictures_to(stack: np.ndarray | None) -> dict[str, Any] | None:
    """A stack of byte images, each as PNG in base64."""
    if stack is None:
        return None
    return {
        "shape": list(stack.shape),
        "png": [base64.b64encode(gallery.png(image)).decode("ascii") for image in stack],
    }


def pictures_from(value: Mapping[str, Any] | None) -> np.ndarray | None:
    """The stack that `pictures_to` was given."""
    if value is None:
        return None
    try:
        images = [gallery.from_png(base64.b64decode(data, validate=True)) for data in value["png"]]
    except binascii.Error as error:
        raise InvalidInput("an image in the report is not valid base64: the file was edited or damaged") from error
    return np.array(images, dtype=np.uint8).reshape(value["shape"])


def finite_or_not(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields of `value`, with non-finite numbers converted back from their names."""
    return {name: float(item) if name in names and isinstance(item, str) else item for name, item in value.items()}
