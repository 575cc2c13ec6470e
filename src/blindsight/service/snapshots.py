"""Snapshots: one file per model with its record, its current k instances and the number of accepted updates.

A file is replaced atomically, and there is never a second one: a history of instances would reveal single updates.
Files of other versions of the code are read if their records can be (`store.Record.from_json`).
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from blindsight.errors import InvalidInput
from blindsight.service.protocol import decode
from blindsight.service.store import NotSaved, Record

__all__ = ["Snapshot", "forget", "names", "read", "sweep", "write"]


class Snapshot(NamedTuple):
    """What a file holds."""

    record: Record
    instances: list[bytes]
    updates: int = 0
    """Accepted updates of this life."""


def write(folder: Path, record: Record, instances: Sequence[bytes], updates: int = 0) -> None:
    """Write a model's snapshot; it is on disk when this returns."""
    path = _path(folder, record.model)
    scratch = path.with_suffix(f".{os.getpid()}")
    header = record.to_json({"updates": updates})
    stacked = np.stack([decode(instance) for instance in instances])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(scratch, "wb") as out:
            os.chmod(scratch, 0o600)
            out.write(save({"instances": stacked}, {"record": header, "digest": _digest(header, stacked)}))
            out.flush()
            os.fsync(out.fileno())
        os.replace(scratch, path)
        for left_by_a_crash in folder.glob(f"{record.model}.[0-9]*"):  # instances from another moment
            left_by_a_crash.unlink(missing_ok=True)
        _sync(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise NotSaved(f"cannot write {path} ({error.strerror}): free some space or choose another folder") from error


def read(folder: Path, model: str) -> Snapshot:
    """A model's snapshot; refuses damaged files, because a model must never restart silently."""
    path = _path(folder, model)
    try:
        with safe_open(path, framework="numpy") as file:
            header, stacked = file.metadata() or {}, file.get_tensor("instances")
        if header["digest"] != _digest(header["record"], stacked):
            raise ValueError("its contents do not match its digest")
        fields = json.loads(header["record"])
        updates = int(fields.pop("updates", 0))
        record = Record.from_json(json.dumps(fields))
        if stacked.shape != (record.task.instances, record.task.weights):
            raise ValueError(f"it has instances of shape {stacked.shape}")
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} is damaged or of a newer version ({error}): restore a backup, or delete the model"
        ) from error
    return Snapshot(record, [row.tobytes() for row in stacked], updates)


def names(folder: Path) -> list[str]:
    """The models that have a snapshot in `folder`."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def sweep(folder: Path) -> None:
    """Delete partial files left by a crash.

    Call this only if no other process is writing to `folder`.
    """
    for path in folder.iterdir():
        if path.suffix[1:].isdigit():
            path.unlink(missing_ok=True)


def forget(folder: Path, model: str) -> None:
    """Delete a model's snapshot."""
    _path(folder, model).unlink(missing_ok=True)
    if folder.is_dir():
        _sync(folder)


def _path(folder: Path, model: str) -> Path:
    return folder / f"{model}.safetensors"


def _sync(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _digest(header: str, stacked: np.ndarray) -> str:
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    digest.update(np.ascontiguousarray(stacked).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
