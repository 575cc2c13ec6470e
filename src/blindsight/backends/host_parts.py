"""A simulation over several hosts: each holds its own part of the clients, and sums are added across hosts.

Host 0 leads. For every sum it sends the others the cohort, the round's client key and the broadcast to clients; each
host sums its own clients, and the partial sums meet in one collective. On a mechanism's grid they are whole numbers, so
the total is bit for bit the one of a single host, however clients are divided. The roots of sampling and noise
never leave host 0, and neither does the ledger. So the other hosts cannot spend budget or add noise, and they use no
total.
"""

import dataclasses
import itertools
from typing import Any, NoReturn

import jax
import numpy as np

from blindsight.backends.cohort import Bounds, ClientUpdate, bounded_sums, check_cohort
from blindsight.backends.hosts import Hosts
from blindsight.backends.simulation import SimulatedCohort, Simulation, capacities_of, size_of_all
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key, digest_of
from blindsight.trees import Tree

__all__ = ["Answered", "FollowingCohort", "HostParts", "LeadingCohort"]

_KEY_BYTES = 32


class Answered(Exception):
    """Not an error: this host has added its part to the sum, and host 0 does the rest of the step."""


class HostParts:
    """The clients of `population`, of which this host computes its own part, `first` to `last`."""

    def __init__(self, population: Population, hosts: Hosts, *, chunk: int | None = None) -> None:
        self.population, self.hosts = population, hosts
        edges = _edges(population, hosts.count)
        self.first, self.last = edges[hosts.index], edges[hosts.index + 1]
        self.part = _Part(population, self.first, self.last, chunk)
        fields = {field: (str(dtype), shape) for field, (dtype, shape) in population.fields.items()}
        hosts.agree(digest_of([population.name, population.sizes, fields]), "clients")
        self._agree_on_examples(edges)

    def _agree_on_examples(self, edges: list[int]) -> None:
        """Refuse a host whose own part holds other examples than host 0's copy of it.

        Host 0 binds reproducible noise to the data, and recognises them in the ledger, by its own copy. If a part had
        changed elsewhere, two runs would have the same noise on different sums.
        """
        parts = [_between(self.population, *pair) for pair in itertools.pairwise(edges)] if self.hosts.is_writer else []
        expected = self.hosts.tell(b"".join(bytes.fromhex(part.fingerprint) for part in parts))
        own = bytes.fromhex(self.part.population.fingerprint)
        differs = np.zeros(self.hosts.count, np.int32)
        differs[self.hosts.index] = expected[self.hosts.index * len(own) :][: len(own)] != own
        others = np.flatnonzero(np.asarray(self.hosts.sum(differs)))
        if others.size:
            named = ", ".join(map(str, others.tolist()))
            raise InvalidInput(f"host {named} has other examples of its clients than host 0: give all hosts the same")

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all clients on all hosts."""
        return self.population.fingerprint

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> "LeadingCohort":
        """The cohort of these clients, on host 0."""
        check_cohort(clients, self.population)
        return LeadingCohort(self, clients, n_expected, key)

    def own(self, clients: np.ndarray, n_expected: float, key: Key) -> SimulatedCohort:
        """This host's clients among those of a cohort."""
        mine = clients[(clients >= self.first) & (clients < self.last)] - self.first
        share = n_expected * self.part.population.size / self.population.size
        return SimulatedCohort(self.part, mine, share, key, 0)


@dataclasses.dataclass
class LeadingCohort:
    """Host 0's side of a sum."""

    backend: HostParts
    clients: np.ndarray
    n_expected: float
    key: Key
    _counts: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def simulation_only(self) -> dict[str, Any]:
        """Counts of clients in the last sum, over all hosts."""
        return {"dropped_out": 0, **self._counts}

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """As `Cohort.sum`, over all hosts."""
        if self._counts:
            raise InvalidInput("over several hosts an algorithm may sum once in a round: use one host")
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(broadcast)]
        clients = self.clients.astype("<i8")
        head = np.array([len(clients)], "<i8").tobytes() + np.array([self.n_expected], "<f8").tobytes()
        body = b"".join(leaf.tobytes() for leaf in leaves)
        self.backend.hosts.tell(head + self.key.secret + clients.tobytes() + body)
        own = self.backend.own(self.clients, self.n_expected, self.key)
        partial = own.totals(client_update, broadcast, l2_bound=l2_bound, grid=grid)
        totals, self._counts = self.backend.hosts.sum(partial)
        return bounded_sums(totals, l2_bound, grid, self.n_expected)


@dataclasses.dataclass
class FollowingCohort:
    """Another host's side of a sum that host 0 requested in `message`."""

    backend: HostParts
    message: bytes
    simulation_only: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> NoReturn:
        """Add this host's part, computed from host 0's broadcast instead of `broadcast`, and leave the step."""
        count = int(np.frombuffer(self.message, "<i8", 1)[0])
        n_expected = float(np.frombuffer(self.message, "<f8", 1, offset=8)[0])
        key = Key(self.message[16 : 16 + _KEY_BYTES])
        clients = np.frombuffer(self.message, "<i8", count, offset=16 + _KEY_BYTES).astype(np.int64)
        sent = _unpacked(self.message[16 + _KEY_BYTES + 8 * count :], broadcast)
        own = self.backend.own(clients, n_expected, key)
        self.backend.hosts.sum(own.totals(client_update, sent, l2_bound=l2_bound, grid=grid))
        raise Answered


class _Part(Simulation):
    """The clients `first` to `last` of `whole`, computed as they would be among all."""

    def __init__(self, whole: Population, first: int, last: int, chunk: int | None) -> None:
        super().__init__(_between(whole, first, last), chunk=chunk)
        self.first_client = first
        self.capacities, self.uniform = capacities_of(whole.sizes), size_of_all(whole.sizes)


def _edges(population: Population, count: int) -> list[int]:
    """Where each host's clients begin and end: parts of nearly equal cost, in order, so that memory maps are too."""
    if population.size < count:
        raise InvalidInput(f"{population.name} has {population.size} clients, fewer than the {count} hosts")
    cost = population.offsets + np.arange(population.size + 1)  # a client without examples also has a cost
    edges = np.searchsorted(cost, np.linspace(0, cost[-1], count + 1))
    for host in range(1, count):  # every host has at least one client
        edges[host] = min(max(edges[host], edges[host - 1] + 1), population.size - count + host)
    return edges.tolist()


def _between(population: Population, first: int, last: int) -> Population:
    """The clients `first` to `last` without a copy: slices of a memory map are memory maps."""
    if isinstance(population, GeneratedPopulation):
        return population.select(np.arange(first, last))
    rows = slice(int(population.offsets[first]), int(population.offsets[last]))
    return Population(
        {field: column[rows] for field, column in population.columns.items()},
        sizes=population.sizes[first:last],
        ids=population.ids[first:last],
        name=population.name,
        classes=population.classes,
        synthetic=population.synthetic,
    )


def _unpacked(body: bytes, like: Tree) -> Tree:
    """The tree whose leaves are in `body`, with the shapes and types of `like`."""
    leaves, structure = jax.tree.flatten(like)
    shapes = [np.asarray(leaf) for leaf in leaves]
    if sum(leaf.nbytes for leaf in shapes) != len(body):
        raise InvalidInput("host 0 sent other parameters than this host's settings describe: give all hosts the same")
    ends = np.cumsum([leaf.nbytes for leaf in shapes])
    parts = [np.frombuffer(body[end - leaf.nbytes : end], leaf.dtype) for leaf, end in zip(shapes, ends, strict=True)]
    sent = [part.reshape(leaf.shape) for part, leaf in zip(parts, shapes, strict=True)]
    return jax.tree.unflatten(structure, [jax.numpy.asarray(leaf) for leaf in sent])
