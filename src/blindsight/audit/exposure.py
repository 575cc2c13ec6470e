"""How much more likely than chance a canary is to a model: random-sampling rank and exposure.

Carlini et al. 2019, *The Secret Sharer* (arXiv:1802.08232): a canary's secret words are ranked, by the probability that
the model gives them after the prefix, among references of words drawn uniformly from the vocabulary. Rank 1
means that no reference is as likely; exposure is log2 |R| - log2 rank, in bits.

The probabilities are exact in float32. Shared work is done once: the state after the prefix for all references, and the
state after the first word for those with the same one. A reference that is already less likely than the canary when
only its last word is missing cannot catch up, and is not computed further.
"""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.models.cifg_lstm import LanguageModel

__all__ = ["exposures", "log_probabilities", "ranks", "references"]

_AT_ONCE_ON_CPU = 1 << 21  # logits in memory: 8 MB, which fit in the cache
_AT_ONCE = 1 << 28


def references(alphabet: np.ndarray, count: int, words: int, *, key: Key) -> np.ndarray:
    """The comparison set R: `count` phrases of `words` tokens drawn uniformly, int32, sorted by first word.

    Sorting groups phrases that share their first word, and does not matter otherwise.
    """
    if not (count >= 1 and words >= 1 and len(alphabet) >= 1):
        raise InvalidInput(f"there must be at least one reference of at least one word, got {count} of {words}")
    drawn = alphabet[key.derive("references").stream().below(len(alphabet), count * words)]
    drawn = drawn.astype(np.int32).reshape(count, words)
    return drawn[np.argsort(drawn[:, 0], kind="stable")]


def ranks(model: LanguageModel, contexts: np.ndarray, secrets: np.ndarray, compared: np.ndarray) -> np.ndarray:
    """The rank of every secret (n, words) after its context (n, 1 + prefix), among the `compared` phrases.

    That is one plus the number of them that are at least as likely.
    """
    if compared.ndim != 2 or secrets.shape[1:] != compared.shape[1:] or len(contexts) != len(secrets):
        raise InvalidInput(
            f"secrets and references must have the same number of words, got {secrets.shape} and {compared.shape}"
        )
    largest = max(int(part.max()) for part in (contexts, secrets, compared))
    if largest >= model.vocabulary:
        raise InvalidInput(f"the model knows tokens below {model.vocabulary}, but canaries use {largest}")
    results: list[int] = []
    for context, secret in zip(contexts, secrets, strict=True):
        own = log_probabilities(model, context, secret[None])[0]
        results.append(1 + int(np.sum(log_probabilities(model, context, compared, at_least=own) >= own)))
    return np.array(results, np.int64)


def exposures(ranks: Any, references: int) -> np.ndarray:
    """log2 of the number of references minus log2 of the ranks, in bits.

    >>> exposures([1, 4, 17], 16).round(4).tolist()
    [4.0, 2.0, -0.0875]
    """
    return np.log2(references) - np.log2(np.asarray(ranks, np.float64))


def log_probabilities(
    model: LanguageModel, context: np.ndarray, phrases: np.ndarray, *, at_least: float = -np.inf
) -> np.ndarray:
    """The log-probability of each of the `phrases` (n, words) after the one `context`, which begins with the start.

    Phrases that fall below `at_least` before their last word get minus infinity.
    """
    with jax.default_matmul_precision("highest"):  # accelerators would otherwise multiply with ten bits
        return _log_probabilities(model, context, phrases, at_least)


def _log_probabilities(model: LanguageModel, context: np.ndarray, phrases: np.ndarray, at_least: float) -> np.ndarray:
    state, first = _read(model, jnp.asarray(context, jnp.int32))
    so_far = np.asarray(first)[phrases[:, 0]]
    if phrases.shape[1] == 1:
        return so_far
    at_once = _AT_ONCE_ON_CPU if jax.default_backend() == "cpu" else _AT_ONCE
    size = min(max(1, at_once // model.vocabulary), len(phrases))
    words, place = np.unique(phrases[:, 0], return_inverse=True)
    states, second = _after_first_words(model, state, words, place, phrases[:, 1], size)
    so_far += second
    if phrases.shape[1] == 2:
        return so_far
    alive = np.flatnonzero(so_far >= at_least)
    rest = np.concatenate([place[:, None], phrases[:, 1:]], axis=1).astype(np.int32)[alive]
    totals = np.full(len(phrases), -np.inf, np.float32)
    totals[alive] = so_far[alive] + _after_second_words(model, states, rest, size, len(phrases))
    return totals


@eqx.filter_jit
def _read(model: LanguageModel, context: jax.Array) -> tuple[Any, jax.Array]:
    """The state after the context, one row, and the log-probabilities of the next word."""
    state, likely = jax.lax.scan(lambda state, token: model.advance(state, token[None]), model.begin(1), context)
    return state, likely[-1, 0]


def _after_first_words(
    model: LanguageModel, state: Any, words: np.ndarray, place: np.ndarray, second: np.ndarray, size: int
) -> tuple[Any, np.ndarray]:
    """The states after each of the first `words`, and the log-probability of each phrase's `second` word there."""
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(0, len(words) + size, size))
    most = int(np.max(np.diff(bounds)))
    states: list[Any] = []
    likely = np.empty(len(place), np.float32)
    for number, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        some = np.zeros(size, np.int32)  # the last chunk is padded, so that one shape is compiled
        chosen = words[number * size : (number + 1) * size]
        some[: len(chosen)] = chosen
        pairs = np.zeros((most, 2), np.int32)
        rows = order[start:end]
        pairs[: len(rows)] = np.stack([place[rows] - number * size, second[rows]], axis=1)
        after, log_probs = _second(model, state, jnp.asarray(some), jnp.asarray(pairs))
        states.append(after)
        likely[rows] = np.asarray(log_probs)[: len(rows)]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *states), likely


@eqx.filter_jit
def _second(model: LanguageModel, state: Any, words: jax.Array, pairs: jax.Array) -> tuple[Any, jax.Array]:
    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf, len(words), axis=0), state)
    states, likely = model.advance(copies, words)
    return states, likely[pairs[:, 0], pairs[:, 1]]


def _after_second_words(model: LanguageModel, states: Any, rest: np.ndarray, size: int, most: int) -> np.ndarray:
    """The log-probability of the words after the second, for rows of (index in `states`, second word, others...)."""
    chunks = np.zeros((-(-most // size), size, rest.shape[1]), np.int32)
    chunks.reshape(-1, rest.shape[1])[: len(rest)] = rest
    log_probs = _others(model, states, jnp.asarray(chunks), jnp.int32(-(-len(rest) // size)))
    return np.asarray(log_probs).reshape(-1)[: len(rest)]


@eqx.filter_jit
def _others(model: LanguageModel, states: Any, chunks: jax.Array, count: jax.Array) -> jax.Array:
    def on_chunk(number: jax.Array, totals: jax.Array) -> jax.Array:
        rows = jax.lax.dynamic_index_in_dim(chunks, number, keepdims=False)
        state, total = jax.tree.map(lambda leaf: leaf[rows[:, 0]], states), jnp.zeros(len(rows))
        for column in range(1, rows.shape[1] - 1):
            state, likely = model.advance(state, rows[:, column])
            total += jnp.take_along_axis(likely, rows[:, column + 1, None], axis=1)[:, 0]
        return jax.lax.dynamic_update_index_in_dim(totals, total, number, 0)

    return jax.lax.fori_loop(0, count, on_chunk, jnp.zeros(chunks.shape[:2]))
