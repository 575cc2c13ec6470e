"""`blindsight label` and `blindsight train student` as somebody would try them, wrong input included."""

import json
import socket
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from blindsight import cli
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.inspect import Training
from blindsight.studio.labels import Decision, Labels


def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and the refusal, if there was one."""
    done = CliRunner().invoke(cli.app, list(arguments))
    if isinstance(done.exception, BlindsightError):
        return done.exception.exit_code, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def test_agreement_is_printed_for_people_and_machines(make_set):
    made = make_set(count=4)
    labels = Labels(made)
    for rater, words in {"anna": ("cat", "cat", "dog"), "ben": ("cat", "dog", "dog")}.items():
        labels.add([Decision(f"everyone/{n:05d}", rater, word, 1.0, "now") for n, word in enumerate(words)])
    code, printed, _ = run("label", str(made.folder), "--agreement")
    assert code == 0
    assert "anna and ben" in printed
    assert "66.7 %" in printed
    found = json.loads(run("label", str(made.folder), "--agreement", "--json")[1])
    assert found["pairs"][0]["kappa"] == pytest.approx(0.4)


def test_labels_go_to_label_studio_and_back(make_set, tmp_path):
    made, tasks = make_set(), tmp_path / "tasks.json"
    Labels(made).add([Decision("everyone/00001", "anna", "cat", 1.0, "now")])
    assert "Written to" in run("label", str(made.folder), "--export-label-studio", str(tasks))[1]
    (made.folder / "labels.jsonl").unlink()
    found = json.loads(run("label", str(made.folder), "--import", str(tasks), "--json")[1])
    assert found == {"imported": 1, "raters": ["anna"]}


def test_a_port_that_is_taken_is_one_sentence(make_set):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, refusal = run("label", str(make_set().folder), "--port", port, "--rater", "anna")
    assert code == 2
    assert f"port {port} (Address already in use): name another with --port" in refusal


def test_without_its_extra_it_says_what_to_install(make_set, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "blindsight.studio.run", raising=False)
    code, _, refusal = run("label", str(make_set().folder))
    assert code == 2
    assert "pip install 'blindsight[studio]'" in refusal


def test_inspect_labelling_asks_for_what_was_asked(monkeypatch, tmp_path):
    asked: dict[str, Any] = {}

    def remember(clients: Any, **settings: Any) -> None:
        asked.update(settings, clients=clients)
        raise InvalidInput("enough")

    monkeypatch.setattr("blindsight.jobs.inspect.labelling", remember)
    words = ["--samples", "70", "--train", "--epsilon", "2", "--out", str(tmp_path / "run")]
    assert run("inspect", "labelling", "digits", *words)[2] == "enough"
    assert (asked["samples"], asked["training"], asked["epsilon"]) == (70, Training(), 2.0)
    assert (asked["clients"].name, asked["schema"].inputs) == ("digits", ("image",))
    assert asked["session"].out == tmp_path / "run"


def test_bad_requests_are_one_sentence(make_set, tmp_path):
    folder = str(make_set().folder)
    for arguments, words in [
        (["label", str(tmp_path / "nowhere")], "there is no folder"),
        (["label", str(tmp_path)], "is not a synthetic set"),
        (["label", folder, "--classes", "cat,dog"], "proposed labels owl"),
        (["label", folder, "--rater", " "], "a rater's name"),
        (["label", folder, "--rater", ""], "a rater's name"),
        (["label", folder, "--agreement", "--import", "x.json"], "choose one of --agreement"),
        (["label", folder, "--import", "nowhere.json"], "cannot read nowhere.json"),
        (["train", "student", str(tmp_path)], "is not a synthetic set"),
        (
            ["inspect", "labelling", "handwriting", "--suspect", "invert"],
            "--suspect is for blindsight inspect sanity",
        ),
        (["inspect", "sanity", "digits", "--samples", "3"], "--samples is for blindsight inspect labelling"),
    ]:
        code, _, refusal = run(*arguments)
        assert code == 2, arguments
        assert words in refusal
        assert "\n" not in refusal.strip()


def test_help_shows_examples():
    for words in (["label"], ["train"], ["train", "student"], ["train", "run"]):
        code, printed, _ = run(*words, "--help")
        assert code == 0
        assert "Example:" in printed
