"""`blindsight inspect unknowns`: the data before and after a change, and the vocabulary of known words."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.accounting.ledger import LedgerName
from blindsight.backends import use_cores
from blindsight.data import faults, text
from blindsight.data.population import TEXT, Population
from blindsight.data.public_schema import public_schema
from blindsight.data.schema import Field, Schema
from blindsight.data.sources import check_public, source
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspect import Report, Session, WordTraining, unknowns
from blindsight.inspection.question import check_reference
from blindsight.inspection.unknowns.words import SIDES, suspects_of
from blindsight.jobs.inspecting import run_folder, session_of
from blindsight.jobs.on_fleet import fleet_clients
from blindsight.jobs.public import has_other_clients, public_options
from blindsight.jobs.request import UnknownsRequest
from blindsight.jobs.tables import content_of_table, header, is_private_table, read_clients, schema_of
from blindsight.progress import Progress, quiet

__all__ = ["run_unknowns"]

_REFERENCE_CLIENTS = 1000  # of a generated population: many, since their words are the vocabulary


def run_unknowns(request: UnknownsRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """Which words does a vocabulary lack after a change, and why? Returns the report and the folder of the run."""
    use_cores()
    suspects_of(request.suspects, request.case)  # refuses what is no fault of words before any data are read
    if request.fleet is not None:
        return _on_fleet(request, progress)
    clients = _read(request, request.data)
    field = _text_field(clients, request.inputs)
    # two collections pay under two names, or are two data sets under one
    is_one = request.before is None
    payer = LedgerName(request.population or clients.name, clients.content) if is_one else request.population
    before, after = _sides(request, clients, field)
    folder = run_folder(request, "unknowns", after)
    words = _vocabulary(request, field, [clients] if is_one else [before, after])
    return _ask(request, before, after, field, words, session_of(request, payer, folder, progress)), folder


def _on_fleet(request: UnknownsRequest, progress: Progress) -> tuple[Report, Path]:
    """The same question of sites, each of which tells before from after by one of its own fields."""
    field = request.inputs[0] if request.inputs else "text"
    reading = {"text": field, "side": request.side, "values": list(request.values)}
    schema = Schema({"text": Field("text"), "side": Field("category", values=SIDES)})
    clients = fleet_clients(request, None, schema, reading=reading)
    folder, payer = run_folder(request, "unknowns", clients), LedgerName(request.population or clients.name)
    session, words = session_of(request, payer, folder, progress), _vocabulary(request, field, ())
    answer = _ask(request, clients, clients, field, words, session, observed="text")
    return answer, folder


def _ask(
    request: UnknownsRequest,
    before: Population,
    after: Population,
    field: str,
    vocabulary: Vocabulary,
    session: Session,
    *,
    observed: str = "",
) -> Report:
    """The question itself; a fleet's clients have the text of `field` under the name `observed`."""
    return unknowns(
        before,
        after,
        vocabulary=vocabulary,
        field=observed or field,
        case=request.case,
        suspects=request.suspects,
        discover=request.discover,
        training=WordTraining() if request.train else None,
        epsilon=request.epsilon,
        delta=request.delta,
        session=session,
    )


def _read(request: UnknownsRequest, data: str) -> Population:
    """The clients of `data`; of a table the text and the field that tells before from after alone.

    A ledger knows them by the whole table.
    """
    schema = schema_of(request.schema, request.types)
    columns = header(request.data, request.client, schema, dialect=request.dialect)
    inputs = list(request.inputs)
    if columns is not None and not inputs:
        if "text" not in columns:
            listed = f": {', '.join(columns)}" if columns else ""
            raise InvalidInput(f"choose the text field of {request.data} with --input FIELD{listed}")
        inputs = ["text"]
    needed: dict[str, Field | None] = {field: Field("text") for field in (*inputs, request.side) if field}
    if columns is not None:  # words can be read off values of any type, so categories count as texts
        schema = schema.updated([f"{field}=text" for field in needed])
    clients = read_clients(
        data,
        client=request.client,
        clients=request.clients,
        dialect=request.dialect,
        needed=needed,
        schema=schema,
    )
    if not is_private_table(data):
        return clients
    options = {"client": request.client, **dataclasses.asdict(request.dialect)}
    return clients.part_of(functools.partial(content_of_table, data, options))


def _text_field(clients: Population, inputs: Sequence[str]) -> str:
    """The text to read: the field that is named, else the only text, else `text`."""
    texts = [field for field, (dtype, _) in clients.fields.items() if dtype == TEXT]
    chosen = list(inputs or (["text"] if "text" in texts else texts))
    if len(chosen) != 1 or chosen[0] not in texts:
        raise InvalidInput(
            f"choose the text field of {clients.name} with --input FIELD: {', '.join(texts) or 'it has none'}"
        )
    return chosen[0]


def _sides(request: UnknownsRequest, clients: Population, field: str) -> tuple[Population, Population]:
    """The data before the change, and after it."""
    if request.before is not None:
        return _read(request, request.before), clients
    if request.fault is not None:
        sentences = text.split_sentences(clients, field=field)  # so that by=example means by sentence
        return sentences, faults.apply(sentences, request.fault)
    side = request.side
    if side is None or side not in clients.columns:
        raise InvalidInput(f"--side needs a field of {clients.name} with two values, and {side!r} is not one")
    column = clients.columns[side]
    old, new = _two_values(clients, column, side, request.values)
    return _where(clients, column == old, field), _where(clients, column == new, field)


def _two_values(clients: Population, column: np.ndarray, side: str, values: Sequence[str]) -> Sequence[Any]:
    """The value before the change and the one after it; only synthetic data are looked at to find them."""
    if values:
        if len(set(values)) != 2:
            raise InvalidInput(f"--side {side} needs two values, the one before the change first, got {list(values)}")
        return list(values) if column.dtype == TEXT else [_number(value) for value in values]
    distinct = np.unique(column) if clients.synthetic else np.zeros(0)
    if len(distinct) != 2:
        raise InvalidInput(
            f"--side needs a field with two values: name the one before the change and then the other, "
            f"--side {side} --value OLD --value NEW"
        )
    return distinct.tolist()


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(f"--value must be a number for a field of numbers, got {value!r}") from None


def _where(clients: Population, is_in: np.ndarray, field: str) -> Population:
    """The same clients with only these examples."""
    owner = np.repeat(np.arange(clients.size), clients.sizes)
    sizes = np.bincount(owner[is_in], minlength=clients.size)
    column = clients.columns[field][is_in]
    return Population({field: column}, sizes=sizes, name=clients.name, ids=clients.ids, synthetic=clients.synthetic)


def _vocabulary(request: UnknownsRequest, field: str, protected: Sequence[Population]) -> Vocabulary:
    """The words that count as known, from a file or from public data, never from the `protected` clients."""
    if request.vocabulary is not None:
        return Vocabulary.load(request.vocabulary)
    if request.reference is None and not has_other_clients(request.data):
        raise InvalidInput(
            "name the known words: --vocabulary FILE, one word a line, or --reference DATA for the most frequent words "
            "of public data"
        )
    name = request.reference or request.data
    options = public_options(name, _REFERENCE_CLIENTS, request.client)
    for data in filter(None, (request.data, request.before)):
        check_public(name, options, data, {}, what="--reference")
    public = source(name, options)
    for clients in protected:
        check_reference(clients, public)
    if field not in public.fields or public.fields[field][0] != TEXT:
        texts = [one for one, (dtype, _) in public.fields.items() if dtype == TEXT]
        raise InvalidInput(
            f"{name} has no text field {field!r} to take known words from, but {', '.join(texts) or 'no text at all'}: "
            f"name other public data, or --vocabulary FILE"
        )
    values = public_schema(public).fields[field].values
    if values and not any(len(value.split()) > 1 for value in values):
        raise InvalidInput(
            f"{field!r} of {name} holds single words, and unknowns reads sentences: ask which values are missing from "
            f"the public list with blindsight inspect sanity --input {field}, or list them with blindsight ask {field} "
            f"--type {field}=text --vocabulary-size {max(len(values), 5)}"
        )
    return Vocabulary.most_frequent(public, request.vocabulary_size, field=field, case=request.case)
