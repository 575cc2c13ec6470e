"""Laws of the autoencoder: its loss in closed form, and that it learns by DP-FedAvg."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import keys
from blindsight.algorithms import dp_fedavg
from blindsight.backends import Batch, Simulation
from blindsight.codings.images_and_rows import Category, Images, Number, Rows
from blindsight.data.population import Population
from blindsight.models.vae import VAE, elbo, vae
from blindsight.privacy import Privacy

KEY = jax.random.key(0)
ROWS = Rows((Number("age", 0, 1),), (Category("job", 3),))
MODELS: dict[str, Any] = {
    "images": lambda: vae(Images(9, 7, 3), latents=4, channels=(4, 6), key=KEY),
    "images with classes": lambda: vae(Images(8, 8), classes=3, latents=4, channels=(4,), key=KEY),
    "rows": lambda: vae(ROWS, latents=2, hidden=(8,), key=KEY),
    "rows with classes": lambda: vae(ROWS, classes=2, latents=2, hidden=(8,), key=KEY),
}


def batch(model: VAE, count: int, weight: Any) -> Batch:
    generator = np.random.default_rng(1)
    fields: dict[str, Any] = {"image": generator.integers(0, 256, (count, *model.coding.shape)).astype(np.uint8)}
    if isinstance(model.coding, Rows):
        fields = {"age": generator.uniform(size=count).astype(np.float32), "job": generator.integers(0, 3, count)}
    fields["label"] = generator.integers(0, max(model.classes, 1), count)
    return Batch({f: jnp.asarray(c) for f, c in fields.items()}, jnp.asarray(weight, jnp.float32))


@pytest.mark.parametrize("name", MODELS)
def test_samples_are_written_as_examples_are_and_weightless_examples_do_not_count(name):
    model = MODELS[name]()
    some = batch(model, 4, [1, 1, 0, 0])
    changed = Batch({f: jnp.concatenate([c[:2], c[:2]]) for f, c in some.fields.items()}, some.weight)

    @eqx.filter_jit
    def both(model, batch, labels):
        return model.sample(6, key=KEY, labels=labels), elbo()(model, batch, KEY)

    made, loss = both(model, some, jnp.arange(6) % max(model.classes, 1))
    other, same = both(model, changed, jnp.ones(6, jnp.int32))
    assert float(loss) == pytest.approx(float(same), rel=1e-5)
    assert made.shape == (6, *model.coding.shape)
    assert float(jnp.abs(made).max()) <= 1
    assert np.allclose(made, other, atol=1e-5) == (not model.classes)


def test_the_loss_in_closed_form():
    """An encoder that says mean 2 and variance e^1, a decoder that says raw 0: 4 pixels of log 2 and the divergence."""
    encoder = lambda x, labels: jnp.broadcast_to(jnp.array([2.0, 1.0]), (x.shape[0], 2))  # noqa: E731
    decoder = lambda latents, labels: jnp.zeros((latents.shape[0], 2, 2, 1))  # noqa: E731
    model = VAE(encoder, decoder, Images(2, 2), 1, 0)
    divergence = (4 + math.e - 1 - 1) / 2
    for beta in (1.0, 0.5):
        found = elbo(beta)(model, batch(model, 3, [1, 1, 1]), KEY)
        assert float(found) == pytest.approx(4 * math.log(2) + beta * divergence, rel=1e-5)


@pytest.mark.slow
def test_it_learns_by_dp_fedavg():
    """Clients' columns agree; after a few rounds without noise so do those of the samples."""
    generator = np.random.default_rng(2)
    job = generator.choice([0, 2], 80)
    age = (0.2 + 0.3 * job + generator.normal(0, 0.02, 80)).astype(np.float32)
    data = Population({"age": age, "job": job.astype(np.int32)}, sizes=[20] * 4, name="agreeing")
    settings: Any = {"client_optimizer": optax.sgd(0.01), "server_optimizer": optax.sgd(1.0), "batch_size": 10}
    privacy = Privacy.none(population=4, cohort=4, rounds=60, participation="full")
    algorithm = dp_fedavg(vae(ROWS, latents=2, hidden=(16,), key=KEY), elbo(), privacy, epochs=2, **settings)
    state, backend, key = algorithm.init(), Simulation(data), keys.reproducible(3)
    for number in range(privacy.rounds):
        cohort = backend.cohort(np.arange(4), n_expected=4.0, key=key.derive("clients", number))
        state, _ = algorithm.step(state, cohort, key=key.derive("noise", number))
    found = ROWS.decode(algorithm.model(state).sample(400, key=KEY))
    assert np.mean(found["job"] == 1) < 0.02
    assert 0.2 < np.mean(found["job"] == 2) < 0.8
    for code, centre in ((0, 0.2), (2, 0.8)):
        assert abs(np.mean(found["age"][found["job"] == code]) - centre) < 0.1
