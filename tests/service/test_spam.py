"""The guard: honest updates pass as they are; hostile ones move a model no further than its bounds say."""

import math

import numpy as np
import pytest

from blindsight.service.bounds import UpdateBounds
from blindsight.service.protocol import decode, encode
from blindsight.service.shown import MIXED, mixture
from blindsight.service.sketch import Sketch
from blindsight.service.spam import Guard, recent_draws, spread_of


def custom(make_task, weights: int = 100, **changes):
    given = {"family": "custom", "features": None, "response": None, "weights": weights, "unit": "feature"}
    return make_task(**(given | {"epsilon": 1.0} | changes))


class Chain:
    """Draw and discard: what is shown changes with each batch of k updates; an update may be late."""

    def __init__(self, task, seed: int, *, drift: float = 0.0, in_flight: int = 0) -> None:
        self.task, self.random, self.drift = task, np.random.default_rng(seed), drift
        spread = math.sqrt(task.instances / 2 * task.variance)
        rows = self.random.normal(0, spread, (task.instances, task.weights))
        self.rows = [encode(row) for row in rows]
        self.guard, self.count, self.in_flight = Guard(task), 0, in_flight
        self.shown, self.flying = list[bytes](), list[np.ndarray]()
        self.show()

    def show(self) -> None:
        chosen = self.random.choice(len(self.rows), min(MIXED, len(self.rows)), replace=False)
        made = [self.rows[place] for place in chosen]
        self.shown = [*self.shown, mixture(made) if len(made) == MIXED else made[0]][-recent_draws(self.task.weights) :]

    def honest(self) -> np.ndarray:
        while len(self.flying) <= self.in_flight:
            noise = self.random.laplace(0, self.task.scale, self.task.weights)
            step = self.drift * self.task.learning_rate * self.task.clip
            self.flying.append(decode(self.shown[-1]) + step + noise)
        return self.flying.pop(0)

    def send(self, update: np.ndarray) -> bool:
        is_known, instance = self.guard.measure([encode(update)], self.shown, self.shown[-1])[0]
        if is_known:
            self.rows[self.random.integers(len(self.rows))] = instance
        self.count += 1
        if self.count % self.task.instances == 0:
            self.show()
        return is_known

    def mean(self) -> np.ndarray:
        return np.asarray(np.mean([decode(row) for row in self.rows], axis=0, dtype=np.float64))


@pytest.mark.parametrize("weights", [10, 387, 2000])
@pytest.mark.parametrize("in_flight", [0, 100])
def test_honest_updates_are_never_refused_late_ones_neither(make_task, weights, in_flight):
    chain = Chain(custom(make_task, weights), 0, in_flight=in_flight)
    assert all(chain.send(chain.honest()) for _ in range(1200))
    assert chain.guard.shortened <= 4  # where 1 in 1,000 is allowed


def test_a_thousand_updates_by_others_between_draw_and_update_change_nothing(make_task):
    """At a thousand updates a second that is a second: what such a client drew is known still."""
    chain = Chain(custom(make_task, 387), 0, in_flight=1000)
    assert all(chain.send(chain.honest()) for _ in range(1500))
    assert chain.guard.shortened <= 2


def test_an_update_within_all_bounds_is_stored_as_it_came(make_task):
    chain = Chain(custom(make_task), 0)
    updates = [encode(chain.honest()) for _ in range(64)]
    assert chain.guard.measure(updates, chain.shown) == [(True, update) for update in updates]


@pytest.mark.parametrize("equal", [64, 99])
def test_what_was_drawn_and_came_back_changes_nothing_however_little_draws_differ(make_task, equal):
    """Of clients without noise: a difference from the wrong draw, added to the current one, would double each time."""
    guard, random = Guard(custom(make_task)), np.random.default_rng(0)
    first = 20 * guard.bounds.reach * random.standard_normal(100).astype(np.float32)
    is_same = np.arange(100) < equal
    draws = [encode(np.where(is_same, first, first * np.float32(1 + 1e-6 * age))) for age in range(9)]
    for drawn in draws:
        assert guard.measure([drawn], draws, draws[-1]) == [(True, draws[-1])]


def test_a_model_that_runs_away_as_fast_as_clients_can_push_it_is_followed(make_task):
    chain = Chain(custom(make_task, 387, epsilon=8.0), 0, drift=1.0)
    assert all(chain.send(chain.honest()) for _ in range(3000))
    assert float(chain.mean().mean()) > 0.5 * 3000 / 20 * 0.001 * 0.5  # a batch shares its start


def test_what_no_client_sends_is_refused_wherever_it_stands(make_task):
    chain = Chain(custom(make_task), 0)
    honest = chain.honest()
    assert chain.guard.measure([encode(honest)], chain.shown)[0][0]
    for value in (np.nan, -np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e15, 10.0):
        for place in (0, 57, 99):
            update = honest.astype(np.float32)
            update[place] = value
            assert not chain.guard.measure([encode(update)], chain.shown)[0][0], value
    together = [encode(honest), encode(honest * np.nan), encode(honest)]
    assert [one for one, _ in chain.guard.measure(together, chain.shown)] == [True, False, True]


def test_updates_that_are_measured_together_are_measured_as_each_alone(make_task):
    """Honest ones skip what one bad one needs: it must not spoil them, nor hide among them."""
    task = custom(make_task, 387)
    chain, bounds = Chain(task, 0), UpdateBounds.of(task)
    for _ in range(3):
        chain.show()
    now, before, random = decode(chain.shown[-1]), decode(chain.shown[0]), np.random.default_rng(1)
    change, spike = random.laplace(0, task.scale, 387), np.eye(387)[5] * 1.5 * bounds.reach
    sent = [now + change, before + change, now * np.nan, now + 2 * change / np.linalg.norm(change) * bounds.radius]
    updates = [encode(update) for update in [*sent, now + spike, now + bounds.limit, now]]
    alone = [Guard(task).measure([update], chain.shown, chain.shown[-1])[0] for update in updates]
    for order in (slice(None), slice(None, None, -1), slice(0, 2), slice(2, 3), slice(4, 5), slice(1, 5)):
        assert Guard(task).measure(updates[order], chain.shown, chain.shown[-1]) == alone[order]
    known = [True, True, False, True, True, False, True]
    assert [is_known for is_known, _ in alone] == known
    changes = [decode(stored).astype(np.float64) - now for _, stored in alone]
    assert [bool(change.any()) for change in changes] == [True, True, False, True, True, False, False]
    assert alone[0][1] == updates[0]
    assert changes[1] == pytest.approx(change, abs=1e-6)
    assert np.linalg.norm(changes[3]) == pytest.approx(bounds.radius, rel=1e-3)
    assert changes[4][5] == pytest.approx(bounds.reach, rel=1e-3)


def test_no_sender_widens_the_bounds(make_task):
    """A window that follows the spread of the instances can be driven from 0.1 to 1e15: each update doubles it."""
    task = custom(make_task, 387)
    chain, bounds = Chain(task, 0), UpdateBounds.of(task)
    for number in range(700):
        sign = 1 if number % 2 else -1
        start = decode(chain.shown[number % len(chain.shown)])
        for far in (bounds.limit * 0.999, bounds.radius, bounds.reach):
            chain.send(start + sign * far / math.sqrt(387))
    assert chain.guard.bounds == bounds
    moved = max(float(np.abs(decode(row)).max()) for row in chain.rows)
    assert moved < 2_100 / task.instances * bounds.reach  # the worst that so many increments can do
    assert not chain.send(chain.mean() + 1.01 * bounds.limit)


@pytest.mark.parametrize("seed", range(2))
def test_no_update_changes_what_was_shown_by_more_than_reach_and_radius(make_task, seed):
    task = custom(make_task, 50)
    chain, bounds, random = Chain(task, seed), UpdateBounds.of(task), np.random.default_rng(seed)
    for _ in range(800):  # past the first steps of the sketch
        length = bounds.limit * random.random() ** 3
        direction = random.standard_normal(50) * (random.random(50) < random.random())
        update = decode(chain.shown[-1]) + length * direction / max(np.linalg.norm(direction), 1e-9)
        is_known, instance = chain.guard.measure([encode(update)], chain.shown)[0]
        changes = [decode(instance) - decode(shown) for shown in chain.shown]
        assert min(float(np.abs(change).max()) for change in changes) <= bounds.reach * 1.0001
        assert min(float(np.linalg.norm(change)) for change in changes) <= bounds.radius * 1.0001
        assert is_known
        chain.send(update)


def test_a_burst_moves_no_weight_further_than_as_many_honest_updates_could(make_task):
    """k updates of one token, one after the other and all in one weight: at most k changes of `reach`, over k."""
    task = custom(make_task, 387)
    for seed in range(5):
        chain = Chain(task, seed)
        before = [decode(row)[3] for row in chain.rows]
        start = decode(chain.shown[-1]).astype(np.float64)
        for _ in range(task.instances):
            update = start.copy()
            update[3] += chain.guard.bounds.limit * 0.99
            assert chain.send(update)
        after = [decode(row)[3] for row in chain.rows]
        assert max(after) <= max(max(before), float(start[3])) + chain.guard.bounds.reach * 1.001


@pytest.mark.parametrize(("noise", "delta"), [("laplace", 0.0), pytest.param("gaussian", 1e-6, marks=pytest.mark.slow)])
def test_the_bounds_cover_all_but_one_in_a_thousand_and_are_not_idle(make_task, noise, delta):
    task = custom(make_task, 387, noise=noise, delta=delta, epsilon=2.0)
    bounds, random = UpdateBounds.of(task), np.random.default_rng(0)
    shape = (4000, task.weights)
    sampled = random.laplace(0, task.scale, shape) if noise == "laplace" else random.normal(0, task.scale, shape)
    lengths, largest = np.linalg.norm(sampled, axis=1), np.abs(sampled).max(axis=1)
    assert np.mean(lengths > bounds.noise_radius) < 1e-3
    assert np.mean(largest + task.learning_rate * task.clip > bounds.reach) < 1e-3
    assert np.mean(lengths > 0.8 * bounds.noise_radius) > 0.5  # a bound of four fifths would refuse most
    assert np.mean(largest > 0.35 * bounds.reach) > 0.5


def test_no_spread_of_honest_clients_raises_the_alarm(make_task):
    """Over many independent weights of one genealogy the spread stays below what noise and k explain."""
    task = custom(make_task, 50)
    random, largest = np.random.default_rng(1), 0.0
    for _ in range(2):
        rows = random.normal(0, math.sqrt(10 * task.variance), (20, 50))
        for _ in range(2500):
            new = rows[random.integers(20)] + random.laplace(0, task.scale, 50)
            rows[random.integers(20)] = new
            largest = max(largest, float(np.sqrt(rows.var(axis=0, ddof=1).mean())))
    assert 0.5 * UpdateBounds.of(task).largest_spread < largest * 2
    assert largest < UpdateBounds.of(task).largest_spread


def test_the_sketch_finds_a_minority_that_pushes_one_way_and_leaves_the_others(monkeypatch):
    """One in twenty, as long as noise is in all: without it they would push by 15 sigma, with it by about 1.5.

    What is honest and long in these directions counts for less too: a tenth of all squared lengths.
    """

    def outcome(seed: int) -> tuple[float, float]:
        monkeypatch.setattr("blindsight.service.sketch.secret_generator", lambda: np.random.default_rng(100 + seed))
        random, weights = np.random.default_rng(seed), 200
        sketch, way = Sketch(weights, 1.0), np.zeros(weights)
        way[:50] = 1 / math.sqrt(50)
        pushed, honest = list[float](), list[float]()
        for number in range(4000):
            is_hostile = number % 20 == 0
            change = (14 * way if is_hostile else random.standard_normal(weights)).astype(np.float32)
            before = float(change @ change)
            sketch.cut(change[None])
            if number > 2500:
                (pushed if is_hostile else honest).append(
                    float(change @ way) if is_hostile else float(change @ change) / before
                )
        return float(np.mean(pushed)), float(np.mean(honest))

    pushed, honest = np.mean([outcome(seed) for seed in range(5)], axis=0)
    assert pushed < 3
    assert honest > 0.87


def test_who_pushes_past_a_bound_moves_a_model_less_than_who_stays_within():
    """Also beside the direction that is followed, which is never known exactly."""
    sketch = Sketch(8, 1.0)
    sketch.basis, sketch.bounds = np.eye(8, dtype=np.float32)[:2], [(1, 1.0), (2, 2.0)]
    changes = np.zeros((4, 8), np.float32)
    changes[:, 0], changes[:, 5] = (0.9, 2.0, 4.0, 0.0), (0.9, 2.0, 4.0, 9.0)
    assert sketch.cut(changes).tolist() == [False, True, True, False]
    assert changes[:, 0].tolist() == pytest.approx([0.9, 0.5, 0.25, 0.0])
    assert changes[:, 5].tolist() == pytest.approx([0.9, 0.5, 0.25, 9.0])


def test_a_push_hidden_in_noise_is_weakened_beside_what_the_sketch_has_learned_too(monkeypatch):
    """One in twenty pushes by five sigma along a way and sends noise otherwise: it once kept about three of them.

    How much it keeps depends on the directions that the sketch begins with, so several are averaged.
    """

    def kept(seed: int) -> float:
        monkeypatch.setattr("blindsight.service.sketch.secret_generator", lambda: np.random.default_rng(100 + seed))
        random, weights = np.random.default_rng(seed), 200
        sketch, way, pushes = Sketch(weights, 1.0), np.full(weights, 1 / math.sqrt(weights)), list[float]()
        for number in range(0, 6000, 20):
            changes = random.standard_normal((20, weights))
            changes[0] += (5 - changes[0] @ way) * way
            rows = changes.astype(np.float32)
            sketch.cut(rows)
            if number > 4000:
                pushes.append(float(rows[0] @ way))
        return float(np.mean(pushes))

    assert np.mean([kept(seed) for seed in range(8)]) < 1.6


def test_who_turns_before_the_sketch_has_learned_a_direction_gains_little(monkeypatch):
    """One in twenty pushes by 14 sigma, along one of 24 parts of a way for 500 updates each: 2.9 along the way.

    With a look every 500 updates exactly, sixteen directions and a short memory, it kept about 1.9 of them.
    """

    def kept(seed: int) -> float:
        monkeypatch.setattr("blindsight.service.sketch.secret_generator", lambda: np.random.default_rng(100 + seed))
        random, weights, parts = np.random.default_rng(seed), 200, 24
        sketch, way, pushes = Sketch(weights, 1.0), np.full(weights, 1 / math.sqrt(weights)), list[float]()
        for number in range(0, 24_000, 20):
            changes = random.standard_normal((20, weights)).astype(np.float32)
            is_part = np.arange(weights) % parts == (number - 120) // 500 % parts  # a look was at 620, 1120, ...
            changes[0] = 14 * is_part / math.sqrt(is_part.sum())
            sketch.cut(changes)
            if number > 12_000:
                pushes.append(float(changes[0] @ way))
        return float(np.mean(pushes))

    assert np.mean([kept(seed) for seed in range(2)]) < 1.5


def test_the_drift_is_one_for_noise_and_more_if_all_push_one_way():
    random, sketch = np.random.default_rng(0), Sketch(400, 0.5)
    assert sketch.drift is None
    sketch.cut(random.normal(0, 0.5, (200, 400)).astype(np.float32))
    assert sketch.drift == pytest.approx(1, abs=0.15)
    sketch.cut(random.normal(0.25, 0.5, (200, 400)).astype(np.float32))  # half a sigma in each weight
    assert sketch.drift == pytest.approx(0.5 * math.sqrt(128), rel=0.1)


def test_the_sketch_cuts_from_the_first_updates_on_and_leaves_honest_ones(make_task):
    """Those before its first block would otherwise move a model further than thousands of honest ones repair."""
    task = custom(make_task, 387)
    chain, sigma, pushed, cut = Chain(task, 0), math.sqrt(task.variance), list[float](), 0
    for number in range(500):
        change = chain.random.laplace(0, task.scale, 387)
        if number % 20 == 10:
            change = np.full(387, chain.guard.radius / math.sqrt(387) * 0.999)
        ((_, stored),) = chain.guard.measure([encode(decode(chain.shown[0]) + change)], chain.shown[:1])
        stored = (decode(stored) - decode(chain.shown[0])).astype(np.float64)
        if number % 20 == 10:
            pushed.append(float(stored.sum()) / math.sqrt(387) / sigma)
        else:
            cut += float(stored @ change) < 0.9 * float(change @ change)
    assert max(pushed[:2]) > 15
    assert np.mean(pushed[3:]) < 7
    assert cut < 10


def test_spread_is_the_standard_deviation_over_instances(make_task):
    chain = Chain(custom(make_task, 5000), 3)
    assert spread_of(chain.rows) == pytest.approx(math.sqrt(20 / 2 * chain.task.variance), rel=0.05)
    assert spread_of(chain.rows[:1]) == 0.0
