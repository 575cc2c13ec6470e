"""Flower's lines: the relay and both ends with nothing between them, or with a real SuperLink and SuperNodes.

The real one is in an environment of its own, made by `pip install 'blindsight[flower]'` or by `pip install flwr
lazy_loader`; `BLINDSIGHT_FLOWER` is its folder of programs, unless they are on the PATH.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from waiting import until

import blindsight
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier
from blindsight.fleet.carriers.flower_relay import hand_over, relay
from blindsight.fleet.carriers.over_flower import CoordinatorOverFlower, SiteOverFlower
from blindsight.fleet.certificates import Authority, write_secret
from blindsight.fleet.folder import free_port

__all__ = ["Direct", "RealFlower"]

SITES = ("a", "b")
APP = Path(__file__).parents[2] / "deploy" / "fleet" / "flower"


class Direct:
    """The relay and the ends; a visit is a thread instead of a message of Flower's."""

    def __init__(self, sites: Sequence[str] = SITES) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flower-"))  # a socket's path has to be short
        self._back, self._lock = dict[str, bytes](), threading.Lock()
        self._over = threading.Event()
        words = {"path": self.socket, "sites": sites, "courier": self, "is_over": self._over.is_set, "pause_s": 0.01}
        self._thread = threading.Thread(target=relay, kwargs=words)
        self._thread.start()
        until(self.socket.exists)

    @property
    def socket(self) -> Path:
        """Where the coordinator connects."""
        return self.folder / "relay.sock"

    def take(self, site: str, parcel: bytes) -> None:
        def visit() -> None:
            answer = hand_over(self.folder / f"{site}.sock", parcel)
            with self._lock:
                self._back[site] = answer

        threading.Thread(target=visit, daemon=True).start()

    def back(self) -> Mapping[str, bytes]:
        with self._lock:
            found, self._back = self._back, {}
        return found

    def connect(self, name: str) -> Carrier:
        """The end of a party."""
        if name == COORDINATOR:
            return CoordinatorOverFlower(self.socket)
        return SiteOverFlower(name, self.folder / f"{name}.sock")

    def close(self) -> None:
        """End the relay."""
        self._over.set()
        self._thread.join()
        shutil.rmtree(self.folder)


class RealFlower(Direct):
    """A SuperLink with TLS and keys of its SuperNodes, one SuperNode for each site, and our app running on them."""

    def __init__(self, spawn: Callable[..., Any], sites: Sequence[str] = SITES) -> None:
        programs = shutil.which("flower-superlink", path=os.environ.get("BLINDSIGHT_FLOWER", os.defpath))
        if programs is None:
            pytest.skip("needs Flower in an environment of its own, named by BLINDSIGHT_FLOWER (docs/fleet.md)")
        self.folder, self._spawn = Path(tempfile.mkdtemp(prefix="flower-")), spawn
        self._processes = list[subprocess.Popen[str]]()
        settings = (APP / "flower.env").read_text(encoding="utf-8").splitlines()
        self._environment = os.environ | dict(line.split("=") for line in settings if not line.startswith("#"))
        self._environment |= {
            "PATH": f"{Path(programs).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(next(iter(blindsight.__path__))).parent),
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }
        self._keys(sites)
        self._address = f"127.0.0.1:{free_port()}"
        self._start_superlink()
        nodes = {site: self._register(site) for site in sites}
        for site in sites:
            self._start_supernode(site)
        pairs = ",".join(f"{site}={node}" for site, node in nodes.items())
        self._flwr("run", str(APP), "here", "--run-config", f"socket='{self.socket}' nodes='{pairs}'")
        until(self.socket.exists, self.said())

    def close(self) -> None:
        """Kill the SuperLink and the SuperNodes; whatever they have started ends by itself."""
        for process in self._processes:
            process.kill()
            process.wait()
        until(lambda: not self.socket.exists(), "the ServerApp has not noticed that the SuperLink is gone")
        shutil.rmtree(self.folder, ignore_errors=True)

    def said(self) -> str:
        """What Flower's processes printed."""
        return "\n".join(path.read_text(encoding="utf-8") for path in self.folder.glob("*.log"))

    def _keys(self, sites: Sequence[str]) -> None:
        authority = Authority.new("flower")
        own = authority.server(["127.0.0.1"])
        (self.folder / "authority.pem").write_bytes(authority.pem)
        (self.folder / "superlink.pem").write_bytes(own.certificate)
        write_secret(self.folder / "superlink.key", own.key)
        for site in sites:
            key = ec.generate_private_key(ec.SECP384R1())
            openssh = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            public = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            write_secret(self.folder / f"{site}.key", key.private_bytes(*openssh))
            (self.folder / f"{site}.pub").write_bytes(key.public_key().public_bytes(*public))

    def _start_superlink(self) -> None:
        host, port = self._address.split(":")
        words = ["flower-superlink", "--disable-runtime-dependency-installation", "--enable-supernode-auth"]
        words += ["--ssl-ca-certfile", "authority.pem", "--ssl-certfile", "superlink.pem"]
        words += ["--ssl-keyfile", "superlink.key", "--host", host, "--port", port]
        self._start("superlink", words)
        until(lambda: _answers(self._address), self.said())
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        connection = f'address = "{self._address}"\nroot-certificates = "{self.folder / "authority.pem"}"'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{connection}\n', encoding="utf-8"
        )

    def _register(self, site: str) -> int:
        return int(self._flwr("supernode", "register", f"{site}.pub", "here")["node-id"])

    def _start_supernode(self, site: str) -> None:
        words = ["flower-supernode", "--root-certificates", "authority.pem", "--superlink", self._address]
        words += ["--auth-supernode-private-key", f"{site}.key", "--port", str(free_port())]
        words += ["--node-config", f"socket='{self.folder / f'{site}.sock'}'"]
        self._start(site, words)

    def _start(self, name: str, words: Sequence[str]) -> None:
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            one = self._spawn(*words, cwd=self.folder, env=self._environment, stdout=log, stderr=log)
        self._processes.append(one)

    def _flwr(self, *words: str) -> Any:
        done = subprocess.run(
            ["flwr", *words, "--format", "json"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.said()
        return json.loads(done.stdout)


def _answers(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return False
    return True
