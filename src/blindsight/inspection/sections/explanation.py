"""The explanation: the fault that predicts everything that was released, or that none does."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from blindsight.inspection.contrast.changed import Unknown
from blindsight.inspection.contrast.explained import (
    ANYTHING,
    FACELESS,
    SEVERAL,
    UNKNOWN,
    Explanation,
    statement_of,
    verdict_on,
)
from blindsight.inspection.finding import Diagnosis
from blindsight.inspection.sections import Facts
from blindsight.samples import as_json
from blindsight.wording import percent, span

__all__ = ["ExplanationSection"]

INTRO = (
    "Every candidate fault was planted in public clients. It explains the findings only if it predicts all of them at "
    "one share of clients (cues, votes and the size of each arm), and better than a fault of any other kind."
)
_FITS, _NO_FIT, _NOT_TRIED = "fits", "does not fit", "less likely"


@dataclasses.dataclass(frozen=True)
class ExplanationSection:
    """The candidates, the likeliest first, each at the share of all clients that predicts the release best."""

    key: ClassVar[str] = "explanation"
    template: ClassVar[str] = "sections/explanation.html"
    tried: tuple[Explanation, ...]
    unknown: Unknown | None = None

    @property
    def fault(self) -> str:
        """The fault that is named; `unknown` if none fits, `several` if they cannot be told apart."""
        return verdict_on(self.tried)[0]

    @property
    def statement(self) -> str:
        """The explanation in one sentence."""
        return statement_of(self.tried, self.unknown)

    @property
    def named(self) -> tuple[Diagnosis, ...]:
        """The diagnosis of all clients, if one fault is named, or two at once."""
        fault, close = verdict_on(self.tried)
        if fault in (UNKNOWN, SEVERAL):
            return ()
        return tuple(
            Diagnosis(part.fault, part.share, part.low, part.high, "all clients", self.statement, {})
            for part in close[0].parts
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        tried = [as_json.plain(one.to_dict()) for one in self.tried]
        unknown = {} if self.unknown is None else {"unknown": as_json.plain(self.unknown.to_dict())}
        return {"fault": self.fault, "statement": self.statement, "tried": tried, **unknown}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ExplanationSection":
        """The section that `to_dict` was called on."""
        unknown = Unknown.from_dict(value["unknown"]) if value.get("unknown") else None
        return cls(tuple(map(Explanation.from_dict, value["tried"])), unknown)

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Each candidate, its share with the interval, and whether it fits."""
        return [
            (one.fault, "; ".join(_share(p.share, p.low, p.high) for p in one.parts), _result(one))
            for one in self.tried
            if one.fault not in (FACELESS, ANYTHING)
        ]

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """The statement, and the candidates that were tried whole."""
        yield f"[bold]Explanation:[/] {escape(self.statement)}"
        table = Table(box=None, pad_edge=False)
        for heading in ("candidate", "share of clients (95 %)", "prediction"):
            table.add_column(heading)
        for row in self.rows:
            table.add_row(*map(escape, row))
        yield table

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """The statement and a table."""
        return {"intro": INTRO, "statement": self.statement, "rows": self.rows}


def _share(share: float, low: float, high: float) -> str:
    return f"{percent(share, within=(low, high))} ({span(low, high)})"


def _result(one: Explanation) -> str:
    if one.p_value is None:
        return _NOT_TRIED
    return _FITS if one.fits else _NO_FIT
