"""A Draw and Discard task: what a server asks of clients, as a value and as JSON, with its derived bounds."""

import dataclasses
import functools
import hashlib
import json
import math
from typing import Any, Literal, get_args

import numpy as np

from blindsight.accounting import events
from blindsight.codings.specs import ClientRows, FeatureSpec, Response, readable
from blindsight.errors import InvalidInput
from blindsight.models import glm

__all__ = ["BITS", "Noise", "Task", "TaskUnit", "check_one_of", "check_whole"]

Noise = Literal["laplace", "gaussian", "none"]
TaskUnit = Literal["feature", "model"]

BITS = 24
"""log2 of the noise's scale in steps of the grid."""

_MOST_WEIGHTS = 1 << 22
_LARGEST_EPSILON = 2.0**16
_DERIVED = ("version", "weights", "norm", "noise")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A server's task for clients: the model, the encoding of its data, and the bound and noise of updates.

    `epsilon` and `delta` are the cost of one update; `participations` is the number of updates that a client may send
    to this model.
    `noise="none"` is not private and must be requested explicitly; its epsilon is infinite. `family="custom"`, for
    `client_update_of`, has `weights` and neither features nor response.

    >>> from blindsight.codings.specs import BooleanField, FeatureSpec, NumberField, Response
    >>> features = FeatureSpec((NumberField("length", 0, 200), BooleanField("https")))
    >>> task = Task(model="phishing", family="logistic", features=features, response=Response(BooleanField("phishing")),
    ...             unit="model", epsilon=1.0)
    >>> task.weights, task.scale, task.bound
    (3, 0.002, 8388608)
    """

    model: str
    family: str
    features: FeatureSpec | None = None
    response: Response | None = None
    unit: TaskUnit
    epsilon: float
    delta: float = 0.0
    noise: Noise = "laplace"
    learning_rate: float = 0.001
    clip: float = 1.0
    instances: int = 20
    participations: int = 1
    weights: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "learning_rate", "clip"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        for name, least, most in (
            ("instances", 1, 10_000),
            ("participations", 1, 2**31),
            ("weights", 0, _MOST_WEIGHTS),
        ):
            check_whole(name, getattr(self, name), least, most)
        if type(self.model) is not str or not self.model:
            raise InvalidInput(f"a task needs the name of its model, got {self.model!r}")
        check_one_of("unit", self.unit, get_args(TaskUnit))
        check_one_of("noise", self.noise, get_args(Noise))
        object.__setattr__(self, "weights", self._count_weights())
        if not (0 < self.learning_rate < 1e6 and 0 < self.clip < 1e6):
            raise InvalidInput(
                f"learning_rate and clip must lie between 0 and a million, got {self.learning_rate} and {self.clip}"
            )
        self._check_privacy()

    def _count_weights(self) -> int:
        if self.family == "custom":
            if self.features or self.response or not self.weights:
                raise InvalidInput("a custom task needs a number of weights, and neither features nor response")
            return self.weights
        check_one_of("family", self.family, (*glm.FAMILIES, "custom"))
        if self.features is None or self.response is None:
            raise InvalidInput(f"a {self.family} model needs features and a response")
        wanted = {"linear": "number", "poisson": "number", "logistic": "boolean"}.get(self.family, "category")
        if self.response.field.kind != wanted:
            raise InvalidInput(f"a {self.family} model predicts a {wanted}, not a {self.response.field.kind}")
        if self.family == "ordinal" and self.features.intercept:
            raise InvalidInput("an ordinal model has its own thresholds: use features without an intercept")
        count = glm.weights_needed(self.family, self.features.width, self.response.classes)
        if self.weights not in (0, count):
            raise InvalidInput(f"this model has {count} weights, not {self.weights}")
        check_whole("weights", count, 1, _MOST_WEIGHTS)
        return count

    def _check_privacy(self) -> None:
        if self.noise == "none":
            if self.epsilon != math.inf or self.delta:
                raise InvalidInput(
                    'a task without noise is not private: it has epsilon = inf ("inf" in JSON), delta = 0'
                )
        elif not 2.0**-12 <= self.epsilon <= _LARGEST_EPSILON:
            raise InvalidInput(f"epsilon must lie between 2^-12 and 2^16, got {self.epsilon}; no noise is noise='none'")
        elif (self.noise == "gaussian") != (0 < self.delta < 1):
            raise InvalidInput(f"Laplace noise has delta = 0 and Gaussian noise one in (0, 1), got {self.delta}")

    @property
    def norm(self) -> int | None:
        """The norm in which the whole gradient is clipped; None if each coordinate is."""
        if self.unit == "feature":
            return None
        return 1 if self.noise == "laplace" else 2

    @property
    def scale(self) -> float:
        """The noise in every weight: the scale of Laplace, the standard deviation of Gaussian noise; 0 for none."""
        if self.noise == "none":
            return 0.0
        reach = self.learning_rate * self.clip
        return 2 * reach / self.epsilon if self.noise == "laplace" else reach * self._noise_multiplier

    @property
    def variance(self) -> float:
        """The variance of the noise in every weight."""
        return (2 if self.noise == "laplace" else 1) * self.scale**2

    @property
    def grid(self) -> float | None:
        """The step of the grid of the change and its noise."""
        return self.scale / 2**BITS if self.scale else None

    @property
    def bound(self) -> int | None:
        """Bound on the change, in steps: of each coordinate, or of the whole in its norm."""
        if self.noise == "none":
            return None
        if self.noise == "laplace":
            return math.floor(self.epsilon * 2 ** (BITS - 1))
        return math.floor(2**BITS / self._noise_multiplier)

    @property
    def event(self) -> events.Event:
        """The event of one update; of one of its coordinates if the noise is per feature."""
        if self.noise == "none":
            return events.NonPrivate()
        if self.noise == "laplace":
            return events.Laplace(2 / self.epsilon, discrete=True)
        return _gaussian_event(self._noise_multiplier)

    @property
    def _noise_multiplier(self) -> float:
        return _gaussian_multiplier(self.epsilon, self.delta)

    @property
    def columns(self) -> list[str]:
        """The fields that a client's rows need for training."""
        if self.features is None or self.response is None:
            return []
        return list(dict.fromkeys([*(field.name for field in self.features.fields), self.response.field.name]))

    def encode(self, rows: ClientRows, *, strict: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """A client's rows as features (rows, width) and responses (rows,).

        If `strict`, a row that cannot be encoded is refused, which helps to find errors. A client that is about to send
        must not be `strict`: such a row then counts as absent, because silence would reveal its value.
        """
        if self.features is None or self.response is None:
            raise InvalidInput("a custom task does not define how rows are encoded")
        if not strict:
            rows = readable(rows, self.features, self.response)
        return self.features.encode(rows), self.response.encode(rows, scaled=self.family != "poisson")

    @functools.cached_property
    def version(self) -> str:
        """16 hex digits that change with any setting of the task."""
        text = json.dumps(self._to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as the service sends them to clients."""
        return {"model": self.model, "version": self.version} | self._to_dict()

    def _to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "family": self.family,
            "weights": self.weights,
            "features": self.features and self.features.to_dict(),
            "response": self.response and self.response.to_dict(),
            "learning_rate": self.learning_rate,
            "clip": self.clip,
            "unit": self.unit,
            "norm": self.norm,
            "noise": {"kind": self.noise, "scale": self.scale, "grid": self.grid, "bound": self.bound},
            "epsilon": "inf" if self.epsilon == math.inf else self.epsilon,
            "delta": self.delta,
            "instances": self.instances,
            "participations": self.participations,
        }

    @classmethod
    def from_dict(cls, values: Any) -> "Task":
        """The task that `to_dict` wrote.

        Bounds and noise are derived again: a client does not trust the server's, and refuses a task with other noise
        than its epsilon requires.
        """
        if not isinstance(values, dict) or not isinstance(values.get("noise"), dict):
            raise InvalidInput(
                "a task must be a JSON object with model, family, features, response, unit, noise and epsilon"
            )
        fields = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - fields - set(_DERIVED), key=str):
            raise InvalidInput(f"a task has no {unknown[0]!r}")
        given = {name: value for name, value in values.items() if name in fields - {"noise", "features", "response"}}
        try:
            task = cls(
                **given,
                noise=values["noise"].get("kind"),
                features=FeatureSpec.from_dict(values["features"]) if values.get("features") is not None else None,
                response=Response.from_dict(values["response"]) if values.get("response") is not None else None,
            )
        except TypeError as error:
            raise InvalidInput(f"this task is incomplete: {error}") from error
        derived = task.to_dict()
        for name in _DERIVED:
            stated = values.get(name, derived[name])
            if isinstance(stated, dict):
                stated = derived[name] | stated
            if stated != derived[name]:
                raise InvalidInput(
                    f"this task states {name} = {stated!r}, but its settings give {derived[name]!r}: it "
                    "was edited, or written by another version of Blindsight"
                )
        return task


def _gaussian_event(noise_multiplier: float) -> events.Gaussian:
    return events.Gaussian(noise_multiplier, rounded=True)  # see mechanisms.gaussian_mechanism


@functools.lru_cache(maxsize=64)
def _gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Noise relative to the bound of an update; replacing all of a client's data changes it by twice the bound."""
    from blindsight.accounting.planning import solve_noise  # takes a second, and Laplace noise does not need it

    return solve_noise(_gaussian_event, epsilon=epsilon, delta=delta, relation=events.Relation.REPLACE)


def check_one_of(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the options."""
    if value not in options:
        raise InvalidInput(f"{name} must be one of {', '.join(options)}, got {value!r}")


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Refuse a value that is not an integer from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def _number(name: str, value: Any) -> float:
    if value == "inf":
        return math.inf
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise InvalidInput(f"{name} must be a number, got {value!r}")
    return float(value)
