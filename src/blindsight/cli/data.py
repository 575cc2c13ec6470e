"""`blindsight data`: which populations there are, what they hold, and how to get the real ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blindsight.cli.printing import AsJson, print_json, progress_bar, resumable, working
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.data import Population

__all__ = ["data_app"]

data_app = typer.Typer(
    help="Populations: embedded, in your files, or real ones to download.",
    no_args_is_help=True,
    epilog="Example:  blindsight data describe handwriting",
)


@data_app.command("list", epilog="Example:  blindsight data list")
def data_list(as_json: AsJson = False) -> None:
    """The populations that come with Blindsight and the real data sets it knows, and where they are."""
    from blindsight.data.catalogue import DATASETS
    from blindsight.data.datasets import find, how_to_get
    from blindsight.data.embedded import POPULATIONS

    rows: list[dict[str, Any]] = [
        {"name": name, "kind": "embedded", "about": _first_line(make), "found": True}
        for name, make in POPULATIONS.items()
    ]
    for known in DATASETS.values():
        folder = find(known.name)
        about = {field: getattr(known, field) for field in ("about", "clients", "examples", "licence", "origin")}
        where = {"found": folder is not None, "folder": str(folder) if folder else None}
        how = {"public": known.public, "how_to_get": how_to_get(known)}
        rows.append({"name": known.name, "kind": "real"} | about | where | how)
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
    population: Annotated[str, typer.Argument(help="A name from `blindsight data list`, or a file or folder.")],
    client: Annotated[str | None, typer.Option(help="The column that says whose a row is, for tables.")] = None,
    as_json: AsJson = False,
) -> None:
    """What a population holds: clients, examples, fields, classes. Read off the data without noise."""
    with working(f"reading {escape(population)}"):
        found = _population(population, client).describe()
    if as_json:
        print_json(found.to_dict())
    else:
        Console(highlight=False).print(found)


@data_app.command("check", epilog="Example:  blindsight data check notes.csv --client writer --type age=whole:0:120")
def data_check(
    file: Annotated[str, typer.Argument(help="A file or folder.")],
    client: Annotated[str | None, typer.Option(help="Column holding the client id, for tables.")] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="What a field of a table holds, age=whole:0:120; repeat.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="The same for many fields: a schema in a JSON file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Where the data do not fit: rows and values by name. Run it only where the data may be looked at.

    An inspection never says what is wrong with a client's row: the row is left out. With --type or --schema, this lists
    the rows that an inspection would leave out. Exit code 2 if there are any, or if the file cannot be read.
    """
    from blindsight.data.private import is_table, misfits
    from blindsight.data.schema import Schema

    fields = (Schema({}) if schema is None else Schema.load(schema)).updated(types or ()).fields
    report: dict[str, Any] = {"file": file, "problem": None, "clients": None, "examples": None, "left_out": {}}
    try:
        with working(f"reading {escape(file)}"):
            people = _population(file, client)
        report |= {"clients": people.size, "examples": people.n_examples}
    except InvalidInput as error:
        report["problem"] = str(error)
    if fields and is_table(file):
        report["left_out"] = misfits(file, fields=fields, client=client or "client")
    is_fine = not report["left_out"] and (report["problem"] is None or bool(fields))
    if as_json:
        print_json(report)
    else:
        _print_check(report, is_fine)
    if not is_fine:
        raise typer.Exit(2)


def _print_check(report: dict[str, Any], is_fine: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if report["problem"]:
        console.print(report["problem"], markup=False)
    for field, rows in report["left_out"].items():
        listed = ", ".join(map(str, rows[:20])) + (", ..." if len(rows) > 20 else "")
        console.print(f"{field}: {len(rows):,} rows do not fit and would be left out: {listed}", markup=False)
    if is_fine:
        count = "" if report["clients"] is None else f": {report['clients']:,} clients, {report['examples']:,} examples"
        console.print(f"{report['file']} is in order{count}", markup=False)
    console.print("These lines name rows of the data: keep them where the data are.", style="yellow")


def _population(name: str, client: str | None) -> "Population":
    """The population of that name, else the one in that file."""
    from blindsight.data import source
    from blindsight.data.catalogue import DATASETS
    from blindsight.data.embedded import POPULATIONS

    if client is None:
        return source(name)
    if name in POPULATIONS or name in DATASETS:
        raise InvalidInput(f"--client is for tables in files, and {name} has its clients already: leave it out")
    return source(name, client=client)


@data_app.command("get", epilog="Example:  blindsight data get mnist")
def data_get(
    name: Annotated[str, typer.Argument(help="A real data set from `blindsight data list`.")],
    to: Annotated[
        Path | None, typer.Option(help="The folder; else $BLINDSIGHT_DATA, else ~/.cache/blindsight.")
    ] = None,
    mirror: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="A mirror's address; else $BLINDSIGHT_DATA_URL.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download a real data set, verify its checksums and prepare it. Goes on where an earlier one broke off."""
    from blindsight.data.datasets import find, get, named
    from blindsight.data.embedded import POPULATIONS

    if name in POPULATIONS:
        raise InvalidInput(f"{name} comes with Blindsight, and nothing is downloaded: use it by its name")
    known = named(name)
    with resumable(), progress_bar(f"getting {name}", in_bytes=True, quiet=as_json) as progress:
        folder = get(name, to=to, mirror=mirror, progress=progress)
    used = find(name) == folder
    if as_json:
        files = [str(folder / file) for file in known.files]
        print_json({"name": name, "folder": str(folder), "files": files, "licence": known.licence, "in_use": used})
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{name} is in {folder}", markup=False)
    console.print(f"Licence: {known.licence}. Origin: {known.origin}.", markup=False)
    if not used:
        console.print(f"To use it from there: export BLINDSIGHT_DATA={folder}", markup=False)
