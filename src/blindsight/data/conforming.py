"""Converts columns of clients' values to the types of a public schema, and says which values fit.

Each value is converted separately: neither the type that a file's writer chose nor another row changes the result.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.data.arrow_values import as_strings, compute, is_list, is_number, is_picture, plain, seconds_of_text
from blindsight.data.csv_tables import NUMBER, spelled
from blindsight.data.missing import MISSING, TRUTH, UNLISTED
from blindsight.data.pictures import fitting_pixels
from blindsight.data.population import as_text
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput

__all__ = ["blank", "client_ids", "conform_column", "conform_mixed"]

_LARGEST = 3.4e38  # float32


def client_ids(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The client id of each row as text, and whether the row has one."""
    import pyarrow as pa

    if isinstance(column, list):
        ids, fine = np.full(len(column), "", object), np.zeros(len(column), bool)
        for places, alike in _by_type(column):
            ids[places], fine[places] = client_ids(alike)
        return as_text(ids), fine

    pc, column = compute(), column if pa.types.is_temporal(column.type) else plain(column)
    if pa.types.is_floating(column.type):  # integer ids become floats when a file is written with one missing
        numbers = column.to_numpy()
        fine = np.isfinite(numbers) & (np.floor(numbers) == numbers) & (np.abs(numbers) < 2**53)
        return np.where(fine, numbers, 0).astype(np.int64).astype(str), fine
    texts = pc.fill_null(as_strings(column), "")
    return as_text(np.asarray(texts.to_pylist(), dtype=object)), np.asarray(pc.not_equal(texts, ""))


def blank(field: Field, count: int) -> np.ndarray:
    """A column of this many values of the field's type, to be filled in."""
    if field.kind == "image":
        return np.zeros((count, *field.shape), np.uint8 if field.of_bytes else np.float32)
    kinds: Mapping[str, Any] = {"number": np.float64, "whole": np.int64, "truth": bool, "category": np.int32}
    return np.full(count, "", object) if field.kind == "text" else np.zeros(count, kinds[field.kind])


def conform_mixed(values: Sequence[Any], field: Field, where: str) -> tuple[np.ndarray, np.ndarray]:
    """As `conform_column`, for Python values that no single Arrow type can hold: each type is converted separately."""
    columns, fits = blank(field, len(values)), np.zeros(len(values), bool)
    for places, alike in _by_type(values):
        try:
            columns[places], fits[places] = conform_column(alike, field, where)
        except InvalidInput:  # none of this type fits
            continue
    return (as_text(columns) if field.kind == "text" else columns), fits


def _by_type(values: Sequence[Any]) -> Iterator[tuple[list[int], Any]]:
    """Places and Arrow columns of the values of each type; a value that Arrow cannot hold is in none."""
    import pyarrow as pa

    groups: dict[type, list[int]] = {}
    for place, value in enumerate(values):
        groups.setdefault(type(value), []).append(place)
    groups.pop(type(None), None)
    for kind, places in groups.items():
        alike = [values[place] for place in places]
        if kind is str:
            alike = [text.encode(errors="replace").decode() for text in alike]
        try:
            yield places, pa.chunked_array([pa.array(alike)])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            for place, value in zip(places, alike, strict=True):
                with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
                    yield [place], pa.chunked_array([pa.array([value])])


def conform_column(column: Any, field: Field, where: str, decimal: str = ".") -> tuple[np.ndarray, np.ndarray]:
    """The column in its field's type, and which rows fit; the others hold arbitrary values of that type.

    Numbers written as text use the decimal mark `decimal`. Dates and times count as numbers: seconds since 1970.
    """
    import pyarrow as pa

    pc = compute()
    if field.kind == "image":
        return _images(column, field, where)
    if is_list(column.type):
        raise InvalidInput(f"{where} holds lists: give its shape as its type, such as image:28x28, or leave it out")
    if field.kind in ("number", "whole"):
        return _numbers(column, is_whole=field.kind == "whole", decimal=decimal)
    texts = as_strings(column)
    fine = np.asarray(pc.is_valid(texts))
    texts = pc.fill_null(texts, "")
    if field.kind == "text":
        return as_text(np.asarray(texts.to_pylist(), dtype=object)), fine
    if field.kind == "truth":
        lower = pc.utf8_lower(texts)
        return np.asarray(pc.equal(lower, "true")), fine & np.asarray(pc.is_in(lower, pa.array(["true", "false"])))
    if field.values == TRUTH:
        texts = pc.utf8_lower(texts)
    places = pc.index_in(texts, pa.array(field.values, pa.large_string()))
    codes = np.asarray(pc.fill_null(places, UNLISTED), np.int32)
    codes = np.where(np.asarray(pc.equal(pc.utf8_trim_whitespace(texts), "")) & (codes < 0), MISSING, codes)
    return codes, fine & (codes >= 0)


def _numbers(column: Any, *, is_whole: bool, decimal: str = ".") -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    pc, column = compute(), plain(column)
    if is_number(column.type) or pa.types.is_boolean(column.type):
        numbers = np.asarray(pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan")), np.float64)
    else:
        numbers = _numbers_of_texts(pc.fill_null(as_strings(column), ""), decimal)
    fine = np.isfinite(numbers) & (np.abs(numbers) <= _LARGEST)
    numbers = np.where(fine, numbers, 0.0)
    if not is_whole:
        return numbers, fine
    fine &= (np.floor(numbers) == numbers) & (np.abs(numbers) < 2**31)
    return np.where(fine, numbers, 0.0).astype(np.int64), fine


def _numbers_of_texts(texts: Any, decimal: str) -> np.ndarray:
    """The same numbers as from columns of numbers, booleans and times, whatever the file's writer chose."""
    import pyarrow as pa

    pc = compute()
    texts = pc.utf8_trim(texts.cast(pa.large_string()), " ")
    marked = spelled(texts, decimal)
    given = pc.if_else(pc.match_substring_regex(marked, NUMBER), pc.utf8_ltrim(marked, "+"), "nan")
    numbers = np.asarray(pc.cast(given, pa.float64()), np.float64).copy()
    for truth, number in (("true", 1.0), ("false", 0.0)):
        numbers[np.asarray(pc.equal(pc.utf8_lower(texts), truth))] = number
    seconds, is_time = seconds_of_text(texts)
    return np.where(is_time, seconds, numbers)


def _images(column: Any, field: Field, where: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
    if is_picture(column.type):
        return _decoded(column, field)
    if not is_list(column.type):
        raise InvalidInput(f"{where} does not hold lists of numbers, so it cannot be an image: choose another type")
    flat = not is_list(column.type.value_type)
    values, fine = _lists(column, (int(np.prod(field.shape)),) if flat else field.shape, where)
    values = values.reshape(len(column), *field.shape)
    if field.of_bytes:
        whole = (np.floor(values) == values) & (values >= 0) & (values <= 255)
        fine &= whole.reshape(len(values), -1).all(axis=1)
        return np.where(fine.reshape(-1, *[1] * len(field.shape)), values, 0).astype(np.uint8), fine
    return values.astype(np.float32), fine


def _decoded(column: Any, field: Field) -> tuple[np.ndarray, np.ndarray]:
    """Files of images as pixels; a path is not followed."""
    values, fine = np.zeros((len(column), *field.shape), field.dtype), np.zeros(len(column), bool)
    for row, value in enumerate(column.to_pylist()):
        content = value.get("bytes") if isinstance(value, dict) else value
        pixels = fitting_pixels(content, field) if isinstance(content, bytes) else None
        if pixels is not None and pixels.shape == field.shape and np.can_cast(pixels.dtype, field.dtype):
            values[row], fine[row] = pixels, True
    return values, fine


def _lists(column: Any, shape: tuple[int, ...], where: str) -> tuple[np.ndarray, np.ndarray]:
    """Lists of lists as one array, with zeros for rows of another shape or with a value that is not a number."""
    import pyarrow as pa

    pc = compute()
    length = next(iter(shape))
    if not is_list(column.type) or is_list(column.type.value_type) != (len(shape) > 1):
        raise InvalidInput(f"{where} holds lists whose depth does not match its shape: choose another shape")
    fine = np.asarray(pc.fill_null(pc.list_value_length(column), -1)) == length
    inner = pc.list_flatten(column.filter(pa.array(fine)))
    values, all_fine = _lists(inner, shape[1:], where) if len(shape) > 1 else _numbers(inner, is_whole=False)
    array = np.zeros((len(column), *shape))
    array[fine] = values.reshape(-1, *shape)
    fine[fine] = all_fine.reshape(-1, length).all(axis=1)
    return array, fine
