"""Real data sets: what the files hold, where they are looked for, and what is said when they are not there.

What needs the real files is skipped where they are absent; the rest runs anywhere.
"""

import hashlib
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest

from blindsight.data import datasets, prepared
from blindsight.data.catalogue import DATASETS
from blindsight.data.datasets import dataset, find
from blindsight.data.downloads import checksum
from blindsight.data.sources import source
from blindsight.errors import InvalidInput

FOUND = {name: find(name) for name in DATASETS}


def folder(name: str) -> Path:
    found = FOUND[name]
    if found is None:
        pytest.skip("need real data sets: blindsight data get NAME")
    return found


# --- what they hold

COUNTS = [
    ("mnist", {}, 539, 60_000),
    ("mnist", {"split": "test"}, 297, 10_000),
    ("fashion_mnist", {"split": "test"}, 10_000, 10_000),
    ("femnist", {}, 541, 57_587),
    ("adult", {}, 32_561, 32_561),
    ("adult", {"split": "test"}, 16_281, 16_281),
    ("stackexchange", {}, 6_848, 41_114),
    ("shakespeare", {}, 1_088, 29_722),
    ("shakespeare", {"unit": "line"}, 1_088, 104_594),
    ("phishing", {}, 74_377, 74_377),
    ("phishing", {"matched": True}, 60_116, 60_116),
]


@pytest.mark.parametrize(("name", "options", "clients", "examples"), COUNTS)
def test_clients_and_examples_are_as_many_as_published(name, options, clients, examples):
    folder(name)
    people = dataset(name, **options)
    assert (people.size, people.n_examples) == (clients, examples)
    assert not people.synthetic
    for field, names in people.classes.items():
        assert people.columns[field].dtype == np.int32
        assert 0 <= people.columns[field].min() <= people.columns[field].max() < len(names)


@pytest.mark.parametrize("name", [name for name, known in DATASETS.items() if not known.public])
def test_files_without_an_origin_have_their_checksum(name):
    for file in DATASETS[name].downloads:
        path = folder(name) / file.name
        assert (path.stat().st_size, checksum(path)) == (file.size, file.checksum)


@pytest.fixture(scope="module")
def everyone():
    folder("mnist")
    return dataset("mnist", split="all")


def test_mnist_holds_the_published_images():
    (images,) = prepared._arrays(folder("mnist") / "mnist.npz", "x_train")
    published = struct.pack(">4i", 0x803, 60_000, 28, 28) + images.tobytes()
    assert hashlib.md5(published).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"


def test_mnist_writers_have_their_own_digits(everyone):
    images, labels = prepared._arrays(folder("mnist") / "mnist.npz", "x_train", "y_train")
    writers, order, hsf = prepared._arrays(
        folder("mnist") / "mnist_writers.npz", "writer_train", "order_train", "hsf_train"
    )
    assert everyone.size == 539 + 297
    sizes = everyone.sizes[:539]
    assert (sizes.min(), sizes.max()) == (19, 131)
    for writer in (2154, 0):  # the naive way
        rows = np.flatnonzero(writers == writer)
        rows = rows[np.argsort(order[rows], kind="stable")]
        assert np.array_equal(everyone[str(writer)]["image"], images[rows])
        assert np.array_equal(everyone[str(writer)]["label"], labels[rows])
        assert np.array_equal(everyone[str(writer)]["hsf"], hsf[rows])


def test_femnist_can_be_inverted():
    folder("femnist")
    dark, bright = dataset("femnist"), dataset("femnist", invert=True)
    assert dark.columns["image"].mean() > 200  # ink is dark on white
    assert np.array_equal(255 - dark.columns["image"], bright.columns["image"])
    assert [int(np.sum(dark.sizes >= least)) for least in (50, 100)] == [318, 272]
    assert dark.classes["label"][10] == "A"
    assert dark.classes["label"][61] == "z"
    assert dark.ids[0] == "f0005_26"


def test_adult_is_coded_the_same_in_both_splits():
    folder("adult")
    train, test = dataset("adult"), dataset("adult", split="test")
    assert train.classes == test.classes
    first = train["0"]
    assert (int(first["age"][0]), int(first["capital_gain"][0])) == (39, 2174)
    named = {field: names[int(first[field][0])] for field, names in train.classes.items()}
    assert (named["workclass"], named["native_country"], named["label"]) == ("State-gov", "United-States", "<=50K")


def test_phishing_keeps_its_addresses():
    folder("phishing")
    people = dataset("phishing")
    lines = lzma.decompress((folder("phishing") / "phishing_urls.csv.xz").read_bytes()).decode().splitlines()
    assert people.columns["url"][0] == lines[1].split(",", 2)[2]
    assert int(people.columns["label"].sum()) == 24_329


@pytest.mark.slow
def test_stackexchange_has_as_many_sentences_as_published():
    folder("stackexchange")
    people = dataset("stackexchange", unit="sentence")
    assert people.n_examples == 206_314
    assert [int(np.sum(people.sizes >= least)) for least in (100, 50, 20)] == [343, 645, 1_549]
    assert not np.any(np.strings.find(people.columns["text"], "\n") >= 0)
    assert people.classes["kind"] == ("question", "answer", "comment")
    assert len(people.classes["site"]) == 17
    assert (np.diff(people[0]["time"]) >= 0).all()  # in order of time, posts repeated for each of their sentences


def test_shakespeares_roles_speak_in_order():
    folder("shakespeare")
    countess = dataset("shakespeare")["All's Well That Ends Well/COUNTESS"]["text"]
    assert countess[0] == "In delivering my son from me, I bury a second husband."
    lines = dataset("shakespeare", unit="line")
    assert int(np.sum(lines.sizes >= 100)) == 299
    assert "\n".join(countess.tolist()).split("\n") == lines["All's Well That Ends Well/COUNTESS"]["text"].tolist()


def test_data_without_clients_are_dealt_to_some():
    folder("fashion_mnist")
    even = dataset("fashion_mnist", split="test", clients=30, seed=3)
    assert even.sizes.min() == 333
    assert even.classes["label"][8] == "bag"
    uneven = dataset("fashion_mnist", split="test", clients=30, alpha=0.1, seed=3)
    assert uneven.n_examples == even.n_examples == 10_000
    assert uneven.sizes.std() > 10 * even.sizes.std()
    again = dataset("fashion_mnist", split="test", clients=30, alpha=0.1, seed=3)
    assert np.array_equal(again.columns["image"], uneven.columns["image"])
    with pytest.raises(InvalidInput, match="the number of clients"):
        dataset("fashion_mnist", split="test", alpha=0.1)


# --- where they are looked for


@pytest.fixture
def nowhere(tmp_path, monkeypatch) -> Path:
    """A folder with a checkout in it, nothing above it, and an empty cache."""
    monkeypatch.delenv("BLINDSIGHT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "checkout" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "checkout" / "src")
    return tmp_path


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or ("mnist.npz", "mnist_writers.npz"):
        (folder / name).write_bytes(b"")
    return folder


def test_the_nearest_folder_that_holds_every_file_is_taken(nowhere, monkeypatch):
    assert find("mnist") is None
    for folder in ("cache/blindsight", "shared/data", "data", "checkout/shared/data", "checkout/src/data"):
        put(nowhere / folder)  # each comes before the last
        assert find("mnist") == nowhere / folder
    put(nowhere / "told", "mnist.npz")  # half of it
    monkeypatch.setenv("BLINDSIGHT_DATA", str(nowhere / "told"))
    assert find("mnist") is None  # who says where means there
    put(nowhere / "told", "mnist_writers.npz")
    assert find("mnist") == nowhere / "told"


def test_half_a_data_set_is_none(nowhere):
    put(nowhere / "data", "mnist.npz")
    put(nowhere / "cache" / "blindsight", "mnist_writers.npz")
    assert find("mnist") is None


def test_the_cache_is_in_the_home_unless_told(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "someone")
    assert datasets.cache_folder() == Path("someone/.cache/blindsight")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mnist", "mnist is not on this machine: blindsight data get mnist downloads it"),
        ("stackexchange", r"no public download in this form \(a selection from the Stack Exchange data dumps\)"),
        ("mnits", "did you mean 'mnist'"),
        ("cats", "mnist, fashion_mnist, femnist, adult, stackexchange, shakespeare, phishing"),
    ],
)
def test_what_is_not_there_is_one_sentence(nowhere, name, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        dataset(name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", DATASETS)
def test_a_damaged_file_is_one_sentence(nowhere, monkeypatch, name):
    put(nowhere, *DATASETS[name].files)
    monkeypatch.setenv("BLINDSIGHT_DATA", str(nowhere))
    with pytest.raises(InvalidInput, match=rf"is damaged .*download {name} again"):
        dataset(name)
    for file in DATASETS[name].files:
        (nowhere / file).write_bytes(b"PK\x03\x04 and then nothing of the kind" * 9)
    with pytest.raises(InvalidInput, match=rf"is damaged .*download {name} again"):
        dataset(name)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mnist", {"color": 1}, "mnist has no option 'color': it has split"),
        ("mnist", {"clients": 5}, "no option 'clients'"),
        ("adult", {"clint": 5}, "it has split, clients, alpha, seed"),
        ("mnist", {"split": "tset"}, "split must be train, test or all, got 'tset'"),
        ("stackexchange", {"unit": "word"}, "unit must be post or sentence, got 'word'"),
    ],
)
def test_options_that_make_no_sense_are_named(name, options, words):
    folder(name)
    with pytest.raises(InvalidInput, match=words):
        source(name, options)
    if not options.keys() & {"color", "clint"}:  # Python refuses these itself
        with pytest.raises(InvalidInput, match=words):
            dataset(name, **options)


def test_the_catalogue_is_complete():
    for name, known in DATASETS.items():
        assert known.name == name
        assert all(vars(known)[field] for field in ("description", "clients", "examples", "licence", "origin", "files"))
        for file in known.downloads:
            algorithm, _, digits = file.checksum.partition(":")
            assert len(digits) == {"sha256": 64, "md5": 32}[algorithm]
            assert all(url.startswith("http") and url.endswith("/" + file.name) for url in file.urls)
    assert [name for name, known in DATASETS.items() if known.public] == ["mnist", "fashion_mnist", "adult"]
