"""Run the service: a socket and uvicorn, without request logs."""

import contextlib
import dataclasses
import gc
import logging
import socket
import ssl
import threading
from collections.abc import Generator, Sequence

import uvicorn
from starlette.routing import BaseRoute

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service.app import Service
from blindsight.service.registry import Registry
from blindsight.service.settings import Settings

__all__ = ["Running", "running", "serve"]

_STOP_WITHIN_S = 15


@dataclasses.dataclass(frozen=True)
class Running:
    """A running service: its address and its application."""

    address: str
    service: Service


def serve(settings: Settings, *, routes: Sequence[BaseRoute] = ()) -> None:
    """Run the service until SIGTERM or SIGINT; requests in progress are completed first."""
    with _bind(settings) as listening:
        server, service = _server(settings, routes, _address(settings, listening))
        gc.freeze()  # everything loaded so far stays alive
        _run(server, listening)
        _raise_failure(service)


@contextlib.contextmanager
def running(settings: Settings, *, routes: Sequence[BaseRoute] = ()) -> Generator[Running]:
    """The service in a thread of this process for the duration of the context; port 0 picks a free port."""
    with _bind(settings) as listening:
        server, service = _server(settings, routes)
        thread = threading.Thread(target=_run, args=(server, listening), name="blindsight service")
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.01)
            _raise_failure(service)
            yield Running(_address(settings, listening), service)
        finally:
            server.should_exit = True
            thread.join()


def _run(server: uvicorn.Server, listening: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt, SystemExit):  # uvicorn raises the latter if it did not start
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Reports its address once everything behind it, above all the store, is ready."""

    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._address:
            logging.getLogger(__name__).info("listening at %s", self._address)


def _server(settings: Settings, routes: Sequence[BaseRoute], address: str = "") -> tuple[uvicorn.Server, Service]:
    service = Service(Registry(settings), routes)
    config = uvicorn.Config(
        service,  # pyright: ignore[reportArgumentType]
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="critical",  # lines could quote a request, or repeat errors raised here
        server_header=False,
        proxy_headers=False,  # client addresses are never needed
        limit_concurrency=settings.connections,
        timeout_graceful_shutdown=_STOP_WITHIN_S,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"cannot use the certificate or its key ({error}): both must be PEM files") from error
    return _Server(config, address), service


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.share_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise InvalidInput(
            f"cannot listen at {settings.host}, port {settings.port} ({error.strerror}): "
            "choose another with --host or --port"
        ) from error
    return listening


def _address(settings: Settings, listening: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.certificate else 'http'}://{host}:{listening.getsockname()[1]}"


def _raise_failure(service: Service) -> None:
    if service.failure is not None:
        if isinstance(service.failure, BlindsightError):
            raise service.failure
        raise BlindsightError(f"the service could not start: {service.failure}") from service.failure
