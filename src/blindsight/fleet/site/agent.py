"""The site's agent: one loop that answers the coordinator, and one thread that computes this site's part of a sum.

A part leaves only if all of this holds: the job was approved by this site's policy or by a person, the roster is this
site's own, the part was computed from the job as this site received it, this site's ledger has paid for it, and the
masks are agreed with enough other sites. A failure is a code for the coordinator and a sentence in the diary.
"""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet import wire
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier
from blindsight.fleet.codes import Code, Declined, code_of_failure
from blindsight.fleet.job import Job, digest_of_job
from blindsight.fleet.protocol import SPOKEN
from blindsight.fleet.secure_sum import Party, Refused, Rounds, Signer, Site, Terms
from blindsight.fleet.site.duties import Clerk, Opened, OwnPart, Work
from blindsight.fleet.site.job_files import JobFiles
from blindsight.version import __version__

__all__ = ["Agent"]

_LISTEN_S = 0.2
_BRIEFLY_S = 0.02  # while a part is computed, so that it leaves as soon as it is ready
_ALIVE_S = 1.0
_GIVEN_UP_S = 30.0  # without a word of the coordinator's
_REMEMBERED = 100


@dataclasses.dataclass
class _Sum:
    """The sum that this site is working on."""

    job: Job
    number: int
    request: bytes
    thread: threading.Thread | None = None
    part: OwnPart | None = None
    problem: BaseException | None = None
    secure: Site | None = None
    heard_at: float = dataclasses.field(default_factory=time.monotonic)
    is_paid: bool = False
    is_done: bool = False
    said: tuple[dict[str, Any], Sequence[bytes]] | None = None  # the final answer, repeated if it was lost


class Agent:
    """One site, at work.

    Args:
        name: Name of the site.
        clients: Number of clients that it declares.
        carrier: The line to the coordinator.
        parties: All sites, from this site's own roster.
        sign: Signs with the key of this site's certificate.
        rounds: Durable record of the sums that this site has begun.
        clerk: Decides, and keeps the diary.
        work: Answers jobs from data.
        folder: Where jobs and their public inputs are kept.
    """

    spoken: tuple[int, ...] = SPOKEN
    """The protocols in which it takes jobs."""

    def __init__(
        self,
        name: str,
        *,
        clients: int,
        carrier: Carrier,
        parties: Sequence[Party],
        sign: Signer,
        rounds: Rounds,
        clerk: Clerk,
        work: Work,
        folder: Path,
    ) -> None:
        self.name, self.clients, self.parties = name, clients, tuple(parties)
        self._carrier, self._sign, self._rounds, self._clerk, self._work = carrier, sign, rounds, clerk, work
        self._files = JobFiles(folder)
        self._folder = folder
        self._opened: tuple[str, Opened] | None = None
        self._sum: _Sum | None = None
        self._pending: dict[str, Job] = {}  # jobs that lack public inputs
        self._answered, self._alive_at = 0, 0.0
        self._refused_last: Code | None = None
        self._refused = dict[str, Code]()  # the last jobs that were refused before they could be kept
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End `serve` soon; a part under way is given up."""
        self._stopping.set()

    def serve(self) -> None:
        """Answer messages until `stop`."""
        while not self._stopping.is_set():
            is_computing = self._sum is not None and not self._sum.is_done
            delivery = self._carrier.receive(_BRIEFLY_S if is_computing else _LISTEN_S)
            if delivery is not None and delivery.sender == COORDINATOR:
                self._hear(delivery.data)
            if self._sum is not None:
                self._go_on(self._sum)

    # --- what the coordinator says

    def _hear(self, data: bytes) -> None:
        try:
            head, blobs = wire.decode(data)
        except BlindsightError as error:
            self._clerk.note(f"dropped a message that is not one: {error}")
            return
        steps: dict[str, Callable[[], None]] = {
            "ping": self._pong,
            "job": lambda: self._decide(head),
            "input": lambda: self._keep_input(head, blobs),
            "sum": lambda: self._begin(head, data),
            "secure": lambda: self._answer(head, blobs),
        }
        step = steps.get(str(head.get("kind")))
        try:
            if step is not None:
                step()
        except Exception as error:  # whatever one message causes, the next one is read
            self._clerk.note(f"could not answer a message {str(head['kind'])!r}: {type(error).__name__}: {error}")

    def _pong(self) -> None:
        job = None if self._sum is None or self._sum.is_done else self._sum.job.digest
        refused = None if self._refused_last is None else str(self._refused_last)
        state = {"job": job, "rounds": self._answered, "refused": refused}
        self._send(
            {"kind": "pong", "version": __version__, "protocols": [*self.spoken], "clients": self.clients, **state}
        )

    def _decide(self, head: Mapping[str, Any]) -> None:
        """Answer a job: with the public inputs that are missing here, or with this site's decision."""
        asked = head.get("job")
        try:
            job = Job.from_dict(asked)
        except BlindsightError as error:
            self._clerk.note(f"refused a job that cannot be read: {error}")
            is_other = isinstance(asked, dict) and asked.get("protocol") not in self.spoken
            self._say_of_job(digest_of_job(asked), "refused", Code.version if is_other else Code.malformed)
            return
        try:
            state, code = self._judged(job, str(head.get("sent_at")))
        except Exception as error:
            state, code = "refused", _code_of(error, self._folder)
            self._clerk.note(f"refused job {job.digest[:12]} ({code}): {type(error).__name__}: {error}")
        if state == "lacking":
            self._pending[job.digest] = job
            for old in list(self._pending)[:-_REMEMBERED]:
                del self._pending[old]
        if state == "refused":
            self._files.forget(job)
        self._say_of_job(job.digest, state, code, **({"needs": self._files.lacking(job)} if state == "lacking" else {}))

    def _judged(self, job: Job, sent_at: str) -> tuple[str, Code | None]:
        """`lacking` while public inputs are missing, else what this site decides."""
        if problem := self._problem(job):
            return "refused", problem
        if self._files.lacking(job):
            return "lacking", None
        # Deciding may take its time on a slow machine: planning a question compiles programs
        self._say_of_job(job.digest, "deciding", None)
        return self._clerk.decide(job, self._files.inputs(job), self._files.folder(job), sent_at)

    def _say_of_job(self, digest: str, state: str, code: Code | None, **more: Any) -> None:
        if state == "refused" and code is not None:
            self._refused_last = self._refused[digest] = code
            for old in list(self._refused)[:-_REMEMBERED]:
                del self._refused[old]
        else:
            self._refused.pop(digest, None)
        self._send({"kind": "job", "id": digest, "state": state} | ({} if code is None else {"code": str(code)}) | more)

    def _problem(self, job: Job) -> Code | None:
        """Why a job is impossible here, whatever the policy says."""
        if job.protocol not in self.spoken:
            spoken = ", ".join(map(str, self.spoken))
            self._clerk.note(
                f"refused job {job.digest[:12]}: Blindsight {job.version} sent it in protocol {job.protocol}, and "
                f"{__version__}, which runs here, speaks {spoken}"
            )
            return Code.version
        names = [party.name for party in self.parties]
        if sorted(job.clients) != names or job.clients[self.name] != self.clients:
            self._clerk.note(f"refused job {job.digest[:12]}: its sites or counts are not those of this site's roster")
            return Code.malformed
        return None

    def _keep_input(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        """Keep a public input, if it is the one that the job names; with the last of them, decide."""
        job = self._pending.get(str(head.get("id")))
        if job is None or len(blobs) != 1:
            return
        try:
            self._files.keep(job, str(head.get("name")), blobs[0])
        except (OSError, Declined) as error:
            code = _code_of(error, self._folder)
            self._clerk.note(f"could not keep an input of job {job.digest[:12]} ({code}): {error}")
            self._say_of_job(job.digest, "refused", code)
            return
        if not self._files.lacking(job):
            self._pending.pop(job.digest, None)
            self._decide({"job": job.to_dict(), "sent_at": head.get("sent_at")})

    def _begin(self, head: Mapping[str, Any], data: bytes) -> None:
        """Begin to compute this site's part; a repeated request for the same sum gets the same answer."""
        number, one = head.get("sum"), self._sum
        digest = str(head.get("job"))
        if type(number) is not int or self._files.place(digest) is None:
            return
        job = self._known(digest)
        if job is None:  # the job was refused before it could be stored, or its folder is gone
            code = self._refused.get(digest, Code.pending)
            self._send({"kind": "refused", "job": digest, "sum": number, "code": str(code)})
        elif one is not None and one.number == number:
            self._repeat(one)
        elif one is not None and _goes_before(one, job, number):
            self._say_working(job, number)  # after the sum that is under way: the coordinator asks again
        else:
            one = _Sum(job, number, data)
            try:
                self._check_standing(job, str(head.get("sent_at")))
            except Exception as error:
                self._explain(one, error)
                return
            self._sum = one
            one.thread = threading.Thread(target=self._compute, args=(one,), name=f"part of {number}", daemon=True)
            one.thread.start()

    def _check_standing(self, job: Job, sent_at: str) -> None:
        if problem := self._problem(job):
            raise Declined(problem, "the fleet or its version has changed since the job was approved")
        state, code = self._clerk.standing(job, sent_at)
        if state == "pending":  # the decision could not be written, as on a full disk: the earlier answer still holds
            code = self._refused.get(job.digest, code)
        if state != "approved":
            raise Declined(code or Code.not_approved, "a sum was asked for a job that is not approved")

    def _repeat(self, one: _Sum) -> None:
        if one.said is not None:
            self._send(*one.said)
        elif one.secure is not None:
            self._send_part(one, one.secure.begin())

    def _answer(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
        """Go on with the secure sum; one whose secrets are not here any more is given up at once."""
        one = self._sum
        if one is None or head.get("sum") != one.number:
            job, number = self._known(str(head.get("job"))), head.get("sum")
            if job is not None and type(number) is int:
                code = Code.restarted if one is None else Code.busy
                self._send({"kind": "refused", "job": job.digest, "sum": number, "code": str(code)})
            return
        one.heard_at = time.monotonic()
        if one.secure is None or len(blobs) != 1:
            return
        try:
            answer = one.secure.answer(blobs[0])
        except Exception as error:
            self._explain(one, error)
            return
        self._send_part(one, answer)

    # --- computing, beside the loop

    def _compute(self, one: _Sum) -> None:
        try:
            head, blobs = wire.decode(one.request)
            if self._opened is None or self._opened[0] != one.job.digest:
                self._opened = None
                self._clerk.note(f"opened the data for job {one.job.digest[:12]}")
                inputs, folder = self._files.inputs(one.job), self._files.folder(one.job)
                self._opened = one.job.digest, self._work.open(one.job, inputs, folder)
            one.part = self._opened[1].part(head, blobs)
        except BaseException as error:
            one.problem = error

    def _go_on(self, one: _Sum) -> None:
        """Report that work is under way; once the part is computed, begin the secure sum."""
        if one.is_done:
            return
        if one.thread is not None and one.thread.is_alive():
            if time.monotonic() - self._alive_at > _ALIVE_S:
                self._say_working(one.job, one.number)
            return
        one.is_done = True
        if one.part is None:
            self._explain(one, one.problem or Declined(Code.io_error, "no part was computed"))
            return
        try:
            self._give(one, one.part)
        except Exception as error:
            self._explain(one, error)

    def _give(self, one: _Sum, part: OwnPart) -> None:
        head, _ = wire.decode(one.request)
        if (head.get("length"), head.get("bits")) != (part.numbers.size, part.bits):
            raise Declined(Code.malformed, "the coordinator sums other numbers than this job has")
        if not one.job.is_secure:
            self._paid(one, part)
            one.said = self._part_head(one), [part.numbers.tobytes()]
            self._send(*one.said)
            return
        terms = Terms.of(
            one.job.run,
            one.number,
            self.parties,
            broadcast=one.request,
            length=part.numbers.size,
            bits=part.bits,
            fewest=one.job.fewest,
        )
        paid = functools.partial(self._paid, one, part)
        secure = Site(terms, self.name, sign=self._sign, rounds=self._rounds, contribute=paid)
        self._send_part(one, secure.begin())  # which claims the round; a round that was begun before is refused
        one.secure = secure

    def _paid(self, one: _Sum, part: OwnPart) -> np.ndarray:
        """The part, once this site's own ledger has it."""
        part.pay()
        one.is_paid = True
        self._answered += 1
        masked = "masked" if one.job.is_secure else "not masked, as there is nothing to hide them among"
        self._clerk.note(f"sent {part.numbers.size:,} numbers of job {one.job.digest[:12]}, paid and {masked}")
        return part.numbers

    # --- what goes out

    def _part_head(self, one: _Sum) -> dict[str, Any]:
        return {"kind": "part", "job": one.job.digest, "sum": one.number}

    def _send_part(self, one: _Sum, data: bytes) -> None:
        self._send(self._part_head(one), [data])

    def _say_working(self, job: Job, number: int) -> None:
        self._alive_at = time.monotonic()
        self._send({"kind": "working", "job": job.digest, "sum": number})

    def _explain(self, one: _Sum, error: BaseException) -> None:
        """A code for the coordinator, and the reason in words for this site."""
        self._refuse(one, _code_of(error, self._folder), f"{type(error).__name__}: {error}")

    def _refuse(self, one: _Sum, code: Code, words: str) -> None:
        self._refused_last, one.is_done = code, True
        one.said = {**self._part_head(one), "kind": "refused", "code": str(code)}, ()
        self._clerk.note(f"refused sum {one.number} of job {one.job.digest[:12]} ({code}): {words}")
        self._send(*one.said)

    def _send(self, head: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> None:
        self._carrier.send(COORDINATOR, wire.encode(head, blobs))

    def _known(self, digest: str) -> Job | None:
        """A job with an earlier decision, possibly before a restart."""
        if self._sum is not None and self._sum.job.digest == digest:
            return self._sum.job
        place = self._files.place(digest)
        return None if place is None else self._clerk.job(digest, place)


def _goes_before(one: _Sum, job: Job, number: int) -> bool:
    """Whether the sum that is under way goes before another one, which then waits.

    Two people may ask the same sites at once. What was paid for is not given up for another question, unless nothing
    was heard of it for long. Of sums that cost nothing yet all sites prefer the same, so that no two wait for another.
    """
    if one.thread is not None and one.thread.is_alive():
        return True
    if one.secure is None or one.secure.is_over or one.said is not None or one.job.digest == job.digest:
        return False
    is_given_up = time.monotonic() - one.heard_at > _GIVEN_UP_S
    return not is_given_up and (one.is_paid or one.number < number)


def _code_of(error: BaseException, folder: Path) -> Code:
    if isinstance(error, Declined):
        return error.code
    if isinstance(error, Refused | InvalidInput):  # what was sent does not fit together
        return Code.malformed
    return code_of_failure(error, folder)
