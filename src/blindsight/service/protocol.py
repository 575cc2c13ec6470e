"""The protocol between clients and service: paths, headers, refusals, and weights as bytes.

An instance is sent and stored as little-endian float32 without framing, so that an accepted body is the new instance
without a copy.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CAUSES", "MODEL_NAME", "MORE_CAUSES", "OCTETS", "TICKET", "VERSION", "Refusal", "decode", "encode"]

TICKET = "Blindsight-Ticket"
VERSION = "Blindsight-Version"
OCTETS = "application/octet-stream"
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


CAUSES = {
    400: "bad_request",
    401: "token",
    404: "not_found",
    405: "method",
    408: "late_body",
    409: "version",
    410: "ticket",
    411: "length",
    413: "length",
    415: "type",
    422: "body",
    423: "frozen",
    429: "rate",
    500: "fault",
    503: "unavailable",
}
"""The cause of a refusal that names no other, by status."""

MORE_CAUSES = ("admission", "admission_used", "bodies", "busy", "store", "ticket_used")
"""The causes that some refusals name."""


class Refusal(Exception):
    """A refusal with `status`, `cause` and one sentence, which reveal only what any sender can see.

    Whatever may pass by itself says when to try again.
    """

    def __init__(
        self, status: int, sentence: str, *, headers: dict[str, str] | None = None, cause: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.cause = cause or CAUSES.get(status, "other")
        self.headers = ({"Retry-After": "1"} if status in (429, 503) else {}) | (headers or {})

    def to_dict(self) -> dict[str, Any]:
        """The body of the answer."""
        return {"error": str(self), "cause": self.cause}


def fault_of(error: Exception) -> str:
    """An error as logged: its type and location only, because its text could quote a body."""
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
