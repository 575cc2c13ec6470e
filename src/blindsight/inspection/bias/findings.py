"""Findings about serving and training from released sums: differences with intervals, and calibrated tests.

The null hypothesis: private and public clients are samples of the same distribution. Three sources of error remain
under it: the noise of the release, the sampling of the private clients, and the sampling of the public ones.

**Shares.** The difference of two means over clients has the variance sigma^2 (1 + 4 mean^2) / K^2 from noise and
s^2 (1/K + 1/M) from sampling K private and M public clients. Under the null both sides have one standard deviation s;
the larger of the two estimates is used. A class that public data lack by chance has no variance there, and one that few
public clients happen to have has little among private ones: either estimate alone would produce false positives. The
statistic is compared with Student's t of the smaller side.

**Styles.** The limit is the k-th of M public means, itself a sample: the true share past it follows Beta(k, M + 1 - k),
whatever the cue. Where means are tied, k is one more than the number that lie strictly past it, and the same
distribution bounds the share; clients that count for less only lower it. The p-value is the probability that private
clients (beta-binomial) and noise produce at least the observed share. The test is one-sided: the question is what
serving has and training lacks. Shares near 0 vary unevenly, so intervals combine those of both sides.

All p-values of all rounds are corrected together (Holm). Limits and variances learned from public clients are
estimates: a third of the 5 % is kept for their error (`CAUTION`).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize, stats

from blindsight.inspection.bias.measures import Division, ReadShares, Styles
from blindsight.inspection.bias.section import Compared, Direction
from blindsight.inspection.contrast.counting import tail
from blindsight.inspection.finding import ALPHA, CAUTION, POWER, Finding, agreeing, holm
from blindsight.inspection.measuring import Measured
from blindsight.inspection.unknowns.section import Rate
from blindsight.wording import percent, points

__all__ = ["Tested", "compare_shares", "compare_styles", "conclude", "style_p_value"]

SERVING, TRAINING = "serving", "training"
REGION = "region of images"  # not "region", which is a field of many tables
_WIDE = float(stats.norm.isf(0.025))
_TOO_FEW = "Too few clients have examples to compare {} at this epsilon."


@dataclasses.dataclass(frozen=True)
class Tested:
    """One comparison before the correction for multiple tests."""

    subject: str
    name: str
    serving: Rate
    training: Rate
    effect: float
    error: float
    p_value: float
    epsilon: float
    is_measurable: bool
    null: float  # standard deviation of the effect under the null hypothesis
    ends: tuple[float, float] | None = None  # of the effect's interval if it is not symmetric
    limit: tuple[int, int, float, float] | None = None  # styles only: rank, clients, counted, noise


def compare_shares(
    serving: ReadShares, training: ReadShares, division: Division, names: Sequence[str], epsilon: float
) -> list[Tested]:
    """A test for every category of a division that is in `names`."""
    is_measurable = serving.is_measurable and training.is_measurable
    effects = serving.mean - training.mean
    spread = np.maximum(serving.upper, training.spread)
    draws = spread**2 * (1 / max(serving.counted, 1.0) + 1 / training.counted)
    null = np.sqrt(np.maximum(serving.noise_error**2 + draws, 1e-18))
    own = np.sqrt(serving.noise_error**2 + serving.spread**2 / max(serving.counted, 1.0))
    public = training.spread / math.sqrt(training.counted)
    errors = np.sqrt(np.maximum(own**2 + public**2, 1e-18))
    freedom = max(min(serving.counted, training.counted) - 1, 1.0)
    raw = 2 * stats.t.sf(np.abs(effects) / null, freedom)
    return [
        Tested(
            subject=division.subject,
            name=name,
            serving=_rate(serving.mean[j], own[j]) if is_measurable else Rate(0.0, 0.0, 1.0),
            training=_rate(training.mean[j], public[j]),
            effect=float(effects[j]),
            error=float(errors[j]),
            p_value=float(raw[j]) if is_measurable else 1.0,
            epsilon=epsilon,
            is_measurable=is_measurable,
            null=float(null[j]),
        )
        for j, name in enumerate(division.names)
        if name in names
    ]


def compare_styles(measured: Measured, part: Styles, subject: str) -> list[Tested]:
    """A test for each tail of every cue."""
    (counted, tails), noise = part.read(measured), measured.noise_std
    count, is_measurable = max(counted, 1.0), counted >= max(10 * noise, 2)
    tested = list[Tested]()
    for j, limit in enumerate(part.limits):
        for past, rank, word in zip(tails, limit.ranks, ("little", "much"), strict=True):
            past_it, deviation, low, high = _usual_share(rank, limit.clients)
            usual = past_it
            if rank < limit.beyond:  # tied: the limit is a value of many, and as many lie past it as were counted
                usual, low = (rank - 1) / limit.clients, _least_share(rank - 1, limit.clients)
            share = float(past[j]) / count
            own = _share_within(share, noise / count, count) if is_measurable else (0.0, 1.0)
            null = math.hypot(math.sqrt((noise / count) ** 2 + past_it / count), deviation)
            given = (rank, limit.clients, counted, noise)
            tested.append(
                Tested(
                    subject=subject,
                    name=f"{word} {limit.name}",
                    serving=Rate(*np.clip((share, *own), 0.0, 1.0).tolist()) if is_measurable else Rate(0.0, 0.0, 1.0),
                    training=Rate(usual, low, high),
                    effect=share - usual,
                    ends=_difference(share, own, usual, (low, high)),
                    error=math.hypot((own[1] - own[0]) / 2 / _WIDE, deviation),
                    p_value=style_p_value(float(past[j]), *given) if is_measurable else 1.0,
                    epsilon=measured.epsilon,
                    is_measurable=is_measurable,
                    null=null,
                    limit=given,
                )
            )
    return tested


def _share_within(share: float, noise: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share of clients that noise of this standard deviation was added to (Wilson 1927).

    It holds the shares p from which the one seen is at most 1.96 standard deviations away, those at p: near 0 a normal
    interval about the estimate is too narrow. The number of clients is noisy too.
    """
    squared, draws = _WIDE**2, _WIDE**2 / count
    first, second = 1 + draws - 4 * squared * noise**2, 2 * share + draws
    root = math.sqrt(max(second**2 - 4 * first * (share**2 - squared * noise**2), 0.0))
    return min((second - root) / (2 * first), share), max((second + root) / (2 * first), share)


def _difference(
    one: float, within: tuple[float, float], other: float, within_other: tuple[float, float]
) -> tuple[float, float]:
    """The interval of a difference from those of both sides, which need not be symmetric (Zou and Donner 2008)."""
    below = math.hypot(one - within[0], within_other[1] - other)
    above = math.hypot(within[1] - one, other - within_other[0])
    return one - other - below, one - other + above


@functools.lru_cache(maxsize=1024)
def _usual_share(rank: int, clients: int) -> tuple[float, float, float, float]:
    """The share of clients past a limit where nothing differs: mean, standard deviation and 95 % interval."""
    usual = stats.beta(rank, clients + 1 - rank)
    low, high = usual.interval(0.95)
    return float(usual.mean()), float(usual.std()), float(low), float(high)


@functools.lru_cache(maxsize=1024)
def _least_share(counted: int, clients: int) -> float:
    """The lower end of the 95 % interval of a share (Clopper and Pearson 1934)."""
    return float(stats.beta.ppf(0.025, counted, clients + 1 - counted)) if counted else 0.0


def style_p_value(seen: float, rank: int, clients: int, counted: float, noise_std: float) -> float:
    """The probability that at least `seen` (noisy) of `counted` private clients lie past a limit.

    The limit is the mean of this rank among public `clients`, counted from the outside.
    """
    # the noisy number of clients adds to the noise
    noise = noise_std * math.sqrt(1 + 4 * (rank / (clients + 1)) ** 2)
    return tail(seen, max(round(counted), 1), (rank, clients + 1 - rank), noise)


def conclude(tested: Sequence[Tested]) -> tuple[list[Finding], list[Compared]]:
    """A finding and a table row for each comparison, corrected together, most significant first."""
    p_values = np.minimum(CAUTION * holm([one.p_value for one in tested]), 1.0)
    effects = np.array([one.effect / one.error for one in tested])
    order = np.lexsort((-np.abs(effects), p_values))
    findings, compared = list[Finding](), list[Compared]()
    for j in order.tolist():
        one, p_value = tested[j], float(p_values[j])
        verdict: Direction = "alike" if p_value > ALPHA else "more" if one.effect > 0 else "less"
        smallest = _smallest(one, CAUTION * len(tested)) if one.is_measurable else 1.0
        ends = one.ends or (one.effect - _WIDE * one.error, one.effect + _WIDE * one.error)
        numbers = np.clip((one.effect, *ends), -1, 1).tolist() if one.is_measurable else (0.0, -1.0, 1.0)
        effect, low, high = numbers
        if one.is_measurable:  # shares are told between 0 and 1, and so is their difference
            effect = min(max(effect, -one.training.value), 1 - one.training.value)
            low, high = min(low, effect), max(high, effect)
        low, high = agreeing(low, high, effect=effect, is_detected=verdict != "alike")
        line = Compared(one.subject, one.name, one.serving, one.training, verdict)
        findings.append(
            Finding(
                kind="share",
                name=f"{one.subject}: {one.name}",
                statement=_words(line, low, high) if one.is_measurable else _TOO_FEW.format(one.name),
                effect=effect,
                low=low,
                high=high,
                p_value=p_value,
                verdict="not detected" if verdict == "alike" else "detected",
                epsilon=one.epsilon,
                smallest=smallest if smallest < 1 else None,
                arms=(SERVING, TRAINING),
            )
        )
        compared.append(line)
    return findings, compared


def _smallest(one: Tested, looks: float) -> float:
    """The smallest difference in share that the test detects with 90 % power."""
    power = float(stats.norm.isf(1 - POWER))
    if one.limit is None:
        return (float(stats.norm.isf(ALPHA / 2 / looks)) + power) * one.null
    counted, noise = one.limit[2:]
    share = _share_detected(*one.limit, ALPHA / looks)
    if share >= 1:
        return 1.0
    return share + power * math.sqrt((noise / counted) ** 2 + share * (1 - share) / counted) - one.training.value


@functools.lru_cache(maxsize=1024)
def _share_detected(rank: int, clients: int, counted: float, noise: float, level: float) -> float:
    """The share past a limit whose p-value is `level`; 1 if not even all clients are enough."""

    def off(seen: float) -> float:
        return math.log(max(style_p_value(seen, rank, clients, counted, noise), 1e-300)) - math.log(level)

    if off(counted) > 0:
        return 1.0
    root: Any = optimize.brentq(off, 0.0, counted, xtol=0.01)
    return float(root) / counted


def _words(line: Compared, low: float, high: float) -> str:
    interval = f"95 %: {points(low)} to {points(high)} points"
    both = f"{percent(line.serving.value)} in serving, {percent(line.training.value)} in training ({interval})"
    if line.subject == "style":
        amount, cue = line.name.split(" ", 1)
        if line.verdict == "alike":
            return f"No difference detected in the share of clients with {line.name}: {both}."
        way = "more" if amount == "much" else "less"
        return f"Clients with {way} {cue} than nearly all training clients: {both}."
    plural = _SUBJECTS.get((line.subject, line.name))
    what = plural or f"{line.subject} {line.name}"
    if line.verdict == "alike":
        return f"No difference detected in the share of {what}: {both}."
    verb = "are" if plural else "is"
    return f"{what[0].upper()}{what[1:]} {verb} {line.verdict} frequent in serving than in training: {both}."


_SUBJECTS = {
    ("likelihood", "unlikely"): "sentences that a model of public text finds unlikely",
    ("model", "unsure"): "examples that the model is unsure of",
    (REGION, "denser in serving"): "images in the region that is denser in serving",
}


def _rate(value: float, error: float) -> Rate:
    return Rate(*(float(min(max(value + way * _WIDE * error, 0.0), 1.0)) for way in (0, -1, 1)))
