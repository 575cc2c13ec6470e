"""What a primary model has already cost the clients that it is asked about.

A report depends on the model as well as on the clients. A model that was trained on the same clients is a release about
them, so what the report promises includes it: epsilons and deltas add up (basic composition), which holds however the
model was chosen. A model trained on them without privacy is refused.
"""

import dataclasses

from blindsight.accounting.assumptions import MODEL_OF_OTHERS, MODEL_UNKNOWN
from blindsight.accounting.events import Relation
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.accounting.planning import group_privacy
from blindsight.errors import PrivacyError
from blindsight.models.primary import Primary

__all__ = ["cost_of", "with_model"]


def cost_of(model: Primary | None, population: str) -> Guarantee | None:
    """The guarantee of the run that trained `model` on the clients named `population`; None if it learnt from others.

    A model that protects single examples, or nobody, is refused: no number could stand for the report and the model.
    """
    if model is None or model.learnt is None or model.learnt.guarantee is None:
        return None
    learnt = model.learnt.population
    if learnt is not None and population != learnt and not population.startswith(f"{learnt} with "):  # a planted fault
        return None
    cost = Guarantee.from_dict(model.learnt.guarantee)
    if not cost.is_private or cost.unit != "client":
        protects = f"single {cost.unit}s" if cost.is_private else "nobody"
        raise PrivacyError(
            f"{model.name} was trained on these clients and protects {protects}, so no promise to a client can include "
            f"it: name a model that is public, or one that was trained with privacy for each client"
        )
    return cost


def with_model(guarantee: Guarantee, model: Primary | None, population: str) -> Guarantee:
    """`guarantee` with what `model` cost the same clients included, or with what has to be assumed about the model."""
    if model is None or (model.learnt is not None and model.learnt.guarantee is None):
        return guarantee
    cost = cost_of(model, population)
    if cost is None:
        whom = model.learnt and model.learnt.population
        others = MODEL_OF_OTHERS.format(population=repr(whom), model=model.name)
        assumed = others if whom else MODEL_UNKNOWN
        return dataclasses.replace(guarantee, assumptions=(*guarantee.assumptions, assumed))
    said = f"{model.name}, trained on the same clients, is included with epsilon {round_up(cost.epsilon)}"
    mine, theirs, relation = guarantee, cost, guarantee.relation
    if mine.relation != theirs.relation:
        mine, theirs, relation = _replaced(mine), _replaced(theirs), Relation.REPLACE
    return dataclasses.replace(
        guarantee,
        epsilon=mine.epsilon + theirs.epsilon,
        delta=mine.delta + theirs.delta,
        relation=relation,
        accountant=f"{guarantee.accountant}, added to the model's",
        participation=f"{guarantee.participation}; {said}",
        releases=guarantee.releases + cost.releases,
        assumptions=tuple(dict.fromkeys((*guarantee.assumptions, *cost.assumptions))),
        lower=None,
    )


def _replaced(guarantee: Guarantee) -> Guarantee:
    """The same promise about exchanging a client's data, which is leaving one out and putting another in."""
    if guarantee.relation == Relation.REPLACE:
        return guarantee
    epsilon, delta = group_privacy(guarantee.epsilon, guarantee.delta, 2)
    return dataclasses.replace(guarantee, epsilon=epsilon, delta=delta, relation=Relation.REPLACE)
