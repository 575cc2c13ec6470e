"""The tests of a round on many simulated releases at once: how often would a fault be found?

Populations are drawn from public clients: each client has the fault with some probability and sends what a public
client with the fault sent, otherwise what a healthy one sent. The public clients at hand decide the thresholds, but
they are only a sample of the clients that others resemble: each population weights them anew (Rubin's Bayesian
bootstrap, 1981), so that it may have more or fewer of the clients on which a model fails. Noise is added, and the sums
are compared with the thresholds of `reading`.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from blindsight.inspection.answering import Round
from blindsight.inspection.contrast.chance import ArmPairs, largest
from blindsight.inspection.contrast.counting import Background
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.limits import SHOWN, Limit
from blindsight.inspection.contrast.reading import Usual, is_calibrated
from blindsight.inspection.contrast.released import ArmCues, difference_of_cues, statistic
from blindsight.inspection.contrast.votes import VotesPart
from blindsight.inspection.finding import ALPHA, CAUTION, POWER
from blindsight.inspection.measuring import Measured
from blindsight.selection import Arms
from blindsight.selection.criteria import Accuracy

__all__ = ["GRID", "SimulatedPopulations", "Thresholds", "noise_of"]

GRID = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
_POPULATIONS = 120  # for each share
_MOST = 4000  # public clients that populations are drawn from


def noise_of(one: Round) -> dict[str, float]:
    """The standard deviation of the noise in each part's sums."""
    return {part.name: one.mechanisms[part.name].noise_multiplier * part.bound for part in one.parts}


@dataclasses.dataclass(frozen=True, eq=False)
class Thresholds:
    """The thresholds of all tests of a round; they follow from public clients, the noise and the number of clients.

    `critical` is that of cues, infinite if there are too few public clients; `votes` are the fewest votes for each
    candidate in each arm that are detected, `members` the most and the fewest clients of the first arm.
    """

    cues: Cues
    ballot: VotesPart | None
    pairs: ArmPairs
    noise_std: Mapping[str, float]
    critical: float
    votes: np.ndarray
    members: tuple[float, float]

    @classmethod
    def of(cls, one: Round, public: Usual, clients: int) -> "Thresholds":
        """The tests that `reading.read` makes of this round."""
        part, ballot, noise = one.by_name["cues"], one.by_name.get("votes"), noise_of(one)
        first, *others = one.arms
        pairs: ArmPairs = [(first, other) for other in others] or [(first, None)]
        counts_arms = _counts_arms(one.arms)
        families = (1 + (ballot is not None or counts_arms)) * CAUTION
        looks = families * (len(one.arms) * (ballot is not None) + counts_arms)
        critical = math.inf
        if is_calibrated(public, part):
            sent = public.vectors["cues"]
            critical = _critical(largest(part, sent, pairs, clients=clients, noise_std=noise["cues"]), families)
        members = (-math.inf, math.inf)
        if counts_arms:
            fewest = functools.partial(_fewest, public.clients, clients, noise["cues"], ALPHA / 2 / looks)
            members = (clients - fewest(public.clients - public.members[first]), fewest(public.members[first]))
        votes = np.zeros((len(one.arms), 0))
        if ballot is not None:
            level = ALPHA / (looks * (len(ballot.labels) - 1))
            fewest = functools.partial(_fewest, public.clients, clients, noise["votes"], level)
            usual = public.read(ballot)
            votes = np.array([[fewest(count) for count in usual[arm].counts[:-1].tolist()] for arm in one.arms])
        return cls(part, ballot, pairs, noise, critical, votes, members)

    def detected(self, sums: Mapping[str, np.ndarray], public: np.ndarray) -> np.ndarray:
        """Whether something is detected in each of many releases; `public` are sums of cues of public clients."""
        seen = self.cues.read(Measured(sums["cues"], self.noise_std["cues"], 0.0))
        normal = self.cues.read(Measured(public, 0.0, 0.0))
        detected = np.zeros(len(public), bool)
        if math.isfinite(self.critical):
            for pair in self.pairs:
                detected |= np.any(self._sizes(pair, seen, normal) > self.critical, axis=1)
        fewest, most = self.members
        counted = np.ravel(seen[self.cues.arms[0]].counted)
        detected |= (counted <= fewest) | (counted >= most)
        if self.ballot is not None:
            counts = sums["votes"].reshape(len(public), *self.votes.shape[:1], -1)
            voters, labels = counts.sum(axis=2), counts.shape[2]
            is_measurable = voters >= max(4 * self.noise_std["votes"] * math.sqrt(labels), 2)
            detected |= np.any((counts[:, :, :-1] >= self.votes) & is_measurable[:, :, None], axis=(1, 2))
        return detected

    def _sizes(
        self, pair: tuple[str, str | None], seen: Mapping[str, ArmCues], normal: Mapping[str, ArmCues]
    ) -> np.ndarray:
        first, second = pair
        if second is None:
            arms = seen[first], normal[first]
            return statistic(*difference_of_cues(*arms, is_pooled=True), *arms)
        arms, expected = (seen[first], seen[second]), (normal[first], normal[second])
        is_disjoint = self.cues.disjoint_by_client
        return statistic(*difference_of_cues(*arms, disjoint_by_client=is_disjoint, expected=expected), *arms)


def _counts_arms(arms: Arms) -> bool:
    """Whether the share of clients in the first arm says how well the model does on them."""
    return len(arms) > 1 and all(isinstance(one, Accuracy) for one in arms.values())


def _critical(chance: np.ndarray, looks: float) -> float:
    """The statistic above which a p-value is at most 5 %; infinite if the simulated populations are too few."""
    above = math.floor(ALPHA * (1 + len(chance)) / looks - 1 + 1e-9)
    return float(chance[len(chance) - 1 - above]) + 1e-12 if above >= 0 else math.inf


def _fewest(public_clients: int, clients: int, noise_std: float, level: float, count: float) -> float:
    count = min(max(count, 0.0), public_clients)
    return Background(count, public_clients, clients, noise_std).fewest_detected(level)


class SimulatedPopulations:
    """Simulated populations at several shares of clients with a fault; every fault meets the same draws.

    `rows` are the public clients that faults are planted in, and `is_hit` says which public clients a fault can hit.
    """

    def __init__(
        self,
        tests: Thresholds,
        public: Usual,
        rows: np.ndarray,
        is_hit: np.ndarray,
        *,
        clients: int,
        shares: Sequence[float] = GRID,
        populations: int = _POPULATIONS,
    ) -> None:
        dice, self.tests, self.shares = np.random.default_rng(0), tests, shares
        some = np.sort(dice.choice(public.clients, min(public.clients, _MOST), replace=False))
        self._rows = np.flatnonzero(is_hit[rows])
        weights = _weights(dice, len(shares) * populations, len(some))
        reach = np.clip(weights @ is_hit[some], 0.0, 1.0)
        able = dice.binomial(clients, reach)
        hit = dice.binomial(able, np.repeat(shares, populations))
        healthy = np.zeros((len(hit), len(some)), np.float32)
        for group, counts in ((is_hit[some], able - hit), (~is_hit[some], clients - able)):
            if group.any():
                healthy[:, group] = _drawn(dice, counts, weights[:, group])
        self._hit = _drawn(dice, hit, _weights(dice, len(hit), len(self._rows)))
        normal = public.vectors["cues"][some].sum(axis=0)
        self._public = np.broadcast_to(normal, (len(hit), len(normal)))
        self._healthy = {name: healthy @ sent[some] for name, sent in public.exact.items()}
        for name, sums in self._healthy.items():
            sums += tests.noise_std[name] * dice.standard_normal(sums.shape, np.float32)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are tested."""
        return tuple(self._healthy)

    def power(self, sent: Mapping[str, np.ndarray]) -> np.ndarray:
        """The probability of finding a fault, at each share; `sent` is what clients with the fault send."""
        sums = {name: healthy + self._hit @ sent[name][self._rows] for name, healthy in self._healthy.items()}
        return self.tests.detected(sums, self._public).reshape(len(self.shares), -1).mean(axis=1)

    def limit(self, fault: str, sent: Mapping[str, np.ndarray]) -> Limit:
        """The limit of a fault, where the power at the shares of `GRID` passes 90 %."""
        power = self.power(sent)
        at = tuple(float(power[GRID.index(share)]) for share in SHOWN)
        enough = np.flatnonzero(power >= POWER)
        if not len(enough):
            return Limit(fault, None, at)
        place = int(enough[0])
        low, high = (float(power[place - 1]), float(power[place])) if place else (0.0, 1.0)
        part = (POWER - low) / max(high - low, 1e-9)
        below = GRID[place - 1] if place else GRID[0]
        return Limit(fault, float(f"{below * (GRID[place] / below) ** part:.2g}"), at)


def _weights(dice: np.random.Generator, populations: int, clients: int) -> np.ndarray:
    """The weight of each public client in each population, one row per population (Rubin's Bayesian bootstrap)."""
    return dice.dirichlet(np.ones(clients), populations) if clients else np.zeros((populations, 0))


def _drawn(dice: np.random.Generator, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How often each client is drawn, for each count, by its weight."""
    return dice.multinomial(counts, weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
