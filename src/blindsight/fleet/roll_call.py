"""Which sites are online: every site is pinged, and its last answer is kept in the fleet's folder.

A site answers `{"kind": "ping"}` with `{"kind": "pong", "version", "protocols", "clients", "job", "rounds",
"refused"}`: its version, the protocols that it speaks, the number of clients that it declares, the job that it works
on or null, how many rounds it has answered, and the code of its last refusal or null. Nothing in an answer comes from
data, and nothing of another form is shown.
"""

import dataclasses
import datetime
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import Carrier
from blindsight.fleet.codes import Code
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.wire import decode, encode
from blindsight.runs import write_whole

__all__ = ["SEEN", "Presence", "last_seen", "roll_call"]

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
SEEN = "seen.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Presence:
    """A site's answer now or, if it is not `here`, its last one."""

    site: str
    here: bool = False
    seen: str | None = None
    """When it last answered, UTC."""
    version: str | None = None
    clients: int | None = None
    job: str | None = None
    rounds: int | None = None
    refused: Code | None = None
    expires: str | None = None
    """The last day of its certificate."""

    @classmethod
    def of_answer(cls, site: str, answer: Mapping[str, Any]) -> Self:
        """A site's answer about itself; one of another form counts as malformed."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        try:
            return cls(
                site=site,
                here=True,
                seen=now,
                version=_word(answer["version"]),
                clients=_count(answer["clients"]),
                job=None if answer["job"] is None else _word(answer["job"]),
                rounds=_count(answer["rounds"]),
                refused=None if answer["refused"] is None else Code(_word(answer["refused"])),
            )
        except (KeyError, ValueError):
            return cls(site=site, here=True, seen=now, refused=Code.malformed)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "meaning": None if self.refused is None else self.refused.meaning}


def roll_call(fleet: FleetFolder, *, timeout_s: float) -> list[Presence]:
    """Ping every site, wait at most `timeout_s` seconds for answers, and remember them."""
    carrier = fleet.connect()
    try:
        answers = _ping(carrier, set(fleet.roster), timeout_s)
    finally:
        carrier.close()
    last = _read_seen(fleet.path / SEEN)
    found = [answers.get(site) or last.get(site) or Presence(site=site) for site in fleet.roster]
    kept = {one.site: {**one.to_dict(), "here": False} for one in found if one.seen is not None}
    write_whole(fleet.path / SEEN, json.dumps(kept, indent=2) + "\n")
    return [dataclasses.replace(one, expires=_last_day(fleet.roster[one.site])) for one in found]


def last_seen(fleet: FleetFolder) -> list[Presence]:
    """What every site last answered to any roll call; nobody is asked."""
    last = _read_seen(fleet.path / SEEN)
    known = [last.get(site) or Presence(site=site) for site in fleet.roster]
    return [dataclasses.replace(one, expires=_last_day(fleet.roster[one.site])) for one in known]


def _ping(carrier: Carrier, sites: set[str], timeout_s: float) -> dict[str, Presence]:
    """The answers that arrive in time; other messages are not for this process."""
    for site in sorted(sites):
        carrier.send(site, encode({"kind": "ping"}))
    answers: dict[str, Presence] = {}
    end = time.monotonic() + timeout_s
    while len(answers) < len(sites) and (left := end - time.monotonic()) > 0:
        delivery = carrier.receive(left)
        if delivery is None or delivery.sender not in sites:
            continue
        try:
            head, _ = decode(delivery.data)
        except InvalidInput:
            continue
        if head.get("kind") == "pong":
            answers[delivery.sender] = Presence.of_answer(delivery.sender, head)
    return answers


def _read_seen(path: Path) -> dict[str, Presence]:
    """Earlier answers of sites; a missing or damaged file has none."""
    try:
        sites = json.loads(path.read_text(encoding="utf-8"))
        fields = {field.name for field in dataclasses.fields(Presence)} - {"here", "expires"}
        kept = {site: {key: value for key, value in one.items() if key in fields} for site, one in sites.items()}
        for one in kept.values():
            one["refused"] = None if one.get("refused") is None else Code(one["refused"])
        return {site: Presence(**{**one, "site": site}) for site, one in kept.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _word(value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise ValueError("not a word")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError("not a count")
    return value


def _last_day(certificate: bytes) -> str:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.date().isoformat()
