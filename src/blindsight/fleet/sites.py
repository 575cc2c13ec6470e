"""`Sites`: the coordinator's end of all lines. It asks, asks silent sites again, and gives up in time.

What a site sends is one of:

=========  ==========================================================================================
`job`      its decision on a job: `approved`, `pending` or `refused`, and the inputs that it lacks
`input`    it has a public input now
`working`  it computes its part of a sum, and is alive
`part`     a message of the secure sum, or its part as it is where nothing is masked
`refused`  it takes no part in a sum, and why, as a code
`pong`     its version, declared clients and state
=========  ==========================================================================================
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from blindsight.errors import BlindsightError
from blindsight.fleet import wire
from blindsight.fleet.carriers.carrier import Carrier
from blindsight.fleet.codes import Code
from blindsight.fleet.secure_sum.identities import Party

__all__ = ["Answer", "Patience", "Sites"]

_LISTEN_S = 0.2


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a site sent."""

    site: str
    head: Mapping[str, Any]
    blobs: Sequence[bytes]

    @property
    def kind(self) -> str:
        """Which message it is."""
        return str(self.head.get("kind"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the coordinator waits: it asks again after `again_s` of silence, and gives a site up after `silence_s`.

    A site that was given up is asked again in the next sum, but waited for only `again_s` until it answers.
    A site that computes says so every second or two, so that long work does not count as silence.
    """

    again_s: float = 5.0
    silence_s: float = 30.0


class Sites:
    """The sites of a fleet, as the coordinator talks to them."""

    def __init__(
        self,
        carrier: Carrier,
        parties: Iterable[Party],
        patience: Patience | None = None,
        is_revoked: Callable[[str], bool] = lambda site: False,
    ) -> None:
        self.parties = tuple(sorted(parties, key=lambda party: party.name))
        self.names = tuple(party.name for party in self.parties)
        self.patience = patience or Patience()
        self._carrier, self._is_revoked = carrier, is_revoked
        self._quiet = set[str]()  # sites that were silent when they were last asked

    def close(self) -> None:
        """Leave."""
        self._carrier.close()

    def send(self, site: str, data: bytes) -> None:
        """Send a message, which may get lost."""
        self._carrier.send(site, data)

    def listen(self, seconds: float) -> Answer | None:
        """The next readable message of a site; None if none comes within `seconds`."""
        delivery = self._carrier.receive(seconds)
        if delivery is None or delivery.sender not in self.names:
            return None
        try:
            head, blobs = wire.decode(delivery.data)
        except BlindsightError:
            return None  # a site that sends unreadable messages counts as silent
        return Answer(delivery.sender, head, blobs)

    def ask(
        self,
        messages: Mapping[str, bytes],
        take: Callable[[Answer], bool],
        *,
        belongs: Mapping[str, Any],
        at_once: int | None = None,
        while_waiting: Callable[[set[str]], None] = lambda waiting: None,
    ) -> set[str]:
        """Send each site its message and take all answers; returns the sites that fell silent.

        `take` is given every answer whose head has the items of `belongs`, and says whether the site has answered for
        good; any other sign of life counts against silence. At most `at_once` sites are asked at a time, because all
        of their answers may be in memory together. A site that was silent the last time is given up after `again_s`.
        """
        queue, waiting, lost = sorted(messages), set[str](), set[str]()
        heard, asked = dict[str, float](), dict[str, float]()
        while queue or waiting:
            while queue and (at_once is None or len(waiting) < at_once):
                waiting.add(site := queue.pop(0))
                self.send(site, messages[site])
                heard[site] = asked[site] = time.monotonic()
            while_waiting(waiting | set(queue))
            answer, now = self.listen(_LISTEN_S), time.monotonic()
            if answer is not None and answer.site in waiting and belongs.items() <= answer.head.items():
                heard[answer.site] = now
                self._quiet.discard(answer.site)
                if take(answer):
                    waiting.discard(answer.site)
            silent = {site for site in waiting if now - heard[site] > self._limit_s(site)}
            lost, waiting = lost | silent, waiting - silent
            for site in sorted(waiting):
                if now - max(heard[site], asked[site]) > self.patience.again_s:
                    self.send(site, messages[site])
                    asked[site] = time.monotonic()
        self.give_up(lost)
        return lost

    def give_up(self, silent: Iterable[str]) -> None:
        """Wait only briefly for these sites until they answer again."""
        self._quiet |= set(silent)

    def why_silent(self, site: str) -> str:
        """The code of a silent site: `revoked` if its certificate is no longer accepted."""
        return str(Code.revoked) if self._is_revoked(site) else "silent"

    def _limit_s(self, site: str) -> float:
        return self.patience.again_s if site in self._quiet else self.patience.silence_s

    def roll_call(self, seconds: float = 3.0) -> dict[str, Mapping[str, Any]]:
        """The state of every site that is online: version, declared clients, current job."""
        there: dict[str, Mapping[str, Any]] = {}
        for site in self.names:
            self.send(site, wire.encode({"kind": "ping"}))
        until = time.monotonic() + seconds
        while len(there) < len(self.names) and (left := until - time.monotonic()) > 0:
            answer = self.listen(min(left, _LISTEN_S))
            if answer is not None and answer.kind == "pong":
                there[answer.site] = answer.head
        return there
