"""A real NATS server on this machine, with the certificates and permissions of a small fleet."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from blindsight.fleet.carriers.over_nats import OverNats, tls_context
from blindsight.fleet.certificates import Authority, Issued, server_configuration, write_secret
from blindsight.fleet.folder import free_port

SITES = ("a", "b", "c")


class Server:
    """The server, from a folder that is laid out as its configuration says; `kill` is SIGKILL."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.new("test")
        self.port = free_port()
        self.keep("authority", Issued(self.authority.pem, self.authority.key_pem))
        self.keep("server", self.authority.server(["127.0.0.1"]))
        parties = {name: self.authority.party(name) for name in ("coordinator", *SITES)}
        for name, issued in parties.items():
            self.keep(name, issued)
        certificates = {name: issued.certificate for name, issued in parties.items()}
        configuration = server_configuration(certificates, address=f"127.0.0.1:{self.port}")
        (folder / "nats.conf").write_text(configuration, encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    def keep(self, name: str, issued: Issued) -> None:
        write_secret(self.folder / name / "certificate.pem", issued.certificate)
        write_secret(self.folder / name / "key.pem", issued.key)

    def start(self) -> None:
        binary = shutil.which("nats-server", path="/usr/local/bin:/usr/bin:/usr/sbin")
        if binary is None:
            pytest.skip("need nats-server: apt-get install nats-server")
        log = self.folder / "server.log"
        self.process = subprocess.Popen([binary, "-c", "nats.conf", "-l", str(log)], cwd=self.folder)
        while True:
            assert self.process.poll() is None, log.read_text(encoding="utf-8")
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def connect(self, name: str, *, certificate_of: str | None = None) -> OverNats:
        own = self.folder / (certificate_of or name)
        tls = tls_context(self.folder / "authority/certificate.pem", own / "certificate.pem", own / "key.pem")
        return OverNats(self.url, name, tls)
