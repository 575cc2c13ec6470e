"""The tables: every row reproduced, and the honest numbers on the right side of the published ones."""

import dataclasses
import functools
import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from blindsight.accounting import accountants, tables
from blindsight.accounting.as_published import BAYESIAN_ROWS, FEDERATED_ROWS, LOSS_NOISE_ROWS
from blindsight.accounting.events import Gaussian, Poisson, Repeated
from blindsight.accounting.tables import PAPERS, Table, build
from blindsight.errors import InvalidInput

ROWS = FEDERATED_ROWS | {"002": BAYESIAN_ROWS, "003": LOSS_NOISE_ROWS}
every_paper = pytest.mark.parametrize(
    "paper", ["002", "003", *(pytest.param(paper, marks=pytest.mark.slow) for paper in ("000", "001"))]
)


@functools.cache
def built(paper: str) -> tuple[Table, list[tuple[int, int]]]:
    """The table and what `progress` was told, once for all tests."""
    seen: list[tuple[int, int]] = []
    return build(paper, lambda done, total: seen.append((done, total))), seen


@every_paper
def test_every_row_is_there_and_progress_is_told(paper: str):
    table, seen = built(paper)
    assert [row["where"] for row in table.data] == [row.where for row in ROWS[paper]]
    assert len(table.rows) == len(table.data)
    assert seen == [(done, len(table.rows)) for done in range(1, len(table.rows) + 1)]
    assert (table.paper, table.title) == (paper, PAPERS[paper])


@every_paper
def test_the_page_of_the_documentation_has_the_table(paper: str):
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    assert built(paper)[0].to_markdown().strip() in page.read_text(encoding="utf-8")


@every_paper
def test_every_row_is_reproduced(paper: str):
    table, _ = built(paper)
    assert not any("✗" in cell for row in table.rows for cell in row)
    position = table.columns.index("reproduced")
    assert paper == "002" or all(row[position].endswith(" ✓") for row in table.rows)
    for row, found in zip(table.rows, table.data, strict=True):
        if "reproduced" in found:
            assert float(row[position].removesuffix(" ✓")) == pytest.approx(found["reproduced"], rel=5e-4)


@every_paper
def test_a_table_has_three_faces_of_the_same_numbers(paper: str):
    table, _ = built(paper)
    plain = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert plain["rows"] == list(table.data)
    assert plain["title"] == PAPERS[paper]
    page = table.to_markdown()
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len(lines) == len(table.rows) + 2
    assert set(lines[1]) == set("| -")
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    assert cells[0] == table.columns
    assert cells[2:] == [tuple(cell.strip() for cell in row) for row in table.rows]
    assert page.startswith(f"### {paper}: ")
    assert all(f"\n- {note}\n" in page for note in table.notes)
    screen = io.StringIO()
    Console(file=screen, width=160).print(table)
    drawn = screen.getvalue()
    assert all(cell.strip() in drawn for row in table.rows for cell in row)
    assert " ".join(table.notes[0].split()[:8]) in " ".join(drawn.split())


def test_one_row_of_each_federated_kind_in_full():
    realistic = tables.federated_numbers(FEDERATED_ROWS["000"][0])
    assert realistic["reproduced"] == pytest.approx(2.3797, abs=1e-4)
    assert realistic["poisson"] == pytest.approx(1.0324, abs=1e-4)
    assert 10.1 < realistic["fixed_lower"] < 10.1366  # never above the finer bound
    assert realistic["fixed_upper"] == pytest.approx(17.394, abs=1e-3)


@pytest.mark.slow
def test_a_row_without_protection_in_full():
    simulated = tables.federated_numbers(FEDERATED_ROWS["000"][1])
    assert simulated["fixed_lower"] > 1e5  # no protection, whoever counts
    assert simulated["fixed_lower"] <= simulated["fixed_upper"]


@pytest.mark.parametrize("paper", ["000", "001"])
def test_every_number_of_a_federated_row_stands_in_its_cell(paper: str):
    """With numbers made up, so that it is quick; the true ones take minutes."""
    rows = FEDERATED_ROWS[paper]
    numbers = [
        {"reproduced": float(row.published), "poisson": 1 + i / 8, "fixed_lower": 30 + i / 8, "fixed_upper": 60 + i / 8}
        for i, row in enumerate(rows)
    ]
    table = tables._federated_table(paper, rows, numbers)
    for row, found, cells in zip(rows, numbers, table.rows, strict=True):
        assert cells[0].strip() in row.where
        assert cells[1:4] == (f"{row.cohort:,} of {row.population:,}", f"{row.delta:.2e}", row.published)
        assert cells[4].endswith(" ✓")
        assert float(cells[5]) == pytest.approx(found["poisson"], rel=1e-3)
        lower, upper = map(float, cells[6].split(" to "))
        assert lower <= found["fixed_lower"] < found["fixed_upper"] <= upper
        assert f"noise multiplier z = {row.noise_multiplier:g}, {row.rounds:,} rounds" in table.notes[0]
        assert ("simulated rows" if row.where.endswith("simulated") else row.where.split(",")[0]) in table.notes[0]
        assert not row.note or row.note in table.notes
    group = "16 clients at (1, 1e-8): published (16, 0.53), reproduced (16, 0.52), honest (16, 0.052)"
    assert any(group in note for note in table.notes) == (paper == "001")


def test_of_bayesian_noise_only_the_ratio_to_the_clip_matters():
    for row in BAYESIAN_ROWS[:1]:
        twice = dataclasses.replace(row, noise=2 * row.noise, clip=2 * row.clip)
        quieter = dataclasses.replace(row, clip=2 * row.clip)
        found, same, more = (tables.bayesian_numbers(one)["classical"] for one in (row, twice, quieter))
        assert found == same < more
        rounds = Repeated(Poisson(64 / 60_000, Gaussian(2 * row.noise)), 400 * 60_000 // 64)  # the clip is 1/2
        assert found == accountants.epsilon(rounds, 1e-5).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["000", "001"])
def test_published_lies_between_what_is_claimed_and_what_is_true(paper: str):
    realistic = [row for row in built(paper)[0].data if not row["where"].endswith("simulated")]
    assert len(realistic) == {"000": 8, "001": 5}[paper]
    for row in realistic:
        assert row["poisson"] < float(row["published"]) < row["fixed_lower"] < row["fixed_upper"], row["where"]


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["000", "001"])
def test_the_settings_and_remarks_are_in_the_notes(paper: str):
    notes = " ".join(built(paper)[0].notes)
    for words in {
        "000": ("z = 1, 1,000 rounds", "simulated rows: noise multiplier z = 0.01", "Section 5: noise", "342,777"),
        "001": ("z = 0.8, 2,001 rounds", "published (16, 0.53), reproduced (16, 0.52), honest (16, 0.052)"),
    }[paper]:
        assert words in notes


TRUE_EPSILONS = [6.7662, 3.4174, 1.3905, 0.7712] + [6.6733, 3.4281, 1.4171, 0.7903] * 2


def test_noise_on_the_loss_protects_nothing():
    table, _ = built("003")
    assert {row["true"] for row in table.data} == {"inf"}
    assert {row[table.columns.index("true ε")] for row in table.rows} == {"inf"}
    assert [row["if_on_gradients"] for row in table.data] == pytest.approx(TRUE_EPSILONS, abs=1e-3)
    assert all(0 < row["if_on_gradients"] < float(row["published"]) for row in table.data)


def test_bayesian_rows_name_the_records_left_out():
    table, _ = built("002")
    for row, found in zip(table.rows, table.data, strict=True):
        assert found["records_expected_unprotected"] == pytest.approx(0.6)
        assert found["reproduced_failure_probability"] == pytest.approx(1e-5)
        assert 1e5 < found["classical"] < math.inf
        assert row[3:5] == ("0.99999", "0.6 of 60,000")
    more, less = (found["classical"] for found in table.data)
    assert more > less  # of two noises, the larger


@pytest.mark.parametrize(
    ("value", "published", "expected"),
    [
        (2.3797, "2.38", "2.3797 ✓"),
        (4.5347, "4.54", "4.5347 ✗"),
        (7.03061, "7.0306", "7.0306 ✓"),
        (1.40613, "1.4061", "1.4061 ✓"),
        (1.40667, "1.407", "1.40667 ✓"),
        (2.5, "2.4", "2.500 ✗"),
        (9.9932e6, "9.99e6", "9.993e6 ✓"),
        (9.9832e6, "9.99e6", "9.983e6 ✗"),
        (9.98e5, "9.99e6", "9.980e5 ✗"),
        (1.01e7, "9.99e6", "1.010e7 ✗"),
    ],
)
def test_a_tick_is_given_for_the_same_digits_only(value: float, published: str, expected: str):
    assert tables._reproduced(value, published) == expected


@pytest.mark.parametrize("paper", ["004", "", "0"])
def test_another_paper_is_refused(paper: str):
    with pytest.raises(InvalidInput, match="000, 001, 002, 003"):
        build(paper)
