"""What all inspections have in common: the clients, the public reference, the inputs, the ledger and the run's folder.

Refusals here depend on the request, on public data and on a table's header, never on a client's row.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from blindsight import runs
from blindsight.accounting.ledger import Ledger, LedgerName
from blindsight.backends import use_cores
from blindsight.data import faults
from blindsight.data.by_client import is_by_client
from blindsight.data.formats import takes
from blindsight.data.population import TEXT, Population
from blindsight.data.private import every_column
from blindsight.data.public_schema import conform, public_schema
from blindsight.data.reading import exists
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspect import Session
from blindsight.inspection.question import check_reference
from blindsight.jobs.on_fleet import fleet_clients
from blindsight.jobs.public import has_other_clients, public_options, read_public
from blindsight.jobs.request import ModelRequest, Request
from blindsight.jobs.tables import content_of_clients, header, is_private_table, read_clients, schema_of
from blindsight.models.primary import Primary
from blindsight.progress import Progress

__all__ = [
    "Clients",
    "check_suspects",
    "ledger_of",
    "only_input",
    "range_of",
    "read_payer",
    "read_reference",
    "read_request",
    "run_folder",
    "session_of",
]

Ranges = dict[str, tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Clients:
    """The data that a request names."""

    clients: Population
    reference: Population | None
    schema: Schema  # inputs, label and public ranges
    payer: LedgerName  # the clients' name in the ledger
    model: Primary | None = None
    train: Callable[..., Primary] | None = None  # trains the model, if it has to be trained on public data first


def read_request(
    request: ModelRequest,
    reference: Population | None,
    *,
    label_kind: Field | None = None,
    by: str = "",
    reads_text: bool = False,
    needs_label: bool = False,
) -> Clients:
    """The clients of a request beside its public `reference`; of a table only the fields that the question needs.

    Args:
        request: Data, model and privacy.
        reference: Public data of the same type.
        label_kind: Type of a label unless a schema says otherwise; by default text, or for a model a class number.
        by: Text field to divide by, if any.
        reads_text: Whether the question reads text.
        needs_label: Whether the question needs the label.
    """
    use_cores()
    schema = schema_of(request.schema, request.types, request.data)
    ranges = schema.ranges | dict(map(range_of, request.ranges))
    columns = _columns(request, schema, reference)
    inputs = list(request.inputs)
    if columns is not None and not inputs:
        if reference is not None:
            inputs = [only_input(reference, request.label, reads_text)]
        else:
            inputs = [_described_input(schema, columns, request.label)]
    if columns is not None and reference is not None:
        schema, reference = _by_public_values(schema, reference, inputs, ranges, reads_text=reads_text)
    label_kind = label_kind or Field("text" if reads_text or request.model is None else "whole")
    needed = _needed(request, inputs, ranges, label_kind, by)
    optional = () if needs_label else (request.label,)
    clients, payer = read_payer(request, needed, schema, reference, optional, gaps=inputs)
    inputs = inputs or [only_input(clients, request.label, reads_text)]
    numbers = {field: Field("number", *ends) for field, ends in ranges.items()}
    numbers |= {field: _ranged(schema.fields[field], ranges.get(field)) for field in inputs if field in schema.fields}
    return Clients(clients, reference, Schema(numbers, tuple(inputs), request.label), payer)


def _columns(request: Request, schema: Schema, reference: Population | None) -> list[str] | None:
    """The public field names of a table, or of a fleet's public table and schema; None for any other data."""
    if request.fleet is None:
        return header(request.data, request.client, schema, reference, dialect=request.dialect)
    if reference is None or not is_private_table(request.reference or ""):
        return None
    return list({**reference.fields, **schema.fields})


def _ranged(field: Field, ends: tuple[float, float] | None) -> Field:
    """The field with a range that is given apart."""
    if ends is None or field.kind not in ("number", "whole"):
        return field
    return dataclasses.replace(field, low=ends[0], high=ends[1])


def _by_public_values(
    schema: Schema, reference: Population, inputs: Sequence[str], ranges: Ranges, *, reads_text: bool
) -> tuple[Schema, Population]:
    """The inputs' types with what public values say about them, and the public data in these types.

    A question that reads text leaves it as it is.
    """
    public = public_schema(reference).fields
    kinds = {name: public[name] for name in inputs if name in public and name not in ranges}
    if reads_text:
        kinds = {name: field for name, field in kinds.items() if reference.fields[name][0] != TEXT}
    kinds = kinds | {name: schema.fields[name] for name in inputs if name in schema.fields}
    return Schema({**schema.fields, **kinds}), conform(reference, {**dict.fromkeys(ranges, Field("number")), **kinds})


def read_payer(
    request: Request,
    needed: Mapping[str, Field | None],
    schema: Schema,
    reference: Population | None = None,
    optional: Collection[str] = (),
    *,
    gaps: Collection[str] = (),
) -> tuple[Population, LedgerName]:
    """The clients of a request, with its fault planted, and their name in the ledger, with a digest of all their data.

    A reference that has all their data, in whatever order and under whatever names, is refused. The ledger must
    recognise the clients whatever is planted in them and whichever of their fields are read.

    Args:
        request: Data, fault and name in the ledger.
        needed: Fields that the question needs, with the type that their role implies.
        schema: Types of fields, from the asker.
        reference: Public data of the same type.
        optional: Fields to read only if they exist.
        gaps: Fields of a table in which a value that does not fit is missing, and its row stays.
    """
    if request.fleet is not None:
        clients = fleet_clients(request, reference, schema.gapped(gaps))
        return clients, LedgerName(request.population or clients.name, clients.content)
    clients = read_clients(
        request.data,
        client=request.client,
        clients=request.clients,
        dialect=request.dialect,
        needed=needed,
        optional=optional,
        schema=schema,
        public=reference,
        gaps=gaps,
    )
    _check_types(request, clients, reference)
    written = dataclasses.asdict(request.dialect)
    content = content_of_clients(request.data, {"client": request.client, **written}, clients)
    check_reference(clients, reference, (content,))
    if request.fault is not None:
        clients = faults.apply(clients, request.fault)
    return clients, LedgerName(request.population or clients.name, content)


def _check_types(request: Request, clients: Population, reference: Population | None) -> None:
    """Refuse a type for a field that neither clients nor public data have; labels may be in only one of them.

    Files without a header have the fields that types describe.
    """
    if is_private_table(request.data) and is_by_client(request.data):
        return
    fields = header(request.data, request.client, Schema(), dialect=request.dialect) or list(clients.fields)
    for words in (*request.types, *getattr(request, "ranges", ())):
        name = words.partition("=")[0]
        if name not in fields and (reference is None or name not in reference.fields):
            raise InvalidInput(f"--type {words}: {request.data} has no field {name!r}, it has {', '.join(fields)}")


def read_reference(request: Request, clients: int) -> Population | None:
    """The public data of a request: the reference it names, else `clients` other clients of a generated population."""
    name = request.reference or request.data
    if request.reference is None and not has_other_clients(name):
        return None
    options = public_options(name, clients, request.client)
    texts = [field for field, one in schema_of(request.schema, request.types).fields.items() if one.kind == "text"]
    if texts and exists(name) and takes(name, "text"):  # CSV, which would guess numbers
        options["text"] = [field for field in texts if field in every_column(name, request.client or "client")]
    return read_public(name, options, request.data, what="--reference")


def check_suspects(suspects: Sequence[str]) -> None:
    """Refuse names that are not faults, and faults that cannot be undone, before any data are read."""
    for fault in (one for words in suspects for one in faults.parse(words)):
        if fault.damage.undo is None:
            raise InvalidInput(f"{fault.name} cannot be undone, so clients cannot vote for it: {fault.damage.lost}")


def ledger_of(request: Request) -> Ledger:
    """The ledger of a request."""
    return request.ledger if isinstance(request.ledger, Ledger) else Ledger(request.ledger)


def session_of(request: Request, payer: str | None, folder: Path, progress: Progress) -> Session:
    """The session of a request."""
    return Session(
        out=folder,
        ledger=ledger_of(request),
        population=payer,
        progress=progress,
        dry_run=request.dry_run,
        even_if_blind=request.even_if_blind,
    )


def run_folder(request: Request, task: str, clients: Population) -> Path:
    """Where the run goes: the folder that is asked for, else `runs/TASK-NAME`."""
    return Path(request.out) if request.out is not None else Path("runs") / f"{task}-{runs.file_name(clients.name)}"


def _needed(
    request: ModelRequest, inputs: Sequence[str], ranges: Ranges, label_kind: Field, by: str
) -> dict[str, Field | None]:
    """The fields that a question reads, each with the type that its role implies; None if a schema must give it."""
    numeric = {field for field in inputs if request.model is not None or field in ranges}
    needed = {field: Field("number") if field in numeric else None for field in inputs}
    return needed | {request.label: label_kind} | ({by: Field("text")} if by else {})


def only_input(population: Population, label: str, reads_text: bool) -> str:
    """The only image of a population, or its text if `reads_text`; otherwise ask for the inputs."""
    fields = population.fields
    images = [field for field, (_, shape) in fields.items() if len(shape) >= 2]
    texts = [field for field, (dtype, _) in fields.items() if dtype == TEXT and reads_text]
    candidates = images or (["text"] if "text" in texts else texts)
    return candidates[0] if len(candidates) == 1 else _ask(list(fields), label)


def _described_input(schema: Schema, columns: Sequence[str], label: str) -> str:
    """The only image that the schema describes; otherwise ask for the inputs."""
    images = [name for name, field in schema.fields.items() if field.kind == "image" and name in columns]
    return images[0] if len(images) == 1 else _ask(columns, label)


def _ask(fields: Sequence[str], label: str) -> NoReturn:
    others = ", ".join(field for field in fields if field != label)
    listed = f" from {others}" if others else ""
    raise InvalidInput(f"choose the fields to inspect{listed}: --input FIELD, once for each")


def range_of(words: str) -> tuple[str, tuple[float, float]]:
    """`age=0:100` as a field and its ends."""
    field, _, ends = words.partition("=")
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        raise InvalidInput(f"write a range as age=0:100, got {words!r}") from None
    return field, (low, high)
