"""The site of the documentation: every page and every public module is on it. `make docs` builds it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def website() -> ModuleType:
    return loaded(ROOT / ".ci" / "website.py")


def test_every_page_has_a_place_on_the_site(website):
    listed = {page for pages in website.PAGES.values() for page in pages} | {"index", "command-line"}
    found = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in found if not page.startswith("decisions/")} == listed


def test_every_public_package_is_in_the_reference(website):
    listed = {f"blindsight.{name}".rstrip(".") for name in website.PACKAGES}
    pinned = loaded(ROOT / "tests" / "test_public_api.py").PINNED
    packages = {name for name in pinned if name.count(".") < 2}
    assert packages <= listed


def test_links_beside_the_pages_lead_to_the_repository_and_figures_along(website):
    text = "[a](../deploy/fleet) [b](data.md#csv) ![c](../experiments/results/bias.png) [d](https://x.org/../y)"
    assert website._relinked(text) == (
        f"[a]({website.REPOSITORY}/blob/main/deploy/fleet) [b](data.md#csv) ![c](figures/bias.png) [d](https://x.org/../y)"
    )


@pytest.mark.parametrize(("page", "marker"), [("peers", "benchmarks"), ("gallery", "figures"), ("gallery", "tables")])
def test_what_the_site_fills_in_is_pointed_to_elsewhere(website, tmp_path, page, marker):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    start = text.index(f"<!-- {marker}:")
    told = text[start : text.index("<!-- end -->", start)]
    assert "/results](https://github.com/" in told
    copy = tmp_path / "page.md"
    copy.write_text(text, encoding="utf-8")
    website._fill(copy, marker, iter(["filled in"]))
    assert "filled in" in copy.read_text(encoding="utf-8")
    assert told not in copy.read_text(encoding="utf-8")


def test_every_result_of_an_experiment_is_in_the_gallery(website, tmp_path, monkeypatch):
    monkeypatch.setattr(website, "WORK", tmp_path)
    shown = "\n".join([*website._figures(), *website._tables()])
    for file in (ROOT / "experiments" / "results").iterdir():
        assert f"### {file.stem.replace('_', ' ')}\n" in shown
    assert max(len(part.splitlines()) for part in shown.split("### ")) < 60  # nobody reads longer tables
    assert "| simulation | 0.6667 |" in shown


def test_docstrings_become_markdown(website):
    told = website._prose("Sum.\n\nArgs:\n    a: One\n        number.\n    b: Other.\n\n>>> 1 + 1\n2")
    assert "- `a`: One" in told
    assert "- `b`: Other." in told
    assert "```pycon\n>>> 1 + 1\n2\n```" in told


def test_the_fastest_setting_of_every_peer_is_compared(website):
    same = {"task": "cnn", "private": False, "cohort": 9, "peak_memory_mib": 1.0}
    speeds = (("blindsight", 30.0), ("pfl", 10.0), ("pfl", 20.0))
    runs = [{"peer": peer, "version": peer, "clients_per_s": speed, **same} for peer, speed in speeds]
    table = "\n".join(website._compared("x.json", "a machine", "cnn", False, runs))
    assert "| pfl | 20.0 | 1.50 times as fast |" in table
    assert "a machine" in table
    assert not list(website._compared("x.json", "a machine", "cnn", True, runs))
