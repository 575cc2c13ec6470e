"""`unknowns` (T3): words that a vocabulary lacks have become more; what are they, and what makes them?

Two collections of sentences, before a change and after it. One round over all clients measures on both what the unknown
words are like and which fault of the library explains those that are new (`unknown_words`, `unknown_findings`). On
request, words that many clients use are discovered (`algorithms.vocabulary`), and language models of both sides are
trained that generate sentences and unknown words (`unknown_models`). A client may be on both sides and take part in all
of it: every cost is added up, and everything together is (epsilon, delta)-DP.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting import accountants
from blindsight.accounting.events import Composed, Event, Gaussian, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, known_apart, names_of
from blindsight.accounting.planning import solve_noise
from blindsight.accounting.so_far import spent_so_far
from blindsight.algorithms.vocabulary import discover_words, own_words
from blindsight.backends import Backend, Simulation
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring, unknown_findings, unknown_models
from blindsight.inspection.measuring import Measured
from blindsight.inspection.report import ArmView, Report
from blindsight.inspection.unknown_findings import Reading
from blindsight.inspection.unknown_models import WordTraining
from blindsight.inspection.unknown_report import Generated, Side, Unknowns
from blindsight.inspection.unknown_words import (
    ARMS,
    LENGTHS,
    PLACES,
    SIDES,
    TRAITS,
    Rates,
    Signs,
    Votes,
    observe,
    paired,
    suspects_of,
)
from blindsight.keys import Key
from blindsight.runs import Run
from blindsight.selection import FORMINGS

__all__ = ["SHARES", "unknowns"]

SHARES = {"rates": 0.4, "signs": 0.3, "votes": 0.3}
"""How the precision of the round is divided."""

DISCOVERY = 0.4
"""The part of the epsilon for words that are discovered, where they are asked for."""

LISTED = 20  # discovered words of each side that are shown
Listed = tuple[tuple[str, float], ...]

NOTES = (
    "A client's two sides hold equally many of its sentences, the first ones; clients with sentences on one side only "
    "add zeros. Where nothing has changed its sides could change places, and the tests rest on that.",
    "An unknown word is one that the vocabulary lacks, whose words are public.",
)
RARE = "Unknown words are so rare on both sides that their rate is not told from zero at this epsilon."
MODELLED = (
    "What models generate is shown, not tested: tests are made on the released sums. Probabilities are those of "
    "the models, whose guarantee is the report's."
)


def unknowns(
    before: Population,
    after: Population,
    *,
    vocabulary: Vocabulary,
    epsilon: float,
    delta: float,
    field: str = "text",
    case: Case = "lower",
    suspects: Sequence[str] | None = None,
    most: int = 200,
    discover: bool = False,
    train: bool | WordTraining = False,
    population: str | None = None,
    backend: Callable[[Population], Backend] = Simulation,
    ledger: Ledger | None = None,
    key: Key | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
) -> Report:
    """What are the words that `vocabulary` lacks `after` a change, against `before` it, and which fault explains them?

    Clients are the same if their ids are. Texts are cut into sentences, of which a client has at most `most` on a side.
    `suspects` are the faults to vote on, all that can be undone if left out. With `discover`, unknown words that many
    clients use are found letter by letter; with `train`, language models of both sides generate sentences and unknown
    words, each for its part of the epsilon. `population` is the name in the ledger of clients on both sides, if they
    are one population; else each side pays under its own name.

    **Guarantee**: everything in the report, and in the run directory `out` less what is marked `simulation_only`, is
    (epsilon, delta)-DP for each client, whether it has sentences on one side or on both.
    """
    training = WordTraining() if train is True else train or None
    faults = suspects_of(suspects, case)
    left = epsilon * (1 - training.share) if training else epsilon
    shares = (1 - DISCOVERY, DISCOVERY / len(SIDES)) if discover else (1.0,)
    prices = [_alone(left, delta, share) for share in shares]
    settings = {"task": "unknowns", "before": before.name, "after": after.name, "epsilon": epsilon, "delta": delta}
    settings |= {"field": field, "case": case, "most": most, "suspects": list(map(str, faults))}
    settings |= {"vocabulary": _digest(vocabulary), "train": dataclasses.asdict(training) if training else None}
    names: dict[str, str] = dict(zip(SIDES, known_apart((before, after), population), strict=True))
    ledger = ledger or Ledger()
    ledger.check_names(list(names.values()))
    settings |= {"discover": discover, "population": names_of(list(names.values()))}
    settings |= {"simulation_only": {"data": [before.fingerprint, after.fingerprint]}}
    run = runs.create("unknowns", settings) if out is None else runs.begin(out, "unknowns", settings)
    with run.alone(), run.taken_back_if_refused(lambda: checkpoints.newest(run.path) is not None):
        progress("looking for unknown words on every client", 0, 3)
        observed = observe(paired(before, after, field=field, most=most), vocabulary, faults, case)
        sides = [_sentences(one, field, most) for one in (before, after)] if discover or training else []
        root = (key or keys.root()).bound_to(lambda: [settings, *(one.fingerprint for one in (observed, *sides))])
        asked = _Asked(run, vocabulary, case, epsilon, delta, backend, root, ledger, names, progress)
        progress("measuring everyone in one round", 1, 3)
        reading = asked.measure(observed, (*map(str, faults), unknown_findings.NONE), prices[0])
        listed = asked.discover(sides, prices[1]) if discover else {}
        made = asked.train(sides, training) if training else {}
        findings, diagnoses = unknown_findings.compare(reading)
        report = Report(
            title="What are these unknown words?",
            task="unknowns",
            question=f"Which words does a vocabulary of {len(vocabulary.words):,} lack after the change, and why?",
            arms=_views(reading, observed.size),
            findings=tuple(findings),
            diagnoses=tuple(diagnoses),
            guarantee=asked.promise(observed.size, training),
            releases=tuple(asked.releases),
            population={"name": " and ".join(names_of(asked.everyone)), "clients": observed.size},
            notes=(*NOTES, *([RARE] if reading.is_rare else []), *([MODELLED] if made else [])),
            ledger=spent_so_far(asked.ledger, asked.everyone, delta),
            unknowns=_shown(reading, len(vocabulary.words), made, listed),
        )
        run.write("guarantee.json", report.guarantee.to_dict())
        report.save(run.path / "report.html")
        report.save_json(run.path / "report.json")
        return report


@dataclasses.dataclass
class _Asked:
    """One question as it is being answered: what has been spent on it so far, and what for."""

    run: Run
    vocabulary: Vocabulary
    case: Case
    epsilon: float
    delta: float
    backend: Callable[[Population], Backend]
    root: Key
    ledger: Ledger
    populations: Mapping[str, str]  # the name of each side's clients in the ledger
    progress: Callable[[str, int, int], None]
    spent: list[Event] = dataclasses.field(default_factory=list[Event])
    releases: list[Mapping[str, Any]] = dataclasses.field(default_factory=list[Mapping[str, Any]])

    @property
    def everyone(self) -> tuple[str, ...]:
        """All populations that a release about both sides reads."""
        return tuple(self.populations.values())

    @property
    def paying(self) -> dict[str, Any]:
        """Where releases are written down, and for which run."""
        return {"ledger": self.ledger, "run": f"{self.run.path.name} {self.run.read('run.json')['id']}"}

    def measure(self, observed: Population, labels: tuple[str, ...], epsilon: float) -> Reading:
        """The one round, made now, or as this run has made it before."""
        parts = [Rates(), Signs(), Votes(labels)]
        if (path := checkpoints.newest(self.run.path)) is None:
            measured = measuring.measure(
                self.backend(observed),
                ARMS,
                parts,
                measuring.noise_for(parts, epsilon=epsilon, delta=self.delta, shares=SHARES),
                clients=observed.size,
                delta=self.delta,
                key=self.root.derive("measure"),
                note="unknown words before and after a change",
                population=self.everyone,
                **self.paying,
            )
            facts: dict[str, Any] = {
                "event": to_json(measured.event),
                "ledger": measuring.witness(self.ledger, self.everyone),
            }
            facts |= {name: {"noise_std": m.noise_std, "epsilon": m.epsilon} for name, m in measured.parts.items()}
            sums = {name: part.sums for name, part in measured.parts.items()}
            path = checkpoints.write(self.run.path, 1, sums, facts)
        kept = checkpoints.load(path, {part.name: np.zeros(part.coordinates) for part in parts})
        self.ledger.verify(kept.facts["ledger"]).raise_if_broken()  # what is read again was paid for there
        released = {part.name: Measured(np.array(kept.tree[part.name]), **kept.facts[part.name]) for part in parts}
        self.spent.append(from_json(kept.facts["event"]))
        self.releases += [part.to_dict(name) for name, part in released.items()]
        return unknown_findings.read(released["rates"], released["signs"], released["votes"], labels)

    def discover(self, sides: Sequence[Population], epsilon: float) -> dict[str, Listed]:
        """Words of each side that many clients use: discovered now, or as this run has discovered them before."""
        listed: dict[str, Listed] = {}
        for number, (side, sentences) in enumerate(zip(SIDES, sides, strict=True)):
            self.progress(f"discovering words {side} the change", number, 2)
            if not (self.run.path / f"discovered-{side}.json").exists():
                own = own_words(sentences, case=self.case, known=self.vocabulary)
                asked: dict[str, Any] = {"epsilon": epsilon, "delta": self.delta}
                asked |= {"key": self.root.derive("discover", number), "population": self.populations[side]}
                found = discover_words(own, backend=self.backend, **asked, **self.paying)
                release = {"what": f"words {side}", "epsilon": found.guarantee.epsilon, "noise_std": found.noise_std}
                words = [(w.replace("\u00a0", " "), float(n)) for w, n in zip(found.words, found.counts, strict=True)]
                kept = {"words": words[:LISTED], "event": to_json(found.event), "release": release}
                kept["ledger"] = measuring.witness(self.ledger, self.populations[side])
                self.run.write(f"discovered-{side}.json", kept)
            kept = self.run.read(f"discovered-{side}.json")
            self.ledger.verify(kept["ledger"]).raise_if_broken()
            self.spent.append(from_json(kept["event"]))
            self.releases.append(kept["release"])
            listed[side] = tuple((word, count) for word, count in kept["words"])
        return listed

    def train(self, sides: Sequence[Population], training: WordTraining) -> dict[str, Generated]:
        """What models of both sides generate; training goes on where this run has stopped."""
        models, costs = unknown_models.train_models(
            *sides,
            vocabulary=self.vocabulary,
            training=training,
            epsilon=self.epsilon,
            delta=self.delta,
            spent=self.spent,
            case=self.case,
            run=self.run,
            backend=self.backend,
            key=self.root.derive("training"),
            ledger=self.ledger,
            population=self.populations,
            progress=lambda done, total: self.progress("training language models", done, total),
        )
        for (side, kind), cost in costs.items():
            self.spent.append(cost)
            alone = certify(cost, delta=self.delta).epsilon
            self.releases.append({"what": f"model of {kind} {side}, {training.rounds} rounds", "epsilon": alone})
        self.progress("asking the models", 2, 3)
        return unknown_models.generate(models, self.vocabulary, training)

    def promise(self, clients: int, training: WordTraining | None) -> Guarantee:
        """What everything that was spent amounts to."""
        words = f"full: all {clients:,}, {FORMINGS['zero_fill']}"
        if training is not None:
            words += f"; training four models: poisson, {training.cohort:,.0f} expected in a round"
        whole = self.spent[0] if len(self.spent) == 1 else Composed(tuple(self.spent))
        return certify(whole, delta=self.delta, participation=words)


def _digest(vocabulary: Vocabulary) -> str:
    return hashlib.blake2b(json.dumps(vocabulary.words).encode(), digest_size=8).hexdigest()


def _alone(epsilon: float, delta: float, share: float) -> float:
    """What a part with this share of the precision costs alone, if all parts together are to cost (epsilon, delta)."""
    whole = solve_noise(Gaussian, epsilon=epsilon, delta=delta)
    found = epsilon if share == 1 else accountants.epsilon(Gaussian(whole * share**-0.5), delta).epsilon
    if not found > 0:
        raise InvalidInput(f"epsilon {epsilon:g} cannot be divided at a delta as large as {delta:g}: use a smaller one")
    return found


def _sentences(population: Population, field: str, most: int) -> Population:
    found = text.split_sentences(population, field=field, most=most)
    return found.replace({"text": found.columns[field]})


def _views(reading: Reading, clients: int) -> tuple[ArmView, ...]:
    """Both sides with the share of clients that have sentences on both."""
    deviation = 1.96 * reading.noise_std["rates"]
    ends = (reading.counted, reading.counted - deviation, reading.counted + deviation)
    share, low, high = (float(np.clip(end / clients, 0, 1)) for end in ends)
    return tuple(ArmView(side, share, low, high) for side in SIDES)


def _shown(reading: Reading, vocabulary: int, made: Mapping[str, Generated], listed: Mapping[str, Listed]) -> Unknowns:
    sides = list[Side]()
    for number, name in enumerate(SIDES):
        rate, *rates = reading.rates(number)
        ends = itertools.pairwise(itertools.accumulate(map(len, (PLACES, TRAITS, LENGTHS)), initial=0))
        places, traits, lengths = (tuple(rates[begin:end]) for begin, end in ends)
        sides.append(Side(name, rate, places, traits, lengths, made.get(name), listed.get(name)))
    return Unknowns(vocabulary, PLACES, TRAITS, LENGTHS, *sides)
