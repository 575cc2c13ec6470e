"""The book of a site: questions, decisions with their authors, and payments. Its ledger is beside it.

Everything here is on disk, and in the diary, before the caller may act on it. The book is an SQLite file that only
grows: several processes (the agent, and an officer who reviews) share it, and it survives a kill at any point.

**What is paid.** `pay` returns only when the event is in the ledger, under the site's name and under the asker's, and
in the book under the question's. If a process dies in between, the ledger may count a release that never was; it never
misses one. Two limits are those of the ledger's filter, so they hold for questions that were chosen after reading
answers: [policy] epsilon_total for the site and an asker's own. The third is what the officer approved, the question's
own epsilon. A question is a plan, so its rounds are composed as one: what the asker computed before is what is checked.
"""

import contextlib
import dataclasses
import datetime
import functools
import json
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from blindsight.accounting.events import Event, Relation, Unit, from_json, to_json
from blindsight.errors import BlindsightError, InvalidInput, LedgerError, PrivacyError
from blindsight.fleet.codes import Code, Declined, code_of_failure
from blindsight.fleet.site.book_file import BookFile, JobRecord, jobs_like, last_ruling, record_of, shares_of
from blindsight.fleet.site.diary import Diary
from blindsight.fleet.site.policy import Asked, EpsilonTotals, Ruling, Standing, decide
from blindsight.fleet.site.settings import SiteSettings

if TYPE_CHECKING:  # imported when something is paid: it takes seconds, and reviewing does not need it
    from blindsight.accounting.composition import Share, Split
    from blindsight.accounting.ledger import Entry, Ledger

__all__ = ["Book", "JobRecord"]


class Book:
    """The book in the folder of a site, which the first question creates."""

    def __init__(self, settings: SiteSettings, *, timeout_s: float = 30.0) -> None:
        self.settings = settings
        self.diary = Diary(settings.diary)
        self._timeout_s = timeout_s
        self._file = BookFile(settings.book, timeout_s)

    @functools.cached_property
    def ledger(self) -> "Ledger":
        """The site's ledger."""
        from blindsight.accounting.ledger import Ledger

        return Ledger(self.settings.ledger, timeout_s=self._timeout_s)

    # --- deciding

    def decide(self, asked: Asked, now: datetime.datetime | None = None) -> Ruling:
        """Whether the site answers, as its officer and its policy say; the question is kept. Reads no data.

        Ask again after some time or a restart of the agent, because the policy's answer may have changed.
        A question that cannot be decided, because the disk is full or the ledger damaged, is declined.
        """
        with self._noted(asked):
            return self._decided(asked, now or _now())

    def standing(self, job: str, *, now: datetime.datetime | None = None) -> Ruling:
        """What the last decision on a question means now, by the policy as it is now; the ledger is not read."""
        with self._file.reading() as db:
            return self._standing(db, job, now or _now())

    def _standing(self, db: sqlite3.Connection, job: str, now: datetime.datetime) -> Ruling:
        """The last decision, unless the policy was narrowed since; budgets are checked when the question pays."""
        if last_ruling(db, job) is None:
            return Ruling(Standing.PENDING, Code.pending, "nobody has decided about it")
        record = record_of(db, job)
        if record.ruling.state is not Standing.APPROVED:
            return record.ruling
        asked = dataclasses.replace(record.asked, sent_at=now, received_at=now)  # clocks differ or not by message
        ruling = self._ruling(asked, record.by_hand, EpsilonTotals(), now)
        return record.ruling if ruling.state is Standing.APPROVED else ruling

    def _decided(self, asked: Asked, now: datetime.datetime) -> Ruling:
        spent = self._totals(asked)
        with self._file.writing() as db:
            self._receive(db, asked)
            last = last_ruling(db, asked.job)
            by_hand = last_ruling(db, asked.job, by_hand=True)
            ruling = self._ruling(asked, by_hand and by_hand[0].state, spent, now)
            if by_hand and by_hand[0].state is Standing.DENIED:
                ruling = by_hand[0]
            if last is None or (last[0].state, last[0].code) != (ruling.state, ruling.code):
                self._rule(db, asked, ruling, officer="")
        return ruling

    def _receive(self, db: sqlite3.Connection, asked: Asked) -> None:
        """Keeps a question that is new, and declines another one under the digest of an earlier one."""
        if asked.job not in jobs_like(db, asked.job):
            self.diary.write(f"received {_described(asked)}")
            db.execute("INSERT INTO jobs VALUES (?, ?)", (asked.job, json.dumps(asked.to_dict())))
        known = record_of(db, asked.job).asked
        if dataclasses.replace(known, sent_at=asked.sent_at, received_at=asked.received_at) != asked:
            raise Declined(
                Code.malformed, f"two different questions have the digest {asked.job[:12]}: neither is answered"
            )

    def _ruling(self, asked: Asked, by_hand: Standing | None, spent: EpsilonTotals, now: datetime.datetime) -> Ruling:
        approved = by_hand is Standing.APPROVED
        settings = self.settings
        return decide(settings.policy, asked, clients=settings.site.clients, spent=spent, now=now, approved=approved)

    def approve(self, job: str, *, officer: str) -> JobRecord:
        """The officer approves a waiting question; the limits of the policy still hold."""
        ruling = Ruling(Standing.APPROVED, None, f"approved by {officer}")
        return self._by_hand(job, ruling, officer, {Standing.PENDING})

    def deny(self, job: str, *, officer: str, reason: str) -> JobRecord:
        """The officer denies a question, even an approved one; `reason` stays at the site."""
        if not reason.strip() or not reason.isprintable():
            raise InvalidInput("give the reason in one line, --reason TEXT: it stays at the site")
        ruling = Ruling(Standing.DENIED, Code.not_approved, f"denied by {officer}: {reason.strip()}")
        return self._by_hand(job, ruling, officer, {Standing.PENDING, Standing.APPROVED})

    def _by_hand(self, job: str, ruling: Ruling, officer: str, allowed: set[Standing]) -> JobRecord:
        if not officer.strip() or not officer.isprintable():
            raise InvalidInput(f"name who decides, --officer NAME, got {officer!r}")
        record = self.job(job)
        with self._file.writing() as db:
            last = last_ruling(db, record.asked.job)
            state = last[0].state if last else Standing.PENDING
            if state not in allowed:
                why = f": {last[0].sentence}" if last else ""
                raise InvalidInput(f"question {record.asked.job[:12]} is {state} already{why}; nothing was changed")
            self._rule(db, record.asked, ruling, officer=officer)
        return self.job(record.asked.job)

    def _rule(self, db: sqlite3.Connection, asked: Asked, ruling: Ruling, *, officer: str) -> None:
        who = "the officer" if officer else "the policy"
        self.diary.write(f"{who} says of {asked.job[:12]} that it is {ruling.state}: {ruling.sentence}")
        row = (asked.job, ruling.state.value, ruling.code or "", ruling.sentence, officer, _now().isoformat())
        db.execute("INSERT INTO rulings (job, state, code, sentence, officer, time) VALUES (?, ?, ?, ?, ?, ?)", row)

    # --- paying

    def pay(
        self,
        job: str,
        event: Event,
        *,
        relation: Relation = Relation.ADD_OR_REMOVE,
        split: "Split | None" = None,
        arm: str = "",
        note: str = "",
        is_again: bool = False,
        begin: Callable[[], None] = lambda: None,
        now: datetime.datetime | None = None,
    ) -> "Entry":
        """Pay for what the site is about to contribute to a question; contribute only after this has returned.

        Declines by `budget` what would exceed the question's own epsilon, the site's total or the asker's, and by the
        ruling's code what is not approved (any more). Nothing is paid then.

        Args:
            job: Digest of the question.
            event: What is released.
            relation: Which data sets are neighbours.
            split: The split that `arm` is part of, if the release is about one arm.
            arm: Arm of the split.
            note: What was measured, for the ledger.
            is_again: Whether a process may have paid for just this before it died, and sent nothing: then what was paid
                is enough.
            begin: Called just before it pays, once the question's own epsilon allows it.
            now: The time; by default the clock's.
        """
        from blindsight.accounting.composition import share_of

        asked = self.job(job).asked
        with self._noted(asked):
            share = share_of(event, unit=Unit(asked.unit), relation=relation, split=split, arm=arm)
            with self._file.writing() as db:
                self._check_standing(db, asked, now or _now())
                before = self._entry(asked, share) if is_again else None
                entry = before or self._paid(db, asked, share, split, note, begin)
                if before is None or not shares_of(db, asked.job):
                    self._note_payment(db, asked, share, note, entry)
        total = self.spent()[self.settings.name]
        paid = "had paid" if before else "paid"
        self.diary.write(f"{paid} for {asked.job[:12]} {note or asked.task}: epsilon {total:.4g} is spent in all")
        return entry

    @contextlib.contextmanager
    def _noted(self, asked: Asked) -> Generator[None]:
        """Every refusal as `Declined`, and in the diary, if that can still be written."""
        try:
            yield
        except BlindsightError as error:
            refusal = error if isinstance(error, Declined) else _declined(error, self.settings.state)
            with contextlib.suppress(Declined):  # of a disk that is full
                self.diary.write(f"did not answer {asked.job[:12]} ({refusal.code}): {refusal}")
            raise refusal from error.__cause__

    def _check_standing(self, db: sqlite3.Connection, asked: Asked, now: datetime.datetime) -> None:
        """Declines what is not approved, or no longer, and what comes outside the hours."""
        ruling = self._standing(db, asked.job, now)
        if ruling.state is not Standing.APPROVED:
            raise Declined(ruling.code or Code.pending, ruling.sentence)

    def _paid(
        self,
        db: sqlite3.Connection,
        asked: Asked,
        share: "Share",
        split: "Split | None",
        note: str,
        begin: Callable[[], None],
    ) -> "Entry":
        """The entry in the ledger; the caller's transaction, which adds it to the book, keeps other payers waiting.

        If this process dies between the two, the ledger counts a release that was not made.
        """
        from blindsight.fleet.site import costs

        costs.check_question(asked, [*shares_of(db, asked.job), share])
        begin()
        names = self._names(asked.asker)
        self._set_budgets(asked.asker)
        return self.ledger.record(
            share.event,
            population=names,
            unit=share.unit,
            relation=share.relation,
            split=split,
            arm=share.arm,
            run=asked.job,
            note=note,
        )

    def _entry(self, asked: Asked, share: "Share") -> "Entry | None":
        """The entry of the ledger for this event of a question, if there is one."""
        event = to_json(share.event)
        listed = self.ledger.entries(self.settings.name)
        return next((one for one in listed if (one.kind, one.run, one.event) == ("release", asked.job, event)), None)

    def _note_payment(self, db: sqlite3.Connection, asked: Asked, share: "Share", note: str, entry: "Entry") -> None:
        """The row in the book, and what is spent now."""
        from blindsight.fleet.site import costs

        for name in self._names(asked.asker):
            total = costs.spent(self.ledger, name, self.settings.policy.delta)
            db.execute("INSERT OR REPLACE INTO spent VALUES (?, ?)", (name, total))
        event, terms = to_json(share.event), (share.unit.value, share.relation.value, share.split, share.arm)
        columns = "job, event, unit, relation, split, arm, note, entry, time"
        row = (asked.job, event, *terms, note, entry.hash, entry.time)
        db.execute(f"INSERT INTO payments ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _set_budgets(self, asker: str) -> None:
        """The limits of the policy as the ledger's budgets; each change is an entry of the ledger and a line here."""
        policy = self.settings.policy
        limits = (policy.epsilon_total, policy.limit_of(asker))
        for name, epsilon in zip(self._names(asker), limits, strict=True):
            budget = self.ledger.budget(name)
            if budget is None or (budget.epsilon, budget.delta) != (epsilon, policy.delta):
                self.diary.write(f"set the budget of {name} to epsilon {epsilon:g} at delta {policy.delta:g}")
                self.ledger.set_budget(name, epsilon=epsilon, delta=policy.delta, note="SITE.toml")

    def _names(self, asker: str) -> tuple[str, str]:
        """The names in the ledger under which a payment is recorded: the site's, and the asker's."""
        return self.settings.name, f"{self.settings.name}, asked by {asker}"

    def _totals(self, asked: Asked) -> EpsilonTotals:
        from blindsight.fleet.site import costs

        with self._file.reading() as db:
            is_begun = db.execute("SELECT 1 FROM payments WHERE job = ?", (asked.job,)).fetchone() is not None
        delta = self.settings.policy.delta
        return costs.totals(self.ledger, *self._names(asked.asker), asked, delta=delta, is_begun=is_begun)

    # --- reading

    def jobs(self) -> list[JobRecord]:
        """All questions, oldest first."""
        with self._file.reading() as db:
            return [record_of(db, job) for job in jobs_like(db, "")]

    def job(self, job: str) -> JobRecord:
        """The one question whose digest begins so."""
        with self._file.reading() as db:
            jobs = jobs_like(db, job)
            jobs = [job] if job in jobs else jobs
            if len(jobs) != 1 or not job:
                what = "several questions begin" if jobs and job else "no question begins"
                raise InvalidInput(f"{what} with {job!r}: blindsight site review lists them")
            return record_of(db, jobs[0])

    def spent(self) -> dict[str, float]:
        """Epsilon that was spent under each name when it last paid: to show, since the ledger takes seconds to load."""
        with self._file.reading() as db:
            return {self.settings.name: 0.0, **dict(db.execute("SELECT name, epsilon FROM spent"))}

    def events(self, job: str) -> list[Event]:
        """What was paid for a question, in order."""
        with self._file.reading() as db:
            rows = db.execute("SELECT event FROM payments WHERE job = ? ORDER BY number", (job,)).fetchall()
        return [from_json(event) for (event,) in rows]


def _now() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


def _described(asked: Asked) -> str:
    cost = f"epsilon {asked.epsilon:g} at delta {asked.delta:g} per {asked.unit}"
    return f"the {asked.kind} {asked.job[:12]} ({asked.task}, asked by {asked.asker}, {cost}): {asked.sentence}"


def _declined(error: BlindsightError, state: Path) -> Declined:
    """What the ledger refused, with its code."""
    if isinstance(error, LedgerError):
        return Declined(code_of_failure(error, state), str(error))
    return Declined(Code.budget if isinstance(error, PrivacyError) else Code.malformed, str(error))
