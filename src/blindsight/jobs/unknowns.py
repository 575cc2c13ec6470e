"""`blindsight inspect unknowns`: the data before and after a change, and the vocabulary of known words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.accounting.ledger import Known
from blindsight.backends import use_cores
from blindsight.data import faults, text
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field
from blindsight.data.sources import check_public, source
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspect import Report, WordTraining, unknowns
from blindsight.jobs.inspecting import run_folder, session_of
from blindsight.jobs.public import has_other_clients, other_clients
from blindsight.jobs.request import Progress, Request
from blindsight.jobs.tables import content_of_clients, header, read_clients, schema_of

__all__ = ["run_unknowns"]

_REFERENCE_CLIENTS = 1000  # of a generated population: many, since their words are the vocabulary


def run_unknowns(
    request: Request,
    *,
    before: str | None = None,
    side: str | None = None,
    values: Sequence[str] | None = None,
    vocabulary: str | Path | None = None,
    vocabulary_size: int = 10_000,
    case: Case = "lower",
    suspects: Sequence[str] | None = None,
    discover: bool = False,
    train: bool = False,
    progress: Progress = lambda doing, done, total: None,
) -> tuple[Report, Path]:
    """Which words does a vocabulary lack after a change, and why? Returns the report and the folder of the run.

    Without `before` and `side`, the data before the change are those without the request's fault.

    Args:
        request: Data and privacy; the data are those after the change.
        before: Data before the change.
        side: Field that tells before from after, if both are in one file.
        values: Its two values, first the old one.
        vocabulary: File of known words; the most frequent ones of the public reference by default.
        vocabulary_size: Number of words of the reference that count as known.
        case: `lower` ignores case; `keep` tells words apart by it.
        suspects: Faults to vote on; all that fit by default.
        discover: Find unknown words that many clients use.
        train: Train language models of both sides.
        progress: Called with what is being done, the steps done and their total.
    """
    use_cores()
    if (before is not None) + (side is not None) + (request.fault is not None) != 1:
        raise InvalidInput(
            "say in one way what was before the change: --before DATA, --side FIELD --value OLD --value NEW, or "
            "--fault token_join:0.1:by=example to plant a change"
        )
    clients = _read(request, request.data, side)
    field = _text_field(clients, request.inputs)
    # two collections pay under two names
    name = request.population or (None if before is not None else clients.name)
    payer = None if name is None else Known(name, content_of_clients(request.data, {"client": request.client}, clients))
    first, second = _sides(request, clients, field, before=before, side=side, values=values)
    protected = [request.data] if before is None else [request.data, before]
    folder = run_folder(request, "unknowns", second)
    report = unknowns(
        first,
        second,
        vocabulary=_vocabulary(request, protected, vocabulary, vocabulary_size, field, case),
        field=field,
        case=case,
        suspects=suspects or (),
        discover=discover,
        training=WordTraining() if train else None,
        epsilon=request.epsilon,
        delta=request.delta,
        session=session_of(request, payer, folder, progress),
    )
    return report, folder


def _read(request: Request, data: str, side: str | None) -> Population:
    """The clients of `data`; of a table the text and the field `side` alone."""
    schema = schema_of(request.schema, request.types)
    columns, inputs = header(request.data, request.client, schema), list(request.inputs or ())
    if columns is not None and not inputs:
        if "text" not in columns:
            listed = f": {', '.join(columns)}" if columns else ""
            raise InvalidInput(f"choose the text field of {request.data} with --input FIELD{listed}")
        inputs = ["text"]
    needed: dict[str, Field | None] = {field: Field("text") for field in (*inputs, side) if field}
    return read_clients(data, client=request.client, clients=request.clients, needed=needed, schema=schema)


def _text_field(clients: Population, inputs: Sequence[str] | None) -> str:
    """The text to read: the field that is named, else the only text, else `text`."""
    texts = [field for field, (dtype, _) in clients.fields.items() if dtype == TEXT]
    chosen = list(inputs or (["text"] if "text" in texts else texts))
    if len(chosen) != 1 or chosen[0] not in texts:
        raise InvalidInput(
            f"choose the text field of {clients.name} with --input FIELD: {', '.join(texts) or 'it has none'}"
        )
    return chosen[0]


def _sides(
    request: Request,
    clients: Population,
    field: str,
    *,
    before: str | None,
    side: str | None,
    values: Sequence[str] | None,
) -> tuple[Population, Population]:
    """The data before the change, and after it."""
    if before is not None:
        return _read(request, before, side), clients
    if request.fault is not None:
        sentences = text.split_sentences(clients, field=field)  # so that by=example means by sentence
        return sentences, faults.apply(sentences, request.fault)
    if side is None or side not in clients.columns:
        raise InvalidInput(f"--side needs a field of {clients.name} with two values, and {side!r} is not one")
    column = clients.columns[side]
    old, new = _two_values(clients, column, side, values)
    return _where(clients, column == old, field), _where(clients, column == new, field)


def _two_values(clients: Population, column: np.ndarray, side: str, values: Sequence[str] | None) -> Sequence[Any]:
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


def _vocabulary(
    request: Request, protected: Sequence[str], path: str | Path | None, size: int, field: str, case: Case
) -> Vocabulary:
    """The words that count as known, from a file or from public data, never from the clients."""
    if path is not None:
        return Vocabulary.load(path)
    if request.reference is None and not has_other_clients(request.data):
        raise InvalidInput(
            "name the known words: --vocabulary FILE, one word a line, or --reference DATA for the most frequent words "
            "of public data"
        )
    name = request.reference or request.data
    options = other_clients(name, _REFERENCE_CLIENTS)
    for data in protected:
        check_public(name, options, data, {}, what="--reference")
    return Vocabulary.most_frequent(source(name, options), size, field=field, case=case)
