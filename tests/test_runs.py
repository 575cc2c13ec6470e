"""Run directories: whole files or none, durable lines, and nothing overwritten."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from blindsight import __version__, runs
from blindsight.errors import BlindsightError, InvalidInput


def test_a_new_run_never_reuses_a_directory(tmp_path):
    made = [runs.create("demo", {"a": 1}, folder=tmp_path) for _ in range(5)]
    assert len({run.path for run in made}) == 5
    about = made[0].read("run.json")
    assert (about["name"], about["version"], about["settings"]) == ("demo", __version__, {"a": 1})
    assert {run.path for run in runs.find(tmp_path)} == {run.path for run in made}


@pytest.mark.parametrize("name", ["", "a/b", "..", "."])
def test_a_name_that_is_a_path_is_refused(tmp_path, name):
    with pytest.raises(InvalidInput, match="one word"):
        runs.create(name, {}, folder=tmp_path)


def test_only_a_run_opens_as_a_run(tmp_path):
    with pytest.raises(InvalidInput, match=r"no run\.json"):
        runs.open_run(tmp_path)
    run = runs.create("x", {}, folder=tmp_path)
    assert runs.open_run(run.path) == run
    with pytest.raises(InvalidInput, match=r"has no guarantee\.json"):
        run.read("guarantee.json")
    (run.path / "guarantee.json").write_text("{")
    with pytest.raises(InvalidInput, match="not JSON"):
        run.read("guarantee.json")


def test_values_that_json_cannot_hold_leave_the_old_file(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    run.write("value.json", {"epsilon": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        run.write("value.json", {"epsilon": float("nan")})
    assert run.read("value.json") == {"epsilon": 1.0}
    assert sorted(path.name for path in run.path.iterdir()) == ["run.json", "value.json"]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BlindsightError, match="choose another folder"):
        runs.create("x", {}, folder=tmp_path / "file")


def test_lines_survive_and_a_torn_last_line_is_left_out(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    assert run.rows("metrics.jsonl") == []
    for round_ in range(3):
        run.append("metrics.jsonl", {"round": round_})
    with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as out:
        out.write('{"round": 3')
    assert [row["round"] for row in run.rows("metrics.jsonl")] == [0, 1, 2]


def test_a_reader_never_sees_half_a_file_when_the_writer_is_killed(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    run.write("big.json", {"version": 0, "rows": []})
    code = (
        "import sys; from blindsight import runs\n"
        "run = runs.open_run(sys.argv[1]); version = 0\n"
        "while True:\n"
        "    version += 1; run.write('big.json', {'version': version, 'rows': list(range(20000))})\n"
    )
    seen = set()
    for kill in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code, str(run.path)])
        before = run.read("big.json")["version"]
        deadline = time.monotonic() + 20
        while run.read("big.json")["version"] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.005 * kill)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        value = json.loads((run.path / "big.json").read_text())
        assert len(value["rows"]) == 20000
        seen.add(value["version"])
    assert len(seen) > 1  # the writer really was at work
