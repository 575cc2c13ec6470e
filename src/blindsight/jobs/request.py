"""What `blindsight inspect` and `ask` are asked: names, files and options, before anything is read. No JAX in here."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.accounting.ledger import Ledger
    from blindsight.data.dialect import Dialect
    from blindsight.data.text import Case
    from blindsight.selection import Forming

__all__ = ["AskRequest", "BiasRequest", "LabellingRequest", "MistakesRequest", "ModelRequest", "Request"]
__all__ += ["SanityRequest", "SlicesRequest", "SynthesizeRequest", "UnknownsRequest"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The part that all questions share: the data, the privacy cost and the folder of the answer."""

    data: str = ""  # a population by name, or a file or folder
    fleet: str | Path | None = None  # in place of data: the folder of a fleet, whose sites have the clients
    asker: str | None = None  # of a fleet: who asks
    wait: float = 600.0  # of a fleet: seconds to wait for sites that decide by hand
    reference: str | None = None  # public data of the same kind
    epsilon: float = 8.0
    delta: float = 1e-6
    client: str | None = None  # of a table: the column holding the client id
    separator: str | None = None  # of CSV: between the cells of a line
    encoding: str | None = None  # of CSV
    decimal: str | None = None  # of CSV: the decimal mark
    clients: int | None = None  # of an embedded population: how many
    fault: str | None = None  # planted first, to try things out
    types: Sequence[str] = ()  # of a table: what single fields hold, age=whole:0:120
    schema: str | Path | None = None  # the same for many fields: a JSON file
    population: str | None = None  # the clients' name in the ledger
    ledger: "Ledger | str | Path | None" = None
    out: str | Path | None = None  # the run's folder
    dry_run: bool = False  # say what it would cost and what it could find
    even_if_blind: bool = False  # ask even if nothing could be detected

    def __post_init__(self) -> None:
        if bool(self.data) == (self.fleet is not None):
            raise InvalidInput("name the clients in one way: DATA, or the folder of a fleet with --fleet DIR")
        has_nothing_to_name = self.client is not None and self.reference is None  # it names the reference's column too
        if self.fleet is not None and (self.fault is not None or self.clients is not None or has_nothing_to_name):
            raise InvalidInput("--client, --clients and --fault are for local data: leave them out")
        if not 0 < self.epsilon < math.inf:
            raise InvalidInput(f"--epsilon must be positive and finite, got {self.epsilon:g}")
        if not 0 < self.delta < 1:
            raise InvalidInput(f"--delta must lie between 0 and 1, got {self.delta:g}: try 1e-6, or population^-1.1")
        if self.population is not None and not self.population.strip():
            raise InvalidInput(
                "--population must name the clients in the ledger: leave it out for the name of the data"
            )

    @property
    def dialect(self) -> "Dialect":
        """How a CSV file is written, as far as it is given."""
        from blindsight.data.dialect import Dialect

        return Dialect(self.separator or "", self.encoding or "", self.decimal or "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest(Request):
    """A question that may involve a classifier: the primary model, the true class, and ranges of its inputs."""

    inputs: Sequence[str] = ()  # fields to inspect
    model: str | Path | None = None  # an ONNX file, or the folder of a training run
    model_range: str | None = None  # of an ONNX file: what its input ranges over, 0:1
    model_layout: str | None = None  # of an ONNX file: the axes of its input, NCHW
    label: str = "label"
    ranges: Sequence[str] = ()  # public ranges of numbers, age=0:100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is None and (self.model_range is not None or self.model_layout is not None):
            raise InvalidInput("--model-range and --model-layout describe an ONNX file: name it with --model")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SanityRequest(ModelRequest):
    """Do the data look right?"""

    suspects: Sequence[str] = ()  # faults to vote on; all that fit by default


@dataclasses.dataclass(frozen=True, kw_only=True)
class MistakesRequest(ModelRequest):
    """What does the model get wrong?"""

    minimum: int = 5  # include only clients with at least this many misclassified examples
    suspects: Sequence[str] = ()
    forming: "Forming" = "zero_fill"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlicesRequest(ModelRequest):
    """On which clients does the model fail?"""

    by: str = "accuracy"  # or a field with named classes or text values
    values: Sequence[str] = ()  # values of the field to compare, at least two
    low: float | None = None  # clients below this accuracy fail; the lowest quarter by default
    high: float | None = None  # clients of at least this accuracy are healthy
    suspects: Sequence[str] = ()
    forming: "Forming" = "zero_fill"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.low is None) != (self.high is None):
            raise InvalidInput("give both thresholds of accuracy, --low and --high, or neither to find them privately")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabellingRequest(ModelRequest):
    """Synthetic examples for people to label."""

    samples: int = 500
    train: bool = False  # draw samples from a GAN that is trained on the clients


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiasRequest(ModelRequest):
    """What do clients have that public data lack?"""

    by: str = ""  # field with named classes or text values to divide both by
    values: Sequence[str] = ()  # values of the field to compare, at least two
    classes: Sequence[str] = ()  # classes to compare; those of the public data by default
    vocabulary_size: int = 10_000  # number of most frequent public words that count as known
    case: "Case" = "lower"
    discover: bool = False  # find words of unlikely sentences
    train: bool = False  # train a language model of unlikely sentences


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnknownsRequest(Request):
    """Which words does a vocabulary lack after a change, and why? The data are those after the change.

    Without `before` and `side`, the data before the change are those without the fault.
    """

    inputs: Sequence[str] = ()  # the text field
    before: str | None = None  # data before the change
    side: str | None = None  # field that tells before from after, if both are in one file
    values: Sequence[str] = ()  # its two values, first the old one
    vocabulary: str | Path | None = None  # file of known words; those of the reference by default
    vocabulary_size: int = 10_000  # number of words of the reference that count as known
    case: "Case" = "lower"
    suspects: Sequence[str] = ()  # faults to vote on; all that fit by default
    discover: bool = False  # find unknown words that many clients use
    train: bool = False  # train language models of both sides

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fleet is not None and (self.side is None or len(set(self.values)) != 2 or len(self.inputs) > 1):
            raise InvalidInput(
                "on a fleet a field of the sites tells before from after: --side FIELD --value OLD --value NEW, with "
                "at most one --input, the text"
            )
        if (self.before is not None) + (self.side is not None) + (self.fault is not None) != 1:
            raise InvalidInput(
                "name the data before the change in one way: --before DATA, --side FIELD --value OLD --value NEW, or "
                "--fault token_join:0.1:by=example to plant a change"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskRequest(Request):
    """Statistics of fields: those that are named, or by default those that suit a field's kind.

    `bins`, `levels` and `top` ask for histograms, quantiles and lists of that size; `mean` and `missing` for these.
    """

    epsilon: float = 1.0
    fields: Sequence[str] = ()
    by: str | None = None  # a category field: the same statistics for each of its values
    cross: Sequence[str] = ()  # pairs of fields, sex,region
    bins: int | None = None
    levels: Sequence[float] | None = None
    top: int | None = None
    mean: bool = False
    missing: bool = False
    ranges: Sequence[str] = ()  # public ranges of numbers, age=0:100
    vocabulary: str | Path | None = None  # a file of known words, which lists of words leave out
    vocabulary_size: int | None = None  # the same: that many of the most frequent words of the reference


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynthesizeRequest(Request):
    """Synthetic rows of these fields, by default of all that are described, with the label if clients have it."""

    epsilon: float = 1.0
    fields: Sequence[str] = ()
    label: str | None = None  # by default `label`, if there is such a field
    rows: int = 10_000
    ranges: Sequence[str] = ()  # public ranges of numbers, age=0:100
