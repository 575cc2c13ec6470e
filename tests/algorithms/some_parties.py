"""Parties for the tests, importable by name as processes need them: two blobs, and many ways to go wrong."""

import dataclasses
import functools
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.accounting.events import Gaussian
from blindsight.algorithms.parties.generators import GivenGenerator
from blindsight.algorithms.parties.party import Predict, Shard, SyntheticExamples, VotingParty
from blindsight.algorithms.parties.voters import OnRawData, OnSynthetic, PrivateLinear
from blindsight.keys import Key

CLASSES = ("left", "right")
SECRET = 0.123456789  # in every raw row, and nowhere else


def blobs(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    rows = random.normal(size=(count, 4)).astype(np.float32) * 0.2
    rows[:, 0] += 2.0 * labels - 1.0
    rows[:, 3] = SECRET
    return rows, labels


def draw(count: int, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Generated rows that know nothing of anyone's: wide, with a class by their side of the middle."""
    random = np.random.default_rng(np.frombuffer(key.secret, np.uint32))
    rows = random.normal(size=(count, 4)).astype(np.float32)
    return rows, (rows[:, 0] > 0).astype(np.int64)


MADE = GivenGenerator(draw=draw, event=Gaussian(2.0))


class Nearest:
    """The smallest estimator there is: the class of the nearer mean."""

    def fit(self, inputs: np.ndarray, labels: np.ndarray) -> "Nearest":
        self.means = np.stack([inputs[labels == one].mean(axis=0) for one in (0, 1)])
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.argmin(np.square(inputs[:, None] - self.means[None]).sum(axis=2), axis=1)


@dataclasses.dataclass(frozen=True)
class Bad:
    """A voter that goes wrong in one way or another."""

    how: str
    is_private: bool = True

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict:
        return functools.partial(_go_wrong, self.how, shard.inputs)


def _go_wrong(how: str, raw: np.ndarray, inputs: np.ndarray) -> Any:
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(600)
    if how == "raise":
        raise ValueError(f"row {raw[0].tolist()}")
    return {
        "short": np.zeros(3, np.int32),
        "out of range": np.full(len(inputs), 7),
        "negative": np.full(len(inputs), -1),
    }[how]


@dataclasses.dataclass(frozen=True)
class BadMaker:
    """A generator that makes what is no sample."""

    how: str

    def __call__(self, shard: Shard, count: int, *, key: Key) -> SyntheticExamples:
        shard.record(Gaussian(2.0), key=key, note="bad")
        rows = {"nan": np.full((count, 4), np.nan), "shape": np.zeros((count, 5)), "text": np.full((count, 4), "a")}
        rows |= {"bytes": np.zeros((count, 4), np.uint8), "many": np.zeros((9 * count, 4))}
        return SyntheticExamples(rows[self.how], np.zeros(count, np.int64))


def party(number: int, folder: Path, **changes: Any) -> VotingParty:
    """A party with private votes, unless it is told otherwise."""
    fields: dict[str, Any] = {
        "name": f"party-{number}",
        "data": functools.partial(blobs, number),
        "generator": MADE,
        "voter": OnSynthetic(estimator=Nearest()),
        "classes": CLASSES,
        "shape": (4,),
        "examples": 200,
        "ledger": folder / f"party-{number}.db",
        "seed": number,
    }
    return VotingParty(**fields | changes)


RAW = OnRawData(estimator=Nearest())
LINEAR = PrivateLinear(noise_multiplier=1.0, steps=20, learning_rate=1.0)


def no_data() -> tuple[np.ndarray, np.ndarray]:
    raise FileNotFoundError("the share is not mounted")


def other_labels() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = blobs(0)
    return rows, labels / 2
