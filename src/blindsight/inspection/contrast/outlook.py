"""Whether one fault would be found, by each inspection that could: what `blindsight plan --detect` says. No JAX."""

import abc
import dataclasses
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from blindsight.inspection.finding import POWER
from blindsight.wording import percent

__all__ = ["Chance", "Forecast", "Outlook"]

TASKS = {
    "sanity": "all clients versus public data",
    "mistakes": "misclassified versus correct examples",
    "slices": "failing versus healthy clients",
    "unknowns": "unknown words before and after",
}


@dataclasses.dataclass(frozen=True)
class Chance:
    """The probability that an inspection finds the fault, and the smallest share that it finds with 90 % power."""

    task: str
    power: float
    smallest: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast(abc.ABC):
    """Whether a `fault` on a `fraction` of `clients` would be found, and at what cost."""

    fault: str
    fraction: float
    clients: int
    epsilon: float
    delta: float

    @property
    @abc.abstractmethod
    def best(self) -> float:
        """The power of the inspection that finds it best."""

    @property
    def is_visible(self) -> bool:
        """Whether it is detected with 90 % power."""
        return self.best >= POWER

    @property
    def headline(self) -> str:
        """Whether the clients suffice, in rich markup."""
        verdict, colour = ("suffice", "green") if self.is_visible else ("do not suffice", "yellow")
        return (
            f"[bold {colour}]{self.clients:,} clients {verdict} to detect {escape(self.fault)} on "
            f"{percent(self.fraction, 3)} of them[/] at epsilon {self.epsilon:g}, delta {self.delta:.3g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight plan --detect --json`."""
        return dataclasses.asdict(self) | {"is_visible": self.is_visible}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outlook(Forecast):
    """The chance of every inspection, from simulations on the asker's own public data."""

    chances: tuple[Chance, ...]
    about: str

    @property
    def best(self) -> float:
        return max(one.power for one in self.chances)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.headline
        table = Table(box=None, pad_edge=False)
        for heading in ("inspection", "compares", "power", "90 % power above"):
            table.add_column(heading)
        for one in self.chances:
            least = "not even on all clients" if one.smallest is None else f"{percent(one.smallest, 2)} of clients"
            table.add_row(one.task, TASKS[one.task], percent(one.power), least)
        yield table
        yield f"[dim]Simulated on {escape(self.about)}.[/]"
