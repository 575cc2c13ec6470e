"""Sentences that a model of public text finds unlikely: how frequent they are, and what words and phrases they contain.

The likelihood filter of Augenstein et al. 2020 (T6). A language model is trained on public text, which costs nothing.
Every client keeps those of its sentences that the model finds less likely than 90 % of *held-out* public text, and a
second model is trained on these with DP-FedAvg. It starts from a model of public text, so that clients pay only for
what differs.
"""

import collections
import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import trees
from blindsight.accounting.ledger import Payers
from blindsight.backends import Batch
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.text import Case, Vocabulary
from blindsight.inspection.bias.measures import same_clients
from blindsight.inspection.lessons import Lesson
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.models import generation
from blindsight.models.cifg_lstm import LanguageModel, next_token_loss
from blindsight.models.ngram import NGram, fit_ngram

__all__ = ["LIKELY", "SURPRISE", "Filter", "SecondModel", "expected_words", "learn", "unlikely"]

LIKELY, SURPRISE = "likely", "surprise"
UNLIKELY = 0.1
"""The share of public sentences that count as unlikely."""

_LENGTH, _ORDER = 30, 3
_NATS = 12.0  # surprise per token that maps to 1
_COMMON = 0.05  # share of public clients from which a word in unlikely sentences counts as common
_PRETRAINING = 300  # steps on public text
_PHRASES, _PHRASE = 12, 12


@dataclasses.dataclass(frozen=True, eq=False)
class Filter:
    """A model of public text, and the mean log-probability per token below which a sentence is unlikely."""

    model: NGram
    vocabulary: Vocabulary
    threshold: float
    case: Case

    def observe(self, sentences: Population) -> Population:
        """The sentences with two derived fields: `likely`, 0 or 1, and `surprise`, between 0 and 1."""
        each = _log_probabilities(self.model, self.vocabulary, sentences, self.case)
        likely = (each >= self.threshold).astype(np.int32)
        surprise = np.clip(-each / _NATS, 0, 1).astype(np.float32)
        return sentences.replace({**sentences.columns, LIKELY: likely, SURPRISE: surprise})


def learn(learning: Population, confirming: Population, *, size: int, case: Case) -> Filter:
    """The filter: model and vocabulary from one half of public text, the threshold from the other.

    A model finds its own training sentences likelier than others, so the learning half is never compared with clients.
    """
    vocabulary = Vocabulary.most_frequent(learning, size, case=case)
    model = fit_ngram(_tokens(vocabulary, learning, case), vocabulary.size, order=_ORDER)
    usual = _log_probabilities(model, vocabulary, confirming, case)
    return Filter(model, vocabulary, float(np.quantile(usual, UNLIKELY)), case)


def _tokens(vocabulary: Vocabulary, sentences: Population, case: Case) -> np.ndarray:
    return vocabulary.encode((text.tokens(one, case=case) for one in sentences.columns["text"]), length=_LENGTH)


def _log_probabilities(model: NGram, vocabulary: Vocabulary, sentences: Population, case: Case) -> np.ndarray:
    """The mean log-probability of the tokens of each sentence.

    The model gives a probability to the unknown token, not to a specific word. That probability is divided by the size
    of the vocabulary; otherwise text full of unknown words would count as likely.
    """
    rows = _tokens(vocabulary, sentences, case)
    unknown = (rows[:, 1:] == text.UNKNOWN).sum(axis=1)
    whole = model.log_probability(rows) - unknown * np.log(len(vocabulary.words))
    return whole / np.maximum((rows[:, 1:] != text.PAD).sum(axis=1), 1)


def unlikely(sentences: Population) -> Population:
    """The same clients with their unlikely sentences only."""
    return same_clients(sentences, sentences.columns[LIKELY] == 0)


def expected_words(public: Population, case: Case) -> tuple[Vocabulary | None, dict[str, float]]:
    """Words that many public clients use in unlikely sentences, and for each word the share of clients that use it."""
    users = collections.Counter[str]()
    texts = public.columns["text"].tolist()
    for start, end in zip(public.offsets[:-1], public.offsets[1:], strict=True):
        users.update({token for one in texts[start:end] for token in text.tokens(one, case=case)})
    shares = {word: count / max(public.size, 1) for word, count in users.items()}
    common = tuple(word for word, share in shares.items() if share >= _COMMON)
    return (Vocabulary(common) if common else None), shares


@dataclasses.dataclass(frozen=True, eq=False)
class SecondModel:
    """A language model for sentences that the first one finds unlikely; its vocabulary includes `discovered` words."""

    first: Filter
    public: Population
    discovered: tuple[str, ...]
    training: WordTraining

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The public vocabulary followed by the discovered words."""
        public = self.first.vocabulary
        return Vocabulary((*public.words, *(word for word in self.discovered if word not in public)))

    @functools.cached_property
    def start(self) -> LanguageModel:
        """The starting point of training: a model of public text."""
        tokens = self._tokens(self.public).columns["tokens"]
        return _pretrained(self.training.model("words", self.vocabulary), tokens)

    def _tokens(self, sentences: Population) -> Population:
        return text.word_tokens(sentences, self.vocabulary, length=self.training.length, case=self.first.case)

    def lesson(self, sentences: Population, payers: Payers) -> Lesson:
        """Training on clients' unlikely sentences."""
        rows = self._tokens(sentences)
        clients = rows.replace({"tokens": rows.columns["tokens"]})
        return Lesson(
            name="model of unlikely sentences",
            folder="model",
            clients=clients,
            privacy=self.training.privacy("words", clients.size),
            algorithm=functools.partial(self.training.algorithm, self.start),
            weights=trees.size(eqx.filter(self.start, eqx.is_inexact_array)),
            settings=dataclasses.asdict(self.training),
            payers=payers,
        )

    def phrases(self, model: LanguageModel) -> tuple[str, ...]:
        """Sentences generated by the trained model, first those that it finds likelier than the public model does."""
        rows = generation.sample(model, 10 * _PHRASES, key=jax.random.key(0), length=self.training.length)
        own, other = (np.asarray(generation.log_probability(one, rows), np.float64) for one in (model, self.start))
        rows = np.asarray(rows)
        order = np.argsort((other - own) / (rows[:, 1:] != text.PAD).sum(axis=1), kind="stable")
        phrases = dict.fromkeys(" ".join(self.vocabulary.decode(rows[j])[:_PHRASE]) for j in order)
        return tuple(phrase for phrase in phrases if phrase)[:_PHRASES]


def _pretrained(model: LanguageModel, tokens: np.ndarray) -> LanguageModel:
    """The model after some steps of Adam on public rows."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer, loss = optax.adam(3e-3), next_token_loss()
    random = np.random.default_rng(0)

    @jax.jit
    def step(params: Any, state: Any, rows: jax.Array) -> tuple[Any, Any]:
        def of(params: Any) -> jax.Array:
            batch = Batch({"tokens": rows}, jnp.ones(len(rows), jnp.float32))
            return loss(eqx.combine(params, static), batch, jax.random.key(0))

        updates, state = optimizer.update(jax.grad(of)(params), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    with jax.numpy_dtype_promotion("standard"):  # which Optax needs
        for _ in range(_PRETRAINING):
            params, state = step(params, state, jnp.asarray(tokens[random.integers(0, len(tokens), 64)]))
    return eqx.combine(params, static)
