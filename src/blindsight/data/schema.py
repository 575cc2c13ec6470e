"""`Schema`: what anyone may know about the fields of a table before a single value of a client is read.

The kind of a field decides how many coordinates are released, which faults are voted on and how samples are rounded.
Read off clients' values, one client aged 30.5 would change all of that for everyone to see. So kinds, ranges, values
and shapes are given by the asker, or read off public data; a row that does not fit is left out by its own client.

=============  ===================================================  ==================================
kind           holds                                                in words
=============  ===================================================  ==================================
`number`       any finite number; `low` and `high` are its range    `age=number`, `age=number:0:120`
`whole`        a whole number of 32 bits                            `age=whole:0:120`
`category`     one of `values`                                      `region=category:north,south`
`truth`        true or false                                        `is_new=truth`
`text`         any text                                             `note=text`
`image`        numbers of one `shape`: bytes, or fractions          `photo=image:28x28`
=============  ===================================================  ==================================
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput

__all__ = ["Field", "Kind", "Schema", "read_field"]

Kind = Literal["number", "whole", "category", "truth", "text", "image"]


@dataclasses.dataclass(frozen=True)
class Field:
    """What one field holds; see the table above."""

    kind: Kind
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    of_bytes: bool = True

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InvalidInput(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        has_range = (self.low, self.high) != (None, None)
        if has_range and not (self.kind in ("number", "whole") and _is_range(self.low, self.high)):
            raise InvalidInput(f"a range needs two finite ends with low < high, got {self.low} to {self.high}")
        if bool(self.values) != (self.kind == "category") or len(set(self.values)) < len(self.values):
            raise InvalidInput(
                f"values must list the distinct values of a category, and of nothing else, got {list(self.values)}"
            )
        if bool(self.shape) != (self.kind == "image") or not all(length >= 1 for length in self.shape):
            raise InvalidInput(
                f"an image needs a shape such as 28x28, and nothing else may have one, got {list(self.shape)}"
            )

    @property
    def dtype(self) -> Any:
        """The type of a column of such values."""
        if self.kind == "image":
            return np.dtype(np.uint8 if self.of_bytes else np.float32)
        known: dict[str, Any] = {"number": np.float32, "truth": np.bool_, "text": TEXT}
        return known.get(self.kind, np.int32)

    @property
    def range(self) -> tuple[float, float] | None:
        """The public range of a number, where one is given."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def _is_range(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and -math.inf < low < high < math.inf


@dataclasses.dataclass(frozen=True)
class Schema:
    """The fields of a table by name, which of them a model reads (`inputs`), and which holds the class (`label`).

    >>> Schema({"age": read_field("whole:0:120")}, inputs=("age",)).to_dict()
    {'fields': {'age': {'kind': 'whole', 'low': 0.0, 'high': 120.0}}, 'inputs': ['age'], 'label': 'label'}
    """

    fields: Mapping[str, Field] = dataclasses.field(default_factory=dict[str, Field])
    inputs: tuple[str, ...] = ()
    label: str = "label"

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", (self.inputs,) if isinstance(self.inputs, str) else tuple(self.inputs))
        if len(set(self.inputs)) < len(self.inputs):
            raise InvalidInput(f"name each input once, got {list(self.inputs)}")

    @classmethod
    def of(cls, public: Population) -> "Schema":
        """The schema of public data, as their types and classes say it; vectors have none."""
        found: dict[str, Field] = {}
        for name, (dtype, shape) in public.fields.items():
            if len(shape) >= 2:
                found[name] = Field("image", shape=shape, of_bytes=dtype == "uint8")
            elif name in public.classes:
                found[name] = Field("category", values=public.classes[name])
            elif not shape:
                kinds: dict[str, Kind] = {"b": "truth", "i": "whole", "u": "whole", "f": "number"}
                found[name] = Field("text" if dtype == TEXT else kinds[dtype.kind])
        return cls(found)

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """The schema in a JSON file."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except InvalidInput:
            raise
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{path} is not a JSON schema ({error}): docs/data.md shows the format") from error

    @classmethod
    def from_dict(cls, value: Any) -> "Schema":
        """The schema that `to_dict` wrote."""
        fields = value.get("fields") if isinstance(value, dict) else None
        if not isinstance(fields, dict):
            raise InvalidInput('a schema is a JSON object such as {"fields": {"age": {"kind": "whole"}}}')
        inputs, label = value.get("inputs", ()), value.get("label", "label")
        if not isinstance(inputs, list | tuple) or not isinstance(label, str):
            raise InvalidInput('a schema has "inputs", a list of names, and "label", a name')
        return cls({str(name): _field_from(str(name), item) for name, item in fields.items()}, tuple(inputs), label)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without what is not said."""
        usual = Field("text")
        return {
            "fields": {
                name: {
                    key: list(item) if isinstance(item, tuple) else item
                    for key, item in dataclasses.asdict(field).items()
                    if key == "kind" or item != getattr(usual, key)
                }
                for name, field in self.fields.items()
            },
            "inputs": list(self.inputs),
            "label": self.label,
        }

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The public ranges of numbers, where they are given."""
        return {name: field.range for name, field in self.fields.items() if field.range is not None}

    def updated(self, words: Sequence[str]) -> "Schema":
        """The schema with fields as `age=whole:0:120` says them."""
        more: dict[str, Field] = {}
        for one in words:
            name, equals, spelled = one.partition("=")
            if not name or not equals:
                raise InvalidInput(f"write the type of a field as age=whole or age=whole:0:120, got {one!r}")
            more[name] = read_field(spelled)
        return dataclasses.replace(self, fields={**self.fields, **more})

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The values of categories, by field."""
        return {name: field.values for name, field in self.fields.items() if field.kind == "category"}

    def population(self, examples: Mapping[str, np.ndarray] | None = None, *, client: str = "client") -> Population:
        """One client with these examples, or with none, as a population: what is asked of many is asked of one."""
        columns = examples or {name: np.zeros((0, *field.shape), field.dtype) for name, field in self.fields.items()}
        size = len(next(iter(columns.values()), ()))
        classes = {name: values for name, values in self.classes.items() if name in columns}
        return Population(columns, sizes=[size], ids=np.array([client], dtype=TEXT), name=client, classes=classes)


def read_field(words: str) -> Field:
    """A field as one writes it: `whole:0:120`, `category:north,south`, `image:28x28`."""
    kind, _, rest = words.partition(":")
    given: dict[str, Any] = {}
    try:
        if kind == "category":
            given["values"] = tuple(rest.split(",")) if rest else ()
        elif kind == "image":
            given["shape"] = tuple(int(length) for length in rest.split("x"))
        elif rest:
            given["low"], given["high"] = (float(end) for end in rest.split(":"))
    except ValueError:
        raise InvalidInput(
            f"a type is written as number, whole:0:120, category:north,south, truth, text or image:28x28, got {words!r}"
        ) from None
    known: Any = kind
    return Field(known, **given)


def _field_from(name: str, value: Any) -> Field:
    known = {field.name for field in dataclasses.fields(Field)}
    if not isinstance(value, dict) or "kind" not in value or (set(value) - known):
        raise InvalidInput(f"field {name!r} of a schema has a kind and may have {', '.join(sorted(known - {'kind'}))}")
    given: dict[str, Any] = {str(key): tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    try:
        return Field(**given)
    except TypeError as error:
        raise InvalidInput(f"field {name!r} of a schema is not understood: {error}") from error
