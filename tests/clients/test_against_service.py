"""The JavaScript client against the Python service: from Node as documented, and from a page of another origin."""

import asyncio
import functools
import http.server
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import HANG_S, until

from blindsight.algorithms.draw_and_discard import Task
from blindsight.codings.specs import BooleanField, FeatureSpec, NumberField, Response
from blindsight.service import Running, Settings, running
from blindsight.service.protocol import decode

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "js"
TOKEN = "a long token for clients"


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """The client's own files on another port: another origin than the service's."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=CLIENT)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def service(origin, tmp_path) -> Iterator[Running]:
    features = FeatureSpec((NumberField("length", 0, 200), BooleanField("https")))
    task = Task(
        model="phishing",
        family="logistic",
        features=features,
        response=Response(BooleanField("phishing")),
        unit="model",
        epsilon=1.0,
        participations=4,
    )
    (tmp_path / "task.json").write_text(json.dumps(task.to_dict()))
    (tmp_path / "tokens.toml").write_text(f'[models]\nphishing = ["{TOKEN}"]\n')
    files: dict[str, Any] = {"tasks": (tmp_path / "task.json",), "tokens": tmp_path / "tokens.toml"}
    with running(Settings(port=0, data=None, origins=(origin,), **files)) as one:
        yield one


def test_the_documented_example_trains_a_model(node, service, tmp_path):
    (example,) = re.findall(r"^```js\n(.*?)^```", (ROOT / "docs" / "browser.md").read_text("utf-8"), re.M | re.S)
    example = example.replace("https://models.example.org", service.address)
    example = example.replace("budget.json", str(tmp_path / "budget.json"))
    run = subprocess.run(
        [node, "--input-type=module", "-e", example],
        capture_output=True,
        text=True,
        cwd=CLIENT,
        timeout=HANG_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "{ epsilon: 1, delta: 0 } is spent" in run.stdout
    assert json.loads(json.loads((tmp_path / "budget.json").read_text())["blindsight:budget"])["models"] == {
        "phishing": {"count": 1, "epsilon": 1, "delta": 0}
    }
    pool = service.service.registry.pools["phishing"]
    until(lambda: pool.taken + pool.spam == 1)
    assert (pool.draws, pool.taken, pool.spam) == (1, 1, 0)


def test_a_page_of_an_allowed_origin_trains_it_too(browser, service, origin):
    script = """
        import("/src/index.js").then(async ({ Budget, Client }) => {
          const budget = new Budget({ epsilon: 4, store: new Map() });
          const client = new Client({ url: ADDRESS, model: "phishing", token: TOKEN, budget, attempts: 1 });
          window.sent = [...(await client.contribute([{ length: 24, https: false, phishing: true }])).weights];
        }).catch((error) => { window.sent = String(error); });
    """
    browser.open(f"{origin}/package.json")
    browser.ask(script.replace("ADDRESS", repr(service.address)).replace("TOKEN", repr(TOKEN)) + "; 0")
    browser.until("window.sent !== undefined")
    sent = browser.ask("window.sent")
    assert isinstance(sent, list), sent
    pool = service.service.registry.pools["phishing"]
    until(lambda: pool.taken + pool.spam == 1)  # an update is answered before it is processed
    kept = [decode(instance) for instance in instances(service)]
    assert any(np.array_equal(np.array(sent, np.float32), instance) for instance in kept)
    assert pool.taken == 1


def instances(service: Running) -> list[bytes]:
    """What the memory store holds."""
    registry = service.service.registry
    found, _ = asyncio.run(registry.store.instances(registry.pools["phishing"].record))
    return found
