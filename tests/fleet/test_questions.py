"""Questions of a fleet: bit for bit the releases of a simulation, whatever the task and the sizes of the sites."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy
from fleets import embedded, fleet_in_process, pooled

import blindsight as bs
from blindsight import inspect, keys
from blindsight.accounting import assumptions
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import latent_classes, moments
from blindsight.asking import Cross, Histogram, Mean, Top
from blindsight.backends import Simulation
from blindsight.data.csv_tables import csv
from blindsight.data.population import Population
from blindsight.data.schema import Schema, read_field
from blindsight.data.sources import source
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.fleet.clients import Fleet
from blindsight.fleet.noise_shares import SiteNoise
from blindsight.inspect import Session
from blindsight.inspection.bias import comparison
from blindsight.inspection.bias.comparison import confirming_half, learning_half
from blindsight.inspection.bias.measures import coins
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.jobs.models import public_model
from blindsight.models.classifiers import Logistic
from blindsight.models.primary import primary
from blindsight.synthesizing import synthesize

ROOT = keys.reproducible(3)
SIZES = {"a": 5, "b": 3, "c": 6}
TEN = {f"site-{number}": 2 + number % 3 for number in range(10)}
RANGES = Schema({"age": read_field("number:0:100"), "hours": read_field("number:0:80")})
KNOWN = Vocabulary(("the", "a", "and", "i", "to", "is", "it", "of", ".", ","))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise from one key on both sides, otherwise bound to the data; and generators that are not fitted for long."""
    monkeypatch.setattr(Inquiry, "root", property(lambda self: ROOT))
    monkeypatch.setattr(latent_classes, "_FITS", 1)
    monkeypatch.setattr(moments, "fit", lambda *a, fit=moments.fit, **k: fit(*a, **k | {"steps": 0}))


# --- the data of sites, and of all of them together


def messages(folder: Path, sizes: dict[str, int]) -> tuple[dict[str, tuple[int, str]], Population, Population]:
    """Tables of texts before and after an update, whose columns have other names at every site; and all of them."""
    data, sides = dict[str, tuple[int, str]](), ([], [])
    folder.mkdir(exist_ok=True)
    for seed, (site, clients) in enumerate(sorted(sizes.items()), 1):
        talk = source("forum", {"clients": clients, "seed": seed, "examples": (6, 7)})
        rows = [f"phone,note-{site},version"]
        for client in range(clients):
            for place, text in enumerate(talk[client]["text"].tolist()):
                words = text if place % 2 else text.replace(" ", "", 1)
                rows.append(f'{site}-{client},"{words.replace(chr(34), "")}",{"old" if place % 2 else "new"}')
        table = folder / f"{site}.csv"
        table.write_text("\n".join(rows) + "\n", encoding="utf-8")
        options = 'options = { client = "phone" }\n[columns]\n'
        data[site] = clients, f'population = "{table}"\n{options}text = "note-{site}"'
        whole = csv(table, client="phone")
        for side, version in zip(sides, ("old", "new"), strict=True):
            kept = whole.keep(np.asarray(whole.columns["version"] == version))
            side.append(kept.replace({"text": kept.columns[f"note-{site}"]}))
    before, after = (pooled_by_id(side) for side in sides)
    return data, before, after


def pooled_by_id(parts: Sequence[Population]) -> Population:
    whole = pooled(parts)
    return Population(
        whole.columns, sizes=whole.sizes, ids=np.concatenate([one.ids for one in parts]), name="hospitals"
    )


# --- the same question of both


def as_simulated(monkeypatch: pytest.MonkeyPatch, noise: SiteNoise | None) -> None:
    """Simulations add the shares of all sites, each from its own key, as the sites do."""

    def where(self, one, population):
        if noise is None:
            return Simulation(population), one.mechanisms
        shares = noise.mechanisms([one.mechanisms[name].noise_multiplier for name in one.mechanisms])
        return Simulation(population), dict(zip(one.mechanisms, shares, strict=True))

    monkeypatch.setattr(Inquiry, "_where", where)


def released(folder: Path) -> dict[str, np.ndarray]:
    """Every number that a run released, by round and part."""
    found = dict[str, np.ndarray]()
    for path in sorted(folder.glob("rounds/*/*.safetensors")):
        for name, values in safetensors.numpy.load_file(path).items():
            found[f"{path.parent.name} {name}"] = values
    return found


def asked_of_both(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: dict[str, tuple[int, str]],
    question: Callable[[Any, Session], Any],
    clients: Callable[[Fleet], Any],
    together: Any,
    *,
    noise: str = "sites",
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The releases of a fleet, and those of a simulation of all its clients with the same noise."""

    def session(name: str) -> Session:
        return Session(
            out=folder / name,
            ledger=Ledger(folder / f"{name}.db"),
            key=ROOT,
            even_if_blind=True,
            population="hospitals",
        )

    with fleet_in_process(folder / "sites", data, noise=noise) as fleet:
        question(clients(fleet), session("fleet"))
        terms = fleet.terms()
    at_home = [f"writer-{number}" for _, (clients, _) in sorted(data.items()) for number in range(clients)]
    with monkeypatch.context() as patch:
        as_simulated(patch, terms)
        # which half a client is in follows from its id, and sites give ids of their own
        patch.setattr(comparison, "coins", lambda ids, seed: coins(np.array([at_home[int(one)] for one in ids]), seed))
        question(together, session("simulation"))
    return released(folder / "fleet"), released(folder / "simulation")


def check_equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert np.array_equal(values, theirs[name]), name
        assert np.abs(values).max() > 0


COST: Any = {"epsilon": 20.0, "delta": 1e-5}
ITEMS = [Mean("age"), Histogram("hours", bins=5), Top("sex", k=2), Cross("sex", "label")]
WRITERS = {"examples": (5, 6)}


def by_pixels() -> Any:
    """A model of ten classes that can travel; nobody trained it."""
    return primary(Logistic((28, 28), 10, key=jax.random.key(5)), name="untrained", shape=(28, 28))


def writers(clients: int, seed: int) -> Population:
    return source("handwriting", {"clients": clients, "seed": seed, **WRITERS})


QUESTIONS: dict[str, tuple[str, dict[str, Any], Callable[[Any, Session], Any]]] = {
    "ask": ("tabular", {}, lambda clients, session: bs.ask(clients, ITEMS, **COST, schema=RANGES, session=session)),
    "synthesize": (
        "tabular",
        {},
        lambda clients, session: synthesize(
            clients,
            **COST,
            schema=Schema(RANGES.fields, inputs=("age", "hours", "sex")),
            ranges=RANGES.ranges,
            rows=9,
            session=session,
        ),
    ),
    "sanity": (
        "tabular",
        {},
        lambda clients, session: inspect.sanity(
            clients, **COST, schema=Schema(RANGES.fields, inputs=("age", "sex")), session=session
        ),
    ),
    "slices": (
        "handwriting",
        WRITERS,
        lambda clients, session: inspect.slices(clients, **COST, model=by_pixels(), session=session),
    ),
    "mistakes": (
        "handwriting",
        WRITERS,
        lambda clients, session: inspect.mistakes(
            clients, **COST, model=by_pixels(), minimum=1, reference=writers(6, 77), session=session
        ),
    ),
    "labelling": (
        "handwriting",
        WRITERS,
        lambda clients, session: inspect.labelling(
            clients, epsilon=20.0, delta=1e-5, model=by_pixels(), samples=10, session=session
        ),
    ),
    "bias": (
        "handwriting",
        WRITERS,
        lambda clients, session: inspect.bias(clients, **COST, reference=writers(60, 77), steps=0, session=session),
    ),
}
QUICK = ("ask", "slices")


@pytest.mark.parametrize(
    "task", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in QUESTIONS]
)
def test_a_fleet_releases_what_a_simulation_of_it_releases_bit_for_bit(tmp_path, monkeypatch, task):
    population, options, question = QUESTIONS[task]
    data, together = embedded(population, SIZES, **options)
    like = source(population, {"clients": 2, "seed": 9, **options})
    check_equal(*asked_of_both(tmp_path, monkeypatch, data, question, lambda fleet: fleet.clients(like), together))


@pytest.mark.slow
@pytest.mark.parametrize("task", QUESTIONS)
def test_and_so_do_ten_sites(tmp_path, monkeypatch, task):
    population, options, question = QUESTIONS[task]
    data, together = embedded(population, TEN, **options)
    like = source(population, {"clients": 2, "seed": 9, **options})
    check_equal(*asked_of_both(tmp_path, monkeypatch, data, question, lambda fleet: fleet.clients(like), together))


@pytest.mark.slow
def test_a_fault_over_five_sites_is_named_with_the_interval_of_the_pooled_simulation(tmp_path, monkeypatch):
    data, together = embedded("handwriting", {"a": 120, "b": 12, "c": 60, "d": 90, "e": 40}, fault="invert:0.5")
    public = source("handwriting", {"clients": 120, "seed": 77})
    model, reference = public_model(learning_half(public), ["image"], "label"), confirming_half(public)
    reports = list[Report]()

    def question(clients: Any, session: Session) -> None:
        levels = (0.5, 0.9)
        reports.append(
            inspect.slices(
                clients,
                model=model,
                reference=reference,
                thresholds=levels,
                epsilon=8.0,
                delta=1e-6,
                session=session,
            )
        )

    check_equal(*asked_of_both(tmp_path, monkeypatch, data, question, lambda fleet: fleet.clients(public), together))
    ours, theirs = reports
    assert ours.diagnoses[0].fault == "invert"
    assert ours.diagnoses == theirs.diagnoses
    assert ours.findings == theirs.findings


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(TEN, marks=pytest.mark.slow)])
def test_words_before_and_after_a_change_are_told_apart_at_the_sites(tmp_path, monkeypatch, sizes):
    data, before, after = messages(tmp_path / "tables", sizes)
    schema = Schema({"text": read_field("text"), "side": read_field("category:before,after")})
    reading = {"text": "text", "side": "version", "values": ["old", "new"]}

    def question(sides: Any, session: Session) -> Any:
        return inspect.unknowns(*sides, vocabulary=KNOWN, **COST, session=session)

    def there(fleet: Fleet) -> Any:
        clients = fleet.clients(schema=schema, reading=reading)
        return clients, clients

    check_equal(*asked_of_both(tmp_path, monkeypatch, data, question, there, (before, after)))


def test_with_two_sites_the_coordinator_adds_the_noise_and_the_guarantee_says_so(tmp_path, monkeypatch):
    data, together = embedded("tabular", {"a": 5, "b": 3})
    like = source("tabular", {"clients": 2, "seed": 9})
    question = QUESTIONS["ask"][2]
    sums = asked_of_both(
        tmp_path, monkeypatch, data, question, lambda fleet: fleet.clients(like), together, noise="coordinator"
    )
    check_equal(*sums)
    there, here = (json.loads((tmp_path / name / "guarantee.json").read_text()) for name in ("fleet", "simulation"))
    more = {*there["assumptions"]} - {*here["assumptions"]}
    assert more == {assumptions.TRUSTED_WITH_PARTS, assumptions.SITES_APART}


@pytest.mark.parametrize("count", [1, 2])
def test_noise_at_the_sites_needs_three_of_them(tmp_path, count):
    data, _ = embedded("tabular", dict.fromkeys("ab"[:count], 2))
    with fleet_in_process(tmp_path, data) as fleet, pytest.raises(InvalidInput, match="needs 3 sites"):
        fleet.terms()


def test_what_a_fleet_cannot_do_is_refused_before_anything_is_sent(tmp_path):
    data, _ = embedded("tabular", SIZES)
    with fleet_in_process(tmp_path, data) as fleet:
        clients = fleet.clients(source("tabular", {"clients": 2}))
        session = Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
        schema = Schema(RANGES.fields, inputs=("age",))
        with pytest.raises(InvalidInput, match="eligible"):
            inspect.mistakes(clients, **COST, model=len, schema=schema, forming="eligible", session=session)
        assert not (tmp_path / "run").exists()
