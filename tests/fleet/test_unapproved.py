"""A question that nobody approved opens no file of the data: seen by the kernel, whoever opens it and however."""

import ctypes
import dataclasses
import datetime
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleets import fleet_in_process
from waiting import until

import blindsight as bs
from blindsight.accounting.ledger import Ledger
from blindsight.asking import Mean
from blindsight.data.schema import Schema, read_field
from blindsight.errors import BlindsightError
from blindsight.fleet import wire
from blindsight.fleet.clients import Fleet
from blindsight.fleet.codes import Code
from blindsight.fleet.site.book import Book
from blindsight.fleet.site.settings import SiteSettings
from blindsight.inspection.session import Session

BY_HAND = "north"
SITES: dict[str, tuple[int, str]] = dict.fromkeys(("north", "south", "west"), (6, 'population = "clients.csv"'))
AGES = Schema({"age": read_field("number:0:100")})
IN_ACCESS, IN_OPEN = 0x1, 0x20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Watch:
    """Tells whether a file was opened or read, by any process, through any library."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._libc.inotify_init1(os.O_NONBLOCK)

    def begin(self, path: Path) -> None:
        """Watch a file from now on."""
        assert self._libc.inotify_add_watch(self._events, os.fsencode(path), IN_OPEN | IN_ACCESS) > 0

    def saw_something(self) -> bool:
        """Whether anything happened since the last call."""
        try:
            return bool(os.read(self._events, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._events)


@pytest.fixture
def watch() -> Iterator[Watch]:
    one = Watch()
    yield one
    one.close()


def ask(fleet: Fleet, folder: Path, run: str) -> Any:
    session = Session(out=folder / run, ledger=Ledger(folder / f"{run}.db"), even_if_blind=True)
    clients = fleet.clients(schema=AGES)
    return bs.ask(clients, [Mean("age")], epsilon=5.0, delta=1e-5, schema=AGES, session=session)


def waits_for_approval(fleet: Fleet, folder: Path, run: str) -> bool:
    """Whether the question waits; a busy machine needs longer to say so than the fleet has patience."""
    with pytest.raises(BlindsightError) as refused:
        ask(fleet, folder, run)
    return f"{BY_HAND}: pending" in str(refused.value)


def demanded(fleet: Fleet, job: str, number: int) -> str:
    """The code with which the site refuses a sum that a coordinator demands of it, whatever it was told."""
    now = datetime.datetime.now(datetime.UTC).isoformat()
    head = {"kind": "sum", "job": job, "sum": number, "step": "answers", "rounds": [], "client_key": "00" * 32}
    fleet.lines.send(BY_HAND, wire.encode({**head, "n_expected": 18.0, "length": 2, "bits": 32, "sent_at": now}))
    while True:
        answer = fleet.lines.listen(60.0)
        assert answer is not None
        if (answer.site, answer.kind, answer.head.get("sum")) == (BY_HAND, "refused", number):
            return str(answer.head["code"])


def test_what_waits_or_was_denied_opens_no_data_and_what_was_approved_does(tmp_path: Path, watch: Watch):
    settings = tmp_path / "sites" / BY_HAND / "SITE.toml"

    def prepare(place: Path) -> None:
        for name in SITES:
            rows = "".join(f"{number},{30 + number}\n" for number in range(6))
            (place / name / "clients.csv").write_text(f"client,age\n{rows}", encoding="utf-8")
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace('approve = "automatically"', 'approve = "by hand"'), encoding="utf-8")
        watch.begin(place / BY_HAND / "clients.csv")

    with fleet_in_process(tmp_path / "sites", SITES, prepare=prepare) as fleet:
        fleet, book = dataclasses.replace(fleet, wait_s=0.5), Book(SiteSettings.read(settings))
        for run in ("denied", "approved"):
            until(functools.partial(waits_for_approval, fleet, tmp_path, run))
        denied, approved = (record.asked.job for record in book.jobs())
        assert demanded(fleet, denied, 1) == Code.pending
        book.deny(denied, officer="W", reason="not now")
        assert demanded(fleet, denied, 2) == Code.not_approved
        assert demanded(fleet, "0" * 64, 3) == Code.pending
        assert not watch.saw_something()
        book.approve(approved, officer="W")
        ask(fleet, tmp_path, "approved")
        assert watch.saw_something(), "the watch sees what is opened"
    assert not (settings.parent / "state/ledger.db").exists() or len(book.events(denied)) == 0
