"""What every mechanism must pass."""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from blindsight import keys, trees
from blindsight.accounting import accountants, events
from blindsight.accounting.ledger import Ledger
from blindsight.errors import BlindsightError, PrivacyError, RelationMismatch
from blindsight.mechanisms.argmax import noisy_argmax
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism, gaussian
from blindsight.mechanisms.laplace_mechanism import LaplaceMechanism, laplace
from blindsight.mechanisms.quantiles import QuantileEstimate, quantile
from blindsight.mechanisms.release import marked, publish
from blindsight.mechanisms.tallies import Tally, votes
from blindsight.trees import BoundedSum

LABELS = ("red", "green", "blue")


def noise(case: str) -> GaussianMechanism | LaplaceMechanism:
    sampler = "exact" if "exact" in case else "float"
    return gaussian(1.5, sampler=sampler) if "gaussian" in case else laplace(1.5, sampler=sampler)


def additive(name: str, seed: int) -> tuple[Any, BoundedSum]:
    mechanism = noise(name)
    rng = np.random.default_rng(seed)
    updates = {"w": rng.normal(0, 0.1, (8, 4, 3)).astype(np.float32), "b": rng.normal(0, 0.1, 8).astype(np.float32)}
    grid = mechanism.step(2.0) if mechanism.sampler == "exact" else None
    return mechanism, trees.sum_clients(updates, 2.0, n_expected=10.0, order=1, grid=grid)


def poll(name: str, seed: int) -> tuple[Any, BoundedSum]:
    some = votes(LABELS, noise(name))
    chosen = np.random.default_rng(seed).integers(0, 3, 8)
    return some, some.count(np.array([some.part(LABELS[i]) for i in chosen]), n_expected=10.0)


def threshold(name: str, seed: int) -> tuple[Any, BoundedSum]:
    mechanism = noise(name)
    assert isinstance(mechanism, GaussianMechanism)
    some = quantile(0.5, low=0.0, high=1.0, mechanism=mechanism, levels=6)
    return some, some.count(some.parts(np.random.default_rng(seed).uniform(size=8)), n_expected=10.0)


def arg_max(name: str, seed: int) -> tuple[Any, BoundedSum]:
    mechanism = noise(name)
    assert isinstance(mechanism, GaussianMechanism)
    some = noisy_argmax(3, mechanism)
    return some, some.count(np.random.default_rng(seed).integers(0, 3, (8, 30)), n_expected=10.0)


SAMPLERS = ("exact", "float")
CASES: dict[str, Callable[[str, int], tuple[Any, BoundedSum]]] = {
    **{f"{kind} {sampler}": additive for kind in ("gaussian", "laplace") for sampler in SAMPLERS},
    **{f"votes, {kind} {sampler}": poll for kind in ("gaussian", "laplace") for sampler in SAMPLERS},
    **{f"quantile, gaussian {sampler}": threshold for sampler in SAMPLERS},
    **{f"arg-max, gaussian {sampler}": arg_max for sampler in SAMPLERS},
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> str:
    return request.param


def make(case: str, seed: int = 0) -> tuple[Any, BoundedSum]:
    """The mechanism and a sum that fits it."""
    return CASES[case](case, seed)


def numbers(value: Any) -> tuple[float, ...]:
    """All numbers in a released value."""
    if isinstance(value, Tally):
        return tuple(value.counts.tolist())
    if isinstance(value, QuantileEstimate):
        return dataclasses.astuple(value)
    return tuple(float(x) for leaf in jax.tree.leaves(value) for x in np.ravel(leaf))


def test_the_event_is_known_beforehand(case):
    mechanism, total = make(case)
    event = mechanism.event(total)
    assert event == mechanism.release(total, key=keys.reproducible(1)).event
    assert events.from_json(events.to_json(event)) == event


def test_the_event_does_not_depend_on_the_data(case):
    mechanism, total = make(case)
    _, other = make(case, seed=1)
    assert not all(
        np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (total.value, other.value)), strict=True)
    )
    assert mechanism.event(total) == mechanism.event(other)


@pytest.mark.parametrize("relation", list(events.Relation))
def test_the_event_has_a_finite_epsilon(case, relation):
    mechanism, total = make(case)
    assert 0 < accountants.epsilon(mechanism.event(total), 1e-6, relation).epsilon < 20


def test_the_same_key_gives_the_same_value_and_other_keys_others(case):
    mechanism, total = make(case)
    values = [numbers(mechanism.release(total, key=keys.reproducible(seed)).value) for seed in (*range(8), 0)]
    assert values[0] == values[-1]
    coarse = "quantile" in case  # two keys may well lead to the same cell
    assert len(set(values)) > 2 if coarse else len(set(values)) == 8


def test_a_key_has_to_be_given_and_by_name(case):
    mechanism, total = make(case)
    key = inspect.signature(mechanism.release).parameters["key"]
    assert (key.kind, key.default) == (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty)
    with pytest.raises(TypeError, match="key"):
        mechanism.release(total)


def test_the_value_is_what_it_should_be(case):
    mechanism, total = make(case)
    release = mechanism.release(total, key=keys.reproducible(2))
    assert np.all(np.isfinite(numbers(release.value)))
    assert 0 < release.noise_std < math.inf
    if "votes" in case:
        assert release.value.labels == LABELS
        assert release.value.counts.shape == (3,)
    elif "quantile" in case:
        assert 0 <= release.value.low < release.value.value < release.value.high <= 1
    elif "arg-max" in case:
        assert release.value.shape == (30,)
        assert set(release.value) <= {0, 1, 2}
    else:
        assert jax.tree.structure(release.value) == jax.tree.structure(total.value)
        assert jax.tree.map(np.shape, release.value) == jax.tree.map(np.shape, total.value)
        assert {leaf.dtype for leaf in jax.tree.leaves(release.value)} == {np.dtype(np.float32)}


def test_the_sum_is_left_as_it_was(case):
    mechanism, total = make(case)
    before = jax.tree.map(np.array, total.value)
    mechanism.release(total, key=keys.reproducible(3))
    assert all(np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (before, total.value)), strict=True))


@pytest.mark.parametrize("bad", [math.inf, math.nan, 0.0, -1.0])
def test_an_unbounded_sum_is_refused(case, bad):
    mechanism, total = make(case)
    with pytest.raises(PrivacyError):
        mechanism.release(dataclasses.replace(total, l2_bound=bad), key=keys.reproducible(1))
    with pytest.raises(PrivacyError):
        mechanism.release(dataclasses.replace(total, l1_bound=bad), key=keys.reproducible(1))


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_sum_that_is_not_finite_is_refused(case, bad):
    mechanism, total = make(case)
    spoilt = jax.tree.map(lambda leaf: np.full(np.shape(leaf), bad, np.float32), total.value)
    with pytest.raises(BlindsightError):
        mechanism.release(dataclasses.replace(total, value=spoilt), key=keys.reproducible(1))


def test_a_sum_made_for_the_other_sampler_is_refused(case):
    mechanism, _ = make(case)
    swapped = case.replace("exact", "FLOAT").replace("float", "exact").replace("FLOAT", "float")
    _, total = make(swapped)
    for attempt in (mechanism.event, lambda total: mechanism.release(total, key=keys.reproducible(1))):
        with pytest.raises(RelationMismatch):
            attempt(total)


def test_it_is_frozen_hashable_and_equal_to_its_like(case):
    (mechanism, _), (like, _) = make(case), make(case, seed=1)
    assert mechanism == like
    assert hash(mechanism) == hash(like)
    field = dataclasses.fields(mechanism)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(mechanism, field, getattr(mechanism, field))


def test_it_can_be_published(case, ledger_path):
    mechanism, total = make(case)
    ledger = Ledger(ledger_path)
    key = keys.reproducible(1)  # a secret one draws new noise in every call
    published = publish(mechanism, total, key=key, ledger=ledger, population="people")
    assert numbers(published.value) == numbers(mechanism.release(total, key=key).value)
    assert published.event == marked(mechanism.event(total), key)
    [entry] = ledger.entries("people")
    assert entry.event == events.to_json(published.event)
