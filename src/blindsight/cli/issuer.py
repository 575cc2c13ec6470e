"""`blindsight issuer`: keys for admission tokens, and blind signatures for attested devices."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blindsight.cli.printing import AsJson, print_json
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.service.issuer import Issuer

__all__ = ["issuer_app"]

issuer_app = typer.Typer(
    help="Admission tokens for the clients of a service: their issuer's keys and signatures.",
    no_args_is_help=True,
    epilog="Example:  blindsight issuer create issuer --name issuer.example.org",
)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the issuer's keys.")]
Days = Annotated[float, typer.Option(help="Days for which the new key is valid.")]


@issuer_app.command("create", epilog="Example:  blindsight issuer create issuer --name issuer.example.org")
def create(
    folder: Folder, name: Annotated[str, typer.Option(help="Host name of the issuer.")], days: Days = 7.0
) -> None:
    """Create an issuer with its first key; services and clients read FOLDER/issuer.json."""
    _library()
    from blindsight.service.issuer import Issuer

    issuer = Issuer.create(folder, name, days=days)
    print(f"{folder / 'issuer.json'} has the key {issuer.keys[0].id.hex()[:16]}")


@issuer_app.command("rotate", epilog="Example:  blindsight issuer rotate issuer --days 7")
def rotate(folder: Folder, days: Days = 7.0) -> None:
    """Add a key and remove those that have expired. Services take it after SIGHUP."""
    print(f"added the key {_open(folder).rotate(days=days).id.hex()[:16]}")


@issuer_app.command("revoke", epilog="Example:  blindsight issuer revoke issuer 3f5a")
def revoke(folder: Folder, key: Annotated[str, typer.Argument(help="First digits of the key's id.")]) -> None:
    """Remove a key and with it all of its tokens. Services refuse them after SIGHUP."""
    print(f"removed the key {_open(folder).revoke(key).id.hex()[:16]}")


@issuer_app.command("keys", epilog="Example:  blindsight issuer keys issuer --json")
def keys(folder: Folder, as_json: AsJson = False) -> None:
    """List the keys with their first and last second of validity, since 1970."""
    issuer = _open(folder)
    rows = [{"key": key.id.hex()[:16], "not_before": key.not_before, "not_after": key.not_after} for key in issuer.keys]
    if as_json:
        print_json({"issuer": issuer.name, "keys": rows})
        return
    for row in rows:
        print(f"{row['key']}  {row['not_before']}  {row['not_after']}")


@issuer_app.command("sign", epilog="Example:  blindsight issuer sign issuer < requests > responses")
def sign(folder: Folder) -> None:
    """Sign the token requests on standard input, one per line in base64, and print a response for each.

    Run it behind whatever attests devices, which decides how many tokens each device gets. A line that is not a token
    request gets an empty line. Keys are read again when they change.
    """
    from blindsight.service.admission import from_text, to_text

    issuer = _open(folder)
    changed = _changed(folder)
    for line in sys.stdin:
        if changed != (now := _changed(folder)):
            issuer, changed = _open(folder), now
        try:
            print(to_text(issuer.answer(from_text(line.strip()))), flush=True)
        except InvalidInput as error:
            print(error, file=sys.stderr)
            print(flush=True)


def _changed(folder: Path) -> int:
    return (folder / "issuer.json").stat().st_mtime_ns


def _open(folder: Path) -> "Issuer":
    _library()
    from blindsight.service.issuer import Issuer

    return Issuer(folder)


def _library() -> None:
    if importlib.util.find_spec("cryptography") is None:
        raise InvalidInput("blindsight issuer needs cryptography: pip install 'blindsight[service]'")
