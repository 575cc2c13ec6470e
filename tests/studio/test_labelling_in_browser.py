"""People label in a real browser by typing, against a real process that may be killed at any moment."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blindsight.studio.labels import Labels
from blindsight.studio.queue import Queue
from blindsight.studio.run import labelling


class Process:
    """`blindsight label` in a process of its own."""

    def __init__(self, spawn: Any, folder: Path, rater: str) -> None:
        words = ["label", str(folder), "--rater", rater, "--json"]
        self.process = spawn(sys.executable, "-m", "blindsight", *words, stdout=subprocess.PIPE)
        lines = list[str]()
        while not lines or lines[-1] != "}\n":
            lines.append(self.process.stdout.readline())
            assert lines[-1]
        self.said = json.loads("".join(lines))
        self.address = self.said["address"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def typed(browser: Any, key: str, **more: Any) -> None:
    """Press a key, and wait until what it asks for is saved and the next example is there."""
    before = browser.ask("Number(document.body.dataset.ready)")
    browser.press(key, **more)
    browser.until(f"Number(document.body.dataset.ready) > {before}")


def opened(browser: Any, address: str) -> None:
    browser.open(address)
    browser.until("document.body.dataset.ready !== undefined")


def text(browser: Any, name: str) -> str:
    return browser.ask(f"document.getElementById({name!r}).textContent")


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]


def test_keys_label_and_a_killed_server_loses_nothing(browser, make_set, spawn):
    made = make_set(count=8)
    first = Process(spawn, made.folder, "anna")
    browser.view(1100, 800)
    opened(browser, first.address)
    assert text(browser, "where") == "0 of 8"
    assert "(2, 1e-06)-DP per client" in text(browser, "guarantee")
    proposed = text(browser, "proposed")
    typed(browser, "Enter")  # what is proposed
    typed(browser, "2")  # the second class
    typed(browser, "s")  # skipped
    assert text(browser, "said") == "Skipped."
    typed(browser, "Backspace")
    assert text(browser, "where") == "2 of 8"
    typed(browser, "u")
    typed(browser, "3")
    assert [(one["label"], one["undone"]) for one in lines(made.folder)] == [
        (proposed, False),
        ("dog", False),
        (None, False),
        (None, True),
        ("dog", True),
        ("owl", False),
    ]
    assert {one["rater"] for one in lines(made.folder)} == {"anna"}
    assert all(one["seconds"] >= 0 for one in lines(made.folder))
    shown = browser.ask("document.querySelector('#example img').alt")
    first.kill()

    before = browser.ask("document.querySelector('#example img').alt")
    browser.press("1")  # nobody is there to save it, so the page does not move on
    browser.until("!document.getElementById('trouble').hidden")
    assert "Earlier labels are safe" in text(browser, "trouble")
    assert browser.ask("document.querySelector('#example img').alt") == before == shown
    assert len(lines(made.folder)) == 6

    second = Process(spawn, made.folder, "anna")
    assert second.said["done"] == 2
    assert second.address != first.address  # another token
    opened(browser, second.address)
    assert text(browser, "where") == "2 of 8"
    assert browser.ask("document.querySelector('#example img').alt") == shown  # it goes on where it stopped
    typed(browser, "Backspace")  # what was labelled before the crash can be taken back
    assert text(browser, "where") == "1 of 8"
    assert browser.trouble == []


def test_remapped_keys_are_kept_and_every_way_of_typing_is_safe(browser, make_set):
    labels = Labels(make_set(count=12))
    browser.view(1100, 800)
    with labelling(Queue(labels, "ben")) as address:
        opened(browser, address)
        browser.press("?")
        browser.until("document.getElementById('keys').open")
        browser.ask("document.querySelector('#key-list button[data-slot=owl]').click()")
        typed(browser, "1")  # taken by cat, which gets owl's
        browser.press("1")  # the list is still open: nothing is labelled
        browser.ask("document.getElementById('close').click()")
        assert browser.ask("[...document.querySelectorAll('#classes kbd')].map(x => x.textContent)") == ["3", "2", "1"]
        opened(browser, address)  # reloaded
        typed(browser, "1")
        assert text(browser, "said") == "Labelled owl."
        typed(browser, "U")  # Caps Lock: no class is called U
        assert text(browser, "where") == "0 of 12"
        browser.press("3", modifiers=2)  # Ctrl-3 is the browser's
        browser.press("3", autoRepeat=True)  # held down from before
        browser.press("x")
        assert text(browser, "said") == "No action on x; ? lists the keys."
        assert text(browser, "where") == "0 of 12"
        browser.ask("document.querySelector('#classes button[data-name=dog]').click()")
        browser.until("document.getElementById('where').textContent === '1 of 12'")
        assert [one.label for one in labels.standing("ben").values()] == ["dog"]
        assert [address_ for address_ in browser.requests if not address_.startswith(("data:", address))] == []
        assert browser.trouble == []
    about = json.loads((labels.dataset.folder / "labelling.json").read_text())
    assert about["keys"]["ben"]["classes"] == {"cat": "3", "dog": "2", "owl": "1"}
    assert Queue(Labels(labels.dataset), "ben").keys["classes"]["owl"] == "1"
    assert Queue(Labels(labels.dataset), "cleo").keys["classes"]["owl"] == "3"  # everybody has their own


@pytest.mark.parametrize(
    ("width", "scheme", "kind"),
    [(1400, "light", "images"), (390, "dark", "images"), (1100, "dark", "rows"), (800, "light", "text")],
)
def test_the_page_is_quiet_fits_and_says_synthetic(browser, make_set, artefacts, width, scheme, kind):
    made = make_set(kind=kind, count=4) if kind != "text" else make_set("text", count=4, classes=(), proposed=False)
    browser.view(width, 860, scheme)
    with labelling(Queue(Labels(made, made.classes or ("yes", "no")), "anna")) as address:
        opened(browser, address)
        assert browser.trouble == []
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
        assert browser.ask("document.querySelector('.privacy').getBoundingClientRect().top") == 0
        if kind == "images":  # the word is in the picture: higher than wide
            assert browser.ask(
                "((one) => one.naturalHeight > one.naturalWidth)(document.querySelector('#example img'))"
            )
        else:
            assert "synthetic" in text(browser, "example")
        if kind == "rows":
            assert any(word in text(browser, "example") for word in ("office", "field"))
        if kind == "text":
            assert "<b>more</b>" in text(browser, "example")
            assert browser.ask("document.getElementById('propose').hidden")
            browser.press("Enter")  # nothing is proposed, so nothing is accepted
            assert text(browser, "where") == "0 of 4"
        assert browser.screenshot(artefacts / f"label-{kind}-{width}-{scheme}.png", whole=True).stat().st_size > 5_000


def test_the_end_shows_agreement_and_not_before(browser, make_set, artefacts):
    made = make_set(count=6)
    first = Queue(Labels(made), "anna")
    while (sample := first.next) is not None:
        first.decide(sample.sample_id, "cat", 1.0)
    browser.view(1100, 860)
    with labelling(Queue(Labels(made), "ben")) as address:
        opened(browser, address)
        assert "anna" not in browser.ask("document.body.innerText")
        for key in "111122":
            assert browser.ask("document.getElementById('done').hidden")
            typed(browser, key)
        assert text(browser, "finished") == "All 6 done: 6 labelled, 0 skipped."
        assert "anna and ben666.7 %0.000" in text(browser, "summary")
        browser.screenshot(artefacts / "label-done.png", whole=True)
        typed(browser, "Backspace")
        assert not browser.ask("document.getElementById('work').hidden")
