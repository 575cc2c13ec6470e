"""Populations by name and by a fingerprint of their data, so that no data have two names.

A second name for the same data would have its own budget. So a ledger stores with each name a fingerprint of its data,
and refuses these data under any other name.

**What the fingerprint reveals.** It is a pseudo-random function (BLAKE2b, keyed) of everything in the data. If the key
is known, it is as sensitive as the data: someone who knew all rows but one could test guesses of that one. The key is
32 bytes in a separate file next to the ledger, readable only by its owner, and is never part of an entry, export or
report. Without it an entry's fingerprint reveals nothing, and entries of two ledgers cannot be compared. A refusal does
reveal that the data at hand have another name already, but only to someone who holds the data and writes the ledger.
"""

import hashlib
import json
import os
import secrets
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from blindsight.errors import InvalidInput, LedgerError

__all__ = ["LedgerName", "Payers", "Seal", "data_of", "ledger_name", "ledger_names", "names_of", "text"]


class LedgerName(str):
    """A population's name with the fingerprints of its data; otherwise an ordinary string.

    >>> LedgerName("phones", "3f1c") == "phones", LedgerName("phones", "3f1c").data
    (True, ('3f1c',))
    """

    data: tuple[str, ...]

    def __new__(cls, name: str, *data: str) -> Self:
        instance = super().__new__(cls, name)
        instance.data = tuple(dict.fromkeys(one for one in data if one))
        return instance


Payers = str | Sequence[str]
"""The populations that pay for a release: one name, or those of all populations that it reads."""


class _Population(Protocol):
    name: str

    @property
    def content(self) -> str: ...


def ledger_name(population: _Population, name: str | None = None) -> LedgerName:
    """The population's own name, or `name` in the ledger, with the fingerprint of its data.

    A fingerprint that comes with the name covers the whole table and replaces that of the rows read: otherwise, whether
    these are new to the ledger would reveal whether all rows fitted the earlier question.
    """
    given = name.data if isinstance(name, LedgerName) else ()
    return LedgerName(name or population.name, *(given or (population.content,)))


def ledger_names(populations: Sequence[_Population], name: str | None = None) -> list[LedgerName]:
    """Each as in `ledger_name`, but with distinct fingerprints even for equal data.

    Two empty sides of a question would share one, and the number of fingerprints in the ledger would reveal it.
    """
    distinct: list[LedgerName] = []
    for one in populations:
        named = ledger_name(one, name)
        is_twin = any(other == named and other.data == named.data for other in distinct)
        if is_twin and not (isinstance(name, LedgerName) and name.data):
            named = LedgerName(named, *(f"{data} again" for data in named.data))
        distinct.append(named)
    return distinct


def names_of(population: Payers) -> tuple[str, ...]:
    """The distinct names of all populations that pay, as spelled in the ledger.

    >>> names_of("phones"), names_of(["phones", "tablets", "phones"])
    (('phones',), ('phones', 'tablets'))
    """
    names = tuple(dict.fromkeys(map(_name, _listed(population))))
    if not names:
        raise InvalidInput("name at least one population for the release")
    return names


def data_of(population: Payers) -> dict[str, list[str]]:
    """The fingerprints that come with each name."""
    fingerprints: dict[str, list[str]] = {name: [] for name in names_of(population)}
    for one in _listed(population):
        fingerprints[_name(one)] += one.data if isinstance(one, LedgerName) else ()
    return fingerprints


def text(field: str, value: str) -> str:
    """`value`, checked: the ledger can store it."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"{field} must be text that can be encoded as UTF-8, got {value!r}") from error
    return value


def _listed(population: Payers) -> list[str]:
    return [population] if isinstance(population, str) else list(population)


def _name(population: str) -> str:
    """One spelling per population: a second one that looks the same would have its own budget."""
    name = unicodedata.normalize("NFC", text("population", population))
    if not name.isprintable() or name != name.strip() or not name:
        raise InvalidInput(
            f"a population's name must be non-empty text without leading or trailing spaces or control characters, "
            f"got {name!r}"
        )
    return str(name)


class Seal:
    """The ledger's secret key, and fingerprints of data under it."""

    def __init__(self, ledger: Path) -> None:
        self.path = ledger.with_name(ledger.name + ".key")

    def sealed(self, data: str, *, begin: bool) -> str | None:
        """The keyed hash of a fingerprint, for an entry; None if there is no key yet and `begin` is false."""
        key = self._read() or (self._make() if begin else None)
        if key is None:
            return None
        own, name = (hashlib.blake2b(word, key=key, digest_size=16).hexdigest() for word in (data.encode(), b"name"))
        return json.dumps({"fingerprint": own, "key": name[:8]}, sort_keys=True, separators=(",", ":"))

    def check(self, sealed: str | None, kept: str) -> None:
        """Refuses a key other than the one behind the ledger's fingerprints: known data could not be recognised."""
        if sealed is None or json.loads(sealed)["key"] != json.loads(kept)["key"]:
            raise LedgerError(
                f"{self.path} is not the key of the ledger's data fingerprints, so nothing was recorded: "
                "restore it from a backup of the ledger's folder"
            )

    def _read(self) -> bytes | None:
        try:
            key = bytes.fromhex(self.path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError(f"the ledger's key {self.path} cannot be read ({error}): restore it") from error
        return key if len(key) == 32 else b"damaged"

    def _make(self) -> bytes | None:
        """Creates a key, atomically; uses one that another process created meanwhile."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=".new-key-", dir=self.path.parent)  # readable only by its owner
            try:
                with os.fdopen(handle, "w", encoding="ascii") as out:
                    out.write(secrets.token_hex(32))
                    out.flush()
                    os.fsync(out.fileno())
                os.link(scratch, self.path)
            except FileExistsError:
                pass
            finally:
                os.unlink(scratch)
        except OSError as error:
            raise LedgerError(f"the ledger's key {self.path} cannot be written ({error}): check the folder") from error
        return self._read()
