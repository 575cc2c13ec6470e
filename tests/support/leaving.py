"""Everything that leaves a computation about private clients, and a world in which none of it may depend on them.

In that world (`blind`) nothing happens by chance, and a mechanism releases noise alone: a fixed function of its key and
of the shape of the sum. What then differs between two neighbours has left without noise.
"""

import contextlib
import dataclasses
import datetime
import functools
import importlib
import io
import json
import secrets
import sys
import threading
import traceback
import types
from collections.abc import Callable, Generator, Set
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors import safe_open

from blindsight import cli
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.names import Seal
from blindsight.algorithms import latent_classes, moments
from blindsight.algorithms.set_union import SetUnion
from blindsight.backends.host_parts import LeadingCohort
from blindsight.backends.simulation import SimulatedCohort
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism
from blindsight.mechanisms.laplace_mechanism import LaplaceMechanism
from blindsight.mechanisms.release import Release
from blindsight.training import by_rounds

__all__ = ["blind", "command", "everything_that_leaves", "files", "stop_clocks", "sums_before_noise"]

_MARK = "simulation_only"
_STEPS: list[Any] = []
_SUMS: list[np.ndarray] = []  # in units of one client's bound


_CLOCKS = """
    accounting.ledger accounting.so_far audit.report inspection.report runs samples.export
    studio.labels studio.student_report
"""


class _Noon(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls(2026, 1, 31, 12, tzinfo=tz)


def stop_clocks(patch: pytest.MonkeyPatch, modules: str) -> None:
    """Make it noon in these modules, for good."""
    for name in modules.split():
        stopped = types.SimpleNamespace(datetime=_Noon, UTC=datetime.UTC)
        patch.setattr(importlib.import_module(f"blindsight.{name}"), "datetime", stopped)


@contextlib.contextmanager
def blind() -> Generator[None]:
    """Make everything but the clients' data the same: keys, ids, the time, and what every mechanism releases."""
    with pytest.MonkeyPatch.context() as patch:
        stop_clocks(patch, _CLOCKS)
        patch.setattr(secrets, "token_bytes", lambda count: bytes(range(count)))
        patch.setattr(secrets, "token_hex", lambda count: bytes(range(count)).hex())
        patch.setattr(Seal, "sealed", _sealed)
        patch.setattr(moments, "fit", functools.partial(moments.fit, steps=0))
        for mechanism in (GaussianMechanism, LaplaceMechanism):
            patch.setattr(mechanism, "release", _noise_alone)
        patch.setattr(SetUnion, "release", _nothing_stands_out)
        for cohort in (SimulatedCohort, LeadingCohort):
            patch.setattr(cohort, "sum", _noted("sum", cohort.sum))
        patch.setattr(by_rounds, "round_bar", _shown)
        patch.setattr(latent_classes, "_FITS", 1)
        for module in ("requests", "audit"):
            patch.setattr(importlib.import_module(f"blindsight.cli.{module}"), "steps_bar", _steps_bar)
        yield


def _noise_alone(self: Any, total: Any, *, key: Any, begun: Any = None) -> Release[Any]:
    """What is released of a sum that is swamped by noise, of a size that reports can be made of."""
    del begun
    event, leaves = self.event(total), jax.tree.leaves(total.value)
    _STEPS.append(("release", self, total.l2_bound, total.n_expected, [np.shape(leaf) for leaf in leaves]))
    whole = np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in leaves])
    _SUMS.append(whole * (total.grid or 1.0) / total.l2_bound)
    dice = np.random.default_rng(list(key.secret))
    noise = [(0.6 * total.l2_bound * dice.random(np.shape(leaf))).astype(np.float32) for leaf in leaves]
    value = jax.tree.unflatten(jax.tree.structure(total.value), noise)
    return Release(value, event, self.noise_multiplier * total.l2_bound / total.n_expected)


def _nothing_stands_out(self: Any, total: Any, *, key: Any) -> Release[Any]:
    """Which names are above the threshold is the release itself: in this world none is."""
    _STEPS.append(("release", self, total.l2_bound, total.n_expected, np.shape(total.value)))
    del key
    noise_std = self.noise.noise_multiplier * total.l2_bound / total.n_expected
    return Release(np.zeros(np.shape(total.value)), self.event(total), noise_std)


def _sealed(self: Seal, data: str, *, begin: bool) -> str | None:
    """Under a secret key a fingerprint says nothing but which data are the same: here their number says it."""
    if not begin and not self.path.exists():
        return None
    known = json.loads(self.path.read_text()) if self.path.exists() else []
    known += [] if data in known else [data]
    self.path.write_text(json.dumps(known))
    return json.dumps({"fingerprint": known.index(data), "key": "the ledger's"}, sort_keys=True, separators=(",", ":"))


def _noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def noted(self: Any, *given: Any, **options: Any) -> Any:
        if threading.current_thread() is threading.main_thread():  # what sites do beside it is seen by what they send
            _STEPS.append((name, self.n_expected, len(given), sorted(options)))
        return call(self, *given, **options)

    return noted


@contextlib.contextmanager
def _shown(rounds: int, begun: int, whole: float, *, shown: bool) -> Any:
    del shown
    _STEPS.append(("rounds", rounds, begun, whole))
    yield lambda loop: _STEPS.append(("round", loop.round))


@contextlib.contextmanager
def _steps_bar(console: Any, *, quiet: bool = False) -> Any:
    del console, quiet
    yield lambda *said: _STEPS.append(("progress", *said))


def command(*words: str) -> dict[str, Any]:
    """`blindsight` with these words, in this process and this folder: its exit code, and all that it prints."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["blindsight", *words])
        patch.setenv("COLUMNS", "100")
        try:
            cli.main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
        except Exception:
            code = "".join(traceback.format_exc().splitlines(keepends=True)[-5:])
    return {"exit code": code or 0, "stdout": _printed(out.getvalue()), "stderr": _printed(err.getvalue())}


def _printed(text: str) -> Any:
    """What a command printed, less what it marks."""
    if text.startswith(("{", "[")):
        return _public(json.loads(text))
    return [line for line in text.splitlines() if _MARK not in line]


def everything_that_leaves(folder: Path, run: Callable[[], Any]) -> dict[str, Any]:
    """What `run` returns or raises, the steps it takes in which order, its ledgers, and every file it writes."""
    before, found = set(folder.rglob("*")), dict[str, Any]()
    _STEPS.clear()
    _SUMS.clear()
    try:
        returned = run()
    except Exception as error:
        returned = {"exit code": type(error).__name__, "message": str(error)}
    found["returned"], found["steps"] = _plain(returned), [_plain(step) for step in _STEPS]
    return found | files(folder, before)


def sums_before_noise() -> list[np.ndarray]:
    """What `run` would have released without noise, each sum in units of the bound on one client's part."""
    return list(_SUMS)


def files(folder: Path, known: Set[Path] = frozenset()) -> dict[str, Any]:
    """What can be read off every file in `folder` that is not secret, not marked, and not `known` already."""
    new = [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in known]
    shown = [path for path in new if path.suffix != ".key" and path.name != f"{_MARK}.json"]
    named = {path.relative_to(folder): path for path in shown}
    return {str(name): _read(path) for name, path in named.items() if "secret" not in name.parts}


def _read(path: Path) -> Any:
    if path.suffix == ".db":
        return list(Ledger(path).export())
    if path.suffix == ".json":
        return _public(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [_public(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".safetensors":
        with safe_open(path, framework="numpy") as file:
            tensors = {key: file.get_tensor(key).tolist() for key in file.keys()}  # noqa: SIM118
            return {"tensors": tensors, "facts": _public(json.loads((file.metadata() or {}).get("facts", "{}")))}
    return path.read_bytes()


def _public(value: Any) -> Any:
    """JSON without what is marked."""
    if isinstance(value, dict):
        if value.get(_MARK) is True:
            return _MARK
        return {name: _public(item) for name, item in value.items() if name != _MARK}
    return [_public(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Anything as values that can be compared and shown."""
    if hasattr(value, "to_dict"):
        return _public(value.to_dict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic | jax.Array) else value
