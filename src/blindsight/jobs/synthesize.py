"""`blindsight synthesize`: synthetic rows of clients' tables, with types and ranges that are public."""

from pathlib import Path

from blindsight.backends import use_cores
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspection.report import Report
from blindsight.jobs.ask import described
from blindsight.jobs.inspecting import range_of, read_payer, read_reference, run_folder, session_of
from blindsight.jobs.request import SynthesizeRequest
from blindsight.jobs.tables import header, schema_of
from blindsight.progress import Progress, quiet
from blindsight.synthesizing import synthesize

__all__ = ["run_synthesize"]

_REFERENCE_CLIENTS = 150
_LABEL = "label"  # unless another field is named


def run_synthesize(request: SynthesizeRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """Synthetic rows. Returns the report and the folder of the run."""
    use_cores()
    reference = read_reference(request, _REFERENCE_CLIENTS)
    schema = schema_of(request.schema, request.types, request.data)
    ranges = schema.ranges | dict(map(range_of, request.ranges))
    names = _fields(request, schema, reference)
    label = request.label or _LABEL
    needed = {name: Field("number") if name in ranges else None for name in (*names, label)}
    optional = () if request.label else (label,)
    clients, payer = read_payer(request, needed, schema, reference, optional, gaps=names)
    for name in (*names, *filter(None, [request.label])):
        if name not in clients.fields:
            raise InvalidInput(f"{clients.name} has no field {name!r}: choose from {', '.join(clients.fields)}")
    chosen = [name for name in (names or _all(clients)) if name != label]
    types = {name: described(name, clients, schema, reference, ranges) for name in chosen}
    folder = run_folder(request, "synthesize", clients)
    report = synthesize(
        clients,
        epsilon=request.epsilon,
        delta=request.delta,
        schema=Schema(types, tuple(chosen), label),
        rows=request.rows,
        session=session_of(request, payer, folder, progress),
    )
    return report, folder


def _fields(request: SynthesizeRequest, schema: Schema, reference: Population | None) -> list[str]:
    """The fields that are named; of a table by default those that the schema or the reference describes."""
    if request.fields:
        return list(dict.fromkeys(request.fields))
    columns = header(request.data, request.client, schema, reference, dialect=request.dialect)
    if columns is None:
        return []  # embedded, or a data set with its own types
    public = {} if reference is None else Schema.of(reference).fields
    kinds = {**public, **schema.fields}
    described_here = [name for name in columns if name in kinds and kinds[name].kind not in ("text", "image")]
    if not described_here:
        raise InvalidInput(
            f"choose the fields of a row from {', '.join(columns)}: blindsight synthesize {request.data} FIELD ... "
            f"with --type"
        )
    return described_here


def _all(clients: Population) -> list[str]:
    return [name for name, field in Schema.of(clients).fields.items() if field.kind not in ("text", "image")]
