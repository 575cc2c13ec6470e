"""Word and character language models: CIFG-LSTMs with projection and tied input and output embeddings.

The word model is that of Hard et al. 2018 (arXiv:1811.03604) and Ramaswamy et al. 2020 (arXiv:2009.10031), the
character model that of Chen et al. 2019 (arXiv:1903.10635), both as in Augenstein et al. 2020 (arXiv:1911.06679). They
read rows of token ids from `data.text`: a start, the tokens, an end, and padding, which is ignored.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.models.layers import Embedding
from blindsight.models.recurrent import CIFG, LSTM, CellState

__all__ = ["LanguageModel", "char_model", "next_token_loss", "recall", "token_loss", "word_model"]

Counts = tuple[jax.Array, jax.Array]
"""For each example: a numerator and a denominator, to be summed over examples before dividing."""


class LanguageModel(eqx.Module):
    """Predicts the next token of a row from those before it."""

    embedding: Embedding
    layers: Sequence[CIFG | LSTM]
    start: int = eqx.field(static=True, default=1)
    end: int = eqx.field(static=True, default=2)
    pad: int = eqx.field(static=True, default=0)  # follows an end; may be the end token itself
    first_word: int = eqx.field(static=True, default=4)  # smaller ids are special tokens, unknown words included

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self.embedding.table.shape[0]

    @property
    def n_possible(self) -> int:
        """Number of ids that can come next: all except the start, and the padding unless it is also the end."""
        return self.vocabulary - len({self.start, self.pad} - {self.end})

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """(batch, time) to the logits of the next token, (batch, time, vocabulary)."""
        return self.embedding.logits(self._read(tokens))

    def cross_entropy(self, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        """The cross-entropy of each target, (batch, time); an implementation may avoid computing all logits."""
        return self.embedding.cross_entropy(self._read(tokens), targets)

    def _read(self, tokens: jax.Array) -> jax.Array:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x

    def begin(self, batch: int) -> list[CellState]:
        """The initial state of a batch of rows."""
        return [layer.begin(batch) for layer in self.layers]

    def advance(self, state: Sequence[CellState], tokens: jax.Array) -> tuple[list[CellState], jax.Array]:
        """One step: tokens (batch,) to the next state and log-probabilities (batch, vocabulary) of the next token."""
        x, after = self.embedding(tokens), list[CellState]()
        for layer, before in zip(self.layers, state, strict=True):
            now, x = layer.advance(before, x)
            after.append(now)
        return after, jax.nn.log_softmax(self.possible(self.embedding.logits(x).astype(jnp.float32)), axis=-1)

    def possible(self, logits: jax.Array) -> jax.Array:
        """Logits with minus infinity for tokens that never come next, so that the probabilities of rows sum to one."""
        numbers = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
        never = (numbers == self.start) | ((numbers == self.pad) & (self.pad != self.end))
        return jnp.where(never, -jnp.inf, logits)

    def counts(self, tokens: jax.Array) -> jax.Array:
        """Mask, (batch, time), of targets that count in rows (batch, time + 1): up to and including the first end."""
        before = tokens[:, :-1]
        return (before != self.end) & (before != self.pad)


def word_model(
    vocabulary: int, *, embedding: int = 96, cells: int = 670, layers: int = 1, key: jax.Array
) -> LanguageModel:
    """The word model: 1.4 million weights for ten thousand words."""
    return _build(vocabulary, embedding, cells, layers, key)


def char_model(*, embedding: int = 128, cells: int = 256, layers: int = 3, key: jax.Array) -> LanguageModel:
    """A model of words as bytes, for out-of-vocabulary words."""
    start, end = 256, 257
    return _build(258, embedding, cells, layers, key, start, end, end, 0)


def _build(vocabulary: int, embedding: int, cells: int, layers: int, key: jax.Array, *marks: int) -> LanguageModel:
    first, *others = jax.random.split(key, layers + 1)
    recurrent = [CIFG(embedding, cells, embedding, key=other) for other in others]
    return LanguageModel(Embedding(vocabulary, embedding, key=first), recurrent, *marks)


def next_token_loss(field: str = "tokens") -> Callable[[LanguageModel, Any, jax.Array], jax.Array]:
    """The mean cross-entropy of the next token, over all tokens of the batch that count."""
    of_examples = token_loss(field)

    def loss(model: LanguageModel, batch: Any, key: jax.Array) -> jax.Array:
        losses, counts = of_examples(model, batch, key)
        return jnp.sum(losses * batch.weight) / jnp.maximum(jnp.sum(counts * batch.weight), 1.0)

    return loss


def token_loss(field: str = "tokens") -> Callable[[LanguageModel, Any, jax.Array], Counts]:
    """The summed cross-entropy of each example, and its number of tokens."""

    def of_examples(model: LanguageModel, batch: Any, key: jax.Array) -> Counts:
        del key
        tokens = batch[field]
        weight = model.counts(tokens).astype(jnp.float32)
        losses = model.cross_entropy(tokens[:, :-1], tokens[:, 1:])
        return jnp.sum(losses * weight, axis=1), jnp.sum(weight, axis=1)

    return of_examples


def recall(field: str = "tokens", *, top: int = 1) -> Callable[[LanguageModel, Any, jax.Array], Counts]:
    """The number of words of each example that are among the `top` predictions, and its number of words.

    As in keyboards: only words are predicted, not special tokens; unknown words always count as misses; ends are not
    words.
    """

    def of_examples(model: LanguageModel, batch: Any, key: jax.Array) -> Counts:
        del key
        tokens = batch[field]
        is_word = model.counts(tokens) & (tokens[:, 1:] != model.end)
        logits, targets = model(tokens[:, :-1]), tokens[:, 1:, None]
        numbers = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 2)
        chosen = jnp.take_along_axis(logits, targets, axis=2)
        is_before = (logits > chosen) | ((logits == chosen) & (numbers < targets))  # ties go to the first
        rank = jnp.sum(is_before & (numbers >= model.first_word), axis=2)
        hit = is_word & (rank < top) & (tokens[:, 1:] >= model.first_word)
        return jnp.sum(hit.astype(jnp.float32), axis=1), jnp.sum(is_word.astype(jnp.float32), axis=1)

    return of_examples
