"""`Fleet` and `FleetClients`: clients whose examples stay at their sites, accepted wherever a population is.

Of the clients themselves only what is public is here: their number, as the sites declare it, and their fields.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.job import Job, JobKind
from blindsight.fleet.noise_shares import SiteNoise
from blindsight.fleet.protocol import SPOKEN, agreed
from blindsight.fleet.sites import Sites
from blindsight.fleet.wire import MOST_CLIENTS
from blindsight.keys import digest_of

__all__ = ["Fleet", "FleetClients"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet as its coordinator knows it.

    Args:
        name: Name of the clients in the ledger.
        connect: Connects to the sites.
        sites: Names of all sites.
        noise: Who adds noise.
        fewest: Smallest number of sites whose sum is unmasked.
        colluding: Number of sites that the noise allows for, besides the coordinator.
        declared: Number of clients that each site declared when it was last seen.
        asker: Name of the asker, which sites check against their policies.
        wait_s: How long to wait for sites to approve.
    """

    name: str
    connect: Callable[[], Sites]
    sites: tuple[str, ...]
    noise: Literal["sites", "coordinator"]
    fewest: int
    colluding: int
    declared: Mapping[str, int]
    asker: str = ""
    wait_s: float = 600.0

    @functools.cached_property
    def lines(self) -> Sites:
        """The lines to the sites, connected once."""
        return self.connect()

    @functools.cached_property
    def _online(self) -> Mapping[str, Mapping[str, Any]]:
        """What each site that is online says of itself, asked once."""
        return self.lines.roll_call()

    @functools.cached_property
    def protocol(self) -> int:
        """What most of the sites that are online speak; the others refuse what is asked in it."""
        said = [head.get("protocols") for head in self._online.values()]
        return agreed(SPOKEN, [one for one in said if isinstance(one, list)])

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """Number of clients that each site declares: now if it is online, else when it was last seen."""
        there = {site: head.get("clients") for site, head in self._online.items()}
        # a number that nobody can have fills no memory here
        said = {site: one for site, one in there.items() if type(one) is int and 1 <= one <= MOST_CLIENTS}
        counts = {**self.declared, **said}
        if absent := [site for site in self.sites if site not in counts]:
            raise BlindsightError(f"{', '.join(absent)} never answered: start blindsight site run there")
        return {site: counts[site] for site in sorted(self.sites)}

    def clients(
        self, like: Population | None = None, *, schema: Schema | None = None, reading: Mapping[str, Any] | None = None
    ) -> "FleetClients":
        """The clients of all sites, with the fields of public data `like` theirs and those of `schema`.

        `reading` says how sites bring their data into these fields, as in `Job`.
        """
        fields = Schema() if schema is None else schema
        columns = {} if like is None else {n: np.zeros((0, *shape), dtype) for n, (dtype, shape) in like.fields.items()}
        columns |= {name: np.zeros((0, *field.shape), field.dtype) for name, field in fields.fields.items()}
        if not columns:
            raise InvalidInput("describe the sites' fields: name public data of the same kind, or give their types")
        named = {} if like is None else like.classes
        classes = {name: values for name, values in named.items() if name not in fields.fields} | fields.classes
        described = Population(columns, sizes=[0], name=self.name, classes=classes)
        return FleetClients(self, described, reading or {})

    def terms(self) -> SiteNoise | None:
        """The terms of the sites' noise; None if the coordinator adds it."""
        return self.job(kind="question", run="", content={}, epsilon=1.0, delta=0.5).site_noise

    def job(
        self,
        *,
        kind: JobKind,
        run: str,
        content: Mapping[str, Any],
        epsilon: float,
        delta: float,
        reading: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        seed: str = "",
        reproducible: bool = False,
    ) -> Job:
        """A job on this fleet's terms; the arguments are those of `Job`."""
        return Job(
            kind=kind,
            run=run,
            content=content,
            clients=self.counts,
            noise=self.noise,
            fewest=self.fewest,
            colluding=self.colluding,
            epsilon=epsilon,
            delta=delta,
            reading=reading or {},
            inputs=inputs or {},
            seed=seed,
            asker=self.asker,
            reproducible=reproducible,
            protocol=self.protocol,
        )


class FleetClients(Population):
    """The clients of a fleet: a population without examples, which only its sites have."""

    is_elsewhere = True

    def __init__(self, fleet: Fleet, like: Population, reading: Mapping[str, Any]) -> None:
        total = sum(fleet.counts.values())
        columns = {name: np.zeros((0, *shape), dtype) for name, (dtype, shape) in like.fields.items()}
        super().__init__(columns, sizes=np.zeros(total, np.int64), name=fleet.name, classes=like.classes)
        self.fleet, self.reading = fleet, reading

    def described(self, like: Population) -> "FleetClients":
        """The same clients with the fields of `like`."""
        return FleetClients(self.fleet, like, self.reading)

    def replace(self, columns: Mapping[str, np.ndarray], *, name: str | None = None) -> "FleetClients":
        """The same clients with other fields: what sites derive from their own."""
        return self.described(super().replace(columns, name=name))

    def keep(self, examples: np.ndarray) -> "FleetClients":
        """The same clients: sites leave examples out."""
        del examples
        return self

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies the fleet, not its data, which nobody here can read."""
        return digest_of(["fleet", self.name, self.fleet.counts])[:16]

    @property
    def content(self) -> str:
        """Identifies the fleet in the coordinator's ledger, whatever its sites hold at the moment."""
        return digest_of(["fleet", self.name, sorted(self.fleet.sites)])
