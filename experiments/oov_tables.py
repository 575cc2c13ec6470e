"""Unknown words after a tokeniser bug: Tables 6, 7 and 8 and Figure 4 of Augenstein et al. 2020, and tests.

    python experiments/oov_tables.py direct [--runs 200]       the released statistics: detection, false alarms, rates
    python experiments/oov_tables.py discover                   unknown words that many clients use, without a model
    python experiments/oov_tables.py prepare FOLDER            token ids for the models, which then need no text
    python experiments/oov_tables.py models FOLDER             language models on an accelerator
    python experiments/oov_tables.py draw                      the figure

The bug joins the first two words of 0, 1, 10 or 100 % of the sentences. Text is real (stackexchange: the vocabulary is
the 10,000 most frequent words of a public half of the authors; the other half is inspected) and embedded (forum: the
vocabulary comes from 1,000 other authors). *Direct* draws new clients in each run, splits each client's sentences by
coin flips into before and after, plants the bug after, and reads one round at (epsilon, 1e-6); A/A runs have no bug.
*Models* are trained by DP-FedAvg: on stackexchange with the papers' architectures (small ones with --small) and as much
noise on the mean as theirs (z / cohort = 1 / 5,000, which gives 3,424 clients no guarantee), on forum small ones at
epsilon 8.
"""

import argparse
import collections
import dataclasses
import json
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import blindsight as bs
from blindsight import keys
from blindsight.accounting.as_published import fixed_size_epsilon
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import Algorithm
from blindsight.algorithms.dp_fedavg import dp_fedavg
from blindsight.algorithms.vocabulary import discover_words, own_words
from blindsight.backends import Batch, Simulation
from blindsight.data import faults, text
from blindsight.data.population import Population, ranges
from blindsight.data.text import Vocabulary
from blindsight.inspection import measuring
from blindsight.inspection.measuring import Measured
from blindsight.inspection.unknowns import findings as unknown_findings
from blindsight.inspection.unknowns import models as unknown_models
from blindsight.inspection.unknowns import words as words
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.inspection.unknowns.task import SHARES
from blindsight.models.cifg_lstm import next_token_loss
from blindsight.privacy import Privacy

DELTA, FRACTIONS = 1e-6, (0.0, 0.01, 0.1, 1.0)
RESULTS = Path("experiments/results")
BUG = "token_join:glue=space"
LETTERS = 3  # times as many rounds for the model of letters: its rounds are cheap
HONEST = 5000  # clients at least for models at an honest epsilon: forum has 6,000, stackexchange 3,424
PUBLISHED_DELTA = 2.92e-6
PUBLISHED = {"table 6": [0.0652, 0.0663, 0.0760, 0.1789], "epsilon": 9.22, "delta": PUBLISHED_DELTA}
PUBLISHED_LISTS = {
    "0": "regex 5.50, jsfiddle 3.90, xcode 3.12, divs 2.75, stackoverflow 2.75, listview 2.74, textbox 2.73",
    "0.01": "regex 5.15, jsfiddle 3.73, xcode 2.86, listview 2.64, textbox 2.56, divs 2.45, stackoverflow 2.44",
    "0.1": "i have 8.08, i am 5.60, regex 4.45, you can 3.71, if you 2.81, this is 2.77, here is 2.73",
    "1": "i have 27.47, i am 16.50, this is 9.92, you can 9.04, here is 8.30, if you 8.29, i want 8.17",
}
"""Table 8, the first seven of twenty, probabilities in thousandths."""


def sources(name: str, clients: int) -> tuple[Population, Vocabulary]:
    """The sentences under examination, and a vocabulary from other people's."""
    if name == "stackexchange":
        everyone = bs.data.dataset("stackexchange", unit="sentence")
        order = np.random.default_rng(0).permutation(everyone.size)
        public, private = (everyone.select(np.sort(half)) for half in np.array_split(order, 2))
        return text.split_sentences(private, most=400), Vocabulary.most_frequent(public, 10_000)
    public = bs.data.embedded("forum", clients=1000, seed=1)
    private = bs.data.embedded("forum", clients=clients)
    return text.split_sentences(private, most=400), Vocabulary.most_frequent(public, 2_000)


# --- direct statistics


class Runs:
    """One round after another on clients drawn anew, from what every sentence looks like, sound and broken."""

    def __init__(self, name: str, clients: int, bugs: tuple[str, ...]) -> None:
        self.sentences, vocabulary = sources(name, clients)
        suspects = words.suspects_of(None, "lower")
        self.labels = (*map(str, suspects), "none")
        self.parts = (words.Rates(), words.Signs(), words.SideVotes(self.labels))

        def table(population: Population) -> dict[str, np.ndarray]:
            sided = population.replace(
                {"text": population.columns["text"], "side": np.zeros(population.n_examples, int)}
            )
            columns = words.observe(sided, vocabulary, suspects, "lower").columns
            return {field: column.astype(np.float32) for field, column in columns.items() if field != "side"}

        self.sound = table(self.sentences)
        self.broken = {bug: table(faults.apply(self.sentences, bug)) for bug in bugs}
        self.dice = np.random.default_rng(2020)

        @jax.jit
        @jax.vmap
        def sent(fields: dict[str, jax.Array], weight: jax.Array) -> dict[str, jax.Array]:
            batch = Batch(fields, weight)
            return {p.name: p.client_part(batch, jnp.eye(2) * weight, jax.random.key(0)) for p in self.parts}

        self.sent = sent

    def rate(self, bug: str, fraction: float) -> float:
        """The true share of unknown words where that fraction of sentences is broken: simulation_only."""
        broken, hit = self.broken[bug], np.random.default_rng(1).random(self.sentences.n_examples) < fraction
        unknown, counted = (np.where(hit, broken[field], self.sound[field]).sum() for field in ("unknown", "words"))
        return float(unknown / counted)

    def once(self, bug: str, fraction: float, epsilon: float) -> tuple[Any, list[Any], Any]:
        """One round: what was read, what was found, and the diagnosis."""
        people, dice = self.sentences, self.dice
        who = dice.integers(people.size, size=people.size)
        sizes, rows = people.sizes[who], people.rows(who)
        owner = np.repeat(np.arange(len(who)), sizes)
        rows = rows[np.argsort(owner + dice.random(len(rows)), kind="stable")]  # in any order within each client
        each = np.minimum(sizes // 2, 200)
        place, most = ranges(np.zeros_like(sizes), sizes), np.repeat(each, sizes)
        kept = place < 2 * most
        rows, group = rows[kept], (2 * owner + (place >= most))[kept]
        hit = np.flatnonzero((group % 2 == 1) & (dice.random(len(rows)) < fraction))

        def totals(field: str) -> np.ndarray:
            column = self.sound[field][rows]
            column[hit] = self.broken[bug][field][rows[hit]]
            sums = [np.bincount(group, one, 2 * len(who)) for one in column.reshape(len(rows), -1).T]
            return np.stack(sums, axis=1).reshape(len(who), 2, -1).astype(np.float32)

        # a client's side as one example: means of what is averaged, totals of what is counted
        fields = {"looked": totals("looked") / np.maximum(each, 1)[:, None, None], "repaired": totals("repaired")}
        fields |= {field: totals(field)[..., 0] for field in ("words", "unknown")}
        vectors = self.sent(fields, np.repeat((each > 0).astype(np.float32)[:, None], 2, axis=1))
        mechanisms = measuring.noise_for(self.parts, epsilon=epsilon, delta=DELTA, shares=SHARES)
        released: dict[str, Measured] = {}
        for part in self.parts:
            std = mechanisms[part.name].noise_multiplier * part.bound
            sums = np.asarray(vectors[part.name], np.float64).sum(axis=0)
            released[part.name] = Measured(sums + dice.normal(0, std, sums.shape), std, epsilon)
        reading = unknown_findings.read(*(released[part.name] for part in self.parts), self.labels)
        listed, (diagnosis,) = unknown_findings.compare(reading)
        return reading, [one for one in listed if one.verdict == "detected"], diagnosis


def direct(runs: int) -> dict[str, Any]:
    """How often the bug is found and named, how often something is found where nothing is wrong, and released rates."""
    bugs = ("token_join", BUG)
    found: dict[str, Any] = {}
    for name, clients in (("stackexchange", 0), ("forum", 3400)):
        study = Runs(name, clients, bugs)
        cells, alarms, rates = list[Any](), list[Any](), dict[str, Any]()
        for epsilon in (0.5, 1.0, 2.0, 8.0):
            quiet = [bool(study.once(BUG, 0.0, epsilon)[1]) for _ in range(5 * runs)]
            alarms.append({"epsilon": epsilon, "runs": len(quiet), "false_alarms": float(np.mean(quiet))})
            print(name, alarms[-1], flush=True)
            for bug in bugs:
                for fraction in (0.001, 0.003, 0.01, 0.1, 1.0):
                    done = [study.once(bug, fraction, epsilon) for _ in range(runs)]
                    counted = collections.Counter(one.name for _, listed, _ in done for one in listed)
                    cell = {"bug": bug, "fraction": fraction, "epsilon": epsilon, "runs": runs}
                    cell |= {"found": float(np.mean([bool(listed) for _, listed, _ in done]))}
                    cell |= {"named": float(np.mean([d.fault == "token_join" for *_, d in done]))}
                    cell |= {"by": {k: round(v / runs, 3) for k, v in counted.most_common(5)}}
                    cells.append(cell)
                    print(name, {k: v for k, v in cell.items() if k != "by"}, flush=True)
        for fraction in FRACTIONS:
            reading = study.once(BUG, fraction, 1.0)[0]
            _, after = reading.rates(0), reading.rates(1)
            shown = {"true_rate": round(study.rate(BUG, fraction), 5), "simulation_only": "true_rate"}
            shown |= {"released": [tuple(round(v, 5) for v in rate) for rate in after[: 1 + len(words.PLACES)]]}
            rates[str(fraction)] = shown
        found[name] = {"clients": study.sentences.size, "nothing_wrong": alarms, "cells": cells, "rates": rates}
    return found


# --- words without models


def discover(name: str) -> dict[str, Any]:
    """Table 8 by noisy histograms of prefixes at epsilon 8: the words that most clients use, and how many do."""
    sentences, vocabulary = sources(name, 3400)
    listed: dict[str, Any] = {"clients": sentences.size, "epsilon": 8.0, "delta": DELTA}
    with tempfile.TemporaryDirectory() as folder:
        for fraction in FRACTIONS:
            broken = faults.apply(sentences, f"{BUG}:{fraction}:by=example")
            found = discover_words(
                own_words(broken, known=vocabulary),
                epsilon=8.0,
                delta=DELTA,
                key=keys.root(),
                ledger=Ledger(Path(folder) / "ledger.db"),
            )
            pairs = zip(found.words[:20], found.counts[:20].tolist(), strict=True)
            listed[f"{fraction:g}"] = [(word.replace("\u00a0", " "), round(count)) for word, count in pairs]
            listed["noise_std"] = round(found.noise_std, 1)
            print(name, fraction, len(found.words), listed[f"{fraction:g}"][:10], flush=True)
    return listed


# --- models


def prepare(folder: Path) -> None:
    """Sentences and unknown words as numbers, at every fraction, in one file for each population."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, clients in (("stackexchange", 0), ("forum", 6000)):
        sentences, vocabulary = sources(name, clients)
        kept: dict[str, np.ndarray] = {"vocabulary": np.array(vocabulary.words)}
        for fraction in FRACTIONS:
            broken = text.split_sentences(faults.apply(sentences, f"{BUG}:{fraction}:by=example"), most=64)
            for kind, read in (("words", text.word_tokens), ("letters", text.unknown_words)):
                examples = read(broken, vocabulary, length=20)
                kept[f"{fraction:g} {kind}"] = examples.columns["tokens"].astype(np.int16)
                kept[f"{fraction:g} {kind} sizes"] = examples.sizes
        np.savez_compressed(folder / f"oov_{name}.npz", **kept)
        print(name, f"{(folder / f'oov_{name}.npz').stat().st_size / 1e6:.1f} MB", flush=True)


def trainings(is_small: bool, rounds: int, cohort: int, samples: int) -> dict[str, WordTraining]:
    """The papers' architectures on stackexchange, or small ones there too."""
    small = WordTraining(rounds=rounds, cohort=cohort, samples=samples, letter_embedding=48, letter_cells=128)
    sizes = {"embedding": 96, "cells": 670, "letter_embedding": 128, "letter_cells": 256, "letter_layers": 3}
    return {"stackexchange": small if is_small else dataclasses.replace(small, **sizes), "forum": small}


def models(folder: Path, name: str, training: WordTraining, most: int) -> Iterator[dict[str, Any]]:
    """A model of words and one of letters at every fraction, and what they generate, as far as it is known."""
    opened = np.load(folder / f"oov_{name}.npz")
    vocabulary = Vocabulary(tuple(opened["vocabulary"].tolist()))
    clients = len(opened["0 words sizes"])
    found: dict[str, Any] = {"clients": clients, "training": dataclasses.asdict(training), "letters": LETTERS}
    found |= {"privacy": promises(training, clients), "made": {}}
    print(name, found["privacy"], flush=True)
    algorithms = {kind: make(kind, vocabulary, training, clients) for kind in unknown_models.UNITS}
    sound: Any = None
    for fraction in FRACTIONS:
        trained = dict[str, Any]()
        for kind, algorithm in algorithms.items():
            sizes = opened[f"{fraction:g} {kind} sizes"]
            rows = ranges(np.cumsum(sizes) - sizes, np.minimum(sizes, most))
            columns = {"tokens": opened[f"{fraction:g} {kind}"][rows].astype(np.int32)}
            began = time.monotonic()
            trained[kind] = fit(Population(columns, sizes=np.minimum(sizes, most), name=name), algorithm)
            print(name, fraction, kind, f"{time.monotonic() - began:.1f} s", flush=True)
        sound = sound or trained["letters"]  # what the others' lists are compared with
        made = unknown_models.generate_side(trained["words"], trained["letters"], sound, vocabulary, training)
        found["made"][f"{fraction:g}"] = rounded(dataclasses.asdict(made))
        listed = zip(made.listed.words[:8], made.listed.probabilities[:8], strict=True)
        print(name, fraction, f"{made.rate:.4f}", [f"{word} {1000 * p:.2f}" for word, p in listed], flush=True)
        yield found


def noise_of(training: WordTraining, clients: int) -> float:
    """As much in the mean as the papers had; or such that a model of words and one of letters promise epsilon 8."""
    if clients < HONEST:
        return training.cohort / 5000
    both = Privacy(population=clients, cohort=training.cohort, rounds=(1 + LETTERS) * training.rounds, clip=1.0)
    return float(both.calibrate(epsilon=8.0, delta=DELTA).noise_multiplier or 0.0)


def make(kind: str, vocabulary: Vocabulary, training: WordTraining, clients: int) -> tuple[Algorithm, Privacy]:
    """DP-FedAvg of that kind of model."""
    rounds = training.rounds * (LETTERS if kind == "letters" else 1)
    noise = noise_of(training, clients)
    privacy = dataclasses.replace(training.privacy(kind, clients), noise_multiplier=noise, rounds=rounds)
    server = optax.sgd(training.server_rate, momentum=training.momentum, nesterov=True)
    if kind == "letters":  # spelling takes fewer rounds so; the less noise, the longer steps it bears
        rate = 0.01 if clients >= HONEST else optax.cosine_decay_schedule(0.03, rounds, 0.05)
        server = optax.adam(rate, b2=0.99, eps=1e-3)
    algorithm = dp_fedavg(
        training.model(kind, vocabulary),
        next_token_loss(),
        privacy,
        client_optimizer=optax.sgd(training.client_rate),
        server_optimizer=server,
        batch_size=training.batch_size,
    )
    return algorithm, privacy


def fit(people: Population, how: tuple[Algorithm, Privacy]) -> Any:
    """The model after all rounds."""
    (algorithm, privacy), key = how, keys.root()
    backend, state = Simulation(people), algorithm.init()
    for number in range(privacy.rounds):
        drawn = privacy.sampling.draw(key=key.derive("cohort", number))
        cohort = backend.cohort(drawn, n_expected=privacy.sampling.n_expected, key=key.derive("clients", number))
        state, _ = algorithm.step(state, cohort, key=key.derive("noise", number))
    jax.block_until_ready(state.params)
    return algorithm.model(state)


def promises(training: WordTraining, clients: int) -> dict[str, Any]:
    """What the models promise these clients, what the papers' settings do, and what the papers say they do."""
    used = noise_of(training, clients)
    both = Privacy(population=clients, cohort=training.cohort, rounds=(1 + LETTERS) * training.rounds, clip=1.0)
    ours = dataclasses.replace(both, noise_multiplier=used).guarantee(delta=DELTA).epsilon
    theirs = Privacy(population=342_477, cohort=5000, rounds=2000, clip=0.2, noise_multiplier=1.0)
    honest = theirs.guarantee(delta=PUBLISHED_DELTA).epsilon
    said = fixed_size_epsilon(342_477, 5000, 1.0, 2000, PUBLISHED_DELTA)
    return {
        "noise_multiplier": used,
        "epsilon of both models": ours,
        "delta": DELTA,
        "papers: as published, one model": said,
        "papers: poisson sampling, one model": honest,
    }


def rounded(value: Any) -> Any:
    """Plain values with five digits."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


# --- the picture


def draw(result: dict[str, Any], path: Path) -> None:
    """Figure 4 for both populations, released and generated; discovered words; detection by fraction."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 4, figsize=(18, 8), layout="constrained")
    for row, name in enumerate(("stackexchange", "forum")):
        about = result["direct"][name]
        made = result.get("models", {}).get(name, {}).get("made", {})
        places = np.arange(1, len(words.PLACES))
        for number, fraction in enumerate(FRACTIONS):
            label, colour = f"{100 * fraction:g} %", f"C{number}"
            rates = np.array(about["rates"][str(fraction)]["released"])[1:-1]
            errors = np.abs(rates[:, 1:].T - rates[:, 0])
            axes[row, 0].errorbar(places, 100 * rates[:, 0], 100 * errors, color=colour, label=label, capsize=2)
            if f"{fraction:g}" in made:
                generated = 100 * np.array(made[f"{fraction:g}"]["places"][:-1])
                axes[row, 1].plot(places, generated, "o-", color=colour, label=label)
        axes[row, 0].set_title(f"{name}: released at epsilon 1")
        axes[row, 1].set_title(f"{name}: generated by word models" if made else "(no models)")
        for axis in axes[row, :2]:
            axis.set(xlabel="position in the sentence", ylabel="unknown words (% of sentences)", yscale="symlog")
            axis.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
            axis.grid(alpha=0.3)
            if axis.get_legend_handles_labels()[1]:
                axis.legend(title="sentences with the bug", fontsize=8)
        _draw_discovered(axes[row, 2], name, result.get("discovered", {}).get(name, {}))
        _draw_detection(axes[row, 3], name, about)
    figure.savefig(path, dpi=80)


def _draw_discovered(axis: Any, name: str, found: dict[str, Any]) -> None:
    """The words that most clients use with the bug everywhere, and how many do at every fraction."""
    if not found:
        axis.set_axis_off()
        return
    listed = [word for word, _ in found["1"][:10]][::-1]
    for number, fraction in enumerate(FRACTIONS):
        counts = dict(found[f"{fraction:g}"])
        shown = [counts.get(word, 0) for word in listed]
        axis.barh(np.arange(len(listed)) - 0.2 * (number - 1.5), shown, 0.2, color=f"C{number}")
    axis.set_yticks(range(len(listed)), listed)
    axis.set(xlabel="clients (noisy)", title=f"{name}: discovered at epsilon {found['epsilon']:g}")
    axis.grid(alpha=0.3, axis="x")


def _draw_detection(axis: Any, name: str, about: dict[str, Any]) -> None:
    for number, epsilon in enumerate((0.5, 1.0, 2.0, 8.0)):
        cells = [c for c in about["cells"] if c["epsilon"] == epsilon]
        for bug, style in (("token_join", "o-"), (BUG, "^:")):
            some = [c for c in cells if c["bug"] == bug]
            shown = f"epsilon {epsilon:g}" if bug == "token_join" else None
            x = [100 * c["fraction"] for c in some]
            axis.plot(x, [100 * c["named"] for c in some], style, color=f"C{number}", label=shown)
    alarm = max(one["false_alarms"] for one in about["nothing_wrong"])
    axis.axhline(100 * alarm, color="grey", lw=0.8)
    axis.text(1, 100 * alarm + 2, f"nothing wrong: at most {100 * alarm:.1f} % found", fontsize=8, color="grey")
    axis.set(xscale="log", xlabel="sentences with the bug (%)", ylabel="bug named (% of runs)")
    axis.set_title(f"{name}: one round")
    axis.legend(fontsize=8, title="solid: no glue; dotted: a space")
    axis.grid(alpha=0.3)


def main() -> None:
    """One stage; every stage adds to oov_tables.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("direct", "discover", "prepare", "models", "draw"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--cohort", type=int, default=400)
    parser.add_argument("--most", type=int, default=64, help="sentences, and unknown words, of a client")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--only", choices=("stackexchange", "forum"), default=None, help="models: of one population")
    parser.add_argument("--small", action="store_true", help="small models on stackexchange too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.stage == "prepare":
        prepare(options.folder)
        return
    path = options.out / "oov_tables.json"
    options.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    result["published"] = PUBLISHED | {"table 8": PUBLISHED_LISTS}
    began = time.monotonic()

    def keep(where: dict[str, Any], name: str, part: dict[str, Any], *said: str) -> None:
        words = [options.stage, *(f"--{one} {getattr(options, one)}" for one in said)]
        words += ["--small"] if "rounds" in said and options.small else []
        where[name] = part | {
            "command": f"python experiments/oov_tables.py {' '.join(words)}",
            "hardware": f"{jax.devices()[0].device_kind}, {platform.machine()}",
            "versions": {"jax": jax.__version__, "python": platform.python_version()},
            "seconds": round(time.monotonic() - began),
        }
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    if options.stage == "direct":
        keep(result, "direct", direct(options.runs), "runs")
    if options.stage == "discover":
        for name in ("stackexchange", "forum"):
            keep(result.setdefault("discovered", {}), name, discover(name))
    if options.stage == "models":
        settings = trainings(options.small, options.rounds, options.cohort, options.samples)
        made = result.setdefault("models", {})
        for name in [options.only] if options.only else settings:
            for part in models(options.folder, name, settings[name], options.most):
                keep(made, name, part, "rounds", "cohort", "most", "samples")
    if "direct" in result:
        draw(result, options.out / "oov_tables.png")


if __name__ == "__main__":
    main()
