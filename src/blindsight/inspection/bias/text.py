"""Sentences that a model of public text finds unlikely: how many clients write, what words they use, what they say.

The likelihood filter of Augenstein et al. 2020 (T6): a language model is trained on public text, which costs nothing;
every client keeps those of its sentences that the model finds less likely than all but a tenth of *other* public text,
and a second model is trained on these, with DP-FedAvg. It starts as a model of public text, so that what clients pay
for is what differs.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import runs, trees
from blindsight.accounting.events import Composed, Event
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms.dp_fedavg import dp_fedavg
from blindsight.backends import Backend, Batch
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import BudgetExceeded
from blindsight.inspection.bias.measures import same_clients
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.keys import Key
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.release import marked
from blindsight.models import generation
from blindsight.models.cifg_lstm import LanguageModel, next_token_loss
from blindsight.models.ngram import NGram, fit_ngram
from blindsight.runs import Run
from blindsight.training import train

__all__ = ["LIKELY", "SURPRISE", "Filter", "expected_words", "learn", "phrases", "train_words", "unlikely"]

LIKELY, SURPRISE = "likely", "surprise"
UNLIKELY = 0.1
"""The part of public sentences that count as unlikely."""

_LENGTH, _ORDER = 30, 3
_NATS = 12.0  # a token of so little probability is as surprising as can be
_COMMON = 0.05  # of public clients: words that so many use in unlikely sentences are no news
_PRETRAINING = 300  # steps on public text
_PHRASES, _PHRASE = 12, 12


@dataclasses.dataclass(frozen=True, eq=False)
class Filter:
    """A model of public text, and the log-probability of a token below which a sentence is unlikely."""

    model: NGram
    vocabulary: Vocabulary
    threshold: float
    case: Case

    def observe(self, sentences: Population) -> Population:
        """The sentences with what each client finds out: `likely`, 0 or 1, and `surprise`, between 0 and 1."""
        each = _log_probabilities(self.model, self.vocabulary, sentences, self.case)
        likely = (each >= self.threshold).astype(np.int32)
        surprise = np.clip(-each / _NATS, 0, 1).astype(np.float32)
        return sentences.replace({**sentences.columns, LIKELY: likely, SURPRISE: surprise})


def learn(learning: Population, confirming: Population, *, size: int, case: Case) -> Filter:
    """The filter: model and vocabulary from one half of public text, the threshold from the other.

    A model that had read them would find sentences likelier than any others', so that nothing is compared with the
    half that was learnt from.
    """
    vocabulary = Vocabulary.most_frequent(learning, size, case=case)
    model = fit_ngram(_tokens(vocabulary, learning, case), vocabulary.size, order=_ORDER)
    usual = _log_probabilities(model, vocabulary, confirming, case)
    return Filter(model, vocabulary, float(np.quantile(usual, UNLIKELY)), case)


def _tokens(vocabulary: Vocabulary, sentences: Population, case: Case) -> np.ndarray:
    return vocabulary.encode((text.tokens(one, case=case) for one in sentences.columns["text"]), length=_LENGTH)


def _log_probabilities(model: NGram, vocabulary: Vocabulary, sentences: Population, case: Case) -> np.ndarray:
    """The mean log-probability of the tokens of each sentence.

    A model knows how likely an unknown word is and not which: it is one of as many as are known, or text full of words
    that public text lacks would be likely.
    """
    rows = _tokens(vocabulary, sentences, case)
    unknown = (rows[:, 1:] == text.UNKNOWN).sum(axis=1)
    whole = model.log_probability(rows) - unknown * np.log(len(vocabulary.words))
    return whole / np.maximum((rows[:, 1:] != text.PAD).sum(axis=1), 1)


def unlikely(sentences: Population) -> Population:
    """The same clients with their unlikely sentences alone."""
    return same_clients(sentences, sentences.columns[LIKELY] == 0)


def expected_words(public: Population, case: Case) -> tuple[Vocabulary | None, dict[str, float]]:
    """Words that many public clients use in unlikely sentences, and the share of clients that uses each word."""
    users = collections.Counter[str]()
    texts = public.columns["text"].tolist()
    for start, end in zip(public.offsets[:-1], public.offsets[1:], strict=True):
        users.update({token for one in texts[start:end] for token in text.tokens(one, case=case)})
    shares = {word: count / max(public.size, 1) for word, count in users.items()}
    common = tuple(word for word, share in shares.items() if share >= _COMMON)
    return (Vocabulary(common) if common else None), shares


def train_words(
    sentences: Population,
    public: Population,
    vocabulary: Vocabulary,
    training: WordTraining,
    *,
    epsilon: float,
    delta: float,
    spent: list[Event],
    case: Case,
    run: Run,
    backend: Callable[[Population], Backend],
    key: Key,
    ledger: Ledger,
    population: str,
) -> tuple[LanguageModel, LanguageModel, Event]:
    """The second model, trained on clients' unlikely `sentences`, the public one that it began as, and the cost.

    **Guarantee**: `spent` and what is returned together are (epsilon, delta)-DP for each client. Rounds are in the
    ledger before they begin, and a run that was stopped goes on.
    """
    clients = text.word_tokens(sentences, vocabulary, length=training.length, case=case)
    clients = clients.replace({"tokens": clients.columns["tokens"]})
    known = text.word_tokens(public, vocabulary, length=training.length, case=case).columns["tokens"]
    start = _pretrained(training.model("words", vocabulary), known)
    privacy = training.privacy("words", clients.size)
    weights = trees.size(eqx.filter(start, eqx.is_inexact_array))

    def cost(noise: float) -> Event:
        return privacy.sampling.event(marked(gaussian(noise).event_for(weights), key), training.rounds)

    noise = solve_noise(lambda z: Composed((*spent, cost(z))), epsilon=epsilon, delta=delta)
    privacy = dataclasses.replace(privacy, noise_multiplier=noise)
    algorithm = dp_fedavg(
        start,
        next_token_loss(),
        privacy,
        client_optimizer=optax.sgd(training.client_rate),
        server_optimizer=optax.sgd(training.server_rate, momentum=training.momentum, nesterov=True),
        batch_size=training.batch_size,
    )
    trained = train(
        algorithm,
        backend(clients),
        privacy,
        population=population,
        delta=delta,
        key=key,
        run=runs.begin(run.path / "model", "model", dataclasses.asdict(training)),
        ledger=ledger,
        before=tuple(spent),  # the words that it knows were released too
        checkpoint_every=max(1, training.rounds // 5),
    )
    if trained.rounds < training.rounds:
        raise BudgetExceeded(
            f"the budget of {population!r} ended after {trained.rounds} of {training.rounds} rounds of training: raise "
            f"it with blindsight ledger budget set, and run again to go on"
        )
    return trained.model, start, cost(noise)


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


def phrases(
    model: LanguageModel, public: LanguageModel, vocabulary: Vocabulary, training: WordTraining
) -> tuple[str, ...]:
    """Sentences as the second model says them, first those that it finds likelier than the public one does."""
    rows = generation.sample(model, 10 * _PHRASES, key=jax.random.key(0), length=training.length)
    own, other = (np.asarray(generation.log_probability(one, rows), np.float64) for one in (model, public))
    rows = np.asarray(rows)
    order = np.argsort((other - own) / (rows[:, 1:] != text.PAD).sum(axis=1), kind="stable")
    said = dict.fromkeys(" ".join(vocabulary.decode(rows[j])[:_PHRASE]) for j in order)
    return tuple(one for one in said if one)[:_PHRASES]
