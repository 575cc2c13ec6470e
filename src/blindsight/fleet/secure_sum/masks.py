"""Keys and masks: X25519 and HKDF between two sites, ChaCha20 for as many random numbers as there are to mask."""

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.terms import digest_of_parts

__all__ = ["add_mask", "agreed_secret", "mask_key", "share_key", "word_type"]

_CHUNK_BYTES = 1 << 17  # zeros, key stream and numbers stay in the processor's cache
_ZEROS = bytes(_CHUNK_BYTES)
_NO_NONCE = bytes(16)  # a key makes one stream only


def word_type(bits: int) -> "np.dtype[np.unsignedinteger]":
    """Unsigned, little-endian, as on the wire."""
    return np.dtype(f"<u{bits // 8}")


def share_key(secret: bytes, context: bytes, sender: str, receiver: str) -> bytes:
    """The key that encrypts what `sender` sends to `receiver` in this round, of their `agreed_secret`; used once."""
    return _derived(secret, b"shares", context, sender.encode(), receiver.encode())


def mask_key(own: X25519PrivateKey, other: bytes, context: bytes, one: str, two: str) -> bytes:
    """The key of the mask that one of two sites adds and the other subtracts; their order does not matter."""
    first, second = sorted((one, two))
    return _derived(agreed_secret(own, other), b"mask", context, first.encode(), second.encode())


def agreed_secret(own: X25519PrivateKey, other: bytes) -> bytes:
    """What two sites alone know: from the private key of one and the public key of the other, whichever way round."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:  # a wrong length, or a point of small order, whose secret everybody knows
        raise Refused(Reason.MALFORMED, "a site sent a public key that is not one: leave that site out") from error


def _derived(secret: bytes, purpose: bytes, context: bytes, *names: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=context, info=digest_of_parts(purpose, *names)).derive(secret)


def add_mask(numbers: np.ndarray, key: bytes, *, subtract: bool = False) -> None:
    """Add the mask of `key` to unsigned `numbers` in place, modulo their word size."""
    stream = Cipher(algorithms.ChaCha20(key, _NO_NONCE), mode=None).encryptor()
    step = _CHUNK_BYTES // numbers.itemsize
    buffer = bytearray(_CHUNK_BYTES)
    mask = np.frombuffer(buffer, numbers.dtype)
    change = np.subtract if subtract else np.add
    for begin in range(0, numbers.size, step):
        part = numbers[begin : begin + step]
        stream.update_into(memoryview(_ZEROS)[: part.nbytes], buffer)
        change(part, mask[: part.size], out=part)
