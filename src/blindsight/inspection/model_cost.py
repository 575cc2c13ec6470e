"""The privacy cost of a primary model that was trained on the inspected clients.

A report depends on the model as well as on the clients. A model that was trained on the same clients is a release about
them, so the report's guarantee includes it: epsilons and deltas add up (basic composition), which holds however the
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
    """The guarantee of the run that trained `model` on the clients named `population`; None for other clients.

    A model that protects only single examples, or nobody, is refused: no guarantee could cover the report and the
    model.
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
            f"{model.name} was trained on these clients and protects {protects}, so no guarantee per client can "
            f"include it: use a public model, or one trained with privacy for each client"
        )
    return cost


def with_model(guarantee: Guarantee, model: Primary | None, population: str) -> Guarantee:
    """`guarantee` including the cost of `model` on the same clients, or with an assumption on the model."""
    if model is None or (model.learnt is not None and model.learnt.guarantee is None):
        return guarantee
    cost = cost_of(model, population)
    if cost is None:
        whom = model.learnt and model.learnt.population
        others = MODEL_OF_OTHERS.format(population=repr(whom), model=model.name)
        assumed = others if whom else MODEL_UNKNOWN
        return dataclasses.replace(guarantee, assumptions=(*guarantee.assumptions, assumed))
    included = f"{model.name}, trained on the same clients, is included with epsilon {round_up(cost.epsilon)}"
    mine, theirs, relation = guarantee, cost, guarantee.relation
    if mine.relation != theirs.relation:
        mine, theirs, relation = _replaced(mine), _replaced(theirs), Relation.REPLACE
    return dataclasses.replace(
        guarantee,
        epsilon=mine.epsilon + theirs.epsilon,
        delta=mine.delta + theirs.delta,
        relation=relation,
        accountant=f"{guarantee.accountant}, added to the model's",
        participation=f"{guarantee.participation}; {included}",
        releases=guarantee.releases + cost.releases,
        assumptions=tuple(dict.fromkeys((*guarantee.assumptions, *cost.assumptions))),
        lower=None,
    )


def _replaced(guarantee: Guarantee) -> Guarantee:
    """The same guarantee for replacing a client's data, which is removing one client and adding another."""
    if guarantee.relation == Relation.REPLACE:
        return guarantee
    epsilon, delta = group_privacy(guarantee.epsilon, guarantee.delta, 2)
    return dataclasses.replace(guarantee, epsilon=epsilon, delta=delta, relation=Relation.REPLACE)
