"""Lines over NATS with mutual TLS: the certificate is the identity, and the server permits each party its subjects.

A site publishes `blindsight.from.SITE` and reads `blindsight.to.SITE`; the coordinator the reverse. The server enforces
it (`fleet.certificates.server_configuration`), so the subject proves the sender. A broken connection is
re-established for as long as the carrier is open; what was sent meanwhile is lost. Only core NATS is used, which stores
nothing.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import (
    COORDINATOR,
    LARGEST,
    Assembler,
    Delivery,
    check_line,
    check_site_name,
    pieces,
)

__all__ = ["OverNats", "tls_context"]

_CONNECT_S = 10.0
_SEND_S = 120.0  # for one whole message
_WAITING = 4096  # messages that wait to be received; more are lost
_HELD = LARGEST + (1 << 28)  # bytes of these messages: a flood fills the queue, not the memory
_AGAIN_S = 0.1  # after which a task that still runs is cancelled again
_TURNS = 4  # of the event loop, in which a connection that is told to close does so
_BUFFERED = 1 << 28  # bytes of pieces that arrive faster than they are joined


def tls_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 that shows this certificate and accepts a server of this authority alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except OSError as error:  # also an ssl.SSLError
        raise InvalidInput(f"cannot use {certificate}, {key} and {authority} for TLS ({error})") from error
    return context


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with one connection at a time: nats-py forgets one that the server refused, and leaves it open."""

    _connection: Any = None

    async def create_connection(self, *arguments: Any, **options: object) -> Any:
        """As the event loop's own, once the connection before is closed."""
        self.hang_up()
        connect: Any = super().create_connection
        self._connection, protocol = await connect(*arguments, **options)
        return self._connection, protocol

    def hang_up(self) -> None:
        """Close the connection, which nats-py may have left open."""
        if self._connection is not None:
            self._connection.abort()


class OverNats:
    """One party's end, connected to the server at `url`; `tls` holds its certificate, which must be that of `name`.

    `note` is told, in words, when the connection breaks, why it cannot be re-established, and when it is.
    """

    def __init__(
        self, url: str, name: str, tls: ssl.SSLContext, note: Callable[[str], None] = lambda words: None
    ) -> None:
        if name != COORDINATOR:
            check_site_name(name)
        self._name, self._note, self._noted = name, note, ""
        self._inbox: queue.Queue[Delivery] = queue.Queue(_WAITING)
        self._held, self._counting = 0, threading.Lock()
        self._assembler = Assembler()
        self._client = Client()
        self._loop = _Loop()
        self._broken = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"nats {name}", daemon=True)
        self._thread.start()
        with contextlib.ExitStack() as unless_connected:
            unless_connected.callback(self._stop)
            try:
                self._run(self._connect(url, tls), _CONNECT_S + 5)
            except (NatsError, OSError, TimeoutError, ValueError) as error:  # the last: no host can have this name
                reason = (isinstance(error, TimeoutError) and self._noted) or _in_words(error)
                raise BlindsightError(
                    f"{name!r} cannot connect to {url}: check that the server runs, its address, and that it knows "
                    f"this certificate ({reason})"
                ) from error
            unless_connected.pop_all()

    @property
    def name(self) -> str:
        """The party at this end."""
        return self._name

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at the moment."""
        return self._client.is_connected

    def send(self, receiver: str, data: bytes) -> None:
        """As `Carrier.send`; without a connection, the message is lost."""
        check_line(self._name, receiver, len(data))
        if self._client.is_closed:
            raise InvalidInput("this end of the line is closed: connect again")
        subject = _to(receiver) if self._name == COORDINATOR else _from(self._name)
        try:
            self._run(self._publish(subject, data), _SEND_S)
        except (NatsError, OSError, TimeoutError):
            return  # lost, as any message may be: a party that needs an answer asks again

    def receive(self, timeout_s: float) -> Delivery | None:
        """As `Carrier.receive`."""
        try:
            delivery = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        with self._counting:
            self._held -= len(delivery.data)
        return delivery

    def close(self) -> None:
        """As `Carrier.close`."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._client.close(), _CONNECT_S)
        except (NatsError, OSError, TimeoutError):
            pass  # the connection is gone either way
        finally:
            self._stop()

    async def _connect(self, url: str, tls: ssl.SSLContext) -> None:
        connecting = self._client.connect(
            url,
            name=self._name,
            tls=tls,
            error_cb=self._hears_of,
            disconnected_cb=self._breaks,
            reconnected_cb=self._is_whole,
            connect_timeout=int(_CONNECT_S),
            allow_reconnect=False,  # a first connection that is refused is an error of this party's
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            pending_size=0,  # nothing is kept while there is no connection
            ping_interval=20,
        )
        await asyncio.wait_for(connecting, _CONNECT_S)
        self._client.options["allow_reconnect"] = True
        subject = _from("*") if self._name == COORDINATOR else _to(self._name)
        await self._client.subscribe(subject, cb=self._take, pending_msgs_limit=-1, pending_bytes_limit=_BUFFERED)
        for _ in range(2):  # the ping of nats-py's first overtakes the subscription: messages were lost in between
            await self._client.flush()

    async def _publish(self, subject: str, data: bytes) -> None:
        place = 0
        for place, piece in enumerate(pieces(data), 1):
            await self._client.publish(subject, piece)
            if place % 16 == 0:  # wait for the server, instead of buffering the whole message
                await self._arrived()
        if place > 1:  # a short message waits for nobody: to many sites, that would be as many ways there and back
            await self._arrived()

    async def _arrived(self) -> None:
        """Wait until the server has everything; stop waiting if the connection breaks."""
        answer = asyncio.ensure_future(self._client.flush(timeout=int(_SEND_S)))
        broken = asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait({answer, broken}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionError("the connection broke")
            await answer
        finally:
            for task in (answer, broken):
                task.cancel()

    async def _breaks(self) -> None:
        self._broken.set()
        self._noted = ""
        if not self._client.is_closed:
            self._note("the connection to the server broke, and is made again as soon as that is possible")

    async def _is_whole(self) -> None:
        self._broken.clear()
        self._noted = ""
        self._note("connected to the server again")

    async def _hears_of(self, error: Exception) -> None:
        """Note once why there is no connection; errors need no action, because lost messages are requested again."""
        words = _in_words(error)
        if self._broken.is_set() and words != self._noted:
            self._note(
                f"the server cannot be reached, or does not let this party in ({words}): if this lasts, see whether it "
                f"runs, and whether this certificate was revoked, replaced or has expired"
            )
        self._noted = words

    async def _take(self, message: Any) -> None:
        sender = message.subject.rpartition(".")[2] if self._name == COORDINATOR else COORDINATOR
        data = self._assembler.take(sender, message.data)
        if data is None or self._inbox.full() or self._held + len(data) > _HELD:
            return
        with self._counting:
            self._held += len(data)
        self._inbox.put_nowait(Delivery(sender, data))

    def _run(self, work: Any, timeout_s: float) -> None:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            future.result(timeout_s)
        except concurrent.futures.CancelledError as error:
            raise TimeoutError("cancelled") from error
        except TimeoutError:
            future.cancel()
            raise

    async def _wind_up(self) -> None:
        """End pending work, such as connection attempts, and let the loop close.

        A task may begin others while it ends, and `asyncio.wait_for` forgets that it was cancelled if what it waits for
        is there at that moment (before Python 3.12): so all are told until none is left.
        """
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            ended, _ = await asyncio.wait(others, timeout=_AGAIN_S)
            for task in ended:
                _ = task.cancelled() or task.exception()  # asyncio would report an exception that nobody retrieves
        self._loop.hang_up()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def _stop(self) -> None:
        with contextlib.suppress(TimeoutError):
            self._run(self._wind_up(), _CONNECT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CONNECT_S)
        if not self._thread.is_alive():
            self._loop.close()


# asyncio says so whenever a server ends a connection that nats-py upgraded to TLS: nothing anybody can act on
logging.getLogger("asyncio").addFilter(lambda record: "eof_received() has no effect" not in record.getMessage())


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _to(site: str) -> str:
    return f"blindsight.to.{site}"


def _from(site: str) -> str:
    return f"blindsight.from.{site}"
