"""Options that describe a table: `--type` for its fields, and how a CSV file is written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blindsight.errors import InvalidInput

__all__ = ["DECIMAL", "ENCODING", "SEPARATOR", "TYPES", "described"]

SEPARATOR = "Separator of a CSV file, such as ; or tab. Default: read off the header."
ENCODING = "Encoding of a CSV file, such as cp1252. Default: guessed."
DECIMAL = "Decimal mark of a CSV file. Default: a point; either, if the separator is not a comma."

TYPES = "Type of a field, age=whole:0:120; its public range only, age=0:100; or a JSON file of types. Repeatable."


def described(types: Sequence[str], schema: Path | None = None, ranges: Sequence[str] = ()) -> dict[str, Any]:
    """The fields `types`, `schema` and `ranges` of a request, from `--type` and its older spellings.

    >>> described(["age=whole:0:120", "pay=0:9000", "people.json"])
    {'types': ['age=whole:0:120'], 'schema': PosixPath('people.json'), 'ranges': ['pay=0:9000']}
    """
    files = [*([] if schema is None else [schema]), *(Path(one) for one in types if "=" not in one)]
    if len(files) > 1:
        raise InvalidInput(f"give one JSON file of types, got {' and '.join(map(str, files))}")
    single = [one for one in types if "=" in one]
    alone = [one for one in single if _is_range(one)]
    return {
        "types": [one for one in single if one not in alone],
        "schema": files[0] if files else None,
        "ranges": [*ranges, *alone],
    }


def _is_range(words: str) -> bool:
    """Whether `age=0:100` has two numbers and no kind."""
    ends = words.partition("=")[2].split(":")
    try:
        return len([float(end) for end in ends]) == 2
    except ValueError:
        return False
