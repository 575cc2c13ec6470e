"""Every way into a computation about private clients, in its smallest form: what the attacks in tests/attacks run.

An entry is run in a folder with `people.csv`, which is private, and `public.csv` and `words.txt`, which are not. It
returns what a caller gets; what it prints and writes is seen to by `leaving`.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
from leaving import command
from neighbours import ODD

from blindsight import inspect, keys
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.draw_and_discard import Budget, Task
from blindsight.algorithms.moments import measure
from blindsight.algorithms.parties import GivenGenerator, Party, PrivateLinear
from blindsight.algorithms.synthesis import synthesise
from blindsight.algorithms.synthetic_votes import aggregate
from blindsight.algorithms.vocabulary import count_words, discover_words, own_words
from blindsight.codings import specs as spec
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Number
from blindsight.codings.specs import FeatureSpec, Response
from blindsight.data.population import TEXT, Population
from blindsight.selection import Arms, coded, everything, where
from blindsight.service import Client

__all__ = ["ENTRIES", "WITHOUT_CLIENTS", "Entry"]

WITHOUT_CLIENTS = {
    "plan": "arithmetic",
    "tables": "arithmetic",
    "demo": "its clients are made up",
    "data list": "names of data",
    "data get": "data that everybody has",
    "data describe": "for the data's owner: it says that it reads data without noise",
    "data check": "for the data's owner: it names rows, and says so",
}
"""Commands that are not attacked, and why."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One way in: the commands and functions that it goes through, and how it is run."""

    through: tuple[str, ...]
    run: Callable[[], Any]
    slow: bool = False


def _commands(*lines: str) -> Callable[[], Any]:
    return lambda: [command(*line.split()) for line in lines]


def _inspect(task: str, options: str, *more: str, **about: Any) -> Entry:
    asked = f"inspect {task} people.csv --client who {options} --out run --ledger ledger.db"
    return Entry((f"inspect {task}", *about.pop("through", ())), _commands(asked, *more), **about)


_NUMBERS = "--input age --input income --range age=0:100 --range income=0:5000"
_PUBLIC = "--reference public.csv"
_REGION = "--by region --value north --value south"
_SIDES = "--side version --value old --value new --vocabulary words.txt"
_LEDGER = (
    "ledger show --ledger ledger.db --entries",
    "ledger export --ledger ledger.db --output ledger.jsonl",
    "ledger verify --ledger ledger.db",
    "ledger budget set people --epsilon 9 --delta 1e-6 --ledger ledger.db",
)


def _toml(**tables: Any) -> str:
    """RUN.toml, from its tables."""

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return "{ " + ", ".join(f"{name} = {value(one)}" for name, one in item.items()) + " }"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        return str(item).lower() if isinstance(item, bool) else repr(item).replace("'", '"')

    lines = ['name = "run"']
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {value(item)}" for key, item in table.items())]
    return "\n".join([*lines, ""])


_DATA = {"population": "people.csv", "options": {"client": "who"}, "held_out": 0}
_PRIVACY = {"noise_multiplier": 1.0, "delta": 1e-3, "cohort": 10, "rounds": 2}
_ROWS = {"kind": "logistic", "inputs": ["age", "income"], "classes": ["yes", "no"]}
_WORDS = {"kind": "word_lm", "embedding": 3, "cells": 3}
_TEXT = {"vocabulary": "words.txt", "sentences": 3, "length": 6}


def _train(through: tuple[str, ...], *more: str, slow: bool = False, **tables: Any) -> Entry:
    """`blindsight train` with these tables of RUN.toml, and what is asked of its run afterwards."""
    config = _toml(**{"data": _DATA, "privacy": _PRIVACY} | tables)

    def run() -> Any:
        Path("RUN.toml").write_text(config, encoding="utf-8")
        return _commands("train RUN.toml --out run --ledger ledger.db", *more)()

    return Entry(("train run", *through), run, slow=slow)


def _tuned() -> Any:
    """Settings tuned on public rows, with noise that follows from the number of clients."""
    privacy = {name: item for name, item in _PRIVACY.items() if name != "noise_multiplier"}
    privacy |= {"epsilon": 4.0, "participation": "full"}
    tune = {"client_learning_rate": [0.1], "server_learning_rate": [1.0], "clip": [1.0], "cohort": 5, "rounds": 1}
    Path("RUN.toml").write_text(_toml(data=_DATA, privacy=privacy, model=_ROWS, tune=tune), encoding="utf-8")
    table = Path("public.csv").read_text(encoding="utf-8")
    Path("tuning.csv").write_text(table.replace("who,", "client,", 1), encoding="utf-8")
    return command("train", "RUN.toml", "--tune-on", "tuning.csv")


# --- Python's own entries, which get whatever floating point can hold


def people(path: str = "people.csv") -> Population:
    """A table as a program may hold it in memory: what is no number is NaN, and a row without its cells is empty."""
    rows: dict[str, list[list[str]]] = {}
    for line in Path(path).read_bytes().decode("utf-8", "replace").splitlines()[1:]:
        who, *cells = line.split(",")
        kept = rows.setdefault(who, [])
        kept += [cells[:6]] if len(cells) >= 6 and any(cells) else []
    columns = list(zip(*(row for own in rows.values() for row in own), strict=True)) or [()] * 6
    numbers = {
        name: np.array([_number(cell) for cell in columns[at]], np.float32) for at, name in enumerate(_CELLS[:2])
    }
    texts = {name: np.array(columns[at], TEXT) for at, name in enumerate(_CELLS) if at >= 2}
    sizes = [len(own) for own in rows.values()]
    return Population(numbers | texts, sizes=sizes, ids=list(rows), name=Path(path).stem)


_CELLS = ("age", "income", "region", "label", "version", "text")


def _number(cell: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(cell)))
    except ValueError:
        return float("nan")


_ASKED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "out": "run"}
_READ: dict[str, Any] = {"inputs": ["age", "income"], "ranges": {"age": (0, 100), "income": (0, 5000)}}


def _contrast() -> Any:
    sides = Arms({name: where("version", name) for name in ("old", "new")})
    clients = coded(coded(people(), "version", ("old", "new")), "region", ("north", "south"))
    return inspect.contrast(clients, sides, ledger=Ledger("ledger.db"), **_ASKED, **_READ, label="region")


def pictures(path: str = "people.csv") -> Population:
    """People as pictures: as bright as they are old, in a corner for each region."""
    held = coded(people(path), "region", ("north", "south"))
    age, region = np.clip(np.nan_to_num(held.columns["age"], nan=200), 0, 200), held.columns["region"]
    image = np.random.default_rng(0).integers(0, 40, (len(age), 12, 12)).astype(np.uint8)
    image[:, :6, :6] += np.where(region == 1, age, 0).astype(np.uint8)[:, None, None]
    image[:, 6:, 6:] += np.where(region == 0, age, 0).astype(np.uint8)[:, None, None]
    columns = {"image": image, "label": np.minimum(region, 1).astype(np.int32)}
    about: dict[str, Any] = {"ids": held.ids, "classes": {"label": ("north", "south")}}
    return Population(columns, sizes=held.sizes, name=Path(path).stem, **about)


def _pictures() -> Any:
    return inspect.sanity(pictures(), reference=pictures("public.csv"), ledger=Ledger("ledger.db"), **_ASKED)


def _bias_of_pictures() -> Any:
    return inspect.bias(pictures(), reference=pictures("public.csv"), steps=0, ledger=Ledger("ledger.db"), **_ASKED)


def _synthesis() -> Any:
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "key": keys.root(), "ledger": Ledger("ledger.db")}
    found = synthesise(pictures(), images((12, 12), frequencies=4), size=6, **asked)
    return found.guarantee, found.blurred(2, key=keys.root())


def _count_words() -> Any:
    words = own_words(people(), known=None)
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "key": keys.root(), "ledger": Ledger("ledger.db")}
    return count_words(words, ["cat", "dog"], **asked), discover_words(words, length=2, **asked)


def _moments() -> Any:
    features = rows([Number("age", 0, 100), Number("income", 0, 5000)], bins=2)
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "key": keys.root(), "ledger": Ledger("ledger.db")}
    found = measure(people(), features, Arms({"all": everything()}), label=None, **asked)
    return found.guarantee


def _aggregate() -> Any:
    """Two parties, of which one holds the odd client's rows among its examples."""

    def examples(path: str) -> tuple[np.ndarray, np.ndarray]:
        held = people(path).columns
        wide = np.stack([held["age"], held["income"]], axis=1)[:100]
        labels = np.array([("yes", "no").index(one) if one in ("yes", "no") else 7 for one in held["label"]], int)[:100]
        return wide, labels

    def drawn(count: int, key: Any) -> tuple[np.ndarray, np.ndarray]:
        dice = np.random.default_rng(list(key.secret))
        return dice.normal(40, 10, (count, 2)).astype(np.float32), np.arange(count) % 2

    about: dict[str, Any] = {"generator": GivenGenerator(draw=drawn, event=Gaussian(2.0)), "examples": 100}
    about |= {"classes": ("yes", "no"), "shape": (2,), "voter": PrivateLinear(noise_multiplier=1.0, steps=2)}
    both = [
        Party(name=name, data=functools.partial(examples, f"{name}.csv"), ledger=f"{name}.db", **about)
        for name in ("people", "public")
    ]
    asked: dict[str, Any] = {"samples": 10, "delta": 1e-5, "key": keys.root(), "processes": False, "margin": 0}
    found = aggregate(
        both, classes=("yes", "no"), shape=(2,), train=lambda x, y: lambda z: np.zeros(len(z), int), **asked
    )
    return {name: getattr(found, name) for name in ("guarantee", "inputs", "labels", "made", "parties", "failures")}


def _draw_and_discard() -> Any:
    """What the odd client itself sends, less the noised weights: to whom, how often, how much, at which price."""
    task = Task(
        model="pay",
        family="logistic",
        features=FeatureSpec((spec.NumberField("age", 0, 100), spec.CategoryField("region", ("north", "south")))),
        response=Response(spec.BooleanField("label")),
        unit="model",
        epsilon=1.0,
    )
    sent: list[Any] = []

    def service(request: httpx.Request) -> httpx.Response:
        sent.append((request.method, request.url.path, sorted(request.headers), len(request.content)))
        if request.url.path.endswith("task"):
            return httpx.Response(200, json=task.to_dict())
        headers = {"Blindsight-Ticket": "1", "Blindsight-Version": task.version}
        is_drawn = request.url.path.endswith("draw")
        return (
            httpx.Response(200, content=bytes(4 * task.weights), headers=headers) if is_drawn else httpx.Response(202)
        )

    own = [line.split(",") for line in Path("people.csv").read_bytes().decode("utf-8", "replace").splitlines()]
    mine = [dict(zip(("who", *_CELLS), cells, strict=False)) for cells in own if cells[0] == ODD]
    read = [
        {**row, "age": _number(row["age"]), "label": {"yes": True, "no": False}.get(row.get("label", ""))}
        for row in mine
    ]
    budget = Budget("budget.sqlite", epsilon=5.0)
    with Client("http://service", "pay", "token", budget=budget, transport=httpx.MockTransport(service)) as client:
        weights = client.train({name: [row.get(name) for row in read] for name in ("age", "region", "label")})
    return {"sent": sent, "shape": weights.shape, "spent": budget.spent}


# --- the table


ENTRIES: dict[str, Entry] = {
    "unknowns": _inspect(
        "unknowns", _SIDES, *_LEDGER, through=("ledger show", "ledger export", "ledger verify", "ledger budget set")
    ),
    "sanity": _inspect("sanity", f"{_NUMBERS} {_PUBLIC}"),
    "mistakes": _inspect("mistakes", f"{_NUMBERS} {_PUBLIC} --minimum 1"),
    "slices": _inspect("slices", f"{_NUMBERS} {_PUBLIC} {_REGION}"),
    "labelling": _inspect(
        "labelling",
        f"{_NUMBERS} {_PUBLIC} --samples 4",
        "label run --export-label-studio tasks.json",
        "train student run --labels own --model logistic --steps 1 --out student",
        through=("label", "train student"),
    ),
    "bias": _inspect("bias", f"--input age --range age=0:100 {_PUBLIC} {_REGION}"),
    "asked twice": _inspect(  # who had a value that did not fit has it in the second time
        "sanity",
        "--input age --type age=whole:0:100",
        "inspect sanity people.csv --client who --input age --type age=number:0:100 --out again --ledger ledger.db",
    ),
    "train rows": _train((), model=_ROWS),
    "train words": _train((), model=_WORDS, text=_TEXT),
    "tune": Entry((), _tuned),
    "audit": _train(("audit",), "audit run --references 10", model=_ROWS, audit={"one_run": 4, "directions": 4}),
    "contrast in Python": Entry(("contrast",), _contrast),
    "words in Python": Entry(("count_words", "discover_words"), _count_words),
    "moments in Python": Entry(("measure",), _moments),
    "parties in Python": Entry(("aggregate",), _aggregate),
    "draw and discard": Entry(("serve",), _draw_and_discard),
    # variants of the same, with other questions, other participation and other data
    "sanity as JSON": _inspect("sanity", f"{_NUMBERS} --type age=whole --json", slow=True),
    "sanity by its ranges": _inspect("sanity", _NUMBERS, slow=True),
    "slices by accuracy": _inspect("slices", f"{_NUMBERS} {_PUBLIC}", slow=True),
    "slices between thresholds": _inspect("slices", f"{_NUMBERS} {_PUBLIC} --low 0.4 --high 0.6", slow=True),
    "bias of text": _inspect("bias", f"--input text {_PUBLIC} --discover", slow=True),
    "unknowns of two tables": _inspect("unknowns", "--before public.csv --vocabulary words.txt --discover", slow=True),
    "train on everyone": _train((), model=_ROWS, privacy=_PRIVACY | {"participation": "full"}, slow=True),
    "train with a limit": _train(
        (), model=_ROWS, privacy=_PRIVACY | {"participation": "unproven", "max_participations": 1}, slow=True
    ),
    "train with a moving clip": _train(
        (), model=_ROWS, privacy=_PRIVACY | {"adaptive_clip": 0.5, "noise_multiplier": 0.5}, slow=True
    ),
    "train with held-out clients": _train((), model=_ROWS, data=_DATA | {"held_out": 0.3}, slow=True),
    "train letters": _train((), model=_WORDS | {"kind": "char_lm", "layers": 1}, text=_TEXT, slow=True),
    "train private words": _train(
        (), model=_WORDS, text=_TEXT | {"vocabulary": "private", "candidates": "words.txt"}, slow=True
    ),
    "ask about a trained model": _train(
        (),
        "inspect mistakes people.csv --client who --model run --out asked --minimum 1 --ledger ledger.db "
        "--input age --input income",
        model=_ROWS,
        slow=True,
    ),
    "pictures in Python": Entry(("sanity",), _pictures, slow=True),
    "bias of pictures": Entry(("bias",), _bias_of_pictures, slow=True),
    "synthesis": Entry(("synthesise",), _synthesis, slow=True),
}
