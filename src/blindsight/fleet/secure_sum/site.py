"""The site's half of a secure sum: a state machine from the coordinator's messages to this site's answers.

It holds the secrets of one round and trusts the coordinator with nothing. A message is answered once: the same message
again gets the same answer, byte for byte; another message of its kind, or one that comes too early, is refused and
changes nothing.
"""

import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Mapping

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from blindsight.errors import InvalidInput
from blindsight.fleet.secure_sum import masks, shamir
from blindsight.fleet.secure_sum.identities import Signer
from blindsight.fleet.secure_sum.messages import Kind, Message
from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.rounds import Rounds
from blindsight.fleet.secure_sum.terms import Terms, digest_of_parts
from blindsight.fleet.secure_sum.transcript import SiteKeys, context_of, read_keys, transcript_of

__all__ = ["SEALED_BYTES", "Site"]

SEALED_BYTES = 2 * shamir.SHARE_BYTES + 16
"""Two shares for a peer, encrypted, with the tag that shows changes."""

_NO_NONCE = bytes(12)  # a key of `share_key` encrypts one message


@dataclasses.dataclass
class _Secrets:
    """What nobody else may know while the round lasts; forgotten once the shares are revealed."""

    share_key: X25519PrivateKey = dataclasses.field(default_factory=X25519PrivateKey.generate)
    mask_key: X25519PrivateKey = dataclasses.field(default_factory=X25519PrivateKey.generate)
    seed: bytes = dataclasses.field(default_factory=lambda: secrets.token_bytes(32))
    agreed: dict[str, bytes] = dataclasses.field(default_factory=dict[str, bytes])  # by site, of the two share keys
    held: dict[str, bytes] = dataclasses.field(default_factory=dict[str, bytes])  # by site, both of its shares


class Site:
    """One site in one round.

    Args:
        terms: The terms, built by this site: parties from its configuration, broadcast as it received it.
        name: This site's name among the parties.
        sign: Signs with the key of this site's certificate.
        rounds: Durable record of the rounds this site has begun.
        contribute: Called at most once, when the masks are agreed: the numbers to sum, unsigned with `terms.bits` bits.
    """

    def __init__(
        self, terms: Terms, name: str, *, sign: Signer, rounds: Rounds, contribute: Callable[[], np.ndarray]
    ) -> None:
        terms.party(name)
        self._terms, self._name, self._sign, self._rounds = terms, name, sign, rounds
        self._contribute = contribute
        self._secrets = _Secrets()
        self._hello = b""
        self._answered: dict[Kind, tuple[bytes, bytes]] = {}
        self._keys: dict[str, SiteKeys] = {}
        self._context = b""
        self._sharing: tuple[str, ...] = ()
        self._survivors: tuple[str, ...] = ()
        self._transcript = b""

    @property
    def is_over(self) -> bool:
        """Whether this site has revealed its shares: it has nothing more to say."""
        return Kind.AGREEMENTS in self._answered

    def begin(self) -> bytes:
        """This round's fresh public keys, signed; a round that this site has begun before is refused."""
        if not self._hello:
            self._rounds.claim(self._terms.run, self._terms.round)
            own = (self._secrets.share_key, self._secrets.mask_key)
            public = [key.public_key().public_bytes_raw() for key in own]
            self._hello = self._message(Kind.KEYS, self._terms.broadcast, *public)
        return self._hello

    def answer(self, data: bytes) -> bytes:
        """The answer to a message of the coordinator, or `Refused`."""
        message = Message.decoded(data)
        if message.terms != self._terms.digest:
            raise Refused(Reason.OTHER_TERMS, "a message belongs to another round, or to a round on other terms")
        steps = {
            Kind.KEY_LIST: self._share,
            Kind.DELIVERY: self._mask,
            Kind.SURVIVORS: self._agree,
            Kind.AGREEMENTS: self._reveal,
        }
        if message.kind not in steps:
            raise Refused(Reason.OUT_OF_ORDER, f"a site does not answer messages of kind {message.kind.name}")
        digest = hashlib.sha256(data).digest()
        if message.kind in self._answered:
            known, answer = self._answered[message.kind]
            if known != digest:
                raise Refused(
                    Reason.CHANGED_MESSAGE,
                    f"the coordinator sent a second, different message of kind {message.kind.name}: a site answers one",
                )
            return answer
        if message.kind != Kind(2 * len(self._answered) + 2) or not self._hello:
            raise Refused(Reason.OUT_OF_ORDER, f"a message of kind {message.kind.name} came too early")
        answer = steps[message.kind](message.fields)
        self._answered[message.kind] = digest, answer
        return answer

    def _share(self, listed: tuple[bytes, ...]) -> bytes:
        """Check everybody's keys, and send each peer its encrypted shares of this site's two secrets."""
        keys = read_keys(listed, self._terms)
        self._terms.check_enough(keys, "sent keys")
        if self._hello not in listed:
            raise Refused(Reason.WRONG_SET, "the list of keys lacks this site's own: it must not contribute")
        context = context_of(self._terms, listed)
        places = {name: self._terms.places[name] for name in keys}
        own = self._secrets
        seeds = shamir.split(own.seed, self._terms.threshold, places.values())
        mask_keys = shamir.split(own.mask_key.private_bytes_raw(), self._terms.threshold, places.values())
        both = {name: seeds[place] + mask_keys[place] for name, place in places.items()}
        fields = [context, digest_of_parts(b"seed", own.seed)]
        for peer in sorted(keys.keys() - {self._name}):
            own.agreed[peer] = masks.agreed_secret(own.share_key, keys[peer].share_key)
            key = masks.share_key(own.agreed[peer], context, self._name, peer)
            fields += [peer.encode(), ChaCha20Poly1305(key).encrypt(_NO_NONCE, both[peer], context)]
        own.held[self._name] = both[self._name]
        self._keys, self._context = keys, context
        return self._message(Kind.SHARES, *fields)

    def _mask(self, fields: tuple[bytes, ...]) -> bytes:
        """Take in the peers' shares, and send this site's numbers under its own mask and one with every peer."""
        sealed = {name.decode(errors="replace"): box for name, box in zip(fields[::2], fields[1::2], strict=False)}
        if 2 * len(sealed) != len(fields) or not sealed.keys() <= self._keys.keys() - {self._name}:
            raise Refused(Reason.WRONG_SET, "shares were delivered twice, or from sites without keys in this round")
        sharing = tuple(sorted([*sealed, self._name]))
        self._terms.check_enough(sharing, "shared their secrets")
        held = {peer: self._opened(peer, box) for peer, box in sealed.items()}
        numbers = self._numbers()
        masks.add_mask(numbers, self._secrets.seed)
        for peer in sealed:
            key = masks.mask_key(self._secrets.mask_key, self._keys[peer].mask_key, self._context, self._name, peer)
            masks.add_mask(numbers, key, subtract=peer < self._name)
        self._secrets.held |= held
        self._sharing = sharing
        return self._message(Kind.MASKED, numbers.tobytes())

    def _opened(self, peer: str, box: bytes) -> bytes:
        key = masks.share_key(self._secrets.agreed[peer], self._context, peer, self._name)
        try:
            both = ChaCha20Poly1305(key).decrypt(_NO_NONCE, box, self._context)
        except InvalidTag as error:
            raise Refused(
                Reason.BAD_SHARE, f"the shares from {peer!r} were changed, or made for other keys or another site"
            ) from error
        if len(both) != 2 * shamir.SHARE_BYTES:
            raise Refused(Reason.BAD_SHARE, f"the shares from {peer!r} have the wrong length")
        return both

    def _numbers(self) -> np.ndarray:
        """A copy of the contribution: masks are added in place."""
        given = self._contribute()
        dtype = masks.word_type(self._terms.bits)
        if given.dtype != dtype or given.shape != (self._terms.length,):
            raise InvalidInput(
                f"this round sums {self._terms.length} numbers of type {dtype.name}, got {given.dtype} of shape "
                f"{given.shape}"
            )
        return given.copy()

    def _agree(self, fields: tuple[bytes, ...]) -> bytes:
        """Sign the one set of survivors whose sum this site is willing to unmask."""
        names = tuple(field.decode(errors="replace") for field in fields)
        self._terms.check_enough(names, "are in the sum")
        if list(names) != sorted(set(names)) or not set(names) <= set(self._sharing) or self._name not in names:
            raise Refused(
                Reason.WRONG_SET, "the survivors must include this site and none that shared no secrets with it"
            )
        self._survivors = names
        self._transcript = transcript_of(self._context, self._sharing, self._survivors)
        return self._message(Kind.AGREED, self._transcript)

    def _reveal(self, fields: tuple[bytes, ...]) -> bytes:
        """Once enough survivors signed the same transcript: one share of each site's seed *or* mask key, never both."""
        agreed: set[str] = set()
        for field in fields:
            message = Message.decoded(field)
            message.check_signed_by(self._terms.party(message.sender))
            if message.sender not in self._survivors or message.sender in agreed:
                raise Refused(Reason.WRONG_SET, f"{message.sender!r} agreed twice, or is not among the survivors")
            if (message.kind, message.terms) != (Kind.AGREED, self._terms.digest):
                raise Refused(Reason.OTHER_TERMS, f"the agreement of {message.sender!r} belongs to another round")
            if message.fields != (self._transcript,):
                raise Refused(
                    Reason.SURVIVORS_DISAGREE,
                    f"{message.sender!r} was shown other keys or survivors than this site: the coordinator lied to one",
                )
            agreed.add(message.sender)
        if len(agreed) < self._terms.threshold:
            raise Refused(
                Reason.TOO_FEW_SITES,
                f"only {len(agreed)} sites agreed on the survivors, but {self._terms.threshold} are needed",
            )
        shares = _one_of_each(self._secrets.held, self._sharing, self._survivors)
        self._secrets = _Secrets()  # those of the round are gone
        return self._message(Kind.REVEALED, *shares)

    def _message(self, kind: Kind, *fields: bytes) -> bytes:
        return Message(kind, self._terms.digest, self._name, fields).signed(self._sign).encoded()


def _one_of_each(held: Mapping[str, bytes], sharing: tuple[str, ...], survivors: tuple[str, ...]) -> list[bytes]:
    """For every site that shared: its seed's share if it is in the sum, otherwise its mask key's."""
    middle = shamir.SHARE_BYTES
    return [held[name][:middle] if name in survivors else held[name][middle:] for name in sharing]
