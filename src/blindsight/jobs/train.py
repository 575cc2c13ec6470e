"""A training run from its configuration: what `blindsight train RUN.toml` does."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from blindsight import checkpoints, keys, runs
from blindsight.accounting.assumptions import PRIVATE_NETWORK
from blindsight.accounting.events import to_json
from blindsight.accounting.ledger import Ledger, ledger_name
from blindsight.algorithms import Algorithm
from blindsight.backends import Backend, Simulation, use_cores
from blindsight.backends.host_parts import HostParts
from blindsight.backends.hosts import Hosts
from blindsight.backends.paired import Paired, bayesian_config
from blindsight.config import Config, parse, without_nulls
from blindsight.data.population import Population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.jobs import planting
from blindsight.jobs.algorithm import given_privacy, make_algorithm, make_privacy
from blindsight.jobs.classes import assumed_classes, class_names
from blindsight.jobs.gan import save_samples
from blindsight.jobs.language import check_text, kept_vocabulary, public_words, vocabulary_of
from blindsight.jobs.pairs import PairLog
from blindsight.jobs.run_data import name_in_ledger, read_run, with_listed_classes
from blindsight.jobs.tasks import TrainingTask, classification_task, language_task, split_clients
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, Evaluation, RunTerms, Trained, train

__all__ = ["FLEET_JOB", "TrainedRun", "load_trained", "make_ready", "root_of", "run_settings", "run_training"]

FLEET_JOB = "fleet.json"
"""In the folder of a run whose clients are at the sites of a fleet: what they were asked."""

_NO_PROMISE_DELTA = 1e-6  # an infinite epsilon is infinite at every delta


def run_training(
    config: Config,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    population: Population | None = None,
    progress: bool = False,
    hosts: Hosts | None = None,
) -> Trained:
    """Train as `config` says, or resume the run in the folder.

    A request that is refused before anything is released leaves no run behind, so that the corrected one can use the
    same folder.

    Args:
        config: what to train, on which data, at what cost.
        out: folder of the run; `runs/NAME` if None.
        ledger: where the cost is written; the default ledger if None.
        population: the data that `config.data` names, if they are already loaded.
        progress: show a progress bar.
        hosts: other hosts that answer sums (`jobs.hosts`).
    """
    use_cores()
    folder, ledger = Path(out) if out is not None else Path("runs") / config.name, ledger or Ledger()
    ledger.populations()  # refuse an unreadable ledger now, before a run has a guarantee on disk
    settings, config = run_settings(config), with_listed_classes(config)
    if population is None:
        population = read_run(config)
        name = name_in_ledger(config, population)
    else:
        name = ledger_name(population)
    ledger.check_names(name)
    clients, held_out = split_clients(population, config.data.held_out)
    assumptions = (*assumed_classes(config, population), *((PRIVATE_NETWORK,) if hosts else ()))
    key = root_of(config.seed, settings, population)
    if config.model.is_language:
        check_text(config.text, population)
        given_privacy(config, clients.size)  # refuse it now, before a run begins and a vocabulary is paid for
        public, ready = public_words(config, folder), None
    else:
        public = None
        ready = make_ready(config, classification_task(config, population, clients, held_out))
    run = runs.begin(folder, config.name, settings, may_differ=("privacy", "rounds"))
    with run.alone(), run.taken_back_if_refused(lambda: _has_released(run), also=(planting.FILE, "guarantee.json")):
        if ready is None:
            vocabulary, released = vocabulary_of(config, clients, public, name, run=run, key=key, ledger=ledger)
            ready = make_ready(config, language_task(config, clients, held_out, vocabulary, released))
        task, privacy, algorithm = ready
        evaluate, rhythm = task.evaluate, config.training
        _check_clients(run, task.clients.size)
        log = None if config.bayesian is None else PairLog(run, bayesian_config(privacy))
        trained = train(
            algorithm,
            _backend(config, task, privacy, run=run, key=key, log=log)
            if hosts is None
            else _leading(hosts, task, algorithm),
            privacy,
            population=name,
            delta=config.privacy.delta or _NO_PROMISE_DELTA,
            key=key,
            run=run,
            ledger=ledger,
            evaluation=None if evaluate is None else Evaluation(function=evaluate, every=rhythm.evaluate_every),
            checkpointing=Checkpointing(every_rounds=rhythm.checkpoint_every, every_seconds=rhythm.checkpoint_seconds),
            terms=RunTerms(before=task.released, assumptions=assumptions),
            progress=progress,
        )
        if config.model.kind == "gan":
            names, noise = class_names(config.model, population), privacy.noise_multiplier or 0.0
            save_samples(config, trained, names, noise_multiplier=noise)
        if log is None or config.bayesian is None:
            return trained
        return dataclasses.replace(trained, bayesian=log.report(config.bayesian.delta, trained.guarantee))


def _has_released(run: runs.Run) -> bool:
    """Whether the run's folder holds anything computed from clients; its settings may not change afterwards."""
    is_begun = checkpoints.newest(run.path) is not None or bool(run.rows("metrics.jsonl"))
    return is_begun or (run.path / "vocabulary.json").exists()


def root_of(seed: int | None, settings: dict[str, Any], population: Population) -> keys.Key:
    """The root of the run's randomness: secret, or for a seed derived from the settings and the data too.

    Two runs with one seed about the same clients would draw the same noise, which cancels out in their difference.
    """
    if seed is None:
        return keys.root()
    privacy = {name: value for name, value in settings["privacy"].items() if name != "rounds"}  # may grow
    facts = json.dumps([settings | {"privacy": privacy}, population.fingerprint], sort_keys=True).encode()
    return keys.reproducible(seed).derive(f"run {hashlib.blake2b(facts, digest_size=16).hexdigest()}")


def _backend(
    config: Config, task: TrainingTask, privacy: Privacy, *, run: runs.Run, key: keys.Key, log: PairLog | None
) -> Backend:
    """The run's clients: with those that [audit] plants, or measured in the pairs that [bayesian] draws."""
    if config.bayesian is not None and log is not None:
        return Paired(Simulation(task.clients), pairs=config.bayesian.pairs, record=log.record)
    if config.audit is None:
        return Simulation(task.clients)
    return planting.plant(config, task, privacy, run=run, key=key)


def _leading(hosts: Hosts, task: TrainingTask, algorithm: Algorithm) -> Backend:
    """The run's clients, in parts on several hosts that must agree on what they compute."""
    backend = HostParts(task.clients, hosts)
    hosts.agree(keys.digest_of(to_json(algorithm.event)), "privacy settings")
    return backend


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A training run as read back: the newest model, and the clients as the model reads them."""

    run: runs.Run
    config: Config
    model: Any
    clients: Population
    held_out: Population | None
    vocabulary: Vocabulary | None = None
    initial: Any = None  # the model before the first round, which is public


def load_trained(folder: str | Path, *, population: Population | None = None) -> TrainedRun:
    """The run that `blindsight train` left in `folder`, with the model of its newest checkpoint. Nothing is released.

    Of a run on a fleet, `clients` are its public data.

    `population` is the data that its configuration names; pass it if it is already loaded.
    """
    run = runs.open_run(folder)
    path = checkpoints.newest(run.path)
    if path is None:
        raise InvalidInput(f"{folder} has no checkpoint of a model yet: train it first")
    config = with_listed_classes(parse(without_nulls(run.read("run.json")["settings"])))
    if population is None:
        population = read_run(config)
    is_elsewhere = (run.path / FLEET_JOB).exists()  # the clients are at sites: [data] are public and none of them
    clients, held_out = (population,) * 2 if is_elsewhere else split_clients(population, config.data.held_out)
    if config.model.is_language:
        task = language_task(config, clients, held_out, *kept_vocabulary(run))
    else:
        task = classification_task(config, population, clients, held_out)
    size = task.clients.size
    if not is_elsewhere:
        _check_clients(run, size)
    unprotected = Privacy.none(population=size, cohort=1, rounds=1)  # the saved state has the same shape
    algorithm = make_algorithm(config, task.model, unprotected)
    model = algorithm.model(checkpoints.load(path, {"state": algorithm.init()}).tree["state"])
    return TrainedRun(run, config, model, task.clients, task.held_out, task.vocabulary, task.model)


def _check_clients(run: runs.Run, size: int) -> None:
    """Refuse to resume with another number of clients than the run began with."""
    path = checkpoints.newest(run.path)
    began = size if path is None else checkpoints.read_facts(path).get("settings", {}).get("population", size)
    if began != size:
        raise InvalidInput(
            f"{run.path} began with {began:,} clients to train on, and now there are {size:,}: the data or the split "
            f"into training and held-out clients has changed, so begin a new run in another folder"
        )


def make_ready(config: Config, task: TrainingTask) -> tuple[TrainingTask, Privacy, Algorithm]:
    """The task with its privacy settings, noise solved for, and its algorithm."""
    privacy = make_privacy(config, task.clients.size, before=task.released)
    return task, privacy, make_algorithm(config, task.model, privacy)


def run_settings(config: Config) -> dict[str, Any]:
    """The settings that `run.json` keeps and a resumed run must share: all but [tune]."""
    settings = {name: table for name, table in config.to_dict().items() if name != "tune"}
    for table, name in (("model", "classes"), ("data", "schema"), ("data", "types")):
        if not settings[table][name]:  # runs from before this setting resume with the noise that they began with
            del settings[table][name]
    return settings
