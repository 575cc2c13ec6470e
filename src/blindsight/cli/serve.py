"""`blindsight serve`: the Draw-and-Discard service."""

import dataclasses
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from blindsight.cli.printing import flag
from blindsight.errors import InvalidInput

__all__ = ["serve"]


def serve(
    config: Annotated[Path | None, typer.Option(metavar="SERVE.toml", help="Settings; see docs/service.md.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for a free one. Default: 8752.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for snapshots and tokens. Default: service.")] = None,
    store: Annotated[str | None, typer.Option(help="memory, or redis://host:6379/0.")] = None,
    demo: Annotated[bool, flag("--demo", "Serve a phishing model with simulated clients and a live page.")] = False,
) -> None:
    """Serve models that clients train together without trusting anybody, this service included."""
    from blindsight.service.settings import Settings

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = Settings.load(config) if config else Settings()
    given: dict[str, Any] = {"host": host, "port": port, "data": data, "store": store}
    settings = dataclasses.replace(settings, **{name: value for name, value in given.items() if value is not None})
    try:
        if demo:
            from blindsight.service.demo import run_demo as run
        else:
            from blindsight.service.run import serve as run
    except ModuleNotFoundError as error:
        hint = f"blindsight serve needs the package {error.name}: pip install 'blindsight[service]'"
        raise InvalidInput(hint) from None
    run(settings)
