"""`blindsight site`: what a site of a fleet is asked, what it decides and pays, and its agent."""

import dataclasses
import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from blindsight.cli.data import checked, print_check
from blindsight.cli.printing import AsJson, flag, print_json
from blindsight.errors import BlindsightError, InvalidInput

if TYPE_CHECKING:
    from blindsight.fleet.site.book import Book
    from blindsight.fleet.site.book_file import JobRecord
    from blindsight.fleet.site.settings import SiteSettings

__all__ = ["site_app"]

site_app = typer.Typer(
    help="One site of a fleet: answer questions about data that stay here.",
    no_args_is_help=True,
    epilog="Example:  blindsight site review SITE.toml",
)

SiteFile = Annotated[Path, typer.Argument(metavar="SITE.toml", help="Settings of the site; see docs/site.md.")]


@site_app.command("schema", epilog="Example:  blindsight site schema > SITE.schema.json")
def schema() -> None:
    """Print the JSON Schema of SITE.toml, with which an editor completes and checks its keys."""
    from blindsight.fleet.site.settings import site_schema

    print_json(site_schema())


@site_app.command("run", epilog="Example:  blindsight site run SITE.toml")
def run(site: SiteFile) -> None:
    """Run the site's agent: it decides on questions by the policy in SITE.toml, pays, and answers. Ctrl-C stops it."""
    settings = _settings(site)
    try:
        from blindsight.jobs.site import run_site
    except ModuleNotFoundError as error:
        hint = f"blindsight site run needs the package {error.name}: pip install 'blindsight[fleet]'"
        raise InvalidInput(hint) from None
    from blindsight.runs import locked

    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = BlindsightError(f"another agent is running for {site}: a site has one")
    with locked(settings.state / "lock", busy):
        run_site(settings)


@site_app.command("review", epilog="Example:  blindsight site review SITE.toml --approve 3f5a91c0")
def review(
    site: SiteFile,
    approve: Annotated[str | None, typer.Option(metavar="DIGEST", help="Approve this question.")] = None,
    deny: Annotated[str | None, typer.Option(metavar="DIGEST", help="Deny it, even if it was approved.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why it is denied; it stays at the site.")] = None,
    officer: Annotated[
        str | None, typer.Option(help="Name of the person who decides. Default: your user name.")
    ] = None,
    every: Annotated[bool, flag("--all", "List every question, decided ones too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the questions that wait for approval, with their cost and what would leave.

    Without options, on a terminal, it asks about one question after the other. Nothing here reads the site's data.
    """
    from blindsight.fleet.site.book import Book

    if approve is not None and deny is not None:
        raise InvalidInput("choose one of --approve and --deny")
    if (deny is None) != (reason is None):
        raise InvalidInput("a denial needs both: --deny DIGEST --reason TEXT")
    book, who = Book(_settings(site)), officer or getpass.getuser()
    if approve is not None:
        records = [book.approve(approve, officer=who)]
    elif deny is not None:
        records = [book.deny(deny, officer=who, reason=reason or "")]
    else:
        records = [record for record in book.jobs() if every or record.waits]
    if as_json:
        print_json({"spent": book.spent(), "questions": [record.to_dict() for record in records]})
        return
    is_decided = approve is not None or deny is not None
    asks = not (is_decided or every) and sys.stdin.isatty() and sys.stdout.isatty()
    for record in records:
        _print_record(book, record, briefly=is_decided)
        if asks:
            _ask(book, record, who)
    if not records:
        Console(highlight=False).print("No question waits for approval." if not every else "No question was asked yet.")


def _ask(book: "Book", record: "JobRecord", officer: str) -> None:
    """Ask on the terminal; an answer other than yes or no leaves the question waiting."""
    reply = (
        typer.prompt("Approve it? yes, no, or Enter to decide later", default="", show_default=False).strip().lower()
    )
    if reply in ("y", "yes"):
        _print_record(book, book.approve(record.asked.job, officer=officer), briefly=True)
    elif reply in ("n", "no"):
        reason = typer.prompt("Reason, which stays here")
        _print_record(book, book.deny(record.asked.job, officer=officer, reason=reason), briefly=True)


def _print_record(book: "Book", record: "JobRecord", *, briefly: bool) -> None:
    screen, asked = Console(highlight=False, markup=False, soft_wrap=True), record.asked
    screen.print(f"{asked.job[:12]}  {asked.kind} {asked.task}, asked by {asked.asker}, {record.ruling.sentence}")
    if briefly:
        return
    policy, spent = book.settings.policy, book.spent()
    own = spent.get(f"{book.settings.name}, asked by {asked.asker}", 0.0)
    times = "each once" if asked.kind == "question" else f"{asked.rounds:,} times"
    leaves = "; ".join(f"{one.name}, {one.coordinates:,} numbers of norm {one.l2_bound:g}" for one in asked.leaves)
    screen.print(f"  asks     {asked.sentence}")
    screen.print(f"  costs    at most epsilon {asked.epsilon:g} at delta {asked.delta:g}, for each {asked.unit}")
    screen.print(
        f"  spent    epsilon {spent[book.settings.name]:.3g} of {policy.epsilon_total:g} in all, {own:.3g} of "
        f"{policy.limit_of(asked.asker):g} by {asked.asker}"
    )
    screen.print(f"  leaves   {times}, {asked.sum_in_words}, from each client at most: {leaves}")
    screen.print(f"  noise    {asked.noise}")
    screen.print(f"  received {asked.received_at:%Y-%m-%d %H:%M}, from Blindsight {asked.version}\n")


@site_app.command("log", epilog="Example:  blindsight site log SITE.toml --head 9c41d2...")
def log(
    site: SiteFile,
    head: Annotated[str | None, typer.Option(help="Hash noted earlier that must occur in the log.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show and verify everything the site did; exit code 3 if a line was edited, removed or moved."""
    from blindsight.fleet.site.diary import Diary

    diary = Diary(_settings(site).diary)
    lines, result = diary.lines(), diary.verify(witness=head)
    if as_json:
        print_json({"lines": [dataclasses.asdict(line) for line in lines], **dataclasses.asdict(result)})
    else:
        screen = Console(highlight=False, markup=False, soft_wrap=True)
        for line in lines:
            screen.print(f"{line.number:>5}  {line.time[:19].replace('T', ' ')}  {line.what}")
        screen.print(str(result))
    if not result.ok:
        raise typer.Exit(3)


@site_app.command("check", epilog="Example:  blindsight site check SITE.toml")
def check(site: SiteFile, as_json: AsJson = False) -> None:
    """Check the site's settings, certificates and data. Run it only where the data may be looked at.

    Exit code 2 if something does not fit. Rows that do not fit are listed as by `blindsight data check`.
    """
    from blindsight.data.schema import Schema

    settings = _settings(site)
    from blindsight.fleet.site.credentials import is_open_to_others

    valid_until, is_open = f"{settings.check_papers():%Y-%m-%d}", is_open_to_others(settings.key)
    schema = Schema({}) if settings.schema is None else Schema.load(settings.schema)
    schema = schema.updated([f"{name}={kind}" for name, kind in settings.data.types.items()])
    report, is_fine = checked(settings.population, settings.data.options, schema)
    missing = _missing_columns(settings)
    facts: dict[str, Any] = {"site": settings.name, "roster": [party.name for party in settings.roster]}
    facts |= {"valid_until": valid_until, "declared_clients": settings.site.clients, "missing_columns": missing}
    facts |= {"key_is_open": is_open}
    if as_json:
        print_json({**facts, **report})
    else:
        screen = Console(highlight=False, markup=False, soft_wrap=True)
        screen.print(f"{settings.name} is one of {', '.join(facts['roster'])}; certificate valid until {valid_until}")
        if is_open:
            screen.print(f"others on this machine may read {settings.key}, with which they can be this site: chmod 600")
        for field, column in missing.items():
            screen.print(f"[columns] {field} = {column!r}: the data have no such column")
        if report["clients"] not in (None, settings.site.clients):
            screen.print(f"[site] clients is {settings.site.clients:,}, and the data have {report['clients']:,}")
        print_check(report, is_fine)
    are_too_many = (report["clients"] or 0) > settings.site.clients  # the agent would refuse
    if missing or is_open or are_too_many or not is_fine:
        raise typer.Exit(2)


def _missing_columns(settings: "SiteSettings") -> dict[str, str]:
    """The [columns] that a table does not have; other data have no header to compare with."""
    from blindsight.data.dialect import Dialect
    from blindsight.data.private import every_column, is_table

    given = settings.data.options
    client, dialect = given.get("client", "client"), Dialect.of(given)
    columns = every_column(settings.population, client, dialect) if is_table(settings.population) else []
    return {field: column for field, column in settings.columns.items() if columns and column not in columns}


def _settings(path: Path) -> "SiteSettings":
    try:
        from blindsight.fleet.site.settings import SiteSettings
    except ModuleNotFoundError as error:
        hint = f"blindsight site needs the package {error.name}: pip install 'blindsight[fleet]'"
        raise InvalidInput(hint) from None
    return SiteSettings.read(path)
