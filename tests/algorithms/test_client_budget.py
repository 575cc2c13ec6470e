"""A client's budget: written before anything is sent, kept by all processes, and it stops by itself."""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from blindsight.algorithms.draw_and_discard import Budget, Task, guarantee
from blindsight.errors import BudgetExceeded, InvalidInput


def task(**changes: Any) -> Task:
    values: dict[str, Any] = {"model": "m", "family": "custom", "weights": 10, "participations": 100}
    values |= {"unit": "model", "epsilon": 1.0}
    return Task(**values | changes)


def test_it_stops_by_itself_and_a_new_process_knows(tmp_path):
    budget = Budget(tmp_path / "budget.db", epsilon=2.5)
    budget.spend(task())
    budget.spend(task(model="other"))
    with pytest.raises(BudgetExceeded, match="nothing is sent"):
        budget.spend(task())
    again = Budget(tmp_path / "budget.db", epsilon=2.5)
    assert again.spent == (2.0, 0.0)
    with pytest.raises(BudgetExceeded):
        again.spend(task())
    assert again.spent == (2.0, 0.0)  # a refusal costs nothing
    again.spend(task(epsilon=0.5))
    assert again.spent == (2.5, 0.0)


def test_participations_are_counted_by_model_whatever_its_version(tmp_path):
    budget = Budget(tmp_path / "budget.db", epsilon=100)
    first = task(participations=2)
    budget.spend(first)
    budget.spend(dataclasses.replace(first, learning_rate=0.5))
    with pytest.raises(BudgetExceeded, match="was sent 2 updates, and 2 are allowed"):
        budget.spend(dataclasses.replace(first, clip=0.25))


def test_by_model_an_update_with_noise_by_feature_costs_all_its_weights(tmp_path):
    assert Budget(tmp_path / "a.db", epsilon=1, unit="model").price(task(unit="feature")) == (10.0, 0.0)
    assert Budget(tmp_path / "b.db", epsilon=1, unit="feature").price(task(unit="feature")) == (1.0, 0.0)
    assert Budget(tmp_path / "c.db", epsilon=1, unit="feature").price(task()) == (1.0, 0.0)
    with pytest.raises(BudgetExceeded):
        Budget(tmp_path / "a.db", epsilon=9.9, unit="model").spend(task(unit="feature"))
    Budget(tmp_path / "b.db", epsilon=1, unit="feature").spend(task(unit="feature"))
    with pytest.raises(InvalidInput, match="counted by feature"):
        Budget(tmp_path / "b.db", epsilon=1)


def test_delta_counts(tmp_path):
    gaussian = task(noise="gaussian", delta=1e-6)
    with pytest.raises(BudgetExceeded):
        Budget(tmp_path / "a.db", epsilon=10).spend(gaussian)
    budget = Budget(tmp_path / "b.db", epsilon=10, delta=2e-6)
    budget.spend(gaussian)
    budget.spend(gaussian)
    with pytest.raises(BudgetExceeded):
        budget.spend(gaussian)


def test_what_is_not_private_needs_a_budget_without_end(tmp_path):
    open_ = task(noise="none", epsilon=math.inf)
    with pytest.raises(BudgetExceeded):
        Budget(tmp_path / "a.db", epsilon=1e9).spend(open_)
    Budget(tmp_path / "b.db", epsilon=math.inf).spend(open_)


@pytest.mark.parametrize("unit", ["model", "feature"])
@pytest.mark.parametrize("noise", [{"noise": "laplace"}, {"noise": "gaussian", "delta": 1e-6}])
def test_what_is_spent_is_what_as_many_updates_are_promised_to_cost(tmp_path, unit, noise):
    """Sums of pure losses are equal; Gaussian ones compose to less, and one of them is equal."""
    spent, asked = Budget(tmp_path / "budget.db", epsilon=1000, delta=1e-3), task(unit=unit, **noise)
    for sent in (1, 2, 3):
        spent.spend(asked)
        promised = guarantee(asked, sent, unit="model", delta=spent.spent[1])
        assert promised.epsilon <= spent.spent[0] * (1 + 1e-9)
        if noise["noise"] == "laplace":
            assert promised.epsilon == pytest.approx(spent.spent[0], rel=1e-9)
            assert promised.epsilon == pytest.approx(sent * (10 if unit == "feature" else 1), rel=1e-9)


def test_ten_tenths_are_one(tmp_path):
    budget = Budget(tmp_path / "budget.db", epsilon=1.0)
    for _ in range(10):
        budget.spend(task(epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        budget.spend(task(epsilon=2**-12))


def test_two_at_once_do_not_both_get_the_last_of_it(tmp_path):
    Budget(tmp_path / "budget.db", epsilon=5)

    def spend(_: int) -> bool:
        try:
            Budget(tmp_path / "budget.db", epsilon=5).spend(task())
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(spend, range(12))) == 5


def test_a_budget_that_makes_no_sense_is_refused(tmp_path):
    values: list[Any] = [{"epsilon": 0}, {"epsilon": math.nan}, {"epsilon": 1, "delta": 1}]
    values.append({"epsilon": 1, "unit": "row"})
    for wrong in values:
        with pytest.raises(InvalidInput):
            Budget(tmp_path / "budget.db", **wrong)
    (tmp_path / "text.db").write_text("not a budget, and long enough to be taken for a database file" * 20)
    with pytest.raises(InvalidInput, match="cannot be written"):
        Budget(tmp_path / "text.db", epsilon=1)
    with pytest.raises(InvalidInput, match="cannot be opened"):
        Budget(tmp_path / "no folder" / "budget.db", epsilon=1)
