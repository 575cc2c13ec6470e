"""`Job`: what the coordinator asks of every site, as data. A site decides on it before it opens any of its own."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Self

from blindsight.accounting import assumptions
from blindsight.errors import InvalidInput
from blindsight.fleet.noise_shares import SiteNoise
from blindsight.fleet.protocol import SPOKEN
from blindsight.fleet.secure_sum.terms import FEWEST_SITES, least_threshold
from blindsight.fleet.wire import MOST_CLIENTS
from blindsight.version import __version__

__all__ = ["INPUTS", "LARGEST_INPUT", "Job", "JobKind", "digest_of_job"]

JobKind = Literal["question", "training"]

INPUTS = {"model", "reference", "vocabulary"}
"""Names of what a job may bring with it."""

LARGEST_INPUT = 1 << 29
"""Bytes of a model, or of other public data, that a site accepts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One question, or one training run, with everything on which a site's answers depend besides its own data.

    Args:
        kind: `question` or `training`.
        run: Identity of the run; no two runs share it.
        content: The question as JSON, or the tables of RUN.toml.
        reading: How a site brings its own data into the question's fields, beyond the schema.
        clients: Number of clients that each site declares; public.
        noise: Who adds it: the `sites`, so that nobody sees a sum without noise, or the `coordinator`.
        fewest: Smallest number of sites whose sum is unmasked.
        colluding: Number of sites that the noise allows for, besides the coordinator.
        inputs: SHA-256 of each public input by its name, one of `INPUTS`.
        seed: Public randomness of the run, in hexadecimal.
        epsilon: What the job costs each client at most.
        delta: Delta of that.
        asker: Name of the asker.
        reproducible: Whether noise and cohorts follow from the asker's seed, and so hide nothing from the asker.
        protocol: What the parties have agreed to speak (`fleet.protocol`).
        version: The asker's version of Blindsight, for people to read.
    """

    kind: JobKind
    run: str
    content: Mapping[str, Any]
    clients: Mapping[str, int]
    noise: Literal["sites", "coordinator"]
    fewest: int
    colluding: int
    epsilon: float
    delta: float
    reading: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    seed: str = ""
    asker: str = ""
    reproducible: bool = False
    protocol: int = max(SPOKEN)
    version: str = __version__

    def __post_init__(self) -> None:
        sites = len(self.clients)
        if self.kind not in ("question", "training") or self.noise not in ("sites", "coordinator"):
            raise InvalidInput(f"a job is a question or training, with noise of the sites or the coordinator: {self}")
        if not sites or any(not 1 <= count <= MOST_CLIENTS for count in self.clients.values()):
            raise InvalidInput(f"every site of a job declares 1 to {MOST_CLIENTS:,} clients")
        if unknown := self.inputs.keys() - INPUTS:
            raise InvalidInput(
                f"public inputs of a job are {', '.join(sorted(INPUTS))}, not {sorted(unknown)[0]!r:.40}"
            )
        if self.noise == "sites" and sites < FEWEST_SITES:
            raise InvalidInput(
                f"noise at the sites needs {FEWEST_SITES} sites, and this fleet has {sites}: with fewer, a site learns "
                f"the part of another. Set noise = 'coordinator' in fleet.toml; the guarantee then says whom it trusts"
            )
        if self.is_secure and not least_threshold(sites) <= self.fewest <= sites:
            raise InvalidInput(
                f"of {sites} sites at least {least_threshold(sites)} must be in a sum, got {self.fewest}"
            )

    @property
    def is_secure(self) -> bool:
        """Whether parts are masked: with fewer than three sites there is nothing to hide a part among."""
        return len(self.clients) >= FEWEST_SITES

    @property
    def total(self) -> int:
        """Number of clients that all sites declare."""
        return sum(self.clients.values())

    def first(self, site: str) -> int:
        """The number of a site's first client among those of all sites in the order of their names."""
        return sum(count for name, count in self.clients.items() if name < site)

    @property
    def site_noise(self) -> SiteNoise | None:
        """The terms of the sites' noise; None if the coordinator adds it."""
        if self.noise == "coordinator":
            return None
        return SiteNoise(sites=len(self.clients), fewest=self.fewest, colluding=self.colluding, clients=self.total)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee for its answers assumes, beyond what noise of the sites says of itself."""
        if self.noise == "sites":
            return (assumptions.SITES_APART,)
        return (
            assumptions.TRUSTED_WITH_SUMS if self.is_secure else assumptions.TRUSTED_WITH_PARTS,
            assumptions.SITES_APART,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """The job that `to_dict` was called on; anything else is refused."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise InvalidInput("not the JSON of a job: its asker has another version of Blindsight")
        kinds = {"content": dict, "reading": dict, "clients": dict, "inputs": dict, "epsilon": float, "delta": float}
        kinds |= {"fewest": int, "colluding": int, "protocol": int, "reproducible": bool}
        for name, item in value.items():
            if type(item) is not kinds.get(name, str):
                raise InvalidInput(f"{name} of a job must be a {kinds.get(name, str).__name__}")
        if any(type(count) is not int for count in value["clients"].values()):
            raise InvalidInput("the number of clients of a site must be whole")
        return cls(**value)

    @property
    def digest(self) -> str:
        """Equal for equal jobs only."""
        return digest_of_job(self.to_dict())


def digest_of_job(values: Any) -> str:
    """The digest of a job as plain values, also of one that cannot be read here."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()
