"""What training a language model needs beyond a classifier's: the vocabulary, clients' text as tokens, the model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blindsight.accounting.events import Event, from_json, to_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.vocabulary import release_words
from blindsight.config import Config, ModelSettings, TextSettings
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.sources import check_public, source
from blindsight.data.text import MARKS, Vocabulary, split_sentences, unknown_words, word_tokens
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.models.cifg_lstm import LanguageModel, char_model, recall, token_loss, word_model
from blindsight.runs import Run

__all__ = ["check_any", "check_text", "language_metrics", "language_model", "public_vocabulary", "public_words"]
__all__ += ["kept_vocabulary", "tokens_of", "vocabulary_of"]

PUBLIC = {"clients": 150, "seed": 20_260}
"""Of an embedded population: nobody who trains or is inspected is among them."""


def check_text(settings: TextSettings, population: Population) -> None:
    """Refuses a population without the text that the settings name."""
    fields = population.fields
    if settings.field not in fields:
        raise InvalidInput(f"[text] names the field {settings.field!r}, but {population.name} has {', '.join(fields)}")
    if fields[settings.field][0] != TEXT:
        raise InvalidInput(f"[text] names {settings.field!r}, which is no text in {population.name}")


def public_words(config: Config, folder: Path) -> Vocabulary | None:
    """What is public of a vocabulary: all of it, or a private one's candidates.

    None where words are discovered, and where the run in `folder` has kept its vocabulary.
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
    """The vocabulary of a run and what it released about `clients`; kept in the run's folder, never released twice.

    `public` is what `public_words` gave, `name` that of the clients in the ledger.

    **Guarantee**: a private one is in the ledger before its noise is drawn, and its event is what the run's promise has
    to include.
    """
    if (run.path / "vocabulary.json").exists():
        ledger.verify(run.read("vocabulary.json").get("ledger")).raise_if_broken()
        return kept_vocabulary(run)
    released: tuple[Event, ...] = ()
    if config.text.vocabulary == "private":
        settings: dict[str, Any] = {"epsilon": config.text.vocabulary_epsilon, "delta": config.privacy.delta}
        settings |= {"key": key.derive("vocabulary"), "ledger": ledger, "run": run.path.name}
        settings["population"] = name
        settings["candidates"] = None if public is None else public.words
        some = split_sentences(clients, field=config.text.field, most=config.text.sentences, least_words=1)
        counts = release_words(some, field=config.text.field, case=config.text.case, **settings)
        words, released = counts.words[: config.text.vocabulary_size - len(MARKS)], (counts.event,)
    else:
        words = (public_vocabulary(config) if public is None else public).words
    about: dict[str, Any] = {"format": 1, "words": words, "released": [to_json(event) for event in released]}
    about["ledger"] = ledger.entries(name)[-1].hash if released else None
    run.write("vocabulary.json", about)  # without any words too: it was paid for, and another try would be a new price
    return kept_vocabulary(run)


def kept_vocabulary(run: Run) -> tuple[Vocabulary, tuple[Event, ...]]:
    """The vocabulary that a run has kept, and what it released about the run's clients."""
    found = run.read("vocabulary.json")
    if not isinstance(found, Mapping) or not {"words", "released"} <= set(found):  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidInput(f"{run.path / 'vocabulary.json'} is damaged: begin the run anew in another folder")
    kept: dict[str, Any] = dict(found)  # pyright: ignore[reportUnknownArgumentType]
    if not kept["words"]:
        raise InvalidInput(
            f"no word is used by so many clients that it stands out of the noise, and {run.path} has paid for that "
            f"answer: begin another run, with a larger vocabulary_epsilon or with public candidates"
        )
    return Vocabulary(tuple(kept["words"])), tuple(from_json(event) for event in kept["released"])


def public_vocabulary(config: Config, words: str | None = None) -> Vocabulary:
    """The words of a file, or the most frequent ones of public data: what [text] vocabulary names, or `words`."""
    text = config.text
    name, options = words or text.vocabulary or "", dict(text.vocabulary_options)
    if Path(name).suffix in (".txt", ".json"):
        return Vocabulary(Vocabulary.load(name).words[: text.vocabulary_size - len(MARKS)])
    if name in POPULATIONS and not options:
        options = dict(PUBLIC)
    check_public(name, options, config.data.population, config.data.options, what="[text] vocabulary")
    public = source(name, **options)
    check_text(text, public)
    return Vocabulary.most_frequent(public, text.vocabulary_size, field=text.field, case=text.case)


def tokens_of(settings: TextSettings, kind: str, population: Population, vocabulary: Vocabulary) -> Population:
    """The clients with what a model of that kind reads: the tokens of their sentences, or of their unknown words."""
    check_text(settings, population)
    field, most = settings.field, settings.sentences
    split = split_sentences(population, field=field, most=most)
    about: Any = {"field": field, "length": settings.length, "case": settings.case}
    if kind == "char_lm":
        numbered = unknown_words(split, vocabulary, most=most, **about)
    else:
        numbered = word_tokens(split, vocabulary, **about)
    return numbered.replace({"tokens": np.ascontiguousarray(numbered.columns["tokens"])})


def check_any(kind: str, public: Population) -> Population:
    """Tokens of public data, refused where there are none: of clients that would tell that nobody has any."""
    if not public.n_examples:
        what = "words that the vocabulary lacks" if kind == "char_lm" else "sentences of two words or more"
        raise InvalidInput(f"nobody in {public.name} has {what}: there is nothing to learn from")
    return public


def language_model(settings: ModelSettings, vocabulary: Vocabulary) -> LanguageModel:
    """The model that `settings` describe, for the words of `vocabulary`."""
    sizes = {name: getattr(settings, name) for name in ("embedding", "cells", "layers")}
    given: Any = {name: size for name, size in sizes.items() if size is not None}
    key = jax.random.key(settings.seed)
    return char_model(**given, key=key) if settings.kind == "char_lm" else word_model(vocabulary.size, **given, key=key)


def language_metrics(kind: str) -> dict[str, Any]:
    """What is measured on held-out clients: loss per token, and how often the next word is proposed."""
    if kind == "char_lm":
        return {"loss": token_loss()}
    return {"recall_top1": recall(top=1), "recall_top3": recall(top=3), "loss": token_loss()}
