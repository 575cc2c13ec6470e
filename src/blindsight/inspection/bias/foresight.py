"""Which differences a comparison with public data could find, from public data alone."""

import dataclasses
from collections.abc import Sequence

from blindsight.accounting.guarantee import certify
from blindsight.inspection.bias import findings, rounds
from blindsight.inspection.bias.comparison import compare_with
from blindsight.inspection.bias.measures import Shares, Styles
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.question import Public
from blindsight.inspection.sections.detection import Detection
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.wording import percent

__all__ = ["BiasForesight"]

_NOTE = (
    "If clients resembled the reference, differences in share would be detected with 90 % power above {} (the easiest, "
    "{}) to {} (the hardest, {})."
)


class BiasForesight:
    """The limits of all comparisons if clients resembled the reference."""

    def __init__(self, question: Bias, public: Public) -> None:
        self.question, self.public = question, dataclasses.replace(public, seed=public.seed or bytes(32))

    def blind(self) -> str:
        """Nothing: whether differences stand out from the noise depends on the number of clients alone."""
        return ""

    def detection(self) -> Detection | None:
        """None: no faults are looked for."""
        return None

    def notes(self) -> Sequence[str]:
        """The range of the limits over everything that is compared in the first round."""
        limits = sorted(self.limits().items(), key=lambda pair: pair[1])
        if not limits:
            return ("No comparison would detect a difference with 90 % power, however large.",)
        (easy, low), (hard, high) = limits[0], limits[-1]
        return (_NOTE.format(percent(low, 2), easy, percent(high, 2), hard),)

    def limits(self) -> dict[str, float]:
        """The smallest difference in share that each comparison finds with 90 % power."""
        compared = compare_with(self.question, self.public)
        one = rounds.first_round(compared)
        parts = [part for part in one.parts if isinstance(part, Shares | Styles)]
        sent = client_vectors(compared.observe(compared.reference), one.arms, parts)
        scale = self.question.clients / compared.reference.size
        stds = {part.name: one.mechanisms[part.name].noise_multiplier * part.bound for part in parts}
        sums = {name: Measured(scale * vectors.sum(axis=0), stds[name], 0.0) for name, vectors in sent.items()}
        event = joint(*(one.mechanisms[part.name].planned_event for part in parts))
        guarantee = certify(event, delta=self.question.delta)
        measured = Measurement(sums, tuple(one.arms), self.question.clients, event, guarantee)
        concluded = findings.conclude(rounds.read_first(compared, one, measured))[0]
        return {finding.name: finding.smallest for finding in concluded if finding.smallest is not None}
