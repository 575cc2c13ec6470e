"""Admission tokens: each opens one draw, and nobody can link it to the device that it was issued to.

Privacy Pass, RFC 9578, token type 2 (blind RSA, 2048 bits). Whoever attests devices runs an issuer (`issuer`): it signs
as many blinded tokens for a device as it may use in a day, say. The service knows the issuer's public keys only, so a
token tells it that *some* attested device made it, and for which model. One that floods spends its own tokens.

::

    the issuer's directory      {"issuer": NAME, "token-keys": [{"token-type": 2, "token-key": KEY,
                                 "not-before": SECONDS, "not-after": SECONDS}]}
    token                       type (2 bytes), nonce (32), digest of the challenge (32), key id (32), signature (256)
    authorization               PrivateToken token=BASE64

Used tokens are marks in one Bloom filter per key, of the same size at any load (`used`): an unused token is taken
for a used one once in a million times after a million tokens of one key, once in 200 after ten million. Its client uses
its next one.
"""

import dataclasses
import hashlib
import json
import secrets
import struct
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from blindsight.errors import InvalidInput
from blindsight.service import blind_rsa
from blindsight.service.protocol import Refusal
from blindsight.service.tickets import SKEW_S
from blindsight.service.used import FILTER_BYTES, Admission

__all__ = ["TOKEN_BYTES", "TOKEN_TYPE", "Admissions", "TokenKey", "challenge", "from_text", "read_keys", "signed_part"]
__all__ += ["to_text"]

TOKEN_TYPE = 2
TOKEN_BYTES = 2 + 3 * 32 + 256
_SIGNATURE = 256
_SCHEME = b"privatetoken "
_MOST_KEYS = 16
_MARKS = struct.Struct("<4I")
# AlgorithmIdentifier of RSASSA-PSS with SHA-384, MGF1 with SHA-384 and 48 bytes of salt (RFC 9578, 6.5)
_PSS = bytes.fromhex(
    "303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108300b0609608648016503040202"
    "a203020130"
)


def to_text(data: bytes) -> str:
    """URL-safe base64, as RFC 9577 writes tokens and keys."""
    return urlsafe_b64encode(data).decode()


def from_text(text: str | bytes) -> bytes:
    """What `to_text` wrote, with or without padding."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        return urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
    except ValueError as error:
        raise InvalidInput("this is not base64") from error


@dataclasses.dataclass(frozen=True)
class TokenKey:
    """A public key of an issuer, and the seconds since 1970 between which its tokens are good."""

    key: RSAPublicKey
    not_before: int
    not_after: int

    @property
    def encoded(self) -> bytes:
        """The key in the form of RFC 9578."""
        bits = b"\0" + self.key.public_bytes(Encoding.DER, PublicFormat.PKCS1)
        return _der(0x30, _PSS + _der(0x03, bits))

    @property
    def id(self) -> bytes:
        """Its name: the digest of `encoded`."""
        return hashlib.sha256(self.encoded).digest()

    def to_dict(self) -> dict[str, Any]:
        """Its entry in the issuer's directory."""
        times = {"not-before": self.not_before, "not-after": self.not_after}
        return {"token-type": TOKEN_TYPE, "token-key": to_text(self.encoded)} | times


def read_keys(path: Path) -> tuple[str, list[TokenKey]]:
    """Name and public keys of an issuer, from its directory."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        keys = [_key(entry) for entry in values["token-keys"]]
        name = values["issuer"]
    except OSError as error:
        raise InvalidInput(f"cannot read the issuer's keys {path} ({error.strerror}): name its issuer.json") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not the directory of an issuer: {error}") from error
    if not isinstance(name, str) or not name or len(keys) > _MOST_KEYS:
        raise InvalidInput(f"{path} needs the issuer's name and at most {_MOST_KEYS} keys")
    return name, keys


def challenge(issuer: str, model: str) -> bytes:
    """What a token answers: it is good for one model, at any time and for whoever has it (RFC 9577, 2.1)."""
    parts = [issuer.encode(), b"", model.encode()]
    return (
        struct.pack(">HH", TOKEN_TYPE, len(parts[0])) + parts[0] + b"\0" + struct.pack(">H", len(parts[2])) + parts[2]
    )


def signed_part(nonce: bytes, issuer: str, model: str, key_id: bytes) -> bytes:
    """A token without its signature, which is what the issuer signs unseen."""
    return struct.pack(">H", TOKEN_TYPE) + nonce + hashlib.sha256(challenge(issuer, model)).digest() + key_id


class Admissions:
    """Checks tokens by the keys of one issuer."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.issuer, keys = read_keys(path)
        self._keys = {key.id: key for key in keys}
        self._now = now

    def check(self, authorization: bytes, model: str) -> Admission:
        """The token of a request for `model`, or 401 with the challenge to answer."""
        token = _token(authorization)
        key = self._keys.get(token[66:98]) if token else None
        if token is None or key is None or not self._is_current(key):
            raise self._refusal(model, "a token of a current key of the issuer is required", "admission")
        part = signed_part(token[2:34], self.issuer, model, token[66:98])
        if not secrets.compare_digest(part, token[:-_SIGNATURE]) or not blind_rsa.verify(
            key.key, part, token[-_SIGNATURE:]
        ):
            raise self._refusal(model, "the token was not issued for this model", "admission")
        marks = _MARKS.unpack(hashlib.blake2s(part, digest_size=_MARKS.size).digest())
        places = tuple(mark % (8 * FILTER_BYTES) for mark in marks)
        return Admission(token[66:98].hex(), places, key.not_after + SKEW_S)

    def used(self, model: str) -> Refusal:
        """The refusal of a token that was used before."""
        return self._refusal(model, "the token was already used: use another", "admission_used")

    def _is_current(self, key: TokenKey) -> bool:
        return key.not_before - SKEW_S <= self._now() <= key.not_after + SKEW_S

    def _refusal(self, model: str, sentence: str, cause: str) -> Refusal:
        current = [key for key in self._keys.values() if self._is_current(key)]
        newest = max(current, key=lambda key: key.not_after, default=None)
        asked = f'PrivateToken challenge="{to_text(challenge(self.issuer, model))}"'
        if newest is not None:
            asked += f', token-key="{to_text(newest.encoded)}"'
        return Refusal(401, sentence, headers={"WWW-Authenticate": asked}, cause=cause)


def _token(authorization: bytes) -> bytes | None:
    """The token of an Authorization header, if it has one."""
    if authorization[: len(_SCHEME)].lower() != _SCHEME:
        return None
    name, _, value = authorization[len(_SCHEME) :].strip().partition(b"=")
    if name.lower() != b"token":
        return None
    try:
        token = from_text(value.strip(b'"'))
    except InvalidInput:
        return None
    return token if len(token) == TOKEN_BYTES and token[:2] == struct.pack(">H", TOKEN_TYPE) else None


def _key(entry: dict[str, Any]) -> TokenKey:
    key = load_der_public_key(from_text(entry["token-key"]))
    if entry["token-type"] != TOKEN_TYPE or not isinstance(key, RSAPublicKey) or key.key_size != 8 * _SIGNATURE:
        raise ValueError("its keys must be RSA keys of 2048 bits for tokens of type 2")
    return TokenKey(key, int(entry["not-before"]), int(entry["not-after"]))


def _der(tag: int, content: bytes) -> bytes:
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(size)]) + size + content
