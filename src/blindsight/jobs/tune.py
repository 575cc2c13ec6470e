"""Settings tuned on public data: what `blindsight train RUN.toml --tune-on PUBLIC` does. It costs no privacy.

As in Ramaswamy et al. 2020: a small grid is trained on public clients, however few, with the same noise on the mean
update as the run will have (noise multiplier times clip, over the cohort). Of the run's own clients only the number is
read. Nothing is released about them, and the ledger is not opened.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from blindsight import keys
from blindsight.accounting.events import Event, Gaussian
from blindsight.accounting.planning import solve_noise
from blindsight.backends import Backend, Simulation, use_cores
from blindsight.config import Config, as_toml
from blindsight.data.population import Population
from blindsight.data.sources import check_public
from blindsight.data.text import Vocabulary
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.jobs.algorithm import make_algorithm, make_privacy
from blindsight.jobs.language import check_any, check_text, public_vocabulary
from blindsight.jobs.public import check_no_copy, other_clients
from blindsight.jobs.run_data import read_like_run, read_run, with_listed_classes
from blindsight.jobs.tasks import TrainingTask, classification_task, language_task, split_clients
from blindsight.participation import fixed_size
from blindsight.privacy import Privacy

__all__ = ["Tuned", "run_tuning"]

_LEAST_NOISE = 1 / 4096  # the least that mechanisms accept; less has no effect
_HELD_OUT = 0.2  # share of the public clients that settings are compared on

NAMES = ("client_learning_rate", "server_learning_rate", "momentum", "clip")


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The result of every combination of settings on public clients, the best first, and the run with the best."""

    public: str
    metric: str
    rows: tuple[dict[str, float], ...]
    noise_on_mean: float
    config: Config
    written: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight train --tune-on --json`."""
        best = {name: self.rows[0][name] for name in NAMES}
        return {
            "public": self.public,
            "metric": self.metric,
            "noise_on_mean": self.noise_on_mean,
            "best": best,
            "rows": list(self.rows),
            "written": self.written and str(self.written),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield f"[bold]{escape(self.config.name)}[/], tuned on [bold]{escape(self.public)}[/]: no privacy was spent"
        table = Table(box=None, pad_edge=False)
        for name in (*NAMES, self.metric):
            table.add_column(name.replace("_", " "), justify="right")
        for number, row in enumerate(self.rows):
            values = [*(f"{row[name]:g}" for name in NAMES), f"{row[self.metric]:.4f}"]
            table.add_row(*values, style="bold green" if number == 0 else "")
        yield table
        if self.written:
            path = escape(str(self.written))
            yield f"The best settings are in [bold]{path}[/]. Train with them:  blindsight train {path}"


def run_tuning(
    config: Config,
    public: str,
    *,
    write: str | Path | None = None,
    population: Population | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:
    """Train every combination of [tune] on the data that `public` names, and write the best run to `write` as TOML.

    `population` is the public data; pass it if it is already loaded.
    """
    if config.model.kind == "gan":
        raise InvalidInput("a GAN has no accuracy to compare settings by: choose them by looking at its samples")
    use_cores()
    model, config = config.model, with_listed_classes(config)
    everyone = population if population is not None else _public(config, public)
    clients, held_out = split_clients(everyone, _HELD_OUT)
    task = _task(config, everyone, clients, held_out)
    evaluate, backend = task.evaluate, Simulation(task.clients)
    if evaluate is None:
        raise InvalidInput(f"{everyone.name} has too few clients to compare settings on: use more")
    noise = _noise_of_the_run(config, task)
    metric, sign = {"word_lm": ("recall_top1", -1), "char_lm": ("loss", 1)}.get(config.model.kind, ("accuracy", -1))
    variants = list(_combinations(config))
    rows = list[tuple[dict[str, float], Config]]()
    for number, variant in enumerate(variants):
        progress(number, len(variants))
        metrics = evaluate(_trained(variant, task, backend, noise))
        rows.append((_settings(variant) | metrics, variant))
    progress(len(variants), len(variants))
    rows.sort(key=lambda row: sign * row[0][metric])  # stable: the first tried wins a tie
    best = dataclasses.replace(rows[0][1], tune=config.tune, model=model)
    written = None if write is None else _write(Path(write), best, public)
    on_mean = noise * config.privacy.clip / config.privacy.cohort
    return Tuned(public, metric, tuple(row for row, _ in rows), on_mean, best, written)


def _public(config: Config, name: str) -> Population:
    """Public clients; of a generated population other clients than those that train."""
    options = other_clients(name, max(5 * config.tune.cohort, 300))
    check_public(name, options, config.data.population, config.data.options, what="--tune-on")
    check_no_copy(name, options, config.data.population, config.data.options, what="--tune-on")
    return read_like_run(config, name, options)


def _task(config: Config, everyone: Population, clients: Population, held_out: Population | None) -> TrainingTask:
    if not config.model.is_language:
        return classification_task(config, everyone, clients, held_out)
    check_text(config.text, everyone)
    if config.text.vocabulary == "private":  # the run's own words are not known yet: use the public clients'
        text = config.text
        words = Vocabulary.most_frequent(clients, text.vocabulary_size, field=text.field, case=text.case)
    else:
        words = public_vocabulary(config)
    task = language_task(config, clients, held_out, words)
    check_any(config.model.kind, task.clients)
    return task


def _noise_of_the_run(config: Config, task: TrainingTask) -> float:
    """The noise multiplier of the run itself: as given, or solved for its epsilon and number of clients."""
    privacy = config.privacy
    if privacy.none:
        return 0.0
    if privacy.noise_multiplier is not None:
        return privacy.noise_multiplier
    count = config.tune.clients
    if count is None:  # the number of clients is public; their data are not read
        clients = read_run(config)
        everyone = clients.n_examples if privacy.unit == "example" else clients.size
        count = everyone - round(config.data.held_out * everyone)
    before: tuple[Event, ...] = ()
    if config.model.is_language and config.text.vocabulary == "private" and privacy.delta is not None:
        alone = solve_noise(Gaussian, epsilon=config.text.vocabulary_epsilon, delta=privacy.delta)
        before = (Gaussian(alone),)
    return make_privacy(config, count, before=before).noise_multiplier or 0.0


def _combinations(config: Config) -> Iterator[Config]:
    """The run with every combination of the settings to try, its own included."""
    tune, client, server, clip = config.tune, config.client, config.server, config.privacy.clip
    rates = tune.client_learning_rate or (client.learning_rate, _short(client.learning_rate / 3))
    server_rates = tune.server_learning_rate or (server.learning_rate, _short(server.learning_rate / 2))
    momenta = tune.momentum if tune.momentum and server.optimizer == "nesterov" else (server.momentum,)
    clips = (1.0,) if config.privacy.none else tune.clip or (clip, _short(clip / 3))
    for rate, server_rate, momentum, clip in itertools.product(rates, server_rates, momenta, clips):
        yield dataclasses.replace(
            config,
            client=dataclasses.replace(client, learning_rate=rate),
            server=dataclasses.replace(server, learning_rate=server_rate, momentum=momentum),
            privacy=dataclasses.replace(config.privacy, clip=clip),
        )


def _short(value: float) -> float:
    return float(f"{value:.2g}")


def _settings(config: Config) -> dict[str, float]:
    values = config.client.learning_rate, config.server.learning_rate, config.server.momentum, config.privacy.clip
    return dict(zip(NAMES, values, strict=True))


def _trained(config: Config, task: TrainingTask, backend: Backend, noise: float) -> Any:
    """The model after [tune] rounds on public clients, with the run's own noise on the mean update."""
    count, rounds = task.clients.size, config.tune.rounds
    cohort = min(config.tune.cohort, count)
    scaled = noise * cohort / config.privacy.cohort
    if config.privacy.none:
        privacy = Privacy.none(population=count, cohort=cohort, rounds=rounds, participation="fixed")
    else:
        privacy = Privacy(
            population=count,
            cohort=cohort,
            rounds=rounds,
            participation="fixed",
            clip=config.privacy.clip,
            noise_multiplier=scaled if scaled >= _LEAST_NOISE else 0.0,
        )
    quick = dataclasses.replace(
        config, privacy=dataclasses.replace(config.privacy, sampler="float", adaptive_clip=None)
    )
    algorithm = make_algorithm(quick, task.model, privacy)
    state, key = algorithm.init(), keys.reproducible(0)  # nobody is protected here, and every combination draws alike
    for number in range(rounds):
        chosen = fixed_size(count, cohort).draw(key=key.derive("cohort", number))
        some = backend.cohort(chosen, n_expected=cohort, key=key.derive("clients", number))
        state, _ = algorithm.step(state, some, key=key.derive("noise", number))
    return algorithm.model(state)


def _write(path: Path, config: Config, public: str) -> Path:
    try:
        path.write_text(
            f"# Tuned on {public}, which is public: no privacy was spent.\n{as_toml(config)}", encoding="utf-8"
        )
    except OSError as error:
        raise BlindsightError(f"cannot write {path} ({error.strerror}): check its permissions") from error
    return path
