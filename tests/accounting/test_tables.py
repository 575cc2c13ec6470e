"""The tables: every row reproduced, and the honest numbers on the right side of the published ones."""

import json

import pytest

from blindsight.accounting import tables
from blindsight.accounting.tables import PAPERS, build
from blindsight.errors import InvalidInput

FAST, SLOW = ["002", "003"], [pytest.param(paper, marks=pytest.mark.slow) for paper in ("000", "001")]


@pytest.mark.parametrize("paper", [*FAST, *SLOW])
def test_a_table_has_three_faces_of_the_same_numbers(paper):
    seen: list[tuple[int, int]] = []
    table = build(paper, lambda done, total: seen.append((done, total)))
    assert seen == [(done, len(table.rows)) for done in range(1, len(table.rows) + 1)]
    assert json.loads(json.dumps(table.to_dict()))["title"] == PAPERS[paper]
    lines = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {len(table.columns) + 1}
    assert len(lines) == len(table.rows) + 2
    assert not any("✗" in cell for row in table.rows for cell in row)


def test_one_row_of_each_federated_kind_in_full():
    realistic = tables.federated_numbers(tables.FEDERATED_ROWS["000"][0])
    assert realistic["reproduced"] == pytest.approx(2.3797, abs=1e-4)
    assert realistic["poisson"] == pytest.approx(1.0324, abs=1e-4)
    assert 10.1 < realistic["fixed_lower"] < 10.1366  # never above the finer bound
    assert realistic["fixed_upper"] == pytest.approx(17.394, abs=1e-3)
    simulated = tables.federated_numbers(tables.FEDERATED_ROWS["000"][1])
    assert simulated["fixed_lower"] > 1e5  # no protection, whoever counts


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["000", "001"])
def test_published_lies_between_what_is_claimed_and_what_is_true(paper):
    for row in build(paper).data:
        if not row["where"].endswith("simulated"):
            assert row["poisson"] < float(row["published"]) < row["fixed_lower"] < row["fixed_upper"], row["where"]
            assert all("✓" in cells[4] for cells in build(paper).rows)


def test_noise_on_the_loss_protects_nothing():
    table = build("003")
    assert {row["true"] for row in table.data} == {"inf"}
    assert all(0 < row["if_on_gradients"] < float(row["published"]) for row in table.data)


@pytest.mark.parametrize("paper", ["004", "", "0"])
def test_another_paper_is_refused(paper):
    with pytest.raises(InvalidInput, match="000, 001, 002, 003"):
        build(paper)
