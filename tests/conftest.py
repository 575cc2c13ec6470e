"""What every test gets: strict JAX, a ledger of its own, a home that is not yours.

All of it goes through the environment, so that nothing here imports JAX and subprocesses inherit it.
"""

import atexit
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

_scratch = tempfile.TemporaryDirectory(prefix="blindsight-tests-")
atexit.register(_scratch.cleanup)
os.environ |= {
    "BLINDSIGHT_LEDGER": str(Path(_scratch.name, "ledger.db")),  # for the doctests under src/
    "HOME": _scratch.name,
    "XDG_CACHE_HOME": _scratch.name,
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
}

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(autouse=True)
def ledger_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of this test's own ledger, which is also the default one while the test runs."""
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("BLINDSIGHT_LEDGER", str(path))
    return path
