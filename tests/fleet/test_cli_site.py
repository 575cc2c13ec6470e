"""`blindsight site`: reviewing, the log and the check, as an officer and an owner use them."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import run
from site_folder import NOW, asked, site_folder

from blindsight.fleet.codes import Code
from blindsight.fleet.site.book import Book
from blindsight.fleet.site.policy import Standing


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """A site that was asked two questions, one of which waits and one of which its policy denied."""
    one = Book(site_folder(tmp_path))
    one.decide(asked(), NOW)
    one.decide(asked("other", task="mistakes", sentence="What does [bold]the model[/] get wrong?"), NOW)
    return one


def site(book: Book, command: str, *options: str) -> Any:
    return run("site", command, str(book.settings.folder / "SITE.toml"), *options)


def test_a_question_is_reviewed_in_plain_words_with_its_cost_and_what_would_leave(book: Book):
    done = site(book, "review")
    assert done.returncode == 0, done.stderr
    for words in (
        "question slices, asked by anna",
        "On which clients does the model fail, and why?",
        "at most epsilon 1 at delta 1e-06, for each client",
        "epsilon 0 of 4 in all, 0 of 4 by anna",
        "leaves   each once, in a masked sum over all sites",
        "cues, 120 numbers of norm 3; votes, 17 numbers of norm 1",
        "Every site adds a share",
    ):
        assert words in done.stdout
    assert "mistakes" not in done.stdout  # it does not wait
    everything = site(book, "review", "--all").stdout
    assert "What does [bold]the model[/] get wrong?" in everything
    assert "[policy] tasks are slices, sanity, and this is mistakes" in everything


def test_json_has_the_same(book: Book):
    value = json.loads(site(book, "review", "--json").stdout)
    (only,) = value["questions"]
    assert (only["state"], only["code"], only["asked"]["job"]) == ("pending", "pending", asked().job)
    assert only["asked"]["leaves"][0] == {"name": "cues", "coordinates": 120, "l2_bound": 3.0}
    assert len(json.loads(site(book, "review", "--all", "--json").stdout)["questions"]) == 2


def test_an_officer_approves_and_denies_by_the_first_digits(book: Book):
    done = site(book, "review", "--approve", asked().job[:8], "--officer", "Dr. Weiss")
    assert (done.returncode, "approved by Dr. Weiss" in done.stdout) == (0, True)
    assert book.decide(asked(), NOW).state is Standing.APPROVED
    assert site(book, "review").stdout == "No question waits for approval.\n"
    done = site(book, "review", "--deny", asked().job[:8], "--reason", "the study is over", "--officer", "Dr. Weiss")
    assert "denied by Dr. Weiss: the study is over" in done.stdout
    assert book.decide(asked(), NOW).code is Code.not_approved


@pytest.mark.parametrize(
    "options",
    [
        ["--approve", "ffffffff"],
        ["--approve", ""],
        ["--deny", asked().job],
        ["--reason", "because"],
        ["--deny", asked().job, "--reason", " "],
        ["--approve", asked().job, "--deny", asked().job, "--reason", "both"],
        ["--approve", asked("other").job],
    ],
)
def test_what_cannot_be_decided_is_refused_in_a_sentence(book: Book, options: list[str]):
    before = len(book.diary.lines())
    done = site(book, "review", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert len(book.diary.lines()) == before


@pytest.mark.parametrize(
    ("typed", "state"), [("yes\n", "approved"), ("\n", "pending"), ("n\nnot today\n", "denied"), ("what\n", "pending")]
)
def test_on_a_terminal_it_asks(book: Book, spawn: Callable[..., Any], typed: str, state: str):
    outer, inner = pty.openpty()
    words = [sys.executable, "-m", "blindsight", "site", "review", str(book.settings.folder / "SITE.toml")]
    process = spawn(*words, "--officer", "W", stdin=inner, stdout=inner, stderr=subprocess.STDOUT)
    os.close(inner)
    os.write(outer, typed.encode())
    shown = b""
    while chunk := _read(outer):
        shown += chunk
    assert process.wait() == 0, shown
    assert b"Approve it?" in shown
    record = book.job(asked().job)
    assert record.ruling.state == state
    if state == "denied":
        assert record.ruling.sentence == "denied by W: not today"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the process has ended
        return b""


def test_the_log_is_printed_and_verified(book: Book):
    done = site(book, "log")
    assert done.returncode == 0
    first, *_, last = done.stdout.splitlines()
    assert "received the question" in first
    assert last.startswith("4 entries, all as written; head ")
    head = last.rpartition(" ")[2]
    assert site(book, "log", "--head", head).returncode == 0
    assert site(book, "log", "--head", "1" * 64).returncode == 3
    text = book.settings.diary.read_text(encoding="utf-8")
    book.settings.diary.write_text(text.replace("mistakes", "slices!"), encoding="utf-8")
    done = site(book, "log")
    assert done.returncode == 3
    assert "line 3 was edited" in done.stdout
    value = json.loads(site(book, "log", "--json").stdout)
    assert (value["ok"], len(value["lines"])) == (False, 2)


def test_the_check_finds_a_folder_in_order(book: Book):
    done = site(book, "check")
    assert done.returncode == 0, done.stderr
    assert "north is one of north, south, west" in done.stdout
    assert "patients.csv is in order: 40 clients, 120 examples" in done.stdout
    value = json.loads(site(book, "check", "--json").stdout)
    assert (value["clients"], value["declared_clients"], value["missing_columns"]) == (40, 40, {})


def test_the_check_finds_a_key_that_others_may_read(book: Book):
    key = book.settings.key
    key.chmod(0o644)
    done = site(book, "check")
    assert (done.returncode, "others on this machine may read" in done.stdout) == (2, True)
    assert json.loads(site(book, "check", "--json").stdout)["key_is_open"]


def test_an_agent_does_not_start_with_papers_that_do_not_fit_together(book: Book):
    """Before it connects: nobody could tell from a refused connection what is wrong."""
    roster = book.settings.folder / "roster.json"
    others = {"sites": {name: one for name, one in json.loads(roster.read_text())["sites"].items() if name != "north"}}
    roster.write_text(json.dumps(others), encoding="utf-8")
    done = site(book, "run")
    assert done.returncode == 2
    assert "the roster does not have this site with this certificate" in done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("patients.csv", "p7,27\n", "p7,270\np8,old\n", "age: 1 rows do not fit"),
        ("patients.csv", "id,age", "id,years", "[columns] years = 'age'"),
        ("SITE.toml", "clients = 40", "clients = 4", "[site] clients is 4, and the data have 40"),
        ("SITE.toml", '"patients.csv"', '"absent.csv"', "neither a file nor a population"),
    ],
)
def test_the_check_names_what_does_not_fit(book: Book, file: str, old: str, new: str, words: str):
    path = book.settings.folder / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    done = site(book, "check")
    assert words in done.stdout + done.stderr
    assert done.returncode == 2


def test_reviewing_loads_nothing_that_takes_long(book: Book):
    code = (
        "import sys; from blindsight.cli import main; sys.argv = ['blindsight', 'site', 'review', sys.argv[1]]\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "print(sorted({'jax', 'numpy', 'scipy', 'dp_accounting', 'cryptography', 'pyarrow'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code, str(book.settings.folder / "SITE.toml")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "On which clients" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
