"""Clients of a fleet, where a request names one. Needs the extra `fleet`; refusals name it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput
from blindsight.jobs.request import Request

if TYPE_CHECKING:
    from blindsight.fleet.clients import Fleet

__all__ = ["described_like", "fleet_at", "fleet_clients"]


def fleet_clients(
    request: Request,
    reference: Population | None,
    schema: Schema,
    *,
    reading: Mapping[str, Any] | None = None,
) -> Population:
    """The clients of the request's fleet, with the fields that its public data and its schema describe."""
    fleet = fleet_at(request.fleet or "", asker=request.asker, wait_s=request.wait)
    return fleet.clients(reference, schema=schema, reading=reading)


def fleet_at(folder: str | Path, *, asker: str | None = None, wait_s: float = 600.0) -> "Fleet":
    """The fleet in a folder."""
    try:
        from blindsight.fleet.asking import fleet_of
    except ModuleNotFoundError as error:
        raise InvalidInput(f"--fleet needs the package {error.name}: pip install 'blindsight[fleet]'") from None
    return fleet_of(folder, asker=asker, wait_s=wait_s)


def described_like(clients: Population, like: Population) -> Population:
    """The clients of a fleet with the fields of `like`."""
    from blindsight.fleet.clients import FleetClients

    return clients.described(like) if isinstance(clients, FleetClients) else like
