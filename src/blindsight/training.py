"""The one loop: choose a cohort, step, record, check the budget, checkpoint.

**What a crash can do.** Rounds are paid for in blocks, written to the ledger before the first of them begins. Whatever
is killed when, the ledger may hold rounds that nobody saw, never lack one that somebody did. Resuming repeats the
rounds since the last checkpoint. With a secret key their noise is new, so they are paid for again; a reproducible run
repeats them bit for bit, which is the same release, and its payment is found in the ledger under the run's own id. On
other devices it would round otherwise: there it pays again.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from blindsight import checkpoints, keys, runs
from blindsight.accounting.assumptions import KEPT_SECRET
from blindsight.accounting.bayesian import BayesianDiagnostic
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Event, to_json
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.algorithms import Algorithm
from blindsight.backends import Backend
from blindsight.errors import BudgetExceeded, InvalidInput, PrivacyError
from blindsight.keys import Key
from blindsight.mechanisms.release import marked
from blindsight.participation import Unproven
from blindsight.privacy import Privacy
from blindsight.runs import Run
from blindsight.version import __version__

__all__ = ["Checkpointing", "Evaluation", "Terms", "Trained", "machine", "train"]

_SECRET = "secret"  # a folder in the run's

Evaluate = Callable[[Any], dict[str, float]]
"""A model to numbers about it, read off data without noise: they are kept as `simulation_only`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is measured on the way: `function` after every `every` rounds, or at the end only if that is 0."""

    function: Evaluate
    every: int = 0

    def __post_init__(self) -> None:
        if not self.every >= 0:
            raise InvalidInput(f"every must be 0 (at the end only) or more rounds, got {self.every}")

    def is_due(self, done: int, rounds: int) -> bool:
        """Whether to measure after `done` of `rounds` rounds."""
        return done == rounds or (self.every > 0 and done % self.every == 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """When a run is saved: after so many rounds, which are also paid for together, and after so many seconds."""

    every_rounds: int = 50
    every_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not self.every_rounds >= 1:
            raise InvalidInput(f"every_rounds must be at least 1 round, got {self.every_rounds}")
        if not self.every_seconds > 0:
            raise InvalidInput(f"every_seconds must be positive, got {self.every_seconds}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What the ledger and the guarantee have to know of a run beside its rounds.

    With `split` and `arm` only clients of that arm may contribute anything but zeros: arms are paid for in parallel.
    What was released `before` about the same clients, and paid for, is within the guarantee, which says in words what
    else it rests on, `assumptions`.
    """

    split: Split | None = None
    arm: str = ""
    before: Sequence[Event] = ()
    assumptions: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, what it promises, and where its run lies."""

    model: Any
    guarantee: Guarantee
    rounds: int
    stopped: str  # "finished", or "budget": the next rounds would have exceeded it
    simulation_only: dict[str, float]
    path: Path
    bayesian: BayesianDiagnostic | None = None  # simulation_only, where it was asked for; no guarantee

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight train --json`."""
        found: dict[str, Any] = {
            "run": str(self.path),
            "rounds": self.rounds,
            "stopped": self.stopped,
            "guarantee": self.guarantee.to_dict(),
            "simulation_only": self.simulation_only,
        }
        return found if self.bayesian is None else found | {"bayesian": self.bayesian.to_dict()}


def train(
    algorithm: Algorithm,
    backend: Backend,
    privacy: Privacy,
    *,
    population: Payers,
    delta: float,
    key: Key | None = None,
    run: Run | None = None,
    ledger: Ledger | None = None,
    evaluation: Evaluation | None = None,
    checkpointing: Checkpointing | None = None,
    terms: Terms | None = None,
    progress: bool = False,
) -> Trained:
    """Train for `privacy.rounds` rounds, or until the budget of `population` in the ledger is spent; resumes `run`.

    **Guarantee**: `Trained.guarantee` holds for the model, for `metrics.jsonl` less what is marked `simulation_only`,
    and for every checkpoint, provided that the run was not repeated with another ledger. Nothing in the run's folder
    says who took part, except where participation is unproven: there each client's rounds are counted in `secret/`, and
    the guarantee says that nobody may see it. A reproducible key is bound to the data, the initial state, the privacy
    and the settings in the run's `run.json`: with any of them changed the noise is another. What no one can see, such
    as a learning rate inside an optimiser, belongs into these settings, `runs.begin(folder, name, settings)`. Two
    different sums under one noise would give their difference away.

    Args:
        algorithm: What a round does, such as `dp_fedavg`.
        backend: Where the clients are, such as `Simulation`.
        privacy: Rounds, cohort, clip and noise.
        population: Name of the clients in the ledger.
        delta: Delta of the guarantee.
        key: Root of the run's randomness; secret by default. A reproducible key needs a run that states its settings.
        run: Folder of the run, which resumes there; by default a new one under `runs/`, see `Trained.path`.
        ledger: Ledger that records the cost; the usual one by default.
        evaluation: What is measured on the way; nothing by default.
        checkpointing: When the run is saved; by default every 50 rounds and every 5 minutes.
        terms: What else the ledger and the guarantee have to know.
        progress: Show a progress bar on stderr.
    """
    saving = checkpointing or Checkpointing()
    key, ledger, run = key or keys.root(), ledger or Ledger(), run or _new_run(key)
    loop = _Loop(algorithm, backend, privacy, population, delta, key, run, ledger, terms or Terms())
    loop.restore()
    run.write("guarantee.json", loop.promise(privacy).to_dict())
    with _progress(privacy.rounds, loop.round, shown=progress) as show:
        stopped = "finished"
        while loop.round < privacy.rounds:
            last = loop.reserve(saving.every_rounds)
            if last == loop.round:
                stopped = "budget"
                break
            while loop.round < last:
                loop.step()
                if evaluation and evaluation.is_due(loop.round, privacy.rounds):
                    loop.note(evaluation.function(algorithm.model(loop.state)))
                if loop.round == last or time.monotonic() - loop.saved_at > saving.every_seconds:
                    loop.save()
                elif time.monotonic() - loop.flushed_at > 1:
                    loop.flush()
                show(loop)
    model, rounds = algorithm.model(loop.state), loop.round
    guarantee = loop.guarantee()
    run.write("guarantee.json", guarantee.to_dict())
    measured = loop.measured or (evaluation.function(model) if evaluation else {})
    run.write("result.json", {"rounds": rounds, "stopped": stopped, "simulation_only": measured})
    return Trained(model, guarantee, rounds, stopped, measured, run.path)


def _new_run(key: Key | None) -> Run:
    """A new run without settings. Under a reproducible key two such runs could share their noise."""
    if key is not None and key.is_reproducible:
        raise InvalidInput(
            "a reproducible key needs a run with the settings that training depends on, or two runs could share their "
            "noise: pass run=runs.begin(folder, name, settings)"
        )
    return runs.create("train", {})


def machine() -> str:
    """What a reproducible run is reproducible on: elsewhere sums are rounded otherwise, and are other releases."""
    devices = jax.local_devices()
    return f"{len(devices)} {devices[0].device_kind}, jax {jax.__version__}, blindsight {__version__}"


class _Loop:
    """The state of a run between rounds, and how it is saved and restored."""

    def __init__(
        self,
        algorithm: Algorithm,
        backend: Backend,
        privacy: Privacy,
        population: Payers,
        delta: float,
        key: Key,
        run: Run,
        ledger: Ledger,
        terms: Terms,
    ) -> None:
        self.terms, self.before = terms, tuple(terms.before)
        secret = (KEPT_SECRET,) if isinstance(privacy.sampling, Unproven) else ()
        self.assumptions = (*terms.assumptions, *secret)
        self.algorithm, self.backend, self.privacy = algorithm, backend, privacy
        self.population, self.delta, self.run, self.ledger = population, delta, run, ledger
        self.sampling = privacy.sampling
        self.state = algorithm.init()
        self.key = key.bound_to(self._facts)
        self.participated = np.zeros(privacy.population if isinstance(self.sampling, Unproven) else 0, np.int32)
        self.round = 0
        self.rows: list[dict[str, Any]] = []
        self.measured: dict[str, float] = {}
        self.clients_per_s = 0.0
        self.saved_at = self.flushed_at = time.monotonic()
        self.head = ""
        self.run_id = f"{run.path.name} {run.read('run.json')['id']} on {machine()}"
        if key.is_reproducible:  # another key draws other noise, which is to be paid for anew
            self.run_id += f", key {self.key.derive('name').secret.hex()[:16]}"

    def _facts(self) -> dict[str, Any]:
        """All that can be seen of what decides a round's sum; `self.state` is still the one that training begins with.

        The number of rounds may grow, and no round's sum depends on it.
        """
        return {
            "data": getattr(self.backend, "fingerprint", None),  # a simulation knows its data
            "population": names_of(self.population),
            "state": [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)],
            "event": to_json(self.algorithm.event),
            "privacy": dataclasses.replace(self.privacy, rounds=1),
            "settings": self.run.settings(less=("privacy", "rounds")),
            "arm": self.terms.arm,
        }

    @property
    def event(self) -> Event:
        """What one round releases about its cohort."""
        return marked(self.algorithm.event, self.key)

    def reserve(self, rounds: int) -> int:
        """Pay for the next `rounds`, or for as many as the budget allows; returns the round they end before."""
        if isinstance(self.sampling, Unproven):
            rounds = self.privacy.rounds  # a client's limit is for the whole run, so the run is paid for as a whole
        first, last = self.round, min(self.privacy.rounds, (self.round // rounds + 1) * rounds)
        if self.key.is_reproducible and (paid := self._paid_until(first)):
            return paid
        while last > first:
            try:
                entry = self.ledger.record(
                    self.sampling.event(self.event, last - first),
                    population=self.population,
                    unit=self.privacy.unit,
                    relation=self.sampling.relation,
                    run=self.run_id,
                    note=f"rounds {first} to {last}",
                    split=self.terms.split,
                    arm=self.terms.arm,
                )
                self.head = entry.hash
                return last
            except BudgetExceeded:
                if isinstance(self.sampling, Unproven):
                    raise
                last = first + (last - first) // 2
        return first

    def _paid_until(self, first: int) -> int | None:
        """Where the block of rounds ends in which this very run has already paid for round `first`."""
        for entry in self.ledger.entries(names_of(self.population)[-1]):
            if entry.kind == "release" and entry.run == self.run_id:
                begin, end = (int(word) for word in entry.note.removeprefix("rounds ").split(" to "))
                paid = to_json(self.sampling.event(self.event, end - begin))
                if begin <= first < end and entry.event == paid:
                    self.head = entry.hash
                    return end
        return None

    def step(self) -> None:
        """One round."""
        started, key = time.monotonic(), self.key
        clients = self._draw(key.derive("cohort", self.round))
        cohort = self.backend.cohort(
            clients, n_expected=self.sampling.n_expected, key=key.derive("clients", self.round)
        )
        before = self.state
        self.state, event = self.algorithm.step(before, cohort, key=key.derive("noise", self.round))
        # on an accelerator this round may still be computed while the next is prepared, no more
        jax.block_until_ready(self.state.params if jax.default_backend() == "cpu" else before.params)
        if event != self.algorithm.event:
            raise PrivacyError(
                f"round {self.round} released {event} but {self.algorithm.event} was paid for: "
                f"an algorithm's step must release exactly its event"
            )
        if isinstance(self.sampling, Unproven):
            self.participated[clients] += 1
        self.round += 1
        seconds = time.monotonic() - started
        self.clients_per_s = self.sampling.n_expected / seconds  # how many came is a secret
        # how long a round takes tells how many came, which is a secret too; counts may not have been computed yet
        seen = {**cohort.simulation_only, "seconds": round(seconds, 6)}
        self.rows.append({"round": self.round, "clip": self.state.clip, "simulation_only": seen})

    def _draw(self, key: Key) -> np.ndarray:
        if isinstance(self.sampling, Unproven):
            everyone = np.arange(self.privacy.population)
            return self.sampling.draw(key=key, available=everyone, participated=self.participated)
        return self.sampling.draw(key=key)

    def note(self, measured: dict[str, float]) -> None:
        """Keep numbers that were read off data without noise, marked as such."""
        self.measured = {name: float(value) for name, value in measured.items()}
        self.rows[-1]["simulation_only"] |= self.measured

    def guarantee(self) -> Guarantee:
        """What the rounds so far promise."""
        if self.round == 0:
            raise BudgetExceeded(
                f"not even one round fits the budget of population {self.population!r}: raise it, or use more noise"
            )
        return self.promise(dataclasses.replace(self.privacy, rounds=self.round))

    def promise(self, privacy: Privacy) -> Guarantee:
        """The guarantee of the rounds in `privacy`."""
        about: dict[str, Any] = {"delta": self.delta, "before": self.before, "assumptions": self.assumptions}
        return privacy.guarantee(release=self.event, **about)

    def flush(self) -> None:
        """Bring what was measured to disk."""
        for row in self.rows:
            counts = {
                name: value if isinstance(value, float) else int(value)
                for name, value in row["simulation_only"].items()
            }
            self.run.append("metrics.jsonl", {**row, "clip": float(row["clip"]), "simulation_only": counts})
        self.rows, self.flushed_at = [], time.monotonic()

    def save(self) -> None:
        """A checkpoint of everything that the rest of the run depends on."""
        self.flush()
        facts = {"round": self.round, "run": self.run_id, "ledger": self.head, "settings": self._settings()}
        if isinstance(self.sampling, Unproven):  # first, so that no checkpoint is without its counts
            counts = {"participated": self.participated}
            checkpoints.write(self.run.path / _SECRET, self.round, counts, {"run": self.run_id}, secret=True)
        checkpoints.write(self.run.path, self.round, {"state": self.state}, facts)
        self.saved_at = time.monotonic()

    def restore(self) -> None:
        """Continue from the newest checkpoint, if there is one; refuses to continue as another run."""
        path = checkpoints.newest(self.run.path)
        if path is None:
            self.run.keep_rows("metrics.jsonl", lambda row: False)
            return
        found = checkpoints.load(path, {"state": self.state})
        if found.facts["settings"] != self._settings():
            raise InvalidInput(
                f"{self.run.path} was started with other privacy settings or another kind of key: resume "
                "it with those, or start another run"
            )
        self.ledger.verify(found.facts["ledger"] or None).raise_if_broken()
        self.state, self.round, self.head = found.tree["state"], found.facts["round"], found.facts["ledger"]
        if isinstance(self.sampling, Unproven):
            kept = checkpoints.path_of(self.run.path / _SECRET, self.round)
            counts = checkpoints.load(kept if kept.exists() else path, {"participated": self.participated})  # as before
            self.participated = np.array(counts.tree["participated"])
        self.run.keep_rows("metrics.jsonl", lambda row: row["round"] <= self.round)

    def _settings(self) -> dict[str, Any]:
        """Settings that may not change during a run; the number of rounds may."""
        fixed = dataclasses.asdict(dataclasses.replace(self.privacy, rounds=1))
        fixed |= {"event": to_json(self.event), "delta": self.delta, "unit": str(self.privacy.unit)}
        return fixed | ({"before": [to_json(event) for event in self.before]} if self.before else {})


@contextlib.contextmanager
def _progress(rounds: int, begun: int, *, shown: bool) -> Generator[Callable[[_Loop], None]]:
    """A bar with the round, clients per second, epsilon so far and the time left."""
    if not shown:
        yield lambda loop: None
        return
    words = [TextColumn("round"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[speed]:,.0f} clients/s")]
    words += [TextColumn("epsilon {task.fields[epsilon]}"), TimeRemainingColumn()]
    with Progress(*words, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=rounds, completed=begun, speed=0.0, epsilon="...")
        stated_at = 0

        def show(loop: _Loop) -> None:
            nonlocal stated_at
            fields: dict[str, Any] = {"speed": loop.clients_per_s}
            if loop.round in (rounds, begun + 1) or loop.round >= 1.1 * stated_at:  # it takes a while to compute
                fields["epsilon"], stated_at = round_up(loop.guarantee().epsilon), loop.round
            bar.update(task, completed=loop.round, **fields)

        yield show
