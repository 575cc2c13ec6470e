"""A full disk: nothing is half done, nothing is lost that was there, and readiness and the exit code say so."""

import contextlib
import json
import os
import resource
import sys

import httpx2 as httpx
import pytest
import small_disk
from waiting import HANG_S, until

from blindsight.service import snapshots

ADMIN = "administrator-of-the-tests"
WEIGHTS = 10_000  # 40 kB for each of the two instances


class Disk:
    """A file system of half a megabyte."""

    def __init__(self, folder, stack: contextlib.ExitStack) -> None:
        self.folder = stack.enter_context(small_disk.mounted(folder))

    def fill(self, pid: int) -> None:
        self.ballast = small_disk.fill(self.folder)

    def free(self, pid: int) -> None:
        self.ballast.unlink()


class Quota:
    """A limit on the size of any file that the process writes; its log stays below it."""

    def __init__(self, folder, stack: contextlib.ExitStack) -> None:
        folder.mkdir()
        self.folder = folder

    def fill(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture(params=[Disk, Quota])
def disk(request, tmp_path):
    with contextlib.ExitStack() as stack:
        yield request.param(tmp_path / "kept", stack)


@pytest.fixture
def large(make_task):
    """Makes tasks whose snapshot does not fit."""
    return lambda model: make_task(
        model=model, family="custom", features=None, response=None, weights=WEIGHTS, instances=2
    )


@pytest.fixture
def serve(disk, spawn, tmp_path, large):
    """Starts `blindsight serve` with a large model."""
    with contextlib.ExitStack() as stack:

        def start(snapshot_s: float) -> Served:
            served = Served(spawn, disk, tmp_path, large("phishing"), snapshot_s=snapshot_s)
            stack.callback(served.http.close)
            return served

        yield start


class Served:
    """`blindsight serve` on a disk, and its administrator."""

    def __init__(self, spawn, disk, tmp_path, task, *, snapshot_s: float) -> None:
        (tmp_path / "phishing.json").write_text(json.dumps(task.to_dict()), encoding="utf-8")
        settings = f'port = 0\nsnapshot_s = {snapshot_s}\ndata = "{disk.folder}"\ntasks = "phishing.json"\n'
        (tmp_path / "SERVE.toml").write_text(settings, encoding="utf-8")
        self.log = tmp_path / "log"
        words = [sys.executable, "-m", "blindsight", "serve", "--config", str(tmp_path / "SERVE.toml")]
        variables = {"BLINDSIGHT_ADMIN_TOKEN": ADMIN, "BLINDSIGHT_MODEL_TOKENS": f"phishing={ADMIN}"}
        with open(self.log, "wb") as log:
            self.process = spawn(*words, env=os.environ | variables, stderr=log)
        until(lambda: b"listening at " in self.log.read_bytes() or self.process.poll() is not None)
        address = self.log.read_text().partition("listening at ")[2].split()[0]
        self.http = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=HANG_S)

    def call(self, what: str, body=None) -> httpx.Response:
        return self.http.post(f"/v1/admin/models{what}", json=body)

    def draw(self) -> httpx.Response:
        return self.http.get("/v1/models/phishing/draw")

    def update(self) -> int:
        drawn = self.draw()
        given = {name: drawn.headers[name] for name in ("Blindsight-Ticket", "Blindsight-Version")}
        given["Content-Type"] = "application/octet-stream"
        return self.http.post("/v1/models/phishing/update", content=drawn.content, headers=given).status_code

    def is_ready(self) -> bool:
        return self.http.get("/readyz").status_code == 200


def test_on_a_full_disk_nothing_is_half_done(disk, serve, large):
    served = serve(0.2)
    before = snapshots.read(disk.folder, "phishing")
    other = {"task": large("other").to_dict()}
    disk.fill(served.process.pid)
    for what, body in (("/phishing/reset", None), ("/phishing/freeze", None), ("/phishing/tokens", None), ("", other)):
        refused = served.call(what, body)
        assert (refused.status_code, refused.json()["error"][:19]) == (503, "nothing was changed"), what
    assert served.draw().status_code == 200
    assert served.update() == 202
    assert snapshots.read(disk.folder, "phishing") == before
    until(lambda: not served.is_ready())
    assert served.http.get("/healthz").status_code == 200
    disk.free(served.process.pid)
    until(served.is_ready)
    created = served.call("", other)
    assert (created.status_code, len(created.json()["token"]) > 20) == (201, True)
    assert served.call("/phishing/reset").status_code == 200
    assert served.draw().status_code == 200
    assert snapshots.read(disk.folder, "phishing").record.life != before.record.life


def test_a_last_snapshot_that_fails_is_said_and_changes_the_exit_code(disk, serve):
    served = serve(1000)
    assert served.update() == 202
    disk.fill(served.process.pid)
    served.process.terminate()
    assert served.process.wait(HANG_S) == 2
    assert "error: cannot write" in served.log.read_text()
    assert snapshots.read(disk.folder, "phishing").updates == 0
