"""How a site answers a question: it builds the round that is asked itself.

A round follows from the question, public inputs and earlier releases. So a site goes through the same `rounds` as the
coordinator, with the releases that it was sent in place of measurements; where a release is missing, that is the round
to answer. The coordinator cannot ask anything that the approved question would not ask.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import checkpoints
from blindsight.accounting.events import Event
from blindsight.backends import Simulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.fleet.backend import NOISED_BY_COORDINATOR_BITS, mechanisms_of
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.job import Job
from blindsight.fleet.noise_shares import NoiseShares
from blindsight.fleet.site.duties import OwnPart
from blindsight.inspection.answering import Round
from blindsight.inspection.measuring import client_update
from blindsight.inspection.on_fleet import check_can_be_asked
from blindsight.inspection.question import Public, Question
from blindsight.inspection.session import release_of, server_half
from blindsight.inspection.tasks import question_from
from blindsight.keys import Key, root
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.mechanisms.release import marked
from blindsight.progress import quiet
from blindsight.trees import BoundedSum

__all__ = ["Keys", "OpenQuestion", "Pay", "keys_of", "part_of"]


class Pay(Protocol):
    """Pays for an event, with a note, or raises `Declined`; `is_again` and `begin` as in `Book.pay`."""

    def __call__(
        self, event: Event, note: str, /, *, is_again: bool = False, begin: Callable[[], None] = lambda: None
    ) -> None:
        """Pay."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """A question for which the site's data are open.

    Args:
        job: The job.
        site: Name of this site.
        clients: This site's clients.
        public: The public inputs.
        folder: Folder of the job, where releases are kept as in a run.
        pay: Pays for what is about to leave.
    """

    job: Job
    site: str
    clients: Population
    public: Public
    folder: Path
    pay: Pay

    def part(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> OwnPart:
        """This site's part of the round that the coordinator asks for."""
        question = question_from(self.job.content)
        self._keep_releases(head.get("rounds"), blobs)
        one = self._due(question)
        if one.name != head.get("step"):
            raise Declined(
                Code.malformed, f"the coordinator asks for {head.get('step')!r}, and the next round is {one.name!r}"
            )
        population = one.fields_of(one.observed(self.clients))
        mechanisms = mechanisms_of(self.job, one.mechanisms)
        bounds = {part.name: float(part.bound) for part in one.parts}
        grid = {name: mechanisms[name].grid(bound) for name, bound in bounds.items()}
        backend = Simulation(population)
        backend.first_client = self.job.first(self.site)
        keys = keys_of(self.job, head)
        cohort = backend.cohort(np.arange(population.size), n_expected=float(population.size), key=keys.clients)
        sums = cohort.sum(client_update(one.arms, tuple(one.parts)), jnp.zeros(()), l2_bound=bounds, grid=grid)
        event = marked(joint(*(mechanisms[part.name].planned_event for part in one.parts)), keys.noise)
        return part_of(self.job, self.site, sums, mechanisms, keys.noise, lambda: self.pay(event, one.note))

    def _keep_releases(self, names: Any, blobs: Sequence[bytes]) -> None:
        """The releases of earlier rounds, as files of this job's folder."""
        listed: list[Any] = names if isinstance(names, list) else []
        if len(listed) != len(blobs) or not all(isinstance(name, str) and name.isidentifier() for name in listed):
            raise Declined(Code.malformed, "the releases so far are not named one by one")
        for name, data in zip(listed, blobs, strict=True):
            path = checkpoints.path_of(self.folder / "rounds" / name, 1)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(".partial")  # a release is there whole, or not at all
                scratch.write_bytes(data)
                scratch.replace(path)

    def _due(self, question: Question) -> Round:
        """The first round whose release is missing."""
        try:
            check_can_be_asked(question)
        except InvalidInput as error:
            raise Declined(Code.not_supported, str(error)) from error
        rounds = server_half(question).rounds(question, self.public, quiet)
        try:
            one = next(rounds)
            while path := checkpoints.newest(self.folder / "rounds" / one.name):
                one = rounds.send(release_of(one, path, question.delta)[0])
        except StopIteration:
            raise Declined(Code.malformed, "every round of this question was asked already") from None
        return one


@dataclasses.dataclass(frozen=True)
class Keys:
    """Randomness of a sum: the clients' own, which is public, and the noise's, which this site alone knows."""

    clients: Key
    noise: Key


def keys_of(job: Job, head: Mapping[str, Any]) -> Keys:
    """The randomness of a sum: the clients' as it was sent; the noise's is this site's own, or a reproducible run's.

    **Guarantee**: unless the job that was approved is reproducible, nobody else knows the noise or the cohort.
    """
    if ("noise_key" in head or "cohort" in head) and not job.reproducible:
        raise Declined(Code.policy, "the coordinator sent noise or a cohort for a job that is not reproducible")
    try:
        clients = Key(bytes.fromhex(str(head.get("client_key"))))
        is_open = "noise_key" in head  # a reproducible run, whose guarantee says so
        noise = Key(bytes.fromhex(str(head["noise_key"])), is_reproducible=True) if is_open else root()
    except ValueError as error:
        raise Declined(Code.malformed, "the clients' randomness is not a key") from error
    return Keys(clients, noise)


def part_of(
    job: Job,
    site: str,
    sums: Mapping[str, BoundedSum],
    mechanisms: Mapping[str, Any],
    noise: Key,
    pay: Callable[[], None],
) -> OwnPart:
    """The parts of a sum one after the other, with this site's share of the noise in them if sites add it.

    Args:
        job: The job.
        site: Name of this site.
        sums: This site's sum of each part.
        mechanisms: The noise of each part.
        noise: Key of this site's share, used for nothing else.
        pay: Pays for the sum; called before the numbers leave.
    """
    place = 1 + sorted(job.clients).index(site)
    numbers: list[np.ndarray] = []
    bits = NOISED_BY_COORDINATOR_BITS
    for name in sorted(sums):
        mechanism = mechanisms[name]
        if isinstance(mechanism, NoiseShares):
            bits = mechanism.modulus_bits
            numbers.append(mechanism.contribution(sums[name], place=place, key=noise.derive(name) if name else noise))
        else:
            numbers.append(_whole(sums[name]).astype(f"<u{bits // 8}"))
    return OwnPart(np.concatenate(numbers), bits, pay)


def _whole(total: BoundedSum) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).astype(np.int64).ravel() for leaf in jax.tree.leaves(total.value)])
