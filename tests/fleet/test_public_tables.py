"""A fleet's question beside a public table: both sides have the same types, whether the asker states them or not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.fleet.clients import Fleet
from blindsight.fleet.sites import Sites
from blindsight.jobs.inspect import _read
from blindsight.jobs.request import SanityRequest

SEXES = ("Female", "Male")


def nobody() -> Sites:
    raise AssertionError("nothing is sent")


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A public table, and a fleet that is asked nothing in place of every folder."""
    rows = [f"p{n},{20 + n % 50},{SEXES[n % 2]},{'ill' if n % 3 else 'well'},{n % 7}" for n in range(120)]
    table = tmp_path / "public.csv"
    table.write_text("\n".join(["patient,age,sex,state,unread", *rows]) + "\n", encoding="utf-8")
    fleet = Fleet(name="hospitals", connect=nobody, sites=("a",), noise="sites", fewest=1, colluding=0, declared={})
    fleet.__dict__["counts"] = {"a": 40}

    def clients(request: Any, reference: Population | None, schema: Schema, **_: Any) -> Population:
        return fleet.clients(reference, schema=schema)

    monkeypatch.setattr("blindsight.jobs.inspecting.fleet_clients", clients)
    return table


@pytest.mark.parametrize(
    "types",
    [(), ("age=whole:0:120",), ("age=whole:0:120", "sex=category:Female,Male", "state=category:well,ill")],
)
def test_texts_of_a_public_table_are_categories_on_both_sides(public: Path, types: Sequence[str]):
    request = SanityRequest(
        fleet="x", reference=str(public), client="patient", inputs=("age", "sex"), label="state", types=types
    )
    read = _read(request)
    assert read.reference is not None
    assert set(read.schema.inputs) == {"age", "sex"}
    for field in ("sex", "state"):
        assert read.clients.classes[field] == read.reference.classes[field]
        assert read.reference.columns[field].dtype.kind in "iu"
        assert read.clients.columns[field].dtype.kind in "iu"
    assert set(np.unique(read.reference.columns["sex"])) == {0, 1}
    ages = read.clients.columns["age"].dtype, read.reference.columns["age"].dtype
    assert [dtype.kind for dtype in ages] == ["f", "f"], "sites read inputs with gaps, which are no whole numbers"
    assert read.model is not None, "a model of the public labels"
