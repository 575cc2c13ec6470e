"""False alarms on real text where nothing is wrong: Stack Exchange users, every task but bias.

    python experiments/strangers_text.py [--runs 200] [--epsilon 8] [--processes 2]

Contrasts read numbers derived from posts (a model tells questions, answers and comments apart), and `sanity` also reads
the raw text without a model. For `unknowns`, every post of a user goes before or after "the change" by a fair coin, and
each run swaps the sides of each user anew: its two sides are exchangeable, so nothing has changed. The vocabulary comes
from the posts of M other users. As in `strangers.py`, what each client would send is computed once, clients are redrawn
and noise is new.
"""

import argparse
import dataclasses
import functools
import multiprocessing
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import strangers
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from blindsight import data
from blindsight.backends import Batch
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.inspection.contrast import cues, reading
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.question import Sanity
from blindsight.inspection.contrast.reading import Usual
from blindsight.inspection.contrast.rounds import observe, plan
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured
from blindsight.inspection.question import Public, complete
from blindsight.inspection.unknowns import findings as word_findings
from blindsight.inspection.unknowns import task as unknowns
from blindsight.inspection.unknowns import words
from blindsight.inspection.unknowns.question import Unknowns
from blindsight.models.primary import gather, primary
from blindsight.selection import Arms, everything

FIRST = ("i", "my", "me", "i'm", "i've")
SECOND = ("you", "your", "you're")
ASKING = ("how", "what", "why", "can", "any", "is")
NUMBERS = ("words", "word length", "capitals", "digits", "question marks", "paragraphs", "first person")
NUMBERS += ("second person", "links", "mentions", "asking words", "score")


# --- contrasts


@functools.cache
def users() -> Population:
    """Stack Exchange users with five posts or more."""
    population = data.dataset("stackexchange")
    return population.select(np.flatnonzero(population.sizes >= 5))


def numbers_of(text: str, score: int) -> list[float]:
    """A post as numbers, each on a logarithmic scale."""
    tokens = text.split()
    plain = [token.lower().strip(".,?!'\"()") for token in tokens]
    many, long = max(len(tokens), 1), max(len(text), 1)
    shares = [sum(token in listed for token in plain) / many for listed in (FIRST, SECOND, ASKING)]
    counts = [len(tokens), long / many, sum(map(str.isupper, text)) / long, sum(map(str.isdigit, text)) / long]
    counts += [text.count("?"), text.count("\n"), *shares[:2], text.count("<url>"), text.count("@user"), shares[2]]
    return np.log1p([*counts, max(score, 0)]).tolist()


def posts() -> list[strangers.Bed]:
    """Posts as numbers; the model says whether a post is a question, an answer or a comment."""
    population = users()
    rows = zip(population.columns["text"].tolist(), population.columns["score"].tolist(), strict=True)
    values = np.array([numbers_of(*row) for row in rows], np.float32)
    columns = {name: values[:, place] for place, name in enumerate(NUMBERS)} | {"label": population.columns["kind"]}
    numeric = population.replace(columns)
    numeric.classes["label"] = population.classes["kind"]
    order = np.random.default_rng(1).permutation(numeric.size)
    taught, pool = numeric.select(order[:300]), numeric.select(order[300:])
    x, y = gather(taught.columns, NUMBERS), taught.columns["label"]
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-6
    net = MLPClassifier((32,), max_iter=40, random_state=0).fit((x - mean) / spread, y)
    line = LogisticRegression().fit(((x - mean) / spread)[:, :2], y)
    given = {name: Field("number", low=0.0, high=float(x[:, place].max())) for place, name in enumerate(NUMBERS)}
    schema = complete(Schema(given, NUMBERS, "label"), pool, NUMBERS)
    models = {
        "good": lambda rows: strangers._Scores(net, 3)((rows - mean) / spread),
        "weak": lambda rows: strangers._Scores(line, 3)(((rows - mean) / spread)[:, :2]),
    }
    return [
        strangers.Bed(
            f"stackexchange, {which}", pool, dataclasses.replace(primary(model, name=which), by_row=True), schema
        )
        for which, model in models.items()
    ]


EVERYONE = Arms({"everyone": everything()})


@dataclasses.dataclass(frozen=True, eq=False)
class RawText:
    """What clients send for `sanity` of their texts, without a model."""

    name: str
    part: Cues
    sent: np.ndarray
    noise_std: Mapping[tuple[int, float], float]

    @classmethod
    def of(cls, epsilons: Sequence[float]) -> "RawText":
        """Compute it, client by client."""
        population = users()
        pool = population.replace({"text": population.columns["text"]})
        schema, public = complete(Schema(inputs=("text",)), pool, ("text",)), Public(reference=pool)
        ask = lambda n, epsilon: Sanity(schema=schema, clients=n, epsilon=epsilon, delta=strangers.DELTA)  # noqa: E731
        seen = observe(ask(pool.size, 1.0), public, pool)
        part = Cues(seen.classes[cues.FIELD], tuple(EVERYONE), True)
        noise = {
            (n, epsilon): plan(ask(n, epsilon), public).mechanisms["cues"].noise_multiplier * part.bound
            for n in (100, 220, 1000)
            for epsilon in epsilons
        }
        return cls("stackexchange, text", part, client_vectors(seen, EVERYONE, [part])["cues"], noise)


def raw_cell(made: RawText, task: str, n: int, m: int, runs: int, epsilon: float) -> dict[str, Any]:
    """False alarms of `sanity` on texts alone."""
    alarms = 0
    for run in range(runs):
        dice = np.random.default_rng((7, run))
        order, noise = dice.permutation(len(made.sent)), made.noise_std[n, epsilon]
        sums = made.sent[order[:n]].sum(axis=0) + noise * dice.standard_normal(made.sent.shape[1])
        own = {"cues": made.sent[order[n : n + m]]}
        measured: Any = strangers.Release({"cues": Measured(sums, noise, 1.0)}, n)
        alarms += strangers.is_alarm(
            *reading.read(measured, {"cues": made.part}, EVERYONE, Usual(own, {"everyone": m}, own))
        )
    return row_of(made.name, task, n, m, runs, epsilon, alarms)


def row_of(bed: str, task: str, n: int, m: int, runs: int, epsilon: float, alarms: int) -> dict[str, Any]:
    """A row of the table of false alarms."""
    limit = strangers.upper(alarms, runs)
    print(f"{bed:22} {task:9} N {n:5} M {m:5}: {alarms / runs:6.1%} (at most {limit:.1%})", flush=True)
    row = {"bed": bed, "task": task, "clients": n, "public": m, "runs": runs, "epsilon": epsilon}
    return row | {"alarms": alarms / runs, "upper": limit}


# --- unknown words


@dataclasses.dataclass(frozen=True, eq=False)
class Sides:
    """What clients send about unknown words, as it is and with their sides swapped; and the noise."""

    name: str
    public: int
    labels: tuple[str, ...]
    sent: dict[str, np.ndarray]
    swapped: dict[str, np.ndarray]
    noise_std: Mapping[tuple[float, str], float]


def sides(name: str, population: Population, size: int, m: int, epsilons: Sequence[float]) -> Sides:
    """Vocabulary from `m` users, and what all others send; each post is before or after by a fair coin."""
    dice = np.random.default_rng(5)
    order = dice.permutation(population.size)
    public, pool = population.select(order[:m]), population.select(order[1000:])
    vocabulary = Vocabulary.most_frequent(public, size)
    asked = Unknowns(
        schema=Schema.of(pool), clients=pool.size, epsilon=1.0, delta=strangers.DELTA, vocabulary="", words=size
    )
    both = pool.replace({"text": pool.columns["text"], "side": dice.integers(0, 2, pool.n_examples).astype(np.int32)})
    round_ = next(unknowns.rounds(asked, Public(vocabulary=vocabulary)))
    seen = round_.observe(both)
    sent = by_client(seen.select(np.flatnonzero(seen.sizes > 0)), round_.arms, round_.parts)
    noise = {
        (epsilon, part.name): plan_.mechanisms[part.name].noise_multiplier * part.bound
        for epsilon in epsilons
        for plan_ in [unknowns.plan(dataclasses.replace(asked, epsilon=epsilon), Public(vocabulary=vocabulary))]
        for part in round_.parts
    }
    labels = next(part.labels for part in round_.parts if isinstance(part, words.SideVotes))
    return Sides(name, m, labels, sent, {part: _swapped(part, rows) for part, rows in sent.items()}, noise)


def _swapped(part: str, rows: np.ndarray) -> np.ndarray:
    """What the clients would send if before were after."""
    half = len(words.RATES) if part == "rates" else rows.shape[1] // 2
    return np.concatenate([rows[:, half : 2 * half], rows[:, :half], rows[:, 2 * half :]], axis=1)


def by_client(seen: Population, arms: Arms, parts: Sequence[Any]) -> dict[str, np.ndarray]:
    """What every client would send for each part; clients of similar size are computed together."""
    fitted, order = arms.fit(seen), np.argsort(seen.sizes, kind="stable")

    @jax.jit
    @jax.vmap
    def on_client(fields: dict[str, jax.Array], weight: jax.Array) -> dict[str, jax.Array]:
        batch = Batch(fields, weight)
        return {part.name: part.client_part(batch, fitted.masks(batch), jax.random.key(0)) for part in parts}

    chunks = list[dict[str, np.ndarray]]()
    for some in np.array_split(order, max(seen.size // 250, 1)):
        longest = max(int(seen.sizes[some].max()), 1)
        places = np.arange(longest)[None]
        at = seen.offsets[:-1][some, None] + np.minimum(places, seen.sizes[some, None] - 1)
        fields = {name: column[at] for name, column in seen.columns.items()}
        weight = (places < seen.sizes[some, None]).astype(np.float32)
        chunks.append(jax.tree.map(np.asarray, on_client(fields, weight)))
    back = np.argsort(order)
    return {part.name: np.concatenate([chunk[part.name] for chunk in chunks])[back] for part in parts}


def unknowns_cell(made: Sides, task: str, n: int, m: int, runs: int, epsilon: float) -> dict[str, Any]:
    """False alarms of `unknowns`, and the coverage of its intervals: swapped sides differ by nothing on average."""
    alarms, covered = 0, list[bool]()
    for run in range(runs):
        dice = np.random.default_rng((11, run))
        rows = dice.permutation(len(made.sent["rates"]))[:n]
        coin = dice.random(n)[:, None] < 0.5
        released = dict[str, Measured]()
        for part, sent in made.sent.items():
            noise = made.noise_std[epsilon, part]
            sums = np.where(coin, sent[rows], made.swapped[part][rows]).sum(axis=0)
            released[part] = Measured(sums + noise * dice.standard_normal(sums.shape), noise, 1.0)
        read = word_findings.read(released["rates"], released["signs"], released["votes"], made.labels)
        concluded, diagnoses = word_findings.compare(read)
        alarms += strangers.is_alarm(concluded, diagnoses)
        covered += [one.low <= 0 <= one.high for one in concluded if (one.low, one.high) != (-1.0, 1.0)]
    row = row_of(made.name, task, n, m, runs, epsilon, alarms)
    return row | ({"covered": round(float(np.mean(covered)), 3)} if covered else {})


# --- running it

MADE: dict[str, Any] = {}
"""What clients send; shared with the processes that are forked."""


def run_cell(cell: tuple[Any, ...]) -> dict[str, Any]:
    """One cell of the table."""
    measure, name, *rest = cell
    return measure(MADE[name], *rest)


def cells_of(runs: int, epsilons: Sequence[float]) -> list[tuple[Any, ...]]:
    """Everything that is measured."""
    cells = list[tuple[Any, ...]]()
    for bed in posts():
        MADE[bed.name] = strangers.plant(bed, with_faults=False)
        cells += [cell for epsilon in epsilons for cell in strangers.null(MADE[bed.name], runs, epsilon)]
    raw = MADE["raw"] = RawText.of(epsilons)
    fits = [(n, m) for n, m in strangers.CELLS if n + m <= len(raw.sent)]
    cells += [(raw_cell, "raw", "sanity", n, m, runs, epsilon) for epsilon in epsilons for n, m in fits]
    for which, size in (("10,000 words", 10_000), ("1,000 words", 1000)):
        for m in (100, 1000):
            name = f"stackexchange, {which} of {m}"
            MADE[name] = sides(f"stackexchange, {which}", writers(), size, m, epsilons)
            cells += [
                (unknowns_cell, name, "unknowns", n, m, runs, epsilon) for epsilon in epsilons for n in (100, 220, 1000)
            ]
    return cells


def writers() -> Population:
    """Stack Exchange users with two posts or more."""
    population = data.dataset("stackexchange")
    chosen = population.select(np.flatnonzero(population.sizes >= 2))
    return chosen.replace({"text": chosen.columns["text"]})


def main() -> None:
    """Measure false alarms and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=strangers.RESULTS)
    asked = parser.parse_args()
    began = time.monotonic()
    cells = cells_of(asked.runs, asked.epsilon)
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        rows = pool.map(run_cell, cells, chunksize=1)
    about = {
        "command": f"python experiments/strangers_text.py --runs {asked.runs} --epsilon "
        + " ".join(f"{epsilon:g}" for epsilon in asked.epsilon),
        "machine": f"{platform.machine()}, {asked.processes} CPU cores, jax {jax.__version__}",
        "seconds": round(time.monotonic() - began),
        "models": {made.name: round(made.accuracy, 3) for made in MADE.values() if hasattr(made, "accuracy")},
    }
    strangers.write(asked.out / "strangers_null_text.json", about, rows)


if __name__ == "__main__":
    main()
