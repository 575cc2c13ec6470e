"""The interface of every store of instances.

::

    memory          one process, a snapshot on disk: the default
    redis_store     several processes or hosts share one Redis

A store never records which instance a client drew, what an instance held before, or anything about a client.

**Versions.** A record says which version of the code wrote it (`schema`) and the oldest that may read it (`readers`).
Fields that this version does not know are kept and written back, so that processes of two versions can share a store.
A record that this version must not read stops that model alone.

**Changes.** Records are replaced by compare-and-set: a record names its `revision`, and a store takes revision n + 1 of
a model only in the place of revision n.
"""

import dataclasses
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from blindsight.algorithms.draw_and_discard import Task
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service.used import Admission

__all__ = ["NotSaved", "Record", "Store", "StoreUnfit", "StoreUnreachable"]

SCHEMA = 2
"""Version of records and snapshots; raise it with every change."""
READERS = 1
"""The oldest version that may read them; raise it only if an older one would misunderstand."""

DELETED = "an administrator deleted it"
"""The usual reason."""

_DAMAGED = "a stored model cannot be read ({}): was it written by a newer version?"


class StoreUnreachable(BlindsightError):
    """The store does not answer."""


class StoreUnfit(StoreUnreachable):
    """The store answers, but cannot keep what it is given, or must not."""


class NotSaved(BlindsightError):
    """A model could not be written to disk."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A model's metadata, everything except its instances."""

    task: Task
    frozen: bool = False
    tokens: tuple[str, ...] = ()  # digests
    life: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    """New with every reset, so that updates to an earlier life have no effect."""
    created: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    """Constant from creation to deletion, so that deleting a model never deletes a later one of the same name."""
    revision: int = 1
    unknown: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Fields of a newer version."""

    @property
    def model(self) -> str:
        """Its name."""
        return self.task.model

    def changed(self, *, frozen: bool | None = None, tokens: tuple[str, ...] | None = None) -> "Record":
        """The next revision, with `frozen` and `tokens` replaced if given."""
        frozen, tokens = self.frozen if frozen is None else frozen, self.tokens if tokens is None else tokens
        return dataclasses.replace(self, revision=self.revision + 1, frozen=frozen, tokens=tokens)

    def renewed(self, *, task: Task | None = None, frozen: bool | None = None) -> "Record":
        """The next revision as a restarted model, with `task` and `frozen` replaced if given."""
        return dataclasses.replace(self.changed(frozen=frozen), life=secrets.token_hex(8), task=task or self.task)

    def restored(self) -> "Record":
        """The record of a new model with the same task and tokens, whatever became of this one."""
        return dataclasses.replace(self, life=secrets.token_hex(8), created=secrets.token_hex(8), revision=1)

    def follows(self, stored: "Record | None") -> bool:
        """Whether this is the next revision of what is stored."""
        if stored is None:
            return self.revision == 1
        return (self.created, self.revision) == (stored.created, stored.revision + 1)

    def to_json(self, more: Mapping[str, Any] | None = None) -> str:
        """One line of JSON, with `more` beside the record's own fields."""
        fields = {
            **self.unknown,
            "schema": max(SCHEMA, self.unknown.get("schema", SCHEMA)),
            "readers": max(READERS, self.unknown.get("readers", READERS)),
            "task": self.task.to_dict(),
            **{name: getattr(self, name) for name in _FIELDS},
        }
        return json.dumps(fields | dict(more or {}), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Record":
        """The record that `to_json` wrote, here or in another version."""
        try:
            fields = json.loads(text)
            if fields.get("readers", 1) > SCHEMA:
                raise ValueError(f"it needs a version with schema {fields['readers']}")
            return cls(
                task=Task.from_dict(fields["task"]),
                frozen=bool(fields["frozen"]),
                tokens=tuple(fields["tokens"]),
                life=str(fields["life"]),
                created=str(fields.get("created") or fields["life"]),  # schema 1 had neither
                revision=int(fields.get("revision", 0)),
                unknown=_unknown(fields),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(_DAMAGED.format(error)) from error


_FIELDS = ("frozen", "tokens", "life", "created", "revision")


def _unknown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a newer version wrote, with its own version if that is newer."""
    known = {*_FIELDS, "task", *(() if fields.get("schema", 1) > SCHEMA else ("schema", "readers"))}
    return {name: value for name, value in fields.items() if name not in known}


class Store(Protocol):
    """Stores models. Methods that wait raise `StoreUnreachable` instead of waiting forever."""

    shared: bool
    """Whether other processes may change it too."""
    faults: dict[str, str]
    """Models that cannot be served, and why; all others can."""
    saved_at: float
    """Time of the last snapshot of everything; 0 before the first."""
    failures: int
    """Snapshots that failed."""

    async def open(self) -> bytes:
        """Open the store and read its models; returns the secret that signs tickets while the store lives."""
        ...

    async def close(self) -> None:
        """Save everything and stop; raises `NotSaved` if that fails."""
        ...

    def now(self) -> float:
        """Seconds on the clock that tickets end by. Changes of this machine's clock do not move it."""
        ...

    async def check(self) -> None:
        """Raise `StoreUnreachable` or `StoreUnfit` if the store cannot keep what it is given."""
        ...

    async def snapshot(self) -> None:
        """Write every model that has changed to disk; raises `NotSaved` after trying all of them."""
        ...

    async def secret(self) -> bytes:
        """The current secret, which changes if the store had to restart."""
        ...

    async def records(self) -> dict[str, Record]:
        """All models by name."""
        ...

    async def put(self, record: Record, instances: Sequence[bytes] | None = None) -> bool:
        """Create or change a model; with `instances`, which needs a new `life`, they are replaced all at once.

        False, without effect, if the stored record is not its predecessor. Raises without effect if it cannot be kept.
        """
        ...

    async def delete(self, model: str, reason: str = DELETED) -> None:
        """Delete a model and its instances, in memory and on disk, and remember that it was deleted."""
        ...

    async def draw(self, record: Record) -> bytes | None:
        """A random instance; None if this life of the model is over."""
        ...

    async def sample(self, record: Record) -> tuple[list[bytes], int]:
        """Random instances to mix (`shown`), and the number of accepted updates; ([], 0) if this life is over."""
        ...

    async def share(self, record: Record, shown: bytes | None, after: str, most: int) -> list[tuple[str, bytes]]:
        """Tell other processes what draws show here from now on, if anything new, and learn what is shown elsewhere.

        Returns up to `most` of what all showed since `after` ("-": since ever), each with the next `after`.
        """
        ...

    async def instances(self, record: Record) -> tuple[list[bytes], int]:
        """All instances, and the number of accepted updates; ([], 0) if this life of the model is over."""
        ...

    async def spend(self, record: Record, nonce: bytes, ends: int) -> tuple[bool, int]:
        """Use a ticket; returns whether it was unused, and the number of accepted updates."""
        ...

    async def use(self, admission: Admission) -> bool:
        """Mark an admission token as used; returns whether it was unused."""
        ...

    async def replace(self, record: Record, update: bytes) -> bool:
        """Put `update` in the place of a random instance; False if this life of the model is over."""
        ...

    async def decline(self, record: Record, update: bytes) -> None:
        """The same steps as `replace` without effect, because the sender could tell the two apart by timing."""
        ...
