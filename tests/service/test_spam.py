"""The window: honest updates are inside, whatever the instances do; others are not."""

import math

import numpy as np
import pytest

from blindsight.service.protocol import encode
from blindsight.service.spam import REFRESH_EVERY, Window, standard_deviations


def custom(make_task, weights: int = 100, **changes):
    given = {"family": "custom", "features": None, "response": None, "weights": weights, "unit": "feature"}
    return make_task(**(given | {"epsilon": 1.0} | changes))


class Chain:
    """Draw and discard with honest clients: noise, and steps as long as they may be."""

    def __init__(self, task, seed: int, drift: float = 0.0) -> None:
        self.task, self.random, self.drift = task, np.random.default_rng(seed), drift
        spread = math.sqrt(task.instances / 2 * task.variance)
        self.rows = self.random.normal(0, spread, (task.instances, task.weights)).astype(np.float32)
        self.window, self.count = Window(task), 0
        self.window.refresh([encode(row) for row in self.rows], 0)

    def update(self) -> np.ndarray:
        drawn = self.rows[self.random.integers(len(self.rows))]
        noise = self.random.laplace(0, self.task.scale, self.task.weights)
        return (drawn + self.drift * self.task.learning_rate * self.task.clip + noise).astype(np.float32)

    def step(self) -> bool:
        update = self.update()
        if self.window.age(self.count) >= REFRESH_EVERY:
            self.window.refresh([encode(row) for row in self.rows], self.count)
        inside = self.window.admits(encode(update), self.count)
        if inside:
            self.rows[self.random.integers(len(self.rows))] = update
            self.count += 1
        return inside


@pytest.mark.parametrize("weights", [10, 387, 5000])
def test_honest_updates_are_inside(make_task, weights):
    refused = 0
    for seed in range(3):
        chain = Chain(custom(make_task, weights), seed)
        refused += sum(not chain.step() for _ in range(400))
    assert refused <= 12  # 1 %, where a thousandth is aimed at


def test_a_model_that_runs_away_as_fast_as_clients_can_push_it_is_followed(make_task):
    chain = Chain(custom(make_task, 387, epsilon=8.0), 0, drift=1.0)
    assert sum(not chain.step() for _ in range(1500)) <= 15
    moved = 1500 / 20 * 0.001
    assert float(chain.rows.mean()) > 0.5 * moved


@pytest.mark.parametrize("changes", [{"instances": 1}, {"noise": "none", "epsilon": math.inf}, {"instances": 2}])
def test_instances_that_have_become_one_still_take_honest_updates(make_task, changes):
    task = custom(make_task, 50, **changes)
    window = Window(task)
    same = np.ones(50, np.float32)
    window.refresh([encode(same)] * task.instances, 7)
    assert window.admits(encode(same + np.float32(task.learning_rate * task.clip)), 7)
    assert not window.admits(encode(same + np.float32(100 * task.learning_rate * task.clip)), 7)


def test_one_weight_outside_is_enough(make_task):
    chain = Chain(custom(make_task), 0)
    honest = chain.rows.mean(axis=0)
    assert chain.window.admits(encode(honest), 0)
    for value in (np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1.0):
        for place in (0, 57, 99):
            update = honest.copy()
            update[place] = value
            assert not chain.window.admits(encode(update), 0), value


def test_nans_of_every_kind_are_outside_and_zeros_of_either_sign_are_one_number(make_task):
    task = custom(make_task, 3, instances=3)
    window = Window(task)
    window.refresh([encode(np.zeros(3, np.float32))] * 3, 0)
    for bits in (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF):  # quiet, signalling, both signs
        assert not window.admits(np.array([0, bits, 0], "<u4").tobytes(), 0)
    for low, high in ((0.0, 1.0), (-0.0, 1.0), (-1.0, 0.0), (-1.0, -0.0), (0.0, -0.0)):
        window._low[:], window._high[:] = low, high
        assert window.admits(np.array([0, 1 << 31, 0], "<u4").tobytes(), 0)


def test_numbers_that_are_none_are_outside_however_far_spam_has_driven_the_window(make_task):
    """Senders at its edges, on either side by turns, widen it by a factor every time it is read."""
    window = Window(custom(make_task, 3))
    rows = [encode(np.zeros(3))] * 20
    for count in range(0, 20_000, 50):
        window.refresh(rows, count)
        for number in range(50):
            rows[number % 20] = encode(window._high if number % 2 else window._low)
            assert window.admits(rows[number % 20], count)
        assert np.isfinite([window._low, window._high]).all()
        for value in (np.nan, np.inf, -np.inf):
            assert not window.admits(encode([0, value, 0]), count)


def test_the_window_is_as_wide_as_it_says(make_task):
    task = custom(make_task, 3, instances=3)
    rows = np.array([[0, 0, 1], [1, 0, 1], [2, 0, 4]], np.float32)
    window = Window(task)
    window.refresh([encode(row) for row in rows], 100)
    mean, spread = rows.mean(axis=0), rows.std(axis=0, ddof=1)

    def half(age: float) -> np.ndarray:
        wide = 1 + age / task.instances
        return standard_deviations(3) * np.sqrt(spread**2 + wide * task.variance) + wide * task.learning_rate

    for count in (100, 105, 120, 149, 1000):  # never narrower than now, never wider than in 25 updates
        for sign in (-1, 1):
            assert window.admits(encode(mean + sign * 0.99 * half(count - 100)), count)
            assert not window.admits(encode(mean + sign * 1.01 * half(count - 100 + 25)), count)


def test_more_weights_need_a_wider_window():
    found = [standard_deviations(weights) for weights in (10, 387, 5000, 50_000, 10**6)]
    assert found == sorted(found)
    assert found[0] >= 4
    assert found[-1] < 10


def test_spread_is_the_standard_deviation_over_instances(make_task):
    chain = Chain(custom(make_task, 5000), 3)
    expected = math.sqrt(20 / 2 * chain.task.variance)
    assert chain.window.spread == pytest.approx(expected, rel=0.05)


def test_instances_of_another_length_or_number_are_not_read(make_task):
    chain = Chain(custom(make_task, 5), 0)
    rows = [encode(row) for row in chain.rows]
    for wrong in ([*rows[:-1], rows[-1] + bytes(4)], [*rows[:-1], rows[-1][4:]], rows[:-1], [*rows, rows[0]]):
        with pytest.raises(ValueError, match=r"structures|argument"):
            Window(chain.task).refresh(wrong, 0)


def test_the_instances_are_due_after_fifty_updates(make_task):
    chain = Chain(custom(make_task, 5), 0)
    chain.window.refresh([encode(row) for row in chain.rows], 7)
    assert chain.window.due == 7 + REFRESH_EVERY == 57
