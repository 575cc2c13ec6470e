"""The list of runs and one run's page: what is shown, what hostile folders cannot do, notes, and deleting with care."""

import getpass
import json
import os
import shutil
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from studio_runs import add_round, enter, inspection, promise, stored, training

from blindsight import runs
from blindsight.studio.listing import RunList
from blindsight.studio.web import Workspace

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def names(listing: RunList, **asked: object) -> list[str]:
    return [row.name for row in listing.select(**asked)]  # pyright: ignore[reportArgumentType]


def test_the_list_says_what_runs_are(folder):
    training(folder, "done")
    training(folder, "half", done=7)
    inspection(folder, "asked", verdict="invert, 48 % of clients.")
    rows = {row.name: row for row in RunList(folder).rows()}
    assert (rows["done"].kind, rows["done"].state, rows["done"].rounds) == ("train", "finished", 20)
    assert (rows["half"].state, rows["half"].rounds, rows["half"].planned) == ("unfinished", 7, 20)
    assert (rows["asked"].kind, rows["asked"].state) == ("slices", "finished")
    assert rows["asked"].verdict.startswith("invert, 48 % of clients.")
    assert (rows["asked"].epsilon, rows["asked"].promised) == (2.0, "2")
    with (folder / "half" / "lock").open("w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        assert {row.name: row.state for row in RunList(folder).rows()}["half"] == "running"


def test_filter_and_sort(folder):
    for name, epsilon in (("b", 3.0), ("a", 1.0), ("c", 2.0)):
        training(folder, name, epsilon=epsilon)
    inspection(folder, "d")
    (folder / "d" / "guarantee.json").unlink()
    listing = RunList(folder)
    assert names(listing, sort="name", up=True) == ["a", "b", "c", "d"]
    assert names(listing, sort="epsilon", up=True) == ["a", "c", "b", "d"]  # without one: last, either way
    assert names(listing, sort="epsilon") == ["b", "c", "a", "d"]
    assert names(listing) == ["d", "c", "a", "b"]  # newest first
    assert names(listing, kind="slices") == ["d"]
    assert names(listing, words="INVERT clients") == ["d"]
    assert names(listing, sort="nonsense") == names(listing)


def test_what_changed_is_read_again(folder):
    run = training(folder, "one", done=3)
    listing = RunList(folder)
    assert listing.rows()[0].rounds == 3
    add_round(run, 4)
    assert listing.rows()[0].rounds == 4
    run.write("studio.json", {"note": "good", "tags": ["x"]})
    assert listing.rows()[0].notes.tags == ("x",)
    run.write("result.json", {"rounds": 4, "stopped": "budget"})
    assert listing.rows()[0].state == "stopped"
    for file in run.path.iterdir():
        file.unlink()
    run.path.rmdir()
    assert listing.rows() == []


def test_a_thousand_runs_are_read_once(folder, monkeypatch):
    """How long that takes is for `benchmarks`; here: the second time no file of a run is opened."""
    for number in range(1000):
        path = folder / f"run-{number:04d}"
        path.mkdir(parents=True)
        (path / "run.json").write_text(json.dumps({"name": "x", "began": f"2026-01-01T{number:04d}", "settings": {}}))
    listing = RunList(folder)
    assert len(listing.rows()) == 1000
    monkeypatch.setattr("blindsight.studio.listing._row", lambda run: pytest.fail(f"{run} was read again"))
    began = time.process_time()
    assert len(listing.select(words="run-0")) == 1000
    assert time.process_time() - began < 10


def test_damaged_runs_are_listed_and_said(folder):
    for name, text in {
        "none": "",
        "list": "[]",
        "deep": "[" * 5000,
        "bytes": "\ufffd",
        "settings": '{"settings": 3}',
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "run.json").write_text(text)
        (folder / name / "guarantee.json").write_text('{"epsilon": "x"}')
        (folder / name / "metrics.jsonl").write_text(
            '{"round": 1}\n[]\n{]\n{"round": "x"}\n{"round": 2, "clip": "x"}\n'
        )
        (folder / name / "report.json").write_text('{\n "verdict": {"x": 1},\n "outcome": "\\ud800",\n')
    (folder / "no run").mkdir()
    (folder / "file").write_text("x")
    client = enter(Workspace(folder=folder))
    assert len(RunList(folder).rows()) == 5
    assert client.get("/runs").status_code == 200
    for name in ("none", "list", "deep", "bytes", "settings"):
        assert client.get(f"/runs/{name}").status_code in (200, 404), name
    assert client.get("/runs", params={"from": "9" * 40}).status_code == 200


@pytest.mark.parametrize("where", ["run", "report", "studio", "folder", "file"])
def test_a_run_with_half_a_letter_hides_no_other(folder, where):
    """JSON can spell half of a surrogate pair, and names of files are bytes: neither can be sent to a browser."""
    training(folder, "good")
    strange = inspection(folder, "odd").path
    values = dict.fromkeys(("verdict", "note", "began", "name"), "\ud800") | {"settings": {"\ud800": "\udfff"}}
    if where == "folder":
        shutil.copytree(strange, os.fsdecode(os.fsencode(folder) + b"/gr\xf6\xdfe"))
    elif where == "file":
        Path(os.fsdecode(os.fsencode(strange) + b"/gr\xf6\xdfe.txt")).write_text("")
    else:
        (strange / f"{where}.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    client = enter(Workspace(folder=folder, writable=True))
    for path in ("/runs", "/runs/good", "/compare?run=good&run=odd"):
        assert client.get(path).status_code == 200, path
    assert client.get("/runs/odd").status_code == 200
    assert "good" in client.get("/runs").text
    assert "odd" in client.get("/runs").text


def test_a_page_has_parameters_guarantee_curves_and_files(folder):
    training(folder, "one")
    shown = enter(Workspace(folder=folder)).get("/runs/one").text
    assert "privacy.<wbr>clip" in shown
    assert f"by {getpass.getuser()}" in shown
    assert "(2, 1e-06)-DP per client" in shown
    assert "round 20 of 20" in shown
    assert shown.count("simulation only") == 2  # accuracy and clients; the clip is public
    assert "accuracy by round: accuracy 0.865" in shown
    assert "metrics.jsonl" in shown


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('"outcome": "nothing",\n "tone": "nothing"', "nothing"),
        ('"outcome": "nothing",\n "tone": "unmeasured"', "unmeasured"),  # a question whose answer is no test
        ('"outcome": "nothing"', "unmeasured"),
        ('"outcome": "no claim"', "no-claim"),
        ('"title": "x"', "unmeasured"),
    ],
)
def test_nothing_is_green_that_was_not_measured(folder, said, shown):
    run = training(folder, "one")
    (run.path / "report.json").write_text(f'{{\n {said},\n "verdict": "So it is.",\n "x": 1\n}}\n')
    page = enter(Workspace(folder=folder)).get("/runs/one").text
    assert f'class="verdict {shown}"' in page


@pytest.mark.parametrize("where", ["name", "note", "tag", "verdict", "setting", "metric"])
def test_hostile_words_are_shown_as_words(folder, where):
    name = HOSTILE.replace("/", "") if where == "name" else "one"
    run = inspection(
        folder,
        name,
        verdict=HOSTILE if where == "verdict" else "fine",
        **({HOSTILE: HOSTILE} if where == "setting" else {}),
    )
    if where in ("note", "tag"):
        run.write(
            "studio.json", {"note": HOSTILE if where == "note" else "", "tags": [HOSTILE] if where == "tag" else []}
        )
    run.append("metrics.jsonl", {"round": 1, HOSTILE if where == "metric" else "clip": 1.0})
    run.append("metrics.jsonl", {"round": 2, HOSTILE if where == "metric" else "clip": 2.0})
    client = enter(Workspace(folder=folder, writable=True))
    for path in ("/runs", f"/runs/{quote(name)}"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<img" not in answer.text
    assert "&lt;img src=x" in client.get(f"/runs/{quote(name)}").text


OUTSIDE = [
    "..",
    "%2e%2e",
    "../runs/one",
    "..%2f..%2fetc",
    "%2fetc%2fpasswd",
    ".hidden",
    "link",
    "one%00",
    "one/../one",
    "",
]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("rest", ["", "/events", "/files/run.json"])
def test_no_name_leads_out_of_the_folder(folder, name, rest):
    training(folder, "one")
    outside = training(folder.parent, "elsewhere")
    (folder / "link").symlink_to(outside.path)
    training(folder, ".hidden")
    answer = enter(Workspace(folder=folder)).get(f"/runs/{name}{rest}")
    assert answer.status_code in (404, 200)
    if answer.status_code == 200:  # the client itself made the path shorter
        assert answer.url.path in ("/runs", "/runs/", "/runs/one", "/runs/one/files/run.json", "/runs/one/events")


@pytest.mark.parametrize(
    "file", ["../two/run.json", "..%2ftwo%2frun.json", "secret", "link.json", ".hidden", "lock", "studio.json"]
)
def test_no_file_but_the_listed_ones_is_given(folder, file):
    run = training(folder, "one")
    training(folder, "two")
    (run.path / "secret").mkdir()
    (run.path / ".hidden").write_text("x")
    (run.path / "lock").write_text("")
    (run.path / "studio.json").write_text("{}")
    (run.path / "link.json").symlink_to("/etc/hostname")
    assert enter(Workspace(folder=folder)).get(f"/runs/one/files/{file}").status_code == 404


def test_a_report_is_shown_in_a_sandbox(folder):
    run = inspection(folder, "one")
    client = enter(Workspace(folder=folder))
    policy = client.get("/runs/one/files/report.html").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-popups; default-src 'none'")
    assert "allow-same-origin" not in policy
    assert "script-src 'sha256-" in policy
    rules = {name: rest for name, _, rest in (rule.partition(" ") for rule in policy.split("; "))}
    assert "unsafe" not in rules["script-src"]
    assert "connect-src" not in rules
    (run.path / "evil.html").write_text("<script>alert(1)</script>")
    assert "sandbox" in client.get("/runs/one/files/evil.html").headers["content-security-policy"]
    kept = client.get("/runs/one/files/report.json")
    assert kept.headers["content-disposition"].startswith("attachment")


def test_notes_and_tags_are_kept_beside_the_run(folder):
    run = training(folder, "one")
    client = enter(Workspace(folder=folder, writable=True))
    answer = client.post("/runs/one/notes", data={"note": "a\r\nb", "tags": "good, good  best"})
    assert "Saved." in answer.text
    assert stored(run.path / "studio.json") == {"note": "a\nb", "tags": ["good", "best"]}
    assert "a\nb</textarea>" in client.get("/runs/one").text
    assert "one" in client.get("/runs", params={"words": "best"}).text
    asked = {"HX-Request": "true"}
    for fields in ({"note": "x" * 10_001}, {"tags": "x" * 41}, {"tags": " ".join(map(str, range(21)))}):
        assert 'role="alert"' in client.post("/runs/one/notes", data=fields, headers=asked).text
    assert client.post("/runs/one/notes", content=b"x" * 200_000).status_code == 413
    assert stored(run.path / "studio.json")["note"] == "a\nb"


def test_a_run_is_deleted_by_its_name_alone(folder):
    training(folder, "one")
    training(folder, "two")
    client = enter(Workspace(folder=folder, writable=True))
    for typed in ("", "two", "ONE", "one "):
        assert client.post("/runs/one/delete", data={"confirm": typed}).status_code == 404
        assert (folder / "one" / "run.json").exists()
    assert client.post("/runs/one/delete", data={"confirm": "one"}).headers["hx-redirect"] == "/runs"
    assert sorted(path.name for path in folder.iterdir()) == ["two"]
    assert client.post("/runs/one/delete", data={"confirm": "one"}).status_code == 404


def test_a_run_in_progress_is_not_deleted(folder):
    run = training(folder, "one", done=3)
    client = enter(Workspace(folder=folder, writable=True))
    with run.alone():
        answer = client.post("/runs/one/delete", data={"confirm": "one"})
        assert (answer.status_code, "another process is using" in answer.text) == (409, True)
        assert (run.path / "run.json").exists()
    assert client.post("/runs/one/delete", data={"confirm": "one"}).status_code == 200


def test_progress_is_sent_until_the_run_ends(folder):
    run = training(folder, "one", done=3)
    add_round(run, 4)
    answer = enter(Workspace(folder=folder)).get("/runs/one/events")  # nobody runs it: one picture, and the end
    assert answer.headers["content-type"].startswith("text/event-stream")
    progress, done, rest = answer.text.split("\n\n")
    assert progress.startswith("event: progress\ndata: ")
    assert "round 4 of 20" in progress
    assert (done, rest) == ("event: done\ndata: unfinished", "")


def test_an_empty_folder_says_how_to_begin(folder):
    assert "blindsight inspect slices" in enter(Workspace(folder=folder)).get("/runs").text


def test_a_promise_without_end_is_said(folder):
    run = training(folder, "one")
    run.write("guarantee.json", {**promise().to_dict(), "epsilon": "inf"})
    client = enter(Workspace(folder=folder))
    assert "epsilon = inf: no privacy guarantee" in client.get("/runs/one").text
    assert ">inf</td>" in client.get("/runs").text
    os.unlink(run.path / "guarantee.json")
    assert "no guarantee that can be read" in client.get("/runs/one").text


def test_runs_written_by_runs_create_are_found(folder):
    made = runs.create("mine", {"x": 1}, folder=folder)
    assert [row.name for row in RunList(folder).rows()] == [made.path.name]
