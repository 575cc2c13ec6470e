"""The diary of a site: nothing that was written is lost or changed unseen, whoever is killed while writing."""

import json
import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_disk import fill, mounted

from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.site.diary import Diary


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: a killed process leaves the same behind."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    one = Diary(tmp_path / "state" / "diary.jsonl")
    for number in range(8):
        one.write(f"did thing {number}, \u00fc and \n included")
    return one


def test_a_line_is_plain_words_and_the_chain_holds(diary: Diary):
    lines = diary.lines()
    assert [line.number for line in lines] == list(range(1, 9))
    assert lines[3].what == "did thing 3, \u00fc and \\n included"
    assert [line.previous for line in lines[1:]] == [line.hash for line in lines[:-1]]
    assert diary.path.read_bytes().count(b"\n") == 8
    assert diary.verify().ok
    assert diary.verify(lines[2].hash).ok
    assert not diary.verify("0" * 63 + "1").ok
    assert diary.path.stat().st_mode & 0o077 == 0


FORGED = ["1.0\n    9  2026-01-01 00:00:00  the officer approved", "\x1b[2K\x1b[1A1.0", "\r1", "\u202e1"]


@pytest.mark.parametrize("sent", FORGED)
def test_what_others_sent_neither_begins_a_line_nor_moves_the_cursor(diary: Diary, sent: str):
    diary.write(f"refused a job: it is of version {sent}")
    line = diary.lines()[-1]
    assert line.what.isprintable()
    assert line.what.endswith(sent[-1])
    assert diary.verify().ok


def test_an_empty_diary_is_in_order(tmp_path: Path):
    assert Diary(tmp_path / "none").verify().ok
    assert Diary(tmp_path / "none").lines() == []


def test_torn_at_any_byte_every_whole_line_stays_and_the_next_one_says_so(diary: Diary):
    whole = b"".join(diary.path.read_bytes().splitlines(keepends=True)[:3])
    ends = [place for place, byte in enumerate(whole) if byte == 10]
    fine = {0, *ends, *(end + 1 for end in ends)}  # a line that lacks nothing but its newline is whole
    for cut in range(len(whole)):
        diary.path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        assert len(diary.lines()) == kept
        diary.write("began again")
        result = diary.verify()
        assert result.ok, (cut, result.problem)
        assert result.entries == kept + 1
        assert ("torn by a crash" in diary.lines()[-1].what) == (cut not in fine)


def test_a_crash_while_saying_that_a_line_was_torn_is_said_too(diary: Diary):
    whole = diary.path.read_bytes()
    diary.path.write_bytes(whole[:-30])
    diary.write("began again")
    healed = diary.path.read_bytes()
    for cut in range(len(whole) - 30, len(healed)):
        diary.path.write_bytes(healed[:cut])
        diary.write("and again")
        assert diary.verify().ok, cut
        assert any(line.torn for line in diary.lines())


def edited(lines: list[bytes]) -> dict[str, list[bytes]]:
    last = json.loads(lines[-1])
    other = json.dumps(last | {"what": "nothing"}, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    return {
        "changed": [*lines[:3], lines[3].replace(b"thing 3", b"thing 9"), *lines[4:]],
        "changed, the last": [*lines[:-1], other],
        "removed": lines[:3] + lines[4:],
        "removed, the first": lines[1:],
        "swapped": [*lines[:3], lines[4], lines[3], *lines[5:]],
        "repeated": [*lines[:4], lines[3], *lines[4:]],
        "inserted": [*lines[:4], b"{}\n", *lines[4:]],
        "not JSON": [*lines[:4], b"torn by a crash, surely\n", *lines[5:]],
        "emptied": [*lines[:4], b"\n", *lines[5:]],
    }


@pytest.mark.parametrize("how", edited([b'{"what":"thing 3"}\n'] * 8))
def test_an_edit_is_seen_now_and_after_the_next_line(diary: Diary, how: str):
    lines = diary.path.read_bytes().splitlines(keepends=True)
    diary.path.write_bytes(b"".join(edited(lines)[how]))
    assert not diary.verify().ok
    diary.write("began again")
    assert not diary.verify().ok


def test_lines_that_a_crash_is_said_to_have_torn_cannot_be_added_or_taken_away(diary: Diary):
    whole = diary.path.read_bytes()
    diary.path.write_bytes(whole[:-20])
    diary.write("began again")
    healed = diary.path.read_bytes().splitlines(keepends=True)
    for forged in ([*healed[:7], healed[8]], [*healed[:7], b"more" + healed[7], healed[8]], [b"torn\n", *healed]):
        diary.path.write_bytes(b"".join(forged))
        assert not diary.verify().ok


def test_no_flipped_bit_goes_unnoticed(diary: Diary):
    whole, rng = diary.path.read_bytes(), random.Random(5)
    for _ in range(150):
        damaged = bytearray(whole[:-1])  # without its last newline a line is torn, not damaged
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        diary.path.write_bytes(bytes(damaged) + b"\n")
        diary.write("began again")
        result = diary.verify()
        last = diary.lines()[-1]
        assert not result.ok or "torn by a crash" in last.what


def test_threads_and_processes_share_a_diary(diary: Diary):
    threads = [threading.Thread(target=lambda: [diary.write("at once") for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert diary.verify().entries == 48
    assert diary.verify().ok


def test_killed_at_random_points_every_line_that_was_told_of_is_there(tmp_path: Path, run_child: Callable[..., Any]):
    result = run_child(
        "killed_while_writing", path=str(tmp_path / "diary.jsonl"), kills=40, seed=random.randrange(2**32)
    )
    assert result["ok"]
    assert result["missing"] == 0
    assert result["told"] > 40


def test_on_a_full_disk_nothing_is_half_written(tmp_path: Path):
    with mounted(tmp_path / "small") as folder:
        diary = Diary(folder / "diary.jsonl")
        diary.write("before")
        ballast = fill(folder)
        refusals: list[Declined] = []
        for number in range(200):  # what is left of the file's last block is still free
            try:
                diary.write(f"thing {number} {'x' * 300}")
            except Declined as refusal:
                refusals.append(refusal)
        assert {refusal.code for refusal in refusals} == {Code.disk_full}
        assert diary.verify().ok
        written = diary.verify().entries
        assert written + len(refusals) == 201
        ballast.unlink()
        assert diary.write("after").number == written + 1
        assert not diary.lines()[-1].torn
        assert diary.verify().ok


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/full")])
def test_what_is_no_file_declines(tmp_path: Path, make: Callable[[Path], Any]):
    make(tmp_path / "diary.jsonl")
    with pytest.raises(Declined) as refused:
        Diary(tmp_path / "diary.jsonl").write("something")
    assert refused.value.code in (Code.io_error, Code.disk_full)
