"""`Session`: where a question is asked, and `Inquiry`: the server half of one question, the same for all tasks.

An inquiry plans, pays, measures, discovers, trains, certifies and saves. Every release is in the ledger before its
noise is drawn, and in the run folder as soon as it exists. A question stopped by a crash or a spent budget resumes from
there, and nothing is paid for twice. Noise is passed on as mechanisms, never as epsilons.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Event, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify, round_up
from blindsight.accounting.ledger import Ledger, Payers, known_as, names_of
from blindsight.accounting.so_far import SpentSoFar, spent_so_far
from blindsight.algorithms.vocabulary import discover_words
from blindsight.backends import Backend, Simulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection import lessons, measuring
from blindsight.inspection.answering import Round
from blindsight.inspection.lessons import Lesson
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.model_cost import cost_of, with_model
from blindsight.inspection.question import Plan, Public, Question
from blindsight.inspection.report import Report
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.runs import Run
from blindsight.samples.views import ArmView

__all__ = ["Inquiry", "Session", "Words"]

Words = tuple[tuple[str, float], ...]
"""Discovered words, each with the noisy number of clients that use it."""

_LISTED = 20  # discovered words that are kept


def _quiet(doing: str, done: int, total: int) -> None:
    """Shows no progress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """Where questions are asked: ledger, run folder, population name, key, backend and progress.

    `out` is the run's folder (by default a new one under `runs`); the same question asked there again resumes.
    `population` is the clients' name in the ledger, by default the data's own. `key` makes noise reproducible, and the
    guarantee says so. `backend` answers for the clients. `progress` is called with the current step, how much of it is
    done, and the total.
    A `dry_run` checks every option and says what the answer would cost; it asks no client and leaves no trace.
    """

    out: str | Path | None = None
    ledger: Ledger | None = None
    population: str | None = None
    key: Key | None = None
    backend: Callable[[Population], Backend] = Simulation
    progress: Callable[[str, int, int], None] = _quiet
    dry_run: bool = False

    def ask(
        self,
        question: Question,
        clients: Population,
        public: Public,
        conduct: "Callable[[Inquiry], Report]",
        *,
        plan: Callable[[Public], Plan] | None = None,
        payers: Payers | None = None,
    ) -> Report:
        """The report of a question, asked of `clients` by `conduct`; a finished or interrupted run resumes.

        **Guarantee**: everything in the report and in the run folder, except values marked `simulation_only`, is
        (epsilon, delta)-DP for each client. A model that was trained on the same clients adds its own cost.
        """
        ledger, paying = self.ledger or Ledger(), payers or known_as(clients, self.population)
        if self.dry_run:
            return _rehearse(question, (plan or _no_plan)(dataclasses.replace(public, seed=bytes(32))), paying)
        ledger.check_names(paying)
        cost_of(public.model, names_of(paying)[-1])  # refused now, before a run begins
        settings = {"question": question.to_dict(), "population": names_of(paying)}
        settings |= {"simulation_only": {"data": clients.fingerprint}}
        if self.out is None:
            run = runs.create(question.task, settings)
        else:
            run = runs.begin(self.out, question.task, settings, may_differ=("question", question.free))
        with run.alone(), run.taken_back_if_refused(lambda: (run.path / "rounds").exists()):
            seed = hashlib.blake2b(run.read("run.json")["id"].encode(), digest_size=32).digest()  # public, and no data
            public = dataclasses.replace(public, seed=seed)
            inquiry = Inquiry(question, clients, public, run, ledger, paying, self.backend, self.key, self.progress)
            report = conduct(inquiry)
            _save(report, run)
            return report


def _no_plan(public: Public) -> Plan:
    """Of a task that has none."""
    raise InvalidInput("this task cannot be planned: ask it without dry_run")


def _rehearse(question: Question, plan: Plan, payers: Payers) -> Report:
    """What the question would release, and at what cost: computed without a client, and recorded nowhere."""
    events = {part.name: plan.mechanisms[part.name].event_for(part.coordinates) for part in plan.parts}
    whole = certify(joint(*events.values()), delta=question.delta, participation="a dry run: nobody was asked")
    rows: list[dict[str, Any]] = [
        {"what": part.name, "epsilon": certify(events[part.name], delta=question.delta).epsilon}
        | {"noise_multiplier": plan.mechanisms[part.name].noise_multiplier, "coordinates": part.coordinates}
        for part in plan.parts
    ]
    listed = ", ".join(
        f"{row['what']} ({row['coordinates']:,} numbers, epsilon {round_up(row['epsilon'])} alone)" for row in rows
    )
    name, then = " and ".join(names_of(payers)), ""
    if whole.epsilon < 0.99 * question.epsilon:
        then = " Models that are trained afterwards cost the rest."
    return Report(
        title=question.title,
        task=question.task,
        question=question.sentence(name),
        arms=(ArmView("nobody was asked"),),
        findings=(),
        diagnoses=(),
        guarantee=whole,
        releases=tuple(rows),
        population={"name": name, "clients": question.clients},
        notes=("Every option was checked, no client was asked, and nothing was spent.", f"Would release {listed}."),
        answer=f"Dry run: asking would cost epsilon {question.epsilon:g} at delta {question.delta:g}.{then}",
    )


def _save(report: Report, run: Run) -> None:
    run.write("guarantee.json", report.guarantee.to_dict())
    report.save(run.path / "report.html")
    report.save_json(run.path / "report.json")


@dataclasses.dataclass
class Inquiry:
    """One question while it is being answered: its releases so far, and their cost."""

    question: Question
    clients: Population
    public: Public
    run: Run
    ledger: Ledger
    payers: Payers
    backend: Callable[[Population], Backend]
    key: Key | None
    progress: Callable[[str, int, int], None]
    spent: list[Event] = dataclasses.field(default_factory=list[Event])
    releases: list[Mapping[str, Any]] = dataclasses.field(default_factory=list[Mapping[str, Any]])
    _views: dict[str, Population] = dataclasses.field(default_factory=dict[str, Population])

    @property
    def name(self) -> str:
        """The clients' name in the ledger, as text."""
        return " and ".join(names_of(self.payers))

    @functools.cached_property
    def run_id(self) -> str:
        """The run as the ledger names it."""
        return f"{self.run.path.name} {self.run.read('run.json')['id']}"

    def observed(self, one: Round) -> Population:
        """The clients with the fields that a round derives, each from its own examples."""
        if one.view not in self._views:
            self._views[one.view] = one.observe(self.clients)
        return one.fields_of(self._views[one.view])

    @functools.cached_property
    def root(self) -> Key:
        """The root key of all noise here; a reproducible key is bound to everything that affects a release."""
        public = self.public.reference
        facts = [self.clients.fingerprint, *(view.fingerprint for view in self._views.values())]
        facts.append("" if public is None else public.fingerprint)
        return (self.key or keys.root()).bound_to(lambda: [self.question.to_dict(), *facts])

    def measure(self, one: Round) -> Measurement:
        """The measurement of a round: taken now, or read from this run's folder."""
        folder = self.run.path / "rounds" / one.name
        if (path := checkpoints.newest(folder)) is None:
            population = self.observed(one)
            population = population if one.forming == "zero_fill" else one.arms.eligible(population)
            measured = measuring.measure(
                self.backend(population),
                one.arms,
                one.parts,
                one.mechanisms,
                clients=population.size,
                population=self.payers,
                delta=self.question.delta,
                ledger=self.ledger,
                key=self.root.derive(f"measure {one.name}"),
                forming=one.forming,
                run=self.run_id,
                note=one.note,
            )
            facts: dict[str, Any] = {
                "clients": measured.clients,
                "event": to_json(measured.event),
                "ledger": self._witness(),
            }
            facts["parts"] = {n: {"noise_std": p.noise_std, "epsilon": p.epsilon} for n, p in measured.parts.items()}
            folder.mkdir(parents=True, exist_ok=True)
            path = checkpoints.write(folder, 1, {name: part.sums for name, part in measured.parts.items()}, facts)
        kept = checkpoints.load(path, {part.name: np.zeros(part.coordinates) for part in one.parts})
        self.ledger.verify(kept.facts["ledger"]).raise_if_broken()  # it must have been paid for here
        parts = {
            name: Measured(np.array(sums), **kept.facts["parts"][name])
            for name, sums in ((part.name, kept.tree[part.name]) for part in one.parts)
        }
        event = from_json(kept.facts["event"])
        guarantee = certify(event, delta=self.question.delta)
        measured = Measurement(parts, tuple(one.arms), kept.facts["clients"], event, guarantee)
        self.spent.append(event)
        self.releases += measured.releases
        self.public = self.public.after(one.name, measured)
        return measured

    def _witness(self) -> str:
        return measuring.witness(self.ledger, self.payers)

    def discover(self, name: str, words: Population, mechanism: GaussianMechanism, *, payers: Payers) -> Words:
        """Words that many clients use, discovered letter by letter: now, or read from this run's folder."""
        file = f"{name.replace(' ', '-')}.json"
        if not (self.run.path / file).exists():
            discovered = discover_words(
                words,
                mechanism=mechanism,
                delta=self.question.delta,
                key=self.root.derive(f"discover {name}"),
                ledger=self.ledger,
                population=payers,
                run=self.run_id,
                backend=self.backend,
            )
            release = {"what": name, "epsilon": discovered.guarantee.epsilon, "noise_std": discovered.noise_std}
            pairs = zip(discovered.words, discovered.counts, strict=True)
            listed = [[word, float(count)] for word, count in pairs][:_LISTED]
            facts = {"words": listed, "event": to_json(discovered.event), "release": release}
            facts["ledger"] = self._witness()
            self.run.write(file, facts)
        kept = self.run.read(file)
        self.ledger.verify(kept["ledger"]).raise_if_broken()
        self.spent.append(from_json(kept["event"]))
        self.releases.append(kept["release"])
        return tuple((word, count) for word, count in kept["words"])

    def train(self, planned: Sequence[Lesson], doing: str, *, split: Split | None = None) -> list[Any]:
        """The models of all lessons, trained within the remaining cost of the question; a stopped run resumes.

        With a `split`, lessons are on arms that share no client, and together cost as much as the most expensive one.
        """
        key = self.root.derive("training")
        costs, models = lessons.train(self, planned, key, functools.partial(self.progress, doing), split)
        self.spent += lessons.together(costs, self.spent, self.question.delta) if split else costs
        if not split:
            for lesson, cost in zip(planned, costs, strict=True):
                epsilon = certify(cost, delta=self.question.delta).epsilon
                self.releases.append({"what": f"{lesson.name}, {lesson.privacy.rounds} rounds", "epsilon": epsilon})
        return models

    def promise(self, participation: str, assumptions: tuple[str, ...] = ()) -> Guarantee:
        """The guarantee for everything released, including the cost of a model trained on the same clients."""
        whole = self.spent[0] if len(self.spent) == 1 else Composed(tuple(self.spent))
        guarantee = certify(whole, delta=self.question.delta, participation=participation, assumptions=assumptions)
        return with_model(guarantee, self.public.model, names_of(self.payers)[-1])

    def so_far(self) -> tuple[SpentSoFar, ...]:
        """What the ledger records for these clients over all runs."""
        return spent_so_far(self.ledger, self.payers, self.question.delta)
