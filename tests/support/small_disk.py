"""A disk that is small enough to be full."""

import contextlib
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

__all__ = ["fill", "mounted"]


@contextlib.contextmanager
def mounted(folder: Path) -> Generator[Path]:
    """A disk of half a megabyte, in memory."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk; the limit on file sizes is tested instead")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fills the disk to the last byte, with a file that can be removed again."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast
