"""Pages about labels: sets to label, one set with its raters, the queue, a grid, history and agreement."""

import base64
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from blindsight.errors import InvalidInput
from blindsight.runs import Run
from blindsight.studio.web import Workspace, page, parts, posted, told

if TYPE_CHECKING:
    from blindsight.samples.synthetic_set import Sample, SyntheticSet
    from blindsight.studio.labels import Labels
    from blindsight.studio.queue import Queue

__all__ = ["routes"]

_GRID, _HISTORY = 48, 60  # samples on a grid, decisions in a history
_SET = "samples/samples.parquet"
_MODES = ("queue", "blind", "grid", "history")


def _run(request: Request) -> Run:
    place: Workspace = request.app.state.place
    run = place.listing.find(request.path_params["name"])
    if not (run.path / _SET).is_file():
        raise InvalidInput(f"{run.path.name} has no samples to label: blindsight inspect labelling makes some")
    return run


def _labels(run: Run) -> "Labels":
    """The labels as they are on disk now: other raters write to the same file."""
    from blindsight.studio.labels import Labels

    return Labels(_set(run.path, (run.path / _SET).stat().st_mtime_ns))


@functools.lru_cache(maxsize=4)
def _set(folder: Path, changed: int) -> "SyntheticSet":
    from blindsight.samples.synthetic_set import read_set

    return read_set(folder)


def _queue(request: Request, *, blind: bool = False) -> "Queue":
    from blindsight.studio.queue import Queue

    return Queue(_labels(_run(request)), request.path_params["rater"], shows_proposals=not blind)


def _list(request: Request) -> Response:
    place: Workspace = request.app.state.place
    rows = [row for row in place.listing.rows() if (place.folder / row.name / _SET).is_file()]
    return page(request, "labels.html", {"title": "Labels", "rows": rows})


def _show(request: Request) -> Response:
    from blindsight.accounting.privacy_bar import privacy_bar
    from blindsight.studio.agreeing import agreement

    run = _run(request)
    if mode := request.query_params.get("mode"):
        rater = request.query_params.get("rater", "").strip()
        if mode not in _MODES or not rater or "/" in rater:
            raise InvalidInput("a rater's name is one line without slashes")
        rest = "/" if mode in ("queue", "blind") else ""
        return RedirectResponse(f"/labels/{quote(run.path.name)}/{mode}/{quote(rater)}{rest}", 303)
    labels = _labels(run)
    values: dict[str, Any] = {
        "title": run.path.name,
        "name": run.path.name,
        "labels": labels,
        "bar": privacy_bar(labels.dataset.guarantee),
        "agreement": agreement(labels),
    }
    return page(request, "label_set.html", values)


def _instruct(request: Request, fields: Mapping[str, str]) -> Response:
    _labels(_run(request)).instruct(fields.get("text", ""))
    return told("Saved.")


async def _queue_page(request: Request) -> Response:
    from blindsight.studio.app import queue_page

    run = await run_in_threadpool(_run, request)
    await run_in_threadpool(_queue, request)
    return queue_page(request.scope["csrf"], f"/labels/{quote(run.path.name)}")


def _state(request: Request) -> Response:
    return JSONResponse(_queue(request, blind=request.path_params["mode"] == "blind").state())


async def _act(request: Request) -> Response:
    """Perform what the queue's page posts, while nobody else labels as this rater."""
    from blindsight.studio.app import ACTIONS, perform

    queue = await run_in_threadpool(_queue, request, blind=request.path_params["mode"] == "blind")
    act = ACTIONS.get(request.path_params["act"])
    if act is None:
        raise InvalidInput("there is no such action")
    with queue.labels.alone(queue.rater):
        return await perform(request, act, queue)


def _grid(request: Request) -> Response:
    """Samples that are left, those with one proposed label together."""
    queue = _queue(request)
    proposed = list(dict.fromkeys(one.proposed for one in queue.left if one.proposed is not None))
    only = request.query_params.get("proposed", proposed[0] if proposed else "")
    left = [one for one in queue.left if only in ("", one.proposed)]
    values: dict[str, Any] = {
        "title": f"Grid of {queue.rater}",
        "queue": queue,
        "name": request.path_params["name"],
        "proposed": sorted(proposed),
        "only": only,
        "left": len(queue.left),
        "tiles": [_tile(queue.labels.dataset, one) for one in left[:_GRID]],
    }
    return page(request, "label_grid.html", values)


def _label_many(request: Request, fields: Mapping[str, str]) -> Response:
    """Label every chosen sample of the grid alike; all of them or none."""
    from blindsight.studio.labels import Decision, now

    queue = _queue(request)
    chosen = [name.removeprefix("sample:") for name in fields if name.startswith("sample:")]
    left = {one.sample_id for one in queue.left}
    if not chosen or not left.issuperset(chosen):
        raise InvalidInput("choose samples that are not labelled yet: reload the page")
    label = fields.get("label", "")
    with queue.labels.alone(queue.rater):
        queue.labels.add([Decision(one, queue.rater, label, 0.0, now()) for one in chosen])
    answer = told(f"{len(chosen):,} labelled {label}.")
    answer.headers["HX-Refresh"] = "true"
    return answer


def _history(request: Request) -> Response:
    """The rater's current decisions, the newest first, each of which may be changed."""
    queue = _queue(request)
    dataset = queue.labels.dataset
    stands = list(queue.labels.standing(queue.rater).values())
    rows = [(one, _tile(dataset, dataset.by_id[one.sample_id])) for one in reversed(stands[-_HISTORY:])]
    values = {"title": f"History of {queue.rater}", "queue": queue, "name": request.path_params["name"]}
    return page(request, "label_history.html", {**values, "rows": rows, "total": len(stands)})


def _relabel(request: Request, fields: Mapping[str, str]) -> Response:
    from blindsight.studio.labels import Decision, now

    queue = _queue(request)
    sample, label = fields.get("sample", ""), fields.get("label") or None
    if sample not in queue.labels.standing(queue.rater):
        raise InvalidInput("only what is labelled can be changed: reload the page")
    with queue.labels.alone(queue.rater):
        queue.labels.add([Decision(sample, queue.rater, label, 0.0, now())])
    return parts("told.html", {"words": "Changed.", "is_error": False})


def _tile(dataset: "SyntheticSet", sample: "Sample") -> dict[str, Any]:
    """The values for a small picture of a sample."""
    picture = None if sample.picture is None else base64.b64encode(sample.picture).decode("ascii")
    row = None if sample.row is None else dataset.in_words(sample.row)
    return {"id": sample.sample_id, "picture": picture, "row": row, "proposed": sample.proposed}


routes = [
    Route("/labels", _list),
    Route("/labels/{name}", _show),
    Route("/labels/{name}/instructions", posted(_instruct), methods=["POST"]),
    Route("/labels/{name}/grid/{rater}", _grid),
    Route("/labels/{name}/grid/{rater}", posted(_label_many), methods=["POST"]),
    Route("/labels/{name}/history/{rater}", _history),
    Route("/labels/{name}/history/{rater}", posted(_relabel), methods=["POST"]),
    Route("/labels/{name}/{mode:str}/{rater}/", _queue_page),
    Route("/labels/{name}/{mode:str}/{rater}/state", _state),
    Route("/labels/{name}/{mode:str}/{rater}/{act}", _act, methods=["POST"]),
]
