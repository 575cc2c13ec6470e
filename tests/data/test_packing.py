"""A public population as bytes: sites get what was packed; a stranger's archive costs no more than its own bytes."""

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from blindsight.data.packing import pack, unpack
from blindsight.data.sources import source
from blindsight.errors import InvalidInput

PUBLIC = pack(source("tabular", {"clients": 3}))


def test_what_is_unpacked_is_what_was_packed(tmp_path: Path):
    again = unpack(PUBLIC, tmp_path / "a")
    assert again.fingerprint == source("tabular", {"clients": 3}).fingerprint
    assert pack(again) == PUBLIC


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_says_it_is_short_and_is_endless_costs_no_memory(tmp_path: Path, method: int):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive, archive.open("sizes.npy", "w") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    data = bytearray(out.getvalue())
    struct.pack_into("<I", data, data.rindex(b"PK\x01\x02") + 24, 10)  # the size that it claims
    tracemalloc.start()
    with pytest.raises(InvalidInput):
        unpack(bytes(data), tmp_path / "a")
    assert tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "name", ["../sizes.npy", "/tmp/sizes.npy", "column-1.npy/../../x", "column-12345.npy", "sizes.npy\n"]
)
def test_no_file_of_an_archive_lies_elsewhere(tmp_path: Path, name: str):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(InvalidInput):
        unpack(out.getvalue(), tmp_path / "a")
    assert list(tmp_path.rglob("*")) == []


def test_an_encrypted_archive_is_refused(tmp_path: Path):
    data = bytearray(PUBLIC)
    for mark, place in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(mark) + place] |= 1
    with pytest.raises(InvalidInput):
        unpack(bytes(data), tmp_path / "a")


def test_arrays_of_other_forms_are_refused(tmp_path: Path):
    """Sizes that no data have, numbers in place of texts, a pickle, and a header that claims more than there is."""
    endless = io.BytesIO()
    np.lib.format.write_array_header_1_0(endless, {"descr": "<i8", "fortran_order": False, "shape": (1 << 50,)})
    pickled = io.BytesIO()
    np.save(pickled, np.array([print], object), allow_pickle=True)
    negative = io.BytesIO()
    np.save(negative, np.array([-5, 1 << 62, 8]))
    for number, (name, file) in enumerate(
        [
            ("sizes.npy", endless.getvalue()),
            ("sizes.npy", negative.getvalue()),
            ("column-1.npy", pickled.getvalue()),
            ("column-0.lengths.npy", negative.getvalue()),
            ("column-0.lengths.npy", endless.getvalue()),
            ("sizes.npy", b"nothing"),
            ("population.json", b"[" * 100_000),
            ("population.json", b'{"format": 1, "fields": ["a"], "classes": [], "name": 3}'),
        ]
    ):
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(PUBLIC)) as whole, zipfile.ZipFile(out, "w") as archive:
            for entry in whole.infolist():
                archive.writestr(zipfile.ZipInfo(entry.filename), file if entry.filename == name else whole.read(entry))
        with pytest.raises(InvalidInput):
            unpack(out.getvalue(), tmp_path / f"{number}")
