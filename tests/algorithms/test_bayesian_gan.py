"""Laws of the Bayesian GAN: what is paid for and what is free, a step by hand, and the clip that holds the penalty."""

import dataclasses
import itertools
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
from blindsight.accounting.events import to_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.bayesian_gan import bayesian_gan, published_noise_multipliers
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Simulation
from blindsight.codings.images_and_rows import Category, Number, Rows
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.mechanisms.release import marked
from blindsight.models.gan import GAN
from blindsight.privacy import Privacy
from blindsight.selection import where
from blindsight.training import Checkpointing, train

KEY = keys.reproducible(5)
ROWS = Rows((Number("x", -1, 1), Number("y", -1, 1)))
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


def plane(weight=(0.6, 1.2), point=(0.3, -0.1)) -> GAN:
    return GAN(Point(jnp.array(point)), Plane(jnp.array(weight)), ROWS, 2, 0)


def population(sizes=(1, 1, 1, 1, 1), seed=1) -> Population:
    x, y = np.random.default_rng(seed).uniform(-1, 1, (2, sum(sizes))).astype(np.float32)
    chosen = (np.arange(sum(sizes)) % 2).astype(np.int32)
    return Population({"x": x, "y": y, "chosen": chosen}, sizes=sizes, name="points")


def trained(gan, privacy, **settings) -> Any:
    steps: Any = {"optimizer": optax.sgd(0.5), "batch_size": 3, "steps": 1, **settings.pop("generator", {})}
    defaults: Any = {"critic_optimizer": optax.sgd(RATE), "generator": GeneratorSteps(**steps), "fakes": 3}
    return bayesian_gan(gan, privacy, **{**defaults, **settings})


def protected(noise=2.0**-12, clip=0.5, clients=5, **settings) -> Privacy:
    about: Any = {"population": clients, "cohort": clients, "rounds": 1, "participation": "full", **settings}
    return Privacy(**about, noise_multiplier=noise, clip=clip)


def run(algorithm, backend, rounds=1, clients: Any = range(5), n_expected=5.0, key=KEY) -> Any:
    state = algorithm.init()
    for number in range(rounds):
        cohort = backend.cohort(np.array(clients), n_expected=n_expected, key=key.derive("clients", number))
        state, event = algorithm.step(state, cohort, key=key.derive("noise", number))
        assert event == algorithm.event
    return state


@dataclasses.dataclass
class Kept:
    """A cohort that keeps every sum that is asked of it, with its bound."""

    inner: Any
    sums: list[trees.BoundedSum] = dataclasses.field(default_factory=list)
    simulation_only: dict[str, Any] = dataclasses.field(default_factory=dict)

    def sum(self, client_update, broadcast, **settings):
        self.sums.append(self.inner.sum(client_update, broadcast, **settings))
        return self.sums[-1]


def charged(algorithm, data, clients, state=None) -> trees.BoundedSum:
    """The one sum over these clients that a step asks for."""
    cohort = Kept(Simulation(data).cohort(np.array(clients), n_expected=5.0, key=KEY.derive("clients")))
    algorithm.step(state or algorithm.init(), cohort, key=KEY.derive("noise"))
    (total,) = cohort.sums
    return total


def placed(algorithm, weight, point) -> Any:
    """The state in which critic and generator have these weights."""
    start = algorithm.init()
    return start._replace(
        params=Plane(jnp.array(weight)), server=start.server._replace(generator=Point(jnp.array(point)))
    )


def clipped(vector, clip=0.5):
    return vector * min(1.0, clip / np.linalg.norm(vector))


def by_hand(data, start, made, penalty, clip) -> np.ndarray:
    """The critic after a step: for f(x) = w x, the part of x is -x + 2 penalty (|w| - 1) w / |w|, clipped whole."""
    length = np.linalg.norm(start)
    slope = 2 * penalty * (length - 1) * start / length
    parts = [clipped(-np.array([x, y]) + slope, clip) for x, y in zip(*(data.columns[f] for f in "xy"), strict=True)]
    return start - RATE * (np.sum(parts, axis=0) / 5 + clipped(made, clip))


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("clip", [0.5, 4.0])
def test_a_step_is_the_clipped_real_half_and_the_clipped_made_half(penalty, clip):
    """With a clip of 0.5 the penalty and the score are clipped together: apart, or outside, they add up otherwise."""
    data, start, made = population(), np.array([0.6, 1.2]), np.array([0.9, -0.5])
    algorithm = trained(plane(start, made), protected(clip=clip), penalty=penalty)
    state = run(algorithm, Simulation(data))
    expected = by_hand(data, start, made, penalty, clip)
    np.testing.assert_allclose(state.params.weight, expected, atol=2e-4)
    made_after = made + 0.5 * expected  # the generator climbs the new critic
    np.testing.assert_allclose(algorithm.model(state).generator.point, made_after, atol=2e-4)


@pytest.mark.parametrize("penalty", [0.0, 10.0, 1e6])
def test_each_examples_part_of_the_sum_is_within_the_clip_whatever_the_data(penalty):
    data, algorithm = population(), trained(plane(), protected(), penalty=penalty, sampler="float")
    weights, points = ((0.6, 0.8), (1e-20, 0.0), (1e12, -1e12)), ((0.0, 0.0), (1e15, -1e15))
    for weight, point in itertools.product(weights, points):
        for client in range(5):
            total = charged(algorithm, data, [client], placed(algorithm, weight, point))
            assert total.l2_bound == 0.5
            assert np.linalg.norm(np.asarray(total.value.weight, np.float64)) <= 0.5


def test_the_clip_bites_so_that_it_is_the_clip_that_bounds_the_sum():
    for penalty in (0.0, 10.0):
        algorithm = trained(plane(), protected(clip=0.01), penalty=penalty, sampler="float")
        total = charged(algorithm, population(), [0])
        assert np.linalg.norm(total.value.weight) == pytest.approx(0.01, rel=1e-4)


def test_another_generator_leaves_the_sum_of_wgan_as_it_is_and_the_bound_of_wgan_gp():
    data = population()

    def sums(penalty):
        algorithm = trained(plane(), protected(clip=0.2), penalty=penalty, sampler="float")
        for point in ((0.3, -0.1), (-50.0, 7.0)):
            yield charged(algorithm, data, range(5), placed(algorithm, (0.6, 1.2), point))

    first, second = sums(0.0)
    np.testing.assert_array_equal(first.value.weight, second.value.weight)
    for total in sums(10.0):
        assert (total.l2_bound, total.n_expected) == (0.2, 5.0)
        assert np.linalg.norm(np.asarray(total.value.weight, np.float64)) <= 5 * 0.2


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


def test_all_that_meets_real_examples_is_in_the_one_sum_the_penalty_too():
    """Told the sum, the server does the same whatever the penalty: it has no part in what is computed for free."""
    found = []
    for penalty in (0.0, 10.0):
        algorithm = trained(plane(), protected(noise=0.5), penalty=penalty, sampler="float")
        cohort = Told(trees.BoundedSum(Plane(jnp.array([0.1, -0.3])), 0.5, 5.0))
        state, _ = algorithm.step(algorithm.init(), cohort, key=KEY.derive("noise", 0))
        assert cohort.asked == 1
        found.append([np.asarray(leaf) for leaf in jax.tree.leaves(state)])
    for without, with_penalty in zip(*found, strict=True):
        np.testing.assert_array_equal(without, with_penalty)
    sums = [charged(trained(plane(), protected(), penalty=p, sampler="float"), population(), [0]) for p in (0.0, 10.0)]
    assert not np.allclose(sums[0].value.weight, sums[1].value.weight)


def test_noise_reaches_the_critic_with_the_variance_that_theory_says():
    """Nobody has examples and the made point weighs nothing: T rounds of SGD add T (rate z C / n)^2 everywhere."""
    rounds, noise, clip, expected = 20, 1.5, 0.4, 40
    wide = Rows(categories=(Category("code", 500),))
    gan = GAN(Point(jnp.zeros(500)), Plane(jnp.zeros(500)), wide, 2, 0)
    data = Population({"code": np.zeros(1, np.int32)}, sizes=[0, 1, 0], name="nothing")
    privacy = protected(noise, clip, 100, cohort=expected, rounds=rounds, participation="poisson")
    algorithm = trained(gan, privacy, sampler="float", generator={"optimizer": optax.sgd(0.0)})
    state = run(algorithm, Simulation(data), rounds, clients=[0, 2], n_expected=expected, key=keys.root())
    std = np.sqrt(rounds) * RATE * noise * clip / expected
    statistic = float(jnp.sum(jnp.square(state.params.weight)))
    inside = lambda scale: 1e-4 < stats.chi2.cdf(statistic / (std * scale) ** 2, 500) < 1 - 1e-4  # noqa: E731
    assert inside(1.0)
    assert not inside(2 / 3)
    assert not inside(3 / 2)


def test_a_run_pays_for_what_its_participation_says_and_promises_that(tmp_path: Path):
    privacy = Privacy(population=5, cohort=3, rounds=4, noise_multiplier=2.0, clip=0.5)
    algorithm, ledger = trained(plane(), privacy, penalty=10.0), Ledger(tmp_path / "ledger.db")
    about: Any = {"population": "points", "delta": 1e-5, "key": KEY, "ledger": ledger}
    about["checkpointing"] = Checkpointing(every_rounds=3)
    about["run"] = runs.begin(tmp_path / "run", "gan", {})
    result = train(algorithm, Simulation(population()), privacy, **about)
    paid = [entry.event for entry in ledger.entries("points") if entry.kind == "release"]
    release = marked(algorithm.event, KEY)
    assert paid == [to_json(privacy.sampling.event(release, rounds)) for rounds in (1, 1, 1, 1)]
    assert result.guarantee == privacy.guarantee(delta=1e-5, release=release)


def test_a_client_sends_the_gradient_on_so_many_of_its_examples_and_nothing_outside_the_criterion():
    data = population((4, 4, 4, 4, 0))
    chosen = data.columns["chosen"] == 1
    algorithm = trained(plane(), protected(clip=100.0), batch_size=4, sampler="float", criterion=where("chosen", 1))
    total = charged(algorithm, data, range(5))
    means = [np.stack([data[c]["x"], data[c]["y"]], axis=1)[data[c]["chosen"] == 1].mean(axis=0) for c in range(4)]
    np.testing.assert_allclose(total.value.weight, -np.sum(means, axis=0), rtol=1e-5)
    other = {field: np.where(chosen, data.columns[field], 1).astype(np.float32) for field in "xy"}
    same = charged(algorithm, data.replace({**data.columns, **other}), range(5))
    np.testing.assert_array_equal(total.value.weight, same.value.weight)


def test_weights_stay_within_their_clip_and_the_generator_waits_for_its_round():
    algorithm = trained(plane(), protected(), weight_clip=0.05, generator={"critic_rounds": 2})
    states = [run(algorithm, Simulation(population()), rounds) for rounds in (1, 2)]
    assert all(float(jnp.max(jnp.abs(state.params.weight))) <= np.float32(0.05) for state in states)
    points = [np.asarray(algorithm.model(state).generator.point).tolist() for state in states]
    assert points[0] == pytest.approx([0.3, -0.1])
    assert points[0] != points[1]


def test_the_readings_of_the_published_noise():
    found = published_noise_multipliers(0.02, clip=0.5, batch=128)
    assert found == {"of the clip": 0.02, "on the sum": 0.04, "on the mean": 5.12}


@pytest.mark.parametrize(
    "mistake",
    [
        *({name: 0} for name in ("batch_size", "fakes")),
        *({"generator": {name: 0}} for name in ("batch_size", "steps", "critic_rounds")),
        {"penalty": -1.0},
        {"weight_clip": 0.0},
        {"generator": {"average": 1.0}},
    ],
)
def test_settings_that_make_no_sense_are_refused(mistake):
    with pytest.raises(InvalidInput):
        trained(plane(), protected(), **mistake)


def test_a_plan_without_noise_has_to_be_calibrated():
    with pytest.raises(InvalidInput, match="calibrate"):
        trained(plane(), dataclasses.replace(protected(), noise_multiplier=None))
