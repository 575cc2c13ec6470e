"""The page in a real browser: nothing is asked of the network, nothing complains, and the controls do what they say.

Screenshots go to $BLINDSIGHT_ARTEFACTS where that is set.
"""

import base64
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from waiting import until


@pytest.fixture
def opened(browser: Any, report, tmp_path: Path) -> Any:
    browser.view(1400, 900)
    browser.open(report.save(tmp_path / "report.html").as_uri())
    return browser


def order(browser: Any, arm: int) -> list[int]:
    """Which samples the arm's grid shows, in order."""
    shown = f"[...document.querySelectorAll('.tiles')[{arm}].querySelectorAll('li')].filter(x => x.checkVisibility())"
    return browser.ask(f"{shown}.map(x => Number(x.dataset.index))")


def choose(browser: Any, control: str, value: str, event: str = "change") -> None:
    browser.ask(
        f"{{ const one = document.getElementById({control!r}); one.value = {value!r}; "
        f"one.dispatchEvent(new Event({event!r}, {{bubbles: true}})); }}"
    )


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (800, 1000), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_and_fits(browser, report, tmp_path, artefacts, width, height, scheme):
    path = report.save(tmp_path / "report.html")
    browser.view(width, height, scheme)
    browser.open(path.as_uri())
    assert [address for address in browser.requests if not address.startswith("data:")] == [path.as_uri()]
    assert browser.trouble == []
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")  # nothing sticks out
    light = browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(247, 247, 245)"
    assert light == (scheme == "light")
    picture = browser.screenshot(artefacts / f"report-{width}-{scheme}.png", whole=True)
    assert picture.stat().st_size > 20_000


def test_trouble_would_be_noticed(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text('<script>console.log("x"); missing()</script><img src="https://nowhere.invalid/x.png">')
    browser.open(page.as_uri())
    assert len(browser.trouble) >= 2
    assert "https://nowhere.invalid/x.png" in browser.requests


def test_the_class_filter_moves_all_grids(opened):
    assert order(opened, 0) == order(opened, 1) == list(range(40))
    choose(opened, "class", "3")
    assert order(opened, 0) == order(opened, 1) == [12, 13, 14, 15]
    assert opened.ask("document.getElementById('status').textContent") == "4 of 40"
    assert opened.ask("document.querySelectorAll('.strip .dim').length") == 4 * 9
    choose(opened, "class", "")
    assert order(opened, 0) == list(range(40))


def test_the_most_contrasting_come_first_when_asked(opened, report):
    from blindsight.samples import gallery

    expected = (-gallery.contrast([arm.samples for arm in report.arms])).argsort(kind="stable").tolist()
    choose(opened, "order", "rank")
    assert order(opened, 0) == order(opened, 1) == expected
    choose(opened, "class", "3")
    assert order(opened, 1) == [index for index in expected if index in (12, 13, 14, 15)]


def test_the_size_is_one_for_all_grids(opened):
    width = "document.querySelector('.tiles img').clientWidth"
    before = opened.ask(width)
    choose(opened, "zoom", "160", "input")
    assert opened.ask(width) > before + 50


def test_grids_scroll_together(opened):
    opened.ask("document.querySelectorAll('.tiles')[0].scrollTop = 120")
    opened.until("document.querySelectorAll('.tiles')[1].scrollTop === 120")


def test_keys_walk_the_grid_and_enlarge_a_pair(opened):
    opened.ask("document.querySelector('.tiles li[tabindex=\"0\"]').focus()")
    opened.press("ArrowRight")
    assert opened.ask("document.activeElement.dataset.index") == "1"
    assert opened.ask("[...document.querySelectorAll('.linked')].map(x => x.dataset.index)") == ["1", "1"]
    opened.press("ArrowDown")
    below = opened.ask("Number(document.activeElement.dataset.index)")
    assert below > 2
    opened.press("Enter")
    assert opened.ask("document.getElementById('pair').open")
    assert opened.ask("[...document.querySelectorAll('#pair img')].map(x => x.alt)") == [
        f"synthetic sample {below} of healthy, class {below // 4}",
        f"synthetic sample {below} of failing, class {below // 4}",
    ]
    opened.ask("document.querySelector('#pair button:last-of-type').click()")
    assert not opened.ask("document.getElementById('pair').open")


def title(browser: Any) -> str:
    return browser.ask("document.getElementById('pair-title').textContent")


def test_the_dialog_walks_blinks_and_subtracts(opened, artefacts):
    choose(opened, "class", "3")
    opened.ask("document.querySelector('.tiles li[data-index=\"12\"]').click()")
    assert title(opened) == "class 3, sample 12"
    assert opened.ask("document.getElementById('previous').disabled")
    opened.press("ArrowRight")
    assert title(opened) == "class 3, sample 13"
    opened.press("d")
    assert opened.ask("document.querySelectorAll('#views canvas').length") == 1
    # sample 13 of failing is black where healthy is white: red where that is dark, blue where it is bright
    colours = opened.ask(
        "{ const c = document.querySelector('#views canvas'), d = c.getContext('2d').getImageData(0, 0, 1, 1);"
        " [c.width, c.height, [...d.data.slice(0, 3)]]; }"
    )
    assert colours == [112, 112, [255, 0, 0]]
    opened.screenshot(artefacts / "difference.png")
    opened.press("b")
    assert opened.ask("document.querySelectorAll('#views img').length") == 1
    caption = "document.querySelector('#views .key').textContent"
    opened.until(f"{caption} === 'failing'")
    opened.until(f"{caption} === 'healthy'")
    opened.ask("document.querySelector('#pair button:last-of-type').click()")
    opened.until("document.activeElement.dataset.index === '13'")  # the dialog's event comes after it has closed


def shown_findings(browser: Any) -> list[str]:
    rows = "[...document.querySelectorAll('tr[data-finding]')].filter(x => x.checkVisibility())"
    return browser.ask(f"{rows}.map(x => x.querySelector('b').textContent)")


@pytest.fixture
def many(browser: Any, make_report: Any, finding: Any, tmp_path: Path) -> Any:
    """A page with findings of several kinds."""
    quiet = {"verdict": "not detected", "low": -0.5}
    findings = [
        finding(name="ink", effect=0.2, low=0.1, p_value=0.001),
        finding(name="blur", effect=0.3, p_value=0.9, smallest=0.3, **quiet),
        finding(
            name="crop", effect=0.1, p_value=0.2, smallest=None, kind="votes", arms=("failing", "failing"), **quiet
        ),
        finding(name="=cmd", statement='say "hi", now', effect=0.0, p_value=0.5, smallest=0.2, **quiet),
    ]
    browser.view(1400, 900)
    browser.open(make_report(findings=findings, diagnoses=()).save(tmp_path / "many.html").as_uri())
    return browser


def test_findings_are_searched_filtered_and_sorted(many):
    assert shown_findings(many) == ["ink"]  # the others are folded
    choose(many, "by", "effect")
    assert shown_findings(many) == ["blur", "ink", "crop", "=cmd"]
    choose(many, "by", "smallest")
    assert shown_findings(many)[0] == "crop"  # not detectable at all
    choose(many, "kind", "votes")
    assert shown_findings(many) == ["crop"]
    choose(many, "kind", "")
    choose(many, "result", "not detected")
    choose(many, "by", "name")
    assert shown_findings(many) == ["=cmd", "blur", "crop"]
    choose(many, "find", "HI now", "input")
    assert shown_findings(many) == ["=cmd"]
    assert many.ask("document.getElementById('matching').textContent") == "1 of 4"
    choose(many, "find", "", "input")
    choose(many, "result", "")
    choose(many, "by", "")
    assert shown_findings(many) == ["ink"]


def test_findings_are_downloaded_and_copied_as_shown(many, tmp_path):
    many.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    choose(many, "by", "p_value")
    for button in ("csv", "json", "copy"):
        many.ask(f"document.getElementById({button!r}).click()")
    until(lambda: all((tmp_path / f"findings.{kind}").exists() for kind in ("csv", "json")), "no files")
    with open(tmp_path / "findings.csv", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["name"] for row in rows] == ["ink", "crop", "'=cmd", "blur"]  # what a spreadsheet would run is quoted
    assert rows[2]["statement"] == 'say "hi", now'
    assert float(rows[0]["effect"]) == 0.2
    listed = json.loads((tmp_path / "findings.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in listed] == ["ink", "crop", "=cmd", "blur"]
    many.until("document.getElementById('matching').textContent === '4 copied'")


def test_links_to_sections_open_what_is_folded(browser, make_report, finding, tmp_path):
    quiet = finding(verdict="not detected", p_value=0.7, low=-0.1)
    browser.view(420, 860)
    browser.open(make_report(findings=(quiet,), diagnoses=()).save(tmp_path / "null.html").as_uri())
    assert browser.ask("document.documentElement.scrollHeight") < 3000
    heading = "document.getElementById('releases')"
    assert not browser.ask(f"{heading}.checkVisibility()")
    browser.ask("document.querySelector('.contents a[href=\"#releases\"]').click()")
    browser.until(f"{heading}.checkVisibility()")
    pinned = "document.querySelector('.pinned').offsetHeight"
    browser.until(
        f"{heading}.getBoundingClientRect().top >= {pinned} && {heading}.getBoundingClientRect().top < innerHeight"
    )
    browser.until("document.querySelector('.contents [aria-current]') !== null")


def test_the_privacy_bar_stays_in_sight_and_opens(opened):
    opened.ask("scrollTo(0, 1500)")
    assert opened.ask("document.querySelector('.privacy').getBoundingClientRect().top") == 0
    opened.ask("document.querySelector('.privacy summary').click()")
    assert opened.ask("document.querySelector('.privacy .fine').checkVisibility()")


def test_hostile_names_do_nothing(browser, make_hostile, tmp_path):
    hostile = "<img src=x onerror=\"document.title='hit'\"></script><script>document.title='hit'</script>"
    browser.view(390, 844)
    path = make_hostile(hostile).save(tmp_path / "hostile.html")
    browser.open(path.as_uri())
    assert browser.ask("document.title") == hostile
    assert browser.trouble == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [path.as_uri()]
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")


def test_without_a_script_everything_is_there_but_the_controls(browser, report, tmp_path):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.view(1400, 900)
        browser.open(report.save(tmp_path / "report.html").as_uri())
        tree = browser.call("Accessibility.getFullAXTree")["nodes"]
        names = [node.get("name", {}).get("value", "") for node in tree if not node.get("ignored")]
        assert "synthetic sample 39 of failing, class 9" in names
        assert report.verdict.replace(" %", "\xa0%") in names
        assert not any(node.get("role", {}).get("value") == "combobox" for node in tree)
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_it_prints_with_the_assumptions_open(opened, report, artefacts):
    data = opened.call("Page.printToPDF", printBackground=True)["data"]
    (artefacts / "report.pdf").write_bytes(base64.b64decode(data))
    assert opened.ask("document.querySelector('.privacy details').open")


def test_a_notebook_s_frame_works_too(browser, report, tmp_path):
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{report._repr_html_()}", encoding="utf-8")
    browser.view(1400, 900)
    browser.open(page.as_uri())
    assert browser.trouble == []
    assert browser.ask("document.querySelector('iframe').clientHeight") == 760
