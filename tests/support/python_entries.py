"""Python's own entries to a computation about private clients, which get whatever floating point can hold."""

import functools
from pathlib import Path
from typing import Any

import flat
import httpx2 as httpx
import numpy as np
from neighbours import ODD
from stored import CELLS, cells_of, frame

from blindsight import asking, data, inspect, keys
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.draw_and_discard import Budget, Task
from blindsight.algorithms.moments import measure
from blindsight.algorithms.parties import GivenGenerator, PrivateLinear, VotingParty
from blindsight.algorithms.synthesis import synthesise
from blindsight.algorithms.synthetic_votes import aggregate
from blindsight.algorithms.vocabulary import count_words, discover_words, own_words, release_words
from blindsight.codings import specs as spec
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Number
from blindsight.codings.specs import FeatureSpec, Response
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.selection import Arms, coded, everything, where
from blindsight.service import Client
from blindsight.synthesizing import synthesize

__all__ = [
    "asked",
    "asked_of_a_frame",
    "contrast",
    "draw_and_discard",
    "moments",
    "parties",
    "people",
    "pictures_checked",
    "pictures_compared",
]
__all__ += ["synthesis", "synthesized", "unknowns", "words"]


def people(path: str = "people.csv") -> Population:
    """A table as a program may hold it in memory: what is no number is NaN, and a row without its cells is empty."""
    rows: dict[str, list[list[str]]] = {}
    for who, cells in cells_of(path):
        kept = rows.setdefault(who, [])
        kept += [cells[:6]] if len(cells) >= 6 and any(cells) else []
    columns = list(zip(*(row for own in rows.values() for row in own), strict=True)) or [()] * 6
    numbers = {name: np.array([_number(cell) for cell in columns[at]], np.float32) for at, name in enumerate(CELLS[:2])}
    texts = {name: np.array(columns[at], TEXT) for at, name in enumerate(CELLS) if at >= 2}
    sizes = [len(own) for own in rows.values()]
    return Population(numbers | texts, sizes=sizes, ids=list(rows), name=Path(path).stem)


def _number(cell: str) -> float:
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(float(cell)))
    except ValueError:
        return float("nan")


_ASKED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "out": "run"}
_READ: dict[str, Any] = {"inputs": ["age", "income"], "ranges": {"age": (0, 100), "income": (0, 5000)}}


def contrast() -> Any:
    sides = Arms({name: where("version", name) for name in ("old", "new")})
    clients = coded(coded(people(), "version", ("old", "new")), "region", ("north", "south"))
    return flat.ask(inspect.contrast, clients, sides, ledger=Ledger("ledger.db"), **_ASKED, **_READ, label="region")


def asked() -> Any:
    """Statistics of data in memory, which hold whatever floating point can."""
    clients = coded(coded(people(), "version", ("old", "new")), "region", ("north", "south"))
    items = [asking.Mean("age", by="region"), asking.Cross("age", "version"), asking.Top("text")]
    schema = Schema({name: Field("number", *ends) for name, ends in _READ["ranges"].items()})
    session = inspect.Session(out="run", ledger=Ledger("ledger.db"), even_if_blind=True)
    return asking.ask(clients, [*items, "income"], epsilon=4.0, schema=schema, session=session)


def asked_of_a_frame() -> Any:
    """Statistics of a table in memory, in which one value decides what type a column has."""
    kinds = {"age": "number:0:100", "region": "category:north,south", "text": "text"}
    clients = data.table(frame(), client="who", types=kinds, gaps=list(kinds), name="people")
    session = inspect.Session(out="run", ledger=Ledger("ledger.db"), even_if_blind=True)
    schema = Schema({}).updated([f"{name}={kind}" for name, kind in kinds.items()])
    items = [asking.Mean("age", by="region"), asking.Missing("text"), "age"]
    return asking.ask(clients, items, epsilon=4.0, schema=schema, session=session)


def synthesized() -> Any:
    """Synthetic rows of data in memory."""
    clients = coded(coded(people(), "version", ("old", "new")), "region", ("north", "south"))
    schema = Schema(inputs=("age", "income", "version"), label="region")
    session = inspect.Session(out="run", ledger=Ledger("ledger.db"))
    return synthesize(clients, epsilon=4.0, schema=schema, ranges=_READ["ranges"], rows=20, session=session)


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


def pictures_checked() -> Any:
    return flat.ask(inspect.sanity, pictures(), reference=pictures("public.csv"), ledger=Ledger("ledger.db"), **_ASKED)


def pictures_compared() -> Any:
    return flat.ask_bias(pictures(), reference=pictures("public.csv"), steps=0, ledger=Ledger("ledger.db"), **_ASKED)


def synthesis() -> Any:
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "key": keys.root(), "ledger": Ledger("ledger.db")}
    found = synthesise(pictures(), images((12, 12), frequencies=4), size=6, **asked)
    return found.guarantee, found.blurred(2, key=keys.root())


def words() -> Any:
    own = own_words(people(), known=None)
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "key": keys.root(), "ledger": Ledger("ledger.db")}
    counted = release_words(people(), candidates=["cat"], **asked)
    return counted, count_words(own, ["cat", "dog"], **asked), discover_words(own, length=2, **asked)


def unknowns() -> Any:
    """Two collections of the same clients, under one name: either may hold nothing."""
    held = people()
    before, after = (held.keep(held.columns["version"] == version) for version in ("old", "new"))
    about: dict[str, Any] = {"vocabulary": Vocabulary.load("words.txt"), "population": "people"}
    return flat.ask_unknowns(before, after, ledger=Ledger("ledger.db"), **about, **_ASKED)


def moments() -> Any:
    features = rows([Number("age", 0, 100), Number("income", 0, 5000)], bins=2)
    asked: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "key": keys.root(), "ledger": Ledger("ledger.db")}
    found = measure(people(), features, Arms({"all": everything()}), label=None, **asked)
    return found.guarantee


def parties() -> Any:
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
        VotingParty(name=name, data=functools.partial(examples, f"{name}.csv"), ledger=f"{name}.db", **about)
        for name in ("people", "public")
    ]
    asked: dict[str, Any] = {"samples": 10, "delta": 1e-5, "key": keys.root(), "processes": False, "margin": 0}
    found = aggregate(
        both, classes=("yes", "no"), shape=(2,), train=lambda x, y: lambda z: np.zeros(len(z), int), **asked
    )
    return {
        name: getattr(found, name) for name in ("guarantee", "inputs", "labels", "generated", "parties", "failures")
    }


def draw_and_discard() -> Any:
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

    mine = [dict(zip(CELLS, cells, strict=False)) for who, cells in cells_of("people.csv") if who == ODD]
    read = [
        {**row, "age": _number(row["age"]), "label": {"yes": True, "no": False}.get(row.get("label", ""))}
        for row in mine
    ]
    budget = Budget("budget.sqlite", epsilon=5.0)
    with Client(
        "http://service", "pay", "token", budget=budget, http={"transport": httpx.MockTransport(service)}
    ) as client:
        weights = client.train({name: [row.get(name) for row in read] for name in ("age", "region", "label")})
    return {"sent": sent, "shape": weights.shape, "spent": budget.spent}
