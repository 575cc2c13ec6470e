"""The studio as an application: pages over runs, ledgers, questions, labels and fleets, behind the gate."""

import functools
import mimetypes
from importlib.resources import files
from pathlib import PurePosixPath

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.studio import compare_pages, fleet_pages, label_pages, ledger_pages, question_pages, run_pages
from blindsight.studio.gate import Gate
from blindsight.studio.web import Workspace, refused

__all__ = ["ASSETS", "make_studio"]

_PAGES = (run_pages, compare_pages, ledger_pages, question_pages, label_pages, fleet_pages)

ASSETS = ("style.css", "studio.css", "studio.js", "vendor/htmx.min.js", "vendor/htmx-sse.min.js")


def make_studio(place: Workspace, *, token: str, port: int) -> Gate:
    """The application, which lets one browser in for `token`; `port` is the one it is served at."""
    app = Starlette(
        routes=[Route("/assets/{name:path}", _asset), *(route for one in _PAGES for route in one.routes)],
        exception_handlers={404: _missing, BlindsightError: _refused},
    )
    app.state.place = place
    return Gate(app, token=token, port=port, writable=place.writable)


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        return PlainTextResponse("not found\n", 404)
    kind = mimetypes.guess_type(PurePosixPath(name).name)[0]
    return Response(_content(name), media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


@functools.cache
def _content(name: str) -> bytes:
    return files("blindsight.pages").joinpath("assets", name).read_bytes()


async def _missing(request: Request, error: Exception) -> Response:
    return refused(request, InvalidInput("There is no such page here."))


async def _refused(request: Request, error: Exception) -> Response:
    return refused(request, error)
