"""One site of four has something wrong: a fixed code at the coordinator, words at the site, and the rest goes on."""

import dataclasses
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import fleet as sites_at_work
from fleets import fleet_in_process

import blindsight as bs
from blindsight.accounting.ledger import Ledger
from blindsight.asking import Histogram, Mean
from blindsight.data.schema import Schema, read_field
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.membership import revoke, rotate
from blindsight.fleet.protocol import SPOKEN, agreed
from blindsight.fleet.site.agent import Agent
from blindsight.fleet.site.book import Book
from blindsight.fleet.site.diary import Diary
from blindsight.inspection.session import Session
from blindsight.jobs.site import Desk

TABLE = 'population = "clients.csv"'
SITES: dict[str, tuple[int, str]] = dict.fromkeys(("east", "north", "south", "west"), (6, TABLE))
BAD = "north"
FIELDS = {"age": read_field("number:0:100"), "smokes": read_field("category:yes,no")}

Monkey = pytest.MonkeyPatch


def rows(*lines: str, head: str = "client,age,smokes") -> str:
    return "\n".join((head, *(f"{number},{line}" for number, line in enumerate(lines)))) + "\n"


GOOD = rows("30,yes", "40,no", "50,no", "60,yes", "70,no", "20,no")


def at_the_bad_site(patch: Monkey, method: str, change: Callable[[Any], Any]) -> None:
    """Change what a method of the bad site's desk returns."""
    whole = getattr(Desk, method)

    def changed(self: Desk, *given: Any) -> Any:
        found = whole(self, *given)
        return change(found) if self.settings.name == BAD else found

    patch.setattr(Desk, method, changed)


def an_hour_off(patch: Monkey) -> None:
    hour = datetime.timedelta(hours=1)
    at_the_bad_site(patch, "_asked", lambda one: dataclasses.replace(one, received_at=one.received_at + hour))


def of_another_version(patch: Monkey) -> None:
    patch.setattr(Agent, "spoken", property(lambda self: (9,) if self.name == BAD else (*SPOKEN, 9)))


def with_a_full_disk(patch: Monkey) -> None:
    decide = Book.decide

    def full(self: Book, *given: Any) -> Any:
        if self.settings.name == BAD:
            raise OSError(28, "No space left on device")
        return decide(self, *given)

    patch.setattr(Book, "decide", full)


def nothing(patch: Monkey) -> None: ...


# what is wrong: the bad site's table, or what happens there; the code; words in its diary
WRONG: dict[str, tuple[str, Callable[[Monkey], None], str, str]] = {
    "wrong columns": (rows("30,yes", head="client,alter,smokes"), nothing, "wrong_columns", "no column 'age'"),
    "no clients": (rows(), nothing, "no_data", "clients.csv"),
    "no file": ("", nothing, "no_data", "clients.csv"),
    "a clock an hour off": (GOOD, an_hour_off, "clock", "60 minutes"),
    "an old version": (GOOD, of_another_version, "version", "speaks 9"),
    "a full disk": (GOOD, with_a_full_disk, "disk_full", "No space left"),
}


def asked(folder: Path, table: str) -> tuple[dict[str, str], list[str], Any]:
    """Who took no part in a question, what the bad site wrote down, and the report."""

    def prepare(place: Path) -> None:
        for name in SITES:
            text = table if name == BAD else GOOD
            if text:
                (place / name / "clients.csv").write_text(text, encoding="utf-8")

    with fleet_in_process(folder / "sites", SITES, prepare=prepare) as fleet:
        session = Session(out=folder / "run", ledger=Ledger(folder / "l.db"), even_if_blind=True)
        schema = Schema(FIELDS)
        clients = fleet.clients(schema=schema)
        report = bs.ask(clients, [Mean("age")], epsilon=20.0, delta=1e-5, schema=schema, session=session)
    diary = [line.what for line in Diary(folder / "sites" / BAD / "state/diary.jsonl").lines()]
    missed = json.loads((folder / "run/fleet.json").read_text(encoding="utf-8"))["missed"]
    return {site: code for one in missed.values() for site, code in one.items()}, diary, report


@pytest.mark.parametrize("what", WRONG)
def test_the_others_answer_and_the_site_says_why_it_does_not(tmp_path: Path, monkeypatch: Monkey, what: str):
    table, happens, code, words = WRONG[what]
    happens(monkeypatch)
    missed, diary, report = asked(tmp_path, table)
    assert missed == {BAD: code}
    assert any(words in line for line in diary), diary
    assert report.guarantee.epsilon <= 20.0


def test_versions_that_have_a_protocol_in_common_work_together(tmp_path: Path, monkeypatch: Monkey):
    monkeypatch.setattr("blindsight.fleet.clients.SPOKEN", (1, 2))  # a newer coordinator
    monkeypatch.setattr("blindsight.fleet.job.__version__", "9.8.7")
    monkeypatch.setattr(Agent, "spoken", property(lambda self: (0, 1) if self.name == BAD else (1,)))
    missed, _, report = asked(tmp_path, GOOD)
    assert missed == {}
    assert report.guarantee.epsilon <= 20.0


def test_the_protocol_is_the_newest_of_those_that_most_sites_speak():
    assert agreed((1, 2), [(1, 2), (1, 2), (2,)]) == 2
    assert agreed((1, 2), [(1,), (1, 2), (0, 1)]) == 1
    assert agreed((1, 2), [(3,), ("2", None), (1,)]) == 1
    assert agreed((1, 2), []) == 2


def test_other_classes(tmp_path: Path):
    own = 'population = "tabular"\noptions = { clients = 6, seed = 1 }'
    field = {"label": read_field("category:ill,well")}
    good = rows("ill", "well", "ill", head="client,label")

    def prepare(place: Path) -> None:
        for name in SITES:
            (place / name / "clients.csv").write_text(good, encoding="utf-8")

    with fleet_in_process(tmp_path / "sites", SITES | {BAD: (6, own)}, prepare=prepare) as fleet:
        session = Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"), even_if_blind=True)
        schema = Schema(field)
        items = [Histogram("label")]
        bs.ask(fleet.clients(schema=schema), items, epsilon=20.0, delta=1e-5, schema=schema, session=session)
    missed = json.loads((tmp_path / "run/fleet.json").read_text(encoding="utf-8"))["missed"]
    assert list(missed.values()) == [{BAD: "other_classes"}]


def test_a_row_with_nan_is_left_out_by_its_own_client_and_the_site_answers(tmp_path: Path):
    missed, _, report = asked(tmp_path, rows("nan,yes", "40,no", "inf,no", "60,yes", "x,no", "20,no"))
    assert missed == {}
    assert "nan" not in json.dumps(report.to_dict())


# --- certificates that were revoked


def test_a_silent_site_whose_certificate_was_revoked_is_told_apart(tmp_path: Path):
    with sites_at_work(tmp_path, 4) as one:
        one.sites._is_revoked = "site03".__eq__
        one.lines["site03"].silent.set()
        summing = one.sum()
        summing.collect()
        assert summing.total()[1] == 3
        assert summing.missing == {"site03": "revoked"}


def test_the_folder_knows_which_certificates_no_longer_count(tmp_path: Path, monkeypatch: Monkey):
    fleet = FleetFolder.init(tmp_path / "hospitals", sites=["a", "b", "c", "d"])
    assert not any(fleet.is_revoked(site) for site in fleet.roster)
    revoke(fleet.path, "b")
    rotate(fleet.path, "c")
    assert [site for site in fleet.roster if fleet.is_revoked(site)] == ["b", "c"]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=400)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return later

    monkeypatch.setattr("blindsight.fleet.folder.datetime.datetime", Clock)
    assert fleet.is_revoked("a"), "it has expired"
