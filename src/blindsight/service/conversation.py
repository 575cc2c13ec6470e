"""A client's side of the protocol as a generator of requests, without sockets: `client` sends them.

Which requests are made, and whether an update is sent, never depends on the values in a client's rows: rows that cannot
be encoded count as absent, and an update from zero rows looks like any other.

An update that is paid for is delivered or reported: `UpdateWaiting` if it is in the outbox and the service may take it
later, `UpdateLost` if it is gone.
"""

import base64 as b64
import dataclasses
import json
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np

from blindsight.algorithms.draw_and_discard import Budget, Task
from blindsight.errors import BlindsightError, InvalidInput, PrivacyError
from blindsight.service.outbox import Outbox, Unsent
from blindsight.service.protocol import OCTETS, TICKET, VERSION, decode, encode

if TYPE_CHECKING:
    from blindsight.service.wallet import Wallet

__all__ = ["Call", "Conversation", "Prepared", "ServiceError", "Talk", "UpdateLost", "UpdateWaiting", "Wait"]

_VERBS = {"task": "give its task", "draw": "give an instance", "update": "take an update"}
_LATER = (408, 425, 429, 500, 502, 503, 504)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0
_MOST_OBEYED_S = 60.0  # of a Retry-After
_FROZEN = 423

Prepared = Callable[[Task], Callable[[np.ndarray], np.ndarray]]
"""The work before anything is drawn or paid for; returns a function from the weights drawn to those to send."""


class ServiceError(BlindsightError):
    """The service refused or could not be reached; `status` is the HTTP status, if any, `cause` its word for why."""

    def __init__(self, sentence: str, status: int | None = None, cause: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.cause = cause


class UpdateLost(ServiceError):
    """An update was paid for and will not be taken, or nobody can tell: `epsilon` and `delta` are what it cost."""

    def __init__(self, unsent: Unsent, why: ServiceError) -> None:
        price = f"({unsent.epsilon:g}, {unsent.delta:g})"
        super().__init__(
            f"an update for {unsent.model} that cost {price} is lost, or its answer is: {why}", why.status, why.cause
        )
        self.epsilon, self.delta = unsent.epsilon, unsent.delta


class UpdateWaiting(ServiceError):
    """An update was paid for and is in the outbox: `deliver`, or the next contribution, sends it."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A request to the service."""

    method: str
    action: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    body: bytes | None = None


@dataclasses.dataclass(frozen=True)
class Wait:
    """How long to wait before the next request."""

    seconds: float


Talk = Generator[Call | Wait, httpx.Response | Exception | None, Any]


class Conversation:
    """The client's side of the protocol, including retries, without sockets."""

    def __init__(
        self,
        model: str,
        budget: Budget | None,
        retries: int,
        unprotected: bool,
        outbox: Outbox | None = None,
        wallet: "Wallet | None" = None,
    ) -> None:
        if budget is None and not unprotected:
            raise InvalidInput("a client needs its own budget: pass one, or pass unprotected=True to go without")
        self.model, self.budget, self.retries, self.unprotected = model, budget, retries, unprotected
        self.outbox, self.wallet = outbox, wallet
        self._task: Task | None = None

    def task(self) -> Talk:
        """The current task; a cached one is reused if the service confirms it."""
        cached = {"If-None-Match": f'"{self._task.version}"'} if self._task is not None else {}
        answer = yield from self._ask(Call("GET", "task", cached), (200, 304))
        if answer.status_code == 200:
            try:
                self._task = Task.from_dict(json.loads(answer.content))
            except ValueError as error:
                raise ServiceError(f"the service sent an invalid task: {error}") from error
        if self._task is None or self._task.model != self.model:
            raise ServiceError(f"the service sent the task of a model other than {self.model}")
        return self._task

    def contribute(self, prepare: Prepared) -> Talk:
        """One update, paid for before it is computed; returns the weights that left this client."""
        yield from self.deliver()
        task = self._task or (yield from self.task())
        make = self._prepared(task, prepare)
        answer = yield from self._draw()
        if answer.headers.get(VERSION) != task.version:
            task = yield from self.task()
            make = self._prepared(task, prepare)
            answer = yield from self._draw()
        weights = decode(answer.content) if len(answer.content) == 4 * task.weights else np.zeros(0, np.float32)
        if answer.headers.get(VERSION) != task.version or weights.shape != (task.weights,):
            raise ServiceError("the service sent an instance that does not match its task: try again")
        if not np.isfinite(weights).all():
            raise ServiceError("the service sent weights that are not finite: nothing was sent back")
        if self.budget is not None:
            self.budget.spend(task)
        update = np.asarray(make(weights), np.float32)
        price = self.budget.price(task) if self.budget is not None else (task.epsilon, task.delta)
        unsent = Unsent(self.model, answer.headers.get(TICKET, ""), task.version, *price, encode(update))
        if self.outbox is not None:
            self.outbox.put(unsent)
        yield from self._send(unsent)
        return update

    def deliver(self) -> Talk:
        """Send the update that an earlier contribution left in the outbox; returns whether there was one."""
        unsent = self.outbox.get() if self.outbox is not None else None
        if unsent is None:
            return False
        if unsent.model != self.model:
            raise InvalidInput(f"the outbox holds an update for {unsent.model}: use one outbox for each model")
        yield from self._send(unsent, is_repeated=True)
        return True

    def _send(self, unsent: Unsent, *, is_repeated: bool = False) -> Talk:
        """Deliver an update; the same bytes and ticket in every attempt are accepted at most once."""
        headers = {"Content-Type": OCTETS, TICKET: unsent.ticket, VERSION: unsent.version}
        request = Call("POST", "update", headers, unsent.body)
        try:
            yield from self._ask(request, (202,), done_if="ticket_used", is_repeated=is_repeated)
        except ServiceError as error:
            may_pass = error.status is None or error.status in (*_LATER, _FROZEN)
            if self.outbox is not None and may_pass:
                raise UpdateWaiting(
                    f"the update is in {self.outbox.path}: {error}", error.status, error.cause
                ) from error
            if self.outbox is not None:
                self.outbox.clear()
            raise UpdateLost(unsent, error) from error
        if self.outbox is not None:
            self.outbox.clear()

    def _draw(self) -> Generator[Call | Wait, httpx.Response | Exception | None, httpx.Response]:
        """A draw, with an admission token if the service wants one; a token that counts as used is replaced."""
        while self.wallet is not None:
            token = b64.urlsafe_b64encode(self.wallet.take(self.model)).decode()
            try:
                request = Call("GET", "draw", {"Authorization": f"PrivateToken token={token}"})
                return (yield from self._ask(request, (200,)))
            except ServiceError as error:
                if error.cause != "admission_used":
                    raise
        return (yield from self._ask(Call("GET", "draw"), (200,)))

    def _prepared(self, task: Task, prepare: Prepared) -> Callable[[np.ndarray], np.ndarray]:
        if task.noise == "none" and not self.unprotected:
            raise PrivacyError(
                f"the task of {task.model} has no noise, so nothing is sent: pass unprotected=True to send anyway"
            )
        return prepare(task)

    def _ask(
        self, request: Call, wanted: tuple[int, ...], *, done_if: str = "", is_repeated: bool = False
    ) -> Generator[Call | Wait, httpx.Response | Exception | None, httpx.Response]:
        """The answer to a request, tried again while that may help. `done_if` is the cause of having arrived before."""
        error = ServiceError("")
        asked_s = 0.0
        for attempt in range(self.retries + 1):
            if attempt:
                longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
                yield Wait(asked_s + secrets.SystemRandom().uniform(0, longest))
            answer = yield request
            if not isinstance(answer, httpx.Response):
                error, asked_s = ServiceError(type(answer).__name__), 0.0
                continue
            sentence, cause = _reason(answer)
            if answer.status_code in wanted or ((attempt or is_repeated) and done_if and cause == done_if):
                return answer
            error = ServiceError(f"{answer.status_code}, {sentence}", answer.status_code, cause)
            if answer.status_code not in _LATER:
                verb = _VERBS[request.action]
                raise ServiceError(f"the service refused to {verb}: {error}", error.status, cause)
            asked_s = _retry_after(answer)
        verb, times = _VERBS[request.action], self.retries + 1
        raise ServiceError(f"the service did not {verb} after {times} attempts: {error}", error.status, error.cause)


def _reason(answer: httpx.Response) -> tuple[str, str]:
    """The sentence and the cause of a refusal."""
    try:
        values = json.loads(answer.content)
        return str(values["error"]), str(values.get("cause", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return answer.reason_phrase, ""


def _retry_after(answer: httpx.Response) -> float:
    """The seconds that the service asks to wait for, within reason."""
    stated = answer.headers.get("Retry-After", "")
    return min(float(stated), _MOST_OBEYED_S) if stated.isdigit() else 0.0
