"""Laws of the moments: what a client may add, what is read from the sum, and what a generator makes of it."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from blindsight import keys
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.moments import MomentsPart, fit, frequencies_for, measure, moments_part
from blindsight.backends import Batch, Debug, Simulation
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Category
from blindsight.data.population import Population
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.inspection.measuring import client_update
from blindsight.mechanisms import GaussianMechanism
from blindsight.models.generators import draw
from blindsight.selection import Arms, everything, where

KEY = keys.reproducible(4)
SHAPE = (6, 5)
FEATURES = images(SHAPE, frequencies=8)
ARMS = Arms({"old": where("phone", 0), "new": where("phone", 1)})
BY_CLIENT = Arms({"old": where("phone", 0, by_client=True), "new": where("phone", 1, by_client=True)})


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Everything here is compiled in many shapes and run once in each."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def population(sizes: list[int], seed: int = 0, *, labelled: bool = True) -> Population:
    random = np.random.default_rng(seed)
    count = sum(sizes)
    columns = {
        "image": random.integers(0, 256, (count, *SHAPE)).astype(np.uint8),
        "phone": random.integers(0, 2, count).astype(np.int32),
    }
    if labelled:
        columns["label"] = random.integers(0, 3, count).astype(np.int32)
    classes = {"label": ("a", "b", "c")} if labelled else {}
    return Population(columns, sizes=sizes, name="pictures", classes=classes)


def batch_of(data: Population, client: int, *, fill: int = 0) -> Batch:
    columns = {field: np.asarray(column) for field, column in data[client].items()}
    count = int(data.sizes[client])
    filled = {field: jnp.asarray(np.concatenate([column, column[:fill]])) for field, column in columns.items()}
    return Batch(filled, jnp.asarray([1.0] * count + [0.0] * fill))


def part(batch: Batch, arms: Arms = ARMS, masks: Any = None, **settings) -> np.ndarray:
    defaults: Any = {"classes": 3, "label": "label", "arms_per_client": 1 if arms.disjoint_by_client else len(arms)}
    masks = arms.masks(batch) if masks is None else masks
    return np.asarray(_part(batch, masks, tuple(sorted({**defaults, **settings}.items()))), np.float64)


@functools.partial(jax.jit, static_argnums=2)  # once for every shape, whatever the arms are
def _part(batch: Batch, masks: jax.Array, settings: tuple[tuple[str, Any], ...]) -> jax.Array:
    return moments_part(FEATURES, batch, masks, **dict(settings))


def measured(data: Population, arms: Arms | None = None, *, epsilon=math.inf, key=KEY, **settings):
    return measure(data, FEATURES, arms, epsilon=epsilon, delta=1e-5, key=key, ledger=Ledger(), **settings)


@pytest.mark.parametrize("arms", [ARMS, BY_CLIENT, Arms({"all": everything()})])
@pytest.mark.parametrize("size", [1, 2, 40])
def test_no_client_is_longer_than_its_bound(arms, size):
    """One example, or many of one class: what makes the longest vectors."""
    data = population([size])
    for columns in ({}, {"label": np.zeros(size, np.int32)}, {"image": np.full((size, *SHAPE), 255, np.uint8)}):
        vector = part(batch_of(data.replace({**data.columns, **columns}), 0), arms)
        assert 0 <= np.linalg.norm(vector) <= 1
        if arms.disjoint_by_client:
            continue
        assert np.all(np.linalg.norm(vector, axis=(1, 2)) <= math.sqrt(0.5) + 1e-6)  # arms share a client's length


def test_the_bound_holds_whatever_is_said_about_arms_and_masks():
    """A wrong number of arms per client costs accuracy, never privacy; examples that fill up have no say in it."""
    batch = batch_of(population([30]), 0, fill=9)
    for masks in (ARMS.masks(batch), jnp.ones((2, 39))):
        vector = part(batch, masks=masks, arms_per_client=1)
        assert np.linalg.norm(vector) <= 1
    expected = part(batch_of(population([30]), 0), masks=jnp.ones((2, 30)), arms_per_client=1)
    np.testing.assert_allclose(vector, expected, atol=1e-6)


@pytest.mark.parametrize("sampler", ["exact", "float"])
def test_a_client_more_moves_the_sum_by_no_more_than_the_bound(sampler):
    """However many examples it has, and whatever they are; up to the rounding of a float sum."""
    data = population([3, 5, 2, 60])
    white = np.where(np.arange(70)[:, None, None] >= 10, 255, data.columns["image"]).astype(np.uint8)
    data = data.replace({**data.columns, "image": white, "label": np.where(np.arange(70) >= 10, 1, 0).astype(np.int32)})
    spec = MomentsPart.of(FEATURES, ARMS, data)
    mechanism = GaussianMechanism(1.0, sampler)

    def update(broadcast, examples, key):
        batch = examples.batch(examples.order(examples.capacity, key=None), 0, examples.capacity)
        return spec.client_part(batch, ARMS.masks(batch), key)

    sums = []
    for clients in ([0, 1, 2], [0, 1, 2, 3]):
        cohort = Simulation(data).cohort(np.array(clients), n_expected=4.0, key=KEY)
        total = cohort.sum(update, (), l2_bound=spec.bound, grid=mechanism.grid(spec.bound))
        sums.append(np.asarray(total.value, np.float64) * (total.grid or 1.0))
    moved = np.linalg.norm(sums[1] - sums[0])
    assert 0.5 < moved <= spec.bound * (1 + 1e-6)


@pytest.mark.slow
def test_backends_agree_on_ragged_clients():
    data = population([9, 0, 7])
    fast, plain = (measured(data, ARMS, backend=backend(data)) for backend in (Simulation, Debug))
    np.testing.assert_allclose(fast.sums, plain.sums, atol=1e-5)
    assert np.all(np.any(fast.sums[..., 0] > 0, axis=1))


def test_what_fills_a_batch_up_adds_nothing():
    data = population([5])
    np.testing.assert_allclose(part(batch_of(data, 0)), part(batch_of(data, 0, fill=4)), atol=1e-6)


def test_clients_in_no_arm_and_without_examples_add_nothing():
    data = population([4])
    nobody = Arms({"third": where("phone", 7), "fourth": where("phone", 8)})
    assert not np.any(part(batch_of(data, 0), nobody))
    empty = Batch({field: jnp.asarray(column) for field, column in data[0].items()}, jnp.zeros(4))
    assert not np.any(part(empty))


def test_labels_outside_the_classes_add_no_features():
    data = population([4])
    strange = data.replace({**data.columns, "label": np.full(4, 77, np.int32)})
    assert not np.any(part(batch_of(strange, 0)))


def test_means_are_those_of_the_examples():
    """Without noise, and with enough classes on every client for its vector to need no clipping."""
    random = np.random.default_rng(3)
    images_of = random.integers(100, 156, (60, *SHAPE)).astype(np.uint8)
    labels = np.tile(np.arange(3), 20).astype(np.int32)
    columns = {"image": images_of, "label": labels, "phone": np.repeat([0, 1], 30).astype(np.int32)}
    data = Population(columns, sizes=[15, 15, 15, 15], name="even", classes={"label": ("a", "b", "c")})
    found = measured(data, BY_CLIENT)
    assert (found.arms, found.classes, found.noise_std) == (("old", "new"), ("a", "b", "c"), 0)
    phi = np.asarray(FEATURES(Batch({"image": jnp.asarray(images_of)}, jnp.ones(60))))
    for arm in range(2):
        for label in range(3):
            mine = phi[(labels == label) & (columns["phone"] == arm)]
            np.testing.assert_allclose(found.means[arm, label], mine.mean(axis=0), atol=5e-4)
    assert found.guarantee is not None
    assert found.guarantee.epsilon == math.inf


def test_clipped_clients_keep_their_means():
    """Shares are clipped with the features, and divide out: one class alone is much longer than the bound."""
    data = population([20])
    data = data.replace({**data.columns, "label": np.zeros(20, np.int32)})
    phi = np.asarray(FEATURES(batch_of(data, 0)))
    np.testing.assert_allclose(measured(data).means[0, 0], phi.mean(axis=0), atol=1e-4)


def test_without_labels_there_is_one_class():
    data = population([4, 6], labelled=False)
    found = measured(data)
    assert found.sums.shape == (1, 1, 1 + FEATURES.dimension)
    assert found.classes == ("all",)
    phi = [np.asarray(FEATURES(batch_of(data, client))).mean(axis=0) for client in range(2)]
    np.testing.assert_allclose(found.means[0, 0], np.mean(phi, axis=0), atol=5e-4)  # clients weigh the same
    with pytest.raises(InvalidInput, match="have no names"):
        measured(Population(data.columns, sizes=[4, 6], name="x"), label="phone")


@pytest.mark.parametrize("sampler", ["exact", "float"])
def test_noise_has_the_size_that_is_said(sampler):
    """Clients in no arm leave nothing but noise."""
    data = population([2, 2])
    nobody = Arms({"third": where("phone", 7), "fourth": where("phone", 8)})
    found = measured(data, nobody, epsilon=2.0, key=keys.root(), sampler=sampler)
    statistic = float(np.sum(np.square(found.sums)))
    inside = lambda scale: 1e-4 < stats.chi2.cdf(statistic / (found.noise_std * scale) ** 2, found.sums.size) < 1 - 1e-4  # noqa: E731
    assert inside(1.0)
    assert not inside(2 / 3)
    assert not inside(3 / 2)
    assert found.noise_std > 1  # epsilon 2, bound 1


def test_the_ledger_has_it_first_and_a_budget_is_kept(ledger_path, monkeypatch):
    data, ledger = population([3, 3]), Ledger(ledger_path)
    ledger.set_budget("pictures", epsilon=1.0, delta=1e-5)

    def drawn_too_early(self, total, *, key):
        assert [entry.kind for entry in ledger.entries()] == ["budget", "data", "release"]
        raise KeyboardInterrupt

    ask = lambda: measure(data, FEATURES, epsilon=1.0, delta=1e-5, key=KEY, ledger=ledger)  # noqa: E731
    with monkeypatch.context() as patched:
        patched.setattr(GaussianMechanism, "release", drawn_too_early)
        with pytest.raises(KeyboardInterrupt):
            ask()
    with pytest.raises(BudgetExceeded):  # what was interrupted has been paid for
        ask()


def test_the_guarantee_is_the_one_asked_for():
    found = measured(population([3, 3]), ARMS, epsilon=3.0)
    assert found.guarantee is not None
    assert 2.9 < found.guarantee.epsilon <= 3.0
    assert any("reproducible" in words for words in found.guarantee.assumptions)


def test_fewer_frequencies_where_there_is_more_noise():
    sizes = [frequencies_for(noise, clients=3400, classes=10) for noise in (0.5, 4.2, 8.0, 1e4)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 81
    assert 30 < sizes[1] < 81
    assert sizes[-1] == 16
    assert frequencies_for(4.2, clients=3400, classes=10, arms=2) < sizes[1]


@pytest.mark.slow
def test_a_generator_of_rows_learns_how_columns_hang_together():
    """Two columns that always agree, in one arm, and never agree, in the other."""
    random = np.random.default_rng(1)
    left = random.integers(0, 2, 2000).astype(np.int32)
    phone = np.repeat([0, 1], 1000).astype(np.int32)
    columns = {"left": left, "right": np.where(phone == 0, left, 1 - left).astype(np.int32), "phone": phone}
    data = Population(columns, sizes=[10] * 200, name="agree")
    features = rows([Category("left", 2), Category("right", 2)])
    found = measure(data, features, BY_CLIENT, epsilon=8.0, delta=1e-5, key=KEY, ledger=Ledger(), label=None)
    steps: list[int] = []
    made = fit(found, key=KEY, steps=250, batch=16, progress=lambda done, total: steps.append(done))
    (old, new), _ = draw(made, 500, key=KEY)
    assert np.mean(old["left"] == old["right"]) > 0.85
    assert np.mean(new["left"] == new["right"]) < 0.15
    assert steps[0] == 0
    assert steps[-1] == 250


@pytest.mark.slow
def test_a_generator_of_images_comes_nearer_to_the_moments():
    """Black and white halves: no normal distribution is like that, so the start is off and training must help."""
    random = np.random.default_rng(1)
    bright = random.integers(0, 2, (600, 1, 1))
    image = np.where(np.arange(6)[None, :, None] < 3, bright, 1 - bright) * 255 + np.zeros((1, 1, 5))
    data = Population({"image": image.astype(np.uint8)}, sizes=[6] * 100, name="halves")
    found = measured(data)

    def distance(generator) -> float:
        latents = jax.random.normal(jax.random.key(3), (2000, generator.latent))
        reached = FEATURES.expected(generator.encoded(latents))
        expected = FEATURES.unpack(found.means)
        return sum(float(np.sum(np.square(np.asarray(reached[name]) - expected[name]))) for name in expected)

    begun, trained = (fit(found, key=KEY, steps=steps, batch=16) for steps in (0, 100))
    assert distance(trained) < 0.5 * distance(begun)


def test_parts_are_equal_exactly_if_they_compute_the_same():
    """Or else a round would be answered by what was compiled for another one, or compiled again for nothing."""
    public = np.random.default_rng(1).integers(0, 256, (2, 9, *SHAPE)).astype(np.uint8)

    def of(reference: np.ndarray | None, field: str = "image", **changes: Any) -> MomentsPart:
        features = images(SHAPE, frequencies=8, reference=reference, field=field)
        return dataclasses.replace(MomentsPart(features, ("old", "new"), ("a", "b", "c")), **changes)

    one = of(public[0])
    assert one == of(public[0])
    assert hash(one) == hash(of(public[0]))
    assert client_update(ARMS, (one,)) is client_update(ARMS, (of(public[0]),))
    others = [
        of(public[1]),
        of(None),
        of(public[0], field="picture"),
        of(public[0], arms=("old", "newer")),
        of(public[0], classes=("a", "b")),
        of(public[0], label=None),
        of(public[0], arms_per_client=2),
        of(public[0], name="others"),
        of(public[0], bound=2.0),
        MomentsPart(rows([Category("phone", 2)]), ("old", "new"), ("a", "b", "c")),
        MomentsPart(rows([Category("phone", 3)]), ("old", "new"), ("a", "b", "c")),
    ]
    assert {field.name for field in dataclasses.fields(MomentsPart)} == {
        *("features", "arms", "classes", "label", "arms_per_client", "name", "bound")
    }, "a new field has to be compared too"
    for place, other in enumerate([one, *others]):
        assert [place for place, again in enumerate([one, *others]) if again == other] == [place]


def test_arms_that_nobody_is_in_are_known_and_do_not_spoil_the_others():
    """Their moments are noise divided by noise."""
    data = population([8] * 60)
    arms = Arms({"all": where("phone", 7), "rest": everything()})
    found = measure(data, FEATURES, arms, epsilon=8.0, delta=1e-5, key=KEY, ledger=Ledger())
    assert not found.is_seen[0].any()
    assert found.is_seen[1].all()
    made, again = (fit(found, key=KEY, steps=5, batch=4) for _ in range(2))
    for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)  # the same key, the same generator
    (nobody, rest), _ = draw(made, 50, key=KEY)
    assert nobody["image"].shape == rest["image"].shape
    assert abs(rest["image"].mean() - data.columns["image"].mean()) < 15
