"""`blindsight serve`: the Draw-and-Discard service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blindsight.cli.printing import flag
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.service.settings import Settings

__all__ = ["serve"]


def serve(
    config: Annotated[Path | None, typer.Option(metavar="SERVE.toml", help="Settings; see docs/service.md.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for a free one. Default: 8752.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for snapshots and tokens. Default: service.")] = None,
    store: Annotated[str | None, typer.Option(help="memory, or redis://host:6379/0.")] = None,
    admin_listen: Annotated[
        str | None, typer.Option(help="Separate address for admin calls, metrics and health: 127.0.0.1:8753.")
    ] = None,
    backup: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Copy all models there, replacing an older copy, and exit.")
    ] = None,
    restore: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Create the models that are missing from a backup, and exit.")
    ] = None,
    demo: Annotated[bool, flag("--demo", "Serve a phishing model with simulated clients and a live page.")] = False,
) -> None:
    """Serve models that clients train together without trusting anybody, this service included."""
    from blindsight.service.logs import write_logs
    from blindsight.service.settings import Settings

    given: dict[str, Any] = {"host": host, "port": port, "data": data, "store": store, "admin_listen": admin_listen}
    given = {name: value for name, value in given.items() if value is not None}

    def read() -> Settings:
        return Settings.load(config, given) if config else Settings(**given)

    settings = read()
    write_logs(settings.log)
    if backup or restore:
        _copy(settings, backup, restore)
        return
    try:
        from blindsight.service.demo import run_demo
        from blindsight.service.run import serve as run
    except ModuleNotFoundError as error:
        hint = f"blindsight serve needs the package {error.name}: pip install 'blindsight[service]'"
        raise InvalidInput(hint) from None
    if demo:
        run_demo(settings)
    else:
        run(settings, reread=read)


def _copy(settings: "Settings", backup: Path | None, restore: Path | None) -> None:
    """Back up to one folder or restore from it, and say what was done."""
    import asyncio

    from blindsight.service import backups

    if backup and restore:
        raise InvalidInput("choose one of --backup and --restore")
    done = backups.back_up(settings, backup) if backup else backups.restore(settings, restore or Path())
    for sentence in asyncio.run(done):
        typer.echo(sentence)
