"""The bytes that pass between a party and the rest of the world: a line of JSON and plain arrays, nothing else.

No pickle: bytes from a party that was taken over can be wrong, but they cannot run. A party answers with its name,
classes and shape, with made inputs or votes and what it has spent by then, or with one sentence that says why not.
"""

import io
import json
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.accounting.events import from_json
from blindsight.algorithms.parties.party import PartyFailed, Session
from blindsight.errors import InvalidInput

__all__ = ["MOST_BYTES", "answer", "decode", "encode"]

MOST_BYTES = 2**31
"""The longest message that is read."""


def encode(header: Mapping[str, Any], array: np.ndarray | None = None) -> bytes:
    """A message of plain values and at most one array."""
    buffer = io.BytesIO()
    buffer.write(json.dumps(dict(header)).encode() + b"\n")
    if array is not None:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def decode(message: bytes) -> tuple[dict[str, Any], np.ndarray | None]:
    """The message that `encode` wrote; anything else is refused."""
    line, _, rest = message.partition(b"\n")
    try:
        header = json.loads(line)
        array = np.load(io.BytesIO(rest), allow_pickle=False) if rest else None
    except (ValueError, EOFError, OSError, RecursionError) as error:
        raise InvalidInput("it sent bytes that are no message") from error
    if not isinstance(header, dict):
        raise InvalidInput("it sent bytes that are no message")
    return header, array


def answer(session: Session, request: bytes) -> bytes:
    """What the party says to a request: never an exception, and never a word that was not written to be sent."""
    try:
        header, array = decode(request)
        return _answer(session, header, array)
    except PartyFailed as error:
        return encode({"error": str(error)})
    except Exception as error:  # its message may hold a party's data, so it stays here
        traceback.print_exc()
        return encode({"error": f"it failed with {type(error).__name__}; the reason is in its own log"})


def _answer(session: Session, header: dict[str, Any], array: np.ndarray | None) -> bytes:
    party = session.party
    match header["ask"]:
        case "who":
            return encode({"name": party.name, "classes": party.classes, "shape": party.shape})
        case "samples":
            made = session.samples(header["count"])
            return encode({"guarantee": session.guarantee(header["delta"]).to_dict()}, made)
        case "votes" if array is not None:
            cost = header.get("cost")
            event = None if cost is None else from_json(cost)
            cast = session.votes(array, cost=event, unprotected=bool(header.get("unprotected")))
            return encode({"guarantee": session.guarantee(header["delta"]).to_dict()}, cast)
        case _:
            raise PartyFailed("it received an unknown request")
