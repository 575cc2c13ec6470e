"""A fleet's folder as a place to ask questions: `fleet_of("hospitals")`."""

import getpass
import json
from pathlib import Path

from blindsight.fleet.clients import Fleet
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.roll_call import SEEN
from blindsight.fleet.secure_sum.terms import FEWEST_SITES, least_threshold
from blindsight.fleet.sites import Patience, Sites

__all__ = ["fleet_of"]


def fleet_of(
    path: str | Path, *, asker: str | None = None, wait_s: float = 600.0, patience: Patience | None = None
) -> Fleet:
    """The fleet in a folder that `blindsight fleet init` made.

    Args:
        path: The folder.
        asker: Name of the asker, which sites check against their policies; by default this machine's user name.
        wait_s: How long to wait for sites that approve by hand.
        patience: How long to wait for silent sites.
    """
    folder = FleetFolder.read(path)
    settings, count = folder.settings, len(folder.roster)
    return Fleet(
        name=settings.name,
        connect=lambda: Sites(folder.connect(), folder.parties, patience, folder.is_revoked),
        sites=tuple(sorted(folder.roster)),
        noise=settings.noise,
        fewest=least_threshold(count) if count >= FEWEST_SITES else count,
        colluding=settings.colluding if settings.noise == "sites" else 0,
        declared=_declared(folder.path / SEEN),
        asker=asker or getpass.getuser(),
        wait_s=wait_s,
    )


def _declared(path: Path) -> dict[str, int]:
    """Number of clients that each site declared when it was last seen."""
    try:
        seen = json.loads(path.read_text(encoding="utf-8"))
        return {site: one["clients"] for site, one in seen.items() if isinstance(one.get("clients"), int)}
    except (OSError, ValueError, AttributeError):
        return {}
