"""Which protocols this version speaks, and how parties of several versions agree on one.

A protocol is everything that both sides must interpret alike: the form of jobs and messages, and what a site sums for a
question, to the last bit. Whoever changes one of these adds a number to `SPOKEN`, and keeps the old one only if this
version still does what it stood for. Releases that change nothing of this work together, whatever their versions.

A site checks the number itself: what it sums, pays and protects follows from its own code alone.
"""

from collections.abc import Collection, Iterable

__all__ = ["SPOKEN", "agreed"]

SPOKEN = (2,)
"""Numbers of the protocols that this version speaks."""


def agreed(spoken: Collection[int], sites: Iterable[Collection[object]]) -> int:
    """Of the protocols `spoken` here, the one that most sites speak, given what each speaks; of several, the newest."""
    said = list(sites)
    return max(spoken, key=lambda number: (sum(number in one for one in said), number))
