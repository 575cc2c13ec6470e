"""Laws of DP-FedAvg: its limits, its noise, its clip, and what it says it releases."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from blindsight import keys, trees
from blindsight.accounting.accountants import epsilon
from blindsight.accounting.events import Composed, Gaussian, Repeated
from blindsight.algorithms import AdaptiveClip, dp_fedavg
from blindsight.backends import Debug, Simulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, RelationMismatch
from blindsight.mechanisms import GaussianMechanism
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.privacy import Privacy

SIZES = [4, 1, 7, 0, 5]
KEY = keys.reproducible(5)


class Linear(eqx.Module):
    weight: jax.Array
    bias: jax.Array

    def __call__(self, x):
        return x @ self.weight + jnp.broadcast_to(self.bias, (x.shape[0],))


def squared(model, batch, key):
    del key
    return batch.mean(jnp.square(model(batch["x"]) - batch["y"]))


def model() -> Linear:
    return Linear(jnp.array([0.3, -0.2, 0.1]), jnp.zeros(1))


def population(sizes=SIZES) -> Population:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(sum(sizes), 3)).astype(np.float32)
    return Population({"x": x, "y": (x @ [1.0, 2.0, -1.0]).astype(np.float32)}, sizes=sizes, name="linear")


def fedavg(privacy, *, loss=squared, **settings):
    defaults: Any = {"client_optimizer": optax.sgd(0.05), "server_optimizer": optax.sgd(1.0), "batch_size": 2}
    return dp_fedavg(model(), loss, privacy, **{**defaults, **settings})


def run(algorithm, backend, rounds=1, clients: Any = range(5), n_expected=5.0, key=KEY):
    state = algorithm.init()
    for number in range(rounds):
        cohort = backend.cohort(np.array(clients), n_expected=n_expected, key=key.derive("clients", number))
        state, event = algorithm.step(state, cohort, key=key.derive("noise", number))
        assert event == algorithm.event
    return state


def not_private(rounds=1):
    return Privacy.none(population=5, cohort=5, rounds=rounds, participation="full")


def by_hand(data: Population, batch_size: int, epochs: int, rate: float = 0.05) -> dict[str, np.ndarray]:
    """Plain federated averaging in numpy, examples in order."""
    total = {"weight": np.zeros(3), "bias": np.zeros(1)}
    for client in range(data.size):
        weight, bias = np.array([0.3, -0.2, 0.1]), np.zeros(1)
        x, y = (np.asarray(data[client][field], np.float64) for field in ("x", "y"))
        for _ in range(epochs):
            for first in range(0, len(y), batch_size):
                xs, ys = x[first : first + batch_size], y[first : first + batch_size]
                error = xs @ weight + bias - ys
                weight, bias = weight - rate * 2 * xs.T @ error / len(ys), bias - rate * 2 * error.mean(keepdims=True)
        total["weight"] += weight - [0.3, -0.2, 0.1]
        total["bias"] += bias
    return {"weight": np.array([0.3, -0.2, 0.1]) + total["weight"] / data.size, "bias": total["bias"] / data.size}


@pytest.mark.parametrize(("batch_size", "epochs"), [(2, 1), (3, 2), (100, 1)])
@pytest.mark.parametrize("chunk", [1, 2])
def test_without_clip_and_noise_it_is_federated_averaging(batch_size, epochs, chunk):
    algorithm = fedavg(not_private(), batch_size=batch_size, epochs=epochs, shuffle=False)
    state = run(algorithm, Simulation(population(), chunk=chunk))
    expected = by_hand(population(), batch_size, epochs)
    np.testing.assert_allclose(state.params.weight, expected["weight"], rtol=1e-5)
    np.testing.assert_allclose(state.params.bias, expected["bias"], rtol=1e-4, atol=1e-7)


def test_one_example_for_each_client_is_dp_sgd():
    """One step of rate 1 on one example sends minus its gradient, which is clipped: the sum of DP-SGD."""
    data = population([1] * 6)
    privacy = Privacy(population=6, cohort=6, rounds=1, noise_multiplier=2.0**-12, clip=0.7, participation="full")
    algorithm = fedavg(privacy, batch_size=1, client_optimizer=optax.sgd(1.0), sampler="float")
    state = run(algorithm, Simulation(data), clients=range(6), n_expected=6.0)
    total = np.zeros(4)
    for client in range(6):
        x, y = data[client]["x"][0].astype(np.float64), float(data[client]["y"][0])
        error = x @ [0.3, -0.2, 0.1] - y
        gradient = 2 * error * np.append(x, 1.0)
        total += gradient * min(1.0, 0.7 / np.linalg.norm(gradient))
    expected = np.array([0.3, -0.2, 0.1, 0.0]) - total / 6
    np.testing.assert_allclose(np.append(state.params.weight, state.params.bias), expected, atol=1e-3)


@pytest.mark.parametrize("sampler", ["exact", "float"])
@pytest.mark.parametrize("adaptive", [None, AdaptiveClip(learning_rate=1e-6)])
def test_noise_reaches_the_parameters_with_the_variance_that_theory_says(sampler, adaptive):
    """A loss without gradient leaves nothing but noise: T rounds add T (z S / n)^2 to every parameter."""
    rounds, noise, clip, expected_cohort = 20, 1.5, 0.4, 40
    privacy = Privacy(population=100, cohort=expected_cohort, rounds=rounds, noise_multiplier=noise, clip=clip)
    wide = Linear(jnp.zeros(500), jnp.zeros(1))
    flat = lambda model, batch, key: 0.0 * batch.mean(model(batch["x"]))  # noqa: E731
    data = Population({"x": np.ones((3, 500), np.float32)}, sizes=[1, 1, 1], name="flat")
    optimizers: Any = {"client_optimizer": optax.sgd(0.1), "server_optimizer": optax.sgd(1.0)}
    algorithm = dp_fedavg(wide, flat, privacy, **optimizers, batch_size=1, adaptive_clip=adaptive, sampler=sampler)
    state = run(algorithm, Simulation(data), rounds, clients=[0, 2], n_expected=expected_cohort, key=keys.root())
    if adaptive is not None:  # the updates get a little more noise, because the count gets some
        noise = (noise**-2 - (2 * expected_cohort / 20) ** -2) ** -0.5
    std = np.sqrt(rounds) * noise * clip / expected_cohort
    statistic = float(jnp.sum(jnp.square(state.params.weight)))
    inside = lambda scale: 1e-4 < stats.chi2.cdf(statistic / (std * scale) ** 2, 500) < 1 - 1e-4  # noqa: E731
    assert inside(1.0)
    assert not inside(2 / 3)
    assert not inside(3 / 2)


def test_the_mean_is_over_the_expected_cohort_whoever_came():
    algorithm = fedavg(not_private(), shuffle=False)
    half, whole = (run(algorithm, Simulation(population()), clients=[2], n_expected=n) for n in (10.0, 5.0))
    moved = lambda state: np.asarray(state.params.weight) - [0.3, -0.2, 0.1]  # noqa: E731
    np.testing.assert_allclose(2 * moved(half), moved(whole), rtol=1e-4)


@pytest.mark.parametrize("sampler", ["exact", "float"])
def test_a_round_moves_by_no_more_than_the_clip_whatever_the_clients_do(sampler):
    """The loss explodes; with next to no noise the mean of clipped updates is at most clip * clients / expected."""
    privacy = Privacy(population=5, cohort=5, rounds=1, noise_multiplier=2.0**-12, clip=0.3, participation="full")
    explode = lambda model, batch, key: 1e30 * squared(model, batch, key)  # noqa: E731
    state = run(fedavg(privacy, loss=explode, sampler=sampler), Simulation(population()))
    moved = np.append(np.asarray(state.params.weight) - [0.3, -0.2, 0.1], state.params.bias)
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= 0.3 * (1 + 1e-2)


def test_the_update_is_clipped_as_a_whole_and_not_leaf_by_leaf():
    privacy = Privacy(population=1, cohort=1, rounds=1, noise_multiplier=2.0**-12, clip=1.0, participation="full")
    data = population([1])
    steep = lambda model, batch, key: -1e3 * (jnp.sum(model.weight) + jnp.sum(model.bias))  # noqa: E731
    state = run(fedavg(privacy, loss=steep, sampler="float"), Simulation(data), clients=[0], n_expected=1.0)
    moved = np.append(np.asarray(state.params.weight) - [0.3, -0.2, 0.1], state.params.bias)
    np.testing.assert_allclose(moved, np.full(4, 0.5), atol=2e-3)


@pytest.mark.parametrize("sampler", ["exact", "float"])
@pytest.mark.parametrize("moved", [0.25, 1.0, 4.0])
def test_wherever_the_clip_stands_one_client_moves_the_sums_by_no_more_than_noise_is_made_for(
    monkeypatch, moved, sampler
):
    """The noise has the standard deviation z S that the event says, for the S that a client really reaches."""
    privacy = Privacy(population=5, cohort=5, rounds=1, noise_multiplier=0.5, clip=0.3, participation="full")
    explode = lambda model, batch, key: 1e6 * squared(model, batch, key)  # noqa: E731
    algorithm = fedavg(privacy, loss=explode, adaptive_clip=AdaptiveClip(count_std=4.0), sampler=sampler)
    given, release = list[Any](), GaussianMechanism.release

    def spied(self, total, *, key, **more):
        found = release(self, total, key=key, **more)
        given.append((self, total, found.noise_std * total.n_expected))
        return found

    monkeypatch.setattr(GaussianMechanism, "release", spied)
    for clients in ([0, 1, 4], [0, 1, 2, 4]):
        state = algorithm.init()._replace(clip=jnp.float32(moved * privacy.clip))
        cohort = Simulation(population()).cohort(np.array(clients), n_expected=5.0, key=KEY)
        _, event = algorithm.step(state, cohort, key=KEY)
    precision = 0.0
    for (mechanism, without, noise_std), (_, total, _) in zip(given[:2], given[2:], strict=True):
        parts = zip(*(jax.tree.leaves(one.value) for one in (total, without)), strict=True)
        change = np.concatenate([(np.asarray(a, np.float64) - np.asarray(b, np.float64)).ravel() for a, b in parts])
        reach = np.linalg.norm(change) * (total.grid or 1.0)
        assert reach <= noise_std / mechanism.noise_multiplier * (1 + 1e-6)
        precision += (reach / noise_std) ** 2
    assert precision**-0.5 == pytest.approx(joint(event).noise_multiplier, rel=1e-3)  # and the client does reach it


@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_the_adaptive_clip_settles_at_the_quantile_of_the_lengths(quantile):
    """Client i always sends an update of length i / 10; the clip has to find the quantile of 0.1, ..., 2.0."""
    data = Population({"x": np.arange(1, 21, dtype=np.float32)[:, None] / 10}, sizes=[1] * 20, name="lengths")
    slope = lambda model, batch, key: -jnp.sum(model * batch["x"][0])  # noqa: E731
    privacy = Privacy(population=20, cohort=20, rounds=80, noise_multiplier=0.05, clip=0.03, participation="full")
    algorithm = dp_fedavg(
        jnp.zeros(1), slope, privacy, client_optimizer=optax.sgd(1.0), server_optimizer=optax.sgd(0.0), batch_size=1,
        adaptive_clip=AdaptiveClip(quantile, learning_rate=0.3, count_std=0.2), sampler="float",
    )  # fmt: skip
    state = run(algorithm, Simulation(data), rounds=80, clients=range(20), n_expected=20.0)
    assert 2.0 * quantile - 0.25 <= float(state.clip) <= 2.0 * quantile + 0.25


def test_dropping_out_does_not_drag_the_adaptive_clip_away():
    """Who is not there counts as half short, half long: at the median the clip stays put."""
    privacy = Privacy(population=20, cohort=20, rounds=1, noise_multiplier=0.05, clip=0.7, participation="full")
    algorithm = fedavg(privacy, adaptive_clip=AdaptiveClip(0.5, count_std=0.03), sampler="float")
    state = run(algorithm, Simulation(population()), clients=np.zeros(0, np.int64), n_expected=20.0)
    assert float(state.clip) == pytest.approx(0.7, rel=1e-3)


@pytest.mark.parametrize("sampler", ["exact", "float"])
def test_adaptive_clipping_costs_what_a_fixed_clip_costs(sampler):
    privacy = Privacy(population=50, cohort=40, rounds=3, noise_multiplier=1.1, clip=0.5)
    clips = (None, AdaptiveClip())
    fixed, adaptive = (joint(fedavg(privacy, sampler=sampler, adaptive_clip=clip).event) for clip in clips)
    assert adaptive.noise_multiplier == pytest.approx(1.1, rel=1e-12)
    assert fixed.noise_multiplier == 1.1
    assert adaptive.rounded == (sampler == "exact") == (not adaptive.is_ideal)


@pytest.mark.parametrize("noises", [(1.0,), (3.0, 4.0), (0.7, 5.0, 11.0)])
def test_releases_on_one_cohort_cost_together_what_their_composition_costs(noises):
    """Unsampled, one long Gaussian vector and its parts one after the other are the same mechanism."""
    parts = [Gaussian(noise, kl_slack=1e-20) for noise in noises]
    together, apart = joint(*parts), Composed(tuple(parts))
    assert epsilon(together, 1e-5).epsilon == pytest.approx(epsilon(apart, 1e-5).epsilon, rel=1e-3)
    assert together.kl_slack == pytest.approx(1e-20 * len(noises))


def test_what_is_known_of_a_joint_release():
    assert joint(Gaussian(2.0), Gaussian(0.0)).noise_multiplier == 0
    assert joint(Gaussian(2.0), Gaussian(2.0, reproducible=True)).reproducible
    for wrong in ((), (Gaussian(1.0), Repeated(Gaussian(1.0), 2))):
        with pytest.raises(RelationMismatch):
            joint(*wrong)


def test_backends_train_the_same_model():
    privacy = Privacy(population=5, cohort=5, rounds=2, noise_multiplier=0.5, clip=0.5, participation="full")
    algorithm = fedavg(privacy, batch_size=4, adaptive_clip=AdaptiveClip(count_std=1.0))
    data = population([4, 1, 7, 0, 4])  # the plain loop compiles every operation for every size
    states = [run(algorithm, backend, rounds=2) for backend in (Simulation(data, chunk=2), Debug(data))]
    for a, b in zip(*(jax.tree.leaves(state) for state in states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("server", [optax.sgd(0.5, momentum=0.9, nesterov=True), optax.adam(0.01)])
@jax.numpy_dtype_promotion("standard")  # which Optax needs
def test_the_server_takes_the_mean_for_a_gradient(server):
    plain = run(fedavg(not_private(), shuffle=False), Simulation(population()))
    mean = trees.sub(plain.params, fedavg(not_private()).init().params)
    start = fedavg(not_private()).init().params
    updates, _ = server.update(trees.scale(mean, -1.0), server.init(start), start)
    found = run(fedavg(not_private(), shuffle=False, server_optimizer=server), Simulation(population()))
    for a, b in zip(jax.tree.leaves(found.params), jax.tree.leaves(trees.add(start, updates)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_run_without_noise_has_to_be_asked_for():
    algorithm = fedavg(not_private())
    assert epsilon(algorithm.event, 1e-5).epsilon == float("inf")
    with pytest.raises(InvalidInput, match="calibrate"):
        fedavg(dataclasses.replace(not_private(), noise_multiplier=None))


@pytest.mark.parametrize("mistake", [{"batch_size": 0}, {"epochs": 0}])
def test_settings_that_make_no_sense_are_refused(mistake):
    with pytest.raises(InvalidInput):
        fedavg(not_private(), **mistake)


@pytest.mark.parametrize("mistake", [{"quantile": 0.0}, {"quantile": 1.0}, {"learning_rate": 0.0}])
def test_an_adaptive_clip_that_makes_no_sense_is_refused(mistake):
    with pytest.raises(InvalidInput):
        AdaptiveClip(**mistake)
