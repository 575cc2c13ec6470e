"""Populations that are part of Blindsight: the main jobs run without a download."""

import difflib
import inspect
import operator
from collections.abc import Callable
from typing import Any

from blindsight.data import faults
from blindsight.data.embedded.digits import digits
from blindsight.data.embedded.forum import forum
from blindsight.data.embedded.handwriting import handwriting
from blindsight.data.embedded.tabular import tabular
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

__all__ = ["POPULATIONS", "embedded"]

POPULATIONS: dict[str, Callable[..., Population]] = {
    "handwriting": handwriting,
    "forum": forum,
    "tabular": tabular,
    "digits": digits,
}
"""Every embedded population by name; the first line of each docstring says what it holds."""


def embedded(
    name: str, *, clients: int | None = None, seed: int = 0, fault: str | None = None, **options: Any
) -> Population:
    """The embedded population of that name, with a fault planted in it if one is named (see `faults`).

    Client i depends on the seed, i and the options alone, not on how many others there are, and examples are drawn when
    they are asked for.

    >>> embedded("handwriting", clients=3400)
    <GeneratedPopulation 'handwriting': 3,400 clients, ... examples>
    """
    if name not in POPULATIONS:
        near = difflib.get_close_matches(name, POPULATIONS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(POPULATIONS)}"
        raise InvalidInput(f"there is no embedded population {name!r}: {hint}")
    make = POPULATIONS[name]
    known = [option for option in inspect.signature(make).parameters if option not in ("clients", "seed")]
    for option in options:
        if option not in known:
            choice = f"it has {', '.join(known)}" if known else "it has none"
            raise InvalidInput(f"{name} has no option {option!r}: {choice} besides clients, seed and fault")
    if clients is not None:
        options["clients"] = _number_of(clients)
    population = make(seed=seed, **options)
    return population if fault is None else faults.apply(population, fault, seed=seed)


def _number_of(clients: Any) -> int:
    try:
        number = operator.index(clients)
    except TypeError:
        number = 0
    if number < 1:
        raise InvalidInput(f"clients must be a whole number of at least 1, got {clients!r}")
    return number
