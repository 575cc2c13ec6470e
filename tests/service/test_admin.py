"""What an administrator does: create, look, export, freeze, reset, begin again, delete."""

import dataclasses
import json

import httpx2 as httpx
import numpy as np
import pytest
from safetensors.numpy import load

from blindsight.codings.specs import CategoryField, FeatureSpec, NumberField, Response
from blindsight.models import glm
from blindsight.service.export import onnx_model
from blindsight.service.openapi import document


def test_a_model_is_created_once_and_replaced_when_asked(talk, make_task):
    again = talk.create(make_task())
    assert (again.status_code, "replace" in again.json()["error"]) == (409, True)
    drawn = talk.draw()
    other = make_task(epsilon=1.0)
    answer = talk.create(other, replace=True)
    assert answer.status_code == 200
    assert answer.json()["version"] == other.version
    assert "token" not in answer.json()  # the tokens of its clients still hold
    assert talk.update(drawn).status_code == 409
    assert talk.draw().headers["blindsight-version"] == other.version


def test_a_model_begins_again(serving):
    talk = serving(batch=1)
    drawn = talk.draw()
    before = {talk.draw().content for _ in range(300)}
    assert talk.admin.post("/v1/admin/models/phishing/reset").status_code == 200
    assert talk.update(drawn).status_code == 410  # a ticket is for one life of a model
    assert before.isdisjoint({talk.draw().content for _ in range(100)})
    start = [1.0, -2.0, 3.0]
    answer = talk.admin.post("/v1/admin/models/phishing/warm-start", json={"weights": start})
    assert answer.status_code == 200
    average = talk.admin.get("/v1/admin/models/phishing/average").json()["weights"]
    assert np.allclose(average, start, atol=0.05)
    found = talk.statistics()
    assert found["spread"] == pytest.approx(found["expected_spread"], rel=0.5)
    octets = {"Content-Type": "application/octet-stream"}
    body = np.array([4, 5, 6], "<f4").tobytes()
    assert talk.admin.post("/v1/admin/models/phishing/warm-start", content=body, headers=octets).status_code == 200
    assert np.allclose(talk.admin.get("/v1/admin/models/phishing/average").json()["weights"], [4, 5, 6], atol=0.05)


def test_what_makes_no_sense_is_refused_in_one_sentence(talk, make_task):
    one = "/v1/admin/models/phishing"
    bad = make_task().to_dict()
    for body in (
        b"",
        b"[]",
        b"{",
        b'{"task": null}',
        b'{"task": {}, "more": 1}',
        b'{"task": NaN}',
        b"[" * 100_000,
        json.dumps({"task": bad | {"epsilon": -1}}).encode(),
        json.dumps({"task": bad | {"model": "../../etc"}}).encode(),
        json.dumps({"task": bad | {"model": "new"}, "replace": "yes"}).encode(),
        json.dumps({"task": bad | {"noise": bad["noise"] | {"scale": 0.0}}}).encode(),
    ):
        answer = talk.admin.post("/v1/admin/models", content=body)
        assert (answer.status_code, list(answer.json())) == (422, ["error", "cause"]), body[:40]
    for weights in (None, [], [1, 2], [1, 2, "x"], [1, 2, 1e999], [1, 2, -3e38], [[1, 2, 3]], {"a": 1}, [1, 2, None]):
        content = json.dumps({"weights": weights}).encode()
        assert talk.admin.post(f"{one}/warm-start", content=content).status_code == 422
    octets = {"Content-Type": "application/octet-stream"}
    for content in (b"12345", bytes(8), *(np.array([1, odd, 2], "<f4").tobytes() for odd in (np.nan, 2e15))):
        assert talk.admin.post(f"{one}/warm-start", content=content, headers=octets).status_code == 422
    assert talk.admin.get(f"{one}/average?format=pickle").status_code == 422
    for path in ("", "/average", "/statistics"):
        assert talk.admin.get(f"/v1/admin/models/nothing{path}").status_code == 404
    for path in ("freeze", "thaw", "reset", "tokens"):
        assert talk.admin.post(f"/v1/admin/models/nothing/{path}").status_code == 404


def test_tokens_can_be_added_and_models_deleted(talk, tmp_path):
    token = talk.admin.post("/v1/admin/models/phishing/tokens").json()["token"]
    own = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{talk.address}/v1/models/phishing/draw", headers=own).status_code == 200
    assert (tmp_path / "kept" / "phishing.safetensors").exists()
    assert token.encode() not in (tmp_path / "kept" / "phishing.safetensors").read_bytes()
    assert talk.admin.delete("/v1/admin/models/phishing").status_code == 204
    assert not (tmp_path / "kept" / "phishing.safetensors").exists()
    assert httpx.get(f"{talk.address}/v1/models/phishing/draw", headers=own).status_code == 401
    assert talk.draw().status_code == 404
    assert talk.admin.get("/v1/admin/models").json() == {"models": []}


def test_every_admin_call_needs_the_admin_token(talk):
    for path, calls in document()["paths"].items():
        for method, call in calls.items():
            if path.startswith("/v1/admin") and method != "parameters":
                assert call["security"] == [{"admin": []}]
                answer = talk.client.request(method, path.replace("{model}", "phishing"))
                assert answer.status_code == 401, path
    assert talk.draw().status_code == 200


def test_every_route_is_in_the_document_and_every_path_of_it_exists(talk):
    documented = {path for path in document()["paths"] if not path.startswith("/v1/models/")}
    assert documented == {route.path for route in talk.service._rest.routes}
    assert talk.client.get("/openapi.json").json() == document()


def test_health_readiness_and_totals(talk):
    assert httpx.get(f"{talk.address}/healthz").json() == {"status": "alive"}
    assert httpx.get(f"{talk.address}/readyz").json() == {"status": "ready"}
    talk.update(talk.draw())
    talk.update(talk.draw(), np.full(3, 1e9, "<f4").tobytes())
    talk.client.get("/v1/models/nothing/draw")
    lines = talk.admin.get("/metrics").text.splitlines()
    assert 'blindsight_draws_total{model="phishing"} 2' in lines
    assert 'blindsight_updates_total{model="phishing",outcome="taken"} 1' in lines
    assert 'blindsight_updates_total{model="phishing",outcome="spam"} 1' in lines
    assert 'blindsight_refusals_total{cause="not_found"} 1' in lines
    assert 'blindsight_request_duration_seconds_bucket{request="update",le="+Inf"} 2' in lines
    for line in lines:  # every line is a comment or a name, labels and a number
        assert line.startswith("# ") or float(line.rsplit(" ", 1)[1]) >= 0


def test_what_a_sender_may_ask_says_nothing_of_models_or_of_what_was_taken(talk):
    def seen() -> list[bytes]:
        calls = [(client, path) for client in (httpx, talk.client) for path in ("/metrics", "/healthz", "/readyz")]
        answers = [client.get(f"{talk.address}{path}") for client, path in calls]
        assert [answer.status_code for answer in answers] == [401, 200, 200] * 2
        return [answer.content for answer in answers]

    before = seen()
    assert not any(b"phishing" in content for content in before)
    talk.update(talk.draw())
    talk.update(talk.draw(), np.full(3, 1e9, "<f4").tobytes())
    assert seen() == before


def test_the_average_in_every_format(talk, make_task):
    get = lambda form: talk.admin.get(f"/v1/admin/models/phishing/average?format={form}").content  # noqa: E731
    weights = np.array(json.loads(get("json"))["weights"], np.float32)
    assert load(get("safetensors"))["weights"].tobytes() == weights.tobytes()
    assert get("onnx") == onnx_model(make_task(), weights)


FEATURES = FeatureSpec((NumberField("length", 0, 100), CategoryField("ending", ("com", "net", "org"))))
RESPONSES = {
    "linear": Response(NumberField("y", 0, 5)),
    "poisson": Response(NumberField("y", 0, 5)),
    "multinomial": Response(CategoryField("y", ("a", "b", "c", "d"))),
    "ordinal": Response(CategoryField("y", ("low", "middle", "high"))),
}


@pytest.mark.parametrize("family", glm.FAMILIES)
def test_onnx_runtimes_predict_the_same(family, make_task):
    onnxruntime = pytest.importorskip("onnxruntime")
    if family == "logistic":
        task = make_task()
    else:
        features = dataclasses.replace(FEATURES, intercept=family != "ordinal")
        task = make_task(family=family, features=features, response=RESPONSES[family])
    assert task.features is not None
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(task.weights).astype(np.float32)
    if family == "ordinal":
        weights[:2] = [-1, 1]  # thresholds out of order, as noise may leave them
    x = rng.random((7, task.features.width)).astype(np.float32)
    session = onnxruntime.InferenceSession(onnx_model(task, weights))
    (found,) = session.run(["prediction"], {"features": x})
    expected = glm.predict(family, weights, x)
    assert found.shape == expected.shape
    assert np.allclose(found, expected, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["task"]) == task.to_dict()


def test_a_custom_model_has_no_onnx(serving, make_task):
    talk = serving(make_task(family="custom", features=None, response=None, weights=5))
    answer = talk.admin.get("/v1/admin/models/phishing/average?format=onnx")
    assert answer.status_code == 422
    assert len(talk.admin.get("/v1/admin/models/phishing/average").json()["weights"]) == 5
