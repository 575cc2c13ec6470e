"""Labels inside the studio: the queue with and without proposals, instructions, a grid, history and agreement."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from studio_runs import enter, label_set, training

from blindsight.runs import Run
from blindsight.studio.web import Workspace


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return label_set(tmp_path / "runs", "pets")


@pytest.fixture
def client(run: Run) -> TestClient:
    return enter(Workspace(folder=run.path.parent, writable=True))


def lines(run: Run) -> list[dict[str, Any]]:
    path = run.path / "samples" / "labels.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_sets_are_listed_and_other_runs_are_not(client, run):
    training(run.path.parent, "other")
    shown = client.get("/labels").text
    assert ("pets" in shown, "other" in shown) == (True, False)
    assert client.get("/labels/other").status_code == 404
    assert "8 samples" in client.get("/labels/pets").text


def test_the_queue_labels(client, run):
    page = client.get("/labels/pets/queue/anna/")
    assert "sha256-" in page.headers["content-security-policy"]
    assert 'data-token="' in page.text
    state = client.get("/labels/pets/queue/anna/state").json()
    assert state["sample"]["proposed"] in ("cat", "dog")
    said = {"sample_id": state["sample"]["id"], "label": "dog", "seconds": 1.5}
    assert client.post("/labels/pets/queue/anna/label", json=said).json()["labelled"] == 1
    assert [(one["rater"], one["label"]) for one in lines(run)] == [("anna", "dog")]
    assert client.post("/labels/pets/queue/anna/undo", json={}).json()["labelled"] == 0
    assert client.post("/labels/pets/queue/anna/delete", json={}).status_code == 404
    assert client.post("/labels/pets/queue/anna/label", json=said, headers={"X-CSRF-Token": "x"}).status_code == 403


def test_hidden_proposals_never_leave_the_server(client):
    answer = client.get("/labels/pets/blind/anna/state")
    assert (answer.json()["sample"]["proposed"], answer.json()["sample"]["score"]) == (None, None)
    said = {"sample_id": answer.json()["sample"]["id"], "label": "cat", "seconds": 1}
    assert client.post("/labels/pets/blind/anna/label", json=said).json()["sample"]["proposed"] is None


def test_read_only_labels_nothing(run):
    client = enter(Workspace(folder=run.path.parent))
    assert client.get("/labels/pets/queue/anna/state").status_code == 200
    assert client.post("/labels/pets/queue/anna/undo", json={}).status_code == 403
    assert client.post("/labels/pets/grid/anna", data={"label": "cat"}).status_code == 403
    assert lines(run) == []


def test_instructions_reach_raters(client, run):
    assert "Saved." in client.post("/labels/pets/instructions", data={"text": "a\r\n<b>cat</b> has ears"}).text
    assert client.get("/labels/pets/queue/anna/state").json()["instructions"] == "a\n<b>cat</b> has ears"
    assert "<b>cat" not in client.get("/labels/pets").text
    assert "<b>cat" not in client.get("/labels/pets/grid/anna").text
    answer = client.post("/labels/pets/instructions", data={"text": "x" * 10_001}, headers={"HX-Request": "true"})
    assert 'role="alert"' in answer.text


def test_a_grid_labels_all_that_are_chosen_or_none(client, run):
    shown = client.get("/labels/pets/grid/anna", params={"proposed": "cat"}).text
    chosen = sorted(part.partition('"')[0] for part in shown.split('name="sample:')[1:])
    assert len(chosen) == 4
    assert shown.count("checked") == 4
    assert client.get("/labels/pets/grid/anna", params={"proposed": ""}).text.count('name="sample:') == 8
    wrong = {f"sample:{chosen[0]}": "on", "sample:nobody": "on", "label": "cat"}
    assert client.post("/labels/pets/grid/anna", data=wrong).status_code == 404
    assert client.post("/labels/pets/grid/anna", data={"label": "cat"}).status_code == 404
    cow = {f"sample:{chosen[0]}": "on", "label": "cow"}
    assert client.post("/labels/pets/grid/anna", data=cow).status_code == 404
    assert lines(run) == []
    answer = client.post(
        "/labels/pets/grid/anna", data={**{f"sample:{one}": "on" for one in chosen[:3]}, "label": "cat"}
    )
    assert answer.headers["hx-refresh"] == "true"
    assert sorted(one["sample_id"] for one in lines(run)) == chosen[:3]
    assert "5 samples left" in client.get("/labels/pets/grid/anna").text


def test_history_changes_what_was_labelled(client, run):
    first = client.get("/labels/pets/queue/anna/state").json()["sample"]["id"]
    client.post("/labels/pets/queue/anna/label", json={"sample_id": first, "label": "cat", "seconds": 2})
    assert f"Label of {first}" in client.get("/labels/pets/history/anna").text
    assert "Changed." in client.post("/labels/pets/history/anna", data={"sample": first, "label": "dog"}).text
    assert [one["label"] for one in lines(run)] == ["cat", "dog"]
    assert client.post("/labels/pets/history/anna", data={"sample": "nobody", "label": "dog"}).status_code == 404
    assert client.post("/labels/pets/history/ben", data={"sample": first, "label": "dog"}).status_code == 404
    assert client.get("/labels/pets/queue/anna/state").json()["counts"] == {"cat": 0, "dog": 1}


def test_agreement_is_shown(client):
    for rater in ("anna", "ben"):
        shown = client.get(f"/labels/pets/grid/{rater}", params={"proposed": "cat"}).text
        ids = [part.partition('"')[0] for part in shown.split('name="sample:')[1:]]
        client.post(f"/labels/pets/grid/{rater}", data={**{f"sample:{one}": "on" for one in ids}, "label": "cat"})
    shown = client.get("/labels/pets").text
    assert "anna and ben" in shown
    assert "100 %" in shown


@pytest.mark.parametrize("rater", [" ", "x" * 101, "a/b", ""])
def test_a_rater_has_a_name(client, rater):
    assert client.get("/labels/pets", params={"mode": "queue", "rater": rater}).status_code == 404 or rater == ""


def test_another_window_of_the_same_rater_is_said(client, run):
    from blindsight.samples.synthetic_set import read_set
    from blindsight.studio.labels import Labels

    with Labels(read_set(run.path)).alone("anna"):
        answer = client.post("/labels/pets/queue/anna/undo", json={})
    assert "labelling this set in another window" in answer.text
