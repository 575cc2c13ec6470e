"""Findings about missing and unlisted values in words."""

from blindsight.inspection.contrast.released import ABSENT, OTHERS
from blindsight.wording import percent, span

__all__ = ["share_words"]

_STATES = {ABSENT: "missing", OTHERS: "not on the public list"}


def share_words(
    name: str, arms: tuple[str, str], mean: float, other: float, difference: tuple[float, float]
) -> str | None:
    """A detected difference as a share of all values; None for other cues.

    >>> print(share_words("region: unlisted", ("everyone", "reference"), 0.12, 0.0, (0.1, 0.14)))
    12 % of region in everyone is not on the public list (95 %: 10–14), versus 0 % in reference.
    """
    field, _, cue = name.rpartition(": ")
    if cue not in _STATES:
        return None
    share, usual, low, high = (min(max(end, 0.0), 1.0) for end in (mean, other, *(other + d for d in difference)))
    whose = f"{percent(share, within=(low, high))} of {field or 'all values'} in {arms[0]}"
    return f"{whose} is {_STATES[cue]} (95 %: {span(low, high)}), versus {percent(usual)} in {arms[1]}."
