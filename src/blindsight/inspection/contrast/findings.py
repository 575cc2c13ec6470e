"""Findings from released sums: an effect, its interval, a verdict, and the detection limit.

Every test here uses noisy sums whose noise is known, never synthetic samples. An estimate has two sources of error: the
noise, whose standard deviation is public, and the sampling of the clients, whose variance is itself part of the release
(see `cues`). The interval includes both.

**Difference of cues.** The mean of an arm is 1/2 plus a noisy sum S over a noisy count K. To first order its error has
the variance sigma^2 (1 + (mean - 1/2)^2) / K^2 from noise and spread^2 / K from clients. K must exceed five standard
deviations of its noise; the ratio is then close to normal. Arms that share no client have independent errors. If arms
share clients, the standard deviations due to clients are added, which bounds any correlation. P-values of all cues are
corrected together (Holm): with nothing wrong anywhere, the probability of one or more findings is at most 5 %.

**Against a reference.** Clients on which a model fails differ from others even where nothing is broken: untidy
handwriting is hard to read. If public data are available, pass the same arms of public data as `expected`: the test is
then of the difference beyond the expected one.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from scipy import stats

from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.released import DECADES, MAGNITUDE, NONE, ArmCues, ArmVotes
from blindsight.samples import as_json
from blindsight.wording import percent, span

__all__ = ["ALPHA", "LUCK", "POWER", "Diagnosis", "Finding", "compare_cues", "diagnose", "difference_of_cues"]
__all__ += ["holm", "share_of_clients", "usual_votes"]

ALPHA, POWER = 0.05, 0.9
_BACKGROUND = 0.05  # share of an arm's clients: off-centre handwriting is read better once it is shifted
LUCK = 0.003
"""The share of an arm's clients allowed to vote for any candidate by chance, beyond what public data show."""

_WIDE = float(stats.norm.isf(0.025))  # 95 % intervals

_CLIENTS_OF = {
    "everyone": "all clients",
    "mistakes": "clients with mistakes",
    "correct": "clients with correct examples",
}
"""Arms whose names cannot stand before the word "clients"."""

Verdict = Literal["detected", "not detected"]
_OLD_VERDICTS = {"found": "detected", "not found": "not detected"}  # as older reports spell them


@dataclasses.dataclass(frozen=True)
class Finding:
    """One test: the estimated effect, its uncertainty, and the detection limit.

    `p_value` is corrected for all tests of the report. `epsilon` is that of the underlying release alone. `smallest` is
    the smallest fraction of the first arm's clients that the test detects with 90 % power, if the fault moves them as
    far as a fault can.
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
    first: ArmCues,
    second: ArmCues,
    *,
    epsilon: float,
    disjoint_by_client: bool = True,
    expected: tuple[ArmCues, ArmCues] | None = None,
    shifts: Mapping[str, float] | None = None,
    looks: int = 1,
) -> list[Finding]:
    """One finding for each cue on the difference first - second, the most significant first.

    Args:
        first: The arm in question.
        second: The arm that it is compared with.
        epsilon: What the release of the cues cost alone.
        disjoint_by_client: Whether no client is in both arms.
        expected: The same two arms of public data: what they differ by is expected.
        shifts: How far a suspected fault moves each cue; by default as far as any fault could.
        looks: Tests on this population (pairs of arms, and votes); each gets an equal share of the 5 %.
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
        is_detected = bool(p_values[j] <= ALPHA)
        finding = Finding(
            kind="cue",
            name=name,
            statement="",
            effect=float(np.clip(difference[j], -1.0, 1.0)) if is_measurable else 0.0,
            low=float(low),
            high=float(high),
            p_value=float(p_values[j]),
            verdict="detected" if is_detected else "not detected",
            epsilon=epsilon,
            smallest=float(smallest) if smallest < 1 else None,
            arms=(first.arm, second.arm),
        )
        words = _cue_words(finding, first.mean[j], second.mean[j], is_measurable, expected is not None)
        findings.append(dataclasses.replace(finding, statement=words))
    order = np.lexsort((-np.abs(difference / error), p_values))
    return [findings[j] for j in order]


def difference_of_cues(
    first: ArmCues, second: ArmCues, disjoint_by_client: bool, expected: tuple[ArmCues, ArmCues] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The difference of two arms in each cue, minus the expected one, and its standard deviation."""
    if first.names != second.names:
        raise InvalidInput("arms can only be compared by the same cues: measure both in one round")
    difference = first.mean - second.mean
    variance = _variance(first, second, disjoint_by_client)
    if expected is not None:
        difference = difference - (expected[0].mean - expected[1].mean)
        variance = variance + _variance(*expected, disjoint_by_client)
    return difference, np.sqrt(np.maximum(variance, 1e-18))


def diagnose(
    votes: ArmVotes,
    *,
    epsilon: float,
    background: Mapping[str, float] | None = None,
    looks: int = 1,
) -> tuple[Diagnosis, list[Finding]]:
    """The arm's diagnosis, and a finding for each candidate, the most significant first.

    A candidate is named if its share exceeds its `background`, the share of clients that vote for it where nothing is
    wrong: measured on public data (`usual_votes`), or 5 % without public data. Tests are one-sided and Holm-corrected.
    Of several candidates beyond their background, the one with most votes is named; otherwise "none".
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
        verdict: Verdict = "detected" if p_values[j] <= ALPHA else "not detected"
        words = f"{label} would repair {percent(share)} of {_of(votes.arm)} (95 %: {span(low, high)})"
        if verdict == "not detected":
            words = (
                f"{label} does not explain {_of(votes.arm)}: {percent(share)} voted for it "
                f"(95 %: {span(low, high)}){_limit(smallest)}"
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
                verdict=verdict,
                epsilon=epsilon,
                smallest=float(smallest) if smallest < 1 else None,
                arms=(votes.arm, votes.arm),
            )
        )
    order = np.lexsort((-shares, p_values))
    return _diagnosis(votes, winner), [findings[j] for j in order]


def usual_votes(reference: ArmVotes) -> dict[str, float]:
    """The background of each candidate from an arm of public clients: an upper bound on the share that votes for it.

    Public clients are a sample too: 1.64 standard deviations are added, so the bound is too low in 5 % of cases.
    """
    voters = max(reference.voters, 1.0)
    shares = np.clip(reference.shares, 0.0, 1.0)
    upper = shares + 1.64 * np.sqrt(shares * (1 - shares) / voters)
    return dict(zip(reference.labels, np.minimum(upper, 1.0).tolist(), strict=True))


def share_of_clients(votes: ArmVotes, label: str) -> tuple[float, float, float]:
    """The share of an arm's clients that voted for `label`, and its 95 % interval."""
    if label not in votes.labels:
        raise InvalidInput(f"{label!r} was not on the ballot: the candidates were {', '.join(votes.labels)}")
    if not votes.is_measurable:
        return 0.0, 0.0, 1.0
    share = float(votes.shares[votes.labels.index(label)])
    # at an estimate of 0 or below the error is the noise alone: evaluate it at one standard deviation of the noise
    error = float(votes.error(max(share, votes.noise_std / votes.voters)))
    low, high = share - _WIDE * error, share + _WIDE * error
    return min(max(share, 0.0), 1.0), max(low, 0.0), min(max(high, 0.0), 1.0)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values corrected after Holm 1979: the probability that any true null falls to 5 % is at most 5 %.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    raw = np.asarray(p_values, np.float64)
    order = np.argsort(raw, kind="stable")
    factors = len(raw) - np.arange(len(raw))
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * factors), 1.0)
    return corrected


def _variance(first: ArmCues, second: ArmCues, disjoint_by_client: bool) -> np.ndarray:
    noise = first.noise_error**2 + second.noise_error**2
    if disjoint_by_client:
        return noise + first.sampling_error**2 + second.sampling_error**2
    return noise + (first.sampling_error + second.sampling_error) ** 2


def _diagnosis(votes: ArmVotes, winner: int | None) -> Diagnosis:
    fault = NONE if winner is None else votes.labels[winner]
    share, low, high = share_of_clients(votes, fault)
    if not votes.is_measurable:
        statement = f"Too few {_of(votes.arm)} for a diagnosis at this epsilon."
    elif winner is None:
        statement = f"No candidate fault explains {_of(votes.arm)}: {percent(share)} voted for none."
    else:
        statement = f"{fault}, {percent(share)} of {_of(votes.arm)} (95 %: {span(low, high)})."
    tally = {label: round(float(share), 6) for label, share in zip(votes.labels, votes.shares, strict=True)}
    return Diagnosis(fault, share, low, high, votes.arm, statement, tally)


def _cue_words(finding: Finding, mean: float, other: float, is_measurable: bool, beyond: bool) -> str:
    (first, second), name = finding.arms, finding.name
    if not is_measurable:
        return f"Too few clients in an arm to compare {name} at this epsilon."
    interval = f"{finding.effect:+.3f}, 95 %: {finding.low:+.3f} to {finding.high:+.3f}"
    more = " beyond what public data show" if beyond else ""
    if finding.verdict == "detected":
        way = "higher" if finding.effect > 0 else "lower"
        words = f"{name} is {way} in {first} than in {second}{more}: {mean:.3f} versus {other:.3f} ({interval})"
        return words + (_ratio(finding) if name.endswith(MAGNITUDE) else "") + "."
    limit = _limit(1.0 if finding.smallest is None else finding.smallest)
    return f"No difference detected in {name} between {first} and {second}{more} ({interval}){limit}."


def _ratio(finding: Finding) -> str:
    """A difference of magnitudes as a factor, such as a change of units causes."""
    times = [10 ** (DECADES * value) for value in (finding.effect, finding.low, finding.high)]
    middle, low, high = (f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in times)
    return f"; typical numbers are {middle} times as large (95 %: {low}-{high})"


def _of(arm: str) -> str:
    """An arm's clients in a sentence."""
    return _CLIENTS_OF.get(arm, f"{arm} clients")


def _limit(smallest: float) -> str:
    if not smallest < 1:
        return "; even a fault on all clients is below the detection limit"
    return f"; detection limit: {percent(smallest, 2)} of clients"
