"""Description of a population, computed without noise: only for those allowed to see the data."""

import dataclasses
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

__all__ = ["Description"]


@dataclasses.dataclass(frozen=True)
class Description:
    """Exact statistics of a population, computed without noise: `simulation_only`."""

    name: str
    clients: int
    examples: int
    fields: dict[str, str]
    classes: dict[str, list[str]]
    examples_per_client: dict[str, float]
    without_examples: int
    synthetic: bool
    simulation_only: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight data describe --json`."""
        return dataclasses.asdict(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kind = "synthetic" if self.synthetic else "real"
        yield f"[bold]{escape(self.name)}[/]: {self.clients:,} clients, {self.examples:,} examples, {kind} data"
        table = Table(box=None, pad_edge=False)
        for heading in ("field", "one example", "classes"):
            table.add_column(heading)
        for field, kind in self.fields.items():
            names = self.classes.get(field, [])
            shown = ", ".join(names[:10]) + (f", ... ({len(names)})" if len(names) > 10 else "")
            table.add_row(escape(field), escape(kind), escape(shown))
        yield table
        spread = ", ".join(f"{word} {value:g}" for word, value in self.examples_per_client.items())
        yield f"Examples per client: {spread}; {self.without_examples:,} clients have none."
        yield "[yellow]simulation_only[/]: these numbers were computed from the data without noise."
