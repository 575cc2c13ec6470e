"""Laws of synthesis: the two releases cost what was asked together, each is paid for first, and samples are redrawn."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight import keys
from blindsight.accounting.accountants import epsilon as epsilon_of
from blindsight.accounting.events import Composed, Gaussian, flatten
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.moments import MomentsPart
from blindsight.algorithms.synthesis import Synthesis, plan, synthesise
from blindsight.backends import Batch
from blindsight.codings.features import images, rows, strokes
from blindsight.codings.images_and_rows import Category
from blindsight.data.population import Population
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.mechanisms import GaussianMechanism
from blindsight.mechanisms.noise import Sampler

KEY = keys.reproducible(4)
FEATURES = images((12, 12), frequencies=8)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Everything here is compiled in many shapes and run once in each."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def population(count: int = 300, name: str = "bars") -> Population:
    """Upright and level bars, one image for each client."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, count).astype(np.int32)
    at = random.integers(3, 8, count)
    image = random.integers(0, 60, (count, 12, 12))
    for number, (label, place) in enumerate(zip(labels, at, strict=True)):
        lines = image[number] if label else image[number].T
        lines[:, place : place + 2] += 180
    columns = {"image": image.astype(np.uint8), "label": labels}
    return Population(columns, sizes=[1] * count, name=name, classes={"label": ("level", "upright")})


def made(epsilon: float, *, ledger: Ledger, sampler: Sampler = "exact") -> Synthesis:
    return synthesise(
        population(), FEATURES, epsilon=epsilon, delta=1e-5, key=KEY, ledger=ledger, size=6, sampler=sampler
    )


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """One synthesis, its ledger, and for every release: how long the ledger was then, and with which key."""
    ledger, released = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db"), GaussianMechanism.release
    seen = list[tuple[int, bytes]]()

    def watch(self, total, *, key):
        seen.append((len([entry for entry in ledger.entries() if entry.kind == "release"]), key.secret))
        return released(self, total, key=key)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GaussianMechanism, "release", watch)
        return made(3.0, ledger=ledger), ledger, seen


@pytest.mark.parametrize("sampler", ["exact", "float"])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_the_two_mechanisms_cost_what_was_asked_together(share, sampler):
    one, other = plan(1000, 2000, epsilon=2.0, delta=1e-6, share=share, sampler=sampler)
    both = Composed((one.planned_event, other.planned_event))
    assert 1.98 < epsilon_of(both, 1e-6).epsilon <= 2.0
    precision = [1 / mechanism.noise_multiplier**2 for mechanism in (one, other)]
    assert precision[0] / sum(precision) == pytest.approx(share)


def test_the_ledger_has_both_releases_and_the_guarantee_is_theirs(watched):
    found, ledger, _ = watched
    assert [entry.kind for entry in ledger.entries()] == ["data", "release", "release"]
    assert ledger.spent("bars", 1e-5).epsilon == pytest.approx(found.guarantee.epsilon, rel=1e-6)
    assert 2.9 < found.guarantee.epsilon <= 3.0
    assert (found.guarantee.releases, found.annotator.guarantee) == (2, found.guarantee)
    assert any("reproducible" in words for words in found.guarantee.assumptions)


def test_each_release_is_paid_for_before_its_noise_is_drawn(watched):
    assert [length for length, _ in watched[2]] == [1, 2]


def test_the_noise_of_the_two_releases_is_not_the_same(watched):
    """Whoever knew the one could subtract it from the other."""
    assert len({secret for _, secret in watched[2]}) == 2


def test_a_budget_that_allows_the_first_release_alone_stops_the_second(ledger_path):
    ledger = Ledger(ledger_path)
    ledger.set_budget("bars", epsilon=2.0, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        made(3.0, ledger=ledger)
    assert [entry.kind for entry in ledger.entries("bars")] == ["budget", "data", "release"]


@pytest.mark.parametrize("size", [1, 30])
def test_no_client_adds_more_strokes_than_its_bound(size):
    """Whatever its images hold, noise of ten times white among it, and however many there are of one class."""
    reference = population(40).columns["image"]
    part = MomentsPart(strokes(reference, size=6), ("all",), ("level", "upright"))
    added = jax.jit(part.client_part)
    random = np.random.default_rng(size)
    wild = {"white": np.full((size, 12, 12), 255, np.uint8), "noise": 1e4 * random.normal(size=(size, 12, 12))}
    for image in (*wild.values(), reference[:size]):
        fields = {"image": jnp.asarray(image, jnp.uint8 if image.dtype == np.uint8 else jnp.float32)}
        batch = Batch({**fields, "label": jnp.zeros(size, jnp.int32)}, jnp.ones(size))
        vector = np.asarray(added(batch, jnp.ones((1, size)), jax.random.key(0)), np.float64)
        assert 0.1 < np.linalg.norm(vector) <= part.bound == 1


@pytest.mark.slow
def test_samples_have_the_strokes_of_their_class():
    found = made(50.0, ledger=Ledger(), sampler="float")
    blurred, asked = found.blurred(20, key=KEY)
    told = list[tuple[int, int]]()
    redrawn, labels = found.samples(20, key=KEY, steps=15, progress=lambda *at: told.append(at))
    assert redrawn.shape == blurred.shape == (40, 12, 12)
    assert redrawn.dtype == np.uint8
    np.testing.assert_array_equal(labels, asked)
    assert np.mean(found.annotator.labels(redrawn) == labels) >= 0.95
    real = population(100, "others")
    assert np.mean(found.annotator.labels(real.columns["image"]) == real.columns["label"]) > 0.9
    assert told[-1] == (40, 40)
    again, _ = found.samples(20, key=KEY, steps=15)
    np.testing.assert_array_equal(again, redrawn)


def test_without_noise_it_is_asked_for_by_name():
    for mechanism in plan(10, 10, epsilon=math.inf, delta=1e-5, share=0.5):
        assert epsilon_of(mechanism.planned_event, 1e-5).epsilon == math.inf


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_a_release_without_a_share_is_refused(share):
    with pytest.raises(InvalidInput, match="share must lie between 0 and 1"):
        plan(10, 10, epsilon=1.0, delta=1e-5, share=share)


def test_what_has_no_strokes_is_refused_before_it_is_paid_for(ledger_path):
    ledger = Ledger(ledger_path)
    data = Population(
        {"colour": np.zeros(20, np.int32), "label": np.zeros(20, np.int32)},
        sizes=[1] * 20,
        name="rows",
        classes={"label": ("a", "b")},
    )
    with pytest.raises(InvalidInput, match="images only"):
        synthesise(data, rows([Category("colour", 3)]), epsilon=1.0, delta=1e-5, key=KEY, ledger=ledger)
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "key": KEY, "ledger": ledger}
    with pytest.raises(InvalidInput, match="sides of 12, 16"):
        synthesise(population(), images((10, 10), frequencies=8), **asked)
    with pytest.raises(InvalidInput, match="400 directions need more images"):
        synthesise(population(), FEATURES, size=400, **asked)
    assert ledger.entries() == []


def test_an_image_is_redrawn_for_one_step_at_least():
    with pytest.raises(InvalidInput, match="steps must be at least 1"):
        Synthesis(None, None, None).samples(1, key=KEY, steps=0)  # type: ignore[arg-type]


def test_the_events_are_two_gaussians():
    one, other = plan(10, 20, epsilon=1.0, delta=1e-5, share=0.5)
    assert {type(event) for event in flatten(Composed((one.planned_event, other.planned_event)))} == {Gaussian}
