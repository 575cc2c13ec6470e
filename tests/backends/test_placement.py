"""Compiled code: processes that compile at once do not disturb each other, and one may compile as long as it likes."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Simulation, placement
from blindsight.data.population import Population

COMPILE_MANY_TIMES = """
import sys
from typing import Any
import jax, jax.numpy as jnp, numpy as np
from blindsight.backends import Simulation, use_cores
from blindsight.data.population import Population
use_cores(int(sys.argv[1]))
people = Population({"x": np.arange(12, dtype=np.float32).reshape(6, 2)}, sizes=[2] * 3, name="few")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # were anything kept, it would be everything
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    jax.clear_caches()
    Simulation(people)
    found = jax.jit(lambda x: jnp.sort(jnp.sin(x @ x.T) + 1, axis=0) @ x)(jnp.asarray(people.columns["x"]))
print(np.asarray(found).tobytes().hex())
"""


def people() -> Population:
    return Population({"x": np.ones((6, 2), np.float32)}, sizes=[2] * 3, name="few")


@pytest.mark.slow  # three processes of their own, about XLA's files and no release
def test_processes_that_compile_the_same_at_once_agree_and_share_no_file(spawn, tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    started = [spawn(sys.executable, "-c", COMPILE_MANY_TIMES, cores, **streams) for cores in "112"]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * len(started)
    for process in started:  # all wait for this, so that they begin together
        process.stdin.write("\n")
        process.stdin.flush()
    assert len({process.communicate()[0] for process in started}) == 1
    assert [process.returncode for process in started] == [0] * len(started)
    assert not (tmp_path / "cache").exists()


def programs(count: int) -> list[Any]:
    """Compiled functions, each a program of its own."""
    kept = [jax.jit(lambda x, n=number: jnp.sin(x) + n) for number in range(count)]
    for function in kept:
        function(jnp.ones(3))
    return kept


@pytest.mark.skipif(not placement._maps(), reason="this system has no table of memory maps")
def test_programs_are_dropped_before_the_table_of_maps_is_full(monkeypatch):
    """XLA ends a process that gets no map with a segmentation fault."""
    jax.clear_caches()
    before = placement._maps()
    kept = programs(30)
    taken = placement._maps()
    assert taken > before + 30  # each takes several
    Simulation(people())
    assert placement._maps() >= taken  # there is room for many more
    monkeypatch.setattr(placement, "_most_maps", lambda: 1.5 * taken)
    Simulation(people())
    assert placement._maps() < taken - 30
    assert float(kept[3](jnp.ones(3))[0]) == pytest.approx(np.sin(1) + 3)  # compiled again


def test_where_there_is_no_such_table_nothing_is_dropped(monkeypatch):
    monkeypatch.setattr("builtins.open", lambda *_, **__: (_ for _ in ()).throw(OSError("no such file")))
    assert placement._maps() == 0
    placement.make_room_for_programs()


def test_compiled_code_is_kept_for_accelerators_alone(monkeypatch, tmp_path):
    kept: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", kept.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    placement.keep_compiled_code()
    assert kept == {}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    placement.keep_compiled_code()
    assert kept["jax_compilation_cache_dir"] == str(tmp_path / "blindsight" / "compiled")
