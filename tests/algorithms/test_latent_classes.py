"""The latent class model: it has the tables that it was fitted to, and draws by its probabilities."""

import itertools

import numpy as np
import pytest

from blindsight.algorithms import latent_classes
from blindsight.algorithms.latent_classes import LatentClasses, Tables, fit

SIZES, LABELS, TOTAL = (3, 4, 2), 2, 10_000.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent_classes, "_FITS", 2)


def truth() -> np.ndarray:
    """A joint distribution of two fields that depend on each other, one that does not, and the label, (3, 4, 2, 2)."""
    dice = np.random.default_rng(1)
    first = dice.random((3, 4, 2))
    return np.einsum("abl,c->abcl", first / first.sum(), [0.3, 0.7])


def tables(noise: float) -> Tables:
    joint, dice = truth(), np.random.default_rng(2)
    single = np.concatenate([joint.sum(axis=tuple({0, 1, 2} - {place})) for place in range(3)])
    begins = [0, *itertools.accumulate(SIZES)]
    pairs, variance = np.zeros((LABELS, 9, 9)), np.full((LABELS, 9, 9), np.inf)
    for one, other in itertools.combinations(range(3), 2):
        block = np.moveaxis(joint.sum(axis=({0, 1, 2} - {one, other}).pop()), -1, 0)
        where = (slice(None), slice(begins[one], begins[one + 1]), slice(begins[other], begins[other + 1]))
        pairs[where], variance[where] = block, (noise / TOTAL) ** 2
    noisy = [one + noise / TOTAL * dice.standard_normal(one.shape) for one in (single, pairs)]
    return Tables(SIZES, noisy[0], np.full(single.shape, (noise / TOTAL) ** 2), noisy[1], variance)


def modelled(model: LatentClasses) -> np.ndarray:
    return np.einsum("k,kl,ka,kb,kc->abcl", model.weights, model.labels, *model.fields)


@pytest.mark.parametrize(("noise", "most"), [(1.0, 0.003), (100.0, 0.02)])
def test_the_model_has_the_tables_it_was_fitted_to(noise, most):
    model = fit(tables(noise), np.random.default_rng(0))
    assert model.weights.sum() == pytest.approx(1)
    joint = modelled(model)
    for axis in (0, 1, 2):
        np.testing.assert_allclose(joint.sum(axis=axis), truth().sum(axis=axis), atol=most)


def test_rows_are_drawn_by_the_probabilities_of_the_model():
    weights, labels = np.array([0.25, 0.75]), np.array([[1.0, 0.0], [0.2, 0.8]])
    model = LatentClasses(weights, labels, (np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]),))
    drawn, (field,) = model.draw(40_000, np.random.default_rng(0))
    assert np.mean(drawn) == pytest.approx(0.6, abs=0.01)
    assert np.mean(field == 1) == pytest.approx(0.25, abs=0.01)
    assert not np.any(drawn[field == 1])
