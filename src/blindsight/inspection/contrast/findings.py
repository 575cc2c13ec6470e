"""What may be said about released numbers: an effect, its interval, a verdict, and what could not have been seen.

Every test here is on noisy sums whose noise is known, never on synthetic samples. An estimate is off for two reasons:
the noise, whose standard deviation is public, and the draw of the clients, whose spread is itself part of the release
(see `cues`). Both go into the interval.

**Difference of cues.** The mean of an arm is 1/2 plus a noisy sum S over a noisy count K. To first order its error has
the variance sigma^2 (1 + (mean - 1/2)^2) / K^2 from noise and spread^2 / K from clients; with K beyond five deviations
of its noise, which is asked for, the ratio is as good as normal. Arms that share no client have independent errors. A
client that is in both may be off in both directions at once, and then the deviations due to clients are added, which
bounds any correlation. P-values of all cues are corrected after Holm: with nothing wrong anywhere, one finding or more
turns up at most 5 % of the time.

**Against a reference.** Clients on which a model fails differ from others even where nothing is broken: a hasty hand is
hard to read. If public data are at hand, pass what the same arms look like there as `expected`: what is tested is then
the difference beyond the expected one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats

from blindsight.errors import InvalidInput
from blindsight.samples import as_json
from blindsight.wording import percent, span

if TYPE_CHECKING:  # a report is read without JAX
    from blindsight.inspection.contrast.cues import ArmCues
    from blindsight.inspection.contrast.votes import ArmVotes

__all__ = ["ALPHA", "LUCK", "POWER", "Diagnosis", "Finding", "compare_cues", "diagnose", "difference_of_cues"]
__all__ += ["holm", "share_of_clients", "usual_votes"]

ALPHA, POWER = 0.05, 0.9
NONE = "none"  # the last label of every ballot
_BACKGROUND = 0.05  # of an arm's clients: handwriting that is off centre is read better once it is shifted
LUCK = 0.003
"""The share of an arm's clients that may vote for anything, whatever public data say."""

MAGNITUDE, DECADES = "magnitude", 8
"""The cue whose differences are ratios, and how many powers of ten it goes through between 0 and 1."""

_WIDE = float(stats.norm.isf(0.025))  # 95 % intervals

_WHO = {"everyone": "all clients", "mistakes": "clients with mistakes", "correct": "clients with correct examples"}
"""Arms of the tasks whose names do not stand before the word clients."""

Verdict = Literal["detected", "not detected"]
_OLD_VERDICTS = {"found": "detected", "not found": "not detected"}  # as older reports spell them


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that was looked for: what was seen, how sure that is, and what could not have been seen.

    `p_value` is corrected for everything that was looked for at once; `epsilon` is that of the release it was read
    from, alone; `smallest` is the smallest fraction of the first arm's clients that would have been found with a
    probability of 90 %, had the fault moved them as far as a fault can.
    """

    kind: Literal["cue", "votes", "share", "threshold", "fidelity"]
    name: str
    statement: str
    effect: float
    low: float
    high: float
    p_value: float | None
    verdict: Verdict
    epsilon: float
    smallest: float | None
    arms: tuple[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self) | {"arms": list(self.arms)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Finding":
        """The finding that `to_dict` was called on."""
        fields = as_json.finite_or_not(value, "effect", "low", "high", "p_value", "epsilon", "smallest")
        fields["arms"] = tuple(value["arms"])
        fields["verdict"] = _OLD_VERDICTS.get(value["verdict"], value["verdict"])
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The fault that an arm's clients voted for, with its share and 95 % interval; `tally` has every noisy share."""

    fault: str
    share: float
    low: float
    high: float
    arm: str
    statement: str
    tally: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Diagnosis":
        """The diagnosis that `to_dict` was called on."""
        fields = as_json.finite_or_not(value, "share", "low", "high")
        fields["tally"] = as_json.finite_or_not(value["tally"], *value["tally"])
        return cls(**fields)


def compare_cues(
    first: "ArmCues",
    second: "ArmCues",
    *,
    epsilon: float,
    disjoint_by_client: bool = True,
    expected: tuple["ArmCues", "ArmCues"] | None = None,
    shifts: Mapping[str, float] | None = None,
    looks: int = 1,
) -> list[Finding]:
    """One finding for each cue on the difference first - second, the most significant first.

    `expected` are the same two arms of public data (`Cues.exact`). `shifts` says how far a suspected fault moves a
    cue, for `smallest`; without it the farthest that any fault could is taken. Of several `looks` at a population
    (pairs of arms, and votes) each has its part of the 5 %.
    """
    difference, error = difference_of_cues(first, second, disjoint_by_client, expected)
    is_measurable = first.is_measurable and second.is_measurable
    raw = 2 * stats.norm.sf(np.abs(difference) / error) if is_measurable else np.ones(len(error))
    p_values = np.minimum(looks * holm(raw), 1.0)
    needed = float(stats.norm.isf(ALPHA / 2 / (looks * len(raw))) + stats.norm.isf(1 - POWER))
    findings = list[Finding]()
    for j, name in enumerate(first.names):
        low, high = difference[j] - _WIDE * error[j], difference[j] + _WIDE * error[j]
        low, high = (max(low, -1.0), min(high, 1.0)) if is_measurable else (-1.0, 1.0)
        reach = abs((shifts or {}).get(name, 0.0)) or max(second.mean[j], 1 - second.mean[j])
        smallest = needed * error[j] / reach if is_measurable else 1.0
        is_found = bool(p_values[j] <= ALPHA)
        finding = Finding(
            kind="cue",
            name=name,
            statement="",
            effect=float(np.clip(difference[j], -1.0, 1.0)) if is_measurable else 0.0,
            low=float(low),
            high=float(high),
            p_value=float(p_values[j]),
            verdict="detected" if is_found else "not detected",
            epsilon=epsilon,
            smallest=float(smallest) if smallest < 1 else None,
            arms=(first.arm, second.arm),
        )
        words = _cue_words(finding, first.mean[j], second.mean[j], is_measurable, expected is not None)
        findings.append(dataclasses.replace(finding, statement=words))
    order = np.lexsort((-np.abs(difference / error), p_values))
    return [findings[j] for j in order]


def difference_of_cues(
    first: "ArmCues", second: "ArmCues", disjoint_by_client: bool, expected: tuple["ArmCues", "ArmCues"] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The difference of two arms in each cue, less the expected one, and its standard deviation."""
    if first.names != second.names:
        raise InvalidInput("two arms can be compared by the same cues only: measure both in one round")
    difference = first.mean - second.mean
    variance = _variance(first, second, disjoint_by_client)
    if expected is not None:
        difference = difference - (expected[0].mean - expected[1].mean)
        variance = variance + _variance(*expected, disjoint_by_client)
    return difference, np.sqrt(np.maximum(variance, 1e-18))


def diagnose(
    votes: "ArmVotes",
    *,
    epsilon: float,
    background: Mapping[str, float] | None = None,
    looks: int = 1,
) -> tuple[Diagnosis, list[Finding]]:
    """The arm's diagnosis, and a finding for each candidate, the most significant first.

    A candidate is named if its share is beyond its `background`, the share of clients that vote for it where nothing is
    wrong: as measured on public data (`usual_votes`), or 5 % where there are none. Tests are one-sided and
    Holm-corrected; of several candidates beyond their background the most voted one is named, else "none".
    """
    labels = votes.labels[:-1]
    expected = np.array([max(0.0, (background or {}).get(label, _BACKGROUND)) + LUCK for label in labels])
    shares = votes.shares[:-1]
    raw = stats.norm.sf((shares - expected) / votes.error(expected)) if votes.is_measurable else np.ones(len(labels))
    p_values = np.minimum(looks * holm(raw), 1.0)
    named = [j for j in range(len(labels)) if p_values[j] <= ALPHA]
    winner = max(named, key=lambda j: shares[j]) if named else None
    needed = float(stats.norm.isf(ALPHA / (looks * len(labels))) + stats.norm.isf(1 - POWER))
    findings = list[Finding]()
    for j, label in enumerate(labels):
        share, low, high = share_of_clients(votes, label)
        smallest = expected[j] + needed * float(votes.error(expected[j])) if votes.is_measurable else 1.0
        found: Verdict = "detected" if p_values[j] <= ALPHA else "not detected"
        words = f"{label} would repair {percent(share)} of {_of(votes.arm)} (95 %: {span(low, high)})"
        if found == "not detected":
            words = (
                f"{label} does not explain {_of(votes.arm)}: {percent(share)} voted for it "
                f"(95 %: {span(low, high)}){_unseen(smallest)}"
            )
        findings.append(
            Finding(
                kind="votes",
                name=label,
                statement=words + ".",
                effect=share,
                low=low,
                high=high,
                p_value=float(p_values[j]),
                verdict=found,
                epsilon=epsilon,
                smallest=float(smallest) if smallest < 1 else None,
                arms=(votes.arm, votes.arm),
            )
        )
    order = np.lexsort((-shares, p_values))
    return _diagnosis(votes, winner), [findings[j] for j in order]


def usual_votes(reference: "ArmVotes") -> dict[str, float]:
    """The background of each candidate from an arm of public clients: the share that votes for it, and a bit more.

    Public clients are a sample too: 1.64 deviations are added, so that too little is expected once in twenty times.
    """
    voters = max(reference.voters, 1.0)
    shares = np.clip(reference.shares, 0.0, 1.0)
    upper = shares + 1.64 * np.sqrt(shares * (1 - shares) / voters)
    return dict(zip(reference.labels, np.minimum(upper, 1.0).tolist(), strict=True))


def share_of_clients(votes: "ArmVotes", label: str) -> tuple[float, float, float]:
    """The share of an arm's clients that voted for `label`, and its 95 % interval."""
    if label not in votes.labels:
        raise InvalidInput(f"nobody could vote for {label!r}: the candidates were {', '.join(votes.labels)}")
    if not votes.is_measurable:
        return 0.0, 0.0, 1.0
    share = float(votes.shares[votes.labels.index(label)])
    # the error at an estimate of 0 or below is that of the noise alone: take it where one client in the noise would be
    error = float(votes.error(max(share, votes.noise_std / votes.voters)))
    low, high = share - _WIDE * error, share + _WIDE * error
    return min(max(share, 0.0), 1.0), max(low, 0.0), min(max(high, 0.0), 1.0)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values corrected after Holm 1979: of all true nulls together, one falls to 5 % at most 5 % of the time.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, np.float64)
    order = np.argsort(raw, kind="stable")
    factors = len(raw) - np.arange(len(raw))
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return corrected


def _variance(first: "ArmCues", second: "ArmCues", disjoint_by_client: bool) -> np.ndarray:
    noise = first.noise_error**2 + second.noise_error**2
    if disjoint_by_client:
        return noise + first.sampling_error**2 + second.sampling_error**2
    return noise + (first.sampling_error + second.sampling_error) ** 2


def _diagnosis(votes: "ArmVotes", winner: int | None) -> Diagnosis:
    fault = NONE if winner is None else votes.labels[winner]
    share, low, high = share_of_clients(votes, fault)
    if not votes.is_measurable:
        statement = f"There are too few {_of(votes.arm)} for a diagnosis at this epsilon."
    elif winner is None:
        statement = f"No fault of the library explains {_of(votes.arm)}: {percent(share)} voted for none."
    else:
        statement = f"{fault}, {percent(share)} of {_of(votes.arm)} (95 %: {span(low, high)})."
    tally = {label: round(float(share), 6) for label, share in zip(votes.labels, votes.shares, strict=True)}
    return Diagnosis(fault, share, low, high, votes.arm, statement, tally)


def _cue_words(finding: Finding, mean: float, other: float, is_measurable: bool, beyond: bool) -> str:
    (first, second), name = finding.arms, finding.name
    if not is_measurable:
        return f"An arm has too few clients for its {name} to be compared at this epsilon."
    interval = f"{finding.effect:+.3f}, 95 %: {finding.low:+.3f} to {finding.high:+.3f}"
    more = " beyond what public data show" if beyond else ""
    if finding.verdict == "detected":
        way = "higher" if finding.effect > 0 else "lower"
        words = f"{name} is {way} in {first} than in {second}{more}: {mean:.3f} against {other:.3f} ({interval})"
        return words + (_ratio(finding) if name.endswith(MAGNITUDE) else "") + "."
    unseen = _unseen(1.0 if finding.smallest is None else finding.smallest)
    return f"{name} does not differ between {first} and {second}{more} ({interval}){unseen}."


def _ratio(finding: Finding) -> str:
    """What a difference of magnitudes means for the numbers: a factor, as a change of units makes it."""
    times = [10 ** (DECADES * value) for value in (finding.effect, finding.low, finding.high)]
    middle, low, high = (f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in times)
    return f"; typical numbers are {middle} times as large (95 %: {low}-{high})"


def _of(arm: str) -> str:
    """An arm's clients in a sentence."""
    return _WHO.get(arm, f"{arm} clients")


def _unseen(smallest: float) -> str:
    if not smallest < 1:
        return "; not even a fault of all clients would have been seen"
    return f"; less than {percent(smallest, 2)} of clients could not have been seen"
