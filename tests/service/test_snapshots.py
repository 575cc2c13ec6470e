"""Snapshots: whole or not at all, one for each model, and any damage is noticed."""

import pytest

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service import snapshots
from blindsight.service.pool import first_instances
from blindsight.service.store import Record


@pytest.fixture
def kept(make_task):
    record = Record(task=make_task(), tokens=("digest",), frozen=True)
    return record, first_instances(record), 7


def test_what_is_written_is_read(kept, tmp_path):
    snapshots.write(tmp_path / "new" / "folder", *kept)
    assert snapshots.read(tmp_path / "new" / "folder", "phishing") == kept
    assert (tmp_path / "new" / "folder" / "phishing.safetensors").stat().st_mode & 0o777 == 0o600
    snapshots.forget(tmp_path / "new" / "folder", "phishing")
    assert snapshots.names(tmp_path / "new" / "folder") == []


def test_one_bit_is_noticed(kept, tmp_path):
    snapshots.write(tmp_path, *kept)
    path = tmp_path / "phishing.safetensors"
    whole = path.read_bytes()
    for place in (3, 40, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(InvalidInput, match="damaged"):
            snapshots.read(tmp_path, "phishing")
    path.write_bytes(whole[:-7])
    with pytest.raises(InvalidInput, match="damaged"):
        snapshots.read(tmp_path, "phishing")


def test_a_crash_in_the_middle_leaves_the_old_one_and_then_nothing(kept, tmp_path, monkeypatch):
    record, instances, _ = kept
    snapshots.write(tmp_path, *kept)

    def broken(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", broken)
        with pytest.raises(KeyboardInterrupt):
            snapshots.write(tmp_path, record, instances[::-1])
    assert snapshots.read(tmp_path, "phishing") == kept
    (tmp_path / "phishing.99999").write_bytes(b"".join(instances))  # of a process that is no more
    snapshots.write(tmp_path, record, instances[::-1])
    assert [path.name for path in tmp_path.iterdir()] == ["phishing.safetensors"]


def test_a_folder_that_cannot_be_written_is_said_so(kept, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BlindsightError, match="choose another folder"):
        snapshots.write(tmp_path / "file", *kept)
