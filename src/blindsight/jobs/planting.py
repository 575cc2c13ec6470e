"""The canaries of a training run, as [audit] describes them: planted clients, their rates, and the auditor's secret."""

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
from blindsight.data.population import Population
from blindsight.data.text import END, END_OF_WORD, MARKS, PAD, START, START_OF_WORD, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.jobs.language import check_any, tokens_of
from blindsight.jobs.public import other_clients, read_public
from blindsight.jobs.tasks import TrainingTask
from blindsight.keys import Key
from blindsight.privacy import Privacy
from blindsight.runs import Run

__all__ = ["FILE", "Plants", "alphabet", "audit_of", "coin_clients", "kept_plants", "marks", "plant"]

FILE = "planted.json"
_LETTERS = np.arange(ord("a"), ord("z") + 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Plants:
    """What was planted in a run: the key that everything is derived from, the canaries, and the one-run coins.

    The audit must guess the coins without knowing them: they stay in the run's folder, in `planted.json`.
    """

    key: Key
    canaries: Canaries | None
    clients: np.ndarray  # one coin for each client with its own canary: whether it was included
    directions: np.ndarray
    classes: int = 0

    def to_dict(self, vocabulary: Vocabulary | None) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": 1,
            "secret": self.key.secret.hex(),
            "canaries": None if self.canaries is None else self.canaries.to_dict(vocabulary),
            "clients": _as_digits(self.clients),
            "directions": _as_digits(self.directions),
            "classes": self.classes,
        }


def plant(config: Config, task: TrainingTask, privacy: Privacy, *, run: Run, key: Key) -> Backend:
    """The backend of a run with planted clients beside the real ones; a resumed run has the same ones."""
    settings, clients, vocabulary = audit_of(config), task.clients, task.vocabulary
    words = vocabulary if config.model.kind == "word_lm" else None
    is_new = not (run.path / FILE).exists()
    plants = _new(config, settings, vocabulary, task.classes, key) if is_new else kept_plants(run, words)
    rate = 1.0 if privacy.participation == "full" else privacy.cohort / privacy.population
    planted: list[Population] = []
    rates: list[np.ndarray] = []
    if plants.canaries is not None and vocabulary is not None:
        public, secret = _public_rows(config, settings, vocabulary), plants.key.derive("sharing")
        sentences = config.text.sentences
        planted.append(sharing_clients(plants.canaries, public, sentences=sentences, marks=marks(config), key=secret))
        rates.append(np.full(planted[-1].size, settings.rate))
    if len(plants.clients):
        copies = 1 if config.privacy.unit == "example" else None
        planted.append(coin_clients(config, plants, clients, vocabulary, copies=copies))
        rates.append(rate * plants.clients)
    if len(plants.directions):
        fields = {field: clients.fields[field] for field in _fields(config)}
        planted.append(direction_clients(fields, len(plants.directions)))
        rates.append(rate * plants.directions)
    if is_new:  # now that everything fits
        run.write(FILE, plants.to_dict(words))
    directions = plants.key.derive("directions") if len(plants.directions) else None
    return Planted(Simulation(joined(clients, planted)), clients.size, np.concatenate(rates), directions=directions)


def kept_plants(run: Run, vocabulary: Vocabulary | None) -> Plants:
    """What was planted in `run`; its canaries must consist of words of `vocabulary`."""
    if not (run.path / FILE).exists():
        raise InvalidInput(f"{run.path} has no canaries: train it with a table [audit] (see docs/audit.md)")
    saved = run.read(FILE)
    try:
        canaries = saved["canaries"]
        return Plants(
            key=Key(bytes.fromhex(saved["secret"])),
            canaries=None if canaries is None else Canaries.from_dict(canaries, vocabulary),
            clients=_from_digits(saved["clients"]),
            directions=_from_digits(saved["directions"]),
            classes=int(saved["classes"]),
        )
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{run.path / FILE} is damaged ({error!r}): train again in another folder") from error


def coin_clients(
    config: Config, plants: Plants, clients: Population, vocabulary: Vocabulary | None, *, copies: int | None = None
) -> Population:
    """The clients that coins include or leave out, each with `copies` of its own canary.

    The real `clients` give the types of fields; by default there are as many copies as in the settings.
    """
    settings = audit_of(config)
    key, count = plants.key.derive("clients"), len(plants.clients)
    if config.model.is_language and vocabulary is not None:
        canaries, text = phrases(alphabet(config, vocabulary), count, settings.words, key=key), config.text
        return phrase_clients(canaries, sentences=copies or text.sentences, length=text.length, marks=marks(config))
    fields, examples = {field: clients.fields[field] for field in _fields(config)}, copies or settings.examples
    label, classes = config.model.label, plants.classes
    return picture_clients(fields, label=label, classes=classes, count=count, key=key, examples=examples)


def audit_of(config: Config) -> AuditSettings:
    """The table [audit] of a run with canaries."""
    if config.audit is None:
        raise InvalidInput("the run has canaries, but its settings have no [audit]: train again in another folder")
    return config.audit


def alphabet(config: Config, vocabulary: Vocabulary) -> np.ndarray:
    """The tokens of canaries: the words of the vocabulary, or lower-case letters."""
    return _LETTERS if config.model.kind == "char_lm" else np.arange(len(MARKS), vocabulary.size)


def marks(config: Config) -> Marks:
    """The tokens that start, end and pad a row of the run's model."""
    return (START_OF_WORD, END_OF_WORD, END_OF_WORD) if config.model.kind == "char_lm" else (START, END, PAD)


def _new(config: Config, settings: AuditSettings, vocabulary: Vocabulary | None, classes: int, key: Key) -> Plants:
    # a reproducible run has reproducible canaries; otherwise they have a separate root, since it is written down
    own = key.derive("audit") if key.is_reproducible else keys.root()
    canaries = None
    if config.model.is_language and settings.canaries and vocabulary is not None:
        canaries = secret_sharer(
            alphabet(config, vocabulary),
            clients=settings.clients,
            copies=settings.copies,
            repeats=settings.repeats,
            words=settings.words,
            prefix=settings.prefix,
            key=own.derive("canaries"),
        )

    def coins(kind: str, count: int) -> np.ndarray:
        return own.derive(f"coins of {kind}").stream().bernoulli(0.5, count)

    return Plants(own, canaries, coins("clients", settings.one_run), coins("directions", settings.directions), classes)


def _public_rows(config: Config, settings: AuditSettings, vocabulary: Vocabulary) -> np.ndarray:
    """Sentences of the public corpus, as the model reads them."""
    name, data, kind = settings.public, config.data, config.model.kind
    options = settings.public_options or other_clients(name)
    public = read_public(name, options, data.population, data.options, what="[audit] public")
    return check_any(kind, tokens_of(config.text, kind, public, vocabulary)).columns["tokens"]


def _fields(config: Config) -> list[str]:
    return ["tokens"] if config.model.is_language else [*config.model.inputs, config.model.label]


def _as_digits(coins: np.ndarray) -> str:
    return "".join("1" if coin else "0" for coin in coins.tolist())


def _from_digits(coins: str) -> np.ndarray:
    if set(coins) - {"0", "1"}:
        raise ValueError("coins are 0 or 1")
    return np.array([coin == "1" for coin in coins], bool)
