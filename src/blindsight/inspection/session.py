"""`Session`: where a question is asked, and `Inquiry`: the server half of one question, the same for all tasks.

An inquiry plans, pays, measures, discovers, trains, certifies and saves. Every release is in the ledger before its
noise is drawn, and in the run folder as soon as it exists. A question stopped by a crash or a spent budget resumes from
there, and nothing is paid for twice. Noise is passed on as mechanisms, never as epsilons.
"""

import dataclasses
import functools
import hashlib
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.assumptions import TYPES_READ_OFF
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Event, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, Payers, ledger_name, names_of
from blindsight.accounting.names import data_of
from blindsight.accounting.so_far import SpentSoFar, spent_so_far
from blindsight.algorithms.vocabulary import discover_words
from blindsight.backends import Backend, Simulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection import lessons, measuring
from blindsight.inspection.answering import Dialogue, Round
from blindsight.inspection.kept_settings import check_kept, settings_of
from blindsight.inspection.lessons import Lesson
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.model_cost import cost_of, with_model
from blindsight.inspection.question import Public, Question, ReleasePlan, check_reference
from blindsight.inspection.rehearsal import Sight, refuse_blind, rehearse
from blindsight.inspection.report import Report
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism
from blindsight.progress import Progress, quiet
from blindsight.runs import Run

if TYPE_CHECKING:
    from blindsight.inspection.on_fleet import OnFleet

__all__ = ["Inquiry", "ServerHalf", "Session", "Words", "release_of", "server_half"]

Words = tuple[tuple[str, float], ...]
"""Discovered words, each with the noisy number of clients that use it."""

_LISTED = 20  # discovered words that are kept
_SEED = "seed.json"  # public, and the same for everyone who repeats the question
_WITHOUT_RELEASES = ("run.json", "lock", _SEED, "fleet.json", runs.SITES)


_Read = TypeVar("_Read")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """Where questions are asked: ledger, run folder, population name, key, backend and progress.

    `ledger` is a `Ledger` or its path. `out` is the run's folder (by default a new one under `runs`); the same question
    asked there again resumes.
    `population` is the clients' name in the ledger, by default the data's own. `key` makes noise reproducible, and the
    guarantee says so. `backend` answers for the clients. `progress` is called with the current step, how much of it is
    done, and the total.
    A `dry_run` checks every option and says what would be released, what that costs, what could be found and what the
    ledger would say; it asks no client and leaves no trace. `only_check` stops after checking the options.
    A question that can find nothing, whatever the clients' data, is refused unless it is asked `even_if_blind`.
    """

    out: str | Path | None = None
    ledger: Ledger | str | Path | None = None
    population: str | None = None
    key: Key | None = None
    backend: Callable[[Population], Backend] = Simulation
    progress: Progress = quiet
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
        ledger = self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger)
        paying = payers or ledger_name(clients, self.population)
        server = server_half(question)
        if clients.is_elsewhere:
            _on_fleet().check_can_be_asked(question)
        check_reference(clients, public.reference, itertools.chain(*data_of(paying).values()))
        ledger.check_names(paying)
        cost_of(public.model, names_of(paying)[-1])  # refused now, before a run begins
        planned = server.plan(question, dataclasses.replace(public, seed=bytes(32)))  # bad options are refused here
        sight = None if self.only_check else _sight(server, question, public)
        if not self.dry_run and not self.even_if_blind:
            refuse_blind(question, planned, sight)
        if self.dry_run or self.only_check:
            return rehearse(question, planned, sight, ledger, paying)
        settings = settings_of(question, clients, paying, ledger)
        if self.out is None:
            run = runs.create(question.task, settings)
        else:
            check_kept(self.out, settings, clients, ledger)
            run = runs.begin(self.out, question.task, settings, may_differ=("question", question.free))
        with run.alone(), run.taken_back_if_refused(lambda: _has_released(run), also=(_SEED, runs.SITES)):
            public = dataclasses.replace(public, seed=self._public_seed(question, run))
            inquiry = Inquiry(question, clients, public, run, ledger, paying, self.backend, self.key, self.progress)
            inquiry.sight = sight
            if clients.is_elsewhere:
                is_open = self.key is not None and self.key.is_reproducible
                inquiry.elsewhere = _on_fleet().OnFleet.open(
                    clients, question, public, run, self.progress, reproducible=is_open
                )
                inquiry.backend = _on_fleet().nobody_here
            report = server.conduct(question, inquiry)
            if inquiry.elsewhere is not None:
                report = dataclasses.replace(report, notes=(*inquiry.elsewhere.notes(), *report.notes))
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


class ServerHalf(Protocol):
    """The module that a question names as its `server`: the same three functions for every task.

    `plan` says what will be released, `rounds` asks for it, and `conduct` makes the report. A module may also have
    `foresee(question, public)`, its `Sight`.
    """

    plan: Callable[[Question, Public], ReleasePlan]
    rounds: Callable[[Question, Public, Progress], Dialogue[Any]]
    conduct: "Callable[[Question, Inquiry], Report]"


def server_half(question: Question) -> ServerHalf:
    """The server half of a question."""
    if not question.server:
        raise InvalidInput(f"there is no server half for {question.task!r}: its question names none")
    return cast(ServerHalf, importlib.import_module(question.server))


def _sight(server: ServerHalf, question: Question, public: Public) -> Sight | None:
    """What the question could find, if its task can tell from public data."""
    foresee: Callable[[Question, Public], Sight] | None = getattr(server, "foresee", None)
    return None if foresee is None else foresee(question, public)


def _on_fleet() -> Any:
    """The module for fleets, imported only when needed, since it requires the extra `fleet`."""
    from blindsight.inspection import on_fleet

    return on_fleet


def _has_released(run: Run) -> bool:
    """Whether the run's folder holds a release, of whatever kind: then its settings may not change any more."""
    return any(path.name not in _WITHOUT_RELEASES for path in run.path.glob("[!.]*"))


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
    progress: Progress
    spent: list[Event] = dataclasses.field(default_factory=list[Event])
    releases: list[Mapping[str, Any]] = dataclasses.field(default_factory=list[Mapping[str, Any]])
    sight: Sight | None = None  # what the question could find, from public data
    training_noise: float = 0.0  # noise multiplier of the models trained last
    elsewhere: "OnFleet | None" = None  # where the clients are, if not here
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
            self._observed = one.observed(self.clients)
        return one.fields_of(self._observed)

    @functools.cached_property
    def root(self) -> Key:
        """The root key of all noise here; a reproducible key is bound to everything that affects a release."""
        read = (self.clients, self._observed, self.public.reference)
        facts = ["" if one is None else one.fingerprint for one in read]
        return (self.key or keys.root()).bound_to(lambda: [self.question.to_dict(), *facts])

    def ask(self, rounds: Dialogue[_Read]) -> _Read:
        """Measure one round after the other; returns what the task reads in them."""
        try:
            one = next(rounds)
            while True:
                one = rounds.send(self.measure(one))
        except StopIteration as done:
            return done.value

    def measure(self, one: Round) -> Measurement:
        """The measurement of a round: taken now, or read from this run's folder."""
        folder = self.run.path / "rounds" / one.name
        population = self.observed(one)  # also where a round is read again: the root key is bound to it
        path = checkpoints.newest(folder) or self._take(one, population, folder)
        measured, witness = release_of(one, path, self.question.delta)
        self.ledger.verify(witness).raise_if_broken()  # it must have been paid for here
        self.spent.append(measured.event)
        self.releases += measured.releases
        return measured

    def _take(self, one: Round, population: Population, folder: Path) -> Path:
        """Measure a round, and keep it in the run's folder."""
        population = population if one.forming == "zero_fill" else one.arms.eligible(population)
        backend, mechanisms = self._where(one, population)
        measured = measuring.measure(
            backend,
            one.arms,
            one.parts,
            mechanisms,
            clients=population.size,
            population=self.payers,
            delta=self.question.delta,
            ledger=self.ledger,
            key=self._key_of(one),
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
        return checkpoints.write(folder, 1, {name: part.sums for name, part in measured.parts.items()}, facts)

    def _where(self, one: Round, population: Population) -> tuple[Backend, Mapping[str, Any]]:
        """The backend of a round, and its noise."""
        if self.elsewhere is None:
            return self.backend(population), one.mechanisms
        backend = self.elsewhere.backend(one, population, self._key_of(one))
        return backend, self.elsewhere.mechanisms(one)

    def _key_of(self, one: Round) -> Key:
        return self.root.derive(f"measure {one.name}")

    def discover(self, name: str, words: Population, mechanism: GaussianMechanism, *, payers: Payers) -> Words:
        """Words that many clients use, discovered letter by letter: now, or read from this run's folder."""

        def release() -> dict[str, Any]:
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
            row = {"what": name, "epsilon": discovered.guarantee.epsilon, "noise_std": discovered.noise_std}
            pairs = zip(discovered.words, discovered.counts, strict=True)
            listed = [[word, float(count)] for word, count in pairs][:_LISTED]
            return {"words": listed, "event": to_json(discovered.event), "release": row}

        kept = self.once(f"{name.replace(' ', '-')}.json", release, payers=payers)
        return tuple((word, count) for word, count in kept["words"])

    def once(self, file: str, release: Callable[[], dict[str, Any]], *, payers: Payers) -> dict[str, Any]:
        """What `release` releases, with its `event` and its row of the report: made now, or read from `file`."""
        if not (self.run.path / file).exists():
            facts = release()
            self.run.write(file, {**facts, "ledger": measuring.witness(self.ledger, payers)})
        kept = self.run.read(file)
        self.ledger.verify(kept["ledger"]).raise_if_broken()  # it must have been paid for here
        self.spent.append(from_json(kept["event"]))
        self.releases.append(kept["release"])
        return kept

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
        assumptions += (TYPES_READ_OFF,) if self.clients.types_read_off else ()
        assumptions += () if self.elsewhere is None else self.elsewhere.job.assumptions
        whole = self.spent[0] if len(self.spent) == 1 else Composed(tuple(self.spent))
        guarantee = certify(whole, delta=self.question.delta, participation=participation, assumptions=assumptions)
        return with_model(guarantee, self.public.model, names_of(self.payers)[-1])

    def so_far(self) -> tuple[SpentSoFar, ...]:
        """What the ledger records for these clients over all runs."""
        return spent_so_far(self.ledger, self.payers, self.question.delta)


def release_of(one: Round, path: Path, delta: float) -> tuple[Measurement, str]:
    """A round's release as it was kept in a file, and the hash of the ledger's entry that paid for it."""
    kept = checkpoints.load(path, {part.name: np.zeros(part.coordinates) for part in one.parts})
    parts = {
        part.name: Measured(np.array(kept.tree[part.name]), **kept.facts["parts"][part.name]) for part in one.parts
    }
    event = from_json(kept.facts["event"])
    measured = Measurement(parts, tuple(one.arms), kept.facts["clients"], event, certify(event, delta=delta))
    return measured, kept.facts["ledger"]
