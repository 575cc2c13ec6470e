"""The canary: public examples on which a model is evaluated while it learns, and to which it returns if it gets worse.

Every 500 updates the average of the instances is scored on the operator's public examples. The best average is kept in
memory, never an instance. If the score falls below the best by more than `fall`, the model is frozen and restarted from
that best average. Each inspection also renews the shield (`shields`), which follows the model.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

from blindsight.algorithms.draw_and_discard import Task
from blindsight.errors import InvalidInput
from blindsight.models import glm
from blindsight.service.shields import Shield, make_shield, principal_directions

__all__ = ["INSPECT_EVERY", "Canary", "Score", "ranking", "read_canary", "score"]

INSPECT_EVERY = 500  # updates
_ARMED = 0.1  # of the initial loss: a model that has lost less ranks by chance
_FEWEST = 100  # examples: with fewer, chance decides


@dataclasses.dataclass(frozen=True)
class Score:
    """How good a model is on public examples: the larger, the better."""

    learned: float
    """The share of the loss of the model with zero weights that it has lost since."""
    ranking: float
    """Area under the ROC curve; 0 if the response is not binary, or too little is learned."""

    def below(self, best: "Score") -> float:
        """How far this falls below `best`, in the worse of the two."""
        fallen = best.learned - self.learned
        return max(fallen, best.ranking - self.ranking) if self.ranking else fallen


class Canary:
    """The public examples of one model; it outlives lives of the model, but not the process."""

    def __init__(self, task: Task, x: np.ndarray, y: np.ndarray, *, fall: float) -> None:
        self.task, self.fall = task, fall
        self._x, self._y = x, y
        self._principal = principal_directions(task, x, y)
        self._start = glm.loss(task.family, np.zeros(task.weights), x, y)
        self.best: Score | None = None
        self.latest: Score | None = None
        self.rollbacks = 0
        """How often the model was frozen and restarted."""
        self._good: np.ndarray | None = None

    def begin(self, average: np.ndarray) -> Shield:
        """A shield for the first average of a life. One far below the best resets the best."""
        latest = score(self.task, average, self._x, self._y, self._start)
        if self.best is not None and latest.below(self.best) > self.fall:
            self.best = self._good = None
        return self.inspect(average)[0]

    def inspect(self, average: np.ndarray) -> tuple[Shield, np.ndarray | None]:
        """A shield for this average of the instances, and the average to return to if this one is too bad."""
        latest = self.latest = score(self.task, average, self._x, self._y, self._start)
        if self.best is None or self._good is None or latest.learned > self.best.learned:
            self._good = average
        if latest.learned < _ARMED:
            latest = Score(latest.learned, 0.0)
        self.best = latest if self.best is None else _better(self.best, latest)
        shield = make_shield(self.task, average, self._x, self._y, self._principal)
        has_fallen = latest.below(self.best) > self.fall
        return shield, self._good if has_fallen else None


def score(task: Task, weights: np.ndarray, x: np.ndarray, y: np.ndarray, start: float) -> Score:
    """The score of a model whose loss with zero weights is `start`."""
    with np.errstate(all="ignore"):
        lost = glm.loss(task.family, weights, x, y)
        learned = (start - lost) / abs(start) if np.isfinite(lost) else -np.inf
        return Score(float(learned), ranking(x @ weights, y) if task.family == "logistic" else 0.0)


def read_canary(folder: Path, task: Task, *, fall: float) -> Canary | None:
    """The canary of a model from `MODEL.jsonl` in `folder`, one row of the task per line; None without such a file."""
    path = folder / f"{task.model}.jsonl"
    if not path.exists():
        return None
    if task.features is None:
        raise InvalidInput(f"{path}: a custom task does not define how rows are encoded, so it can have no canary")
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        x, y = task.encode(rows)
    except (OSError, ValueError, InvalidInput) as error:
        raise InvalidInput(f"{path}: {error}: give one JSON object per line with {', '.join(task.columns)}") from error
    if len(x) < _FEWEST:
        raise InvalidInput(f"{path} has {len(x)} examples: a canary needs {_FEWEST}, better thousands")
    return Canary(task, x, y, fall=fall)


def _better(one: Score, other: Score) -> Score:
    return Score(max(one.learned, other.learned), max(one.ranking, other.ranking))


def ranking(scores: np.ndarray, y: np.ndarray) -> float:
    """The probability that a positive example is ranked above a negative one."""
    positive = int(np.count_nonzero(y > 0))
    if not 0 < positive < len(y) or not np.isfinite(scores).all():
        return 0.0
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # ties share their mean
    return float((ranks[y > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(y) - positive)))
