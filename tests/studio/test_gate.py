"""Who may use the studio: one browser, let in once by the token, from its own pages; and no change unless asked for."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from studio_runs import TOKEN, enter, training

from blindsight.studio.studio_app import ASSETS, make_studio
from blindsight.studio.web import Workspace

PAGES = ["/", "/runs", "/runs/one", "/runs/one/events", "/runs/one/files/run.json", "/ledger", "/ledger/export.csv"]
POSTS = ["/runs/one/notes", "/runs/one/delete"]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    training(tmp_path / "runs", "one")
    return Workspace(folder=tmp_path / "runs", ledgers=(tmp_path / "ledger.db",), writable=True)


def newcomer(place: Workspace) -> TestClient:
    return TestClient(make_studio(place, token=TOKEN, port=8000), base_url="http://127.0.0.1:8000")


@pytest.mark.parametrize("path", [*PAGES, "/?token=", "/?token=wrong", f"/?token={TOKEN}x", f"/runs?token={TOKEN}"])
def test_without_the_token_there_is_nothing(place, path):
    answer = newcomer(place).get(path, follow_redirects=False)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert answer.text.startswith("This page belongs to whoever started")
    assert "privacy" not in answer.text


def test_the_token_is_good_once(place):
    guard = make_studio(place, token=TOKEN, port=8000)
    first, second = (TestClient(guard, base_url="http://127.0.0.1:8000") for _ in range(2))
    let_in = first.get(f"/?token={TOKEN}", follow_redirects=False)
    cookie = let_in.headers["set-cookie"]
    assert cookie.startswith("blindsight-studio-8000=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert first.get("/runs").status_code == 200
    assert first.get(f"/?token={TOKEN}").status_code == 200  # a reload in the same browser
    assert second.get(f"/?token={TOKEN}").status_code == 403
    assert second.get("/runs").status_code == 403


def test_another_cookie_is_nobody(place):
    guard = make_studio(place, token=TOKEN, port=8000)
    client = TestClient(guard, base_url="http://127.0.0.1:8000", cookies={guard.cookie: "guessed"})
    assert client.get("/runs").status_code == 403


@pytest.mark.parametrize("host", ["evil.example:8000", "127.0.0.1.evil.example", "evil.example", "", "127.0.0.2:8000"])
@pytest.mark.parametrize("path", [*PAGES, f"/?token={TOKEN}", f"/assets/{ASSETS[0]}"])
def test_another_host_name_is_refused_whatever_the_cookie(place, host, path):
    assert enter(place).get(path, headers={"Host": host}).status_code == 404


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9", "[::1]:8000", "localhost"])
def test_this_machine_has_several_names(place, host):
    assert enter(place).get("/runs", headers={"Host": host}).status_code == 200


FORGED = {
    "no token": {"X-CSRF-Token": ""},
    "a wrong token": {"X-CSRF-Token": "0" * 64},
    "another origin": {"Origin": "http://evil.example"},
    "another port of this machine": {"Origin": "http://127.0.0.1:9000"},
    "no origin at all": {"Origin": "null"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "another port, as browsers say it": {"Sec-Fetch-Site": "same-site"},
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("path", POSTS)
def test_a_forged_post_changes_nothing(place, path, forged):
    client = enter(place)
    answer = client.post(path, data={"note": "forged", "confirm": "one"}, headers=FORGED[forged])
    assert answer.status_code == 403
    assert not (place.folder / "one" / "studio.json").exists()
    assert (place.folder / "one" / "run.json").exists()


@pytest.mark.parametrize("path", POSTS)
def test_read_only_refuses_every_change(place, path):
    client = enter(Workspace(folder=place.folder))
    answer = client.post(path, data={"note": "x", "confirm": "one"})
    assert (answer.status_code, "--write" in answer.text) == (403, True)
    assert {file.name for file in (place.folder / "one").iterdir()} == {
        "run.json",
        "guarantee.json",
        "metrics.jsonl",
        "result.json",
    }
    shown = client.get("/runs/one").text
    assert "read-only" in shown
    assert "<form" not in shown


def test_every_address_that_changes_something_is_a_post_that_the_guard_sees(place):
    """The read-only law above holds for all: no endpoint takes another method than GET and POST."""
    guard = make_studio(place, token=TOKEN, port=8000)
    methods = {method for route in guard.routes for method in getattr(route, "methods", None) or ()}
    assert methods <= {"GET", "HEAD", "POST"}
    posts = {
        str(getattr(route, "path", "")) for route in guard.routes if "POST" in (getattr(route, "methods", None) or ())
    }
    client = enter(Workspace(folder=place.folder))
    for path in posts:
        filled = re.sub(r"\{name(:\w+)?\}", "one", path)
        assert client.post(re.sub(r"\{\w+(:\w+)?\}", "x", filled)).status_code == 403, path


@pytest.mark.parametrize("path", ["/runs", "/runs/one", "/ledger", "/runs/nobody", "/nowhere"])
def test_pages_allow_themselves_nothing_but_their_own(place, path):
    answer = enter(place).get(path)
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert (policy["script-src"], policy["style-src"], policy["connect-src"]) == ("'self'", "'self'", "'self'")
    assert (policy["frame-ancestors"], policy["base-uri"], policy["form-action"]) == ("'none'", "'none'", "'self'")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|hx-on", answer.text)


def test_assets_are_the_vendored_ones_and_nothing_beside_them(place):
    client = enter(place)
    for name in ASSETS:
        assert client.get(f"/assets/{name}").status_code == 200
    for name in ("../__init__.py", "..%2f__init__.py", "label.js", "vendor/LICENSE.txt", "/etc/passwd", ""):
        assert client.get(f"/assets/{name}").status_code == 404
