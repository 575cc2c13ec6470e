"""All models of the service, their tokens, and the admin calls."""

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blindsight.algorithms.draw_and_discard import Task
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service.auth import Access, digest, new_token, own_tokens, read_tokens
from blindsight.service.canary import Canary, read_canary
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool, first_instances
from blindsight.service.protocol import MODEL_NAME, Refusal
from blindsight.service.settings import Settings
from blindsight.service.store import DELETED, Record, Store, StoreUnfit, StoreUnreachable
from blindsight.service.tickets import Tickets

if TYPE_CHECKING:
    from blindsight.service.admission import Admissions

__all__ = ["Registry", "make_store"]

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 1.0  # interval for reading other processes' changes from a shared store
_TRIES = 100  # of a change that other processes are always faster with


def make_store(settings: Settings) -> Store:
    """The store that the settings name."""
    if settings.store == "memory":
        return MemoryStore(settings.data, settings.snapshot_s, settings.ticket_s)
    from blindsight.service.redis_store import RedisStore

    return RedisStore(settings.store, settings.data, settings.snapshot_s, settings.ticket_s)


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
        self._tokens = _tokens_of(settings)
        self.admissions = _admissions_of(settings)
        self._canaries: dict[str, tuple[str, Canary | None]] = {}  # by model, for a version of its task
        self._secret = b""
        self._watcher: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Open the store and create the models in the settings that it lacks."""
        self._use_secret(await self.store.open())
        await self.reload()
        for path in self.settings.tasks:
            await self._provide(path)
        if self.store.shared:
            self._watcher = asyncio.create_task(self._watch())
        self.is_open = True
        _log.info("serving: %s", ", ".join(self.pools) or "no model yet")

    async def _provide(self, path: Path) -> None:
        """Create the model of a task file unless it exists, whether or not it can be served."""
        task = _read_task(path)
        if task.model not in self.pools and task.model not in self.store.faults:
            try:
                await self.create(task)
            except Refusal:
                if task.model not in self.pools:
                    raise  # it does not exist, so no other process that starts now has created it
        if task.model not in self.store.faults and self.pool(task.model).record.task.version != task.version:
            raise InvalidInput(
                f"{path} differs from the task of {task.model}: replace the model with an admin call, or omit it"
            )

    async def use(self, settings: Settings) -> None:
        """Use these settings from now on, and their files as they are now; nothing changes if one cannot be read."""
        fixed = ("host", "port", "data", "store", "share_port", "admin_listen", "batch", "log", "public", "canary_fall")
        if changed := [name for name in fixed if getattr(settings, name) != getattr(self.settings, name)]:
            _log.warning("only a restart changes %s", ", ".join(changed))
            settings = dataclasses.replace(settings, **{name: getattr(self.settings, name) for name in changed})
        tokens = _tokens_of(settings)
        admissions = _admissions_of(settings)
        if settings.ticket_s != self.settings.ticket_s:
            self.tickets = Tickets(self._secret, settings.ticket_s)
        if settings.rate_per_s != self.settings.rate_per_s:
            self.access = {}
        self.settings, self._tokens, self.admissions = settings, tokens, admissions
        self._grant()

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

    async def save(self) -> None:
        """Write a snapshot now; a failure is logged, and the next one tries again."""
        try:
            for pool in self.pools.values():
                pool.settle()
            await self.store.snapshot()
            _log.info("saved all models")
        except BlindsightError as error:
            _log.error("%s", error)

    async def check(self) -> None:
        """Raise a 503 unless this process can keep what it is given."""
        if not self.is_open:
            raise Refusal(503, "starting or stopping")
        try:
            await self.store.check()
        except StoreUnfit:
            raise Refusal(503, "the store cannot keep updates: the log says why") from None

    async def reload(self) -> None:
        """Read the store's models; unchanged ones keep their counts."""
        records = await self.store.records()
        for model, pool in [*self.pools.items()]:
            if model not in records:
                self._serve(model, None)
                await pool.close()
        for model, record in records.items():
            pool = self.pools.get(model)
            if pool is None or pool.record.life != record.life:
                canary = await self._canary(record.task)
                begun = Pool(record, self.store, self.settings.batch, canary, self._retreat)
                await begun.begin()
                if self.pools.get(model) is pool:  # else another reload was faster
                    self._serve(model, begun)
                    if pool is not None:
                        await pool.close()
            else:
                pool.record = record
        self._grant()

    def _serve(self, model: str, pool: Pool | None) -> None:
        """Serve a model by this pool from now on, all its calls at once; or no more."""
        for table, key in (
            (self.pools, model),
            (self.draws, f"/v1/models/{model}/draw"),
            (self.updates, f"/v1/models/{model}/update"),
        ):
            if pool is None:
                table.pop(key, None)
            else:
                table[key] = pool
        self._grant()

    def pool(self, model: str) -> Pool:
        """The model with this name, or 404; 503 if it exists but cannot be read."""
        pool = self.pools.get(model)
        if pool is None and model in self.store.faults:
            raise Refusal(503, "the model cannot be served at present", headers={"Retry-After": "60"})
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
        try:
            await self._canary(task)
        except InvalidInput as error:
            raise Refusal(422, str(error)) from None
        token = new_token()

        def edit(existing: Record | None) -> tuple[Record, list[bytes]]:
            if task.model in self.store.faults:
                raise Refusal(409, "the model exists, but cannot be read: restore a backup, or delete it")
            if existing is not None and not replace:
                raise Refusal(409, 'the model exists: pass "replace": true to restart it')
            new = Record(task=task, tokens=(digest(token),))
            record = new if existing is None else existing.renewed(task=task, frozen=False)
            return record, first_instances(record, start)

        is_new = (await self._change(task.model, edit)).revision == 1
        _log.info("created %s, version %s, %d weights", task.model, task.version, task.weights)
        return token if is_new else None

    async def restart(self, model: str, start: np.ndarray | None = None) -> None:
        """Restart a model from `start` or zeros; outstanding tickets become invalid."""

        def edit(existing: Record | None) -> tuple[Record, list[bytes]]:
            record = self._existing(existing, model).renewed()
            return record, first_instances(record, start)

        await self._change(model, edit)
        _log.info("%s restarted", model)

    async def freeze(self, model: str, frozen: bool) -> None:
        """Freeze or resume a model's training."""
        await self._change(model, lambda existing: (self._existing(existing, model).changed(frozen=frozen), None))
        _log.info("%s is %s", model, "frozen" if frozen else "training")

    async def _retreat(self, record: Record, good: np.ndarray) -> None:
        """Freeze a model that got worse on its public examples and restart it from its best average."""

        def edit(existing: Record | None) -> tuple[Record, list[bytes]]:
            if existing is None or existing.life != record.life:
                raise Refusal(409, "an administrator or another process was faster")
            renewed = existing.renewed(frozen=True)
            return renewed, first_instances(renewed, good)

        try:
            await self._change(record.model, edit)
        except Refusal:
            return
        if (canary := self.pools[record.model].canary) is not None:
            canary.rollbacks += 1
        _log.error("%s got worse on its public examples: frozen, and back at its best average", record.model)

    async def _canary(self, task: Task) -> Canary | None:
        """The public examples of a model; they and its best score outlive restarts of the model."""
        version, canary = self._canaries.get(task.model, ("", None))
        if version != task.version and self.settings.public is not None:
            fall = self.settings.canary_fall
            canary = await asyncio.to_thread(read_canary, self.settings.public, task, fall=fall)
            self._canaries[task.model] = task.version, canary
        return canary

    async def add_token(self, model: str) -> str:
        """Add a client token for a model."""
        token = new_token()

        def edit(existing: Record | None) -> tuple[Record, None]:
            record = self._existing(existing, model)
            return record.changed(tokens=(*record.tokens, digest(token))), None

        await self._change(model, edit)
        return token

    async def delete(self, model: str, reason: str = DELETED) -> None:
        """Delete a model, also one that cannot be served."""
        async with self._changing:
            await self.reload()
            if model not in self.store.faults:
                self.pool(model)
            await self.store.delete(model, reason)
            await self.reload()
        _log.info("deleted %s: %s", model, reason)

    async def _change(self, model: str, edit: Callable[[Record | None], tuple[Record, list[bytes] | None]]) -> Record:
        """Replace a model's record by what `edit` makes of it; repeated if another process was faster."""
        async with self._changing:
            for _ in range(_TRIES):
                await self.reload()
                pool = self.pools.get(model)
                record, instances = edit(pool.record if pool is not None else None)
                if await self.store.put(record, instances):
                    await self.reload()
                    return record
        raise StoreUnreachable(f"other processes keep changing {model}: try again")

    def _existing(self, record: Record | None, model: str) -> Record:
        return record or self.pool(model).record

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


def _admissions_of(settings: Settings) -> "Admissions | None":
    """What checks admission tokens, if draws need them."""
    if settings.admission is None:
        return None
    from blindsight.service.admission import Admissions  # needs cryptography, which takes a while to load

    return Admissions(settings.admission)


def _tokens_of(settings: Settings) -> dict[str, set[str]]:
    """Digests of tokens and their rights; without an admin token among them, that of the service's own file."""
    tokens = read_tokens(settings.tokens)
    if settings.data is not None and not any("*" in opens for opens in tokens.values()):
        path = own_tokens(settings.data)
        tokens = read_tokens(path) | tokens
        _log.info("the admin token is in %s", path)
    return tokens


def _read_task(path: Path) -> Task:
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
