"""The distances of every round's pairs, kept in the run's folder, and what the Bayesian accountant makes of them."""

import numpy as np

from blindsight import checkpoints
from blindsight.accounting.bayesian import BayesianAccountant, BayesianConfig, BayesianDiagnostic
from blindsight.accounting.guarantee import Guarantee
from blindsight.errors import InvalidInput
from blindsight.runs import Run

__all__ = ["PairLog"]

_ROWS, _FOUND = "bayesian.jsonl", "bayesian.json"


class PairLog:
    """One line of distances for each round of `run`, so that a run that resumes is accounted for as a whole.

    **No guarantee**: both files are read off private data without noise. They say so, and are no part of what the run
    promises; publish neither.
    """

    def __init__(self, run: Run, config: BayesianConfig) -> None:
        self.run, self.accountant = run, BayesianAccountant(config)
        newest = checkpoints.newest(run.path)
        done = 0 if newest is None else int(newest.stem.rpartition("-")[2])
        run.keep_rows(_ROWS, lambda row: row["round"] <= done)
        rows = run.rows(_ROWS)
        if [row["round"] for row in rows] != list(range(1, done + 1)):
            raise InvalidInput(
                f"{run.path / _ROWS} has no pairs of some of the {done} rounds so far: begin another run, or leave "
                f"[bayesian] out"
            )
        for row in rows:
            self.accountant.record(row["simulation_only"]["distances"])

    def record(self, distances: np.ndarray) -> None:
        """Keep one round's distances, and count them."""
        kept = [float(f"{distance:.8g}") for distance in distances]
        self.run.append(_ROWS, {"round": self.accountant.steps + 1, "simulation_only": {"distances": kept}})
        self.accountant.record(kept)

    def report(self, delta: float, classical: Guarantee) -> BayesianDiagnostic:
        """What the accountant estimates, never without the classical guarantee; written into the run's folder too."""
        found = self.accountant.report(delta=delta, classical=classical)
        self.run.write(_FOUND, {"simulation_only": True, "informal": found.to_dict(), "in_words": found.explain()})
        return found
