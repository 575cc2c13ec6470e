"""Serve the studio to this machine. Slow imports run in the background once it serves."""

import contextlib
import importlib
import secrets
import socket
import threading
from collections.abc import Callable, Generator

import uvicorn

from blindsight.studio import sockets
from blindsight.studio.studio_app import make_studio
from blindsight.studio.web import Workspace

__all__ = ["serve_studio", "serving_studio"]


def serve_studio(place: Workspace, *, port: int = 0, opened: Callable[[str], None] = print) -> None:
    """Serve the studio until Ctrl-C or SIGTERM; `opened` is called with the address once it is reachable."""
    with sockets.bind(port) as listening:
        server, address = _server(place, listening)
        threading.Thread(target=_warm, args=(place,), name="blindsight studio warms up", daemon=True).start()
        try:
            sockets.until_stopped(server, listening, address, opened)
        finally:
            place.dry_runs.close()


@contextlib.contextmanager
def serving_studio(place: Workspace, *, port: int = 0) -> Generator[str]:
    """The studio in a thread of this process for the duration of the context; yields the address."""
    with sockets.bind(port) as listening, sockets.in_thread(*_server(place, listening), listening) as address:
        try:
            yield address
        finally:
            place.dry_runs.close()


def _server(place: Workspace, listening: socket.socket) -> tuple[uvicorn.Server, str]:
    token = secrets.token_urlsafe(24)
    app = make_studio(place, token=token, port=listening.getsockname()[1])
    return sockets.server(app), f"{sockets.origin(listening)}/?token={token}"


def _warm(place: Workspace) -> None:
    """Import and read in advance what the first pages need."""
    importlib.import_module("blindsight.accounting.statement")
    place.listing.rows()
