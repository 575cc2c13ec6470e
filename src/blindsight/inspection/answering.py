"""`answer`: the client half, from one client's own examples to named vectors of bounded norm.

A `Round` follows from the question, public inputs and earlier releases, and is built without reading any client: every
task has a generator of them, its `Dialogue`. A simulation derives fields for many clients at once (`Round.observe`
works client by client, whatever else is in the batch) and sums on an accelerator; a site calls `answer` for each
client. Sums are over whole numbers, so both are equal bit for bit.
"""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees
from blindsight.backends import Examples
from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.inspection.measuring import Measurement, Part, client_update
from blindsight.mechanisms import GaussianMechanism
from blindsight.selection import Arms, Forming

__all__ = ["Dialogue", "Round", "answer"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Round:
    """One round as sent to every client: the fields to derive from its own examples, the arms, and the parts to send.

    `mechanisms` holds the noise of each part. All rounds of a question share what `observe` derives; `derive` adds the
    fields that only this round needs.
    """

    name: str
    schema: Schema
    observe: Callable[[Population], Population]
    arms: Arms
    parts: tuple[Part, ...]
    mechanisms: Mapping[str, GaussianMechanism]
    forming: Forming = "zero_fill"
    derive: Callable[[Population], Population] | None = None
    note: str = ""

    @functools.cached_property
    def by_name(self) -> dict[str, Any]:
        """The parts by name."""
        return {part.name: part for part in self.parts}

    @functools.cached_property
    def empty(self) -> Population:
        """What a client without examples derives: the fields and classes that every answer has."""
        return self.fields_of(self.observed(self.schema.population()))

    def observed(self, clients: Population) -> Population:
        """What `observe` derives, without warnings: one would reveal something about a client's values."""
        with _silence():
            return self.observe(clients)

    def fields_of(self, view: Population) -> Population:
        """The observed clients with the fields that only this round needs."""
        with _silence():
            return view if self.derive is None else self.derive(view)


_Read = TypeVar("_Read")

Dialogue = Generator[Round, Measurement, _Read]
"""The rounds of a question one after the other: it yields a round, is sent its release, and returns what was read.

A coordinator sends it the measurement; a site sends what was released, and a rehearsal what it simulated.
"""


@contextlib.contextmanager
def _silence() -> Generator[None]:
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        yield


def answer(
    one: Round, examples: Mapping[str, np.ndarray] | Population, *, client: str = "client"
) -> dict[str, np.ndarray]:
    """What one client sends in a round: for each part, whole numbers on the grid of its mechanism.

    `examples` are columns as the schema describes them, or a population of this one client.

    **Guarantee**: the answer depends only on this client's examples and id, and no part exceeds its bound.
    """
    own = examples if isinstance(examples, Population) else one.schema.population(examples, client=client)
    observed = one.fields_of(one.observed(own))
    sent = client_update(one.arms, one.parts)(jnp.zeros(()), Examples.of(observed.columns), jax.random.key(0))
    return {
        name: np.asarray(trees.to_grid(vector, bound, grid)) if grid else np.asarray(trees.clip(vector, bound))
        for name, vector in sent.items()
        for bound, grid in [(one.by_name[name].bound, one.mechanisms[name].grid(one.by_name[name].bound))]
    }
