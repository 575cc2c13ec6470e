"""What clients and service say to each other: paths, headers, refusals, and weights as bytes.

An instance travels and is kept as little-endian float32 without any frame, so that a body that is accepted is the new
instance and is never written anew.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MODEL_NAME", "OCTETS", "TICKET", "VERSION", "Refusal", "decode", "encode"]

TICKET = "Blindsight-Ticket"
VERSION = "Blindsight-Version"
OCTETS = "application/octet-stream"
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Refusal(Exception):
    """A request that is answered with `status` and one sentence; it tells a sender only what any sender can see."""

    def __init__(self, status: int, sentence: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}

    def to_dict(self) -> dict[str, Any]:
        """The body of the answer."""
        return {"error": str(self)}


def fault_of(error: Exception) -> str:
    """What went wrong, for the log: the kind and the place, since the text could quote a body."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "?"
    return f"{type(error).__name__} at {where}"


def encode(weights: ArrayLike) -> bytes:
    """Weights as a body.

    >>> encode([1.0, -2.0]).hex()
    '0000803f000000c0'
    """
    return np.asarray(weights, "<f4").tobytes()


def decode(body: bytes) -> NDArray[np.float32]:
    """The weights of a body, without a copy and read-only."""
    return np.frombuffer(body, "<f4")
