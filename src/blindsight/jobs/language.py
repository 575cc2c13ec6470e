"""What training a language model needs beyond a classifier's run: vocabulary, clients' text as tokens, model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blindsight.accounting.events import Event, from_json, to_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.vocabulary import release_words
from blindsight.config import Config, ModelSettings, TextSettings
from blindsight.data.population import TEXT, Population
from blindsight.data.text import MARKS, Vocabulary, split_sentences, unknown_words, word_tokens
from blindsight.errors import InvalidInput
from blindsight.jobs.classes import need_field
from blindsight.jobs.public import other_clients, read_public
from blindsight.keys import Key
from blindsight.models.cifg_lstm import LanguageModel, char_model, recall, token_loss, word_model
from blindsight.runs import Run

__all__ = ["check_any", "check_text", "language_metrics", "language_model", "public_vocabulary", "public_words"]
__all__ += ["kept_vocabulary", "tokens_of", "vocabulary_of"]


def check_text(settings: TextSettings, population: Population) -> None:
    """Refuse a population without the text field that the settings name."""
    need_field(population, settings.field, "text")
    if population.fields[settings.field][0] != TEXT:
        raise InvalidInput(f"[text] names {settings.field!r}, which is not text in {population.name}")


def public_words(config: Config, folder: Path) -> Vocabulary | None:
    """The public part of a vocabulary: all of it, or the candidates of a private one.

    None if words are discovered, or if the run in `folder` has saved its vocabulary already.
    """
    text = config.text
    if (folder / "vocabulary.json").exists():
        return None
    if text.vocabulary == "private":
        return None if text.candidates is None else Vocabulary.load(text.candidates)
    return public_vocabulary(config)


def vocabulary_of(
    config: Config, clients: Population, public: Vocabulary | None, name: str, *, run: Run, key: Key, ledger: Ledger
) -> tuple[Vocabulary, tuple[Event, ...]]:
    """The vocabulary of a run and the events it cost; saved in the run's folder, never released twice.

    **Guarantee**: a private vocabulary is in the ledger before its noise is drawn, and the run's guarantee must include
    its event.

    Args:
        config: The run's settings.
        clients: The run's clients.
        public: The public part of the vocabulary, from `public_words`.
        name: Name of the clients in the ledger.
        run: The run, where the vocabulary is saved.
        key: Key of the release.
        ledger: Where the release is recorded.
    """
    if (run.path / "vocabulary.json").exists():
        ledger.verify(run.read("vocabulary.json").get("ledger")).raise_if_broken()
        return kept_vocabulary(run)
    released: tuple[Event, ...] = ()
    if config.text.vocabulary == "private":
        text = config.text
        if config.privacy.delta is None:
            raise InvalidInput('[text] vocabulary = "private" needs a delta in [privacy]')
        counts = release_words(
            split_sentences(clients, field=text.field, most=text.sentences, least_words=1),
            candidates=None if public is None else public.words,
            epsilon=text.vocabulary_epsilon,
            delta=config.privacy.delta,
            field=text.field,
            case=text.case,
            key=key.derive("vocabulary"),
            ledger=ledger,
            population=name,
            run=run.path.name,
        )
        words, released = counts.words[: text.vocabulary_size - len(MARKS)], (counts.event,)
    else:
        words = (public_vocabulary(config) if public is None else public).words
    head = ledger.entries(name)[-1].hash if released else None
    events = [to_json(event) for event in released]
    # even if it has no words: it was paid for, and another try would cost again
    run.write("vocabulary.json", {"format": 1, "words": words, "released": events, "ledger": head})
    return kept_vocabulary(run)


def kept_vocabulary(run: Run) -> tuple[Vocabulary, tuple[Event, ...]]:
    """The vocabulary that a run has saved, and the events it cost the run's clients."""
    saved: Any = run.read("vocabulary.json")
    if not isinstance(saved, Mapping) or not {"words", "released"} <= saved.keys():
        raise InvalidInput(f"{run.path / 'vocabulary.json'} is damaged: begin a new run in another folder")
    if not saved["words"]:
        raise InvalidInput(
            f"no word is used by enough clients to stand out from the noise, and {run.path} has paid for that answer: "
            f"begin another run, with a larger vocabulary_epsilon or with public candidates"
        )
    return Vocabulary(tuple(saved["words"])), tuple(from_json(event) for event in saved["released"])


def public_vocabulary(config: Config) -> Vocabulary:
    """The words of a file, or the most frequent words of public data, as [text] vocabulary names them."""
    text, name = config.text, config.text.vocabulary or ""
    if Path(name).suffix in (".txt", ".json"):
        return Vocabulary(Vocabulary.load(name).words[: text.vocabulary_size - len(MARKS)])
    options = text.vocabulary_options or other_clients(name)
    public = read_public(name, options, config.data.population, config.data.options, what="[text] vocabulary")
    check_text(text, public)
    return Vocabulary.most_frequent(public, text.vocabulary_size, field=text.field, case=text.case)


def tokens_of(settings: TextSettings, kind: str, population: Population, vocabulary: Vocabulary) -> Population:
    """The clients with the tokens that a model of that kind reads: of their sentences, or of their unknown words."""
    check_text(settings, population)
    field, most, length, case = settings.field, settings.sentences, settings.length, settings.case
    sentences = split_sentences(population, field=field, most=most)
    if kind == "char_lm":
        tokens = unknown_words(sentences, vocabulary, most=most, field=field, length=length, case=case)
    else:
        tokens = word_tokens(sentences, vocabulary, field=field, length=length, case=case)
    return tokens.replace({"tokens": np.ascontiguousarray(tokens.columns["tokens"])})


def check_any(kind: str, public: Population) -> Population:
    """Tokens of public data, refused if there are none. For clients' data such a refusal would be a leak."""
    if not public.n_examples:
        what = "words that the vocabulary lacks" if kind == "char_lm" else "sentences of two words or more"
        raise InvalidInput(f"no client of {public.name} has {what}: name other public data")
    return public


def language_model(settings: ModelSettings, vocabulary: Vocabulary) -> LanguageModel:
    """The model that `settings` describe, for the words of `vocabulary`."""
    embedding, cells, layers, key = settings.embedding, settings.cells, settings.layers, jax.random.key(settings.seed)
    if settings.kind == "char_lm":
        return char_model(embedding=embedding or 128, cells=cells or 256, layers=layers or 3, key=key)
    return word_model(vocabulary.size, embedding=embedding or 96, cells=cells or 670, layers=layers or 1, key=key)


def language_metrics(kind: str) -> dict[str, Any]:
    """The metrics on held-out clients: loss per token, and how often the next word is among the top guesses."""
    if kind == "char_lm":
        return {"loss": token_loss()}
    return {"recall_top1": recall(top=1), "recall_top3": recall(top=3), "loss": token_loss()}
