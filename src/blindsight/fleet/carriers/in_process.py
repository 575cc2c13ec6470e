"""Lines within one process, between threads: for tests, and for trying out a fleet on one machine."""

import queue
import threading

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Delivery, check_line, check_site_name

__all__ = ["Exchange", "InProcess"]


class Exchange:
    """Connects the ends of one process; `connect` takes the place of a certificate."""

    def __init__(self) -> None:
        self._ends: dict[str, InProcess] = {}
        self._lock = threading.Lock()

    def connect(self, name: str) -> "InProcess":
        """The end of this party; of two with one name, the later one receives."""
        if name != COORDINATOR:
            check_site_name(name)
        with self._lock:
            self._ends[name] = end = InProcess(self, name)
        return end

    def pass_on(self, receiver: str, delivery: Delivery) -> None:
        """Give a message to the receiver if it is there."""
        with self._lock:
            end = self._ends.get(receiver)
        if end is not None:
            end.inbox.put(delivery)

    def leave(self, end: "InProcess") -> None:
        """Forget an end."""
        with self._lock:
            if self._ends.get(end.name) is end:
                del self._ends[end.name]


class InProcess:
    """One party's end of an `Exchange`."""

    def __init__(self, exchange: Exchange, name: str) -> None:
        self._exchange, self._name = exchange, name
        self.inbox: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._is_open = True

    @property
    def name(self) -> str:
        """The party at this end."""
        return self._name

    def send(self, receiver: str, data: bytes) -> None:
        """As `Carrier.send`."""
        check_line(self._name, receiver, len(data))
        if not self._is_open:
            raise InvalidInput("this end of the line is closed: connect again")
        self._exchange.pass_on(receiver, Delivery(self._name, bytes(data)))

    def receive(self, timeout_s: float) -> Delivery | None:
        """As `Carrier.receive`."""
        try:
            return self.inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """As `Carrier.close`."""
        self._is_open = False
        self._exchange.leave(self)
