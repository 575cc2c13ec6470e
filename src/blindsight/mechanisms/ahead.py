"""Randomness drawn before its rounds begin, for rounds that are computed together by one compiled program.

What a step draws depends neither on the model nor on the clients: it follows from the key of its round. So a step that
is compiled gets a `PlannedKey` in place of that key. `listed` finds out what it wants from it, and `begin` draws that
for every round from the round's own key: the same noise that the step would draw by itself, and exact where that is,
since the few coordinates that have to be decided again are decided in `Begun.decided`, before the program begins.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.errors import PrivacyError
from blindsight.keys import Key
from blindsight.mechanisms import rounded_gaussian
from blindsight.mechanisms.rounded_gaussian import WORTH_COMPILING, BegunNoise, rounded_gaussians

__all__ = ["Begun", "Drawn", "PlannedKey", "Want", "begin", "listed"]

_WORTH_A_LAUNCH = 1 << 10  # coordinates: an accelerator draws them for one round while the host draws them for many

Path = tuple[tuple[str, tuple[int, ...]], ...]


class Want(NamedTuple):
    """What a step draws from the key that it derives by `path`: noise of scale 2^bits, or without bits a JAX key."""

    path: Path
    size: int = 2
    bits: int = 0


Drawn = dict[Want, Any]
"""What a step wants, as arrays with a row for every round."""


@dataclasses.dataclass(frozen=True)
class PlannedKey:
    """Stands for the key of any round while their step is traced; `give` returns what is wanted of it.

    It has neither a `secret` nor a `stream`: nothing can be drawn from it that is not listed.
    """

    give: Callable[[Want], jax.Array]
    path: Path = ()

    def derive(self, purpose: str, *indices: int) -> "PlannedKey":
        """As `Key.derive`."""
        return PlannedKey(self.give, (*self.path, (purpose, indices)))

    def jax(self) -> Any:
        """As `Key.jax`."""
        return jax.random.wrap_key_data(self.give(Want(self.path)), impl="threefry2x32")

    def noise(self, count: int, bits: int) -> BegunNoise:
        """The rounded Gaussian noise of this key, for one release."""
        return BegunNoise(self.give(Want(self.path, count, bits)), None, bits, self.path)


def listed(step: Callable[[PlannedKey], Any]) -> list[Want]:
    """What `step` wants, without computing it; refuses one key's noise for two releases."""
    wants: list[Want] = []

    def give(want: Want) -> jax.Array:
        if want.bits and want.path in {other.path for other in wants if other.bits}:
            raise PrivacyError("a step releases two sums with the noise of one key: derive a key for each")
        wants.append(want)
        return jnp.zeros(want.size, jnp.int32 if want.bits else jnp.uint32)

    jax.eval_shape(lambda: step(PlannedKey(give)))
    return list(dict.fromkeys(wants))


class Begun(NamedTuple):
    """What rounds want, as far as it is drawn without waiting for an accelerator."""

    rows: dict[Want, Any]
    room: int

    def decided(self) -> Drawn:
        """One row for each round, and as many rows of zeros as make `room`. For one use: noise is for one release."""
        return {want: _decided(rows, self.room) for want, rows in self.rows.items()}


def begin(wants: Iterable[Want], keys: Sequence[Key], room: int) -> Begun:
    """Start to draw what the rounds with these keys want."""
    return Begun({want: _rows(want, [_derived(key, want.path) for key in keys]) for want in wants}, room)


def _derived(key: Key, path: Path) -> Key:
    for purpose, indices in path:
        key = key.derive(purpose, *indices)
    return key


def _rows(want: Want, keys: Sequence[Key]) -> Any:
    if not want.bits:
        return np.stack([key.jax_words() for key in keys])
    is_gpu = jax.default_backend() == "gpu"
    if want.size < (_WORTH_A_LAUNCH if is_gpu else WORTH_COMPILING):
        return rounded_gaussians(want.bits, want.size, [key.secret for key in keys]).astype(np.int32)
    return [rounded_gaussian.begin(want.size, want.bits, key.secret, on_device=is_gpu) for key in keys]


def _decided(rows: Any, room: int) -> Any:
    if isinstance(rows, np.ndarray):
        return _padded(rows, room)
    decided = [begun.decided() for begun in rows]
    if isinstance(decided[0], np.ndarray):
        return _padded(np.stack(decided).astype(np.int32), room)
    return _stacked([*decided, *[jnp.zeros_like(decided[0])] * (room - len(decided))])


def _padded(rows: np.ndarray, room: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((room - len(rows), *rows.shape[1:]), rows.dtype)])


@jax.jit
def _stacked(rows: list[jax.Array]) -> jax.Array:
    return jnp.stack(rows)
