"""Aggregation of models of different types: paper 003 of the five, made private.

Parties with models that cannot be averaged generate synthetic examples, all vote on all examples, and a global model of
any type learns from those with a clear majority. The paper clips and adds noise to a *loss*, which changes no parameter
(`loss_noise`), and its votes come from models trained on raw data. Here both halves are private:

- examples come from a private generator (`parties.generators`);
- votes come from models that were also trained privately, and so cost nothing (`parties.voters`), or go into a noisy
  count that reveals only clear winners, or are unprotected, on explicit request and without a guarantee.

Every party keeps its own ledger, per example. Parties hold different examples, so the cost to an example is what its
own party spent: the guarantee is the worst of the parties'.
"""

import copy
import dataclasses
import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from blindsight.accounting.assumptions import COUNTED, PARTIES_APART, PARTIES_STEADY, PARTIES_TOLD
from blindsight.accounting.events import Gaussian, Unit, to_json
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms.parties.party import PartyFailed, VotingParty, predictor
from blindsight.algorithms.parties.processes import Here, Process, Reached, Reply
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms.argmax import UNDECIDED, NoisyArgmax, noisy_argmax, winners
from blindsight.mechanisms.gaussian_mechanism import gaussian
from blindsight.mechanisms.noise import Sampler
from blindsight.mechanisms.release import marked

__all__ = ["Aggregated", "NoisyVotes", "aggregate", "majority", "share_noise"]


@dataclasses.dataclass(frozen=True)
class NoisyVotes:
    """Votes counted with noise: for models trained on raw data, and for many parties.

    All questions together cost an example (epsilon, delta). A class is released if its noisy count is at least
    `threshold` and leads by more than the margin.
    """

    epsilon: float
    delta: float
    threshold: float = -math.inf
    sampler: Sampler = "exact"

    def mechanism(self, questions: int, classes: int, *, margin: float) -> NoisyArgmax:
        """The noisy arg-max for this number of questions."""
        noise = solve_noise(
            lambda z: gaussian(z, sampler=self.sampler).planned_event,
            epsilon=self.epsilon,
            delta=self.delta,
        )
        return noisy_argmax(classes, gaussian(noise, sampler=self.sampler), threshold=self.threshold, margin=margin)


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregated:
    """The global model, its training examples, and their cost."""

    model: Any
    guarantee: Guarantee
    inputs: np.ndarray  # generated examples with a clear majority
    labels: np.ndarray
    generated: int  # number of examples before the margin rule
    parties: dict[str, Guarantee]  # the parties whose samples were used, and what each spent
    failures: dict[str, str]  # the parties that did not vote, and why

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """The global model's class for each input."""
        return predictor(self.model)(inputs)


def share_noise(*, epsilon: float, delta: float, voter: float = 0.5) -> tuple[float, float]:
    """Noise multipliers for a party's generator and its voter that cost (epsilon, delta) together.

    `voter` is the voter's share of the privacy; both must be Gaussian, as `OneShot` and `PrivateLinear` are.

    >>> generator, voter = share_noise(epsilon=1.0, delta=1e-5)
    >>> round((generator**-2 + voter**-2) ** -0.5, 3)
    3.734
    """
    if not 0 < voter < 1:
        raise InvalidInput(f"the voter's share must lie between 0 and 1, got {voter}")
    noise = solve_noise(Gaussian, epsilon=0.999 * epsilon, delta=delta)  # room for the exact sampler's slack
    return noise / math.sqrt(1 - voter), noise / math.sqrt(voter)


def majority(votes: np.ndarray, classes: int, *, margin: int = 1) -> np.ndarray:
    """For every column of (parties, questions), the class with most votes, or `UNDECIDED`: the paper's margin rule.

    A sample is dropped if the first and second class are at most `margin` votes apart.

    >>> majority(np.array([[0, 1, 2], [0, 1, 0], [0, 0, 1]]), 3).tolist()
    [0, -1, -1]
    """
    return winners((votes[:, :, None] == np.arange(classes)).sum(axis=0), margin=margin)


def aggregate(
    parties: Sequence[VotingParty],
    *,
    classes: Sequence[str],
    shape: Sequence[int],
    samples: int,
    train: Any,
    delta: float,
    key: Key,
    votes: NoisyVotes | Literal["private", "unprotected"] = "private",
    margin: int = 1,
    processes: bool = True,
    timeout_s: float = 3600.0,
    progress: Callable[[str], None] = lambda stage: None,
) -> Aggregated:
    """The global model that `train` (an estimator, or a function of inputs and labels) learns from the parties.

    Each party generates `samples` examples; all vote on all of them. A party that dies, hangs for `timeout_s`, sends
    garbage or disagrees on `classes` or `shape` is excluded and named in `failures`; at least two must remain.
    `votes="private"` accepts only votes of models trained privately; others refuse on their own side.

    **Guarantee**: the worst in the parties' ledgers, per example, at `delta`; infinite for unprotected votes.

    Args:
        parties: Parties, each with its own data, generator and model.
        classes: Names of the classes, public.
        shape: Shape of one example, public.
        samples: Examples that each party generates.
        train: An estimator, or a function of inputs and labels, that learns the global model.
        delta: Delta of the guarantee.
        key: Root of the randomness.
        votes: Protection of the votes: "private" (only models trained privately), `NoisyVotes`, or "unprotected".
        margin: An example is kept if its class leads by more than this many votes.
        processes: Whether each party runs in its own process.
        timeout_s: Seconds after which a party counts as failed.
        progress: Called with the stage that begins.
    """
    if len({party.name for party in parties}) < max(len(parties), 2):
        raise InvalidInput("aggregation needs at least two parties with different names")
    if samples < 1 or margin < 0:
        raise InvalidInput(f"samples must be at least 1 and margin at least 0, got {samples}, {margin}")
    _check(votes, train)
    table = _Table(tuple(classes), tuple(shape), delta, timeout_s)
    try:
        progress("meeting the parties")
        table.open(parties, processes)
        table.ask({"ask": "who"}, table.check_who)
        progress("collecting samples")
        by_party = table.ask({"ask": "samples", "count": samples}, lambda reply: table.check_samples(reply, samples))
        by_party = table.alike(by_party)
        questions = np.concatenate(list(by_party.values()))
        progress(f"voting on {len(questions):,} samples")
        # different questions get different noise: the same noise on two counts would cancel out
        digest = hashlib.blake2b(questions.tobytes(), digest_size=16).hexdigest()
        labels = table.vote(questions, votes, margin, key.derive(f"votes on {digest}"))
    finally:
        table.close()
    clear = labels != UNDECIDED
    if not clear.any():
        raise InvalidInput(
            f"no class leads by more than {margin} votes on any of {len(questions):,} samples: "
            "use more parties, better models, less noise on the votes or a smaller margin"
        )
    progress(f"training on {int(clear.sum()):,} samples")
    model = _trained(train, questions[clear], labels[clear])
    assumed = (PARTIES_APART, PARTIES_STEADY, PARTIES_TOLD, *((COUNTED,) if isinstance(votes, NoisyVotes) else ()))
    guarantee = _worst(list(table.spent.values()), assumed)
    return Aggregated(model, guarantee, questions[clear], labels[clear], len(questions), table.spent, table.failures)


class _Table:
    """The remaining parties, asked in parallel; a party that fails is removed."""

    def __init__(
        self,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        delta: float,
        timeout_s: float,
    ) -> None:
        self.classes, self.shape, self.delta, self.timeout_s = classes, shape, delta, timeout_s
        self.seats: dict[str, Reached] = {}
        self.failures: dict[str, str] = {}
        self.spent: dict[str, Guarantee] = {}  # as of each party's last release, including parties that left

    def open(self, parties: Sequence[VotingParty], processes: bool) -> None:
        """Start every party."""
        for party in parties:
            try:
                self.seats[party.name] = Process(party) if processes else Here(party)
            except PartyFailed as error:
                self.failures[party.name] = str(error)

    def ask(
        self, header: dict[str, Any], check: Callable[[Reply], Any], array: np.ndarray | None = None
    ) -> dict[str, Any]:
        """Every party's answer, validated by `check`."""
        for seat in self.seats.values():
            seat.ask({**header, "delta": self.delta}, array)
        until, answers = time.monotonic() + self.timeout_s, dict[str, Any]()
        for name, seat in list(self.seats.items()):
            try:
                reply = seat.reply(until)
                if reply.array is not None:  # valid or not, it has left the party
                    self.spent[name] = self.check_guarantee(reply)
                answers[name] = check(reply)
            except PartyFailed as error:
                self._leave(name, str(error))
            except Exception as error:  # an unreadable answer is this party's failure only
                self._leave(name, f"it sent an invalid answer ({type(error).__name__})")
        if len(self.seats) < 2:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.failures.items())
            raise InvalidInput(f"fewer than two parties are left to vote ({reasons}): fix them and start again")
        return answers

    def vote(
        self, questions: np.ndarray, votes: NoisyVotes | Literal["private", "unprotected"], margin: int, key: Key
    ) -> np.ndarray:
        """The class with a clear lead on every question, or `UNDECIDED`."""
        header: dict[str, Any] = {"ask": "votes", "unprotected": votes == "unprotected"}
        classes, mechanism = len(self.classes), None
        if isinstance(votes, NoisyVotes):
            mechanism = votes.mechanism(len(questions), classes, margin=margin)
            header["cost"] = to_json(marked(mechanism.planned_event, key))  # parties record it first
        cast = self.ask(header, lambda reply: self.check_votes(reply, len(questions)), questions)
        ballots = np.stack(list(cast.values()))
        if mechanism is None:
            return majority(ballots, classes, margin=margin)
        total = mechanism.count(ballots, n_expected=float(len(ballots)))
        own = key.bound_to(lambda: [ballots, mechanism])  # the same noise on different votes would cancel out
        return mechanism.release(total, key=own).value

    def close(self) -> None:
        """Close all remaining parties."""
        for seat in self.seats.values():
            seat.close()

    def _leave(self, name: str, why: str) -> None:
        self.failures[name] = why
        self.seats.pop(name).close()

    def check_who(self, reply: Reply) -> None:
        """Refuse a party with other classes or shapes."""
        classes, shape = tuple(reply.header["classes"]), tuple(reply.header["shape"])
        if classes != self.classes:
            raise PartyFailed(f"it has the classes {', '.join(classes)}, not {', '.join(self.classes)}")
        if shape != self.shape:
            raise PartyFailed(f"its examples have the shape {list(shape)}, not {list(self.shape)}")

    def check_guarantee(self, reply: Reply) -> Guarantee:
        """Refuse an invalid guarantee, or one that cannot be combined with those of the others."""
        stated = Guarantee.from_dict(reply.header["guarantee"])
        if not (stated.epsilon >= 0 and stated.delta == self.delta and stated.unit is Unit.EXAMPLE):
            raise PartyFailed("it did not report what it has spent, per example and at the requested delta")
        if any(stated.relation is not other.relation for other in self.spent.values()):
            raise PartyFailed(
                f"its guarantee is for {stated.relation.in_words}, unlike the others': account for all alike"
            )
        return stated

    def alike(self, by_party: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The samples of the majority type, bytes or other numbers: mixed, 255 would be read as 1."""
        is_bytes = {name: rows.dtype == np.uint8 for name, rows in by_party.items()}
        ((usual, _),) = Counter(is_bytes.values()).most_common(1)
        words = ("numbers", "bytes")
        for name in [name for name, one in is_bytes.items() if one != usual]:
            self._leave(name, f"its samples are {words[not usual]} and those of others {words[usual]}")
        return {name: rows for name, rows in by_party.items() if is_bytes[name] == usual}

    def check_samples(self, reply: Reply, samples: int) -> np.ndarray:
        """Refuse invalid samples."""
        samples_sent = reply.array
        if samples_sent is None or samples_sent.ndim < 1 or samples_sent.shape[1:] != self.shape:
            raise PartyFailed(f"its samples do not have the shape {list(self.shape)}")
        if len(samples_sent) != samples:  # a party that sends more would outweigh the others
            raise PartyFailed(f"it sent {len(samples_sent):,} samples instead of {samples:,}")
        if samples_sent.dtype.kind not in "uif" or (
            samples_sent.dtype.kind == "f" and not np.isfinite(samples_sent).all()
        ):
            raise PartyFailed("its samples are not finite numbers")
        return samples_sent

    def check_votes(self, reply: Reply, questions: int) -> np.ndarray:
        """Refuse votes that are not one class for each question."""
        cast = reply.array
        if cast is None or cast.shape != (questions,) or cast.dtype.kind not in "iu":
            raise PartyFailed(f"it did not send one class for each of {questions:,} samples")
        if cast.min() < 0 or cast.max() >= len(self.classes):
            raise PartyFailed(f"it voted for a class that is not among the {len(self.classes)}")
        return cast


def _check(votes: Any, train: Any) -> None:
    """Refuse invalid settings before any party spends anything."""
    if not isinstance(votes, NoisyVotes) and votes not in ("private", "unprotected"):
        raise InvalidInput(f"votes must be 'private', 'unprotected' or NoisyVotes(...), got {votes!r}")
    if not hasattr(train, "fit") and not callable(train):
        raise InvalidInput(f"train must be an estimator or a function of inputs and labels, got {type(train).__name__}")


def _trained(train: Any, inputs: np.ndarray, labels: np.ndarray) -> Any:
    if hasattr(train, "fit"):
        return copy.deepcopy(train).fit(inputs.reshape(len(inputs), -1), labels)
    return train(inputs, labels)


def _worst(guarantees: list[Guarantee], assumed: tuple[str, ...]) -> Guarantee:
    """Parallel composition: each example belongs to one party, so the party that spent most bounds all."""
    worst = max(guarantees, key=lambda one: one.epsilon)
    words = f"{len(guarantees)} parties with different examples, the worst of them: {worst.participation}"
    everything = dict.fromkeys((*assumed, *(line for one in guarantees for line in one.assumptions)))
    return dataclasses.replace(worst, participation=words, assumptions=tuple(everything))
