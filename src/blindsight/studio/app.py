"""The page with the label queue, for the one person at this machine who has its address.

Nobody else on the machine can read or post anything: every path begins with a random token, requests must name this
machine as their host (DNS rebinding from another page is refused), and posted bodies must be JSON. The page requests
only its own two addresses, which its Content-Security-Policy enforces.
"""

import json
import secrets
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from blindsight import pages
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.studio.gate import names_this_machine
from blindsight.studio.queue import Queue

__all__ = ["ACTIONS", "make_app", "perform", "queue_page"]

_MOST = 100_000  # bytes per body: keys for thousands of classes
_UNKEPT = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

Act = Callable[[Queue, dict[str, Any]], None]


def make_app(queue: Queue, token: str) -> Starlette:
    """The application: the page at `/TOKEN/`, its state, and its POST requests."""
    shown = queue_page()

    async def page(request: Request) -> Response:
        return _closed(request, token) or shown

    async def state(request: Request) -> Response:
        return _closed(request, token) or JSONResponse(queue.state(), headers=_UNKEPT)

    def posted(act: Act) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return _closed(request, token) or await perform(request, act, queue)

        return answer

    posts = [Route(f"/{{token}}/{name}", posted(act), methods=["POST"]) for name, act in ACTIONS.items()]
    return Starlette(routes=[Route("/{token}/", page), Route("/{token}/state", state), *posts])


def queue_page(csrf: str = "", back: str = "") -> Response:
    """The page with the queue; `csrf` is sent with what it posts, `back` is a page to return to."""
    style = pages.asset("style.css") + pages.asset("label.css")
    policy = pages.policy(style, pages.asset("label.js"), connects=True)
    headers = {**_UNKEPT, "Content-Security-Policy": f"{policy}; frame-ancestors 'none'"}
    return HTMLResponse(pages.render("label.html", csrf=csrf, back=back), headers=headers)


def _label(queue: Queue, message: dict[str, Any]) -> None:
    if not isinstance(message.get("sample_id"), str) or "label" not in message:
        raise InvalidInput("sample_id or label is missing: reload the page")
    queue.decide(message["sample_id"], message["label"], message.get("seconds", 0.0))


ACTIONS: dict[str, Act] = {
    "label": _label,
    "undo": lambda queue, message: queue.undo(),
    "keys": lambda queue, message: queue.remap(message.get("keys")),
}
"""What the page posts, by the last part of its address."""


def _closed(request: Request, token: str) -> Response | None:
    """The response to a request without the token or with another host; otherwise None."""
    is_open = secrets.compare_digest(str(request.path_params["token"]).encode(), token.encode())
    return None if is_open and names_this_machine(request.headers) else Response("not found", 404, headers=_UNKEPT)


async def perform(request: Request, act: Act, queue: Queue) -> Response:
    """Perform the posted action; responds with the new state and, if it was refused, the reason."""
    if request.headers.get("content-type") != "application/json":
        return _refused(415, "expected JSON", queue)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST:
            return _refused(413, "the body is too long", queue)
    try:
        message = json.loads(body)
        if not isinstance(message, dict):
            raise ValueError("not an object")
    except ValueError:
        return _refused(400, "the body is not JSON", queue)
    try:
        act(queue, message)
    except InvalidInput as error:
        return _refused(409, str(error), queue)
    except BlindsightError as error:  # a full disk, for example: nothing was saved, and the page must not continue
        return JSONResponse({"error": str(error)}, 500, headers=_UNKEPT)
    return JSONResponse(queue.state(), headers=_UNKEPT)


def _refused(status: int, why: str, queue: Queue) -> Response:
    return JSONResponse({"error": why, **queue.state()}, status, headers=_UNKEPT)
