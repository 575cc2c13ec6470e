"""The coordinator's half of a secure sum: it collects, passes on, adds up, and at the end removes the masks.

`receive` takes messages in any order within a phase, `advance` closes the phase and says what to send to whom:
sites that have not answered by then are out. Numbers are added as they arrive, so memory is one vector, however many
sites there are.
"""

import dataclasses

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from blindsight.fleet.secure_sum import masks, shamir
from blindsight.fleet.secure_sum.messages import Kind, Message
from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.site import SEALED_BYTES
from blindsight.fleet.secure_sum.terms import Terms, digest_of_parts
from blindsight.fleet.secure_sum.transcript import SiteKeys, context_of, read_keys, transcript_of

__all__ = ["Coordinator"]


class Coordinator:
    """One round, from the sites' keys to the sum.

    >>> # send(site.begin() of every site); then, until `is_complete`:
    >>> # for name, message in coordinator.advance().items(): coordinator.receive(site[name].answer(message))
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._phase = Kind.KEYS
        self._heard: dict[Kind, dict[str, bytes]] = {}  # digests of the messages, by kind and site
        self._kept: dict[str, Message] = {}  # messages of this phase that the next one needs
        self._members = tuple(terms.places)
        self._keys: dict[str, SiteKeys] = {}
        self._context = b""
        self._commitments: dict[str, bytes] = {}
        self._sharing: tuple[str, ...] = ()
        self._survivors: tuple[str, ...] = ()
        self._transcript = b""
        self._sum = np.zeros(terms.length, masks.word_type(terms.bits))
        self._is_taken = False

    @property
    def awaited(self) -> set[str]:
        """Sites that have not answered in this phase."""
        return set(self._members) - self._heard.get(self._phase, {}).keys()

    @property
    def survivors(self) -> tuple[str, ...]:
        """The sites whose numbers are in the sum, once that is settled."""
        return self._survivors

    @property
    def is_complete(self) -> bool:
        """Whether enough sites have revealed their shares: then `total` can be had, and nothing more is sent."""
        return self._phase == Kind.REVEALED and len(self._heard.get(Kind.REVEALED, {})) >= self._terms.threshold

    def receive(self, data: bytes) -> None:
        """Take in a site's message; a copy of one that was taken in changes nothing, and neither does a refused one."""
        message = Message.decoded(data)
        if message.terms != self._terms.digest:
            self._explain_other_terms(data)
        message.check_signed_by(self._terms.party(message.sender))
        digest = message.statement + message.signature
        known = self._heard.get(message.kind, {}).get(message.sender)
        if known == digest:
            return
        if known is not None:
            raise Refused(Reason.CHANGED_MESSAGE, f"{message.sender!r} sent two different {message.kind.name} messages")
        if message.kind != self._phase or message.sender not in self._members:
            raise Refused(
                Reason.OUT_OF_ORDER, f"{message.kind.name} of {message.sender!r} came too early, too late or unasked"
            )
        self._take(message, data)
        self._heard.setdefault(message.kind, {})[message.sender] = digest

    def advance(self) -> dict[str, bytes]:
        """Close this phase: the message for each site that is still part of the round, or `Refused` if too few are."""
        close = {
            Kind.KEYS: self._list_keys,
            Kind.SHARES: self._deliver,
            Kind.MASKED: self._name_survivors,
            Kind.AGREED: self._pass_agreements,
        }
        if self._phase not in close:
            raise Refused(Reason.OUT_OF_ORDER, "the last phase has no next one: take the total")
        answered = tuple(sorted(self._heard.get(self._phase, {})))
        if self._phase == Kind.AGREED:
            self._check_threshold(len(answered), "agreed on the survivors")
            answered = self._survivors  # also one whose agreement was lost can reveal
        else:
            self._terms.check_enough(answered, f"answered in the phase {self._phase.name}")
        self._members = answered
        outgoing = close[self._phase]()
        self._kept = {}
        self._phase = Kind(self._phase + 2)
        return outgoing

    def total(self) -> np.ndarray:
        """The exact sum over `survivors`, modulo 2^bits; refused if a site revealed a wrong share."""
        if not self.is_complete:
            raise Refused(Reason.OUT_OF_ORDER, "the sum is still masked: not enough sites have revealed their shares")
        if not self._is_taken:
            secrets = {site: self._recovered(site, place) for place, site in enumerate(self._sharing)}
            for site, secret in secrets.items():  # all of them are right: from here on nothing can fail
                if site in self._survivors:
                    masks.add_mask(self._sum, secret, subtract=True)
                else:
                    self._remove_shared_masks(site, X25519PrivateKey.from_private_bytes(secret))
            self._is_taken = True
        return self._sum

    # --- what a message of each phase leaves behind

    def _take(self, message: Message, data: bytes) -> None:
        if message.kind == Kind.KEYS:
            keys = read_keys([data], self._terms)
            for public in dataclasses.astuple(keys[message.sender]):
                masks.agreed_secret(X25519PrivateKey.generate(), public)  # or every other site would refuse the list
            self._keys |= keys
        if message.kind == Kind.SHARES:
            self._check_shares(message)
        if message.kind == Kind.AGREED:
            self._check_agreement(message)
        if message.kind == Kind.REVEALED:
            self._check_revealed(message)
        if message.kind == Kind.MASKED:
            self._add(message)
        else:
            self._kept[message.sender] = message

    def _explain_other_terms(self, data: bytes) -> None:
        """A site with other terms is refused, by the reason if its message says so."""
        if Message.decoded(data).kind == Kind.KEYS:
            read_keys([data], self._terms)
        raise Refused(Reason.OTHER_TERMS, "a message belongs to another round, or to a round on other terms")

    def _check_shares(self, message: Message) -> None:
        peers = [name.encode() for name in self._members if name != message.sender]
        if len(message.fields) < 2 or list(message.fields[2::2]) != peers or len(message.fields) != 2 + 2 * len(peers):
            raise Refused(Reason.MALFORMED, f"{message.sender!r} did not share its secrets with every site")
        if message.fields[0] != self._context:
            raise Refused(Reason.OTHER_TERMS, f"{message.sender!r} shared its secrets for another list of keys")
        if {len(box) for box in message.fields[3::2]} != {SEALED_BYTES}:  # every site is sent those of all others
            raise Refused(Reason.MALFORMED, f"{message.sender!r} sent shares of the wrong size")

    def _check_agreement(self, message: Message) -> None:
        if message.fields != (self._transcript,):
            raise Refused(Reason.SURVIVORS_DISAGREE, f"{message.sender!r} agreed to another set of survivors")

    def _check_revealed(self, message: Message) -> None:
        if [len(one) for one in message.fields] != [shamir.SHARE_BYTES] * len(self._sharing):
            raise Refused(Reason.MALFORMED, f"{message.sender!r} did not reveal one share for each site")

    def _add(self, message: Message) -> None:
        if [len(one) for one in message.fields] != [self._sum.nbytes]:
            raise Refused(Reason.MALFORMED, f"{message.sender!r} sent the wrong number of numbers")
        self._sum += np.frombuffer(message.fields[0], self._sum.dtype)

    # --- what is sent when a phase closes

    def _list_keys(self) -> dict[str, bytes]:
        listed = [self._kept[name].encoded() for name in self._members]
        self._context = context_of(self._terms, listed)
        return self._to_all(Kind.KEY_LIST, *listed)

    def _deliver(self) -> dict[str, bytes]:
        boxes = {name: dict(zip(one.fields[2::2], one.fields[3::2], strict=True)) for name, one in self._kept.items()}
        self._commitments = {name: one.fields[1] for name, one in self._kept.items()}
        self._sharing = self._members
        outgoing: dict[str, bytes] = {}
        for receiver in self._members:
            fields: list[bytes] = []
            for sender in self._members:
                if sender != receiver:
                    fields += [sender.encode(), boxes[sender][receiver.encode()]]
            outgoing[receiver] = self._message(Kind.DELIVERY, *fields)
        return outgoing

    def _name_survivors(self) -> dict[str, bytes]:
        self._survivors = self._members
        self._transcript = transcript_of(self._context, self._sharing, self._survivors)
        return self._to_all(Kind.SURVIVORS, *(name.encode() for name in self._survivors))

    def _pass_agreements(self) -> dict[str, bytes]:
        return self._to_all(Kind.AGREEMENTS, *(self._kept[name].encoded() for name in sorted(self._kept)))

    def _to_all(self, kind: Kind, *fields: bytes) -> dict[str, bytes]:
        return dict.fromkeys(self._members, self._message(kind, *fields))

    def _message(self, kind: Kind, *fields: bytes) -> bytes:
        return Message(kind, self._terms.digest, "", fields).encoded()

    def _check_threshold(self, count: int, what: str) -> None:
        if count < self._terms.threshold:
            raise Refused(
                Reason.TOO_FEW_SITES,
                f"only {count} sites {what}, but this round needs {self._terms.threshold}: ask again in a new round",
            )

    # --- removing the masks

    def _recovered(self, site: str, place: int) -> bytes:
        """The seed of a survivor or the mask key of a site that dropped out, checked against what it committed to."""
        shares = {self._terms.places[name]: one.fields[place] for name, one in self._kept.items()}
        secret = shamir.recover(shares, self._terms.threshold)
        if secret is not None and self._is_right(site, secret):
            return secret
        raise Refused(
            Reason.BAD_SHARE,
            f"the shares of {site!r} do not give its secret: that site or one that revealed a share is faulty; begin a "
            f"new round without it",
        )

    def _is_right(self, site: str, secret: bytes) -> bool:
        if site in self._survivors:
            return digest_of_parts(b"seed", secret) == self._commitments[site]
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() == self._keys[site].mask_key

    def _remove_shared_masks(self, site: str, key: X25519PrivateKey) -> None:
        """Survivors masked with a site that then dropped out: what it would have cancelled is cancelled here."""
        for peer in self._survivors:
            shared = masks.mask_key(key, self._keys[peer].mask_key, self._context, site, peer)
            masks.add_mask(self._sum, shared, subtract=peer < site)
