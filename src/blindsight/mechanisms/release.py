"""A release is a value and its event, made in one call; `publish` records the event first."""

import dataclasses
from typing import Any, Generic, Protocol, TypeVar

from blindsight.accounting.composition import Split
from blindsight.accounting.events import Event, Gaussian, Laplace, Relation, Thresholded, Unit, from_json
from blindsight.accounting.ledger import Ledger, Payers
from blindsight.keys import Key, digest_of
from blindsight.trees import BoundedSum

__all__ = ["Mechanism", "Release", "marked", "noise_on", "publish"]

T_co = TypeVar("T_co", covariant=True)


@dataclasses.dataclass(frozen=True)
class Release(Generic[T_co]):
    """A noised value, the event to account for it, and the public standard deviation of its noise per coordinate."""

    value: T_co
    event: Event
    noise_std: float


class Mechanism(Protocol[T_co]):
    """Turns a bounded sum into a release at a cost that is fixed in advance."""

    def event(self, total: BoundedSum) -> Event:
        """The event of releasing `total`."""
        ...

    def release(self, total: BoundedSum, *, key: Key) -> Release[T_co]:
        """The noised value and its event. `key` must never be used for anything else."""
        ...


class _Participation(Protocol):
    @property
    def relation(self) -> Relation: ...

    def event(self, release: Event, rounds: int = 1) -> Event: ...


def marked(event: Event, key: Key) -> Event:
    """The event as recorded in the ledger, marked if its noise comes from a reproducible key."""
    if isinstance(event, Thresholded):
        return dataclasses.replace(event, event=marked(event.event, key))
    if key.is_reproducible and isinstance(event, Gaussian | Laplace):
        return dataclasses.replace(event, reproducible=True)
    return event


def noise_on(key: Key, sums: Any) -> str:
    """The ledger's identification of reproducible noise, "KEY of SUMS": what it is added to and how; "" if secret.

    Both are digests under the key itself: only someone who knows the key, and with it the noise, could check a guess of
    the sums.
    """
    if not key.is_reproducible:
        return ""
    name, content = key.derive("name"), key.derive(f"sums {digest_of(sums)}")
    return f"{name.secret.hex()[:16]} of {content.secret.hex()[:16]}"


def publish(
    mechanism: Mechanism[T_co],
    total: BoundedSum,
    *,
    key: Key,
    ledger: Ledger,
    population: Payers,
    participation: _Participation | None = None,
    unit: Unit = Unit.CLIENT,
    run: str = "",
    note: str = "",
    split: Split | None = None,
    arm: str = "",
) -> Release[T_co]:
    """Record the event durably, and only then make and return the release.

    A crash in between leaves a cost without a value, never a value without its cost. A release that exceeds the
    population's budget is refused before any noise is drawn. A secret key draws new noise in every call, so passing it
    twice does no harm. A reproducible key is recorded as such, and every later guarantee for the population says so;
    reused on a second sum it protects nothing, and the event that is recorded and returned is `NonPrivate`.

    Args:
        mechanism: Mechanism that adds the noise.
        total: Bounded sum over clients.
        key: Root of the noise.
        ledger: Ledger that records the cost.
        population: Name of the clients in the ledger.
        participation: How the clients in `total` were sampled; None for no amplification.
        unit: What the guarantee protects, a client or an example.
        run: Name of the run in the ledger entry.
        note: Free text in the ledger entry.
        split: Split of the clients that contains `arm`.
        arm: The only clients that contribute anything but zeros; arms of a split are paid for in parallel.
    """
    event = marked(mechanism.event(total), key)
    relation = Relation.ADD_OR_REMOVE
    if participation is not None:
        event, relation = participation.event(event), participation.relation
    entry = ledger.record(
        event,
        population=population,
        unit=unit,
        relation=relation,
        run=run,
        note=note,
        split=split,
        arm=arm,
        noise=noise_on(key, [mechanism, total]),
    )
    return dataclasses.replace(mechanism.release(total, key=key.for_one_release()), event=from_json(entry.event))
