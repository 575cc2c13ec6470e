"""Run directories: whole files or none, durable lines, and nothing overwritten."""

import errno
import json
import os
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


def test_a_reader_never_sees_half_a_file_when_the_writer_is_killed(tmp_path, spawn):
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
        writer = spawn(sys.executable, "-c", code, str(run.path))
        before = run.read("big.json")["version"]
        while run.read("big.json")["version"] == before:
            time.sleep(0.01)
        time.sleep(0.005 * kill)
        writer.kill()
        writer.wait()
        value = json.loads((run.path / "big.json").read_text())
        assert len(value["rows"]) == 20000
        seen.add(value["version"])
    assert len(seen) > 1  # the writer really was at work


# --- runs that go on


SETTINGS = {"name": "x", "privacy": {"clip": 1.0, "rounds": 5}, "sizes": (3, 4)}


def test_a_run_begins_once_and_is_found_after(tmp_path):
    first = runs.begin(tmp_path / "a" / "run", "x", SETTINGS)
    about = first.read("run.json")
    assert (about["name"], about["version"]) == ("x", __version__)
    assert about["settings"] == json.loads(json.dumps(SETTINGS))
    assert runs.begin(tmp_path / "a" / "run", "x", SETTINGS) == first
    assert first.read("run.json") == about  # the same run, id and all
    assert runs.begin(tmp_path / "b", "x", SETTINGS).read("run.json")["id"] != about["id"]


def test_a_run_deleted_and_begun_again_is_another_run(tmp_path):
    """Its ledger entries must not pass for payments of the new one."""
    first = runs.begin(tmp_path / "run", "x", SETTINGS).read("run.json")["id"]
    (tmp_path / "run" / "run.json").unlink()
    assert runs.begin(tmp_path / "run", "x", SETTINGS).read("run.json")["id"] != first


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**SETTINGS, "privacy": {"clip": 2.0, "rounds": 5}}, r"\(privacy\.clip\)"),
        ({**SETTINGS, "sizes": (3,), "name": "y"}, r"\(name, sizes\)"),
        ({**SETTINGS, "seed": 1}, r"\(seed\)"),
        ({"name": "x", "sizes": (3, 4)}, r"\(privacy\)"),
        ({**SETTINGS, "privacy": None}, r"\(privacy\)"),
    ],
)
def test_a_run_with_other_settings_is_refused_and_the_difference_named(tmp_path, settings, words):
    runs.begin(tmp_path / "run", "x", SETTINGS)
    for may_differ in ((), ("privacy", "rounds")):
        with pytest.raises(InvalidInput, match=rf"other settings {words}: choose another folder"):
            runs.begin(tmp_path / "run", "x", settings, may_differ=may_differ)


def test_one_setting_may_differ_if_it_is_named(tmp_path):
    longer = {**SETTINGS, "privacy": {"clip": 1.0, "rounds": 50}}
    run = runs.begin(tmp_path / "run", "x", SETTINGS)
    assert runs.begin(tmp_path / "run", "x", longer, may_differ=("privacy", "rounds")) == run
    with pytest.raises(InvalidInput, match=r"privacy\.rounds"):
        runs.begin(tmp_path / "run", "x", longer)
    with pytest.raises(InvalidInput, match=r"privacy\.rounds"):
        runs.begin(tmp_path / "run", "x", longer, may_differ=("privacy", "clip"))


@pytest.mark.parametrize("content", ["[]", "7", "{}", '{"settings": []}'])
def test_a_run_json_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InvalidInput, match="other settings"):
        runs.begin(tmp_path, "x", SETTINGS)


def test_only_wanted_lines_are_kept_and_a_torn_one_goes(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    run.keep_rows("metrics.jsonl", lambda row: True)
    assert not (run.path / "metrics.jsonl").exists()  # nothing to keep, nothing made
    for round_ in range(5):
        run.append("metrics.jsonl", {"round": round_, "text": "a\nb"})
    with open(run.path / "metrics.jsonl", "a", encoding="utf-8") as out:
        out.write('{"round": 5')
    run.keep_rows("metrics.jsonl", lambda row: row["round"] <= 2)
    run.append("metrics.jsonl", {"round": 3})
    assert [row["round"] for row in run.rows("metrics.jsonl")] == [0, 1, 2, 3]
    assert run.rows("metrics.jsonl")[0]["text"] == "a\nb"


def test_a_damaged_line_is_one_sentence(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    (run.path / "metrics.jsonl").write_text('{"round": 1}\n{"rou\n{"round": 3}\n')
    with pytest.raises(InvalidInput, match="not JSON"):
        run.rows("metrics.jsonl")


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    run = runs.create("x", {}, folder=tmp_path)
    run.write("value.json", 1)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: run.append("metrics.jsonl", {"round": 1}), lambda: run.write("value.json", 2)):
        with pytest.raises(BlindsightError, match="No space left on device"):
            write()
    assert run.read("value.json") == 1


HOLD = """
import sys, time
from blindsight import runs
with runs.open_run(sys.argv[1]).alone():
    print("mine", flush=True)
    time.sleep(120)
"""


def test_a_second_process_is_kept_out_until_the_first_is_killed(tmp_path, spawn):
    run = runs.create("x", {}, folder=tmp_path)
    holder = spawn(sys.executable, "-c", HOLD, str(run.path), stdout=subprocess.PIPE)
    assert holder.stdout.readline() == "mine\n"
    with pytest.raises(BlindsightError, match=r"another process is using .*: wait for it"), run.alone():
        pass
    second = subprocess.run([sys.executable, "-c", HOLD, str(run.path)], capture_output=True, text=True, check=False)
    assert "another process is using" in second.stderr
    holder.kill()
    holder.wait()
    with run.alone():  # nothing stale keeps anybody out
        pass


def test_a_run_is_free_again_when_its_block_ends_even_badly(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    with pytest.raises(ZeroDivisionError), run.alone():
        raise ZeroDivisionError
    with run.alone(), pytest.raises(BlindsightError, match="another process"), run.alone():
        pass


def test_a_lock_that_cannot_be_made_is_one_sentence(tmp_path):
    run = runs.create("x", {}, folder=tmp_path)
    (run.path / "lock").mkdir()
    with pytest.raises(BlindsightError, match=r"cannot write .*lock"), run.alone():
        pass


@pytest.mark.parametrize("name", [".", "..", "folder"])
def test_a_folder_is_no_file_to_write(name, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BlindsightError, match="choose"):
        runs.write_whole(name, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]
