"""The page that compares two runs: one control filters findings, samples, curves and parameters of both."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blindsight.errors import InvalidInput
from blindsight.pages.bars import round_end
from blindsight.pages.curves import curves
from blindsight.runs import Run
from blindsight.studio.comparing import Told, differing, findings_of_both, told_by
from blindsight.studio.details import measured
from blindsight.studio.web import Workspace, page, parts

__all__ = ["routes"]


def _compare(request: Request) -> Response:
    place: Workspace = request.app.state.place
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if len(names) != 2:
        raise InvalidInput(f"choose two different runs to compare, got {len(names)}")
    pair = [place.listing.find(name) for name in names]
    told = [told_by(run) for run in pair]
    words = request.query_params.get("words", "").strip()
    only, every = request.query_params.get("class", ""), request.query_params.get("all") == "1"
    values: dict[str, Any] = {
        "names": names,
        "rows": [place.listing.row(run) for run in pair],
        "told": told,
        "findings": _findings(told, words, every=every),
        "samples": _samples(names, told, only),
        "curves": _curves(pair, words),
        "parameters": [one for one in differing(*pair) if (every or one[3]) and words.lower() in one[0].lower()],
        "asked": {"words": words, "class": only, "all": "1" if every else ""},
    }
    if request.headers.get("hx-target") == "compared":
        return parts("compared.html", values)
    classes = list(dict.fromkeys(name for one in told if one is not None for name in one.classes))
    return page(request, "compare.html", {"title": " and ".join(names), "classes": classes, **values})


def _findings(told: list[Told | None], words: str, *, every: bool) -> dict[str, Any] | None:
    """The findings of both reports on one scale, or None if one has no report."""
    first, second = told
    if first is None or second is None:
        return None
    rows = findings_of_both(first, second)
    shown = [row for row in rows if (every or row.is_detected) and words.lower() in row.name.lower()]
    ends = [abs(end) for row in shown for one in row.both if one is not None for end in one[:4]]
    limit = round_end(max([1e-9, *ends]))
    return {"rows": shown, "axis": (-limit, limit), "total": len(rows)}


def _samples(names: list[str], told: list[Told | None], only: str) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The samples of each arm of both, those of one arm beside each other."""
    found = [
        (str(arm.get("name", "")), run, tiles)
        for run, one in zip(names, told, strict=True)
        if one is not None
        for arm in one.arms
        if (tiles := one.tiles(arm, only))
    ]
    arms = list(dict.fromkeys(arm for arm, _, _ in found))
    return sorted(found, key=lambda one: (arms.index(one[0]), names.index(one[1])))


def _curves(pair: list[Run], words: str) -> list[tuple[str, bool, Any]]:
    """Each curve that either run has, both over one pair of axes."""
    found = [measured(run) for run in pair]
    named = list(dict.fromkeys(name for one in found for name in one.curves if words.lower() in name.lower()))
    aside = frozenset[str]().union(*(one.unprotected for one in found))
    placed = [(run.path.name, at, one) for at, (run, one) in enumerate(zip(pair, found, strict=True))]
    drawn = [
        curves([one.named(name, label, at) for label, at, one in placed], across="round", upwards=name)
        for name in named
    ]
    return [(name, name in aside, drawing) for name, drawing in zip(named, drawn, strict=True)]


routes = [Route("/compare", _compare)]
