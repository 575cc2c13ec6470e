"""Where a simulation computes: devices, data placement, and the cache of compiled code."""

import gc
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from blindsight.data.population import Columns, Population
from blindsight.errors import InvalidInput
from blindsight.trees import Tree

__all__ = [
    "keep_compiled_code",
    "make_room_for_programs",
    "nbytes",
    "numbers",
    "on_all",
    "on_first",
    "room",
    "use_cores",
]

_RESIDENT_SHARE = 0.4  # fraction of the accelerator's memory for the population
_RESIDENT_ON_CPU = 8 << 30
_MAPS_SHARE = 0.5  # fraction of a process's memory maps; above it, compiled programs are dropped
_ALIGNMENT = 64  # bytes; XLA reads aligned memory without a copy


def use_cores(count: int | None = None) -> None:
    """Use `count` cores (default: all) to simulate clients in parallel when JAX runs on the CPU.

    One client's small matrices do not keep two cores busy; two clients do. Call this before JAX computes anything;
    afterwards it has no effect. JAX then reports this many CPU devices.
    """
    cores = count or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    if not cores >= 1:
        raise InvalidInput(f"count must be at least 1 core, got {count}")
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:  # JAX is already initialised
        return


def keep_compiled_code() -> None:
    """Cache code compiled for an accelerator in the user's cache folder, unless JAX already has a cache folder.

    Not for the CPU: there it saves a second or two of a minute, and JAX writes entries in place, so a process killed
    while writing leaves a truncated file, which every later run reads, warns about and recompiles anyway.
    """
    if jax.default_backend() != "cpu" and getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "blindsight" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def make_room_for_programs() -> None:
    """Drop programs compiled for the CPU before the process runs out of memory maps; they are recompiled when needed.

    Each program that XLA compiles for the CPU takes about six of the memory maps that Linux allows a process, 65,530
    by default, and XLA crashes with a segmentation fault when there are none left. That is about ten thousand
    programs: a long session of many inspections.
    """
    if _maps() > _MAPS_SHARE * _most_maps():
        jax.clear_caches()
        gc.collect()


def _maps() -> int:
    try:
        with open("/proc/self/maps", "rb") as lines:
            return sum(1 for _ in lines)
    except OSError:  # not Linux, and no such limit
        return 0


def _most_maps() -> float:
    try:
        return float(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return math.inf


def room() -> float:
    """The number of bytes on the accelerator available for the population."""
    stats = jax.local_devices()[0].memory_stats()
    return _RESIDENT_SHARE * stats["bytes_limit"] if stats else _RESIDENT_ON_CPU


def nbytes(population: Population) -> int:
    """The size of all clients' numeric columns in bytes."""
    shapes = [(dtype, shape) for dtype, shape in population.fields.values() if dtype.kind in "biuf"]
    return population.n_examples * sum(dtype.itemsize * math.prod(shape) for dtype, shape in shapes)


def on_all(columns: Mapping[str, np.ndarray], rows: int, mesh: Mesh) -> dict[str, jax.Array]:
    """The columns on every device of `mesh`, padded to `rows`, at least one; CPU cores share the same memory."""
    everywhere = NamedSharding(mesh, PartitionSpec())

    def placed(column: np.ndarray) -> jax.Array:
        column = _aligned(column, max(rows, 1))
        copies = [jax.device_put(column, device) for device in mesh.devices.flat]
        return jax.make_array_from_single_device_arrays(copies[0].shape, everywhere, copies)

    return {field: placed(column) for field, column in columns.items()}


def on_first(tree: Tree) -> Tree:
    """The first device's copy of a replicated tree."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def numbers(columns: Mapping[str, np.ndarray]) -> Columns:
    """The numeric columns, without text; 64-bit numbers are narrowed to 32 bits for JAX.

    An integer that is too large is clamped and a float becomes infinite, without a refusal or a warning, which would
    reveal one client's value.
    """
    return {field: _in_32_bits(column) for field, column in columns.items() if column.dtype.kind in "biuf"}


def _in_32_bits(column: np.ndarray) -> np.ndarray:
    """Depends only on the type; JAX itself would drop the upper half of a number."""
    if column.dtype == np.float64:
        with np.errstate(over="ignore"):
            return column.astype(np.float32)
    if column.dtype.kind not in "iu" or column.dtype.itemsize < 8:
        return column
    narrow = np.dtype(f"{column.dtype.kind}4")
    most = np.iinfo(narrow)
    return np.clip(column, most.min, most.max).astype(narrow)


def _aligned(column: np.ndarray, rows: int) -> np.ndarray:
    """The column padded with zeros to `rows` rows, aligned so that XLA can use it without another copy."""
    if len(column) == rows and column.ctypes.data % _ALIGNMENT == 0 and column.flags.c_contiguous:
        return column
    shape = (rows, *column.shape[1:])
    size = math.prod(shape) * column.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    filled: Any = memory[start : start + size].view(column.dtype).reshape(shape)
    filled[: len(column)] = column
    return filled
