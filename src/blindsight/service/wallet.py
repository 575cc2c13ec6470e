"""A client's admission tokens: asked for in blinded form, kept until each is used once.

Ask for many at a time and use them later: a token that is used right after it was issued could be guessed by its time.
"""

import secrets
import sqlite3
import struct
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from blindsight.algorithms.client_budget import transaction
from blindsight.errors import InvalidInput
from blindsight.service import blind_rsa
from blindsight.service.admission import TOKEN_TYPE, TokenKey, read_keys, signed_part

__all__ = ["Wallet"]

_TABLES = """
CREATE TABLE IF NOT EXISTS asked (request BLOB PRIMARY KEY, model TEXT, part BLOB, inverse BLOB, ends INTEGER);
CREATE TABLE IF NOT EXISTS tokens (token BLOB PRIMARY KEY, model TEXT, ends INTEGER);
"""


class Wallet:
    """Tokens in one SQLite file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def ask(self, issuer: Path, model: str, count: int) -> list[bytes]:
        """Requests for the issuer, whose directory is `issuer`: send them with whatever attests this device."""
        name, keys = read_keys(issuer)
        now = time.time()
        current = [key for key in keys if key.not_before <= now < key.not_after]
        if not current:
            raise InvalidInput(f"{issuer} has no current key: fetch it again")
        key = max(current, key=lambda one: one.not_after)
        return [self._request(key, name, model) for _ in range(count)]

    def _request(self, key: TokenKey, issuer: str, model: str) -> bytes:
        part = signed_part(secrets.token_bytes(32), issuer, model, key.id)
        blinded, inverse = blind_rsa.blind(key.key, part)
        request = struct.pack(">HB", TOKEN_TYPE, key.id[-1]) + blinded
        row = (request, model, part, inverse.to_bytes(256), key.not_after)
        with self._open() as file:
            file.execute("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", row)
        return request

    def accept(self, issuer: Path, requests: Sequence[bytes], responses: Sequence[bytes]) -> int:
        """Turn the issuer's responses, in the order of the requests, into tokens; returns their number."""
        keys = {key.id: key for key in read_keys(issuer)[1]}
        for request, response in zip(requests, responses, strict=True):
            with self._open() as file:
                row = file.execute(
                    "SELECT model, part, inverse, ends FROM asked WHERE request = ?", (request,)
                ).fetchone()
                if row is None:
                    raise InvalidInput("this wallet did not make this request, or has its token already")
                model, part, inverse, ends = row
                if part[66:98] not in keys:
                    raise InvalidInput("the key of this request was revoked: ask again")
                signature = blind_rsa.finalize(keys[part[66:98]].key, part, response, int.from_bytes(inverse))
                file.execute("INSERT INTO tokens VALUES (?, ?, ?)", (part + signature, model, ends))
                file.execute("DELETE FROM asked WHERE request = ?", (request,))
        return len(responses)

    def take(self, model: str) -> bytes:
        """A token for `model`, which is gone from here before it is used."""
        with self._open() as file:
            file.execute("DELETE FROM tokens WHERE ends < ?", (int(time.time()),))
            rows = file.execute("SELECT token FROM tokens WHERE model = ?", (model,)).fetchall()
            if not rows:
                raise InvalidInput(f"there are no admission tokens for {model}: ask the issuer for more")
            (token,) = secrets.choice(rows)  # in no order, so that tokens do not reveal which were issued together
            file.execute("DELETE FROM tokens WHERE token = ?", (token,))
        return token

    def count(self, model: str) -> int:
        """Tokens left for `model`."""
        with self._open() as file:
            return file.execute("SELECT COUNT(*) FROM tokens WHERE model = ?", (model,)).fetchone()[0]

    def _open(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self.path, "wallet", _TABLES)
