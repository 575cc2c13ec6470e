"""RSA blind signatures, RFC 9474 (RSABSSA-SHA384-PSS-Deterministic): a signature on what the signer cannot see.

The client blinds its message with a random r, the signer signs the blinded message, and the client takes r out again.
What remains is an ordinary RSA-PSS signature (SHA-384, 48 bytes of salt), which `cryptography` verifies, and which no
signer can connect with anything it signed: for every blinded message and every signature an r exists.

Keys and hashes are those of `cryptography`. Blinding is arithmetic on whole numbers; its time depends on r and the
message, which only their owner's own device can measure. The signer blinds once more (`sign`), so that its time depends
on nothing that a client can choose.
"""

import math
import secrets
from hashlib import sha384

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA384

from blindsight.errors import InvalidInput

__all__ = ["blind", "encoded", "finalize", "sign", "verify"]

_SALT = _HASH = 48


def blind(key: RSAPublicKey, message: bytes, *, salt: bytes | None = None, r: int | None = None) -> tuple[bytes, int]:
    """The blinded message, and the number that unblinds its signature; `salt` and `r` are random unless given."""
    n, e, size = _numbers(key)
    whole = int.from_bytes(encoded(message, key.key_size - 1, secrets.token_bytes(_SALT) if salt is None else salt))
    if math.gcd(whole, n) != 1:
        raise InvalidInput("this message cannot be blinded: make another")  # never: it would factor the key
    r = r or _random_unit(n)
    return (whole * pow(r, e, n) % n).to_bytes(size), pow(r, -1, n)


def sign(key: RSAPrivateKey, blinded: bytes) -> bytes:
    """The signature of a blinded message; refuses what is no number below the modulus."""
    n, e, size = _numbers(key.public_key())
    message = int.from_bytes(blinded)
    if len(blinded) != size or not 0 < message < n:
        raise InvalidInput(f"a blinded message has {size} bytes and is a number below the key's modulus")
    numbers = key.private_numbers()
    r = _random_unit(n)
    hidden = message * pow(r, e, n) % n
    by_p, by_q = pow(hidden, numbers.dmp1, numbers.p), pow(hidden, numbers.dmq1, numbers.q)
    signed = by_q + numbers.q * ((by_p - by_q) * numbers.iqmp % numbers.p)
    if pow(signed, e, n) != hidden:  # a fault in one half of the computation would give the key away
        raise InvalidInput("the signature is wrong, so it is not given away: check this machine's memory")
    return (signed * pow(r, -1, n) % n).to_bytes(size)


def finalize(key: RSAPublicKey, message: bytes, blind_signature: bytes, inverse: int) -> bytes:
    """The signature of `message`, verified."""
    n, _, size = _numbers(key)
    if len(blind_signature) != size:
        raise InvalidInput(f"a blind signature has {size} bytes, got {len(blind_signature)}")
    signature = (int.from_bytes(blind_signature) * inverse % n).to_bytes(size)
    if not verify(key, message, signature):
        raise InvalidInput("the signer did not sign what it was sent: it used another key")
    return signature


def verify(key: RSAPublicKey, message: bytes, signature: bytes) -> bool:
    """Whether it is a signature of the message."""
    try:
        key.verify(signature, message, padding.PSS(padding.MGF1(SHA384()), _SALT), SHA384())
    except InvalidSignature:
        return False
    return True


def encoded(message: bytes, bits: int, salt: bytes) -> bytes:
    """EMSA-PSS (RFC 8017, 9.1.1): what RSA signs."""
    length = (bits + 7) // 8
    digest = sha384(bytes(8) + sha384(message).digest() + salt).digest()
    block = bytes(length - len(salt) - _HASH - 2) + b"\x01" + salt
    masked = bytearray(a ^ b for a, b in zip(block, _mask(digest, len(block)), strict=True))
    masked[0] &= 0xFF >> (8 * length - bits)
    return bytes(masked) + digest + b"\xbc"


def _mask(seed: bytes, length: int) -> bytes:
    blocks = (sha384(seed + counter.to_bytes(4)).digest() for counter in range(-(-length // _HASH)))
    return b"".join(blocks)[:length]


def _random_unit(n: int) -> int:
    while True:
        r = 1 + secrets.randbelow(n - 1)
        if math.gcd(r, n) == 1:
            return r


def _numbers(key: RSAPublicKey) -> tuple[int, int, int]:
    numbers = key.public_numbers()
    return numbers.n, numbers.e, key.key_size // 8
