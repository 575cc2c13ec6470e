"""Addresses of a Redis: one server, one found through sentinels, or a cluster.

::

    redis://:password@host:6379/0
    redis+sentinel://:password@host:26379,host:26379/name/0     the master that these sentinels name
    redis+cluster://:password@host:6379,host:6379               any nodes of the cluster

`rediss` in place of `redis` is TLS.
"""

import dataclasses
import re
from typing import Literal
from urllib.parse import unquote

from blindsight.errors import InvalidInput

__all__ = ["SCHEMES", "RedisAddress"]

SCHEMES = tuple(f"{scheme}{kind}" for scheme in ("redis", "rediss") for kind in ("", "+sentinel", "+cluster"))
# urllib refuses more than one host since 2025, if one of them has an IPv6 address
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z+]+)://((?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]*)(?P<path>(/[^?#]*)?)", re.IGNORECASE
)
_HOST = re.compile(r"(?P<name>\[[^\[\]]+\]|[^\[\]:]*)(:(?P<port>[0-9]*))?")
_SHOULD_BE = (
    "store must be memory, redis://:password@host:6379/0, redis+sentinel://host:26379,host:26379/name/0, "
    "or redis+cluster://host:6379,host:6379"
)


@dataclasses.dataclass(frozen=True)
class RedisAddress:
    """Where a Redis is, and how to log in."""

    kind: Literal["", "sentinel", "cluster"]
    hosts: tuple[tuple[str, int], ...]
    name: str
    """What the sentinels call it."""
    database: int
    user: str
    password: str
    is_secure: bool

    @classmethod
    def parse(cls, text: str) -> "RedisAddress":
        """The address in `text`."""
        parsed = _ADDRESS.fullmatch(text)
        if parsed is None or parsed["scheme"].lower() not in SCHEMES:
            raise InvalidInput(_SHOULD_BE)  # without the address: it may hold a password
        scheme, _, kind = parsed["scheme"].lower().partition("+")
        user, _, password = (parsed["login"] or "").partition(":")
        hosts, path = parsed["hosts"], parsed["path"]
        name, _, database = path.strip("/").rpartition("/") if kind == "sentinel" else ("", "", path[1:])
        if kind == "sentinel" and not name:
            name, database = database, ""
        try:
            found = tuple(_host(one, 26379 if kind == "sentinel" else 6379) for one in hosts.split(","))
            number = int(database.strip("/") or 0)
        except ValueError as error:
            raise InvalidInput(_SHOULD_BE) from error
        if (kind == "sentinel") != bool(name) or (kind != "cluster" and kind != "sentinel" and len(found) > 1):
            raise InvalidInput(_SHOULD_BE)
        if kind == "cluster" and number:
            raise InvalidInput("a Redis Cluster has only database 0: remove the number from store")
        known: Literal["", "sentinel", "cluster"] = "sentinel" if kind == "sentinel" else "cluster" if kind else ""
        return cls(known, found, name, number, unquote(user or "default"), unquote(password), scheme == "rediss")

    def at(self, host: str, port: int) -> "RedisAddress":
        """One server, with the same login."""
        return dataclasses.replace(self, kind="", hosts=((host, port),), name="")


def _host(text: str, port: int) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return found["name"].strip("[]") or "localhost", int(found["port"] or port)
