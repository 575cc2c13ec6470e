"""Planted clients change nothing for the real ones; and the audit, audited: broken trainers are caught."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import keys, runs, trees
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import AdaptiveClip, dp_fedavg
from blindsight.audit.membership import client_scores, direction_scores
from blindsight.audit.one_run import lower_bound
from blindsight.audit.planting import Planted, direction, direction_clients, joined
from blindsight.backends import Debug, Simulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.privacy import Privacy
from blindsight.training import train

KEY, SECRET = keys.reproducible(5), keys.reproducible(6).derive("audit")


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weight


def squared(model: Linear, batch: Any, key: jax.Array) -> jax.Array:
    del key
    return batch.mean(jnp.square(model(batch["x"]) - batch["y"]))


def people(count: int = 20, size: int = 3, seed: int = 0) -> Population:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count * size, 4)).astype(np.float32)
    columns = {"x": x, "y": x.sum(axis=1), "text": np.array(["a"] * len(x), np.dtypes.StringDType())}
    return Population(columns, sizes=np.full(count, size), name="linear")


def strangers(count: int = 5) -> Population:
    some = people(count, 2, seed=1)
    return some.replace({field: some.columns[field] for field in ("x", "y")})


def update(broadcast: Any, examples: Any, key: jax.Array) -> Any:
    batch = examples.batch(examples.order(8, key=None), 0, 8)
    pull = jnp.sum(batch["x"] * batch.weight[:, None] * broadcast, axis=0)
    return {"w": pull + 0.01 * jax.random.normal(key, (4,))}


def sums(backend: Any, clients: Any, key: keys.Key = KEY, **settings: Any) -> trees.BoundedSum:
    cohort = backend.cohort(np.array(clients), n_expected=7.0, key=key)
    return cohort.sum(update, jnp.ones((), jnp.float32), l2_bound=1.5, **settings)


BACKENDS = [Simulation, Debug]


def test_with_nobody_present_the_sum_is_what_it_was_bit_for_bit():
    both = joined(people(), [strangers(), direction_clients(strangers().fields, 3)])
    planted = Planted(Simulation(both), 20, np.zeros(8), directions=SECRET)
    alone, beside = sums(Simulation(people()), [1, 4, 19]), sums(planted, [1, 4, 19])
    assert np.array_equal(alone.value["w"], beside.value["w"])
    assert (alone.l2_bound, alone.n_expected) == (beside.l2_bound, beside.n_expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sum_is_that_of_the_real_clients_plus_that_of_the_planted_ones(backend: Any):
    """So one real client changes it by what it did before, and it is divided by the real clients' expected number."""
    both = joined(people(), [strangers()])
    planted = Planted(backend(both), 20, np.ones(5))
    step = 2.0**-16
    together = sums(planted, [1, 4], grid=step)
    real, made = sums(backend(both), [1, 4], grid=step), sums(backend(both), range(20, 25), grid=step)
    assert np.array_equal(together.value["w"], real.value["w"] + made.value["w"])
    assert together.n_expected == 7.0
    assert together.l2_bound == 1.5


def test_real_clients_are_drawn_as_if_nobody_was_planted():
    """Their draw comes from another key than the planted ones' coins, and never hears of them."""
    seen: list[list[int]] = []

    class Watching:
        def cohort(self, clients: np.ndarray, *, n_expected: float, key: keys.Key) -> Any:
            seen.append(clients.tolist())
            raise InterruptedError

    planted = Planted(Watching(), 20, np.full(400, 0.25))
    for number in range(3):
        with pytest.raises(InterruptedError):
            planted.cohort(np.array([2, 3]), n_expected=2.0, key=KEY.derive("clients", number))
    assert all(one[:2] == [2, 3] and min(one[2:]) >= 20 for one in seen)
    assert seen[0] != seen[1] != seen[2]
    assert all(60 < len(one) < 140 for one in seen)


def test_coins_show_what_the_rates_say():
    class Silent:
        def cohort(self, clients: np.ndarray, *, n_expected: float, key: keys.Key) -> Any:
            return clients

    planted = Planted(Silent(), 1, [0.0, 1.0, 0.575, 0.1])
    counts = np.zeros(5)
    for number in range(2000):
        present: Any = planted.cohort(np.array([0]), n_expected=1.0, key=KEY.derive("clients", number))
        counts[present] += 1
    assert counts[:3].tolist() == [2000, 0, 2000]
    assert counts[3:] / 2000 == pytest.approx([0.575, 0.1], abs=0.04)


def test_canaries_are_not_counted_as_population():
    planted = Planted(Simulation(joined(people(), [strangers()])), 20, np.ones(5))
    with pytest.raises(PrivacyError, match="only 20 clients are real"):
        planted.cohort(np.array([3, 20]), n_expected=2.0, key=KEY)


def test_probabilities_are_probabilities():
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        Planted(Simulation(people()), 20, [1.5])


def test_canaries_need_the_fields_of_the_population():
    other = Population({"z": np.zeros(2, np.float32)}, sizes=[2], name="other")
    with pytest.raises(InvalidInput, match="the field 'z'"):
        joined(people(), [other])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_direction_is_clipped_like_everybodys_update(backend: Any):
    both = joined(people(), [direction_clients(strangers().fields, 3)])
    planted = Planted(backend(both), 20, [1.0, 0.0, 1.0], directions=SECRET)
    alone, beside = sums(backend(people()), [1, 4]), sums(planted, [1, 4])
    like = {"w": jnp.zeros(4)}
    sent = [direction(like, number, SECRET.jax())["w"] for number in (1, 3)]
    difference = np.asarray(beside.value["w"]) - np.asarray(alone.value["w"])
    assert difference == pytest.approx(1.5 * np.asarray(sent[0] + sent[1]), abs=1e-4)


def test_an_empty_real_client_before_a_direction_sends_none():
    """Its examples begin where the next client's do, who is a direction."""
    real = Population({"x": np.ones((1, 4), np.float32), "y": np.ones(1, np.float32)}, sizes=[1, 0], name="few")
    both = joined(real, [direction_clients(real.fields, 2)])
    planted = Planted(Simulation(both), 2, [0.0, 0.0], directions=SECRET)
    assert float(jnp.abs(sums(planted, [1]).value["w"]).max()) < 0.1  # its own little noise


def test_directions_go_through_adaptive_clipping():
    privacy = Privacy(population=20, cohort=20, rounds=1, noise_multiplier=1e-3, clip=0.5, participation="full")
    settings: Any = {"client_optimizer": optax.sgd(0.0), "server_optimizer": optax.sgd(1.0), "batch_size": 2}
    model = Linear(jnp.zeros(4))
    adaptive = AdaptiveClip(0.5, learning_rate=0.1, count_std=1.0)
    algorithm = dp_fedavg(model, squared, privacy, adaptive_clip=adaptive, sampler="float", **settings)
    planted = Planted(
        Simulation(joined(people(), [direction_clients(strangers().fields, 1)])), 20, [1.0], directions=SECRET
    )
    cohort = planted.cohort(np.arange(20), n_expected=20.0, key=KEY)
    state, _ = algorithm.step(algorithm.init(), cohort, key=KEY)
    assert direction_scores(model, algorithm.model(state), 1, key=SECRET)[0] == pytest.approx(0.5 / 20, rel=0.02)


def test_scores_are_minus_the_loss_of_each_client():
    some, model = strangers(), Linear(jnp.ones(4))
    x, y = some.columns["x"], some.columns["y"] + np.arange(10)
    scores = client_scores(model, some.replace({"x": x, "y": y.astype(np.float32)}), squared)
    assert scores == pytest.approx(-np.square(np.arange(10)).reshape(5, 2).mean(axis=1), rel=1e-3)
    with pytest.raises(InvalidInput, match="same number of examples"):
        client_scores(model, Population({"x": x}, sizes=[10, 0], name="uneven"), squared)


def test_the_ledger_and_the_guarantee_know_the_real_clients_only(tmp_path: Any):
    privacy = Privacy(population=20, cohort=5, rounds=4, noise_multiplier=1.0)

    def run(name: str, backend: Any) -> Any:
        settings: Any = {"client_optimizer": optax.sgd(0.1), "server_optimizer": optax.sgd(1.0), "batch_size": 2}
        algorithm = dp_fedavg(Linear(jnp.zeros(4)), squared, privacy, **settings)
        where: Any = {"population": name, "delta": 1e-3, "key": KEY, "ledger": Ledger(tmp_path / "ledger.db")}
        trained = train(algorithm, backend, privacy, run=runs.begin(tmp_path / name, name, {}), **where)
        spent = where["ledger"].entries(name)
        return trained, [(entry.kind, entry.event) for entry in spent]

    alone, paid = run("alone", Simulation(people()))
    beside, paid_too = run("beside", Planted(Simulation(joined(people(), [strangers()])), 20, np.ones(5)))
    assert alone.guarantee == beside.guarantee
    assert paid == paid_too
    assert not np.array_equal(alone.model.weight, beside.model.weight)


# --- the audit, audited


CANARIES, CLAIMED, DELTA, WIDTH = 200, 1.0, 1e-5, 1500
PRIVACY = Privacy(population=20, cohort=20, rounds=1, clip=1.0, participation="full").calibrate(
    epsilon=CLAIMED, delta=DELTA
)


def wide(count: int = 20) -> Population:
    x = np.random.default_rng(0).normal(size=(count, WIDTH)).astype(np.float32)
    return Population({"x": x, "y": x[:, 0]}, sizes=np.ones(count, np.int64), name="wide")


FIELDS: Any = {"x": (np.dtype("f4"), (WIDTH,)), "y": (np.dtype("f4"), ())}


def backend() -> Planted:
    both = joined(wide(), [direction_clients(FIELDS, CANARIES)])
    return Planted(Simulation(both), 20, np.zeros(CANARIES), directions=SECRET)


def audit(algorithm: Any, planted: Planted, key: keys.Key) -> float:
    """The lower bound of a run with directions planted by fair coins."""
    coins = key.derive("coins").stream().bernoulli(0.5, CANARIES)
    planted.rates = coins.astype(float)  # of the same backend, which is compiled once
    state = algorithm.init()
    before = algorithm.model(state)
    cohort = planted.cohort(np.arange(20), n_expected=20.0, key=key.derive("clients", 0))
    state, _ = algorithm.step(state, cohort, key=key.derive("noise", 0))
    scores = direction_scores(before, algorithm.model(state), CANARIES, key=SECRET)
    return lower_bound(scores, coins, delta=DELTA).epsilon


def fedavg(privacy: Privacy = PRIVACY) -> Any:
    settings: Any = {"client_optimizer": optax.sgd(0.01), "server_optimizer": optax.sgd(1.0), "batch_size": 1}
    return dp_fedavg(Linear(jnp.zeros(WIDTH)), squared, privacy, sampler="float", **settings)


@pytest.mark.slow
def test_the_correct_trainer_passes_over_and_over():
    algorithm, planted = fedavg(), backend()
    bounds = [audit(algorithm, planted, keys.reproducible(100 + seed)) for seed in range(40)]
    assert sum(bound > CLAIMED for bound in bounds) <= 4  # 5 % would be 2


def test_a_trainer_that_forgets_the_noise_is_caught_by_the_audit():
    assert audit(fedavg(dataclasses.replace(PRIVACY, noise_multiplier=0.0)), backend(), KEY) > CLAIMED


def test_a_trainer_that_forgets_to_clip_is_caught_by_the_audit(monkeypatch: pytest.MonkeyPatch):
    """Directions come a thousand times too long, so that whoever does not clip them hears them through any noise."""
    monkeypatch.setattr("blindsight.trees.clip", lambda tree, bound, order=2: tree)
    jax.clear_caches()  # what was compiled with the clip must not serve
    try:
        assert audit(fedavg(), backend(), KEY) > CLAIMED
    finally:
        monkeypatch.undo()
        jax.clear_caches()


class ByWhoCame(Simulation):
    """The broken one: the mean is over the clients who came."""

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: keys.Key) -> Any:
        del n_expected
        return super().cohort(clients, n_expected=float(len(clients)), key=key)


def who_else_comes_changes_nothing(backend: Simulation) -> bool:
    """The law: one more client, who has nothing to send, leaves the released model as it is, noise and all."""
    privacy = Privacy(population=21, cohort=7, rounds=1, noise_multiplier=1.0)
    settings: Any = {"client_optimizer": optax.sgd(0.1), "server_optimizer": optax.sgd(1.0), "batch_size": 2}
    algorithm = dp_fedavg(Linear(jnp.zeros(4)), squared, privacy, **settings)
    found: list[np.ndarray] = []
    for clients in ([1, 4], [1, 4, 20]):
        cohort = backend.cohort(np.array(clients), n_expected=7.0, key=KEY)
        state, _ = algorithm.step(algorithm.init(), cohort, key=KEY)
        found.append(np.asarray(algorithm.model(state).weight))
    return np.array_equal(found[0], found[1])


def test_a_trainer_that_divides_by_who_came_is_caught_by_a_law():
    """An audit by scores hardly sees it: the divisor moves all scores alike. The law sees it at once."""
    columns = {field: column for field, column in people().columns.items() if field != "text"}
    with_an_empty_one = Population(columns, sizes=[*people().sizes.tolist(), 0], name="linear")
    assert who_else_comes_changes_nothing(Simulation(with_an_empty_one))
    assert not who_else_comes_changes_nothing(ByWhoCame(with_an_empty_one))
