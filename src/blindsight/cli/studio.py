"""`blindsight studio`: runs, ledgers, questions, labels and fleets on pages of this machine alone."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, flag, print_json
from blindsight.errors import InvalidInput

__all__ = ["studio"]


_RUNS = Path("runs")  # which the first run makes


def studio(
    folder: Annotated[Path, typer.Argument(help="Folder of runs.")] = _RUNS,
    ledger: Annotated[
        list[Path] | None,
        typer.Option(help="Ledger file; repeatable. Default: $BLINDSIGHT_LEDGER, else .blindsight/ledger.db."),
    ] = None,
    fleet: Annotated[list[Path] | None, typer.Option(help="Folder of a fleet; repeatable.")] = None,
    site: Annotated[
        list[Path] | None, typer.Option(metavar="SITE.toml", help="Settings of a site of a fleet; repeatable.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port, 0 for a free one.")] = 0,
    write: Annotated[bool, flag("--write", "Allow changes: notes, labels, deleting runs, asking questions.")] = False,
    no_open: Annotated[bool, flag("--no-open", "Open no browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at runs, ledgers and fleets in a browser. It listens on this machine only, and changes nothing by default.

    The printed address works once: open it in the browser that you want to use.
    """
    try:
        from blindsight.studio.serving import serve_studio
    except ModuleNotFoundError as error:
        hint = f"blindsight studio needs the package {error.name}: pip install 'blindsight[studio]'"
        raise InvalidInput(hint) from None
    from blindsight.studio.web import Workspace

    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder of runs: name the folder that holds their folders")
    if not folder.exists() and folder != _RUNS:
        raise InvalidInput(f"there is no folder {folder}: name the folder that holds the runs")
    for one in fleet or ():
        if not (one / "fleet.toml").is_file():
            raise InvalidInput(f"{one} is not the folder of a fleet: it has no fleet.toml")
    if any(not one.is_file() for one in site or ()):
        raise InvalidInput("--site names the settings of a site, a file such as SITE.toml")
    ledgers = tuple(ledger or ()) or (_default_ledger(),)
    place = Workspace(
        folder=folder, ledgers=ledgers, fleets=tuple(fleet or ()), sites=tuple(site or ()), writable=write
    )

    def opened(address: str) -> None:
        if as_json:
            print_json({"address": address, "folder": str(folder), "writable": write})
        else:
            mode = "" if write else "It is read-only; --write allows changes. "
            words = f"Blindsight studio:  {address}\n{mode}Stop with Ctrl-C."
            Console(highlight=False, soft_wrap=True).print(escape(words))
        if not no_open:
            _open(address)

    serve_studio(place, port=port, opened=opened)


def _default_ledger() -> Path:
    """Where a ledger is if none is named, as in `accounting.ledger`, which takes long to import."""
    import os

    return Path(os.environ.get("BLINDSIGHT_LEDGER") or ".blindsight/ledger.db")


def _open(address: str) -> None:
    """Open the address in the user's browser, once it answers; a machine without one shows nothing."""
    import contextlib
    import threading
    import webbrowser

    def later() -> None:
        with contextlib.suppress(webbrowser.Error, OSError):
            webbrowser.open(address)

    threading.Timer(0.3, later).start()
