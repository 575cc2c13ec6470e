"""Converts Arrow columns to the few types that examples have: numbers, booleans, text, lists and pictures.

Decimals become floats, half floats become single floats, and UUIDs become text. Times become seconds: timestamps and
dates since 1970, in UTC if they have a time zone; times of day since midnight; durations in all. A column of only nulls
holds missing numbers.
"""

from typing import Any

import numpy as np

__all__ = ["as_strings", "compute", "is_list", "is_number", "is_picture", "is_text", "plain", "seconds_of_text"]

_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LAST_MOMENT = 9.2e12  # seconds after 1970, or before: NumPy has no microseconds beyond
_ISO = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.(?P<part>[0-9]{1,9}))?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?$"
)


def compute() -> Any:
    """Arrow's compute functions, which it generates on import, where type checkers cannot see them."""
    import pyarrow.compute

    return pyarrow.compute


def is_text(kind: Any) -> bool:
    """Whether values are texts."""
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: Any) -> bool:
    """Whether values are whole numbers or floats."""
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def is_list(kind: Any) -> bool:
    """Whether values are lists, including those of extension types."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return is_list(kind.storage_type)
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_picture(kind: Any) -> bool:
    """Whether values are files of images: bytes, or Hugging Face's struct of bytes and a path."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return is_picture(kind.storage_type)
    if pa.types.is_struct(kind):
        return {field.name for field in kind} <= {"bytes", "path"} and kind.get_field_index("bytes") >= 0
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def plain(column: Any) -> Any:
    """The column in a plain type, if it has one; otherwise as it is."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _looked_up(column)
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid":
        texts = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.large_string())])
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    return _seconds(column) if pa.types.is_temporal(kind) else column


def _looked_up(column: Any) -> Any:
    """The values of a dictionary column, such as categories of pandas or polars, made plain before they are taken."""
    import pyarrow as pa

    def values(dictionary: Any) -> Any:
        return plain(pa.chunked_array([dictionary])).combine_chunks()

    empty = values(pa.array([], column.type.value_type))
    parts = [values(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(parts, type=empty.type)


def _seconds(column: Any) -> Any:
    """Times as seconds, floats in any case: their type does not depend on their values."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
    elif pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_interval(kind):
        return column
    per_second = _SECOND["ms" if pa.types.is_date(kind) else kind.unit]
    if not pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    return _divided(column.cast(pa.int64()), per_second)


def _divided(whole: Any, by: int) -> Any:
    import pyarrow as pa

    valid = np.asarray(whole.is_valid())
    numbers = np.asarray(whole.fill_null(0), np.int64)
    seconds = numbers // by + (numbers % by) / by  # as precise as a float can be
    return pa.chunked_array([pa.array(seconds, mask=~valid)])


def seconds_of_text(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Seconds since 1970 of ISO 8601 dates and times, as `plain` converts timestamps; and which texts are valid."""
    import pyarrow as pa

    pc = compute()
    is_time = np.asarray(pc.fill_null(pc.match_substring_regex(texts, _ISO), False))
    seconds = np.zeros(len(texts))
    if not is_time.any():
        return seconds, is_time
    matched = pc.extract_regex(texts.filter(pa.array(is_time)).combine_chunks(), _ISO)
    day, time, part, zone = (pc.struct_field(matched, name) for name in ("day", "time", "part", "zone"))
    time = pc.if_else(pc.equal(time, ""), pa.scalar("00:00:00", time.type), time)
    joined = pc.binary_join_element_wise(day, time, pa.scalar(" ", time.type))
    moment = pc.strptime(joined, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)
    is_day = np.asarray(moment.is_valid())
    whole = np.asarray(moment.cast(pa.int64()).fill_null(0), np.int64)
    parts = np.array([int(text.ljust(9, "0")) / 1e9 if text else 0.0 for text in part.to_pylist()])
    seconds[is_time] = whole - np.array([_offset(text) for text in zone.to_pylist()]) + parts
    is_time[is_time] = is_day
    return seconds, is_time


def _offset(zone: str) -> int:
    """Seconds of a time zone such as +02:00 before UTC."""
    if len(zone) < 2:
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[-2:])
    return 60 * (-minutes if zone[0] == "-" else minutes)


def as_strings(column: Any) -> Any:
    """Any column as text: the type that a file's writer chose may depend on a single value."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _moments(column)
    column = plain(column)
    if pa.types.is_floating(column.type):
        numbers = column.to_numpy()
        texts = [None if value != value else f"{value:.17g}" for value in numbers.tolist()]
    elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [None if value is None else value.decode(errors="replace") for value in column.to_pylist()]
    else:
        try:
            return column.cast(pa.large_string())
        except pa.ArrowException:  # lists and structs have no text
            texts = [None] * len(column)
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def _moments(column: Any) -> Any:
    """Dates and times in ISO 8601, without a fraction or a time of day that is zero; null beyond 290,000 years."""
    import pyarrow as pa

    def text(seconds: float) -> str | None:
        if not abs(seconds) < _LAST_MOMENT:  # nor a number
            return None
        moment = np.datetime64(round(seconds * 1e6), "us")
        return str(moment).replace("T", " ").removesuffix(".000000").removesuffix(" 00:00:00")

    return pa.chunked_array([pa.array(list(map(text, plain(column).to_numpy().tolist())), pa.large_string())])
