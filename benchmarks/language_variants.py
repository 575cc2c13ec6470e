"""Other ways to compute a language model's round on an accelerator, beside the present one, and where its time goes.

    python benchmarks/language_variants.py [--rounds 20] [--repeats 3] [--variants NAME,...] [--output FILE.json]
    python benchmarks/language_variants.py --profile lm,cnn,paper_gan,bayesian_gan [--output FILE.json]

The task is `lm` of `tasks.py` with clip and exact noise, as Blindsight computes it in `simulation.py`. A variant that
wins on an accelerator belongs in the package; none is used by it. First every cross-entropy is compared with that of
float32: `attention` computes it without logits, as softmax(x T') T is an attention whose keys and values are the
table, by the fused attention of cuDNN (on a CPU, plainly: to check the arithmetic).

`--profile` prints the device's time in a round of each task by kernel, and how much of the clock's time that is.
"""

import argparse
import collections
import contextlib
import functools
import importlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rounds

from blindsight import keys, trees
from blindsight.algorithms import Algorithm
from blindsight.backends import Simulation
from blindsight.models import layers, recurrent
from blindsight.models.layers import softmax_cross_entropy
from blindsight.privacy import Privacy

Change = tuple[Any, str, Any]
"""A module or class, a name in it, and what takes its place."""


# --- the cross-entropy by attention


@jax.custom_batching.custom_vmap
def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """softmax(q k') v and the logarithm of the softmax's divisor in float32, of arrays (batch, rows, size)."""
    if jax.default_backend() == "gpu":
        # the public function rounds the logarithm to half precision
        fused = importlib.import_module("jax._src.cudnn.fused_attention_stablehlo").dot_product_attention
        heads = (array[:, :, None, :] for array in (query, key, value))
        mean, total = fused(*heads, scale=1.0, return_residual=True)
        return mean[:, :, 0, :], total.reshape(query.shape[:2]).astype(jnp.float32)
    logits = jnp.einsum("btd,bsd->bts", query, key, preferred_element_type=jnp.float32)
    total = jax.nn.logsumexp(logits, axis=-1)
    share = jnp.exp(logits - total[..., None]).astype(value.dtype)
    mean = jnp.einsum("bts,bsd->btd", share, value, preferred_element_type=jnp.float32)
    return mean.astype(value.dtype), total


@attend.def_vmap
def _attend_together(
    size: int, is_batched: Any, query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[bool, bool]]:
    if not (is_batched[1] or is_batched[2]):  # one table for all clients: their rows follow each other
        batch, rows, width = query.shape[1:]
        mean, total = attend(jnp.moveaxis(query, 0, 1).reshape(batch, size * rows, width), key, value)
        mean, total = mean.reshape(batch, size, rows, -1), total.reshape(batch, size, rows)
        return (jnp.moveaxis(mean, 1, 0), jnp.moveaxis(total, 1, 0)), (True, True)
    whole = [
        array if batched else jnp.broadcast_to(array, (size, *array.shape))
        for array, batched in zip((query, key, value), is_batched, strict=True)
    ]
    mean, total = attend(*(array.reshape(-1, *array.shape[2:]) for array in whole))
    return (mean.reshape(size, -1, *mean.shape[1:]), total.reshape(size, -1, total.shape[1])), (True, True)


@jax.custom_vjp
def cross_entropy(x: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(x @ table.T)[label] in float32."""
    return _forward(x, table, labels)[0]


def _forward(x: jax.Array, table: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
    flat = x.reshape(-1, x.shape[-1]).astype(table.dtype)
    mean, total = (part[0] for part in attend(flat[None], table[None], table[None]))
    chosen = jnp.take(table, labels.reshape(-1), axis=0).astype(jnp.float32)
    loss = total - jnp.sum(flat.astype(jnp.float32) * chosen, axis=1)
    return loss.reshape(labels.shape), (x, table, labels, mean, chosen, total)


def _backward(kept: Any, weight: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    """The table's gradient is an attention too: of its rows on those of x, in which each row's divisor is a summand."""
    x, table, labels, mean, chosen, total = kept
    flat, weight, width = x.reshape(-1, x.shape[-1]).astype(table.dtype), weight.reshape(-1, 1), table.shape[1]
    d_x = weight * (mean.astype(jnp.float32) - chosen)
    summands, rest = list[jax.Array](), -total
    for _ in range(3):  # as many numbers of half precision hold one of single precision
        summands.append(rest.astype(table.dtype))
        rest = rest - summands[-1].astype(jnp.float32)
    more = -(width + 3) % 8
    key = jnp.pad(jnp.concatenate([flat, jnp.stack(summands, axis=1)], axis=1), [(0, 0), (0, more)])
    ones = jnp.ones((len(table), 3), table.dtype)
    query = jnp.pad(jnp.concatenate([table, ones], axis=1), [(0, 0), (0, more)])
    moved = weight * flat.astype(jnp.float32)
    value = jnp.pad(moved.astype(table.dtype), [(0, 0), (0, 3 + more)])
    share, mass = (part[0] for part in attend(query[None], key[None], value[None]))
    d_table = jnp.exp(mass)[:, None] * share[:, :width].astype(jnp.float32)
    d_table = d_table.at[labels.reshape(-1)].add(-moved)
    return d_x.reshape(x.shape).astype(x.dtype), d_table.astype(table.dtype), None


cross_entropy.defvjp(_forward, _backward)


def of_embedding(self: layers.Embedding, x: jax.Array, labels: jax.Array) -> jax.Array:
    """In the place of `Embedding.cross_entropy`."""
    return cross_entropy(x, self.table, labels)


def of_logits(x: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    """The present way of accelerators."""
    return softmax_cross_entropy(x @ table.T, labels)


def errors(dtype: Any = jnp.bfloat16) -> dict[str, list[float]]:
    """Relative errors of the loss and both gradients, of clients with tables of their own and with one for all."""
    clients, rows, words, width = (4, 200, 3000, 96) if jax.default_backend() == "gpu" else (2, 20, 60, 16)
    random, found = np.random.default_rng(0), dict[str, list[float]]()
    x = jnp.asarray(random.normal(size=(clients, rows, width)), dtype)
    labels, weight = random.integers(0, words, (clients, rows)), random.normal(size=(clients, rows)).astype(np.float32)
    for tables in ("own", "one"):
        table = jnp.asarray(random.normal(size=(*(() if tables == "one" else (clients,)), words, width)) / 2, dtype)

        def slopes(function: Callable[..., jax.Array], tables: str = tables) -> Callable[..., Any]:
            each = jax.value_and_grad(lambda *at: jnp.sum(function(*at[:3]) * at[3]), argnums=(0, 1))
            return jax.jit(jax.vmap(each, in_axes=(0, None if tables == "one" else 0, 0, 0)))

        exact = slopes(of_logits)(x.astype(jnp.float32), table.astype(jnp.float32), labels, weight)
        for name, function in (("attention", cross_entropy), ("logits", of_logits)):
            parts = zip(
                jax.tree.leaves(slopes(function)(x, table, labels, weight)), jax.tree.leaves(exact), strict=True
            )
            found[f"{name}, {tables}"] = [
                float(jnp.linalg.norm(part.astype(jnp.float32) - right) / jnp.linalg.norm(right))
                for part, right in parts
            ]
    return found


# --- the recurrence with fewer products of its own in every step


def hoisted(unroll: int = 1, *, narrow: bool = False) -> Callable[..., Any]:
    """The recurrence with the inputs' products outside its loop; `narrow` keeps cells in half precision."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
    def recurrence(
        mix: Any, scales: Any, x: jax.Array, weight: jax.Array, bias: jax.Array, projection: jax.Array
    ) -> Any:
        return forward(mix, scales, x, weight, bias, projection)[0]

    def forward(mix: Any, scales: Any, x: jax.Array, weight: jax.Array, bias: jax.Array, projection: jax.Array) -> Any:
        inputs, scale = x.shape[-1], jnp.array(scales, jnp.float32)[None, :, None]
        entered = layers.add_bias(x @ weight[:inputs], bias)

        def advance(state: Any, now: jax.Array) -> Any:
            cell, output = state
            wide = (now + output @ weight[inputs:]).astype(jnp.float32).reshape(len(cell), -1, cell.shape[1])
            gates = scale * jnp.tanh(scale * wide) + (1 - scale)
            cell, shown = mix(cell, *jnp.moveaxis(gates, 1, 0))
            output = shown.astype(x.dtype) @ projection
            return (cell, output), (output, gates.astype(x.dtype), cell.astype(x.dtype) if narrow else cell)

        outputs = jnp.zeros((x.shape[1], projection.shape[1]), projection.dtype)
        begin = jnp.zeros((x.shape[1], len(projection)), jnp.float32), outputs
        _, (leaving, gates, after) = jax.lax.scan(advance, begin, entered, unroll=unroll)
        return leaving, (x, leaving, gates, after, weight, projection)

    def backward(mix: Any, scales: Any, kept: Any, gradient: jax.Array) -> tuple[jax.Array, ...]:
        x, leaving, gates, after, weight, projection = kept
        inputs, scale = x.shape[-1], jnp.array(scales, jnp.float32)[None, :, None]
        earlier = lambda states: jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])  # noqa: E731
        before = earlier(after)

        def retreat(state: Any, now: Any) -> Any:
            d_cell, d_output = state
            d_leaving, gates, cell = now
            d_output = d_output + d_leaving
            d_shown, gates = (d_output @ projection.T).astype(jnp.float32), gates.astype(jnp.float32)
            _, pull_back = jax.vjp(mix, cell.astype(jnp.float32), *jnp.moveaxis(gates, 1, 0))
            d_cell, *d_gates = pull_back((d_cell, d_shown))
            slope = jnp.square(scale) - jnp.square(gates - (1 - scale))
            d_entering = (jnp.stack(d_gates, axis=1) * slope).reshape(len(cell), -1).astype(x.dtype)
            return (d_cell, d_entering @ weight[inputs:].T), (d_entering, d_output)

        end = jnp.zeros(after[0].shape, jnp.float32), jnp.zeros_like(gradient[0])
        loop = jax.lax.scan(retreat, end, (gradient, gates, before), reverse=True, unroll=unroll)
        d_entering, d_outputs = loop[1]
        d_weight = jnp.einsum("tbi,tbg->ig", jnp.concatenate([x, earlier(leaving)], axis=-1), d_entering)
        d_bias = jnp.sum(d_entering.astype(jnp.float32), axis=(0, 1)).astype(x.dtype)
        _, shown = mix(before.astype(jnp.float32), *(gate.astype(jnp.float32) for gate in jnp.moveaxis(gates, 2, 0)))
        d_projection = jnp.einsum("tbc,tbo->co", shown.astype(x.dtype), d_outputs)
        return d_entering @ weight[:inputs].T, d_weight, d_bias, d_projection

    recurrence.defvjp(forward, backward)
    return recurrence


# --- the first step of all clients with the weights that they share


def shared_first(
    loss: Any, optimizer: Any, params: Any, examples: Any, key: jax.Array, batch_size: int, *settings: Any
) -> Any:
    """`local_sgd` in half precision and one epoch, whose first step reads the weights once for all clients."""
    _, shuffle, dtype = settings  # epochs
    order_key, loss_key = jax.random.split(jax.random.fold_in(key, 0))
    order = examples.order(batch_size, key=order_key if shuffle else None)

    def step(number: Any, carry: Any) -> Any:
        wide, copy, state = carry
        gradient = jax.grad(loss)(copy, examples.batch(order, number, batch_size), jax.random.fold_in(loss_key, number))
        gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradient)
        updates, state = optimizer.update(gradient, state, trees.add(params, wide))
        wide = trees.add(wide, updates)
        return wide, jax.tree.map(lambda start, by: (start + by).astype(dtype), params, wide), state

    narrow = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    first = step(0, (trees.zeros_like(params), narrow, optimizer.init(params)))
    return jax.lax.fori_loop(1, examples.batches(batch_size), step, first)[0]


ATTENTION: Change = (layers.Embedding, "cross_entropy", of_embedding)
SHARED: Change = (importlib.import_module("blindsight.algorithms.dp_fedavg"), "local_sgd", shared_first)


def loop(*settings: int, **named: bool) -> Change:
    """A change of the recurrence."""
    return recurrent, "_recurrence", hoisted(*settings, **named)


VARIANTS: dict[str, tuple[Change, ...]] = {
    "present": (),
    "attention": (ATTENTION,),
    "shared": (SHARED,),
    "hoisted": (loop(),),
    "hoisted+narrow": (loop(narrow=True),),
    "hoisted+unrolled": (loop(5),),
    "attention+hoisted+narrow": (ATTENTION, loop(narrow=True)),
    "attention+hoisted+narrow+unrolled": (ATTENTION, loop(5, narrow=True)),
    "attention+hoisted+narrow+shared": (ATTENTION, loop(narrow=True), SHARED),
}


# --- measuring


@contextlib.contextmanager
def changed(changes: tuple[Change, ...]) -> Generator[None]:
    """The package with these changes."""
    before = [(where, name, getattr(where, name)) for where, name, _ in changes]
    for where, name, value in changes:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


class Runner:
    """A task with exact noise, round after round."""

    def __init__(self, name: str, cohort: int | None = None) -> None:
        task = rounds.choices()[name]
        self.backend = Simulation(task.clients(), chunk=task.chunk)
        size = self.backend.population.size
        self.privacy: Privacy = rounds.privacy_of(task, size, cohort or task.cohort, 1000, "exact")
        self.algorithm: Algorithm = task.algorithm(self.privacy, "exact")
        self.state, self.number, self.root = self.algorithm.init(), 0, keys.root()

    def run(self, count: int) -> float:
        """The seconds of one of `count` rounds, one in flight as in training."""
        began, sampling = time.monotonic(), self.privacy.sampling
        for _ in range(count):
            key, before = self.root.derive("round", self.number), self.state
            clients = sampling.draw(key=key.derive("cohort"))  # pyright: ignore[reportCallIssue] - cohorts are fixed
            cohort = self.backend.cohort(clients, n_expected=sampling.n_expected, key=key.derive("clients"))
            self.state, _ = self.algorithm.step(before, cohort, key=key.derive("noise"))
            jax.block_until_ready(before.params)
            self.number += 1
        jax.block_until_ready(self.state.params)
        return (time.monotonic() - began) / count


def compared(names: list[str], count: int, repeats: int, cohort: int | None) -> dict[str, Any]:
    """Clients per second of each variant."""
    found: dict[str, Any] = {}
    for name in names:
        with changed(VARIANTS[name]):
            runner = Runner("lm", cohort)
            first, taken = runner.run(2), [runner.run(count) for _ in range(repeats)]
        speed = runner.privacy.cohort / statistics.median(taken)
        found[name] = {"clients_per_s": speed, "round_s": taken, "first_rounds_s": first}
        print(f"{name:36} {speed:9.1f} clients/s", flush=True)
    return found


def profiled(name: str, cohort: int | None, count: int = 5) -> dict[str, Any]:
    """Milliseconds of a round by the clock and of the device, and microseconds of its dearest kernels."""
    runner = Runner(name, cohort)
    runner.run(3)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            by_clock = runner.run(count)
        (file,) = Path(folder).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(file))
    spent: collections.Counter[str] = collections.Counter()
    for plane in profile.planes:
        for line in plane.lines if "GPU" in plane.name else ():
            for event in line.events if line.name.startswith("Stream") else ():
                about = {str(key): value for key, value in event.stats if key is not None}
                spent[f"{about.get('hlo_module')} {about.get('hlo_op')} {event.name}"] += int(event.duration_ns)
    busy = sum(spent.values()) / 1e6 / count
    print(f"{name}: {1e3 * by_clock:.2f} ms by the clock, {busy:.2f} ms of the device", flush=True)
    dearest = [(round(taken / 1e3 / count, 1), kernel[:200]) for kernel, taken in spent.most_common(40)]
    for taken, kernel in dearest[:12]:
        print(f"  {taken:9.1f} us  {kernel[:110]}")
    return {"clock_ms": 1e3 * by_clock, "device_ms": busy, "kernels_us": dearest}


def main() -> None:
    """Check, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cohort", type=int)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--profile", default="")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = rounds.machine()
    if options.profile:
        result["profiles"] = {name: profiled(name, options.cohort) for name in options.profile.split(",")}
    else:
        result["relative errors of loss, d_x, d_table"] = errors()
        for name, found in result["relative errors of loss, d_x, d_table"].items():
            print(f"{name:36} {'  '.join(f'{error:.1e}' for error in found)}")
        result["variants"] = compared(options.variants.split(","), options.rounds, options.repeats, options.cohort)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
