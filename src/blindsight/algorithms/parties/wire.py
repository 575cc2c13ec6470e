"""The bytes that a party exchanges: a line of JSON and plain arrays, nothing else.

No pickle: bytes from a compromised party can be wrong, but they cannot execute code. A party answers with its name,
classes and shape; with generated inputs or votes and its spending so far; or with one sentence of explanation.
"""

import io
import json
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.accounting.events import from_json
from blindsight.algorithms.parties.party import PartyFailed, PartySession
from blindsight.errors import InvalidInput

__all__ = ["MOST_BYTES", "answer", "decode", "encode"]

MOST_BYTES = 2**31
"""Maximum length of a message."""


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
        raise InvalidInput("it sent bytes that are not a message") from error
    if not isinstance(header, dict):
        raise InvalidInput("it sent bytes that are not a message")
    return header, array


def answer(session: PartySession, request: bytes) -> bytes:
    """The party's answer to a request: it never raises, and sends only messages written to be sent."""
    try:
        header, array = decode(request)
        return _answer(session, header, array)
    except PartyFailed as error:
        return encode({"error": str(error)})
    except Exception as error:  # its message may contain the party's data, so it stays here
        traceback.print_exc()
        return encode({"error": f"it failed with {type(error).__name__}; the reason is in its own log"})


def _answer(session: PartySession, header: dict[str, Any], array: np.ndarray | None) -> bytes:
    party = session.party
    match header["ask"]:
        case "who":
            return encode({"name": party.name, "classes": party.classes, "shape": party.shape})
        case "samples":
            inputs = session.samples(header["count"])
            return encode({"guarantee": session.guarantee(header["delta"]).to_dict()}, inputs)
        case "votes" if array is not None:
            cost = header.get("cost")
            event = None if cost is None else from_json(cost)
            cast = session.votes(array, cost=event, unprotected=bool(header.get("unprotected")))
            return encode({"guarantee": session.guarantee(header["delta"]).to_dict()}, cast)
        case _:
            raise PartyFailed("it received an unknown request")
