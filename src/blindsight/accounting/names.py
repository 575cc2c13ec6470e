"""Whom a release is about: populations by name, and by a fingerprint of their data, so that no data have two names.

A second name for the same data would have a budget of its own. So a ledger keeps with each name a fingerprint of the
data that were released about under it, and refuses these data under any other name.

**What the fingerprint tells.** It is a pseudo-random function (BLAKE2b, keyed) of everything in the data, so it is as
secret as they are if the key is known: who knew all rows but one could try guesses of that one. The key is 32 bytes in
a file of its own beside the ledger, readable by its owner alone, and is part of no entry, export or report. Without it
an entry's fingerprint says nothing, and entries of two ledgers cannot be compared. A refusal does tell the person who
asks that data they hold are those of another name: only who keeps the data, and writes the ledger, can ask that.
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

__all__ = ["Known", "Payers", "Seal", "data_of", "known_apart", "known_as", "names_of", "text"]


class Known(str):
    """A population's name together with the fingerprints of its data; to everything else it is the name.

    >>> Known("phones", "3f1c") == "phones", Known("phones", "3f1c").data
    (True, ('3f1c',))
    """

    data: tuple[str, ...]

    def __new__(cls, name: str, *data: str) -> Self:
        known = super().__new__(cls, name)
        known.data = tuple(dict.fromkeys(one for one in data if one))
        return known


Payers = str | Sequence[str]
"""Whom a release is about: a population's name, or those of all populations that it reads."""


class _Population(Protocol):
    name: str

    @property
    def content(self) -> str: ...


def known_as(population: _Population, name: str | None = None) -> Known:
    """The population's own name or another that it goes by in the ledger, with the fingerprint of its data.

    A fingerprint that comes with the name is of the whole table, and stands alone: whether what a question reads of it
    is new to the ledger would tell whether all rows fitted the question before.
    """
    given = name.data if isinstance(name, Known) else ()
    return Known(name or population.name, *(given or (population.content,)))


def known_apart(populations: Sequence[_Population], name: str | None = None) -> list[Known]:
    """Each as `known_as` has it, and each with a fingerprint of its own, be their data the same.

    Two sides of a question that hold nothing would share one: how many the ledger keeps would tell that they do.
    """
    found: list[Known] = []
    for one in populations:
        known = known_as(one, name)
        is_twin = any(other == known and other.data == known.data for other in found)
        if is_twin and not (isinstance(name, Known) and name.data):
            known = Known(known, *(f"{data} again" for data in known.data))
        found.append(known)
    return found


def names_of(population: Payers) -> tuple[str, ...]:
    """The names of all populations that pay, each once, as the ledger spells them.

    >>> names_of("phones"), names_of(["phones", "tablets", "phones"])
    (('phones',), ('phones', 'tablets'))
    """
    names = tuple(dict.fromkeys(map(_name, _listed(population))))
    if not names:
        raise InvalidInput("name at least one population for the release")
    return names


def data_of(population: Payers) -> dict[str, list[str]]:
    """The fingerprints that come with each name."""
    found: dict[str, list[str]] = {name: [] for name in names_of(population)}
    for one in _listed(population):
        found[_name(one)] += one.data if isinstance(one, Known) else ()
    return found


def text(field: str, value: str) -> str:
    """`value`, if it can be stored."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"{field} must be text that can be encoded as UTF-8, got {value!r}") from error
    return value


def _listed(population: Payers) -> list[str]:
    return [population] if isinstance(population, str) else list(population)


def _name(population: str) -> str:
    """One spelling per population: a second one that looks the same would have a budget of its own."""
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
        """What an entry holds of a fingerprint; None where there is no key yet and none is to be made."""
        key = self._read() or (self._make() if begin else None)
        if key is None:
            return None
        own, name = (hashlib.blake2b(word, key=key, digest_size=16).hexdigest() for word in (data.encode(), b"name"))
        return json.dumps({"fingerprint": own, "key": name[:8]}, sort_keys=True, separators=(",", ":"))

    def check(self, sealed: str | None, kept: str) -> None:
        """Refuses a key that did not make what the ledger keeps: nobody could tell which data have a name already."""
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
        """A key, whole or not at all; one that somebody else made meanwhile is taken."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=".new-key-", dir=self.path.parent)  # for its owner alone
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
