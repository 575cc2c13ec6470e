"""What the released sums say about unknown words: rates with intervals, tests that locate a change, and a diagnosis.

**Why the tests are honest.** A client sends equally many sentences of both sides. Where nothing has changed, its sides
are exchangeable: a difference d of a client is as likely as -d. A sum of such differences has mean 0 and the variance
of the sum of d^2, which is released with it (rates) or known from it (signs and votes: the number of clients that
differ, up + down). The noise of the release is added, and 1.64 deviations of it to each variance read off noisy
sums, so that it is too small once in twenty times only. All p-values together are corrected after Holm.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from blindsight.data import faults
from blindsight.inspection.contrast.findings import ALPHA, NONE, POWER, Diagnosis, Finding, holm
from blindsight.inspection.measuring import Measured
from blindsight.inspection.unknowns.section import Rate
from blindsight.inspection.unknowns.words import RATES, SIDES, SIGNS, SUSPECTS
from blindsight.wording import percent, span

__all__ = ["Reading", "compare", "read"]

_WIDE = float(stats.norm.isf(0.025))
_SLACK = 1.64


@dataclasses.dataclass(frozen=True)
class Reading:
    """The released sums in terms of clients: how many have both sides, their rates, who changed, and what they voted.

    Every array is in the order of `RATES`, `SIGNS` or `labels`; `noise_std` are those of the sums.
    """

    counted: float
    before: np.ndarray
    after: np.ndarray
    changes: np.ndarray  # after - before, as it comes out of the noise, below 0 and above 1 too
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
        """Whether there are enough clients beside the noise for ratios to mean anything."""
        return self.counted >= 5 * self.noise_std["rates"] and self.counted >= 2

    @property
    def is_rare(self) -> bool:
        """Whether no unknown words could be told from none at all."""
        return all(self.rates(side)[0].low <= 0 for side in range(2))

    def rates(self, side: int) -> list[Rate]:
        """The rates of a side. How much clients differ is bounded: rates between 0 and 1 vary by at most p (1 - p)."""
        found = list[Rate]()
        for value in (self.before, self.after)[side].tolist():
            noise = self.noise_std["rates"] * math.sqrt(1 + (value - 0.5) ** 2) / self.clients
            near = min(max(value, noise), 1 - noise) if noise < 0.5 else 0.5
            error = math.hypot(noise, math.sqrt(near * (1 - near) / self.clients))
            ends = (min(max(value + way * _WIDE * error, 0.0), 1.0) for way in (0, -1, 1))
            found.append(Rate(*ends) if self.is_measurable else Rate(0.0, 0.0, 1.0))
        return found

    def rate_errors(self) -> np.ndarray:
        """The standard deviation of every difference after - before."""
        sigma = self.noise_std["rates"]
        spread = np.maximum(self.squares + _SLACK * 2 * sigma, 0.0) - self.clients * self.changes**2
        spread = np.clip(spread, 0.0, self.clients)
        return np.sqrt(2 * sigma**2 + (sigma * self.changes) ** 2 + spread) / self.clients

    def net_errors(self, differ: np.ndarray, part: str) -> np.ndarray:
        """The standard deviation of a net share of clients, of whom so many differ either way."""
        sigma = self.noise_std[part]
        spread = np.maximum(differ + _SLACK * math.sqrt(2) * sigma, 0.0)
        return np.sqrt(2 * sigma**2 + spread) / self.clients


def read(rates: Measured, signs: Measured, votes: Measured, labels: tuple[str, ...]) -> Reading:
    """What the sums of the three parts say."""
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
    """A finding for every rate, sign and candidate, the most significant first, and the diagnosis of what is new."""
    asked = [("rates", place, name) for place, name in enumerate(RATES)]
    asked += [("signs", place, f"{name}, client by client") for place, name in enumerate(SIGNS)]
    asked += [("votes", place, name) for place, name in enumerate(reading.labels[:-1])]
    effects, deviations, p_values, smallest = _tested(reading)
    findings = list[Finding]()
    for j, (part, place, name) in enumerate(asked):
        ends = (effects[j], effects[j] - _WIDE * deviations[j], effects[j] + _WIDE * deviations[j])
        effect, low, high = (float(np.clip(end, -1.0, 1.0)) for end in ends)
        finding = Finding(
            kind="votes" if part == "votes" else "cue",
            name=name,
            statement=_TOO_FEW,
            effect=effect,
            low=low if reading.is_measurable else -1.0,
            high=high if reading.is_measurable else 1.0,
            p_value=float(p_values[j]),
            verdict="detected" if p_values[j] <= ALPHA else "not detected",
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
    """Of every rate, sign and candidate: effect, its deviation, corrected p-value, and what would just be seen."""
    errors = reading.rate_errors()
    nets, *net_errors = _net(reading, reading.up, reading.down, "signs")
    gains, *gain_errors = _net(reading, reading.votes[1][:-1], reading.votes[0][:-1], "votes")
    effects = np.concatenate([reading.changes, nets, gains])
    # of the estimate, where nothing has changed, and where a fault has just begun
    three = zip([errors] * 3, net_errors, gain_errors, strict=True)
    deviations, null, quiet = (np.concatenate(each) for each in three)
    raw = 2 * stats.norm.sf(np.abs(effects) / null)
    one_sided = slice(len(errors) + len(nets), None)  # a fault that repairs fewer words than before explains nothing
    raw[one_sided] = stats.norm.sf(effects[one_sided] / null[one_sided])
    p_values = holm(raw) if reading.is_measurable else np.ones(len(raw))
    needed = float(stats.norm.isf(ALPHA / 2 / len(raw)) + stats.norm.isf(1 - POWER))
    room = np.concatenate([1 - reading.before, np.ones(len(nets) + len(gains))])  # how far a rate could rise
    return effects, deviations, p_values, needed * quiet / np.maximum(room, 1e-9)


def _net(reading: Reading, up: np.ndarray, down: np.ndarray, part: str) -> tuple[np.ndarray, ...]:
    """The net share of clients that differ; its deviation, that where nothing has changed, and that of a new fault."""
    net = up - down
    differ = (up + down - net**2 / reading.clients, up + down, 2 * np.maximum(np.minimum(up, down), 0.0))
    return net / reading.clients, *(reading.net_errors(one, part) for one in differ)


_TOO_FEW = "Too few clients have sentences on both sides for this to be compared at this epsilon."


def _rate_words(reading: Reading, finding: Finding, place: int) -> str:
    before, after = (percent(max(rates[place], 0.0)) for rates in (reading.before, reading.after))
    of = "of words" if place == 0 else "of sentences"
    points = f"95 %: {100 * finding.low:+.1f} to {100 * finding.high:+.1f} points"
    name = finding.name[0].upper() + finding.name[1:]
    if finding.verdict == "detected":
        way = "rose" if finding.effect > 0 else "fell"
        return f"{name} {way} from {before} to {after} {of} ({points})."
    return f"No change was found in {finding.name}: {before} and {after} {of} ({points})."


def _sign_words(reading: Reading, finding: Finding, place: int) -> str:
    up, down = (percent(max(share[place] / reading.clients, 0.0)) for share in (reading.up, reading.down))
    what = SIGNS[place]
    if finding.verdict == "detected":
        return f"{up} of clients have more {what} after the change than before, {down} have fewer."
    return f"About as many clients have more {what} after the change as have fewer: {up} and {down}."


def _vote_words(reading: Reading, finding: Finding, place: int) -> str:
    interval = f"95 %: {span(max(finding.low, 0.0), max(finding.high, 0.0))}"
    net = percent(max(finding.effect, 0.0))
    if finding.verdict == "detected":
        return f"Undoing {finding.name} would make new unknown words known for {net} of clients ({interval})."
    return f"{finding.name} does not explain the unknown words: undoing it helps {net} of clients ({interval})."


def _diagnoses(reading: Reading, candidates: Sequence[Finding]) -> list[Diagnosis]:
    """What explains the unknown words after the change, beyond those before; and the mirror image's tally."""
    tallies = [
        {label: round(float(v), 6) for label, v in zip(reading.labels, row / reading.clients, strict=True)}
        for row in reading.votes
    ]
    named = [one for one in candidates if one.verdict == "detected"]
    if not reading.is_measurable or not named:
        why = _TOO_FEW if not reading.is_measurable else "No fault of the library explains the change in unknown words."
        share = min(max(tallies[1][NONE], 0.0), 1.0) if reading.is_measurable else 0.0
        return [Diagnosis(NONE, share, 0.0, 1.0, SIDES[1], why, tallies[1])]
    best = max(named, key=lambda one: one.effect)
    low, high = max(best.low, 0.0), min(best.high, 1.0)
    means = SUSPECTS.get(best.name) or faults.parse(best.name)[0].damage.about
    statement = f"{best.name}: {means}, on {percent(best.effect)} of clients (95 %: {span(low, high)})."
    return [Diagnosis(best.name, best.effect, low, high, SIDES[1], statement, tallies[1])]
