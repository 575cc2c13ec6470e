"""Every privacy number the papers print: as published, as reproduced by their own arithmetic, and the true value.

A `Table` renders as rich text for the terminal, markdown for a page, and plain values for machines.
"""

import concurrent.futures
import dataclasses
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from blindsight.accounting import accountants
from blindsight.accounting.as_published import (
    BAYESIAN_ROWS,
    FEDERATED_ROWS,
    LOSS_NOISE_ROWS,
    BayesianRow,
    FederatedRow,
    LossNoiseRow,
    bayesian_failure,
    fixed_size_epsilon,
    loss_noise_epsilon,
)
from blindsight.accounting.events import FixedSize, Gaussian, Poisson, Relation, Repeated
from blindsight.accounting.guarantee import round_down, round_up
from blindsight.accounting.planning import group_privacy
from blindsight.errors import InvalidInput

__all__ = ["PAPERS", "Table", "build"]

PAPERS = {
    "000": "Augenstein et al. 2020, Generative Models for Effective ML on Private, Decentralized Datasets",
    "001": "Ramaswamy et al. 2020, Training Production Language Models without Memorizing User Data",
    "002": "Triastcyn and Faltings 2022, Generating Higher-Fidelity Synthetic Datasets with Privacy Guarantees",
    "003": "Secure aggregation of different types of local models by DP-GANs and voting",
}

_RULED = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


@dataclasses.dataclass(frozen=True)
class Table:
    """One paper's numbers: `rows` hold the text of each cell under `columns`, `data` the numbers behind them."""

    paper: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    data: tuple[dict[str, Any], ...]

    def to_markdown(self) -> str:
        """The table as a markdown section."""
        lines = [f"### {self.paper}: {self.title}", "", _pipes(self.columns), _pipes(["---"] * len(self.columns))]
        lines += [_pipes(row) for row in self.rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes), ""])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"paper": self.paper, "title": self.title, "rows": list(self.data), "notes": list(self.notes)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = RichTable(box=_RULED, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for position, column in enumerate(self.columns):
            style = {"published": "yellow", "reproduced": "dim"}.get(column.split()[0], "")
            style = "bold green" if column.startswith(("honest", "true")) else style
            # only words may wrap on a narrow screen, never numbers
            heading = column.replace(", ", ",\n").replace("published ε", "published\nε")
            table.add_column(heading, justify="right" if position else "left", style=style, no_wrap=position > 1)
        for row in self.rows:
            table.add_row(*(escape(cell) for cell in row))
        yield Text.assemble((self.paper, "bold"), "  ", self.title, "\n")
        yield table
        yield ""
        for note in self.notes:
            yield Padding(Text(note, style="dim"), (0, 0, 0, 2))


def build(paper: str, progress: Callable[[int, int], None] = lambda done, total: None) -> Table:
    """The table of `paper` ("000" to "003"); `progress(done, total)` is called after each row."""
    if paper not in PAPERS:
        raise InvalidInput(f"there is no table for paper {paper!r}: choose from {', '.join(PAPERS)}")
    if paper in FEDERATED_ROWS:  # takes minutes per row
        rows = FEDERATED_ROWS[paper]
        context = multiprocessing.get_context("spawn")  # workers import only the accountants, and nothing is forked
        with concurrent.futures.ProcessPoolExecutor(min(len(rows), os.cpu_count() or 1), mp_context=context) as pool:
            return _federated_table(paper, rows, _told(pool.map(federated_numbers, rows), len(rows), progress))
    if paper == "003":
        return _loss_noise_table(
            LOSS_NOISE_ROWS, _told(map(loss_noise_numbers, LOSS_NOISE_ROWS), len(LOSS_NOISE_ROWS), progress)
        )
    return _bayesian_table(BAYESIAN_ROWS, _told(map(bayesian_numbers, BAYESIAN_ROWS), len(BAYESIAN_ROWS), progress))


def federated_numbers(row: FederatedRow) -> dict[str, Any]:
    """A row of 000 or 001: the papers' epsilon, then truncated Poisson and fixed-size rounds with the same noise."""
    noise = Gaussian(row.noise_multiplier)
    poisson = Repeated(Poisson(row.cohort / row.population, noise), row.rounds)
    fixed = Repeated(FixedSize(row.population, row.cohort, noise), row.rounds)
    return {
        **dataclasses.asdict(row),
        "reproduced": fixed_size_epsilon(row.population, row.cohort, row.noise_multiplier, row.rounds, row.delta),
        "poisson": accountants.epsilon(poisson, row.delta).epsilon,
        "fixed_lower": accountants.fixed_size_lower(fixed, row.delta),
        "fixed_upper": accountants.epsilon(fixed, row.delta, Relation.REPLACE).epsilon,
    }


def loss_noise_numbers(row: LossNoiseRow) -> dict[str, Any]:
    """A row of 003: Equation 18, the true epsilon (infinite), and DP-SGD with that noise on gradients."""
    rate = row.batch / row.records
    gradients = Repeated(Poisson(rate, Gaussian(row.noise)), row.steps)
    return {
        **dataclasses.asdict(row),
        "reproduced": loss_noise_epsilon(rate, row.steps, row.noise, row.delta),
        "true": "inf",
        "if_on_gradients": accountants.epsilon(gradients, row.delta).epsilon,
    }


def bayesian_numbers(row: BayesianRow) -> dict[str, Any]:
    """A row of 002: the conversion it relies on, the records it misses, and the classical epsilon of its noise."""
    steps = row.epochs * row.records // row.batch
    classical = Repeated(Poisson(row.batch / row.records, Gaussian(row.noise / row.clip)), steps)
    failure = bayesian_failure(row.bayesian_delta, row.delta)
    return {
        **dataclasses.asdict(row),
        "reproduced_failure_probability": failure,
        "records_expected_unprotected": failure * row.records,
        "classical": accountants.epsilon(classical, row.delta).epsilon,
    }


def _told(numbers: Iterator[dict[str, Any]], total: int, progress: Callable[[int, int], None]) -> list[dict[str, Any]]:
    collected: list[dict[str, Any]] = []
    for row in numbers:
        collected.append(row)
        progress(len(collected), total)
    return collected


def _federated_table(paper: str, rows: Sequence[FederatedRow], numbers: list[dict[str, Any]]) -> Table:
    cells = [
        (
            "  simulated" if row.where.endswith(", simulated") else row.where,  # of the row above it
            f"{row.cohort:,} of {row.population:,}",
            f"{row.delta:.2e}",
            row.published,
            _reproduced(values["reproduced"], row.published),
            round_up(values["poisson"]),
            _bracket(values["fixed_lower"], values["fixed_upper"]),
        )
        for row, values in zip(rows, numbers, strict=True)
    ]
    notes = [
        _settings(rows),
        "reproduced: the papers' arithmetic (Wang et al. 2019 Thm. 27 at z, Mironov 2017 Prop. 3); ✓ as printed.",
        "honest, Poisson: epsilon of the same noise if every client tosses its own coin (add or remove one, PLD).",
        "honest, as run: rounds of fixed size are a replace-one setting, where a clipped sum moves by twice the clip; "
        "at least the first number (a concrete pair of populations), at most the second (an upper bound at z/2).",
        *dict.fromkeys(row.note for row in rows if row.note),
    ]
    if paper == "001":
        textbook, tight = (group_privacy(1.0, 1e-8, 16, method=m)[1] for m in ("textbook", "tight"))
        notes.append(
            f"Section V-A, 16 clients at (1, 1e-8): published (16, 0.53), reproduced (16, {textbook:.2f}), "
            f"honest (16, {tight:.3f}) by summing the chain instead of bounding each of its links by the last."
        )
    columns = ("where", "clients", "delta", "published ε", "reproduced", "honest, Poisson", "honest, as run")
    return Table(paper, PAPERS[paper], columns, tuple(cells), tuple(notes), tuple(numbers))


def _settings(rows: Sequence[FederatedRow]) -> str:
    """The noise and rounds shared by groups of rows, as a note instead of two columns."""
    groups: dict[tuple[float, int], list[str]] = {}
    for row in rows:
        name = "simulated rows" if row.where.endswith("simulated") else row.where.split(",")[0]
        groups.setdefault((row.noise_multiplier, row.rounds), []).append(name)
    return "; ".join(
        f"{', '.join(dict.fromkeys(names))}: noise multiplier z = {noise:g}, {rounds:,} rounds"
        for (noise, rounds), names in groups.items()
    )


def _loss_noise_table(rows: Sequence[LossNoiseRow], numbers: list[dict[str, Any]]) -> Table:
    cells = [
        (
            row.where,
            f"{row.batch} of {row.records:,}",
            f"{row.steps:,}",
            row.published,
            _reproduced(values["reproduced"], row.published),
            "inf",
            round_up(values["if_on_gradients"]),
        )
        for row, values in zip(rows, numbers, strict=True)
    ]
    notes = (
        "reproduced: Equation 18, an asymptotic whose own preconditions (epsilon < q^2 T) fail in every row.",
        "true ε: the noise is added to the loss, so its gradient is zero and the parameters are the same, bit for bit, "
        "for every sigma. Nothing is protected; the votes are released without noise as well.",
        "honest, on gradients: per-example clipping, the same noise on gradients, Poisson batches (PLD); delta 1e-5.",
    )
    columns = ("Table 2", "batch", "steps", "published ε", "reproduced", "true ε", "honest, on gradients")
    return Table("003", PAPERS["003"], columns, tuple(cells), notes, tuple(numbers))


def _bayesian_table(rows: Sequence[BayesianRow], numbers: list[dict[str, Any]]) -> Table:
    cells = [
        (
            row.where,
            f"({row.epsilon:g}, {row.bayesian_delta:.0e})-BDP",
            f"({row.epsilon:g}, {row.delta:.0e})-DP",
            f"{1 - values['reproduced_failure_probability']:.5f}",
            f"{values['records_expected_unprotected']:.1f} of {row.records:,}",
            round_up(values["classical"]),
        )
        for row, values in zip(rows, numbers, strict=True)
    ]
    notes = (
        "reproduced: by Markov's inequality (Eq. 12), the probability that a random record has the DP of `read as`.",
        "honest, without it: this many records may lack that DP, the unusual ones first; and the Bayesian estimate "
        "depends on a few sampled pairs (with 28, it says 0.18 where 1.70 is true; see accounting.bayesian).",
        "honest, classical ε: epsilon of the same noise for every record (noise / clip as printed; batch size 64 "
        "assumed, as none is printed; Poisson batches; the Gaussian releases of the batches that include a record).",
    )
    columns = ("where", "published", "read as", "reproduced", "honest, without it", "honest, classical ε")
    return Table("002", PAPERS["002"], columns, tuple(cells), notes, tuple(numbers))


def _reproduced(value: float, published: str) -> str:
    """`value` to one digit more than published, ticked if it rounds to the published value."""
    if "e" in published:
        digits = len(published.split("e")[0].replace(".", "")) - 1
        same = float(f"{value:.{digits}e}") == float(published)
        return f"{value:.{digits + 1}e}".replace("e+0", "e") + (" ✓" if same else " ✗")
    digits = len(published.split(".")[1])
    return f"{value:.{digits + 2 if digits < 4 else digits}f}" + (" ✓" if f"{value:.{digits}f}" == published else " ✗")


def _bracket(lower: float, upper: float) -> str:
    return f"{round_down(lower)} to {round_up(upper)}"


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
