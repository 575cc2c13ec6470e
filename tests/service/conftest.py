"""A small task, and services that run while a test lasts."""

import contextlib
import logging
import shutil
import subprocess
from collections.abc import Callable, Generator
from typing import Any

import httpx2 as httpx
import pytest
from service_processes import Processes

from blindsight.algorithms.draw_and_discard import Task
from blindsight.codings.specs import BooleanField, FeatureSpec, NumberField, Response
from blindsight.service import Settings, running
from blindsight.service.app import Service

ADMIN = "the administrator of the tests"
CLIENT = "the clients of the tests"


def small_task(**changes: Any) -> Task:
    given: dict[str, Any] = {
        "model": "phishing",
        "family": "logistic",
        "features": FeatureSpec((NumberField("length", 0, 100), BooleanField("https"))),
        "response": Response(BooleanField("phishing")),
        "unit": "model",
        "epsilon": 2.0,
        "participations": 1000,
    }
    return Task(**(given | changes))


SMALL = small_task()


@pytest.fixture
def make_task() -> Callable[..., Task]:
    """Makes tasks like the small one."""
    return small_task


class Talk:
    """A running service, and both kinds of those who ask it."""

    def __init__(self, address: str, service: Service, admin_address: str) -> None:
        self.address, self.service, self.admin_address = address, service, admin_address
        self.admin = httpx.Client(base_url=admin_address, headers={"Authorization": f"Bearer {ADMIN}"})
        self.client = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {CLIENT}"})

    def create(self, task: Task, **more: Any) -> httpx.Response:
        return self.admin.post("/v1/admin/models", json={"task": task.to_dict(), **more})

    def draw(self, model: str = "phishing") -> httpx.Response:
        return self.client.get(f"/v1/models/{model}/draw")

    def update(self, drawn: httpx.Response, body: bytes | None = None, **headers: str) -> httpx.Response:
        given = {name: drawn.headers[name] for name in ("Blindsight-Ticket", "Blindsight-Version")}
        given |= {"Content-Type": "application/octet-stream"} | {k.replace("_", "-"): v for k, v in headers.items()}
        model = headers.get("model", "phishing")
        content = drawn.content if body is None else body
        return self.client.post(f"/v1/models/{model}/update", headers=given, content=content)

    def statistics(self, model: str = "phishing") -> dict[str, Any]:
        return self.admin.get(f"/v1/admin/models/{model}/statistics").json()


@pytest.fixture
def serving(tmp_path, monkeypatch) -> Generator[Callable[..., Talk]]:
    """Starts services; each begins with a model `phishing` unless `task` is None."""
    monkeypatch.setenv("BLINDSIGHT_ADMIN_TOKEN", ADMIN)
    monkeypatch.setenv("BLINDSIGHT_MODEL_TOKENS", f"phishing={CLIENT.replace(' ', '_')}")
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[models]\nphishing = ["{CLIENT}"]\nother = ["{CLIENT}"]\n', encoding="utf-8")
    logging.getLogger("blindsight").setLevel(logging.DEBUG)
    with contextlib.ExitStack() as stack:

        def start(task: Task | None = SMALL, **settings: Any) -> Talk:
            given: dict[str, Any] = {
                "port": 0,
                "data": tmp_path / "kept",
                "tokens": tokens,
                "rate_per_s": 0.0,
                "shed_s": 1e6,  # however slow the machine is
            } | settings
            found = stack.enter_context(running(Settings(**given)))
            talk = Talk(found.address, found.service, found.admin_address)
            stack.callback(talk.admin.close)
            stack.callback(talk.client.close)
            if task is not None and task.model not in found.service.registry.pools:
                assert talk.create(task).status_code == 201
            return talk

        yield start


@pytest.fixture
def certificate(tmp_path):
    """A certificate of its own for this machine, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl on this machine")
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    made = [*words.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(made, check=True, capture_output=True)
    return files


@pytest.fixture
def talk(serving) -> Talk:
    """A service with one small model."""
    return serving()


@pytest.fixture
def processes(tmp_path, make_task):
    """Makes services in processes of their own, which share a port if they share a Redis."""
    (tmp_path / "kept").mkdir()
    made = []

    def make(store: str, **settings: float) -> Processes:
        made.append(Processes(store, tmp_path / "kept", make_task(), **settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()
