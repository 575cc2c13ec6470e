"""Every way into a computation about private clients, in its smallest form: what the attacks in tests/attacks run.

An entry is run in a folder with `people.csv`, which is private, and `public.csv`, `words.txt` and `schema.json`, which
are not. It returns what a caller gets; what it prints and writes is seen to by `leaving`.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import python_entries
import stored
from fleet_entries import asked_of_a_fleet
from leaving import command

from blindsight.inspect import Training, WordTraining
from blindsight.jobs import hosts as jobs_hosts
from blindsight.jobs import inspect as jobs_inspect
from blindsight.jobs import unknowns as jobs_unknowns

__all__ = ["BEHIND", "ENTRIES", "WITHOUT_CLIENTS", "Entry"]

WITHOUT_CLIENTS = {
    "plan": "arithmetic, and simulations on public data",
    "tables": "arithmetic",
    "init": "writes files that come with Blindsight",
    "train schema": "describes settings",
    "demo": "its clients are made up",
    "data list": "names of data",
    "data get": "data that everybody has",
    "data describe": "for the data's owner: it says that it reads data without noise",
    "data check": "for the data's owner: it names rows, and says so",
    "site check": "for the site's own officer: it names rows, and says so",
    "fleet init": "makes keys",
    "fleet add": "makes keys",
    "fleet rotate": "makes keys",
    "fleet revoke": "changes who is let in",
    "fleet up": "passes on what sites send, which is attacked where they send it",
    "issuer create": "makes keys",
    "issuer rotate": "makes keys",
    "issuer revoke": "removes keys",
    "issuer keys": "lists keys",
    "issuer sign": "signs what devices have blinded, before they have drawn anything",
    "site schema": "prints the schema of a file",
    "studio": "shows the files of runs and ledgers, which are compared as they are written",
    "runs list": "shows what run.json says, which is compared as it is written",
    "runs export": "copies what a guarantee covers of files that are compared as they are written",
}
"""Commands that are not attacked, and why."""

BEHIND = {
    "run_training": "train run",
    "run_on_hosts": "train run",
    "train_on_fleet": "train run",
    "train": "train run",
    "vocabulary_of": "train run",
    "join_words": "ask",
    "publish": "measure",
    "release": "measure",
}
"""Functions that pay into a ledger, and what is attacked that calls them."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One way in: the commands and functions that it goes through, and how it is run."""

    through: tuple[str, ...]
    run: Callable[[], Any]
    slow: bool = False
    store: Callable[[], None] = lambda: None
    """Keeps the clients in another format too, before anything is run."""
    by_example: bool = False
    """Whether examples are protected one by one: then every row has its place, in both neighbours."""


def _commands(*lines: str) -> Callable[[], Any]:
    return lambda: [command(*line.split()) for line in lines]


def _inspect(task: str, options: str, *more: str, **about: Any) -> Entry:
    asked = f"inspect {task} people.csv --client who {options} --out run --ledger ledger.db --even-if-blind"
    return Entry((f"inspect {task}", *about.pop("through", ())), _commands(asked, *more), **about)


_RANGES = "--type age=0:100 --type income=0:5000"
_NUMBERS = f"--input age --input income {_RANGES}"
_PUBLIC = "--reference public.csv"
_REGION = "--by region --value north --value south"
_COMPARED = f"--input age --range age=0:100 {_PUBLIC} {_REGION}"
_SIDES = "--side version --value old --value new --vocabulary words.txt"
_ASKED = (
    f"--client who --cross age,region {_PUBLIC} --type region=category:north,south --out run --ledger ledger.db "
    "--even-if-blind"
)
_REHEARSED = {
    "mistakes": f"{_NUMBERS} {_PUBLIC}",
    "slices": f"{_NUMBERS} {_PUBLIC} {_REGION}",
    "bias": _COMPARED,
    "unknowns": _SIDES,
    "labelling": f"{_NUMBERS} {_PUBLIC} --samples 4 --json",
}
_CHECKED = f"inspect sanity people.csv --client who {_NUMBERS} {_PUBLIC} --ledger ledger.db"
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
_EXAMPLES = _PRIVACY | {"unit": "example"}
_ROWS = {"kind": "logistic", "inputs": ["age", "income"], "classes": ["yes", "no"]}
_WORDS = {"kind": "word_lm", "embedding": 3, "cells": 3}
_KINDS = {"region": "category:north,south", "label": "category:no,yes"}
_PICTURES = {"image": "image:12x12", "label": "category:north,south"}
_GAN = {"channels": [2, 2, 2], "latents": 2, "fakes": 2, "generator_batch_size": 2, "samples": 4}
_TEXT = {"vocabulary": "words.txt", "sentences": 3, "length": 6}


def _train(through: tuple[str, ...], *more: str, slow: bool = False, **tables: Any) -> Entry:
    """`blindsight train` with these tables of RUN.toml, and what is asked of its run afterwards."""
    config = _toml(**{"data": _DATA, "privacy": _PRIVACY} | tables)

    def run() -> Any:
        Path("RUN.toml").write_text(config, encoding="utf-8")
        return _commands("train RUN.toml --out run --ledger ledger.db", *more)()

    return Entry(("train run", *through), run, slow=slow)


def _stored(format: str, task: str, options: str, **about: Any) -> Entry:
    """A question about clients who are kept in another format."""
    store, file = stored.FORMATS[format]
    asked = f"inspect {task} {file} --client who {options} --out run --ledger ledger.db --even-if-blind"
    return Entry((f"inspect {task}",), _commands(asked), store=store, **about)


def _train_stored(format: str, **tables: Any) -> Entry:
    """Training on clients who are kept in another format, which names no column of clients."""
    store, file = stored.FORMATS[format]
    data = tables.pop("data", {}) | {"population": file, "held_out": 0}
    return dataclasses.replace(_train((), data=data, slow=True, **tables), store=store)


def _small(entry: Entry) -> Entry:
    """The entry with models that are trained for an inspection in their smallest form."""
    words = {"rounds": 1, "cohort": 5, "embedding": 2, "cells": 2, "letter_embedding": 2, "letter_cells": 2}

    def run() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for job in (jobs_inspect, jobs_unknowns):
                patch.setattr(job, "WordTraining", functools.partial(WordTraining, **words, samples=20))
            small = functools.partial(Training, rounds=1, cohort=9, batch_size=2, generator_steps=1)
            patch.setattr(jobs_inspect, "Training", small)
            return entry.run()

    return dataclasses.replace(entry, run=run)


def _refused(*lines: str) -> Any:
    """What the last command says when it is refused, as it must be; those before it are not."""
    *before, last = [command(*line.split()) for line in lines]
    assert last["exit code"] in (2, 3), last
    return [*before, {"refused": last}]


def _tuned() -> Any:
    """Settings tuned on public rows, with noise that follows from the number of clients."""
    privacy = {name: item for name, item in _PRIVACY.items() if name != "noise_multiplier"}
    privacy |= {"epsilon": 4.0, "participation": "full"}
    tune = {"client_learning_rate": [0.1], "server_learning_rate": [1.0], "clip": [1.0], "cohort": 5, "rounds": 1}
    Path("RUN.toml").write_text(_toml(data=_DATA, privacy=privacy, model=_ROWS, tune=tune), encoding="utf-8")
    table = Path("public.csv").read_text(encoding="utf-8")
    Path("tuning.csv").write_text(table.replace("who,", "client,", 1), encoding="utf-8")
    return command("train", "RUN.toml", "--tune-on", "tuning.csv")


def _trained_on_hosts() -> Any:
    """A model trained by the leader of a run over several hosts, of which this is the only one."""
    Path("RUN.toml").write_text(_toml(data=_DATA, privacy=_PRIVACY, model=_ROWS), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs_hosts, "connect", lambda place: _OneHost())
        return command("train", "RUN.toml", "--hosts", "0/2@127.0.0.1:1", "--out", "run", "--ledger", "ledger.db")


class _OneHost:
    """Hosts that add up nothing but their own."""

    index, count, is_writer = 0, 1, True
    agree = tell = lambda self, *said: said[0]
    sum = staticmethod(lambda tree: tree)


def _trained_on_a_fleet() -> Any:
    """A model of the sites' clients; what describes their fields and evaluates it is public."""
    data = {"population": "public.csv", "options": {"client": "who"}, "held_out": 0}
    privacy = {name: item for name, item in _PRIVACY.items() if name != "noise_multiplier"} | {"epsilon": 4.0}
    Path("RUN.toml").write_text(_toml(data=data, privacy=privacy, model=_ROWS), encoding="utf-8")
    return asked_of_a_fleet("train RUN.toml --fleet hospitals --out run --ledger ledger.db")


# --- the table


ENTRIES: dict[str, Entry] = {
    "unknowns": _inspect(
        "unknowns", _SIDES, *_LEDGER, through=("ledger show", "ledger export", "ledger verify", "ledger budget set")
    ),
    "sanity": _inspect("sanity", f"{_NUMBERS} {_PUBLIC}"),
    "sanity of all kinds of fields": _inspect(
        "sanity", f"--input age --input region --input text {_PUBLIC}", slow=True
    ),
    "mistakes": _inspect("mistakes", f"{_NUMBERS} {_PUBLIC} --minimum 1"),
    "slices": _inspect("slices", f"{_NUMBERS} {_PUBLIC} {_REGION}"),
    "labelling": _inspect(
        "labelling",
        f"{_NUMBERS} {_PUBLIC} --samples 4",
        "label run --export-label-studio tasks.json",
        "train student run --labels own --model logistic --steps 1 --out student",
        through=("label", "train student"),
    ),
    "bias": _inspect("bias", _COMPARED),
    "ask": Entry(
        ("ask",),
        _commands(
            f"ask people.csv age region --by version --type version=category:old,new {_ASKED}",
            f"ask people.csv text --client who {_PUBLIC} --vocabulary words.txt --out words --ledger ledger.db "
            "--even-if-blind",
        ),
    ),
    "synthesize": Entry(
        ("synthesize",),
        _commands(
            f"synthesize people.csv age income version --label region {_PUBLIC} --client who --range age=0:100 "
            "--range income=0:5000 --type version=category:old,new --type region=category:north,south --rows 20 "
            "--out run --ledger ledger.db"
        ),
    ),
    "asked twice": _inspect(  # who had a value that did not fit has it in the second time
        "sanity",
        "--input age --type age=whole:0:100",
        "inspect sanity people.csv --client who --input age --type age=number:0:100 --out again --ledger ledger.db "
        "--even-if-blind",
        slow=True,
    ),
    "rehearsed": _inspect("sanity", f"{_NUMBERS} {_PUBLIC} --dry-run"),
    "refused": Entry(("inspect sanity",), functools.partial(_refused, f"{_CHECKED} --epsilon 0.01 --out run")),
    "train rows": _train(("export",), "export run model.onnx", model=_ROWS),
    "train words": _train(("export",), "export run model.onnx --json", model=_WORDS, text=_TEXT),
    "tune": Entry((), _tuned),
    "audit": _train(("audit",), "audit run --references 10", model=_ROWS, audit={"one_run": 4, "directions": 4}),
    "contrast in Python": Entry(("contrast",), python_entries.contrast, slow=True),
    "unknowns in Python": Entry(("unknowns",), python_entries.unknowns),
    "words in Python": Entry(("count_words", "discover_words", "release_words"), python_entries.words),
    "moments in Python": Entry(("measure",), python_entries.moments),
    "parties in Python": Entry(("aggregate",), python_entries.parties),
    "draw and discard": Entry(("serve",), python_entries.draw_and_discard),
    "train examples": dataclasses.replace(_train((), model=_ROWS, privacy=_EXAMPLES), by_example=True),
    "ask in Python": Entry(("ask",), python_entries.asked, slow=True),
    "rows in Python": Entry(("synthesize",), python_entries.synthesized, slow=True),
    "a site of a fleet": Entry(
        ("ask", "site run", "site review", "site log", "fleet status"),
        functools.partial(
            asked_of_a_fleet,
            "ask age --mean --missing --by region --type age=number:0:100 --type region=category:north,south "
            "--fleet hospitals --asker anna --out run --ledger ledger.db --even-if-blind",
        ),
    ),
    "clients in npz": _stored("npz", "bias", _COMPARED),
    "clients in parquet": _stored("parquet", "bias", _COMPARED),
    "clients in parts": _stored("parts", "bias", _COMPARED),
    "clients in another CSV": _stored("semicolons", "bias", _COMPARED),
    "clients in JSON Lines": _stored("JSON Lines", "bias", _COMPARED),
    "a frame in Python": Entry(("ask",), python_entries.asked_of_a_frame),
    "clients in LEAF": _stored("LEAF", "bias", _COMPARED),
    "clients in TFF's SQLite": _stored("TensorFlow Federated", "bias", _COMPARED),
    "clients in FedJAX's SQLite": _stored("FedJAX", "bias", _COMPARED),
    # variants of the same, with other questions, other participation and other data
    "all kinds of fields in parquet": _stored(
        "parquet", "sanity", f"--input age --input region --input text {_PUBLIC}", slow=True
    ),
    "clients in a Hugging Face data set": _stored("Hugging Face", "bias", _COMPARED, slow=True),
    "sanity of a Hugging Face data set": _stored(
        "Hugging Face", "sanity", "--input age --input region --range age=0:100 --json", slow=True
    ),
    "train on a Hugging Face data set": _train_stored("Hugging Face", model=_ROWS, data={"options": {"client": "who"}}),
    "slices with gaps": _inspect("slices", f"--input age --input region {_PUBLIC} {_REGION}", slow=True),
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
        "--even-if-blind --input age --input income",
        model=_ROWS,
        slow=True,
    ),
    "train by kinds": _train(
        (),
        model={"kind": "logistic", "inputs": ["age", "income", "region"]},
        data=_DATA | {"types": _KINDS},
        slow=True,
    ),
    "train by a schema": _train(
        (),
        model={"kind": "logistic", "inputs": ["age", "income", "region"], "classes": ["no", "yes"]},
        data=_DATA | {"schema": "schema.json", "held_out": 0.1},
        slow=True,
    ),
    "train words with held-out clients": _train(
        (), model=_WORDS, text=_TEXT, data=_DATA | {"held_out": 0.1}, slow=True
    ),
    "train examples by kinds": dataclasses.replace(
        _train(
            (),
            model={"kind": "logistic", "inputs": ["age", "income", "region"]},
            data=_DATA | {"types": _KINDS},
            privacy=_EXAMPLES,
            slow=True,
        ),
        by_example=True,
    ),
    "train on npz": _train_stored("npz", model=_ROWS, data={"options": {"client": "who"}}),
    "train on parquet": _train_stored("parquet", model=_ROWS, data={"options": {"client": "who"}}),
    "train on another CSV": _train_stored("semicolons", model=_ROWS, data={"options": {"client": "who"}}),
    "train on JSON Lines": _train_stored("JSON Lines", model=_ROWS, data={"options": {"client": "who"}}),
    "train on LEAF": _train_stored("LEAF", model=_ROWS),
    "train on TFF's SQLite": _train_stored("TensorFlow Federated", model=_ROWS),
    "train on FedJAX's SQLite": _train_stored("FedJAX", model=_ROWS),
    "train a GAN": _train_stored("pictures", model={"kind": "gan"}, gan=_GAN, data={"types": _PICTURES}),
    "train a CNN": _train_stored("pictures", model={"kind": "cnn"}, data={"types": _PICTURES}),
    "pictures in folders": _stored(
        "pictures", "sanity", "--type image=image:12x12 --type label=category:north,south", slow=True
    ),
    "unknowns with models": _small(_inspect("unknowns", f"{_SIDES} --train", slow=True)),
    "bias with a model": _small(_inspect("bias", f"--input text {_PUBLIC} --train", slow=True)),
    "labelling with a GAN": _small(_inspect("labelling", f"{_NUMBERS} {_PUBLIC} --samples 4 --train", slow=True)),
    "resumed": Entry(("inspect sanity",), _commands(*[f"{_CHECKED} --out run --even-if-blind"] * 2), slow=True),
    "refused by a budget": Entry(
        ("inspect sanity", "ledger budget set"),
        functools.partial(
            _refused,
            f"{_CHECKED} --out run --even-if-blind",
            "ledger budget set people --epsilon 9 --delta 1e-6 --ledger ledger.db",
            f"{_CHECKED} --out again --even-if-blind",
        ),
        slow=True,
    ),
    "under another name": Entry(
        ("inspect sanity",),
        functools.partial(
            _refused,
            f"{_CHECKED} --out run --even-if-blind",
            f"{_CHECKED} --out again --even-if-blind --population others",
        ),
        slow=True,
    ),
    "all rehearsed": Entry(
        ("ask", "synthesize", *(f"inspect {task}" for task in _REHEARSED)),
        _commands(
            *(f"inspect {task} people.csv --client who {options} --dry-run" for task, options in _REHEARSED.items()),
            f"ask people.csv age region {_ASKED} --dry-run",
            f"synthesize people.csv age income --label region --client who {_PUBLIC} {_RANGES} "
            "--type region=category:north,south --dry-run --json",
        ),
        slow=True,
    ),
    "all statistics": Entry(
        ("ask",),
        _commands(
            f"ask people.csv age income region text --by version --type version=category:old,new --type schema.json "
            f"--type text=text --type income=number {_RANGES} --histogram 4 --mean --quantiles 0.5,0.9 --missing "
            "--top 2 --client who --out run --ledger ledger.db --even-if-blind --json"
        ),
        slow=True,
    ),
    "rows as JSON": Entry(
        ("synthesize",),
        _commands(
            f"synthesize people.csv age income --label region --client who --schema schema.json {_RANGES} "
            "--type income=number --rows 20 --out run --ledger ledger.db --json"
        ),
        slow=True,
    ),
    "slices by a listed category": _inspect(
        "slices", "--input age --range age=0:100 --schema schema.json --by region", slow=True
    ),
    "train twice": _train((), "train RUN.toml --out run --ledger ledger.db --json", model=_ROWS, slow=True),
    "ask of LEAF": Entry(
        ("ask",),
        _commands(f"ask {stored.FORMATS['LEAF'][1]} age region --by version --type version=category:old,new {_ASKED}"),
        slow=True,
        store=stored.FORMATS["LEAF"][0],
    ),
    "pictures in Python": Entry(("sanity",), python_entries.pictures_checked, slow=True),
    "bias of pictures": Entry(("bias",), python_entries.pictures_compared, slow=True),
    "slices of a fleet": Entry(
        ("inspect slices",),
        functools.partial(
            asked_of_a_fleet,
            f"inspect slices --input age --input income --type age=number:0:100 --type income=number:0:5000 {_PUBLIC} "
            f"{_REGION} --client who --fleet hospitals --out run --ledger ledger.db --even-if-blind",
        ),
        slow=True,
    ),
    "train on a fleet": Entry(("train run",), _trained_on_a_fleet, slow=True),
    "train on hosts": Entry(("train run",), _trained_on_hosts, slow=True),
    "synthesis": Entry(("synthesise",), python_entries.synthesis, slow=True),
}
