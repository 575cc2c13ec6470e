"""The training loop: draw a cohort, step, record, check the budget, checkpoint.

**Crashes.** Blocks of rounds are recorded in the ledger before they begin. After a crash it may count rounds that
nobody saw, but never misses one that somebody did. Resuming repeats the rounds since the last checkpoint. With a secret
key their noise is new, so they are paid for again. A reproducible run repeats them bit for bit: the same release,
already paid for under the run's id, except on other devices, which round differently.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting import accountants
from blindsight.accounting.assumptions import KEPT_SECRET
from blindsight.accounting.bayesian import BayesianDiagnostic
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Event, to_json
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.algorithms import Algorithm
from blindsight.backends import Backend
from blindsight.errors import BudgetExceeded, InvalidInput, PrivacyError
from blindsight.keys import Key
from blindsight.mechanisms.release import marked
from blindsight.participation import Unproven
from blindsight.privacy import Privacy
from blindsight.round_bar import round_bar
from blindsight.runs import Run
from blindsight.version import __version__

__all__ = ["Checkpointing", "Evaluation", "Terms", "Trained", "machine", "train"]

_SECRET = "secret"  # subfolder of the run
_SAVED = 10  # checkpoints of a run at least, one for each round if it has fewer

Evaluate = Callable[[Any], dict[str, float]]
"""A model to its metrics, computed without noise: they are stored as `simulation_only`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluates `function` every `every` rounds and at the end; only at the end if `every` is 0."""

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
    """When a run is saved: every `every_rounds` rounds, which are also paid for together, and `every_seconds`.

    A run of few rounds is saved at least ten times on the way, so that a killed run never starts from nothing.
    """

    every_rounds: int = 50
    every_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not self.every_rounds >= 1:
            raise InvalidInput(f"every_rounds must be at least 1 round, got {self.every_rounds}")
        if not self.every_seconds > 0:
            raise InvalidInput(f"every_seconds must be positive, got {self.every_seconds}")

    def rounds_of(self, rounds: int) -> int:
        """Rounds between checkpoints of a run of that many rounds.

        >>> Checkpointing(every_rounds=50).rounds_of(20), Checkpointing(every_rounds=50).rounds_of(2000)
        (2, 50)
        """
        return min(self.every_rounds, max(1, rounds // _SAVED))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """What the ledger and the guarantee need to know about a run besides its rounds.

    With `split` and `arm`, only clients of that arm may contribute anything but zeros: arms are paid for in parallel.
    The guarantee includes `before`, earlier releases about the same clients that are already paid for, and lists
    further `assumptions`.
    """

    split: Split | None = None
    arm: str = ""
    before: Sequence[Event] = ()
    assumptions: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, its guarantee, and the folder of its run."""

    model: Any
    guarantee: Guarantee
    rounds: int
    stopped: str  # "finished", or "budget": the next rounds would have exceeded it
    simulation_only: dict[str, float]
    path: Path
    bayesian: BayesianDiagnostic | None = None  # optional, simulation_only; not a guarantee

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight train --json`."""
        fields: dict[str, Any] = {
            "run": str(self.path),
            "rounds": self.rounds,
            "stopped": self.stopped,
            "guarantee": self.guarantee.to_dict(),
            "simulation_only": self.simulation_only,
        }
        return fields if self.bayesian is None else fields | {"bayesian": self.bayesian.to_dict()}


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

    **Guarantee**: `Trained.guarantee` holds for the model, every checkpoint, and `metrics.jsonl` except values marked
    `simulation_only`, provided that the run was not repeated with another ledger. The run folder does not reveal who
    took part, with one exception: unproven participation counts each client's rounds in `secret/`, and the guarantee
    assumes that nobody sees it. A reproducible key is bound to the data, the initial state, the privacy settings and
    the settings in `run.json`: if any of them changes, so does the noise, because two different sums with the same
    noise would reveal their difference. Settings that cannot be inspected, such as a learning rate inside an
    optimiser, must therefore be passed to `runs.begin(folder, name, settings)`.

    Args:
        algorithm: Computes a round, such as `dp_fedavg`.
        backend: Holds the clients, such as `Simulation`.
        privacy: Rounds, cohort, clip and noise.
        population: Name of the clients in the ledger.
        delta: Delta of the guarantee.
        key: Root of the run's randomness; secret by default. A reproducible key needs a run that states its settings.
        run: The run to resume; by default a new one under `runs/`, see `Trained.path`.
        ledger: Ledger that records the cost; the default ledger if omitted.
        evaluation: Metrics to compute during training; none by default.
        checkpointing: When to save the run; by default every 50 rounds, at least ten times, and every 5 minutes.
        terms: What else the ledger and the guarantee need to know.
        progress: Show a progress bar on stderr.
    """
    saving = checkpointing or Checkpointing()
    key, ledger, run = key or keys.root(), ledger or Ledger(), run or _new_run(key)
    loop = _Loop(algorithm, backend, privacy, population, delta, key, run, ledger, terms or Terms())
    loop.restore()
    whole = loop.promise(privacy)
    run.write("guarantee.json", whole.to_dict())
    with round_bar(privacy.rounds, loop.round, whole.epsilon, shown=progress) as show:
        stopped = "finished"
        while loop.round < privacy.rounds:
            last = loop.reserve(saving.rounds_of(privacy.rounds))
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
            "with a reproducible key, two runs without settings could share their noise: "
            "pass run=runs.begin(folder, name, settings) with all settings that training depends on"
        )
    return runs.create("train", {})


def machine() -> str:
    """Devices and versions on which a reproducible run repeats bit for bit; others round sums differently."""
    devices = jax.local_devices()
    return f"{len(devices)} {devices[0].device_kind}, jax {jax.__version__}, blindsight {__version__}"


class _Loop:
    """The state of a run between rounds: saved, restored and advanced."""

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
        if key.is_reproducible:  # another key draws different noise, which must be paid for again
            self.run_id += f", key {self.key.derive('name').secret.hex()[:16]}"

    def _facts(self) -> dict[str, Any]:
        """Every visible input of a round's sum; the number of rounds is none and may grow. State is the initial one."""
        return {
            "data": getattr(self.backend, "fingerprint", None),  # only a simulation has one
            "population": names_of(self.population),
            "state": [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)],
            "event": to_json(self.algorithm.event),
            "privacy": dataclasses.replace(self.privacy, rounds=1),
            "settings": self.run.settings(less=("privacy", "rounds")),
            "arm": self.terms.arm,
        }

    @property
    def event(self) -> Event:
        """The event of one round on its cohort."""
        return marked(self.algorithm.event, self.key)

    def reserve(self, rounds: int) -> int:
        """Pay for the next `rounds`, or as many as the budget allows; returns the end of the paid range (exclusive)."""
        if isinstance(self.sampling, Unproven):
            rounds = self.privacy.rounds  # the limit per client covers the whole run, so it is paid for as a whole
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
        """The end of the block in which this run has already paid for round `first`."""
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
        # on an accelerator the next round is prepared while this one is computed, but no further ahead
        jax.block_until_ready(self.state.params if jax.default_backend() == "cpu" else before.params)
        if event != self.algorithm.event:
            paid = self.algorithm.event
            raise PrivacyError(f"round {self.round} released {event} but {paid} was paid for: a step must release that")
        if isinstance(self.sampling, Unproven):
            self.participated[clients] += 1
        self.round += 1
        seconds = time.monotonic() - started
        self.clients_per_s = self.sampling.n_expected / seconds  # the realised number is secret
        # the duration reveals the realised number, so it is secret too; counts may not have been computed yet
        seen = {**cohort.simulation_only, "seconds": round(seconds, 6)}
        self.rows.append({"round": self.round, "clip": self.state.clip, "simulation_only": seen})

    def _draw(self, key: Key) -> np.ndarray:
        if isinstance(self.sampling, Unproven):
            everyone = np.arange(self.privacy.population)
            return self.sampling.draw(key=key, available=everyone, participated=self.participated)
        return self.sampling.draw(key=key)

    def note(self, measured: dict[str, float]) -> None:
        """Keep metrics computed without noise, marked as such."""
        self.measured = {name: float(value) for name, value in measured.items()}
        self.rows[-1]["simulation_only"] |= self.measured

    def guarantee(self) -> Guarantee:
        """The guarantee of the rounds so far."""
        if self.round == 0:
            raise BudgetExceeded(
                f"not even one round fits the budget of population {self.population!r}: raise it, or use more noise"
            )
        return self.promise(dataclasses.replace(self.privacy, rounds=self.round))

    def epsilon_so_far(self) -> float:
        """A quick upper bound on the epsilon of the rounds so far."""
        rounds = self.sampling.event(self.event, self.round)
        return accountants.epsilon_by_renyi(Composed((*self.before, rounds)), self.delta, self.sampling.relation)

    def promise(self, privacy: Privacy) -> Guarantee:
        """The guarantee of the rounds in `privacy`."""
        terms: dict[str, Any] = {"delta": self.delta, "before": self.before, "assumptions": self.assumptions}
        return privacy.guarantee(release=self.event, **terms)

    def flush(self) -> None:
        """Write metrics to disk."""
        for row in self.rows:
            seen = row["simulation_only"].items()
            counts = {name: value if isinstance(value, float) else int(value) for name, value in seen}
            self.run.append("metrics.jsonl", {**row, "clip": float(row["clip"]), "simulation_only": counts})
        self.rows, self.flushed_at = [], time.monotonic()

    def save(self) -> None:
        """Checkpoint everything that the rest of the run depends on."""
        self.flush()
        facts = {"round": self.round, "run": self.run_id, "ledger": self.head, "settings": self._settings()}
        if isinstance(self.sampling, Unproven):  # first, so that every checkpoint has its counts
            counts = {"participated": self.participated}
            checkpoints.write(self.run.path / _SECRET, self.round, counts, {"run": self.run_id}, secret=True)
        checkpoints.write(self.run.path, self.round, {"state": self.state}, facts)
        self.saved_at = time.monotonic()

    def restore(self) -> None:
        """Continue from the newest checkpoint, if any; refuses one with other settings."""
        path = checkpoints.newest(self.run.path)
        if path is None:
            self.run.keep_rows("metrics.jsonl", lambda row: False)
            return
        saved = checkpoints.load(path, {"state": self.state})
        if saved.facts["settings"] != self._settings():
            raise InvalidInput(
                f"{self.run.path} was started with other privacy settings or another type of key: resume "
                "it with those, or start another run"
            )
        self.ledger.verify(saved.facts["ledger"] or None).raise_if_broken()
        self.state, self.round, self.head = saved.tree["state"], saved.facts["round"], saved.facts["ledger"]
        if isinstance(self.sampling, Unproven):
            secret = checkpoints.path_of(self.run.path / _SECRET, self.round)  # older runs had the counts in `path`
            counts = checkpoints.load(secret if secret.exists() else path, {"participated": self.participated})
            self.participated = np.array(counts.tree["participated"])
        self.run.keep_rows("metrics.jsonl", lambda row: row["round"] <= self.round)

    def _settings(self) -> dict[str, Any]:
        """Settings that must not change during a run; the number of rounds may."""
        fixed = dataclasses.asdict(dataclasses.replace(self.privacy, rounds=1))
        fixed |= {"event": to_json(self.event), "delta": self.delta, "unit": str(self.privacy.unit)}
        return fixed | ({"before": [to_json(event) for event in self.before]} if self.before else {})
