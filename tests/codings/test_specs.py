"""Specs: rows become features in [0, 1] in a fixed order, and what cannot be placed is refused with row and field."""

import json
import sqlite3
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.codings.specs import (
    BooleanField,
    CategoryField,
    FeatureSpec,
    NgramField,
    NumberField,
    Response,
    field_from_dict,
    fnv1a,
    readable,
    rows_from_sqlite,
)
from blindsight.errors import InvalidInput

FIELDS = (
    NumberField("length", 0, 200),
    BooleanField("https"),
    CategoryField("tld", ("com", "net", "org")),
    NgramField("url", (2, 3), 8),
)
SPEC = FeatureSpec(FIELDS, crosses=(("https", "tld"), ("tld", "length")))
ROW = {"length": 50, "https": True, "tld": "net", "url": "ab"}


def plain_fnv1a(data: bytes) -> int:
    """As the specification of the hash reads."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) % 2**32
    return value


def test_weights_come_in_the_order_intercept_fields_crosses():
    bucket = plain_fnv1a(b"ab") % 8
    url = [float(place == bucket) for place in range(8)]
    expected = [1, 0.25, 1, 0, 1, 0, *url, 0, 1, 0, 0, 0.25, 0]
    np.testing.assert_array_equal(SPEC.encode([ROW])[0], expected)
    assert SPEC.width == len(expected)


def test_in_a_cross_the_first_field_is_slow():
    spec = FeatureSpec(
        (CategoryField("a", ("x", "y")), CategoryField("b", ("p", "q", "r"))), crosses=(("a", "b"),), intercept=False
    )
    assert spec.encode([{"a": "y", "b": "p"}])[0, 5:].tolist() == [0, 0, 0, 1, 0, 0]


def test_columns_and_rows_are_the_same():
    rows = [ROW, ROW | {"length": 300, "tld": "xyz"}]
    columns = {name: [row[name] for row in rows] for name in ROW}
    np.testing.assert_array_equal(SPEC.encode(rows), SPEC.encode(columns))


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "length": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9),
                "https": st.booleans() | st.sampled_from([0, 1, 0.0, 1.0]),
                "tld": st.none() | st.text() | st.integers(),
                "url": st.text(st.characters()),
            }
        ),
        max_size=5,
    )
)
def test_features_always_lie_between_0_and_1(rows):
    encoded = SPEC.encode(rows)
    assert encoded.shape == (len(rows), SPEC.width)
    assert ((encoded >= 0) & (encoded <= 1)).all()


def test_what_is_not_listed_is_all_zeros():
    for value in ("xyz", None, "COM", 7):
        assert not CategoryField("tld", ("com", "net")).encode([value]).any()
    assert CategoryField("code", ("7", "8")).encode([7, np.int64(8)]).tolist() == [[1, 0], [0, 1]]


def test_the_first_category_can_go_without_a_weight():
    field = CategoryField("e", ("A", "B", "C"), drop_first=True)
    assert field.encode(["A", "B", "C", "?"]).tolist() == [[0, 0], [1, 0], [0, 1], [0, 0]]


@given(st.binary(max_size=30), st.integers(1, 6))
def test_hashes_are_fnv_1a(data, size):
    expected = [plain_fnv1a(data[place : place + size]) for place in range(len(data) - size + 1)]
    assert fnv1a(data, size).tolist() == expected


def test_runs_are_taken_from_utf_8_bytes_and_half_a_character_is_the_replacement_character():
    field = NgramField("t", (2,), 1 << 20)
    np.testing.assert_array_equal(field.encode(["ü"]).nonzero()[1], [plain_fnv1a("ü".encode()) % 2**20])
    np.testing.assert_array_equal(field.encode(["a\ud800b"]), field.encode(["a\ufffdb"]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("length", float("nan")),
        ("length", float("inf")),
        ("length", 10**400),
        ("length", "50"),
        ("length", None),
        ("length", True),
        ("https", 2),
        ("https", "yes"),
        ("https", None),
        ("tld", 1.5),
        ("tld", True),
        ("url", None),
        ("url", b"ab"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_row_and_field_but_never_shown(field, value):
    with pytest.raises(InvalidInput, match=f"row 1, field '{field}' must be") as refusal:
        SPEC.encode([ROW, ROW | {field: value}])
    assert "50" not in str(refusal.value)
    assert "yes" not in str(refusal.value)

    columns = readable([ROW, ROW | {field: value}], SPEC, Response(CategoryField("tld", ("net", "com"))))
    assert columns == {name: [held] for name, held in ROW.items()}  # on a client the row does not exist


@given(st.lists(st.none() | st.dictionaries(st.sampled_from([*ROW, "y"]), st.from_type(object)), max_size=5))
def test_whatever_a_client_holds_can_be_read_or_counts_as_absent(rows):
    response = Response(CategoryField("y", ("a", "1")))
    full: list[Any] = [*rows, ROW | {"y": 1}]
    columns = readable(full, SPEC, response)
    assert SPEC.encode(columns).shape[1] == SPEC.width
    assert len(response.encode(columns)) == len(SPEC.encode(columns)) > 0


def test_a_number_too_large_for_a_browser_is_no_category():
    field = CategoryField("code", ("9007199254740991", "9007199254740993"))
    assert field.indices([2**53 - 1, 2**53 + 1, 10**5000]).tolist() == [0, 2, 2]


def test_a_table_that_lacks_a_column_is_refused_by_clients_too():
    for columns in ({"a": [1]}, {"a": [1], "y": [1, 0]}):
        with pytest.raises(InvalidInput, match=r"no field 'y'|same number"):
            readable(columns, FeatureSpec((BooleanField("a"),)), Response(BooleanField("y")))


def test_a_missing_field_is_named():
    with pytest.raises(InvalidInput, match="row 1 has no field 'https'"):
        SPEC.encode([ROW, {"length": 1}])
    with pytest.raises(InvalidInput, match="no field 'https'"):
        SPEC.encode({"length": [1]})
    with pytest.raises(InvalidInput, match="same number of rows"):
        SPEC.encode({name: [value] * (1 + (name == "url")) for name, value in ROW.items()})


def test_specs_survive_json():
    assert FeatureSpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC
    for field in FIELDS[:3]:
        assert Response.from_dict(json.loads(json.dumps(Response(field).to_dict()))) == Response(field)


BAD: list[Any] = [
    {"kind": "date", "name": "d"},
    {"kind": "number", "name": "n", "low": 0},
    {"kind": "number", "name": "n", "low": 1, "high": 1},
    {"kind": "number", "name": "n", "low": 0, "high": float("inf")},
    {"kind": "number", "name": "n", "low": -1.7e308, "high": 1.7e308},
    {"kind": "number", "name": "n", "low": 0, "high": 1, "unit": "m"},
    {"kind": "boolean", "name": ""},
    {"kind": "boolean", "name": 3},
    {"kind": "category", "name": "c", "categories": []},
    {"kind": "category", "name": "c", "categories": ["a", "a"]},
    {"kind": "category", "name": "c", "categories": ["a"], "drop_first": True},
    {"kind": "category", "name": "c", "categories": ["a", "b"], "drop_first": -3},
    {"kind": "category", "name": "c", "categories": "abc"},
    {"kind": "category", "name": "c", "categories": [1]},
    {"kind": "ngrams", "name": "g", "sizes": [], "buckets": 8},
    {"kind": "ngrams", "name": "g", "sizes": [0], "buckets": 8},
    {"kind": "ngrams", "name": "g", "sizes": [2], "buckets": 0},
    {"kind": "ngrams", "name": "g", "sizes": [2], "buckets": 1 << 21},
    {"name": "x"},
    {"kind": ["number"]},
    None,
    "number",
]


@pytest.mark.parametrize("spec", BAD, ids=str)
def test_a_field_that_makes_no_sense_is_refused(spec):
    with pytest.raises(InvalidInput):
        field_from_dict(spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"fields": [{"kind": "boolean", "name": "a"}, {"kind": "boolean", "name": "a"}]},
        {"fields": [{"kind": "boolean", "name": "a"}], "crosses": [["a", "a"]]},
        {"fields": [{"kind": "boolean", "name": "a"}], "crosses": [["a", "b"]]},
        {"fields": [{"kind": "boolean", "name": "a"}], "crosses": [["a"]]},
        {"fields": [{"kind": "boolean", "name": "a"}], "crosses": ["ab"]},
        {"fields": [], "intercept": False},
        {"fields": {}, "intercept": True},
        {"fields": [], "intercept": 1},
        {"fields": [], "extra": 1},
        [],
    ],
    ids=str,
)
def test_features_that_make_no_sense_are_refused(spec):
    with pytest.raises(InvalidInput):
        FeatureSpec.from_dict(spec)


def test_responses():
    rows = {"b": [True, 0], "c": ["y", "x"], "n": [5, -1]}
    assert Response(BooleanField("b")).encode(rows).tolist() == [1, 0]
    assert Response(CategoryField("c", ("x", "y"))).encode(rows).tolist() == [1, 0]
    assert Response(NumberField("n", 0, 10)).encode(rows).tolist() == [0.5, 0]
    assert Response(NumberField("n", 0, 10)).encode(rows, scaled=False).tolist() == [5, 0]
    with pytest.raises(InvalidInput, match="row 1, field 'c' must be one of"):
        Response(CategoryField("c", ("y", "z"))).encode(rows)
    with pytest.raises(InvalidInput, match="boolean, a category or a number"):
        Response(FIELDS[3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="two categories"):
        Response(CategoryField("c", ("x",)))


def test_rows_are_read_from_a_clients_own_sqlite_table(tmp_path):
    path = tmp_path / "client's data.db"
    with sqlite3.connect(path) as file:
        file.execute('CREATE TABLE "chat ""urls""" (length REAL, https INT, tld TEXT, url TEXT)')
        file.executemany('INSERT INTO "chat ""urls""" VALUES (?, ?, ?, ?)', [(50, 1, "net", "ab"), (250, 0, None, "")])
    file.close()
    rows = rows_from_sqlite(path, 'chat "urls"', ROW)
    np.testing.assert_array_equal(SPEC.encode(rows)[:1], SPEC.encode([ROW]))
    with pytest.raises(InvalidInput, match="has no column 'nothing'"):
        rows_from_sqlite(path, 'chat "urls"', ["nothing"])
    with pytest.raises(InvalidInput, match="no column 'length'"):
        rows_from_sqlite(path, "elsewhere", ["length"])
    with pytest.raises(InvalidInput, match="cannot be read"):
        rows_from_sqlite(tmp_path / "absent.db", "t", ["length"])
    assert not (tmp_path / "absent.db").exists()  # nothing is made by looking
