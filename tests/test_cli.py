"""The command line as people and scripts use it: numbers, JSON keys, exit codes, one-sentence errors."""

import json
import math
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st

from blindsight import __version__
from blindsight.accounting import tables
from blindsight.accounting.events import Gaussian, Repeated
from blindsight.accounting.ledger import Ledger
from blindsight.cli.plan import delta_value, whole_number


def elsewhere(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blindsight", *arguments], capture_output=True, text=True, timeout=240, check=False
    )


def answer(*arguments: str):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PLAN = ["plan", "--population", "250000", "--cohort", "1000", "--rounds", "1000", "--delta", "4e-8"]


def test_plan_prints_the_numbers_that_were_promised():
    found = answer(*PLAN, "--noise-multiplier", "1", "--as-published")
    required = "epsilon delta noise_multiplier participation relation accountant assumptions alternatives published"
    assert set(required.split()) <= set(found)
    assert round(found["epsilon"], 2) == 1.03
    assert round(found["published"], 2) == 2.38
    assert round(found["alternatives"]["fixed"]["lower"], 1) == 10.1
    assert round(found["alternatives"]["fixed"]["upper"], 1) == 17.4
    assert set(found["alternatives"]) == {"fixed", "full", "unproven"}
    assert (found["participation"], found["relation"], found["accountant"]) == ("poisson", "add_or_remove", "PLD")


def test_plan_solves_for_the_noise():
    found = answer(
        "plan", "--population", "342477", "--cohort", "5000", "--rounds", "2000", "--delta", "2.92e-6", "--epsilon", "4"
    )
    assert found["noise_multiplier"] == 1.0285
    assert found["epsilon"] <= 4
    assert "published" not in found


@pytest.mark.slow  # the accountants' own tests have these numbers
def test_plan_with_the_language_models_of_both_papers():
    words = answer(
        *shlex.split("plan --population 342477 --cohort 5000 --rounds 2000 --delta 2.92e-6 --noise-multiplier 1"),
        "--as-published",
    )
    assert (round(words["epsilon"], 2), round(words["published"], 2)) == (4.22, 9.22)
    production = answer(
        *shlex.split("plan --population 4e6 --cohort 20000 --noise-multiplier 0.8 --rounds 2000 --delta N^-1.1"),
        "--as-published",
    )
    assert (round(production["epsilon"], 2), round(production["published"], 2)) == (3.06, 5.36)


def test_fixed_is_reported_as_a_bracket_under_replace():
    found = answer(*PLAN, "--noise-multiplier", "1", "--participation", "fixed")
    assert found["relation"] == "replace"
    assert round(found["lower"], 1) == 10.1
    assert round(found["epsilon"], 1) == 17.4
    assert round(found["alternatives"]["poisson"]["epsilon"], 2) == 1.03


def test_unproven_counts_a_clients_own_rounds_only():
    few = answer(*PLAN, "--noise-multiplier", "4", "--participation", "unproven", "--max-participations", "4")
    once = answer(*PLAN[:-4], "--rounds", "1", "--delta", "4e-8", "--noise-multiplier", "2", "--participation", "full")
    assert math.isclose(few["epsilon"], once["epsilon"], rel_tol=1e-6)  # four rounds at 4 are one at 2
    assert any("claims nothing" in words for words in few["assumptions"])


def test_plan_for_people_has_the_explanation_the_group_and_the_split():
    done = run(*PLAN, "--noise-multiplier", "1", "--explain", "--group", "2", "--adaptive-clipping")
    assert done.returncode == 0
    for words in ("epsilon = 1.033", "This holds if", "A group of 2 clients", "1.00005", "poisson", "unproven"):
        assert words in done.stdout


def test_no_noise_is_said_to_be_no_privacy():
    assert answer(*PLAN, "--noise-multiplier", "0")["epsilon"] == "inf"
    assert "epsilon = inf" in run(*PLAN, "--noise-multiplier", "0").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "--population", "100", "--cohort", "1000", "--noise-multiplier", "1", "--rounds", "1"], "cohort"),
        ([*PLAN], "exactly two"),
        ([*PLAN, "--noise-multiplier", "1", "--epsilon", "1"], "exactly two"),
        ([*PLAN, "--noise-multiplier", "1", "--fraction", "0.1"], "name the fault with --detect FAULT"),
        ([*PLAN, "--noise-multiplier", "-1"], "noise_multiplier"),
        ([*PLAN, "--noise-multiplier", "nan"], "noise_multiplier"),
        ([*PLAN, "--epsilon", "0"], "epsilon must be positive"),
        ([*PLAN, "--noise-multiplier", "1", "--participation", "lottery"], "poisson, fixed, full, unproven"),
        ([*PLAN[:-1], "2", "--noise-multiplier", "1"], "delta"),
        ([*PLAN[:-1], "banana", "--noise-multiplier", "1"], "1/N"),
        (["plan", "--population", "many", "--cohort", "1"], "not a number"),
        (["plan", "--population", "1.5", "--cohort", "1"], "whole number"),
        (["tables", "007"], "000, 001, 002, 003"),
        (["ledger", "show", "--population", "nobody"], "no population 'nobody'"),
        (["ledger", "budget", "set", "x", "--epsilon", "nan", "--delta", "1e-6"], "epsilon"),
        (["ledger", "show", "--delta", "3"], "delta must lie between 0 and 1, got 3"),
        (["ledger", "verify", "--export", "nowhere.jsonl"], "there is no file"),
        (["ledger", "show", "--ledger", "."], "is a folder"),
        (["data", "describe", "nothing"], "neither a file nor a population"),
        (["data", "describe", "digits", "--client", "x"], "already has client ids"),
        (["ask", "tabular", "age", "--clients", "9000000000000000", "--dry-run"], "not enough memory"),
        (["data", "get", "mnits"], "did you mean 'mnist'"),
        (["data", "get", "mnist", "--from", "ftp://mirror", "--to", "nowhere"], "https://"),
        (["data", "get", "mnist", "--to", __file__], "cannot create"),
        (["data", "get", "shakespeare", "--to", "nowhere"], "no public download"),
        (["data", "get", "handwriting"], "comes with Blindsight"),
        (["ledger", "export", "--output", "."], "is a directory"),
        (["label", "x", "--export-label-studio", "."], "is a directory"),
        (["ledger", "verify"], "there is no ledger"),
        (["ledger", "export"], "there is no ledger"),
        (["plan"], "missing option '--population' (see blindsight plan --help)"),
        (["tran"], "Did you mean 'train'?"),
        (["train", "student", "x", "--steps", "0"], "'--steps'"),
        (["inspect", "sanity", "handwriting", "--epsilon", "nan"], "--epsilon must be positive and finite"),
        (["inspect", "sanity", "handwriting", "--delta", "nan"], "--delta must lie between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, words, ledger_path):
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_file_that_is_no_export_is_refused(tmp_path):
    strange = tmp_path / "ledger.jsonl"
    strange.write_bytes(b"\xff\xfe")
    done = run("ledger", "verify", "--export", str(strange))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not text" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_sentence():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "blindsight", "data", "list", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: I/O error (No space left on device): check path, permissions and free space")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_stops_early_is_no_error():
    command = shlex.join([sys.executable, "-m", "blindsight", "data", "list", "--json"])
    done = subprocess.run(["sh", "-c", f"{command} | true"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_says_that_the_same_command_goes_on(monkeypatch, tmp_path):
    def interrupted(*_: object, **__: object):
        raise KeyboardInterrupt

    monkeypatch.setattr("blindsight.jobs.run_training", interrupted)
    config = Path(__file__).parent.parent / "examples" / "quick.toml"
    done = run("train", str(config), "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stdout) == (130, "")
    assert "Run the same command again to resume" in done.stderr


def test_the_ledger_from_the_outside(ledger_path):
    assert "no entries yet" in " ".join(run("ledger", "show").stdout.split())  # wherever the line is broken
    assert not ledger_path.exists()  # looking creates nothing
    assert answer("ledger", "budget", "set", "clinic", "--epsilon", "4", "--delta", "1e-6")["state"] == "100 % left"
    Ledger(ledger_path).record(Repeated(Gaussian(8.0), 3), population="clinic", run="demo-1", note="[bold]first")
    page = answer("ledger", "show")
    assert page["populations"][0]["spent"]["releases"] == 3
    assert [entry["kind"] for entry in page["entries"]] == ["budget", "release"]
    shown = run("ledger", "show", "--entries").stdout
    assert "clinic" in shown
    assert "[bold]first" in "".join(shown.split())  # a note is text, never markup
    head = answer("ledger", "verify")["head"]
    assert run("ledger", "verify", "--head", head).returncode == 0
    assert run("ledger", "verify", "--head", "f" * 64).returncode == 3


def test_export_verifies_and_an_edited_export_does_not(tmp_path, ledger_path):
    ledger = Ledger(ledger_path)
    for _ in range(3):
        ledger.record(Gaussian(8.0), population="clinic")
    out = tmp_path / "out.jsonl"
    assert run("ledger", "export", "--output", str(out)).returncode == 0
    assert run("ledger", "verify", "--export", str(out)).returncode == 0
    lines = out.read_text().splitlines()
    out.write_text("\n".join([lines[0], lines[1].replace("8.0", "9.0"), lines[2]]) + "\n")
    done = run("ledger", "verify", "--export", str(out))
    assert done.returncode == 3
    assert "2" in done.stdout
    assert len(answer("ledger", "export")) == 3


def test_a_release_beyond_the_budget_has_exit_code_3(ledger_path):
    code = (
        "from blindsight import cli\nfrom blindsight.accounting.events import Gaussian\n"
        "from blindsight.accounting.ledger import Ledger\n"
        "cli.app = lambda **_: Ledger().record(Gaussian(0.5), population='clinic')\ncli.main()\n"
    )
    Ledger(ledger_path).set_budget("clinic", epsilon=1.0, delta=1e-6)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "budget" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_real_process_behaves_like_the_one_here():
    for arguments in (["ledger", "show", "--json"], ["plan", "--cohort", "x"]):
        here, there = run(*arguments), elsewhere(*arguments)
        assert (here.returncode, here.stdout) == (there.returncode, there.stdout)
        assert "Traceback" not in there.stderr


def test_version_and_help_with_an_example():
    assert run("--version").stdout == f"blindsight {__version__}\n"
    commands = [["plan"], ["tables"], ["demo"], ["train"], *(["ledger", name] for name in ("show", "verify", "export"))]
    groups = [[], ["data"], ["ledger"], ["ledger", "budget"]]
    for command in [*groups, *commands, *(["data", name] for name in ("list", "describe", "get"))]:
        assert "Example:" in run(*command, "--help").stdout, command


def test_help_shows_no_value_for_an_option_that_takes_none():
    shown = next(line for line in run("ledger", "show", "--help").stdout.splitlines() if "--entries" in line)
    assert "bool" not in shown


def test_data_lists_what_is_embedded_and_what_is_real(tmp_path, monkeypatch):
    monkeypatch.setenv("BLINDSIGHT_DATA", str(tmp_path))
    (tmp_path / "adult.csv.xz").write_bytes(b"")
    rows = {row["name"]: row for row in answer("data", "list")}
    assert {"digits", "handwriting", "mnist", "femnist", "adult"} <= set(rows)
    assert rows["digits"]["kind"] == "embedded"
    assert (rows["adult"]["found"], rows["adult"]["folder"]) == (True, str(tmp_path))
    assert (rows["mnist"]["found"], rows["mnist"]["folder"]) == (False, None)
    assert rows["mnist"]["how_to_get"] == "blindsight data get mnist downloads it"
    assert "no public download" in rows["femnist"]["how_to_get"]
    shown = " ".join(run("data", "list").stdout.split())
    for words in ("embedded", "539 writers", "data get", "--from URL"):
        assert words in shown


def test_data_are_described_by_name_and_by_file(tmp_path):
    digits = answer("data", "describe", "digits")
    assert (digits["clients"], digits["examples"], digits["simulation_only"]) == (1797, 1797, True)
    assert "1,797 clients" in run("data", "describe", "digits").stdout
    (tmp_path / "notes.csv").write_text("writer,score\nann,1\nbob,2\nann,3\n", encoding="utf-8")
    notes = answer("data", "describe", str(tmp_path / "notes.csv"), "--client", "writer")
    assert (notes["clients"], notes["examples"], list(notes["fields"])) == (2, 3, ["score"])


def test_data_that_are_there_are_not_fetched(tmp_path):
    for name in ("mnist.npz", "mnist_writers.npz"):
        (tmp_path / name).write_bytes(b"")
    found = answer("data", "get", "mnist", "--to", str(tmp_path), "--from", "http://127.0.0.1:9")
    assert (found["folder"], found["in_use"]) == (str(tmp_path), False)
    assert f"export BLINDSIGHT_DATA={tmp_path}" in run("data", "get", "mnist", "--to", str(tmp_path)).stdout


def test_tables_for_machines_and_pages(monkeypatch):
    table = tables.build("002")
    monkeypatch.setattr(tables, "build", lambda paper, progress: table)
    found = answer("tables", "002")
    assert found[0]["rows"][0]["records_expected_unprotected"] == pytest.approx(0.6)
    page = run("tables", "002", "--markdown").stdout
    assert page.startswith("### 002")
    assert "| Table 1, MNIST |" in page


@given(st.integers(1, 10**9))
def test_whole_numbers_are_read_as_people_write_them(value):
    for text in (str(value), f"{value:,}", f"{value:_}", f"{value:.15e}"):
        assert whole_number(text) == value
    assert whole_number(f"{value}k") == 1000 * value
    assert whole_number(f"{value}M") == 10**6 * value


def test_delta_in_terms_of_the_population():
    assert delta_value("1e-6", 10) == 1e-6
    assert delta_value("1/N", 1000) == 1e-3
    assert delta_value("N^-1.1", 1000) == pytest.approx(1000**-1.1)
