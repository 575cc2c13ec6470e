"""Findings from released sums: an effect, its interval, a verdict, and the detection limit.

Every test here uses noisy sums with known noise, never synthetic samples. An estimate has two sources of error: the
noise, whose standard deviation is public, and the sampling of the clients, whose variance is itself part of the release
(see `cues`). The interval includes both.

**Difference of cues.** The mean of an arm is 1/2 plus a noisy sum S over a noisy count K. To first order its error has
the variance sigma^2 (1 + (mean - 1/2)^2) / K^2 from noise and spread^2 / K from clients. K must exceed five standard
deviations of its noise; the ratio is then close to normal. Arms that share no client have independent errors. If arms
share clients, the standard deviations due to clients are added, which bounds any correlation. With nothing wrong
anywhere, the probability of one or more findings is at most 5 %: p-values are corrected together, after Holm, or where
there is a public reference by comparison with the largest statistic of populations drawn from it (`chance`).

**Against a reference.** Clients on which a model fails differ from others even where nothing is broken: untidy
handwriting is hard to read. If public data are available, pass the same arms of public data as `expected`: the test is
then of the difference beyond the expected one. Votes, and the clients in an arm, are counted against public ones.
"""

import dataclasses
import math

import numpy as np
from scipy import stats

from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.counting import Background
from blindsight.inspection.contrast.gap_words import share_words
from blindsight.inspection.contrast.released import (
    DECADES,
    MAGNITUDE,
    NONE,
    ArmCues,
    ArmVotes,
    difference_of_cues,
    estimated_error,
    statistic,
)
from blindsight.inspection.finding import ALPHA, POWER, Diagnosis, Finding, agreeing, holm
from blindsight.wording import percent, points, signed, span

__all__ = [
    "compare_cues",
    "compare_members",
    "diagnose",
    "share_of_clients",
]

_BACKGROUND = 0.05  # share of an arm's clients: off-centre handwriting is read better once it is shifted
_WIDE = float(stats.norm.isf(0.025))  # 95 % intervals

_CLIENTS_OF = {
    "everyone": "all clients",
    "mistakes": "clients with mistakes",
    "correct": "clients with correct examples",
}
"""Arms whose names cannot stand before the word "clients"."""


def compare_cues(
    first: ArmCues,
    second: ArmCues,
    *,
    epsilon: float,
    disjoint_by_client: bool = True,
    expected: tuple[ArmCues, ArmCues] | None = None,
    chance: np.ndarray | None = None,
    looks: float = 1,
) -> list[Finding]:
    """One finding for each cue on the difference first - second, the most significant first.

    Args:
        first: The arm in question.
        second: The arm that it is compared with.
        epsilon: What the release of the cues cost alone.
        disjoint_by_client: Whether no client is in both arms.
        expected: The same two arms of public data: what they differ by is expected.
        chance: The largest statistics of populations without a fault (`chance.largest`); `second` is then public data,
            or `expected` is given.
        looks: Families of tests on this population (cues, votes); each gets an equal share of the 5 %.
    """
    is_pooled = chance is not None and expected is None
    difference, error = difference_of_cues(
        first, second, disjoint_by_client=disjoint_by_client, expected=expected, is_pooled=is_pooled
    )
    is_measurable = bool(first.is_measurable and second.is_measurable)
    sizes = statistic(difference, error, first, second)
    if chance is None:
        p_values = np.minimum(looks * holm(2 * stats.norm.sf(sizes)), 1.0)
        critical = float(stats.norm.isf(ALPHA / 2 / (looks * len(sizes))))
    else:
        above = len(chance) - np.searchsorted(chance, sizes - 1e-12)
        p_values = np.minimum(looks * (1 + above) / (1 + len(chance)), 1.0)
        critical = float(chance[min(math.ceil((1 - ALPHA / looks) * len(chance)), len(chance) - 1)])
    needed = critical + float(stats.norm.isf(1 - POWER))
    wide = _WIDE * estimated_error(first, second, disjoint_by_client=disjoint_by_client, expected=expected)
    findings = list[Finding]()
    for j, name in enumerate(first.names):
        low, high = difference[j] - wide[j], difference[j] + wide[j]
        low, high = (max(low, -1.0), min(high, 1.0)) if is_measurable else (-1.0, 1.0)
        reach = max(second.mean[j], 1 - second.mean[j])
        smallest = _smallest_share(needed, float(error[j]) / reach, first.counted) if is_measurable else 1.0
        is_detected = bool(p_values[j] <= ALPHA)
        low, high = agreeing(float(low), float(high), effect=float(difference[j]), is_detected=is_detected)
        finding = Finding(
            kind="cue",
            name=name,
            statement="",
            effect=float(np.clip(difference[j], -1.0, 1.0)) if is_measurable else 0.0,
            low=low,
            high=high,
            p_value=float(p_values[j]),
            verdict="detected" if is_detected else "not detected",
            epsilon=epsilon,
            smallest=float(smallest) if smallest < 1 else None,
            arms=(first.arm, second.arm),
        )
        words = _cue_words(finding, first.mean[j], second.mean[j], is_measurable, expected is not None)
        findings.append(dataclasses.replace(finding, statement=words))
    order = np.lexsort((-sizes, p_values))
    return [findings[j] for j in order]


def diagnose(
    votes: ArmVotes,
    *,
    epsilon: float,
    clients: int,
    public: ArmVotes | None = None,
    public_clients: int = 0,
    looks: float = 1,
) -> tuple[Diagnosis, list[Finding]]:
    """The arm's diagnosis, and a finding for each candidate, the most significant first.

    A candidate is named if more clients vote for it than where nothing is wrong: than among public clients, or than 5 %
    of the arm without public data. Tests are one-sided and Holm-corrected, and the interval must lie above that share
    too. Of several such candidates, the one with most votes is named; otherwise "none".

    Args:
        votes: The arm's votes.
        epsilon: What the release of the votes cost alone.
        clients: Number of clients of the whole population.
        public: The same arm's votes of public clients.
        public_clients: Number of public clients, in the arm or not.
        looks: Families and arms tested on this population; each gets an equal share of the 5 %.
    """
    labels, shares = votes.labels[:-1], votes.shares[:-1]
    counts = () if public is None else np.clip(public.counts[:-1], 0.0, public_clients).tolist()
    usual = [Background(count, public_clients, clients, votes.noise_std) for count in counts]
    if usual:
        raw = np.array([one.p_more(seen) for one, seen in zip(usual, votes.counts.tolist(), strict=False)])
    else:
        raw = stats.norm.sf((shares - _BACKGROUND) / votes.error(_BACKGROUND))
    p_values = np.minimum(looks * holm(raw), 1.0) if votes.is_measurable else np.ones(len(labels))
    at_rest = [_BACKGROUND] * len(labels) if public is None else np.clip(public.shares[:-1], 0.0, 1.0).tolist()
    clear = [share_of_clients(votes, label)[1] > rest for label, rest in zip(labels, at_rest, strict=True)]
    named = [j for j in range(len(labels)) if p_values[j] <= ALPHA and clear[j]]
    winner = max(named, key=lambda j: shares[j]) if named else None
    level = ALPHA / (looks * len(labels))
    findings = list[Finding]()
    for j, label in enumerate(labels):
        if usual:
            least = usual[j].fewest_detected(level) / max(votes.voters, 1.0)
        else:
            least = _BACKGROUND + float(stats.norm.isf(level)) * float(votes.error(_BACKGROUND))
        sure = float(stats.norm.isf(1 - POWER)) * float(votes.error(min(least, 1.0)))
        smallest = least + sure if votes.is_measurable else 1.0
        findings.append(_of_candidate(votes, label, float(p_values[j]), float(smallest), epsilon, at_rest[j]))
    order = np.lexsort((-shares, p_values))
    return _diagnosis(votes, winner), [findings[j] for j in order]


def compare_members(
    arm: ArmCues, public: int, public_clients: int, *, clients: int, epsilon: float, looks: float = 1
) -> Finding:
    """A finding on the share of clients in an arm, against that of public clients.

    Args:
        arm: The arm.
        public: Number of public clients in it.
        public_clients: Number of public clients.
        clients: Number of clients of the whole population.
        epsilon: What the release of the cues cost alone.
        looks: Families and arms tested on this population; each gets an equal share of the 5 %.
    """
    background = Background(public, public_clients, clients, arm.noise_std)
    p_value = min(2 * looks * min(background.p_more(arm.counted), background.p_fewer(arm.counted)), 1.0)
    share = arm.share(clients)[0]
    usual = public / max(public_clients, 1)
    near = (public + 1) / (public_clients + 2)
    draws = near * (1 - near) * (1 / clients + 1 / max(public_clients, 1))  # of clients and of public ones
    wide = _WIDE * math.hypot(arm.noise_std / clients, math.sqrt(draws))
    least = background.fewest_detected(ALPHA / 2 / looks) / clients - usual
    is_detected = p_value <= ALPHA
    way = "more" if share > usual else "less"
    words = (
        f"{_of(arm.arm)[0].upper()}{_of(arm.arm)[1:]} are {way} frequent than in public data"
        if is_detected
        else f"No difference detected in the share of {_of(arm.arm)}"
    )
    ends = (max(share - usual - wide, -1.0), min(share - usual + wide, 1.0))
    low, high = agreeing(*ends, effect=share - usual, is_detected=is_detected)
    interval = f"95 %: {points(low)} to {points(high)} points"
    return Finding(
        kind="share",
        name=_of(arm.arm),
        statement=f"{words}: {percent(share)} versus {percent(usual)} ({interval}).",
        effect=share - usual,
        low=low,
        high=high,
        p_value=p_value,
        verdict="detected" if is_detected else "not detected",
        epsilon=epsilon,
        smallest=float(least) if 0 < least < 1 else None,
        arms=(arm.arm, "reference"),
    )


def share_of_clients(votes: ArmVotes, label: str) -> tuple[float, float, float]:
    """The share of an arm's clients that voted for `label`, and its 95 % interval."""
    if label not in votes.labels:
        raise InvalidInput(f"{label!r} was not on the ballot: the candidates were {', '.join(votes.labels)}")
    if not votes.is_measurable:
        return 0.0, 0.0, 1.0
    share = min(max(float(votes.shares[votes.labels.index(label)]), 0.0), 1.0)  # the interval contains it
    # at an estimate of 0 or below the error is the noise alone: evaluate it at one standard deviation of the noise
    error = float(votes.error(max(share, votes.noise_std / votes.voters)))
    low, high = share - _WIDE * error, share + _WIDE * error
    share, low, high = (min(max(end, 0.0), 1.0) for end in (share, low, high))
    return share, low, high


def _smallest_share(needed: float, error: float, clients: float) -> float:
    """The share f of clients at which the effect is `needed` errors: f^2 = needed^2 (error^2 + f / clients).

    The error is relative to how far a fault can move a client; clients with the fault add to the variance.
    """
    if not math.isfinite(needed):
        return 1.0
    half = needed**2 / max(clients, 1.0) / 2
    return half + math.sqrt(half**2 + (needed * error) ** 2)


def _of_candidate(
    votes: ArmVotes, label: str, p_value: float, smallest: float, epsilon: float, usual: float
) -> Finding:
    """The finding of one candidate fault, for which a share of `usual` clients vote where nothing is wrong."""
    share, low, high = share_of_clients(votes, label)
    is_detected = p_value <= ALPHA
    low, high = agreeing(low, high, effect=max(share, usual), is_detected=is_detected, usual=usual)
    told = percent(share, within=(low, high))
    words = (
        f"{label} would repair {told} of {_of(votes.arm)} (95 %: {span(low, high)})"
        if is_detected
        else f"{label} does not explain {_of(votes.arm)}: {told} voted for it "
        f"(95 %: {span(low, high)}){_limit(smallest)}"
    )
    return Finding(
        kind="votes",
        name=label,
        statement=words + ".",
        effect=share,
        low=low,
        high=high,
        p_value=p_value,
        verdict="detected" if is_detected else "not detected",
        epsilon=epsilon,
        smallest=smallest if smallest < 1 else None,
        arms=(votes.arm, votes.arm),
        usual=usual,
    )


def _diagnosis(votes: ArmVotes, winner: int | None) -> Diagnosis:
    fault = NONE if winner is None else votes.labels[winner]
    share, low, high = share_of_clients(votes, fault)
    if not votes.is_measurable:
        statement = f"Too few {_of(votes.arm)} for a diagnosis at this epsilon."
    elif winner is None:
        statement = f"No candidate fault explains {_of(votes.arm)}: {percent(share)} voted for none."
    else:
        statement = f"{fault}, {percent(share, within=(low, high))} of {_of(votes.arm)} (95 %: {span(low, high)})."
    shares = np.clip(votes.shares, 0.0, 1.0).tolist() if votes.is_measurable else ()  # of too few they are noise
    tally = {label: round(share, 6) for label, share in zip(votes.labels, shares, strict=False)}
    return Diagnosis(fault, share, low, high, votes.arm, statement, tally)


def _cue_words(finding: Finding, mean: float, other: float, is_measurable: bool, beyond: bool) -> str:
    (first, second), name, ends = finding.arms, finding.name, (finding.low, finding.high)
    if not is_measurable:
        return f"Too few clients in an arm to compare {name} at this epsilon."
    if finding.verdict == "detected" and not beyond and (words := share_words(name, finding.arms, mean, other, ends)):
        return words
    interval = f"{signed(finding.effect)}, 95 %: {signed(finding.low)} to {signed(finding.high)}"
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
    return f"; at best, a fault on {percent(smallest, 2)} of clients is detected"
