"""`blindsight serve --demo`: a phishing model, simulated clients that train it, and two pages.

``/`` shows the model training; ``/train`` lets a person train it and shows every byte that leaves the browser.
"""

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import json
import logging
import re
import signal
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from blindsight.errors import InvalidInput
from blindsight.service.addresses import Addresses, collect, make_task
from blindsight.service.admin import Endpoint
from blindsight.service.auth import new_token
from blindsight.service.run import running
from blindsight.service.settings import Settings
from blindsight.service.watch import Watch

__all__ = ["demo", "run_demo"]

_PAGES = Path(__file__).parent / "page"
_CHECKOUT = Path(__file__).parents[3] / "clients" / "js" / "src"  # a wheel has a copy next to the pages
_CLIENT = _CHECKOUT if _CHECKOUT.is_dir() else _PAGES / "client"
_SCRIPT = re.compile(r"<script[^>]*>(.*?)</script>", re.DOTALL)
_UNKEPT = {"Cache-Control": "no-store"}
_ASKED = 40  # questions per visitor


def run_demo(settings: Settings) -> None:
    """Run the demo until Ctrl-C or SIGTERM."""
    logging.getLogger().setLevel(logging.WARNING)  # a line for every simulated request would hide warnings
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    print("Reading addresses ...", flush=True)
    with demo(settings) as address:
        print(f"Watch it learn:     {address}/\nTrain it yourself:  {address}/train\nPress Ctrl-C to stop.", flush=True)
        stopped.wait()
    print("Stopped; nothing was stored.")


@contextlib.contextmanager
def demo(settings: Settings, *, per_s: float = 150.0, addresses: Addresses | None = None) -> Generator[str]:
    """The demo for the duration of the context; yields its address. Nothing is written to disk."""
    if settings.certificate is not None:
        raise InvalidInput("the demo uses plain HTTP: remove certificate and private_key")
    task = make_task()
    watch = Watch(task, addresses or collect(task), per_s=per_s)
    admin, crowd, visitors = new_token(), new_token(), new_token()
    with tempfile.TemporaryDirectory(prefix="blindsight-demo-") as folder:
        tasks, tokens = Path(folder, "task.json"), Path(folder, "tokens.toml")
        tasks.write_text(json.dumps(task.to_dict()), encoding="utf-8")
        lines = [f'admin = "{admin}"', "[models]", f'{task.model} = ["{crowd}", "{visitors}"]']
        tokens.write_text("\n".join(lines), encoding="utf-8")
        # the paper's algorithm, whose spread the page shows
        changed = dataclasses.replace(settings, data=None, tasks=(tasks,), tokens=tokens, batch=1)
        with contextlib.ExitStack() as stack:  # closed in reverse order: the crowd, then the service
            service = stack.enter_context(running(changed, routes=make_routes(watch, visitors)))
            stack.enter_context(_in_background(watch, service.address, admin, crowd))
            yield service.address


def make_routes(watch: Watch, token: str) -> list[BaseRoute]:
    """The pages and their requests; `token` lets visitors train."""
    task, questions = watch.task, _balanced(watch.addresses.questions)

    async def state(_: Request) -> Response:
        return JSONResponse(watch.state(), headers=_UNKEPT)

    async def visit(_: Request) -> Response:
        chosen = np.random.default_rng().permutation(len(questions))[:_ASKED]
        drawn = [{"address": questions[row][0], "phishing": questions[row][1]} for row in chosen]
        budget = {"epsilon": task.participations * task.epsilon, "delta": task.participations * task.delta}
        return JSONResponse({"model": task.model, "token": token, **budget, "questions": drawn}, headers=_UNKEPT)

    scripts = [*_CLIENT.glob("*.js"), _PAGES / "addresses.js"]
    return [
        Route("/", _page("live.html")),
        Route("/train", _page("train.html")),
        Route("/demo/state", state),
        Route("/demo/visit", visit),
        *(Route(f"/client/{script.name}", _file(script)) for script in scripts if script.name != "node.js"),
    ]


def _page(name: str) -> Endpoint:
    """A page that may run only its own scripts and contact only its own service."""
    style = (_PAGES / "page.css").read_text(encoding="utf-8")
    text = (_PAGES / name).read_text(encoding="utf-8").replace("<style>\n", f"<style>\n{style}", 1)
    digests = [hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(text)]
    scripts = " ".join(["'self'", *(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)])
    policy = f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}

    async def answer(_: Request) -> Response:
        return Response(text, media_type="text/html", headers=headers)

    return answer


def _file(path: Path) -> Endpoint:
    text = path.read_text(encoding="utf-8")

    async def answer(_: Request) -> Response:
        return Response(text, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    return answer


@contextlib.contextmanager
def _in_background(watch: Watch, address: str, admin: str, token: str) -> Generator[None]:
    """Crowd and measurements in a separate thread and event loop, so that they do not slow the service's."""
    loop = asyncio.new_event_loop()
    work = loop.create_task(watch.run(address, admin, token))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(work)

    thread = threading.Thread(target=run, name="blindsight demo")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(work.cancel)
        thread.join()
        loop.close()


def _balanced(questions: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Equally many of both classes, none too long to read, none with an email address."""
    readable = [(text, phishing) for text, phishing in questions if 15 <= len(text) <= 75 and "@" not in text]
    bad, good = [one for one in readable if one[1]], [one for one in readable if not one[1]]
    few = min(len(bad), len(good), 200)
    return bad[:few] + good[:few]
