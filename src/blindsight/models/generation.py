"""Language model outputs: exact probabilities, samples, and the most likely continuations by beam search.

They depend only on the model, which was trained under a guarantee, so they cost no further privacy.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.errors import InvalidInput
from blindsight.models.cifg_lstm import LanguageModel
from blindsight.models.layers import softmax_cross_entropy

__all__ = ["beam_search", "log_probability", "sample"]

_AT_ONCE = 1 << 25  # logits in memory: 128 MB


def log_probability(model: LanguageModel, tokens: Any, *, given: int = 1) -> jax.Array:
    """The exact log-probability of rows (n, time + 1), after their first `given` tokens and up to their ends.

    Equation 1 of Augenstein et al. 2020: the sum of the log-probabilities of each token given those before it. A row
    without an end is a prefix, and its probability is that of all rows that begin with it.
    """
    rows = _rows(model, tokens)
    if not 1 <= given < rows.shape[1]:
        raise InvalidInput(f"given must leave tokens to predict: between 1 and {rows.shape[1] - 1}, got {given}")
    size = max(1, min(len(rows), _AT_ONCE // (rows.shape[1] * model.vocabulary)))
    padded = jnp.pad(rows, [(0, -len(rows) % size), (0, 0)], constant_values=model.pad)
    parts = padded.reshape(-1, size, rows.shape[1])
    return _log_probability(model, parts, given).reshape(-1)[: len(rows)]


@eqx.filter_jit
def _log_probability(model: LanguageModel, parts: jax.Array, given: int) -> jax.Array:
    def of_rows(rows: jax.Array) -> jax.Array:
        losses = softmax_cross_entropy(model.possible(model(rows[:, :-1])), rows[:, 1:])
        counted = model.counts(rows) & (jnp.arange(1, rows.shape[1])[None] >= given)
        return -jnp.sum(jnp.where(counted, losses, 0), axis=1)

    return jax.lax.map(of_rows, parts)


def sample(
    model: LanguageModel,
    count: int,
    *,
    key: jax.Array,
    length: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    prefix: Any = None,
) -> jax.Array:
    """Rows drawn from the model, (count, length + 1), beginning with the start or with `prefix` (which includes it).

    Args:
        model: Language model.
        count: Number of rows.
        key: Key of the draws.
        length: Tokens per row.
        temperature: Values below 1 favour likely tokens.
        top_k: Draw only from this many most likely tokens; from all by default.
        prefix: Tokens that every row begins with, the start included.
    """
    begin = _prefix(model, prefix)
    if not len(begin) <= length:
        raise InvalidInput(f"length must exceed the prefix's {len(begin) - 1} tokens after the start, got {length}")
    if count < 1 or not temperature > 0:
        raise InvalidInput(f"count must be at least 1 and temperature positive, got {count} and {temperature}")
    if top_k is not None and not 1 <= top_k <= model.n_possible:
        raise InvalidInput(f"top_k must lie between 1 and the vocabulary's {model.n_possible}, got {top_k}")
    size = max(1, min(count, _AT_ONCE // model.vocabulary))
    drawn_keys = jax.random.split(key, -(-count // size))
    drawn = _sample(model, begin, drawn_keys, jnp.float32(temperature), size, length, top_k)
    return drawn.reshape(-1, length + 1)[:count]


@eqx.filter_jit
def _sample(
    model: LanguageModel,
    prefix: jax.Array,
    keys: jax.Array,
    temperature: jax.Array,
    size: int,
    length: int,
    top_k: int | None,
) -> jax.Array:
    state, likely = _read(model, prefix, size)

    def draw(carry: Any, key: jax.Array) -> Any:
        state, likely, ended = carry
        if top_k is not None:
            least = jax.lax.top_k(likely, top_k)[0][:, -1:]
            likely = jnp.where(likely >= least, likely, -jnp.inf)
        drawn = jax.random.categorical(key, likely / temperature, axis=-1).astype(jnp.int32)
        token = jnp.where(ended, model.pad, drawn)
        state, likely = model.advance(state, token)
        return (state, likely, ended | (token == model.end)), token

    def rows(key: jax.Array) -> jax.Array:
        carry = state, likely, jnp.zeros(size, bool)
        _, tokens = jax.lax.scan(draw, carry, jax.random.split(key, length + 1 - len(prefix)))
        return jnp.concatenate([jnp.broadcast_to(prefix, (size, len(prefix))), tokens.T], axis=1)

    return jax.lax.map(rows, keys)


def beam_search(model: LanguageModel, prefix: Any, *, width: int, length: int) -> tuple[jax.Array, jax.Array]:
    """The `width` most likely continuations of `length` tokens by beam search, the likeliest first.

    `prefix` is (p,) and begins with the model's start, or (n, p) for n searches at once. Returns the sequences
    (..., width, p + length), padded after an end, and their log-probabilities given the prefix, (..., width).
    """
    begin = _prefix(model, prefix, ndim=np.ndim(prefix))
    if length < 1:
        raise InvalidInput(f"length must be at least 1 token, got {length}")
    if not 1 <= width <= model.n_possible:
        raise InvalidInput(f"width must be between 1 and the vocabulary size of {model.n_possible:,}, got {width:,}")
    return _beam_search(model, begin, width, length)


@eqx.filter_jit
def _beam_search(model: LanguageModel, prefix: jax.Array, width: int, length: int) -> tuple[jax.Array, jax.Array]:
    if prefix.ndim == 2:
        return jax.lax.map(lambda one: _beam_search(model, one, width, length), prefix)
    stays = jnp.where(jnp.arange(model.vocabulary) == model.pad, 0.0, -jnp.inf)

    def extend(carry: Any, place: jax.Array) -> Any:
        state, likely, scores, ended, rows = carry
        longer = scores[:, None] + jnp.where(ended[:, None], stays[None, :], likely)
        scores, best = jax.lax.top_k(longer.reshape(-1), width)
        parent, token = jnp.divmod(best, model.vocabulary)
        rows = rows[parent].at[:, place].set(token)
        state, likely = model.advance(jax.tree.map(lambda leaf: leaf[parent], state), token)
        return (state, likely, scores, ended[parent] | (token == model.end), rows), None

    state, likely = _read(model, prefix, width)
    scores = jnp.where(jnp.arange(width) == 0, 0.0, -jnp.inf)  # start with one beam: the others are its copies
    rows = jnp.zeros((width, length), jnp.int32)
    carry = state, likely, scores, jnp.zeros(width, bool), rows
    (*_, scores, _, rows), _ = jax.lax.scan(extend, carry, jnp.arange(length))
    return jnp.concatenate([jnp.broadcast_to(prefix, (width, len(prefix))), rows], axis=1), scores


def _read(model: LanguageModel, prefix: jax.Array, rows: int) -> tuple[Any, jax.Array]:
    """The state after the prefix and the log-probabilities of the next token, computed once and copied for each row."""

    def step(state: Any, token: jax.Array) -> Any:
        return model.advance(state, token[None])

    state, likely = jax.lax.scan(step, model.begin(1), prefix)
    copied = functools.partial(jnp.repeat, repeats=rows, axis=0)
    return jax.tree.map(copied, state), copied(likely[-1])


def _prefix(model: LanguageModel, prefix: Any, *, ndim: int = 1) -> jax.Array:
    if prefix is None:
        return jnp.array([model.start], jnp.int32)
    rows = _rows(model, np.asarray(prefix), ndim=ndim if ndim == 2 else 1)
    if not np.all(np.asarray(rows)[..., 0] == model.start):
        raise InvalidInput(f"a prefix must begin with the model's start token, {model.start}")
    return rows


def _rows(model: LanguageModel, tokens: Any, *, ndim: int = 2) -> jax.Array:
    rows = np.asarray(tokens)
    if rows.ndim != ndim or rows.shape[-1] < 1 or rows.dtype.kind not in "iu":
        raise InvalidInput(
            f"tokens must be whole numbers with {ndim} axes, got {rows.dtype} of shape {list(rows.shape)}"
        )
    if rows.size and not (rows.min() >= 0 and rows.max() < model.vocabulary):
        raise InvalidInput(f"tokens must lie between 0 and {model.vocabulary - 1}")
    return jnp.asarray(rows, jnp.int32)
