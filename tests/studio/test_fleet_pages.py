"""Pages about fleets: rosters from the folder, a site's questions and decisions, per-asker budgets and the log."""

import re
from pathlib import Path

import pytest
from site_folder import asked, site_folder
from studio_runs import enter, inspection

from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.site.book import Book
from blindsight.studio.web import Workspace

AT = "/fleets/sites/0"


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(site_folder(tmp_path, 'approve = "by hand"\n\n[policy.askers.ann]\nepsilon_total = 3.0'))
    book.decide(asked(asker="ann"))
    return book


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(folder=tmp_path / "runs", sites=(tmp_path / "SITE.toml",), writable=True)


def test_a_fleet_is_shown_from_its_folder(tmp_path):
    FleetFolder.init(tmp_path / "hospitals", sites=["north", "south", "west"], hosts=["127.0.0.1"], port=4222)
    place = Workspace(folder=tmp_path, fleets=(tmp_path / "hospitals", tmp_path / "gone"))
    shown = enter(place).get("/fleets").text
    for site in ("north", "south", "west"):
        assert f"<b>{site}</b>" in shown
    assert "never" in shown
    assert "PRIVATE KEY" not in shown
    assert "gone" in shown  # and why it cannot be read
    assert enter(place).get("/fleets/call", params={"at": "7"}).status_code == 404


def test_a_fleet_without_a_server_says_so(tmp_path):
    FleetFolder.init(tmp_path / "hospitals", sites=["north", "south", "west"], hosts=["127.0.0.1"], port=1)
    client = enter(Workspace(folder=tmp_path, fleets=(tmp_path / "hospitals",)))
    answer = client.get("/fleets/call", params={"at": "0"}, headers={"HX-Request": "true"})
    assert 'role="alert"' in answer.text


def test_what_sites_said_to_a_question_is_shown_and_the_rounds_it_has_finished(tmp_path):
    hospitals = tmp_path / "hospitals"
    FleetFolder.init(hospitals, sites=["north", "south", "west"], hosts=["127.0.0.1"], port=4222)
    run = inspection(tmp_path / "runs", "who")
    run.write_sites("ab12", {"north": "approved", "south": "pending", "west": "budget"})
    run.write("fleet.json", {"job": "ab12", "absent": {}, "missed": {"first": {"north": "silent"}}})
    (run.path / "rounds" / "first").mkdir(parents=True)
    inspection(tmp_path / "runs", "elsewhere").write_sites("cd34", {"another": "approved"})
    inspection(tmp_path / "runs", "damaged").write("sites.json", ["no", "sites"])
    client = enter(Workspace(folder=tmp_path / "runs", fleets=(hospitals,)))
    for shown in (client.get("/fleets").text, client.get("/fleets/asked", params={"at": "0"}).text):
        assert '<td data-label="approved">1 of 3</td><td data-label="pending">south</td>' in shown
        assert '<td data-label="refused or silent">west</td>' in shown
        assert '<td data-label="rounds" class="number">1</td>' in shown
        assert "elsewhere" not in shown
    shown = client.get("/runs/who").text
    assert "costs more than the site" in shown  # what budget means
    assert re.search(r"<b>north</b>.*rounds without it\">first<", shown)
    assert "sites-title" not in client.get("/runs/damaged").text
    assert client.get("/fleets/asked", params={"at": "7"}).status_code == 404


def test_a_question_waits_and_is_approved(place, book):
    client = enter(place)
    shown = client.get(AT).text
    waiting = asked(asker="ann")
    assert waiting.sentence in shown
    assert waiting.job[:12] in shown
    assert "of 3 <small>epsilon" in shown  # what ann may spend
    assert client.post(f"{AT}/decide", data={"job": waiting.job, "decision": "approve"}).headers["hx-refresh"] == "true"
    assert book.job(waiting.job).by_hand == "approved"
    assert "Nothing waits." in client.get(AT).text
    feed = client.get(AT, headers={"HX-Target": "feed"}).text
    assert "Log verified" in feed
    assert "received the question" in feed


def test_a_denial_needs_a_reason(place, book):
    client, job = enter(place), asked().job
    for fields in ({"decision": "deny", "reason": " "}, {"decision": ""}, {}):
        assert client.post(f"{AT}/decide", data={"job": job, **fields}).status_code == 404
    assert book.jobs()[0].waits
    client.post(f"{AT}/decide", data={"job": job, "decision": "deny", "reason": "not now"})
    assert book.job(job).by_hand == "denied"


def test_read_only_decides_nothing(place, book):
    client = enter(Workspace(folder=place.folder, sites=place.sites))
    assert "<form" not in client.get(AT).text
    assert client.post(f"{AT}/decide", data={"job": asked().job, "decision": "approve"}).status_code == 403
    assert book.jobs()[0].waits
    for at in ("1", "-1", "x", "../0"):
        assert client.get(f"/fleets/sites/{at}").status_code == 404
