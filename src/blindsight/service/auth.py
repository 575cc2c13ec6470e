"""Access tokens, from a file or the environment, and their rate limits.

Tokens are stored and compared as SHA-256 digests, so neither the store nor timing reveals them.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from blindsight.config import read_toml
from blindsight.errors import InvalidInput

__all__ = ["Access", "digest", "new_token", "own_tokens", "read_tokens"]

ADMIN_VARIABLE = "BLINDSIGHT_ADMIN_TOKEN"
MODELS_VARIABLE = "BLINDSIGHT_MODEL_TOKENS"
_SHORTEST = 16  # characters; `new_token` makes 43


def new_token() -> str:
    """A token of 256 bits from the operating system."""
    return secrets.token_urlsafe(32)


def digest(token: str | bytes) -> str:
    """The digest of a token, which is all that is stored."""
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).hexdigest()


class Access:
    """The rights of one token, and its token bucket: `rate_per_s` requests per second, with a burst of two seconds."""

    def __init__(
        self,
        *,
        admin: bool = False,
        models: Iterable[str] = (),
        rate_per_s: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.admin = admin
        self.models = frozenset(models)
        self.limited = rate_per_s > 0
        self._rate = rate_per_s
        self._now = now
        self._left = self._most = max(2 * rate_per_s, 1.0)
        self._filled = now()

    def takes(self) -> bool:
        """Whether one more request is within the rate limit, if there is one."""
        if not self.limited:
            return True
        now = self._now()
        self._left = min(self._most, self._left + (now - self._filled) * self._rate)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def read_tokens(path: Path | None, environment: Mapping[str, str] = os.environ) -> dict[str, set[str]]:
    """Token digests and their rights: model names, or `*` for the administrator.

    ::

        admin = ["..."]                     BLINDSIGHT_ADMIN_TOKEN=...
        [models]
        phishing = ["..."]                  BLINDSIGHT_MODEL_TOKENS="phishing=... other=..."
    """
    rights: dict[str, set[str]] = {}

    def add(token: Any, opens: str) -> None:
        if not isinstance(token, str) or len(token) < _SHORTEST or not token.isascii():
            raise InvalidInput(
                f"a token for {opens} must have at least {_SHORTEST} printable ASCII characters: use a longer one"
            )
        rights.setdefault(digest(token), set()).add(opens)

    table = _table(path) if path else {}
    for token in _list(table.get("admin", [])):
        add(token, "*")
    for model, tokens in table.get("models", {}).items():
        for token in _list(tokens):
            add(token, model)
    if environment.get(ADMIN_VARIABLE):
        add(environment[ADMIN_VARIABLE], "*")
    for pair in environment.get(MODELS_VARIABLE, "").split():
        model, is_pair, token = pair.partition("=")
        if not is_pair:
            raise InvalidInput(f"{MODELS_VARIABLE} must hold pairs model=token separated by spaces")
        add(token, model)
    return rights


def own_tokens(folder: Path) -> Path:
    """The token file in `folder`; created with an admin token, readable by this account only, if missing."""
    path = folder / "tokens.toml"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
                out.write(f'admin = ["{new_token()}"]\n')
        except FileExistsError:  # another process was faster
            pass
        except OSError as error:
            raise InvalidInput(f"cannot write {path} ({error.strerror}): name another folder with --data") from error
    return path


def _table(path: Path) -> dict[str, Any]:
    table = read_toml(path, "a file of tokens")
    if set(table) - {"admin", "models"} or not isinstance(table.get("models", {}), dict):
        raise InvalidInput(f"{path} may hold admin = [...] and a table [models], nothing else")
    return table


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
