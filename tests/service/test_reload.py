"""SIGHUP: tokens, certificates and settings are read again by a running process; mistakes change nothing."""

import json
import os
import signal
import ssl
import subprocess
import sys

import httpx2 as httpx
import pytest
from waiting import until

FIRST, SECOND = "the first token of the clients", "the second token of the clients"


class Process:
    """`blindsight serve` with JSON logs, and what it writes."""

    def __init__(self, spawn, folder, task, **settings) -> None:
        self.folder, self.log = folder, folder / "log"
        (folder / "task.json").write_text(json.dumps(task.to_dict()))
        self.tokens(FIRST)
        self.configure(**settings)
        with self.log.open("w") as log:
            self.process = spawn(
                *(sys.executable, "-m", "blindsight", "serve", "--config", str(folder / "SERVE.toml")), stderr=log
            )
        until(lambda: any("listening at" in line["message"] for line in self.lines()))
        said = next(line["message"] for line in self.lines() if "listening at" in line["message"])
        self.address, self.admin_address = said.removeprefix("listening at ").split(" and ")

    def configure(self, **settings) -> None:
        given = {"port": 0, "admin_listen": "127.0.0.1:0", "data": "kept", "log": "json", "tasks": ["task.json"]}
        lines = [
            f"{name} = {json.dumps(value)}" for name, value in (given | {"tokens": "tokens.toml"} | settings).items()
        ]
        (self.folder / "SERVE.toml").write_text("\n".join(lines))

    def tokens(self, token: str) -> None:
        (self.folder / "tokens.toml").write_text(f'[models]\nphishing = ["{token}"]\n')

    def lines(self) -> list[dict]:
        text = self.log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def reload(self, says: str) -> None:
        before = len(self.lines())
        os.kill(self.process.pid, signal.SIGHUP)
        until(lambda: any(says in line["message"] for line in self.lines()[before:]), says)

    def draw(self, token: str, **more) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.address}/v1/models/phishing/draw", headers=headers, **more).status_code


def test_tokens_and_settings_are_read_again(spawn, tmp_path, make_task):
    one = Process(spawn, tmp_path, make_task(), rate_per_s=0.0)
    assert (one.draw(FIRST), one.draw(SECOND)) == (200, 401)
    one.tokens(SECOND)
    one.reload("reloaded tokens")
    assert (one.draw(FIRST), one.draw(SECOND)) == (401, 200)

    one.configure(rate_per_s=1.0, batch=5)
    one.reload("only a restart changes batch")
    until(lambda: 429 in [one.draw(SECOND) for _ in range(5)])

    one.configure(rate_per_s=-1.0)
    one.reload("nothing was reloaded")
    (tmp_path / "tokens.toml").write_text("[models")
    one.configure(rate_per_s=0.0)
    one.reload("nothing was reloaded")
    assert httpx.get(f"{one.admin_address}/healthz").status_code == 200  # alive, as before
    one.tokens(FIRST)
    one.reload("reloaded tokens")
    assert one.draw(FIRST) == 200
    assert all({"time", "level", "logger", "message"} == set(line) for line in one.lines())
    assert not [line for line in one.lines() if FIRST in line["message"] or "phishing/draw" in line["message"]]


def certificate(folder, name: str) -> None:
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -addext"
    files = ["-subj", f"/CN={name}", "-out", str(folder / "certificate.pem"), "-keyout", str(folder / "key.pem")]
    subprocess.run([*words.split(), "subjectAltName=IP:127.0.0.1", *files], check=True, capture_output=True)


def test_certificates_are_read_again(spawn, tmp_path, make_task):
    pytest.importorskip("ssl")
    try:
        certificate(tmp_path, "first")
    except FileNotFoundError:
        pytest.skip("there is no openssl on this machine")
    one = Process(spawn, tmp_path, make_task(), certificate="certificate.pem", private_key="key.pem")
    first = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    assert one.draw(FIRST, verify=first) == 200
    certificate(tmp_path, "second")
    one.reload("reloaded tokens, certificates")
    second = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    assert one.draw(FIRST, verify=second) == 200
    with pytest.raises(httpx.ConnectError):
        one.draw(FIRST, verify=first)
    (tmp_path / "key.pem").write_text("damaged")
    one.reload("nothing was reloaded")
    assert one.draw(FIRST, verify=second) == 200
