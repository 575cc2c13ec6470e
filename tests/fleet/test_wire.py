"""An envelope arrives as it was written, and no other bytes are one."""

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blindsight.errors import InvalidInput
from blindsight.fleet import wire
from blindsight.fleet.wire import LARGEST_HEAD, MOST_BLOBS, BadEnvelope, decode, encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4),
    max_leaves=12,
)
HEADS = st.dictionaries(st.text(), PLAIN, max_size=5)
BLOBS = st.lists(st.binary(max_size=50), max_size=5)


def envelope(head: bytes, count: int = 0, rest: bytes = b"", *, length: int | None = None) -> bytes:
    return struct.pack("<4sII", b"BSF1", len(head) if length is None else length, count) + head + rest


def refusal(data: bytes) -> str:
    with pytest.raises(BadEnvelope) as refused:
        decode(data)
    assert isinstance(refused.value, InvalidInput)
    assert str(refused.value)
    return refused.value.code


@given(HEADS, BLOBS)
def test_what_is_written_is_read(head: dict[str, Any], blobs: list[bytes]):
    assert decode(encode(head, blobs)) == (head, blobs)


@given(HEADS, BLOBS, st.data())
def test_every_shortened_or_prolonged_envelope_is_refused(
    head: dict[str, Any], blobs: list[bytes], data: st.DataObject
):
    whole = encode(head, blobs)
    assert refusal(whole[: data.draw(st.integers(0, len(whole) - 1))]) == "malformed"
    assert refusal(whole + data.draw(st.binary(min_size=1, max_size=9))) == "malformed"


@given(HEADS, BLOBS, st.data())
def test_a_changed_envelope_is_refused_or_says_something_else(
    head: dict[str, Any], blobs: list[bytes], data: st.DataObject
):
    """No two byte strings are one message: a digest of the bytes is a digest of what they say."""
    changed = bytearray(encode(head, blobs))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = decode(bytes(changed))
    except BadEnvelope:
        return
    assert encode(*read) == changed


@given(st.binary(max_size=200))
@example(b"")
@example(b"BSF1")
@example(envelope(b"\xff\xfe"))
@example(envelope(b"[" * 100_000))
@example(envelope(b'{"a":' + b"9" * 5000 + b"}"))
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(data: bytes):
    for candidate in (data, b"BSF1" + data, envelope(data)):
        try:
            read = decode(candidate)
        except BadEnvelope:
            continue
        assert encode(*read) == candidate


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1.0e0}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\u0061"}',
    ],
)
def test_a_head_has_one_form(head: bytes):
    assert refusal(envelope(head)) == "malformed"


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800"])
def test_what_could_not_be_read_is_not_written(value: Any):
    with pytest.raises(BadEnvelope) as refused:
        encode({"a": [value]})
    assert refused.value.code == "malformed"


def test_blobs_that_claim_to_be_longer_than_the_envelope_cost_no_memory():
    assert refusal(envelope(b"{}", 1, struct.pack("<Q", 1 << 62))) == "malformed"
    assert refusal(envelope(b"{}", MOST_BLOBS)) == "malformed"


def test_limits_hold_on_both_sides(monkeypatch: pytest.MonkeyPatch):
    assert refusal(envelope(b"{}", MOST_BLOBS + 1)) == "too_large"
    assert refusal(envelope(b"{}", length=LARGEST_HEAD + 1)) == "too_large"
    monkeypatch.setattr(wire, "LARGEST", 1000)
    assert decode(encode({}, [bytes(900)])) == ({}, [bytes(900)])
    for head, blobs in (({}, [bytes(1000)]), ({}, [b""] * (MOST_BLOBS + 1)), ({"a": "x" * LARGEST_HEAD}, [])):
        with pytest.raises(BadEnvelope) as refused:
            encode(head, blobs)
        assert refused.value.code == "too_large"
    assert refusal(bytes(1001)) == "too_large"


def test_the_largest_head_passes():
    head = {"a": "x" * (LARGEST_HEAD - len(json.dumps({"a": ""}, separators=(",", ":"))))}
    assert decode(encode(head)) == (head, [])
