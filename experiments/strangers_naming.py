"""Are faults of tables, texts and images named rightly? They are planted by other code than the library's.

    python experiments/strangers_naming.py [--runs 20] [--epsilon 1 4 8] [--beds adult,stackexchange,mnist]
    python experiments/strangers_naming.py --beds adult_first,tabular,forum,handwriting --out FOLDER   settings chosen

`inspect sanity` without a model, against 100 public clients. What every client would send is computed once; a run draws
private and public clients anew from all of them, without overlap, and the noise of a round at (epsilon, 1e-6). Each
fault that the library knows is also left out of it once (at 20 %): it must then be called unknown. Where nothing is
planted, everything that is detected is a false alarm. `strangers.py naming` asks with a model, for images.
"""

import argparse
import dataclasses
import html
import itertools
import json
import math
import multiprocessing
import platform
import re
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg
from strangers import DELTA, RESULTS, Release, averages_of
from strangers_pictures import MORE_PICTURES, PICTURES

from blindsight import data
from blindsight.algorithms.moments import MomentsPart
from blindsight.data import faults
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import cues, reading
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.explained import Explanation, verdict_on
from blindsight.inspection.contrast.explaining import explain
from blindsight.inspection.contrast.nameless import nameless
from blindsight.inspection.contrast.planting import (
    candidates,
    odd_scales,
    scaled_fields,
    without_odd_scales,
    worth_running,
)
from blindsight.inspection.contrast.predicting import Evidence
from blindsight.inspection.contrast.question import Sanity
from blindsight.inspection.contrast.reading import Usual
from blindsight.inspection.contrast.rounds import plan
from blindsight.inspection.measuring import Measured
from blindsight.inspection.question import Public, complete
from blindsight.selection import Arms, everything

ALONE = Arms({"everyone": everything()})
SIZES = (220, 700, 1000)
PUBLIC, PLANTED = 100, 60  # public clients of a run, and those in which candidates are planted
Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


# --- faults planted by others: the change, and the fault of the library that it is (nothing if it is none)


def table_faults(age: str, hours: str, money: str, category: str) -> dict[str, tuple[Change, str]]:
    """What others did to a table."""

    def on(field: str, change: Callable[[np.ndarray], np.ndarray]) -> Change:
        return lambda rows: rows | {field: np.rint(change(rows[field].astype(float))).astype(rows[field].dtype)}

    def mixed(values: np.ndarray) -> np.ndarray:
        return np.random.default_rng(3).permutation(values)

    return {
        f"{age} and {hours} swapped": (lambda rows: rows | {age: rows[hours], hours: rows[age]}, "column_swap"),
        f"{hours} in minutes": (on(hours, lambda x: x * 60), f"unit_change:field={hours}"),
        f"{age} in months": (on(age, lambda x: x * 12), f"unit_change:field={age}"),
        f"{hours} in another unit": (on(hours, lambda x: x * 2.54), f"unit_change:field={hours}"),
        f"{money} in thousands": (on(money, lambda x: x / 1000), f"unit_change:field={money}"),
        f"{age} is -1": (on(age, lambda x: 0 * x - 1), f"missing_fill:field={age}"),
        f"{hours} is 999": (on(hours, lambda x: 0 * x + 999), f"missing_fill:field={hours}"),
        f"{age} has one digit": (on(age, lambda x: np.where(x >= 10, x // 10, x)), f"field_cut:field={age}"),
        "every other row again": (_doubled, "repeated_rows"),
        f"one {category} lost": (lambda rows: rows | {category: np.where(rows[category] == 4, 0, rows[category])},
                                 f"lost_category:field={category}"),
        f"{age} counts down": (on(age, lambda x: 100 - x), ""),
        f"{age} and {hours} rounded to tens": (lambda rows: on(hours, lambda x: 10 * np.rint(x / 10))(
            on(age, lambda x: 10 * np.rint(x / 10))(rows)), ""),
        f"{hours} of someone else's {money}": (on(hours, lambda x: np.sqrt(np.abs(x)) * 10), ""),
        f"{age} noisy": (on(age, lambda x: x + np.random.default_rng(4).normal(0, 25, len(x))), ""),
        f"{hours} capped at 30": (on(hours, lambda x: np.minimum(x, 30)), ""),
        f"{age} backwards": (on(age, lambda x: x // 10 + 10 * (x % 10)), ""),
        f"{hours} is {age}": (lambda rows: rows | {hours: rows[age]}, ""),
        f"{money} squared": (on(money, lambda x: (x / 1000) ** 2), ""),
        f"{money} without thousands": (on(money, lambda x: x % 1000), ""),
        f"{hours} negated": (on(hours, lambda x: -x), ""),
        f"{age} is 18 in every other row": (on(age, lambda x: np.where(np.arange(len(x)) % 2 == 0, 18, x)), ""),
        f"{hours} doubled in every third row": (
            on(hours, lambda x: np.where(np.arange(len(x)) % 3 == 0, 2 * x, x)), ""),
        f"{category} shuffled": (lambda rows: rows | {category: mixed(rows[category]), age: mixed(rows[age]) + 20}, ""),
    }  # fmt: skip


def _doubled(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    place = np.arange(len(next(iter(rows.values())))) // 2 * 2
    return {field: column[place] for field, column in rows.items()}


def text_faults() -> dict[str, tuple[Change, str]]:
    """What others did to texts."""

    def on(change: Callable[[str], str]) -> Change:
        return lambda rows: rows | {"text": np.array([change(one) for one in rows["text"].tolist()], dtype=TEXT)}

    def glued(text: str) -> str:
        words = text.split(" ")
        return " ".join(a + b for a, b in itertools.zip_longest(words[::2], words[1::2], fillvalue=""))

    def mojibake(text: str) -> str:
        return text.replace("'", "\u2019").replace('"', "\u201d").encode().decode("latin-1")

    return {
        "lower case": (on(str.lower), "case:to=lower"),
        "upper case": (on(str.upper), "case:to=upper"),
        "escaped twice": (on(lambda one: html.escape(html.escape(one))), "html_entities"),
        "escaped": (on(lambda one: one.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                       .replace('"', "&quot;").replace("'", "&#39;")), "html_entities"),
        "cut at 100": (on(lambda one: one[:100]), "truncation"),
        "cut at 24": (on(lambda one: one[:24]), "truncation"),
        "words joined": (on(lambda one: re.sub(r"(?<=[A-Za-z0-9]) (?=[A-Za-z0-9])", "", one)), "token_join"),
        "wrong encoding": (on(mojibake), "encoding_damage"),
        "title case": (on(str.title), "case:to=title"),
        "words glued in pairs": (on(glued), "token_join"),
        "vowels lost": (on(lambda one: "".join(sign for sign in one if sign not in "aeiou")), ""),
        "digits masked": (on(lambda one: "".join("#" if sign.isdigit() else sign for sign in one)), ""),
        "words doubled": (on(lambda one: " ".join(f"{word} {word}" for word in one.split(" "))), ""),
        "every line quoted": (on(lambda one: "\n".join(f"> {line}" for line in one.split("\n"))), ""),
    }  # fmt: skip


def image_faults() -> dict[str, tuple[Change, str]]:
    """What others did to images (`strangers_pictures`), and more that the library lacks."""

    def on(change: Any) -> Change:
        return lambda rows: rows | {"image": np.ascontiguousarray(change(rows["image"]))}

    known = {name: (on(change), answer) for name, (change, answer) in PICTURES.items()}
    return known | {name: (on(change), "") for name, change in MORE_PICTURES.items()}


TOGETHER = {
    "tabular": ("age and hours swapped", "savings in thousands"),
    "adult": ("age and hours_per_week swapped", "fnlwgt in thousands"),
    "adult_first": ("age and hours_per_week swapped", "fnlwgt in thousands"),
    "forum": ("upper case", "cut at 100"),
    "stackexchange": ("upper case", "cut at 100"),
    "handwriting": ("inverted", "on its side"),
    "mnist": ("inverted", "on its side"),
}
"""Two faults at once."""


# --- beds


@dataclasses.dataclass(frozen=True, eq=False)
class Bed:
    """Clients, and the faults of others; ranges and quartiles are those of the first `public` clients."""

    name: str
    population: Population
    inputs: tuple[str, ...]
    others: Mapping[str, tuple[Change, str]]
    public: int = 300


def adult(half: int = 1) -> Bed:
    """Rows of the census dealt to clients of about twenty: one half of the clients."""
    inputs = ("age", "fnlwgt", "education_num", "hours_per_week", "workclass", "sex")
    people = data.dataset("adult", split="all", clients=2440)
    faults_of_others = table_faults("age", "hours_per_week", "fnlwgt", "workclass")
    return Bed("adult", people.select(np.arange(half, people.size, 2)), inputs, faults_of_others, 200)


def adult_first() -> Bed:
    """The other half, on which settings were chosen."""
    return dataclasses.replace(adult(0), name="adult_first")


def tabular() -> Bed:
    """Embedded rows, on which settings were chosen."""
    people = data.embedded("tabular", clients=2440, examples=(15, 25))
    inputs = ("age", "hours", "savings", "education", "region")
    return Bed("tabular", people.replace(people.columns), inputs, table_faults("age", "hours", "savings", "education"))


def stackexchange() -> Bed:
    """Posts by author."""
    posts = data.dataset("stackexchange")
    few = posts.select(np.flatnonzero((posts.sizes >= 2) & (posts.sizes <= 40))[:1600])
    return Bed("stackexchange", few, ("text",), text_faults())


def forum() -> Bed:
    """Embedded posts, on which settings were chosen."""
    people = data.embedded("forum", clients=1600)
    return Bed("forum", people.replace(people.columns), ("text",), text_faults())


def mnist() -> Bed:
    """836 writers of ten digits, at most 24 digits of each."""
    people = data.dataset("mnist", split="all")
    place = np.arange(len(people.columns["label"])) - np.repeat(people.offsets[:-1], people.sizes)
    columns = {field: column[place < 24] for field, column in people.columns.items()}
    few = Population(columns, sizes=np.minimum(people.sizes, 24), ids=people.ids, classes=people.classes, name="mnist")
    return Bed("mnist", few, ("image",), image_faults(), 200)


def handwriting() -> Bed:
    """Embedded writers, on which settings were chosen."""
    people = data.embedded("handwriting", clients=1400, seed=3, examples=(15, 25))
    return Bed("handwriting", people.replace(people.columns), ("image",), image_faults())


BEDS = {one.__name__: one for one in (adult, stackexchange, mnist, adult_first, tabular, forum, handwriting)}


@dataclasses.dataclass(frozen=True, eq=False)
class Sent:
    """What every client would send: cues, and the means of moments by how many are measured."""

    cues: np.ndarray
    means: Mapping[int, np.ndarray]

    def of(self, rows: np.ndarray, means: int) -> np.ndarray:
        """What these clients send, side by side."""
        return np.concatenate([self.cues[rows], *([self.means[means][rows]] if means else [])], axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Planted:
    """What every client of a bed would send: healthy, with each fault of others and of ours, and with each rival."""

    part: Cues
    healthy: Sent
    others: dict[str, Sent]
    library: dict[str, Sent]
    rivals: dict[str, Sent]  # changes without a name
    numbers: list[str]
    means: dict[tuple[int, float], int]  # how many the moments have; none for texts
    noise: dict[tuple[int, float], tuple[float, float]]  # of cues and of means

    @property
    def clients(self) -> int:
        """All clients, private and public."""
        return len(self.healthy.cues)

    def noise_in(self, n: int, epsilon: float) -> np.ndarray:
        """The noise of every sum."""
        sizes = self.healthy.cues.shape[1], self.means[n, epsilon]
        return np.repeat(self.noise[n, epsilon], sizes)


def vectors_of(seen: Population, part: Cues) -> np.ndarray:
    """What every client would send, as `Cues.client_part` computes it."""
    values = seen.columns[cues.FIELD].astype(np.float64)
    there, totals = (
        np.add.reduceat(column, seen.offsets[:-1])
        for column in (np.isfinite(values).astype(float), np.nan_to_num(values))
    )
    mean = np.where(there > 0, totals / np.maximum(there, 1), np.array(part.neutral or 0.5)) - 0.5
    return np.concatenate([mean, mean**2, np.ones((len(mean), 1))], axis=1).astype(np.float32)


def plant(bed: Bed) -> Planted:
    """Compute what every client would send, once."""
    everyone = bed.population
    public = everyone.select(np.random.default_rng(1).permutation(everyone.size)[: bed.public])
    numbers = [field for field in bed.inputs if faults.facts_of(public)[field].kind == "number"]
    ends = {f: (float(public.columns[f].min()), float(public.columns[f].max())) for f in numbers}
    given = {field: Field("whole", low=low, high=high) for field, (low, high) in ends.items()}
    schema = complete(Schema(given, bed.inputs, "label"), public, bed.inputs)

    def look(population: Population) -> Population:
        return cues.observe(population, bed.inputs, schema.ranges, public)

    part = cues.cues_part(look(public), tuple(ALONE), disjoint_by_client=True, public=look(public))
    parts, noise = rounds_of(schema, public)
    measured = {key: one.features.encoding.size for key, one in parts.items()}
    different = list({size: parts[key] for key, size in measured.items()}.values())

    def send(population: Population) -> Sent:
        return Sent(vectors_of(look(population), part), averages_of(population, different))

    listed = candidates(public, bed.inputs, "label", ranges=schema.ranges) + odd_scales(numbers)
    library = dict[str, np.ndarray]()
    for fault in listed:
        try:
            library[fault] = send(faults.apply(everyone, fault))
        except InvalidInput:  # no room in the field
            continue
    others = {name: send(everyone.replace(change(dict(everyone.columns)))) for name, (change, _) in bed.others.items()}
    print(f"{bed.name}: {everyone.size} clients, {len(library)} candidates, {len(part.names)} cues", flush=True)
    rivals = {name: send(change(everyone)) for name, change in nameless(public, bed.inputs).items()}
    means = {key: measured.get(key, 0) for key in noise}
    return Planted(part, send(everyone), others, library, rivals, numbers, means, noise)


def rounds_of(schema: Schema, public: Population) -> tuple[dict[Any, MomentsPart], dict[Any, tuple[float, float]]]:
    """The moments that are measured, if any, and the noise of cues and of means, by clients and epsilon."""
    parts, noise = dict[Any, MomentsPart](), dict[Any, tuple[float, float]]()
    for n, epsilon in itertools.product(SIZES, (1.0, 4.0, 8.0)):
        question = Sanity(schema=schema, clients=n, epsilon=epsilon, delta=DELTA)
        planned = plan(question, Public(reference=public))
        stds = {one.name: planned.mechanisms[one.name].noise_multiplier * one.bound for one in planned.parts}
        for one in planned.parts:
            if isinstance(one, MomentsPart):
                parts[n, epsilon] = one
                stds["moments"] *= math.sqrt(len(one.classes))
        noise[n, epsilon] = stds["cues"], stds.get("moments", 0.0)
    return parts, noise


# --- runs


def asked(
    made: Planted, planted: Mapping[str, float], n: int, epsilon: float, without: str, run: int
) -> tuple[bool, tuple[Explanation, ...]]:
    """Whether anything was detected, and the candidates that were tried."""
    cell = f"{planted} {n} {epsilon}"  # every cell has public clients of its own
    dice = np.random.default_rng((11, run, zlib.crc32(cell.encode())))
    order = dice.permutation(made.clients)
    own, rows = order[:PUBLIC], order[PUBLIC : PUBLIC + n]
    which = dice.choice(len(planted) + 1, n, p=[*planted.values(), 1 - sum(planted.values())])
    means, stds = made.means[n, epsilon], made.noise_in(n, epsilon)
    sums = made.healthy.of(rows[which == len(planted)], means).sum(axis=0)
    for place, fault in enumerate(planted):
        sums = sums + made.others[fault].of(rows[which == place], means).sum(axis=0)
    sums = sums + stds * dice.standard_normal(sums.shape)
    public, size = made.healthy.of(own, means), made.part.coordinates
    usual = Usual({"cues": public[:, :size]}, {"everyone": len(public)}, {"cues": public[:, :size]})
    measured: Any = Release({"cues": Measured(sums[:size], stds[0], epsilon)}, n)
    findings, _ = reading.read(measured, {"cues": made.part}, ALONE, usual)
    if not any(one.verdict == "detected" for one in findings):
        return False, ()
    some = np.arange(PLANTED)
    library = {f: sent for f, sent in made.library.items() if not without or not f.startswith(without)}
    by_cues = {f: (some, sent.cues[own[:PLANTED]]) for f, sent in library.items()}
    evidence = Evidence(sums[:size], stds[:size], n, public[:, :size])
    odd = set(odd_scales(made.numbers))
    known = {f: sent for f, sent in by_cues.items() if f not in odd or f.rpartition("=")[2] in ("1000", "100", "10")}
    scaled = set(odd_scales(scaled_fields(evidence, known, made.numbers)))
    chosen = {f: sent for f, sent in by_cues.items() if f in known or f in scaled}
    rivals = {name: (some, sent.cues[own[:PLANTED]]) for name, sent in made.rivals.items()}
    tried = without_odd_scales(evidence, chosen) | rivals
    if means:
        everything_sent = library | made.rivals
        listed = worth_running(evidence, tried)
        tried = {name: (some, everything_sent[name].of(own[:PLANTED], means)) for name in listed}
    return True, explain(Evidence(sums, stds, n, public), tried)


SAME = 2.0  # standard deviations between two predictions that count as one
SHORT = 3  # names in a list that still helps
CLEAREST = (1000, 8.0)  # clients and epsilon


def same_trace(made: Planted, fault: str, share: float, name: str, clients: int, epsilon: float) -> bool:
    """Whether a fault of the library predicts the same release as the planted one, at its best share.

    The distance is in standard deviations of the noise and of the sampling of clients: at two of them, somebody who
    knew both predictions exactly, and that it is one of the two, would be wrong in one of six runs.
    """
    if name not in made.library:
        return False
    means, everyone = made.means[clients, epsilon], np.arange(made.clients)
    healthy, *others = (
        sent.of(everyone, means).astype(np.float64) for sent in (made.healthy, made.others[fault], made.library[name])
    )
    error = np.diag(made.noise_in(clients, epsilon) ** 2 + 1e-9) + clients * np.cov(healthy.T)
    moved, candidate = ((sent - healthy).mean(axis=0) for sent in others)
    both = clients * np.stack([share * moved, candidate], axis=1)
    planted, other = linalg.solve_triangular(linalg.cholesky(error, lower=True), both, lower=True).T
    best = float(np.clip(planted @ other / max(float(other @ other), 1e-9), 0.0, 1.0))
    return float(np.linalg.norm(planted - best * other)) <= SAME


def judged(
    made: Planted, fault: str, share: float, answer: str, at: tuple[int, float], tried: tuple[Explanation, ...]
) -> tuple[str, tuple[Explanation, ...]]:
    """What was said: a name, `unknown`, or one of the words for lists and for faults that cannot be told apart.

    A short list is right if the planted fault is in it and all others predict the same release (at these clients and
    this epsilon). A single name of another fault is wrong unless it predicts the same even in the clearest release.
    """
    name, close = verdict_on(tried)
    if name != "several":
        right = bool(answer) and name.startswith(answer)
        same = name != "unknown" and not right and same_trace(made, fault, share, name, *CLEAREST)
        return ("same trace" if same else name), close
    is_it = [bool(answer) and one.fault.startswith(answer) for one in close]
    alike = [it or same_trace(made, fault, share, one.fault, *at) for it, one in zip(is_it, close, strict=True)]
    if len(close) <= SHORT and all(alike):
        return ("in a list" if any(is_it) else "same trace"), close
    return ("among several" if any(is_it) else "several"), close


def cell(made: Planted, bed: Bed, fault: str, share: float, n: int, epsilon: float, without: str, runs: int) -> Any:
    """How often a planted fault is detected, named rightly, called unknown, and named wrongly."""
    answer = "" if without else bed.others[fault][1]
    said, covered = list[str](), 0
    for run in range(runs):
        seen, tried = asked(made, {fault: share}, n, epsilon, without, run)
        name, close = judged(made, fault, share, answer, (n, epsilon), tried) if seen else ("", ())
        said.append(name)
        covered += len(close) == 1 and close[0].low <= share <= close[0].high
    row = {"bed": bed.name, "fault": fault, "answer": answer, "without": without, "clients": n}
    row |= {"share": share, "epsilon": epsilon}
    return counted(row, said, [answer] if answer else [], covered)


def both_cell(made: Planted, bed: Bed, n: int, epsilon: float, runs: int) -> Any:
    """How often two faults at once, 10 % of clients each, are both named, or not named at all."""
    two = TOGETHER[bed.name]
    answers = [bed.others[fault][1] for fault in two]
    said = list[str]()
    for run in range(runs):
        seen, tried = asked(made, dict.fromkeys(two, 0.1), n, epsilon, "", run)
        said.append(verdict_on(tried)[0] if seen else "")
    row = {"bed": bed.name, "fault": " + ".join(two), "answer": " + ".join(answers), "without": "", "clients": n}
    return counted(row | {"share": 0.1, "epsilon": epsilon}, said, answers, 0)


def nothing_cell(made: Planted, bed: Bed, n: int, epsilon: float, runs: int) -> Any:
    """How often anything is detected where nothing is planted, and what is then said."""
    said = list[str]()
    for run in range(10 * runs):
        seen, tried = asked(made, {}, n, epsilon, "", run)
        said.append(verdict_on(tried)[0] if seen else "")
    row = {"bed": bed.name, "fault": NOTHING, "answer": "", "without": "", "clients": n, "share": 0.0}
    return counted(row | {"epsilon": epsilon}, said, [], 0)


def counted(row: dict[str, Any], said: list[str], answers: list[str], covered: int) -> dict[str, Any]:
    """The outcomes of all runs; one of two faults named is right as far as it goes, and is counted apart."""
    missed, *counts = (said.count(one) for one in ("", *APART))

    def is_right(name: str) -> bool:
        parts = name.split(" + ")
        return bool(answers) and all(any(part.startswith(one) for one in answers) for part in parts)

    named = [name for name in said if name and name not in APART]
    right = [name for name in named if is_right(name)]
    whole = [name for name in right if len(name.split(" + ")) == len(answers)]
    runs = len(said)
    row |= {"runs": runs, "detected": (runs - missed) / runs, "right": len(whole) / runs}
    row |= {"one of two": (len(right) - len(whole)) / runs}
    row |= {said: count / runs for said, count in zip(APART, counts, strict=True)}
    row |= {"wrong": (len(named) - len(right)) / runs, "covered": covered / max(len(whole), 1)}
    row["named"] = sorted({name for name in named if not is_right(name)})
    left_out = " (left out)" if row["without"] else ""
    print(
        f"{row['bed']:13} N {row['clients']:4} eps {row['epsilon']:g} {row['share']:4.0%} {row['fault'] + left_out:42} "
        f"detected {row['detected']:4.0%} right {row['right']:4.0%} in a list {row['in a list']:4.0%} "
        f"unknown {row['unknown']:4.0%} same trace {row['same trace']:4.0%} wrong {row['wrong']:4.0%} {row['named']}",
        flush=True,
    )
    return row


NOTHING = "nothing"
APART = ("in a list", "among several", "several", "same trace", "unknown")
"""What is said instead of one name, and of a name that cannot be told from the right one."""

MADE: dict[str, tuple[Planted, Bed]] = {}
"""What each bed's clients send; shared with the processes that are forked."""


def run_cell(words: tuple[Any, ...]) -> dict[str, Any]:
    """One cell of the table."""
    measure, name, *rest = words
    return measure(*MADE[name], *rest)


def cells(name: str, runs: int, epsilons: list[float], sizes: list[int], shares: list[float]) -> list[tuple[Any, ...]]:
    """All cells of a bed, as far as its clients reach."""
    made, bed = MADE[name]
    chosen = [n for n in sizes if n + PUBLIC <= made.clients]
    listed = list[tuple[Any, ...]]()
    for n, epsilon in itertools.product(chosen, epsilons):
        for share, (fault, (_, answer)) in itertools.product(shares, bed.others.items()):
            for without in dict.fromkeys(("", answer.partition(":")[0] if share == 0.2 else "")):
                listed.append((cell, name, fault, share, n, epsilon, without, runs))
        listed.append((both_cell, name, n, epsilon, runs))
        listed.append((nothing_cell, name, n, epsilon, runs))
    return listed


def main() -> None:
    """Run all cells and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--clients", type=int, nargs="+", default=[220, 1000], choices=SIZES)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.5])
    parser.add_argument("--beds", default="adult,stackexchange,mnist")
    parser.add_argument("--known", action="store_true", help="Only faults of the library, none left out of it.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    began = time.monotonic()
    listed = list[tuple[Any, ...]]()
    for name in given.beds.split(","):
        bed = BEDS[name]()
        MADE[name] = plant(bed), bed
        listed += [
            words
            for words in cells(name, given.runs, given.epsilon, given.clients, given.shares)
            if not given.known or (words[0] is cell and bed.others[words[2]][1] and not words[6])
        ]
    with multiprocessing.get_context("fork").Pool(given.processes) as pool:
        rows = pool.map(run_cell, listed, chunksize=1)
    about = {
        "command": f"python experiments/strangers_naming.py --runs {given.runs} --beds {given.beds}"
        + " --known" * given.known
        + "".join(
            f" --{option} {' '.join(f'{one:g}' for one in getattr(given, option))}"
            for option in ("epsilon", "clients", "shares")
        ),
        "machine": platform.machine(),
        "seconds": round(time.monotonic() - began),
        "summary": summary(rows),
    }
    short = [{k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    body = ",\n".join(f"  {json.dumps(row)}" for row in short)
    path = given.out / "strangers_naming_by_cues.json"
    path.write_text(json.dumps(about, indent=1)[:-2] + f',\n "rows": [\n{body}\n ]\n}}\n')
    print(json.dumps(about["summary"], indent=1))


SAID = ("right", "one of two", *APART, "wrong")


FRESH = (
    " capped at 30",
    " backwards",
    " squared",
    " is age",
    " without thousands",
    " negated",
    " every other row",
    " every third row",
)


def is_fresh(fault: str) -> bool:
    """Whether no setting was chosen by this fault."""
    return fault.endswith(FRESH) or fault in MORE_PICTURES


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Shares of the runs in which something was detected, by bed and by what the library knows of the fault."""
    is_known = lambda row: row["answer"] or row["without"] or row["fault"] == NOTHING  # noqa: E731
    groups = {
        "in the library, power above 0.9": lambda row: (
            row["answer"] and "+" not in row["answer"] and row["detected"] > 0.9
        ),
        "in the library": lambda row: row["answer"] and "+" not in row["answer"],
        "left out of it": lambda row: bool(row["without"]),
        "never in it": lambda row: not is_known(row) and not is_fresh(row["fault"]),
        "never in it, written last": lambda row: not is_known(row) and is_fresh(row["fault"]),
        "two at once": lambda row: "+" in row["answer"],
    }  # fmt: skip
    table = dict[str, dict[str, float]]()
    for bed, (group, is_in) in itertools.product(dict.fromkeys(row["bed"] for row in rows), groups.items()):
        chosen = [row for row in rows if row["bed"] == bed and is_in(row)]
        seen = max(sum(row["detected"] for row in chosen), 1e-9)
        shares = {said: sum(row[said] for row in chosen) / seen for said in SAID}
        table[f"{bed}: {group}"] = {
            "cells": len(chosen),
            "detected": round(seen / max(len(chosen), 1), 3),
            **{said: round(share, 3) for said, share in shares.items()},
        }
        nothing = [row for row in rows if row["bed"] == bed and row["fault"] == NOTHING]
        table[f"{bed}: nothing planted"] = {
            "runs": sum(row["runs"] for row in nothing),
            "detected": round(sum(row["detected"] for row in nothing) / max(len(nothing), 1), 3),
        }
    return table


if __name__ == "__main__":
    main()
