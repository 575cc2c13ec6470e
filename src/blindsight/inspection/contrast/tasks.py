"""The questions that people ask of data they may not see, each a `contrast` of its own arms (Augenstein et al. 2020).

==========  ==================================================================================================
`sanity`    T1: do the data look right at all? Everyone, against public data of the same kind
`mistakes`  T2: what does the model get wrong? Misclassified examples against those that it classifies correctly
`slices`    T4: on whom does it fail? Clients of low accuracy against those of high; or one class against another
==========  ==================================================================================================
"""

from collections.abc import Sequence
from typing import Any

from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.task import Quarters, contrast
from blindsight.inspection.report import Report
from blindsight.selection import Arms, by_accuracy, by_correctness, coded, everything, where

__all__ = ["mistakes", "sanity", "slices"]

_MOST_SLICES = 12


def sanity(clients: Population, **settings: Any) -> Report:
    """Do the data look right at all? Compared with `reference`, public data of the same kind; as `contrast`."""
    about = {"task": "sanity", "title": "Do the data look right?"}
    about["question"] = f"What is in {clients.name}, and what differs from public data of the same kind?"
    return contrast(clients, Arms({"everyone": everything()}), **about, **settings)


def mistakes(clients: Population, *, minimum: int = 5, **settings: Any) -> Report:
    """What does the model get wrong? Of clients with at least `minimum` such examples; as `contrast`."""
    about = {"task": "mistakes", "title": "What does the model get wrong?"}
    about["question"] = "What do misclassified examples have that correctly classified ones have not?"
    return contrast(clients, by_correctness(minimum), **about, **settings)


def slices(
    clients: Population,
    *,
    by: str = "accuracy",
    values: Sequence[str] | None = None,
    low: float | None = None,
    high: float | None = None,
    reference: Population | None = None,
    **settings: Any,
) -> Report:
    """On whom does the model fail? As `contrast`.

    `by="accuracy"` compares clients with an accuracy below `low` with those of at least `high`; without the two, the
    quarters, found with privacy. `by` a field with named classes compares its first class with each other one; of a
    field of texts the public `values` to compare have to be named.
    """
    about = {"task": "slices", "title": "On whom does the model fail?"}
    about["question"] = "What do clients on which the model fails have that others have not?"
    if by != "accuracy":
        if values:
            clients = coded(clients, by, values)
            reference = reference if reference is None else coded(reference, by, values)
        names = tuple(values or clients.classes.get(by, ()))
        if not 2 <= len(names) <= _MOST_SLICES:
            raise InvalidInput(
                f"slices are made by accuracy or by a field with 2 to {_MOST_SLICES} named classes or values, and "
                f"{by!r} of {clients.name} has {len(names)}"
            )
        about |= {"title": f"What differs by {by}?", "question": f"What differs between clients by {by}?"}
        arms = Arms({name: where(by, name) for name in names})
        return contrast(clients, arms, reference=reference, **about, **settings)
    if (low is None) != (high is None):
        raise InvalidInput("give both thresholds of accuracy, low and high, or neither: they are then found privately")
    arms = Quarters() if low is None or high is None else by_accuracy(low, high)
    return contrast(clients, arms, reference=reference, **about, **settings)
