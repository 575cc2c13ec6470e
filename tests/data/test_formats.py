"""Real files of every format, written by the libraries people use and read back; and every refusal, in one sentence."""

import contextlib
import gzip
import json
import lzma
import sqlite3
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from wire_files import fedjax_database, part, picture, proto, tff_database, varint

from blindsight import data, protobuf
from blindsight.data import wire
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

TEXT = np.dtypes.StringDType()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def listed(population):
    return {
        client: {field: column.tolist() for field, column in population[client].items()}
        for client in population.ids.tolist()
    }


TABLE = {
    "writer": ["bob", "ann", "bob", "cy"],
    "x": [0.5, 1.5, 2.5, -3e10],
    "n": [1, 2, 3, -4],
    "ok": [True, False, True, True],
    "note": ["hé,llo", 'a "quoted"\nline', "", "\U0001f600"],
    "label": ["cat", "dog", "cat", "ant"],
}
PLACED = {
    "bob": {"x": [0.5, 2.5], "n": [1, 3], "ok": [True, True], "note": ["hé,llo", ""], "label": [1, 1]},
    "ann": {"x": [1.5], "n": [2], "ok": [False], "note": ['a "quoted"\nline'], "label": [2]},
    "cy": {"x": [-3e10], "n": [-4], "ok": [True], "note": ["\U0001f600"], "label": [0]},
}


def assert_placed(population):
    assert population.ids.tolist() == ["bob", "ann", "cy"]  # in order of first appearance
    assert listed(population) == PLACED
    assert population.classes == {"label": ("ant", "cat", "dog")}
    assert {field: dtype for field, (dtype, _) in population.fields.items()} == {
        "x": np.dtype(float), "n": np.dtype(np.int64), "ok": np.dtype(bool), "note": TEXT, "label": np.dtype(np.int32)
    }  # fmt: skip


def test_parquet_from_a_file_a_list_and_a_folder():
    table = pa.table(TABLE)
    pq.write_table(table, "notes.parquet")
    assert_placed(data.parquet("notes.parquet", client="writer", classes=("label",)))
    Path("parts").mkdir()
    parts = [Path(f"parts/{part}.parquet") for part in (1, 2)]
    pq.write_table(table.slice(0, 3), parts[0])
    pq.write_table(table.slice(3).select(sorted(TABLE)), parts[1])  # the order of columns does not matter
    assert_placed(data.parquet(parts, client="writer", classes=("label",)))
    assert_placed(data.load("parts", client="writer", classes=("label",)))
    assert data.parquet("notes.parquet", client="writer").name == "notes"


def test_parquet_keeps_types_and_lists_become_arrays():
    images = np.arange(4 * 6, dtype=np.uint8)
    table = pa.table(
        {
            "client": pa.array([7, 3, 7, 3], pa.int16()).dictionary_encode(),
            "image": pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(images), 3), 2),
            "pair": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], pa.list_(pa.float32())),
            "tokens": [["a", "b"], ["c", ""], ["d", "e"], ["f", "g"]],
            "category": pa.array(["u", "v", "u", "u"]).dictionary_encode(),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(16.0).reshape(4, 2, 2)),
        }
    )
    pq.write_table(table, "t.parquet")
    population = data.parquet("t.parquet")
    assert population.ids.tolist() == ["7", "3"]
    assert population.fields == {
        "image": (np.dtype(np.uint8), (2, 3)), "pair": (np.dtype(np.float32), (2,)), "tokens": (TEXT, (2,)),
        "category": (TEXT, ()), "tensor": (np.dtype(float), (2, 2)),
    }  # fmt: skip
    assert population["3"]["image"].tolist() == images.reshape(4, 2, 3)[[1, 3]].tolist()
    assert population["7"]["tokens"].tolist() == [["a", "b"], ["d", "e"]]
    assert population["3"]["tensor"].ravel().tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    assert population["3"]["category"].tolist() == ["v", "u"]
    assert list(data.parquet("t.parquet", fields=["pair"]).columns) == ["pair"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_csv_plain_and_compressed(suffix):
    arrow_csv.write_csv(pa.table(TABLE), "notes.csv")
    content = Path("notes.csv").read_bytes()
    if suffix:
        Path(f"notes.csv{suffix}").write_bytes({".gz": gzip, ".xz": lzma}[suffix].compress(content))
    assert_placed(data.csv(f"notes.csv{suffix}", client="writer", classes=("label",)))
    assert_placed(data.load(f"notes.csv{suffix}", client="writer", classes=["label"]))


def test_csv_keeps_ids_and_declared_text_letter_for_letter():
    Path("a.csv").write_text("\ufeffclient;zip;code;when\r\n007;01067;1e3;\r\n7;10115;+2;x\r\n\r\n")
    population = data.csv("a.csv", separator=";", text=("code",))
    assert listed(population) == {
        "007": {"zip": ["01067"], "code": ["1e3"], "when": [""]},
        "7": {"zip": ["10115"], "code": ["+2"], "when": ["x"]},
    }
    assert data.csv("a.csv", separator=";", fields=["code"]).columns["code"].tolist() == [1000.0, 2.0]


rows_of_a_table = st.tuples(
    st.integers(0, 4),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")),
)


@given(st.lists(rows_of_a_table, min_size=1))
def test_csv_and_parquet_agree_with_a_naive_twin(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("twin")
    names = ("client", "n", "x", "t")
    table = pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    arrow_csv.write_csv(table, folder / "a.csv")
    pq.write_table(table, folder / "a.parquet", row_group_size=3)
    naive = {}
    for client, *values in rows:
        fields = naive.setdefault(str(client), {name: [] for name in names[1:]})
        for name, value in zip(names[1:], values, strict=True):
            fields[name].append(value)
    assert listed(data.parquet(folder / "a.parquet")) == naive
    population = data.csv(folder / "a.csv", text=("t",))
    assert population.ids.tolist() == list(naive)
    assert listed(population) == naive


def test_npz_with_names_and_images():
    np.savez("a.npz", writer=np.array(["b", "a", "b"]), x=np.arange(12).reshape(3, 2, 2), y=["u", "v", "u"], other=[1])
    population = data.npz("a.npz", client="writer", fields=("x", "y"), classes=("y",))
    assert listed(population) == {
        "b": {"x": [[[0, 1], [2, 3]], [[8, 9], [10, 11]]], "y": [0, 0]},
        "a": {"x": [[[4, 5], [6, 7]]], "y": [1]},
    }
    assert listed(data.load("a.npz", client="writer", fields=["x"]))["a"] == {"x": [[[4, 5], [6, 7]]]}


def leaf_file(path, clients, **changes):
    content = {
        "users": list(clients),
        "num_samples": [len(next(iter(fields.values()), [])) for fields in clients.values()],
        "user_data": clients,
    }
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(json.dumps(content | changes))


def test_leaf_from_a_file_and_a_folder():
    clients = {"f1": {"x": [[0.5, 1], [2, 3]], "y": [1, 0]}, "f2": {"x": [], "y": []}, "f3": {"x": [[4, 5]], "y": [7]}}
    leaf_file("all.json", clients)
    assert listed(data.leaf("all.json")) == clients
    assert data.leaf("all.json").sizes.tolist() == [2, 0, 1]
    leaf_file("train/1.json", {"f1": clients["f1"]})
    leaf_file("train/2.json", {"f3": clients["f3"]})
    assert listed(data.load("train")) == {client: clients[client] for client in ("f1", "f3")}
    leaf_file("play.json", {"HAMLET": {"x": ["To be", "ü\0"], "y": ["o", "r"]}})
    assert data.load("play.json")["HAMLET"]["x"].tolist() == ["To be", "ü\0"]


def tff_file(path, clients):
    with h5py.File(path, "w") as out:
        for client, fields in clients.items():
            for field, values in fields.items():
                out[f"examples/{client}/{field}"] = values


def test_tff_hdf5():
    pixels = np.random.default_rng(0).random((3, 28, 28), np.float32)
    tff_file("fed.h5", {"f_00": {"pixels": pixels[:2], "label": np.array([3, 1], np.int32)},
                        "f_01": {"pixels": pixels[2:], "label": np.array([9], np.int32)}})  # fmt: skip
    population = data.tff_hdf5("fed.h5")
    assert population.columns["pixels"].dtype == np.float32
    assert np.array_equal(population.columns["pixels"], pixels)
    assert population["f_01"]["label"].tolist() == [9]
    tff_file(
        "words.hdf5", {"1": {"tokens": np.array(["hello wörld", ""], dtype=h5py.string_dtype()), "s": [b"ab", b"c"]}}
    )
    assert listed(data.load("words.hdf5")) == {"1": {"tokens": ["hello wörld", ""], "s": ["ab", "c"]}}


@pytest.mark.parametrize("packed", [True, False])
def test_tff_sqlite(packed):
    numbers = [0, 1, -1, 300, 2**63 - 1, -(2**63)]
    examples = [
        ("train", client, proto(packed=packed, pixels=[i / 2, 0.0, 1.0, 2.0], label=[numbers[i]], word=[f"wörd {i}"]))
        for i, client in enumerate(["b", "a", "b", "a", "b", "a"])
    ]
    extra = ("test", "a", proto(pixels=[0.0] * 4, label=[5], word=["w"]))
    clients = [("b", "train", 3), ("a", "train", 3), ("idle", "train", 0), ("a", "test", 1)]
    tff_database("fed.sqlite", [*examples, extra], clients)
    population = data.tff_sqlite("fed.sqlite", split="train", shapes={"pixels": (2, 2)})
    assert population.ids.tolist() == ["b", "a", "idle"]
    assert population.sizes.tolist() == [3, 3, 0]
    assert population["b"]["label"].tolist() == numbers[::2]
    assert population["a"]["label"].tolist() == numbers[1::2]
    assert population["a"]["word"].tolist() == ["wörd 1", "wörd 3", "wörd 5"]
    assert population.fields["pixels"] == (np.dtype(np.float32), (2, 2))
    assert data.load("fed.sqlite", split="test").columns["pixels"].shape == (1, 4)


def test_a_message_that_tensorflow_wrote():
    """The one its tutorial on TFRecord shows: False, 4, b'goat' and 0.9876."""
    features = wire.tf_example(
        b"\nR\n\x14\n\x08feature2\x12\x08\n\x06\n\x04goat\n\x14\n\x08feature3\x12\x08\x12\x06\n\x04[\xd3|?"
        b"\n\x11\n\x08feature0\x12\x05\x1a\x03\n\x01\x00\n\x11\n\x08feature1\x12\x05\x1a\x03\n\x01\x04"
    )
    assert {name: feature.kind for name, feature in features.items()} == {
        "feature0": "integers", "feature1": "integers", "feature2": "bytes", "feature3": "floats"
    }  # fmt: skip
    assert features["feature1"].numbers == b"\x04"
    assert features["feature2"].texts == [b"goat"]
    assert np.frombuffer(features["feature3"].numbers, "<f4") == np.float32(0.9876)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_varints_are_decoded_exactly(numbers):
    raw = np.frombuffer(b"".join(varint(number) for number in numbers), np.uint8)
    assert protobuf.varints(raw).tolist() == numbers


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_not_crashed_upon(noise):
    for read in (wire.tf_example, wire.msgpack_arrays):
        try:
            read(noise)
        except ValueError:
            continue


@pytest.mark.parametrize("kind", ["({", "(2,", "O", "V99999999", "f8,f8", "no type"])
def test_arrays_of_a_type_that_numpy_cannot_spell_are_their_clients_alone(kind):
    """NumPy reads what is in brackets as Python: a syntax error of one client had ended everybody's question."""
    content = b"\x93\x91\x01" + bytes([0xA0 + len(kind)]) + kind.encode() + b"\xc4\x08" + bytes(8)
    with contextlib.suppress(ValueError):
        wire.msgpack_arrays(b"\x81\xa1x\xc7" + bytes([len(content), 1]) + content)


@given(st.data())
def test_a_message_cut_short_never_reads_as_another(data):
    message = proto(pixels=[0.5, 1.5], label=[300], word=["hello"])
    cut = data.draw(st.integers(1, len(message) - 1))
    with pytest.raises(ValueError, match="truncated"):
        wire.tf_example(message[:cut])


@given(st.data())
def test_damaged_messages_are_refused_or_read_never_crashed_upon(tmp_path_factory, source):
    """One byte of a message changed: a population or a sentence, no other end."""
    path = tmp_path_factory.mktemp("damaged") / "fed.sqlite"
    message = bytearray(proto(pixels=[0.5, 1.5], label=[300, 5], word=["hello"]))
    message[source.draw(st.integers(0, len(message) - 1))] = source.draw(st.integers(0, 255))
    tff_database(path, [("train", "a", bytes(message))])
    with contextlib.suppress(InvalidInput):
        assert data.tff_sqlite(path).size == 1


def test_fedjax_sqlite():
    images = np.random.default_rng(1).random((300, 4, 4)).astype(np.float32)
    words = np.array(["wörd".encode(), b"", b"x" * 300], object)
    clients = [
        (b"0001", {"x": images[:297], "t": np.array([b"a"] * 297, object)}, 297),
        (b"0002", {"x": images[297:], "t": words}, 3),
    ]
    fedjax_database("fed.db", clients)
    population = data.load("fed.db")
    assert population.ids.tolist() == ["0001", "0002"]
    assert np.array_equal(population.columns["x"], images)
    assert population["0002"]["t"].tolist() == ["wörd", "", "x" * 300]


def test_image_folders_with_and_without_labels():
    for client, label, colour in (("ann", "cat", 1), ("ann", "dog", 2), ("bob", "cat", 3)):
        picture(f"labelled/{client}/{label}/1.png", colour=colour)
        picture(f"plain/{client}/{label}.png", mode="RGB", colour=(colour, 0, 255))
    Path("labelled/cy").mkdir()
    Path("labelled/ann/.DS_Store").touch()
    population = data.load("labelled")
    assert population.sizes.tolist() == [2, 1, 0]
    assert population.fields["image"] == (np.dtype(np.uint8), (3, 4))
    assert population.columns["image"][:, 0, 0].tolist() == [1, 2, 3]
    assert population.columns["label"].tolist() == [0, 1, 0]
    assert population.classes == {"label": ("cat", "dog")}
    plain = data.image_folder("plain", name="colours")
    assert (plain.name, list(plain.columns)) == ("colours", ["image"])
    assert plain["bob"]["image"].shape == (1, 3, 4, 3)
    assert plain["bob"]["image"][0, 0, 0].tolist() == [3, 0, 255]


@pytest.fixture(scope="module")
def hf():
    return pytest.importorskip("datasets")


def hf_dataset(hf, **changes):
    images = [Image.new("L", (2, 3), colour) for colour in (10, 20, 30)]
    columns = {"client": ["b", "a", "b"], "image": images, "label": [1, 0, 1], "text": ["x", "ü", ""],
               "pair": [[1, 2], [3, 4], [5, 6]], "grid": [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]}  # fmt: skip
    features = {
        "client": hf.Value("string"),
        "image": hf.Image(),
        "label": hf.ClassLabel(names=["no", "yes"]),
        "text": hf.Value("string"),
        "pair": hf.Sequence(hf.Value("int16")),
        "grid": hf.Array2D((1, 2), "float32"),
    }
    return hf.Dataset.from_dict(columns | changes, features=hf.Features(features))


def test_hugging_face(hf):
    saved = hf_dataset(hf)
    saved.save_to_disk("one")
    population = data.hugging_face("one")
    assert listed(population)["b"] == {
        "image": [[[10, 10]] * 3, [[30, 30]] * 3], "label": [1, 1], "text": ["x", ""], "pair": [[1, 2], [5, 6]],
        "grid": [[[1, 2]], [[5, 6]]],
    }  # fmt: skip
    assert population.classes == {"label": ("no", "yes")}
    assert population.columns["label"].dtype == np.int32
    hf.DatasetDict({"train": saved.select([2, 1]), "test": saved}).save_to_disk("two")
    assert data.load("two", split="train", fields=["text"]).columns["text"].tolist() == ["", "ü"]
    with pytest.raises(InvalidInput, match="two has 2 splits: choose one of split='train', split='test'"):
        data.load("two")
    with pytest.raises(InvalidInput, match="two has no split 'val': it has split='train', split='test'"):
        data.load("two", split="val")


def test_hugging_face_refuses_rows_without_label_or_image(hf):
    hf_dataset(hf, label=[1, -1, 0]).save_to_disk("unlabelled")
    with pytest.raises(InvalidInput, match="unlabelled, row 2, field 'label': the label is not one of the 2 classes"):
        data.hugging_face("unlabelled")
    hf_dataset(hf, image=[Image.new("L", (2, 3)), None, None]).save_to_disk("imageless")
    with pytest.raises(InvalidInput, match="imageless, row 2, field 'image': the image is missing"):
        data.hugging_face("imageless")
    hf_dataset(hf, image=[Image.new("L", (2, width)) for width in (3, 3, 4)]).save_to_disk("ragged")
    with pytest.raises(InvalidInput, match="ragged, row 3, field 'image' is L of 2x4 pixels, but ragged, row 1"):
        data.hugging_face("ragged")
    Path("other").mkdir()
    with pytest.raises(InvalidInput, match="other is not a data set saved by save_to_disk"):
        data.hugging_face("other")


def test_load_knows_a_saved_population_and_files_by_their_first_bytes():
    people = Population({"x": np.arange(3)}, sizes=[1, 2], name="people")
    people.save("people")
    assert listed(data.load("people")) == listed(people)
    pq.write_table(pa.table({"client": ["a"], "x": [1]}), "table.data")
    np.savez("archive", client=[1], x=[2])
    Path("archive.npz").rename("archive")
    tff_file("hierarchy", {"a": {"x": [1]}})
    tff_database("database", [("train", "a", proto(x=[1]))])
    for path in ("table.data", "hierarchy", "database"):
        assert listed(data.load(path)) == {"a": {"x": [1]}}
    assert listed(data.load("archive")) == {"1": {"x": [2]}}


@pytest.mark.parametrize(("module", "path", "words"), [
    ("h5py", "a.h5", "reading HDF5 needs the package h5py: pip install 'blindsight\\[hdf5]'"),
    ("datasets", "hf", "needs the package datasets: pip install 'blindsight\\[hf]'"),
])  # fmt: skip
def test_a_missing_extra_is_named(monkeypatch, module, path, words):
    Path("a.h5").touch()
    Path("hf").mkdir()
    Path("hf/state.json").touch()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInput, match=words):
        data.load(path)


def test_a_named_file_of_many_is_the_one_at_fault():
    pq.write_table(pa.table({"client": ["a"] * 5, "x": [[1.0]] * 5}), "1.parquet")
    pq.write_table(pa.table({"client": ["a"] * 3, "x": [[1.0], [2.0], None]}), "2.parquet")
    with pytest.raises(InvalidInput, match=r"^2.parquet, row 3, field 'x': the value is missing"):
        data.parquet(["1.parquet", "2.parquet"])


def test_parts_may_differ_where_gaps_or_categories_made_them_differ():
    ids = pa.array(["a", "b"])
    whole, gaps = pa.table({"client": ids, "x": [1, 2], "y": ["u", "v"]}), pa.array([None, 0.5])
    pq.write_table(whole, "1.parquet")
    pq.write_table(pa.table({"client": ids, "x": gaps, "y": pa.array(["v", "u"]).dictionary_encode()}), "2.parquet")
    pq.write_table(
        pa.table({"client": ids, "x": pa.nulls(2), "y": pa.array(["w", "w"], pa.large_string())}), "3.parquet"
    )
    read = data.load("*.parquet")
    np.testing.assert_array_equal(read["a"]["x"], [1.0, np.nan, np.nan])
    assert read["b"]["y"].tolist() == ["v", "u", "w"]
    pq.write_table(pa.table({"client": ids, "x": ["1", "2"], "y": ["u", "v"]}), "4.parquet")
    with pytest.raises(InvalidInput, match=r"^4.parquet: field 'x' holds string, but int64 in 1.parquet"):
        data.load("*.parquet")


def test_what_other_programs_write_is_refused_with_what_to_do():
    Path("t.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(InvalidInput, match=r"t\.xlsx is a workbook: save its sheet as CSV"):
        data.load("t.xlsx")
    Path("t.json").write_text('[{"client": "a", "x": 1}]', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"t\.json holds a list: write an object on each line of a \.jsonl file"):
        data.load("t.json")


def test_missing_values_of_tables_are_data():
    """The same in CSV, Parquet and NumPy archives: NaN, an empty text, and a code below all classes."""
    Path("t.csv").write_text("client,age,new,said\na,31,true,hi\nb,,,\na,nan,N/A,NaN\n", encoding="utf-8")
    age, new = pa.array([31, None, None], pa.int32()), pa.array([True, None, None])
    pq.write_table(
        pa.table({"client": ["a", "b", "a"], "age": age, "new": new, "said": ["hi", None, "NaN"]}), "t.parquet"
    )
    np.savez("t.npz", client=np.array(["a", "b", "a"]), age=[31, np.nan, np.nan])
    for file in ("t.csv", "t.parquet", "t.npz"):
        found = data.load(file)
        assert found.ids.tolist() == ["a", "b"]
        np.testing.assert_array_equal(found.columns["age"], [31, np.nan, np.nan])
        if file != "t.npz":
            assert found.columns["new"].tolist() == [1, -1, -1]
            assert found.classes["new"] == ("false", "true")
            assert found.columns["said"].tolist() == ["hi", "NaN", ""]  # of texts only an empty one is missing
    listed = data.load("t.parquet", classes=["said"])
    assert listed.classes["said"] == ("NaN", "hi")
    assert listed.columns["said"].tolist() == [1, 0, -1]


def table(**columns):
    pq.write_table(pa.table(columns), "t.parquet")
    return lambda: data.parquet("t.parquet")


def cells(text, **options):
    Path("t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return lambda: data.csv("t.csv", **options)


def archive(**arrays):
    np.savez("t.npz", **arrays)
    return lambda: data.npz("t.npz")


def written(path, content, **options):
    Path(path).write_bytes(content)
    return lambda: data.load(path, **options)


def leaf(clients, **changes):
    leaf_file("t.json", clients, **changes)
    return lambda: data.leaf("t.json")


def hdf5(**clients):
    tff_file("t.h5", clients)
    return lambda: data.tff_hdf5("t.h5")


def database(examples, clients=None, **options):
    tff_database("t.sqlite", [("train", *example) for example in examples], clients)
    return lambda: data.tff_sqlite("t.sqlite", **options)


def two_tables(first, second):
    for number, columns in enumerate((first, second)):
        pq.write_table(pa.table(columns), f"{number}.parquet")
    return lambda: data.parquet(["0.parquet", "1.parquet"])


def damaged_archive():
    np.savez("t.npz", client=np.arange(1000), x=np.arange(1000))
    content = bytearray(Path("t.npz").read_bytes())
    content[-2000] ^= 255  # inside the numbers of x, which the archive's checksum covers
    Path("t.npz").write_bytes(content)
    return lambda: data.npz("t.npz")


def loose_dataset():
    with h5py.File("t.h5", "w") as out:
        out["examples/a"] = [1, 2]
    return lambda: data.tff_hdf5("t.h5")


def fedjax(fields, count):
    fedjax_database("t.db", [(b"a", fields, count)])
    return lambda: data.load("t.db")


def pictures(*specs):
    for path, options in specs:
        picture(f"t/{path}", **options)
    return lambda: data.image_folder("t")


A = ["a", "b"]
REFUSALS = {
    # tables
    "parquet: no such file": (lambda: lambda: data.parquet("absent.parquet"), "no file or folder absent.parquet"),
    "parquet: not parquet": (lambda: written("t.parquet", b"hello"), "t.parquet is not a Parquet file"),
    "parquet: empty file": (lambda: written("t.parquet", b""), "t.parquet is not a Parquet file"),
    "parquet: no rows": (lambda: table(client=pa.array([], "string"), x=pa.array([], "int8")), "t.parquet has no rows"),
    "parquet: no files": (lambda: lambda: data.parquet([]), "list of files is empty"),
    "parquet: missing column": (
        lambda: table(clint=A, x=[1, 2]),
        "no column 'client' with the client id: choose it from 'clint', 'x' with --client NAME",
    ),
    "parquet: row without a client": (
        lambda: table(client=["a", None], x=[1, 2]),
        "t.parquet, row 2, field 'client': the row has no client",
    ),
    "parquet: client with an empty id": (
        lambda: table(client=["a", ""], x=[1, 2]),
        "t.parquet, row 2, field 'client': the row has no client",
    ),
    "parquet: client ids of fractions": (lambda: table(client=[0.5], x=[1]), "'client' holds double"),
    "parquet: missing list": (
        lambda: table(client=A, x=[[1], None]),
        "t.parquet, row 2, field 'x': the value is missing",
    ),
    "parquet: missing number in a list": (
        lambda: table(client=["b", "a", "b"], x=[[1, 2], [3, 4], [5, None]]),
        "t.parquet, row 3, field 'x': the value is missing",
    ),
    "parquet: not a number": (
        lambda: table(client=A, x=[[1.0, 2.0], [float("nan"), 1.0]]),
        "t.parquet, row 2, field 'x': .*NaN",
    ),
    "parquet: ragged lists": (
        lambda: table(client=A, x=[[1, 2], [3]]),
        "t.parquet, row 2, field 'x': the list has 1 values where the first one has 2",
    ),
    "parquet: ragged inner lists": (
        lambda: table(client=A, x=[[[1], [2]], [[3], [4, 5]]]),
        "t.parquet, row 2, field 'x': the list has 2 values",
    ),
    "parquet: missing inner value": (
        lambda: table(client=A, x=[[1, 2], [3, None]]),
        "t.parquet, row 2, field 'x': the value is missing",
    ),
    "parquet: structs": (lambda: table(client=["a"], x=pa.array([{"y": 1}])), "field 'x' holds struct<y: int64>"),
    "parquet: infinite": (
        lambda: table(client=A, x=[0.5, float("-inf")]),
        "t.parquet, row 2, field 'x': the value is infinite",
    ),
    "parquet: no fields": (lambda: table(client=A), "no column besides 'client'"),
    "parquet: unknown class": (
        lambda: table(client=A, y=A) and (lambda: data.parquet("t.parquet", classes=["yy"])),
        "no column 'yy'",
    ),
    "parquet: fractions as classes": (
        lambda: table(client=A, y=[0.5, 1.5]) and (lambda: data.parquet("t.parquet", classes=["y"])),
        "'y' holds float64, not one label",
    ),
    "parquet: a folder without any": (
        lambda: Path("t").mkdir() or (lambda: data.parquet("t")),
        "t has no .parquet file",
    ),
    "parquet: files that disagree": (
        lambda: two_tables({"client": A, "x": [1, 2]}, {"client": A, "x": ["1", "2"]}),
        "1.parquet: field 'x' holds string, but int64 in 0.parquet",
    ),
    "parquet: files of other columns": (
        lambda: two_tables({"client": A, "x": [1, 2]}, {"client": A, "y": [1, 2]}),
        "1.parquet has no column 'x': the nearest",
    ),
    "csv: no such file": (lambda: lambda: data.csv("absent.csv"), "no file or folder absent.csv"),
    "csv: empty file": (lambda: cells("\n\n"), "t.csv is empty"),
    "csv: no rows": (lambda: cells("client,x\n"), "t.csv has no rows"),
    "csv: missing column": (
        lambda: cells("writer,x\na,1\n", client="writr"),
        "no column 'writr': the nearest .* is 'writer'",
    ),
    "csv: row without a client": (
        lambda: cells("client,x\na,1\n,2\n"),
        "t.csv, row 2, field 'client': the row has no client",
    ),
    "csv: a word among missing values": (
        lambda: cells("client,x\na,\nb,1\na,NaN\nb,?\n"),
        r"t.csv, row 4, field 'x': '\?' is not a number",
    ),
    "csv: unparsable number": (
        lambda: cells("client,x\na,1\nb,2o\n"),
        r"t.csv, row 2, field 'x': '2o' is not a number.*text = \['x'\]",
    ),
    "csv: number with a leading zero": (
        lambda: cells("client,x\na,1\nb,02\n"),
        "t.csv, row 2, field 'x': '02' is not a number",
    ),
    "csv: neither true nor false": (
        lambda: cells("client,x\na,True\nb,maybe\n"),
        "t.csv, row 2, field 'x': 'maybe' is not true or false",
    ),
    "csv: number too large": (
        lambda: cells("client,x\na,99999999999999999999\n"),
        "'x' has whole numbers beyond 64 bits",
    ),
    "csv: too few fields": (
        lambda: cells("client,x\na,1\nb\n"),
        "t.csv, row 2: it has 1 fields where the header has 2",
    ),
    "csv: too many fields": (
        lambda: cells("client,x\na,1,2\n"),
        "t.csv, row 1: it has 3 fields where the header has 2",
    ),
    "csv: open quotation mark": (
        lambda: cells('client,x\na,u\nb,"v\nc,w\n'),
        "t.csv, row 2: unclosed quotation mark",
    ),
    "csv: not UTF-8": (lambda: cells(b"client,x\na,\xc3\xa9\xff\xfe\n"), "t.csv is not CSV in UTF-8"),
    "csv: column twice": (lambda: cells("client,x,x\na,1,2\n"), "named 'x' more than once"),
    "csv: client column twice": (lambda: cells("client,client,x\na,b,2\n"), "named 'client' more than once"),
    "csv: client column twice among others": (
        lambda: cells("client,client,x\na,b,2\n", fields=["x"]),
        "named 'client' more than once",
    ),
    "csv: separator of two": (
        lambda: cells("client;;x\n", separator=";;"),
        "one character, such as ; or tab, got ';;'",
    ),
    "csv: damaged gzip": (
        lambda: written("t.csv.gz", gzip.compress(b"client,x\na,1\n" * 99)[:40]),
        "t.csv.gz cannot be read",
    ),
    "csv: not xz": (lambda: written("t.csv.xz", b"client,x\na,1\n"), "t.csv.xz cannot be read"),
    "csv: a folder": (lambda: Path("t.csv").mkdir() or (lambda: data.csv("t.csv")), r"the folder t.csv has no \.csv"),
    "npz: not an archive": (lambda: written("t.npz", b"hello"), "t.npz is not a NumPy archive"),
    "npz: a single array": (
        lambda: np.save("t.npy", np.arange(3)) or (lambda: data.npz("t.npy")),
        "t.npy holds a single array",
    ),
    "npz: damaged": (damaged_archive, "t.npz: field 'x' is damaged"),
    "npz: empty file": (lambda: written("t.npz", b""), "t.npz is not a NumPy archive"),
    "npz: unequal lengths": (lambda: archive(client=A, x=[1, 2, 3]), "t.npz: field 'x' .*'client' has 2 rows"),
    "npz: a single value": (lambda: archive(client=A, x=3), "t.npz: field 'x' .*'client' has 2 rows"),
    "npz: no rows": (lambda: archive(client=[], x=[]), "t.npz has no rows"),
    "npz: objects": (lambda: archive(client=A, x=np.array([{}, None])), "t.npz: field 'x' holds Python objects"),
    "npz: complex numbers": (lambda: archive(client=A, x=[1j, 2]), "t.npz: field 'x' holds complex128"),
    "npz: not a number": (lambda: archive(client=A, x=[[1], [np.nan]]), "t.npz, row 2, field 'x': .*NaN"),
    "npz: row without a client": (
        lambda: archive(client=["a", ""], x=[1, 2]),
        "t.npz, row 2, field 'client': the row has no client",
    ),
    "npz: clients of fractions": (lambda: archive(client=[0.5], x=[1]), "'client' holds float64"),
    # federated formats
    "leaf: not JSON": (lambda: written("t.json", b"{"), "t.json is not LEAF JSON"),
    "leaf: other JSON": (lambda: written("t.json", b'{"a": 1}'), "t.json is not LEAF JSON.*'users'"),
    "leaf: a list": (lambda: written("t.json", b"[1]"), "t.json holds a list: write an object on each line"),
    "leaf: lists as objects": (lambda: leaf({"a": {"x": [1]}}, user_data=[1]), "t.json is not LEAF JSON"),
    "leaf: no text": (lambda: leaf({"a": {"x": ["\ud800"]}}), "client 'a', field 'x' holds text that is not UTF-8"),
    "leaf: no clients": (lambda: leaf({}), "t.json has no clients"),
    "leaf: unequal lists": (lambda: leaf({"a": {"x": [1]}}, num_samples=[]), "lists 1 users but 0 num_samples"),
    "leaf: unknown client": (lambda: leaf({"a": {"x": [1]}}, users=["b"]), "client 'a' is in only one of"),
    "leaf: wrong count": (
        lambda: leaf({"a": {"x": [1, 2], "y": [1]}}),
        "client 'a', field 'y' has 1 examples, but num_samples says 2",
    ),
    "leaf: missing field": (
        lambda: leaf({"a": {"x": [1], "y": [1]}, "b": {"x": [1]}}),
        "client 'b': field 'y' is missing",
    ),
    "leaf: extra field": (
        lambda: leaf({"a": {"x": [1]}, "b": {"x": [1], "y": [1]}}),
        "client 'b': field 'y' is missing from the clients before",
    ),
    "leaf: no fields": (lambda: leaf({"a": {}}, num_samples=[0]), "client 'a' has no fields"),
    "leaf: fields not lists": (lambda: leaf({"a": {"x": "u"}}), "client 'a': its data are not lists"),
    "leaf: missing value": (
        lambda: leaf({"a": {"x": [1, None]}}),
        "client 'a', example 2, field 'x': the value is missing",
    ),
    "leaf: missing inner value": (
        lambda: leaf({"a": {"x": [[1, 2], [1, None]]}}),
        "client 'a', example 2, field 'x': the value is missing",
    ),
    "leaf: not a number": (lambda: leaf({"a": {"x": [1, float("nan")]}}), "client 'a', row 2, field 'x': .*NaN"),
    "leaf: ragged examples": (
        lambda: leaf({"a": {"x": [[1, 2], [3]]}}),
        "client 'a', example 2, field 'x' is 1 times a number, but example 1 is 2 times a number",
    ),
    "leaf: mixed types": (
        lambda: leaf({"a": {"x": [1, "u"]}}),
        "client 'a', example 2, field 'x' is text, but example 1 is a number",
    ),
    "leaf: objects": (lambda: leaf({"a": {"x": [{}]}}), "client 'a', field 'x' holds an object"),
    "leaf: number too large": (
        lambda: leaf({"a": {"x": [2**70]}}),
        "client 'a', field 'x' holds a number: use numbers",
    ),
    "leaf: ragged clients": (
        lambda: leaf({"a": {"x": [[1, 2]]}, "b": {"x": [[1]]}}),
        "client 'b', field 'x': its examples are 1 numbers, but those of client 'a' are 2 numbers",
    ),
    "leaf: text and numbers": (
        lambda: leaf({"a": {"x": [1]}, "b": {"x": ["u"]}}),
        "client 'b', field 'x': its examples are single text",
    ),
    "leaf: client twice": (
        lambda: (
            leaf_file("t/1.json", {"a": {"x": [1]}})
            or leaf_file("t/2.json", {"a": {"x": [1]}})
            or (lambda: data.leaf("t"))
        ),
        "client 'a' is in t/1.json and in t/2.json",
    ),
    "leaf: folders in between": (
        lambda: leaf_file("train/1.json", {"a": {"x": [1]}}) or (lambda: data.leaf(".")),
        "has no .json file: choose one that does .*train",
    ),
    "hdf5: not HDF5": (lambda: written("t.h5", b"hello"), "t.h5 is not an HDF5 file"),
    "hdf5: other layout": (
        lambda: h5py.File("t.h5", "w").close() or (lambda: data.tff_hdf5("t.h5")),
        "t.h5 has no group 'examples'",
    ),
    "hdf5: no clients": (
        lambda: h5py.File("t.h5", "w").create_group("examples").file.close() or (lambda: data.tff_hdf5("t.h5")),
        "t.h5 has no clients",
    ),
    "hdf5: client without fields": (
        lambda: hdf5(**{"a": {"x": [1]}, "b/c": {"x": [1]}}),
        "t.h5, client 'b', field 'c' is not an array",
    ),
    "hdf5: an array for a client": (loose_dataset, "examples/a is not a group of fields"),
    "hdf5: unequal lengths": (
        lambda: hdf5(a={"x": [1], "y": [1, 2]}),
        r"client 'a': the fields differ .*'x' has 1, 'y' has 2",
    ),
    "hdf5: a single value": (lambda: hdf5(a={"x": 3}), "client 'a', field 'x' is not an array of examples"),
    "hdf5: ragged images": (
        lambda: hdf5(a={"x": np.zeros((1, 2, 2))}, b={"x": np.zeros((1, 2, 3))}),
        "client 'b', field 'x': its examples are 2x3 numbers",
    ),
    "hdf5: not UTF-8": (
        lambda: hdf5(a={"x": np.array([b"\xff"])}),
        "client 'a', field 'x' holds neither numbers nor UTF-8",
    ),
    "hdf5: complex numbers": (lambda: hdf5(a={"x": [1j]}), "client 'a', field 'x' holds complex128"),
    "sqlite: not SQLite": (lambda: written("t.sqlite", b"hello" * 99), "t.sqlite is not an SQLite file"),
    "sqlite: other tables": (
        lambda: sqlite3.connect("t.db").execute("CREATE TABLE t (a)").connection.close() or (lambda: data.load("t.db")),
        "t.db has no table 'client_metadata'",
    ),
    "sqlite: no federated table": (
        lambda: tff_database("t.db", []) or (lambda: data.fedjax_sqlite("t.db")),
        "no table 'federated_data'",
    ),
    "sqlite: no examples": (lambda: database([], [("a", "train", 0)]), "t.sqlite holds no examples"),
    "sqlite: no split": (lambda: database([]), "has no split 'at all': it has no examples"),
    "sqlite: unknown split": (
        lambda: database([("a", proto(x=[1]))], split="test"),
        "no split 'test': it has split='train'",
    ),
    "sqlite: two splits": (
        lambda: database([("a", proto(x=[1]))], [("a", "train", 1), ("a", "test", 1)]),
        "has 2 splits: choose one",
    ),
    "sqlite: unknown client": (
        lambda: database([("a", proto(x=[1]))], [("b", "train", 1)]),
        "row 1 of table examples: client 'a' is not in",
    ),
    "sqlite: lost examples": (
        lambda: database([("a", proto(x=[1]))], [("a", "train", 2)]),
        "client 'a' has 1 examples, but client_metadata says 2",
    ),
    "sqlite: not an example": (
        lambda: database([("a", b"\x0a\xff")]),
        "row 1 of table examples is not a tf.train.Example",
    ),
    "sqlite: text for a message": (
        lambda: database([("a", "hello")]),
        "row 1 of table examples is not a tf.train.Example",
    ),
    "sqlite: a number without end": (
        lambda: database([("a", part(1, part(1, part(1, b"x") + part(2, part(3, part(1, b"\xff"))))))]),
        "row 1 of table examples is not a tf.train.Example .a number is truncated",
    ),
    "sqlite: a number too long": (
        lambda: database([("a", part(1, part(1, part(1, b"x") + part(2, part(3, part(1, b"\xff" * 10 + b"\1"))))))]),
        "field 'x' is damaged: a number is truncated",
    ),
    "sqlite: floats among integers": (
        lambda: database([("a", part(1, part(1, part(1, b"x") + part(2, part(3, b"\x0d" + bytes(4))))))]),
        "row 1 of table examples is not a tf.train.Example .a list holds values of another type",
    ),
    "sqlite: missing field": (
        lambda: database([("a", proto(x=[1], y=[1])), ("a", proto(x=[1]))]),
        "row 2 of table examples: field 'y' has no value",
    ),
    "sqlite: extra field": (
        lambda: database([("a", proto(x=[1])), ("a", proto(x=[1], y=[1]))]),
        "row 2 of table examples: field 'y' is missing from the rows before",
    ),
    "sqlite: another type": (
        lambda: database([("a", proto(x=[1])), ("a", proto(x=[1.0]))]),
        "row 2 of table examples, field 'x' holds floats, not integers",
    ),
    "sqlite: ragged lists": (
        lambda: database([("a", proto(x=[1, 300])), ("a", proto(x=[1]))]),
        "row 2, field 'x' has 1 values where the first has 2",
    ),
    "sqlite: ragged floats": (
        lambda: database([("a", proto(x=[1.0])), ("a", proto(x=[1.0, 2.0]))]),
        "row 2, field 'x' has 2 values where the first has 1",
    ),
    "sqlite: not a number": (lambda: database([("a", proto(x=[float("nan")]))]), "row 1, field 'x': .*NaN"),
    "sqlite: bytes that are no text": (
        lambda: database([("a", proto(x=[b"\xff"]))]),
        "field 'x' holds bytes that are not UTF-8",
    ),
    "sqlite: wrong shape": (
        lambda: database([("a", proto(x=[1, 2]))], shapes={"x": (3,)}),
        r"2 values, which do not make up the shape \(3,\)",
    ),
    "fedjax: wrong count": (lambda: fedjax({"x": np.zeros(2)}, 3), "client 'a' does not have 3 examples"),
    "fedjax: complex numbers": (
        lambda: fedjax({"x": np.zeros(2, complex)}, 2),
        "client 'a', field 'x' holds complex128",
    ),
    "fedjax: not text": (lambda: fedjax({"x": np.array([b"\xff"], object)}, 1), "client 'a' is not zlib and msgpack"),
    # folders
    "images: another size": (
        lambda: pictures(("a/1.png", {}), ("b/2.png", {"size": (9, 9)})),
        "t/b/2.png is L of 9x9 pixels, but t/a/1.png is L of 4x3",
    ),
    "images: another mode": (
        lambda: pictures(("a/1.png", {}), ("b/2.png", {"mode": "RGB"})),
        "t/b/2.png is RGB of 4x3",
    ),
    "images: a palette": (lambda: pictures(("a/1.png", {"mode": "P"})), "t/a/1.png has mode P: convert it"),
    "images: a text": (
        lambda: (
            pictures(("a/1.png", {})) and Path("t/a/notes.txt").write_text("hi") and (lambda: data.image_folder("t"))
        ),
        "t/a/notes.txt is not an image",
    ),
    "images: cut off": (
        lambda: (
            pictures(("a/1.png", {"size": (99, 99)}))
            and Path("t/a/1.png").write_bytes(Path("t/a/1.png").read_bytes()[:60])
            and (lambda: data.image_folder("t"))
        ),
        "t/a/1.png is not an image, or it is damaged",
    ),
    "images: outside a label": (
        lambda: pictures(("a/x/1.png", {}), ("b/2.png", {})),
        "t/b/2.png is outside a label's folder",
    ),
    "images: too deep": (lambda: pictures(("a/x/y/1.png", {})), "t/a/x/y is a folder among images"),
    "images: none": (lambda: Path("t/a").mkdir(parents=True) or (lambda: data.image_folder("t")), "t holds no images"),
    "images: no clients": (lambda: Path("t").mkdir() or (lambda: data.image_folder("t")), "t holds no folders"),
    "images: a file": (lambda: Path("t").touch() or (lambda: data.image_folder("t")), "t is not a folder"),
    # whatever is there
    "load: no such file": (lambda: lambda: data.load("absent"), "no file or folder absent"),
    "load: unknown file": (
        lambda: written("t.xyz", b"hello"),
        r"t.xyz has no supported format: Blindsight reads files .parquet, .csv",
    ),
    "load: unknown folder": (lambda: Path("t").mkdir() or (lambda: data.load("t")), "t has no supported format"),
    "load: unknown option": (
        lambda: written("t.json", b"{}", client="writer"),
        "t.json is read by leaf, which has no option 'client': it takes name",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_data_are_refused_in_one_sentence(case):
    prepare, words = REFUSALS[case]
    read = prepare()
    with pytest.raises(InvalidInput, match=words) as refused:
        read()
    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 400
