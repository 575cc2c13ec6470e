"""The demo's pages in a real browser, against a real service process: a person's clicks train the model."""

import base64
import json
import struct
import urllib.error
import urllib.request
from typing import Any

import pytest


def text(browser: Any, name: str) -> str:
    return browser.ask(f"document.getElementById({name!r}).textContent")


def click(browser: Any, name: str) -> None:
    browser.ask(f"document.getElementById({name!r}).click()")


def posted(browser: Any) -> list[dict[str, Any]]:
    """What the page has posted, as the browser's network stack saw it."""
    browser.ask("0")  # lets events that are on their way arrive
    sent = [event["params"] for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
    return [one for one in sent if one["request"]["method"] == "POST"]


def body(browser: Any, request: dict[str, Any]) -> bytes:
    entries = request["request"].get("postDataEntries")
    if entries:
        return b"".join(base64.b64decode(entry["bytes"]) for entry in entries)
    answer = browser.call("Network.getRequestPostData", requestId=request["requestId"])
    return base64.b64decode(answer["postData"]) if answer.get("base64Encoded") else answer["postData"].encode("latin-1")


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_the_live_page_is_quiet_fits_and_moves(browser, demo, artefacts, width, scheme):
    browser.view(width, 900, scheme)
    browser.open(f"{demo.address}/")
    browser.until("Number(document.getElementById('loss').textContent) > 0")
    browser.until("parseInt(document.getElementById('updates').textContent.replaceAll(',', '')) > 10")
    assert browser.trouble == []
    assert all(address.startswith((demo.address, "data:")) for address in browser.requests)
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    assert text(browser, "epsilon") == "ε = 2, δ = 10⁻⁶"
    assert "made-up" in text(browser, "origin")
    assert browser.ask("document.querySelectorAll('#loss-chart path').length") == 3
    first = text(browser, "updates")
    browser.until(f"document.getElementById('updates').textContent !== {first!r}")
    assert browser.screenshot(artefacts / f"live-{width}-{scheme}.png", whole=True).stat().st_size > 20_000


def test_clicks_train_the_model_and_the_page_shows_what_leaves(browser, demo, artefacts):
    browser.view(1400, 900)
    browser.open(f"{demo.address}/train")
    browser.until("document.body.dataset.ready === 'yes'")
    asked = []
    for number in range(5):
        asked.append(text(browser, "address"))
        if number % 2:
            browser.call("Input.dispatchKeyEvent", type="keyDown", key="p")
        else:
            click(browser, "fine")
    assert browser.ask("document.querySelectorAll('#answers li:not(.none)').length") == 5
    assert text(browser, "train") == "Train the model with 5 answers"
    assert posted(browser) == []  # answers alone send nothing
    assert text(browser, "spent") == "ε 0 of 10 spent"

    click(browser, "train")
    browser.until("!document.getElementById('left').hidden")
    (update,) = posted(browser)
    sent = body(browser, update)
    task = json.loads(browser.ask("localStorage.getItem('blindsight:budget')"))
    assert update["request"]["url"] == f"{demo.address}/v1/models/phishing/update"
    assert task == {"unit": "model", "models": {"phishing": {"count": 1, "epsilon": 2, "delta": 1e-6}}}
    assert text(browser, "spent") == "ε 2 of 10 spent"

    # the bytes on the page are the bytes on the wire, and they are 38 finite numbers of 32 bits
    shown = bytes.fromhex("".join(line[6:] for line in text(browser, "bytes").splitlines()))
    assert shown == sent
    assert len(struct.unpack("<38f", sent)) == 38
    assert text(browser, "length") == "152"
    assert "answered 202" in text(browser, "when")

    # nothing of the answers is in any request
    everything = json.dumps([event for event in browser.events if "request" in event.get("params", {})])
    assert not any(address in everything for address in asked)
    assert all(address.startswith((demo.address, "data:")) for address in browser.requests)
    assert browser.trouble == []

    # the noise hides the step: other noise gives other bytes, and sends none of them
    click(browser, "again")
    assert "Nothing was sent" in text(browser, "when")
    assert shown.hex() != text(browser, "bytes").replace(" ", "")
    assert len(posted(browser)) == 1
    assert int(text(browser, "ratio").split()[0]) > 5
    assert browser.screenshot(artefacts / "train.png", whole=True).stat().st_size > 20_000


def test_a_spent_budget_sends_nothing_more(browser, demo):
    spent = {"unit": "model", "models": {"phishing": {"count": 4, "epsilon": 8, "delta": 4e-6}}}
    browser.open(f"{demo.address}/train")
    browser.ask(f"localStorage.setItem('blindsight:budget', JSON.stringify({json.dumps(spent)}))")
    browser.open(f"{demo.address}/train")
    browser.until("document.body.dataset.ready === 'yes'")
    click(browser, "phishing")
    click(browser, "train")
    browser.until("document.getElementById('spent').textContent === 'ε 10 of 10 spent'")
    browser.until("!document.getElementById('trouble').hidden")
    assert "sends nothing more" in text(browser, "trouble")
    assert browser.ask("['fine', 'phishing', 'train'].every((name) => document.getElementById(name).disabled)")
    assert len(posted(browser)) == 1
    click(browser, "anew")
    assert text(browser, "spent") == "ε 0 of 10 spent"


def test_the_client_s_files_are_served_and_the_page_allows_no_others(demo):
    with urllib.request.urlopen(f"{demo.address}/client/index.js") as answer:
        assert answer.headers["content-type"].startswith("text/javascript")
    with urllib.request.urlopen(f"{demo.address}/train") as answer:
        policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "connect-src 'self'" in policy
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{demo.address}/client/node.js")


def test_ctrl_c_ends_it_cleanly(demo):
    """The last of this module: it ends the service."""
    status, said, complained = demo.end()
    assert status == 0
    assert said.strip() == "Stopped; nothing was stored."
    assert complained == ""
