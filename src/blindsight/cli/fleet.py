"""`blindsight fleet`: sites that keep their data, the server between them, and their status."""

import contextlib
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, print_json
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.fleet.membership import Parcel
    from blindsight.fleet.roll_call import Presence

__all__ = ["fleet_app"]

fleet_app = typer.Typer(
    help="Sites that keep their data: certificates, the server between them, and their status.",
    no_args_is_help=True,
    epilog="Example:  blindsight fleet init hospitals --sites north,south,west --host fleet.example.org",
)

FolderPath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the fleet.")]
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site.")]


@fleet_app.command("init", epilog="Example:  blindsight fleet init hospitals --sites north,south,west")
def init(
    folder: FolderPath,
    sites: Annotated[str, typer.Option(help="Names of the sites: north,south,west.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server; sites connect to the first. Repeatable. Default: 127.0.0.1."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the server; 0 for a free one of this machine.")] = 4222,
    name: Annotated[str | None, typer.Option(help="Name of the fleet. Default: that of the folder.")] = None,
    noise: Annotated[
        Literal["sites", "coordinator"],
        typer.Option(help="Who adds the noise; fewer than three sites need the coordinator."),
    ] = "sites",
    colluding: Annotated[int, typer.Option(help="Number of sites that may disclose their shares of noise.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make keys and certificates for a coordinator, a server and sites, and say what to send to whom."""
    with _needing_the_extra():
        from blindsight.fleet.folder import FleetFolder
        from blindsight.fleet.membership import everything
    names = [site.strip() for site in sites.split(",") if site.strip()]
    hosts = host or ["127.0.0.1"]
    fleet = FleetFolder.init(folder, sites=names, hosts=hosts, port=port, name=name, noise=noise, colluding=colluding)
    facts = {"fleet": fleet.settings.name, "server": fleet.settings.server, "roster": fleet.roster_fingerprint()}
    last = f"Keep {folder}/authority/key.pem to yourself: whoever has it can be any site."
    last += f" The coordinator does not need it.\nNext: blindsight fleet up {folder}"
    _print_parcels(everything(fleet), folder, facts, last, as_json=as_json)


@fleet_app.command("up", epilog="Example:  blindsight fleet up hospitals")
def up(folder: FolderPath) -> None:
    """Run the NATS server between coordinator and sites until Ctrl-C; it is restarted if it dies."""
    with _needing_the_extra():
        from blindsight.fleet.folder import FleetFolder
        from blindsight.fleet.server import run_server

    def say(words: str) -> None:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()

    run_server(FleetFolder.read(folder, to_ask=False), say)


@fleet_app.command("status", epilog="Example:  blindsight fleet status hospitals")
def status(
    folder: FolderPath,
    wait: Annotated[float, typer.Option(help="Seconds to wait for answers.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Ping every site: version, declared clients, current job, rounds, last refusal."""
    with _needing_the_extra():
        from blindsight.fleet.folder import FleetFolder
        from blindsight.fleet.roll_call import roll_call
    presences = roll_call(FleetFolder.read(folder, to_ask=False), timeout_s=wait)
    if as_json:
        print_json({"sites": [one.to_dict() for one in presences]})
    else:
        _print_presences(presences)


@fleet_app.command("add", epilog="Example:  blindsight fleet add hospitals east")
def add(folder: FolderPath, site: SiteName, as_json: AsJson = False) -> None:
    """Issue a certificate to a new site; every site needs the new roster."""
    with _needing_the_extra():
        from blindsight.fleet.membership import add as add_site
    _print_changed(add_site(folder, site), folder, as_json=as_json)


@fleet_app.command("rotate", epilog="Example:  blindsight fleet rotate hospitals north")
def rotate(
    folder: FolderPath,
    site: Annotated[str, typer.Argument(metavar="SITE", help="Name of the site, or: coordinator, server.")],
    as_json: AsJson = False,
) -> None:
    """Issue a new certificate and key; the old ones are refused at once. Every site needs the new roster."""
    with _needing_the_extra():
        from blindsight.fleet.membership import rotate as rotate_key
    _print_changed(rotate_key(folder, site), folder, as_json=as_json)


@fleet_app.command("revoke", epilog="Example:  blindsight fleet revoke hospitals west")
def revoke(folder: FolderPath, site: SiteName, as_json: AsJson = False) -> None:
    """Remove a site from the fleet: a running server disconnects and refuses it."""
    with _needing_the_extra():
        from blindsight.fleet.membership import revoke as revoke_site
    _print_changed(revoke_site(folder, site), folder, as_json=as_json)


@contextlib.contextmanager
def _needing_the_extra() -> Generator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a fleet needs the package {error.name}: pip install 'blindsight[fleet]'") from None


def _print_changed(parcels: Sequence["Parcel"], folder: Path, *, as_json: bool) -> None:
    from blindsight.fleet.folder import FleetFolder

    fleet = FleetFolder.read(folder, to_ask=False)
    facts = {"fleet": fleet.settings.name, "server": fleet.settings.server, "roster": fleet.roster_fingerprint()}
    last = "A server started by `blindsight fleet up` applies this within a second; send SIGHUP to any other."
    _print_parcels(parcels, folder, facts, last, as_json=as_json)


def _print_parcels(
    parcels: Sequence["Parcel"], folder: Path, facts: dict[str, Any], last: str, *, as_json: bool
) -> None:
    if as_json:
        send = [{"path": str(one.path), "to": one.receiver, "secret": one.is_secret} for one in parcels]
        print_json({**facts, "folder": str(folder), "send": send})
        return
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"The fleet {facts['fleet']} in {escape(str(folder))}, server {facts['server']}", soft_wrap=True)
    if parcels:
        table = Table("send", "to", "how", box=None, pad_edge=False)
        for one in parcels:
            how = "in secret: it holds a private key" if one.is_secret else "any way: it is public"
            table.add_row(escape(str(one.path)), one.receiver, how)
        console.print(table)
        console.print("For sites to compare by telephone, sha256sum roster.json prints")
        console.print(facts["roster"], soft_wrap=True)
    console.print(last, soft_wrap=True, markup=False)


def _print_presences(presences: Sequence["Presence"]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("site", "here", "last seen", "version", "clients", "job", "rounds", "refused", "certificate until"):
        table.add_column(heading)
    for one in presences:
        numbers = ["" if value is None else f"{value:,}" for value in (one.clients, one.rounds)]
        seen = "never" if one.seen is None else one.seen.replace("T", " ").removesuffix("+00:00")
        table.add_row(
            one.site,
            "yes" if one.here else "no",
            seen,
            one.version or "",
            numbers[0],
            one.job or "",
            numbers[1],
            one.refused or "",
            one.expires or "",
        )
    console = Console(highlight=False)
    console.print(table)
    for code in sorted({one.refused for one in presences if one.refused is not None}):
        console.print(f"{code}: {code.meaning}", soft_wrap=True)
