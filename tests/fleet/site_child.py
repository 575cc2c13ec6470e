"""What the fault tests of a site run in processes of their own: a line of JSON in, [COMMAND, ARGUMENTS], and one out.

Imports happen once, here; every command and all its processes are forked from this one, so that they cost little.
"""

import contextlib
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from site_folder import NOW, asked

from blindsight.accounting.events import Gaussian
from blindsight.fleet.codes import Declined
from blindsight.fleet.site import costs
from blindsight.fleet.site.book import Book
from blindsight.fleet.site.diary import Diary
from blindsight.fleet.site.settings import SiteSettings

CHEAP = Gaussian(1000.0)


def killed_while_paying(folder: str, kills: int, seed: int, value_first: bool = False) -> dict[str, int]:
    """Kills `kills` sites at random points while they decide, pay and contribute; what their files say afterwards."""
    rng, site = random.Random(seed), Path(folder)
    settings = SiteSettings.read(site / "SITE.toml")
    book = Book(settings)
    start = time.monotonic()
    _contribute(book, "warm", -1, os.open(site / "values", os.O_WRONLY | os.O_CREAT | os.O_APPEND), value_first)
    window_s = min(1.0, max(0.1, 3 * (time.monotonic() - start)))
    for kill in range(kills):
        if (child := os.fork()) == 0:
            _contribute_for_ever(settings, kill, value_first)
        time.sleep(rng.uniform(0, window_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    values = (site / "values").read_text(encoding="ascii").split()
    notes = {entry.note for entry in book.ledger.entries(settings.name)}
    lines = " ".join(line.what for line in book.diary.lines())
    book.diary.write("the end")
    return {
        "values": len(values),
        "entries": len(notes),
        "not in the ledger": sum(value not in notes for value in values),
        "not in the book": len(values) - sum(_paid_often(book, value) for value in values),
        "not in the diary": sum(f" {value}: " not in lines for value in values),
        "ledger is intact": book.ledger.verify().ok,
        "diary is intact": book.diary.verify().ok,
        "torn": sum(bool(line.torn) for line in book.diary.lines()),
    }


def _paid_often(book: Book, value: str) -> bool:
    return book.job(asked(value.rpartition("/")[0]).job).payments > int(value.rpartition("/")[2])


def _contribute_for_ever(settings: SiteSettings, kill: int, value_first: bool) -> None:
    try:
        out = os.open(settings.folder / "values", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in range(1000):
            _contribute(Book(settings), f"{kill}-{number}", kill, out, value_first)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _contribute(book: Book, name: str, kill: int, out: int, value_first: bool) -> None:
    """A question, approved by hand, with three rounds; each contribution is noted, after it is paid for, in a file."""
    question = asked(name, rounds=3)
    if book.decide(question, NOW).state == "pending":
        book.approve(question.job, officer=f"officer {kill}")
    for number in range(3):
        value = f"{name}/{number}"
        if value_first:  # the bug that the test must be able to see
            os.write(out, f"{value}\n".encode())
        book.pay(question.job, CHEAP, note=value, now=NOW)
        if not value_first:
            os.write(out, f"{value}\n".encode())


def race(folder: str, questions: list[str], processes: int, noise: float) -> dict[str, int]:
    """Processes that all pay for the same questions at once, as often as they are let; how often each was."""
    settings = SiteSettings.read(Path(folder) / "SITE.toml")
    start, children = time.monotonic() + 0.05, list[int]()
    for _ in range(processes):
        if (child := os.fork()) == 0:
            time.sleep(max(0.0, start - time.monotonic()))
            os._exit(_granted(settings, questions, noise))
        children.append(child)
    granted = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"granted": sum(granted), "crashed": granted.count(255), "winners": sum(won > 0 for won in granted)}


def _granted(settings: SiteSettings, questions: list[str], noise: float) -> int:
    won, book = 0, Book(settings)
    try:
        for name in questions:
            with contextlib.suppress(Declined):
                while True:
                    book.pay(asked(name).job, Gaussian(noise), now=NOW)
                    won += 1
    except BaseException:
        traceback.print_exc()
        return 255
    return won


def killed_while_writing(path: str, kills: int, seed: int) -> dict[str, Any]:
    """Kills processes that write into one diary, two at a time; every line they were told of must be there."""
    rng, diary, told = random.Random(seed), Diary(Path(path)), Path(path).with_name("told")
    for kill in range(kills):
        children = [_writer(diary, told, f"{kill}-{place}") for place in range(2)]
        time.sleep(rng.uniform(0.0, 0.05))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    acknowledged = told.read_text(encoding="ascii").split()
    kept = {line.what.rpartition(" ")[2] for line in diary.lines()}
    diary.write("the end")
    ok = diary.verify().ok
    return {"told": len(acknowledged), "missing": sum(one not in kept for one in acknowledged), "ok": ok}


def _writer(diary: Diary, told: Path, name: str) -> int:
    if (child := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for number in range(100_000):
                diary.write(f"wrote {'x' * 500} {name}-{number}")
                os.write(out, f"{name}-{number}\n".encode())
        os._exit(1)
    return child


def opened(folder: str, really: bool = False) -> dict[str, Any]:
    """Which files of the site's folder are opened while questions are received, decided, refused and paid."""
    paths, site = list[str](), Path(folder).resolve()
    assert costs  # imported before, so that what is opened below are files of the site

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.open", "sqlite3.connect", "mmap.__new__", "os.listdir", "os.scandir"):
            paths.append(str(arguments[0]))

    sys.addaudithook(note)
    settings = SiteSettings.read(site / "SITE.toml")
    book = Book(settings)
    later = NOW.replace(hour=13)
    refused = [{"task": "mistakes"}, {"epsilon": 3.0}, {"delta": 1e-3}, {"received_at": later}, {"asker": "eve"}]
    answers = [book.decide(asked(f"refused {number}", **one), NOW) for number, one in enumerate(refused)]
    answers += [book.decide(asked(name), NOW) for name in ("waits", "denied", "approved")]
    answers.append(book.decide(asked("closed"), NOW.replace(hour=3)))
    book.deny(asked("denied").job, officer="W", reason="not now")
    book.approve(asked("approved").job, officer="W")
    answers += [book.decide(asked(name), NOW) for name in ("denied", "approved")]
    book.pay(asked("approved").job, CHEAP, now=NOW)
    codes = [answer.code for answer in answers]
    for name, noise in (("waits", 1000.0), ("denied", 1000.0), ("approved", 0.1), ("closed", 1000.0)):
        try:
            book.pay(asked(name).job, Gaussian(noise), now=NOW)
        except Declined as refusal:
            codes.append(refusal.code)
    if really:
        Path(settings.population).read_bytes()
    inside = {path.partition(str(site))[2].strip("/") for path in paths if str(site) in path}
    return {"opened": sorted(inside), "codes": [code or "approved" for code in codes]}


def limited(folder: str) -> dict[str, Any]:
    """A site whose files cannot grow any more, and then can again: what it declines, and what is left."""
    settings = SiteSettings.read(Path(folder) / "SITE.toml")
    book, codes, paid = Book(settings), list[str](), 0
    question = asked("long", rounds=100)
    book.decide(question, NOW)
    book.approve(question.job, officer="W")
    book.pay(question.job, CHEAP, now=NOW)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (settings.diary.stat().st_size + 700, hard))
    for _ in range(20):
        try:
            book.pay(question.job, CHEAP, now=NOW)
            paid += 1
        except Declined as refusal:
            codes.append(refusal.code)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    book.pay(question.job, CHEAP, now=NOW)
    entries = len([entry for entry in book.ledger.entries(settings.name) if entry.kind == "release"])
    return {"paid": paid + 2, "codes": sorted(set(codes)), "entries": entries, "diary": book.diary.verify().ok}


def _answer(command: str, arguments: dict[str, Any]) -> int:
    """Runs the command in a process of its own, which prints what it returns."""
    if (child := os.fork()) == 0:
        try:
            functions = (killed_while_paying, race, killed_while_writing, opened, limited)
            commands: dict[str, Callable[..., Any]] = {one.__name__: one for one in functions}
            print(json.dumps(commands[command](**arguments)), flush=True)
        except BaseException:
            print(json.dumps({"failed": traceback.format_exc()}), flush=True)
        os._exit(0)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    for line in sys.stdin:
        if ended := _answer(*json.loads(line)):
            print(json.dumps({"failed": f"ended with {ended}"}), flush=True)
