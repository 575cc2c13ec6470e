"""Sites that are lost, restarted or fail in every phase of a sum: the result is exact or refused, and always paid for.

Agents, secure sums and the coordinator's half are real, in threads of one process; the data are a few numbers.
"""

import hashlib
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from agents import LENGTH, Fleet, a_job, caught, fleet

from blindsight.accounting.ledger import Ledger
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet import wire
from blindsight.fleet.carriers.carrier import Delivery
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.noise_shares import NoisedSum, NoiseShares
from blindsight.fleet.opening import open_job
from blindsight.fleet.summing import SiteSum, SumLost
from blindsight.keys import root
from blindsight.mechanisms.release import publish

PHASES = 5  # messages that the coordinator sends each site: the request, then four of the secure sum


def lose(one: Fleet, lost: list[str], phase: int) -> None:
    """Silence these sites just before the coordinator sends the message of a phase."""
    send, sent = one.sites.send, dict.fromkeys(one.desks, 0)

    def counted(site: str, data: bytes) -> None:
        if wire.decode(data)[0]["kind"] in ("sum", "secure"):
            if site in lost and sent[site] == phase:
                one.lines[site].silent.set()
            sent[site] += 1
        send(site, data)

    one.sites.send = counted  # pyright: ignore[reportAttributeAccessIssue]


def check_paid(one: Fleet, number: int, survivors: list[str]) -> None:
    """Every site in a sum has paid for it, and none has paid twice."""
    for name, desk in one.desks.items():
        times = desk.payments.count(str(number))
        assert times <= 1
        assert times == 1 or name not in survivors


@pytest.mark.parametrize("phase", range(PHASES))
def test_a_third_of_the_sites_lost_in_a_phase_leaves_an_exact_sum(tmp_path: Path, phase: int):
    with fleet(tmp_path, 10) as one:
        lost = random.Random(phase).sample(list(one.desks), 3)
        lose(one, lost, phase)
        summing = one.sum()
        summing.collect()
        total, count = summing.total()
        survivors = [name for name in one.desks if name not in summing.missing]
        assert count == len(survivors)
        assert len(survivors) == (7 if phase < 3 else 10)
        assert np.array_equal(total, one.expected(survivors))
        assert set(summing.missing.values()) <= {"silent"}
        check_paid(one, summing.number, survivors)


@pytest.mark.parametrize("phase", range(PHASES))
def test_with_one_site_more_lost_the_sum_is_refused_and_the_next_one_is_another(tmp_path: Path, phase: int):
    with fleet(tmp_path, 4) as one:
        lost = ["site01", "site03"]  # of 4, three are needed
        lose(one, lost, phase)
        summing = one.sum()

        def whole() -> None:
            summing.collect()
            summing.total()

        with pytest.raises(SumLost):
            whole()
        with pytest.raises(BlindsightError):  # nor later
            summing.total()
        for name in lost:
            one.start(name)
        del one.sites.send  # as it was
        again = one.sum()
        again.collect()
        total, count = again.total()
        assert count == 4
        assert np.array_equal(total, one.expected(list(one.desks)))
        check_paid(one, again.number, list(one.desks))
        check_paid(one, summing.number, [])


def restarting(one: Fleet, site: str, phase: int) -> None:
    """Restart a site just before the coordinator sends it the message of a phase."""
    send, sent = one.sites.send, [0]

    def counted(receiver: str, data: bytes) -> None:
        if receiver == site and wire.decode(data)[0]["kind"] in ("sum", "secure"):
            if sent[0] == phase:
                one.start(site)
            sent[0] += 1
        send(receiver, data)

    one.sites.send = counted  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("phase", range(1, PHASES))
def test_a_site_that_restarts_says_so_and_refuses_to_begin_the_same_sum_again(tmp_path: Path, phase: int):
    with fleet(tmp_path, 4) as one:
        restarting(one, "site02", phase)
        summing = one.sum()
        summing.collect()
        total, count = summing.total()  # at once: nobody waited a minute
        survivors = [name for name in one.desks if name not in summing.missing]
        assert count == len(survivors)
        assert np.array_equal(total, one.expected(survivors))
        assert summing.missing == ({"site02": "restarted"} if phase < 3 else {})
        one.sites.send("site02", summing.request)
        answer = next(answer for _ in range(50) if (answer := one.sites.listen(1.0)) is not None)
        while answer.kind == "working":
            answer = one.sites.listen(1.0) or answer
        assert (answer.kind, answer.head["code"]) == ("refused", "malformed")
        assert any("already taken part" in words for words in one.desks["site02"].said)
        check_paid(one, summing.number, survivors)


@pytest.mark.parametrize("is_later", [True, False])
@pytest.mark.parametrize("phase", range(1, PHASES))
def test_two_questions_at_once_do_not_cost_each_other_what_was_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: int, is_later: bool
):
    """Somebody else asks just before a message of a phase: the first sum is whole, or nobody has paid for it."""
    numbers = iter([5, 6 if is_later else 4])
    monkeypatch.setattr("blindsight.fleet.summing.secrets.randbits", lambda bits: next(numbers))
    with fleet(tmp_path, 4) as one:
        summing, other_job = one.sum(), a_job(4, "another run")
        open_job(one.sites, other_job, {}, wait_s=240)
        other = SiteSum(one.sites, other_job, {"step": "two"}, [], length=LENGTH, bits=32, progress=one.hurry)
        send, sent = one.sites.send, dict.fromkeys(one.desks, 0)

        def interrupting(site: str, data: bytes) -> None:
            if wire.decode(data)[0]["kind"] in ("sum", "secure"):
                if sent[site] == phase:
                    send(site, other.request)
                sent[site] += 1
            send(site, data)

        with monkeypatch.context() as patch:
            patch.setattr(one.sites, "send", interrupting)
            if phase < 3 and not is_later:
                assert isinstance(caught(lambda: (summing.collect(), summing.total())), SumLost)
                check_paid(one, summing.number, [])
            else:
                summing.collect()
                total, count = summing.total()
                assert count == 4
                assert np.array_equal(total, one.expected(list(one.desks)))
        other.collect()
        assert np.array_equal(other.total()[0], one.expected(list(one.desks), "two"))
        check_paid(one, other.number, list(one.desks))


def test_a_part_that_fails_is_a_code_there_and_words_here(tmp_path: Path):
    with fleet(tmp_path, 5) as one:
        one.desks["site01"].problem = Declined(Code.wrong_columns, "patients.csv has no column 'age'")
        summing = one.sum()
        summing.collect()
        total, _ = summing.total()
        assert summing.missing == {"site01": "wrong_columns"}
        assert np.array_equal(total, one.expected([name for name in one.desks if name != "site01"]))
        assert any("has no column 'age'" in words for words in one.desks["site01"].said)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OSError(28, "No space left on device"), "disk_full"),
        (PermissionError(13, "Permission denied"), "io_error"),
        (RuntimeError("out of memory while compiling"), "io_error"),
        (SystemExit(3), "io_error"),
    ],
)
def test_an_agent_outlives_whatever_its_work_raises(tmp_path: Path, problem: Exception, code: str):
    with fleet(tmp_path, 4) as one:
        one.desks["site00"].problem = problem
        first = one.sum()
        first.collect()
        first.total()
        assert first.missing == {"site00": code}
        one.desks["site00"].problem = None
        second = one.sum("two")
        second.collect()
        assert np.array_equal(second.total()[0], one.expected(list(one.desks), "two"))


def test_a_site_that_still_computes_an_earlier_part_is_waited_for(tmp_path: Path):
    with fleet(tmp_path, 4) as one:
        computing = one.desks["site00"].wait = threading.Event()
        one.sites.send("site00", one.sum().request)  # by a coordinator that died

        def waits(waiting: set[str]) -> None:
            if waiting == {"site00"}:
                one.clock.ahead_s += 5.0
                if one.clock.ahead_s > 2 * one.sites.patience.silence_s:
                    computing.set()

        summing = one.sum("two", progress=waits)
        summing.collect()
        total, count = summing.total()
        assert count == 4
        assert np.array_equal(total, one.expected(list(one.desks), "two"))


def test_a_site_that_was_silent_is_soon_given_up_and_heard_again_when_it_is_back(tmp_path: Path):
    with fleet(tmp_path, 4) as one:
        one.lines["site03"].silent.set()
        ahead_s = []
        for step in ("one", "two"):
            before, summing = one.clock.ahead_s, one.sum(step)
            summing.collect()
            assert summing.total()[1] == 3
            assert summing.missing == {"site03": "silent"}
            ahead_s.append(one.clock.ahead_s - before)
        assert ahead_s[1] <= 10.0 < ahead_s[0]
        one.start("site03")
        summing = one.sum("three")
        summing.collect()
        assert summing.total()[1] == 4


def test_at_most_a_few_parts_are_on_their_way_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("blindsight.fleet.summing._IN_MEMORY", 3 * LENGTH * 4)
    with fleet(tmp_path, 10) as one:
        most, open_now, send, listen = [0], set[str](), one.sites.send, one.sites.listen

        def sending(site: str, data: bytes) -> None:
            head, blobs = wire.decode(data)
            if head["kind"] == "secure" and blobs[0][4] == 4:  # a DELIVERY: its answer is the part
                open_now.add(site)
                most[0] = max(most[0], len(open_now))
            send(site, data)

        def listening(seconds: float):
            answer = listen(seconds)
            if answer is not None and answer.kind == "part" and answer.blobs[0][4] == 5:
                open_now.discard(answer.site)
            return answer

        one.sites.send, one.sites.listen = sending, listening
        summing = one.sum()
        summing.collect()
        assert summing.total()[1] == 10
        assert most[0] == 3


# --- a coordinator that deviates


def ask(one: Fleet, site: str, head: dict, blobs: tuple[bytes, ...] = ()) -> dict:
    """The answer of a site to any message, its signs of life left out."""
    one.sites.send(site, wire.encode(head, blobs))
    for _ in range(100):
        answer = one.sites.listen(0.2)
        if (
            answer is not None
            and answer.site == site
            and answer.kind != "working"
            and answer.head.get("state") != "deciding"
        ):
            return dict(answer.head)
    raise AssertionError("no answer")


def changed(one: Fleet, **changes: object) -> dict:
    return {"kind": "job", "job": {**one.job.to_dict(), **changes}, "sent_at": "2026-03-01T00:00:00+00:00"}


JOBS: dict[str, tuple[Callable[[Fleet], dict], str, str]] = {
    "lower fewest": (lambda one: changed(one, fewest=2), "malformed", "at least 3 must be in a sum"),
    "another roster": (lambda one: changed(one, clients={"site00": 10, "eve": 9, "f": 9, "g": 9}), "malformed", "rost"),
    "other counts": (
        lambda one: changed(one, clients={**one.job.clients, "site00": 11}),
        "malformed",
        "not those of this site's roster",
    ),
    "old protocol": (lambda one: changed(one, protocol=0), "version", "protocol 0"),
    "another form": (lambda one: changed(one, protocol=0, more=3), "version", "cannot be read"),
    "an input of another name": (
        lambda one: changed(one, inputs={"../key": "0" * 64}),
        "malformed",
        "model, reference",
    ),
    "no job": (lambda one: {**changed(one), "job": [3]}, "malformed", "cannot be read"),
    "two sites": (lambda one: changed(one, clients={"site00": 10, "site01": 10}), "malformed", "needs 3 sites"),
}


@pytest.mark.parametrize("what", JOBS)
def test_a_job_that_no_site_may_take_is_refused_by_a_code(tmp_path: Path, what: str):
    make, code, words = JOBS[what]
    with fleet(tmp_path, 4) as one:
        answer = ask(one, "site00", make(one))
        assert (answer["state"], answer["code"]) == ("refused", code)
        assert any(words in line for line in one.desks["site00"].said)
        assert ask(one, "site00", {"kind": "ping"})["refused"] == code
        assert one.desks["site00"].payments == []


def test_an_input_that_is_too_large_is_refused_as_such_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("blindsight.fleet.site.job_files.LARGEST_INPUT", 99)
    model = bytes(100)
    with fleet(tmp_path, 3) as one:
        asked = changed(one, inputs={"model": hashlib.sha256(model).hexdigest()})
        answer = ask(one, "site00", asked)
        assert (answer["state"], answer["needs"]) == ("lacking", ["model"])
        answer = ask(one, "site00", {"kind": "input", "id": answer["id"], "name": "model"}, (model,))
        assert (answer["state"], answer["code"]) == ("refused", "too_large")
        assert any("model has 100 bytes" in words for words in one.desks["site00"].said)
        assert not list((tmp_path / "site00/jobs").glob("*/*input*"))


def test_an_input_that_would_fill_the_disk_is_refused_and_one_of_a_refused_job_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Anybody who asks may send half a gigabyte before anybody has approved anything."""
    model = bytes(100)
    with fleet(tmp_path, 3) as one:
        asked = changed(one, inputs={"model": hashlib.sha256(model).hexdigest()})
        digest = ask(one, "site00", asked)["id"]
        sent = {"kind": "input", "id": digest, "name": "model"}
        with monkeypatch.context() as patch:
            patch.setattr("blindsight.fleet.site.job_files._SPARE", 1 << 60)
            assert ask(one, "site00", sent, (model,))["code"] == "disk_full"
        assert ask(one, "site00", asked)["state"] == "lacking"
        assert ask(one, "site00", sent, (model,))["state"] == "approved"
        assert list((tmp_path / "site00/jobs" / digest).glob("input*"))
        one.desks["site00"].approves = False
        assert ask(one, "site00", asked)["code"] == "not_approved"
        assert not list((tmp_path / "site00/jobs" / digest).glob("input*"))


def test_what_no_site_accepts_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("blindsight.fleet.opening.LARGEST_INPUT", 99)
    with fleet(tmp_path, 3, opened=False) as one, pytest.raises(InvalidInput, match="the model has 100 bytes"):
        open_job(one.sites, one.job, {"model": bytes(100)}, wait_s=0)


NONSENSE = [
    {"kind": ["job"]},
    {"kind": {"job": 1}},
    {"kind": "sum"},
    {"kind": "sum", "job": "../../etc/passwd", "sum": 1},
    {"kind": "sum", "job": "0" * 64, "sum": 1.5},
    {"kind": "secure", "sum": 3},
    {"kind": "input", "id": "x", "name": ["y"]},
    {"kind": "job", "sent_at": 3},
    {},
]


@pytest.mark.parametrize("head", NONSENSE)
def test_an_agent_outlives_nonsense(tmp_path: Path, head: dict):
    with fleet(tmp_path, 3) as one:
        for data in (wire.encode(head), wire.encode(head, [b"x"]), b"BSF1", b""):
            one.sites.send("site00", data)
        while ask(one, "site00", {"kind": "ping"})["kind"] != "pong":
            pass


def test_a_site_whose_disk_is_full_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with fleet(tmp_path, 3, opened=False) as one:

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(one.desks["site01"], "decide", full)
            answer = ask(one, "site01", {**changed(one)})
            assert (answer["state"], answer["code"]) == ("refused", "disk_full")
        assert open_job(one.sites, one.job, {}, wait_s=30) == {}


def test_sites_that_were_sent_different_bytes_are_not_summed(tmp_path: Path):
    with fleet(tmp_path, 4) as one:
        lied_to, summing, send = "site02", one.sum(), one.sites.send

        def lying(site: str, data: bytes) -> None:
            head, blobs = wire.decode(data)
            if site == lied_to and head["kind"] == "sum":
                data = wire.encode({**head, "step": "two"}, blobs)
            send(site, data)

        one.sites.send = lying
        summing.collect()
        total, _ = summing.total()
        assert summing.missing == {lied_to: "malformed"}
        assert np.array_equal(total, one.expected([name for name in one.desks if name != lied_to]))
        assert one.desks[lied_to].payments == []


def test_a_site_sums_only_what_the_coordinator_announced(tmp_path: Path):
    with fleet(tmp_path, 3) as one:
        error = caught(one.sum(length=LENGTH + 1).collect)
        assert isinstance(error, SumLost)
        assert "malformed" in str(error)
        assert [desk.payments for desk in one.desks.values()] == [[], [], []]


def test_nobody_but_the_coordinator_is_answered(tmp_path: Path):
    with fleet(tmp_path, 3) as one:
        one.exchange.pass_on("site00", Delivery("site01", wire.encode(changed(one, version="0.0.1"))))
        assert ask(one, "site00", {"kind": "ping"}) == ask(one, "site00", {"kind": "ping"})
        assert one.desks["site00"].said == []


def test_an_unapproved_job_gives_no_part(tmp_path: Path):
    with fleet(tmp_path, 3) as one:
        one.desks["site01"].approves = False
        error = caught(one.sum().collect)
        assert isinstance(error, SumLost)
        assert "site01 (not_approved)" in str(error)
        assert a_job(3).digest == one.job.digest


# --- the coordinator's own ledger


def test_the_ledger_has_paid_before_a_sum_is_unmasked_and_pays_again_for_another_attempt(tmp_path: Path):
    shares = NoiseShares(noise_multiplier=1.0, sites=4, fewest=3, colluding=1, clients=40)
    ledger, like = Ledger(tmp_path / "ledger.db"), np.zeros(LENGTH, np.float32)
    paid_when_unmasked = list[int]()

    def attempt(one: Fleet, *, fails: bool) -> None:
        summing = one.sum()
        summing.collect()

        def unmasked() -> tuple[np.ndarray, int]:
            paid_when_unmasked.append(sum(entry.kind == "release" for entry in ledger.entries("hospitals")))
            if fails:
                for name in ("site00", "site01"):
                    one.lines[name].silent.set()
            return summing.total()

        grid = shares.grid(1.0)
        total = NoisedSum(
            identity=f"run {summing.number}", unmasked=unmasked, like=like, l2_bound=1.0, n_expected=40.0, grid=grid
        )
        publish(shares, cast(Any, total), key=root(), ledger=ledger, population="hospitals")

    with fleet(tmp_path, 4) as one:
        with pytest.raises(SumLost):
            attempt(one, fails=True)
        for name in ("site00", "site01"):
            one.start(name)
        attempt(one, fails=False)
        assert paid_when_unmasked == [1, 2]
        assert [len(desk.payments) for desk in one.desks.values()] == [2, 2, 2, 2]
