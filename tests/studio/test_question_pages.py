"""Composing a question: its command, its cost, dry runs in a separate process, and asking it."""

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from studio_runs import enter
from waiting import until

from blindsight.accounting.events import Gaussian
from blindsight.accounting.guarantee import round_up
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.errors import InvalidInput
from blindsight.fleet.folder import FleetFolder
from blindsight.studio import composing
from blindsight.studio.composing import DryRuns, composed
from blindsight.studio.web import Workspace

ASKED = {"task": "slices", "data": "handwriting", "epsilon": "2", "clients": "50", "low": "", "fault": "invert:0.5"}


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(folder=tmp_path / "runs", ledgers=(tmp_path / "ledger.db",), writable=True)


def test_a_form_becomes_a_command():
    question = composed(ASKED)
    assert question.words == ["inspect", "slices", "handwriting", "--clients=50", "--fault=invert:0.5", "--epsilon=2.0"]
    assert question.payer == "handwriting with invert:0.5"
    assert composed({**ASKED, "population": "clinic"}).payer == "clinic"
    for file in ("people.csv", "data/people.csv.gz", "people.parquet"):  # as `jobs` names them in the ledger
        assert composed({**ASKED, "data": file, "fault": ""}).payer == "people"


def test_a_table_of_ones_own_is_described_in_the_form():
    asked = {"task": "sanity", "data": "people.csv", "client": "who", "inputs": "age, pay per hour"}
    asked |= {"types": "age=whole:0:120; pay per hour=number:0:90; region=category:north,south"}
    types = ["age=whole:0:120", "pay per hour=number:0:90", "region=category:north,south"]
    question = composed(asked)
    assert (question.fields["inputs"], question.fields["types"]) == (["age", "pay per hour"], types)
    assert question.words[-2:] == ["--input=age", "--input=pay per hour"]
    assert [word for word in question.words if word.startswith("--type=")] == [f"--type={one}" for one in types]


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "rm"},
        {"data": ""},
        {"data": "--help"},
        {"data": "-x"},
        {"data": "a\nb"},
        {"fault": "--out=/"},
        {"epsilon": "much"},
        {"clients": "1.5"},
        {"data": "x" * 301},
    ],
)
def test_what_is_no_question_is_refused(changed):
    with pytest.raises(InvalidInput):
        composed({**ASKED, **changed})


def test_statistics_and_rows_are_commands_of_their_own():
    asked = {"task": "ask", "data": "tabular", "fields": "age, pay per hour", "by": "sex", "epsilon": "1"}
    assert composed(asked).words == ["ask", "tabular", "age", "pay per hour", "--epsilon=1.0", "--by=sex"]
    assert composed({"task": "synthesize", "data": "tabular", "rows": "50"}).words == [
        "synthesize",
        "tabular",
        "--rows=50",
    ]
    with pytest.raises(InvalidInput, match="fields must not begin with a hyphen"):
        composed({**asked, "fields": "age, --out=/"})


def test_a_fleet_is_asked_in_place_of_data(place, tmp_path):
    asked = {**ASKED, "data": "handwriting", "client": "who", "fleet": str(tmp_path / "hospitals"), "asker": "anna"}
    words = ["inspect", "slices", f"--fleet={tmp_path / 'hospitals'}", "--asker=anna", "--epsilon=2.0"]
    assert composed(asked).words == words  # what only data on this machine have is left out
    assert composed({**asked, "task": "ask", "fields": "age"}).words[:2] == ["ask", "age"]
    assert "--asker=anna" not in composed({**asked, "fleet": ""}).words
    for path in ("/questions/cost", "/questions/power"):
        assert "there is no such fleet here" in enter(place).get(path, params=asked).text
    assert enter(place).post("/questions/ask", data=asked).status_code == 404
    hospitals = tmp_path / "hospitals"
    FleetFolder.init(hospitals, sites=["north", "south", "west"], hosts=["127.0.0.1"], port=4222)
    whole = dataclasses.replace(place, fleets=(hospitals,))
    shown = enter(whole).get("/questions", params={"fleet": str(hospitals)}).text
    assert ('name="asker"' in shown, 'name="data"' in shown) == (True, False)
    assert 'name="data"' in enter(whole).get("/questions").text
    cost = enter(whole).get("/questions/cost", params=asked).text
    assert "hospitals: the ledger has no release under this name yet" in cost


def test_fields_are_those_of_the_command_line():
    """Every field of the form is one of the request and an option of the command: no form composes a wrong command."""
    import typer

    from blindsight import cli
    from blindsight.jobs.rehearsing import TASKS

    commands = typer.main.get_command(cli.app).commands  # pyright: ignore
    commands = {**commands, **commands["inspect"].commands}
    assert set(composing.FIELDS) == set(composing.QUESTIONS) == set(TASKS)
    for task, fields in composing.FIELDS.items():
        assert set(fields) <= {field.name for field in dataclasses.fields(TASKS[task])}
        options = {option for parameter in commands[task].params for option in parameter.opts}
        for field in set(fields) - {"data", "fields"}:
            assert composing.option_of(field) in options, (task, field)


def gaussian_of(epsilon: float, delta: float) -> Gaussian:
    noise = solve_noise(lambda z: Gaussian(z, rounded=True), epsilon=epsilon, delta=delta)
    return Gaussian(noise, rounded=True)


def test_the_cost_is_the_ledgers(place):
    ledger = Ledger(place.ledgers[0])
    ledger.set_budget("clinic", epsilon=3.0, delta=1e-6)
    ledger.record(Gaussian(4.0, rounded=True), population="clinic")
    client = enter(place)
    shown = client.get("/questions/cost", params={**ASKED, "population": "clinic"}).text
    after = round_up(ledger.adaptive_epsilon("clinic", more=gaussian_of(2.0, 1e-6)))  # what the budget is compared with
    before = round_up(ledger.adaptive_epsilon("clinic"))
    assert f"clinic would go from epsilon {before} to <b>{after}</b> of 3 over all runs" in shown
    assert shlex.quote("--fault=invert:0.5") in shown
    refused = client.get("/questions/cost", params={**ASKED, "population": "clinic", "epsilon": "3"}).text
    assert "The ledger would refuse it." in refused
    assert len(ledger.entries()) == 2
    assert "no release under this name yet" in client.get("/questions/cost", params=ASKED).text
    asked = {"HX-Request": "true"}
    assert 'role="alert"' in client.get("/questions/cost", params={**ASKED, "data": ""}, headers=asked).text


def test_the_form_changes_with_the_question(place):
    client = enter(place)
    assert 'name="low"' in client.get("/questions", params={"task": "slices"}).text
    shown = client.get("/questions", params={**ASKED, "task": "labelling"}, headers={"HX-Target": "fields"}).text
    assert ('name="samples"' in shown, 'name="low"' in shown) == (True, False)
    assert 'value="invert:0.5"' in shown  # what was typed is kept


class Rehearsal:
    """A process that answers as dry runs do, at once."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: str) -> None:
        script = tmp_path / "rehearsal.py"
        script.write_text(f"import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n{answers}")
        monkeypatch.setattr(composing, "COMMAND", (sys.executable, "-u", str(script)))


def test_a_dry_run_is_asked_once_and_the_page_waits_for_it(place, tmp_path, monkeypatch):
    Rehearsal(
        tmp_path,
        monkeypatch,
        "    print(json.dumps({'doing': 'planting', 'done': 1, 'total': 3}))\n"
        "    limits = [{'fault': 'invert', 'smallest': 0.05}, {'fault': 'blur', 'smallest': None}]\n"
        "    told = {'verdict': 'It would cost 2.', 'detection': {'limits': limits}, 'notes': ['`x`']}\n"
        "    print(json.dumps({'report': told}))\n",
    )
    client = enter(place)
    waiting = client.get("/questions/power", params=ASKED).text
    assert 'hx-trigger="load delay' in waiting
    until(lambda: "It would cost 2." in client.get("/questions/power", params=ASKED).text)
    shown = client.get("/questions/power", params=ASKED).text
    assert "invert</th>" in shown
    assert "missed even on all clients: blur" in shown
    assert "hx-get" not in shown
    place.dry_runs.close()


def test_a_dry_run_that_dies_is_said_and_the_next_one_begins_anew(tmp_path, monkeypatch):
    Rehearsal(
        tmp_path,
        monkeypatch,
        "    if asked['fields']['data'] == 'bad': sys.exit(1)\n"
        "    print(json.dumps({'error': asked['fields']['data']}))\n",
    )
    runs = DryRuns(None)
    until(lambda: "without an answer" in runs.look(composed({"task": "sanity", "data": "bad"})).get("error", ""))
    until(lambda: runs.look(composed({"task": "sanity", "data": "good"})).get("error") == "good")
    runs.close()


def test_the_real_process_answers_in_lines_and_ends_with_its_input(spawn: Any):
    process = spawn(*composing.COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    line = json.dumps({"task": "sanity", "fields": {"data": "nowhere.csv", "epsilon": 1.0}})
    out, _ = process.communicate(
        line + "\n" + json.dumps({"task": "sanity", "fields": {"data": "x", "secret": 1}}) + "\n"
    )
    first, second = (json.loads(answer) for answer in out.splitlines())
    assert "nowhere.csv" in first["error"]
    assert "secret: not an option of sanity" in second["error"]
    assert process.returncode == 0


def test_a_question_is_asked_in_a_process_and_refusals_are_shown(place):
    client = enter(place)
    asked = {"task": "sanity", "data": "nowhere.csv", "epsilon": "1", "name": "first"}
    address = client.post("/questions/ask", data=asked).headers["hx-redirect"]
    (one,) = place.questions.all()
    assert one.words[-1] == f"--ledger={place.ledgers[0]}"
    assert f"--out={place.folder / 'first'}" in one.words
    one.process.wait()
    events = client.get(f"{address}/events").text
    assert "nowhere.csv" in events
    assert events.endswith("event: done\ndata: refused\n\n")
    assert "refused" in client.get(address).text
    assert "first" in client.get("/questions").text
    assert [path.name for path in place.folder.iterdir()] == [".studio"]  # and no run in the list
    assert place.listing.rows() == []
    assert client.post(f"{address}/stop").status_code == 409
    assert client.get("/questions/0123").status_code == 404


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "-x", "a b", "x" * 81])
def test_a_run_is_not_made_elsewhere(place, name):
    answer = enter(place).post("/questions/ask", data={"task": "sanity", "data": "digits", "name": name})
    assert answer.status_code == 404
    assert place.questions.all() == []


def test_a_question_is_stopped(place, monkeypatch):
    monkeypatch.setattr("blindsight.studio.asked.COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    client = enter(place)
    address = client.post("/questions/ask", data={"task": "sanity", "data": "digits"}).headers["hx-redirect"]
    (one,) = place.questions.all()
    try:
        again = client.post("/questions/ask", data={"task": "sanity", "data": "digits"})
        assert (again.status_code, "is being asked already" in again.text) == (409, True)
        monkeypatch.setattr(one.process, "terminate", lambda: (one.process.kill(), one.process.wait()))  # and at once
        assert "Stopping." in client.post(f"{address}/stop").text
        assert one.state == "refused"
        assert "ended already" in client.post(f"{address}/stop").text
    finally:
        one.process.kill()
        one.process.wait()
