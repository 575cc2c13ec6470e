"""The interface of every store of instances.

::

    memory          one process, a snapshot on disk: the default
    redis_store     several processes or hosts share one Redis

A store never records which instance a client drew, what an instance held before, or anything about a client.
"""

import dataclasses
import json
import secrets
from collections.abc import Sequence
from typing import Protocol

from blindsight.algorithms.draw_and_discard import Task
from blindsight.errors import BlindsightError, InvalidInput

__all__ = ["Record", "Store", "StoreUnreachable"]


class StoreUnreachable(BlindsightError):
    """The store does not answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """A model's metadata, everything except its instances."""

    task: Task
    frozen: bool = False
    tokens: tuple[str, ...] = ()  # digests
    life: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    """New with every reset, so that updates to an earlier life have no effect."""

    @property
    def model(self) -> str:
        """Its name."""
        return self.task.model

    def renewed(self, *, task: Task | None = None, frozen: bool | None = None) -> "Record":
        """The record of a restarted model, with `task` and `frozen` replaced if given."""
        frozen = self.frozen if frozen is None else frozen
        return dataclasses.replace(self, life=secrets.token_hex(8), task=task or self.task, frozen=frozen)

    def to_json(self) -> str:
        """One line of JSON."""
        fields = {"task": self.task.to_dict(), "frozen": self.frozen, "tokens": self.tokens, "life": self.life}
        return json.dumps(fields, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Record":
        """The record that `to_json` wrote."""
        try:
            fields = json.loads(text)
            return cls(
                task=Task.from_dict(fields["task"]),
                frozen=bool(fields["frozen"]),
                tokens=tuple(fields["tokens"]),
                life=str(fields["life"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"a stored model cannot be read ({error}): was it written by a newer version?"
            ) from error


class Store(Protocol):
    """Stores models. Methods that wait raise `StoreUnreachable` instead of waiting forever."""

    shared: bool
    """Whether other processes may change it too."""

    async def open(self) -> bytes:
        """Open the store and read its models; returns the secret that signs tickets while the store lives."""
        ...

    async def close(self) -> None:
        """Save everything and stop."""
        ...

    async def secret(self) -> bytes:
        """The current secret, which changes if the store had to restart."""
        ...

    async def records(self) -> dict[str, Record]:
        """All models by name."""
        ...

    async def put(self, record: Record, instances: Sequence[bytes] | None = None) -> None:
        """Create or change a model; with `instances`, which needs a new `life`, they are replaced all at once."""
        ...

    async def delete(self, model: str) -> None:
        """Delete a model and its instances, in memory and on disk."""
        ...

    async def draw(self, record: Record) -> bytes | None:
        """A random instance; None if this life of the model is over."""
        ...

    async def instances(self, record: Record) -> tuple[list[bytes], int]:
        """All instances, and the number of accepted updates; ([], 0) if this life of the model is over."""
        ...

    async def spend(self, record: Record, nonce: bytes, ends: int) -> tuple[bool, int]:
        """Use a ticket; returns whether it was unused, and the number of accepted updates."""
        ...

    async def replace(self, record: Record, update: bytes) -> bool:
        """Put `update` in the place of a random instance; False if this life of the model is over."""
        ...

    async def decline(self, record: Record, update: bytes) -> None:
        """The same steps as `replace` without effect, because the sender could tell the two apart by timing."""
        ...
