"""Private data sets of Hugging Face: columns as Arrow holds them, and the types that the set's features declare.

Features are part of the description that a set's author wrote. Nothing else is ever inferred from values: a missing
number makes no column fractional, and the size of images must be given.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight.data.folders import chosen_split, saved_splits
from blindsight.data.formats import hugging_face, loader_of
from blindsight.data.frames import frame_columns, named_labels
from blindsight.data.reading import exists
from blindsight.data.schema import Field, FieldKind, Schema
from blindsight.errors import InvalidInput

__all__ = ["declared", "is_saved_set", "set_names", "set_table"]

_KINDS: dict[str, FieldKind] = {
    "bool": "truth",
    "string": "text",
    "large_string": "text",
    **dict.fromkeys((f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "whole"),
    **dict.fromkeys(("float16", "float32", "float64"), "number"),
}


def is_saved_set(path: str | Path) -> bool:
    """Whether `path` is a folder that Hugging Face's `save_to_disk` wrote."""
    return exists(path) and loader_of(path) is hugging_face


def set_names(path: str | Path) -> list[str]:
    """Names of all columns."""
    return list(_features(path))


def declared(path: str | Path) -> Schema:
    """The types of the columns whose features say them: not those of lists, of dates, nor of images of any size."""
    fields = {name: _field(feature) for name, feature in _features(path).items()} if is_saved_set(path) else {}
    return Schema({name: field for name, field in fields.items() if field is not None})


def set_table(path: str | Path, split: str | None, listed: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The columns of a split; class labels as names where `listed` names them. A refusal quotes no value."""
    data = chosen_split(_splits(path), split, path)
    try:
        return frame_columns(data, str(path)) | named_labels(data, listed)
    except Exception:  # what is damaged raises almost anything, and quotes it
        raise _unreadable(path) from None


def _features(path: str | Path) -> Mapping[str, Any]:
    """The features of the set; those of the first of several splits."""
    return next(iter(_splits(path).values())).features


def _splits(path: str | Path) -> Mapping[str, Any]:
    try:
        splits = saved_splits(path)
    except InvalidInput as error:  # the library that it needs is missing
        raise _unreadable(path) if error.__cause__ else error from None
    if not splits:
        raise InvalidInput(f"{path} has no splits: there is nothing to read")
    return splits


def _unreadable(path: str | Path) -> InvalidInput:
    return InvalidInput(
        f"{path} cannot be read: run blindsight data check {path} to see why, where the data may be looked at"
    )


def _field(feature: Any) -> Field | None:
    if names := getattr(feature, "names", None):
        return Field("category", values=tuple(names))
    if shape := getattr(feature, "shape", None):
        return Field("image", shape=tuple(shape), of_bytes=feature.dtype == "uint8") if len(shape) > 1 else None
    kind = _KINDS.get(str(getattr(feature, "dtype", "")))
    return None if kind is None else Field(kind)
