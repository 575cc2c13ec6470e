"""Estimates for a fault without a name: the share of clients that have it, and the statistics that changed.

A fault on a share s of clients that moves the mean cue of each by d moves the mean over clients by m = s d and adds
v = s (1 - s) d^2 to the variance between clients. Both are in the release, so s = m^2 / (m^2 + v). A fault may also
make its clients more alike than others, which takes up to s times their variance from v; the interval covers both
extremes. Clients that the fault moves by different amounts add to v: the estimate, "about", is then too low.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.inspection.contrast.released import ArmCues
from blindsight.inspection.finding import Finding
from blindsight.wording import percent, span

__all__ = ["Unknown", "changed_statistics", "share_with_it"]

_MOST = 6  # statistics that a sentence lists
_DRAWS = 400
_SURE = 3.0  # standard deviations that a cue must have moved to say how many clients have the fault

WORDS = {
    "centroid x": ("centroid further right", "centroid further left"),
    "centroid y": ("centroid lower", "centroid higher"),
    "constant rows": ("more rows empty", "fewer rows empty"),
    "constant columns": ("more columns empty", "fewer columns empty"),
    "black": ("more black", "less black"),
    "white": ("more white", "less white"),
    "grey levels": ("more grey levels", "fewer grey levels"),
    "repeated rows": ("more rows repeated", "fewer rows repeated"),
}
"""How a cue that is higher or lower is called, where "higher" would not say it."""


@dataclasses.dataclass(frozen=True)
class Unknown:
    """An unknown fault: the statistics that changed, and the share of clients with its 95 % interval, if known."""

    changed: tuple[str, ...]
    share: float | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        who = ""
        if self.share is not None and self.low is not None and self.high is not None:
            share = percent(self.share, within=(self.low, self.high))
            who = f" in about {share} of clients (95 %: {span(self.low, self.high)})"
        what = f": {', '.join(self.changed)}" if self.changed else ""
        return f"An unknown fault{who}{what}. No candidate predicts what was released."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Unknown":
        """What `to_dict` was called on."""
        return cls(tuple(value["changed"]), *(value[end] for end in ("share", "low", "high")))


def changed_statistics(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The cues that differ, the clearest first, in words."""
    cues = [one for one in findings if one.kind == "cue" and one.verdict == "detected"]
    cues.sort(key=lambda one: -abs(one.effect) / max(one.high - one.low, 1e-12))
    return tuple(dict.fromkeys(_in_words(one.name, one.effect) for one in cues))[:_MOST]


def _in_words(name: str, effect: float) -> str:
    field, _, cue = name.rpartition(": ")
    more, less = WORDS.get(cue, (f"{cue} higher", f"{cue} lower"))
    return f"{field}: {more if effect > 0 else less}" if field and field != "edges" else more if effect > 0 else less


def share_with_it(seen: ArmCues, public: ArmCues, clients: int) -> tuple[float, float, float] | None:
    """The share of clients with a fault that moved these cues, and a 95 % interval; None if no cue moved enough.

    `seen` are the cues of all clients and `public` those of public clients without noise.
    """
    error = np.sqrt(seen.noise_error**2 + seen.sampling_error**2 + public.sampling_error**2)
    moved = seen.mean - public.mean
    clear = np.abs(moved) > _SURE * error
    if not clear.any():
        return None
    dice = np.random.default_rng(0)
    draws = lambda sizes: sizes * dice.standard_normal((_DRAWS, int(clear.sum())))  # noqa: E731
    # the spread is overstated by 1.64 deviations of its noise (see cues), which is taken back here
    noise = seen.noise_std * np.sqrt(1 + 4 * (seen.mean - 0.5) ** 2) / max(float(seen.counted), 1.0)
    excess = (seen.spread**2 - 1.64 * noise - public.spread**2)[clear]
    sampled = np.sqrt(2 / clients + 2 / max(float(public.counted), 1.0)) * seen.spread[clear] ** 2
    errors = np.hypot(noise[clear], sampled)
    shift, wide = moved[clear] + draws(error[clear]), excess + draws(errors)
    reach = np.maximum(public.mean, 1 - public.mean)[clear]  # a cue cannot move further
    least = float(np.max((np.abs(moved) - 2 * error)[clear] / reach))
    alike, equal = public.spread[clear] ** 2, np.zeros(int(clear.sum()))
    low = float(np.quantile(_share(shift, wide, errors, alike), 0.025))
    high = float(np.quantile(_share(shift, wide, errors, equal), 0.975))
    middle = float(np.mean([_share(moved[clear], excess, errors, own) for own in (alike, equal)]))
    low, middle, high = (min(max(end, least), 1.0) for end in (low, middle, high))
    return middle, min(low, middle), max(high, middle)


def _share(shift: np.ndarray, wide: np.ndarray, errors: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The share by all cues together, if the fault takes the variance `own` from the clients that have it.

    By v = m^2 (1 - s) / s, the odds are the slope of v over m^2: least squares, weighted by the errors of v.
    """
    square = shift**2 / errors**2
    share = np.full(shift.shape[:-1], 0.5)
    for _ in range(8):
        odds = (square * (wide + share[..., None] * own)).sum(axis=-1) / (square * shift**2).sum(axis=-1)
        share = 1 / (1 + np.maximum(odds, 0.0))
    return share
