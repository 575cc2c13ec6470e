"""A service over TLS, services that share a Redis, and a model trained to its end through one."""

import json
import ssl
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from waiting import HANG_S, until

from blindsight.algorithms.draw_and_discard import client_update
from blindsight.keys import reproducible
from blindsight.models import glm
from blindsight.service import Client, Settings, serve
from blindsight.service.client import ServiceError
from blindsight.service.protocol import decode, encode

TOKEN = "the clients of the tests"


def test_a_service_over_tls(serving, certificate, make_task, tmp_path):
    (tmp_path / "task.json").write_text(json.dumps(make_task().to_dict()))
    talk = serving(None, certificate=certificate[0], private_key=certificate[1], tasks=(tmp_path / "task.json",))
    assert talk.address.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with Client(talk.address, "phishing", TOKEN, unprotected=True, http={"verify": trusting}) as client:
        assert client.train([{"https": True, "length": 3, "phishing": False}]).shape == (3,)
    with Client(talk.address, "phishing", TOKEN, unprotected=True, retries=0) as client, pytest.raises(ServiceError):
        client.task()  # nobody it knows has signed that


def test_a_service_computes_without_pools_of_threads(tmp_path, monkeypatch):
    """Matrices of a few updates are small: threads that wait for the next cost a third of all pairs a second."""
    threads = list[int]()

    def run(*_: Any) -> None:
        threads.extend(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")

    monkeypatch.setattr("blindsight.service.run._run", run)
    monkeypatch.setattr("blindsight.service.run.signal.signal", lambda *_: None)
    with threadpool_limits(2, user_api="blas"):
        serve(Settings(store="memory", data=tmp_path, port=0))
        after = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    assert threads, "NumPy has no BLAS that this test knows"
    assert set(threads) == {1}
    assert set(after) == {2}


def test_services_on_one_redis_see_what_the_other_does(redis_server, serving, tmp_path, make_task):
    one = serving(store=redis_server.address, data=tmp_path / "one")
    other = serving(store=redis_server.address, data=tmp_path / "other")
    drawn = one.draw()
    assert other.update(drawn).status_code == 202  # a ticket of one is good at the other, once
    assert one.update(drawn).status_code == 410
    assert one.statistics()["updates"] == other.statistics()["updates"] == 1
    one.admin.post("/v1/admin/models/phishing/freeze")
    until(lambda: other.draw().status_code == 423)
    other.admin.post("/v1/admin/models/phishing/thaw")
    until(lambda: one.draw().status_code == 200)
    drawn = one.draw()
    other.admin.post("/v1/admin/models/phishing/warm-start", json={"weights": [1.0, 1.0, 1.0]})
    assert one.update(drawn).status_code in (202, 410, 503)  # and it goes nowhere
    until(lambda: one.draw().status_code == 200 and abs(decode(one.draw().content).mean() - 1) < 0.5)
    assert one.statistics()["updates"] == 0
    assert one.create(make_task(model="other")).status_code == 201
    until(lambda: other.draw("other").status_code == 200)
    one.admin.delete("/v1/admin/models/other")
    until(lambda: other.draw("other").status_code == 404)


def test_spam_is_told_by_what_all_services_took(redis_server, serving, make_task, monkeypatch):
    """One service takes all the honest updates; the other has to know that the model moved."""
    monkeypatch.setattr("blindsight.service.redis_store._KNOWN_FOR_S", 0.0)  # a second is long for so fast a model
    task = make_task(epsilon=50.0, learning_rate=0.1, unit="feature")
    one, other = serving(task, store=redis_server.address), serving(None, store=redis_server.address, data=None)
    assert other.update(other.draw()).status_code == 202  # its window is from the beginning
    rows = [{"length": 50, "https": True, "phishing": True}]
    for step in range(400):
        drawn = one.draw()
        sent = client_update(task, decode(drawn.content), *task.encode(rows), key=reproducible(step))
        one.update(drawn, encode(sent))
    moved = np.abs(decode(one.draw().content)).max()
    assert moved > 10 * task.scale
    assert other.update(other.draw()).status_code == 202
    assert other.statistics()["spam"] == 0
    assert other.statistics()["taken"] == 2


def test_clients_of_a_service_learn_a_model(serving, make_task):
    task = make_task(epsilon=8.0, learning_rate=0.3, instances=5, participations=10**6)
    talk = serving(task)
    random = np.random.default_rng(0)
    with Client(talk.address, "phishing", TOKEN, unprotected=True) as client:
        for _ in range(500):
            https, length = random.random(5) < 0.5, random.integers(0, 100, 5)
            client.train({"https": https.tolist(), "length": length.tolist(), "phishing": (~https).tolist()})
    weights = np.array(talk.admin.get("/v1/admin/models/phishing/average").json()["weights"])
    safe, unsafe = glm.predict(
        "logistic", weights, task.features.encode([{"https": v, "length": 50} for v in (True, False)])
    )
    assert unsafe - safe > 0.2  # 0.7 +- 0.1, as noise has it; nothing learnt is 0
    assert talk.statistics()["spam"] <= 2


@pytest.mark.parametrize(("hidden", "options"), [("uvicorn", []), ("starlette", []), ("httpx2", ["--demo"])])
def test_without_the_extra_serve_ends_in_one_sentence(tmp_path, hidden, options):
    code = f"import sys; sys.modules[{hidden!r}] = None; from blindsight.cli import main; main()"
    words = [sys.executable, "-c", code, "serve", "--port", "0", "--data", str(tmp_path / "kept"), *options]
    run = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert run.returncode == 2
    assert "pip install 'blindsight[service]'" in " ".join(run.stderr.split())
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "kept").exists()
