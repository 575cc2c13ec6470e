"""The section with statistics: tables in the terminal, bars with intervals on the page. Read without JAX."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from blindsight.inspection.sections import Facts
from blindsight.pages.bars import Bar, BarTable, Row, share_bar
from blindsight.pages.filters import arm
from blindsight.wording import number, percent, span

__all__ = ["NamedEstimate", "Scale", "Slice", "Statistic", "Statistics"]

Scale = Literal["share", "number", "weight"]
"""A share of the clients' weight, a value of the field, or a weight that is the sum over clients."""

TITLES = {
    "histogram": "Distribution of {}",
    "mean": "Mean of {}",
    "quantiles": "Quantiles of {}",
    "missing": "Missing values of {}",
    "top": "Most frequent values of {}",
    "cross": "Shares of {}",
}
_LEAST = 0.2  # the end of the scale of shares that are all smaller
_SHOWN = 12  # rows of one group on the terminal


class NamedEstimate(NamedTuple):
    """A number with its name and the ends of its interval."""

    name: str
    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Slice:
    """The numbers of one slice; of quantiles also the distribution function that they were read off."""

    name: str
    rows: tuple[NamedEstimate, ...]
    curve: tuple[NamedEstimate, ...] = ()


@dataclasses.dataclass(frozen=True)
class Statistic:
    """One statistic of a field, for each slice."""

    statistic: str
    field: str
    by: str
    unit: Scale
    groups: tuple[Slice, ...]
    note: str = ""

    @property
    def heading(self) -> str:
        """A title in words."""
        if self.unit == "weight":
            return f"Words of {self.field} that many clients use"
        if self.statistic == "cross":
            return f"{self.field} and {self.by}"
        return TITLES[self.statistic].format(self.field) + (f" by {self.by}" if self.by else "")

    def in_words(self, row: NamedEstimate) -> tuple[str, str]:
        """A value and its interval in words."""
        if self.unit == "share":
            return percent(row.value, within=(row.low, row.high)), span(row.low, row.high)
        return number(row.value), f"{number(row.low)} to {number(row.high)}"


@dataclasses.dataclass(frozen=True)
class Statistics:
    """All statistics of a question, in its order."""

    key: ClassVar[str] = "statistics"
    template: ClassVar[str] = "sections/statistics.html"
    statistics: tuple[Statistic, ...]

    def __getitem__(self, place: int) -> Statistic:
        return self.statistics[place]

    def __iter__(self) -> Iterator[Statistic]:
        return iter(self.statistics)

    def __len__(self) -> int:
        return len(self.statistics)

    def to_dict(self) -> list[Any]:
        """Plain values for JSON, from which `from_dict` makes the same."""
        return [_plain(one) for one in self.statistics]

    @classmethod
    def from_dict(cls, value: Sequence[Mapping[str, Any]]) -> "Statistics":
        """The section that `to_dict` was called on."""
        return cls(tuple(map(_read, value)))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """A table of each statistic, with a pair of columns for every slice."""
        for one in self.statistics:
            yield f"[bold]{escape(one.heading)}[/]"
            if not any(group.rows for group in one.groups):
                yield "  nothing stands out from the noise"
            elif one.statistic == "top" or len(one.groups) * 22 > console.width - 20:
                yield from _below(one)
            else:
                yield _beside(one)
            if one.note:
                yield f"[dim]{escape(one.note)}[/]"
            yield ""

    def values(self, report: Facts) -> Mapping[str, object]:
        """A panel of bars for each statistic and slice."""
        return {"shown": [_shown(one) for one in self.statistics]}


def _beside(one: Statistic) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for group in one.groups:
        table.add_column(escape(group.name), justify="right")
        table.add_column("95 %", justify="right", style="dim")
    names = [row.name for row in one.groups[0].rows]
    for place, name in list(enumerate(names))[:_SHOWN]:
        cells = [cell for group in one.groups for cell in one.in_words(group.rows[place])]
        table.add_row(escape(name), *cells)
    if len(names) > _SHOWN:
        table.add_row(f"and {len(names) - _SHOWN} more", style="dim")
    return table


def _below(one: Statistic) -> Iterator[RenderableType]:
    for group in one.groups:
        if group.name:
            yield escape(group.name)
        yield _beside(dataclasses.replace(one, groups=(dataclasses.replace(group, name=""),)))


def _shown(one: Statistic) -> dict[str, object]:
    groups = [{"name": group.name, "table": _bars(one, group, place)} for place, group in enumerate(one.groups)]
    drawn = [(place, group) for place, group in enumerate(one.groups) if group.curve]
    curves = [(group.name or one.field, place, [row[1:] for row in group.curve]) for place, group in drawn]
    ends = (drawn[0][1].curve[0].name, drawn[0][1].curve[-1].name) if drawn else ("", "")
    drawing = {"groups": groups, "curves": curves, "ends": ends}
    return {"heading": one.heading, "note": one.note, "field": one.field, **drawing}


def _bars(one: Statistic, group: Slice, place: int) -> BarTable:
    if one.unit == "share":
        least = max([_LEAST, *(row.high for each in one.groups for row in each.rows)])  # one scale for all slices
        rows = [Row(row.name, [share_bar(row.value, place, row.low, row.high)]) for row in group.rows]
        return BarTable(rows, least=least)
    least = min([0.0, *(row.low for each in one.groups for row in each.rows)])  # bars begin where values can
    bars = list[Row]()
    for row in group.rows:
        value, interval = one.in_words(row)
        ends = (row.value - least, row.low - least, row.high - least)
        bars.append(Row(row.name, [Bar(ends[0], arm(place), value, ends[1], ends[2], interval)]))
    largest = max((row.high - least for each in one.groups for row in each.rows), default=1.0)
    unit = "weight: a lower bound on the number of clients" if one.unit == "weight" else one.field
    return BarTable(bars, least=largest, unit=unit, start=least)


def _plain(one: Statistic) -> dict[str, Any]:
    def rows(named: Sequence[NamedEstimate]) -> list[dict[str, Any]]:
        return [row._asdict() for row in named]

    groups = [
        {"slice": group.name, "rows": rows(group.rows)} | ({"curve": rows(group.curve)} if group.curve else {})
        for group in one.groups
    ]
    fields = {"statistic": one.statistic, "field": one.field, "by": one.by, "unit": one.unit, "note": one.note}
    return fields | {"groups": groups}


def _read(value: Mapping[str, Any]) -> Statistic:
    def rows(listed: Sequence[Mapping[str, Any]]) -> tuple[NamedEstimate, ...]:
        return tuple(NamedEstimate(**row) for row in listed)

    groups = [Slice(group["slice"], rows(group["rows"]), rows(group.get("curve", ()))) for group in value["groups"]]
    fields = {name: value[name] for name in ("statistic", "field", "by", "unit", "note")}
    return Statistic(**fields, groups=tuple(groups))
