"""Folders of runs for the studio, written as runs write them, without any training."""

import json
import math
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from blindsight import runs
from blindsight.accounting.guarantee import Guarantee
from blindsight.studio.studio_app import make_studio
from blindsight.studio.web import Workspace

__all__ = ["TOKEN", "add_round", "enter", "inspection", "label_set", "promise", "stored", "training"]

TOKEN = "good-once"


def promise(epsilon: float = 2.0) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=1e-6, accountant="PLD", participation="full: all 300", releases=20)


def training(folder: Path, name: str, *, rounds: int = 20, done: int = 20, epsilon: float = 2.0) -> runs.Run:
    """A training run that measured something in every round, and has a result if it is done."""
    settings = {"model": {"kind": "logistic"}, "privacy": {"rounds": rounds, "clip": 1.0}, "seed": None}
    run = runs.begin(folder / name, name, settings)
    run.write("guarantee.json", promise(epsilon).to_dict())
    for at in range(1, done + 1):
        add_round(run, at)
    if done == rounds:
        run.write("result.json", {"rounds": rounds, "stopped": "finished", "simulation_only": {"accuracy": 0.5}})
    return run


def add_round(run: runs.Run, at: int) -> None:
    seen = {"accuracy": 1 - math.exp(-at / 10), "clients": 50 + at % 3}
    run.append("metrics.jsonl", {"round": at, "clip": 1 / at, "simulation_only": seen})


def inspection(folder: Path, name: str, *, verdict: str = "invert, 48 % of clients.", **changed: Any) -> runs.Run:
    """An inspection with a small report."""
    import numpy as np

    from blindsight.inspection.finding import Finding
    from blindsight.inspection.report import Report
    from blindsight.samples.views import ArmView

    dice = np.random.default_rng(len(name))
    picture = dice.integers(0, 256, (4, 8, 8), np.uint8)
    labels = np.array([0, 0, 1, 1], np.int32)
    run = runs.begin(folder / name, "slices", {"question": {"task": "slices", "epsilon": 2.0, **changed}})
    run.write("guarantee.json", promise().to_dict())
    finding = Finding(
        kind="cue",
        name="white",
        statement="white is higher in failing",
        effect=0.3 + len(name) / 100,
        low=0.2,
        high=0.5,
        p_value=0.01,
        verdict="detected",
        epsilon=1.0,
        smallest=0.1,
        arms=("failing", "healthy"),
    )
    report = Report(
        title="Which clients does the model fail on?",
        task="slices",
        question=f"How do clients of {name} differ?",
        guarantee=promise(),
        population={"name": name, "clients": 300, "classes": ["cat", "dog"]},
        arms=(
            ArmView("healthy", samples=picture, labels=labels),
            ArmView("failing", samples=255 - picture, labels=labels),
        ),
        findings=(finding,),
        diagnoses=(),
        releases=(),
        notes=(),
        answer=verdict,
    )
    report.save(run.path / "report.html")
    report.save_json(run.path / "report.json")
    return run


def label_set(folder: Path, name: str) -> runs.Run:
    """The run of an inspection that made eight synthetic examples for people to label."""
    import numpy as np

    from blindsight.samples.export import save_set
    from blindsight.samples.views import ArmView

    dice = np.random.default_rng(0)
    run = runs.begin(folder / name, "labelling", {"question": {"task": "labelling"}})
    run.write("guarantee.json", promise().to_dict())
    save_set(
        [ArmView("everyone", samples=dice.integers(0, 256, (8, 8, 8), np.uint8), labels=np.arange(8) % 2)],
        run.path / "samples",
        title="Pets to label",
        guarantee=promise(),
        classes=("cat", "dog"),
        extra={"pred": np.arange(8) % 2, "score": np.linspace(0.5, 1.0, 8)},
        facts={"proposer": "a model", "names": {}},
    )
    return run


def enter(place: Workspace, port: int = 8000) -> TestClient:
    """A browser that has exchanged the token, and sends the anti-forgery token with what it posts."""
    guard = make_studio(place, token=TOKEN, port=port)
    client = TestClient(guard, base_url=f"http://127.0.0.1:{port}")
    assert client.get("/", params={"token": TOKEN}).status_code == 200
    client.headers["X-CSRF-Token"] = guard.csrf
    return client


def stored(path: Path) -> Any:
    return json.loads(path.read_text())
