"""Checkpoints: a pytree of arrays and a few facts in one safetensors file, written atomically.

The facts are in the file's own header, so arrays and facts always belong to the same moment.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from blindsight.errors import BlindsightError, InvalidInput

__all__ = ["Checkpoint", "Writer", "copied", "load", "newest", "path_of", "read_facts", "write"]

_KEPT = 2  # the newest may be damaged by a failing disk


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A saved tree and its facts."""

    tree: Any
    facts: dict[str, Any]


def path_of(folder: Path, number: int) -> Path:
    """The path of checkpoint `number`."""
    return folder / f"checkpoint-{number:08d}.safetensors"


def write(folder: Path, number: int, tree: Any, facts: dict[str, Any], *, secret: bool = False) -> Path:
    """Write checkpoint `number`; it is on disk when this returns. Older ones are deleted, except the previous one.

    With `secret`, only its owner may read it; the folder is created if needed.
    """
    path = path_of(folder, number)
    arrays = {name: np.array(leaf, order="C") for name, leaf in _named(tree)}  # ascontiguousarray adds an axis
    header = json.dumps(facts)
    scratch = path.with_suffix(f".{os.getpid()}")
    try:
        if secret:
            folder.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o666), "wb") as out:
            out.write(save(arrays, {"facts": header, "digest": _digest(header, arrays)}))
            out.flush()
            os.fsync(out.fileno())
        os.replace(scratch, path)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise BlindsightError(
            f"cannot write {path} ({error.strerror}): free some space and run again to resume"
        ) from error
    left_by_a_crash = folder.glob("checkpoint-*.[0-9]*")
    for old in [*_all(folder)[:-_KEPT], *left_by_a_crash]:
        old.unlink(missing_ok=True)
    return path


class Writer:
    """Writes checkpoints in the background, one after the other; leaving its context waits for the last one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()  # waits
        self.finish()

    @property
    def is_idle(self) -> bool:
        """Whether everything is on disk."""
        return self._writing is None or self._writing.done()

    def submit(self, write_all: Callable[[], None]) -> None:
        """Call `write_all` in the background once the one before is done; what went wrong with that is raised here."""
        self.finish()
        self._writing = self._thread.submit(write_all)

    def finish(self) -> None:
        """Wait until everything is on disk, or raise what went wrong."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


@jax.jit
def copied(tree: Any) -> Any:
    """A copy that stays when the original is donated to a computation; made where it is, without waiting."""
    return jax.tree.map(jax.numpy.copy, tree)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint in `folder`, if there is one."""
    paths = _all(folder)
    return paths[-1] if paths else None


def read_facts(path: Path) -> dict[str, Any]:
    """The unchecked facts in the checkpoint at `path`; none if they cannot be read. `load` checks them."""
    try:
        with safe_open(path, framework="numpy") as file:
            return json.loads((file.metadata() or {})["facts"])
    except (SafetensorError, OSError, KeyError, ValueError):
        return {}


def load(path: Path, like: Any) -> Checkpoint:
    """The checkpoint at `path`, in the structure, shapes and dtypes of `like`; an error states any difference."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(header["facts"])
        if header["digest"] != _digest(header["facts"], arrays):
            raise ValueError("its contents do not match its digest")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InvalidInput(
            f"{path} is damaged ({error}): delete it, and the run resumes from the previous checkpoint"
        ) from error
    expected = dict(_named(like))
    for name, leaf in expected.items():
        array = arrays.get(name)
        if array is None or (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
            there = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise InvalidInput(
                f"{path} has {there} for {name}, but this run needs {leaf.dtype}{list(leaf.shape)}: "
                f"resume with the settings the run was started with"
            )
    leaves = [  # numpy arrays stay numpy: JAX would convert 64 bits to 32
        jax.numpy.asarray(arrays[name]) if isinstance(leaf, jax.Array) else arrays[name]
        for name, leaf in zip(expected, jax.tree.leaves(like), strict=True)
    ]
    return Checkpoint(jax.tree.unflatten(jax.tree.structure(like), leaves), facts)


def _named(tree: Any) -> list[tuple[str, np.ndarray]]:
    """Every leaf as a numpy array, with its path."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path) or ".", np.asarray(leaf)) for path, leaf in paths]


def _digest(facts: str, arrays: dict[str, np.ndarray]) -> str:
    """A hash of everything in the file: a disk may flip one bit of a weight silently."""
    digest = hashlib.blake2b(facts.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*.safetensors"))
