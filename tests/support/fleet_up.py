"""`blindsight fleet up` as a real process, and the ends of the lines that sites and the coordinator have to it."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from blindsight.fleet.carriers.carrier import COORDINATOR
from blindsight.fleet.carriers.over_nats import OverNats, tls_context
from blindsight.fleet.folder import FleetFolder

__all__ = ["Up", "new_fleet"]


def new_fleet(folder: Path, *sites: str) -> FleetFolder:
    """The folder of a fleet on a free port of this machine."""
    if shutil.which("nats-server", path="/usr/local/bin:/usr/bin:/usr/sbin") is None:
        pytest.skip("need nats-server: apt-get install nats-server")
    return FleetFolder.init(folder, sites=sites or ("a", "b", "c"), port=0)


class Up:
    """The server of a fleet, listening."""

    def __init__(self, fleet: FleetFolder, spawn: Callable[..., Any]) -> None:
        self.fleet, self._log = fleet, fleet.path / "up.log"
        words = [sys.executable, "-m", "blindsight", "fleet", "up", str(fleet.path)]
        with open(self._log, "w", encoding="utf-8") as log:
            self.process = spawn(*words, stdout=log, stderr=log)
        until(lambda: "listens" in self.said or self.process.poll() is not None)

    @property
    def said(self) -> str:
        """All that it has printed, the NATS server's own words too."""
        return self._log.read_text(encoding="utf-8")

    @property
    def servers(self) -> list[int]:
        """Process ids of the NATS servers so far."""
        return [int(pid) for pid in re.findall(r"\[(\d+)\].*Starting nats-server", self.said)]

    def connect(
        self, name: str, folder: Path | None = None, note: Callable[[str], None] = lambda words: None
    ) -> OverNats:
        """The end of the coordinator or a site, with the certificate in `folder`; by default its own."""
        own = folder or self.fleet.path / (name if name == COORDINATOR else f"sites/{name}")
        tls = tls_context(self.fleet.path / "authority/certificate.pem", own / "certificate.pem", own / "key.pem")
        return OverNats(f"tls://{self.fleet.settings.server}", name, tls, note)
