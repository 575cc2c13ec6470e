"""A comparison with public data from its options: what `blindsight inspect bias` does."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from blindsight import runs
from blindsight.accounting.ledger import Known
from blindsight.backends import use_cores
from blindsight.data import faults
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspect import Language, Session, bias
from blindsight.inspection.bias.comparison import learning_half
from blindsight.inspection.report import Report
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.jobs.inspect import part_of, public_model, read_model, read_range, read_reference
from blindsight.jobs.language import PUBLIC
from blindsight.jobs.tables import content_of_clients, header, read_clients, schema_of
from blindsight.models.primary import Primary

__all__ = ["run_bias"]

_PUBLIC = {**PUBLIC, "clients": 600}  # many, for their own draw is part of every interval


def run_bias(
    data: str,
    *,
    reference: str | None = None,
    model: str | Path | None = None,
    clients: int | None = None,
    client: str | None = None,
    fault: str | None = None,
    inputs: Sequence[str] | None = None,
    label: str = "label",
    ranges: Sequence[str] | None = None,
    schema: str | Path | None = None,
    types: Sequence[str] | None = None,
    case: str = "lower",
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
    **settings: Any,
) -> tuple[Report, Path]:
    """Ask what the population `data` has that the public `reference` lacks; the report, and the folder it lies in.

    The reference of an embedded population are other clients of it, unless another is named. Where clients have no
    labels and public data have some, a small model is trained on half of these, to say what clients' examples are.
    """
    use_cores()
    if case not in get_args(Case):
        raise InvalidInput(f"case is lower or keep, got {case!r}")
    public = _reference(data, reference, {"client": client} if client else {})
    said = schema_of(schema, types)
    known = said.ranges | dict(read_range(words) for words in ranges or ())
    if header(data, client, said, public) is not None and not inputs:
        inputs = [_input_of(public, label)]
    needed: dict[str, Field | None] = {field: part_of(field, known, model is not None) for field in inputs or ()}
    needed |= {field: Field("text") for field in (label, settings.get("by")) if field}
    about: dict[str, Any] = {"optional": (label,), "schema": said, "public": public}
    people = read_clients(data, client=client, clients=clients, needed=needed, **about)
    content = content_of_clients(data, {"client": client}, people)  # a fault that is planted makes nobody else of them
    people = people if fault is None else faults.apply(people, fault)
    settings["population"] = Known(settings.get("population") or people.name, content)
    fields = list(inputs or [_input_of(people, label)])
    judge = None if model is None else read_model(model, public.classes.get(label, ()), data)
    if judge is None and label in public.fields and label not in people.fields:
        progress("training a model on half of the public data", 0, 1)
        judge = _half_model(public, fields, label)
    folder = Path(out) if out is not None else Path("runs") / f"bias-{runs.file_name(people.name)}"
    report = bias(
        people,
        reference=public,
        model=judge,
        schema=Schema({name: Field("number", *ends) for name, ends in known.items()}, tuple(fields), label),
        language=Language(
            case=cast(Case, case),
            vocabulary_size=settings.pop("vocabulary_size", 10_000),
            discover=settings.pop("discover", False),
            training=WordTraining() if settings.pop("train", False) else None,
        ),
        session=Session(
            out=folder, progress=progress, ledger=settings.pop("ledger", None), population=settings.pop("population")
        ),
        by=settings.pop("by", None) or "",
        values=settings.pop("values", None) or (),
        classes=settings.pop("classes", None) or (),
        **settings,
    )
    return report, folder


def _reference(data: str, name: str | None, whose: dict[str, Any]) -> Population:
    """Public data, never those of the clients."""
    if name is None and (data not in POPULATIONS or data == "digits"):
        raise InvalidInput(
            "say what to compare with: --reference DATA, the public data that the model was trained on, or their like"
        )
    return read_reference(name or data, data, _PUBLIC, whose)


def _half_model(public: Population, fields: Sequence[str], label: str) -> Primary | None:
    """A model of the half that nothing is compared with; none of texts, which no classifier here reads."""
    if any(public.fields[field][0] == TEXT for field in fields if field in public.fields):
        return None
    return public_model(learning_half(public), fields, label)


def _input_of(people: Population, label: str) -> str:
    """The picture or the text of a population; else what is compared has to be named."""
    pictures = [field for field, (_, shape) in people.fields.items() if len(shape) >= 2]
    texts = [field for field, (dtype, _) in people.fields.items() if dtype == TEXT]
    found = pictures or (["text"] if "text" in texts else texts)
    if len(found) != 1:
        known = ", ".join(field for field in people.fields if field != label)
        raise InvalidInput(f"say which of {known} to compare: --input FIELD, once for each")
    return found[0]
