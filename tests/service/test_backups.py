"""Backups: one folder, replaced as a whole, from which what is missing can be restored."""

import asyncio

import httpx2 as httpx
import pytest
from waiting import until

from blindsight.cli import main
from blindsight.errors import InvalidInput
from blindsight.service import Settings, backups, snapshots
from blindsight.service.pool import first_instances
from blindsight.service.store import Record, StoreUnreachable

ADMIN = {"Authorization": "Bearer administrator-of-the-tests"}


def back_up(folder, data, store="memory") -> str:
    """What the command prints; the service is another process."""
    return "\n".join(asyncio.run(backups.back_up(Settings(data=data, store=store), folder)))


def restore(folder, data, store="memory") -> str:
    return "\n".join(asyncio.run(backups.restore(Settings(data=data, store=store), folder)))


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_deleted_model_is_restored_from_a_backup(processes, request, make_task, tmp_path, kind):
    server = request.getfixturevalue("redis_server") if kind == "redis" else None
    service = processes(server.address if server else "memory")
    process = service.start()
    service.wait()
    service.begin_at(0.5)
    with service.load(1):
        service.until_taken(20)
        until(lambda: snapshots.read(service.folder, "phishing").updates >= 20)
        where = tmp_path / "backup", service.folder, service.store
        assert back_up(*where).startswith("copied phishing,")  # while it serves
        service.until_taken(20)
    kept = snapshots.read(tmp_path / "backup", "phishing")
    address = f"{service.address}/v1/admin/models/phishing?reason=a+mistake"
    assert httpx.delete(address, headers=ADMIN).status_code == 204
    if kind == "memory":
        with pytest.raises(InvalidInput, match="another service"):
            restore(*where)
        process.terminate()
        process.wait()
    assert restore(*where).startswith("restored phishing")
    assert restore(*where).startswith("left phishing as it is")
    if kind == "memory":
        service.start()
        service.wait()
    with service.load(1):
        service.until_taken(20)  # with the token it had
    restored = snapshots.read(service.folder, "phishing").record
    assert (restored.task, restored.tokens) == (kept.record.task, kept.record.tokens)
    assert restored.created != kept.record.created
    assert service.admin("phishing/average")["weights"] == pytest.approx([0.5] * 3, abs=0.1)


def test_a_backup_keeps_no_history_and_no_deleted_model(serving, make_task, tmp_path):
    talk = serving(snapshot_s=0.05)
    talk.create(make_task(model="other"))
    folder = tmp_path / "backup"
    assert "other" in back_up(folder, tmp_path / "kept")
    first = (folder / "phishing.safetensors").read_bytes()
    talk.update(talk.draw())
    talk.admin.post("/v1/admin/models/phishing/reset")
    talk.admin.delete("/v1/admin/models/other")
    assert "deleted other from the backup" in back_up(folder, tmp_path / "kept")
    assert sorted(path.name for path in folder.iterdir()) == ["deleted.json", "phishing.safetensors"]
    assert (folder / "phishing.safetensors").read_bytes() != first
    assert (folder / "phishing.safetensors").stat().st_mode & 0o777 == 0o600


def test_mistakes_are_one_sentence(tmp_path):
    with pytest.raises(InvalidInput, match="there is no backup"):
        restore(tmp_path, tmp_path / "kept")
    with pytest.raises(InvalidInput, match="choose another folder"):
        back_up(tmp_path, tmp_path)
    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        back_up(tmp_path / "backup", None, "redis://127.0.0.1:1/0")


def test_the_command(make_task, tmp_path, monkeypatch, capsys):
    record = Record(task=make_task())
    snapshots.write(tmp_path / "kept", record, first_instances(record), 7)

    def run(*words: object) -> str:
        monkeypatch.setattr("sys.argv", ["blindsight", "serve", "--data", str(tmp_path / "kept"), *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return f"{ended.value.code or 0} {said.out}{said.err}"

    assert run("--backup", tmp_path / "backup") == "0 copied phishing, 7 updates\n"
    (tmp_path / "kept" / "phishing.safetensors").unlink()
    assert run("--restore", tmp_path / "backup") == "0 restored phishing as of 7 updates\n"
    assert "2 error: choose one of" in run("--restore", tmp_path / "backup", "--backup", tmp_path / "backup")
