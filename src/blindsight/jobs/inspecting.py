"""What all inspections have in common: the clients, the public reference, the inputs, the ledger and the run's folder.

What a refusal here says depends on the request, on public data and on a table's header, never on a client's row.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from blindsight import runs
from blindsight.accounting.ledger import Known, Ledger
from blindsight.backends import use_cores
from blindsight.data import faults
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspect import Session
from blindsight.jobs.public import other_clients, read_public
from blindsight.jobs.request import ModelRequest, Progress, Request
from blindsight.jobs.tables import content_of_clients, header, read_clients, schema_of

__all__ = ["Clients", "ledger_of", "read_payer", "read_reference", "read_request", "run_folder", "session_of"]

Ranges = dict[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Clients:
    """What a request names, after reading it."""

    clients: Population
    reference: Population | None
    schema: Schema  # inputs, label and public ranges
    payer: Known  # the clients as the ledger knows them


def read_request(
    request: ModelRequest,
    reference: Population | None,
    *,
    label_kind: Field,
    by: str | None = None,
    reads_text: bool = False,
    needs_label: bool = False,
) -> Clients:
    """The clients of a request beside its public `reference`; of a table only the fields that the question needs.

    Args:
        request: Data, model and privacy.
        reference: Public data of the same type.
        label_kind: Type of a table's label unless a schema says otherwise.
        by: Text field to divide by.
        reads_text: Whether the question reads text.
        needs_label: Whether the question needs the label.
    """
    use_cores()
    schema = schema_of(request.schema, request.types)
    ranges = schema.ranges | dict(_range(words) for words in request.ranges or ())
    columns, inputs = header(request.data, request.client, schema, reference), list(request.inputs or ())
    if columns is not None and not inputs:
        if reference is not None:
            inputs = [_only_input(reference, request.label, reads_text)]
        else:
            inputs = [_described_input(schema, columns, request.label)]
    needed = _needed(request, inputs, ranges, label_kind, by)
    optional = () if needs_label else (request.label,)
    clients, payer = read_payer(request, needed, schema, reference, optional)
    inputs = inputs or [_only_input(clients, request.label, reads_text)]
    numbers = {field: Field("number", *ends) for field, ends in ranges.items()}
    return Clients(clients, reference, Schema(numbers, tuple(inputs), request.label), payer)


def read_payer(
    request: Request,
    needed: Mapping[str, Field | None],
    schema: Schema,
    reference: Population | None = None,
    optional: Collection[str] = (),
) -> tuple[Population, Known]:
    """The clients of a request, with its fault planted, and how the ledger knows them: by all of their data, unplanted.

    The ledger must recognise the clients whatever is planted in them and whichever of their fields are read.
    """
    clients = read_clients(
        request.data,
        client=request.client,
        clients=request.clients,
        needed=needed,
        optional=optional,
        schema=schema,
        public=reference,
    )
    content = content_of_clients(request.data, {"client": request.client}, clients)
    if request.fault is not None:
        clients = faults.apply(clients, request.fault)
    return clients, Known(request.population or clients.name, content)


def read_reference(request: Request, clients: int) -> Population | None:
    """The public data of a request: the reference it names, else `clients` other clients of a generated population."""
    name = request.reference or request.data
    options = other_clients(name, clients)
    if request.reference is None and not options:
        return None
    if request.client and name not in POPULATIONS and Path(name).is_file():
        options = {"client": request.client}  # a file is read as the clients' own is
    return read_public(name, options, request.data, what="--reference")


def ledger_of(request: Request) -> Ledger:
    """The ledger of a request."""
    return request.ledger if isinstance(request.ledger, Ledger) else Ledger(request.ledger)


def session_of(request: Request, payer: Known | None, folder: Path, progress: Progress) -> Session:
    """Where the question is asked."""
    return Session(out=folder, ledger=ledger_of(request), population=payer, progress=progress, dry_run=request.dry_run)


def run_folder(request: Request, task: str, clients: Population) -> Path:
    """Where the run goes: the folder that is asked for, else `runs/TASK-NAME`."""
    return Path(request.out) if request.out is not None else Path("runs") / f"{task}-{runs.file_name(clients.name)}"


def _needed(
    request: ModelRequest, inputs: Sequence[str], ranges: Ranges, label_kind: Field, by: str | None
) -> dict[str, Field | None]:
    """The fields that a question reads, each with the kind that its role implies; None if that is not known."""
    numeric = {field for field in inputs if request.model is not None or field in ranges}
    needed = {field: Field("number") if field in numeric else None for field in inputs}
    return needed | {request.label: label_kind} | ({by: Field("text")} if by is not None else {})


def _only_input(population: Population, label: str, reads_text: bool) -> str:
    """The image of a population, or its text if `reads_text`; otherwise inputs have to be named."""
    fields = population.fields
    images = [field for field, (_, shape) in fields.items() if len(shape) >= 2]
    texts = [field for field, (dtype, _) in fields.items() if dtype == TEXT and reads_text]
    candidates = images or (["text"] if "text" in texts else texts)
    return candidates[0] if len(candidates) == 1 else _ask(list(fields), label)


def _described_input(schema: Schema, columns: Sequence[str], label: str) -> str:
    """The only image that the schema describes; otherwise inputs have to be named."""
    images = [name for name, field in schema.fields.items() if field.kind == "image" and name in columns]
    return images[0] if len(images) == 1 else _ask(columns, label)


def _ask(fields: Sequence[str], label: str) -> NoReturn:
    others = ", ".join(field for field in fields if field != label)
    listed = f" from {others}" if others else ""
    raise InvalidInput(f"choose the fields to inspect{listed}: --input FIELD, once for each")


def _range(words: str) -> tuple[str, tuple[float, float]]:
    """`age=0:100` as a field and its ends."""
    field, _, ends = words.partition("=")
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        raise InvalidInput(f"write a range as age=0:100, got {words!r}") from None
    return field, (low, high)
