"""The canaries of a training run, as [audit] asks for them: who is planted, at which rate, and the auditor's secret."""

import dataclasses
from typing import Any

import numpy as np

from blindsight import keys
from blindsight.audit.canaries import (
    Canaries,
    Marks,
    phrase_clients,
    phrases,
    picture_clients,
    secret_sharer,
    sharing_clients,
)
from blindsight.audit.planting import Planted, direction_clients, joined
from blindsight.backends import Backend, Simulation
from blindsight.config import AuditSettings, Config
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import Population
from blindsight.data.sources import check_public, source
from blindsight.data.text import END, END_OF_WORD, MARKS, PAD, START, START_OF_WORD, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.jobs.language import PUBLIC, check_any, tokens_of
from blindsight.keys import Key
from blindsight.privacy import Privacy
from blindsight.runs import Run

__all__ = ["FILE", "Plants", "alphabet", "coin_clients", "kept_plants", "marks", "plant"]

FILE = "planted.json"
_LETTERS = np.arange(ord("a"), ord("z") + 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Plants:
    """What was planted in a run: the key it all descends from, the canaries, and the coins of the one-run bound.

    Whoever knows the coins before guessing has audited nothing: they stay in the run's folder, in `planted.json`.
    """

    key: Key
    canaries: Canaries | None
    clients: np.ndarray  # a coin for each client with a canary of its own: whether it was put in
    directions: np.ndarray
    classes: int = 0

    def to_dict(self, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": 1,
            "secret": self.key.secret.hex(),
            "canaries": None if self.canaries is None else self.canaries.to_dict(vocabulary),
            "clients": _shown(self.clients),
            "directions": _shown(self.directions),
            "classes": self.classes,
        }


def plant(
    config: Config,
    asked: AuditSettings,
    clients: Population,
    privacy: Privacy,
    *,
    vocabulary: Vocabulary | None,
    classes: int,
    run: Run,
    key: Key,
) -> Backend:
    """The backend of a run whose `clients` are joined by planted ones: the same ones when it is resumed."""
    words = vocabulary if config.model.kind == "word_lm" else None
    is_new = not (run.path / FILE).exists()
    plants = _new(config, asked, vocabulary, classes, key) if is_new else kept_plants(run, words)
    rate = 1.0 if privacy.participation == "full" else privacy.cohort / privacy.population
    people: list[Population] = []
    rates: list[np.ndarray] = []
    if plants.canaries is not None and vocabulary is not None:
        public, secret = _public_rows(config, asked, vocabulary), plants.key.derive("sharing")
        how: Any = {"sentences": config.text.sentences, "marks": marks(config)}
        people.append(sharing_clients(plants.canaries, public, key=secret, **how))
        rates.append(np.full(people[-1].size, asked.rate))
    if len(plants.clients):
        copies = 1 if config.privacy.unit == "example" else None
        people.append(coin_clients(config, asked, plants, clients, vocabulary, copies=copies))
        rates.append(rate * plants.clients)
    if len(plants.directions):
        fields = {field: clients.fields[field] for field in _fields(config)}
        people.append(direction_clients(fields, len(plants.directions)))
        rates.append(rate * plants.directions)
    if is_new:  # now that everything fits
        run.write(FILE, plants.to_dict(words))
    directions = plants.key.derive("directions") if len(plants.directions) else None
    return Planted(Simulation(joined(clients, people)), clients.size, np.concatenate(rates), directions=directions)


def kept_plants(run: Run, vocabulary: Vocabulary | None) -> Plants:
    """What was planted in `run`, whose canaries must be words of `vocabulary`."""
    if not (run.path / FILE).exists():
        raise InvalidInput(f"{run.path} has no canaries: train it with a table [audit], as docs/audit.md says")
    found = run.read(FILE)
    try:
        canaries = found["canaries"]
        return Plants(
            key=Key(bytes.fromhex(found["secret"])),
            canaries=None if canaries is None else Canaries.from_dict(canaries, vocabulary),
            clients=_read(found["clients"]),
            directions=_read(found["directions"]),
            classes=int(found["classes"]),
        )
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{run.path / FILE} is damaged ({error!r}): train the run anew in another folder") from error


def coin_clients(
    config: Config,
    asked: AuditSettings,
    plants: Plants,
    clients: Population,
    vocabulary: Vocabulary | None,
    *,
    copies: int | None = None,
) -> Population:
    """The clients that coins put in or left out, each with `copies` of a canary of its own."""
    key, count = plants.key.derive("clients"), len(plants.clients)
    if config.model.is_language and vocabulary is not None:
        made = phrases(alphabet(config, vocabulary), count, asked.words, key=key)
        how: Any = {"length": config.text.length, "marks": marks(config)}
        return phrase_clients(made, sentences=copies or config.text.sentences, **how)
    fields = {field: clients.fields[field] for field in _fields(config)}
    about: Any = {"label": config.model.label, "classes": plants.classes, "count": count}
    return picture_clients(fields, **about, key=key, examples=copies or asked.examples)


def alphabet(config: Config, vocabulary: Vocabulary) -> np.ndarray:
    """What canaries are made of: the words that the model knows, or small letters."""
    return _LETTERS if config.model.kind == "char_lm" else np.arange(len(MARKS), vocabulary.size)


def marks(config: Config) -> Marks:
    """What begins, ends and fills the rows of the run's model."""
    return (START_OF_WORD, END_OF_WORD, END_OF_WORD) if config.model.kind == "char_lm" else (START, END, PAD)


def _new(config: Config, asked: AuditSettings, vocabulary: Vocabulary | None, classes: int, key: Key) -> Plants:
    # a reproducible run has reproducible canaries; otherwise they have a root of their own, for it is written down
    own = key.derive("audit") if key.is_reproducible else keys.root()
    canaries = None
    if config.model.is_language and asked.canaries and vocabulary is not None:
        how: Any = {name: getattr(asked, name) for name in ("clients", "copies", "repeats", "words", "prefix")}
        canaries = secret_sharer(alphabet(config, vocabulary), key=own.derive("canaries"), **how)

    def coins(kind: str, count: int) -> np.ndarray:
        return own.derive(f"coins of {kind}").stream().bernoulli(0.5, count)

    by_coins = coins("clients", asked.one_run), coins("directions", asked.directions)
    return Plants(own, canaries, *by_coins, classes)


def _public_rows(config: Config, asked: AuditSettings, vocabulary: Vocabulary) -> np.ndarray:
    """Sentences of the public corpus, as the model reads them."""
    options = asked.public_options or (dict(PUBLIC) if asked.public in POPULATIONS else {})
    check_public(asked.public, options, config.data.population, config.data.options, what="[audit] public")
    public = source(asked.public, **options)
    kind = config.model.kind
    return check_any(kind, tokens_of(config.text, kind, public, vocabulary)).columns["tokens"]


def _fields(config: Config) -> list[str]:
    return ["tokens"] if config.model.is_language else [*config.model.inputs, config.model.label]


def _shown(coins: np.ndarray) -> str:
    return "".join("1" if coin else "0" for coin in coins.tolist())


def _read(coins: str) -> np.ndarray:
    if set(coins) - {"0", "1"}:
        raise ValueError("coins are 0 or 1")
    return np.array([coin == "1" for coin in coins], bool)
