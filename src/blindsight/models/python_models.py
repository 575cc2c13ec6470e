"""Models of other libraries as functions of a batch: scikit-learn's estimators and PyTorch's modules.

Neither library is imported here: a caller that has such a model has already imported its library. A scikit-learn
estimator reads flat rows. A PyTorch module is switched to evaluation mode. The scores of a Hugging Face model are the
logits in its output.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["class_names_of", "estimator_scores", "is_estimator", "is_torch_module", "torch_scores"]

_LEAST = 1e-12  # a probability of 0 has a finite score


def is_estimator(model: Any) -> bool:
    """Whether this looks like a scikit-learn estimator: it has `fit` and `predict`, and is not callable."""
    return not callable(model) and hasattr(model, "fit") and hasattr(model, "predict")


def estimator_scores(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The logarithms of a classifier's probabilities, or its decision function; refused if it has neither."""
    name = type(model).__name__
    if not hasattr(model, "classes_"):
        raise InvalidInput(f"{name} has no classes_: fit the classifier first, and bring a classifier")
    if hasattr(model, "predict_proba"):
        return lambda x: np.log(np.maximum(np.asarray(model.predict_proba(_rows(x)), np.float64), _LEAST))
    if not hasattr(model, "decision_function"):
        raise InvalidInput(f"{name} has neither predict_proba nor decision_function: wrap it in a function of a batch")

    def decide(x: np.ndarray) -> np.ndarray:
        margins = np.asarray(model.decision_function(_rows(x)))
        return margins if margins.ndim == 2 else np.stack([-margins / 2, margins / 2], axis=1)

    return decide


def _rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)


def is_torch_module(model: Any) -> bool:
    """Whether this is a PyTorch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def torch_scores(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A PyTorch module's scores of a batch, without dropout or gradients, computed on the module's device."""
    torch = sys.modules["torch"]
    model.eval()

    def call(x: np.ndarray) -> np.ndarray:
        device = next((one.device for one in model.parameters()), torch.device("cpu"))
        with torch.no_grad():
            out = model(torch.from_numpy(np.array(x, np.float32)).to(device))
        return getattr(out, "logits", out).detach().cpu().numpy()

    return call


def class_names_of(model: Any) -> tuple[str, ...]:
    """The names of a model's classes in the order of its scores, if it lists them."""
    if (listed := getattr(model, "classes_", None)) is not None:
        return tuple(str(one) for one in np.asarray(listed).tolist())
    names = getattr(getattr(model, "config", None), "id2label", None)
    return tuple(str(names[place]) for place in sorted(names)) if names else ()
