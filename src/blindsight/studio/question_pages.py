"""Pages about questions: compose one and see its cost and power, ask it, and watch it."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from blindsight import pages
from blindsight.errors import InvalidInput
from blindsight.studio.asked import AskedQuestion
from blindsight.studio.composing import FIELDS, QUESTIONS, USUAL_EPSILON, ComposedQuestion, composed
from blindsight.studio.run_pages import event
from blindsight.studio.web import Workspace, page, parts, posted, told

__all__ = ["routes"]

_LOOK_EVERY_S = 0.5
_FAULTS_SHOWN = 8
_USUAL = {"data": ("handwriting", "tabular"), "epsilon": ("8", "1")}
"""What a form proposes: another question proposes its own."""


def _workspace(request: Request) -> Workspace:
    return request.app.state.place


def _show(request: Request) -> Response:
    from blindsight.data.embedded import POPULATIONS

    task = request.query_params.get("task", "slices")
    task = task if task in FIELDS else "slices"
    values: dict[str, Any] = {
        "title": "Questions",
        "questions": QUESTIONS,
        "fields": FIELDS[task],
        "task": task,
        "given": {name: text for name, text in request.query_params.items() if text not in _USUAL.get(name, ())},
        "fleets": {str(path): path.resolve().name for path in _workspace(request).fleets},
        "usual_epsilon": USUAL_EPSILON.get(task, 8.0),
        "populations": list(POPULATIONS),
        "asked": _workspace(request).questions.all(),
    }
    if request.headers.get("hx-target") == "fields":
        return parts("question_fields.html", values)
    return page(request, "questions.html", values)


def _cost(request: Request) -> Response:
    """What the question costs and what the ledger would say: arithmetic alone, at once."""
    from blindsight.accounting.events import Gaussian
    from blindsight.accounting.guarantee import round_up
    from blindsight.accounting.ledger import Ledger
    from blindsight.accounting.planning import solve_noise

    question, place = _composed(request, request.query_params), _workspace(request)
    epsilon = float(question.fields.get("epsilon", USUAL_EPSILON.get(question.task, 8.0)))
    delta = float(question.fields.get("delta", 1e-6))
    ledger = Ledger(place.ledgers[0]) if place.ledgers else None
    values: dict[str, Any] = {"question": question, "epsilon": epsilon, "delta": delta, "known": False, "refused": ""}
    values["command"] = shlex.join(["blindsight", *question.words])
    if ledger is not None:
        event = Gaussian(solve_noise(lambda z: Gaussian(z, rounded=True), epsilon=epsilon, delta=delta), rounded=True)
        budget = ledger.budget(question.payer)
        at = delta if budget is None else budget.delta
        values |= {"known": question.payer in ledger.populations(), "budget": budget}
        values |= {"before": round_up(ledger.adaptive_epsilon(question.payer, at))}
        values |= {"after": round_up(ledger.adaptive_epsilon(question.payer, at, more=event))}
        values |= {"refused": ledger.foresee(event, question.payer, at)[1]}
    return parts("question_cost.html", values)


def _power(request: Request) -> Response:
    """What the question could find: the dry run, from another process; the page asks again until it is there."""
    question = _composed(request, request.query_params)
    found = _workspace(request).dry_runs.look(question)
    report = found.get("report")
    limits: list[dict[str, Any]] = ((report or {}).get("detection") or {}).get("limits") or []
    listed = sorted((one for one in limits if one["smallest"] is not None), key=lambda one: one["smallest"])
    values: dict[str, Any] = {
        "found": found,
        "report": report,
        "limits": listed[:_FAULTS_SHOWN],
        "blind": [one["fault"] for one in limits if one["smallest"] is None],
        "again": request.url.query,
    }
    return parts("question_power.html", values)


def _ask(request: Request, fields: Mapping[str, str]) -> Response:
    """Ask it, which pays; the page of its progress is next."""
    question = _composed(request, fields)
    name = fields.get("name", "").strip() or _usual_name(question)
    one = _workspace(request).questions.ask(question, name)
    answer = told("Asking.")
    answer.headers["HX-Redirect"] = f"/questions/{one.number}"
    return answer


def _composed(request: Request, given: Mapping[str, str]) -> ComposedQuestion:
    """The question of a form; of the fleets of this studio only."""
    question = composed(given)
    if (fleet := question.fields.get("fleet")) is not None and Path(fleet) not in _workspace(request).fleets:
        raise InvalidInput("there is no such fleet here: name its folder with --fleet when you start blindsight studio")
    return question


def _usual_name(question: ComposedQuestion) -> str:
    letters = f"{question.task}-{question.payer}"
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in letters)[:80]


def _watch(request: Request) -> Response:
    one = _workspace(request).questions.find(request.path_params["number"])
    return page(request, "question.html", {"title": one.name, "one": one, "printed": _printed(request, one)})


def _printed(request: Request, one: AskedQuestion) -> str:
    try:
        run = _workspace(request).listing.find(one.name).path.name
    except InvalidInput:
        run = ""
    return pages.part("studio/printed.html", one=one, lines=one.lines, run=run)


async def _events(request: Request) -> Response:
    """Server-sent events: what the question printed, until it ends."""
    one = _workspace(request).questions.find(request.path_params["number"])

    async def stream() -> AsyncIterator[str]:
        last = ""
        while not await request.is_disconnected():
            state = one.state  # before the lines, so that the last ones are not missed
            text = await run_in_threadpool(_printed, request, one)
            if text != last:
                yield event("printed", text)
                last = text
            if state != "running":
                yield event("done", state)
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    return StreamingResponse(stream(), media_type="text/event-stream")


def _stop(request: Request, fields: Mapping[str, str]) -> Response:
    _workspace(request).questions.stop(request.path_params["number"])
    return told("Stopping. Ask it again under the same name to resume; nothing is paid for twice.")


routes = [
    Route("/questions", _show),
    Route("/questions/cost", _cost),
    Route("/questions/power", _power),
    Route("/questions/ask", posted(_ask), methods=["POST"]),
    Route("/questions/{number}", _watch),
    Route("/questions/{number}/events", _events),
    Route("/questions/{number}/stop", posted(_stop), methods=["POST"]),
]
