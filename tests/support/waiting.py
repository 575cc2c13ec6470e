"""Waiting for what a process, a service or a page will do. How long it takes is the machine's business."""

import time
from collections.abc import Callable

__all__ = ["HANG_S", "until"]

HANG_S = 240.0
"""After this a test hangs; nothing else may be concluded from it."""


def until(holds: Callable[[], bool], what: str | Callable[[], str] = "it did not happen") -> None:
    """Come back when `holds` does; if it never does, fail with `what`, which may be asked for only then."""
    end = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        time.sleep(0.02)
