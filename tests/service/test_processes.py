"""Real processes, killed and restarted under load: no lost model, no corrupted instance, no 500."""

import signal
import socket
import subprocess
import sys

import httpx2 as httpx
import numpy as np
import pytest
from waiting import HANG_S, until

from blindsight.errors import BlindsightError
from blindsight.service import Settings, running, snapshots
from blindsight.service.protocol import decode


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
        record, instances, _ = snapshots.read(service.folder, "phishing")
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
    _, instances, _ = snapshots.read(service.folder, "phishing")  # everything, to the last update
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
