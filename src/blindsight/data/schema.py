"""`Schema`: the public types of a table's fields, fixed before any client's value is read.

The kind of a field decides how many coordinates are released, which faults are voted on and how samples are rounded. If
it were inferred from clients' values, one client aged 30.5 would visibly change all of that. So kinds, ranges, values
and shapes are specified, or inferred from public data; a client drops its rows that do not fit.

=============  ===================================================  ==================================
kind           holds                                                written as
=============  ===================================================  ==================================
`number`       any finite number; `low` and `high` are its range    `age=number`, `age=number:0:120`
`whole`        a 32-bit integer                                     `age=whole:0:120`
`category`     one of `values`                                      `region=category:north,south`
`truth`        true or false                                        `is_new=truth`
`text`         any text                                             `note=text`
`image`        numbers of one `shape`: bytes, or floats             `photo=image:28x28`
=============  ===================================================  ==================================

Values may be missing (`data.missing`). `gaps` marks an integer field that may have missing values, so its column holds
floats. `fill` is the public number that a model reads in place of a missing value, unless it can read NaN.
"""

import dataclasses
import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput

__all__ = ["Field", "FieldKind", "Schema", "read_field"]

FieldKind = Literal["number", "whole", "category", "truth", "text", "image"]


@dataclasses.dataclass(frozen=True)
class Field:
    """Type of a field; see the table above."""

    kind: FieldKind
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    of_bytes: bool = True
    gaps: bool = False
    fill: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(FieldKind):
            raise InvalidInput(f"kind must be one of {', '.join(get_args(FieldKind))}, got {self.kind!r}")
        has_range = (self.low, self.high) != (None, None)
        if has_range and not (self.kind in ("number", "whole") and _is_range(self.low, self.high)):
            raise InvalidInput(f"a range needs two finite ends with low < high, got {self.low} to {self.high}")
        if bool(self.values) != (self.kind == "category") or len(set(self.values)) < len(self.values):
            raise InvalidInput(
                f"values must list the distinct values of a category, and only of a category, got {list(self.values)}"
            )
        if bool(self.shape) != (self.kind == "image") or not all(length >= 1 for length in self.shape):
            raise InvalidInput(
                f"an image needs a shape such as 28x28, and only an image may have one, got {list(self.shape)}"
            )
        if self.gaps and self.kind != "whole":
            raise InvalidInput(f"gaps are marked in fields of whole numbers, and this one holds a {self.kind}")
        if self.fill is not None and (self.kind in ("text", "image") or not math.isfinite(self.fill)):
            raise InvalidInput(f"fill is a finite number for fields of numbers and categories, got {self.fill}")

    @property
    def dtype(self) -> Any:
        """Dtype of a column of such values."""
        if self.kind == "image":
            return np.dtype(np.uint8 if self.of_bytes else np.float32)
        if self.gaps:
            return np.dtype(np.float32)
        dtypes: dict[str, Any] = {"number": np.float32, "truth": np.bool_, "text": TEXT}
        return dtypes.get(self.kind, np.int32)

    @property
    def range(self) -> tuple[float, float] | None:
        """The public range of a number, if given."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def _is_range(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and -math.inf < low < high < math.inf


@dataclasses.dataclass(frozen=True)
class Schema:
    """The fields of a table by name, a model's `inputs` among them, and the field with the class (`label`).

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
        """The schema of public data, inferred from their types and classes; vectors are left out."""
        fields: dict[str, Field] = {}
        for name, (dtype, shape) in public.fields.items():
            if len(shape) >= 2:
                fields[name] = Field("image", shape=shape, of_bytes=dtype == "uint8")
            elif name in public.classes:
                fields[name] = Field("category", values=public.classes[name])
            elif not shape:
                kinds: dict[str, FieldKind] = {"b": "truth", "i": "whole", "u": "whole", "f": "number"}
                fields[name] = Field("text" if dtype == TEXT else kinds[dtype.kind])
        return cls(fields)

    def gapped(self, names: Collection[str]) -> "Schema":
        """The same schema, in which whole numbers of the named fields may be missing."""
        whole = {name: field for name, field in self.fields.items() if name in names and field.kind == "whole"}
        marked = {name: dataclasses.replace(field, gaps=True) for name, field in whole.items()}
        return dataclasses.replace(self, fields={**self.fields, **marked})

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
        """Plain values for JSON, without the defaults."""
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
        """The public ranges of numbers, where given."""
        return {name: field.range for name, field in self.fields.items() if field.range is not None}

    def updated(self, words: Sequence[str]) -> "Schema":
        """The schema with further fields, written as `age=whole:0:120`."""
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
        """A population of one client with these examples, or with none, so that one client runs the same code."""
        columns = examples or {name: np.zeros((0, *field.shape), field.dtype) for name, field in self.fields.items()}
        size = len(next(iter(columns.values()), ()))
        classes = {name: values for name, values in self.classes.items() if name in columns}
        return Population(columns, sizes=[size], ids=np.array([client], dtype=TEXT), name=client, classes=classes)


def read_field(words: str) -> Field:
    """The field of a specification: `whole:0:120`, `category:north,south`, `image:28x28`."""
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
    unchecked: Any = kind
    return Field(unchecked, **given)


def _field_from(name: str, value: Any) -> Field:
    keys = {field.name for field in dataclasses.fields(Field)}
    if not isinstance(value, dict) or "kind" not in value or (set(value) - keys):
        raise InvalidInput(f"field {name!r} of a schema has a kind and may have {', '.join(sorted(keys - {'kind'}))}")
    given: dict[str, Any] = {str(key): tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    try:
        return Field(**given)
    except TypeError as error:
        raise InvalidInput(f"field {name!r} of a schema is invalid: {error}") from error
