"""How columns hold missing values, and values that are not on a public list.

=============  ==============================================  =====================================
kind           missing                                         not one of the listed values
=============  ==============================================  =====================================
number, whole  NaN; a column that may have gaps holds floats
text           an empty text
category       `MISSING`                                       `UNLISTED`
truth          `MISSING` among codes of the classes `TRUTH`    `MISSING`
=============  ==============================================  =====================================

What a model reads in place of a missing value is public: `Field.fill`, never a statistic of clients.
"""

from collections.abc import Sequence

import numpy as np

__all__ = ["MISSING", "TRUTH", "UNLISTED", "coded_as", "is_missing"]

MISSING, UNLISTED = -1, -2
TRUTH = ("false", "true")


def is_missing(column: np.ndarray, *, has_classes: bool = False) -> np.ndarray:
    """Which examples have no value in a column of single values; an unlisted value is not missing.

    >>> is_missing(np.array([1.0, np.nan])).tolist(), is_missing(np.array([0, -1, -2]), has_classes=True).tolist()
    ([False, True], [False, True, False])
    """
    if column.dtype.kind == "T":
        return np.strings.str_len(np.strings.strip(column)) == 0
    if has_classes:
        return column == MISSING
    return ~np.isfinite(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)


def coded_as(column: np.ndarray, values: Sequence[str], names: Sequence[str] | None = None) -> np.ndarray:
    """The column as codes of `values`, `MISSING` or `UNLISTED`.

    The column holds texts, codes of the classes `names`, or, without names, whole numbers named by their digits.

    >>> coded_as(np.array(["b", "", "z"], np.dtypes.StringDType()), ("a", "b")).tolist()
    [1, -1, -2]
    >>> coded_as(np.array([0, -1, 1]), ("a", "b"), names=("b", "c")).tolist()
    [1, -1, -2]
    >>> coded_as(np.array([7, 3]), ("3", "5", "7")).tolist()
    [2, 0]
    """
    places = {value: place for place, value in enumerate(values)}
    if names is not None:
        table = np.array([*(places.get(name, UNLISTED) for name in names), UNLISTED, MISSING], np.int32)
        inside = np.where((column >= 0) & (column < len(names)), column, np.where(column == MISSING, -1, -2))
        return table[inside]
    codes = np.full(len(column), UNLISTED, np.int32)
    if column.dtype.kind != "T":
        codes[is_missing(column)] = MISSING
        for value, place in places.items():
            if value.lstrip("-").isdecimal():
                codes[column == int(value)] = place
        return codes
    codes[is_missing(column)] = MISSING
    for value, place in places.items():
        codes[column == value] = place
    return codes
