"""`blindsight ask`: statistics of clients' fields, with types and ranges from the asker or from public data."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from blindsight.asking import Cross, Histogram, Item, Mean, Missing, Quantiles, Top, ask
from blindsight.backends import use_cores
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.asking.question import CODED, usual_items
from blindsight.inspection.report import Report
from blindsight.jobs.inspecting import range_of, read_payer, read_reference, run_folder, session_of
from blindsight.jobs.request import AskRequest
from blindsight.jobs.tables import header, schema_of
from blindsight.progress import Progress, quiet

__all__ = ["described", "run_ask"]

_REFERENCE_CLIENTS = 150


def run_ask(request: AskRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """Statistics of clients' fields. Returns the report and the folder of the run."""
    use_cores()
    reference = read_reference(request, _REFERENCE_CLIENTS)
    schema = schema_of(request.schema, request.types, request.data)
    ranges = schema.ranges | dict(map(range_of, request.ranges))
    pairs = [_pair(words) for words in request.cross]
    names = list(
        dict.fromkeys([*request.fields, *filter(None, [request.by]), *(name for pair in pairs for name in pair)])
    )
    if not request.fields and not pairs:
        columns = header(request.data, request.client, schema, reference, dialect=request.dialect)
        columns = columns or ([] if reference is None else list(reference.fields))
        listed = f" from {', '.join(columns)}" if columns else ""
        raise InvalidInput(f"choose the fields to ask about{listed}: blindsight ask {request.data} FIELD ...")
    needed = {name: Field("number") if name in ranges else None for name in names}
    clients, payer = read_payer(request, needed, schema, reference, gaps=names)
    for name in names:
        if name not in clients.fields:
            raise InvalidInput(f"{clients.name} has no field {name!r}: choose from {', '.join(clients.fields)}")
    types = {name: described(name, clients, schema, reference, ranges) for name in names}
    if request.by is not None:
        _check_slices(request.by, types[request.by], request.fields)
    items = [*_chosen(request, Schema(types)), *(Cross(*pair) for pair in pairs)]
    folder = run_folder(request, "ask", clients)
    report = ask(
        clients,
        items,
        epsilon=request.epsilon,
        delta=request.delta,
        schema=Schema(types),
        vocabulary=_vocabulary(request, reference, types),
        session=session_of(request, payer, folder, progress),
    )
    return report, folder


def _check_slices(by: str, kind: Field, names: Sequence[str]) -> None:
    if kind.kind not in CODED:
        raise InvalidInput(f"slices need a category with public values, and {by!r} is not one")
    if not any(name != by for name in names):
        raise InvalidInput(f"--by {by} divides the other fields: name one of them")


def described(
    name: str,
    clients: Population,
    schema: Schema,
    reference: Population | None,
    ranges: dict[str, tuple[float, float]],
) -> Field:
    """The type and range of a field: as the asker says, else as in the public reference, else its public type."""
    public = Schema() if reference is None else Schema.of(reference)
    own = Schema.of(clients).fields
    if name not in own:
        raise InvalidInput(f"{name!r} of {clients.name} holds vectors: ask about single numbers, categories or text")
    is_coded = own[name].kind == "category"  # its codes keep the names they were read with
    field = schema.fields.get(name) or (own[name] if is_coded else public.fields.get(name)) or own[name]
    if field.kind not in ("number", "whole"):
        return field
    if name in ranges:
        return dataclasses.replace(field, low=ranges[name][0], high=ranges[name][1])
    if reference is not None and name in public.fields:
        values = reference.columns[name].astype(np.float64)
        values = values[np.isfinite(values)]
        if len(values) and values.min() < values.max():
            return dataclasses.replace(field, low=float(values.min()), high=float(values.max()))
    return field


def _chosen(request: AskRequest, schema: Schema) -> Iterator[Item]:
    """The statistics of each field: those that were requested and fit its type, by default the usual ones."""
    for name in request.fields:
        by = request.by if request.by is not None and request.by != name else ""
        usual = usual_items(schema, name, by)
        requested = list(_named(request, name, by))
        if not requested:
            yield from usual
            continue
        kinds = {type(item) for item in usual} | ({Top} if schema.fields[name].kind in ("category", "truth") else set())
        fitting = [item for item in requested if type(item) in kinds]
        if not fitting:
            listed = ", ".join(item.statistic for item in usual)
            raise InvalidInput(
                f"none of these statistics fits {name!r}, of kind {schema.fields[name].kind}: ask for {listed}"
            )
        is_text = schema.fields[name].kind == "text"
        yield from (Top(name, k=item.k) if isinstance(item, Top) and is_text else item for item in fitting)


def _named(request: AskRequest, name: str, by: str) -> Iterator[Item]:
    if request.mean:
        yield Mean(name, by)
    if request.levels:
        yield Quantiles(name, by, levels=tuple(request.levels))
    if request.bins is not None:
        yield Histogram(name, by, bins=request.bins)
    if request.top is not None:
        yield Top(name, by, k=request.top)
    if request.missing:
        yield Missing(name, by)


def _pair(words: str) -> tuple[str, str]:
    first, comma, second = words.partition(",")
    if not first or not comma or not second:
        raise InvalidInput(f"write a cross-tab as two fields, --cross sex,region, got {words!r}")
    return first, second


def _vocabulary(request: AskRequest, reference: Population | None, fields: dict[str, Field]) -> Vocabulary | None:
    """The public words that lists of words leave out."""
    if request.vocabulary is not None:
        return Vocabulary.load(request.vocabulary)
    if request.vocabulary_size is None:
        return None
    texts: Sequence[str] = [name for name in request.fields if fields[name].kind == "text"]
    if reference is None or not texts or texts[0] not in reference.fields:
        raise InvalidInput(
            "--vocabulary-size counts words of a text field in public data: name it, and --reference DATA"
        )
    return Vocabulary.most_frequent(reference, request.vocabulary_size, field=texts[0])
