"""From released tables to rows: groups, the latent class model of groups, and values within them."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from blindsight.algorithms.latent_classes import LatentClasses, Tables, fit
from blindsight.data.schema import Field
from blindsight.inspection.asking.tables import FieldTable
from blindsight.inspection.measuring import Measured
from blindsight.inspection.synthesizing.grouping import groups_of
from blindsight.inspection.synthesizing.question import NUMBERS, Synthesize
from blindsight.inspection.synthesizing.tables import GROUPS, Pairs, size_of

__all__ = ["RowModel", "group_cells", "model_of"]

_SEEN = 3.0  # standard deviations of noise above which missing values exist


def group_cells(table: FieldTable, measured: Measured, field: Field) -> tuple[int, ...]:
    """The group of every cell of a table; missing values have the last one to themselves."""
    sums = _by_cell(table, measured)[:-1]
    is_ordered = field.kind in NUMBERS
    groups = groups_of(sums, measured.noise_std, most=min(GROUPS, table.axis.size), is_ordered=is_ordered)
    return (*groups.tolist(), size_of(table) - 1)


def _by_cell(table: FieldTable, measured: Measured) -> np.ndarray:
    """Released sums (cells, labels)."""
    return np.asarray(measured.sums, np.float64).reshape(len(table.slices), table.cells).T


@dataclasses.dataclass(frozen=True, eq=False)
class RowModel:
    """The fitted model, and what is needed to turn groups into values."""

    question: Synthesize
    pairs: Pairs
    model: LatentClasses
    kept: tuple[np.ndarray, ...]  # of every field, the groups that the model knows
    within: tuple[np.ndarray, ...]  # of every field, the released mass of its cells

    def draw(self, count: int, dice: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Labels, and the columns of `count` rows."""
        labels, drawn = self.model.draw(count, dice)
        columns = dict[str, np.ndarray]()
        for place, name in enumerate(self.question.inputs):
            groups = self.kept[place][drawn[place]]
            cells = self._cells(place, groups, dice)
            columns[name] = _values(cells, self.pairs.tables[place], self.question.schema.fields[name], dice)
        return labels, columns

    def _cells(self, place: int, groups: np.ndarray, dice: np.random.Generator) -> np.ndarray:
        """A cell of each group, in proportion to released mass."""
        cells, members = np.empty(len(groups), np.int64), np.asarray(self.pairs.groups[place])
        for group in np.unique(groups):
            own, rows = np.flatnonzero(members == group), groups == group
            mass = np.maximum(self.within[place][own], 1e-6)
            cells[rows] = dice.choice(own, size=int(rows.sum()), p=mass / mass.sum())
        return cells


def model_of(
    question: Synthesize,
    pairs: Pairs,
    measured: Mapping[str, Measured],
    dice: np.random.Generator,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RowModel:
    """The model of rows, fitted to what was released."""
    singles = [_by_cell(table, measured[table.name]) for table in pairs.tables]
    kept = tuple(
        _kept(groups, sums, measured[table.name].noise_std)
        for groups, sums, table in zip(pairs.groups, singles, pairs.tables, strict=True)
    )
    tables = _tables(pairs, singles, kept, measured)
    within = tuple(sums.sum(axis=1) for sums in singles)
    return RowModel(question, pairs, fit(tables, dice, progress=progress), kept, within)


def _kept(groups: Sequence[int], sums: np.ndarray, noise_std: float) -> np.ndarray:
    """The groups in use; missing values only if there are more than noise would show."""
    is_missing = sums[-1].sum() > _SEEN * noise_std * np.sqrt(sums.shape[1])
    return np.unique(groups if is_missing else groups[:-1])


def _tables(
    pairs: Pairs, singles: Sequence[np.ndarray], kept: Sequence[np.ndarray], measured: Mapping[str, Measured]
) -> Tables:
    """Shares of groups and of pairs of groups, with the variance of their noise; blocks of one field are unknown."""
    sizes = tuple(map(len, kept))
    merged, variance = list[np.ndarray](), list[np.ndarray]()
    for sums, groups, known, table in zip(singles, pairs.groups, kept, pairs.tables, strict=True):
        is_in = np.equal.outer(known, np.asarray(groups)).astype(np.float64)  # (groups, cells)
        merged.append(is_in @ sums)
        variance.append(np.outer(is_in.sum(axis=1), np.full(pairs.labels, measured[table.name].noise_std ** 2)))
    total = max(_total(merged, variance), 1.0)
    begins = [0, *itertools.accumulate(map(size_of, pairs.tables))]
    chosen = np.concatenate([begin + known for begin, known in zip(begins, kept, strict=False)])
    whole = np.zeros((pairs.labels, begins[-1] ** 2))
    whole[:, pairs.places] = np.asarray(measured[pairs.name].sums, np.float64).reshape(pairs.labels, -1)
    matrix = whole.reshape(pairs.labels, begins[-1], begins[-1])[:, chosen][:, :, chosen]
    field = np.repeat(np.arange(len(sizes)), sizes)
    unknown = np.where(np.less.outer(field, field), measured[pairs.name].noise_std ** 2, np.inf)
    single, of_single = np.concatenate(merged), np.concatenate(variance)
    pair_variance = np.broadcast_to(unknown, matrix.shape)
    return Tables(sizes, single / total, of_single / total**2, matrix / total, pair_variance / total**2)


def _total(merged: Sequence[np.ndarray], variance: Sequence[np.ndarray]) -> float:
    """The weight of all clients: every field's table adds up to it, most precisely the table with the fewest cells."""
    precision = np.array([1 / one.sum() for one in variance])
    return float(precision @ [one.sum() for one in merged] / precision.sum())


def _values(cells: np.ndarray, table: FieldTable, field: Field, dice: np.random.Generator) -> np.ndarray:
    """Values of cells: a number anywhere in its bin, the name of a category, nothing if it is missing."""
    is_missing = cells >= table.axis.size
    if field.kind not in NUMBERS:
        names = np.array([*table.axis.labels, ""], dtype=np.dtypes.StringDType())
        return names[cells]
    edges = np.asarray(table.axis.edges)
    bins = np.minimum(cells, table.axis.size - 1)
    numbers = edges[bins] + dice.random(len(cells)) * (edges[bins + 1] - edges[bins])
    if field.kind == "whole":
        numbers = np.minimum(np.floor(numbers), np.floor((field.range or (0.0, np.inf))[1]))
        return np.where(is_missing, np.nan, numbers) if is_missing.any() else numbers.astype(np.int64)
    return np.where(is_missing, np.nan, numbers)
