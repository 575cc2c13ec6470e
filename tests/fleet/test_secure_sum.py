"""A secure sum is exactly the sum over its survivors, whoever drops out and however messages arrive."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import secure_round
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st
from secure_round import PHASES, Round, make_site, names, refused, run_round, terms

from blindsight.errors import InvalidInput
from blindsight.fleet.secure_sum import (
    Coordinator,
    Party,
    Reason,
    Refused,
    RoundBook,
    Site,
    Terms,
    masks,
    shamir,
    signer,
)
from blindsight.fleet.secure_sum.messages import Kind, Message
from blindsight.fleet.secure_sum.terms import least_threshold

# --- the sum


@st.composite
def rounds(draw: st.DrawFn):
    """Terms, and who falls silent from which phase on; at least `threshold` sites stay to the end."""
    count = draw(st.integers(3, 9))
    on = terms(count, bits=draw(st.sampled_from([32, 64])), length=draw(st.integers(1, 70)))
    leaving = draw(st.lists(st.sampled_from(names(count)), unique=True, max_size=count - on.threshold))
    lost: dict[str, list[str]] = {}
    for name in leaving:
        lost.setdefault(draw(st.sampled_from(PHASES)), []).append(name)
    return on, lost


@given(rounds())
def test_any_survivors_from_the_threshold_on_give_exactly_their_sum(case: tuple[Terms, dict[str, list[str]]]):
    on, lost = case
    total, done = run_round(on, lost)
    gone = {name for phase in ("keys", "shares", "masked") for name in lost.get(phase, ())}
    assert set(done.coordinator.survivors) == set(names(len(on.parties))) - gone
    np.testing.assert_array_equal(total, done.expected(done.coordinator.survivors))


@pytest.mark.parametrize("phase", PHASES)
def test_too_many_dropouts_fail_the_whole_round_in_every_phase(phase: str):
    on = terms(7)  # five are needed
    with refused(Reason.OUT_OF_ORDER if phase == "revealed" else Reason.TOO_FEW_SITES):
        run_round(on, {phase: names(3)})
    total, done = run_round(on, {phase: names(2)})
    np.testing.assert_array_equal(total, done.expected(done.coordinator.survivors))


def test_a_sum_may_require_more_survivors_than_the_threshold():
    with refused(Reason.TOO_FEW_SITES):
        run_round(terms(7, fewest=6), {"masked": names(2)})
    run_round(terms(7, fewest=6), {"masked": names(1), "agreed": names(2)})


def test_it_is_right_across_the_chunks_of_a_mask():
    on = terms(4, length=150_001)
    total, done = run_round(on, {"masked": ["site01"]})
    np.testing.assert_array_equal(total, done.expected(["site00", "site02", "site03"]))


def test_sites_with_ecdsa_certificates_take_part():
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in names(3)}
    on = Terms.of(
        "run", 1, [Party.of(name, key.public_key()) for name, key in keys.items()], broadcast=b"", length=2, bits=64
    )
    values = secure_round.numbers(on)
    sites = {name: _with_key(on, name, key, values[name]) for name, key in keys.items()}
    done = Round(on, values, sites, Coordinator(on)).until("revealed")
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(keys))


def _with_key(on: Terms, name: str, key: ec.EllipticCurvePrivateKey, values: np.ndarray) -> Site:
    return Site(on, name, sign=signer(key), rounds=secure_round.EveryRound(), contribute=lambda: values)


def test_the_coordinator_holds_one_vector_not_one_for_each_site():
    on = terms(8, length=200_000)
    done = Round.of(on).until("shares")
    outgoing = done.coordinator.advance()
    answers = {name: done.sites[name].answer(outgoing[name]) for name in outgoing}
    tracemalloc.start()
    for answer in answers.values():
        done.coordinator.receive(answer)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 0.5 * on.length * 4  # nothing but digests was added to the vector it had


# --- messages again, late, early and damaged


def test_messages_in_any_order_and_twice_change_nothing():
    done = Round.of(terms(5))
    for site in reversed(done.sites.values()):
        done.coordinator.receive(site.begin())
        done.coordinator.receive(site.begin())
    for _ in PHASES[1:]:
        outgoing = done.coordinator.advance()
        for name in sorted(outgoing, reverse=True):
            answer = done.sites[name].answer(outgoing[name])
            assert done.sites[name].answer(outgoing[name]) == answer
            done.coordinator.receive(answer)
            done.coordinator.receive(answer)
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(done.sites))
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(done.sites))


def test_a_contribution_is_asked_for_once():
    calls: list[int] = []
    done = Round.of(terms(3))
    values = done.values["site00"]
    done.sites["site00"]._contribute = lambda: calls.append(1) or values
    done.until("shares")
    outgoing = done.coordinator.advance()
    assert done.sites["site00"].answer(outgoing["site00"]) == done.sites["site00"].answer(outgoing["site00"])
    assert calls == [1]


@pytest.mark.parametrize("phase", PHASES[1:])
def test_a_site_refuses_a_message_that_comes_too_early(phase: str):
    done = Round.of(terms(4)).until("revealed")
    kind = Kind(2 * PHASES.index(phase))
    fresh = make_site(done.terms, "site00", done.values["site00"])
    message = Message(kind, done.terms.digest, "", ()).encoded()
    with refused(Reason.OUT_OF_ORDER):
        fresh.answer(message)  # it has not even begun
    fresh.begin()
    with refused(Reason.TOO_FEW_SITES if phase == "shares" else Reason.OUT_OF_ORDER):
        fresh.answer(message)


def test_the_coordinator_refuses_what_is_early_late_or_of_a_site_that_left():
    done = Round.of(terms(5))
    done.begin(lost=["site04"])
    with refused(Reason.OUT_OF_ORDER):
        done.coordinator.total()
    late = done.sites["site04"].begin()
    outgoing = done.coordinator.advance()
    with refused(Reason.OUT_OF_ORDER):
        done.coordinator.receive(late)
    answers = {name: done.sites[name].answer(message) for name, message in outgoing.items()}
    early = Message(Kind.AGREED, done.terms.digest, "site00", (b"",)).signed(secure_round.KEYS[0].sign).encoded()
    with refused(Reason.OUT_OF_ORDER):
        done.coordinator.receive(early)
    for answer in answers.values():
        done.coordinator.receive(answer)
    done.step()
    done.step()
    done.step()
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(names(4)))


def test_masked_numbers_that_come_after_the_survivors_are_named_are_not_added():
    done = Round.of(terms(4)).until("shares")
    outgoing = done.coordinator.advance()
    answers = {name: done.sites[name].answer(outgoing[name]) for name in outgoing}
    for name in names(3):
        done.coordinator.receive(answers[name])
    done.step()
    with refused(Reason.OUT_OF_ORDER):
        done.coordinator.receive(answers["site03"])
    done.step()
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(names(3)))


@given(st.data())
def test_no_bytes_are_answered_but_messages(data: st.DataObject):
    done = Round.of(terms(3)).until("keys")
    message = bytearray(done.coordinator.advance()["site00"])
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(message), bytes(message[:place]), bytes(message) + b"x", data.draw(st.binary(max_size=60))):
        with pytest.raises(Refused):
            done.sites["site00"].answer(damaged)
    done.sites["site00"].answer(done.coordinator._to_all(Kind.KEY_LIST, *_hellos(done))["site00"])


def _hellos(done: Round) -> list[bytes]:
    return [site.begin() for site in done.sites.values()]


def test_a_contribution_of_the_wrong_type_or_length_never_leaves():
    for wrong in (np.zeros(5, np.int32), np.zeros(4, np.uint32), np.zeros(5, np.uint64)):
        done = Round.of(terms(3))
        done.sites["site00"] = make_site(done.terms, "site00", wrong)
        done.until("shares")
        with pytest.raises(InvalidInput, match="5 numbers of type uint32"):
            done.step()


# --- terms and parts


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_sites_are_refused_by_name(count: int):
    with refused(Reason.TOO_FEW_SITES):
        terms(count)


@pytest.mark.parametrize("count", range(3, 16))
def test_the_threshold_is_the_least_above_two_thirds_and_outvotes_the_colluding(count: int):
    on = terms(count)
    assert 3 * on.threshold > 2 * count >= 3 * (on.threshold - 1)
    assert 2 * on.threshold - count > on.most_colluding >= (count - 1) // 3
    with refused(Reason.TOO_FEW_SITES):
        terms(count, fewest=least_threshold(count) - 1)


def test_terms_that_make_no_sense_are_refused():
    for options in ({"bits": 16}, {"length": 0}, {"round": -1}):
        with pytest.raises(InvalidInput):
            terms(4, **options)  # pyright: ignore[reportArgumentType]
    twice = [*secure_round.parties(3), secure_round.parties(3)[0]]
    with pytest.raises(InvalidInput, match="different names"):
        Terms.of("run", 1, twice, broadcast=b"", length=1)
    with pytest.raises(InvalidInput, match="Ed25519 or an ECDSA"):
        Party.of("old", rsa.generate_private_key(65537, 2048).public_key())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="DER"):
        Party("site", b"not a key")


def test_every_term_changes_the_digest():
    base = terms(5)
    others = [
        terms(5, round=2),
        terms(5, broadcast=b"another"),
        terms(5, bits=64),
        terms(5, length=6),
        terms(5, fewest=5),
        terms(6),
        Terms.of("other", 1, base.parties, broadcast=b"question and model", length=5),
        Terms.of("run", 1, [*base.parties[:4], secure_round.parties(9)[8]], broadcast=b"question and model", length=5),
    ]
    assert len({one.digest for one in (base, *others)}) == 1 + len(others)
    assert terms(5).digest == base.digest


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not(secret: bytes, threshold: int, data: st.DataObject):
    places = data.draw(st.lists(st.integers(1, 100), unique=True, min_size=threshold, max_size=14))
    shares = shamir.split(secret, threshold, places)
    some = data.draw(st.permutations(places))[:threshold]
    assert shamir.recover({place: shares[place] for place in some}, threshold) == secret
    with pytest.raises(InvalidInput):
        shamir.recover({place: shares[place] for place in some[1:]}, threshold)
    if threshold > 1:
        assert shamir.recover({place: shares[place] for place in some[1:]}, threshold - 1) != secret


def test_the_field_of_shares_is_a_prime_that_holds_every_secret():
    prime = shamir._PRIME
    assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37))
    assert shamir.recover(shamir.split(b"\xff" * 32, 3, range(1, 4)), 3) == b"\xff" * 32


def test_a_mask_is_the_key_stream_of_the_standard():
    zeros = np.zeros(16, np.uint32)
    masks.add_mask(zeros, bytes(32))
    assert (
        zeros.tobytes().hex().startswith("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    )  # RFC 8439
    masks.add_mask(zeros, bytes(32), subtract=True)
    assert not zeros.any()


def test_masked_numbers_look_uniform():
    on = terms(3, length=60_000)
    done = Round.of(on)
    zeros = np.zeros(on.length, np.uint32)
    done.sites = {name: make_site(on, name, zeros) for name in names(3)}
    done.until("shares")
    outgoing = done.coordinator.advance()
    sent = Message.decoded(done.sites["site00"].answer(outgoing["site00"])).fields[0]
    counts = np.bincount(np.frombuffer(sent, np.uint8), minlength=256)
    expected = len(sent) / 256
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert 120 < chi_square < 400  # 255 degrees of freedom: outside once in 10^7


def test_a_round_can_be_claimed_once_for_all_processes(tmp_path: Path):
    book = RoundBook(tmp_path / "rounds.db")
    book.claim("run", 1)
    book.claim("run", 2)
    book.claim("other", 1)
    with refused(Reason.REPLAYED_ROUND):
        RoundBook(tmp_path / "rounds.db").claim("run", 1)


def test_awaited_sites_are_known_in_every_phase():
    done = Round.of(terms(4))
    assert done.coordinator.awaited == set(names(4))
    done.begin(lost=["site02"])
    assert done.coordinator.awaited == {"site02"}
    done.step(lost=["site01"])
    assert done.coordinator.awaited == {"site01"}
