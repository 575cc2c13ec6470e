"""Downloads against a server on this machine that cuts, lies, refuses and changes its mind."""

import dataclasses
import gzip
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import until

from blindsight.data import datasets, originals
from blindsight.data.catalogue import DATASETS, Dataset
from blindsight.data.downloads import RemoteFile, Retries, alone, checksum, fetch
from blindsight.errors import BlindsightError, InvalidInput

HURRIED = Retries(attempts=3, wait_s=0.0, timeout_s=5.0)
CONTENT = np.random.default_rng(0).bytes(300_000)


@dataclasses.dataclass
class Answer:
    """How the server behaves for one request; the default is a well-behaved server."""

    status: int = 200
    headers: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    cut_after: int | None = None  # bytes sent before the connection drops
    ranges: bool = True
    content: bytes | None = None  # instead of the file
    length: int | None = None  # what Content-Length claims; -1 for none at all
    shift: int = 0  # how far the range sent is from the one asked for
    hold: threading.Event | None = None  # sends half, then waits for this


class Mirror(ThreadingHTTPServer):
    """A server with files; `answers` are used up one per request, and `asked` says what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.files: dict[str, bytes] = {}
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent: list[int] = []  # bytes of each body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def starts(self) -> list[int]:
        """Where each request wanted to begin."""
        return [int(re.sub(r"\D", "", headers.get("Range", "0"))) for _, headers in self.asked]

    def remote(self, name: str = "file.bin", content: bytes = CONTENT, **about: Any) -> RemoteFile:
        """A file of this server, with its true size and checksum unless `about` says otherwise."""
        self.files[f"/{name}"] = content
        known = RemoteFile(
            name=name,
            urls=(f"{self.url}/{name}",),
            checksum="sha256:" + hashlib.sha256(content).hexdigest(),
            size=len(content),
        )
        return dataclasses.replace(known, **about)


class _Answering(BaseHTTPRequestHandler):
    server: Mirror  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        mirror = self.server
        mirror.asked.append((self.path, dict(self.headers.items())))
        answer = mirror.answers.pop(0) if mirror.answers else Answer()
        content = mirror.files.get(self.path) if answer.content is None else answer.content
        if content is None or answer.status != 200:
            return self._send(404 if content is None else answer.status, answer.headers, b"", 0, answer)
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        headers = {"ETag": tag} | answer.headers
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked is None or not answer.ranges or self.headers.get("If-Range", tag) != tag:
            return self._send(200, headers, content, len(content), answer)
        start = int(asked[1]) + answer.shift
        if start >= len(content):
            return self._send(416, headers | {"Content-Range": f"bytes */{len(content)}"}, b"", 0, answer)
        extent = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        self._send(206, headers | extent, content[start:], len(content) - start, answer)

    def _send(self, status: int, headers: dict[str, str], body: bytes, length: int, answer: Answer) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        length = length if answer.length is None else answer.length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        body = body[: answer.cut_after]
        self.server.sent.append(len(body))
        try:
            if answer.hold is not None:
                self.wfile.write(body[: len(body) // 2])
                answer.hold.wait(timeout=20)
                return
            self.wfile.write(body)
        except OSError:
            pass  # the other side has had enough
        self.close_connection = True


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- one file


def test_a_file_arrives_once_and_alone(mirror, tmp_path):
    seen: list[tuple[int, int | None]] = []
    file = mirror.remote()
    path = fetch(file, tmp_path, progress=lambda done, total: seen.append((done, total)), patience=HURRIED)
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == ["file.bin"]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert fetch(file, tmp_path, patience=HURRIED) == path
    assert len(mirror.asked) == 1  # the second time nobody was asked
    assert mirror.asked[0][1]["Accept-Encoding"] == "identity"


def test_a_broken_connection_is_resumed_where_it_broke(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=1000), Answer(cut_after=0), Answer(cut_after=100_000)]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts() == [0, 1000, 1000, 101_000]
    assert sum(mirror.sent) == len(CONTENT)  # no byte twice
    tag = f'"{hashlib.md5(CONTENT).hexdigest()}"'
    assert [headers.get("If-Range") for _, headers in mirror.asked] == [None, tag, tag, tag]
    assert left(tmp_path) == ["file.bin"]


@given(st.binary(min_size=1, max_size=400), st.lists(st.integers(0, 150), max_size=6), st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wherever_it_is_cut_no_byte_is_sent_twice(mirror, tmp_path_factory, content, cuts, size_known):
    mirror.answers = [Answer(cut_after=cut) for cut in cuts]
    mirror.asked, mirror.sent = [], []
    file = mirror.remote("law.bin", content, **({} if size_known else {"size": None}))
    patient = dataclasses.replace(HURRIED, attempts=10)
    assert fetch(file, tmp_path_factory.mktemp("law"), patience=patient).read_bytes() == content
    assert sum(mirror.sent) == len(content)
    mirror.answers = []


def test_a_server_without_ranges_starts_over(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=1000, ranges=False), Answer(ranges=False)]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.sent == [1000, len(CONTENT)]


def test_a_server_without_ranges_that_always_cuts_is_given_up(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=cut, ranges=False) for cut in [1000, *[10, 500] * 9]]
    with pytest.raises(BlindsightError, match="broke off after"):
        fetch(mirror.remote(), tmp_path, patience=HURRIED)
    assert len(mirror.asked) == 1 + HURRIED.attempts  # the first brought bytes, the others none that were new


def test_a_file_that_changed_meanwhile_comes_whole(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=1000, content=bytes(len(CONTENT)))]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.sent == [1000, len(CONTENT)]


def test_a_weak_tag_is_no_promise_and_the_date_is_used(mirror, tmp_path):
    date = "Mon, 02 Jan 2023 03:04:05 GMT"
    mirror.answers = [Answer(cut_after=1000, headers={"ETag": 'W/"x"', "Last-Modified": date})]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.asked[1][1]["If-Range"] == date


def test_a_damaged_file_is_replaced(mirror, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1] + b"?")
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT


def test_bytes_of_another_mirror_are_continued_without_its_tag(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=1000), *[Answer(status=500)] * 3]
    mirror.files["/copy.bin"] = CONTENT
    file = mirror.remote(urls=(f"{mirror.url}/file.bin", f"{mirror.url}/copy.bin"))
    assert fetch(file, tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.asked[-1][0] == "/copy.bin"
    assert mirror.starts()[-1] == 1000
    assert "If-Range" not in mirror.asked[-1][1]


def test_wrong_bytes_are_refused_and_not_kept(mirror, tmp_path):
    file = mirror.remote()
    mirror.files["/file.bin"] = bytes(len(CONTENT))
    with pytest.raises(BlindsightError, match=r"with checksum .* was expected; it was deleted") as refused:
        fetch(file, tmp_path, patience=HURRIED)
    assert "\n" not in str(refused.value)
    assert left(tmp_path) == []
    assert len(mirror.asked) == 1  # asking again would bring the same


def test_a_good_mirror_follows_bad_ones(mirror, tmp_path):
    file = mirror.remote()
    mirror.files |= {"/bad": bytes(len(CONTENT)), "/short": CONTENT[:10]}
    urls = tuple(f"{mirror.url}/{name}" for name in ("missing", "short", "bad", "file.bin"))
    assert fetch(dataclasses.replace(file, urls=urls), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert [path for path, _ in mirror.asked] == ["/missing", "/short", "/bad", "/file.bin"]


def test_damaged_bytes_of_an_earlier_run_are_fetched_anew(mirror, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"?" * 5000)
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts() == [5000, 0]


def test_a_part_that_is_too_long_is_dropped(mirror, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts() == [0]


@pytest.mark.parametrize(("size", "requests"), [(len(CONTENT), 0), (None, 1)])
def test_a_part_that_is_complete_is_only_verified(mirror, tmp_path, size, requests):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(mirror.remote(size=size), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert len(mirror.asked) == requests  # with an unknown size the server says that nothing is missing
    assert sum(mirror.sent) == 0


def test_a_part_longer_than_the_servers_file_starts_over(mirror, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(mirror.remote(size=None), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts() == [len(CONTENT) + 4, 0]


def test_a_server_that_sends_another_range_is_asked_for_the_whole(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=1000), Answer(shift=7)]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts() == [0, 1000, 0]


def test_a_length_that_is_not_the_known_one_is_refused_at_once(mirror, tmp_path):
    mirror.answers = [Answer(length=len(CONTENT) + 1)]
    with pytest.raises(BlindsightError, match=r"300,001 bytes, but 300,000 were expected"):
        fetch(mirror.remote(), tmp_path, patience=HURRIED)
    mirror.answers = [Answer(content=CONTENT[:-1])]
    with pytest.raises(BlindsightError, match=r"299,999 bytes"):
        fetch(mirror.remote(), tmp_path, patience=HURRIED)
    assert left(tmp_path) == []


def test_a_server_that_promises_more_than_it_has_is_asked_for_the_rest_once(mirror, tmp_path):
    mirror.answers = [Answer(length=len(CONTENT) + 50)]
    assert fetch(mirror.remote(size=None), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts() == [0, len(CONTENT)]  # there is no rest, and the checksum is right


def test_no_more_is_read_than_the_file_has(mirror, tmp_path):
    mirror.answers = [Answer(content=CONTENT + bytes(5_000_000), length=-1)]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT


def test_a_moments_trouble_is_waited_out(mirror, tmp_path):
    mirror.answers = [Answer(status=503, headers={"Retry-After": "0"}), Answer(status=500)]
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert len(mirror.asked) == 3


def test_a_server_may_say_how_long_to_wait(mirror, tmp_path):
    mirror.answers = [Answer(status=429, headers={"Retry-After": "3600"})]
    patience = dataclasses.replace(HURRIED, longest_wait_s=0.2)
    began = time.monotonic()
    fetch(mirror.remote(), tmp_path, patience=patience)
    assert time.monotonic() - began >= 0.2  # as long as it says, within reason: this test would last an hour


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (500, 3), (503, 3), (204, 1)])
def test_lasting_trouble_is_one_sentence(mirror, tmp_path, status, requests):
    mirror.answers = [Answer(status=status) for _ in range(9)]
    with pytest.raises(BlindsightError, match=rf"file.bin could not be downloaded: .* answered {status}") as refused:
        fetch(mirror.remote(), tmp_path, patience=HURRIED)
    assert "\n" not in str(refused.value)
    assert len(mirror.asked) == requests
    assert left(tmp_path) == []


def test_what_has_arrived_is_kept_and_said(mirror, tmp_path):
    mirror.answers = [Answer(cut_after=1000), *[Answer(status=500)] * 9]
    with pytest.raises(BlindsightError, match="1,000 bytes are kept, and the same command resumes"):
        fetch(mirror.remote(), tmp_path, patience=HURRIED)
    mirror.answers = []
    assert fetch(mirror.remote(), tmp_path, patience=HURRIED).read_bytes() == CONTENT
    assert mirror.starts()[-1] == 1000


def test_nobody_answers(mirror, tmp_path):
    with Mirror() as closed:
        url = closed.url  # and closed again
    with pytest.raises(BlindsightError, match="could not be reached"):
        fetch(dataclasses.replace(mirror.remote(), urls=(url,)), tmp_path, patience=HURRIED)


def test_a_silent_server_is_not_waited_for(mirror, tmp_path):
    silent = threading.Event()
    mirror.answers = [Answer(hold=silent, cut_after=1)]
    impatient = Retries(attempts=1, wait_s=0.0, timeout_s=0.2)
    with pytest.raises(BlindsightError, match=r"broke off after 0 bytes \(timed out\)"):
        fetch(mirror.remote(), tmp_path, patience=impatient)
    silent.set()


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.com/x", "mirror"])
def test_only_addresses_of_the_web(tmp_path, url):
    with pytest.raises(InvalidInput, match="https://"):
        fetch(RemoteFile(name="x", urls=(url,), checksum="md5:0"), tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence(mirror, tmp_path):
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(BlindsightError, match=r"cannot write .*make room"):
        fetch(mirror.remote(), tmp_path, patience=HURRIED)


def test_two_at_once_are_refused(tmp_path):
    with alone(tmp_path / "x"), pytest.raises(BlindsightError, match="another process"), alone(tmp_path / "x"):
        pass
    with alone(tmp_path / "x"):
        pass  # free again
    (tmp_path / "taken").write_text("")
    with pytest.raises(BlindsightError, match="cannot create"), alone(tmp_path / "taken"):
        pass


def test_checksums_are_written_like_the_known_one(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert checksum(tmp_path / "x", "md5:?") == "md5:" + hashlib.md5(b"abc").hexdigest()
    assert checksum(tmp_path / "x") == "sha256:" + hashlib.sha256(b"abc").hexdigest()


# --- a data set: several files, prepared


def idx(values: np.ndarray) -> bytes:
    kind = {"u1": 0x08, "i4": 0x0C}[values.dtype.str[1:]]
    head = bytes([0, 0, kind, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(head + values.astype(values.dtype.newbyteorder(">")).tobytes(), 1, mtime=0)


def small_mnist() -> dict[str, bytes]:
    """Files like MNIST's and QMNIST's, of three writers and twelve digits, and six more rows than digits to test."""
    rng = np.random.default_rng(1)
    files: dict[str, bytes] = {}
    for split, prefix, n in (("train", "train", 12), ("test", "t10k", 6)):
        labels = rng.integers(0, 10, n).astype(np.uint8)
        about = np.zeros((n + 6 * (split == "test"), 8), np.int32)
        about[:n, 0], about[:, 1], about[:, 2], about[:, 3] = labels, 4, np.arange(len(about)) % 3 + 2000, 7
        files[f"{prefix}-images-idx3-ubyte.gz"] = idx(rng.integers(0, 256, (n, 28, 28)).astype(np.uint8))
        files[f"{prefix}-labels-idx1-ubyte.gz"] = idx(labels)
        files[f"qmnist-{split}-labels-idx2-int.gz"] = idx(about)
    return files


@pytest.fixture
def known(mirror, monkeypatch) -> Callable[..., Dataset]:
    """Puts a data set of these files on the mirror and into the catalogue."""

    def put(name: str, files: dict[str, bytes], **changes: Any) -> Dataset:
        remotes = tuple(mirror.remote(f"{name}/{file}", content) for file, content in files.items())
        remotes = tuple(dataclasses.replace(remote, name=remote.name.partition("/")[2], urls=()) for remote in remotes)
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], downloads=remotes, **changes))
        return DATASETS[name]

    monkeypatch.delenv("BLINDSIGHT_DATA", raising=False)
    return put


def test_get_fetches_verifies_and_prepares(mirror, known, tmp_path, monkeypatch):
    known("mnist", small_mnist())
    seen: list[tuple[int, int]] = []
    monkeypatch.setenv("BLINDSIGHT_DATA_URL", mirror.url + "/")
    monkeypatch.setenv("BLINDSIGHT_DATA", str(tmp_path / "new" / "folder"))
    folder = datasets.get("mnist", progress=lambda done, total: seen.append((done, total)), patience=HURRIED)
    assert folder == tmp_path / "new" / "folder"
    assert left(folder) == ["mnist.npz", "mnist_writers.npz"]
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    people = datasets.dataset("mnist", split="test")
    assert people.ids.tolist() == ["2000", "2001", "2002"]
    assert people.sizes.tolist() == [2, 2, 2]
    labels = originals.read_idx(_written(tmp_path, mirror.files["/mnist/t10k-labels-idx1-ubyte.gz"]))
    assert people["2001"]["label"].tolist() == [labels[1], labels[4]]
    requests = len(mirror.asked)
    assert datasets.get("mnist", patience=HURRIED) == folder
    assert datasets.get("mnist", to=folder, patience=HURRIED) == folder
    assert len(mirror.asked) == requests  # it is there already


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "content"
    path.write_bytes(content)
    return path


def test_get_goes_on_with_the_files_that_are_missing(mirror, known, tmp_path):
    known("mnist", small_mnist())
    mirror.answers = [Answer(), Answer(), Answer(status=404)]
    with pytest.raises(BlindsightError, match="404"):
        datasets.get("mnist", to=tmp_path, mirror=mirror.url, patience=HURRIED)
    assert left(tmp_path) == ["mnist.download"]
    done = [path for path, _ in mirror.asked[:2]]
    datasets.get("mnist", to=tmp_path, mirror=mirror.url, patience=HURRIED)
    assert not set(done) & {path for path, _ in mirror.asked[3:]}
    assert left(tmp_path) == ["mnist.npz", "mnist_writers.npz"]


def test_without_a_mirror_the_origins_are_asked(mirror, known, tmp_path, monkeypatch):
    plays = known("shakespeare", {"shakespeare_roles.jsonl.xz": b"any"})
    urls = (f"{mirror.url}/gone", f"{mirror.url}/shakespeare/shakespeare_roles.jsonl.xz")
    published = tuple(dataclasses.replace(file, urls=urls) for file in plays.downloads)
    monkeypatch.setitem(DATASETS, "shakespeare", dataclasses.replace(plays, downloads=published))
    datasets.get("shakespeare", to=tmp_path, patience=HURRIED)
    assert [path for path, _ in mirror.asked] == ["/gone", "/shakespeare/shakespeare_roles.jsonl.xz"]
    assert left(tmp_path) == ["shakespeare_roles.jsonl.xz"]


def test_a_folder_that_cannot_be_written_is_one_sentence(mirror, known, tmp_path):
    known("mnist", small_mnist())
    (tmp_path / "mnist.npz").mkdir()
    with pytest.raises(BlindsightError, match=r"cannot write mnist into .*: choose another"):
        datasets.get("mnist", to=tmp_path, mirror=mirror.url, patience=HURRIED)


def test_writers_out_of_step_with_the_digits_are_refused(mirror, known, tmp_path):
    files = small_mnist()
    files["t10k-labels-idx1-ubyte.gz"] = idx(np.full(6, 11, np.uint8))
    known("mnist", files)
    with pytest.raises(InvalidInput, match="do not match the digits"):
        datasets.get("mnist", to=tmp_path, mirror=mirror.url, patience=HURRIED)
    assert left(tmp_path) == ["mnist.download"]


@pytest.mark.slow
@pytest.mark.skipif(datasets.find("mnist") is None, reason="need real data sets: blindsight data get NAME")
def test_all_of_mnist_is_prepared_as_it_is_known(tmp_path):
    """The published arrays, taken from the prepared files and prepared again."""
    real = datasets.find("mnist") or tmp_path
    images, writers = dict(np.load(real / "mnist.npz")), dict(np.load(real / "mnist_writers.npz"))
    for split, prefix in (("train", "train"), ("test", "t10k")):
        labels = images[f"y_{split}"]
        about = np.zeros((60_000, 8), np.int32)
        for column, values in enumerate(
            [labels, *(writers[f"{field}_{split}"] for field in ("hsf", "writer", "order"))]
        ):
            about[: len(labels), column] = values
        (tmp_path / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images[f"x_{split}"]))
        (tmp_path / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(labels))
        (tmp_path / f"qmnist-{split}-labels-idx2-int.gz").write_bytes(idx(about))
    originals.mnist(tmp_path, tmp_path)
    for name, known in (("mnist.npz", images), ("mnist_writers.npz", writers)):
        made = dict(np.load(tmp_path / name))
        assert list(made) == list(known)
        assert all(made[key].dtype == known[key].dtype and np.array_equal(made[key], known[key]) for key in known)


def test_prepared_files_come_as_they_are_from_a_mirror_only(mirror, known, tmp_path):
    known("shakespeare", {"shakespeare_roles.jsonl.xz": b"any"})
    with pytest.raises(InvalidInput, match=r"no public download in this form .*ravexina.* --from URL"):
        datasets.get("shakespeare", to=tmp_path)
    datasets.get("shakespeare", to=tmp_path, mirror=mirror.url, patience=HURRIED)
    assert left(tmp_path) == ["shakespeare_roles.jsonl.xz"]
    assert (tmp_path / "shakespeare_roles.jsonl.xz").read_bytes() == b"any"


def test_adult_is_one_table_with_a_header(tmp_path):
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, ?, White, Male, 2174, 0, 40, Cuba, <=50K"
    (tmp_path / "adult.data").write_text(f"{row}\n{row}\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{row}.\n\n")
    originals.adult(tmp_path, tmp_path)
    people = DATASETS["adult"].read(tmp_path, split="all")
    assert (people.size, people.n_examples) == (3, 3)
    assert people.columns["age"].tolist() == [39, 39, 39]
    assert people.classes["label"] == ("<=50K",)
    assert people.classes["relationship"] == ("?",)
    assert DATASETS["adult"].read(tmp_path, split="test").size == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"not gzip", gzip.compress(b"", mtime=0), gzip.compress(b"\0\0\x08\x01\0\0\0\x09abc", mtime=0)],
    ids=["empty", "not gzip", "nothing", "cut off"],
)
def test_what_is_not_idx_is_refused(tmp_path, content):
    with pytest.raises(InvalidInput, match="not a gzipped idx file"):
        originals.read_idx(_written(tmp_path, content))


def test_every_kind_of_number_in_idx(tmp_path):
    values = np.array([[1, -2], [3, 2**31 - 1]], np.int32)
    assert originals.read_idx(_written(tmp_path, idx(values))).tolist() == values.tolist()
    assert originals.read_idx(_written(tmp_path, idx(values))).dtype == np.dtype("=i4")


# --- the command, in a process of its own

COMMAND = """
import dataclasses, sys
from blindsight import cli
from blindsight.data.catalogue import DATASETS
from blindsight.data.downloads import RemoteFile

file = RemoteFile(name="shakespeare_roles.jsonl.xz", urls=(), checksum=sys.argv.pop(1), size=int(sys.argv.pop(1)))
DATASETS["shakespeare"] = dataclasses.replace(DATASETS["shakespeare"], downloads=(file,))
cli.main()
"""


def test_a_killed_command_goes_on_where_it_was(mirror, tmp_path):
    remote = mirror.remote("shakespeare/shakespeare_roles.jsonl.xz")
    words = [remote.checksum, str(remote.size), "data", "get", "shakespeare", "--from", mirror.url, "--to"]
    command = [sys.executable, "-c", COMMAND, *words, str(tmp_path), "--json"]
    mirror.answers = [Answer(hold=threading.Event())]
    part = tmp_path / "shakespeare.download" / "shakespeare_roles.jsonl.xz.part"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        until(lambda: part.is_file() and part.stat().st_size == len(CONTENT) // 2)
        os.kill(running.pid, signal.SIGKILL)
    assert left(tmp_path) == ["shakespeare.download"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["files"] == [str(tmp_path / "shakespeare_roles.jsonl.xz")]
    assert done.stderr == ""  # quiet
    assert mirror.starts() == [0, len(CONTENT) // 2]
    assert (tmp_path / "shakespeare_roles.jsonl.xz").read_bytes() == CONTENT
    assert left(tmp_path) == ["shakespeare_roles.jsonl.xz"]


REAL = datasets.find("adult")


@pytest.mark.skipif(REAL is None, reason="need real data sets: blindsight data get NAME")
def test_adult_with_its_published_checksums(mirror, tmp_path):
    """The published files, rebuilt from the prepared one to the byte, killed half way and prepared again."""
    import lzma

    header, *rows = lzma.decompress((REAL / "adult.csv.xz").read_bytes()).decode().splitlines()  # pyright: ignore
    train = [row.removesuffix(",train").replace(",", ", ") for row in rows if row.endswith(",train")]
    test = [row.removesuffix(",test").replace(",", ", ") + "." for row in rows if row.endswith(",test")]
    mirror.files["/adult/adult.data"] = ("\n".join(train) + "\n\n").encode()
    mirror.files["/adult/adult.test"] = ("\n".join(["|1x3 Cross validator", *test]) + "\n\n").encode()
    command = [sys.executable, "-m", "blindsight", "data", "get", "adult", "--from", mirror.url, "--to", str(tmp_path)]
    mirror.answers = [Answer(hold=threading.Event())]
    half = len(mirror.files["/adult/adult.data"]) // 2
    part = tmp_path / "adult.download" / "adult.data.part"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        until(lambda: part.is_file() and part.stat().st_size == half)
        os.kill(running.pid, signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"adult is in {tmp_path}\nLicence: CC BY 4.0" in done.stdout
    assert f"export BLINDSIGHT_DATA={tmp_path}" in done.stdout
    assert mirror.starts() == [0, half, 0]
    prepared = lzma.decompress((tmp_path / "adult.csv.xz").read_bytes()).decode().splitlines()
    assert prepared == [header, *rows]


def test_the_command_says_in_one_sentence_what_went_wrong(mirror, tmp_path):
    mirror.files["/adult/adult.data"] = b"something else"
    command = [sys.executable, "-m", "blindsight", "data", "get", "adult", "--from", mirror.url, "--to", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: adult.data could not be downloaded: .* has 14 bytes, but .* were expected\n", done.stderr
    )
    assert done.stdout == ""
