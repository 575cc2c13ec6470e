"""`blindsight inspect` as a new user would try it, wrong input included."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from command import run as blindsight

from blindsight import cli, jobs
from blindsight.accounting.ledger import Ledger
from blindsight.cli.describing import described
from blindsight.config import parse
from blindsight.data import source
from blindsight.errors import InvalidInput


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and the refusal, if there was one."""
    done = blindsight(*arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow  # it trains a network first; test_demo.py asks the same of the library
@pytest.mark.usefixtures("few_steps", "optimised")
def test_it_finds_who_fails_and_why_and_pays_for_it(tmp_path):
    about = ["--clients", "120", "--fault", "invert:0.5", "--low", "0.5", "--high", "0.9", "--suspect", "invert"]
    about += ["--suspect", "flip", "--out", str(tmp_path / "run"), "--ledger", str(tmp_path / "ledger.db")]
    code, printed, _ = run("inspect", "slices", "handwriting", *about, "--population", "phones")
    assert code == 0
    assert "of failing clients" in printed
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert {found["arm"]: found["fault"] for found in report["diagnoses"]}["failing"] == "invert"
    assert (tmp_path / "run" / "report.html").is_file()
    assert 7.9 < Ledger(tmp_path / "ledger.db").spent("phones", delta=1e-6).epsilon <= 8.0


def test_a_model_that_was_trained_here_can_be_inspected(tmp_path):
    settings = {
        "name": "small",
        "data": {"population": "digits", "held_out": 0.1},
        "model": {"kind": "logistic"},
        "privacy": {"cohort": 50, "rounds": 3, "noise_multiplier": 1.0, "delta": 1e-5},
    }
    trained = jobs.run_training(parse(settings), out=tmp_path / "run", ledger=Ledger(tmp_path / "ledger.db"))
    images = source("digits").columns["image"][:50]
    found = jobs.load_model(tmp_path / "run")
    np.testing.assert_allclose(found.scores(images), np.asarray(trained.model(images)), rtol=1e-5, atol=1e-5)
    with pytest.raises(InvalidInput, match="not a run"):
        jobs.load_model(tmp_path)


BAD = {
    "no such data": (["sanity", "nowhere"], "neither a file nor a population"),
    "one threshold": (["slices", "digits", "--low", "0.5"], "both thresholds"),
    "no such slices": (["slices", "digits", "--by", "weather"], "slices need a field"),
    "no such fault": (["sanity", "digits", "--fault", "inverse"], "no fault 'inverse'"),
    "no such model": (["sanity", "digits", "--model", "nothing.onnx"], "there is no model nothing.onnx"),
    "no range": (["sanity", "digits", "--range", "age"], "age=0:100"),
    "no such field": (["sanity", "digits", "--input", "photo"], "photo"),
    "no such field of a model": (["sanity", "handwriting", "--input", "photo"], "has no field 'photo'"),
    "no such label": (["sanity", "digits", "--label", "weather"], "no field 'weather'"),
    "which field": (["sanity", "forum", "--reference", "digits"], "choose the fields to inspect from"),
    "votes for nobody": (["sanity", "digits", "--suspect", "invert"], "repairs the primary model"),
    "mistakes of nobody": (["mistakes", "digits"], "needs a primary model: name one with --model"),
    "no such class": (["mistakes", "digits", "--label", "foo"], "choose one of image, label with --label FIELD"),
    "slices of no class": (["slices", "digits", "--label", "foo"], "choose one of image, label with --label FIELD"),
    "whose rows": (["sanity", "plain.csv"], "choose it from 'age', 'label' with --client NAME"),
    "which column": (["sanity", "odd.csv", "--client", "label"], "choose the fields to inspect from age"),
    "unknown kind": (["sanity", "odd.csv", "--client", "label", "--input", "age"], "--type age=number"),
    "no such kind": (["sanity", "odd.csv", "--client", "label", "--type", "age=colour"], "one of number, whole"),
    "two schemas": (["sanity", "odd.csv", "--type", "a.json", "--schema", "b.json"], "one JSON file of types"),
    "a range of words": (["unknowns", "odd.csv", "--fault", "case", "--type", "age=0:9"], "a type is written as"),
    "no such schema": (["sanity", "odd.csv", "--client", "label", "--schema", "no.json"], "is not a JSON schema"),
    "another task's option": (["sanity", "digits", "--minimum", "3"], "--minimum is for blindsight inspect mistakes"),
    "no such forming": (["slices", "digits", "--forming", "magic"], "not one of 'zero_fill', 'eligible'"),
    "a range of no model": (
        ["sanity", "digits", "--model-range", "0:1"],
        "--model-range and --model-layout describe an",
    ),
    "a layout of no model": (["mistakes", "digits", "--model-layout", "NHW"], "name it with --model"),
    "a type of no field": (["sanity", "digits", "--type", "pixels=image:8x8"], "digits has no field 'pixels', it has"),
    "no privacy": (["sanity", "digits", "--epsilon", "0"], "epsilon"),
}


def test_older_spellings_of_types_mean_the_same():
    types = ["age=whole", "pay=-1:3", "region=category:1,2", "a.json"]
    told = described(["age=whole", "region=category:1,2"], Path("a.json"), ["pay=-1:3"])
    assert described(types) == told == {"types": [types[0], types[2]], "schema": Path("a.json"), "ranges": [types[1]]}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plain.csv").write_text("age,label\n1,a\n", encoding="utf-8")
    Path("odd.csv").write_text("age,label\n1,1\n2,b\n", encoding="utf-8")
    arguments, words = BAD[case]
    code, _, refusal = run("inspect", *arguments)
    assert code == 2
    assert words in refusal
    assert "selection." not in refusal
    assert "\n" not in refusal.strip()


@pytest.mark.slow
def test_a_table_beside_a_reference_with_classes_in_words(tmp_path: Path):
    dice = np.random.default_rng(0)

    def table(name: str, clients: int, *, has_labels: bool = True, strange: str = "") -> str:
        rows = ["who,a,b" + ",label" * has_labels]
        for client in range(clients):
            for kind in dice.integers(3, size=8):
                a, b = dice.normal(float(kind), 0.2, 2)
                word = strange if strange and client == 0 else ("low", "middle", "high")[kind]
                rows.append(f"{name}{client},{a:.3f},{b:.3f}" + f",{word}" * has_labels)
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        return str(tmp_path / f"{name}.csv")

    about = ["--client", "who", "--reference", table("public", 40), "--input", "a", "--input", "b"]
    about += ["--range", "a=-1:3", "--range", "b=-1:3", "--epsilon", "8", "--ledger", str(tmp_path / "ledger.db")]
    for task, clients in {
        "labelling": table("nameless", 60, has_labels=False),
        "mistakes": table("named", 60, strange="only-here"),
    }.items():
        code, _, refusal = run("inspect", task, clients, *about, "--population", task, "--out", str(tmp_path / task))
        assert code == 0, refusal
        told = (tmp_path / task / "report.json").read_text()
        assert "middle" in told
        assert "only-here" not in told  # a class that only clients have is theirs


TASKS: dict[str, Any] = typer.main.get_command(cli.app).commands["inspect"].commands  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("task", ["", *TASKS])
def test_help_shows_an_example_and_only_the_tasks_own_options(task):
    code, printed, _ = run("inspect", *([task] if task else []), "--help")
    assert (code, "Example:" in printed) == (0, True)
    assert ("--vocabulary-size" in printed) == (task in ("unknowns", "bias"))
    assert ("--minimum" in printed) == (task == "mistakes")
    assert ("--model" in printed) == (task not in ("", "unknowns"))


def test_every_task_of_the_library_is_a_command():
    from blindsight import inspect as questions

    assert {*TASKS, "contrast"} == {name for name in questions.__all__ if name.islower()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epsilon", "2", "--json", "sanity", "digits", "--population", "sanity"],
        ["--population", "sanity", "--json", "sanity", "--epsilon", "2", "digits"],
        ["sanity", "--json", "digits", "--epsilon=2", "--population", "sanity"],
    ],
    ids=["before", "a value that is a task's name", "after"],
)
def test_options_may_come_before_or_after_the_task(arguments, monkeypatch):
    def remember(request: jobs.SanityRequest, **_: Any) -> None:
        raise InvalidInput(f"{request.data} {request.epsilon:g} {request.population}")

    monkeypatch.setattr("blindsight.jobs.run_sanity", remember)
    assert run("inspect", *arguments)[2] == "error: digits 2 sanity\n"


SIDES = ["--value", "old", "--value", "new"]
OWN = {
    "mistakes": ["--minimum", "1"],
    "slices": ["--by", "version", *SIDES],
    "unknowns": ["--side", "version", *SIDES, "--vocabulary", "words.txt"],
}


@pytest.mark.parametrize("task", TASKS)
def test_a_request_beyond_the_budget_has_exit_code_3_and_leaves_no_run_behind(task, tmp_path, ledger_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, count in {"private": 240, "public": 300}.items():  # a copy would be refused
        rows = [
            f"{name}{row % 60},{('old', 'new')[row % 4 // 2]},{row % 7},i have a cat,{row % 3}" for row in range(count)
        ]
        Path(f"{name}.csv").write_text("\n".join(["phone,version,age,text,label", *rows]) + "\n", encoding="utf-8")
    Path("words.txt").write_text("i\nhave\n", encoding="utf-8")
    Ledger(ledger_path).set_budget("private", epsilon=0.5, delta=1e-6)
    inputs = ["--input", "text"] if task == "unknowns" else ["--input", "age", "--type", "age=0:7"]
    ask = ["inspect", task, "private.csv", "--client", "phone", "--reference", "public.csv", *inputs, "--out", "run"]
    code, _, refusal = run(*ask, *OWN.get(task, []))
    assert (code, "budget" in refusal) == (3, True), refusal
    assert not Path("run/run.json").exists()


def test_unknown_words_of_two_files_are_compared_and_paid_for(tmp_path: Path):
    dice = np.random.default_rng(0)
    rows = [
        (f"p{c}", int(v), "i have a cat here" if v == 0 else "ihave a cat here")
        for c in range(60)
        for v in (0, 1, 1, 0)
    ]
    dice.shuffle(rows)
    table = "phone,version,text\n" + "".join(f"{phone},{version},{text}\n" for phone, version, text in rows)
    (tmp_path / "notes.csv").write_text(table, encoding="utf-8")
    (tmp_path / "words.txt").write_text("i\nhave\na\ncat\nhere\n", encoding="utf-8")
    about = [
        "--client",
        "phone",
        "--side",
        "version",
        "--value",
        "0",
        "--value",
        "1",
        "--vocabulary",
        str(tmp_path / "words.txt"),
        "--json",
    ]
    about += ["--out", str(tmp_path / "run"), "--ledger", str(tmp_path / "ledger.db"), "--population", "phones"]
    code, printed, _ = run("inspect", "unknowns", str(tmp_path / "notes.csv"), *about)
    assert code == 0
    report = json.loads(printed)
    assert report["diagnoses"][0]["fault"] == "token_join"
    assert report["unknowns"]["after"]["places"][0][0] > 0.8
    assert 7.9 < Ledger(tmp_path / "ledger.db").spent("phones", delta=1e-6).epsilon <= 8.0


BAD_UNKNOWNS = {
    "no change": ([], "the data before the change"),
    "two changes": (["--fault", "case", "--side", "topic"], "in one way"),
    "no such side": (["--side", "weather"], "needs a field of forum with two values"),
    "many sides": (["--side", "topic"], "with two values"),
    "no such vocabulary": (["--fault", "case", "--vocabulary", "nowhere.txt"], "cannot read the vocabulary"),
    "empty vocabulary": (["--fault", "case", "--vocabulary", "empty.txt"], "the vocabulary has no words"),
    "wrong encoding": (["--fault", "case", "--vocabulary", "latin.txt"], "not UTF-8"),
    "one side": (["--side", "topic", "--value", "a"], "needs two values"),
    "no such text": (["--fault", "case", "--input", "topic"], "choose the text field"),
    "no such case": (["--fault", "case", "--case", "upper"], "not one of 'lower', 'keep'"),
    "an image's fault": (["--fault", "case", "--suspect", "invert"], "is not a fault of words"),
    "a model's option": (
        ["--fault", "case", "--model", "m.onnx"],
        "--model is for blindsight inspect sanity",
    ),
    "another task's option": (["--fault", "case", "--low", "0.5"], "--low is for blindsight inspect slices"),
}


@pytest.mark.parametrize("case", BAD_UNKNOWNS)
def test_bad_questions_about_words_are_one_sentence(case, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    arguments, words = BAD_UNKNOWNS[case]
    small = ["--clients", "4"] if "--before" not in arguments else []
    code, _, refusal = run("inspect", "unknowns", "forum", *small, *arguments)
    assert code == 2
    assert words in refusal
    assert "\n" not in refusal.strip()


def test_unknown_words_need_a_vocabulary_that_is_public(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.csv").write_text("client,text\na,i have a cat\nb,here it is\n", encoding="utf-8")
    code, _, refusal = run("inspect", "unknowns", "notes.csv", "--client", "client", "--fault", "case")
    assert code == 2
    assert "name the known words" in refusal
