"""How a site takes part in training: the algorithm's own step is run as far as its sum, with the model that was sent.

The site builds the algorithm from the job it approved: clip, noise and sampling rate are those of the settings. It
tosses its clients' coins itself, and never answers more sums than the job allows, which it pays for before the first.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from blindsight.accounting.events import Event
from blindsight.algorithms import Algorithm
from blindsight.backends import Simulation
from blindsight.backends.cohort import Bounds, ClientUpdate
from blindsight.data.population import Population
from blindsight.data.text import Vocabulary
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.job import Job
from blindsight.fleet.site.duties import OwnPart
from blindsight.jobs.fleet_settings import ready
from blindsight.jobs.site_questions import Keys, Pay, keys_of, part_of
from blindsight.keys import Key, root
from blindsight.participation import Full
from blindsight.privacy import Privacy
from blindsight.trees import BoundedSum, Tree

__all__ = ["OpenTraining"]


class _Answered(Exception):
    """This site's sum."""

    def __init__(self, total: BoundedSum) -> None:
        super().__init__()
        self.total = total


@dataclasses.dataclass
class _OwnCohort:
    """This site's clients in a round; what the coordinator sent takes the place of the broadcast."""

    backend: Simulation
    clients: np.ndarray
    n_expected: float
    key: Key
    sent: Sequence[bytes]
    simulation_only: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> NoReturn:
        """Sum this site's clients, and leave the step."""
        cohort = self.backend.cohort(self.clients, n_expected=self.n_expected, key=self.key)
        raise _Answered(cohort.sum(client_update, _as_sent(self.sent, broadcast), l2_bound=l2_bound, grid=grid))


def _as_sent(sent: Sequence[bytes], like: Tree) -> Tree:
    """The tree whose leaves were sent, with the shapes and types of `like`; finite, or it is refused."""
    leaves, structure = jax.tree.flatten(like)
    shapes = [np.asarray(leaf) for leaf in leaves]
    if [len(data) for data in sent] != [leaf.nbytes for leaf in shapes]:
        raise Declined(Code.malformed, "the model that was sent has another size than this job's")
    arrays = [np.frombuffer(data, leaf.dtype).reshape(leaf.shape) for data, leaf in zip(sent, shapes, strict=True)]
    if not all(np.isfinite(one).all() for one in arrays if one.dtype.kind == "f"):
        raise Declined(Code.malformed, "the model that was sent is not finite")
    return jax.tree.unflatten(structure, [jax.numpy.asarray(one) for one in arrays])


@dataclasses.dataclass(kw_only=True)
class OpenTraining:
    """A training run for which the site's data are open."""

    job: Job
    site: str
    backend: Simulation
    privacy: Privacy
    algorithm: Algorithm
    folder: Path
    pay: Pay

    @classmethod
    def of(
        cls, job: Job, site: str, clients: Population, words: Vocabulary | None, folder: Path, pay: Pay
    ) -> "OpenTraining":
        """The run that a job describes, on this site's clients."""
        _, task, privacy, algorithm = ready(job, clients, words)
        backend = Simulation(task.clients)
        backend.first_client = job.first(site)
        return cls(job=job, site=site, backend=backend, privacy=privacy, algorithm=algorithm, folder=folder, pay=pay)

    def part(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> OwnPart:
        """This site's part of a round."""
        if head.get("step") != "round":
            raise Declined(Code.malformed, "a training run has rounds and nothing else")
        keys = keys_of(self.job, head)
        mine = self._drawn(head, keys)
        share = self.privacy.cohort * self.backend.population.size / self.job.total
        cohort = _OwnCohort(self.backend, mine, max(share, 1.0), keys.clients, blobs)
        total = self._summed(cohort)
        noise = self.job.site_noise
        mechanism = None if noise is None else noise.mechanism(self.privacy.known_noise)
        return part_of(self.job, self.site, {"": total}, {"": mechanism}, keys.noise, self._paid)

    def _summed(self, cohort: _OwnCohort) -> BoundedSum:
        try:
            self.algorithm.step(self.algorithm.init(), cohort, key=root())
        except _Answered as answered:
            return answered.total
        raise Declined(Code.not_supported, "this algorithm takes no sum")

    def _drawn(self, head: Mapping[str, Any], keys: Keys) -> np.ndarray:
        """This site's clients in the round: each tosses its own coin here, with this site's own randomness."""
        size, first = self.backend.population.size, self.job.first(self.site)
        if isinstance(self.privacy.sampling, Full):
            return np.arange(size)
        if keys.noise.is_reproducible and isinstance(head.get("cohort"), list):  # the guarantee says so
            listed = np.array(head["cohort"], np.int64)
            return listed[(listed >= first) & (listed < first + size)] - first
        rate = self.privacy.cohort / self.privacy.population
        return np.flatnonzero(root().stream().bernoulli(rate, size))

    def _paid(self) -> None:
        """Pay for the whole run before its first sum, and count every sum on disk; no more than it allows.

        The file of the count begins just before the run is paid for. So an empty one says that nothing was sent, and a
        site that was killed in between does not pay for the run twice. A missing one says nothing: a run that was paid
        for before is then refused, and no file begins, or the next sum would find it and count from zero.
        """
        allowed, path = int(self.job.content["sums"]), self.folder / "sums"
        is_known = path.exists()
        done = path.stat().st_size if is_known else 0
        if done >= allowed:
            raise Declined(Code.budget, f"this job allows {allowed} sums, and all were answered")
        if done == 0:
            release = self.algorithm.event
            if self.job.reproducible:
                release = dataclasses.replace(release, reproducible=True)
            whole: Event = self.privacy.sampling.event(release, allowed)
            begin = functools.partial(_add, path, b"")
            self.pay(whole, f"{allowed} rounds of training", is_again=is_known, begin=begin)
        _add(path, b".")


def _add(path: Path, data: bytes) -> None:
    """Add to a file, on the disk."""
    with open(path, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
