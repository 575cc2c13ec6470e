"""`blindsight train RUN.toml --fleet DIR`: the same loop, with sums over sites. [data] is public data of the same kind.

A round's model is sent to every site once. Sites toss their own clients' coins, so nobody else knows a cohort. A killed
coordinator resumes from its last checkpoint, as any run; sites allow a fifth more sums than rounds for that, and their
ledgers have paid for all of them before the first.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight import runs
from blindsight.accounting.ledger import Ledger, ledger_name
from blindsight.backends import use_cores
from blindsight.config import Config
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput
from blindsight.fleet.backend import FleetBackend
from blindsight.fleet.clients import Fleet
from blindsight.fleet.job import Job
from blindsight.fleet.opening import open_job
from blindsight.jobs.algorithm import make_algorithm
from blindsight.jobs.classes import class_names
from blindsight.jobs.fleet_settings import (
    check_config,
    cost_of_sums,
    fields_read,
    on_terms,
    task_of,
    with_public_classes,
)
from blindsight.jobs.gan import save_samples
from blindsight.jobs.language import public_vocabulary
from blindsight.jobs.run_data import read_run, with_listed_classes
from blindsight.jobs.train import FLEET_JOB, root_of, run_settings
from blindsight.training import Checkpointing, Evaluation, RunTerms, Trained, train

__all__ = ["train_on_fleet"]

_WRITTEN_FIRST = ("guarantee.json", "vocabulary.json", FLEET_JOB, runs.SITES)


def train_on_fleet(
    config: Config,
    fleet: Fleet,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    progress: bool = False,
) -> Trained:
    """Train as `config` says on the clients of a fleet, or resume the run in the folder.

    **Guarantee**: as of `training.train`. The guarantee lists whom the noise of a fleet trusts.

    Args:
        config: What to train; its [data] are public, describe the fields, and evaluate the model.
        fleet: The fleet.
        out: Folder of the run; `runs/NAME` if None.
        ledger: Where the coordinator writes the cost; the default ledger if None.
        progress: Show a progress bar.
    """
    check_config(config)
    use_cores()
    folder, ledger = Path(out) if out is not None else Path("runs") / config.name, ledger or Ledger()
    settings, config = run_settings(config), with_listed_classes(config)
    public = read_run(config)
    config = with_public_classes(config, public)
    schema = fields_read(config, Schema.of(public))
    words = public_vocabulary(config) if config.model.is_language else None
    clients = fleet.clients(public)
    task = task_of(config, clients, public, words)
    noise = fleet.terms()
    privacy = on_terms(config, clients.size, noise)
    algorithm = make_algorithm(config, task.model, privacy, sampler=noise)
    delta = config.privacy.delta
    if delta is None:
        raise InvalidInput("[privacy] needs a delta on a fleet: sites are told the cost of the whole run")
    name = ledger_name(clients)
    ledger.check_names(name)
    run = runs.begin(folder, config.name, settings, may_differ=("privacy", "rounds"))
    with run.alone(), run.taken_back_if_refused(lambda: runs_have_begun(run), also=_WRITTEN_FIRST):
        sums, epsilon = cost_of_sums(privacy, algorithm.event, delta)
        inputs = {} if words is None else {"vocabulary": json.dumps(words.words).encode()}
        if words is not None and not (run.path / "vocabulary.json").exists():
            run.write("vocabulary.json", {"format": 1, "words": words.words, "released": [], "ledger": None})
        content = {"run": run_settings(config), "schema": schema.to_dict(), "sums": sums}
        job = _job(fleet, run, content, inputs, epsilon=epsilon, delta=delta, reproducible=config.seed is not None)
        open_job(fleet.lines, job, inputs, wait_s=fleet.wait_s, heard=lambda said: run.write_sites(job.digest, said))
        backend = FleetBackend(
            sites=fleet.lines,
            job=job,
            step={"step": "round", "has_model": True},
            blobs=(),
            like=task.clients,
            mechanisms={} if noise is None else {"": noise.mechanism(privacy.known_noise)},
        )
        rhythm, evaluate = config.training, task.evaluate
        trained = train(
            algorithm,
            backend,
            privacy,
            population=name,
            delta=delta,
            key=root_of(config.seed, settings, clients),
            run=run,
            ledger=ledger,
            evaluation=None if evaluate is None else Evaluation(function=evaluate, every=rhythm.evaluate_every),
            checkpointing=Checkpointing(every_rounds=rhythm.checkpoint_every, every_seconds=rhythm.checkpoint_seconds),
            terms=RunTerms(assumptions=job.assumptions),
            progress=progress,
        )
        if config.model.kind == "gan":
            save_samples(config, trained, class_names(config.model, public), noise_multiplier=privacy.known_noise)
        return trained


def runs_have_begun(run: runs.Run) -> bool:
    """Whether anything was released to this run."""
    return bool(run.rows("metrics.jsonl")) or any(run.path.glob("checkpoint-*"))


def _job(
    fleet: Fleet,
    run: runs.Run,
    content: Mapping[str, Any],
    inputs: Mapping[str, bytes],
    *,
    epsilon: float,
    delta: float,
    reproducible: bool,
) -> Job:
    """The run's job; if the run began before, the job that sites already know."""
    if (run.path / FLEET_JOB).exists():
        return Job.from_dict(run.read(FLEET_JOB))
    job = fleet.job(
        kind="training",
        run=run.read("run.json")["id"],
        content=json.loads(json.dumps(content)),
        inputs={name: hashlib.sha256(data).hexdigest() for name, data in inputs.items()},
        epsilon=epsilon,
        delta=delta,
        reproducible=reproducible,
    )
    run.write(FLEET_JOB, job.to_dict())
    return job
