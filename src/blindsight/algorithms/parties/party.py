"""A party: holds private examples, generates synthetic ones that may leave, and votes on those of all parties.

All of this runs on the party's side. Every release is first recorded in its own ledger, per example: parties hold
different examples, so an example is exposed only by its own party's releases.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import equinox as eqx
import numpy as np

from blindsight import keys
from blindsight.accounting.events import Event, NonPrivate, Relation, Unit
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger
from blindsight.data.population import Population
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import Mechanism, Release, publish
from blindsight.mechanisms.release import marked
from blindsight.models.primary import Primary, primary
from blindsight.trees import BoundedSum

__all__ = [
    "PartyFailed",
    "PartyGenerator",
    "PartySession",
    "Predict",
    "Shard",
    "SyntheticExamples",
    "Voter",
    "VotingParty",
    "predictor",
]

Predict = Callable[[np.ndarray], np.ndarray]
"""Inputs (n, ...) to classes (n,), integers from 0."""


class PartyFailed(BlindsightError):
    """A party cannot do what it was asked; the message reveals none of its data and may be sent."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """A party's private examples, and the only ways in which anything about them is released."""

    name: str
    inputs: np.ndarray
    labels: np.ndarray
    classes: int
    expected: int  # approximate number of examples: public, the divisor of sums
    ledger: Ledger

    def publish(self, mechanism: Mechanism[Any], total: BoundedSum, *, key: Key, note: str) -> Release[Any]:
        """The release of a sum over these examples; recorded in the ledger before any noise is drawn."""
        return publish(
            mechanism, total, key=key, ledger=self.ledger, population=self.name, unit=Unit.EXAMPLE, note=note
        )

    def record(self, event: Event, *, key: Key, note: str, relation: Relation = Relation.ADD_OR_REMOVE) -> None:
        """Record releases that are about to be drawn with this key."""
        self.ledger.record(marked(event, key), population=self.name, unit=Unit.EXAMPLE, relation=relation, note=note)

    def population(self, field: str = "image") -> Population:
        """Each example as its own client; if there are fewer than expected, the rest are empty.

        More are refused, not truncated: removing one would let another move up, which is two changes, not one.
        """
        if len(self.labels) > self.expected:
            raise PartyFailed(
                f"it holds more examples than the {self.expected:,} it declared, from which rounds "
                "are sampled: declare a number that it will not exceed"
            )
        return Population(
            {field: self.inputs, "label": self.labels},
            sizes=(np.arange(self.expected) < len(self.labels)).astype(np.int64),
            name=self.name,
            classes={"label": tuple(map(str, range(self.classes)))},
        )


@dataclasses.dataclass(frozen=True, eq=False)
class SyntheticExamples:
    """Generated inputs, which may leave, and their classes, which stay but which a voter may learn from."""

    inputs: np.ndarray
    labels: np.ndarray


class PartyGenerator(Protocol):
    """Generates `count` examples from a shard; it uses the shard only through releases."""

    def __call__(self, shard: Shard, count: int, *, key: Key) -> SyntheticExamples: ...


class Voter(Protocol):
    """Provides a party's model, and states whether it was learnt from releases alone.

    If `is_private`, every vote is post-processing and costs nothing; if not, every vote reveals something about the raw
    data.
    """

    @property
    def is_private(self) -> bool:
        """Whether the model was learnt from releases alone."""
        ...

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class VotingParty:
    """A participant. `data` is called only on the party's side and returns inputs and labels, which never leave.

    All fields must be importable by name (functions of a module, `functools.partial` of them, the classes of
    `generators` and `voters`), since a party runs in its own process. The approximate number of `examples` is public;
    for training in rounds it is an upper bound. The key comes from the operating system; a `seed` makes it
    reproducible, and the guarantee says so.
    """

    name: str
    data: Callable[[], tuple[np.ndarray, np.ndarray]]
    generator: PartyGenerator
    voter: Voter
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    examples: int
    ledger: str | os.PathLike[str] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.name.strip() or len(set(self.classes)) < 2 or len(set(self.classes)) < len(self.classes):
            raise InvalidInput(f"a party needs a name and at least two different classes, got {self.name!r}")
        if self.examples < 1:
            raise InvalidInput(f"party {self.name} must hold at least one example, got {self.examples}")

    @property
    def ledger_path(self) -> Path:
        """File of the party's ledger."""
        return Path(self.ledger or Path(".blindsight", "parties", f"{self.name}.db"))


class PartySession:
    """A running party: it opens its data once, generates its examples once, and then votes."""

    def __init__(self, party: VotingParty) -> None:
        self.party = party
        inputs, labels = (np.asarray(column) for column in party.data())
        if inputs.shape != (len(labels), *party.shape) or labels.ndim != 1:
            raise PartyFailed(f"its examples do not have the declared shape {list(party.shape)} with one label each")
        if labels.dtype.kind not in "iu":
            raise PartyFailed("its labels are not whole numbers: number its classes from 0")
        is_known = (labels >= 0) & (
            labels < len(party.classes)
        )  # others are dropped silently: a failure would reveal them
        self.shard = Shard(
            party.name,
            inputs[is_known],
            labels[is_known].astype(np.int32),
            len(party.classes),
            party.examples,
            Ledger(party.ledger_path),
        )
        self.key = keys.root() if party.seed is None else _reproducible(party, self.shard)
        self._synthetic: SyntheticExamples | None = None
        self._predict: Predict | None = None

    def samples(self, count: int) -> np.ndarray:
        """Generated inputs, which may leave."""
        self._synthetic = self.party.generator(self.shard, count, key=self.key.derive("generator"))
        return self._synthetic.inputs

    def votes(self, questions: np.ndarray, *, cost: Event | None, unprotected: bool) -> np.ndarray:
        """A class for every question.

        A model learnt from raw data votes only if the votes go into a noisy sum, whose `cost` is recorded first, or
        without any protection, which must be requested explicitly and is recorded too.
        """
        if self._synthetic is None:
            raise PartyFailed("it was asked to vote before generating its examples: ask for samples first")
        if not self.party.voter.is_private:
            if cost is not None:
                self.shard.record(cost, key=self.key, note=f"votes on {len(questions)} questions, in a noisy sum")
            elif unprotected:
                self.shard.record(NonPrivate(), key=self.key, note=f"votes on {len(questions)} questions")
            else:
                raise PartyFailed(
                    "its model was trained on raw data, so its votes would reveal them: use a private "
                    "voter, count with votes=NoisyVotes(...), or pass votes='unprotected'"
                )
        if self._predict is None:
            self._predict = self.party.voter(self.shard, self._synthetic, key=self.key.derive("voter"))
        return np.asarray(self._predict(questions), np.int32)

    def guarantee(self, delta: float) -> Guarantee:
        """The total cost in the party's ledger, including earlier runs on the same examples."""
        return self.shard.ledger.spent(self.party.name, delta)


def _reproducible(party: VotingParty, shard: Shard) -> Key:
    """A key for these examples, settings and earlier releases: the same noise on two sums would cancel out."""
    data = (shard.name, shard.inputs, shard.labels, shard.classes, shard.expected)
    settings = (party.generator, party.voter, len(shard.ledger.entries(shard.name)))
    return keys.reproducible(party.seed or 0).bound_to(lambda: [data, settings])


def predictor(model: Any) -> Predict:
    """Any model as a function from inputs to classes.

    An estimator (anything with `predict`) gets flat inputs; an Equinox module, a `Primary` and an ONNX file return
    scores, of which the highest wins; a function returns scores or classes.
    """
    if hasattr(model, "predict") and not isinstance(model, Primary):
        return lambda inputs: np.asarray(model.predict(inputs.reshape(len(inputs), -1)))
    if isinstance(model, Primary | eqx.Module | str | os.PathLike):
        return functools.partial(_highest, primary(Path(model) if isinstance(model, os.PathLike) else model))
    if not callable(model):
        raise InvalidInput(
            "a model must be an estimator, a network, the path of an ONNX file or a function of "
            f"inputs, got {type(model).__name__}"
        )

    def called(inputs: np.ndarray) -> np.ndarray:
        outputs = np.asarray(model(inputs))
        return outputs.argmax(axis=1) if outputs.ndim == 2 else outputs

    return called


def _highest(model: Primary, inputs: np.ndarray) -> np.ndarray:
    """The class with the highest score; invalid scores are refused, because arg-max would return the first class."""
    with np.errstate(invalid="ignore"):  # bytes into a file without a stated range
        scores = model.scores(inputs)
    if scores.ndim != 2 or not np.isfinite(scores).all():
        raise InvalidInput(
            f"{model.name} did not return a finite score per class: if it reads floats and gets bytes, write the range "
            f'into the file ("range": "0,1"), or wrap it in a function'
        )
    return np.argmax(scores, axis=1)
