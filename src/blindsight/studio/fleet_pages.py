"""Pages about fleets: their sites and which are online; and of a site: pending questions, decisions and its log."""

import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.studio.fleet_runs import runs_of_fleet
from blindsight.studio.ledger_pages import whole_number
from blindsight.studio.web import Workspace, page, parts, posted, told

if TYPE_CHECKING:
    from blindsight.fleet.site.book import Book

__all__ = ["routes"]

_WAIT_S = 3.0
_LINES = 60  # of a site's log


def _workspace(request: Request) -> Workspace:
    return request.app.state.place


def _show(request: Request) -> Response:
    """All fleets and sites, from files alone: nobody is called."""
    from blindsight.fleet.folder import FleetFolder
    from blindsight.fleet.roll_call import last_seen

    place = _workspace(request)
    fleets: list[dict[str, Any]] = []
    for path in place.fleets:
        try:
            fleet = FleetFolder.read(path, to_ask=False)
            asked = runs_of_fleet(place.listing, frozenset(fleet.roster))
            fleets.append({"path": path, "fleet": fleet, "sites": last_seen(fleet), "asked": asked, "error": ""})
        except BlindsightError as error:
            fleets.append({"path": path, "fleet": None, "sites": [], "error": str(error)})
    return page(request, "fleets.html", {"title": "Fleets", "fleets": fleets, "sites": place.sites, "called": False})


def _asked(request: Request) -> Response:
    """The questions of one fleet again, with the rounds that they have finished meanwhile."""
    from blindsight.fleet.folder import FleetFolder

    place, at = _workspace(request), whole_number(request.query_params.get("at"), 0)
    if at >= len(place.fleets):
        raise InvalidInput("there is no such fleet")
    fleet = FleetFolder.read(place.fleets[at], to_ask=False)
    return parts("fleet_asked.html", {"asked": runs_of_fleet(place.listing, frozenset(fleet.roster)), "at": at})


def _call(request: Request) -> Response:
    """Ask every site of a fleet whether it is online."""
    from blindsight.fleet.folder import FleetFolder
    from blindsight.fleet.roll_call import roll_call

    place, at = _workspace(request), whole_number(request.query_params.get("at"), 0)
    if at >= len(place.fleets):
        raise InvalidInput("there is no such fleet")
    sites = roll_call(FleetFolder.read(place.fleets[at], to_ask=False), timeout_s=_WAIT_S)
    return parts("presences.html", {"sites": sites, "at": at, "called": True})


def _book(request: Request) -> "Book":
    from blindsight.fleet.site.book import Book
    from blindsight.fleet.site.settings import SiteSettings

    place, at = _workspace(request), whole_number(request.path_params["at"], -1)
    if not 0 <= at < len(place.sites):
        raise InvalidInput("there is no such site: name its SITE.toml with --site")
    return Book(SiteSettings.read(place.sites[at]))


def _site(request: Request) -> Response:
    """A site's questions by state, the spending of askers, and the latest lines of its log."""
    book = _book(request)
    lines, verified = book.diary.lines(), book.diary.verify()
    records, spent, policy = book.jobs(), book.spent(), book.settings.policy
    askers = list(dict.fromkeys([*policy.askers, *(one.asked.asker for one in records)]))
    name = book.settings.name
    values: dict[str, Any] = {
        "title": name,
        "at": request.path_params["at"],
        "waiting": [one for one in records if one.waits],
        "decided": [one for one in reversed(records) if not one.waits],
        "total": (spent[name], policy.epsilon_total),
        "askers": [
            (who, spent.get(f"{book.settings.name}, asked by {who}", 0.0), policy.limit_of(who)) for who in askers
        ],
        "lines": list(reversed(lines[-_LINES:])),
        "verified": verified,
    }
    if request.headers.get("hx-target") == "feed":
        return parts("feed.html", values)
    return page(request, "site.html", values)


def _decide(request: Request, fields: Mapping[str, str]) -> Response:
    """The officer approves or denies a question, as `blindsight site review` does."""
    book, officer = _book(request), getpass.getuser()
    if fields.get("decision") == "approve":
        book.approve(fields.get("job", ""), officer=officer)
    elif fields.get("decision") == "deny":
        if not (reason := fields.get("reason", "").strip()):
            raise InvalidInput("give a reason, which stays at the site")
        book.deny(fields.get("job", ""), officer=officer, reason=reason)
    else:
        raise InvalidInput("choose approve or deny")
    answer = told("Decided.")
    answer.headers["HX-Refresh"] = "true"
    return answer


routes = [
    Route("/fleets", _show),
    Route("/fleets/call", _call),
    Route("/fleets/asked", _asked),
    Route("/fleets/sites/{at}", _site),
    Route("/fleets/sites/{at}/decide", posted(_decide), methods=["POST"]),
]
