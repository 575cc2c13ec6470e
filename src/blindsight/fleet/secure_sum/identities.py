"""Who signs: the long-lived key of a site's certificate, Ed25519 or ECDSA."""

import dataclasses
import functools
from typing import Protocol, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from blindsight.errors import InvalidInput

__all__ = ["IdentityKey", "Party", "Signer", "signer"]

IdentityKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
_ECDSA = ec.ECDSA(hashes.SHA256())


class Signer(Protocol):
    """Signs as one site, with a key that may live in a file, an agent or a hardware module."""

    def __call__(self, statement: bytes, /) -> bytes:
        """The signature of `statement`."""
        ...


def signer(key: IdentityKey) -> Signer:
    """Signs with the private key of a site's certificate."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign
    return lambda statement: key.sign(statement, _ECDSA)


@dataclasses.dataclass(frozen=True)
class Party:
    """A site as all others know it beforehand: its name and the public key of its certificate, in DER."""

    name: str
    public_key: bytes

    def __post_init__(self) -> None:
        if not 1 <= len(self.name.encode()) <= 255:
            raise InvalidInput(f"the name of a site must have 1 to 255 bytes, got {self.name!r}")
        _loaded(self.public_key)

    @classmethod
    def of(cls, name: str, key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey) -> Self:
        """The party with this name and this key, such as `certificate.public_key()`."""
        encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(name, encoded)

    def has_signed(self, statement: bytes, signature: bytes) -> bool:
        """Whether `signature` is this party's signature of `statement`."""
        key = _loaded(self.public_key)
        try:
            if isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, statement)
            else:
                key.verify(signature, statement, _ECDSA)
        except InvalidSignature:
            return False
        return True


@functools.lru_cache(maxsize=4096)
def _loaded(encoded: bytes) -> ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_der_public_key(encoded)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"the public key of a site must be DER, as in its certificate ({error})") from error
    if not isinstance(key, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey):
        raise InvalidInput("the certificate of a site must have an Ed25519 or an ECDSA key: issue another one")
    return key
