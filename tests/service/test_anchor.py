"""The anchor: what a few clients push beside what public examples predict is taken back, and nothing else."""

import asyncio
import math
from typing import cast

import numpy as np
import pytest

from blindsight.codings.specs import FeatureSpec, NumberField
from blindsight.models import glm
from blindsight.service.anchor import TOLERATED, Anchor
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool
from blindsight.service.protocol import decode, encode
from blindsight.service.shields import make_shield, principal_directions
from blindsight.service.spam import Guard
from blindsight.service.store import Record

WEIGHTS, EACH = 41, 20
NARROW = {"unit": "feature", "epsilon": math.log(32)}


def wide(make_task, **changes):
    fields = FeatureSpec(tuple(NumberField(f"x{n}", 0, 1) for n in range(WEIGHTS - 1)))
    return make_task(features=fields, **(NARROW | changes))


def examples(task, count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = np.hstack([np.ones((count, 1)), random.random((count, WEIGHTS - 1))])
    return x, (x[:, 1] - x[:, 2] + random.normal(0, 0.3, count) > 0).astype(float)


@pytest.fixture
def task(make_task):
    return wide(make_task)


@pytest.fixture
def shield(task):
    x, y = examples(task)
    return make_shield(task, np.zeros(WEIGHTS), x, y, principal_directions(task, x, y))


def mean_pushed(anchor, shield, task, *, push, honest=1.0, share=0.05, updates=6000) -> np.ndarray:
    """What all draws move by on average for each update, in deviations of the noise, once the mean is learned."""
    random, step, pushed = np.random.default_rng(1), honest * shield.step @ shield.basis[: len(shield.step)], []
    sigma = math.sqrt(task.variance)
    for _ in range(updates // EACH):
        changes = step + random.normal(0, sigma, (EACH, WEIGHTS))
        changes[random.random(EACH) < share] = push
        changes = changes.astype(np.float32)
        excess = anchor.excess(shield)
        pushed.append(changes.mean(axis=0) - (0 if excess is None else excess))
        anchor.note(changes)
    return np.mean(pushed[len(pushed) // 3 :], axis=0) / sigma


def test_what_a_few_clients_push_is_taken_back_however_long_they_go_on(task, shield):
    """Without an anchor a push of three deviations by 5 % moves every draw by 0.15 of one, for each update."""
    along = shield.basis[1]
    push = 3 * math.sqrt(task.variance) * along
    honest = mean_pushed(Anchor(WEIGHTS), shield, task, push=push, share=0.0)
    moved = mean_pushed(Anchor(WEIGHTS), shield, task, push=push) - 0.95 * honest
    assert abs(float(moved @ along)) < 0.05
    elsewhere = np.eye(WEIGHTS)[0] - shield.basis.T @ shield.basis[:, 0]  # nothing is predicted there
    elsewhere /= np.linalg.norm(elsewhere)
    push = 3 * math.sqrt(task.variance) * elsewhere
    moved = mean_pushed(Anchor(WEIGHTS), shield, task, push=push) - 0.95 * honest
    assert float(moved @ elsewhere) == pytest.approx(0.15, abs=0.04)


def test_what_most_clients_agree_on_is_learned_but_for_what_a_few_could_have_pushed(task, shield):
    """Clients who all disagree with the public examples are slowed by a twentieth of the radius, and not stopped."""
    along, sigma = shield.basis[2], math.sqrt(task.variance)
    anchor = Anchor(WEIGHTS)
    moved = mean_pushed(anchor, shield, task, push=sigma * along, share=1.0)
    excess = anchor.excess(shield)
    assert excess is not None
    assert np.linalg.norm(excess) == pytest.approx(TOLERATED * shield.step_radius, rel=1e-3)
    assert float(moved @ along) > 1 - 1.1 * TOLERATED * shield.step_radius / sigma


@pytest.mark.parametrize("pace", [1.0, 4.0])
def test_clients_who_step_as_predicted_or_faster_are_not_slowed(task, shield, pace):
    """A client of many examples may step further than the mean of the public ones."""
    anchor, step = Anchor(WEIGHTS), shield.step @ shield.basis[: len(shield.step)]
    for _ in range(100):
        anchor.note(np.full((EACH, 1), pace, np.float32) * step.astype(np.float32))
    excess = anchor.excess(shield)
    assert excess is not None
    assert np.linalg.norm(excess) < 1e-3 * np.linalg.norm(step)


def test_a_few_updates_and_no_public_examples_tell_nothing(task, shield):
    anchor = Anchor(WEIGHTS)
    anchor.note(np.ones((200, WEIGHTS), np.float32))
    assert anchor.excess(shield) is None
    anchor.note(np.ones((100, WEIGHTS), np.float32))
    assert anchor.excess(shield) is not None
    draw, guard = encode(np.arange(WEIGHTS)), Guard(task)
    guard.anchor = anchor
    assert guard.anchored(draw) is draw
    assert guard.beside is None


def test_the_anchor_forgets(task, shield):
    anchor = Anchor(WEIGHTS)
    for change in (shield.step_radius, 0.0):
        for _ in range(500):
            anchor.note(np.full((EACH, WEIGHTS), change, np.float32) * shield.basis[0])
    fresh = Anchor(WEIGHTS)
    fresh.note(np.zeros((500, WEIGHTS), np.float32))
    assert anchor.excess(shield) == pytest.approx(fresh.excess(shield), abs=1e-3 * shield.step_radius)


def test_a_draw_shows_less_of_what_a_few_push_and_what_comes_back_is_measured_from_it(task, shield):
    """The guard learns from what it stores, and an honest update of such a draw is still stored as it came."""

    async def check() -> None:
        store, record = MemoryStore(None), Record(task=task)
        drawn = encode(np.linspace(-1, 1, WEIGHTS))
        assert await store.put(record, [drawn] * task.instances)
        pool = Pool(record, store, batch=300)
        pool.guard.shield = shield
        ends = round(store.now()) + 60
        plain = pool.draw_now()
        assert plain is not None
        push = encode(decode(plain) + 0.5 * math.sqrt(task.variance) * shield.basis[1])
        for number in range(300):
            assert pool.offer_now(push, number.to_bytes(12, "little"), ends)
        pool.settle()
        for number in range(task.instances):
            cast(list[bytes], store.instances_now(record))[number] = drawn
        excess, shown = pool.guard.anchor.excess(shield), pool.draw_now()
        assert excess is not None
        assert shown is not None
        assert float(excess @ shield.basis[1]) > 0.9 * TOLERATED * shield.step_radius
        assert decode(shown) == pytest.approx(decode(plain) - excess, abs=1e-6)
        update = encode(decode(shown) + np.random.default_rng(0).laplace(0, task.scale / 10, WEIGHTS))
        assert pool.offer_now(update, b"another " + bytes(4), ends)
        pool.settle()
        assert update in store.instances_now(record)
        assert (pool.guard.beside or 0) > 1
        await pool.close()

    asyncio.run(check())


@pytest.mark.parametrize("unit", ["feature", "model"])
def test_the_step_that_is_predicted_is_the_mean_of_clipped_ones_along_all_groups(make_task, unit):
    """The directions of the groups hold the gradient of every part of them: none is wasted on one that others span."""
    task = wide(make_task, unit=unit, **({} if unit == "feature" else {"epsilon": 8.0, "clip": 0.2}))
    x, y = examples(task)
    weights = np.random.default_rng(2).normal(0, 0.3, WEIGHTS)
    shield = make_shield(task, weights, x, y, principal_directions(task, x, y))
    basis = shield.basis[: len(shield.step)].astype(float)
    assert len(basis) == 8
    steps, chances = np.zeros(WEIGHTS), glm.predict("logistic", weights, x)
    for value in (0, 1):
        group = np.flatnonzero(y == value)
        for part in np.array_split(group[np.argsort(chances[group], kind="stable")], 4):
            gradient = glm.gradient("logistic", weights, x[part], y[part])
            outside = gradient - (basis @ gradient) @ basis
            assert np.linalg.norm(outside) < 1e-4 * np.linalg.norm(gradient)
            longest = np.inf if unit == "feature" else task.clip / np.linalg.norm(gradient, task.norm)
            steps -= task.learning_rate * len(part) / len(x) * gradient * min(1.0, longest)
    assert shield.step == pytest.approx(basis @ steps, rel=1e-4, abs=1e-9)
