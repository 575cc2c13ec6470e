"""Real processes, killed and restarted under load: no lost model, no corrupted instance, no 500."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from waiting import HANG_S, until

from blindsight.errors import BlindsightError
from blindsight.service import Settings, running, snapshots
from blindsight.service.protocol import decode, encode

CHILD = Path(__file__).with_name("service_child.py")
ADMIN, CLIENT = "administrator-of-the-tests", "clients-of-the-tests"


class Processes:
    """Services on one port, and clients that ask it all the time."""

    def __init__(self, store: str, folder: Path, task) -> None:
        self._held = socket.socket()  # several processes share a port: it stays ours while none of them listens
        self.port = 0
        if store != "memory":
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._held.bind(("127.0.0.1", 0))
            self.port = self._held.getsockname()[1]
        self.store, self.folder, self.task = store, folder, folder.parent / "task.json"
        self.task.write_text(json.dumps(task.to_dict()), encoding="utf-8")
        self.address, self.running, self.errors = f"http://127.0.0.1:{self.port}", [], folder.parent / "errors.txt"
        self.answers: Counter[object] = Counter()
        self.moved = 0.0

    def start(self) -> subprocess.Popen:
        tokens = {"BLINDSIGHT_ADMIN_TOKEN": ADMIN, "BLINDSIGHT_MODEL_TOKENS": f"phishing={CLIENT}"}
        words = [sys.executable, str(CHILD), self.store, str(self.folder), str(self.port), str(self.task)]
        with open(self.errors, "wb" if self.port == 0 else "ab") as errors:
            process = subprocess.Popen(words, env=os.environ | tokens, stderr=errors)
        self.running.append(process)
        return process

    def wait(self) -> None:
        if self.port == 0:
            until(lambda: b"listening at " in self.errors.read_bytes())
            self.address = self.errors.read_text().partition("listening at ")[2].split()[0]
        until(lambda: self.answers_with("/readyz", 200))

    def answers_with(self, path: str, status: int) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.address}{path}").status_code == status
        return False

    def begin_at(self, weight: float) -> None:
        """Far from zero, so that a model that was lost would be noticed."""
        path = f"{self.address}/v1/admin/models/phishing/warm-start"
        body = {"weights": [weight] * 3}
        assert httpx.post(path, json=body, headers={"Authorization": f"Bearer {ADMIN}"}).status_code == 200

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self._held.close()

    def admin(self, path: str) -> dict:
        for _ in range(100):
            answer = httpx.get(f"{self.address}/v1/admin/models/{path}", headers={"Authorization": f"Bearer {ADMIN}"})
            if answer.status_code != 503:
                return answer.json()
            time.sleep(0.05)  # a process has not seen yet what another did
        raise TimeoutError(path)

    @contextlib.contextmanager
    def load(self, clients: int = 3):
        """Clients that draw and send back until the context ends, over what comes between."""
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                with contextlib.suppress(httpx.TransportError), self.client() as client:
                    while not over.is_set():
                        self.answers[pair(client)] += 1

        threads = [threading.Thread(target=ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def client(self) -> httpx.Client:
        base = f"{self.address}/v1/models/phishing"
        return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {CLIENT}"}, timeout=HANG_S)

    def until_taken(self, more: int) -> None:
        wanted = self.answers[202] + more
        until(lambda: self.answers[202] >= wanted)


def pair(client: httpx.Client) -> int:
    """A draw, checked, and its update."""
    drawn = client.get("/draw")
    if drawn.status_code != 200:
        return drawn.status_code
    weights = decode(drawn.content)
    assert weights.shape == (3,)
    assert np.abs(weights).max() < 1
    headers = {name: drawn.headers[name] for name in ("Blindsight-Ticket", "Blindsight-Version")}
    headers["Content-Type"] = "application/octet-stream"
    return client.post("/update", content=encode(weights + np.float32(1e-6)), headers=headers).status_code


@pytest.fixture
def processes(request, tmp_path, make_task):
    (tmp_path / "kept").mkdir()
    made = []

    def make(store: str) -> Processes:
        made.append(Processes(store, tmp_path / "kept", make_task()))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_service_that_is_killed_goes_on_from_its_snapshot(processes):
    service = processes("memory")
    process = service.start()
    service.wait()
    service.begin_at(0.5)
    with service.load():
        service.until_taken(50)
        until(lambda: snapshots.names(service.folder) == ["phishing"])
        kept = snapshots.read(service.folder, "phishing")
        until(lambda: snapshots.read(service.folder, "phishing") != kept)  # one of after the beginning
        process.kill()
        process.wait()
        record, instances = snapshots.read(service.folder, "phishing")
        assert (record.model, len(instances)) == ("phishing", 20)
        process = service.start()
        service.wait()
        service.until_taken(50)
    assert 500 not in service.answers
    assert set(service.answers) <= {200, 202, 410, 503}
    assert service.admin("phishing/average")["weights"] == pytest.approx([0.5] * 3, abs=0.1)  # not from the beginning

    average = service.admin("phishing/average")["weights"]
    process.send_signal(signal.SIGTERM)
    process.wait(HANG_S)
    _, instances = snapshots.read(service.folder, "phishing")  # everything, to the last update
    assert average == pytest.approx(decode(b"".join(instances)).reshape(20, 3).mean(axis=0, dtype=np.float64))


def test_a_process_killed_under_load_is_not_missed(processes, redis_server):
    service = processes(redis_server.address)
    first, _ = service.start(), service.start()
    service.wait()
    with service.load():
        service.until_taken(50)
        first.kill()
        service.until_taken(100)
        service.start()
        service.until_taken(50)
    assert 500 not in service.answers
    assert service.admin("phishing/statistics")["updates"] >= 150
    assert set(service.answers) <= {202, 410, 503}


def test_a_redis_restarted_under_load_is_filled_again(processes, redis_server):
    service = processes(redis_server.address)
    service.start()
    service.start()
    service.wait()
    service.begin_at(0.5)
    with service.load():
        service.until_taken(100)
        kept = snapshots.read(service.folder, "phishing")
        until(lambda: snapshots.read(service.folder, "phishing") != kept)
        redis_server.stop()
        until(lambda: service.answers_with("/readyz", 503))
        assert httpx.get(f"{service.address}/healthz").status_code == 200
        redis_server.start()
        service.until_taken(100)
    assert service.answers[503] > 0
    assert 500 not in service.answers
    assert set(service.answers) <= {202, 410, 503}
    assert service.admin("phishing/average")["weights"] == pytest.approx([0.5] * 3, abs=0.1)


def test_what_is_wrong_is_one_sentence(tmp_path):
    def refusal(**settings) -> str:
        with pytest.raises(BlindsightError) as found, running(Settings(port=0, **settings)):
            pass
        return str(found.value)

    assert "cannot be reached" in refusal(store="redis://127.0.0.1:1/0", data=None)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "m.safetensors").write_bytes(b"damaged")
    assert "is damaged" in refusal(data=tmp_path / "kept")
    with running(Settings(port=0, data=tmp_path / "free")):
        assert "another service" in refusal(data=tmp_path / "free")
    assert "PEM" in refusal(certificate=tmp_path / "no.pem", private_key=tmp_path / "no.pem", data=None)
    (tmp_path / "task.json").write_text("{}")
    assert "task.json" in refusal(tasks=(tmp_path / "task.json",), data=None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["-m", "blindsight", "serve", "--port", str(taken.getsockname()[1])]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, "choose another with --host or --port" in done.stderr) == (2, True)
    words = ["-m", "blindsight", "serve", "--port", "0", "--store", "redis://127.0.0.1:1/0"]
    away = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (away.returncode, "cannot be reached" in away.stderr, "listening" in away.stderr) == (2, True, False)
    assert "Traceback" not in done.stderr
