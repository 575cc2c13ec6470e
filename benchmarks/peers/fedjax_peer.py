"""Google's FedJAX: its federated_averaging, which is its for_each_client compiled step by step. It has no privacy.

python -m peers.fedjax_peer --task cnn          (in benchmarks/)
"""

import importlib.metadata
import sys

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import tasks
from fedjax.algorithms import fed_avg

from peers.contest import Run, limit_jax_threads


def cnn_loss(values: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """The mean cross-entropy of a batch of images."""
    hidden = batch["x"]
    for layer in ("conv1", "conv2"):
        layout = ("NHWC", "HWIO", "NHWC")
        hidden = jax.lax.conv_general_dilated(hidden, values[layer], (1, 1), "VALID", dimension_numbers=layout)
        hidden = jax.nn.relu(hidden + values[f"{layer}_bias"])
    hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    hidden = jax.nn.relu(hidden.reshape(len(hidden), -1) @ values["dense"] + values["dense_bias"])
    return cross_entropy(hidden @ values["output"] + values["output_bias"], batch["y"])


def lm_loss(values: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """The mean cross-entropy of a batch of sentences, per word."""
    words = batch["x"]
    drives = values["embedding"][words] @ values["input"].T + values["bias"]

    def step(carry, drive):
        state, cell = carry
        enter, keep, new, leave = jnp.split(drive + state @ values["recurrent"].T, 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        state = (jax.nn.sigmoid(leave) * jnp.tanh(cell)) @ values["projection"].T
        return (state, cell), state

    start = jnp.zeros((len(words), tasks.EMBEDDING)), jnp.zeros((len(words), tasks.CELLS))
    _, states = jax.lax.scan(step, start, drives.swapaxes(0, 1))
    return cross_entropy(states.swapaxes(0, 1) @ values["embedding"].T, batch["y"])


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean over all targets."""
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def main() -> None:
    """Train, report."""
    run = Run("fedjax")
    limit_jax_threads(run.options.threads)
    if run.options.private:
        sys.exit("FedJAX has no differential privacy")
    jax.tree_map = jax.tree_util.tree_map  # the last FedJAX calls it by a name that JAX has since dropped
    jax.config.update("jax_default_matmul_precision", "float32")
    task = run.task
    loss = cnn_loss if task.name == "cnn" else lm_loss
    inputs, targets = tasks.population(task)
    targets = targets.astype(np.int32)
    algorithm = fed_avg.federated_averaging(
        grad_fn=jax.grad(lambda values, batch, _: loss(values, batch)),
        client_optimizer=fedjax.optimizers.sgd(task.client_rate),
        server_optimizer=fedjax.optimizers.sgd(task.server_rate),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch, skip_shuffle=True),
    )
    state = algorithm.init({name: jnp.asarray(value) for name, value in tasks.parameters(task).items()})
    key = jax.random.key(tasks.SEED)
    for cohort in run.cohorts():
        clients = [
            (client, fedjax.ClientDataset({"x": inputs[client], "y": targets[client]}), key) for client in cohort
        ]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        run.round_done(lambda state=state: {name: np.asarray(value) for name, value in state.params.items()})
    run.report(f"fedjax {importlib.metadata.version('fedjax')}, jax {jax.__version__}")


if __name__ == "__main__":
    main()
