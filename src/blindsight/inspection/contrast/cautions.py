"""Warnings about conclusions that a reference cannot support.

A small reference cannot tell a rare fault from chance: if none of M public clients do something, as many as 3 in M
others may (the rule of three). A model that was trained on the reference fails on fewer of its clients than on anybody
else's, which looks like drift.
"""

from collections.abc import Mapping

from blindsight.inspection.contrast.counting import Background
from blindsight.inspection.contrast.released import ArmCues
from blindsight.models.primary import Learnt, Primary
from blindsight.selection import Arms
from blindsight.selection.criteria import Accuracy, Classified, Criterion
from blindsight.wording import counted, percent

__all__ = ["LEAST", "overconfidence", "overfitting", "resolution"]

LEAST = 20
"""Minimum number of public clients for testing cues: resampling fewer shows too little of what is usual."""

_RARE = 0.05  # a share that a reference should tell from chance
_LEVEL = 0.05  # of the rule of three
_WHY = (
    "Either clients differ, or the model was trained on the reference; these data cannot tell which. If it was, ask "
    "again with public data that the model has not seen."
)
_CLEAR = 0.01  # p-value from which a model counts as better on public clients


def resolution(public: int) -> tuple[str, ...]:
    """A caution on the share of clients that so few public ones cannot tell from chance; empty if they can tell 5 %.

    >>> resolution(40)
    ('40 public clients cannot tell 7.2 % of clients from chance: 59 or more could tell 5 %.',)
    """
    share = 1 - _LEVEL ** (1 / max(public, 1))
    if share <= _RARE:
        return ()
    needed = next(many for many in range(public, 1000) if 1 - _LEVEL ** (1 / many) <= _RARE) if public else 59
    limit = f"cannot tell {percent(share)} of clients from chance: {needed} or more could tell 5 %."
    few = "" if public >= LEAST else f" Cues are not tested against fewer than {LEAST}."
    return (f"{counted(public, 'public client')} {limit}{few}",)


def overfitting(
    seen: Mapping[str, ArmCues],
    arms: Arms,
    members: Mapping[str, int],
    *,
    clients: int,
    public_clients: int,
    model: Primary | None,
) -> tuple[str, ...]:
    """A warning if the model fails on far fewer public clients: it may have been trained on them.

    Args:
        seen: The released arms.
        arms: The arms; only those by the model's accuracy or correctness say how well it does.
        members: Number of public clients in each arm.
        clients: Number of clients.
        public_clients: Number of public clients.
        model: The primary model; the small ones of the command line are trained on other public clients.
    """
    first = next(iter(arms))
    words = _failing(arms[first])
    if not words or not _may_know(model) or not seen[first].is_measurable:
        return ()
    usual = Background(members[first], public_clients, clients, seen[first].noise_std)
    if usual.p_more(float(seen[first].counted)) > _CLEAR:
        return ()
    share, public = percent(seen[first].share(clients)[0]), percent(members[first] / max(public_clients, 1))
    return (
        f"The model does far better on the reference: {share} of clients, but {public} of public ones, have {words}. "
        f"{_WHY}",
    )


def overconfidence(model: Primary | None, *, is_unsure: bool) -> tuple[str, ...]:
    """A warning if the model is unsure more often on clients: it may have been trained on the reference."""
    if not is_unsure or not _may_know(model):
        return ()
    return (f"The model is more confident on the reference than on clients. {_WHY}",)


def _may_know(model: Primary | None) -> bool:
    """Whether the model may have been trained on the reference: those of the command line never are."""
    return model is not None and model.learnt != Learnt()


def _failing(criterion: Criterion) -> str:
    """What clients have on which the model fails; empty for other criteria."""
    if isinstance(criterion, Accuracy) and criterion.least <= 0:
        return f"an accuracy below {criterion.below:.4g}"
    if isinstance(criterion, Classified) and not criterion.correctly:
        return f"{criterion.minimum} or more misclassified examples"
    return ""
