"""The training loop: draw a cohort, pay, step, record, checkpoint.

**Crashes.** Blocks of rounds are recorded in the ledger before they begin. After a crash it may count rounds that
nobody saw, but never misses one that somebody did. Resuming repeats the rounds since the last checkpoint. With a secret
key their noise is new, so they are paid for again. A reproducible run repeats them bit for bit: the same release,
already paid for under the run's id, except on other devices, which round differently.
"""

import dataclasses
import functools
import time
from pathlib import Path
from typing import Any

from blindsight import keys, runs
from blindsight.accounting.bayesian import BayesianDiagnostic
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger, Payers
from blindsight.algorithms import Algorithm
from blindsight.backends import Backend
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.privacy import Privacy
from blindsight.round_bar import round_bar
from blindsight.runs import Run
from blindsight.training.loop import Loop
from blindsight.training.settings import Checkpointing, Evaluation, RunTerms

__all__ = ["Trained", "train"]


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
    terms: RunTerms | None = None,
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
    every = saving.rounds_of(privacy.rounds)
    loop = Loop(algorithm, backend, privacy, population, delta, key, run, ledger, terms or RunTerms(), every)
    loop.restore()
    whole = loop.promise(privacy)
    run.write("guarantee.json", whole.to_dict())
    stop = functools.partial(_stop, every, privacy.rounds, evaluation)
    with loop.working(), round_bar(privacy.rounds, loop.round, whole.epsilon, shown=progress) as show:
        stopped = "finished"
        while loop.round < privacy.rounds:
            last = loop.reserve(every)
            if last == loop.round:
                stopped = "budget"
                break
            while loop.round < last:
                loop.advance(last, stop)
                if evaluation and evaluation.is_due(loop.round, privacy.rounds):
                    loop.note(evaluation.function(algorithm.model(loop.state)))
                is_due = loop.round == last or time.monotonic() - loop.saved_at > saving.every_seconds
                if is_due and not loop.is_writing:
                    loop.save()
                elif time.monotonic() - loop.flushed_at > 1:
                    loop.flush()
                show(loop)
        if loop.saved_round < loop.round:
            loop.save()
    model, rounds = algorithm.model(loop.state), loop.round
    guarantee = loop.guarantee()
    run.write("guarantee.json", guarantee.to_dict())
    measured = loop.measured or (evaluation.function(model) if evaluation else {})
    run.write("result.json", {"rounds": rounds, "stopped": stopped, "simulation_only": measured})
    return Trained(model, guarantee, rounds, stopped, measured, run.path)


def _stop(paid: int, rounds: int, evaluation: Evaluation | None, done: int) -> int:
    """Where a block has to end that begins after `done` rounds, when `paid` of them are paid for together."""
    every = (paid, evaluation.every) if evaluation and evaluation.every else (paid,)
    return min(rounds, *((done // each + 1) * each for each in every))


def _new_run(key: Key | None) -> Run:
    """A new run without settings. Under a reproducible key two such runs could share their noise."""
    if key is not None and key.is_reproducible:
        raise InvalidInput(
            "with a reproducible key, two runs without settings could share their noise: "
            "pass run=runs.begin(folder, name, settings) with all settings that training depends on"
        )
    return runs.create("train", {})
