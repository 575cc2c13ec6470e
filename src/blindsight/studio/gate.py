"""Who may use the studio: one person, on this machine, from its own pages.

The address that is printed at the start holds a token, which is good once: a browser exchanges it for a cookie that
scripts cannot read and that no other site's requests carry. Requests must name this machine as their host (another
page that rebinds its name to 127.0.0.1 is refused). Whatever changes something must also carry the session's
anti-forgery token in a header, come from this origin, and find the studio started for writing.
"""

import hashlib
import hmac
import re
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

__all__ = ["CSRF_HEADER", "HOSTS", "POLICY", "Gate", "names_this_machine"]

HOSTS = ("127.0.0.1", "localhost", "[::1]")
CSRF_HEADER = "x-csrf-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_READING = ("GET", "HEAD")
# A page, not a redirect: a browser sends a strict cookie only on a request that this site itself began.
_COME_IN = (
    '<!doctype html><html lang="en"><meta http-equiv="refresh" content="0;url=/"><title>Blindsight</title></html>'
)
_CLOSED = (
    "This page belongs to whoever started blindsight studio, and its address is good once.\n"
    "Start blindsight studio again for a new one.\n"
)


class Gate:
    """Lets one browser in, for `token`, and passes on what it may ask; `writable` lets it change something."""

    def __init__(self, app: Starlette, *, token: str, port: int, writable: bool) -> None:
        self._app, self._token, self._writable = app, token, writable
        self.routes = app.routes
        self._session = secrets.token_urlsafe(32)
        self.cookie = f"blindsight-studio-{port}"  # browsers share cookies between ports
        self.csrf = hmac.digest(self._session.encode(), b"anti-forgery", hashlib.sha256).hex()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(request)
        scope["csrf"] = self.csrf
        await (answer or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a request that is not passed on."""
        if not names_this_machine(request.headers):
            return PlainTextResponse("not found\n", 404)
        given = request.query_params.get("token") if request.url.path == "/" else None
        if not self._is_known(request):
            return self._exchange(given) if given is not None else PlainTextResponse(_CLOSED, 403)
        if given is not None:
            return HTMLResponse(_COME_IN)
        return None if request.method in _READING else self._refusal_to_write(request)

    def _is_known(self, request: Request) -> bool:
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._session.encode())

    def _exchange(self, given: str) -> Response:
        """The cookie for the token, once."""
        if not self._token or not hmac.compare_digest(given.encode(), self._token.encode()):
            return PlainTextResponse(_CLOSED, 403)
        self._token = ""
        answer = HTMLResponse(_COME_IN)
        answer.set_cookie(self.cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer

    def _refusal_to_write(self, request: Request) -> Response | None:
        headers = request.headers
        if headers.get("origin", own := f"http://{headers['host']}") != own:
            return PlainTextResponse("this request comes from another page\n", 403)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("this request comes from another site\n", 403)
        if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), self.csrf.encode()):
            return PlainTextResponse("the anti-forgery token is missing or old: reload the page\n", 403)
        if not self._writable:
            return PlainTextResponse("this studio is read-only: start it with --write to change something\n", 403)
        return None


def names_this_machine(headers: Headers) -> bool:
    """Whether the request names this machine as its host, with any port.

    >>> [names_this_machine(Headers({"host": one})) for one in ("127.0.0.1:8000", "localhost", "evil.example:8000")]
    [True, True, False]
    """
    host = headers.get("host", "")
    return (host[: host.rfind(":")] if re.search(r":\d+$", host) else host) in HOSTS
