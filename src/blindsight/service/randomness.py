"""Randomness from the operating system, read in pages: a system call per draw costs more than the draw."""

import os
import struct

import numpy as np

__all__ = ["NONCE_BYTES", "random_index", "random_nonce", "secret_generator"]

NONCE_BYTES = 12
_PAGE = struct.Struct("<512Q")
_numbers: list[int] = []  # of 64 bits, each removed when used, so that none is used twice
_nonces: list[bytes] = []


def random_index(count: int) -> int:
    """A number below `count`, uniform up to a bias below 2^-50."""
    try:
        return _numbers.pop() % count
    except IndexError:
        _numbers.extend(_PAGE.unpack(os.urandom(_PAGE.size)))
        return random_index(count)


def random_nonce() -> bytes:
    """Twelve random bytes, never used twice."""
    try:
        return _nonces.pop()
    except IndexError:
        page = os.urandom(256 * NONCE_BYTES)
        _nonces.extend(page[at : at + NONCE_BYTES] for at in range(0, len(page), NONCE_BYTES))
        return random_nonce()


def secret_generator() -> np.random.Generator:
    """A generator that nobody can predict without its state."""
    return np.random.default_rng(np.frombuffer(os.urandom(32), np.uint32))


def _forget() -> None:
    _numbers.clear()
    _nonces.clear()


os.register_at_fork(after_in_child=_forget)  # otherwise parent and child would use the same page
