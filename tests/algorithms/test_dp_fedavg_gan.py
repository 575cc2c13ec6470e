"""Laws of DP-FedAvg-GAN: its step by hand, its noise, its clip, its arms, and what the generator never sees."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from blindsight import keys, runs, trees
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.dp_fedavg_gan import chosen_first, dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Debug, Examples, Simulation
from blindsight.codings.images_and_rows import Category, Number, Rows
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.models.gan import GAN, compact_gan
from blindsight.privacy import Privacy
from blindsight.selection import where
from blindsight.training import Checkpointing, train

KEY = keys.reproducible(5)
ROWS = Rows((Number("x", -1, 1), Number("y", -1, 1)))
CHOSEN = where("chosen", 1)
RATE = 0.1


class Plane(eqx.Module):
    """A critic that weighs the columns."""

    weight: jax.Array

    def __call__(self, x, labels, weight):
        return x @ self.weight


class Point(eqx.Module):
    """A generator that makes one point, whatever the latents."""

    point: jax.Array

    def __call__(self, latents, labels):
        return jnp.broadcast_to(self.point, (latents.shape[0], *self.point.shape))


def plane(weight=(0.6, 0.8), point=(0.0, 0.0)) -> GAN:
    return GAN(Point(jnp.array(point)), Plane(jnp.array(weight)), ROWS, 2, 0)


def population(sizes=(4, 1, 7, 0, 5), seed=1) -> Population:
    generator = np.random.default_rng(seed)
    x, y = generator.uniform(-1, 1, (2, sum(sizes))).astype(np.float32)
    chosen = generator.integers(0, 2, sum(sizes)).astype(np.int32)
    return Population({"x": x, "y": y, "chosen": chosen}, sizes=sizes, name="points")


def federated(gan, privacy, **settings) -> Any:
    steps: Any = {"optimizer": optax.sgd(0.5), "batch_size": 3, "steps": 1, **settings.pop("generator", {})}
    defaults: Any = {"critic_rate": RATE, "critic_optimizer": optax.sgd(1.0), "batch_size": 4}
    defaults["generator"] = GeneratorSteps(**steps)
    return dp_fedavg_gan(gan, privacy, **{**defaults, **settings})


def run(algorithm, backend, rounds=1, clients: Any = range(5), n_expected=5.0, key=KEY) -> Any:
    state = algorithm.init()
    for number in range(rounds):
        cohort = backend.cohort(np.array(clients), n_expected=n_expected, key=key.derive("clients", number))
        state, event = algorithm.step(state, cohort, key=key.derive("noise", number))
        assert event == algorithm.event
    return state


def not_private(rounds=1, clients=5):
    return Privacy.none(population=clients, cohort=clients, rounds=rounds, participation="full")


def protected(noise=2.0**-12, clip=0.3, clients=5, **settings):
    about: Any = {"population": clients, "cohort": clients, "rounds": 1, "participation": "full", **settings}
    return Privacy(**about, noise_multiplier=noise, clip=clip)


@pytest.mark.parametrize("criterion", [None, CHOSEN])
def test_without_clip_and_noise_it_is_algorithm_1_by_hand(criterion):
    """For f(x) = w x a step moves w by -rate (made - mean of real + 20 (|w| - 1) w / |w|), one batch each."""
    data, start, made = population(), np.array([0.6, 1.2]), np.array([0.3, -0.1])
    total = np.zeros(2)
    for client in range(5):
        columns = data[client]
        kept = columns["chosen"] == 1 if criterion else np.ones(len(columns["x"]), bool)
        if kept.any():
            real = np.stack([columns["x"], columns["y"]], axis=1)[kept].mean(axis=0)
            length = np.linalg.norm(start)
            total -= RATE * (made - real + 20 * (length - 1) * start / length)
    critic = start + total / 5
    algorithm = federated(plane(start, made), not_private(), batch_size=8, criterion=criterion)
    state = run(algorithm, Simulation(data))
    np.testing.assert_allclose(state.params.weight, critic, rtol=1e-4, atol=1e-6)
    made_after = made + 0.5 * critic  # the generator climbs the new critic
    np.testing.assert_allclose(algorithm.model(state).generator.point, made_after, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sampler", ["exact", "float"])
def test_noise_reaches_the_critic_with_the_variance_that_theory_says(sampler):
    """Clients without examples leave nothing but noise: T rounds add T (z S / n)^2 to every parameter."""
    rounds, noise, clip, expected = 20, 1.5, 0.4, 40
    wide = Rows(categories=(Category("code", 500),))
    gan = GAN(Point(jnp.zeros(500)), Plane(jnp.zeros(500)), wide, 2, 0)
    data = Population({"code": np.zeros(1, np.int32)}, sizes=[0, 1, 0], name="nothing")
    privacy = protected(noise, clip, 100, cohort=expected, rounds=rounds, participation="poisson")
    algorithm = federated(gan, privacy, sampler=sampler)
    state = run(algorithm, Simulation(data), rounds, clients=[0, 2], n_expected=expected, key=keys.root())
    std = np.sqrt(rounds) * noise * clip / expected
    statistic = float(jnp.sum(jnp.square(state.params.weight)))
    inside = lambda scale: 1e-4 < stats.chi2.cdf(statistic / (std * scale) ** 2, 500) < 1 - 1e-4  # noqa: E731
    assert inside(1.0)
    assert not inside(2 / 3)
    assert not inside(3 / 2)


@pytest.mark.parametrize("sampler", ["exact", "float"])
def test_a_round_moves_the_critic_by_no_more_than_the_clip(sampler):
    """The made point is far away and the rate enormous; the delta is clipped as a whole."""
    gan = plane(point=(1e20, 0.0))
    state = run(federated(gan, protected(), sampler=sampler, critic_rate=1e10), Simulation(population()))
    moved = np.asarray(state.params.weight) - [0.6, 0.8]
    assert np.all(np.isfinite(moved))
    assert np.linalg.norm(moved) <= 0.3 * (1 + 1e-2)
    gan = plane(point=(1e3, 1e3))
    state = run(federated(gan, protected(), sampler=sampler), Simulation(population((4,) * 5)))
    moved = np.asarray(state.params.weight) - [0.6, 0.8]
    np.testing.assert_allclose(moved, np.full(2, -0.3 / np.sqrt(2)), atol=2e-3)


@dataclasses.dataclass
class Told:
    """A cohort whose sum is known beforehand, and which counts how often it is asked."""

    total: trees.BoundedSum
    asked: int = 0
    simulation_only: dict[str, Any] = dataclasses.field(default_factory=dict)

    def sum(self, client_update, broadcast, *, l2_bound, grid=None):
        self.asked += 1
        assert l2_bound == self.total.l2_bound
        return self.total


def test_the_generator_is_a_function_of_the_release_alone():
    """One sum is asked for, of what the critic moves by; from it and the server's own dice comes everything else."""
    gan = compact_gan(ROWS, latents=3, hidden=(5,), width=16, key=jax.random.key(1))
    algorithm = federated(gan, protected(noise=0.5), sampler="float")
    zero = trees.zeros_like(algorithm.init().params)
    cohort = Told(trees.BoundedSum(zero, 0.3, 5.0))
    told, _ = algorithm.step(algorithm.init(), cohort, key=KEY.derive("noise", 0))
    assert cohort.asked == 1
    for seed in (1, 2):  # nobody took part: whatever the clients have
        backend = Simulation(population(seed=seed))
        found = run(algorithm, backend, clients=np.zeros(0, np.int64))
        for a, b in zip(jax.tree.leaves(told), jax.tree.leaves(found), strict=True):
            np.testing.assert_array_equal(a, b)
    before = jax.tree.leaves(algorithm.init().server.generator)
    assert any(not np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(found.server.generator), strict=True))


def test_clients_outside_the_arm_contribute_zero_and_others_only_what_is_in_it():
    data = population()
    outside = data.replace({**data.columns, "chosen": np.zeros_like(data.columns["chosen"])})
    settings: Any = {"criterion": CHOSEN, "batch_size": 8}
    algorithm = federated(plane(), not_private(), **settings)
    start = np.asarray(algorithm.init().params.weight)
    np.testing.assert_array_equal(run(algorithm, Simulation(outside)).params.weight, start)
    kept = data.columns["chosen"] == 1
    changed = {field: np.where(kept, data.columns[field], 1).astype(np.float32) for field in ("x", "y")}
    found, same = (run(algorithm, Simulation(d)) for d in (data, data.replace({**data.columns, **changed})))
    assert not np.array_equal(found.params.weight, start)
    np.testing.assert_allclose(found.params.weight, same.params.weight, rtol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_those_who_meet_the_criterion_come_first_each_once_in_an_order_that_the_key_decides(batch_size):
    chosen = np.array([0, 1, 1, 0, 1, 0, 1])
    examples = Examples.of({"chosen": chosen})
    orders = []
    for seed in range(20):
        order, count = chosen_first(examples, CHOSEN, batch_size, key=jax.random.key(seed))
        assert int(count) == 4
        assert len(order) % batch_size == 0
        assert sorted(order[:4].tolist()) == [1, 2, 4, 6]
        orders.append(tuple(order[:4].tolist()))
    assert len(set(orders)) > 8


def test_a_client_takes_at_most_so_many_steps():
    """With more batches than steps, the rest of its examples is not met."""
    data = population((30,))
    states = [
        run(
            federated(plane(), not_private(clients=1), critic_steps=steps),
            Simulation(data),
            clients=[0],
            n_expected=1.0,
        )
        for steps in (1, 2, 8, 9)
    ]
    weights = [np.asarray(state.params.weight) for state in states]
    assert not np.array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[2], weights[3])  # 30 examples fill 8 batches of 4


def test_the_generator_learns_after_every_so_many_rounds():
    algorithm = federated(plane(), not_private(), generator={"critic_rounds": 3, "steps": 2})
    points, state, backend = [], algorithm.init(), Simulation(population())
    for number in range(7):
        cohort = backend.cohort(np.arange(5), n_expected=5.0, key=KEY.derive("clients", number))
        state, _ = algorithm.step(state, cohort, key=KEY.derive("noise", number))
        points.append(np.asarray(algorithm.model(state).generator.point).tolist())
    assert points[0] == points[1] == [0, 0]
    assert points[2] == points[3] == points[4]
    assert points[1] != points[2] != points[5] == points[6]


def test_the_average_remembers_the_generators_past():
    """The point climbs by 0.5 w each step; the average is a geometric mean of where it was."""
    last, mean = (
        federated(plane(), not_private(), critic_rate=0.0, generator={"steps": 3, "average": average})
        for average in (0.0, 0.5)
    )
    state = run(mean, Simulation(population()))
    steps = [np.array([0.3, 0.4]) * n for n in (1, 2, 3)]
    np.testing.assert_allclose(run(last, Simulation(population())).server.generator.point, steps[2], rtol=1e-5)
    expected = 0.5**3 * 0 + 0.5**3 * steps[0] + 0.5**2 * steps[1] + 0.5 * steps[2]
    np.testing.assert_allclose(mean.model(state).generator.point, expected, rtol=1e-5)


@pytest.mark.slow
def test_backends_train_the_same_pair():
    algorithm = federated(plane((0.6, 1.2)), protected(noise=0.5, rounds=2), criterion=CHOSEN, batch_size=3)
    backends = Simulation(population(), chunk=2), Debug(population())
    states = [run(algorithm, backend, clients=[0, 3]) for backend in backends]
    for a, b in zip(*(jax.tree.leaves(state) for state in states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_both_may_learn_with_adam():
    gan = compact_gan(ROWS, latents=4, hidden=(8,), width=16, key=jax.random.key(2))
    adam = optax.adam(0.01)
    algorithm = federated(gan, not_private(clients=5), critic_optimizer=adam, generator={"optimizer": adam})
    state = run(algorithm, Simulation(population()), rounds=2)
    before, after = (jax.tree.leaves(eqx.filter(pair, eqx.is_array)) for pair in (gan, algorithm.model(state)))
    assert all(a.dtype == b.dtype and np.all(np.isfinite(b)) for a, b in zip(before, after, strict=True))
    assert any(np.any(a != b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
def test_a_pair_learns_where_the_examples_are():
    """Two clusters of points, no noise: samples come to lie on them."""
    generator = np.random.default_rng(0)
    side = generator.choice([-0.6, 0.6], 80)
    columns = {"x": side + generator.normal(0, 0.05, 80), "y": 0.5 + generator.normal(0, 0.05, 80)}
    data = Population({f: c.astype(np.float32) for f, c in columns.items()}, sizes=[20] * 4, name="clusters")
    gan = compact_gan(ROWS, latents=4, hidden=(32, 32), width=16, key=jax.random.key(2))
    settings: Any = {"critic_rate": 0.05, "batch_size": 20, "penalty": 1.0, "critic_optimizer": optax.sgd(1.0)}
    settings["generator"] = GeneratorSteps(optimizer=optax.sgd(0.1), batch_size=64, steps=2)
    algorithm = dp_fedavg_gan(gan, not_private(clients=4), **settings)
    state = run(algorithm, Simulation(data), rounds=200, clients=range(4), n_expected=4.0)
    made = np.asarray(algorithm.model(state).sample(500, key=jax.random.key(3)))
    start = np.asarray(gan.sample(500, key=jax.random.key(3)))
    far = lambda points: np.mean(np.hypot(np.abs(points[:, 0]) - 0.6, points[:, 1] - 0.5))  # noqa: E731
    assert far(made) < 0.5 * far(start)
    assert 0.15 < np.mean(made[:, 0] > 0) < 0.85


class Killed(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


class Dying:
    """A backend that dies after it has made so many cohorts."""

    def __init__(self, inner: Simulation, after: int) -> None:
        self.inner, self.left = inner, after
        self.fingerprint = inner.fingerprint

    def cohort(self, clients, **settings):
        self.left -= 1
        if self.left < 0:
            raise Killed
        return self.inner.cohort(clients, **settings)


def test_a_reproducible_run_resumes_to_the_same_bits_generator_and_all(tmp_path: Path):
    gan = compact_gan(ROWS, latents=3, hidden=(5,), width=16, key=jax.random.key(1))
    privacy = Privacy(population=5, cohort=3, rounds=7, noise_multiplier=4.0, clip=0.3)
    algorithm = federated(
        gan, privacy, critic_optimizer=optax.sgd(1.0, momentum=0.9),
        generator={"optimizer": optax.sgd(0.1, momentum=0.5), "critic_rounds": 2, "average": 0.5},
    )  # fmt: skip
    backend = Simulation(population())

    def go(name: str, backend: Any):
        settings: Any = {"population": "points", "delta": 1e-5, "key": KEY}
        settings["checkpointing"] = Checkpointing(every_rounds=3)
        folder = tmp_path / name
        run = runs.begin(folder / "run", "gan", {})
        return train(algorithm, backend, privacy, run=run, ledger=Ledger(folder / "ledger.db"), **settings)

    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole = go("whole", backend)
    with pytest.raises(Killed):
        go("cut", Dying(backend, 5))
    resumed = go("cut", backend)
    for a, b in zip(jax.tree.leaves(whole.model), jax.tree.leaves(resumed.model), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.guarantee.epsilon == resumed.guarantee.epsilon
    assert whole.guarantee.epsilon == pytest.approx(privacy.guarantee(delta=1e-5).epsilon, rel=1e-3)
    different = jax.tree.map(lambda a, b: not np.array_equal(a, b), whole.model.generator, gan.generator)
    assert all(jax.tree.leaves(different)[:2])


@pytest.mark.parametrize(
    "mistake",
    [
        {"batch_size": 0},
        {"critic_steps": 0},
        {"generator": {"steps": 0}},
        {"generator": {"critic_rounds": 0}},
        {"generator": {"average": 1.0}},
    ],
)
def test_settings_that_make_no_sense_are_refused(mistake):
    with pytest.raises(InvalidInput):
        federated(plane(), not_private(), **mistake)


def test_a_plan_without_noise_has_to_be_calibrated():
    with pytest.raises(InvalidInput, match="calibrate"):
        federated(plane(), dataclasses.replace(protected(), noise_multiplier=None))
