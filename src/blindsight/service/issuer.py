"""The issuer of admission tokens: for whoever attests devices. It never sees what it signs.

A folder holds one private key per file, readable by its owner only, and `issuer.json`, which everybody may read: the
service (its setting `admission`) and clients. A key lives for a week or so; rotating adds one before the last ends, and
a revoked key is gone at once, with all of its tokens: no single token can be revoked, because nobody knows it.
"""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from blindsight.errors import InvalidInput
from blindsight.service import blind_rsa
from blindsight.service.admission import TOKEN_TYPE, TokenKey, read_keys

__all__ = ["Issuer"]

_NAME = re.compile(r"[\x21-\x7e]{1,255}")
_DAY_S = 86_400
_REQUEST = 3 + 256


class Issuer:
    """The keys in a folder, and what they sign."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.folder, self._now = folder, now
        self.name, self.keys = read_keys(folder / "issuer.json")
        self._loaded: dict[bytes, rsa.RSAPrivateKey] = {}  # reading a key checks it, which takes ten signatures' time

    @classmethod
    def create(cls, folder: Path, name: str, *, days: float = 7.0, now: Callable[[], float] = time.time) -> "Issuer":
        """A new issuer with its first key."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"an issuer's name is its host name, such as issuer.example.org, got {name!r}")
        if (folder / "issuer.json").exists():
            raise InvalidInput(f"{folder} has an issuer already: rotate its keys, or name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "issuer.json", {"issuer": name, "token-keys": []})
        issuer = cls(folder, now)
        issuer.rotate(days=days)
        return issuer

    def rotate(self, *, days: float = 7.0) -> TokenKey:
        """Add a key that is good from now on for `days`, and remove those that have ended."""
        if not days > 0:
            raise InvalidInput(f"a key must live for some days, got {days:g}")
        now = int(self._now())
        self.keys = [key for key in self.keys if self._ended(key, now) is False]
        private = rsa.generate_private_key(65537, 2048)
        key = TokenKey(private.public_key(), now, now + int(days * _DAY_S))
        if key.id[-1] in {other.id[-1] for other in self.keys}:  # requests name a key by its last byte
            return self.rotate(days=days)
        text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with open(os.open(self._file(key), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        self.keys.append(key)
        self._publish()
        return key

    def revoke(self, prefix: str) -> TokenKey:
        """Remove the key whose id begins with `prefix`, and with it all of its tokens once services have reloaded."""
        found = [key for key in self.keys if key.id.hex().startswith(prefix)]
        if len(found) != 1 or not prefix:
            raise InvalidInput(f"{len(found)} keys begin with {prefix!r}: give more digits of one of them")
        self.keys.remove(found[0])
        self._publish()
        self._file(found[0]).unlink(missing_ok=True)
        return found[0]

    def answer(self, request: bytes) -> bytes:
        """The response to a token request (RFC 9578, 6.1 and 6.2): the signature of what is blinded in it."""
        if len(request) != _REQUEST or int.from_bytes(request[:2]) != TOKEN_TYPE:
            raise InvalidInput(f"a token request of type {TOKEN_TYPE} has {_REQUEST} bytes, got {len(request)}")
        for key in self.keys:
            if key.id[-1] == request[2] and key.not_before <= self._now() <= key.not_after:
                return blind_rsa.sign(self._private(key), request[3:])
        raise InvalidInput("no current key has this id: fetch issuer.json again")

    def _ended(self, key: TokenKey, now: int) -> bool:
        if key.not_after >= now:
            return False
        self._file(key).unlink(missing_ok=True)
        return True

    def _private(self, key: TokenKey) -> rsa.RSAPrivateKey:
        if key.id in self._loaded:
            return self._loaded[key.id]
        try:
            private = load_pem_private_key(self._file(key).read_bytes(), None)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cannot read the private key {self._file(key)}: {error}") from error
        if not isinstance(private, rsa.RSAPrivateKey):
            raise InvalidInput(f"{self._file(key)} is not an RSA key")
        self._loaded[key.id] = private
        return private

    def _file(self, key: TokenKey) -> Path:
        return self.folder / f"{key.id.hex()[:16]}.pem"

    def _publish(self) -> None:
        _write(self.folder / "issuer.json", {"issuer": self.name, "token-keys": [key.to_dict() for key in self.keys]})


def _write(path: Path, values: object) -> None:
    """Replace a file as a whole: a service may read it at any time."""
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
