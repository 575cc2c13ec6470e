"""Writes draw_and_discard.json anew: `python tests/golden/write_draw_and_discard.py`, after a change that is meant.

Clients in other languages are tested against the same file. The noise in it is given, not drawn.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import keys
from blindsight.algorithms import draw_and_discard as dd
from blindsight.codings.specs import BooleanField, CategoryField, FeatureSpec, NgramField, NumberField, Response, fnv1a
from blindsight.models import glm

ABOUT = (
    "Golden vectors for every client of Draw and Discard. x, y, prediction, loss, gradient: equal to 1e-12 relative to "
    "the largest; whole_change: equal up to one step (exp may differ in its last bit); new_weights: float32(weights + "
    "grid * (whole_change + noise)), equal up to one unit in the last place. unreadable: a row of a case that holds "
    "one of these values in that field, or lacks the field, counts as absent on a client whose task names the field."
)
ROWS: list[dict[str, Any]] = [
    {"length": 57, "https": True, "tld": "com", "url": "https://example.com/login?x=1", "phishing": True}
    | {"count": 3, "score": 2.5, "grade": "good"},
    {"length": 250, "https": False, "tld": "xyz", "url": "http://müller.example/ü", "phishing": False}
    | {"count": 0, "score": -1.0, "grade": "poor"},
    {"length": -3.5, "https": 1, "tld": None, "url": "", "phishing": 0, "count": 12, "score": 7, "grade": "fair"},
    {"length": 100, "https": 0, "tld": "org", "url": "a😀b", "phishing": 1, "count": 1, "score": 4.25, "grade": "good"},
]
UNREADABLE: dict[str, list[Any]] = {
    "length": [None, "57", True, [57], {}],
    "https": [None, "yes", 2, 0.5, [], {"a": True}],
    "tld": [1.5, True, False, ["com"], {}],
    "url": [None, 7, True, ["http://example.com"], {}],
    "phishing": [None, "true", 2, -1, 0.5, [1]],
    "count": [None, "3", True, [], {}],
    "score": [None, "", False, [2.5], {}],
    "grade": [None, "excellent", "", "Good", 1, 1.5, True, 9007199254740993, ["good"], {}],
}
LENGTH, HTTPS, GRADE = (
    NumberField("length", 0, 200),
    BooleanField("https"),
    CategoryField("grade", ("poor", "fair", "good")),
)
URL = FeatureSpec(
    (LENGTH, HTTPS, CategoryField("tld", ("com", "net", "org")), NgramField("url", (2, 3), 16)),
    crosses=(("https", "tld"), ("length", "https")),
)
SMALL = FeatureSpec((LENGTH, CategoryField("tld", ("com", "net", "org"), drop_first=True)))
BARE = FeatureSpec((LENGTH, HTTPS), intercept=False)
PHISHING = Response(BooleanField("phishing"))
TASKS: list[dict[str, Any]] = [
    {"model": "phishing", "family": "logistic", "features": URL, "response": PHISHING, "unit": "feature"}
    | {"epsilon": math.log(32)},
    {"model": "phishing-model-level", "family": "logistic", "features": URL, "response": PHISHING, "unit": "model"}
    | {"epsilon": 1.0, "clip": 0.25, "learning_rate": 0.05, "instances": 10, "participations": 4},
    {"model": "phishing-gaussian", "family": "logistic", "features": URL, "response": PHISHING, "unit": "model"}
    | {"epsilon": 2.0, "delta": 1e-6, "noise": "gaussian", "clip": 0.5},
    {"model": "score", "family": "linear", "features": SMALL, "response": Response(NumberField("score", 0, 5))}
    | {"unit": "feature", "epsilon": 0.5, "clip": 0.1},
    {"model": "visits", "family": "poisson", "features": SMALL, "response": Response(NumberField("count", 0, 10))}
    | {"unit": "model", "epsilon": 4.0, "clip": 2.0},
    {"model": "grade", "family": "multinomial", "features": SMALL, "response": Response(GRADE)}
    | {"unit": "feature", "epsilon": 1.0},
    {"model": "grade-ordered", "family": "ordinal", "features": BARE, "response": Response(GRADE)}
    | {"unit": "model", "epsilon": 1.0},
    {"model": "open", "family": "logistic", "features": SMALL, "response": PHISHING, "unit": "feature"}
    | {"epsilon": math.inf, "noise": "none"},
]
TEXTS = [("foobar", 6), ("foobar", 3), ("a", 1), ("müller", 2), ("", 2), ("😀", 4)]


def case(task: dd.Task, weights: np.ndarray) -> dict[str, Any]:
    """Everything between a client's rows and the weights it sends."""
    x, y = task.encode(ROWS)
    gradient = glm.gradient(task.family, weights, x, y)
    whole = noise = None
    if task.grid is None:
        new = dd.client_update(task, weights, x, y, key=keys.root())  # without noise the key does nothing
    else:
        whole, noise = dd.whole_change(task, gradient), np.arange(task.weights) * 1234567 - 5000000
        new = (weights.astype(np.float64) + task.grid * (whole + noise)).astype(np.float32)
    return {
        "task": task.to_dict(),
        "rows": ROWS,
        "weights": weights.tolist(),
        "x": x.tolist(),
        "y": y.tolist(),
        "prediction": glm.predict(task.family, weights, x).tolist(),
        "loss": glm.loss(task.family, weights, x, y),
        "gradient": gradient.tolist(),
        "whole_change": None if whole is None else whole.tolist(),
        "noise": None if noise is None else noise.tolist(),
        "new_weights": new.tolist(),
    }


def main() -> None:
    """Write the file beside this one."""
    random = np.random.default_rng(4)
    tasks = [dd.Task(**task) for task in TASKS]
    cases = [case(task, np.asarray(random.normal(size=task.weights), np.float32)) for task in tasks]
    hashes = [{"text": text, "size": size, "fnv1a": fnv1a(text.encode(), size).tolist()} for text, size in TEXTS]
    golden = {"about": ABOUT, "hashes": hashes, "unreadable": UNREADABLE, "cases": cases}
    path = Path(__file__).with_name("draw_and_discard.json")
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
