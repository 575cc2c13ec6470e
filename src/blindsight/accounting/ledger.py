"""The record of every release: append-only, hash-chained, and checked against a budget before each release.

The order of operations is the guarantee. `Ledger.record` returns only after the entry is on disk; the caller uses the
value only after `record` has returned. If a process dies in between, the ledger may count a release that nobody saw,
but never misses one that somebody did. Composing, comparing with the budget and writing are one transaction that
excludes all other writers, so two processes cannot both spend the last of a budget.

Budgets are enforced by a *filter* (`filter`), which holds even if each release is chosen after reading the earlier
ones. `Ledger.spent` is the smaller number from `composition`, which holds for a plan fixed in advance.

The same data under a second name are refused (`names`). The ledger cannot detect that two names stand for the same
clients with different data, or that a second ledger exists (a new one at a relative path is announced on stderr). Only
`verify` with a witness detects a file that was rewritten as a whole or rolled back.
"""

import dataclasses
import datetime
import functools
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from blindsight.accounting import chain, composition, ledger_file, names
from blindsight.accounting import filter as filters
from blindsight.accounting.budgets import Balance, PopulationBudget, delta_for
from blindsight.accounting.chain import Entry, Verification, verify_export
from blindsight.accounting.composition import Share, Split
from blindsight.accounting.events import Event, NonPrivate, Relation, Unit, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.accounting.names import LedgerName, Payers, Seal, data_of, ledger_name, ledger_names, names_of
from blindsight.accounting.spending import Spending, kind_of
from blindsight.errors import BudgetExceeded, InvalidInput, LedgerCorrupted, LedgerTampered, PrivacyError

__all__ = [
    "Balance",
    "Entry",
    "Ledger",
    "LedgerName",
    "Payers",
    "PopulationBudget",
    "Split",
    "Verification",
    "ledger_name",
    "ledger_names",
    "names_of",
]
__all__ += ["verify_export"]

_DEFAULT_PATH = ".blindsight/ledger.db"
_event_of = functools.lru_cache(maxsize=1024)(from_json)  # a long run repeats the same few texts


class Ledger:
    """The ledger at `path`, or at `$BLINDSIGHT_LEDGER`, or at `.blindsight/ledger.db`.

    | file at `path` | reading | writing |
    |---|---|---|
    | none | an empty ledger; nothing is created | created atomically, then written |
    | a ledger, in a folder without write permission | works | `LedgerError` |
    | a ledger of a newer version | `LedgerFromTheFuture` | the same |
    | anything else, even an empty file (a truncated ledger must not look new) | `LedgerCorrupted` | the same |

    No file stays open between calls; the context manager is there for style only.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, timeout_s: float = 30.0) -> None:
        chosen = os.fspath(path or os.environ.get("BLINDSIGHT_LEDGER") or _DEFAULT_PATH)
        if "\0" in chosen:
            raise InvalidInput(f"the path of a ledger cannot contain a NUL character, got {chosen!r}")
        if not 0 <= timeout_s < 2**31 / 1000:
            raise InvalidInput(f"timeout_s must be a number of seconds >= 0, got {timeout_s}")
        self.path = Path(os.path.realpath(os.path.expanduser(chosen)))  # SQLite names its log after the file
        announced = not os.path.isabs(os.path.expanduser(chosen))  # from another folder it would be another ledger
        self._file = ledger_file.LedgerFile(self.path, timeout_s, announced)
        self.seal = Seal(self.path)
        self._totals: dict[str, _Total] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from blindsight import pages

        rows: list[tuple[str, str, str, str]] = []
        for name in self.populations():
            limit = self.budget(name)
            delta = 1e-6 if limit is None else limit.delta
            spent = round_up(self.adaptive_epsilon(name, delta))
            rows.append((name, spent, "-" if limit is None else f"{limit.epsilon:g}", f"{delta:g}"))
        headings = ("population", "epsilon spent", "budget", "delta")
        return pages.card(f"Ledger {self.path}", rows, headings=headings, about="" if rows else "no entries yet")

    def record(
        self,
        event: Event,
        *,
        population: Payers,
        unit: Unit = Unit.CLIENT,
        relation: Relation = Relation.ADD_OR_REMOVE,
        run: str = "",
        note: str = "",
        split: Split | None = None,
        arm: str = "",
        noise: str = "",
    ) -> Entry:
        """Write the entry for `event` and return it once it is on disk; use the released value only after that.

        *Guarantee*: everything recorded for the population, this event included, stays within its budget, even if
        earlier results decided what to release (`filter` has the proof). Otherwise `BudgetExceeded` is raised and
        nothing is written. A release that reads several populations gets one entry for each, all or none; the last is
        returned. A training run records its planned rounds in advance (`Repeated`).
        Also refused: a unit or relation that differs from the population's earlier ones, an event that no accountant
        can bound or that counts no release, and an arm that is not part of its split (see `composition`).

        `noise` names reproducible noise and what it is added to, "KEY of SUM". The same noise on two different sums
        cancels out in their difference, so the second is recorded as `NonPrivate`, for its own population and for that
        of the first: check the event of the returned entry. Any budget refuses such a release.
        """
        share = composition.share_of(event, unit=unit, relation=relation, split=split, arm=arm)
        payers, data = names_of(population), data_of(population)
        fields = {
            "kind": "release",
            "unit": share.unit.value,
            "relation": share.relation.value,
            "event": to_json(event),
            "run": names.text("run", run),
            "note": names.text("note", f"{note} [noise {noise}]".strip() if noise else note),
            "split": share.split,
            "arm": share.arm,
        }
        with self._file.connected(writing=True) as db:
            with ledger_file.transaction(db, "DEFERRED"):
                for name in payers:
                    self._assess(db, name, share)  # the slow arithmetic, outside the lock; the result is cached
            with ledger_file.transaction(db, "IMMEDIATE"):
                if others := _populations_with_noise(db, noise):
                    share = dataclasses.replace(share, event=NonPrivate())
                    fields["event"], payers = to_json(share.event), tuple(dict.fromkeys((*others, *payers)))
                for name in payers:
                    self._assess(db, name, share)
                for name, fingerprints in data.items():
                    self._keep_data(db, name, fingerprints)
                return [_append(db, {**fields, "population": name}) for name in payers][-1]

    def foresee(self, event: Event, population: str, delta: float | None = None) -> tuple[Guarantee, str]:
        """The guarantee of all releases on the population if `event` were recorded, and the reason for a refusal, if
        any.

        The reason is empty if the event would be accepted; nothing is written.
        """
        name = _one(population)
        share = composition.share_of(event, unit=Unit.CLIENT, relation=Relation.ADD_OR_REMOVE, split=None, arm="")
        refused = ""
        with self._file.connected() as db, ledger_file.transaction(db, "DEFERRED"):
            budget, shares = _budget(db, name), _shares(db, name)
            try:
                self._assess(db, name, share)
            except BudgetExceeded as error:
                refused = str(error)
        return composition.certified([*shares, share], delta_for(name, delta, budget)), refused

    def check_names(self, population: Payers) -> None:
        """Refuse data that this ledger has under another name, as `record` would; write nothing."""
        with self._file.connected() as db:
            for name, fingerprints in data_of(population).items():
                for one in fingerprints:
                    self._refuse_second_name(db, name, self.seal.sealed(one, begin=False))

    def _keep_data(self, db: sqlite3.Connection, name: str, data: list[str]) -> None:
        """An entry for each fingerprint that the name has not had before."""
        has = "SELECT 1 FROM entries WHERE population = ? AND kind = 'data' AND event = ?"
        for sealed in [self.seal.sealed(one, begin=not _kept_data(db)) for one in data]:
            if sealed is not None and db.execute(has, (name, sealed)).fetchone():
                continue  # compared with all others when it was added, as were all later ones
            self._refuse_second_name(db, name, sealed)
            if sealed is not None:
                fields = dict.fromkeys(("unit", "relation", "run", "note", "split", "arm"), "")
                _append(db, fields | {"kind": "data", "population": name, "event": sealed})

    def _refuse_second_name(self, db: sqlite3.Connection, name: str, sealed: str | None) -> None:
        for other, kept in _kept_data(db):
            self.seal.check(sealed, kept)
            if kept == sealed and other != name:
                raise PrivacyError(
                    f"the ledger {self.path} already has the data of {name!r} under the name {other!r}; "
                    f"a second name would give them a second budget: use population={other!r} or --population"
                )

    def set_budget(self, population: str, *, epsilon: float, delta: float, note: str = "") -> Balance:
        """Set a budget and return the balance under it. A budget is an entry like any other; the newest counts.

        A budget below what is already spent is accepted and returned as `overspent`: nothing more can be released.
        """
        budget, name = PopulationBudget(float(epsilon), float(delta)), _one(population)
        text = json.dumps(dataclasses.asdict(budget), sort_keys=True, separators=(",", ":"))
        fields = dict.fromkeys(("unit", "relation", "run", "split", "arm"), "")
        fields |= {"kind": "budget", "population": name, "event": text, "note": names.text("note", note)}
        with self._file.connected(writing=True) as db:
            with ledger_file.transaction(db, "DEFERRED"):
                spent = composition.certified(_shares(db, name), budget.delta)
                adaptive = _adaptive(self._spending(db, name), spent)
            with ledger_file.transaction(db, "IMMEDIATE"):
                _append(db, fields)
        return Balance(name, budget, spent, adaptive)

    def entries(self, population: str | None = None) -> list[Entry]:
        """All entries in order, or one population's."""
        where, values = ("", ()) if population is None else ("WHERE population = ?", (_one(population),))
        with self._file.connected() as db:
            return list(ledger_file.entries(db, where, values))

    def populations(self) -> list[str]:
        """The names of all populations, sorted."""
        with self._file.connected() as db:
            return [row[0] for row in db.execute("SELECT DISTINCT population FROM entries ORDER BY population")]

    def budget(self, population: str) -> PopulationBudget | None:
        """The newest budget of the population, if it has one."""
        with self._file.connected() as db:
            return _budget(db, _one(population))

    def balance(self, population: str) -> Balance | None:
        """Budget and spending of the population, if it has a budget."""
        budget = self.budget(population)
        if budget is None:
            return None
        spent = self.spent(population, budget.delta)
        return Balance(_one(population), budget, spent, _adaptive(self.spending(population), spent))

    def spent(self, population: str, delta: float | None = None) -> Guarantee:
        """The guarantee of all releases on the population, over all runs and models, at `delta` or the budget's delta.

        It assumes that the releases were planned in advance, and says so; `adaptive_epsilon` needs no such assumption.
        """
        name = _one(population)
        with self._file.connected() as db, ledger_file.transaction(db, "DEFERRED"):
            budget, shares = _budget(db, name), _shares(db, name)
        return composition.certified(shares, delta_for(name, delta, budget))

    def adaptive_epsilon(self, population: str, delta: float | None = None, *, more: Event | None = None) -> float:
        """The smallest budget that would have allowed all releases on the population, chosen adaptively or not.

        At `delta` or the budget's delta; inf if there is no such budget. With `more`, after one more release.
        """
        spending = self.spending(population)
        if more is None:
            return _adaptive(spending, self.spent(population, delta))
        share = composition.share_of(more, unit=Unit.CLIENT, relation=Relation.ADD_OR_REMOVE, split=None, arm="")
        planned, _ = self.foresee(more, population, delta)
        filtered = filters.spent(spending.with_more(share), planned.delta)
        return min(filtered, planned.epsilon) if spending.once_with(share) else filtered

    def _assess(self, db: sqlite3.Connection, population: str, new: Share) -> None:
        """Refuses the release if it does not fit the population's earlier ones or its budget."""
        spending, budget = self._spending(db, population), _budget(db, population)
        spending.check_terms(population, new)
        if budget is None or any(kind_of(leaf) not in spending.kinds for leaf in new.leaves):
            composition.check_accountable(spending.kinds.values(), new)
        if budget and not filters.is_within(after := spending.with_more(new), budget.epsilon, budget.delta):
            if spending.once_with(new) and composition.certified([new], budget.delta).epsilon <= budget.epsilon:
                return  # its clients' only entry, chosen before anything about them was read: a plan
            before = _adaptive(spending, composition.certified(_shares(db, population), budget.delta))
            spent = round_up(filters.spent(after, budget.delta))
            raise BudgetExceeded(
                f"this release would take population {population!r} from epsilon {round_up(before)} to {spent} "
                f"at delta {budget.delta:.3g} (adaptive composition), over its budget of {budget.epsilon:.4g}: "
                "release less, add more noise or raise the budget; do not use the value"
            )

    def spending(self, population: str) -> Spending:
        """Running totals of what everything recorded for the population cost, to ask them what more would cost."""
        with self._file.connected() as db, ledger_file.transaction(db, "DEFERRED"):
            return self._spending(db, _one(population))

    def _spending(self, db: sqlite3.Connection, population: str) -> Spending:
        """Running totals: adds the entries since the last call, or starts over if the earlier chain has changed."""
        running = self._totals.pop(population, None)  # if adding fails half-way, the next call starts over
        if running is None or running.end not in ledger_file.ends(db, running.end[0]):
            running = _Total((0, chain.GENESIS), Spending())
        for share in _shares(db, population, running.end[0]):
            running.spending.add(share)
        self._totals[population] = _Total(ledger_file.ends(db)[-1], running.spending)
        return running.spending

    def verify(self, witness: str | None = None) -> Verification:
        """Whether every entry is intact; if not, the first that was changed.

        It detects any entry edited, removed (first, middle, last or all), moved, inserted or duplicated. Anyone who can
        write the file can also rewrite the whole chain, hashes and head included, or restore an old copy. Only
        `witness` detects that: a head or an entry's hash stored elsewhere (in a run's folder, in an email), which must
        occur in the chain.
        """
        with self._file.connected() as db, ledger_file.transaction(db, "DEFERRED"):
            result = chain.verify_chain(ledger_file.entries(db), head=ledger_file.head(db), witness=witness)
            whole, ruled = ledger_file.is_whole(db), ledger_file.has_its_rules(db)
        if result.ok and not whole:
            raise LedgerCorrupted(
                f"all entries of {self.path} are intact, but the file is damaged: restore it from a backup"
            )
        if result.ok and not ruled:
            problem = "every entry is intact, but the triggers that keep the ledger append-only were changed"
            return dataclasses.replace(result, ok=False, problem=problem)
        return result

    def export(self) -> Iterator[str]:
        """One line of JSON per entry, hashes included, in the form that `verify_export` checks."""
        return (chain.to_line(entry) for entry in self.entries())


@dataclasses.dataclass(frozen=True)
class _Total:
    """What a population had spent when the ledger ended at this entry (number and hash)."""

    end: tuple[int, str]
    spending: Spending


def _adaptive(spending: Spending, planned: Guarantee) -> float:
    """The smallest budget that allows all this; if each client has only one entry, that entry is a plan."""
    filtered = filters.spent(spending.total, planned.delta)
    return min(filtered, planned.epsilon) if spending.once else filtered


def _shares(db: sqlite3.Connection, population: str, after: int = 0) -> list[Share]:
    """The population's releases, equal ones grouped: the time to compose them does not grow with their number.

    Only entries `after` that number; the plus keeps SQLite from scanning all of the population's entries.
    """
    columns, plus = "event, unit, relation, split, arm", "+" if after else ""
    query = f"SELECT {columns}, COUNT(*) FROM entries WHERE {plus}population = ? AND {plus}kind = 'release' "
    query += f"AND number > ? GROUP BY {columns}"
    try:
        return [
            Share(
                _event_of(event), Unit(unit), Relation(relation), split and Split.from_json(split).to_json(), arm, times
            )
            for event, unit, relation, split, arm, times in db.execute(query, (population, after))
        ]
    except (TypeError, ValueError) as error:
        raise LedgerTampered(
            f"Blindsight did not write this entry of population {population!r} ({error}): verify the ledger"
        ) from error


def _populations_with_noise(db: sqlite3.Connection, noise: str) -> list[str]:
    """Populations with a release of the same reproducible noise on another sum."""
    if not noise:
        return []
    drawn, this = f"[noise {noise.partition(' of ')[0]} of ", f"[noise {noise}]"
    query = (
        "SELECT DISTINCT population FROM entries WHERE kind = 'release' AND instr(note, ?) > 0 AND instr(note, ?) = 0"
    )
    return [row[0] for row in db.execute(query, (drawn, this))]


def _kept_data(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """Population names and the sealed fingerprints of their data."""
    return db.execute("SELECT population, event FROM entries WHERE kind = 'data' ORDER BY number").fetchall()


def _budget(db: sqlite3.Connection, population: str) -> PopulationBudget | None:
    newest = "WHERE number = (SELECT MAX(number) FROM entries WHERE population = ? AND kind = 'budget')"
    budgets = list(ledger_file.entries(db, newest, (population,)))
    try:
        return PopulationBudget(**json.loads(_intact(budgets[-1]).event)) if budgets else None
    except (TypeError, ValueError) as error:
        raise LedgerTampered(f"entry {budgets[-1].number} is not a budget ({error}): verify the ledger") from error


def _append(db: sqlite3.Connection, fields: Mapping[str, str]) -> Entry:
    head = ledger_file.head(db)
    last = list(ledger_file.entries(db, "WHERE number = (SELECT MAX(number) FROM entries)"))
    end = (_intact(last[-1]).number, last[-1].hash) if last else (0, chain.GENESIS)
    if head != end:
        raise LedgerTampered("the newest entries were removed or replaced: nothing was recorded; verify the ledger")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    entry = chain.seal(Entry(number=end[0] + 1, time=now, previous=end[1], **fields))
    ledger_file.insert(db, entry)
    return entry


def _intact(entry: Entry) -> Entry:
    """Checks an entry that a decision depends on (the newest, the budget) each time: it is cheap."""
    if chain.digest(entry) != entry.hash:
        raise LedgerTampered(f"entry {entry.number} was edited: nothing was recorded; verify the ledger")
    return entry


def _one(population: str) -> str:
    (name,) = names_of(population)
    return name
