"""A question asked of a fleet: the job that all sites take, and the backend of each of its rounds.

What a site needs to build a round is the question, its public inputs, and the releases so far, which are the files of
the run's folder. So the coordinator's inquiry stays what it is in a simulation; only `Cohort.sum` is elsewhere.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from blindsight import checkpoints
from blindsight.backends import Backend
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.fleet.backend import FleetBackend, mechanisms_of
from blindsight.fleet.clients import FleetClients
from blindsight.fleet.job import Job
from blindsight.fleet.opening import open_job
from blindsight.inspection.answering import Round
from blindsight.inspection.public_inputs import pack
from blindsight.inspection.question import Public, Question
from blindsight.keys import Key
from blindsight.progress import Progress
from blindsight.runs import Run
from blindsight.wording import percent

__all__ = ["OnFleet", "check_can_be_asked", "nobody_here"]

_MISSED = "fleet.json"  # which sites were not in which sum


def check_can_be_asked(question: Question) -> None:
    """Refuse what a fleet cannot answer yet, before anything is sent."""
    more = {"training": "--train", "discover": "--discover"}
    language = getattr(question, "language", None)
    for name, option in more.items():
        if getattr(question, name, None) or getattr(language, name, None):
            raise InvalidInput(f"a fleet measures in single rounds and cannot do {option} yet: leave it out")
    if getattr(question, "forming", "zero_fill") != "zero_fill":
        raise InvalidInput("a fleet cannot know which clients are in an arm: leave out --forming eligible")


def nobody_here(population: Population) -> Backend:
    """The backend of a fleet's question outside its rounds: the coordinator has no examples to compute on."""
    raise InvalidInput(
        f"a fleet measures in single rounds, and this question asks for more of {population.name}: leave out lists of "
        f"words, --discover and --train"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnFleet:
    """A question that the sites of a fleet have taken."""

    clients: FleetClients
    job: Job
    run: Run
    progress: Progress

    @classmethod
    def open(
        cls,
        clients: FleetClients,
        question: Question,
        public: Public,
        run: Run,
        progress: Progress,
        *,
        reproducible: bool,
    ) -> "OnFleet":
        """Ask the sites to take the question; enough of them must."""
        inputs = pack(public)
        job = clients.fleet.job(
            kind="question",
            run=run.read("run.json")["id"],
            content=question.to_dict(),
            reading=dict(clients.reading),
            inputs={name: hashlib.sha256(data).hexdigest() for name, data in inputs.items()},
            seed=public.seed.hex(),
            epsilon=float(question.epsilon),
            delta=float(question.delta),
            reproducible=reproducible,
        )
        absent = open_job(
            clients.fleet.lines,
            job,
            inputs,
            wait_s=clients.fleet.wait_s,
            progress=lambda words: progress(words, 0, 1),
            heard=lambda said: run.write_sites(job.digest, said),
        )
        before = run.read(_MISSED)["missed"] if (run.path / _MISSED).exists() else {}  # of a run that continues
        run.write(_MISSED, {"job": job.digest, "absent": absent, "missed": before})
        return cls(clients=clients, job=job, run=run, progress=progress)

    def mechanisms(self, one: Round) -> dict[str, Any]:
        """The round's noise; the job says who adds it."""
        return mechanisms_of(self.job, one.mechanisms)

    def backend(self, one: Round, observed: Population, key: Key) -> FleetBackend:
        """All clients of all sites, for this round, whose randomness descends from `key`."""
        before = [(path.name, checkpoints.newest(path)) for path in sorted((self.run.path / "rounds").glob("*/"))]
        files = {name: path for name, path in before if path is not None}
        return FleetBackend(
            sites=self.clients.fleet.lines,
            job=self.job,
            step={"step": one.name, "rounds": list(files)},
            blobs=tuple(path.read_bytes() for path in files.values()),
            like=observed,
            mechanisms=self.mechanisms(one),
            noise_key=key.derive("noise"),
            progress=lambda waiting: self.progress(f"waiting for {', '.join(sorted(waiting))}", 0, 1),
            missed=lambda missing: self._note(one.name, missing),
        )

    def notes(self) -> tuple[str, ...]:
        """Which sites are missing from the report, in words."""
        noted = self.run.read(_MISSED)
        missing = sorted({site for sites in noted["missed"].values() for site in sites})
        if not missing:
            return ()
        return (
            f"{', '.join(missing)} took no part in at least one round. Their clients count as if they sent nothing: "
            f"shares of all clients are too low by up to {percent(self._share(missing))}.",
        )

    def _share(self, missing: list[str]) -> float:
        return sum(self.job.clients[site] for site in missing) / self.job.total

    def _note(self, step: str, missing: Mapping[str, str]) -> None:
        noted = self.run.read(_MISSED)
        self.run.write(_MISSED, {**noted, "missed": {**noted["missed"], step: dict(missing)}})
