"""The studio in a real browser, by clicking, typing and keyboard alone; and an accessibility check of every page."""

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Generator
from typing import Any

import pytest
from site_folder import asked, site_folder
from studio_runs import add_round, inspection, label_set, training

from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.site.book import Book
from blindsight.runs import Run
from blindsight.studio.serving import serving_studio
from blindsight.studio.web import Workspace

AXE = "4.14.0"
PAGES = [
    "/runs",
    "/runs/quick",
    "/runs/slices-a",
    "/runs/who-fails",
    "/compare?run=slices-a&run=slices-b",
    "/ledger",
    "/questions",
    "/labels",
    "/labels/pets",
    "/labels/pets/queue/anna/",
    "/labels/pets/grid/anna",
    "/labels/pets/history/anna",
    "/fleets",
    "/fleets/sites/0",
    "/runs/nobody",
]
LOOKS = [(1400, "light"), (1400, "dark"), (420, "light"), (420, "dark")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A folder of runs of every kind, and a ledger with a budget."""
    folder = tmp_path_factory.mktemp("studio")
    training(folder / "runs", "quick")
    training(folder / "runs", "half", done=7)
    inspection(folder / "runs", "slices-a")
    inspection(folder / "runs", "slices-b", verdict="Nothing was found.")
    label_set(folder / "runs", "pets")
    (folder / "site").mkdir()
    Book(site_folder(folder / "site")).decide(asked())
    ledger = Ledger(folder / "ledger.db")
    ledger.set_budget("clinic", epsilon=4.0, delta=1e-6)
    ledger.record(Gaussian(4.0, rounded=True), population="clinic", run="slices-a ab12")
    sites, hospitals = ["north", "south", "west"], folder / "hospitals"
    FleetFolder.init(hospitals, sites=sites, hosts=["127.0.0.1"], port=4222)
    said = dict(zip(sites, ("approved", "pending", "budget"), strict=True))
    inspection(folder / "runs", "who-fails").write_sites("ab12", said)
    return Workspace(
        folder=folder / "runs",
        ledgers=(ledger.path,),
        fleets=(hospitals,),
        sites=(folder / "site" / "SITE.toml",),
        writable=True,
    )


@pytest.fixture(scope="module")
def origin(place: Workspace, browser: Any) -> Generator[str]:
    """The studio, and a browser that was let in."""
    with serving_studio(place) as address:
        browser.view(1400, 900)
        browser.open(address)
        browser.until("location.pathname === '/runs' && document.readyState === 'complete'")
        assert "token" not in browser.ask("location.href")
        yield address.partition("/?")[0]


def shown(browser: Any, address: str) -> None:
    browser.open(address)
    browser.until("document.readyState === 'complete'")


def tab_to(browser: Any, expression: str) -> None:
    """Press Tab until the element in focus is the one."""
    for _ in range(60):
        if browser.ask(f"((one) => {expression})(document.activeElement)"):
            return
        browser.press("Tab")
    raise AssertionError(f"Tab never reached it: {expression}")


def fill(browser: Any, selector: str, text: str) -> None:
    browser.ask(f"((one) => {{ one.focus(); one.select(); }})(document.querySelector({selector!r}))")
    browser.call("Input.insertText", text=text)


def test_filter_compare_and_read_by_keyboard_alone(browser, origin):
    browser.view(1400, 900)
    shown(browser, f"{origin}/runs")
    browser.press("Tab")
    assert browser.ask("document.activeElement.textContent") == "Skip to content"
    tab_to(browser, "one.name === 'words'")
    browser.call("Input.insertText", text="slices-")
    browser.until("document.querySelectorAll('.runs tbody tr').length === 2")
    assert "words=slices-" in browser.ask("location.href")
    tab_to(browser, "one.value === 'slices-b'")
    browser.press(" ")
    assert browser.ask("document.querySelector('[data-compare]').disabled")
    tab_to(browser, "one.value === 'slices-a'")
    browser.press(" ")
    assert browser.ask("document.querySelectorAll('.runs :checked').length") == 2  # leaving the filter undid nothing
    assert not browser.ask("document.querySelector('[data-compare]').disabled")
    browser.ask("document.querySelector('[data-compare]').focus()")
    browser.press("Enter")
    browser.until("location.pathname === '/compare' && document.readyState === 'complete'")
    assert browser.ask("document.querySelectorAll('.tiles li').length") == 16
    tab_to(browser, "one.name === 'class'")
    browser.press("d")  # a select chooses by typing
    browser.until("document.querySelectorAll('.tiles li').length === 8")
    assert browser.trouble == []


def test_notes_are_saved_and_a_run_is_deleted_by_its_name(browser, origin, place):
    training(place.folder, "gone")
    browser.view(420, 860)
    shown(browser, f"{origin}/runs/gone")
    fill(browser, "input[name=tags]", "baseline")
    fill(browser, "textarea[name=note]", "a first <b>try</b>")
    browser.ask("document.querySelector('form[hx-post$=notes] button').click()")
    browser.until("document.getElementById('notes-told').textContent.trim() === 'Saved.'")
    assert Run(place.folder / "gone").read("studio.json") == {"note": "a first <b>try</b>", "tags": ["baseline"]}
    browser.ask("document.querySelector('[aria-labelledby=delete-title] summary').click()")
    fill(browser, "input[name=confirm]", "quick")
    browser.ask("document.querySelector('button.danger').click()")
    browser.until("document.querySelector('#delete-told [role=alert]') !== null")
    assert (place.folder / "gone").exists()
    fill(browser, "input[name=confirm]", "gone")
    browser.ask("document.querySelector('button.danger').click()")
    browser.until("location.pathname === '/runs' && document.readyState === 'complete'")
    assert not (place.folder / "gone").exists()
    assert "gone" not in browser.ask("document.querySelector('.runs').textContent")


def test_progress_moves_while_a_run_is_running(browser, origin, place):
    run = Run(place.folder / "half")
    browser.view(1400, 900)
    with run.alone():
        shown(browser, f"{origin}/runs/half")
        assert "round 7 of 20" in browser.ask("document.getElementById('progress').textContent")
        add_round(run, 8)
        browser.until("document.getElementById('progress').textContent.includes('round 8 of 20')")
    browser.until("document.querySelector('#progress .state').textContent === 'unfinished'")
    assert browser.trouble == []


def test_what_if_answers_as_one_types(browser, origin, place):
    shown(browser, f"{origin}/ledger")
    browser.until("document.querySelector('[data-after]') !== null")
    fill(browser, "input[name=epsilon]", "3.9")
    browser.until("document.getElementById('foreseen').textContent.includes('Refused')")
    fill(browser, "input[name=epsilon]", "0.1")
    browser.until("document.getElementById('foreseen').textContent.includes('Allowed')")
    assert len(Ledger(place.ledgers[0]).entries()) == 2
    assert browser.trouble == []


def test_a_question_is_composed_and_its_cost_follows_as_one_types(browser, origin, place, monkeypatch):
    answer = json.dumps({"report": {"verdict": "It would do.", "notes": []}})
    script = f"import sys\nfor line in sys.stdin: print({answer!r}, flush=True)"
    monkeypatch.setattr("blindsight.studio.composing.COMMAND", (sys.executable, "-c", script))
    place.dry_runs.close()  # of other tests
    browser.view(1400, 900)
    shown(browser, f"{origin}/questions")
    browser.ask("document.querySelector('select[name=task]').focus()")
    browser.press("a")  # a select chooses by typing
    browser.until("document.querySelector('input[name=fields]')?.value === 'age, education'")
    browser.until("document.querySelector('#cost pre')?.textContent.includes('blindsight ask tabular age education')")
    browser.ask("document.querySelector('#fields details').open = true")
    fill(browser, "input[name=population]", "clinic")
    fill(browser, "input[name=epsilon]", "3.9")
    browser.until("document.getElementById('cost').textContent.includes('The ledger would refuse it')")
    fill(browser, "input[name=epsilon]", "0.1")
    browser.until("document.getElementById('cost').textContent.includes('clinic would go from')")
    browser.until("document.getElementById('power').textContent.includes('It would do.')")
    fleet = str(place.fleets[0])
    chosen = "document.querySelector('select[name=fleet]')"
    browser.ask(f"{chosen}.value = {fleet!r}; {chosen}.dispatchEvent(new Event('change', {{ bubbles: true }})); 0")
    browser.until("document.querySelector('input[name=asker]') !== null")
    fill(browser, "input[name=asker]", "anna")
    browser.until(f"document.querySelector('#cost pre')?.textContent.includes('--fleet={fleet} --asker=anna')")
    assert len(Ledger(place.ledgers[0]).entries()) == 2  # nothing was asked


def test_a_report_is_read_in_its_sandbox(browser, origin):
    shown(browser, f"{origin}/runs/slices-a")
    frame = "document.querySelector('iframe.report')"
    browser.until(f"{frame}.contentDocument === null")  # another origin: neither can touch the other
    assert browser.trouble == []


def test_labels_are_typed_inside_the_studio(browser, origin, place):
    browser.view(1400, 900)
    shown(browser, f"{origin}/labels/pets")
    fill(browser, "input[name=rater]", "ben")
    browser.press("Enter")
    browser.until("location.pathname === '/labels/pets/queue/ben/' && document.body?.dataset.ready !== undefined")
    browser.press("2")
    browser.until("document.getElementById('where').textContent === '1 of 8'")
    lines = (place.folder / "pets" / "samples" / "labels.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["dog"]
    shown(browser, f"{origin}/labels/pets/grid/ben?proposed=cat")
    browser.ask("document.querySelector('.labelling button.main').click()")
    browser.until("document.readyState === 'complete' && document.body?.textContent.includes('Nothing is left')")
    assert browser.trouble == []


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_pages_fit_and_load_nothing_from_elsewhere(browser, origin, artefacts, width, scheme):
    browser.view(width, 900, scheme)
    for path in PAGES[:-1]:
        shown(browser, f"{origin}{path}")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth"), path
        assert [one for one in browser.requests if not one.startswith(("data:", f"{origin}/"))] == []
        assert browser.trouble == [], path
        name = "".join(letter if letter.isalnum() else "-" for letter in path.strip("/"))
        browser.screenshot(artefacts / f"studio-{name}-{width}-{scheme}.png", whole=True)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The accessibility checker, from npm."""
    if shutil.which("npm") is None:
        pytest.skip("need npm, for axe-core: apt-get install npm")
    folder = tmp_path_factory.mktemp("axe")
    words = ["npm", "pack", f"axe-core@{AXE}", "--silent"]
    packed = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    if packed.returncode != 0:
        pytest.skip(f"npm cannot get axe-core {AXE}: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / f"axe-core-{AXE}.tgz") as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_an_accessibility_check_finds_nothing_serious(browser, origin, axe, width, scheme):
    browser.view(width, 900, scheme)
    found: dict[str, Any] = {}
    for path in PAGES:
        shown(browser, f"{origin}{path}")
        browser.ask(f"{axe}; window.found = null; axe.run().then(one => {{ window.found = one.violations; }}); 0")
        browser.until("window.found !== null")
        told = "found.filter(one => ['serious', 'critical'].includes(one.impact))"
        serious = browser.ask(f"{told}.map(one => [one.id, ...one.nodes.slice(0, 3).map(node => node.html)])")
        if serious:
            found[path] = serious
    assert found == {}


@pytest.mark.slow
def test_the_accessibility_check_can_fail(browser, origin, axe):
    shown(browser, f"{origin}/runs")
    browser.ask(
        "document.querySelector('input[name=words]').closest('label').replaceWith(document.createElement('input'))"
    )
    browser.ask(f"{axe}; window.found = null; axe.run().then(one => {{ window.found = one.violations; }}); 0")
    browser.until("window.found !== null")
    assert "label" in browser.ask("found.map(one => one.id)")
