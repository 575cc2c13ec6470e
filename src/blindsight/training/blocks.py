"""Rounds computed together: a block of rounds is one compiled loop, for which cohorts and noise are drawn before.

A small round takes less time than the dozen programs that are started for it, one after the other. For a block the host
starts one, and draws the next blocks while it runs.

**The same releases.** Every round has its own cohort, client keys and noise, derived as if it were computed by itself.
One program, which is told how many rounds to compute, does all blocks, short or long: what a round releases does not
depend on where its block began, so a run may stop and resume anywhere.

**Noise** is drawn, and decided to the last coordinate, before the block begins, and only kept in memory. A killed block
leaves nothing behind.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from blindsight import trees
from blindsight.algorithms import Algorithm, PureStep, State
from blindsight.backends import Backend, Simulation, placement
from blindsight.backends.compiled_sum import COUNTS
from blindsight.backends.simulation import SimulatedCohort
from blindsight.backends.together import Shared, Together, together
from blindsight.errors import PrivacyError
from blindsight.keys import Key
from blindsight.mechanisms.ahead import Begun, Drawn, PlannedKey, Want, begin, listed
from blindsight.participation import Participation

__all__ = ["Block", "Blocks", "blocks_for", "check_release"]

_MOST = 64
_FEWEST_ON_CPU = 8  # rounds: for fewer, the program is not worth compiling
_SMALL = 1 << 20  # on a CPU: numbers in the state times clients of a round
_NOISE_BYTES = 1 << 28
_SHORT_S, _LONG_S = 0.5, 2.0


def check_release(released: Any, algorithm: Algorithm) -> None:
    """Refuse the event of a step that releases anything else than was paid for."""
    if released != algorithm.event:
        raise PrivacyError(f"a round released {released} but {algorithm.event} was paid for: a step must release that")


@dataclasses.dataclass
class Block:
    """Successive rounds: their cohorts, and all that their steps draw."""

    cohorts: Sequence[SimulatedCohort]
    begun: Begun
    is_used: bool = False

    @functools.cached_property
    def drawn(self) -> Drawn:
        """All noise, decided to the last coordinate."""
        return self.begun.decided()

    def use(self) -> None:
        """For one computation: noise that is added to two sums would cancel in their difference."""
        if self.is_used:
            raise PrivacyError("this block has been computed with another state: draw it again, with other keys")
        self.is_used = True


class RoundMetrics(NamedTuple):
    """What is told of every round of a block: its clip, and counts of clients."""

    clip: Any
    counts: dict[str, Any]

    def of(self, number: int) -> "RoundMetrics":
        """That of one round."""
        return RoundMetrics(self.clip[number], {name: counts[number] for name, counts in self.counts.items()})


class Blocks:
    """The rounds of a run, up to `room` of them together."""

    def __init__(self, algorithm: Algorithm, backend: Simulation, sampling: Participation, room: int) -> None:
        self.algorithm, self.backend, self.room = algorithm, backend, room
        self.shared = Shared.of(backend, sampling)
        self.width = 1  # rounds of the next block
        self._wants: Sequence[Want] | None = None

    def draw(self, cohorts: Sequence[SimulatedCohort], keys: Sequence[Key]) -> Block:
        """The rounds with these cohorts, and with these keys for their steps."""
        if self._wants is None:
            self._wants = self._listed(together(cohorts[:1], self.shared, self.room))
        return Block(cohorts, begin(self._wants, keys, self.room))

    def compute(self, state: State, block: Block) -> tuple[State, list[RoundMetrics]]:
        """The state after the rounds of a block, and what is told of each."""
        block.use()
        began, count = time.monotonic(), len(block.cohorts)
        state = self._placed(state)
        while True:
            try:
                cohorts = together(block.cohorts, self.shared, self.room)
                after, told = _rounds(self.algorithm, self.shared, state, cohorts, block.drawn, count)
                told = jax.tree.map(np.asarray, told)  # waits
                break
            except jax.errors.JaxRuntimeError as error:
                if not self.backend.halve_chunk(error):
                    raise
        self._pace(time.monotonic() - began)
        return placement.on_first(after), [told.of(number) for number in range(count)]

    def _listed(self, cohorts: Together) -> list[Want]:
        state = self._placed(self.algorithm.init())
        return listed(lambda key: _step(self.algorithm, self.shared, state, cohorts, key, 0))

    def _placed(self, state: State) -> State:
        everywhere = NamedSharding(self.backend.mesh, PartitionSpec())
        return jax.device_put(jax.tree.map(jnp.asarray, state), everywhere)

    def _pace(self, seconds: float) -> None:
        """Long blocks would delay checkpoints and the progress bar; their length changes no result."""
        if seconds < _SHORT_S:
            self.width = min(2 * self.width, self.room)
        elif seconds > _LONG_S:
            self.width = max(1, self.width // 2)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _rounds(
    algorithm: Algorithm, shared: Shared, state: State, cohorts: Together, drawn: Drawn, count: Any
) -> tuple[State, RoundMetrics]:
    """The first `count` rounds of a block, one after the other."""
    room = len(cohorts.keys)

    def on_round(number: Any, carry: tuple[State, RoundMetrics]) -> tuple[State, RoundMetrics]:
        state, told = carry
        key = PlannedKey(lambda want: drawn[want][number])
        state, one = _step(algorithm, shared, state, cohorts, key, number)
        return state, jax.tree.map(lambda rows, row: rows.at[number].set(row), told, one)

    told = RoundMetrics(jnp.zeros(room, jnp.float32), {name: jnp.zeros(room, jnp.int32) for name in COUNTS})
    return jax.lax.fori_loop(0, count, on_round, (state, told))


def _step(
    algorithm: Algorithm, shared: Shared, state: State, cohorts: Together, key: PlannedKey, number: Any
) -> tuple[State, RoundMetrics]:
    cohort = cohorts.cohort(number, shared)
    state, event = algorithm.step(state, cohort, key=key)
    check_release(event, algorithm)
    return state, RoundMetrics(state.clip, cohort.counts)


def blocks_for(algorithm: Algorithm, backend: Backend, sampling: Participation, most: int) -> Blocks | None:
    """What computes up to `most` rounds together; None where every round is computed by itself.

    Rounds together need a step that JAX can trace, simulated clients whose examples are in memory, and noise that is
    drawn here. On a CPU only small rounds gain: in larger ones nothing waits for the host, and every core would do the
    server's work.
    """
    is_drawn_here = not getattr(algorithm.event, "sites", 0)
    if not (isinstance(algorithm.step, PureStep) and is_drawn_here and type(backend) is Simulation):
        return None
    state, most = algorithm.init(), min(most, _MOST)
    if backend.is_cpu:
        is_worth_it = most >= _FEWEST_ON_CPU and trees.size(state) * sampling.n_expected <= _SMALL
    else:
        most = min(most, _NOISE_BYTES // (4 * max(trees.size(state.params), 1)))
        is_worth_it = most > 1
    return Blocks(algorithm, backend, sampling, most) if is_worth_it and backend.is_resident else None
