"""The ledger's page says what the ledger says: what is spent, what would be, whether the chain holds, and exports."""

import csv
import getpass
import io
import json
import re
import sqlite3
from pathlib import Path

import pytest
from studio_runs import enter

from blindsight import runs
from blindsight.accounting.events import Gaussian
from blindsight.accounting.guarantee import round_up
from blindsight.accounting.ledger import Ledger, verify_export
from blindsight.accounting.planning import solve_noise
from blindsight.accounting.statement import account
from blindsight.studio.web import Workspace


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("clinic", epsilon=4.0, delta=1e-6, note="until spring")
    for number in range(3):
        ledger.record(Gaussian(8.0, rounded=True), population="clinic", run=f"slices-{number % 2} ab12 on cpu")
    ledger.record(Gaussian(4.0, rounded=True), population="<b>phones</b>", run="train")
    return ledger


@pytest.fixture
def client(ledger, tmp_path):
    return enter(Workspace(folder=tmp_path / "runs", ledgers=(ledger.path,)))


def test_numbers_are_the_ledgers(client, ledger):
    shown = client.get("/ledger").text
    for name, escaped in (("clinic", "clinic"), ("<b>phones</b>", "&lt;b&gt;phones&lt;/b&gt;")):
        one = account(ledger, name)
        assert f'<b data-population="{escaped}">{round_up(one.adaptive_epsilon)}</b>' in shown
        assert f'<b data-planned="{escaped}">{round_up(one.spent.epsilon)}</b>' in shown
        assert one.state in shown
    clinic = account(ledger, "clinic")
    assert clinic.spent.epsilon < clinic.adaptive_epsilon  # two numbers, so neither stands for the other
    share = 100 * clinic.adaptive_epsilon / 4
    assert f'<rect class="full" width="{round(share, 2)}"' in shown
    assert "<b>phones" not in shown
    assert re.search(r"slices-0 <small>2 releases", shown)
    assert "Chain verified" in shown
    assert ledger.verify().head in shown


def test_who_spent_it_is_told_for_runs_whose_folder_is_here(tmp_path):
    run = runs.begin(tmp_path / "runs" / "slices", "slices", {})
    ledger, key = Ledger(tmp_path / "ledger.db"), run.read("run.json")["id"]
    for name in (f"slices {key} on 2 cpu", "slices 0123456789abcdef", "elsewhere ab12"):
        ledger.record(Gaussian(8.0, rounded=True), population="clinic", run=name)
    shown = enter(Workspace(folder=tmp_path / "runs", ledgers=(ledger.path,))).get("/ledger").text
    people = re.findall(r'<td data-label="by">(.*?)</td>', shown)
    assert people == ["", "", getpass.getuser()]  # the newest first; another run of that name is nobody's known
    assert f"<li>slices <small>1 release, by {getpass.getuser()}</small></li>" in shown


def test_only_what_has_a_budget_has_a_bar(client):
    shown = client.get("/ledger").text
    assert (shown.count("<article"), shown.count('<svg class="meter')) == (2, 2)  # two bars of the clinic


def test_a_refusal_says_the_number_that_the_page_says(tmp_path):
    """The only release so far counts as a plan; once another one follows, as one of several."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("phones", epsilon=2.0, delta=1e-6)
    noise = solve_noise(lambda z: Gaussian(z, rounded=True), epsilon=1.99, delta=1e-6)
    ledger.record(Gaussian(noise, rounded=True), population="phones")
    asked = {"population": "phones", "epsilon": "2", "times": "1"}
    shown = enter(Workspace(folder=tmp_path, ledgers=(ledger.path,))).get("/ledger/foresee", params=asked).text
    before = round_up(ledger.adaptive_epsilon("phones"))
    assert shown.count(f"from epsilon {before} to") == 2


@pytest.mark.parametrize(("epsilon", "times", "allowed"), [(0.5, 1, True), (3.9, 1, False), (1.0, 20, False)])
def test_what_if_is_what_the_ledger_would_do(client, ledger, epsilon, times, allowed):
    asked = {"population": "clinic", "epsilon": str(epsilon), "times": str(times), "task": "slices"}
    shown = client.get("/ledger/foresee", params=asked).text
    assert ("Allowed" in shown) is allowed
    assert ("Refused" in shown) is not allowed
    told = float(re.findall(r"<b data-after>([\d.]+)</b>", shown)[0])
    assert len(ledger.entries("clinic")) == 4  # nothing was written
    if not allowed:
        assert "over its budget of 4" in shown
        return
    noise = solve_noise(lambda z: Gaussian(z, rounded=True), epsilon=epsilon, delta=1e-6)
    for _ in range(times):
        ledger.record(Gaussian(noise, rounded=True), population="clinic")
    assert float(round_up(ledger.adaptive_epsilon("clinic"))) == told


def test_what_if_for_clients_nobody_asked_yet(client):
    shown = client.get("/ledger/foresee", params={"population": "new", "epsilon": "2"}).text
    assert "No budget limits it" in shown
    assert "from epsilon 0" in shown
    assert re.search(r"<b data-after>(2.000|1.999\d*)</b>", shown)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"population": "x"},
        {"population": "x", "epsilon": "-1"},
        {"population": "x", "epsilon": "nan"},
        {"population": "x", "epsilon": "1", "times": "0"},
        {"population": "x\0", "epsilon": "1"},
        {"population": "clinic", "epsilon": "1", "at": "7"},
    ],
)
def test_a_what_if_without_sense_is_one_sentence(client, asked):
    answer = client.get("/ledger/foresee", params=asked, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert 'role="alert"' in answer.text


def test_exports_hold_every_entry(client, ledger):
    lines = client.get("/ledger/export.jsonl").text.splitlines()
    assert verify_export(lines, witness=ledger.verify().head).ok
    assert json.loads(client.get("/ledger/export.json").text) == [json.loads(line) for line in lines]
    answer = client.get("/ledger/export.csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="ledger.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["hash"] for row in rows] == [entry.hash for entry in ledger.entries()]
    assert [row["population"] for row in rows].count("clinic") == 4
    assert client.get("/ledger/export.exe").status_code == 404


def test_a_spreadsheet_takes_no_cell_for_a_formula(client, ledger):
    ledger.record(Gaussian(4.0), population="=cmd|' /C calc'!A0", note="+1")
    rows = list(csv.DictReader(io.StringIO(client.get("/ledger/export.csv").text)))
    assert (rows[-1]["population"], rows[-1]["note"]) == ("'=cmd|' /C calc'!A0", "'+1")


def test_an_edited_ledger_is_said(client, ledger):
    with sqlite3.connect(ledger.path) as db:
        triggers = "SELECT name FROM sqlite_master WHERE type='trigger' AND tbl_name='entries'"
        for (name,) in db.execute(triggers).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE entries SET note = 'forged' WHERE number = 2")
    db.close()
    shown = client.get("/ledger").text
    assert "Not intact" in shown
    assert "entry 2 was edited" in shown


def test_entries_of_one_population(client):
    shown = client.get("/ledger", params={"population": "clinic"}, headers={"HX-Target": "entries"}).text
    assert shown.count("<tr>") == 5  # a head and four
    assert "budget: epsilon 4 at delta 1e-06" in shown
    assert "phones" not in shown


def test_no_ledger_is_made_by_looking(tmp_path):
    path = tmp_path / "other.db"
    client = enter(Workspace(folder=tmp_path, ledgers=(path,)))
    assert "No ledger here yet" in client.get("/ledger").text
    assert client.get("/ledger/export.csv").status_code == 200
    assert not path.exists()


def test_several_ledgers(tmp_path, ledger):
    other = Ledger(tmp_path / "other.db")
    other.set_budget("tablets", epsilon=1.0, delta=1e-6)
    client = enter(Workspace(folder=tmp_path, ledgers=(ledger.path, other.path)))
    assert "tablets" not in client.get("/ledger").text
    assert "tablets" in client.get("/ledger", params={"at": "1"}).text
    assert client.get("/ledger", params={"at": "2"}).status_code == 404
