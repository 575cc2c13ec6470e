"""The ledger's entries as a hash chain: each carries the hash of the one before, so changes are detected.

Pure functions over entries from any source: the ledger's own file, or a copy exported to text.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Self

from blindsight.errors import LedgerTampered

__all__ = [
    "GENESIS",
    "Entry",
    "Verification",
    "digest",
    "from_line",
    "seal",
    "to_line",
    "verify_chain",
    "verify_export",
]

GENESIS = "0" * 64  # the predecessor of the first entry, and the head of an empty ledger


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of the ledger: a release, or a budget; every field but the number is text.

    `event` is canonical JSON: of the event released, or of the budget's epsilon and delta. `split` is canonical JSON or
    empty. `unit`, `relation`, `split` and `arm` of a budget are empty.
    """

    number: int
    time: str
    kind: str
    population: str
    unit: str
    relation: str
    event: str
    run: str
    note: str
    split: str
    arm: str
    previous: str
    hash: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
    """Whether the chain is intact; if not, the number of the first broken entry (if identified) and the problem.

    `head` is the hash of the newest entry: stored elsewhere, it is a witness for later verifications.
    """

    ok: bool
    entries: int
    head: str
    broken: int | None = None
    problem: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.entries:,} {'entry' if self.entries == 1 else 'entries'}, all as written; head {self.head}"
        return self.problem

    def raise_if_broken(self) -> Self:
        """Itself, or `LedgerTampered`."""
        if not self.ok:
            raise LedgerTampered(f"{self.problem}; restore the ledger from a backup, and release nothing until then")
        return self


def seal(entry: Entry) -> Entry:
    """The entry with its hash."""
    return dataclasses.replace(entry, hash=digest(entry))


def digest(entry: Entry) -> str:
    """SHA-256 over the canonical JSON of every field but the hash itself, including the predecessor's hash."""
    fields = {name: value for name, value in vars(entry).items() if name != "hash"}
    return hashlib.sha256(_canonical(fields).encode()).hexdigest()


def to_line(entry: Entry) -> str:
    """One line of canonical JSON, hash included."""
    return _canonical(vars(entry))


def from_line(line: str) -> Entry:
    """The entry that `to_line` wrote; anything else, even another spelling of the same JSON, is a ValueError."""
    try:
        entry = Entry(**json.loads(line))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not an entry: {error}") from error
    if to_line(entry) != line:  # with a duplicate field, a reader could see one value and a parser the other
        raise ValueError("not in the canonical form of an entry")
    return entry


def verify_chain(entries: Iterable[Entry], *, head: tuple[int, str] | None, witness: str | None = None) -> Verification:
    """Whether `entries`, in order, are a complete chain that ends at `head` and contains `witness`.

    Detects any entry edited, removed, moved, inserted or duplicated, including at either end. Only a witness detects a
    chain that was rewritten from some entry on, with all hashes and the head recomputed, or rolled back.
    """
    count, last, seen = 0, GENESIS, {GENESIS}
    for entry in entries:
        problem = _flaw(entry, count + 1, last)
        if problem:
            return Verification(ok=False, entries=count, head=last, broken=count + 1, problem=problem)
        count, last = count + 1, entry.hash
        seen.add(last)
    broken, problem = _flaw_at_the_end(count, last, head)
    if not problem and witness is not None and witness.strip().lower() not in seen:
        problem = (
            f"the witness ({witness.strip()}) is not in the chain: the chain was rewritten or rolled "
            "back, or this is another ledger"
        )
    return Verification(ok=not problem, entries=count, head=last, broken=broken, problem=problem)


def verify_export(lines: Iterable[str], witness: str | None = None) -> Verification:
    """The same for exported lines. They have no head: lines cut off at the end are detected only with a witness."""
    good: list[Entry] = []
    for line in _filled(lines):
        try:
            good.append(from_line(line))
        except ValueError as error:
            before = verify_chain(good, head=_end_of(good))
            number = len(good) + 1
            problem = f"entry {number} cannot be read ({error})"
            return dataclasses.replace(before, ok=False, broken=number, problem=problem) if before.ok else before
    return verify_chain(good, head=_end_of(good), witness=witness)


def _flaw(entry: Entry, expected: int, previous: str) -> str:
    number: Any = entry.number  # an edited file may hold anything here
    if number != expected:
        if isinstance(number, int) and number > expected:
            return f"entry {expected} was removed"
        return f"entry {expected} is out of place: an entry numbered {number!r} was inserted or duplicated before it"
    if digest(entry) != entry.hash:
        return f"entry {expected} was edited or moved: its content and its hash disagree"
    if entry.previous != previous:
        return f"entry {expected} does not follow from entry {expected - 1}: one of them was replaced"
    return ""


def _flaw_at_the_end(count: int, last: str, head: tuple[int, str] | None) -> tuple[int | None, str]:
    if head is None:
        return count or None, f"the record of where the chain ends, after {count} entries, was removed"
    if head == (count, last):
        return None, ""
    if isinstance(head[0], int) and head[0] > count:  # pyright: ignore[reportUnnecessaryIsInstance]
        return count + 1, f"entry {count + 1} was removed: the chain should have {head[0]}"
    return count or None, f"entry {count} is not the one the chain ended with: it, or the record of the end, was edited"


def _end_of(entries: list[Entry]) -> tuple[int, str]:
    return (len(entries), entries[-1].hash) if entries else (0, GENESIS)


def _filled(lines: Iterable[str]) -> Iterator[str]:
    return (line.strip() for line in lines if line.strip())


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), default=repr)
