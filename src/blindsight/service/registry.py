"""All models of the service, their tokens, and the admin calls."""

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.algorithms.draw_and_discard import Task
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service.auth import Access, digest, new_token, own_tokens, read_tokens
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool, first_instances
from blindsight.service.protocol import MODEL_NAME, Refusal
from blindsight.service.settings import Settings
from blindsight.service.store import Record, Store, StoreUnreachable
from blindsight.service.tickets import Tickets

__all__ = ["Registry", "make_store"]

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 1.0  # interval for reading other processes' changes from a shared store


def make_store(settings: Settings) -> Store:
    """The store that the settings name."""
    if settings.store == "memory":
        return MemoryStore(settings.data, settings.snapshot_s)
    from blindsight.service.redis_store import RedisStore

    return RedisStore(settings.store, settings.data, settings.snapshot_s)


class Registry:
    """The models of a store, in plain dictionaries for the hot path."""

    def __init__(self, settings: Settings, store: Store | None = None) -> None:
        self.settings = settings
        self.store = store or make_store(settings)
        self.pools: dict[str, Pool] = {}
        self.draws: dict[str, Pool] = {}  # by request path
        self.updates: dict[str, Pool] = {}
        self.access: dict[str, Access] = {}
        self.seen: dict[bytes, Access] = {}  # by valid header, so that a token is hashed once
        self.tickets = Tickets(b"", settings.ticket_s)
        self.is_open = False
        self._tokens = read_tokens(settings.tokens)
        if settings.data is not None and not any("*" in opens for opens in self._tokens.values()):
            path = own_tokens(settings.data)
            self._tokens = read_tokens(path) | self._tokens
            _log.info("the admin token is in %s", path)
        self._secret = b""
        self._watcher: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Open the store and create the models in the settings that it lacks."""
        self._use_secret(await self.store.open())
        await self.reload()
        for path in self.settings.tasks:
            task = _read_task(path)
            pool = self.pools.get(task.model)
            if pool is None:
                await self.create(task)
            elif pool.record.task.version != task.version:
                raise InvalidInput(
                    f"{path} differs from the task of {task.model}: replace the model with an admin call, or omit it"
                )
        if self.store.shared:
            self._watcher = asyncio.create_task(self._watch())
        self.is_open = True
        _log.info("serving: %s", ", ".join(self.pools) or "no model yet")

    async def close(self) -> None:
        """Stop after saving everything."""
        self.is_open = False
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        for pool in self.pools.values():
            await pool.close()
        await self.store.close()
        _log.info("stopped; all models are saved")

    async def reload(self) -> None:
        """Read the store's models; unchanged ones keep their counts."""
        records = await self.store.records()
        for model in [model for model in self.pools if model not in records]:
            await self.pools.pop(model).close()
        for model, record in records.items():
            pool = self.pools.get(model)
            if pool is None or pool.record.life != record.life:
                self.pools[model] = Pool(record, self.store)
                if pool is not None:
                    await pool.close()
            else:
                pool.record = record
        self.draws = {f"/v1/models/{model}/draw": pool for model, pool in self.pools.items()}
        self.updates = {f"/v1/models/{model}/update": pool for model, pool in self.pools.items()}
        self._grant()

    def pool(self, model: str) -> Pool:
        """The model with this name, or 404."""
        pool = self.pools.get(model)
        if pool is None:
            raise Refusal(404, "there is no such model")
        return pool

    def admit(self, authorization: bytes) -> Access | None:
        """The rights of a header's token; valid headers are cached in `seen`."""
        scheme, _, token = authorization.partition(b" ")
        access = self.access.get(digest(token)) if scheme.lower() == b"bearer" else None
        if access is not None:
            self.seen[authorization] = access
        return access

    async def create(self, task: Task, *, replace: bool = False, start: np.ndarray | None = None) -> str | None:
        """Create a model, or restart it with another task; returns a client token if it is new."""
        if not MODEL_NAME.fullmatch(task.model):
            raise Refusal(422, "a model name has up to 64 characters from a-z, 0-9, - and _")
        async with self._changing:
            await self.reload()
            existing = self.pools.get(task.model)
            if existing is None:
                token = new_token()
                record = Record(task=task, tokens=(digest(token),))
            elif replace:
                token, record = None, existing.record.renewed(task=task, frozen=False)
            else:
                raise Refusal(409, 'the model exists: pass "replace": true to restart it')
            await self.store.put(record, first_instances(record, start))
            await self.reload()
        _log.info("created %s, version %s, %d weights", task.model, task.version, task.weights)
        return token

    async def restart(self, model: str, start: np.ndarray | None = None) -> None:
        """Restart a model from `start` or zeros; outstanding tickets become invalid."""
        async with self._changing:
            await self.reload()
            record = self.pool(model).record.renewed()
            await self.store.put(record, first_instances(record, start))
            await self.reload()
        _log.info("%s restarted", model)

    async def freeze(self, model: str, frozen: bool) -> None:
        """Freeze or resume a model's training."""
        async with self._changing:
            await self.reload()
            await self.store.put(dataclasses.replace(self.pool(model).record, frozen=frozen))
            await self.reload()
        _log.info("%s is %s", model, "frozen" if frozen else "training")

    async def add_token(self, model: str) -> str:
        """Add a client token for a model."""
        token = new_token()
        async with self._changing:
            await self.reload()
            record = self.pool(model).record
            await self.store.put(dataclasses.replace(record, tokens=(*record.tokens, digest(token))))
            await self.reload()
        return token

    async def delete(self, model: str) -> None:
        """Delete a model."""
        async with self._changing:
            await self.reload()
            self.pool(model)
            await self.store.delete(model)
            await self.reload()
        _log.info("deleted %s", model)

    def _grant(self) -> None:
        """Collect rights from the settings' tokens and the models' own. A token keeps its bucket."""
        opens: dict[str, set[str]] = {token: set(names) for token, names in self._tokens.items()}
        for model, pool in self.pools.items():
            for token in pool.record.tokens:
                opens.setdefault(token, set()).add(model)
        granted: dict[str, Access] = {}
        for token, names in opens.items():
            access = self.access.get(token)
            models = frozenset(names - {"*"})
            if access is None or access.models != models:
                access = Access(admin="*" in names, models=models, rate_per_s=self.settings.rate_per_s)
            granted[token] = access
        self.access = granted
        self.seen = {}

    def _use_secret(self, secret: bytes) -> None:
        if secret != self._secret:
            self._secret = secret
            self.tickets = Tickets(secret, self.settings.ticket_s)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AGAIN_S)
            try:
                self._use_secret(await self.store.secret())
                if not self._changing.locked():
                    await self.reload()
            except StoreUnreachable as error:
                _log.warning("%s", error)
            except BlindsightError as error:
                _log.error("%s", error)


def _read_task(path: Any) -> Task:
    try:
        values: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read the task {path} ({error.strerror}): name a JSON file") from error
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from error
    try:
        return Task.from_dict(values)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
