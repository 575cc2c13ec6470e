"""Shamir's secret sharing of 32 bytes: any `threshold` shares give the secret, fewer say nothing about it.

A share is the value at x = 1, 2, ... of a polynomial over the field of whole numbers modulo 2^256 + 297 (a prime) whose
value at 0 is the secret and whose other coefficients are uniformly random.
"""

import functools
import secrets
from collections.abc import Iterable, Mapping

from blindsight.errors import InvalidInput

__all__ = ["SHARE_BYTES", "recover", "split"]

SHARE_BYTES = 33
_PRIME = 2**256 + 297


def split(secret: bytes, threshold: int, places: Iterable[int]) -> dict[int, bytes]:
    """A share of `secret` for each place."""
    coefficients = [int.from_bytes(secret, "little"), *(secrets.randbelow(_PRIME) for _ in range(threshold - 1))]
    if len(secret) != 32:
        raise InvalidInput(f"a secret of 32 bytes is shared, got {len(secret)}")
    return {place: _value(coefficients, place).to_bytes(SHARE_BYTES, "little") for place in places}


def recover(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret from its shares, by Lagrange's formula at 0; None if they do not belong together.

    Of more than `threshold` shares the first ones are used.
    """
    used = dict(sorted(shares.items())[:threshold])
    if len(used) < threshold:
        raise InvalidInput(f"{threshold} shares are needed, got {len(used)}")
    weights = _weights(tuple(used))
    total = sum(weight * int.from_bytes(share, "little") for weight, share in zip(weights, used.values(), strict=True))
    value = total % _PRIME
    return value.to_bytes(32, "little") if value < 1 << 256 else None


def _value(coefficients: list[int], place: int) -> int:
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * place + coefficient) % _PRIME
    return total


@functools.lru_cache(maxsize=64)  # all secrets of a round are recovered from the same places
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    weights: list[int] = []
    for place in places:
        above = below = 1
        for other in places:
            if other != place:
                above = above * other % _PRIME
                below = below * (other - place) % _PRIME
        weights.append(above * pow(below, -1, _PRIME) % _PRIME)
    return tuple(weights)
