"""Serve the label queue to this machine."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Generator

import uvicorn

from blindsight.studio import sockets
from blindsight.studio.app import make_app
from blindsight.studio.queue import Queue

__all__ = ["label", "labelling"]


def label(queue: Queue, *, port: int = 0, opened: Callable[[str], None] = print) -> None:
    """Serve the queue until Ctrl-C or SIGTERM; `opened` is called with the address once it is reachable."""
    with queue.labels.alone(queue.rater), sockets.bind(port) as listening:
        server, address = _server(queue, listening)
        sockets.until_stopped(server, listening, address, opened)


@contextlib.contextmanager
def labelling(queue: Queue, *, port: int = 0) -> Generator[str]:
    """The queue in a thread of this process for the duration of the context; yields the address."""
    with queue.labels.alone(queue.rater), sockets.bind(port) as listening, _in_thread(queue, listening) as address:
        yield address


def _in_thread(queue: Queue, listening: socket.socket) -> contextlib.AbstractContextManager[str]:
    return sockets.in_thread(*_server(queue, listening), listening)


def _server(queue: Queue, listening: socket.socket) -> tuple[uvicorn.Server, str]:
    token = secrets.token_urlsafe(24)
    return sockets.server(make_app(queue, token)), f"{sockets.origin(listening)}/{token}/"
