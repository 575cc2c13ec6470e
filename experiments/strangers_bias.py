"""False alarms of `inspect bias` where clients and public data are drawn from one distribution.

    python experiments/strangers_bias.py [--runs 200] [--epsilon 8] [--beds femnist,mnist,adult,handwriting,text]

What follows from a client's examples alone is computed once: shares by class, means of its style, the confidence of the
model, the output of the discriminator. A run draws clients and public clients anew, without overlap, sets every limit
and threshold on the public ones, adds new noise, and reads the release by the functions that `bias` uses. What is
learned from data (the discriminator of images, the model of public text) is learned a few times; a run confirms it on
clients it has not seen, as the product does, so that it is exactly null whatever was learned.
"""

import argparse
import dataclasses
import multiprocessing
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import strangers
import strangers_text

from blindsight import data
from blindsight.backends import Batch, Simulation
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.inspection.bias import comparison, findings, images, measures, rounds
from blindsight.inspection.bias import text as unlikely_text
from blindsight.inspection.bias.comparison import Comparison, compare_with
from blindsight.inspection.bias.findings import Tested
from blindsight.inspection.bias.measures import Division, Limits, ReadShares, Shares, Styles
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.contrast import cues
from blindsight.inspection.measuring import Measured
from blindsight.inspection.question import Public, complete, identity_of
from blindsight.keys import Key
from blindsight.participation import full

LEARNERS = 2
"""How often a discriminator, or a model of text, is learned for each size."""

_LOW = 0.1  # share of public examples that count as unsure, or unlikely


@dataclasses.dataclass(frozen=True, eq=False)
class Learner:
    """What was learned from some clients (`used`), and its output on every example of the pool.

    Public clients that a model was trained on take no part in a run (`is_public`); private ones only in the first half.
    `low` are scores of which the lowest tenth counts (confidence, likelihood); `style` are means of one more cue.
    `logits` and `nearest` are the discriminator's output and the group of each image, `ratios` the means of its ratio.
    """

    used: np.ndarray
    is_public: bool = False
    low: np.ndarray | None = None
    style: np.ndarray | None = None
    logits: np.ndarray | None = None
    nearest: np.ndarray | None = None
    ratios: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Observed:
    """A pool of clients after they have looked at their own examples, once."""

    name: str
    sizes: np.ndarray
    divisions: tuple[Division, ...]  # those that are learned come last
    shares: np.ndarray  # of the divisions that are not learned, (clients, categories)
    means: np.ndarray  # of the cues, (clients, cues); nan for clients with too few examples
    cues: tuple[str, ...]
    learners: dict[int, list[Learner]]  # by the number of clients
    noise: dict[tuple[int, float], dict[str, float]]

    def by_client(self, is_in: np.ndarray) -> np.ndarray:
        """The share of each client's examples that are in."""
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return np.add.reduceat(is_in.astype(np.float64), starts) / self.sizes

    def examples(self, rows: np.ndarray) -> np.ndarray:
        """Whether each example belongs to one of these clients."""
        chosen = np.zeros(len(self.sizes), bool)
        chosen[rows] = True
        return np.repeat(chosen, self.sizes)


def read_public(shares: np.ndarray) -> ReadShares:
    """Shares of public clients, as `measures.client_shares` summarises them."""
    return ReadShares(shares.mean(axis=0), shares.std(axis=0, ddof=1), float(len(shares)))


def released(part: Any, sums: np.ndarray, noise_std: float, dice: np.random.Generator) -> Measured:
    """A noisy sum."""
    assert sums.shape == (part.coordinates,)
    return Measured(sums + noise_std * dice.standard_normal(sums.shape), noise_std, 1.0)


def sum_of_shares(shares: np.ndarray) -> np.ndarray:
    """What clients with these shares send together."""
    half = measures._HALF
    return np.concatenate([shares.sum(axis=0), half * (shares**2).sum(axis=0), [half * len(shares)]])


def sum_of_styles(part: Styles, means: np.ndarray) -> np.ndarray:
    """What clients with these means send together: `Styles.client_part` without compiling it for every run."""
    rows = enough(means).astype(np.float32)
    low, high = (np.array([getattr(one, end) for one in part.limits], np.float32) for end in ("low", "high"))
    tails = np.concatenate([rows < low, (rows > high) & ~(rows < low)], axis=1)
    scale = np.sqrt(np.minimum(1.0, measures._MOST / np.maximum(tails.sum(axis=1), 1)))
    return np.concatenate([scale @ tails, [measures._HALF * len(rows)]])


def check_styles(part: Styles, means: np.ndarray) -> None:
    """The same sum by the client's own code: a mean of one example is that example."""
    rows = jnp.asarray(enough(means).astype(np.float32))

    def on_client(value: jax.Array, weight: jax.Array) -> jax.Array:
        batch = Batch({part.field: value[None], measures.STYLE_FIELD: weight}, weight)
        return part.client_part(batch, jnp.stack([weight * 0, weight]), jax.random.key(0))

    sent = jax.vmap(on_client)(rows, jnp.ones((len(rows), 1), jnp.float32))
    np.testing.assert_allclose(np.asarray(sent, np.float64).sum(axis=0), sum_of_styles(part, means), rtol=1e-4)


def styles_tested(field: str, limits: tuple[Limits, ...], means: np.ndarray, noise: float, dice: Any) -> list[Tested]:
    """The tests of styles."""
    part = Styles(field, limits)
    return findings.compare_styles(released(part, sum_of_styles(part, means), noise, dice), part, "style")


def enough(means: np.ndarray) -> np.ndarray:
    """The means of clients with enough examples."""
    return means[~np.isnan(means).any(axis=1)]


def ask(made: Observed, one: Learner, n: int, m: int, epsilon: float, dice: Any) -> list[Tested]:
    """One inspection of clients against public clients."""
    order = dice.permutation(np.flatnonzero(~one.used) if one.is_public else len(made.sizes))
    clients, own = (rows[np.argsort(~one.used[rows], kind="stable")] for rows in (order[:n], order[n : n + m]))
    unseen = own[m // 2 :]  # public clients that nothing was learned from
    noise, shares, learnt = made.noise[n, epsilon], made.shares, [division.is_learnt for division in made.divisions]
    if one.low is not None:
        threshold = np.quantile(one.low[made.examples(unseen)], _LOW)
        low = made.by_client(one.low < threshold)
        shares = np.concatenate([shares, low[:, None], 1 - low[:, None]], axis=1)
    tested, begin, part = list[Tested](), 0, Shares(made.divisions)
    serving = part.read(released(part, sum_of_shares(shares[clients]), noise["shares"], dice))
    for division, theirs, is_learnt in zip(made.divisions, serving, learnt, strict=True):
        ours = shares[unseen if is_learnt else own, begin : begin + len(division.names)]
        begin += len(division.names)
        names = division.names[:1] if len(division.names) == 2 and is_learnt else division.names
        tested += findings.compare_shares(theirs, read_public(ours), division, names, 1.0)
    limits = tuple(Limits.of(name, enough(made.means[own])[:, j]) for j, name in enumerate(made.cues))
    means = made.means
    if one.style is not None:
        limits += (Limits.of("surprise", one.style[unseen][~np.isnan(one.style[unseen])]),)
        means = np.concatenate([means, one.style[:, None]], axis=1)
    if len(enough(made.means[unseen])) >= comparison.LEAST // 2:
        tested += styles_tested(cues.FIELD, limits, means[clients], noise["styles"], dice)
    return [
        *tested,
        *(groups_tested(made, one, clients[n // 2 :], unseen, noise, dice) if one.logits is not None else []),
    ]


def groups_tested(made: Observed, one: Learner, clients: np.ndarray, unseen: np.ndarray, noise: Any, dice: Any):
    """The second round on the other half of the clients."""
    assert one.logits is not None
    assert one.nearest is not None
    assert one.ratios is not None
    threshold = np.quantile(one.logits[made.examples(unseen)], 1 - images.TOP)
    group = np.where(one.logits > threshold, one.nearest, images.GROUPS)
    shares = np.stack([made.by_client(group == number) for number in range(images.GROUPS + 1)], axis=1)
    division = rounds.groups_of([])
    part = Shares((division,), (1,), "groups")
    sums = released(part, sum_of_shares(shares[clients]), noise["groups"], dice)
    (serving,), usual = part.read(sums), read_public(shares[unseen])
    tested = findings.compare_shares(serving, usual, division, division.names[:-1], 1.0)
    rest = [ReadShares(1 - r.mean[-1:], r.spread[-1:], r.counted, r.noise_std, r.upper[-1:]) for r in (serving, usual)]
    whole = Division("group", ("denser in serving",), findings.REGION)
    tested += findings.compare_shares(*rest, whole, whole.names, 1.0)
    limits = (Limits.of("resemblance to serving", enough(one.ratios[unseen][:, None])[:, 0]),)
    both = styles_tested("ratio", limits, one.ratios[clients][:, None], noise["ratios"], dice)
    return [*tested, *both[1:]]


# --- beds


def observed_shares(population: Population, divisions: Sequence[Division]) -> np.ndarray:
    """Each client's shares."""
    owner, columns = np.repeat(np.arange(population.size), population.sizes), list[np.ndarray]()
    for one in divisions:
        for code in range(len(one.names)):
            columns.append(np.bincount(owner, population.columns[one.field] == code, population.size))
    return np.stack(columns, axis=1) / population.sizes[:, None]


def style_means(population: Population, field: str) -> np.ndarray:
    """Each client's means over ten examples; nan for clients with fewer."""
    has = population.sizes >= measures.STYLE_EXAMPLES
    values = measures.client_means(population, field)
    means = np.full((population.size, values.shape[1]), np.nan)
    means[has] = values
    return means


def noise_of(compared: Comparison, epsilons: Sequence[float], sizes: Sequence[int]) -> dict[tuple[int, float], Any]:
    """The standard deviation of the noise in each part's sums."""
    noise = dict[tuple[int, float], Any]()
    for n in sizes:
        for epsilon in epsilons:
            asked = dataclasses.replace(compared.question, clients=n, epsilon=epsilon)
            planned = rounds.plan(dataclasses.replace(compared, question=asked))
            parts = {part.name: part for part in planned.parts}
            parts |= {"groups": Shares((rounds.groups_of([]),), (1,)), "ratios": Styles("ratio", (compared.limits[0],))}
            noise[n, epsilon] = {
                name: one.noise_multiplier * parts[name].bound for name, one in planned.mechanisms.items()
            }
    return noise


def classified(
    bed: strangers.Bed, by: str, epsilons: Sequence[float], learnt: dict[int, list[Learner]] | None = None
) -> Observed:
    """Images or rows with a model; discriminators do not depend on it, so that those of another model will do."""
    schema = complete(bed.schema, bed.pool, bed.schema.inputs, (by,) if by else ())
    asked = Bias(
        schema=schema,
        clients=bed.pool.size,
        epsilon=8.0,
        delta=strangers.DELTA,
        model=identity_of(bed.model),
        reference="public []",
        by=by,
    )
    compared = compare_with(asked, Public(model=bed.model, reference=bed.pool))
    seen, sizes = compared.reference, [n for n in (100, 220, 1000) if n + 100 <= bed.pool.size]
    confidence, nobody = seen.columns["confidence"], np.zeros(seen.size, bool)
    learners = {n: [Learner(nobody, low=confidence)] for n in sizes}
    if compared.image:
        for n in sizes:
            own = learnt[n] if learnt else [_learned(compared, n, k, max(epsilons)) for k in range(LEARNERS)]
            learners[n] = [dataclasses.replace(one, low=confidence) for one in own]
    fixed = tuple(one for one in compared.divisions if not one.is_learnt)
    return Observed(
        bed.name,
        seen.sizes,
        compared.divisions,
        observed_shares(seen, fixed),
        style_means(seen, cues.FIELD),
        seen.classes[cues.FIELD],
        learners,
        noise_of(compared, epsilons, sizes),
    )


def _learned(compared: Comparison, n: int, number: int, epsilon: float) -> Learner:
    """A discriminator learned from the moments of n / 2 clients and 50 public ones."""
    seen, key = compared.reference, Key(bytes([number]) * 32, is_reproducible=True)
    dice = np.random.default_rng((13, number))
    order = dice.permutation(seen.size)
    clients, public = order[: n // 2], order[n // 2 : n // 2 + 100]
    used = np.zeros(seen.size, bool)
    used[clients], used[public[:50]] = True, True
    asked = dataclasses.replace(compared.question, clients=n, epsilon=epsilon)
    halves = seen.select(public)
    halves = halves.replace(
        halves.columns | {measures.HALF: np.repeat(np.arange(100) >= 50, halves.sizes).astype(np.uint8)}
    )
    some = dataclasses.replace(compared, question=asked, reference=halves)
    first = rounds.first_round(some)
    part, noise = (
        first.by_name["moments"].part,
        first.mechanisms["moments"].noise_multiplier * first.by_name["moments"].bound,
    )
    sums = _moments(part, seen.select(clients))
    measured: Any = {"moments": Measured(sums + noise * dice.standard_normal(sums.shape), noise, 1.0)}
    learnt = rounds.learn(some, first, measured, key, lambda done, total: None)
    shown = seen.columns[str(compared.image)]
    logits, codes = images._scored(learnt.network, learnt.spectrum, shown)
    nearest = np.concatenate(
        [
            np.square(some[:, None] - learnt.centres[None]).sum(axis=2).argmin(axis=1)
            for some in np.array_split(codes, 20)
        ]
    )
    scored = rounds._scored(str(compared.image), learnt, seen)
    return Learner(used, logits=logits, nearest=nearest, ratios=style_means(scored, "ratio")[:, 0])


def _moments(part: Any, population: Population) -> np.ndarray:
    """The sum of these clients' moments."""

    def client_update(broadcast: Any, examples: Any, key: jax.Array) -> jax.Array:
        del broadcast
        batch = examples.whole()
        return part.client_part(batch, batch.weight[None], key)

    everyone = full(population.size)
    cohort = Simulation(population).cohort(
        everyone.draw(), n_expected=everyone.n_expected, key=Key(b"0" * 32, is_reproducible=True)
    )
    return np.asarray(cohort.sum(client_update, (), l2_bound=part.bound).value, np.float64)


def written(public: int, epsilons: Sequence[float]) -> Observed:
    """Stack Exchange users with ten sentences or more; the model of public text is that of half of `public` users."""
    population = data.dataset("stackexchange")
    kept = population.replace({field: population.columns[field] for field in ("text", "kind")})
    kept = text.split_sentences(kept, most=60)
    kept = kept.select(np.flatnonzero(kept.sizes >= measures.STYLE_EXAMPLES))
    kept.classes["kind"] = population.classes["kind"]
    schema = complete(Schema(inputs=("text",)), kept, ("text",), ("kind",))
    asked = Bias(schema=schema, clients=kept.size, epsilon=8.0, delta=strangers.DELTA, reference="public []", by="kind")
    compared, learners = None, list[Learner]()
    for number in range(LEARNERS):
        used = np.zeros(kept.size, bool)
        used[np.random.default_rng((17, number)).permutation(kept.size)[: public // 2]] = True
        likely = unlikely_text.learn(kept.select(used), kept.select(~used), size=10_000, case="lower")
        low = unlikely_text._log_probabilities(likely.model, likely.vocabulary, kept, "lower")
        looked = comparison._with_cues(asked, likely.observe(kept.replace(kept.columns)))
        means = style_means(looked, cues.FIELD)
        learners.append(Learner(used, is_public=True, low=low, style=means[:, -1]))
    division = Division("kind", kept.classes["kind"], "kind")
    learnt = Division("likely", ("unlikely", "usual"), "likelihood", is_learnt=True)
    limits = comparison._limits(measures.with_halves(looked, b"public"))
    compared = Comparison(asked, None, {}, likely, None, looked, (division, learnt), limits, (), b"")
    sizes = (100, 220, 1000)
    return Observed(
        "stackexchange",
        kept.sizes,
        (division, learnt),
        observed_shares(kept, (division,)),
        means[:, :-1],
        looked.classes[cues.FIELD][:-1],
        dict.fromkeys(sizes, learners),
        noise_of(compared, epsilons, sizes),
    )


# --- running it

MADE: dict[str, Observed] = {}
"""What is known of each bed; shared with the processes that are forked."""


def cell(asked: tuple[str, int, int, int, float]) -> dict[str, Any]:
    """How often anything is called detected where nothing is wrong."""
    name, n, m, runs, epsilon = asked
    made, alarms, by = MADE[name], 0, dict[str, int]()
    covered: dict[str, list[bool]] = {"shares": [], "styles": []}
    for run in range(runs):
        dice, learners = np.random.default_rng((19, run)), made.learners[n]
        concluded, _ = findings.conclude(ask(made, learners[run % len(learners)], n, m, epsilon, dice))
        subjects = {one.name.split(":")[0] for one in concluded if one.verdict == "detected"}
        alarms += bool(subjects)
        for one in concluded:
            if (one.low, one.high) != (-1.0, 1.0):  # measured
                covered["styles" if one.name.startswith("style") else "shares"].append(one.low <= 0 <= one.high)
        for subject in subjects:
            by[subject] = by.get(subject, 0) + 1
    row = strangers_text.row_of(made.name, "bias", n, m, runs, epsilon, alarms) | {"by": by}
    row["covered"] = {kind: round(float(np.mean(some)), 3) for kind, some in covered.items() if some}
    print(f"{'':22} {by} {row['covered']}", flush=True)
    return row


def beds_of(name: str, epsilons: Sequence[float]) -> None:
    """Observe a bed."""
    began = time.monotonic()
    if name == "text":
        for m in (100, 1000):
            MADE[f"text of {m}"] = written(m, epsilons)
    else:
        first = None
        for bed in strangers.BEDS[name]():
            is_image = name != "adult"
            learnt = None if first is None or not is_image else first.learners
            first = MADE[bed.name] = classified(bed, "" if is_image else "sex", epsilons, learnt)
    for made in MADE.values():
        limits = tuple(Limits.of(cue, enough(made.means)[:, j]) for j, cue in enumerate(made.cues))
        check_styles(Styles(cues.FIELD, limits), made.means[:50])
    print(f"{name}: observed in {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    """Measure false alarms and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0])
    parser.add_argument("--beds", default="femnist,mnist,adult,handwriting,text")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=strangers.RESULTS)
    asked = parser.parse_args()
    began = time.monotonic()
    for name in asked.beds.split(","):
        beds_of(name, asked.epsilon)
    cells = [
        (name, n, m, asked.runs, epsilon)
        for name, made in MADE.items()
        for epsilon in asked.epsilon
        for n, m in strangers.CELLS
        if n + m <= len(made.sizes) and (not name.startswith("text") or name.endswith(f" {m}"))
    ]
    with multiprocessing.get_context("fork").Pool(asked.processes) as pool:
        rows = pool.map(cell, cells, chunksize=1)
    about = {
        "command": f"python experiments/strangers_bias.py --runs {asked.runs} --epsilon "
        + " ".join(f"{epsilon:g}" for epsilon in asked.epsilon),
        "machine": f"{platform.machine()}, {asked.processes} CPU cores, jax {jax.__version__}",
        "seconds": round(time.monotonic() - began),
    }
    strangers.write(asked.out / "strangers_null_bias.json", about, rows)


if __name__ == "__main__":
    main()
