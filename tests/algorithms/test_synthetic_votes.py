"""Aggregation by synthetic examples and votes: who fails is named, what is private is paid for, no raw row leaves."""

import dataclasses
import importlib
import math
import multiprocessing
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight import keys
from blindsight.accounting import accountants
from blindsight.accounting.events import Composed, Gaussian, NonPrivate, Relation, Unit, from_json
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.parties import processes, wire
from blindsight.algorithms.parties.party import PartySession
from blindsight.algorithms.synthetic_votes import Aggregated, NoisyVotes, aggregate, majority, share_noise
from blindsight.errors import InvalidInput
from blindsight.mechanisms.argmax import UNDECIDED, NoisyArgmax

sys.path.insert(0, str(Path(__file__).parent))  # processes import the parties by name
some: Any = importlib.import_module("some_parties")

KEY = keys.reproducible(1)


def run(parties: Any, **changes: Any) -> Aggregated:
    settings: dict[str, Any] = {"classes": some.CLASSES, "shape": (4,), "samples": 50, "train": some.Nearest()}
    settings |= {"delta": 1e-5, "key": KEY, "processes": False, "timeout_s": 60.0}
    return aggregate(parties, **settings | changes)


def three(folder: Path, *others: Any, **changes: Any) -> list[Any]:
    return [some.party(number, folder, **changes) for number in range(3)] + list(others)


def accuracy(found: Aggregated) -> float:
    rows, labels = some.blobs(99)
    return float(np.mean(found.predict(rows) == labels))


# The rule.


def test_the_margin_rule_of_the_paper():
    votes = np.array([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 2], [0, 1, 1, 0], [0, 1, 2, 2]])
    assert majority(votes, 3).tolist() == [0, UNDECIDED, UNDECIDED, UNDECIDED]
    assert majority(votes, 3, margin=0).tolist() == [0, 0, UNDECIDED, UNDECIDED]


def test_two_noises_cost_what_was_asked_for_together():
    for voter in (0.2, 0.5, 0.9):
        generator_noise, voter_noise = share_noise(epsilon=2.0, delta=1e-5, voter=voter)
        together = Composed((Gaussian(generator_noise), Gaussian(voter_noise)))
        assert 1.99 < accountants.epsilon(together, 1e-5).epsilon <= 2.0
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        share_noise(epsilon=1.0, delta=1e-5, voter=1.0)


# What it costs.


def test_a_global_model_from_private_parties(tmp_path: Path):
    found = run(three(tmp_path))
    assert accuracy(found) > 0.95
    assert found.generated == 150
    assert 0 < len(found.labels) == len(found.inputs) <= 150
    assert found.failures == {}
    one = accountants.epsilon(Gaussian(2.0), 1e-5).epsilon
    assert found.guarantee.epsilon == pytest.approx(one)  # disjoint parties: not three times
    assert found.guarantee.unit is Unit.EXAMPLE
    assert "no two parties hold the same example" in found.guarantee.assumptions
    assert any("whether and when a party answers" in line for line in found.guarantee.assumptions)
    assert set(found.parties) == {"party-0", "party-1", "party-2"}


def test_the_worst_party_speaks_for_all(tmp_path: Path):
    dear = some.GivenGenerator(draw=some.draw, event=Gaussian(0.5))
    found = run([*three(tmp_path)[:2], some.party(2, tmp_path, generator=dear)])
    assert found.guarantee.epsilon == pytest.approx(accountants.epsilon(Gaussian(0.5), 1e-5).epsilon)
    assert found.parties["party-0"].epsilon < found.guarantee.epsilon


def test_what_was_spent_before_on_the_same_examples_counts(tmp_path: Path):
    run(three(tmp_path))
    again = run(three(tmp_path))
    twice = Composed((Gaussian(2.0), Gaussian(2.0)))
    assert again.guarantee.epsilon == pytest.approx(accountants.epsilon(twice, 1e-5).epsilon)


def test_a_model_of_raw_data_does_not_vote_unless_that_is_paid_for_or_asked_for(tmp_path: Path):
    with pytest.raises(InvalidInput, match="votes would reveal them"):
        run(three(tmp_path, voter=some.RAW))
    assert not any(NonPrivate() == from_json(e.event) for e in Ledger(tmp_path / "party-0.db").entries())


def test_unprotected_votes_have_no_guarantee(tmp_path: Path):
    found = run(three(tmp_path, voter=some.RAW), votes="unprotected")
    assert accuracy(found) > 0.95
    assert math.isinf(found.guarantee.epsilon)
    assert "no privacy guarantee" in str(found.guarantee)


def test_noisy_votes_are_in_every_partys_ledger_before_they_leave(tmp_path: Path):
    votes = NoisyVotes(epsilon=3.0, delta=1e-5)
    found = run(three(tmp_path, voter=some.RAW), votes=votes, margin=0)
    mechanism = votes.mechanism(150, 2, margin=0)
    for number in range(3):
        entries = [from_json(e.event) for e in Ledger(tmp_path / f"party-{number}.db").entries()]
        assert len(entries) == 2
        cost: Any = entries[1]
        assert cost.noise_multiplier == mechanism.mechanism.noise_multiplier
        assert cost.reproducible  # the count's key is
    assert accountants.epsilon(mechanism.planned_event, 1e-5).epsilon <= 3.0
    together = Composed((Gaussian(2.0), mechanism.planned_event))
    assert found.guarantee.epsilon == pytest.approx(accountants.epsilon(together, 1e-5).epsilon, rel=1e-6)
    assert any("discloses no party's votes" in line for line in found.guarantee.assumptions)


def test_a_key_never_gives_the_same_noise_for_two_counts(tmp_path: Path, monkeypatch: Any):
    """What one run says less what another does would be without any."""
    used: list[keys.Key] = []
    whole = NoisyArgmax.release
    monkeypatch.setattr(
        NoisyArgmax, "release", lambda self, total, key: (used.append(key), whole(self, total, key=key))[1]
    )
    for _ in range(2):
        run(three(tmp_path, voter=some.RAW), votes=NoisyVotes(epsilon=3.0, delta=1e-5), margin=0)
    assert used[0] != used[1]


def test_three_parties_cannot_outvote_the_noise_that_one_needs(tmp_path: Path):
    """The honest answer about noisy votes of few parties: at this epsilon labels are coin tosses."""
    found = run(three(tmp_path, voter=some.RAW), votes=NoisyVotes(epsilon=1.0, delta=1e-5), margin=0)
    agree = np.mean((found.inputs[:, 0] > 0) == found.labels)
    assert agree < 0.65


def test_a_private_partys_votes_cost_nothing_in_a_noisy_count_either(tmp_path: Path):
    run(three(tmp_path), votes=NoisyVotes(epsilon=3.0, delta=1e-5), margin=0)
    assert len(Ledger(tmp_path / "party-0.db").entries()) == 1


# Who fails is named, and the rest goes on.


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"voter": some.Bad("short")}, "one class for each of 200 samples"),
        ({"voter": some.Bad("out of range")}, "a class that is not among the 2"),
        ({"voter": some.Bad("negative")}, "a class that is not among the 2"),
        ({"generator": some.BadMaker("nan")}, "not finite numbers"),
        ({"generator": some.BadMaker("shape")}, r"do not have the shape \[4\]"),
        ({"generator": some.BadMaker("text")}, "not finite numbers"),
        ({"generator": some.BadMaker("bytes")}, "its samples are bytes and those of others numbers"),
        ({"generator": some.BadMaker("many")}, "it sent 450 samples instead of 50"),
        ({"classes": ("left", "right", "middle")}, "it has the classes left, right, middle, not left, right"),
        ({"shape": (5,)}, r"do not have the declared shape \[5\]"),
        ({"data": some.no_data}, r"could not be opened \(FileNotFoundError\)"),
        ({"data": some.other_labels}, "not whole numbers"),
    ],
)
def test_a_party_that_sends_garbage_is_left_out(changes, why, tmp_path: Path, capfd: Any):
    found = run(three(tmp_path, some.party(3, tmp_path, **changes)))
    assert list(found.failures) == ["party-3"]
    assert re.search(why, found.failures["party-3"])
    assert accuracy(found) > 0.95


def test_who_made_samples_and_then_failed_is_in_the_guarantee(tmp_path: Path):
    dear = some.GivenGenerator(draw=some.draw, event=Gaussian(0.5))
    found = run(three(tmp_path, some.party(3, tmp_path, generator=dear, voter=some.Bad("short"))))
    assert "party-3" in found.failures
    assert found.generated == 200  # its samples are in
    assert found.guarantee.epsilon == pytest.approx(accountants.epsilon(Gaussian(0.5), 1e-5).epsilon)


def test_what_left_a_party_is_paid_for_even_if_it_was_garbage(tmp_path: Path):
    found = run(
        three(tmp_path, some.party(3, tmp_path, voter=some.Bad("short", is_private=False))), votes="unprotected"
    )
    assert math.isinf(found.parties["party-3"].epsilon)
    assert math.isinf(found.guarantee.epsilon)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"epsilon": math.nan}, "did not report what it has spent"),
        ({"epsilon": -1.0}, "did not report what it has spent"),
        ({"delta": 0.5}, "did not report what it has spent"),
        ({"unit": Unit.CLIENT}, "did not report what it has spent"),
        ({"relation": Relation.REPLACE}, "its guarantee is for replace one, unlike the others'"),
    ],
)
def test_a_promise_that_cannot_stand_beside_the_others_is_left_out(lie, why, tmp_path: Path, monkeypatch: Any):
    """The largest of numbers and no number is either, and one word cannot speak for two kinds of neighbours."""

    class Liar(PartySession):
        def guarantee(self, delta: float) -> Guarantee:
            found = super().guarantee(delta)
            return dataclasses.replace(found, **lie) if self.party.name == "party-3" else found

    monkeypatch.setattr(processes, "PartySession", Liar)
    found = run(three(tmp_path, some.party(3, tmp_path)))
    assert why in found.failures["party-3"]
    assert (found.generated, set(found.parties)) == (150, {"party-0", "party-1", "party-2"})
    assert found.guarantee.epsilon == pytest.approx(accountants.epsilon(Gaussian(2.0), 1e-5).epsilon)
    assert "every party records and reports everything it releases" in found.guarantee.assumptions


def test_an_error_on_a_partys_side_does_not_tell_its_data(tmp_path: Path, capfd: Any):
    found = run(three(tmp_path, some.party(3, tmp_path, voter=some.Bad("raise"))))
    assert found.failures["party-3"] == "it failed with ValueError; the reason is in its own log"
    assert str(some.SECRET)[:6] in capfd.readouterr().err  # where it may be


def test_fewer_than_two_parties_left_is_an_error_that_names_the_others(tmp_path: Path):
    bad = [some.party(number, tmp_path, voter=some.Bad("short")) for number in (1, 2)]
    with pytest.raises(InvalidInput, match=r"fewer than two parties are left.*party-1: it did not send one class"):
        run([some.party(0, tmp_path), *bad])


def test_no_sample_with_a_clear_majority_is_an_error(tmp_path: Path):
    with pytest.raises(InvalidInput, match="no class leads by more than 3 votes on any of 150 samples"):
        run(three(tmp_path), margin=3)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"margin": -1}, "margin at least 0"),
        ({"votes": "yes"}, "'private', 'unprotected' or NoisyVotes"),
        ({"train": 3}, "an estimator or a function"),
    ],
)
def test_requests_that_make_no_sense_are_refused(changes, why, tmp_path: Path):
    with pytest.raises(InvalidInput, match=why):
        run(three(tmp_path), **changes)
    assert not list(tmp_path.iterdir())  # nobody has paid for it


def test_parties_need_different_names(tmp_path: Path):
    for parties in ([some.party(0, tmp_path)] * 2, [some.party(0, tmp_path)]):
        with pytest.raises(InvalidInput, match="at least two parties with different names"):
            run(parties)


# Processes.


@pytest.mark.slow  # ten seconds, nearly all of it to start three interpreters
def test_parties_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two work and one is killed: it is named, no raw row crosses, and the samples are those made without processes."""
    crossed: list[bytes] = []
    whole = wire.decode
    monkeypatch.setattr(wire, "decode", lambda message: (crossed.append(message), whole(message))[1])
    good = [some.party(number, tmp_path, voter=some.RAW) for number in range(2)]
    killed = some.party(2, tmp_path, voter=some.Bad("die"))
    found = run([*good, killed], votes="unprotected", processes=True, timeout_s=200.0)
    assert found.failures == {"party-2": "its process ended (exit code -9)"}
    assert accuracy(found) > 0.95
    assert len(crossed) == 3 + 3 + 2  # who, samples, votes: everything that came from the parties
    assert any(found.inputs[0].tobytes() in message for message in crossed)
    for party in (*good, killed):
        raw, _ = party.data()
        for row in raw:
            assert not any(row[:2].tobytes() in message for message in crossed)
    assert not any(np.float32(some.SECRET).tobytes() in message for message in crossed)
    here = run([some.party(n, tmp_path / "here", voter=some.RAW) for n in range(2)], votes="unprotected")
    made = {row.tobytes() for row in here.inputs}
    assert len(made & {row.tobytes() for row in found.inputs}) > 50  # the same seeds, the same samples, wherever


@pytest.mark.parametrize("broken", [(1, 2), pytest.param((2,), marks=pytest.mark.slow)])
def test_a_party_that_no_process_can_be_told_of_is_named_and_leaves_no_other_running(tmp_path: Path, broken: Any):
    parties = [some.party(n, tmp_path, **({"data": lambda: None} if n in broken else {})) for n in (1, 2)]
    with pytest.raises(InvalidInput, match=r"party-2: it cannot be sent to its own process"):
        run(parties, processes=True)
    assert multiprocessing.active_children() == []


def test_a_process_that_hangs_is_ended_and_named(tmp_path: Path, capfd: Any):
    """It does not even read what is sent to it, which is more than a pipe holds."""
    process = processes.Process(some.party(0, tmp_path))
    process.ask({"ask": "samples", "count": "many", "delta": 1e-5})
    with pytest.raises(processes.PartyFailed, match="failed with TypeError; the reason is in its own log"):
        process.reply(time.monotonic() + 200)
    assert "TypeError" in (tmp_path / "party-0.log").read_text()
    assert "TypeError" not in capfd.readouterr().err  # it is not for who asks
    process.ask({"ask": "samples", "count": 5, "delta": 1e-5})
    assert process.reply(time.monotonic() + 200).array is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    process.ask({"ask": "votes", "delta": 1e-5}, np.zeros((200_000, 4), np.float32))
    with pytest.raises(processes.PartyFailed, match="did not answer in time and was killed"):
        process.reply(time.monotonic() + 0.5)
    assert not process._process.is_alive()
    process.close()  # again: nothing happens


def test_the_wire_refuses_what_is_no_message():
    header, array = wire.decode(wire.encode({"a": 1}, np.arange(3)))
    assert header == {"a": 1}
    assert array is not None
    assert array.tolist() == [0, 1, 2]
    pickled = wire.encode({}, None) + b"\x93NUMPY\x01\x00" + b"x" * 20
    for bad in (b"", b"\xff", b"[1]\n", b"{}\nnumpy?", pickled, b'{"a"'):
        with pytest.raises(InvalidInput, match="not a message"):
            wire.decode(bad)
    with pytest.raises(ValueError, match="pickle"):
        wire.encode({}, np.array([object()]))


def test_bytes_that_are_no_message_are_a_partys_failure():
    with pytest.raises(processes.PartyFailed, match="not a message"):
        processes._read(b"\xff\xff")
