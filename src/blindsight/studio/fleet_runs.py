"""Runs that ask a fleet: each site's answer to the question, and the rounds that it has missed."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from blindsight.errors import BlindsightError
from blindsight.runs import SITES, Run
from blindsight.studio.listing import RunList, RunRow

__all__ = ["FleetRun", "SiteWord", "runs_of_fleet", "words_of_sites"]

_STATES = {
    "approved": ("approved", "The site takes part."),
    "pending": ("pending", "An officer of the site has to decide: blindsight site review."),
    "deciding": ("pending", "The site is deciding."),
    "silent": ("silent", "The site has not answered."),
}
_MISSED = "fleet.json"


@dataclasses.dataclass(frozen=True)
class SiteWord:
    """One site's answer: approved, pending, silent or refused; `missed` names the rounds without it."""

    site: str
    state: str
    meaning: str
    missed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class FleetRun:
    """A run in the list with the sites' answers and its finished rounds."""

    row: RunRow
    sites: tuple[SiteWord, ...]
    rounds: int

    def count(self, state: str) -> int:
        """Number of sites with this answer."""
        return sum(one.state == state for one in self.sites)


def words_of_sites(run: Run) -> tuple[SiteWord, ...]:
    """Every site's answer to the run's question; empty if it asked no fleet."""
    said = _object(_read(run, SITES).get("sites"))
    missed = _object(_read(run, _MISSED).get("missed"))
    return tuple(
        SiteWord(site, *_in_words(str(code)), tuple(step for step, gone in missed.items() if site in _object(gone)))
        for site, code in sorted(said.items())
    )


def runs_of_fleet(listing: RunList, sites: frozenset[str]) -> list[FleetRun]:
    """The runs of the list that asked only sites of this fleet, the newest first."""
    found: list[FleetRun] = []
    for row in listing.rows():
        run = Run(listing.folder / row.name)
        if (run.path / SITES).is_file():
            words = words_of_sites(run)
            if words and sites.issuperset(one.site for one in words):
                rounds = row.rounds or sum(1 for _ in run.path.glob("rounds/*/"))
                found.append(FleetRun(row, words, rounds))
    return found


def _in_words(code: str) -> tuple[str, str]:
    from blindsight.fleet.codes import Code

    if code in _STATES:
        return _STATES[code]
    return "refused", Code(code).meaning if code in set(Code) else ""


def _read(run: Run, file: str) -> Mapping[str, Any]:
    try:
        return _object(run.read(file))
    except (BlindsightError, OSError, UnicodeDecodeError, RecursionError):
        return {}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
