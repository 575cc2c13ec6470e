"""Pages about runs: the list, one run with its progress, its files, notes and tags, and its end."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from blindsight import pages
from blindsight.errors import InvalidInput
from blindsight.pages.curves import curves
from blindsight.runs import Run
from blindsight.studio.details import Curves, file_of, files_of, flat, header_of, measured, promise_of
from blindsight.studio.fleet_runs import words_of_sites
from blindsight.studio.listing import SORTS, RunRow
from blindsight.studio.notes import save_notes
from blindsight.studio.web import Workspace, page, parts, posted, report_policy, told

__all__ = ["routes"]

_SHOWN = 100  # runs on one page of the list
_LOOK_EVERY_S = 1.0


def _place(request: Request) -> Workspace:
    return request.app.state.place


def _run(request: Request) -> Run:
    return _place(request).listing.find(request.path_params["name"])


def _home(request: Request) -> Response:
    return RedirectResponse("/runs", 303)


def _list(request: Request) -> Response:
    """All runs, or the rows alone if the page asks for them as somebody types."""
    asked, listing = request.query_params, _place(request).listing
    every = listing.rows()
    chosen = {name: asked.get(name, "") for name in ("words", "kind", "state")}
    sort = asked.get("sort", "began") if asked.get("sort") in SORTS else "began"
    up = asked.get("up") == "1"
    first = _whole(asked.get("from"))
    rows = listing.select(**chosen, sort=sort, up=up)
    values: dict[str, Any] = {
        "rows": rows[first : first + _SHOWN],
        "found": len(rows),
        "total": len(every),
        "first": first,
        "shown": _SHOWN,
        "asked": {**chosen, "sort": sort, "up": "1" if up else ""},
    }
    if request.headers.get("hx-target") == "found":
        return parts("runs_found.html", values)
    kinds, states = (sorted({getattr(row, name) for row in every}) for name in ("kind", "state"))
    return page(request, "runs.html", {"title": "Runs", "kinds": kinds, "states": states, **values})


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else 0


def _show(request: Request) -> Response:
    from blindsight.accounting.privacy_bar import privacy_bar

    run = _run(request)
    row, promise = _place(request).listing.row(run), promise_of(run)
    header = header_of(run)
    values = {
        "title": row.name,
        "row": row,
        "promise": promise,
        "bar": None if promise is None else privacy_bar(promise),
        "settings": list(flat(header.get("settings"))),
        "files": files_of(run),
        "sites": words_of_sites(run),
        "progress": _progress(row, measured(run)),
        "header": header,
    }
    return page(request, "run.html", values)


def _progress(row: RunRow, found: Curves) -> str:
    """The progress of a training run, and its curves."""
    drawn = [
        (name, name in found.unprotected, curves([found.named(name, name, place)], across="round", upwards=name))
        for place, name in enumerate(found.curves)
    ]
    done = max(found.rounds, row.rounds or 0)
    return pages.part("studio/progress.html", row=row, done=done, drawn=drawn, found=found)


async def _events(request: Request) -> Response:
    """Server-sent events: the progress again whenever it changed, until the run is no longer running."""
    place = _place(request)
    run = await run_in_threadpool(lambda: place.listing.find(request.path_params["name"]))

    async def stream() -> AsyncIterator[str]:
        last = ""
        while not await request.is_disconnected():
            row, found = await run_in_threadpool(lambda: (place.listing.row(run), measured(run)))
            text = _progress(row, found)
            if text != last:
                yield event("progress", text)
                last = text
            if row.state != "running":
                yield event("done", row.state)
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    return StreamingResponse(stream(), media_type="text/event-stream")


def event(name: str, text: str) -> str:
    """A server-sent event.

    >>> event("done", "one\\ntwo")
    'event: done\\ndata: one\\ndata: two\\n\\n'
    """
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def _file(request: Request) -> Response:
    """A file of a run: a report to read, in a sandbox, and anything else to keep."""
    path = file_of(_run(request), request.path_params["file"])
    if path.suffix == ".html":
        return FileResponse(path, media_type="text/html", headers={"Content-Security-Policy": report_policy()})
    headers = {"Content-Security-Policy": "sandbox; default-src 'none'"}
    return FileResponse(path, media_type="application/octet-stream", filename=path.name, headers=headers)


def _keep_notes(request: Request, fields: Mapping[str, str]) -> Response:
    tags = fields.get("tags", "").replace(",", " ").split()
    save_notes(_run(request), fields.get("note", ""), tags)
    return told("Saved.")


def _delete(request: Request, fields: Mapping[str, str]) -> Response:
    """Delete a run whose name was typed, unless a process is using it."""
    run = _run(request)
    if fields.get("confirm") != run.path.name:
        raise InvalidInput(f"type the name of the run, {run.path.name}, to delete it")
    with run.alone():  # a run in progress holds its lock; one that begins now is refused
        grave = run.path.with_name(f".deleted-{run.path.name}")
        shutil.rmtree(grave, ignore_errors=True)
        run.path.rename(grave)  # whole or not at all
    shutil.rmtree(grave)
    answer = told(f"{run.path.name} was deleted. What it spent stays in the ledger.")
    answer.headers["HX-Redirect"] = "/runs"
    return answer


routes = [
    Route("/", _home),
    Route("/runs", _list),
    Route("/runs/{name}", _show),
    Route("/runs/{name}/events", _events),
    Route("/runs/{name}/files/{file}", _file),
    Route("/runs/{name}/notes", posted(_keep_notes), methods=["POST"]),
    Route("/runs/{name}/delete", posted(_delete), methods=["POST"]),
]
