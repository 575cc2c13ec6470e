"""Is inspection right on strangers' data? False alarms where nothing is wrong, and names of faults planted by others.

    python experiments/strangers.py plant --cache FOLDER         only compute what clients send; a GPU helps
    python experiments/strangers.py null [--runs 200] [--epsilon 8] [--beds femnist,mnist,adult,handwriting]
    python experiments/strangers.py draw
    python experiments/strangers.py naming [--runs 50] [--epsilon 1 4 8] [--beds femnist,mnist,handwriting]
    python experiments/strangers.py naming --pool 1300 --clients 1000 --beds handwriting        more clients

Settings were chosen on handwriting; on the others they are judged.
What each client would send is computed once. A run draws private clients and public ones anew, without overlap, and
the noise of a round at (epsilon, 1e-6) with the default shares of precision. Everything is read as `blindsight inspect`
reads it. Models are trained on clients that are in neither.
"""

import argparse
import dataclasses
import gzip
import itertools
import json
import math
import multiprocessing
import pickle
import platform
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from strangers_pictures import MORE_PICTURES, PICTURES

from blindsight import data
from blindsight.algorithms.moments import MomentsPart
from blindsight.data import faults
from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.inspection.contrast import cues, reading, votes
from blindsight.inspection.contrast.averages import Averages, encoded
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.explained import FACELESS, Explanation, verdict_on
from blindsight.inspection.contrast.explaining import explain
from blindsight.inspection.contrast.nameless import nameless
from blindsight.inspection.contrast.planting import candidates, faceless, worth_running
from blindsight.inspection.contrast.predicting import Evidence
from blindsight.inspection.contrast.question import Comparing, Mistakes, Sanity, Slices
from blindsight.inspection.contrast.reading import Usual
from blindsight.inspection.contrast.rounds import AccuracyCells, features_of, observe, plan
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.contrast.votes import VotesPart
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.measuring import Measured
from blindsight.inspection.question import Public, complete, identity_of
from blindsight.models import CNN
from blindsight.models.equinox_models import fit
from blindsight.models.primary import Primary, gather, primary
from blindsight.selection import Arms, by_accuracy, by_correctness, everything

matplotlib.use("agg")

DELTA = 1e-6
RESULTS = Path("experiments/results")
QUESTIONS: Mapping[str, type[Comparing]] = {"sanity": Sanity, "mistakes": Mistakes, "slices": Slices}

Sent = Mapping[str, np.ndarray]
"""What every client would send, by part: one row for each client."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bed:
    """A pool of real clients, and a model that was trained on others."""

    name: str
    pool: Population
    model: Primary
    schema: Schema

    def question(self, task: str, clients: int, epsilon: float) -> Comparing:
        """The question as the command line asks it."""
        about: dict[str, Any] = {"schema": self.schema, "clients": clients, "epsilon": epsilon, "delta": DELTA}
        return QUESTIONS[task](**about, model=identity_of(self.model))

    def look(self, population: Population) -> Population:
        """What clients derive from their own examples."""
        public = Public(model=self.model, reference=self.pool)
        return observe(self.question("sanity", population.size, 1.0), public, population)


def accuracies(seen: Population) -> np.ndarray:
    """The model's accuracy on each client."""
    owner = np.repeat(np.arange(seen.size), seen.sizes)
    return np.bincount(owner, seen.columns["is_correct"], seen.size) / np.maximum(seen.sizes, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Clients:
    """What clients send: as one arm, and as two arms of examples; and the model's accuracy on each.

    `averages` are the means of their moments, by how many are measured; only where faults are planted.
    """

    everyone: Sent
    mistakes: Sent
    right: np.ndarray
    names: tuple[str, ...]  # of the cues
    labels: tuple[str, ...]  # of the votes
    averages: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict[int, np.ndarray])

    @classmethod
    def of(cls, seen: Population, measured: Sequence[MomentsPart] = ()) -> "Clients":
        """Compute it, client by client, with the means of these moments."""
        names, labels = seen.classes[cues.FIELD], (*seen.classes[votes.FIELD], "none")
        alone, both = Arms({"everyone": everything()}), by_correctness(5)
        return cls(
            client_vectors(seen, alone, parts_of(names, labels, alone)),
            client_vectors(seen, both, parts_of(names, labels, both)),
            accuracies(seen),
            names,
            labels,
            averages_of(seen, measured),
        )

    def parts(self, arms: Arms) -> dict[str, Any]:
        """The parts of a round with these arms."""
        return {part.name: part for part in parts_of(self.names, self.labels, arms)}

    def send(self, arms: Arms, measured: int = 0) -> Sent:
        """What they send for these arms, of moments so many means; an arm of whole clients has the rows of all."""
        everyone = self.everyone | ({"moments": self.averages[measured]} if measured in self.averages else {})
        if len(arms) == 1:
            return everyone
        if "mistakes" in arms:
            return self.mistakes
        (_, failing), (_, healthy) = arms.criteria
        member = [self.right < failing.below - 1e-5, self.right >= healthy.least - 1e-5]  # pyright: ignore
        both = lambda sent: np.concatenate([sent * one[:, None] for one in member], axis=1)  # noqa: E731
        return {name: both(sent) for name, sent in everyone.items()}


def averages_of(seen: Population, measured: Sequence[MomentsPart]) -> dict[int, np.ndarray]:
    """The means of all clients' moments, by how many there are."""
    return {
        part.features.encoding.size: client_vectors(
            encoded(seen, part.features), Arms({"everyone": everything()}), [Averages(part)]
        )["moments"]
        for part in measured
    }


def parts_of(names: tuple[str, ...], labels: tuple[str, ...], arms: Arms) -> list[Any]:
    """Cues and votes."""
    disjoint, listed = arms.disjoint_by_client, tuple(arms)
    return [Cues(names, listed, disjoint), VotesPart(labels, listed, disjoint, 0.15 if disjoint else 0.08)]


def noise_of(bed: Bed, task: str, clients: int, epsilon: float) -> dict[str, float]:
    """The standard deviation of the noise in each part's sums on the default path; of moments, in their means."""
    planned = plan(bed.question(task, clients, epsilon), Public(model=bed.model, reference=bed.pool))
    stds = {part.name: planned.mechanisms[part.name].noise_multiplier * part.bound for part in planned.parts}
    for part in planned.parts:
        if isinstance(part, MomentsPart):
            stds[part.name] *= math.sqrt(len(part.classes))
    return stds


def moments_of(bed: Bed, task: str, clients: int, epsilon: float) -> MomentsPart:
    """The moments that are measured, of one arm; scales come from the whole pool, so that all runs share them."""
    question, public, label = bed.question(task, clients, epsilon), Public(reference=bed.pool), bed.schema.label
    empty = bed.schema.population()
    features = features_of(question, public, empty, 2 if task == "slices" else 1)
    assert features is not None
    return MomentsPart(features, ("everyone",), empty.classes[label], label)


def thresholds(right: np.ndarray, noise_std: float, dice: np.random.Generator) -> Arms:
    """Quarters of clients by accuracy, estimated with noise."""
    part = AccuracyCells()
    finest = np.clip(np.floor(right * 2**part.levels), 0, 2**part.levels - 1).astype(int)
    rows = [np.bincount(finest >> (part.levels - level), minlength=2**level) for level in range(1, part.levels + 1)]
    noisy = np.concatenate(rows) + noise_std * dice.standard_normal(part.coordinates)
    low, high = (part.read(Measured(noisy, noise_std, 1.0), level).value for level in (0.25, 0.75))
    return by_accuracy(max(low, 1e-3), max(low, high, 1e-3))


def arms_of(task: str, right: np.ndarray, noise_std: float, dice: np.random.Generator) -> Arms:
    """The arms of a task; quarters by accuracy are estimated."""
    if task == "slices":
        return thresholds(right, noise_std, dice)
    return by_correctness(5) if task == "mistakes" else Arms({"everyone": everything()})


def ask(
    made: "Planted",
    task: str,
    rows: np.ndarray,
    hit: np.ndarray,
    fault: str,
    own: np.ndarray,
    epsilon: float,
    dice: Any,
) -> tuple[Arms, dict[str, Measured], list[Finding], list[Diagnosis]]:
    """One inspection of the clients `rows`, where `hit` have the fault, against the public clients `own`."""
    healthy, faulty = made.healthy, made.others.get(fault, made.healthy)
    stds = made.noise[task, len(rows), epsilon]
    right = np.where(hit, faulty.right[rows], healthy.right[rows])
    arms = arms_of(task, right, stds.get("thresholds", 0.0), dice)
    measured = made.measured.get((task, len(rows), epsilon), 0)
    well, ill = healthy.send(arms, measured), faulty.send(arms, measured)
    sums = {name: well[name][rows[~hit]].sum(axis=0) + ill[name][rows[hit]].sum(axis=0) for name in well}
    released = {n: Measured(s + stds[n] * dice.standard_normal(s.shape), stds[n], 1.0) for n, s in sums.items()}
    release: Any = Release(released, len(rows))
    parts = healthy.parts(arms)
    usual = usual_of(healthy, own, arms, parts)
    return arms, released, *reading.read(release, parts, arms, usual)


class Release(SimpleNamespace):
    """The fields of a measurement that are read."""

    def __init__(self, parts: Mapping[str, Measured], clients: int) -> None:
        super().__init__(parts=parts, clients=clients)

    def __getitem__(self, name: str) -> Measured:
        return self.parts[name]


def usual_of(public: Clients, own: np.ndarray, arms: Arms, parts: Mapping[str, Any]) -> Usual:
    """What is usual on these public clients, as `reading.usual` computes it."""
    exact = sent = {name: rows[own] for name, rows in public.send(arms).items()}
    block = parts["cues"].block
    members = {arm: int((sent["cues"][:, (p + 1) * block - 1] > 0).sum()) for p, arm in enumerate(arms)}
    if len(arms) > 1 and arms.disjoint_by_client and min(members.values()) < 5 <= len(own) / 4:
        low, high = np.quantile(public.right[own], (0.25, 0.75))
        sent = {name: rows[own] for name, rows in public.send(by_accuracy(max(low, 1e-3), max(low, high))).items()}
    return Usual(sent, members, exact)


# --- beds


def pictures(name: str, population: Population, learning: int, *, weak_clients: int, epochs: int = 4) -> list[Bed]:
    """Writers: a CNN, and a linear model of few writers."""
    dice = np.random.default_rng(1)
    order = dice.permutation(population.size)
    taught, pool = population.select(order[:learning]), population.select(order[learning:])
    classes = len(population.classes["label"])
    x, y = taught.columns["image"], taught.columns["label"]
    cnn = fit(CNN((28, 28), classes, key=jax.random.key(0)), x, y, epochs=epochs, key=jax.random.key(1))
    few = population.select(order[:weak_clients])
    line = LogisticRegression(max_iter=60, C=0.01).fit(_flat(few.columns["image"]), few.columns["label"])
    schema = complete(Schema(inputs=("image",), label="label"), pool, ("image",))
    models = {
        "good": primary(cnn, name="CNN"),
        "weak": dataclasses.replace(primary(_Scores(line, classes), name="linear model"), by_row=True),
    }
    return [Bed(f"{name}, {which}", pool, model, schema) for which, model in models.items()]


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), int(np.prod(images.shape[1:]))).astype(np.float32) / 255


class _Scores:
    """A scikit-learn classifier as a function of images or rows."""

    def __init__(self, model: Any, classes: int, columns: slice | None = None) -> None:
        self.model, self.classes, self.columns = model, classes, columns

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        rows = _flat(inputs) if inputs.ndim > 2 else inputs
        scores = np.zeros((len(rows), self.classes))
        if len(rows):
            scores[:, self.model.classes_.astype(int)] = self.model.predict_proba(rows)
        return scores


def femnist() -> list[Bed]:
    """541 writers of 62 classes, dark ink."""
    return pictures("femnist", data.dataset("femnist"), 160, weak_clients=160, epochs=15)


def mnist() -> list[Bed]:
    """836 writers of ten digits."""
    return pictures("mnist", data.dataset("mnist", split="all"), 150, weak_clients=1)


def handwriting() -> list[Bed]:
    """Embedded writers, on which settings were chosen."""
    population = data.embedded("handwriting", clients=1500, seed=3)
    return pictures("handwriting", population.replace(population.columns), 200, weak_clients=4)


def adult() -> list[Bed]:
    """Rows of the census dealt to clients of about twenty."""
    population = data.dataset("adult", split="all", clients=2440)
    inputs = tuple(f for f, (d, s) in population.fields.items() if d.kind in "if" and f not in population.classes)
    taught, pool = population.select(np.arange(300)), population.select(np.arange(300, population.size))
    x, y = gather(taught.columns, inputs), taught.columns["label"]
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-6
    net = MLPClassifier((16,), max_iter=60, random_state=0).fit((x - mean) / spread, y)
    some = np.flatnonzero(y == 1).tolist() + np.flatnonzero(y == 0)[: int((y == 1).sum())].tolist()
    line = LogisticRegression().fit(((x - mean) / spread)[some][:, :2], y[some])  # about 65 %
    tops = {f: (float(taught.columns[f].min()), float(taught.columns[f].max())) for f in inputs}
    given = {f: data.schema.Field("whole", low=low, high=high) for f, (low, high) in tops.items()}
    schema = complete(Schema(given, inputs, "label"), pool, inputs)
    models = {
        "good": lambda rows: _Scores(net, 2)((rows - mean) / spread),
        "weak": lambda rows: _Scores(line, 2)(((rows - mean) / spread)[:, :2]),
    }
    return [
        Bed(f"adult, {which}", pool, dataclasses.replace(primary(model, name=which), by_row=True), schema)
        for which, model in models.items()
    ]


BEDS = {"femnist": femnist, "mnist": mnist, "adult": adult, "handwriting": handwriting}


# --- null runs


def is_alarm(findings: list[Finding], diagnoses: list[Diagnosis]) -> bool:
    """Whether anything is named or called detected."""
    return any(one.verdict == "detected" for one in findings) or any(one.fault != "none" for one in diagnoses)


def upper(alarms: int, runs: int) -> float:
    """The upper 95 % limit of a rate (Clopper and Pearson)."""
    return float(stats.beta.ppf(0.95, alarms + 1, runs - alarms)) if alarms < runs else 1.0


CELLS = [(n, m) for n in (100, 220, 1000) for m in (100, 1000)]


def null(made: "Planted", runs: int, epsilon: float, only: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The cells of the table of false alarms: every task, as far as the data set reaches."""
    fits = [(task, n, m) for task in QUESTIONS for n, m in CELLS if n + m <= len(made.healthy.right)]
    cells = [(null_cell, made.name, task, n, m, runs, epsilon) for task, n, m in fits]
    return [cell for cell in cells if not only or ":".join(map(str, cell[1:5])) in only]


def null_cell(made: "Planted", task: str, n: int, m: int, runs: int, epsilon: float) -> dict[str, Any]:
    """How often anything is named or called detected where nothing is wrong."""
    alarms, by = 0, dict[str, int]()
    nobody = np.zeros(n, bool)
    for run in range(runs):
        dice = np.random.default_rng((7, run))
        order = dice.permutation(len(made.healthy.right))
        *_, findings, diagnoses = ask(made, task, order[:n], nobody, "", order[n : n + m], epsilon, dice)
        alarms += is_alarm(findings, diagnoses)
        for kind in {one.kind for one in findings if one.verdict == "detected"}:
            by[kind] = by.get(kind, 0) + 1
    row = {"bed": made.name, "task": task, "clients": n, "public": m, "runs": runs, "epsilon": epsilon}
    row |= {"alarms": alarms / runs, "upper": upper(alarms, runs), "by": by}
    print(
        f"{made.name:18} {task:9} N {n:5} M {m:5}: {alarms / runs:6.1%} (at most {row['upper']:.1%}) {by}", flush=True
    )
    return row


# --- faults planted by others

POOL, EXAMPLES, PLANTED = 340, 24, 60
"""Clients and examples of each with faults, and public clients that candidates are planted in."""


def damaged(pool: Population, change: Any, field: str) -> Population:
    """The pool with the fault on all examples of every client."""
    return pool.replace({**pool.columns, field: np.ascontiguousarray(change(pool.columns[field]))})


@dataclasses.dataclass(frozen=True, eq=False)
class Planted:
    """What is sent on a bed: healthy, with each fault of the library, of others, and with each rival; and the noise."""

    name: str
    accuracy: float
    healthy: Clients
    library: dict[str, Clients]
    others: dict[str, Clients]
    rivals: dict[str, Clients]  # changes without a name
    noise: dict[tuple[str, int, float], dict[str, float]]
    measured: dict[tuple[str, int, float], int]  # how many means the moments have


def plant(bed: Bed, *, with_faults: bool, most: int = POOL) -> Planted:
    """Compute what every client of the pool would send, once; with faults, for fewer clients and examples."""
    pool = smaller(bed.pool, most, EXAMPLES) if with_faults else bed.pool
    seen = bed.look(pool)
    library, others, rivals = dict[str, Clients](), dict[str, Clients](), dict[str, Clients]()
    sizes = [n for n in (100, 220, 500, 1000) if n < pool.size]
    asked: list[tuple[str, int, float]] = []
    if with_faults:
        asked += itertools.product(("sanity", "slices"), sizes, (1.0, 4.0, 8.0))
    parts = {one: moments_of(bed, *one) for one in asked}
    measured = {one: part.features.encoding.size for one, part in parts.items()}
    different = list({size: parts[one] for one, size in measured.items()}.values())
    if with_faults:
        inputs = bed.schema.inputs
        sent = lambda population: Clients.of(bed.look(population.replace(population.columns)), different)  # noqa: E731
        library = {fault: sent(faults.apply(pool, fault)) for fault in candidates(pool, inputs, "label")}
        rivals = {name: sent(change(pool)) for name, change in nameless(pool, inputs).items()}
        others = {name: sent(damaged(pool, change, "image")) for name, (change, _) in FAULTS.items()}
    noise = {(t, n, e): noise_of(bed, t, n, e) for t in QUESTIONS for n in sizes for e in (1.0, 4.0, 8.0)}
    right = float(seen.columns["is_correct"].mean())
    print(f"{bed.name}: accuracy {right:.3f}, {pool.size} clients, {len(library)} candidates", flush=True)
    healthy = Clients.of(seen, different)
    return Planted(bed.name, right, healthy, library, others, rivals, noise, measured)


FAULTS: Mapping[str, tuple[Any, str]] = PICTURES | {name: (change, "") for name, change in MORE_PICTURES.items()}


def smaller(pool: Population, clients: int, examples: int) -> Population:
    """The first clients, with their first examples."""
    few = pool.select(np.arange(min(clients, pool.size)))
    place = np.arange(few.n_examples) - np.repeat(few.offsets[:-1], few.sizes)
    columns = {field: column[place < examples] for field, column in few.columns.items()}
    return Population(columns, sizes=np.minimum(few.sizes, examples), classes=few.classes, name=few.name)


def diagnosed(
    made: Planted, task: str, fault: str, share: float, n: int, m: int, epsilon: float, without: str, run: int
) -> tuple[bool, tuple[Explanation, ...]]:
    """Whether anything was detected, and the candidates that were tried."""
    cell = f"{made.name} {task} {fault} {share} {n} {epsilon}"  # every cell has public clients of its own
    dice = np.random.default_rng((3, run, zlib.crc32(cell.encode())))
    order = dice.permutation(len(made.healthy.right))
    rows, own, hit = order[:n], order[n : n + m], dice.random(n) < share
    arms, released, findings, _ = ask(made, task, rows, hit, fault, own, epsilon, dice)
    if not any(one.verdict == "detected" for one in findings):
        return False, ()
    measured = made.measured[task, n, epsilon]
    healthy, few, places = made.healthy.send(arms, measured), own[:PLANTED], np.arange(PLANTED)
    everything_known = made.rivals | {
        spelled: clients for spelled, clients in made.library.items() if not without or not spelled.startswith(without)
    }

    def evidence(names: list[str]) -> Evidence:
        return Evidence(
            sums=np.concatenate([released[name].sums for name in names]),
            noise_std=np.concatenate([np.full(released[name].sums.size, released[name].noise_std) for name in names]),
            clients=n,
            public=np.concatenate([healthy[name][own] for name in names], axis=1),
        )

    def as_failing(sent: Clients) -> np.ndarray:
        blocks = sent.everyone["cues"][few]
        return np.pad(blocks, ((0, 0), (0, (len(arms) - 1) * blocks.shape[1])))

    def side_by_side(sent: Sent) -> np.ndarray:
        return np.concatenate([sent[name][few] for name in released], axis=1)

    by_cues = {name: (places, as_failing(sent)) for name, sent in everything_known.items()}
    votes = released["votes"].sums.reshape(len(arms), -1)
    listed = worth_running(evidence(["cues"]), by_cues, made.healthy.labels, votes)
    known = {name: sent for name in listed if (sent := everything_known.get(name))}
    tried = {name: (places, side_by_side(sent.send(arms, measured))) for name, sent in known.items()}
    if task == "slices":
        own_arms: Any = SimpleNamespace(by_name=made.healthy.parts(arms), arms=arms)
        tried[FACELESS] = places, faceless(own_arms, {name: sent[few] for name, sent in healthy.items()})
    return True, explain(evidence([*released]), tried)


def naming(made: Planted, runs: int, epsilons: tuple[float, ...], sizes: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """The cells of the table of names; each fault of the library is also left out of it, at 20 %."""
    return [
        (named_cell, made.name, task, fault, share, n, 100, epsilon, without, runs)
        for task in ("sanity", "slices")
        for n in sizes
        if n + 100 <= len(made.healthy.right)
        for epsilon in epsilons
        for share in (0.1, 0.2, 0.5)
        for fault, (_, answer) in FAULTS.items()
        for without in dict.fromkeys(("", answer.partition(":")[0] if share == 0.2 else ""))
    ]


def said(tried: tuple[Explanation, ...], answer: str) -> tuple[str, str, Explanation | None]:
    """What kind of answer it is, the name that was given, and the explanation if it is one."""
    name, close = verdict_on(tried)
    is_it = [bool(answer) and one.fault.startswith(answer) and len(one.parts) == 1 for one in close]
    if name == "unknown":
        return "unknown", name, None
    if name == "several":
        return ("in a list" if any(is_it) else "several"), " or ".join(one.fault for one in close), None
    return ("right" if is_it[0] else "wrong"), name, close[0]


def named_cell(
    made: Planted, task: str, fault: str, share: float, n: int, m: int, epsilon: float, without: str, runs: int
) -> dict[str, Any]:
    """How often a planted fault is detected, named rightly, called unknown, and named wrongly."""
    answer = "" if without else FAULTS[fault][1].partition(":")[0]
    kinds, names, covered = list[str](), list[str](), 0
    for run in range(runs):
        seen, tried = diagnosed(made, task, fault, share, n, m, epsilon, without, run)
        if seen:
            kind, name, best = said(tried, answer)
            kinds.append(kind)
            names += [name] * (kind in ("wrong", "several"))
            covered += kind == "right" and best is not None and best.low <= share <= best.high
    row: dict[str, Any] = {"bed": made.name, "task": task, "fault": fault, "answer": answer, "without": without}
    row |= {"share": share, "clients": n, "public": m, "epsilon": epsilon, "runs": runs, "detected": len(kinds) / runs}
    row |= {kind: kinds.count(kind) / runs for kind in KINDS}
    row |= {"covered": covered / max(kinds.count("right"), 1), "named": sorted(set(names))}
    print(
        f"{made.name:16} {task:7} N {n} eps {epsilon:g} {share:4.0%} {fault:17}{'(left out)' if without else '':11} "
        f"detected {row['detected']:4.0%} " + " ".join(f"{kind} {row[kind]:4.0%}" for kind in KINDS),
        row["named"],
        flush=True,
    )
    return row


KINDS = ("right", "in a list", "several", "unknown", "wrong")

MADE: dict[str, Planted] = {}
"""What each bed's clients send; shared with the processes that are forked."""


def run_cell(cell: tuple[Any, ...]) -> dict[str, Any]:
    """One cell of a table."""
    measure, name, *words = cell
    return measure(MADE[name], *words)


def main() -> None:
    """Run the part that is asked for and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("null", "naming", "plant", "draw"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0])
    parser.add_argument("--beds", default=",".join(BEDS))
    parser.add_argument("--only", nargs="+", default=[], help="Cells of null: 'adult, weak:slices:220:1000'.")
    parser.add_argument("--clients", type=int, nargs="+", default=[220], choices=(220, 500, 1000))
    parser.add_argument("--pool", type=int, default=POOL, help="Clients of a bed with faults, public ones included.")
    parser.add_argument("--cache", type=Path, default=None, help="Folder that keeps what clients send.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.part == "draw":
        draw(asked.out)
        return
    began = time.monotonic()
    for name in asked.beds.split(","):
        for made in kept(name, asked.cache, asked.pool, with_faults=asked.part != "null"):
            MADE[made.name] = made
    if asked.part == "plant":
        return
    cells = list[tuple[Any, ...]]()
    for made in MADE.values():
        if asked.part == "null":
            cells += [cell for epsilon in asked.epsilon for cell in null(made, asked.runs, epsilon, tuple(asked.only))]
        else:
            cells += naming(made, asked.runs, tuple(asked.epsilon), tuple(asked.clients))
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        rows = pool.map(run_cell, cells, chunksize=1)
    about = {
        "command": f"python experiments/strangers.py {asked.part} --runs {asked.runs} --beds {asked.beds} --epsilon "
        + " ".join(f"{epsilon:g}" for epsilon in asked.epsilon)
        + (f" --pool {asked.pool} --clients {' '.join(map(str, asked.clients))}" if asked.pool != POOL else ""),
        "machine": f"{platform.machine()}, jax {jax.__version__}, {jax.devices()[0].device_kind}",
        "seconds": round(time.monotonic() - began),
        "models": {made.name: round(made.accuracy, 3) for made in MADE.values()},
    }
    write(asked.out / f"strangers_{asked.part}.json", about, rows)


COLUMNS = ("bed", "task", "fault", "answer", "without", "clients", "public", "share", "epsilon")
COLUMNS += ("detected", *KINDS, "covered", "named")


def write(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The results, one row a line."""
    short = lambda value: round(value, 3) if isinstance(value, float) else value  # noqa: E731
    if "right" in rows[0]:
        about = about | {"summary": summary(rows), "columns": COLUMNS, "runs": rows[0]["runs"]}
        lines = [json.dumps([short(row[name]) for name in COLUMNS]) for row in rows]
    else:
        lines = [json.dumps(row) for row in rows]
    body = ",\n".join(f"  {line}" for line in lines)
    path.write_text(json.dumps(about, indent=1)[:-2] + f',\n "rows": [\n{body}\n ]\n}}\n')


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """What is said, in shares of the runs that detect something, by task and by what the library has of the fault."""
    table = dict[str, dict[str, float]]()
    groups = {"in the library, detected in all runs": lambda row: row["answer"] and row["detected"] == 1} | GROUPS
    beds = dict.fromkeys(row["bed"].partition(",")[0] for row in rows)
    for bed, task, (group, is_in) in itertools.product(beds, ("sanity", "slices"), groups.items()):
        chosen = [row for row in rows if row["bed"].startswith(bed) and row["task"] == task and is_in(row)]
        seen, right = (max(sum(row[kind] for row in chosen), 1e-9) for kind in ("detected", "right"))
        said = {kind: round(sum(row[kind] for row in chosen) / seen, 3) for kind in KINDS}
        covered = round(sum(row["covered"] * row["right"] for row in chosen) / right, 3)
        runs = {"cells": len(chosen), "runs": round(sum(row["detected"] * row["runs"] for row in chosen))}
        table[f"{bed}, {task}: {group}"] = runs | said | {"covered": covered}
    return table


GROUPS = {
    "in the library": lambda row: bool(row["answer"]),
    "left out of it": lambda row: bool(row["without"]),
    "never in it": lambda row: not row["answer"] and not row["without"],
}
COLOURS = {"right": "#2a7f4f", "unknown": "#8aa4bf", "in a list": "#9ccb9f", "several": "#d9c46a", "wrong": "#b3261e"}


def draw(folder: Path) -> None:
    """What is said of planted faults, of the runs that detected something."""
    stored = json.loads((folder / "strangers_naming.json").read_text())
    rows = [dict(zip(stored["columns"], row, strict=True)) for row in stored["rows"]]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True)
    for axis, task in zip(axes, ("sanity", "slices"), strict=True):
        labels = list[str]()
        for group, is_in in GROUPS.items():
            for bed in dict.fromkeys(row["bed"] for row in rows):
                chosen = [row for row in rows if row["task"] == task and row["bed"] == bed and is_in(row)]
                seen, left = sum(row["detected"] for row in chosen), 0.0
                for kind, colour in COLOURS.items():
                    share = sum(row[kind] for row in chosen) / max(seen, 1e-9)
                    axis.barh(len(labels), share, left=left, color=colour, label=kind if not labels else None)
                    left += share
                labels.append(f"{group}: {bed}")
        axis.set_yticks(range(len(labels)), labels)
        axis.set_xlabel("share of runs that detected something")
        axis.set_title(f"inspect {task}")
    axes[0].invert_yaxis()  # both axes: they share it
    axes[0].legend(ncols=5, loc="upper center", bbox_to_anchor=(0.9, -0.14), frameon=False)
    figure.tight_layout()
    figure.savefig(folder / "strangers_naming.png", dpi=110)


def kept(name: str, cache: Path | None, most: int, *, with_faults: bool) -> list[Planted]:
    """The beds of a data set, from the cache if they are there."""
    path = None if cache is None else cache / f"{name}-{most}.pkl.gz"
    if path is not None and path.exists():
        return pickle.loads(gzip.decompress(path.read_bytes()))
    made = [plant(bed, with_faults=with_faults and name != "adult", most=most) for bed in BEDS[name]()]
    if path is not None and with_faults:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(pickle.dumps(made), 1))
    return made


if __name__ == "__main__":
    main()
