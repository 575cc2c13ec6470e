"""The processes of a run on several machines, which add up numbers and follow host 0.

The hosts wait for each other (`meeting`). JAX's coordinator then connects them and is shut down: otherwise it would
kill every process with a stack trace when one of them dies. Afterwards there is one operation, a sum over hosts, and a
message from host 0 is a sum to which the others add zeros. A host that dies closes its connections, and the sum fails
on all others at once; one that hangs is given up after `silence_s`.

**Not encrypted.** Sums without noise and secret keys travel between the hosts: their network must be private.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Generator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from blindsight.backends.meeting import Place, meet
from blindsight.errors import BlindsightError, HostLost, InvalidInput
from blindsight.trees import Tree

__all__ = ["Hosts", "connect"]

_AXIS = "hosts"
_SILENCE_S = 1800.0  # a host may evaluate, save or compile for minutes
_SHORTEST = 256  # words of a message; longer ones are padded to few lengths, because each is compiled


def connect(place: Place, *, wait_s: int = 300, silence_s: float = _SILENCE_S) -> "Hosts":
    """The hosts of a run, once all have arrived; call it before JAX computes anything.

    Args:
        place: Which host this is.
        wait_s: Seconds to wait for the others to arrive.
        silence_s: Seconds without an answer after which another host is given up.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", place.address)
    meet(place, bind, wait_s=wait_s)
    try:
        jax.distributed.initialize(
            place.address,
            place.count,
            place.index,
            cluster_detection_method="deactivate",
            initialization_timeout=wait_s,
            coordinator_bind_address=bind,
        )
    except (RuntimeError, ValueError) as error:
        raise BlindsightError(
            f"host {place.index} of {place.count} cannot join the others at {place.address}: start all of them within "
            f"{wait_s} s, and check address and port ({str(error).splitlines()[0]})"
        ) from error
    hosts = Hosts(place.index, place.count, silence_s)
    with _without_greeting():
        hosts.sum(np.zeros(1, np.int32))  # connects every host to every other
        _connect_own_devices()
        jax.distributed.shutdown()
    return hosts


class Hosts:
    """The connected hosts. All of them must call the same methods in the same order."""

    def __init__(self, index: int, count: int, silence_s: float = _SILENCE_S) -> None:
        self.index, self.count, self.silence_s = index, count, silence_s
        firsts = {device.process_index: device for device in reversed(jax.devices())}
        self._mesh = Mesh(np.array([firsts[host] for host in range(count)]), (_AXIS,))
        spec = PartitionSpec(_AXIS)
        self._split = NamedSharding(self._mesh, spec)
        total = jax.shard_map(
            lambda parts: jax.tree.map(lambda part: jax.lax.psum(part[0], _AXIS), parts),
            mesh=self._mesh,
            in_specs=spec,
            out_specs=PartitionSpec(),
        )
        self._total = jax.jit(total)

    @property
    def is_writer(self) -> bool:
        """Whether this is host 0, which draws, pays, adds noise, writes and prints."""
        return self.index == 0

    def sum(self, tree: Tree) -> Tree:
        """The sum of every host's `tree`, leaf by leaf: exact for whole numbers, and the same on all hosts."""
        here = self._mesh.devices.flat[self.index]

        def placed(leaf: Any) -> jax.Array:
            part = jax.device_put(leaf[None], here)
            return jax.make_array_from_single_device_arrays((self.count, *part.shape[1:]), self._split, [part])

        parts = jax.block_until_ready(jax.tree.map(placed, tree))  # an error up to here is this host's own
        with self._not_for_ever():
            try:
                totals = jax.block_until_ready(self._total(parts))
            except (jax.errors.JaxRuntimeError, ValueError) as error:  # after the start, or at once
                raise HostLost(f"host {self._others()} was lost: {_WHAT_NOW}") from error
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), totals)

    def tell(self, message: bytes = b"") -> bytes:
        """Host 0's message, on every host; the others pass none."""
        length = int(self.sum(np.array([len(message) if self.is_writer else 0], np.int32))[0])
        words = np.zeros(_padded(-(-length // 4)), np.uint32)
        if self.is_writer:
            words.view(np.uint8)[:length] = np.frombuffer(message, np.uint8)
        return np.asarray(self.sum(words)).tobytes()[:length]

    def agree(self, digest: str, what: str) -> None:
        """Refuse to go on unless all hosts have the same hexadecimal `digest` of `what`."""
        table = np.zeros((self.count, len(digest) // 2), np.int32)
        table[self.index] = np.frombuffer(bytes.fromhex(digest), np.uint8)
        table = np.asarray(self.sum(table))
        others = [str(host) for host in range(self.count) if (table[host] != table[0]).any()]
        if others:
            raise InvalidInput(f"host {', '.join(others)} has other {what} than host 0: give all hosts the same")

    def _others(self) -> str:
        return " or ".join(str(host) for host in range(self.count) if host != self.index)

    @contextlib.contextmanager
    def _not_for_ever(self) -> Generator[None]:
        """End this process if the block takes longer than `silence_s`: a collective cannot be interrupted."""

        def give_up() -> None:
            sys.stderr.write(f"error: host {self._others()} has not answered for {self.silence_s:g} s: {_WHAT_NOW}\n")
            sys.stderr.flush()
            os._exit(HostLost.exit_code)

        timer = threading.Timer(self.silence_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _connect_own_devices() -> None:
    """Connect the devices of this host, which sum through the same library: later there is no coordinator to ask."""
    mesh = Mesh(np.array(jax.local_devices()), (_AXIS,))
    total = jax.shard_map(
        lambda part: jax.lax.psum(part, _AXIS), mesh=mesh, in_specs=PartitionSpec(_AXIS), out_specs=PartitionSpec()
    )
    jax.block_until_ready(jax.jit(total)(np.zeros(mesh.size, np.int32)))


_WHAT_NOW = "start the same command on every host again to resume"


def _padded(words: int) -> int:
    step = max(_SHORTEST, 1 << max(words.bit_length() - 3, 0))
    return max(-(-words // step), 1) * step


@contextlib.contextmanager
def _without_greeting() -> Generator[None]:
    """Gloo says on stdout that it is connected, where a command may be writing JSON."""
    sys.stdout.flush()
    with open(os.devnull, "wb") as nowhere, contextlib.ExitStack() as stack:
        kept = os.dup(1)
        stack.callback(os.close, kept)
        stack.callback(os.dup2, kept, 1)
        os.dup2(nowhere.fileno(), 1)
        yield
