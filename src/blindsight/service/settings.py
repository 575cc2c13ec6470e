"""Settings of the service: the keys of SERVE.toml are the fields of `Settings`."""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight.config import read_toml
from blindsight.errors import InvalidInput
from blindsight.service.redis_address import RedisAddress

__all__ = ["Settings", "listening_at"]


_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_POSITIVE = (
    *("ticket_s", "snapshot_s", "body_s", "first_byte_s", "header_s", "header_bytes", "write_s", "connections"),
    *("bodies_bytes", "shed_s"),
)


def listening_at(address: str) -> tuple[str, int]:
    """Host and port of an address such as `127.0.0.1:8753` or `[::1]:8753`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"admin_listen must be an address and a port, such as 127.0.0.1:8753, got {address!r}")
    return host.strip("[]"), int(port)


_LONGEST_TICKET_S = 30 * 86400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the service; the defaults suit one machine."""

    host: str = "127.0.0.1"
    port: int = 8752
    data: Path | None = Path("service")
    """Folder of the snapshots; None stores nothing."""
    store: str = "memory"
    """`memory`, or the address of a Redis, of its sentinels, or of a cluster (`redis_address`)."""
    tasks: tuple[Path, ...] = ()
    """JSON files of tasks; missing models are created."""
    tokens: Path | None = None
    """A TOML file with tokens; the environment works too (`auth.read_tokens`)."""
    public: Path | None = None
    """Folder of public examples, `MODEL.jsonl` with one row per line: a model that gets worse on them is frozen."""
    canary_fall: float = 0.05
    """How far a model may fall below its best score on public examples."""
    rate_per_s: float = 1000.0
    """Requests per token, second and process, with bursts of twice as many; 0 is no limit."""
    ticket_s: float = 600.0
    """Seconds a client may take from draw to update."""
    snapshot_s: float = 30.0
    """Seconds between snapshots: the most a crash can lose."""
    body_s: float = 10.0
    """Seconds within which a request's body has to arrive."""
    first_byte_s: float = 10.0
    """Seconds that a connection may be open before a request begins."""
    header_s: float = 5.0
    """Seconds within which the rest of a request's head has to arrive."""
    header_bytes: int = 16384
    """Maximum size of a request's head; larger ones get 431."""
    write_s: float = 30.0
    """Seconds within which a client has to read its response."""
    connections: int = 4096
    """Maximum number of open connections; idle ones make room for new ones, which otherwise get 503."""
    bodies_bytes: int = 268435456
    """Maximum size of all bodies that are being received; further updates get 503."""
    shed_s: float = 1.0
    """Delay of the event loop above which draws are refused with 503, more and more of them; updates never are."""
    admin_listen: str = ""
    """Address and port for admin calls, metrics and health, such as `127.0.0.1:8753`; without it they share `port`."""
    admission: Path | None = None
    """Public keys of an issuer (`blindsight issuer`); a draw then costs an admission token, not a model token."""
    batch: int = 0
    """Updates that change what draws show together; 0: as many as the model has instances, 1: the paper's algorithm."""
    log: str = "text"
    """`text`, or `json` for one JSON object per line."""
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
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} must be more than 0, got {getattr(self, name)}")
        if not 0 < self.canary_fall <= 1:
            raise InvalidInput(f"canary_fall must be more than 0 and at most 1, got {self.canary_fall}")
        if self.batch < 0:
            raise InvalidInput(f"batch must be 0 (as many as a model has instances) or more, got {self.batch}")
        if self.ticket_s > _LONGEST_TICKET_S:
            raise InvalidInput(f"ticket_s must be at most {_LONGEST_TICKET_S} (30 days), got {self.ticket_s}")
        if not self.rate_per_s >= 0:
            raise InvalidInput(f"rate_per_s must be 0 (no limit) or more, got {self.rate_per_s}")
        if self.store != "memory":
            RedisAddress.parse(self.store)
        if self.share_port and self.store == "memory":
            raise InvalidInput("several processes need a shared store: set store = 'redis://...', or remove share_port")
        if self.log not in ("text", "json"):
            raise InvalidInput(f"log must be text or json, got {self.log!r}")
        if self.admin_listen:
            listening_at(self.admin_listen)
        elif self.host not in _LOOPBACK:
            raise InvalidInput(
                f"host {self.host} opens admin calls to the network: set admin_listen to a separate address, "
                "such as 127.0.0.1:8753"
            )
        if (self.certificate is None) != (self.private_key is None):
            raise InvalidInput("TLS needs both files: certificate and private_key")

    @classmethod
    def load(cls, path: Path, given: Mapping[str, Any] | None = None) -> "Settings":
        """The settings of a TOML file, unless they are `given`. Paths are relative to the file."""
        table = read_toml(path, "a file of settings such as SERVE.toml")
        try:
            return cls.parse(table, path.parent, given)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @classmethod
    def parse(
        cls, table: Mapping[str, Any], folder: Path = Path(), given: Mapping[str, Any] | None = None
    ) -> "Settings":
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
        return cls(**(values | dict(given or {})))


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
