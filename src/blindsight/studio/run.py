"""Serve the label queue: a local socket, a token, and uvicorn."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Generator

import uvicorn

from blindsight.errors import InvalidInput
from blindsight.studio.app import make_app
from blindsight.studio.queue import Queue

__all__ = ["label", "labelling"]

_HOST = "127.0.0.1"
_STOP_WITHIN_S = 2


def label(queue: Queue, *, port: int = 0, opened: Callable[[str], None] = print) -> None:
    """Serve the queue until Ctrl-C or SIGTERM; `opened` is called with the address once it is reachable."""
    with queue.labels.alone(queue.rater), _bind(port) as listening:
        server, address = _server(queue, listening)
        opened(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


@contextlib.contextmanager
def labelling(queue: Queue, *, port: int = 0) -> Generator[str]:
    """The queue in a thread of this process for the duration of the context; yields the address."""
    with queue.labels.alone(queue.rater), _bind(port) as listening:
        server, address = _server(queue, listening)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="blindsight label")
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.01)
            yield address
        finally:
            server.should_exit = True
            thread.join()


def _server(queue: Queue, listening: socket.socket) -> tuple[uvicorn.Server, str]:
    token = secrets.token_urlsafe(24)
    config = uvicorn.Config(
        make_app(queue, token),
        ws="none",
        lifespan="off",
        access_log=False,  # a line would contain the token
        log_config=None,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_WITHIN_S,
    )
    return uvicorn.Server(config), f"http://{_HOST}:{listening.getsockname()[1]}/{token}/"


def _bind(port: int) -> socket.socket:
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
