"""The attack list of `fleet.secure_sum`: what a coordinator tries, alone or with sites, and where it ends."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import secure_round
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from secure_round import Round, make_site, names, refused, terms

from blindsight.fleet.secure_sum import Coordinator, Party, Reason, Refused, Site, masks, shamir, signer
from blindsight.fleet.secure_sum.messages import Kind, Message
from blindsight.fleet.secure_sum.terms import digest_of_parts
from blindsight.fleet.secure_sum.transcript import context_of


def coordinator_says(a_round: Round, kind: Kind, *fields: bytes) -> bytes:
    return Message(kind, a_round.terms.digest, "", fields).encoded()


def survivors_message(a_round: Round, chosen: Sequence[str]) -> bytes:
    return coordinator_says(a_round, Kind.SURVIVORS, *(name.encode() for name in chosen))


def answers_of(a_round: Round, message: bytes, to: Sequence[str]) -> dict[str, bytes]:
    return {name: a_round.sites[name].answer(message) for name in to}


def revealed(message: bytes) -> tuple[bytes, ...]:
    return Message.decoded(message).fields


# --- different questions, other parties


def test_a_different_model_for_one_site_is_refused_by_all_of_them():
    on, other = terms(4), terms(4, broadcast=b"a model made to single out")
    values = secure_round.numbers(on)
    sites = {name: make_site(other if name == "site02" else on, name, values[name]) for name in values}
    hellos = [site.begin() for site in sites.values()]
    with refused(Reason.OTHER_BROADCAST):
        Coordinator(on).receive(hellos[2])
    for name, site in sites.items():
        own = other if name == "site02" else on
        with refused(Reason.OTHER_BROADCAST):
            site.answer(Message(Kind.KEY_LIST, own.digest, "", tuple(hellos)).encoded())


def test_models_that_differ_by_site_leave_masks_that_do_not_cancel():
    """Keys are bound to the broadcast: even without signatures on it nothing could be unmasked."""
    one, two = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    public = [key.public_key().public_bytes_raw() for key in (one, two)]
    contexts = [context_of(terms(4, broadcast=broadcast), public) for broadcast in (b"this", b"that")]
    first, second = (masks.mask_key(one, public[1], context, "a", "b") for context in contexts)
    assert first != second
    assert first == masks.mask_key(two, public[0], contexts[0], "b", "a")


def test_other_limits_or_rounds_of_one_site_are_noticed_as_such():
    on, other = terms(4), terms(4, fewest=4)
    values = secure_round.numbers(on)
    hellos = [make_site(other if name == "site01" else on, name, values[name]).begin() for name in names(4)]
    site = make_site(on, "site00", values["site00"])
    hellos[0] = site.begin()
    with refused(Reason.OTHER_TERMS):
        site.answer(Message(Kind.KEY_LIST, on.digest, "", tuple(hellos)).encoded())


def test_a_site_added_by_the_coordinator_is_no_party():
    done = Round.of(terms(4))
    hellos = [site.begin() for site in done.sites.values()]
    key = ed25519.Ed25519PrivateKey.generate()
    larger = (*terms(4).parties, Party.of("sybil", key.public_key()))
    fields = Message.decoded(hellos[0]).fields
    added = Message(Kind.KEYS, done.terms.digest, "sybil", fields).signed(key.sign).encoded()
    with refused(Reason.UNKNOWN_SITE):
        done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos, added))
    with refused(Reason.UNKNOWN_SITE):
        done.coordinator.receive(added)
    enlarged = dataclasses.replace(done.terms, parties=larger, threshold=4, fewest=4)
    other = Site(enlarged, "sybil", sign=signer(key), rounds=secure_round.EveryRound(), contribute=lambda: np.zeros(5))
    with refused(Reason.UNKNOWN_SITE):
        done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos, other.begin()))


def test_keys_in_a_sites_name_need_its_signature():
    done = Round.of(terms(4))
    hellos = [site.begin() for site in done.sites.values()]
    stranger = ed25519.Ed25519PrivateKey.generate()
    forged = dataclasses.replace(Message.decoded(hellos[3]), fields=Message.decoded(hellos[0]).fields)
    for replaced in (forged.encoded(), forged.signed(stranger.sign).encoded()):
        with refused(Reason.BAD_SIGNATURE):
            done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos[:3], replaced))
    with refused(Reason.MALFORMED):
        done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos, hellos[3]))


def test_a_key_of_small_order_is_refused():
    done = Round.of(terms(4))
    hellos = [site.begin() for site in done.sites.values()]
    fields = (done.terms.broadcast, bytes(32), bytes(32))
    weak = Message(Kind.KEYS, done.terms.digest, "site03", fields).signed(secure_round.KEYS[3].sign).encoded()
    with refused(Reason.MALFORMED):
        done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos[:3], weak))


def test_shares_of_the_wrong_size_are_not_passed_on():
    """One site's boxes go to all others, who would have to take whatever it sends."""
    done = Round.of(terms(4)).until("keys")
    outgoing = done.coordinator.advance()
    sent = Message.decoded(done.sites["site03"].answer(outgoing["site03"]))
    for box in (b"", bytes(1 << 20)):
        fields = (*sent.fields[:3], box, *sent.fields[4:])
        swollen = dataclasses.replace(sent, fields=fields).signed(secure_round.KEYS[3].sign).encoded()
        with refused(Reason.MALFORMED):
            done.coordinator.receive(swollen)
    done.coordinator.receive(sent.encoded())


@pytest.mark.parametrize("keys", [(bytes(32), bytes(32)), (b"short", b"short")])
def test_a_site_whose_keys_are_none_is_left_out_and_the_others_go_on(keys: tuple[bytes, bytes]):
    """Passed on to the others, they would make every one of them refuse."""
    done = Round.of(terms(4))
    fields = (done.terms.broadcast, *keys)
    weak = Message(Kind.KEYS, done.terms.digest, "site03", fields).signed(secure_round.KEYS[3].sign).encoded()
    with refused(Reason.MALFORMED):
        done.coordinator.receive(weak)
    done.begin(lost=["site03"])
    for _ in range(4):
        done.step()
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(names(3)))


def test_a_list_without_the_sites_own_keys_is_refused():
    done = Round.of(terms(4))
    hellos = [site.begin() for site in done.sites.values()]
    with refused(Reason.WRONG_SET):
        done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos[1:]))


def test_different_lists_of_keys_never_reach_an_agreement():
    """Half the sites see all keys, the others all but one: shares for one context do not open in the other."""
    done = Round.of(terms(4))
    hellos = [site.begin() for site in done.sites.values()]
    whole = done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos))
    partial = coordinator_says(done, Kind.KEY_LIST, *hellos[:3])
    bundles = answers_of(done, partial, ["site01", "site02"])
    box = dict(zip(Message.decoded(whole).fields[2::2], Message.decoded(whole).fields[3::2], strict=True))
    boxes = {name: Message.decoded(bundle).fields for name, bundle in bundles.items()}
    peer = boxes["site02"][boxes["site02"].index(b"site01") + 1]
    with refused(Reason.BAD_SHARE):
        done.sites["site01"].answer(coordinator_says(done, Kind.DELIVERY, b"site00", box[b"site01"], b"site02", peer))


# --- too few, and again


def test_every_phase_refuses_a_set_that_is_too_small():
    done = Round.of(terms(5))  # four are needed
    hellos = [site.begin() for site in done.sites.values()]
    with refused(Reason.TOO_FEW_SITES):
        done.sites["site00"].answer(coordinator_says(done, Kind.KEY_LIST, *hellos[:3]))
    done = Round.of(terms(5)).until("shares")
    fields = Message.decoded(done.coordinator.advance()["site00"]).fields
    with refused(Reason.TOO_FEW_SITES):
        done.sites["site00"].answer(coordinator_says(done, Kind.DELIVERY, *fields[:4]))
    done = Round.of(terms(5)).until("masked")
    with refused(Reason.TOO_FEW_SITES):
        done.sites["site00"].answer(survivors_message(done, names(3)))
    done = Round.of(terms(5)).until("agreed")
    agreements = Message.decoded(done.coordinator.advance()["site00"]).fields
    with refused(Reason.TOO_FEW_SITES):
        done.sites["site00"].answer(coordinator_says(done, Kind.AGREEMENTS, *agreements[:3]))


def test_the_same_agreement_does_not_count_twice():
    done = Round.of(terms(5)).until("agreed")
    agreements = Message.decoded(done.coordinator.advance()["site00"]).fields
    with refused(Reason.WRONG_SET):
        done.sites["site00"].answer(coordinator_says(done, Kind.AGREEMENTS, *agreements[:3], agreements[0]))


def test_a_round_is_not_begun_twice_even_after_a_restart(tmp_path: Path):
    on = terms(4)
    values = secure_round.numbers(on)["site00"]
    first = make_site(on, "site00", values, tmp_path / "rounds.db")
    assert first.begin() == first.begin()
    for again in (on, terms(4, broadcast=b"the same round with another question")):
        with refused(Reason.REPLAYED_ROUND):
            make_site(again, "site00", values, tmp_path / "rounds.db").begin()
    make_site(terms(4, round=2), "site00", values, tmp_path / "rounds.db").begin()


def test_messages_of_another_round_are_refused_by_site_and_coordinator():
    old, new = Round.of(terms(4)).until("keys"), Round.of(terms(4, round=2)).until("keys")
    with refused(Reason.OTHER_TERMS):
        new.sites["site00"].answer(old.coordinator.advance()["site00"])
    with refused(Reason.OTHER_TERMS):
        new.coordinator.receive(old.sites["site00"].begin())
    hellos = [old.sites["site01"].begin(), *(new.sites[name].begin() for name in ("site00", "site02", "site03"))]
    with refused(Reason.OTHER_TERMS):
        new.sites["site00"].answer(coordinator_says(new, Kind.KEY_LIST, *hellos))


# --- lying about survivors


def test_a_site_that_is_said_to_have_dropped_out_stays_masked_by_its_own_seed():
    """The coordinator has the numbers of site03 and says it has not: it can remove all masks but one."""
    done = Round.of(terms(4)).until("shares")
    outgoing = done.coordinator.advance()
    sent = {name: done.sites[name].answer(outgoing[name]) for name in outgoing}
    for name in names(3):
        done.coordinator.receive(sent[name])
    done.step()
    done.step()
    np.testing.assert_array_equal(done.coordinator.total(), done.expected(names(3)))
    shares = {place: done.coordinator._kept[name].fields[3] for place, name in enumerate(names(3), 1)}
    secret = shamir.recover(shares, 3)
    assert secret is not None
    assert digest_of_parts(b"seed", secret) != done.coordinator._commitments["site03"]
    key = X25519PrivateKey.from_private_bytes(secret)  # the mask key was revealed, the seed was not
    unmasked = np.frombuffer(Message.decoded(sent["site03"]).fields[0], np.uint32).copy()
    for peer in names(3):  # site03 subtracted the masks that it shares with smaller names
        public, context = done.coordinator._keys[peer].mask_key, done.coordinator._context
        masks.add_mask(unmasked, masks.mask_key(key, public, context, "site03", peer))
    assert (unmasked != done.values["site03"]).all()
    seed = done.sites["site03"]._secrets.seed
    masks.add_mask(unmasked, seed, subtract=True)  # with the seed, which nobody revealed, it would be bare
    np.testing.assert_array_equal(unmasked, done.values["site03"])


def test_different_survivors_for_different_sites_unmask_nothing():
    done = Round.of(terms(7)).until("masked")
    everyone, without = names(7), names(6)
    first = answers_of(done, survivors_message(done, everyone), ["site00", "site01", "site02", "site06"])
    second = answers_of(done, survivors_message(done, without), ["site03", "site04", "site05"])
    for own, others in ((first, second), (second, first)):
        for name in own:
            with refused(Reason.TOO_FEW_SITES):
                done.sites[name].answer(coordinator_says(done, Kind.AGREEMENTS, *own.values()))
            mixed = [*own.values(), *others.values()]
            with pytest.raises(Refused):
                done.sites[name].answer(coordinator_says(done, Kind.AGREEMENTS, *mixed))
    with refused(Reason.SURVIVORS_DISAGREE):
        done.sites["site00"].answer(coordinator_says(done, Kind.AGREEMENTS, *second.values(), *first.values()))


def test_colluding_sites_that_sign_everything_cannot_split_the_others():
    """Seven sites, five needed, two conspire: they sign both sets, and still no honest site reveals for both."""
    done = Round.of(terms(7)).until("masked")
    assert done.terms.most_colluding == 2
    sets = (names(7), ["site00", "site01", "site02", "site03", "site05", "site06"])
    halves = (["site02", "site03", "site04"], ["site05", "site06"])
    signed: list[list[bytes]] = []
    for chosen, half in zip(sets, halves, strict=True):
        honest = answers_of(done, survivors_message(done, chosen), half)
        transcript = Message.decoded(next(iter(honest.values()))).fields
        conspirators = [
            Message(Kind.AGREED, done.terms.digest, name, transcript).signed(secure_round.KEYS[place].sign).encoded()
            for place, name in enumerate(names(2))
        ]
        signed.append([*honest.values(), *conspirators])
    assert [len(one) for one in signed] == [5, 4]
    done.sites["site02"].answer(coordinator_says(done, Kind.AGREEMENTS, *signed[0]))
    with refused(Reason.TOO_FEW_SITES):
        done.sites["site05"].answer(coordinator_says(done, Kind.AGREEMENTS, *signed[1]))
    with refused(Reason.CHANGED_MESSAGE):
        done.sites["site02"].answer(survivors_message(done, sets[1]))


def test_a_second_set_of_survivors_is_refused_before_and_after_unmasking():
    done = Round.of(terms(4)).until("agreed")
    fewer = survivors_message(done, names(3))
    with refused(Reason.CHANGED_MESSAGE):
        done.sites["site00"].answer(fewer)
    done.step()
    with refused(Reason.CHANGED_MESSAGE):
        done.sites["site00"].answer(fewer)
    transcript = (b"\0" * 32,)
    other = [
        Message(Kind.AGREED, done.terms.digest, name, transcript).signed(secure_round.KEYS[place].sign).encoded()
        for place, name in enumerate(names(3))
    ]
    with refused(Reason.CHANGED_MESSAGE):
        done.sites["site00"].answer(coordinator_says(done, Kind.AGREEMENTS, *other))


@pytest.mark.parametrize("dropped", [[], ["site03"], ["site01", "site04"]])
def test_no_site_reveals_both_shares_of_a_peer(dropped: list[str]):
    done = Round.of(terms(7)).until("shares")
    done.step(lost=dropped)
    held = {name: dict(site._secrets.held) for name, site in done.sites.items() if name not in dropped}
    done.step()
    outgoing = done.coordinator.advance()
    for name, message in outgoing.items():
        shown = revealed(done.sites[name].answer(message))
        assert len(shown) == 7
        for peer, share in zip(names(7), shown, strict=True):
            seed, mask_key = held[name][peer][:33], held[name][peer][33:]
            assert share == (mask_key if peer in dropped else seed)
            assert share != (seed if peer in dropped else mask_key)
        assert not done.sites[name]._secrets.held  # forgotten


CHANGED: dict[str, Callable[[list[str]], list[str]]] = {
    "without the site": lambda all_names: all_names[1:],
    "one twice": lambda all_names: [*all_names[:-1], all_names[0]],
    "in another order": lambda all_names: all_names[::-1],
    "one that shared nothing": lambda all_names: [*all_names[:-1], "site06"],
    "a stranger": lambda all_names: [*all_names, "stranger"],
}


@pytest.mark.parametrize("case", CHANGED)
def test_survivors_that_cannot_be_are_refused(case: str):
    done = Round.of(terms(7))
    done.begin(lost=["site06"])
    done.step()
    done.step()
    with refused(Reason.UNKNOWN_SITE if case == "a stranger" else Reason.WRONG_SET):
        done.sites["site00"].answer(survivors_message(done, CHANGED[case](names(6))))


def test_forged_agreements_do_not_count():
    done = Round.of(terms(4)).until("masked")
    own = answers_of(done, survivors_message(done, names(4)), ["site00"])["site00"]
    stranger = ed25519.Ed25519PrivateKey.generate()
    forged = [
        dataclasses.replace(Message.decoded(own), sender=name).signed(stranger.sign).encoded() for name in names(4)[1:]
    ]
    with refused(Reason.BAD_SIGNATURE):
        done.sites["site00"].answer(coordinator_says(done, Kind.AGREEMENTS, own, *forged))


def test_an_agreement_of_another_kind_or_round_does_not_count():
    done, other = Round.of(terms(4)).until("agreed"), Round.of(terms(4, round=2)).until("agreed")
    agreements = Message.decoded(done.coordinator.advance()["site00"]).fields
    foreign = Message.decoded(other.coordinator.advance()["site00"]).fields
    for wrong in (foreign[3], done.sites["site03"].begin()):
        with refused(Reason.OTHER_TERMS):
            done.sites["site00"].answer(coordinator_says(done, Kind.AGREEMENTS, *agreements[:3], wrong))


# --- shares and numbers on their way


def test_shares_that_are_swapped_repeated_or_altered_are_refused():
    done = Round.of(terms(4)).until("shares")
    outgoing = done.coordinator.advance()
    fields = list(Message.decoded(outgoing["site00"]).fields)
    for_another = list(Message.decoded(outgoing["site01"]).fields)
    altered = bytes([fields[1][0] ^ 1]) + fields[1][1:]
    cases = {
        "swapped": ([fields[0], fields[3], fields[2], fields[1], *fields[4:]], Reason.BAD_SHARE),
        "for another site": ([*fields[:3], for_another[3], *fields[4:]], Reason.BAD_SHARE),
        "altered": ([fields[0], altered, *fields[2:]], Reason.BAD_SHARE),
        "repeated": ([*fields, *fields[:2]], Reason.WRONG_SET),
        "own": ([*fields, b"site00", fields[1]], Reason.WRONG_SET),
        "half": (fields[:-1], Reason.WRONG_SET),
    }
    for changed, reason in cases.values():
        with refused(reason):
            done.sites["site00"].answer(coordinator_says(done, Kind.DELIVERY, *changed))
    done.sites["site00"].answer(outgoing["site00"])  # nothing of this has changed the site


def test_masked_numbers_altered_on_the_way_are_not_added():
    done = Round.of(terms(4)).until("shares")
    outgoing = done.coordinator.advance()
    sent = Message.decoded(done.sites["site00"].answer(outgoing["site00"]))
    before = done.coordinator._sum.copy()
    altered = dataclasses.replace(sent, fields=(bytes(len(sent.fields[0])),))
    with refused(Reason.BAD_SIGNATURE):
        done.coordinator.receive(altered.encoded())
    short = Message(Kind.MASKED, done.terms.digest, "site00", (b"\0" * 4,)).signed(secure_round.KEYS[0].sign)
    with refused(Reason.MALFORMED):
        done.coordinator.receive(short.encoded())
    np.testing.assert_array_equal(done.coordinator._sum, before)
    done.coordinator.receive(sent.encoded())
    with refused(Reason.CHANGED_MESSAGE):
        done.coordinator.receive(altered.signed(secure_round.KEYS[0].sign).encoded())


def test_a_wrong_share_refuses_the_sum_instead_of_changing_it():
    done = Round.of(terms(4)).until("agreed")
    outgoing = done.coordinator.advance()
    shown = {name: Message.decoded(done.sites[name].answer(outgoing[name])) for name in names(3)}
    wrong = (bytes(33), *shown["site01"].fields[1:])
    shown["site01"] = dataclasses.replace(shown["site01"], fields=wrong).signed(secure_round.KEYS[1].sign)
    for message in shown.values():
        done.coordinator.receive(message.encoded())
    before = done.coordinator._sum.copy()
    for _ in range(2):
        with refused(Reason.BAD_SHARE):
            done.coordinator.total()
        np.testing.assert_array_equal(done.coordinator._sum, before)


def test_two_colluding_with_the_coordinator_know_too_few_shares():
    """All that t - 1 sites hold of another's secrets gives neither the seed nor the mask key."""
    done = Round.of(terms(7)).until("masked")
    held = {done.terms.places[name]: done.sites[name]._secrets.held["site06"] for name in names(4)}
    for part in (slice(0, 33), slice(33, 66)):
        guess = shamir.recover({place: both[part] for place, both in held.items()}, 4)
        own = done.sites["site06"]._secrets
        assert guess not in (own.seed, own.mask_key.private_bytes_raw())
