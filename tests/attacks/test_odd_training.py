"""Whatever one client's rows hold, training on a table says the same words and leaves the same files, noise aside.

`test_neighbours` attacks training on clients; here are examples that are protected one by one, schemas in files, and
quotation marks. Noise takes the place of what was summed, and all that leaves has to be equal.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from neighbours import USUAL, rows, write
from odd_rows import TOGETHER, public, released
from safetensors import safe_open
from typer.testing import CliRunner

from blindsight import cli
from blindsight.accounting.ledger import Ledger
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism

RUN = """
name = "tiny"

[data]
population = "people.csv"
options = {{ client = "who" }}
held_out = {held_out}
{data}

[model]
{model}

[text]
vocabulary = "words.txt"

[privacy]
noise_multiplier = 1.0
delta = 1e-3
cohort = 9
rounds = 1
unit = "{unit}"
"""
NUMBERS = 'kind = "logistic"\ninputs = ["age", "income", "region"]\n'
FILE = 'schema = "schema.json"'
LISTED = 'types = { region = "category:north,south", label = "category:no,yes" }'
WORDS = 'kind = "word_lm"\nembedding = 2\ncells = 2\n'
RUNS = {
    "clients": RUN.format(data=LISTED, model=NUMBERS, unit="client", held_out=0),
    "examples": RUN.format(data=LISTED, model=NUMBERS, unit="example", held_out=0),
    "a schema": RUN.format(
        data='schema = "schema.json"', model=NUMBERS + 'classes = ["no", "yes"]', unit="client", held_out=0.1
    ),
    "text": RUN.format(data="", model=WORDS, unit="client", held_out=0.1),
}
SCHEMA = {"fields": {"age": {"kind": "whole"}, "region": {"kind": "category", "values": ["north", "south"]}}}


def trained(folder: Path, run: str, odd: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All that leaves when a model is trained on a population in which one client has these rows."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    write(folder / "people.csv", [*rows(0, "c", 7), USUAL, *odd, *rows(1, "d", 40)])
    (folder / "words.txt").write_text("we\nhave\na\ncat\nand\nthe\ndog\nis\n", encoding="utf-8")
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    (folder / "run.toml").write_text(RUNS[run], encoding="utf-8")
    done = CliRunner().invoke(cli.app, ["train", "run.toml", "--json", "--ledger", str(folder / "ledger.db")])
    found: dict[str, Any] = {"code": done.exit_code, "message": repr(done.exception)}
    found["stderr"] = done.stderr.replace(str(folder), "")
    found["json"] = public(json.loads(done.stdout)) if done.stdout else None
    entries = Ledger(folder / "ledger.db").entries()
    found["ledger"] = [(one.kind, one.population, one.event if one.kind == "release" else "") for one in entries]
    for path in sorted((folder / "runs").rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".jsonl":
            found[name] = [public(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.suffix == ".json":
            found[name] = public(json.loads(path.read_text()))
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as file:
                found[name] = {key: file.get_tensor(key).tolist() for key in file.keys()}  # noqa: SIM118
        else:
            found[name] = path.is_dir()
    return found


def compare(tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GaussianMechanism, "release", released)
    odd = TOGETHER
    if run == "examples":  # as many rows, each of which has its place
        odd = [line for line in TOGETHER if line.startswith("c7,")]
    usual = trained(tmp_path / "usual", run, [USUAL] * (len(odd) if run == "examples" else 1), monkeypatch)
    assert usual["code"] == 0, usual["message"]
    assert not any("read off" in words for words in usual["json"]["guarantee"]["assumptions"])
    strange = trained(tmp_path / "strange", run, odd, monkeypatch)
    assert strange == usual


@pytest.mark.slow
@pytest.mark.parametrize("run", ["clients", "examples"])
def test_one_clients_rows_change_nothing_that_training_says(tmp_path, run, monkeypatch):
    compare(tmp_path, run, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["a schema", "text"])
def test_nor_do_they_with_a_schema_in_a_file_or_in_text(tmp_path, run, monkeypatch):
    compare(tmp_path, run, monkeypatch)
