"""T6 of Augenstein et al. 2020, without an experiment in the paper: what do clients have that public data lack?

    python experiments/bias.py pictures [--runs 20] [--matched 200]     embedded handwriting and real MNIST writers
    python experiments/bias.py texts [--runs 20] [--matched 200]        embedded forum and real Stack Exchange authors
    python experiments/bias.py whole                                    one complete report of each, to look at
    python experiments/bias.py draw                                     the figure

Each run draws disjoint private and public clients from a pool and removes something from the public ones: a class (all
examples of one digit), a style (the writers with the strongest slant, or the thickest pen), a topic (all posts about
it, or the authors of one site). Each run costs (4, 1e-6) per client. An alarm is any finding; in matched runs nothing
was removed, so every alarm is false. The tests are those of `blindsight inspect bias`. To afford hundreds of runs on
two cores, sums over clients are computed in numpy (checked against the clients' own code for some clients of each
pool), noise is drawn in floating point, and generators stay at their closed form.
"""

import argparse
import dataclasses
import functools
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import blindsight as bs
from blindsight import keys
from blindsight.algorithms.moments import MomentsPart
from blindsight.backends import Batch
from blindsight.codings import features
from blindsight.data import text
from blindsight.data.dice import Dice
from blindsight.data.embedded.handwriting import _style  # pyright: ignore[reportPrivateUsage]
from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.inspect import Language, Session, WordTraining
from blindsight.inspection.answering import Round
from blindsight.inspection.bias import comparison, images, rounds
from blindsight.inspection.bias import findings as bias_findings
from blindsight.inspection.bias.images import FirstArm
from blindsight.inspection.bias.measures import (
    HALF,
    STYLE_EXAMPLES,
    STYLE_FIELD,
    Shares,
    Styles,
    mark_style_examples,
    same_clients,
)
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.bias.text import SURPRISE
from blindsight.inspection.contrast import cues
from blindsight.inspection.finding import Finding
from blindsight.inspection.measuring import Measured
from blindsight.inspection.question import Public, complete, identity_of
from blindsight.keys import Key

EPSILON, DELTA = 4.0, 1e-6
RESULTS = Path("experiments/results")
THICK = ("ink", "intensity", "contrast", "blur", "black", "white")  # cues in which a thick pen shows
NAMES: dict[str, tuple[str, ...]] = {}
"""Of the cues of pictures and of texts."""


@dataclasses.dataclass
class Pool:
    """Clients to draw from: how many are private and public in a run, and what may be missing in public."""

    clients: Population
    private: int
    public: int
    inputs: str
    missing: dict[str, Callable[[Population, int], Population]]
    answers: dict[str, Callable[[Finding, int], bool]]
    moments: tuple[MomentsPart, np.ndarray] | None = None

    @functools.cached_property
    def place(self) -> dict[str, int]:
        """Where each client stands in the pool."""
        return {client: number for number, client in enumerate(self.clients.ids.tolist())}


@dataclasses.dataclass(frozen=True)
class Quick:
    """The rounds with sums in numpy."""

    pool: Pool
    root: Key

    def moments(self, clients: Population) -> np.ndarray:
        """The sum over these clients of what each sends of its pictures, computed once for all runs."""
        assert self.pool.moments is not None
        return self.pool.moments[1][[self.pool.place[client] for client in clients.ids.tolist()]].sum(axis=0)

    def measure(self, one: Round, observed: Population) -> dict[str, Measured]:
        """What a round releases."""
        half = np.zeros(observed.size, np.int64)
        there = observed.sizes > 0
        half[there] = observed.columns[HALF][observed.offsets[:-1][there]]
        released = dict[str, Measured]()
        for part in one.by_name.values():
            noise = one.mechanisms[part.name].noise_multiplier * part.bound
            random = np.random.default_rng(np.frombuffer(self.root.derive(f"{one.name} {part.name}").secret, np.uint32))
            if isinstance(part, FirstArm):
                sums = self.moments(observed.select(half == 0))
            else:
                sums = vectors(part, observed)[np.isin(half, part.arms)].sum(axis=0)
            epsilon = EPSILON  # of the round; not that of the part alone
            released[part.name] = Measured(sums + noise * random.normal(size=sums.shape), noise, epsilon)
        return released


def vectors(part: Shares | Styles, observed: Population) -> np.ndarray:
    """What every client sends, in numpy."""
    owner = np.repeat(np.arange(observed.size), observed.sizes)
    if isinstance(part, Shares):
        blocks = list[np.ndarray]()
        for one in part.divisions:
            codes, count = observed.columns[one.field].astype(np.int64), len(one.names)
            ok = (codes >= 0) & (codes < count)
            cells = np.bincount(owner[ok] * count + codes[ok], minlength=observed.size * count).reshape(-1, count)
            blocks.append(cells / np.maximum(observed.sizes, 1)[:, None])
        shares = np.concatenate(blocks, axis=1)
        return np.concatenate([shares, shares**2 / 2, 0.5 * (observed.sizes > 0)[:, None]], axis=1)
    looked = observed.columns[STYLE_FIELD].astype(bool)
    enough = np.bincount(owner[looked], minlength=observed.size) > 0
    values = observed.columns[part.field][looked]
    means = np.nan_to_num(values.astype(np.float32)).reshape(-1, STYLE_EXAMPLES, values.shape[1]).mean(axis=1)
    low, high = (np.array([getattr(one, end) for one in part.limits]) for end in ("low", "high"))
    tails = np.concatenate([means < low, means > high], axis=1).astype(float)
    tails *= np.sqrt(np.minimum(1.0, 4 / np.maximum(tails.sum(axis=1, keepdims=True), 1)))
    found = np.zeros((observed.size, 2 * len(part.limits) + 1))
    found[enough] = np.concatenate([tails, np.full((len(tails), 1), 0.5)], axis=1)
    return found


def check(part: Shares | Styles, observed: Population, clients: int = 20) -> None:
    """The numpy sums are those of the clients' own code."""
    quick = vectors(part, observed)
    for client in range(clients):
        rows = slice(*observed.offsets[client : client + 2])
        fields = {name: jnp.asarray(c[rows]) for name, c in observed.columns.items() if c.dtype.kind != "T"}
        weight = jnp.ones(observed.sizes[client], jnp.float32)
        masks = jnp.stack([weight, jnp.zeros_like(weight)])
        slow = dataclasses.replace(part, arms=(0, 1)).client_part(Batch(fields, weight), masks, jax.random.key(0))
        np.testing.assert_allclose(np.asarray(slow), quick[client], atol=1e-5)


def ask(pool: Pool, missing: str | None, number: int) -> list[Finding]:
    """One run: the findings."""
    random = np.random.default_rng([number, len(missing or "")])
    order = random.permutation(pool.clients.size)
    private = pool.clients.select(order[: pool.private])
    public = pool.clients.select(order[pool.private : pool.private + pool.public])
    public = public if missing is None else pool.missing[missing](public, number)
    schema, seed = complete(Schema(inputs=(pool.inputs,)), private), random.bytes(32)
    question = Bias(
        schema=schema, clients=private.size, epsilon=EPSILON, delta=DELTA, reference=identity_of(public), steps=0
    )
    quick, key = Quick(pool, keys.root()), Key(seed, True)
    comparison._with_cues = with_cues  # pyright: ignore[reportPrivateUsage]
    if pool.moments is not None:
        part = pool.moments[0]
        rounds._moments = lambda *_: part  # pyright: ignore[reportPrivateUsage]
        images.public_moments = lambda part, clients, released, key: images.like_released(
            quick.moments(clients), released, key
        )
    compared = comparison.compare_with(question, Public(reference=public, seed=seed))
    clients, first = compared.observe(private), rounds.first_round(compared)
    measured: Any = quick.measure(first, clients)
    tested = rounds.read_first(compared, first, measured)
    if compared.image:
        learnt = rounds.learn(compared, first, measured, key, lambda done, total: None)
        second = rounds.second_round(compared, learnt)
        confirmed: Any = quick.measure(second, second.fields_of(clients))
        tested += rounds.read_second(compared, learnt, second, confirmed)
    if number == 0:
        for part in first.parts:
            if isinstance(part, Shares | Styles):
                check(part, clients)
    return bias_findings.conclude(tested)[0]


def study(pool: Pool, detections: int, matched: int) -> dict[str, Any]:
    """How often something is found: in matched runs, and for each thing that is missing in public."""
    found: dict[str, Any] = {"private": pool.private, "public": pool.public, "clients": pool.clients.size}
    for missing in [*pool.missing, None]:
        count, began = matched if missing is None else detections, time.time()
        alarms, right, confirmed, seen = 0, 0, 0, dict[str, int]()
        for number in range(count):
            named = [one for one in ask(pool, missing, number) if one.verdict == "detected"]
            alarms += bool(named)
            right += missing is not None and any(pool.answers[missing](one, number) for one in named)
            confirmed += any(one.name.startswith(("group", "region", "style: much resemblance")) for one in named)
            for one in named:
                name = one.name.split(",")[0] if one.name.startswith("group") else one.name
                seen[name] = seen.get(name, 0) + 1
            if number % 10 == 9:
                print(missing, number + 1, alarms, right, f"{time.time() - began:.0f} s", flush=True)
        row = {
            "runs": count,
            "alarms": alarms,
            "confirmed": confirmed,
            "found": dict(sorted(seen.items(), key=lambda pair: -pair[1])[:12]),
        }
        found[missing or "nothing"] = row if missing is None else row | {"right": right}
    return found


# --- pools


def seen(clients: Population, field: str) -> Population:
    """The clients with their cues, computed once for all runs."""
    found = cues.observe(clients, (field,))
    NAMES[field] = found.classes[cues.FIELD]
    return clients.replace({**clients.columns, "seen": found.columns[cues.FIELD]})


def with_cues(question: Bias, population: Population) -> Population:
    """In place of `comparison._with_cues`: the cues that were computed before, and the surprise of a run's model."""
    values, names = population.columns["seen"], NAMES[question.inputs[0]]
    if SURPRISE in population.fields:
        values = np.concatenate([values, population.columns[SURPRISE][:, None]], axis=1)
        names = (*names, SURPRISE)
    found = population.replace({**population.columns, cues.FIELD: values})
    found.classes[cues.FIELD] = tuple(names)
    return mark_style_examples(found)


def digit_missing(public: Population, number: int) -> Population:
    """Public clients without examples of a digit."""
    return same_clients(public, public.columns["label"] != number % 10)


def says_digit(one: Finding, number: int) -> bool:
    """Whether a finding names that digit."""
    return one.name == f"class: {number % 10}" and one.effect > 0


def without(public: Population, place: dict[str, int], strength: np.ndarray, share: float) -> Population:
    """The public clients but those of the strongest `share` of the pool."""
    own = strength[[place[client] for client in public.ids.tolist()]]
    return public.select(own < np.quantile(strength, 1 - share))


def with_moments(pool: Pool, other: np.ndarray) -> Pool:
    """The pool with every client's moments, by class; features from `other` public pictures."""
    chosen = features.images(pool.clients.fields["image"][1], frequencies=25, reference=other)
    part = MomentsPart(chosen, ("learning",), pool.clients.classes["label"], "label")
    columns = {name: pool.clients.columns[name] for name in ("image", "label")}
    longest = int(pool.clients.sizes.max())

    @jax.jit
    @jax.vmap
    def of(fields: dict[str, jax.Array], weight: jax.Array) -> jax.Array:
        return part.client_part(Batch(fields, weight), weight[None], jax.random.key(0))

    found = list[np.ndarray]()
    for start in range(0, pool.clients.size, 100):
        sizes = pool.clients.sizes[start : start + 100, None]
        rows = pool.clients.offsets[:-1][start : start + 100, None] + np.minimum(np.arange(longest), sizes - 1)
        weight = (np.arange(longest) < sizes).astype(np.float32)
        found.append(np.asarray(of({name: column[rows] for name, column in columns.items()}, weight)))
    return dataclasses.replace(pool, moments=(part, np.concatenate(found)))


def names_style(*words: str) -> Callable[[Finding, int], bool]:
    """Whether a finding names such a style."""
    return lambda one, number: one.name.startswith("style") and any(word in one.name for word in words)


def embedded_writers() -> Pool:
    """4,000 synthetic writers; their slant and pen are known from their recipe."""
    clients = bs.data.embedded("handwriting", clients=4000, examples=(10, 14))
    clients = seen(clients.replace(clients.columns), "image")
    style = _style(Dice(0, "handwriting"), np.arange(clients.size))
    pool = Pool(clients, 1200, 700, "image", {}, {})
    for name, strength in (("strong slant", style.slant), ("thick pen", style.pen)):
        pool.missing[name] = lambda public, number, s=strength: without(public, pool.place, s, 0.15)
    pool.missing = {"a digit": digit_missing, **pool.missing}
    pool.answers = {"a digit": says_digit, "strong slant": names_style("slant"), "thick pen": names_style(*THICK)}
    other = bs.data.embedded("handwriting", clients=100, seed=7, examples=(10, 14)).columns["image"]
    return with_moments(pool, other)


def real_writers() -> Pool:
    """The 836 writers of MNIST, each with at most 24 of their digits."""
    parts = [bs.data.dataset("mnist", split=split) for split in ("train", "test")]
    columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in ("image", "label")}
    ids = np.concatenate([np.strings.add(f"{n}-", p.ids) for n, p in enumerate(parts)])
    sizes = np.concatenate([p.sizes for p in parts])
    clients = Population(columns, sizes=sizes, ids=ids, name="mnist", classes=parts[0].classes)
    rows = np.concatenate([np.arange(s) < 24 for s in sizes])
    clients = same_clients(clients, rows)
    clients = seen(clients.select(clients.sizes >= STYLE_EXAMPLES), "image")
    owner = np.repeat(np.arange(clients.size), clients.sizes)
    pool = Pool(clients, 480, clients.size - 480, "image", {"a digit": digit_missing}, {"a digit": says_digit})
    for name, cue, words in (
        ("strong slant", "edges: slant", ("slant", "vertical")),
        ("thick pen", "intensity", THICK),
    ):
        mean = np.bincount(owner, clients.columns["seen"][:, NAMES["image"].index(cue)]) / clients.sizes
        pool.missing[name] = lambda public, number, s=mean: without(public, pool.place, s, 0.25)
        pool.answers[name] = names_style(*words)
    return with_moments(pool, bs.data.embedded("handwriting", clients=100, seed=7, examples=(10, 14)).columns["image"])


def says_text(one: Finding, number: int) -> bool:
    """Whether a finding says that clients write what public text makes unlikely."""
    return (one.name.startswith("likelihood") or "much surprise" in one.name) and one.effect > 0


def embedded_authors() -> Pool:
    """3,000 synthetic authors; a topic is missing."""
    clients = bs.data.embedded("forum", clients=3000)
    clients = few_sentences(clients)
    gone = lambda public, number: same_clients(public, public.columns["topic"] != number % 10)  # noqa: E731
    return Pool(clients, 1000, 800, "text", {"a topic": gone}, {"a topic": says_text})


def real_authors() -> Pool:
    """Authors of Stack Exchange with ten sentences or more; all authors of one site are missing."""
    clients = few_sentences(bs.data.dataset("stackexchange"))
    names, counts = np.unique(clients.columns["site"][clients.offsets[:-1]], return_counts=True)
    sites = names[np.argsort(-counts)][:5]

    def gone(public: Population, number: int) -> Population:
        return public.select(public.columns["site"][public.offsets[:-1]] != sites[number % len(sites)])

    return Pool(clients, clients.size // 2, clients.size // 2, "text", {"a site": gone}, {"a site": says_text})


def few_sentences(clients: Population) -> Population:
    """The first 20 sentences of clients who have ten."""
    found = text.split_sentences(clients, most=20)
    found = found.select(found.sizes >= STYLE_EXAMPLES)
    kept = {name: column for name, column in found.columns.items() if name in ("text", "topic", "site")}
    return seen(found.replace(kept), "text")


# --- commands


def measured(pools: dict[str, Callable[[], Pool]], detections: int, matched: int) -> None:
    """Study every pool that is there, and keep what was found."""
    path = RESULTS / "bias.json"
    for name, make in pools.items():
        began = time.time()
        try:
            pool = make()
        except bs.errors.BlindsightError as error:
            print(f"{name} is left out: {error}")
            continue
        row = study(pool, detections, matched) | {"seconds": round(time.time() - began)}
        row = {key: value for key, value in row.items() if not isinstance(value, dict) or value["runs"]}
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept |= {"epsilon": EPSILON, "delta": DELTA, "hardware": f"{platform.machine()}, two processor cores"}
        kept["command"] = "python experiments/bias.py pictures; python experiments/bias.py texts"
        kept[name] = kept.get(name, {}) | row
        path.write_text(json.dumps(kept, indent=1) + "\n")
        print(json.dumps({name: row}, indent=1))


def draw() -> None:
    """Detection by what is missing, and false alarms with their 95 % intervals."""
    found = json.loads((RESULTS / "bias.json").read_text())
    pools = [name for name in found if isinstance(found[name], dict)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(3, 2))
    pairs = [(pool, name, row) for pool in pools for name, row in found[pool].items()]
    rows = [(f"{pool}: {name}", row) for pool, name, row in pairs if isinstance(row, dict) and "right" in row]
    for place, (_, row) in enumerate(rows):
        left.barh(place, 100 * row["alarms"] / row["runs"], color="#c7d2e3", height=0.7)
        left.barh(place, 100 * row["right"] / row["runs"], color="#1d4ed8", height=0.4)
        left.text(101, place, f"{row['right']}/{row['runs']}", va="center", fontsize=8)
    left.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    left.set(xlim=(0, 112), xlabel="% of runs (light: anything found; dark: the missing thing named)")
    left.set_title("Missing from public data, epsilon 4", fontsize=10)
    left.invert_yaxis()
    for place, pool in enumerate(pools):
        row = found[pool]["nothing"]
        found_in = stats.binomtest(row["alarms"], row["runs"])
        share, ends = row["alarms"] / row["runs"], found_in.proportion_ci()
        wide = [[100 * (share - ends.low)], [100 * (ends.high - share)]]
        right.errorbar(100 * share, place, xerr=wide, fmt="o", color="#c2410c", capsize=3)
    right.axvline(5, color="#565d68", linestyle=":")
    right.set_yticks(
        range(len(pools)), [f"{pool} ({found[pool]['nothing']['runs']} runs)" for pool in pools], fontsize=8
    )
    right.set(xlim=(0, 18), xlabel="% of runs with any finding, nothing missing")
    right.set_title("False alarms (at most 5 % promised)", fontsize=10)
    right.invert_yaxis()
    figure.tight_layout()
    figure.savefig(RESULTS / "bias.png", dpi=130)


def whole() -> None:
    """One whole report of each pool, through every release."""
    clients = bs.data.embedded("handwriting", clients=3400, examples=(16, 40))
    public = digit_missing(bs.data.embedded("handwriting", clients=1000, seed=1, examples=(16, 40)), 3)
    report = bs.inspect.bias(
        clients, reference=public, epsilon=EPSILON, delta=DELTA, session=Session(out="runs/bias-pictures")
    )
    print(report)
    posts = bs.data.embedded("forum", clients=3400)
    known = bs.data.embedded("forum", clients=1000, seed=1)
    known = same_clients(known, known.columns["topic"] != 5)
    language = Language(discover=True, training=WordTraining())
    asked: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "language": language}
    asked |= {"schema": Schema(inputs=("text",)), "session": Session(out="runs/bias-texts")}
    print(bs.inspect.bias(posts, reference=known, **asked))


def main() -> None:
    """Do what was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pictures", "texts", "whole", "draw"])
    parser.add_argument("--runs", type=int, default=20, help="for each thing that is missing")
    parser.add_argument("--matched", type=int, default=200, help="where nothing is missing")
    parser.add_argument("--only", help="one pool")
    asked = parser.parse_args()
    pictures = {"handwriting": embedded_writers, "MNIST writers": real_writers}
    texts = {"forum": embedded_authors, "Stack Exchange": real_authors}
    if asked.what in ("pictures", "texts"):
        pools: dict[str, Callable[[], Pool]] = pictures if asked.what == "pictures" else texts
        pools = {name: make for name, make in pools.items() if asked.only in (None, name)}
        measured(pools, asked.runs, asked.matched)
    else:
        {"whole": whole, "draw": draw}[asked.what]()


if __name__ == "__main__":
    main()
