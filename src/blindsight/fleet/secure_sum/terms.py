"""What all parties of a round must agree on before any of them contributes."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable
from typing import Self

from blindsight.errors import InvalidInput
from blindsight.fleet.secure_sum.identities import Party
from blindsight.fleet.secure_sum.refusals import Reason, Refused

__all__ = ["FEWEST_SITES", "Terms", "digest_of_parts", "least_threshold"]

FEWEST_SITES = 3
"""With two sites each learns the other's part from the sum and its own; with one there is nothing to hide among."""

_MOST_SITES = 1000
_LONGEST = 1 << 32


def digest_of_parts(*parts: bytes) -> bytes:
    """SHA-256 of the parts, each with its length, so that no two lists of parts share a digest."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def least_threshold(sites: int) -> int:
    """The smallest whole number above 2n/3."""
    return 2 * sites // 3 + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms:
    """One round: who may take part, how many must, and what is summed in answer to which broadcast.

    Every site builds its own terms: the parties from its own configuration, never from the coordinator, and `broadcast`
    from the bytes that it received itself. Their `digest` enters every key, signature and message of the round, so
    sites whose terms differ in anything cannot be summed.

    Args:
        run: Identity of the run.
        round: Number of the round; a site takes part in each (run, round) once.
        parties: All sites that may take part, sorted by name.
        broadcast: SHA-256 of everything the coordinator sent for this round: question, model, settings.
        length: Number of whole numbers that are summed.
        bits: 32 or 64; sums are taken modulo 2^bits.
        threshold: Number of sites that together can unmask: more than 2n/3.
        fewest: Smallest number of sites whose sum may be unmasked, at least `threshold`.
    """

    run: str
    round: int
    parties: tuple[Party, ...]
    broadcast: bytes
    length: int
    bits: int
    threshold: int
    fewest: int

    def __post_init__(self) -> None:
        names = [party.name for party in self.parties]
        sites = len(names)
        if sites < FEWEST_SITES:
            raise Refused(
                Reason.TOO_FEW_SITES,
                f"a secure sum needs at least {FEWEST_SITES} sites, got {sites}: with fewer, the sum reveals a part",
            )
        if sites > _MOST_SITES or len({party.public_key for party in self.parties}) < sites or len(set(names)) < sites:
            raise InvalidInput(f"a secure sum needs at most {_MOST_SITES} sites with different names and keys")
        if names != sorted(names):
            raise InvalidInput("the parties of a secure sum must be sorted by name: use Terms.of")
        if not least_threshold(sites) <= self.threshold <= self.fewest <= sites:
            raise Refused(
                Reason.TOO_FEW_SITES,
                f"a secure sum of {sites} sites needs {least_threshold(sites)} <= threshold <= fewest <= {sites}, got "
                f"threshold {self.threshold} and fewest {self.fewest}",
            )
        if self.bits not in (32, 64) or not 1 <= self.length <= _LONGEST or len(self.broadcast) != 32:
            raise InvalidInput(
                "a secure sum needs 32 or 64 bits, 1 to 2^32 numbers, and a broadcast digest of 32 bytes"
            )
        if not 0 <= self.round < 1 << 63:
            raise InvalidInput(f"the number of a round must be 0 or more, got {self.round}")

    @classmethod
    def of(
        cls,
        run: str,
        round: int,
        parties: Iterable[Party],
        *,
        broadcast: bytes,
        length: int,
        bits: int = 32,
        fewest: int | None = None,
    ) -> Self:
        """The terms of a round that answers the bytes of `broadcast`, with the least threshold.

        Args:
            run: Identity of the run.
            round: Number of the round.
            parties: All sites that may take part, in any order.
            broadcast: The bytes that this party received (or, as the coordinator, sent) for this round.
            length: Number of whole numbers that are summed.
            bits: 32 or 64.
            fewest: Smallest number of sites whose sum may be unmasked; the threshold by default.
        """
        listed = tuple(sorted(parties, key=lambda party: party.name))
        threshold = least_threshold(len(listed))
        return cls(
            run=run,
            round=round,
            parties=listed,
            broadcast=hashlib.sha256(broadcast).digest(),
            length=length,
            bits=bits,
            threshold=threshold,
            fewest=threshold if fewest is None else fewest,
        )

    @property
    def most_colluding(self) -> int:
        """How many sites may conspire with the coordinator before two survivor sets could both be agreed on.

        Two sets need 2t agreements of n sites, so 2t - n sites agree to both; if more than the conspirators do, an
        honest one is among them, and honest sites agree once.
        """
        return 2 * self.threshold - len(self.parties) - 1

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that differ whenever anything in the terms does."""
        numbers = (self.round, len(self.parties), self.length, self.bits, self.threshold, self.fewest)
        keys = [part for party in self.parties for part in (party.name.encode(), party.public_key)]
        return digest_of_parts(
            b"blindsight secure sum 1",
            self.run.encode(),
            self.broadcast,
            b"".join(number.to_bytes(8, "little") for number in numbers),
            *keys,
        )

    @functools.cached_property
    def places(self) -> dict[str, int]:
        """The place of each site among the parties, from 1: the argument of its Shamir shares."""
        return {party.name: place for place, party in enumerate(self.parties, 1)}

    def party(self, name: str) -> Party:
        """The party of this name; an unknown one is refused."""
        place = self.places.get(name)
        if place is None:
            raise Refused(
                Reason.UNKNOWN_SITE, f"{name!r} is not among the sites of this round: check who is meant to take part"
            )
        return self.parties[place - 1]

    def check_enough(self, names: Iterable[str], phase: str) -> None:
        """Refuse a set of sites that is smaller than `fewest`, or has members that are no parties."""
        count = len({self.party(name).name for name in names})
        if count < self.fewest:
            raise Refused(
                Reason.TOO_FEW_SITES,
                f"only {count} sites {phase}, but this round needs {self.fewest}: ask again in a new round",
            )
