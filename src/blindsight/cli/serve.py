"""`blindsight serve`: the Draw-and-Discard service."""

from pathlib import Path
from typing import Annotated, Any

import typer

from blindsight.cli.printing import flag

__all__ = ["serve"]


def serve(
    config: Annotated[Path | None, typer.Option(metavar="SERVE.toml", help="Settings; see docs/service.md.")] = None,
    host: Annotated[str | None, typer.Option(help="Where to listen (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="The port (8752); 0 takes a free one.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the snapshots (service).")] = None,
    store: Annotated[str | None, typer.Option(help="memory, or redis://host:6379/0.")] = None,
    demo: Annotated[bool, flag("--demo", "A phishing model, simulated clients and a live page.")] = False,
) -> None:
    """Serve models that clients train together without trusting anybody, this service included."""
    import logging
    import sys

    from blindsight.errors import InvalidInput
    from blindsight.service.settings import Settings

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    changes: dict[str, Any] = {"host": host, "port": port, "data": data, "store": store}
    given = {name: value for name, value in changes.items() if value is not None}
    settings = Settings.load(config, **given) if config else Settings(**given)
    try:
        if demo:
            from blindsight.service.demo import run_demo as run
        else:
            from blindsight.service.run import serve as run
    except ModuleNotFoundError as error:
        wanted = f"blindsight serve needs the package {error.name}: pip install 'blindsight[service]'"
        raise InvalidInput(wanted) from None
    run(settings)
