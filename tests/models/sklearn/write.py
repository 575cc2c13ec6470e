"""Writes the ONNX files beside it with scikit-learn and skl2onnx: `python write.py`.

Two numbers, x and y; the class depends on their sum. `expected.json` has scikit-learn's own probabilities.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).parent


def main() -> None:
    from skl2onnx import to_onnx  # pyright: ignore[reportMissingImports]

    dice = np.random.default_rng(0)
    x = dice.normal(size=(300, 2)).astype(np.float32)
    words = np.array(["low", "middle", "high"])[np.digitize(x.sum(axis=1), [-1, 1])]
    numbers = np.array([3, 5, 9])[np.digitize(x.sum(axis=1), [-1, 1])]
    models: dict[str, tuple[Any, np.ndarray, bool]] = {
        "logistic-zipmap": (LogisticRegression(), words, True),
        "logistic-tensor": (LogisticRegression(), words, False),
        "perceptron-tensor": (MLPClassifier((4,), max_iter=500, random_state=0), words, False),
        "forest-numbers": (RandomForestClassifier(3, max_depth=3, random_state=0), numbers, True),
    }
    found: dict[str, Any] = {"rows": x[:5].tolist()}
    for name, (model, labels, zipmap) in models.items():
        model.fit(x, labels)
        file = to_onnx(model, x[:1], options={id(model): {"zipmap": zipmap}})
        (HERE / f"{name}.onnx").write_bytes(file.SerializeToString())
        found[name] = {"classes": [str(one) for one in model.classes_], "scores": model.predict_proba(x[:5]).tolist()}
    (HERE / "expected.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
