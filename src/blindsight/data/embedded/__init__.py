"""Populations that ship with Blindsight, so that the main jobs run without a download."""

import difflib
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from blindsight.data import faults
from blindsight.data.embedded.digits import digits
from blindsight.data.embedded.forum import forum
from blindsight.data.embedded.handwriting import handwriting
from blindsight.data.embedded.tabular import tabular
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

__all__ = ["POPULATIONS", "embedded", "make_embedded"]

POPULATIONS: dict[str, Callable[..., Population]] = {
    "handwriting": handwriting,
    "forum": forum,
    "tabular": tabular,
    "digits": digits,
}
"""Every embedded population by name; the first line of each docstring describes it."""


def embedded(
    name: str,
    *,
    clients: int | None = None,
    seed: int = 0,
    fault: str | None = None,
    glyphs: str | None = None,
    examples: tuple[int, int] | None = None,
) -> Population:
    """The embedded population of that name, with a planted fault if one is given (see `faults`).

    Client i depends only on the seed, i and the options, not on the number of clients. Examples are generated when
    first read.

    Args:
        name: "handwriting", "forum", "tabular" or "digits".
        clients: Number of clients; the default depends on the population.
        seed: Seed of the clients; another seed generates other clients.
        fault: Fault to plant, such as "invert:0.5".
        glyphs: "digits" (default) or "all" 62 digits and letters, for handwriting.
        examples: Minimum and maximum number of examples per client, for all but digits.

    >>> embedded("handwriting", clients=3400)
    <GeneratedPopulation 'handwriting': 3,400 clients, ... examples>
    """
    given = {"clients": clients, "glyphs": glyphs, "examples": examples}
    options = {option: value for option, value in given.items() if value is not None}
    return make_embedded(name, {**options, "seed": seed, "fault": fault})


def make_embedded(name: str, options: Mapping[str, Any]) -> Population:
    """As `embedded`, with unchecked options from a file or a command line."""
    if name not in POPULATIONS:
        near = difflib.get_close_matches(name, POPULATIONS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(POPULATIONS)}"
        raise InvalidInput(f"there is no embedded population {name!r}: {hint}")
    make = POPULATIONS[name]
    supported = [option for option in inspect.signature(make).parameters if option not in ("clients", "seed")]
    for option in options:
        if option not in (*supported, "clients", "seed", "fault"):
            choice = f"it has {', '.join(supported)}" if supported else "it has none"
            raise InvalidInput(f"{name} has no option {option!r}: {choice} besides clients, seed and fault")
    making = {option: value for option, value in options.items() if option in supported}
    if (clients := options.get("clients")) is not None:
        making["clients"] = _number_of(clients)
    fault, seed = options.get("fault"), options.get("seed", 0)
    population = make(seed=seed, **making)
    return population if fault is None else faults.apply(population, fault, seed=seed)


def _number_of(clients: Any) -> int:
    try:
        number = operator.index(clients)
    except TypeError:
        number = 0
    if number < 1:
        raise InvalidInput(f"clients must be a whole number of at least 1, got {clients!r}")
    return number
