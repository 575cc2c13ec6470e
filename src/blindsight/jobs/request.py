"""What `blindsight inspect` is asked: names, files and options, before anything is read. No JAX in here."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.accounting.ledger import Ledger

__all__ = ["ModelRequest", "Progress", "Request"]

Progress = Callable[[str, int, int], None]
"""Called with the step under way, how many are done, and how many there are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The part that all questions share: the data, the price and where the answer goes."""

    data: str  # a population by name, or a file or folder
    reference: str | None = None  # public data of the same kind
    epsilon: float = 8.0
    delta: float = 1e-6
    inputs: Sequence[str] | None = None  # fields to inspect
    client: str | None = None  # of a table: the column holding the client id
    clients: int | None = None  # of an embedded population: how many
    fault: str | None = None  # planted first, to try things out
    types: Sequence[str] | None = None  # of a table: what single fields hold, age=whole:0:120
    schema: str | Path | None = None  # the same for many fields: a JSON file
    population: str | None = None  # the clients' name in the ledger
    ledger: "Ledger | str | Path | None" = None
    out: str | Path | None = None  # the run's folder
    dry_run: bool = False  # check everything and say what it would cost

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise InvalidInput(f"--epsilon must be positive and finite, got {self.epsilon:g}")
        if not 0 < self.delta < 1:
            raise InvalidInput(f"--delta must lie between 0 and 1, got {self.delta:g}: try 1e-6, or population^-1.1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest(Request):
    """A question that may involve a classifier: the primary model, the true class, and ranges of its inputs."""

    model: str | Path | None = None  # an ONNX file, or the folder of a training run
    label: str = "label"
    ranges: Sequence[str] | None = None  # public ranges of numbers, age=0:100
