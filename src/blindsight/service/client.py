"""The Python client: fetch the task, draw an instance, train one step on local data, send it back with noise.

The protocol is written once, as a generator of requests; `Client` and `AsyncClient` only send them. Which requests are
made, and whether an update is sent, never depends on the values in a client's rows: rows that cannot be encoded count
as absent, and an update from zero rows looks like any other.
"""

import asyncio
import dataclasses
import functools
import json
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

import httpx2 as httpx
import numpy as np

from blindsight.algorithms.draw_and_discard import Budget, Task, client_update
from blindsight.codings.specs import ClientRows
from blindsight.errors import BlindsightError, InvalidInput, PrivacyError
from blindsight.keys import root
from blindsight.service.protocol import OCTETS, TICKET, VERSION, decode, encode

__all__ = ["AsyncClient", "Client", "ServiceError"]

_LATER = (408, 425, 429, 500, 502, 503, 504)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0

Update = Callable[[Task, np.ndarray], np.ndarray]
"""(task, weights drawn) to the weights to send: clips and adds noise."""

_Prepared = Callable[[Task], Callable[[np.ndarray], np.ndarray]]
"""The work before anything is drawn or paid for; returns a function from the weights drawn to those to send."""


class ServiceError(BlindsightError):
    """The service refused or could not be reached; `status` is the HTTP status, if any."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


@dataclasses.dataclass(frozen=True)
class _Request:
    method: str
    action: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    body: bytes | None = None


@dataclasses.dataclass(frozen=True)
class _Wait:
    seconds: float


_Talk = Generator[_Request | _Wait, httpx.Response | Exception | None, Any]


class _Conversation:
    """The client's side of the protocol, including retries, without sockets."""

    def __init__(self, model: str, budget: Budget | None, retries: int, unprotected: bool) -> None:
        if budget is None and not unprotected:
            raise InvalidInput("a client needs its own budget: pass one, or pass unprotected=True to go without")
        self.model, self.budget, self.retries, self.unprotected = model, budget, retries, unprotected
        self._task: Task | None = None

    def task(self) -> _Talk:
        """The current task; a cached one is reused if the service confirms it."""
        cached = {"If-None-Match": f'"{self._task.version}"'} if self._task is not None else {}
        answer = yield from self._ask(_Request("GET", "task", cached), (200, 304))
        if answer.status_code == 200:
            try:
                self._task = Task.from_dict(json.loads(answer.content))
            except ValueError as error:
                raise ServiceError(f"the service sent an invalid task: {error}") from error
        if self._task is None or self._task.model != self.model:
            raise ServiceError(f"the service sent the task of a model other than {self.model}")
        return self._task

    def contribute(self, prepare: _Prepared) -> _Talk:
        """One update, paid for before it is computed; returns the weights that left this client."""
        task = self._task or (yield from self.task())
        make = self._prepared(task, prepare)
        answer = yield from self._ask(_Request("GET", "draw"), (200,))
        if answer.headers.get(VERSION) != task.version:
            task = yield from self.task()
            make = self._prepared(task, prepare)
            answer = yield from self._ask(_Request("GET", "draw"), (200,))
        weights = decode(answer.content) if len(answer.content) == 4 * task.weights else np.zeros(0, np.float32)
        if answer.headers.get(VERSION) != task.version or weights.shape != (task.weights,):
            raise ServiceError("the service sent an instance that does not match its task: try again")
        if not np.isfinite(weights).all():
            raise ServiceError("the service sent weights that are not finite: nothing was sent back")
        if self.budget is not None:
            self.budget.spend(task)
        update = np.asarray(make(weights), np.float32)
        headers = {"Content-Type": OCTETS, TICKET: answer.headers.get(TICKET, ""), VERSION: task.version}
        # the same bytes and ticket in every attempt: they are accepted at most once
        yield from self._ask(_Request("POST", "update", headers, encode(update)), (202,), done_if_repeated=410)
        return update

    def _prepared(self, task: Task, prepare: _Prepared) -> Callable[[np.ndarray], np.ndarray]:
        if task.noise == "none" and not self.unprotected:
            raise PrivacyError(
                f"the task of {task.model} has no noise, so nothing is sent: pass unprotected=True to send anyway"
            )
        return prepare(task)

    def _ask(
        self, request: _Request, wanted: tuple[int, ...], done_if_repeated: int | None = None
    ) -> Generator[_Request | _Wait, httpx.Response | Exception | None, httpx.Response]:
        sentence = ""
        for attempt in range(self.retries + 1):
            if attempt:
                longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
                yield _Wait(secrets.SystemRandom().uniform(0, longest))
            answer = yield request
            if isinstance(answer, httpx.Response):
                if answer.status_code in wanted or (attempt and answer.status_code == done_if_repeated):
                    return answer
                sentence = f"{answer.status_code}, {_sentence(answer)}"
                if answer.status_code not in _LATER:
                    raise ServiceError(
                        f"the service refused to {_VERBS[request.action]}: {sentence}", answer.status_code
                    )
            else:
                sentence = type(answer).__name__
        raise ServiceError(
            f"the service did not {_VERBS[request.action]} after {self.retries + 1} attempts: {sentence}"
        )


class Client:
    """A client of one model.

    `budget` limits everything this client will ever reveal (`Budget`), whatever tasks ask for. Only an `unprotected`
    client, for example with synthetic data, may go without a budget and answer a task without noise. `http` holds
    further arguments of `httpx2.Client`, such as `verify` or `transport`. Only the return value of `train` is sent.
    """

    def __init__(
        self,
        address: str,
        model: str,
        token: str,
        *,
        budget: Budget | None = None,
        unprotected: bool = False,
        retries: int = 4,
        timeout_s: float = 10.0,
        http: Mapping[str, Any] | None = None,
    ) -> None:
        self._talk = _Conversation(model, budget, retries, unprotected)
        self._http = httpx.Client(**_options(address, model, token, timeout_s), **(http or {}))

    def task(self) -> Task:
        """The service's current task."""
        return self._run(self._talk.task())

    def train(self, rows: ClientRows) -> np.ndarray:
        """Train the model one step on `rows`; returns the noisy weights that were sent.

        A row that cannot be encoded counts as absent: staying silent would reveal its contents. To see what is wrong
        with rows, call `client.task().encode(rows)`, which refuses the first invalid one and sends nothing.
        """
        return self._run(self._talk.contribute(_training_on(rows)))

    def contribute(self, update: Update) -> np.ndarray:
        """The same with any `update(task, weights)`, which must clip and add noise itself.

        It must not fail, whatever the client's data: its cost is already paid by then, and silence would leak.
        """
        return self._run(self._talk.contribute(lambda task: functools.partial(update, task)))

    def _run(self, talk: _Talk) -> Any:
        answer: httpx.Response | Exception | None = None
        while True:
            try:
                said = talk.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(said, _Wait):
                time.sleep(said.seconds)
                answer = None
                continue
            try:
                answer = self._http.request(said.method, said.action, headers=said.headers, content=said.body)
            except httpx.TransportError as error:
                answer = error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """`Client` for asynchronous programs: the same methods, awaited."""

    def __init__(
        self,
        address: str,
        model: str,
        token: str,
        *,
        budget: Budget | None = None,
        unprotected: bool = False,
        retries: int = 4,
        timeout_s: float = 10.0,
        http: Mapping[str, Any] | None = None,
    ) -> None:
        self._talk = _Conversation(model, budget, retries, unprotected)
        self._http = httpx.AsyncClient(**_options(address, model, token, timeout_s), **(http or {}))

    async def task(self) -> Task:
        """The service's current task."""
        return await self._run(self._talk.task())

    async def train(self, rows: ClientRows) -> np.ndarray:
        """Train the model one step on `rows`; returns the noisy weights that were sent."""
        return await self._run(self._talk.contribute(_training_on(rows)))

    async def contribute(self, update: Update) -> np.ndarray:
        """The same with any `update(task, weights)`, which must clip and add noise itself."""
        return await self._run(self._talk.contribute(lambda task: functools.partial(update, task)))

    async def _run(self, talk: _Talk) -> Any:
        answer: httpx.Response | Exception | None = None
        while True:
            try:
                said = talk.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(said, _Wait):
                await asyncio.sleep(said.seconds)
                answer = None
                continue
            try:
                answer = await self._http.request(said.method, said.action, headers=said.headers, content=said.body)
            except httpx.TransportError as error:
                answer = error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


_VERBS = {"task": "give its task", "draw": "give an instance", "update": "take an update"}


def _training_on(rows: ClientRows) -> _Prepared:
    def prepare(task: Task) -> Callable[[np.ndarray], np.ndarray]:
        x, y = task.encode(rows, strict=False)
        return lambda weights: client_update(task, weights, x, y, key=root().derive("update"))

    return prepare


def _options(address: str, model: str, token: str, timeout_s: float) -> dict[str, Any]:
    return {
        "base_url": f"{address.rstrip('/')}/v1/models/{model}/",
        "headers": {"Authorization": f"Bearer {token}", "User-Agent": "blindsight"},
        "timeout": timeout_s,
    }


def _sentence(answer: httpx.Response) -> str:
    try:
        return str(json.loads(answer.content)["error"])
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase
