"""`data.table`: frames of every library that speaks Arrow, and Hugging Face data sets; types that one value decides."""

import datetime
import decimal
import io
import json
import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow import csv as arrow_csv

from blindsight import data
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger, ledger_name
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput, PrivacyError

COLUMNS = {"id": ["ann", "bob", "ann"], "age": [31, 44, 30], "pay": [1.5, None, 2.5], "city": ["Ulm", "", "Bonn"]}


def png(value: int, size: tuple[int, int] = (3, 2)) -> bytes:
    out = io.BytesIO()
    Image.new("L", size, value).save(out, "png")
    return out.getvalue()


class Capsule:
    """What a library offers that we do not know, such as a result of DuckDB: the PyCapsule interface alone."""

    def __init__(self, table: pa.Table | pa.ChunkedArray) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def frames() -> dict[str, object]:
    table = pa.table(COLUMNS)
    return {"arrow": table, "batch": table.to_batches()[0], "capsule": Capsule(table), "dict": COLUMNS}


@pytest.mark.parametrize("kind", frames())
def test_whatever_speaks_arrow_is_a_population(kind):
    assert_read(data.table(frames()[kind], client="id"))


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb", "datasets"])
def test_frames_of_other_libraries(library):
    module = pytest.importorskip(library)
    if library == "duckdb":
        frame = module.from_arrow(pa.table(COLUMNS))
    elif library == "datasets":
        frame = module.Dataset.from_dict(COLUMNS)
    else:
        frame = module.DataFrame(COLUMNS)
    assert_read(data.table(frame, client="id"))


def assert_read(people) -> None:
    assert people.ids.tolist() == ["ann", "bob"]
    assert people["ann"]["age"].tolist() == [31, 30]
    assert people["ann"]["city"].tolist() == ["Ulm", "Bonn"]
    assert np.isnan(people["bob"]["pay"]).all()
    assert people.name == "table"


def test_no_library_of_frames_is_needed():
    sources = Path(data.__file__).parent.rglob("*.py")
    named = re.compile(r"^\s*(?:import|from) (?:pandas|polars|duckdb)\b", re.MULTILINE)
    assert [file.name for file in sources if named.search(file.read_text(encoding="utf-8"))] == []


def test_times_decimals_and_pictures_become_numbers():
    moment = datetime.datetime(2026, 1, 31, 12, 0, 0, 250_000)
    table = pa.table(
        {
            "client": [7.0, 7.0],  # whole numbers that some library keeps as floats
            "when": pa.array([moment, None], pa.timestamp("us")),
            "zoned": pa.array([moment, moment], pa.timestamp("ns", "Europe/Berlin")),
            "day": [datetime.date(1970, 1, 2), datetime.date(1969, 12, 31)],
            "clock": [datetime.time(1, 0), datetime.time(0, 0, 1)],
            "lasting": pa.array([datetime.timedelta(seconds=1.5), datetime.timedelta(0)]),
            "price": [decimal.Decimal("12.50"), decimal.Decimal("0.10")],
            "half": pa.array([np.float16(0.5), np.float16(2)], pa.float16()),
            "nothing": pa.nulls(2),
            "photo": [{"bytes": png(9), "path": None}, {"bytes": png(7), "path": "x.png"}],
            "raw": [png(1), png(2)],
        }
    )
    read = data.table(table)
    seconds = moment.replace(tzinfo=datetime.UTC).timestamp()
    assert read.ids.tolist() == ["7"]
    assert read.columns["when"][0] == seconds
    assert np.isnan(read.columns["when"][1])
    assert read.columns["zoned"].tolist() == [seconds] * 2
    assert read.columns["day"].tolist() == [86400, -86400]
    assert read.columns["clock"].tolist() == [3600, 1]
    assert read.columns["lasting"].tolist() == [1.5, 0]
    assert read.columns["price"].tolist() == [12.5, 0.1]
    assert read.columns["half"].dtype == np.float32
    assert np.isnan(read.columns["nothing"]).all()
    assert read.columns["photo"].shape == (2, 2, 3)
    assert read.columns["photo"][:, 0, 0].tolist() == [9, 7]
    assert read.columns["raw"].dtype == np.uint8


def test_a_data_set_brings_its_classes_and_pictures(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"who": datasets.Value("int32"), "y": datasets.ClassLabel(names=["no", "yes"]), "x": datasets.Image(),
         "n": datasets.Value("float32")}
    )  # fmt: skip
    rows = {"who": [2, 1], "y": [1, 0], "x": [{"bytes": png(5)}, {"bytes": png(6)}], "n": [float("inf"), 1.0]}
    frame = datasets.Dataset.from_dict(rows, features=features)
    for read in (data.table(frame, client="who"), hugging(frame, tmp_path)):
        assert read.classes == {"y": ("no", "yes")}
        assert read["2"]["x"][0, 0, 0] == 5
        assert np.isnan(read["2"]["n"]).all()  # infinite: missing
    shuffled = data.table(frame.select([1, 0]), client="who")
    assert shuffled.ids.tolist() == ["1", "2"]
    with pytest.raises(InvalidInput, match=r'choose a split of the data set, such as data\["train"\]'):
        data.table(datasets.DatasetDict(train=frame), client="who")
    with pytest.raises(InvalidInput, match="is a stream: load it first"):
        data.table(frame.to_iterable_dataset(), client="who")


def hugging(frame, folder: Path):
    frame.save_to_disk(str(folder / "saved"))
    return data.hugging_face(folder / "saved", client="who")


REFUSED = {
    "no table": (lambda: 3, "table is int, which is not a table"),
    "text": (lambda: "people.csv", "table is str, which is not a table"),
    "lengths": (lambda: {"client": ["a"], "x": [1, 2]}, "differ in length"),
    "mixed": (lambda: {"client": ["a", "b"], "x": [1, "n/a"]}, "field 'x' mixes values of int and str"),
    "no client": (lambda: {"who": ["a"], "x": [1]}, "has no column 'client'"),
    "row without a client": (lambda: {"client": ["a", None], "x": [1, 2]}, "table, row 2, field 'client'"),
    "infinite": (lambda: {"client": ["a", "b"], "x": [1.0, float("inf")]}, "table, row 2, field 'x': the value is inf"),
    "no picture": (lambda: {"client": ["a"], "x": [b"hello"]}, "row 1, field 'x' is not an image"),
    "other pictures": (lambda: {"client": ["a", "b"], "x": [png(1), png(1, (2, 2))]}, "row 2, field 'x' is L of 2x2"),
    "a series": (lambda: Capsule(pa.chunked_array([[1]])), "table is Capsule, which is not a table"),
    "one value": (lambda: {"client": ["a"], "x": 1}, "field 'x' holds int, not a column"),
    "a word": (lambda: {"client": ["a"], "x": "b"}, "field 'x' holds str, not a column"),
    "two of one name": (
        lambda: pa.table([["a"], [1], [2]], names=["client", "x", "x"]),
        "table has 2 columns named 'x': name each column once",
    ),
    "intervals": (lambda: {"client": ["a"], "x": pa.array([{"left": 0.0, "right": 1.0}])}, "field 'x' holds struct"),
    "arrays of two sizes": (
        lambda: {"client": ["a", "b"], "x": [np.zeros((2, 2)), np.zeros((3, 2))]},
        "row 2, field 'x': the list has 3 values where the first one has 2",
    ),
    "structs": (lambda: {"client": ["a"], "x": [{"y": 1}]}, "field 'x' holds struct"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_placed_is_refused_by_name(case):
    make, words = REFUSED[case]
    with pytest.raises(InvalidInput, match=words):
        data.table(make())


def test_a_number_column_whose_first_value_is_missing_stays_a_number():
    for gap in (None, float("nan")):
        assert data.table({"client": ["a", "b"], "x": [gap, 2]}).columns["x"].dtype == np.float64


# --- by types

TYPES = {"age": "whole:0:120", "pay": "number", "city": "category:Ulm,Bonn", "when": "number", "photo": "image:2x3"}
WHEN = datetime.datetime(2026, 1, 31, 12)
GOOD = {
    "age": 31, "pay": decimal.Decimal("2.5"), "city": "Ulm", "when": WHEN,
    "photo": png(9),
}  # fmt: skip
ODD = {
    "a word": "n/a",
    "a fraction": 30.5,
    "nothing": None,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "huge": 2**80,
    "a list": [1, 2],
    "bytes": b"\xff",
    "a date": datetime.date(2026, 2, 28),
    "a date beyond all calendars": np.datetime64(2**62, "s"),
    "a struct": {"a": 1},
    "half a letter": "\udcff",
    "a path": {"bytes": None, "path": __file__},
    "complex": 1j,
}


def frame_of(odd: Any, field: str, library: str):
    rows = [{"id": "ann", **GOOD}, {"id": "odd", **GOOD}, {"id": "bob", **GOOD}]
    rows[1][field] = odd
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if library == "dict":
        return columns
    pandas = pytest.importorskip(library)
    try:
        return pandas.DataFrame(columns)
    except UnicodeEncodeError:  # which pandas' own texts cannot hold, and its objects can
        return pandas.DataFrame(columns, dtype=object)


@pytest.mark.parametrize("library", ["dict", "pandas"])
@pytest.mark.parametrize("field", [*TYPES, "id"])
@pytest.mark.parametrize("odd", ODD)
def test_one_clients_value_changes_no_type_no_refusal_and_nobody_elses_row(library, field, odd):
    """Whatever type the library chooses for the column with that value in it."""
    gaps = ["age", "pay", "city", "when"]
    usual = data.table(frame_of(GOOD.get(field, "odd"), field, library), client="id", types=TYPES, gaps=gaps)
    read = data.table(frame_of(ODD[odd], field, library), client="id", types=TYPES, gaps=gaps)
    assert read.fields == usual.fields
    assert read.classes == usual.classes
    for other in ("ann", "bob"):
        for name in TYPES:
            assert read[other][name].tolist() == usual[other][name].tolist(), name
    if field != "id":
        assert read.ids.tolist() == usual.ids.tolist() == ["ann", "odd", "bob"]


def test_values_that_fit_are_read():
    read = data.table(frame_of("Ulm", "city", "dict"), client="id", types=TYPES)
    assert read.sizes.tolist() == [1, 1, 1]
    assert read["ann"]["when"].tolist() == [WHEN.replace(tzinfo=datetime.UTC).timestamp()]
    assert read["ann"]["photo"][0, 0].tolist() == [9, 9, 9]
    assert data.table(COLUMNS, client="id", types=Schema({}).updated(["age=whole"])).fields == {
        "age": (np.dtype(np.int64), ())
    }


def test_a_time_is_the_same_number_as_text_and_as_a_timestamp():
    texts = ["2026-01-31T12:00:00.25Z", "2026-01-31 13:00:00.25+01:00", "2026-01-31", "31.01.2026", "2026-13-01"]
    read = data.table({"client": list("abcde"), "t": texts}, types={"t": "number"}, gaps=["t"])
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC).timestamp()
    assert read.columns["t"][:3].tolist() == [noon + 0.25, noon + 0.25, noon - 12 * 3600]
    assert np.isnan(read.columns["t"][3:]).all()
    stamps = data.table(
        {"client": ["a"], "t": [datetime.datetime(2026, 1, 31, 12, 0, 0, 250_000)]}, types={"t": "number"}
    )
    assert stamps.columns["t"].tolist() == [noon + 0.25]


def test_refusals_by_types_name_columns_alone():
    with pytest.raises(InvalidInput, match="table has no column 'ago'"):
        data.table(COLUMNS, client="id", types={"ago": "whole"})
    with pytest.raises(InvalidInput, match="leave out fields and classes"):
        data.table(COLUMNS, client="id", types={"age": "whole"}, classes=["city"])
    with pytest.raises(InvalidInput, match="gaps are for tables that are read by types"):
        data.table(COLUMNS, client="id", gaps=["age"])


@pytest.mark.parametrize("odd", [44, "n/a"])
def test_a_table_is_the_same_data_whatever_is_read_of_it_and_by_whatever_types(tmp_path, odd):
    """Otherwise other types would make a fresh budget of the same people under another name."""
    frame = {"client": ["ann", "bob", "ann"], "age": [31, odd, 30], "said": ["a", "b", "c"]}
    given = [{"age": "whole:0:40"}, {"age": "number:0:100", "said": "text"}, {"said": "text"}]
    people = [data.table(frame, types=types, name=f"people {place}") for place, types in enumerate(given)]
    people += [] if odd == "n/a" else [data.table(frame, name="people"), data.table(frame, fields=["age"], name="ages")]
    assert len({one.content for one in people}) == 1
    assert people[0].replace({"more": people[0].columns["age"]}).content == people[0].content
    changed = frame | {"said": ["a", "b", "d"]}
    assert data.table(changed, types=given[0]).content != people[0].content
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(Gaussian(1.0), population=ledger_name(people[0]))
    for one in people[1:]:
        with pytest.raises(PrivacyError, match="under the name 'people 0'"):
            ledger.record(Gaussian(1.0), population=ledger_name(one))


def test_so_is_a_table_in_a_file(tmp_path):
    read = pa.table({"client": ["ann", "bob", "ann"], "age": [31, 44, 30], "said": ["a", "b", "c"]})
    arrow_csv.write_csv(read, tmp_path / "people.csv")
    pq.write_table(read, tmp_path / "people.parquet")
    (tmp_path / "people.jsonl").write_text("\n".join(map(json.dumps, read.to_pylist())), encoding="utf-8")
    columns: dict[str, Any] = {name: np.array(column) for name, column in read.to_pydict().items()}
    np.savez(tmp_path / "people.npz", **columns)
    chosen: list[dict[str, Any]] = [{}, {"fields": ["age"]}, {"classes": ["said"]}]
    files = sorted(tmp_path.iterdir())
    assert len({data.load(file, **given).content for file in files for given in chosen}) == 1
    assert data.csv(tmp_path / "people.csv", text=["age"]).content == data.table(read).content
    part = data.csv(tmp_path / "people.csv", fields=["age"])
    (tmp_path / "people.csv").unlink()
    assert part.content == part.replace(part.columns, name="part").content  # of what was read: the rest is gone


def categories() -> pa.Table:
    """Categories as polars gives them, whose values Arrow can neither cast nor take."""
    views = pa.array(["south", "north"], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.uint32()), views)
    return pa.table({"client": ["a", "b", "a"], "region": column})


def test_categories_of_any_values_are_looked_up():
    read = data.table(categories(), classes=["region"])
    assert read.classes == {"region": ("north", "south")}
    assert read["a"]["region"].tolist() == [1, -1]
    private = data.table(categories(), types={"region": "category:north,south"})
    assert private["a"]["region"].tolist() == [1]
    assert private["b"]["region"].tolist() == [0]
    assert len(data.table(categories().slice(0, 1))["a"]["region"]) == 1


def test_the_index_of_a_filtered_frame_is_no_field(tmp_path):
    """pandas hands rows that were filtered or shuffled over with their old numbers beside them."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS).iloc[[2, 0, 1]]
    frame.to_parquet(tmp_path / "people.parquet")
    assert "__index_level_0__" in pq.read_table(tmp_path / "people.parquet").column_names
    renumbered = data.table(frame.reset_index(drop=True), client="id")
    for read in (data.table(frame, client="id"), data.load(tmp_path / "people.parquet", client="id")):
        assert read.fields.keys() == {"age", "pay", "city"}
        assert read.content == renumbered.content  # nor does it make another population of them
    assert data.table(frame, client="id", fields=["__index_level_0__"]).n_examples == 3  # if asked for


def test_uuids_are_ids_and_texts():
    uuids = [uuid.UUID(int=7), uuid.UUID(int=9)]
    read = data.table({"client": uuids, "device": uuids, "x": [1, 2]})
    assert read.ids.tolist() == list(map(str, uuids))
    assert read.columns["device"].tolist() == list(map(str, uuids))
    assert data.table({"client": uuids, "x": [1, 2]}, types={"x": "whole"}).ids.tolist() == list(map(str, uuids))


@pytest.mark.parametrize("make", [np.asarray, Image.fromarray], ids=["arrays", "pillow"])
def test_cells_may_be_arrays_or_images(make):
    cells = [make(np.full((2, 3), shade, np.uint8)) for shade in (1, 2)]
    read = data.table({"client": ["a", "b"], "x": cells})
    assert read.columns["x"].dtype == np.uint8
    assert read.columns["x"][:, 0, 0].tolist() == [1, 2]
    private = data.table({"client": ["a", "b"], "x": cells}, types={"x": "image:2x3"})
    assert private.columns["x"][:, 0, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    "odd", [np.zeros((5, 5)), np.full((2, 3), np.nan), np.zeros(3), np.array(["x"]), 7, None, "image", [[1], [2, 3]]]
)
def test_one_clients_array_changes_nobody_elses(odd):
    cells = [np.full((2, 3), shade, np.uint8) for shade in (1, 2)]
    read = data.table({"client": ["a", "b", "c"], "x": [cells[0], odd, cells[1]]}, types={"x": "image:2x3"})
    assert read.sizes.tolist() == [1, 0, 1]
    assert read.columns["x"].dtype == np.uint8
    assert read.columns["x"][:, 1, 2].tolist() == [1, 2]


def test_class_labels_are_read_by_their_public_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"client": datasets.Value("string"), "y": datasets.ClassLabel(names=["no", "yes"])})
    frame = datasets.Dataset.from_dict({"client": ["a", "b", "c"], "y": [1, -1, 0]}, features=features)
    read = data.table(frame, types={"y": "category:no,yes"})
    assert read.sizes.tolist() == [1, 0, 1]
    assert read.columns["y"].tolist() == [1, 0]
    assert data.table(frame, types={"y": "category:0,1"}).columns["y"].tolist() == [1, 0]


def test_a_column_is_named_by_text_and_the_nearest_is_said():
    with pytest.raises(InvalidInput, match=r"table has no column 0: the nearest of its columns \('0', 'x'\) is '0'"):
        data.table({0: ["a"], "x": [1]}, client=0)  # pyright: ignore[reportArgumentType]
