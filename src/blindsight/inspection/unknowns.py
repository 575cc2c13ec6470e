"""`unknowns` (T3): words that a vocabulary lacks have become more; what are they, and what makes them?

Two collections of sentences, before a change and after it. One round over all clients measures on both what the unknown
words are like and which fault of the library explains those that are new (`unknown_words`, `unknown_findings`). On
request, words that many clients use are discovered (`algorithms.vocabulary`), and language models of both sides are
trained that generate sentences and unknown words (`unknown_models`). A client may be on both sides and take part in all
of it: every cost is added up, and everything together is (epsilon, delta)-DP.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.events import Composed, Event, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Backend, Simulation
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring, unknown_findings, unknown_models
from blindsight.inspection.measuring import Measured, Measurement
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

NOTES = (
    "A client's two sides hold equally many of its sentences, the first ones; clients with sentences on one side only "
    "add zeros. Where nothing has changed its sides could change places, and the tests rest on that.",
    "An unknown word is one that the vocabulary lacks, whose words are public.",
)
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
    `suspects` are the faults to vote on, all that can be undone if left out. With `train`, language models of both
    sides generate sentences and unknown words, for their part of the epsilon. `population` is the clients' name in the
    ledger.

    **Guarantee**: everything in the report, and in the run directory `out` less what is marked `simulation_only`, is
    (epsilon, delta)-DP for each client, whether it has sentences on one side or on both.
    """
    training = WordTraining() if train is True else train or None
    faults = suspects_of(suspects, case)
    settings = {"task": "unknowns", "before": before.name, "after": after.name, "epsilon": epsilon, "delta": delta}
    settings |= {"field": field, "case": case, "most": most, "suspects": list(map(str, faults))}
    settings |= {"vocabulary": len(vocabulary.words), "train": dataclasses.asdict(training) if training else None}
    run = runs.create("unknowns", settings) if out is None else runs.begin(out, "unknowns", settings)
    with run.alone():
        root, ledger = key or keys.root(), ledger or Ledger()
        progress("looking for unknown words on every client", 0, 3)
        sentences = paired(before, after, field=field, most=most)
        _check(sentences, before, after)
        observed = observe(sentences, vocabulary, faults, case)
        progress("measuring everyone in one round", 1, 3)
        votes = Votes((*map(str, faults), unknown_findings.NONE))
        left = epsilon * (1 - training.share) if training else epsilon
        paying: dict[str, Any] = {"population": population or after.name, "ledger": ledger}
        paying["run"] = f"{run.path.name} {run.read('run.json')['id']}"
        measured = _measure(run, observed, [Rates(), Signs(), votes], left, delta, backend, root, paying)
        spent, made = [measured.event], dict[str, Generated]()
        if training is not None:
            sides = [text.split_sentences(one, field=field, most=most) for one in (before, after)]
            models, costs = unknown_models.train_models(
                *(one.replace({"text": one.columns[field]}) for one in sides),
                vocabulary=vocabulary,
                training=training,
                epsilon=epsilon,
                delta=delta,
                spent=spent,
                case=case,
                run=run,
                backend=backend,
                key=root.derive("training"),
                ledger=ledger,
                population=paying["population"],
                progress=lambda done, total: progress("training language models", done, total),
            )
            spent += costs
            made = unknown_models.generate(models, vocabulary, training)
        progress("reading what was released", 2, 3)
        guarantee = _promise(spent, delta, observed.size, training)
        run.write("guarantee.json", guarantee.to_dict())
        reading = unknown_findings.read(measured["rates"], measured["signs"], measured["votes"], votes.labels)
        findings, diagnoses = unknown_findings.compare(reading)
        report = Report(
            title="What are these unknown words?",
            task="unknowns",
            question=f"Which words does a vocabulary of {len(vocabulary.words):,} lack after the change, and why?",
            arms=_views(reading, observed.size, made),
            findings=tuple(findings),
            diagnoses=tuple(diagnoses),
            guarantee=guarantee,
            releases=measured.releases,
            population={"name": paying["population"], "clients": observed.size},
            notes=(*NOTES, *([MODELLED] if made else [])),
            unknowns=_shown(reading, len(vocabulary.words), made),
        )
        report.save(run.path / "report.html")
        report.save_json(run.path / "report.json")
        return report


def _check(sentences: Population, before: Population, after: Population) -> None:
    """Refuse what no answer could be given about; who has sentences at all is not told."""
    if not sentences.n_examples:
        shared = set(before.ids.tolist()) & set(after.ids.tolist())
        raise InvalidInput(
            f"no client has sentences both in {before.name} and in {after.name}: give two collections of the same "
            f"clients, whose ids are equal ({len(shared):,} are)"
        )


def _measure(
    run: Run,
    observed: Population,
    parts: list[Any],
    epsilon: float,
    delta: float,
    backend: Callable[[Population], Backend],
    root: Key,
    paying: Mapping[str, Any],
) -> Measurement:
    """The one round, made now, or as this run has made it before."""
    if (path := checkpoints.newest(run.path)) is not None:
        kept = checkpoints.load(path, {part.name: np.zeros(part.coordinates) for part in parts})
        event = from_json(kept.facts["event"])
        released = {part.name: Measured(np.array(kept.tree[part.name]), **kept.facts[part.name]) for part in parts}
        return Measurement(released, SIDES, observed.size, event, certify(event, delta=delta))
    measured = measuring.measure(
        backend(observed),
        ARMS,
        parts,
        measuring.noise_for(parts, epsilon=epsilon, delta=delta, shares=SHARES),
        clients=observed.size,
        delta=delta,
        key=root.derive("measure"),
        note="unknown words before and after a change",
        **paying,
    )
    facts: dict[str, Any] = {"event": to_json(measured.event)}
    facts |= {name: {"noise_std": m.noise_std, "epsilon": m.epsilon} for name, m in measured.parts.items()}
    checkpoints.write(run.path, 1, {name: part.sums for name, part in measured.parts.items()}, facts)
    return measured


def _promise(spent: Sequence[Event], delta: float, clients: int, training: WordTraining | None) -> Guarantee:
    """What everything that was spent amounts to."""
    words = f"full: all {clients:,}, {FORMINGS['zero_fill']}"
    if training is not None:
        words += f"; training four models: poisson, {training.cohort:,.0f} expected in a round"
    return certify(spent[0] if len(spent) == 1 else Composed(tuple(spent)), delta=delta, participation=words)


def _views(reading: Reading, clients: int, made: Mapping[str, Generated]) -> tuple[ArmView, ...]:
    """Both sides with the share of clients that have both, and the phrases that their models say."""
    deviation = 1.96 * reading.noise_std["rates"]
    ends = (reading.counted, reading.counted - deviation, reading.counted + deviation)
    share, low, high = (float(np.clip(end / clients, 0, 1)) for end in ends)
    return tuple(ArmView(side, share, low, high) for side in SIDES)


def _shown(reading: Reading, vocabulary: int, made: Mapping[str, Generated]) -> Unknowns:
    sides = list[Side]()
    for number, name in enumerate(SIDES):
        rate, *rates = reading.rates(number)
        ends = itertools.pairwise(itertools.accumulate(map(len, (PLACES, TRAITS, LENGTHS)), initial=0))
        places, traits, lengths = (tuple(rates[begin:end]) for begin, end in ends)
        sides.append(Side(name, rate, places, traits, lengths, made.get(name)))
    return Unknowns(vocabulary, PLACES, TRAITS, LENGTHS, *sides)
