"""ChaCha20 (RFC 8439) as arithmetic on arrays of 32-bit words, so that an accelerator draws its own random bits.

The same code runs on NumPy and on JAX arrays. It is written without branches and look-ups: its time does not depend on
the key.
"""

from typing import Any

import jax
import numpy as np

__all__ = ["BLOCK_WORDS", "blocks", "key_words"]

BLOCK_WORDS = 16
"""32-bit words in a block."""

_CONSTANTS = tuple(np.frombuffer(b"expand 32-byte k", "<u4").astype(np.uint32))
_DOUBLE_ROUNDS = 10
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def key_words(secret: bytes) -> np.ndarray:
    """A key of 32 bytes as eight words."""
    return np.frombuffer(secret, "<u4").astype(np.uint32)


def blocks(key: Any, nonce: Any, counters: Any) -> tuple[Any, ...]:
    """The 16 words of the key stream's blocks with these `counters` (uint32), each an array of the counters' shape."""
    zero = counters ^ counters
    fixed = [zero + word for word in (*_CONSTANTS, *(key[i] for i in range(8)))]
    start = (*fixed, counters, *(zero + word for word in nonce))
    if isinstance(counters, np.ndarray):
        mixed = start
        for _ in range(_DOUBLE_ROUNDS):
            mixed = _double_round(mixed)
    else:  # a loop compiles ten times faster than its ten copies
        mixed = jax.lax.fori_loop(0, _DOUBLE_ROUNDS, lambda _, state: _double_round(state), start)
    return tuple(word + first for word, first in zip(mixed, start, strict=True))


def _double_round(state: tuple[Any, ...]) -> tuple[Any, ...]:
    words = list(state)
    for a, b, c, d in (*_COLUMNS, *_DIAGONALS):
        for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            words[one] = words[one] + words[two]
            mixed = words[three] ^ words[one]
            words[three] = (mixed << np.uint32(turn)) | (mixed >> np.uint32(32 - turn))
    return tuple(words)
