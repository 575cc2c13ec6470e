"""What sites check and sign in a round: all keys, and digests of what each site was shown."""

import dataclasses
from collections.abc import Iterable, Sequence

from blindsight.fleet.secure_sum.messages import Kind, Message
from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.terms import Terms, digest_of_parts

__all__ = ["SiteKeys", "context_of", "read_keys", "transcript_of"]


@dataclasses.dataclass(frozen=True)
class SiteKeys:
    """A site's public keys of this round: one to encrypt shares with, one to agree on masks with."""

    share_key: bytes
    mask_key: bytes


def read_keys(messages: Iterable[bytes], terms: Terms) -> dict[str, SiteKeys]:
    """The keys in these messages by site; refuses strangers, forgeries, and sites that answer something else."""
    keys: dict[str, SiteKeys] = {}
    for data in messages:
        message = Message.decoded(data)
        message.check_signed_by(terms.party(message.sender))
        if message.kind != Kind.KEYS or len(message.fields) != 3 or message.sender in keys:
            raise Refused(Reason.MALFORMED, f"{message.sender!r} is listed twice, or without keys")
        broadcast, share_key, mask_key = message.fields
        if broadcast != terms.broadcast:
            raise Refused(
                Reason.OTHER_BROADCAST,
                f"{message.sender!r} received another question or model for this round: the coordinator must send all "
                f"sites the same bytes",
            )
        if message.terms != terms.digest:
            raise Refused(
                Reason.OTHER_TERMS,
                f"{message.sender!r} has other terms for this round: run, round, parties or limits differ",
            )
        keys[message.sender] = SiteKeys(share_key, mask_key)
    return keys


def context_of(terms: Terms, messages: Iterable[bytes]) -> bytes:
    """Binds keys to the terms and to everybody's signed keys."""
    return digest_of_parts(b"context", terms.digest, *sorted(messages))


def transcript_of(context: bytes, sharing: Sequence[str], survivors: Sequence[str]) -> bytes:
    """Binds an agreement to all keys, to who shared secrets, and to whose numbers are in the sum."""
    names = (name.encode() for name in (*sharing, *survivors))
    return digest_of_parts(b"transcript", context, len(sharing).to_bytes(8, "little"), *names)
