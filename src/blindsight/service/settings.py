"""Settings of the service: the keys of SERVE.toml are the fields of `Settings`."""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from blindsight.config import read_toml
from blindsight.errors import InvalidInput

__all__ = ["Settings"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the service; the defaults suit one machine."""

    host: str = "127.0.0.1"
    port: int = 8752
    data: Path | None = Path("service")
    """Folder of the snapshots; None stores nothing."""
    store: str = "memory"
    """`memory`, or the address of a Redis: `redis://host:6379/0`, `rediss://` over TLS."""
    tasks: tuple[Path, ...] = ()
    """JSON files of tasks; missing models are created."""
    tokens: Path | None = None
    """A TOML file with tokens; the environment works too (`auth.read_tokens`)."""
    rate_per_s: float = 1000.0
    """Requests per token, second and process, with bursts of twice as many; 0 is no limit."""
    ticket_s: float = 600.0
    """Seconds a client may take from draw to update."""
    snapshot_s: float = 30.0
    """Seconds between snapshots: the most a crash can lose."""
    body_s: float = 10.0
    """Seconds within which a request's body has to arrive."""
    connections: int = 4096
    """Maximum number of open connections; further ones get 503."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may be clients, such as `https://example.com`; `*` for all."""
    certificate: Path | None = None
    """TLS: a PEM file with the certificate chain, with `private_key`."""
    private_key: Path | None = None
    share_port: bool = False
    """Let several processes on this host listen on the same port; they need a Redis."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InvalidInput(f"port must be a number from 0 to 65535, got {self.port}")
        for name in ("ticket_s", "snapshot_s", "body_s", "connections"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} must be more than 0, got {getattr(self, name)}")
        if not self.rate_per_s >= 0:
            raise InvalidInput(f"rate_per_s must be 0 (no limit) or more, got {self.rate_per_s}")
        if self.store != "memory" and urlsplit(self.store).scheme not in ("redis", "rediss"):
            raise InvalidInput(
                "store must be memory, or an address like redis://localhost:6379/0"
            )  # it may hold a password
        if self.share_port and self.store == "memory":
            raise InvalidInput("several processes need a shared store: set store = 'redis://...', or remove share_port")
        if (self.certificate is None) != (self.private_key is None):
            raise InvalidInput("TLS needs both files: certificate and private_key")

    @classmethod
    def load(cls, path: Path) -> "Settings":
        """The settings of a TOML file. Paths are relative to the file."""
        table = read_toml(path, "a file of settings such as SERVE.toml")
        try:
            return cls.parse(table, path.parent)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @classmethod
    def parse(cls, table: Mapping[str, Any], folder: Path = Path()) -> "Settings":
        """The settings of a table, every key and type checked."""
        kinds = {field.name: str(field.type) for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in kinds:
                near = difflib.get_close_matches(key, kinds, n=1, cutoff=0.5)
                raise InvalidInput(
                    f"there is no setting {key!r}: " + (f"did you mean {near[0]!r}?" if near else "see docs")
                )
            values[key] = _value(key, value, _kind(cls, key), folder)
        return cls(**values)


def _kind(cls: type[Settings], key: str) -> str:
    default = next(field.default for field in dataclasses.fields(cls) if field.name == key)
    if key in ("tasks", "origins"):
        return {"tasks": "paths", "origins": "texts"}[key]
    return "path" if default is None or isinstance(default, Path) else type(default).__name__


def _value(key: str, value: Any, kind: str, folder: Path) -> Any:
    if kind in ("paths", "texts"):
        items: list[Any] = value if isinstance(value, list) else [value]
        return tuple(_value(key, item, kind[:-1], folder) for item in items)
    if kind in ("path", "text", "str"):
        if not isinstance(value, str):
            raise InvalidInput(f"{key} must be text in quotes, got {value!r}")
        return folder / value if kind == "path" else value
    if kind == "float" and type(value) is int:
        return float(value)
    if type(value).__name__ != kind:
        words = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        raise InvalidInput(f"{key} must be {words[kind]}, got {value!r}")
    return value
