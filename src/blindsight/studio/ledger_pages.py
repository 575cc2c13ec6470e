"""Pages about ledgers: the spending of every population, the cost of one more question, and exports."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.studio.web import Workspace, page, parts

if TYPE_CHECKING:
    from blindsight.accounting.chain import Entry
    from blindsight.accounting.ledger import Ledger
    from blindsight.accounting.statement import Account

__all__ = ["ledger_of", "routes", "whole_number"]

_SHOWN = 50  # entries on one page
_DELTA = 1e-6  # for populations without a budget


def ledger_of(request: Request) -> "Ledger":
    """The ledger that a page asks for by its place in the list; the first if it names none."""
    from blindsight.accounting.ledger import Ledger

    place: Workspace = request.app.state.place
    at = whole_number(request.query_params.get("at"), 0)
    if at >= len(place.ledgers):
        raise InvalidInput("there is no such ledger: name it with --ledger when you start blindsight studio")
    return Ledger(place.ledgers[at])


def whole_number(text: str | None, otherwise: int) -> int:
    """A whole number of a query, or another one if it is none."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else otherwise


def _show(request: Request) -> Response:
    from blindsight.accounting.statement import Statement

    place: Workspace = request.app.state.place
    ledger, at = ledger_of(request), whole_number(request.query_params.get("at"), 0)
    exists = ledger.path.exists()
    statement = Statement.of(ledger, delta=_DELTA)
    entries = ledger.entries() if exists else []
    population = request.query_params.get("population", "")
    listed = [one for one in reversed(entries) if population in ("", one.population)]
    people = {row.key: row.by for row in place.listing.rows()}
    first = whole_number(request.query_params.get("from"), 0)
    values: dict[str, Any] = {
        "accounts": [_bar(one, entries, people) for one in statement.accounts],
        "entries": [_in_words(one, people) for one in listed[first : first + _SHOWN]],
        "found": len(listed),
        "first": first,
        "shown": _SHOWN,
        "population": population,
        "at": at,
    }
    if request.headers.get("hx-target") == "entries":
        return parts("ledger_entries.html", values)
    values |= {"title": "Ledger", "exists": exists, "ledgers": place.ledgers, "ledger": ledger.path}
    return page(request, "ledger.html", {**values, "verified": _verified(ledger) if exists else None})


def _verified(ledger: "Ledger") -> tuple[bool, str]:
    """Whether the chain is intact, and what to say of it."""
    try:
        result = ledger.verify()
    except BlindsightError as error:
        return False, str(error)
    return result.ok, str(result)


def _by(entry: "Entry", people: Mapping[str, str]) -> str:
    """Who began the run of an entry, if its folder is here: the same name and id."""
    return people.get(" ".join(entry.run.split(" ")[:2]), "")


def _bar(one: "Account", entries: Sequence["Entry"], people: Mapping[str, str]) -> dict[str, Any]:
    """An account with the lengths of its bars as shares of the budget, or of the larger one without a budget."""
    from blindsight.accounting.guarantee import round_up

    own = [entry for entry in entries if entry.population == one.population and entry.kind == "release"]
    runs = Counter((entry.run.split(" ")[0] or "no run", _by(entry, people)) for entry in own)
    limit = one.budget.epsilon if one.budget is not None else one.adaptive_epsilon
    scale = max(limit, one.adaptive_epsilon, one.spent.epsilon, 1e-12)

    def share(value: float) -> float:
        return round(100 * value / scale, 2) if math.isfinite(scale) else 100.0

    return {
        "account": one,
        "adaptive": round_up(one.adaptive_epsilon),
        "planned": round_up(one.spent.epsilon),
        "adaptive_share": share(one.adaptive_epsilon),
        "planned_share": share(one.spent.epsilon),
        "budget_share": None if one.budget is None else share(one.budget.epsilon),
        "runs": [(name, by, count) for (name, by), count in runs.items()],
        "is_over": one.state == "overspent",
    }


def _in_words(entry: "Entry", people: Mapping[str, str]) -> dict[str, Any]:
    """An entry with what it was, in a few words."""
    what = entry.event
    if entry.kind == "budget":
        try:
            limit = json.loads(entry.event)
            what = f"budget: epsilon {limit['epsilon']:g} at delta {limit['delta']:g}"
        except (ValueError, KeyError, TypeError):
            pass
    elif entry.kind == "data":
        what = "fingerprint of the data, sealed"
    return {"entry": entry, "what": what, "run": entry.run.split(" ")[0], "by": _by(entry, people)}


def _foresee(request: Request) -> Response:
    """What a population would have spent after one more question, by the ledger's own filter; nothing is written."""
    from blindsight.accounting.events import Gaussian, Repeated
    from blindsight.accounting.guarantee import round_up
    from blindsight.accounting.planning import solve_noise

    asked = request.query_params
    population, task = asked.get("population", "").strip(), asked.get("task", "question")[:40]
    if not population:
        raise InvalidInput("name a population")
    ledger = ledger_of(request)
    epsilon, times = real_number(asked.get("epsilon"), "epsilon"), whole_number(asked.get("times"), 1)
    if not 1 <= times <= 1000:
        raise InvalidInput(f"ask once or up to 1,000 times, got {times}")
    budget = ledger.budget(population)
    delta = budget.delta if budget is not None else _DELTA
    noise = solve_noise(lambda z: Gaussian(z, rounded=True), epsilon=epsilon, delta=delta)
    event = Gaussian(noise, rounded=True)
    whole = event if times == 1 else Repeated(event, times)
    promise, refused = ledger.foresee(whole, population, delta)
    values: dict[str, Any] = {
        "population": population,
        "task": task,
        "epsilon": epsilon,
        "delta": delta,
        "times": times,
        "before": round_up(ledger.adaptive_epsilon(population, delta)),
        "after": round_up(ledger.adaptive_epsilon(population, delta, more=whole)),
        "planned": round_up(promise.epsilon),
        "budget": budget,
        "refused": refused,
    }
    return parts("foreseen.html", values)


def real_number(text: str | None, name: str) -> float:
    """A positive number of a form."""
    try:
        value = float((text or "").replace(",", "."))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidInput(f"{name} must be a positive number, got {(text or '')[:40]!r}")
    return value


def _export(request: Request) -> Response:
    """All entries: JSON as `blindsight ledger export --json` writes it, lines that `verify --export` checks, or CSV."""
    from blindsight.accounting.chain import Entry, to_line

    ledger, kind = ledger_of(request), request.path_params["kind"]
    entries = ledger.entries()
    if kind == "json":
        text, media = "[" + ",\n".join(map(to_line, entries)) + "]\n", "application/json"
    elif kind == "jsonl":
        text, media = "".join(to_line(entry) + "\n" for entry in entries), "application/x-ndjson"
    elif kind == "csv":
        out = io.StringIO()
        writer = csv.writer(out)
        names = list(Entry.__dataclass_fields__)
        writer.writerow(names)
        writer.writerows([_cell(getattr(entry, name)) for name in names] for entry in entries)
        text, media = out.getvalue(), "text/csv"
    else:
        raise InvalidInput("the ledger is exported as csv, json or jsonl")
    name = f"{Path(ledger.path).stem}.{kind}"
    return Response(text, media_type=media, headers={"Content-Disposition": f'attachment; filename="{_plain(name)}"'})


def _cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula."""
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _plain(name: str) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in ".-_") else "-" for letter in name)


routes = [
    Route("/ledger", _show),
    Route("/ledger/foresee", _foresee),
    Route("/ledger/export.{kind}", _export),
]
