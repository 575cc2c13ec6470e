"""`make fleet-demo`: three sites in processes of their own find the planted fault."""

import runpy
import sys
from pathlib import Path

import pytest
from fleet_up import new_fleet
from waiting import HANG_S

from blindsight.fleet.site.settings import SiteSettings

DEMO = Path(__file__).parents[2] / "examples" / "fleet_demo.py"


def test_it_fills_in_settings_that_sites_accept(tmp_path: Path):
    demo = runpy.run_path(str(DEMO))
    fleet = new_fleet(tmp_path / "hospitals", *demo["SITES"])
    demo["fill_in"](fleet.path)
    for name, (clients, fault) in demo["SITES"].items():
        settings = SiteSettings.read(fleet.path / "sites" / name / "SITE.toml")
        assert (settings.name, settings.site.clients) == (name, clients)
        assert settings.site.server == f"tls://{fleet.settings.server}"
        assert settings.data.options["fault"] == fault
        assert settings.policy.approve == "automatically"


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.timeout(1200)
def test_the_fault_is_named(tmp_path: Path, spawn):
    new_fleet(tmp_path / "probe")  # skips where there is no server
    with open(tmp_path / "said", "w", encoding="utf-8") as said:
        done = spawn(sys.executable, str(DEMO), "--folder", str(tmp_path), stdout=said, stderr=said).wait(4 * HANG_S)
    text = (tmp_path / "said").read_text(encoding="utf-8")
    assert done == 0, text
    assert "invert" in text.partition("inspect slices")[2].partition("fleet status")[0]
