"""The book of a site: what is approved, what is paid, and that neither is ever short or read from data."""

import contextlib
import dataclasses
import datetime
import os
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from site_folder import NOW, asked, site_folder
from small_disk import fill, mounted

from blindsight.accounting.composition import Split
from blindsight.accounting.events import Event, Gaussian, NonPrivate, Poisson, PureDP, Repeated
from blindsight.accounting.planning import solve_noise
from blindsight.errors import InvalidInput
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.site.book import Book
from blindsight.fleet.site.policy import AskerLimit, Standing

NIGHT = NOW.replace(hour=3)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: a killed process leaves the same behind."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def noise(epsilon: float, rounds: int = 1) -> Gaussian:
    """The noise of each of so many rounds that cost `epsilon` together."""
    return Gaussian(solve_noise(lambda z: Repeated(Gaussian(z), rounds), epsilon=epsilon, delta=1e-6))


def approved(book: Book, name: str = "first", now: datetime.datetime = NOW, **changes: Any) -> str:
    """The digest of a question that the officer approved."""
    question = asked(name, **changes)
    assert book.decide(question, now).state is Standing.PENDING
    book.approve(question.job, officer="W")
    assert book.decide(question, now).state is Standing.APPROVED
    return question.job


def declined(book: Book, job: str, event: Event, **options: Any) -> Code:
    """The code with which a payment is declined; nothing is in the ledger or in the book for it."""
    before = book.ledger.entries(), book.events(job)
    with pytest.raises(Declined) as refused:
        book.pay(job, event, now=options.pop("now", NOW), **options)
    releases = [entry for entry in book.ledger.entries() if entry.kind == "release"]
    assert (releases, book.events(job)) == ([entry for entry in before[0] if entry.kind == "release"], before[1])
    assert f"({refused.value.code}): {refused.value}" in book.diary.lines()[-1].what
    return refused.value.code


# --- who approves


def test_a_question_waits_is_approved_and_paid_for_and_all_of_it_is_in_the_diary(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    job = approved(book)
    entry = book.pay(job, noise(1.0), note="cues", now=NOW)
    assert (entry.run, entry.note, book.job(job).payments, book.events(job)) == (job, "cues", 1, [noise(1.0)])
    assert [one.population for one in book.ledger.entries() if one.kind == "release"] == [
        "north",
        "north, asked by anna",
    ]
    assert book.spent()["north"] == pytest.approx(book.ledger.adaptive_epsilon("north")) == pytest.approx(1.0, rel=1e-3)
    words = [line.what for line in book.diary.lines()]
    for place, start in enumerate(("received the question", "the policy says", "the officer says", "set the budget")):
        assert words[place].startswith(start)
    assert words[-1].startswith(f"paid for {job[:12]} cues: epsilon 1")


def test_what_was_decided_is_known_after_a_restart(tmp_path: Path):
    settings = site_folder(tmp_path)
    job = approved(Book(settings))
    again = Book(settings)
    assert again.decide(asked(), NOW).state is Standing.APPROVED
    assert len(again.diary.lines()) == len(Book(settings).diary.lines())  # nothing new was decided
    again.pay(job, noise(1.0), now=NOW)
    again.deny(job, officer="W", reason="the study is over")
    assert Book(settings).decide(asked(), NOW).code is Code.not_approved
    assert declined(Book(settings), job, Gaussian(1000.0)) is Code.not_approved


def test_an_officer_decides_once_and_says_why(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    job = approved(book)
    for wrong in (
        lambda: book.approve(job, officer="W"),
        lambda: book.deny(job, officer="W", reason=" "),
        lambda: book.deny(job, officer="W", reason="two\nlines"),
        lambda: book.deny(job, officer="", reason="late"),
        lambda: book.approve("0" * 64, officer="W"),
        lambda: book.approve("", officer="W"),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    record = book.deny(job[:8], officer="Dr. Weiss", reason="late")
    assert (record.ruling.code, record.officer) == (Code.not_approved, "Dr. Weiss")
    assert record.ruling.sentence == "denied by Dr. Weiss: late"
    with pytest.raises(InvalidInput, match="denied already"):
        book.approve(job, officer="W")


def test_an_officer_cannot_approve_what_the_policy_denies(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    question = asked(task="mistakes")
    assert book.decide(question, NOW).code is Code.task
    with pytest.raises(InvalidInput, match="denied already"):
        book.approve(question.job, officer="W")


def test_a_stricter_policy_holds_for_what_was_approved_before(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    job = approved(book)
    stricter = dataclasses.replace(book.settings.policy, epsilon_per_question=0.5)
    book = Book(dataclasses.replace(book.settings, policy=stricter))
    assert book.decide(asked(), NOW).code is Code.policy
    assert declined(book, job, noise(0.1)) is Code.policy


NARROWED: dict[str, tuple[dict[str, Any], Code]] = {
    "another task": ({"tasks": ("sanity",)}, Code.task),
    "other askers": ({"askers": {"bert": AskerLimit(epsilon_total=1.0)}}, Code.policy),
    "less for one question": ({"epsilon_per_question": 0.5}, Code.policy),
    "a smaller delta": ({"delta": 1e-7}, Code.policy),
    "more clients": ({"least_clients": 41}, Code.too_few_clients),
    "more colluding sites": ({"colluding": 2}, Code.policy),
}


@pytest.mark.parametrize("what", NARROWED)
def test_a_narrowed_policy_stops_an_approved_question_although_nobody_asks_for_a_decision(tmp_path: Path, what: str):
    """A coordinator that asks for the next sum at once, and not again whether it may: the agent was restarted."""
    changes, code = NARROWED[what]
    book = Book(site_folder(tmp_path))
    job = approved(book, rounds=2)
    book.pay(job, Gaussian(1000.0), now=NOW)
    narrowed = dataclasses.replace(book.settings.policy, **changes)
    book = Book(dataclasses.replace(book.settings, policy=narrowed))
    assert book.standing(job, now=NOW).code is code
    assert declined(book, job, Gaussian(1000.0)) is code


def test_a_site_that_begins_to_approve_by_hand_asks_its_officer_about_what_the_policy_approved(tmp_path: Path):
    book = Book(site_folder(tmp_path, 'approve = "automatically"'))
    job = asked(rounds=2).job
    assert book.decide(asked(rounds=2), NOW).state is Standing.APPROVED
    by_hand = dataclasses.replace(book.settings.policy, approve="by hand")
    book = Book(dataclasses.replace(book.settings, policy=by_hand))
    assert book.standing(job, now=NOW).state is Standing.PENDING
    assert declined(book, job, Gaussian(1000.0)) is Code.pending
    assert book.decide(asked(rounds=2), NOW).state is Standing.PENDING
    book.approve(job, officer="W")
    book.pay(job, Gaussian(1000.0), now=NOW)


def test_two_questions_under_one_digest_are_declined(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    approved(book)
    with pytest.raises(Declined) as refused:
        book.decide(asked(epsilon=1.5), NOW)
    assert refused.value.code is Code.malformed
    later: dict[str, Any] = {
        "sent_at": NOW + datetime.timedelta(hours=2),
        "received_at": NOW + datetime.timedelta(hours=2),
    }
    assert book.decide(asked(**later), NOW).state is Standing.APPROVED  # the same one, asked again


def test_a_site_that_approves_automatically_needs_no_officer(tmp_path: Path):
    book = Book(site_folder(tmp_path, 'approve = "automatically"'))
    assert book.decide(asked(), NOW).state is Standing.APPROVED
    book.pay(asked().job, noise(1.0), now=NOW)
    assert not any(record.waits for record in book.jobs())


def test_a_clock_that_is_an_hour_off_is_declined_until_it_is_right(tmp_path: Path):
    book = Book(site_folder(tmp_path, 'approve = "automatically"'))
    an_hour = NOW + datetime.timedelta(hours=1)
    assert book.decide(asked(received_at=an_hour), an_hour).code is Code.clock
    assert declined(book, asked().job, noise(0.1)) is Code.clock
    assert "differ by 60 minutes" in book.jobs()[0].ruling.sentence
    assert book.decide(asked(sent_at=an_hour, received_at=an_hour), an_hour).state is Standing.APPROVED


def test_outside_its_hours_a_site_neither_begins_nor_goes_on(tmp_path: Path):
    book = Book(site_folder(tmp_path, 'approve = "automatically"\nhours = "08:00-18:00"'))
    question = asked(rounds=2)
    assert book.decide(question, NIGHT).code is Code.pending
    assert declined(book, question.job, Gaussian(1000.0), now=NIGHT) is Code.pending
    assert book.decide(question, NOW).state is Standing.APPROVED
    book.pay(question.job, Gaussian(1000.0), now=NOW)
    assert declined(book, question.job, Gaussian(1000.0), now=NIGHT) is Code.pending
    book.pay(question.job, Gaussian(1000.0), now=NOW)


# --- what it costs


def test_a_question_cannot_cost_more_than_was_approved(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    job, one = approved(book, rounds=3), noise(1.0, rounds=3)
    for _ in range(3):  # the plan of the asker fits to the last round
        book.pay(job, one, now=NOW)
    assert declined(book, job, one) is Code.budget
    assert declined(book, approved(book, "second"), noise(1.01)) is Code.budget


@pytest.mark.parametrize("event", [NonPrivate(), PureDP(8.0), Poisson(0.5, Gaussian(0.4))])
def test_what_costs_more_or_cannot_be_counted_is_declined(tmp_path: Path, event: Event):
    book = Book(site_folder(tmp_path))
    assert declined(book, approved(book), event) is Code.budget


def test_the_total_holds_over_questions(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    jobs = [approved(book, str(number), epsilon=2.0) for number in range(5)]  # each alone would fit
    for job in jobs[:3]:
        book.pay(job, noise(2.0), now=NOW)
    assert declined(book, jobs[3], noise(2.0)) is Code.budget
    answer = book.decide(asked("late", epsilon=2.0), NOW)
    assert (answer.state, answer.code) == (Standing.DENIED, Code.budget)
    assert book.ledger.adaptive_epsilon("north") <= 4.0
    assert book.decide(asked("4", epsilon=2.0), NOW).code is Code.budget  # which was approved before


def test_a_question_that_has_begun_is_not_counted_twice(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    job = approved(book, "long", epsilon=2.0, rounds=2)
    approved(book, "other", epsilon=2.0)
    book.pay(job, noise(2.0, rounds=2), now=NOW)
    book.pay(asked("other").job, noise(2.0), now=NOW)
    assert book.decide(asked("long", epsilon=2.0, rounds=2), NOW).state is Standing.APPROVED
    book.pay(job, noise(2.0, rounds=2), now=NOW)


def test_an_asker_has_a_total_of_their_own(tmp_path: Path):
    book = Book(site_folder(tmp_path, "askers = {anna = {epsilon_total = 1.5}, bert = {epsilon_total = 9}}"))
    first, second = (approved(book, name) for name in ("first", "second"))
    book.pay(first, noise(1.0), now=NOW)
    assert declined(book, second, noise(1.0)) is Code.budget
    assert book.decide(asked("second"), NOW).code is Code.budget
    book.pay(approved(book, "third", asker="bert"), noise(1.0), now=NOW)
    assert book.decide(asked("fourth", asker="eve"), NOW).code is Code.policy
    assert set(book.spent()) == {"north", "north, asked by anna", "north, asked by bert"}


def test_limits_in_the_ledger_follow_the_policy(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    book.pay(approved(book), Gaussian(1000.0), now=NOW)
    policy = dataclasses.replace(book.settings.policy, epsilon_total=5.0)
    book = Book(dataclasses.replace(book.settings, policy=policy))
    book.pay(asked().job, Gaussian(1000.0), now=NOW)
    budgets = [book.ledger.budget(name) for name in ("north", "north, asked by anna")]
    assert [budget and budget.epsilon for budget in budgets] == [5.0, 5.0]
    assert any("set the budget of north to epsilon 5" in line.what for line in book.diary.lines())


def test_arms_that_share_no_client_cost_as_much_as_one(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    job, split = approved(book, rounds=2), Split("halves", "by accuracy", ("low", "high"))
    for arm in split.arms:
        book.pay(job, noise(1.0), split=split, arm=arm, now=NOW)
    assert declined(book, job, noise(1.0), split=split, arm="low") is Code.budget
    assert book.spent()["north"] == pytest.approx(1.0, rel=1e-3)


def test_a_question_about_examples_cannot_be_added_to_those_about_clients(tmp_path: Path):
    book = Book(site_folder(tmp_path))
    book.pay(approved(book), Gaussian(1000.0), now=NOW)
    assert declined(book, approved(book, "other", unit="example"), Gaussian(1000.0)) is Code.budget


def test_processes_that_pay_at_once_share_every_limit(tmp_path: Path, run_child: Callable[..., Any]):
    one = noise(2.0, rounds=5).noise_multiplier
    granted = list[int]()
    for processes in (1, 5):
        (folder := tmp_path / str(processes)).mkdir()
        book = Book(site_folder(folder))
        for name in "abcd":
            approved(book, name, epsilon=2.0, rounds=5)
        result = run_child("race", folder=str(folder), questions=[*"abcd"], processes=processes, noise=one)
        assert result["crashed"] == 0
        assert result["granted"] == sum(record.payments for record in book.jobs())
        assert [record.payments for record in book.jobs()][:3] == [5, 5, 5]
        assert book.ledger.adaptive_epsilon("north") <= 4.0
        assert book.ledger.verify().ok
        assert book.diary.verify().ok
        granted.append(result["granted"])
    assert granted[0] == granted[1] < 20


# --- what happens to it


@pytest.mark.parametrize("kills", [12, pytest.param(120, marks=pytest.mark.slow)])
def test_killed_at_random_points_nothing_left_that_was_not_paid_for(
    tmp_path: Path, kills: int, run_child: Callable[..., Any]
):
    site_folder(tmp_path, **{"epsilon_total = 4.0": "epsilon_total = 100.0"})
    result = run_child("killed_while_paying", folder=str(tmp_path), kills=kills, seed=random.randrange(2**32))
    assert result["entries"] >= result["values"] > kills
    for place in ("ledger", "book", "diary"):
        assert result[f"not in the {place}"] == 0, result
    assert result["ledger is intact"]
    assert result["diary is intact"]


@pytest.mark.parametrize("dies", ["before it pays", "between ledger and book", "after it has paid"])
def test_what_was_paid_for_before_a_kill_and_never_sent_is_not_paid_for_twice(tmp_path: Path, monkeypatch, dies: str):
    """As the whole of a training run, which is paid for before its first sum: paid twice, it would cost too much."""
    settings = site_folder(tmp_path)
    book, whole = Book(settings), noise(1.0)
    job = approved(book, epsilon=1.0)

    class Killed(BaseException): ...

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, contextlib.suppress(Killed):
        if dies != "after it has paid":
            patch.setattr(Book, "_paid" if dies.startswith("before") else "_note_payment", die)
        book.pay(job, whole, note="run", now=NOW)
    again = Book(settings)
    again.pay(job, whole, note="run", is_again=True, now=NOW)
    paid = [entry.population for entry in again.ledger.entries() if entry.kind == "release"]
    assert paid == ["north", "north, asked by anna"]
    assert (again.job(job).payments, again.events(job)) == (1, [whole])
    assert again.spent()["north"] == pytest.approx(1.0, rel=1e-3)
    begun = list[str]()
    more = {"begin": lambda: begun.append("a count")}
    assert declined(again, job, whole, **more) is Code.budget, "whoever sent something pays for more"
    assert begun == [], "and what would count it does not begin"
    assert declined(again, job, Gaussian(0.9 * whole.noise_multiplier), is_again=True) is Code.budget


def test_the_test_above_would_see_a_contribution_before_its_payment(tmp_path: Path, run_child: Callable[..., Any]):
    site_folder(tmp_path, **{"epsilon_total = 4.0": "epsilon_total = 100.0"})
    result = run_child("killed_while_paying", folder=str(tmp_path), kills=12, seed=1, value_first=True)
    assert sum(result[f"not in the {place}"] for place in ("ledger", "book", "diary")) > 0


def test_on_a_full_disk_nothing_is_decided_or_paid_and_nothing_is_lost(tmp_path: Path):
    with mounted(tmp_path / "small") as folder:
        book = Book(site_folder(folder))
        job = approved(book, rounds=9)
        book.pay(job, Gaussian(1000.0), now=NOW)
        ballast = fill(folder)
        codes = set[Code]()
        for number in range(3):
            with pytest.raises(Declined) as refused:
                book.pay(job, Gaussian(1000.0), now=NOW)
            codes.add(refused.value.code)
            with pytest.raises(Declined) as refused:
                book.decide(asked(f"new {number}"), NOW)
            codes.add(refused.value.code)
        assert codes == {Code.disk_full}
        ballast.unlink()
        assert book.job(job).payments == 1
        assert len(book.jobs()) == 1
        book.pay(job, Gaussian(1000.0), now=NOW)
        assert book.ledger.verify().ok
        assert book.diary.verify().ok


def test_a_limit_on_file_sizes_is_like_a_full_disk(tmp_path: Path, run_child: Callable[..., Any]):
    site_folder(tmp_path)
    result = run_child("limited", folder=str(tmp_path))
    assert result["codes"] == ["disk_full"]
    assert result["entries"] >= result["paid"] >= 2
    assert result["diary"]


def test_a_book_that_is_locked_damaged_or_newer_declines(tmp_path: Path):
    settings = site_folder(tmp_path)
    book = Book(settings, timeout_s=0.05)
    job = approved(book)
    with closing(sqlite3.connect(settings.book, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert declined(book, job, Gaussian(1000.0)) is Code.busy
        db.execute("ROLLBACK")
        for statement in ("DELETE FROM rulings", "UPDATE payments SET event = ''", "UPDATE jobs SET asked = ''"):
            if "payments" not in statement:
                with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                    db.execute(statement)
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(Declined, match="newer Blindsight"):
        book.pay(job, Gaussian(1000.0), now=NOW)
    settings.book.write_bytes(b"not a database" * 1000)
    with pytest.raises(Declined) as refused:
        book.decide(asked(), NOW)
    assert refused.value.code is Code.io_error
    assert "did not answer" in book.diary.lines()[-1].what


def test_a_decision_reads_no_data(tmp_path: Path, run_child: Callable[..., Any]):
    hours = 'hours = "08:00-18:00"\naskers = {anna = {epsilon_total = 4}}'
    for really in (False, True):
        (folder := tmp_path / str(really)).mkdir()
        site_folder(folder, hours)
        result = run_child("opened", folder=str(folder), really=really)
        assert {"SITE.toml", "state/book.db", "state/diary.jsonl"} <= set(result["opened"])
        assert ("patients.csv" in result["opened"]) == really
        strangers = [one for one in result["opened"] if not one.startswith(("state", "SITE.toml"))]
        assert strangers == ["patients.csv"] * really
        denied = {"task", "policy", "clock", "pending", "not_approved", "budget"}
        assert set(result["codes"]) == denied | {"approved"}
