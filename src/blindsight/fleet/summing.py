"""One sum over the sites, from the coordinator's side: `collect` up to the masked total, `total` once it is paid for.

A site's part stays masked until `total` is called: only then do sites learn who survived, and reveal the shares that
remove the masks. Where fewer than three sites take part nothing can be masked; their parts arrive as they are.
"""

import datetime
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from blindsight.errors import BlindsightError, Unanswered
from blindsight.fleet import wire
from blindsight.fleet.codes import Code, code_said
from blindsight.fleet.job import Job
from blindsight.fleet.secure_sum import Coordinator, Refused, Terms
from blindsight.fleet.sites import Answer, Sites

__all__ = ["SiteSum", "SumLost", "SumWaits"]

_IN_MEMORY = 1 << 26
"""Bytes of sites' parts that may be on their way at once: the coordinator's memory does not grow with their number."""


class SumLost(BlindsightError):
    """Too few sites took part, or they disagreed; nothing was unmasked."""


class SumWaits(SumLost, Unanswered):
    """The same before any site has contributed or paid, while enough of them may still answer."""


class SiteSum:
    """The sum of all sites' parts for one step of a job.

    Args:
        sites: The lines to the sites.
        job: The job that all sites know.
        head: What identifies the step: sites compute their parts from it and from `blobs`.
        blobs: Releases so far, or the model's weights.
        length: How many numbers are summed.
        bits: The modulus: sums are taken modulo 2^bits.
        progress: Called with the sites that have not answered yet.
    """

    def __init__(
        self,
        sites: Sites,
        job: Job,
        head: dict[str, Any],
        blobs: Sequence[bytes],
        *,
        length: int,
        bits: int,
        progress: Callable[[set[str]], None] = lambda waiting: None,
    ) -> None:
        self.number = secrets.randbits(62)
        self._sites, self._job, self._progress = sites, job, progress
        self._belongs = {"job": job.digest, "sum": self.number}
        now = datetime.datetime.now(datetime.UTC).isoformat()
        self.request = wire.encode(
            {"kind": "sum", **self._belongs, **head, "length": length, "bits": bits, "sent_at": now}, blobs
        )
        self._refused: dict[str, str] = {}
        self._plain = np.zeros(length, f"<u{bits // 8}")
        self._survivors: tuple[str, ...] = ()
        self._has_parts = False  # from when on sites may have paid
        self._round: Coordinator | None = None
        if job.is_secure:
            terms = Terms.of(
                job.run,
                self.number,
                sites.parties,
                broadcast=self.request,
                length=length,
                bits=bits,
                fewest=job.fewest,
            )
            self._round = Coordinator(terms)

    @property
    def missing(self) -> dict[str, str]:
        """The sites whose parts are not in the sum, each with the code of its refusal, `revoked` or `silent`."""
        absent = [site for site in self._sites.names if site not in self._survivors]
        return {site: self._refused.get(site) or self._sites.why_silent(site) for site in absent}

    def collect(self) -> None:
        """Take every site's part, masked."""
        if self._round is None:
            self._collect_plain()
            return
        self._phase(self._round, dict.fromkeys(self._sites.names, self.request))
        self._phase(self._round, self._advanced(self._round))
        deliveries = self._advanced(self._round)
        self._has_parts = True
        at_once = max(2, _IN_MEMORY // max(1, self._plain.nbytes))
        self._phase(self._round, deliveries, at_once=at_once)

    def total(self) -> tuple[np.ndarray, int]:
        """The sum modulo 2^bits, and how many sites are in it: what a release unmasks after it was paid for."""
        if self._round is None:
            return self._plain, len(self._survivors)
        self._phase(self._round, self._advanced(self._round))
        self._survivors = self._round.survivors
        self._phase(self._round, self._advanced(self._round), is_last=True)
        try:
            return self._round.total(), len(self._survivors)
        except Refused as error:
            raise self._lost(error) from error

    def _phase(
        self,
        secure: Coordinator,
        messages: dict[str, bytes],
        *,
        is_last: bool = False,
        at_once: int | None = None,
    ) -> None:
        """Send the messages of a phase, and take in the answers."""

        def take(answer: Answer) -> bool:
            if answer.kind == "part":
                try:
                    secure.receive(b"".join(answer.blobs))
                except Refused:  # broken, or on other terms: it would only be sent again
                    self._refused[answer.site] = Code.malformed
            if answer.kind == "refused":
                self._refused[answer.site] = code_said(answer.head)
            is_over = answer.site in self._refused or answer.site not in secure.awaited
            return is_over or (is_last and secure.is_complete)

        asked = {site: data for site, data in messages.items() if site not in self._refused}
        self._sites.ask(asked, take, belongs=self._belongs, at_once=at_once, while_waiting=self._progress)

    def _advanced(self, secure: Coordinator) -> dict[str, bytes]:
        try:
            outgoing = secure.advance()
        except Refused as error:
            raise self._lost(error) from error
        return {site: wire.encode({"kind": "secure", **self._belongs}, [message]) for site, message in outgoing.items()}

    def _collect_plain(self) -> None:
        parts: dict[str, bool] = {}

        def take(answer: Answer) -> bool:
            if answer.kind == "refused":
                self._refused[answer.site] = code_said(answer.head)
                return True
            whole = answer.kind == "part" and [len(blob) for blob in answer.blobs] == [self._plain.nbytes]
            if whole and answer.site not in parts:
                parts[answer.site] = True
                self._plain += np.frombuffer(answer.blobs[0], self._plain.dtype)
            return whole

        messages = dict.fromkeys(self._sites.names, self.request)
        self._has_parts = True
        self._sites.ask(messages, take, belongs=self._belongs, while_waiting=self._progress)
        self._survivors = tuple(sorted(parts))
        if len(self._survivors) < self._job.fewest:
            raise self._lost(BlindsightError(f"{len(self._survivors)} sites answered"))

    def _lost(self, error: BlindsightError) -> SumLost:
        named = ", ".join(f"{site} ({code})" for site, code in self._refused.items())
        why = f"; refused: {named}" if named else ""
        may_answer = len(self._sites.names) - len(self._refused)
        kind = SumLost if self._has_parts or may_answer < self._job.fewest else SumWaits
        return kind(f"the sum of this step was not completed: {error}{why}. Nothing was released; ask again to resume")
