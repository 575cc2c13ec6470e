"""A client's own privacy budget: stored by the client, and spent before anything is sent."""

import math
import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, Protocol

from blindsight.errors import BudgetExceeded, InvalidInput

__all__ = ["Budget", "transaction"]


class _Task(Protocol):
    @property
    def model(self) -> str: ...
    @property
    def unit(self) -> Literal["feature", "model"]: ...
    @property
    def weights(self) -> int: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def participations(self) -> int: ...


class Budget:
    """A limit on all updates that a client sends, to all models, in one small SQLite file.

    `spend(task)` writes the price of one update to disk and returns; only then may the update be computed and sent. A
    crash in between costs privacy budget, never privacy. Prices add up (basic composition). With `unit="model"`, the
    budget covers all of the client's data in all weights: an update with noise per feature costs its epsilon times the
    number of weights. With `unit="feature"`, the paper's unit, it costs its epsilon once. A task's own `participations`
    are enforced too, by the name of the model: a new version of a model does not reset the count.
    """

    def __init__(
        self, path: str | Path, *, epsilon: float, delta: float = 0.0, unit: Literal["feature", "model"] = "model"
    ) -> None:
        if not (epsilon > 0 and 0 <= delta < 1) or unit not in ("feature", "model"):
            raise InvalidInput(
                f"a budget needs epsilon > 0, delta in [0, 1) and a unit, got {epsilon}, {delta}, {unit!r}"
            )
        self.path, self.epsilon, self.delta, self.unit = Path(path), epsilon, delta, unit
        with self._open() as file:
            file.execute("CREATE TABLE IF NOT EXISTS spent (model TEXT, epsilon REAL, delta REAL, unit TEXT)")
            other = file.execute("SELECT unit FROM spent WHERE unit != ? LIMIT 1", (unit,)).fetchone()
        if other:
            raise InvalidInput(f"the budget in {self.path} is counted by {other[0]}: open it with unit={other[0]!r}")

    def spend(self, task: _Task) -> None:
        """Durably record one update for `task`, or refuse it and write nothing."""
        with self._open() as file:
            if reason := self._refusal(task, file):
                raise BudgetExceeded(reason)
            file.execute("INSERT INTO spent VALUES (?, ?, ?, ?)", (task.model, *self.price(task), self.unit))

    def price(self, task: _Task) -> tuple[float, float]:
        """The cost of one update for `task`: epsilon and delta in this budget's unit."""
        times = task.weights if (self.unit, task.unit) == ("model", "feature") else 1
        return task.epsilon * times, task.delta * times

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of everything sent so far."""
        with self._open() as file:
            return _total(file)

    def _refusal(self, task: _Task, file: sqlite3.Connection) -> str:
        sent = file.execute("SELECT COUNT(*) FROM spent WHERE model = ?", (task.model,)).fetchone()[0]
        if sent >= task.participations:
            return f"{task.model} was sent {sent} updates, and {task.participations} are allowed: nothing more is sent"
        (epsilon, delta), price = _total(file), self.price(task)
        if _fits(epsilon + price[0], self.epsilon) and _fits(delta + price[1], self.delta):
            return ""
        return (
            f"an update for {task.model} costs ({price[0]:.4g}, {price[1]:.3g}) by {self.unit} and "
            f"({epsilon:.4g}, {delta:.3g}) of ({self.epsilon:g}, {self.delta:g}) are spent: nothing is sent"
        )

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self.path, "budget")


@contextmanager
def transaction(path: Path, what: str, tables: str = "") -> Generator[sqlite3.Connection]:
    """One exclusive transaction on a client's own SQLite file, such as its budget or its wallet.

    It is on disk before this returns, and rolled back on any exception. `tables` creates the missing tables.
    """
    try:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    except sqlite3.Error as error:
        raise InvalidInput(f"the {what} {path} cannot be opened: {error}") from error
    try:
        connection.executescript(tables)
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise InvalidInput(f"the {what} {path} cannot be written: {error}") from error
    finally:
        connection.close()


def _total(file: sqlite3.Connection) -> tuple[float, float]:
    rows = file.execute("SELECT epsilon, delta FROM spent").fetchall()
    return math.fsum(row[0] for row in rows), math.fsum(row[1] for row in rows)


def _fits(total: float, limit: float) -> bool:
    return total <= limit * (1 + 1e-12)  # ten times 0.1 is 1
