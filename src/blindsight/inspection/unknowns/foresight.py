"""What a question about unknown words could find, from public texts alone.

Every public client's sentences are divided by turns into two sides, between which nothing changes; each of them is once
the side before and once the side after, so that no difference is left between them. The fault is planted in the side
after. Populations of the size at hand are drawn from such clients, with noise, and read like a release.
"""

import functools
from collections.abc import Callable

import numpy as np

from blindsight.data import faults, text
from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.data.text import Vocabulary
from blindsight.inspection.contrast.simulating import noise_of
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.finding import POWER
from blindsight.inspection.measuring import Measured
from blindsight.inspection.question import Public, complete
from blindsight.inspection.unknowns import findings
from blindsight.inspection.unknowns.question import Unknowns
from blindsight.inspection.unknowns.task import rounds
from blindsight.inspection.unknowns.words import joined

__all__ = ["WordForesight"]

_MOST = 300  # public clients
_POPULATIONS = 100


class WordForesight:
    """How often populations with a fault in their texts are found to have changed."""

    def __init__(
        self,
        reference: Population,
        vocabulary: Vocabulary,
        *,
        field: str = "text",
        clients: int,
        epsilon: float,
        delta: float,
    ) -> None:
        some = reference.select(np.arange(min(reference.size, _MOST)))
        sentences = text.split_sentences(some, field=field)
        turn = np.arange(sentences.n_examples) - np.repeat(sentences.offsets[:-1], sentences.sizes)
        self._halves = [sentences.keep(turn % 2 == side) for side in (0, 1)]
        self._field, self._public = field, Public(vocabulary=vocabulary)
        self._planted: dict[str, dict[str, np.ndarray]] = {}
        both = joined(*self._halves, field=field)
        self._question = Unknowns(
            schema=complete(Schema(inputs=("text",)), both),
            clients=clients,
            epsilon=epsilon,
            delta=delta,
            vocabulary="",
            words=len(vocabulary.words),
        )
        self._round = next(rounds(self._question, self._public))
        self.noise = noise_of(self._round)

    @functools.cached_property
    def healthy(self) -> dict[str, np.ndarray]:
        """What every public client would send if nothing changed."""
        return self._sent(lambda after: after)

    def faulty(self, fault: str) -> dict[str, np.ndarray]:
        """What every public client would send if it had the fault."""
        if fault not in self._planted:
            self._planted[fault] = self._sent(functools.partial(faults.apply, fault=fault))
        return self._planted[fault]

    @property
    def labels(self) -> tuple[str, ...]:
        """The candidates that clients vote on, and "none"."""
        return self._round.by_name["votes"].labels

    def _sent(self, change: Callable[[Population], Population]) -> dict[str, np.ndarray]:
        first, second = self._halves
        sent = list[dict[str, np.ndarray]]()
        for before, after in ((first, second), (second, first)):
            observed = self._round.observe(joined(before, change(after), field=self._field))
            sent.append(client_vectors(observed, self._round.arms, self._round.parts))
        return {name: np.concatenate([one[name] for one in sent]) for name in sent[0]}

    def power(self, fault: str, share: float, populations: int = 200) -> float:
        """The probability that a change is detected if a share of clients has the fault."""
        dice, clients = np.random.default_rng(0), self._question.clients
        detections = 0
        for hit in dice.binomial(clients, share, populations).tolist():
            drawn = [
                dice.multinomial(count, np.full(len(sent["rates"]), 1 / len(sent["rates"])))
                for count, sent in ((clients - hit, self.healthy), (hit, self.faulty(fault)))
            ]
            parts = {
                name: Measured(
                    drawn[0] @ self.healthy[name] + drawn[1] @ self.faulty(fault)[name] + dice.normal(0, std, size),
                    std,
                    0.0,
                )
                for name, std in self.noise.items()
                for size in [self.healthy[name].shape[1]]
            }
            reading = findings.read(parts["rates"], parts["signs"], parts["votes"], self.labels)
            detections += any(one.verdict == "detected" for one in findings.compare(reading)[0])
        return detections / populations

    def smallest(self, fault: str) -> float | None:
        """The smallest share of clients found with 90 % power, to two digits; None if there is none."""
        if self.power(fault, 1.0, _POPULATIONS) < POWER:
            return None
        low, high = 0.002, 1.0
        while high > 1.1 * low:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self.power(fault, middle, _POPULATIONS) >= POWER else (middle, high)
        return float(f"{high:.2g}")
