"""Draw and Discard: a client's change is bounded whatever its data are, the noise is what was promised, and no less."""

import dataclasses
import importlib.util
import json
import math
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from blindsight import keys
from blindsight.accounting.events import Gaussian, Relation, Unit
from blindsight.algorithms import draw_and_discard as dd
from blindsight.algorithms import draw_and_discard_task as tasks
from blindsight.codings.specs import BooleanField, CategoryField, FeatureSpec, NumberField, Response
from blindsight.errors import InvalidInput
from blindsight.mechanisms.rounded_gaussian import decide
from blindsight.models import glm

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/draw_and_discard.json").read_text(encoding="utf-8"))
FEATURES = FeatureSpec((NumberField("a", 0, 1), BooleanField("b")))
PRIVATE: list[dict[str, Any]] = [
    {"unit": "feature", "epsilon": math.log(32)},
    {"unit": "feature", "epsilon": 0.3, "clip": 0.1, "learning_rate": 0.7},
    {"unit": "model", "epsilon": 1.0},
    {"unit": "model", "epsilon": 40.0, "clip": 1e-3, "learning_rate": 3.0},
    {"unit": "model", "epsilon": 2.0, "noise": "gaussian", "delta": 1e-6},
    {"unit": "feature", "epsilon": 0.5, "noise": "gaussian", "delta": 1e-6},
]
private = pytest.mark.parametrize("settings_", PRIVATE, ids=lambda s: "-".join(map(str, s.values())))
ANY = st.floats(width=64) | st.floats(-2, 2)


def logistic(**changes: Any) -> dd.Task:
    response = Response(BooleanField("y"))
    values: dict[str, Any] = {"model": "m", "family": "logistic", "features": FEATURES, "response": response}
    return dd.Task(**values | changes)


def custom(**changes: Any) -> dd.Task:
    values: dict[str, Any] = {"model": "m", "family": "custom", "weights": 5}
    return dd.Task(**values | changes)


NORMS = {
    ("feature", "laplace"): math.inf,
    ("feature", "gaussian"): math.inf,
    ("model", "laplace"): 1,
    ("model", "gaussian"): 2,
}
"""In which norm a change must be short, by unit and noise: written down here, and not read off the code."""


def length(task: dd.Task, whole: np.ndarray) -> Fraction:
    """The exact length in that norm, squared for L2."""
    values, norm = [abs(int(value)) for value in whole], NORMS[task.unit, task.noise]
    if norm == math.inf:
        return Fraction(max(values))
    return Fraction(sum(values) if norm == 1 else sum(value * value for value in values))


# --- the bound


@private
@given(gradient=arrays.arrays(np.float64, 5, elements=ANY))
@settings(max_examples=60)
def test_no_data_can_move_the_change_beyond_its_bound(settings_, gradient):
    task = custom(**settings_)
    whole = dd.whole_change(task, gradient)
    assert whole.dtype == np.int64
    assert length(task, whole) <= (task.bound or 0) ** (2 if NORMS[task.unit, task.noise] == 2 else 1)


@private
def test_the_longest_change_costs_epsilon_in_the_norm_that_its_noise_protects(settings_):
    """All weights at their limit, and back: what Laplace noise hides is L1, what Gaussian noise hides is L2."""
    task = custom(**settings_)
    assert task.grid is not None
    whole = dd.whole_change(task, np.full(5, 1e9)) - dd.whole_change(task, np.full(5, -1e9))
    reach = float(np.linalg.norm((whole * task.grid).astype(np.float64), NORMS[task.unit, task.noise])) / task.scale
    if task.noise == "laplace":
        assert reach == pytest.approx(task.epsilon, rel=1e-3)
        assert reach <= task.epsilon
    else:  # of two Gaussians that far apart, in closed form (Balle and Wang 2018)
        ends = np.array([0.5, -0.5]) * reach - task.epsilon / reach
        delta = stats.norm.cdf(ends[0]) - math.exp(task.epsilon) * stats.norm.cdf(ends[1])
        assert delta <= task.delta
        assert delta == pytest.approx(task.delta, rel=0.02)


@private
def test_the_bound_costs_no_more_than_epsilon_exactly(settings_):
    task = custom(**settings_)
    assert task.bound is not None
    assert task.grid is not None
    if task.noise == "laplace":
        assert Fraction(2 * task.bound, 2**24) <= Fraction(task.epsilon)
        assert Fraction(2 * task.bound + 2, 2**24) > Fraction(task.epsilon)  # and wastes nothing
    assert task.bound * task.grid == pytest.approx(task.learning_rate * task.clip, rel=1e-3)
    assert dd.guarantee(task, 1).epsilon <= task.epsilon
    assert dd.guarantee(task, 1).epsilon == pytest.approx(task.epsilon, rel=1e-3)


@given(
    weights=arrays.arrays(np.float32, 3, elements=st.floats(-(2.0**100), 2.0**100, width=32)),
    data=st.lists(st.tuples(ANY, ANY, ANY), max_size=4),
    other=st.lists(st.tuples(ANY, ANY, ANY), max_size=4),
)
@settings(max_examples=100)
def test_exchanging_all_data_of_a_client_moves_its_change_by_less_than_epsilon_allows(weights, data, other):
    """For any weights a server may send and any examples, also none, enormous ones and those that are not numbers."""
    for family, response in (
        ("logistic", BooleanField("y")),
        ("poisson", NumberField("y", 0, 9)),
        ("linear", NumberField("y", 0, 9)),
    ):
        for settings_ in PRIVATE[:3]:
            task = logistic(family=family, response=Response(response), **settings_)
            changes: list[np.ndarray] = []
            for rows in (data, other):
                table = np.array(rows, np.float64).reshape(-1, 3)
                x = np.hstack([np.ones((len(rows), 1)), table[:, :2]])
                with np.errstate(all="ignore"):
                    gradient = glm.gradient(family, weights, x, table[:, 2])
                changes.append(dd.whole_change(task, gradient))
                update = dd.client_update(task, weights, x, table[:, 2], key=keys.root())
                assert np.isfinite(update).all()
            assert length(task, changes[0] - changes[1]) <= Fraction(task.epsilon) * 2**24


def test_long_gradients_keep_their_direction_and_short_ones_their_length():
    task = custom(weights=3, unit="model", epsilon=1.0, learning_rate=0.5, clip=2.0)
    assert task.grid is not None
    short, long = np.array([0.5, -0.25, 0.0]), np.array([500.0, -250.0, 0.0])
    np.testing.assert_allclose(dd.whole_change(task, short) * task.grid, -0.5 * short, atol=task.grid)
    np.testing.assert_allclose(dd.whole_change(task, long) * task.grid, -0.5 * long * 2 / 750, atol=2 * task.grid)
    gaussian = dataclasses.replace(task, noise="gaussian", delta=1e-5)
    assert gaussian.grid is not None
    clipped = dd.whole_change(gaussian, np.array([300.0, 400.0, 0.0])) * gaussian.grid
    np.testing.assert_allclose(clipped, [-0.6, -0.8, 0.0], rtol=1e-6)


def test_what_is_not_finite_counts_as_zero():
    gradient = np.array([math.nan, math.inf, -math.inf, 0.5, 1e308])
    for settings_ in PRIVATE:
        whole = dd.whole_change(custom(**settings_), gradient)
        assert not whole[:3].any()


# --- the noise


@pytest.mark.parametrize(
    ("settings_", "law"), [(PRIVATE[0], stats.laplace), (PRIVATE[2], stats.laplace), (PRIVATE[4], stats.norm)]
)
def test_the_noise_has_the_size_it_should_and_no_other(settings_, law):
    task = custom(weights=20_000, **settings_)
    update = dd.client_update_of(lambda w, _: 0.0 * w.sum(), task, np.zeros(20_000), None, key=keys.reproducible(1))
    assert update.dtype == np.float32
    for factor, alike in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        p_value = stats.kstest(update.astype(np.float64), law(0, factor * task.scale).cdf, method="asymp").pvalue
        assert p_value > 1e-3 if alike else p_value < 1e-9
    assert float(np.var(update)) == pytest.approx(task.variance, rel=0.06)


def test_no_result_becomes_more_than_e_to_the_epsilon_times_as_likely(monkeypatch):
    """On a coarse grid every result is seen often enough to count; and there is no more noise than needed."""
    for module in (dd, tasks):
        monkeypatch.setattr(module, "BITS", 4)
    task = custom(weights=400_000, unit="feature", epsilon=1.0)
    assert (task.bound, task.grid) == (8, task.scale / 16)
    seen: list[Counter[int]] = []
    for n, extreme in enumerate((1e9, -1e9)):
        update = dd._noised(task, np.zeros(400_000), np.full(400_000, extreme), keys.reproducible(n))
        seen.append(Counter(np.rint(update / task.grid).astype(int).tolist()))
    often = [value for value in seen[0] if seen[0][value] > 2000 and seen[1][value] > 2000]
    ratios = np.array([seen[0][value] / seen[1][value] for value in often])
    assert len(often) > 20
    assert max(ratios.max(), 1 / ratios.min()) < math.e * 1.1
    # truncated to 7 steps of 16 each way
    assert min(ratios.max(), 1 / ratios.min()) > math.exp(14 / 16)


def test_gaussian_noise_is_a_rounded_gaussian_and_costs_what_the_ideal_one_costs():
    task, key = custom(unit="model", epsilon=2.0, noise="gaussian", delta=1e-6), keys.reproducible(3)
    update = dd._noised(task, np.zeros(5), np.zeros(5), key)
    whole = [decide(key.derive("rounded gaussian").secret, index, tasks.BITS) for index in range(5)]
    assert task.grid is not None
    assert update.tolist() == (task.grid * np.array(whole)).astype(np.float32).tolist()
    assert task.event == Gaussian(task.scale / (task.learning_rate * task.clip), rounded=True)


def test_two_updates_have_noise_of_their_own():
    task = custom(unit="model", epsilon=1.0)
    one, other = (dd._noised(task, np.zeros(5), np.zeros(5), keys.root()) for _ in range(2))
    assert not np.intersect1d(one, other).size
    assert len(set(one.tolist())) == 5


def test_a_client_without_examples_sends_noise_like_any_other():
    task = logistic(unit="model", epsilon=1.0)
    update = dd.client_update(task, np.zeros(3), np.zeros((0, 3)), np.zeros(0), key=keys.root())
    assert update.all()


# --- the update


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["task"]["model"])
def test_golden_vectors(case):
    task = dd.Task.from_dict(case["task"])
    x, y = task.encode(case["rows"])
    weights = np.asarray(case["weights"], np.float32)
    gradient = glm.gradient(task.family, weights, x, y)
    np.testing.assert_array_equal(x, case["x"])
    np.testing.assert_array_equal(y, case["y"])
    np.testing.assert_allclose(glm.predict(task.family, weights, x), case["prediction"], rtol=1e-12)
    np.testing.assert_allclose(gradient, case["gradient"], atol=1e-12 * np.abs(gradient).max())
    assert glm.loss(task.family, weights, x, y) == pytest.approx(case["loss"], rel=1e-12)
    if task.grid is not None:
        whole = dd.whole_change(task, gradient)
        assert np.abs(whole - case["whole_change"]).max() <= 1
        new = (weights + task.grid * (whole + np.array(case["noise"]))).astype(np.float32)
    else:
        new = dd.client_update(task, weights, x, y, key=keys.root())
    np.testing.assert_array_max_ulp(new, np.asarray(case["new_weights"], np.float32))
    assert task.to_dict() == case["task"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["task"]["model"])
def test_on_a_client_a_row_that_cannot_be_encoded_is_absent(case):
    task, rows = dd.Task.from_dict(case["task"]), case["rows"]
    for name in task.columns:
        lacking = {key: value for key, value in rows[0].items() if key != name}
        for bad in [lacking, *(rows[0] | {name: value} for value in GOLDEN["unreadable"][name])]:
            x, y = task.encode([*rows[:2], bad, *rows[2:]], strict=False)
            np.testing.assert_array_equal(x, case["x"])
            np.testing.assert_array_equal(y, case["y"])
            with pytest.raises(InvalidInput):
                task.encode([bad])


def test_any_loss_that_jax_can_differentiate():
    import jax
    import jax.numpy as jnp

    random = np.random.default_rng(0)
    x, y, weights = random.uniform(size=(6, 3)), random.integers(2, size=6), random.normal(size=3)

    def loss(w: jax.Array, examples: Any) -> jax.Array:
        features, responses = examples
        scores = features @ w
        return jnp.mean(jnp.logaddexp(jnp.zeros_like(scores), scores) - responses * scores)

    same: dict[str, Any] = {"unit": "feature", "epsilon": math.inf, "noise": "none", "learning_rate": 1.0}
    ours = dd.client_update(logistic(**same), weights, x, y, key=keys.root())
    examples = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    theirs = dd.client_update_of(loss, custom(weights=3, **same), weights, examples, key=keys.root())
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    noisy = custom(weights=3, unit="model", epsilon=1.0)
    assert dd.client_update_of(loss, noisy, weights, examples, key=keys.root()).dtype == np.float32


@pytest.mark.parametrize(
    ("weights", "x", "y"),
    [
        (np.zeros(4), np.zeros((1, 3)), np.zeros(1)),
        (np.array([0, math.nan, 0]), np.zeros((1, 3)), np.zeros(1)),
        (np.zeros(3), np.zeros((1, 4)), np.zeros(1)),
        (np.zeros(3), np.zeros((2, 3)), np.zeros(1)),
        (np.zeros(3), np.zeros(3), np.zeros(1)),
    ],
)
def test_arrays_of_the_wrong_shape_are_refused(weights, x, y):
    with pytest.raises(InvalidInput):
        dd.client_update(logistic(unit="model", epsilon=1.0), weights, x, y, key=keys.root())


def test_classes_that_are_not_there_are_refused():
    response = Response(CategoryField("y", ("p", "q", "r")))
    task = dd.Task(model="m", family="multinomial", features=FEATURES, response=response, unit="model", epsilon=1.0)
    for y in (3, -1, math.nan):
        with pytest.raises(InvalidInput, match="class indices from 0 to 2"):
            dd.client_update(task, np.zeros(9), np.zeros((1, 3)), np.array([y]), key=keys.root())


# --- the server


def test_instances_begin_with_the_spread_that_lasts():
    task = custom(weights=4000, unit="model", epsilon=1.0, instances=10)
    instances = dd.initial_instances(task, key=keys.reproducible(0), start=np.full(4000, 3.0))
    assert instances.shape == (10, 4000)
    assert instances.dtype == np.float32
    assert float(instances.mean()) == pytest.approx(3.0, abs=0.001)
    assert float(instances.var(axis=0, ddof=1).mean()) == pytest.approx(5 * task.variance, rel=0.05)
    open_ = dataclasses.replace(task, epsilon=math.inf, noise="none")
    np.testing.assert_allclose(
        dd.initial_instances(open_, key=keys.reproducible(0), start=np.full(4000, 3.0)), instances, rtol=1e-6
    )  # the paper starts as for epsilon = 1
    assert not dd.initial_instances(dataclasses.replace(task, instances=1), key=keys.root()).any()


def test_the_spread_over_instances_stays_in_expectation():
    """Theorem 1, over many independent pools of one weight, run by the library's own functions."""
    task = custom(weights=1, unit="model", epsilon=1.0, instances=3)
    root, found = keys.reproducible(5), list[float]()
    for pool in range(300):
        instances = dd.initial_instances(task, key=root.derive("start", pool))
        for step in range(12):
            drawn = dd.draw(instances, key=root.derive("draw", pool, step))
            update = dd._noised(task, drawn.astype(np.float64), np.zeros(1), root.derive("noise", pool, step))
            instances = dd.discard(instances, update, key=root.derive("discard", pool, step))
        found.append(float(instances.var(ddof=1)))
    expected = 1.5 * task.variance
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / math.sqrt(len(found)) < expected


def test_draw_and_discard_are_even_and_change_one_instance():
    instances = np.arange(5, dtype=np.float32)[:, None].repeat(2, axis=1)
    drawn, gone = Counter[float](), Counter[int]()
    for n in range(2000):
        key = keys.reproducible(n)
        drawn[float(dd.draw(instances, key=key.derive("draw"))[0])] += 1
        after = dd.discard(instances, np.array([9.0, 9.0]), key=key.derive("discard"))
        changed = np.flatnonzero((after != instances).any(axis=1))
        assert len(changed) == 1
        gone[int(changed[0])] += 1
    for counts in (drawn, gone):
        assert stats.chisquare(list(counts.values())).pvalue > 1e-4
        assert len(counts) == 5
    assert instances[0, 0] == 0  # what was given is not touched
    np.testing.assert_array_equal(dd.average(instances), [2.0, 2.0])


def test_a_pool_learns():
    """With noise at the paper's epsilon, and better with less of it."""
    random, losses = np.random.default_rng(3), list[float]()
    truth = np.array([-1.0, 3.0, -2.0])
    x = np.hstack([np.ones((400, 1)), random.uniform(size=(400, 2))])
    y = random.uniform(size=400) < glm.predict("logistic", truth, x)
    for epsilon in (math.log(32), 0.25):
        task = logistic(unit="feature", epsilon=epsilon, learning_rate=0.2, instances=4)
        instances, root = dd.initial_instances(task, key=keys.reproducible(0)), keys.reproducible(1)
        for step in range(1200):
            rows, key = random.integers(400, size=10), root.derive("update", step)
            drawn = dd.draw(instances, key=key.derive("draw"))
            update = dd.client_update(task, drawn, x[rows], y[rows], key=key.derive("noise"))
            instances = dd.discard(instances, update, key=key.derive("discard"))
        losses.append(glm.loss("logistic", dd.average(instances), x, y))
    best, nothing = glm.loss("logistic", truth, x, y), math.log(2)
    assert losses[0] < (best + nothing) / 2
    assert losses[0] < losses[1]


def test_the_simulation_of_the_experiments_takes_the_same_steps():
    """Without noise and with one instance, what is published there is what clients here would have learnt."""
    path = Path(__file__).parents[2] / "experiments/draw_and_discard_simulation.py"
    if not path.exists():
        pytest.skip("the experiments are not part of this installation")
    spec = importlib.util.spec_from_file_location("draw_and_discard_simulation", path)
    assert spec
    assert spec.loader
    simulation = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = simulation  # dataclasses look their module up
    spec.loader.exec_module(simulation)
    random, seen = np.random.default_rng(0), list[np.ndarray]()
    x = random.uniform(size=(4, 6, 3)).astype(np.float32)
    y = random.integers(2, size=(4, 1, 6)).astype(np.float32)
    settings_: dict[str, Any] = {"noise": "none", "epsilon": math.inf, "learning_rate": 0.5, "clip": 0.1}
    for unit, norm in (("feature", None), ("model", 2)):
        configuration = simulation.Configuration(name="one", norm=norm, clip=0.1 if norm else 1.0)
        simulation.simulate(
            [configuration],
            lambda client: (x[client], y[client]),
            np.arange(12) % 4,
            outputs=1,
            learning_rate=0.5,
            seed=0,
            watch=lambda _, averages: seen.append(averages[0, 0]),
            every=12,
        )
        task = logistic(unit=unit, **settings_ | ({} if norm else {"clip": 1.0}))
        weights = np.zeros(3, np.float32)
        for step in range(12):
            weights = dd.client_update(task, weights, x[step % 4], y[step % 4, 0], key=keys.root())
        np.testing.assert_allclose(seen[-1], weights, atol=1e-6)
        assert np.abs(weights).max() > 0.05


# --- the promise


def test_the_guarantee_names_its_unit_and_composes():
    task = logistic(unit="feature", epsilon=1.5, participations=4)
    by_feature, by_model = dd.guarantee(task), dd.guarantee(task, unit="model")
    assert (by_feature.epsilon, by_feature.unit, by_feature.relation) == (6.0, Unit.FEATURE, Relation.REPLACE)
    assert (by_model.epsilon, by_model.unit, by_model.releases) == (18.0, Unit.CLIENT, 4)
    assert "per feature, replace one; 4 releases; local, 4 updates of 3 weights" in str(by_feature)
    assert any("all 3 together cost up to that many times" in words for words in by_feature.assumptions)
    assert "single coordinate" in by_feature.explain()
    whole = dataclasses.replace(task, unit="model")
    assert (dd.guarantee(whole, 1).epsilon, dd.guarantee(whole, 1).unit) == (1.5, Unit.CLIENT)
    assert dd.guarantee(whole, 0).epsilon == 0


def test_a_delta_buys_a_smaller_epsilon_for_many_updates():
    task = logistic(unit="model", epsilon=0.1)
    assert dd.guarantee(task, 100).epsilon == pytest.approx(10)
    assert dd.guarantee(task, 100, delta=1e-6).epsilon < 6
    gaussian = logistic(unit="model", epsilon=1.0, delta=1e-6, noise="gaussian")
    assert 1.0 < dd.guarantee(gaussian, 4).epsilon < 4.0
    with pytest.raises(InvalidInput, match="no pure epsilon"):
        dd.guarantee(gaussian, delta=0.0)


def test_without_noise_there_is_no_promise():
    task = logistic(unit="model", epsilon=math.inf, noise="none")
    assert not dd.guarantee(task).is_private
    with pytest.raises(InvalidInput, match="no bound against weaker observers"):
        dd.informal(task)


def test_informal_stands_apart_from_the_guarantee():
    task = custom(weights=30, unit="feature", epsilon=1.0)
    informal = dd.informal(task, updates=100)
    assert informal.later == pytest.approx(0.317, abs=1e-3)
    assert informal.snapshot == pytest.approx(1.0, abs=1e-6)
    assert dd.guarantee(task, 1).epsilon == 1.0


# --- the task


@private
def test_a_task_survives_json_and_its_version_tells_changes(settings_):
    task = logistic(**settings_)
    copy = dd.Task.from_dict(json.loads(json.dumps(task.to_dict(), allow_nan=False)))
    assert copy == task
    assert copy.version == task.version
    assert len(task.version) == 16
    changed = dataclasses.replace(task, features=FeatureSpec((NumberField("a", 0, 2), BooleanField("b"))))
    assert len({task.version, changed.version, dataclasses.replace(task, instances=7).version}) == 3


def test_a_client_does_not_take_a_servers_word_for_the_noise():
    task = logistic(unit="model", epsilon=1.0).to_dict()
    for name, value in (("scale", 1e-9), ("grid", 1e-20), ("bound", 10**9)):
        with pytest.raises(InvalidInput, match="it was edited"):
            dd.Task.from_dict(task | {"noise": task["noise"] | {name: value}})
    for change in ({"norm": 2}, {"weights": 4}, {"version": "0" * 16}, {"epsilon": 9.0}):
        with pytest.raises(InvalidInput):
            dd.Task.from_dict(task | change)
    unversioned = {name: value for name, value in task.items() if name not in ("version", "norm")}
    assert dd.Task.from_dict(unversioned).to_dict() == task


WRONG: list[dict[str, Any]] = [
    {"epsilon": 0},
    {"epsilon": math.inf},
    {"epsilon": math.nan},
    {"epsilon": "1"},
    {"epsilon": 2.0**17},
    {"noise": "none"},
    {"noise": "uniform"},
    {"noise": "gaussian"},
    {"delta": 1e-6},
    {"unit": "row"},
    {"learning_rate": 0},
    {"clip": -1},
    {"instances": 0},
    {"instances": 2.0},
    {"participations": 0},
    {"participations": True},
    {"model": ""},
    {"model": 3},
    {"family": "gamma"},
    {"family": "multinomial"},
    {"family": "poisson"},
    {"family": "custom"},
    {"features": None},
    {"response": None},
    {"weights": 99},
    {"family": "ordinal", "response": Response(CategoryField("y", ("p", "q", "r")))},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_task_that_makes_no_sense_is_refused(change):
    with pytest.raises(InvalidInput):
        logistic(**{"unit": "model", "epsilon": 1.0} | change)


@pytest.mark.parametrize(
    "wrong",
    [None, [], {}, {"noise": 1}, {"noise": {"kind": "laplace"}}, {"noise": {"kind": "laplace"}, "extra": 1}],
    ids=str,
)
def test_what_is_not_a_task_is_refused(wrong):
    with pytest.raises(InvalidInput):
        dd.Task.from_dict(wrong)


def test_a_custom_task_encodes_nothing():
    task = custom(unit="model", epsilon=1.0)
    assert task.columns == []
    assert dd.Task.from_dict(task.to_dict()) == task
    with pytest.raises(InvalidInput, match="custom"):
        task.encode([])
    assert logistic(unit="model", epsilon=1.0).columns == ["a", "b", "y"]
