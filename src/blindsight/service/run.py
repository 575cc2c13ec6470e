"""Run the service: its sockets and uvicorn, without request logs.

Clients have one listener, operators may have another (`admin_listen`): health and metrics answer when clients' is full.
SIGHUP saves, and reads tokens, certificates, keys of issuers and settings again.
"""

import asyncio
import contextlib
import dataclasses
import functools
import gc
import logging
import resource
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Sequence
from types import FrameType

import uvicorn
from starlette.routing import BaseRoute
from threadpoolctl import threadpool_limits

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service.app import Service
from blindsight.service.connections import Connection
from blindsight.service.listeners import Listener, limits_of
from blindsight.service.protocol import fault_of
from blindsight.service.registry import Registry
from blindsight.service.settings import Settings, listening_at

__all__ = ["Running", "running", "serve"]

_STOP_WITHIN_S = 3  # for requests in progress, whatever their clients do; the last snapshot comes after that
_TICK_S = 0.1  # uvicorn's
_SHED_MORE, _SHED_LESS, _SHED_MOST = 0.2, 0.05, 0.95
_OTHER_FILES = 128

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Running:
    """A running service: its address, its application, and the address for admin calls, metrics and health."""

    address: str
    service: Service
    admin_address: str


def serve(
    settings: Settings, *, routes: Sequence[BaseRoute] = (), reread: Callable[[], Settings] | None = None
) -> None:
    """Run the service until SIGTERM or SIGINT: a few seconds for requests in progress, then a last snapshot.

    SIGHUP writes a snapshot and goes on with what `reread` returns, the same settings by default. Raises if the last
    snapshot fails.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the store is open
    # matrices of a few updates are small: threads that wait for their next one would take more time than they save
    with _bind_all(settings) as sockets, threadpool_limits(1, user_api="blas"):
        server = _Server(settings, routes, sockets, reread or (lambda: settings), is_main=True)
        gc.freeze()  # everything loaded so far stays alive
        _run(server, sockets)
        _raise_failure(server.service)


@contextlib.contextmanager
def running(settings: Settings, *, routes: Sequence[BaseRoute] = ()) -> Generator[Running]:
    """The service in a thread of this process for the duration of the context; port 0 picks a free port."""
    with _bind_all(settings) as sockets:
        server = _Server(settings, routes, sockets, lambda: settings)
        thread = threading.Thread(target=_run, args=(server, sockets), name="blindsight service")
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.01)
            _raise_failure(server.service)
            yield Running(_address(settings, sockets[0]), server.service, _address(settings, sockets[-1]))
        finally:
            server.should_exit = True
            thread.join()
        _raise_failure(server.service)


def _run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    with contextlib.suppress(KeyboardInterrupt, SystemExit):  # uvicorn raises the latter if it did not start
        server.run(sockets=sockets)


class _Server(uvicorn.Server):
    """uvicorn with limits. Its tick, ten times a second, finds late connections and a late event loop."""

    def __init__(
        self,
        settings: Settings,
        routes: Sequence[BaseRoute],
        sockets: list[socket.socket],
        reread: Callable[[], Settings],
        is_main: bool = False,
    ) -> None:
        self.service = Service(Registry(settings), routes)
        self._settings, self._reread, self._is_main = settings, reread, is_main
        self._addresses = [_address(settings, one) for one in sockets]
        self._ticked = 0.0
        self._reloading: asyncio.Task[None] | None = None
        ports = [one.getsockname()[1] for one in sockets]
        self.service.listeners = {port: Listener(limits_of(settings)) for port in ports}
        if len(ports) > 1:
            self.service.admin_port = ports[1]
        super().__init__(_config(settings, self.service))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop. Never at once, which would skip the last snapshot; and the exit code is that of the service."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report the addresses once everything behind them, above all the store, is ready."""
        await super().startup(sockets)
        if self.started and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
        if self.started and self._is_main:
            logging.getLogger(__name__).info("listening at %s", " and ".join(self._addresses))

    async def on_tick(self, counter: int) -> bool:
        """Close late connections, and refuse draws while the event loop is late."""
        now = asyncio.get_running_loop().time()
        late = now - self._ticked - _TICK_S if self._ticked else 0.0
        self._ticked = now
        change = _SHED_MORE if late > self._settings.shed_s else -_SHED_LESS
        self.service.shedding = min(max(self.service.shedding + change, 0.0), _SHED_MOST)
        self.service.totals.late_s = late
        if counter % 2 == 0:
            for listener in self.service.listeners.values():
                listener.sweep(now)
        return await super().on_tick(counter)

    def _on_hangup(self) -> None:
        self._reloading = asyncio.create_task(self._reload())  # kept, or it could be collected

    async def _reload(self) -> None:
        """Save, then use the files' contents, or keep the old ones if anything about them is wrong."""
        await self.service.registry.save()
        try:
            settings = self._reread()
            if settings.certificate and settings.private_key and self.config.ssl:
                _check_certificate(settings)
                self.config.ssl.load_cert_chain(settings.certificate, settings.private_key)
            await self.service.reload(settings)
        except (BlindsightError, OSError, ssl.SSLError) as error:
            _log.error("nothing was reloaded: %s", error)
        except Exception as error:
            _log.error("nothing was reloaded: %s", fault_of(error))
        else:
            self._settings = settings
            for listener in self.service.listeners.values():
                listener.limits = limits_of(settings)
            _log.info("reloaded tokens, certificates, issuers' keys and settings")


def _config(settings: Settings, service: Service) -> uvicorn.Config:
    _allow_files(settings.connections)
    config = uvicorn.Config(
        service,  # pyright: ignore[reportArgumentType]
        http=functools.partial(Connection, service.listeners, service),  # pyright: ignore[reportArgumentType]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="critical",  # lines could quote a request, or repeat errors raised here
        server_header=False,
        proxy_headers=False,  # client addresses are never needed
        timeout_graceful_shutdown=_STOP_WITHIN_S,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"cannot use the certificate or its key ({error}): both must be PEM files") from error
    return config


def _check_certificate(settings: Settings) -> None:
    """Fails where the files do not fit: a context that has loaded half of a pair is useless."""
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        settings.certificate or "", settings.private_key
    )


def _allow_files(connections: int) -> None:
    """Raise the limit of open files to that of connections, as far as this account may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * connections + _OTHER_FILES  # both listeners
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < needed:
            _log.warning("only %d files may be open, and %d connections need %d", most, connections, needed)


@contextlib.contextmanager
def _bind_all(settings: Settings) -> Generator[list[socket.socket]]:
    """The socket for clients, and the one for operators if it is separate."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_bind(settings))]
        if settings.admin_listen:
            host, port = listening_at(settings.admin_listen)
            sockets.append(stack.enter_context(_bind(dataclasses.replace(settings, host=host, port=port))))
        yield sockets


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
    host, port = listening.getsockname()[:2]
    return f"{'https' if settings.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _raise_failure(service: Service) -> None:
    if service.failure is not None:
        if isinstance(service.failure, BlindsightError):
            raise service.failure
        raise BlindsightError(f"the service could not start or stop: {service.failure}") from service.failure
