"""Findings about unknown words from released sums: rates with intervals, tests that locate a change, and a diagnosis.

**Why the tests are valid.** A client sends equally many sentences of both sides. Under the null hypothesis of no
change, its sides are exchangeable: a difference d is as likely as -d. A sum of such differences has mean 0, and its
variance is the sum of d^2, which is released with it (rates) or follows from it (signs and votes: the number of clients
that differ, up + down). The noise of the release is added, and 1.64 standard deviations to each variance computed from
noisy sums, so that it is too small in only 5 % of cases. All p-values are corrected together (Holm).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from blindsight.data import faults
from blindsight.inspection.contrast.released import NONE
from blindsight.inspection.finding import ALPHA, POWER, Diagnosis, Finding, agreeing, holm
from blindsight.inspection.measuring import Measured
from blindsight.inspection.unknowns.section import Rate
from blindsight.inspection.unknowns.words import RATES, SIDES, SIGNS, SUSPECTS
from blindsight.wording import percent, points, span

__all__ = ["Reading", "compare", "read"]

_WIDE = float(stats.norm.isf(0.025))
_SLACK = 1.64


@dataclasses.dataclass(frozen=True)
class Reading:
    """The released sums per client: how many clients have both sides, their rates, changes and votes.

    Every array is in the order of `RATES`, `SIGNS` or `labels`; `noise_std` are those of the sums.
    """

    counted: float
    before: np.ndarray
    after: np.ndarray
    changes: np.ndarray  # after - before, not clipped
    squares: np.ndarray  # the sum of squared differences
    up: np.ndarray
    down: np.ndarray
    labels: tuple[str, ...]
    votes: np.ndarray  # (sides, labels)
    noise_std: dict[str, float]
    epsilon: dict[str, float]

    @property
    def clients(self) -> float:
        """The noisy number of clients with both sides, at least 1."""
        return max(self.counted, 1.0)

    @property
    def is_measurable(self) -> bool:
        """Whether there are enough clients, relative to the noise, for ratios to be meaningful."""
        return self.counted >= 5 * self.noise_std["rates"] and self.counted >= 2

    @property
    def is_rare(self) -> bool:
        """Whether the rate of unknown words cannot be distinguished from zero on either side."""
        return all(self.rates(side)[0].low <= 0 for side in range(2))

    def rates(self, side: int) -> list[Rate]:
        """The rates of one side. Rates between 0 and 1 vary between clients by at most p (1 - p)."""
        rates = list[Rate]()
        for value in (self.before, self.after)[side].tolist():
            noise = self.noise_std["rates"] * math.sqrt(1 + (value - 0.5) ** 2) / self.clients
            near = min(max(value, noise), 1 - noise) if noise < 0.5 else 0.5
            error = math.hypot(noise, math.sqrt(near * (1 - near) / self.clients))
            ends = (min(max(value + way * _WIDE * error, 0.0), 1.0) for way in (0, -1, 1))
            rates.append(Rate(*ends) if self.is_measurable else Rate(0.0, 0.0, 1.0))
        return rates

    def rate_errors(self) -> np.ndarray:
        """The standard deviation of every difference after - before."""
        sigma = self.noise_std["rates"]
        spread = np.maximum(self.squares + _SLACK * 2 * sigma, 0.0) - self.clients * self.changes**2
        spread = np.clip(spread, 0.0, self.clients)
        return np.sqrt(2 * sigma**2 + (sigma * self.changes) ** 2 + spread) / self.clients

    def net_errors(self, differ: np.ndarray, part: str) -> np.ndarray:
        """The standard deviation of a net share of clients, given how many differ either way."""
        sigma = self.noise_std[part]
        spread = np.maximum(differ + _SLACK * math.sqrt(2) * sigma, 0.0)
        return np.sqrt(2 * sigma**2 + spread) / self.clients


def read(rates: Measured, signs: Measured, votes: Measured, labels: tuple[str, ...]) -> Reading:
    """The reading of the three parts."""
    count, numbers = len(RATES), rates.sums
    clients = max(float(numbers[-1]), 1.0)
    before, after = (half / clients + 0.5 for half in (numbers[:count], numbers[count : 2 * count]))
    up, down = np.asarray(signs.sums, np.float64).reshape(2, -1)
    parts = {"rates": rates, "signs": signs, "votes": votes}
    return Reading(
        counted=float(numbers[-1]),
        before=np.clip(before, 0.0, 1.0),
        after=np.clip(after, 0.0, 1.0),
        changes=after - before,
        squares=2 * numbers[2 * count : 3 * count],
        up=up,
        down=down,
        labels=labels,
        votes=np.asarray(votes.sums, np.float64).reshape(2, -1),
        noise_std={name: part.noise_std for name, part in parts.items()},
        epsilon={name: part.epsilon for name, part in parts.items()},
    )


def compare(reading: Reading) -> tuple[list[Finding], list[Diagnosis]]:
    """A finding for every rate, sign and candidate, most significant first, and the diagnosis of the change."""
    tests = [("rates", place, name) for place, name in enumerate(RATES)]
    tests += [("signs", place, f"{name}, client by client") for place, name in enumerate(SIGNS)]
    tests += [("votes", place, name) for place, name in enumerate(reading.labels[:-1])]
    effects, deviations, p_values, smallest = _tested(reading)
    findings = list[Finding]()
    for j, (part, place, name) in enumerate(tests):
        ends = (effects[j], effects[j] - _WIDE * deviations[j], effects[j] + _WIDE * deviations[j])
        effect, low, high = (float(np.clip(end, -1.0, 1.0)) for end in ends)
        is_detected = bool(p_values[j] <= ALPHA)
        low, high = agreeing(low, high, effect=effect, is_detected=is_detected)
        finding = Finding(
            kind="votes" if part == "votes" else "cue",
            name=name,
            statement=_TOO_FEW,
            effect=effect,
            low=low if reading.is_measurable else -1.0,
            high=high if reading.is_measurable else 1.0,
            p_value=float(p_values[j]),
            verdict="detected" if is_detected else "not detected",
            epsilon=reading.epsilon[part],
            smallest=float(smallest[j]) if reading.is_measurable and smallest[j] < 1 else None,
            arms=("after", "after") if part == "votes" else ("after", "before"),
        )
        if reading.is_measurable:
            words = {"rates": _rate_words, "signs": _sign_words, "votes": _vote_words}[part]
            finding = dataclasses.replace(finding, statement=words(reading, finding, place))
        findings.append(finding)
    order = np.lexsort((-np.abs(effects / deviations), p_values))
    return [findings[j] for j in order], _diagnoses(reading, [one for one in findings if one.kind == "votes"])


def _tested(reading: Reading) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For every rate, sign and candidate: effect, standard deviation, corrected p-value, and detection limit."""
    errors = reading.rate_errors()
    nets, *net_errors = _net(reading, reading.up, reading.down, "signs")
    gains, *gain_errors = _net(reading, reading.votes[1][:-1], reading.votes[0][:-1], "votes")
    effects = np.concatenate([reading.changes, nets, gains])
    # of the estimate, under the null hypothesis, and under a rare fault
    three = zip([errors] * 3, net_errors, gain_errors, strict=True)
    deviations, null, quiet = (np.concatenate(each) for each in three)
    raw = 2 * stats.norm.sf(np.abs(effects) / null)
    one_sided = slice(len(errors) + len(nets), None)  # a fault that explains fewer words than before is no explanation
    raw[one_sided] = stats.norm.sf(effects[one_sided] / null[one_sided])
    p_values = holm(raw) if reading.is_measurable else np.ones(len(raw))
    needed = float(stats.norm.isf(ALPHA / 2 / len(raw)) + stats.norm.isf(1 - POWER))
    room = np.concatenate([1 - reading.before, np.ones(len(nets) + len(gains))])  # how far a rate can rise
    return effects, deviations, p_values, needed * quiet / np.maximum(room, 1e-9)


def _net(reading: Reading, up: np.ndarray, down: np.ndarray, part: str) -> tuple[np.ndarray, ...]:
    """The net share of clients that differ; its standard deviation as estimated, under the null, for a rare fault."""
    net = up - down
    differ = (up + down - net**2 / reading.clients, up + down, 2 * np.maximum(np.minimum(up, down), 0.0))
    return net / reading.clients, *(reading.net_errors(one, part) for one in differ)


_TOO_FEW = "Too few clients have sentences on both sides for a comparison at this epsilon."


def _rate_words(reading: Reading, finding: Finding, place: int) -> str:
    before, after = (percent(max(rates[place], 0.0)) for rates in (reading.before, reading.after))
    of = "of words" if place == 0 else "of sentences"
    interval = f"95 %: {points(finding.low)} to {points(finding.high)} points"
    name = finding.name[0].upper() + finding.name[1:]
    if finding.verdict == "detected":
        way = "rose" if finding.effect > 0 else "fell"
        return f"{name} {way} from {before} to {after} {of} ({interval})."
    return f"No change detected in {finding.name}: {before} and {after} {of} ({interval})."


def _sign_words(reading: Reading, finding: Finding, place: int) -> str:
    up, down = (percent(max(share[place] / reading.clients, 0.0)) for share in (reading.up, reading.down))
    what = SIGNS[place]
    if finding.verdict == "detected":
        return f"{up} of clients have more {what} after the change than before, {down} have fewer."
    return f"No change detected: {up} of clients have more {what} after the change, {down} have fewer."


def _vote_words(reading: Reading, finding: Finding, place: int) -> str:
    ends = max(finding.low, 0.0), max(finding.high, 0.0)
    interval, net = f"95 %: {span(*ends)}", percent(max(finding.effect, 0.0), within=ends)
    if finding.verdict == "detected":
        return f"Undoing {finding.name} would resolve new unknown words for {net} of clients ({interval})."
    return f"{finding.name} does not explain the unknown words: undoing it helps {net} of clients ({interval})."


def _diagnoses(reading: Reading, candidates: Sequence[Finding]) -> list[Diagnosis]:
    """The fault that explains the unknown words after the change, beyond those before."""
    before, after = (row / reading.clients for row in reading.votes)
    net = zip(reading.labels, after, after - before, strict=True)  # as findings have it, and those who vote for none
    tally = {label: round(float(share if label == NONE else more), 6) for label, share, more in net}
    named = [one for one in candidates if one.verdict == "detected"]
    if not reading.is_measurable or not named:
        why = _TOO_FEW if not reading.is_measurable else "No candidate fault explains the change in unknown words."
        share = min(max(tally[NONE], 0.0), 1.0) if reading.is_measurable else 0.0
        return [Diagnosis(NONE, share, 0.0, 1.0, SIDES[1], why, tally)]
    best = max(named, key=lambda one: one.effect)
    low, high = max(best.low, 0.0), min(best.high, 1.0)
    meaning = SUSPECTS.get(best.name) or faults.parse(best.name)[0].damage.description
    share = percent(best.effect, within=(low, high))
    statement = f"{best.name}: {meaning}, on {share} of clients (95 %: {span(low, high)})."
    return [Diagnosis(best.name, best.effect, low, high, SIDES[1], statement, tally)]
