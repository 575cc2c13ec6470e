"""`Session`: where a question is asked, and `Inquiry`: the server half of one question, the same for all tasks.

An inquiry plans, pays, measures, discovers, trains, certifies and saves. Every release is in the ledger before its
noise is drawn, and in the run folder as soon as it exists. A question stopped by a crash or a spent budget resumes from
there, and nothing is paid for twice. Noise is passed on as mechanisms, never as epsilons.
"""

import dataclasses
import functools
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Event, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, Payers, ledger_name, names_of
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
from blindsight.inspection.question import Public, Question, ReleasePlan, check_reference
from blindsight.inspection.rehearsal import Sight, refuse_blind, rehearse
from blindsight.inspection.report import Report
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism
from blindsight.runs import Run

__all__ = ["Inquiry", "Session", "Words"]

Words = tuple[tuple[str, float], ...]
"""Discovered words, each with the noisy number of clients that use it."""

_LISTED = 20  # discovered words that are kept
_SEED = "seed.json"  # public, and the same for everyone who repeats the question


def _quiet(doing: str, done: int, total: int) -> None:
    """Shows no progress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """Where questions are asked: ledger, run folder, population name, key, backend and progress.

    `out` is the run's folder (by default a new one under `runs`); the same question asked there again resumes.
    `population` is the clients' name in the ledger, by default the data's own. `key` makes noise reproducible, and the
    guarantee says so. `backend` answers for the clients. `progress` is called with the current step, how much of it is
    done, and the total.
    A `dry_run` checks every option and says what would be released, what that costs, what could be found and what the
    ledger would say; it asks no client and leaves no trace. `only_check` stops after checking the options.
    A question that can find nothing, whatever the clients' data, is refused unless it is asked `even_if_blind`.
    """

    out: str | Path | None = None
    ledger: Ledger | None = None
    population: str | None = None
    key: Key | None = None
    backend: Callable[[Population], Backend] = Simulation
    progress: Callable[[str, int, int], None] = _quiet
    dry_run: bool = False
    only_check: bool = False
    even_if_blind: bool = False

    def ask(
        self,
        question: Question,
        clients: Population,
        public: Public,
        *,
        payers: Payers | None = None,
    ) -> Report:
        """The report of a question of any task, asked of `clients`; a finished or interrupted run resumes.

        **Guarantee**: everything in the report and in the run folder, except values marked `simulation_only`, is
        (epsilon, delta)-DP for each client. A model that was trained on the same clients adds its own cost.
        """
        ledger, paying = self.ledger or Ledger(), payers or ledger_name(clients, self.population)
        server = _server_half(question)
        check_reference(clients, public.reference)
        ledger.check_names(paying)
        cost_of(public.model, names_of(paying)[-1])  # refused now, before a run begins
        planned = server.plan(question, dataclasses.replace(public, seed=bytes(32)))  # bad options are refused here
        sight = None if self.only_check else _sight(server, question, public)
        if not self.dry_run and not self.even_if_blind:
            refuse_blind(question, planned, sight)
        if self.dry_run or self.only_check:
            return rehearse(question, planned, sight, ledger, paying)
        settings = {"question": question.to_dict(), "population": names_of(paying)}
        settings |= {"simulation_only": {"data": clients.fingerprint}}
        if self.out is None:
            run = runs.create(question.task, settings)
        else:
            run = runs.begin(self.out, question.task, settings, may_differ=("question", question.free))
        with run.alone(), run.taken_back_if_refused(lambda: (run.path / "rounds").exists()):
            public = dataclasses.replace(public, seed=self._public_seed(question, run))
            inquiry = Inquiry(question, clients, public, run, ledger, paying, self.backend, self.key, self.progress)
            inquiry.sight = sight
            report = server.conduct(question, inquiry)
            _save(report, run)
            return report

    def _public_seed(self, question: Question, run: Run) -> bytes:
        """Public randomness that depends on no data: of this run, or of the question if the run began reproducibly."""
        if (run.path / _SEED).exists():
            return bytes.fromhex(run.read(_SEED)["seed"])
        if self.key is None or not self.key.is_reproducible:
            return hashlib.blake2b(run.read("run.json")["id"].encode(), digest_size=32).digest()
        seed = self.key.bound_to(question.to_dict).derive("public seed").secret
        run.write(_SEED, {"seed": seed.hex()})
        return seed


class _ServerHalf(Protocol):
    """The module that a question names as its `server`; it may also have `foresee(question, public)`, its `Sight`."""

    conduct: "Callable[[Question, Inquiry], Report]"
    plan: Callable[[Question, Public], ReleasePlan]


def _server_half(question: Question) -> _ServerHalf:
    if not question.server:
        raise InvalidInput(f"nobody can ask {question.task!r}: its question names no server half")
    return cast(_ServerHalf, importlib.import_module(question.server))


def _sight(server: _ServerHalf, question: Question, public: Public) -> Sight | None:
    """What the question could find, if its task can tell from public data."""
    foresee: Callable[[Question, Public], Sight] | None = getattr(server, "foresee", None)
    return None if foresee is None else foresee(question, public)


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
    sight: Sight | None = None  # what the question could find, from public data
    training_noise: float = 0.0  # noise multiplier of the models trained last
    _observed: Population | None = None

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
        if self._observed is None:
            self._observed = one.observe(self.clients)
        return one.fields_of(self._observed)

    @functools.cached_property
    def root(self) -> Key:
        """The root key of all noise here; a reproducible key is bound to everything that affects a release."""
        read = (self.clients, self._observed, self.public.reference)
        facts = ["" if one is None else one.fingerprint for one in read]
        return (self.key or keys.root()).bound_to(lambda: [self.question.to_dict(), *facts])

    def measure(self, one: Round) -> Measurement:
        """The measurement of a round: taken now, or read from this run's folder."""
        folder = self.run.path / "rounds" / one.name
        population = self.observed(one)  # also where a round is read again: the root key is bound to it
        if (path := checkpoints.newest(folder)) is None:
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
                "ledger": measuring.witness(self.ledger, self.payers),
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
            facts["ledger"] = measuring.witness(self.ledger, payers)
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
        costs, models, self.training_noise = lessons.train(
            self, planned, key, functools.partial(self.progress, doing), split
        )
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
