"""Common to all pages of the studio: where they look, how they answer, and what they refuse."""

import dataclasses
import functools
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from blindsight import pages
from blindsight.errors import InvalidInput
from blindsight.studio.asked import AskedQuestions
from blindsight.studio.composing import DryRuns
from blindsight.studio.listing import RunList

__all__ = ["Workspace", "form", "page", "parts", "posted", "refused", "report_policy", "told"]

_MOST_BYTES = 100_000


@dataclasses.dataclass(frozen=True)
class Workspace:
    """What one studio looks at: a folder of runs, ledgers, fleets; and whether it may change anything."""

    folder: Path
    ledgers: tuple[Path, ...] = ()
    fleets: tuple[Path, ...] = ()
    sites: tuple[Path, ...] = ()
    writable: bool = False

    @functools.cached_property
    def questions(self) -> AskedQuestions:
        """The questions that were asked from this studio."""
        return AskedQuestions(self.folder, self.ledgers[0] if self.ledgers else None)

    @functools.cached_property
    def dry_runs(self) -> DryRuns:
        """Dry runs of questions."""
        return DryRuns(self.ledgers[0] if self.ledgers else None)

    @functools.cached_property
    def listing(self) -> RunList:
        """The runs of the folder."""
        return RunList(self.folder)


def page(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """The page that `studio/TEMPLATE` makes of these values."""
    place: Workspace = request.app.state.place
    shared = {"place": place, "csrf": request.scope["csrf"], "path": request.url.path}
    return HTMLResponse(pages.render(f"studio/{template}", **shared, **values), status)


def parts(template: str, values: Mapping[str, Any]) -> Response:
    """A part of a page, for the page to put in place."""
    return HTMLResponse(pages.render(f"studio/{template}", **values))


def told(words: str, *, is_error: bool = False) -> Response:
    """A sentence for a page to show where it was asked for."""
    return parts("told.html", {"words": words, "is_error": is_error})


def refused(request: Request, error: Exception) -> Response:
    """A refusal in one sentence: in its place if the page asked for a part, else as a page."""
    if request.headers.get("hx-request") == "true":
        return told(str(error), is_error=True)  # htmx shows nothing of other answers
    status = 404 if isinstance(error, InvalidInput) else 409
    return page(request, "refused.html", {"title": "Not here", "words": str(error)}, status)


def posted(act: Callable[[Request, Mapping[str, str]], Response]) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a form: `act` runs in a thread with its fields."""

    async def endpoint(request: Request) -> Response:
        fields = await form(request)
        if fields is None:
            return PlainTextResponse("this form is too long\n", 413)
        return await run_in_threadpool(act, request, fields)

    return endpoint


async def form(request: Request) -> dict[str, str] | None:
    """The fields of a posted form, the last of each name; None if it is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            return None
    return dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def report_policy() -> str:
    """For a file of a run: a sandbox without an origin, in which no script but that of our reports runs."""
    script = pages.policy("", pages.asset("report.js")).partition("script-src ")[2].partition(";")[0]
    return (
        f"sandbox allow-scripts allow-popups; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {script}; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
