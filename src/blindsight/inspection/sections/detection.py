"""Detection limits: on how many clients every fault that was looked for would have been found."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from blindsight.inspection.contrast.limits import SHOWN, Limit, in_words, is_blind
from blindsight.inspection.sections import Facts
from blindsight.inspection.sections.evidence import WIDE
from blindsight.wording import counted, percent

__all__ = ["Detection"]

INTRO = (
    "Every fault was planted in public clients, and populations of this size were drawn from them, with noise. A fault "
    "on fewer clients than its limit may have gone undetected; so may a fault that is not in the list."
)
VAGUE = (
    "{} no public range: only gaps, zeros, sign, order of magnitude and last digit are compared, and a change that "
    "leaves these as they are stays invisible. Give a range with --type FIELD=LOW:HIGH."
)
_LISTED = 4  # limits of the hardest faults that the terminal shows


@dataclasses.dataclass(frozen=True)
class Detection:
    """The limit of every fault, the number of public clients it was simulated with, and numbers without a range."""

    key: ClassVar[str] = "detection"
    template: ClassVar[str] = "sections/detection.html"
    limits: tuple[Limit, ...]
    public_clients: int
    vague: tuple[str, ...] = ()

    @property
    def statement(self) -> str:
        """The range over all faults in one sentence."""
        return in_words(self.limits)

    @property
    def is_blind(self) -> bool:
        """Whether no fault could be found, not even on all clients."""
        return is_blind(self.limits)

    @property
    def remark(self) -> str:
        """Which changes are invisible because a number has no public range; empty if every number has one."""
        if not self.vague:
            return ""
        return VAGUE.format(f"{', '.join(self.vague)} {'has' if len(self.vague) == 1 else 'have'}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "statement": self.statement,
            "public_clients": self.public_clients,
            "limits": [one.to_dict() for one in self.ranked],
            "no_range": list(self.vague),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Detection":
        """The section that `to_dict` was called on."""
        return cls(tuple(map(Limit.from_dict, value["limits"])), value["public_clients"], tuple(value["no_range"]))

    @property
    def ranked(self) -> tuple[Limit, ...]:
        """The limits, the hardest fault first."""
        return tuple(sorted(self.limits, key=lambda one: (one.smallest is not None, -(one.smallest or 0.0))))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """The range, and the hardest faults."""
        is_said = report.outcome == "nothing"  # the verdict, or the answer of a dry run, has said it
        yield f"[bold]Detection limits[/]{'' if is_said else ': ' + escape(self.statement)}"
        table = Table(box=None, pad_edge=False)
        is_wide = console.width >= WIDE
        powers = [f"power at {percent(share, 2)}" for share in SHOWN] if is_wide else []
        for heading in ("hardest faults", "90 % power above", *powers):
            table.add_column(heading)
        for row in self._rows[:_LISTED]:
            table.add_row(*map(escape, row if is_wide else row[:2]), style="dim")
        yield table
        if self.remark:
            yield f"[dim]{escape(self.remark)}[/]"

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """The statement and a table of all limits."""
        return {
            "intro": INTRO,
            "statement": self.statement,
            "shares": [percent(share, 2) for share in SHOWN],
            "rows": self._rows,
            "remark": self.remark,
            "public": counted(self.public_clients, "public client"),
        }

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [(one.fault, _smallest(one), *(percent(power) for power in one.power)) for one in self.ranked]


def _smallest(one: Limit) -> str:
    return "not even on all clients" if one.smallest is None else f"{percent(one.smallest, 2)} of clients"
