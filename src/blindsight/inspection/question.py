"""`Question`: what is asked of every client, as data.

A question is complete and valid before any client is asked. It states the task, the schema of the fields and the cost,
and names its public inputs (model, reference, vocabulary) by digest. It goes to JSON and back unchanged, so a run
folder stores it and a site can read it before answering. `Public` holds the public inputs themselves.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from blindsight.data.population import Population
from blindsight.data.public_schema import fill_of
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.inspection.measuring import Priced
from blindsight.inspection.typed import misfit
from blindsight.mechanisms import GaussianMechanism
from blindsight.models.primary import Primary

__all__ = [
    "Public",
    "Question",
    "ReleasePlan",
    "check_reference",
    "complete",
    "identity_of",
    "reading",
    "vocabulary_digest",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """The part that all tasks share.

    `clients` is the number of clients, which is public. `model` and `reference` identify the primary model and the
    public data by name and digest; empty without one. `suspects` are the faults to vote on, by default all that fit.
    """

    schema: Schema
    clients: int
    epsilon: float
    delta: float
    model: str = ""
    reference: str = ""
    suspects: tuple[str, ...] = ()

    task: ClassVar[str] = ""
    server: ClassVar[str] = ""
    """The module of the task's server half (`session.ServerHalf`).

    It is a name, so that a client reads and answers questions without the server half."""

    free: ClassVar[str] = ""
    """A field that only changes the post-processing of releases: a run may resume with another value."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Readers of fields that JSON does not hold as numbers, strings or lists of these."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise InvalidInput(f"epsilon must be positive and finite, got {self.epsilon:g}")
        if not 0 < self.delta < 1:
            raise InvalidInput(
                f"delta must lie between 0 and 1, got {self.delta:g}: a common choice is population^-1.1"
            )
        if not self.clients >= 1:
            raise InvalidInput(f"a question needs at least one client, got {self.clients}")
        for name in self.schema.inputs:
            if name not in self.schema.fields:
                raise InvalidInput(
                    f"there is no field {name!r}: choose the inputs from {', '.join(self.schema.fields)}"
                )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input fields."""
        return self.schema.inputs

    @property
    def label(self) -> str | None:
        """The field that holds the true class, if clients have one."""
        return self.schema.label if self.schema.label in self.schema.fields else None

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The public ranges of numbers."""
        return self.schema.ranges

    @property
    def title(self) -> str:
        """The heading of the report."""
        return self.task

    def sentence(self, name: str) -> str:
        """The question in words, asked of the population `name`."""
        return f"{self.title} ({name})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, from which `from_dict` makes an equal question."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"task": self.task, **{name: _plain(value) for name, value in values.items()}}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The question that `to_dict` was called on."""
        if value.get("task") != cls.task:
            raise InvalidInput(f"this question has the task {value.get('task')!r}, not {cls.task!r}")
        readers: dict[str, Callable[[Any], Any]] = {"schema": Schema.from_dict, **cls.readers}
        given = {name: item for name, item in value.items() if name != "task"}
        try:
            question = cls(**{name: readers.get(name, _tuples)(item) for name, item in given.items()})
        except InvalidInput:
            raise
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise InvalidInput(f"not the JSON of a question, or damaged: {error}") from error
        if odd := misfit(question, cls):
            raise InvalidInput(f"not the JSON of a question, or damaged: {odd} is of another type")
        return question

    @property
    def digest(self) -> str:
        """Equal for equal questions only."""
        text = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Public:
    """The public inputs of a question; `seed` is the run's own public randomness."""

    model: Primary | None = None
    reference: Population | None = None
    vocabulary: Vocabulary | None = None
    seed: bytes = b""


@dataclasses.dataclass(frozen=True)
class ReleasePlan:
    """What a question will release over all rounds, and the noise of each part; models that are trained come on top.

    `chance` is the delta of lists that only hold what many clients have; `notes` say what the answer would be worth.
    `least` is the number of clients below which no answer stands out from the noise, whatever their data. The parts are
    released in `rounds` rounds, each part once.
    """

    parts: Sequence[Priced]
    mechanisms: Mapping[str, GaussianMechanism]
    chance: float = 0.0
    notes: Sequence[str] = ()
    least: float = 0.0
    rounds: int = 1


def complete(
    schema: Schema | None,
    clients: Population,
    inputs: tuple[str, ...] = (),
    also: Iterable[str] = (),
    *,
    model: Primary | None = None,
    reference: Population | None = None,
) -> Schema:
    """The schema of a question: the fields that it reads, as the population declares them, with the given ranges.

    `inputs` are the default inputs; `also` are fields that the question needs besides inputs and label. No other field
    is included: its classes may have been derived from clients' data, which must stay private. What a `model` reads in
    place of missing values is as given, else learned from the public `reference`.

    Args:
        schema: What the asker gives.
        clients: The population, of which only declared types are read.
        inputs: Default inputs.
        also: Further fields.
        model: The primary model, if there is one.
        reference: Public data.
    """
    given = schema or Schema()
    chosen, declared = given.inputs or inputs, Schema.of(clients).fields
    for name in chosen:
        if name not in clients.fields:
            raise InvalidInput(f"{clients.name} has no field {name!r}: choose one of {', '.join(clients.fields)}")
        if name not in declared:
            raise InvalidInput(f"inputs are images, single numbers or text, but {name!r} holds vectors")
    fields = {name: declared[name] for name in dict.fromkeys((*chosen, given.label, *also)) if name in declared}
    for name, field in given.fields.items():
        if name in fields and fields[name].kind in ("number", "whole"):
            gaps = field.kind == "whole" and fields[name].kind == "number"  # floats, of which some may be missing
            kind = "whole" if gaps else fields[name].kind
            fields[name] = Field(kind, field.low, field.high, gaps=gaps, fill=field.fill)
        elif name in fields and field.fill is not None:
            fields[name] = dataclasses.replace(fields[name], fill=field.fill)
    return Schema(fields if model is None else _filled(fields, chosen, reference), chosen, given.label)


def _filled(fields: dict[str, Field], inputs: Sequence[str], reference: Population | None) -> dict[str, Field]:
    """The fields with a public value for a model to read wherever an input is missing."""
    return fields | {
        name: dataclasses.replace(fields[name], fill=fill_of(fields[name], name, reference))
        for name in inputs
        if fields[name].kind not in ("text", "image")
    }


def reading(model: Primary, schema: Schema) -> Primary:
    """The model for the inputs of a schema: values that are missing are NaN if it can read that, else filled in."""
    fields = [schema.fields[name] for name in schema.inputs]
    if any(field.kind in ("text", "image") for field in fields):
        return model
    fills = [0.0 if field.fill is None else field.fill for field in fields]
    return model.filling(fills, [field.kind in ("category", "truth") for field in fields])


def identity_of(what: Population | Primary | None) -> str:
    """A public input by its name and digest."""
    if what is None:
        return ""
    digest = what.fingerprint if isinstance(what, Population) else what.digest or "no digest"
    return f"{what.name} [{digest}]"


def vocabulary_digest(vocabulary: Vocabulary | None) -> str:
    """A public vocabulary by the digest of its words."""
    if vocabulary is None:
        return ""
    return hashlib.blake2b(json.dumps(vocabulary.words).encode(), digest_size=8).hexdigest()


def check_reference(clients: Population, reference: Population | None, fingerprints: Iterable[str] = ()) -> None:
    """Refuse the clients as their own reference, because a reference is read without noise.

    `fingerprints` identify the clients in a ledger: those of the tables that they are read from.
    """
    if reference is None:
        return
    is_same = reference is clients or reference.fingerprint == clients.fingerprint
    if is_same or (reference.content and reference.content in (clients.content, *fingerprints)):
        raise PrivacyError(
            f"the reference is the protected population itself and would be read without noise: name public data to "
            f"compare {clients.name} with"
        )
