"""Answers from released sums: shares, means, quantiles and distribution functions with simultaneous intervals."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import optimize

from blindsight.data.schema import Field
from blindsight.inspection.asking.intervals import CONFIDENCE, Estimate, Forms, critical, intervals
from blindsight.inspection.asking.items import Cross, Histogram, Item, Mean, Missing, Quantiles, Top
from blindsight.inspection.asking.question import Ask
from blindsight.inspection.asking.section import NamedEstimate, Scale, Slice, Statistic
from blindsight.inspection.asking.tables import HALF_STEP, Axis, FieldTable, tables_of
from blindsight.inspection.measuring import Measured
from blindsight.wording import percent

__all__ = ["expected", "read"]


@dataclasses.dataclass(frozen=True, eq=False)
class _ItemRatios:
    """The ratios that one item needs of every slice of a table."""

    item: Item
    table: FieldTable
    rows: tuple[np.ndarray, np.ndarray]  # weights of cells above and below the line


def read(
    question: Ask, measured: Mapping[str, Measured], *, confidence: float = CONFIDENCE
) -> tuple[list[Statistic], float]:
    """Every statistic but lists of words, with intervals that all hold at once with probability `confidence`.

    Returns the statistics in the order of the question and how many standard deviations the intervals are wide.
    """
    tables = {table.name: table for table in tables_of(question)}
    ratios = [_ratios_of(question, item, tables) for item in question.items if _is_of_table(question, item)]
    blocks = dict[tuple[int, int], Forms]()
    for name, table in tables.items():
        alike = [(n, one) for n, one in enumerate(ratios) if one.table.name == name]
        inverse = np.linalg.solve(table.matrix.T @ table.matrix, table.matrix.T)  # least squares: full column rank
        sums = np.asarray(measured[name].sums, np.float64).reshape(len(table.slices), -1)
        for (number, one), place in itertools.product(alike, range(len(table.slices))):
            above, below = (rows @ inverse for rows in one.rows)
            blocks[number, place] = Forms(sums[place], measured[name].noise_std, above, below)
    c = critical(_by_slice(ratios, blocks), confidence)
    statistics = list[Statistic]()
    for number, one in enumerate(ratios):
        estimates = [intervals(blocks[number, place], c) for place in range(len(one.table.slices))]
        statistics.append(_statistic(question, one, estimates))
    return statistics, c


def expected(question: Ask, noise_std: Mapping[str, float]) -> list[str]:
    """The width of intervals if every client had values, spread evenly: computed for planning, without any client."""
    even = dict[str, Measured]()
    for table in tables_of(question):
        share = question.clients / len(table.slices) / max(table.cells - 1, 1)
        cells = np.full(table.cells, share)
        if table.sliced is None:
            cells[-1] = 0.0
        sums = np.tile(table.matrix @ cells, len(table.slices))
        even[table.name] = Measured(sums, noise_std[table.name], 0.0)
    if not even:
        return []
    sentences = list[str]()
    for one in read(question, even)[0]:
        halves = [(row.high - row.low) / 2 for group in one.groups for row in group.rows]
        half = float(np.median(halves))
        width = f"{100 * half:.2g} percentage points" if one.unit == "share" else f"{half:.3g}"
        sentences.append(f"{one.heading}: about ± {width}")
    return sentences


def _is_of_table(question: Ask, item: Item) -> bool:
    return not (isinstance(item, Top) and question.schema.fields[item.field].kind == "text")


def _by_slice(ratios: Sequence[_ItemRatios], blocks: Mapping[tuple[int, int], Forms]) -> list[Forms]:
    """The forms of all items of a table and slice together: they share their noise."""
    groups = dict[tuple[str, int], list[Forms]]()
    for (number, place), forms in blocks.items():
        groups.setdefault((ratios[number].table.name, place), []).append(forms)
    return [
        dataclasses.replace(
            forms[0],
            above=np.concatenate([one.above for one in forms]),
            below=np.concatenate([one.below for one in forms]),
        )
        for forms in groups.values()
    ]


def _ratios_of(question: Ask, item: Item, tables: Mapping[str, FieldTable]) -> _ItemRatios:
    """Which ratios of cells an item needs."""
    name = item.field + (f" by {item.by}" if item.by else "")
    if isinstance(item, Cross):
        table = tables[f"{item.field} × {item.by}"]
        return _ItemRatios(item, table, (np.eye(table.cells), np.ones((table.cells, table.cells))))
    if isinstance(item, Mean):
        return _ItemRatios(item, tables[f"mean of {name}"], (np.array([[1.0, 0, 0]]), np.array([[1.0, 1, 0]])))
    table, size = tables[name], tables[name].axis.size
    if isinstance(item, Missing):
        return _ItemRatios(item, table, (np.eye(table.cells)[-1:], np.ones((1, table.cells))))
    if isinstance(item, Quantiles):
        above = np.tri(size - 1, table.cells)
    else:
        above = np.zeros((size, table.cells))
        above[:, :size] = np.eye(size)
        if table.axis.edges and isinstance(item, Histogram):  # bins may be finer than asked for
            above = above.reshape(table.axis.bins.size, -1, table.cells).sum(axis=1)
    below = np.ones_like(above)
    below[:, -1] = 0.0
    return _ItemRatios(item, table, (above, below))


def _statistic(question: Ask, one: _ItemRatios, estimates: Sequence[list[Estimate]]) -> Statistic:
    item, table, field = one.item, one.table, question.schema.fields[one.item.field]
    if isinstance(item, Cross):
        other = table.sliced or Axis()
        rows = [estimates[0][begin : begin + other.size] for begin in range(0, len(estimates[0]), other.size)]
        pairs = zip(table.axis.labels, rows, strict=True)
        groups = [Slice(f"{item.field}: {name}", _named(other.labels, row)) for name, row in pairs]
        return _of_item(item, groups, "share")
    groups = list[Slice]()
    for name, of_slice in zip(table.slices, estimates, strict=True):
        where = f"{item.by}: {name}" if item.by else ""
        if isinstance(item, Quantiles):
            groups.append(_quantiles(item, table.axis, field, of_slice, where))
        elif isinstance(item, Mean):
            groups.append(Slice(where, _named(["mean"], [_scaled(_before_rounding(of_slice[0]), field)])))
        elif isinstance(item, Missing):
            groups.append(Slice(where, _named(["missing"], of_slice)))
        elif isinstance(item, Top):
            rows = sorted(_named(table.axis.labels, of_slice), key=lambda row: -row.value)
            groups.append(Slice(where, tuple(rows[: item.k])))
        else:
            groups.append(Slice(where, _named(table.axis.bins.labels, of_slice)))
    return _of_item(item, groups, "number" if isinstance(item, Mean | Quantiles) else "share")


def _of_item(item: Item, groups: Iterable[Slice], unit: Scale) -> Statistic:
    return Statistic(item.statistic, item.field, item.by, unit, tuple(groups))


def _named(names: Sequence[str], estimates: Sequence[Estimate]) -> tuple[NamedEstimate, ...]:
    return tuple(NamedEstimate(name, *one) for name, one in zip(names, estimates, strict=True))


def _before_rounding(one: Estimate) -> Estimate:
    """The mean of values as they were before clients rounded them; all of them may have rounded the same way."""
    return Estimate(one.value, max(0.0, one.low - HALF_STEP), min(1.0, one.high + HALF_STEP))


def _scaled(one: Estimate, field: Field) -> Estimate:
    low, high = field.range or (0.0, 1.0)
    return Estimate(*(low + end * (high - low) for end in one))


def _quantiles(item: Quantiles, axis: Axis, field: Field, estimates: Sequence[Estimate], where: str) -> Slice:
    """Quantiles of one slice, by inverting the band around its distribution function.

    F is known at the inner edges. Where the upper end is below a level the quantile lies beyond the edge, where the
    lower end reaches it the quantile lies before it: so whenever the band holds, all intervals of quantiles do.
    """
    edges = np.minimum(axis.edges, (field.range or (0.0, np.inf))[1])
    lows = np.maximum.accumulate([one.low for one in estimates])
    highs = np.minimum.accumulate([one.high for one in estimates][::-1])[::-1]
    monotone = optimize.isotonic_regression([one.value for one in estimates]).x
    middle = np.minimum(np.maximum(monotone, lows), highs)
    whole = np.concatenate([[0.0], middle, [1.0]])
    rows = list[NamedEstimate]()
    for level in item.levels:
        low = edges[int(np.sum(highs < level))]
        high = edges[len(edges) - 1 - int(np.sum(lows >= level))]
        place = int(np.clip(np.searchsorted(whole, level), 1, len(whole) - 1))
        rise = whole[place] - whole[place - 1]
        part = (level - whole[place - 1]) / rise if rise > 0 else 1.0
        value = edges[place - 1] + part * (edges[place] - edges[place - 1])
        rows.append(NamedEstimate(percent(level, 3), *map(float, (np.clip(value, low, high), low, high))))
    inner = zip(edges[1:-1], middle, lows, highs, strict=True)
    curve = tuple(NamedEstimate(f"{edge:g}", float(value), float(low), float(high)) for edge, value, low, high in inner)
    return Slice(where, tuple(rows), curve)
