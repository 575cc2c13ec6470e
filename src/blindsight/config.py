"""RUN.toml: a training run as a file. Every table is a frozen dataclass, every key one of its fields.

A configuration is valid or does not exist: unknown tables and keys, wrong types and impossible values are refused with
the place and, for a misspelt key, the nearest one that is known.
"""

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from blindsight.errors import InvalidInput

__all__ = ["AuditSettings", "BayesianSettings", "ClientSettings", "Config", "DataSettings", "GanSettings"]
__all__ += ["ModelSettings", "PrivacySettings", "ServerSettings", "TextSettings", "TrainingSettings", "TuneSettings"]
__all__ += ["as_toml", "load", "parse", "said"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """[data]: whose examples, and which clients are kept for evaluation."""

    population: str  # an embedded population, a data set (`blindsight data list`), or a file or folder
    options: dict[str, Any] = dataclasses.field(
        default_factory=dict[str, Any]
    )  # passed on, e.g. clients, fault, client
    held_out: float = 0.1  # share of the clients that never train, to evaluate on

    def __post_init__(self) -> None:
        _require(0 <= self.held_out < 1, "data", "held_out", "a share of the clients, in [0, 1)", self.held_out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """[model]: a classifier, what it reads and what it predicts; a language model of [text]; or a generator, [gan]."""

    kind: Literal["logistic", "mlp", "cnn", "word_lm", "char_lm", "gan"] = "cnn"
    inputs: tuple[str, ...] = ("image",)
    label: str = "label"
    hidden: tuple[int, ...] = (32,)  # sizes of the dense layers; a cnn has one
    channels: tuple[int, ...] = (16, 32)  # cnn only: one convolution of stride 2 for each
    kernel: int = 5  # cnn only
    activation: Literal["relu", "tanh"] = "relu"
    embedding: int | None = None  # language models: the size of a token's vector; 96 for words, 128 for characters
    cells: int | None = None  # language models: of a recurrent layer; 670 for words, 256 for characters
    layers: int | None = None  # language models: recurrent ones; 1 for words, 3 for characters
    seed: int = 0  # of the initial weights, which are public

    def __post_init__(self) -> None:
        _require(len(self.inputs) >= 1, "model", "inputs", "one field at least", self.inputs)
        for name in ("hidden", "channels"):
            sizes = getattr(self, name)
            _require(all(size >= 1 for size in sizes), "model", name, "sizes of at least 1", sizes)
        if self.kind == "cnn":
            _require(len(self.hidden) == 1, "model", "hidden", "one size for a cnn", self.hidden)
            _require(len(self.channels) >= 1, "model", "channels", "one size at least", self.channels)
        for name in ("embedding", "cells", "layers"):
            size = getattr(self, name)
            _require(size is None or size >= 1, "model", name, "at least 1", size)
        _require(self.kernel >= 1, "model", "kernel", "at least 1", self.kernel)
        _require(abs(self.seed) < 2**63, "model", "seed", "a number of at most 63 bits", self.seed)

    @property
    def is_language(self) -> bool:
        """Whether it reads text."""
        return self.kind in ("word_lm", "char_lm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """[text]: how clients' text becomes the tokens of a language model."""

    vocabulary: str | None = None  # a file of words (.txt, .json), public data by name, or "private": by a release
    vocabulary_size: int = 10_000  # at most so many, four marks included
    vocabulary_options: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])  # of the public data
    vocabulary_epsilon: float = 1.0  # private: what it costs of [privacy] epsilon
    candidates: str | None = None  # private: a public file of words to choose from; else words are discovered
    field: str = "text"  # what clients wrote
    case: Literal["lower", "keep"] = "lower"
    sentences: int = 200  # of one client, the first ones; of a char_lm also unknown words
    length: int = 20  # tokens of a sentence, or bytes of a word; the rest is cut off

    def __post_init__(self) -> None:
        size, length = self.vocabulary_size, self.length
        _require(4 < size <= 10_000_000, "text", "vocabulary_size", "more than 4, of which 4 are marks", size)
        _require(self.vocabulary_epsilon > 0, "text", "vocabulary_epsilon", "positive", self.vocabulary_epsilon)
        _require(self.sentences >= 1, "text", "sentences", "at least 1", self.sentences)
        _require(1 <= length <= 10_000, "text", "length", "between 1 and 10,000", length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanSettings:
    """[gan]: the pair of a model of kind "gan" (Triastcyn and Faltings 2022); [server] says how its critic learns."""

    network: Literal["selu", "compact"] = "selu"  # the paper's, or a smaller critic of leaky ReLUs
    channels: tuple[int, ...] = (16, 32, 64)  # the critic's convolutions
    hidden: int = 64  # selu: the critic's dense layer
    latents: int = 64
    classes: bool = True  # whether both are told the class, [model] label
    penalty: float = 0.0  # 0 for WGAN; 10 is usual for WGAN-GP
    weight_clip: float | None = None  # WGAN: of the critic's weights
    fakes: int = 64  # made examples (or clients' batches of them) in a round
    critic_rounds: int = 1  # rounds between steps of the generator
    generator_learning_rate: float = 1e-4  # Adam's
    generator_batch_size: int = 64
    generator_steps: int = 1
    average: float = 0.0  # of the generators along the way: a memory of 1 / (1 - average) steps
    samples: int = 100  # made at the end

    def __post_init__(self) -> None:
        counts = ("hidden", "latents", "fakes", "critic_rounds", "generator_batch_size", "generator_steps", "samples")
        for name in counts:
            _require(getattr(self, name) >= 1, "gan", name, "at least 1", getattr(self, name))
        _require(len(self.channels) >= 1, "gan", "channels", "one size at least", self.channels)
        _require(all(size >= 1 for size in self.channels), "gan", "channels", "sizes of at least 1", self.channels)
        _require(self.penalty >= 0, "gan", "penalty", "0 or more", self.penalty)
        bound = self.weight_clip
        _require(bound is None or bound > 0, "gan", "weight_clip", "positive", bound)
        rate = self.generator_learning_rate
        _require(rate > 0, "gan", "generator_learning_rate", "positive", rate)
        _require(0 <= self.average < 1, "gan", "average", "in [0, 1)", self.average)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianSettings:
    """[bayesian]: a Bayesian accountant beside the classical one. It reads data without noise: simulation_only."""

    pairs: int = 16  # of neighbouring batches, in every round
    delta: float = 1e-10

    def __post_init__(self) -> None:
        _require(self.pairs >= 2, "bayesian", "pairs", "at least 2", self.pairs)
        _require(0 < self.delta < 1, "bayesian", "delta", "between 0 and 1", self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """[client]: what happens on a client in a round."""

    learning_rate: float = 0.1
    batch_size: int = 10
    epochs: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"  # of losses and gradients; updates and sums stay float32

    def __post_init__(self) -> None:
        _require(0 < self.learning_rate < math.inf, "client", "learning_rate", "positive", self.learning_rate)
        _require(self.batch_size >= 1, "client", "batch_size", "at least 1", self.batch_size)
        _require(self.epochs >= 1, "client", "epochs", "at least 1", self.epochs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """[server]: what the server makes of the mean update."""

    optimizer: Literal["sgd", "nesterov", "adam"] = "sgd"
    learning_rate: float = 1.0
    momentum: float = 0.9  # nesterov only

    def __post_init__(self) -> None:
        _require(0 < self.learning_rate < math.inf, "server", "learning_rate", "positive", self.learning_rate)
        _require(0 <= self.momentum < 1, "server", "momentum", "in [0, 1)", self.momentum)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """[privacy]: the promise. Give `epsilon`, from which the noise follows, or `noise_multiplier`, or `none = true`."""

    cohort: float
    rounds: int
    delta: float | None = None  # required unless none = true
    epsilon: float | None = None
    noise_multiplier: float | None = None
    none: bool = False  # no clip, no noise, no promise
    clip: float = 1.0
    adaptive_clip: float | None = None  # the quantile of update lengths that the clip follows
    participation: Literal["poisson", "fixed", "full", "unproven"] = "poisson"
    max_participations: int | None = None
    unit: Literal["client", "example"] = "client"
    sampler: Literal["exact", "float"] = "exact"

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "noise_multiplier") if getattr(self, name) is not None]
        given += ["none"] if self.none else []
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise InvalidInput(f"[privacy] needs one of epsilon, noise_multiplier or none = true, got {found}")
        if self.delta is None and not self.none:
            raise InvalidInput("[privacy] needs a delta: well below one over the number of clients, e.g. delta = 1e-6")
        _require(self.rounds >= 1, "privacy", "rounds", "at least 1", self.rounds)
        _require(self.cohort > 0, "privacy", "cohort", "positive", self.cohort)
        _require(self.clip > 0, "privacy", "clip", "positive", self.clip)
        for name in ("delta", "adaptive_clip"):
            value = getattr(self, name)
            _require(value is None or 0 < value < 1, "privacy", name, "between 0 and 1", value)
        _require(self.epsilon is None or self.epsilon > 0, "privacy", "epsilon", "positive", self.epsilon)
        noise, most = self.noise_multiplier, self.max_participations
        _require(noise is None or noise > 0, "privacy", "noise_multiplier", "positive (or write none = true)", noise)
        _require(most is None or most >= 1, "privacy", "max_participations", "at least 1", most)
        if most is not None and self.participation != "unproven":
            raise InvalidInput('[privacy] max_participations is for participation = "unproven": leave it out')
        if self.none and self.adaptive_clip is not None:
            raise InvalidInput("[privacy] none = true clips nothing: leave adaptive_clip out")
        if self.participation in ("fixed", "unproven"):
            _require(self.cohort == int(self.cohort), "privacy", "cohort", "a whole number", self.cohort)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """[training]: how often to look and to save."""

    evaluate_every: int = 0  # rounds; 0 for at the end only
    checkpoint_every: int = 50  # rounds, which are also paid for together
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        _require(self.evaluate_every >= 0, "training", "evaluate_every", "0 or more", self.evaluate_every)
        _require(self.checkpoint_every >= 1, "training", "checkpoint_every", "at least 1", self.checkpoint_every)
        _require(self.checkpoint_seconds > 0, "training", "checkpoint_seconds", "positive", self.checkpoint_seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """[audit]: synthetic clients planted beside the real ones, for `blindsight audit` to look for afterwards."""

    canaries: bool = True  # language models: phrases of random words, shared by clients in several copies
    clients: tuple[int, ...] = (1, 4, 16)  # canaries: how many clients share one
    copies: tuple[int, ...] = (1, 14, 200)  # canaries: how many copies of it each of them has
    repeats: int = 3  # canaries: of every pair of clients and copies
    words: int = 5  # of a canary; letters, for a char_lm
    prefix: int = 2  # canaries: of these words an attacker knows
    rate: float = 0.575  # canaries: the share of rounds that their clients take part in
    public: str = "forum"  # canaries: whose sentences stand beside them, public data by name
    public_options: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    one_run: int = 0  # clients put in or left out by fair coins, each with a canary of its own
    directions: int = 0  # the same with clients that send a fixed random vector
    examples: int = 20  # one_run, classifiers: copies of its canary that a client has

    def __post_init__(self) -> None:
        for name in ("clients", "copies"):
            counts = getattr(self, name)
            fine = len(counts) >= 1 and all(count >= 1 for count in counts)
            _require(fine, "audit", name, "numbers of at least 1", counts)
        for name in ("repeats", "words", "prefix", "examples"):
            _require(getattr(self, name) >= 1, "audit", name, "at least 1", getattr(self, name))
        _require(self.prefix < self.words, "audit", "prefix", "fewer than words", self.prefix)
        _require(0 < self.rate <= 1, "audit", "rate", "a probability above 0", self.rate)
        for name in ("one_run", "directions"):
            _require(getattr(self, name) >= 0, "audit", name, "0 or more", getattr(self, name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """[tune]: what `blindsight train RUN.toml --tune-on PUBLIC` tries; every combination, on public data alone."""

    client_learning_rate: tuple[float, ...] = ()  # empty: a third of the run's own, and that
    server_learning_rate: tuple[float, ...] = ()  # empty: half of the run's own, and that
    momentum: tuple[float, ...] = ()  # nesterov only; empty: the run's own
    clip: tuple[float, ...] = ()  # empty: a third of the run's own, and that
    cohort: int = 50  # public clients in a round; noise on the mean is as in the run, however many it has
    rounds: int = 50
    clients: int | None = None  # how many will train, if noise follows from epsilon; else those there are are counted

    def __post_init__(self) -> None:
        for name in ("client_learning_rate", "server_learning_rate", "clip"):
            values = getattr(self, name)
            _require(all(value > 0 for value in values), "tune", name, "positive", values)
        _require(all(0 <= value < 1 for value in self.momentum), "tune", "momentum", "in [0, 1)", self.momentum)
        for name in ("cohort", "rounds", "clients"):
            number = getattr(self, name)
            _require(number is None or number >= 1, "tune", name, "at least 1", number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A whole RUN.toml."""

    name: str
    data: DataSettings
    privacy: PrivacySettings
    model: ModelSettings = dataclasses.field(default_factory=ModelSettings)
    text: TextSettings = dataclasses.field(default_factory=TextSettings)
    gan: GanSettings = dataclasses.field(default_factory=GanSettings)
    client: ClientSettings = dataclasses.field(default_factory=ClientSettings)
    server: ServerSettings = dataclasses.field(default_factory=ServerSettings)
    training: TrainingSettings = dataclasses.field(default_factory=TrainingSettings)
    tune: TuneSettings = dataclasses.field(default_factory=TuneSettings)
    bayesian: BayesianSettings | None = None  # no second accountant if left out
    audit: AuditSettings | None = None  # plants nobody if left out
    seed: int | None = None  # makes the run reproducible, which its guarantee then says

    def __post_init__(self) -> None:
        if not self.name or Path(self.name).name != self.name or self.name.startswith("."):
            raise InvalidInput(f"name must be one word without slashes or a leading dot, got {self.name!r}")
        if self.model.is_language:
            _check_text(self.text, self.privacy)
        if self.model.kind == "gan":
            _check_gan(self)
        if self.bayesian is not None:
            _check_bayesian(self.privacy, is_audited=self.audit is not None)
        if self.audit is not None:
            _check_audit(self.audit, self)

    def to_dict(self) -> dict[str, Any]:
        """The settings as they stand in `run.json`."""
        return dataclasses.asdict(self)


def _check_text(text: TextSettings, privacy: PrivacySettings) -> None:
    """What a language model's text and its privacy must agree on."""
    if text.vocabulary is None:
        raise InvalidInput(
            '[text] needs a vocabulary: a file of words, the name of public data, or "private" for one that is released'
        )
    if privacy.unit == "example":
        raise InvalidInput('[privacy] unit = "example" is for classifiers: language models protect whole clients')
    if text.vocabulary != "private":
        if text.candidates is not None:
            raise InvalidInput('[text] candidates are for vocabulary = "private": leave them out')
        return
    if privacy.none or privacy.participation == "fixed":
        raise InvalidInput(
            '[text] vocabulary = "private" is released to the add-or-remove promise of [privacy]: it needs a delta, '
            'and any participation but "fixed"; name a file or public data otherwise'
        )
    if privacy.epsilon is not None and not text.vocabulary_epsilon < privacy.epsilon:
        raise InvalidInput(
            f"[text] vocabulary_epsilon {text.vocabulary_epsilon:g} leaves nothing of [privacy] epsilon "
            f"{privacy.epsilon:g} for training: make it smaller"
        )


def _check_gan(config: Config) -> None:
    """What a generator and the rest of its run must agree on."""
    if config.privacy.adaptive_clip is not None:
        raise InvalidInput("[privacy] adaptive_clip is not for a gan, whose made half is clipped alike: leave it out")
    if config.audit is not None:
        raise InvalidInput("[audit] is for classifiers and language models: a gan is audited from Python")
    if config.client.epochs != 1:
        raise InvalidInput("[client] epochs must be 1 for a gan: a client sends one gradient in a round")


def _check_bayesian(privacy: PrivacySettings, *, is_audited: bool) -> None:
    """What the Bayesian accountant can be asked about."""
    if privacy.none or privacy.participation != "poisson" or privacy.adaptive_clip is not None or is_audited:
        raise InvalidInput(
            "[bayesian] needs poisson participation, noise, a fixed clip and no [audit]: leave it out otherwise"
        )


def _check_audit(audit: AuditSettings, config: Config) -> None:
    """What canaries and the run that they are planted in must agree on."""
    by_coins, text, privacy = audit.one_run or audit.directions, config.text, config.privacy
    if config.model.is_language:
        _require(audit.words < text.length, "audit", "words", "fewer than [text] length", audit.words)
        if audit.canaries:
            most = max(audit.copies)
            _require(most <= text.sentences, "audit", "copies", "at most [text] sentences", audit.copies)
    if not (by_coins or (audit.canaries and config.model.is_language)):
        raise InvalidInput("[audit] plants nobody: give one_run or directions a number, such as 200")
    if audit.directions and privacy.none:
        raise InvalidInput("[audit] directions are as long as the clip, and none = true has none: leave them out")
    if by_coins and privacy.max_participations is not None:
        raise InvalidInput(
            "[audit] one_run and directions take part by coins, which know no max_participations: leave that out"
        )


def load(path: str | Path) -> Config:
    """The configuration in the file `path`."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}): name a configuration such as RUN.toml") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error
    try:
        return parse(table)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def parse(table: Mapping[str, Any]) -> Config:
    """The configuration of a table as TOML gives it."""
    return _build(Config, table, "")


def said(settings: Any) -> Any:
    """Settings of a `run.json` as a file would say them, which has no word for what was left out."""
    if not isinstance(settings, Mapping):
        return settings
    table = typing.cast(Mapping[str, Any], settings)
    return {key: said(value) for key, value in table.items() if value is not None}


def as_toml(config: Config) -> str:
    """The configuration as a file that `load` reads; only what differs from the defaults."""

    def written(value: Any) -> str:
        if isinstance(value, Mapping):
            pairs = typing.cast(Mapping[str, Any], value).items()
            return "{ " + ", ".join(f"{json.dumps(key)} = {written(part)}" for key, part in pairs) + " }"
        return json.dumps(value, ensure_ascii=False)

    lines = [f"{key} = {written(value)}" for key in ("name", "seed") if (value := getattr(config, key)) is not None]
    for field in dataclasses.fields(config):
        table = getattr(config, field.name)
        if not dataclasses.is_dataclass(table):
            continue
        changed = [
            f"{part.name} = {written(getattr(table, part.name))}"
            for part in dataclasses.fields(table)
            if getattr(table, part.name) != _default(part)
        ]
        is_said = changed or field.default is None  # a table that may be left out says something even if it is empty
        lines += ["", f"[{field.name}]", *changed] if is_said else []
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _build(kind: type[Any], table: Mapping[str, Any], where: str) -> Any:
    """A dataclass from a table, every key checked against the fields."""
    known, hints = {field.name: field for field in dataclasses.fields(kind)}, typing.get_type_hints(kind)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InvalidInput(f"{where or 'the top level'} has no {key!r}: {hint}")
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            what = f"a table [{name}]" if dataclasses.is_dataclass(hints[name]) else f"{name!r}"
            raise InvalidInput(f"{where or 'the top level'} needs {what}")
    return kind(**{key: _value(hints[key], value, where, key) for key, value in table.items()})


def _value(hint: Any, value: Any, where: str, key: str) -> Any:
    """A value of TOML as the type that the field wants, or a refusal that names the place."""
    place = f"{where} {key}".strip()
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{place} must be a table, [{key}], got {value!r}")
        return _build(typing.cast(type[Any], hint), value, f"[{key}]")
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:  # `X | None`: TOML has no null, so only X can be written
        return _value(next(part for part in arguments if part is not types.NoneType), value, where, key)
    if origin is Literal:
        if value not in arguments:
            raise InvalidInput(f"{place} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        values = value if isinstance(value, list) else [value]
        return tuple(_value(arguments[0], part, where, key) for part in values)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{place} must be a table, got {value!r}")
        return {name: _plain(part, f"{place} {name}") for name, part in value.items()}
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        words = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
        raise InvalidInput(f"{place} must be {words[hint]}, got {value!r}")
    return value


def _plain(value: Any, place: str) -> Any:
    """A value that JSON can hold too, since settings are kept in `run.json`."""
    if isinstance(value, list):
        return [_plain(part, place) for part in typing.cast(list[Any], value)]
    if isinstance(value, Mapping):
        return {name: _plain(part, place) for name, part in typing.cast(Mapping[str, Any], value).items()}
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidInput(f"{place} must be text, a number, true or false, or a list or table of them, got {value}")
    return value


def _require(fine: bool, table: str, key: str, what: str, got: Any) -> None:
    if not fine:
        raise InvalidInput(f"[{table}] {key} must be {what}, got {got}")
