"""Serve an application to this machine: a local socket, and uvicorn."""

import contextlib
import socket
import threading
from collections.abc import Callable, Generator

import uvicorn
from starlette.types import ASGIApp

from blindsight.errors import InvalidInput

__all__ = ["bind", "in_thread", "origin", "server", "until_stopped"]

_HOST = "127.0.0.1"
_STOP_WITHIN_S = 2


def origin(listening: socket.socket) -> str:
    """The address of what is served at this socket, without a path."""
    return f"http://{_HOST}:{listening.getsockname()[1]}"


def server(app: ASGIApp) -> uvicorn.Server:
    """The server of this application."""
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        access_log=False,  # a line would contain the token
        log_config=None,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_WITHIN_S,
    )
    return uvicorn.Server(config)


def until_stopped(
    served: uvicorn.Server, listening: socket.socket, address: str, opened: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C or SIGTERM; `opened` is called with the address once it is reachable."""
    opened(address)
    with contextlib.suppress(KeyboardInterrupt):
        served.run(sockets=[listening])


@contextlib.contextmanager
def in_thread(served: uvicorn.Server, address: str, listening: socket.socket) -> Generator[str]:
    """The server in a thread of this process for the duration of the context; yields the address."""
    thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]}, name="blindsight studio")
    thread.start()
    try:
        while not served.started and thread.is_alive():
            thread.join(0.01)
        yield address
    finally:
        served.should_exit = True
        thread.join()


def bind(port: int) -> socket.socket:
    """A socket of this machine at `port`, or at a free one; a port that is taken is refused."""
    listening = socket.socket(socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot listen at {_HOST}, port {port} ({why}): name another with --port") from error
    return listening
