"""Blindsight: `dp_fedavg` on the `Simulation` backend, the whole cohort in one compiled loop.

python -m peers.blindsight_peer --task cnn --private          (in benchmarks/)

On a GPU clients compute in bfloat16; parameters, updates and sums are float32 everywhere. Noise is drawn exactly, as by
default; `--variant float` draws it as the others do. `--variant cifg` trains the smaller
CIFG-LSTM of Hard et al. 2018 in the place of the LSTM, so its losses are not compared.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tasks

import blindsight
from blindsight import keys
from blindsight.algorithms import Algorithm, dp_fedavg
from blindsight.backends import Batch, Simulation, use_cores
from blindsight.data import Population
from blindsight.models.cifg_lstm import LanguageModel
from blindsight.models.layers import Conv, Dense, Embedding, max_pool, softmax_cross_entropy
from blindsight.models.recurrent import CIFG, LSTM
from blindsight.privacy import Privacy
from peers.contest import Run, limit_jax_threads


class Cnn(eqx.Module):
    """Two convolutions, a pool, two dense layers."""

    conv1: Conv
    conv2: Conv
    dense: Dense
    output: Dense

    def __init__(self, *, key: jax.Array) -> None:
        self.conv1 = Conv(tasks.CHANNELS, 32, 3, padding="VALID", key=key)
        self.conv2 = Conv(32, 64, 3, padding="VALID", key=key)
        self.dense = Dense(((tasks.SIDE - 4) // 2) ** 2 * 64, 128, key=key)
        self.output = Dense(128, tasks.CLASSES, key=key)

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(
            max_pool(self.conv2(jax.nn.relu(self.conv1(images))))
        )  # the same, on a quarter of the values
        return self.output(jax.nn.relu(self.dense(hidden.reshape(len(images), -1))))


def language_model(layer: type[LSTM] | type[CIFG], *, key: jax.Array) -> LanguageModel:
    """An embedding that is also the output, around one recurrent layer."""
    recurrent = layer(tasks.EMBEDDING, tasks.CELLS, tasks.EMBEDDING, key=key)
    return LanguageModel(Embedding(tasks.VOCABULARY, tasks.EMBEDDING, key=key), [recurrent])


def leaves(model: Cnn | LanguageModel) -> dict[str, jax.Array]:
    """A model's parameters by name."""
    if isinstance(model, Cnn):
        layers = {name: getattr(model, name) for name in ("conv1", "conv2", "dense", "output")}
        weights = {name: layer.weight for name, layer in layers.items()}
        return weights | {f"{name}_bias": layer.bias for name, layer in layers.items()}
    (layer,) = model.layers
    return {
        "embedding": model.embedding.table,
        "weight": layer.weight,
        "bias": layer.bias,
        "projection": layer.projection,
    }


def build(task: tasks.Task, variant: str) -> Cnn | LanguageModel:
    """The task's model with the task's first parameters; the CIFG-LSTM has its own."""
    key = jax.random.key(tasks.SEED)
    if variant == "cifg":
        return language_model(CIFG, key=key)
    model = Cnn(key=key) if task.name == "cnn" else language_model(LSTM, key=key)
    values = tasks.parameters(task)
    if task.name == "lm":
        values["weight"] = np.concatenate([values["input"].T, values["recurrent"].T])
        values["projection"] = values["projection"].T
    first = [jnp.asarray(values[name].reshape(leaf.shape)) for name, leaf in leaves(model).items()]
    return eqx.tree_at(lambda model: list(leaves(model).values()), model, first)


def read(model: Cnn | LanguageModel) -> dict[str, np.ndarray]:
    """A model's parameters, as the tasks lay them out."""
    values = {name: np.asarray(leaf) for name, leaf in leaves(model).items()}
    if isinstance(model, Cnn):
        return values | {name: values[name].reshape(3, 3, -1, values[name].shape[-1]) for name in ("conv1", "conv2")}
    entering, recurrent = np.split(values.pop("weight").T, 2, axis=1)
    return values | {"input": entering, "recurrent": recurrent, "projection": values["projection"].T}


def loss(model: Cnn | LanguageModel, batch: Batch, _: jax.Array) -> jax.Array:
    """The mean cross-entropy of a batch, per image or per word."""
    if isinstance(model, LanguageModel):
        losses = model.cross_entropy(batch["input"], batch["target"])
    else:
        losses = softmax_cross_entropy(model(batch["input"]), batch["target"])
    return batch.mean(losses.reshape(len(losses), -1).mean(axis=1))


def algorithm(task: tasks.Task, privacy: Privacy, *, variant: str = "", device: str = "cpu") -> Algorithm:
    """DP-FedAvg as the task sets it, or the same without privacy."""
    return dp_fedavg(
        build(task, variant),
        loss,
        privacy,
        client_optimizer=optax.sgd(task.client_rate),
        server_optimizer=optax.sgd(task.server_rate),
        batch_size=task.batch,
        sampler="float" if variant == "float" else "exact",
        shuffle=False,
        compute_dtype=jnp.bfloat16 if device == "gpu" else jnp.float32,
    )


def privacy_of(task: tasks.Task, cohort: int, rounds: int, *, private: bool) -> Privacy:
    """Cohorts of a fixed size, so that every round is the same work."""
    settings = {"population": task.clients, "cohort": cohort, "rounds": rounds, "participation": "fixed"}
    if private:
        return Privacy(**settings, clip=task.clip, noise_multiplier=task.noise_multiplier)
    return Privacy.none(**settings)


def population_of(task: tasks.Task) -> Population:
    """The task's clients."""
    inputs, targets = (part.reshape(-1, *part.shape[2:]) for part in tasks.population(task))
    columns = {"input": inputs if task.name == "cnn" else inputs.astype(np.int32), "target": targets.astype(np.int32)}
    return Population(columns, sizes=np.full(task.clients, task.examples), name=task.name)


def main() -> None:
    """Train, report."""
    run = Run("blindsight")
    limit_jax_threads(run.options.threads)
    use_cores(run.options.threads)
    jax.config.update("jax_default_matmul_precision", "float32" if run.options.device == "cpu" else "default")
    task, options = run.task, run.options
    backend = Simulation(population_of(task))
    privacy = privacy_of(task, run.cohort, options.rounds, private=options.private)
    trainer = algorithm(task, privacy, variant=options.variant, device=options.device)
    root = keys.reproducible(tasks.SEED)
    state = trainer.init()
    for number, clients in enumerate(run.cohorts()):
        key = root.derive("round", number)
        cohort = backend.cohort(np.array(clients), n_expected=run.cohort, key=key.derive("clients"))
        before = state
        state, _ = trainer.step(before, cohort, key=key.derive("noise"))
        # as `training.train` does: a round may still be computed while the next is prepared, no more; the last is done
        in_order = number < tasks.PARITY_ROUNDS or number == run.options.rounds - 1
        jax.block_until_ready(state if in_order else before)
        run.round_done(None if run.options.variant == "cifg" else lambda state=state: read(trainer.model(state)))
    run.report(f"blindsight {blindsight.__version__}, jax {jax.__version__}")


if __name__ == "__main__":
    main()
