"""A training run on a fleet, as both sides derive it from the job: privacy settings, sampling and noise."""

import dataclasses
from typing import Any

from blindsight import participation
from blindsight.accounting.guarantee import certify
from blindsight.config import Config, parse, without_nulls
from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.fleet.job import Job
from blindsight.fleet.noise_shares import SiteNoise
from blindsight.jobs.algorithm import make_algorithm, make_privacy
from blindsight.jobs.classes import class_names, need_field, number_of_classes, reads_label
from blindsight.jobs.tasks import TrainingTask, classification_task, language_task
from blindsight.participation import Full, TruncatedPoissonRounds
from blindsight.privacy import Privacy

__all__ = [
    "TossedAtSites",
    "check_config",
    "cost_of_sums",
    "fields_read",
    "on_terms",
    "ready",
    "task_of",
    "with_public_classes",
]

_SPARE = 0.2  # of the rounds: repeated after a crash, and paid for beforehand


@dataclasses.dataclass(frozen=True, kw_only=True)
class TossedAtSites(Privacy):
    """Privacy settings of a run in which every site tosses its own clients' coins, so nobody can limit a cohort."""

    @property
    def sampling(self) -> TruncatedPoissonRounds | Full:
        """Poisson rounds without a limit, or full participation."""
        if self.participation == "full":
            return participation.full(self.population)
        return participation.poisson(self.population, self.cohort, limit=self.population)


def check_config(config: Config) -> None:
    """Refuse settings that a fleet cannot train with, or that would protect less than a client."""
    privacy = config.privacy
    refused = {
        "[audit] and [bayesian] need simulated clients": config.audit is not None or config.bayesian is not None,
        '[privacy] participation must be "poisson" or "full"': privacy.participation not in ("poisson", "full"),
        '[privacy] unit must be "client" on a fleet': privacy.unit != "client",
        "[privacy] none = true is not for fleets, because sites answer only with noise": privacy.none,
        '[privacy] sampler must be "exact" on a fleet': privacy.sampler != "exact",
        "[privacy] adaptive_clip needs a second sum, which a fleet cannot take yet": privacy.adaptive_clip is not None,
        '[text] vocabulary = "private" is not for fleets, which cannot list words yet': (
            config.model.is_language and config.text.vocabulary == "private"
        ),
    }
    for sentence, is_refused in refused.items():
        if is_refused:
            raise InvalidInput(f"{sentence}: change it, or train in a simulation")


def on_terms(config: Config, clients: int, noise: SiteNoise | None) -> Privacy:
    """The run's privacy settings, its noise solved for."""
    privacy = make_privacy(config, clients, sampler=noise)
    given = {field.name: getattr(privacy, field.name) for field in dataclasses.fields(Privacy)}
    return TossedAtSites(**given)


def cost_of_sums(privacy: Privacy, event: Any, delta: float) -> tuple[int, float]:
    """How many sums sites allow, some of them to repeat rounds after a crash, and what all of them cost."""
    sums = privacy.rounds + max(2, round(_SPARE * privacy.rounds))
    whole = privacy.sampling.event(event, sums)
    return sums, certify(whole, delta=delta, relation=privacy.relation).epsilon


def with_public_classes(config: Config, public: Population) -> Config:
    """The run with its classes listed, if need be from public data: at a site, those that occur would reveal some."""
    model = config.model
    if model.is_language or not reads_label(config) or model.classes is not None:
        return config
    need_field(public, model.label)
    classes = class_names(model, public) or number_of_classes(model, public)
    return dataclasses.replace(config, model=dataclasses.replace(model, classes=classes))


def fields_read(config: Config, schema: Schema) -> Schema:
    """The fields of a schema that the run reads."""
    names = (config.text.field,) if config.model.is_language else (*config.model.inputs, config.model.label)
    return Schema({name: schema.fields[name] for name in names if name in schema.fields})


def task_of(config: Config, clients: Population, public: Population | None, words: Vocabulary | None) -> TrainingTask:
    """The task of the run for these clients, evaluated on public data; its shape depends on no client."""
    if config.model.is_language:
        if words is None:
            raise InvalidInput("a language model needs its vocabulary")
        return language_task(config, clients, public, words)
    return classification_task(config, clients, clients, public)


def ready(job: Job, clients: Population, words: Vocabulary | None) -> tuple[Config, TrainingTask, Privacy, Any]:
    """The run as a site derives it from the job; the site, too, refuses settings that a fleet cannot train with."""
    config = parse(without_nulls(dict(job.content["run"])))
    check_config(config)
    if config.model.classes is None and not config.model.is_language and reads_label(config):
        raise InvalidInput("[model] classes are listed on a fleet: no site counts those of its clients")
    task = task_of(config, clients, None, words)
    privacy = on_terms(config, job.total, job.site_noise)
    return config, task, privacy, make_algorithm(config, task.model, privacy, sampler=job.site_noise)
