"""The distances of every round's pairs, saved in the run's folder, and the Bayesian accountant's estimate from them."""

import numpy as np

from blindsight import checkpoints
from blindsight.accounting.bayesian import BayesianAccountant, BayesianConfig, BayesianDiagnostic
from blindsight.accounting.guarantee import Guarantee
from blindsight.errors import InvalidInput
from blindsight.runs import Run

__all__ = ["PairLog"]

_ROWS, _REPORT = "bayesian.jsonl", "bayesian.json"


class PairLog:
    """One line of distances for each round of `run`, so that a resumed run is accounted for as a whole.

    **No guarantee**: both files are computed from private data without noise. They say so and are not covered by the
    run's guarantee; publish neither.
    """

    def __init__(self, run: Run, config: BayesianConfig) -> None:
        self.run, self.accountant = run, BayesianAccountant(config)
        newest = checkpoints.newest(run.path)
        done = 0 if newest is None else int(newest.stem.rpartition("-")[2])
        run.keep_rows(_ROWS, lambda row: row["round"] <= done)
        rows = run.rows(_ROWS)
        if [row["round"] for row in rows] != list(range(1, done + 1)):
            raise InvalidInput(
                f"{run.path / _ROWS} lacks the pairs of some of the {done} rounds so far: begin another run, or leave "
                f"[bayesian] out"
            )
        for row in rows:
            self.accountant.record(row["simulation_only"]["distances"])

    def record(self, distances: np.ndarray) -> None:
        """Save one round's distances and pass them to the accountant."""
        rounded = [float(f"{distance:.8g}") for distance in distances]
        self.run.append(_ROWS, {"round": self.accountant.steps + 1, "simulation_only": {"distances": rounded}})
        self.accountant.record(rounded)

    def report(self, delta: float, classical: Guarantee) -> BayesianDiagnostic:
        """The accountant's estimate, never without the classical guarantee; saved in the run's folder too."""
        estimate = self.accountant.report(delta=delta, classical=classical)
        self.run.write(
            _REPORT, {"simulation_only": True, "informal": estimate.to_dict(), "in_words": estimate.explain()}
        )
        return estimate
