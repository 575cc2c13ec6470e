"""The ledger under real faults: killed processes, full disks, missing rights, damaged and foreign files."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from small_disk import fill, mounted

import blindsight
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.errors import BlindsightError, LedgerCorrupted, LedgerError, LedgerFromTheFuture, LedgerTampered

CHILD = Path(__file__).with_name("ledger_child.py")
EVENT = Gaussian(100.0)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


def child(command: str, **arguments: Any) -> Any:
    """What a command of `ledger_child` prints."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(next(iter(blindsight.__path__))).parent),
        "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
        "OMP_NUM_THREADS": "1",
    }
    call = [sys.executable, str(CHILD), command, json.dumps(arguments)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: a killed process leaves the same behind, and 200 of them take seconds."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    """A ledger of many pages."""
    book = Ledger(tmp_path / "ledger.db")
    with book._file.connected(writing=True) as db:
        db.execute("PRAGMA synchronous = OFF")
    for i in range(60):
        book.record(EVENT, population="phones", run=f"r{i}", note="x" * 500)
    return book


def one_sentence(error: BaseException) -> bool:
    text = str(error)
    return "\n" not in text and ". " not in text and not text.endswith(".") and "Traceback" not in text


def refuses(book: Ledger, kind: type[LedgerError]) -> None:
    """Every call raises `kind` in one sentence, and the file and its folder stay byte for byte as they were."""
    before = contents(book.path.parent)
    calls: list[Callable[[], Any]] = [
        lambda: book.record(EVENT, population="phones"),
        lambda: book.set_budget("phones", epsilon=1.0, delta=1e-6),
        lambda: book.spent("phones", 1e-6),
        lambda: book.budget("phones"),
        lambda: list(book.export()),
        book.entries,
        book.populations,
        book.verify,
    ]
    for call in calls:
        with pytest.raises(kind) as raised:
            call()
        assert raised.type is kind
        assert one_sentence(raised.value)
        assert str(book.path) in str(raised.value)
    assert contents(book.path.parent) == before


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


# --- killed


@needs_fork
@pytest.mark.parametrize("kills", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_killed_at_random_points_no_value_lacks_its_entry(tmp_path: Path, kills: int):
    found = child("killed", folder=str(tmp_path), kills=kills, seed=random.randrange(2**32))
    assert found["missing"] == 0
    assert found["entries"] > found["values"] > kills // 7  # it did release, and died between entry and value
    assert found["died_in_record_lost"] >= kills // 20
    assert found["died_in_record_kept"] + found.get("died_before_value", 0) >= kills // 60


@needs_fork
def test_the_same_on_a_disk(on_disk: Path):
    found = child("killed", folder=str(on_disk), kills=40, seed=random.randrange(2**32))
    assert found["missing"] == 0
    assert found["entries"] > found["values"]


@needs_fork
def test_the_tests_above_would_see_values_used_before_they_are_recorded(tmp_path: Path):
    assert child("killed", folder=str(tmp_path), kills=40, seed=1, value_first=True)["missing"] > 0


@needs_fork
def test_a_fork_while_another_thread_records_loses_nothing(tmp_path: Path):
    found = child("forks", path=str(tmp_path / "l.db"), children=20)
    assert found["failed"] == 0
    assert found["ok"]
    assert found["entries"] == found["expected"] > 60


def test_a_new_ledger_and_every_folder_on_its_way_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Otherwise a power cut could take away a file, whole as it is, that a release was recorded in."""
    synced: set[tuple[int, int]] = set()

    def fsync(handle: int) -> None:
        synced.add((os.fstat(handle).st_dev, os.fstat(handle).st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    book = Ledger(tmp_path / "new" / "deep" / "l.db")
    book.record(EVENT, population="phones")
    for path in (book.path, *list(book.path.parents)[:3]):
        assert (path.stat().st_dev, path.stat().st_ino) in synced


def test_threads_share_a_ledger(tmp_path: Path):
    book = Ledger(tmp_path / "l.db")
    threads = [
        threading.Thread(target=lambda: [book.record(EVENT, population="phones") for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(book.entries()) == 40
    assert book.verify().ok


@pytest.mark.parametrize("exception", [KeyboardInterrupt, MemoryError])
def test_an_exception_before_the_commit_leaves_nothing_behind(
    book: Ledger, monkeypatch: pytest.MonkeyPatch, exception: type[BaseException]
):
    from blindsight.accounting import ledger_file

    insert = ledger_file.insert

    def interrupted(*arguments: Any) -> None:
        insert(*arguments)
        raise exception

    monkeypatch.setattr(ledger_file, "insert", interrupted)
    with pytest.raises(exception):
        book.record(EVENT, population="phones")
    monkeypatch.undo()
    assert book.verify().entries == 60
    assert book.record(EVENT, population="phones").number == 61


# --- full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "small") as folder:
        yield folder


def test_on_a_full_disk_nothing_is_granted_and_nothing_is_lost(small_disk: Path):
    book = Ledger(small_disk / "ledger.db")
    granted = [book.record(EVENT, population="phones") for _ in range(5)]
    ballast = fill(small_disk)
    for _ in range(3):
        with pytest.raises(LedgerError, match="disk is full") as refused:
            book.record(EVENT, population="phones")
        assert one_sentence(refused.value)
        assert "do not use the value" in str(refused.value)
    ballast.unlink()
    assert book.entries() == granted
    assert book.verify().ok
    assert book.record(EVENT, population="phones").number == 6


def test_a_disk_that_fills_up_while_recording_keeps_every_granted_entry(small_disk: Path):
    book, granted = Ledger(small_disk / "ledger.db"), 0
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * 2**17)

    def record_on() -> None:
        nonlocal granted
        while granted < 2000:
            book.record(EVENT, population="phones", note="x" * 400)
            granted += 1

    with pytest.raises(LedgerError, match="disk is full"):
        record_on()
    assert granted > 20
    ballast.unlink()
    assert len(book.entries()) >= granted
    assert book.verify().ok
    book.record(EVENT, population="phones")


def test_a_ledger_cannot_be_created_on_a_full_disk_and_can_be_afterwards(small_disk: Path):
    ballast = fill(small_disk)
    book = Ledger(small_disk / "folder" / "ledger.db")
    with pytest.raises(LedgerError, match="disk is full"):
        book.record(EVENT, population="phones")
    assert book.entries() == []
    ballast.unlink()
    assert book.record(EVENT, population="phones").number == 1


def test_a_limit_on_file_sizes_is_like_a_full_disk(tmp_path: Path):
    pytest.importorskip("resource", reason="this platform has no limits on file sizes")
    found = child("limited", path=str(tmp_path / "l.db"))
    assert "disk is full or failing" in found["error"]
    assert found["granted"] == found["before"] == found["after"] - 1
    assert found["granted"] > 5


# --- missing rights


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this platform has other rights")
def test_without_the_right_to_write_one_can_read_and_nothing_is_lost(open_folder: Path):
    folders = {name: open_folder / name for name in ("folder", "file", "empty", "closed", "crashed")}
    for name, folder in folders.items():
        folder.mkdir()
        if name != "empty":
            Ledger(folder / "ledger.db").record(EVENT, population="phones")
    leave_a_log_behind(folders["crashed"] / "ledger.db")
    before = contents(open_folder)
    folders["file"].chmod(0o777)
    (folders["file"] / "ledger.db").chmod(0o444)
    (folders["folder"] / "ledger.db").chmod(0o666)
    for name, mode in (("folder", 0o555), ("empty", 0o555), ("closed", 0o000), ("crashed", 0o555)):
        folders[name].chmod(mode)
    answers = child("unprivileged", paths=[str(folder / "ledger.db") for folder in folders.values()])
    for folder in folders.values():
        folder.chmod(0o755)
    by_name: dict[str, dict[str, Any]] = dict(zip(folders, answers, strict=True))
    for name, answer in by_name.items():
        assert answer["record"].startswith("LedgerError: "), (name, answer)
        assert "write permission" in answer["record"]
    for name in ("folder", "file"):
        assert (by_name[name]["read"], by_name[name]["verify"]) == (1, True)
    assert (by_name["empty"]["read"], by_name["empty"]["verify"]) == (0, True)
    assert by_name["closed"]["read"].startswith("LedgerError: ")
    assert by_name["crashed"]["read"] == 2 or by_name["crashed"]["read"].startswith("LedgerError: ")
    assert contents(open_folder) == before
    assert len(Ledger(folders["crashed"] / "ledger.db").entries()) == 2


def leave_a_log_behind(path: Path) -> None:
    """What a crash right after a commit leaves: an entry that is in the log only."""
    aside = path.with_name("aside.db")
    shutil.copy(path, aside)
    other = Ledger(aside)
    with closing(sqlite3.connect(aside)) as reader:  # as long as it is open, the log stays
        reader.execute("SELECT * FROM head").fetchone()
        other.record(EVENT, population="phones")
        log = aside.with_name("aside.db-wal").read_bytes()
    aside.unlink()
    path.with_name(path.name + "-wal").write_bytes(log)


def test_an_entry_that_is_only_in_the_log_is_found_after_a_crash_and_missed_by_a_witness_if_deleted(tmp_path: Path):
    book = Ledger(tmp_path / "l.db")
    book.record(EVENT, population="phones")
    leave_a_log_behind(book.path)
    copy = Ledger(tmp_path / "copy.db")
    shutil.copy(book.path, copy.path)  # without its log: what a careless copy, or deleting the log, gives
    witness = book.verify().raise_if_broken().head
    assert len(book.entries()) == 2
    assert copy.verify().entries == 1
    assert not copy.verify(witness).ok


def test_after_every_call_the_file_alone_is_a_whole_copy(tmp_path: Path):
    book = Ledger(tmp_path / "l.db")
    for i in range(5):
        witness = book.record(EVENT, population="phones").hash
        copy = Ledger(tmp_path / f"copy-{i}.db")
        shutil.copy(book.path, copy.path)
        assert copy.verify(witness).entries == i + 1


# --- locked


def test_a_ledger_that_stays_locked_is_refused_in_time_and_read_meanwhile(tmp_path: Path):
    book = Ledger(tmp_path / "l.db", timeout_s=0.1)
    book.record(EVENT, population="phones")
    with closing(sqlite3.connect(book.path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"locked it for more than 0\.1 s") as refused:
            book.record(EVENT, population="phones")
        assert one_sentence(refused.value)
        assert len(book.entries()) == 1
        assert book.verify().ok
        db.execute("ROLLBACK")
    assert book.record(EVENT, population="phones").number == 2


# --- the path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "folder"),
        (lambda path: os.mkfifo(path), "device"),
        (lambda path: path.symlink_to(path), "ledger"),
        (lambda path: path.symlink_to("/dev/null"), "device"),
    ],
)
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None], words: str):
    path = tmp_path / "odd"
    make(path)
    for call in (Ledger(path).entries, lambda: Ledger(path).record(EVENT, population="phones")):
        with pytest.raises(LedgerError, match=words) as refused:
            call()
        assert one_sentence(refused.value)


def test_a_path_below_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    for call in (Ledger(tmp_path / "file" / "l.db").verify, lambda: Ledger(tmp_path / "file" / "l.db").export()):
        with pytest.raises(LedgerError):
            call()
    with pytest.raises(BlindsightError):
        Ledger("a\0b")
    with pytest.raises(BlindsightError):
        Ledger(tmp_path / ("x" * 300)).record(EVENT, population="phones")
    with pytest.raises(BlindsightError):
        Ledger(tmp_path / "l.db", timeout_s=float("nan"))


def test_odd_paths_and_links_lead_to_the_same_ledger(tmp_path: Path):
    book = Ledger(tmp_path / "50% of #1? & ü.db")
    (tmp_path / "link.db").symlink_to(book.path)
    Ledger(tmp_path / "link.db").record(EVENT, population="phones")
    assert book.record(EVENT, population="phones").number == 2
    assert Ledger(tmp_path / "link.db").entries() == book.entries()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([book.path.name, "link.db"])


# --- foreign and damaged files


def test_a_ledger_from_the_future_is_not_touched(book: Ledger):
    with closing(sqlite3.connect(book.path)) as db:
        db.execute("PRAGMA user_version = 2")
    refuses(book, LedgerFromTheFuture)


def damage(name: str, whole: bytes) -> bytes:
    """Ways in which a file of SQLite pages goes bad."""
    page, rng = 4096, random.Random(7)
    assert len(whole) > 10 * page
    return {
        "empty": lambda: b"",
        "truncated in half": lambda: whole[: len(whole) // 2 // page * page],
        "truncated by a page": lambda: whole[:-page],
        "truncated in the header": lambda: whole[:50],
        "random bytes": lambda: rng.randbytes(len(whole)),
        "header of zeros": lambda: bytes(page) + whole[page:],
        "all zeros": lambda: bytes(len(whole)),
        "text": lambda: b"population,epsilon\nphones,3\n" * 300,
    }[name]()


@pytest.mark.parametrize(
    "name",
    [
        "empty",
        "truncated in half",
        "truncated by a page",
        "truncated in the header",
        "random bytes",
        "header of zeros",
        "all zeros",
        "text",
    ],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(book: Ledger, name: str):
    book.path.write_bytes(damage(name, book.path.read_bytes()))
    refuses(book, LedgerCorrupted)


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize(("application", "version"), [(0, 1), (1, 1), (2**31 - 1, 1), (int.from_bytes(b"BLND"), 0)])
def test_another_programs_database_is_refused_and_left_as_it_is(
    tmp_path: Path, journal: str, application: int, version: int
):
    book = Ledger(tmp_path / "notes.db")
    with closing(sqlite3.connect(book.path)) as db:
        db.execute(f"PRAGMA application_id = {application}")
        db.execute(f"PRAGMA user_version = {version}")
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("CREATE TABLE entries (number INTEGER)")
        db.commit()
        refuses(book, LedgerCorrupted)  # also while the other program has it open, its log included
    refuses(book, LedgerCorrupted)


def test_no_damaged_page_goes_unnoticed(book: Ledger):
    """Any page zeroed or scrambled: `verify` finds it, no other exception appears, and reading changes nothing."""
    whole, page, rng = book.path.read_bytes(), 4096, random.Random(3)
    for number in range(1, len(whole) // page):
        for new in (bytes(page), rng.randbytes(page), whole[page * (number - 1) : page * number]):
            damaged = whole[: page * number] + new + whole[page * (number + 1) :]
            book.path.write_bytes(damaged)
            assert not intact(book)
            assert book.path.read_bytes() == damaged
    book.path.write_bytes(whole)
    assert intact(book)


def test_no_flipped_bit_in_an_entry_goes_unnoticed_and_none_crashes(book: Ledger):
    whole, rng = book.path.read_bytes(), random.Random(5)
    entries, head = book.entries(), book.verify().head
    for _ in range(300):
        at = rng.randrange(100, len(whole))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        book.path.write_bytes(damaged)
        if intact(book):  # a bit of unused space, or of a column's name that nothing reads
            assert book.entries() == entries
            assert book.verify().head == head


def intact(book: Ledger) -> bool:
    try:
        return book.verify().ok
    except (LedgerCorrupted, LedgerTampered):
        return False


def test_recording_into_a_damaged_ledger_raises_nothing_but_our_errors(book: Ledger):
    whole, page = book.path.read_bytes(), 4096
    outcomes: list[LedgerError | None] = []
    for number in range(1, len(whole) // page):
        book.path.write_bytes(whole[: page * number] + bytes(page) + whole[page * (number + 1) :])
        try:
            book.record(EVENT, population="phones")
            outcomes.append(None)  # nothing it had to read was damaged, and what was is still there to be found
            assert not intact(book)
        except LedgerError as error:
            outcomes.append(error)
    assert {type(error) for error in outcomes} >= {LedgerCorrupted, type(None)}
    assert all(one_sentence(error) for error in outcomes if error)
