"""Services in processes of their own, on one store, and clients that ask them all the time."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2 as httpx
import numpy as np
from waiting import HANG_S, until

from blindsight.service.protocol import decode, encode

__all__ = ["Processes", "pair"]

CHILD = Path(__file__).parents[1] / "service" / "service_child.py"
ADMIN, CLIENT = "administrator-of-the-tests", "clients-of-the-tests"


class Processes:
    """Services on one port, and clients that ask it all the time."""

    def __init__(self, store: str, folder: Path, task, **settings: float) -> None:
        self._held = socket.socket()  # several processes share a port: it stays ours while none of them listens
        self.port = 0
        if store != "memory":
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._held.bind(("127.0.0.1", 0))
            self.port = self._held.getsockname()[1]
        self.store, self.folder, self.task = store, folder, folder.parent / "task.json"
        self.task.write_text(json.dumps(task.to_dict()), encoding="utf-8")
        self.settings = json.dumps(settings)
        self.address, self.running, self.errors = f"http://127.0.0.1:{self.port}", [], folder.parent / "errors.txt"
        self.answers: Counter[object] = Counter()
        self.wrong: list[str] = []  # what clients got and should not have
        self.moved = 0.0

    def start(self, child: Path = CHILD) -> subprocess.Popen:
        tokens = {"BLINDSIGHT_ADMIN_TOKEN": ADMIN, "BLINDSIGHT_MODEL_TOKENS": f"phishing={CLIENT}"}
        words = [
            sys.executable,
            str(child),
            self.store,
            str(self.folder),
            "0" if self.store == "memory" else str(self.port),
            str(self.task),
        ]
        with open(self.errors, "wb" if self.store == "memory" else "ab") as errors:
            process = subprocess.Popen([*words, self.settings], env=os.environ | tokens, stderr=errors)
        self.running.append(process)
        return process

    def wait(self) -> None:
        if self.store == "memory":
            until(lambda: b"listening at " in self.errors.read_bytes())
            self.address = self.errors.read_text().partition("listening at ")[2].split()[0]
            self.port = int(self.address.rpartition(":")[2])
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
                    while not over.is_set() and not self.wrong:
                        try:
                            self.answers[pair(client)] += 1
                        except AssertionError as error:
                            self.wrong.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert self.wrong == []

    def client(self) -> httpx.Client:
        base = f"{self.address}/v1/models/phishing"
        return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {CLIENT}"}, timeout=HANG_S)

    def until_taken(self, more: int) -> None:
        wanted = self.answers[202] + more
        until(lambda: self.answers[202] >= wanted or bool(self.wrong), lambda: f"{self.answers}\n{self.log()}")
        assert self.wrong == []

    def log(self) -> str:
        """The end of what the processes have written, and which of them are still there."""
        ended = [process.poll() for process in self.running]
        return f"ended: {ended}\n{self.errors.read_text(encoding='utf-8')[-4000:]}"


def pair(client: httpx.Client) -> int:
    """A draw, checked, and its update."""
    drawn = client.get("/draw")
    if drawn.status_code != 200:
        return drawn.status_code
    weights = decode(drawn.content)
    assert weights.shape == (3,), (drawn.headers, drawn.content[:400])
    assert np.abs(weights).max() < 1
    headers = {name: drawn.headers[name] for name in ("Blindsight-Ticket", "Blindsight-Version")}
    headers["Content-Type"] = "application/octet-stream"
    return client.post("/update", content=encode(weights + np.float32(1e-6)), headers=headers).status_code
