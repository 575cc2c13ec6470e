"""Language models of both sides of a change, as in Augenstein et al. 2020 (arXiv:1911.06679), Section 5.

A word model trained on all sentences shows where it expects unknown words; a character model trained on unknown words
spells typical ones. There are four models, each trained with DP-FedAvg. A client may have sentences on both sides, so
the costs of all four add up, and one noise multiplier is calibrated to keep them within (epsilon, delta).
"""

import collections
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Protocol

import equinox as eqx
import jax
import numpy as np
import optax

from blindsight import trees
from blindsight.algorithms import Algorithm
from blindsight.algorithms.dp_fedavg import dp_fedavg
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.lessons import Lesson
from blindsight.inspection.session import Inquiry
from blindsight.inspection.unknowns.section import Generated, WordList
from blindsight.inspection.unknowns.words import PLACES, SIDES, TRAITS, traits_of
from blindsight.models import generation
from blindsight.models.cifg_lstm import LanguageModel, char_model, next_token_loss, word_model
from blindsight.privacy import Privacy

__all__ = ["WordTraining", "generate", "generate_side", "train_models"]

UNITS = ("words", "letters")
_PHRASES, _PHRASE = 10, 10  # phrases shown, and words in each


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordTraining:
    """Settings for training the models of words and letters of each side, for `share` of the epsilon.

    The defaults suit a few thousand clients and two CPU cores. The papers use embedding 96 and 670 cells for words, and
    three layers of 256 cells with embedding 128 for letters.
    """

    rounds: int = 100
    cohort: float = 150
    share: float = 0.75
    clip_words: float = 0.5
    clip_letters: float = 0.5
    embedding: int = 32
    cells: int = 64
    letter_embedding: int = 32
    letter_cells: int = 96
    letter_layers: int = 1
    batch_size: int = 16
    client_rate: float = 0.5
    server_rate: float = 1.0
    momentum: float = 0.9
    length: int = 20
    samples: int = 4_000
    listed: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInput(f"the share of epsilon for training must be between 0 and 1, got {self.share}")
        if not self.length > len(PLACES):
            raise InvalidInput(f"length must be above {len(PLACES)} tokens, got {self.length}")
        if not (self.samples >= 1 and self.listed >= 1):
            raise InvalidInput(f"samples and listed must be at least 1, got {self.samples} and {self.listed}")

    def model(self, unit: str, vocabulary: Vocabulary) -> LanguageModel:
        """The untrained model of words or letters; its initial weights are public."""
        key = jax.random.key(0)
        if unit == "words":
            return word_model(vocabulary.size, embedding=self.embedding, cells=self.cells, key=key)
        sizes = {"embedding": self.letter_embedding, "cells": self.letter_cells, "layers": self.letter_layers}
        return char_model(**sizes, key=key)

    def privacy(self, unit: str, clients: int) -> Privacy:
        """The training rounds of that model on this many clients, before noise is calibrated."""
        clip = self.clip_words if unit == "words" else self.clip_letters
        return Privacy(population=clients, cohort=min(self.cohort, clients), rounds=self.rounds, clip=clip)

    def algorithm(self, start: LanguageModel, privacy: Privacy) -> Algorithm:
        """DP-FedAvg starting from the model `start`."""
        return dp_fedavg(
            start,
            next_token_loss(),
            privacy,
            client_optimizer=optax.sgd(self.client_rate),
            server_optimizer=optax.sgd(self.server_rate, momentum=self.momentum, nesterov=True),
            batch_size=self.batch_size,
        )


class _HasCase(Protocol):
    """The part of a question that training reads."""

    @property
    def case(self) -> Case: ...


def train_models(
    question: "_HasCase",
    training: WordTraining,
    inquiry: Inquiry,
    sides: Mapping[str, Population],
    payers: Mapping[str, str],
) -> dict[str, Generated]:
    """What models trained on the sentences of both `sides` generate; each side's `payers` pay for its own models.

    **Guarantee**: the four models and everything the inquiry released before are (epsilon, delta)-DP for each client,
    whichever sides it has sentences on.
    """
    vocabulary = inquiry.public.vocabulary or Vocabulary(())
    names = [(side, unit) for side in SIDES for unit in UNITS]
    planned = [_lesson(question, training, sides[side], payers[side], vocabulary, side, unit) for side, unit in names]
    models = dict(zip(names, inquiry.train(planned, "training language models"), strict=True))
    inquiry.progress("sampling from the models", 2, 3)
    return generate(models, vocabulary, training)


def _lesson(
    question: "_HasCase",
    training: WordTraining,
    sentences: Population,
    payer: str,
    vocabulary: Vocabulary,
    side: str,
    unit: str,
) -> Lesson:
    start = training.model(unit, vocabulary)
    clients = _examples(sentences, unit, vocabulary, training.length, question.case)
    return Lesson(
        name=f"model of {unit} {side}",
        folder=f"models/{side}-{unit}",
        clients=clients,
        privacy=training.privacy(unit, clients.size),
        algorithm=functools.partial(training.algorithm, start),
        weights=trees.size(eqx.filter(start, eqx.is_inexact_array)),
        settings={"side": side, "kind": unit, **dataclasses.asdict(training)},  # names that started runs have stored
        payers=payer,
    )


def _examples(sentences: Population, unit: str, vocabulary: Vocabulary, length: int, case: Case) -> Population:
    """The token rows that a model of that unit reads."""
    read = text.word_tokens if unit == "words" else text.unknown_words
    rows = read(sentences, vocabulary, length=length, case=case)
    return rows.replace({"tokens": rows.columns["tokens"]})


def generate(
    models: Mapping[tuple[str, str], LanguageModel], vocabulary: Vocabulary, training: WordTraining
) -> dict[str, Generated]:
    """What the models of each side generate: post-processing of the trained models."""
    letters = {side: models[side, "letters"] for side in SIDES}
    return {
        side: generate_side(models[side, "words"], letters[side], letters[other], vocabulary, training)
        for side, other in (SIDES, SIDES[::-1])
    }


def generate_side(
    words: LanguageModel,
    letters: LanguageModel,
    elsewhere: LanguageModel,
    vocabulary: Vocabulary,
    training: WordTraining,
) -> Generated:
    """What one side's models generate; `elsewhere` is the other side's letter model, for comparison."""
    rows = _drawn(words, training)
    rate, places = _by_place(rows)
    spelled = _spelled(_drawn(letters, training), vocabulary)
    count = np.array(list(spelled.values()))
    traits = np.array([traits_of(word) for word in spelled]).reshape(-1, len(TRAITS))
    return Generated(
        rate=rate,
        places=places,
        phrases=tuple(" ".join(vocabulary.decode(row)[:_PHRASE]) for row in rows[:_PHRASES]),
        listed=_listed(list(spelled), letters, elsewhere, training),
        traits=tuple((count @ traits / max(count.sum(), 1)).tolist()),
    )


def _drawn(model: LanguageModel, training: WordTraining) -> np.ndarray:
    return np.asarray(generation.sample(model, training.samples, key=jax.random.key(0), length=training.length))


def _spelled(rows: np.ndarray, vocabulary: Vocabulary) -> dict[str, int]:
    """Unknown words that the letter model spelled, with their counts; a sequence without an end is no word."""
    spelled = collections.Counter[str]()
    for row in rows[:, 1:]:
        ends = np.flatnonzero(row == text.END_OF_WORD)
        if len(ends):
            spelled[bytes(row[: ends[0]].astype(np.uint8)).decode("utf-8", "replace")] += 1
    return {word: count for word, count in spelled.items() if word and word not in vocabulary}


def _listed(words: list[str], own: LanguageModel, other: LanguageModel, training: WordTraining) -> WordList:
    """The most likely of these words by exact joint probability (Equation 1), with the other side's probability."""
    if not words:
        return WordList((), (), ())
    rows = text.word_bytes(words, length=training.length)
    here, there = (np.exp(np.asarray(generation.log_probability(model, rows), np.float64)) for model in (own, other))
    order = np.argsort(-here, kind="stable")[: training.listed]
    shown = tuple(words[j].replace("\u00a0", " ") for j in order)
    return WordList(shown, tuple(here[order].tolist()), tuple(there[order].tolist()))


def _by_place(rows: np.ndarray) -> tuple[float, tuple[float, ...]]:
    """In sampled sentences: the share of unknown words, and the share of sentences with one at each position."""
    is_unknown = rows[:, 1:] == text.UNKNOWN
    is_word = rows[:, 1:] >= text.UNKNOWN
    near = is_unknown[:, : len(PLACES) - 1].mean(axis=0)
    later = is_unknown[:, len(PLACES) - 1 :].any(axis=1).mean()
    rate: Any = is_unknown.sum() / max(is_word.sum(), 1)
    return float(rate), (*near.tolist(), float(later))
