"""`blindsight data`: list, describe, check and download populations."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blindsight.cli.completing import complete_data
from blindsight.cli.describing import DECIMAL, ENCODING, SEPARATOR, described
from blindsight.cli.printing import AsJson, print_json, print_value, progress_bar, resumable, working
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.data import Population
    from blindsight.data.schema import Schema

__all__ = ["checked", "data_app", "print_check"]

data_app = typer.Typer(
    help="Populations: embedded ones, your own files, and real data sets to download.",
    no_args_is_help=True,
    epilog="Example:  blindsight data describe handwriting",
)


@data_app.command("list", epilog="Example:  blindsight data list")
def data_list(as_json: AsJson = False) -> None:
    """The embedded populations and the known real data sets, and where they are."""
    from blindsight.data.catalogue import DATASETS
    from blindsight.data.datasets import find, how_to_get
    from blindsight.data.embedded import POPULATIONS

    rows: list[dict[str, Any]] = [
        {"name": name, "kind": "embedded", "about": _first_line(make), "found": True}
        for name, make in POPULATIONS.items()
    ]
    for dataset in DATASETS.values():
        folder = find(dataset.name)
        rows.append(
            {
                "name": dataset.name,
                "kind": "real",
                "about": dataset.description,
                "clients": dataset.clients,
                "examples": dataset.examples,
                "licence": dataset.licence,
                "origin": dataset.origin,
                "found": folder is not None,
                "folder": str(folder) if folder else None,
                "public": dataset.public,
                "how_to_get": how_to_get(dataset),
            }
        )
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "what", "clients", "where"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for row in rows:
        table.add_row(row["name"], escape(row["about"]), row.get("clients", "you choose"), escape(_where(row)))
    Console(highlight=False).print(table)


def _where(row: dict[str, Any]) -> str:
    if row["kind"] == "embedded":
        return "embedded"
    return row["folder"] or f"blindsight data get {row['name']}{'' if row['public'] else ' --from URL'}"


def _first_line(make: Any) -> str:
    return (make.__doc__ or "").strip().partition("\n")[0].replace("`", "")


@data_app.command("describe", epilog="Example:  blindsight data describe notes.csv --client writer")
def data_describe(
    population: Annotated[
        str,
        typer.Argument(help="A name from `blindsight data list`, or a file or folder.", autocompletion=complete_data),
    ],
    client: Annotated[str | None, typer.Option(help="Column holding the client id, for tables.")] = None,
    fields: Annotated[str | None, typer.Option(help="Columns to read, age,income. Default: all.")] = None,
    separator: Annotated[str | None, typer.Option(help=SEPARATOR)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    decimal: Annotated[str | None, typer.Option(help=DECIMAL)] = None,
    as_json: AsJson = False,
) -> None:
    """What a population holds: clients, examples, fields, classes. Computed from the data without noise."""
    from blindsight.data.csv_tables import dialect_of
    from blindsight.data.dialect import Dialect

    given = _given(client, fields, separator, encoding, decimal)
    with working(f"reading {escape(population)}"):
        description = _population(population, given).describe()
        dialect = (
            None if population in _names() else dialect_of(population, Dialect.of(given), client=client or "client")
        )
    if dialect is not None and not as_json:
        Console(stderr=True, highlight=False).print(f"{population}: {dialect}", markup=False, soft_wrap=True)
    print_value(description, as_json=as_json)


def _given(
    client: str | None, fields: str | None, separator: str | None, encoding: str | None, decimal: str | None
) -> dict[str, Any]:
    """The loader options that were given."""
    options = {"client": client, "fields": fields.split(",") if fields else None}
    options |= {"separator": separator, "encoding": encoding, "decimal": decimal}
    return {name: value for name, value in options.items() if value is not None}


def _names() -> set[str]:
    from blindsight.data.catalogue import DATASETS
    from blindsight.data.embedded import POPULATIONS

    return {*POPULATIONS, *DATASETS}


@data_app.command("check", epilog="Example:  blindsight data check notes.csv --client writer --type age=whole:0:120")
def data_check(
    file: Annotated[str, typer.Argument(help="A file or folder.", autocompletion=complete_data)],
    client: Annotated[str | None, typer.Option(help="Column holding the client id, for tables.")] = None,
    fields: Annotated[str | None, typer.Option(help="Columns to read, age,income. Default: all.")] = None,
    separator: Annotated[str | None, typer.Option(help=SEPARATOR)] = None,
    encoding: Annotated[str | None, typer.Option(help=ENCODING)] = None,
    decimal: Annotated[str | None, typer.Option(help=DECIMAL)] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="What a field holds, age=whole:0:120, or a JSON file; repeatable."),
    ] = None,
    schema: Annotated[Path | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """List the rows and values that do not fit. Run it only where the data may be looked at.

    Inspections leave out rows that do not fit and never mention them. With --type, this lists the rows that an
    inspection would leave out. Exit code 2 if there are any, or if the file cannot be read.
    """
    from blindsight.data.schema import Schema

    given = described(types or (), schema)
    declared = Schema({}) if given["schema"] is None else Schema.load(given["schema"])
    declared = declared.updated([*given["types"], *given["ranges"]])
    report, is_fine = checked(file, _given(client, fields, separator, encoding, decimal), declared)
    if as_json:
        print_json(report)
    else:
        print_check(report, is_fine)
    if not is_fine:
        raise typer.Exit(2)


def checked(file: str, options: Mapping[str, Any], schema: "Schema") -> tuple[dict[str, Any], bool]:
    """A report on the problems of a file, read with these options, for the data's owner; and whether there are none.

    With a schema, each field is checked against its given type, otherwise against the type that a loader infers.
    """
    from blindsight.data.dialect import Dialect
    from blindsight.data.private import is_table, misfits

    report: dict[str, Any] = {"file": file, "problem": None, "clients": None, "examples": None, "left_out": {}}
    try:
        with working(f"reading {escape(file)}"):
            clients = _population(file, options)
        report |= {"clients": clients.size, "examples": clients.n_examples}
    except InvalidInput as error:
        report["problem"] = str(error)
    if has_types := bool(schema.fields) and is_table(file):
        client, dialect = options.get("client", "client"), Dialect.of(options)
        report["left_out"] = misfits(file, fields=schema.fields, client=client, dialect=dialect)
    return report, not report["left_out"] and (report["problem"] is None or has_types)


def print_check(report: Mapping[str, Any], is_fine: bool) -> None:
    """Print what `checked` found."""
    console = Console(highlight=False, soft_wrap=True)
    if report["problem"]:
        console.print(report["problem"], markup=False)
    for field, rows in report["left_out"].items():
        listed = ", ".join(map(str, rows[:20])) + (", ..." if len(rows) > 20 else "")
        console.print(f"{field}: {len(rows):,} rows do not fit and would be left out: {listed}", markup=False)
    if is_fine:
        count = "" if report["clients"] is None else f": {report['clients']:,} clients, {report['examples']:,} examples"
        console.print(f"{report['file']} is in order{count}", markup=False)
    console.print("This output names rows of the data: treat it as confidential.", style="yellow")


def _population(name: str, options: Mapping[str, Any]) -> "Population":
    """The population of that name, else the one in that file."""
    from blindsight.data import source

    if options and name in _names():
        raise InvalidInput(
            f"--{next(iter(options))} is for tables in files, and {name} already has client ids: leave it out"
        )
    return source(name, options)


@data_app.command("get", epilog="Example:  blindsight data get mnist")
def data_get(
    name: Annotated[str, typer.Argument(help="Name of a real data set from `blindsight data list`.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder. Default: $BLINDSIGHT_DATA, else ~/.cache/blindsight.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="Address of a mirror. Default: $BLINDSIGHT_DATA_URL.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download a real data set, verify its checksums and prepare it. Resumes an interrupted download."""
    from blindsight.data.datasets import find, get, named
    from blindsight.data.embedded import POPULATIONS

    if name in POPULATIONS:
        raise InvalidInput(f"{name} comes with Blindsight and needs no download: use it by its name")
    dataset = named(name)
    with resumable(), progress_bar(f"getting {name}", in_bytes=True, quiet=as_json) as progress:
        folder = get(name, to=to, mirror=mirror, progress=progress)
    used = find(name) == folder
    if as_json:
        files = [str(folder / file) for file in dataset.files]
        print_json({"name": name, "folder": str(folder), "files": files, "licence": dataset.licence, "in_use": used})
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{name} is in {folder}", markup=False)
    console.print(f"Licence: {dataset.licence}. Origin: {dataset.origin}.", markup=False)
    if not used:
        console.print(f"To use it from there: export BLINDSIGHT_DATA={folder}", markup=False)
