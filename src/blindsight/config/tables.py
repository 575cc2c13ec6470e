"""The tables of RUN.toml, a frozen dataclass each, which checks its own values."""

import dataclasses
import math
from typing import Any, Literal

from blindsight.errors import InvalidInput

__all__ = [
    "AuditSettings",
    "BayesianSettings",
    "ClientSettings",
    "DataSettings",
    "GanSettings",
    "ModelSettings",
    "PrivacySettings",
    "ServerSettings",
    "TextSettings",
    "TrainingSettings",
    "TuneSettings",
    "require",
]


def require(fine: bool, table: str, key: str, what: str, got: Any) -> None:
    """Refuse a value that is not `what` it must be, naming its place."""
    if not fine:
        raise InvalidInput(f"[{table}] {key} must be {what}, got {got}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """[data]: the population, and the share of its clients that is held out."""

    population: str  # an embedded population, a data set (`blindsight data list`), or a file or folder
    options: dict[str, Any] = dataclasses.field(
        default_factory=dict[str, Any]
    )  # of the loader, such as clients, fault or client
    schema: str | None = None  # of a table: a JSON file with the types of its fields
    types: dict[str, str] = dataclasses.field(default_factory=dict[str, str])  # types of single fields
    held_out: float = 0.1  # share of the clients to evaluate on, which never train

    def __post_init__(self) -> None:
        require(0 <= self.held_out < 1, "data", "held_out", "a share of the clients, in [0, 1)", self.held_out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """[model]: a classifier with its inputs and label; a language model, see [text]; or a GAN, see [gan]."""

    kind: Literal["logistic", "mlp", "cnn", "word_lm", "char_lm", "gan"] = "cnn"
    inputs: tuple[str, ...] = ("image",)
    label: str = "label"
    classes: int | tuple[str, ...] | None = None  # number or names; default: those of the data
    hidden: tuple[int, ...] = (32,)  # sizes of the dense layers; one for a cnn
    channels: tuple[int, ...] = (16, 32)  # cnn only: of the convolutions, which have stride 2
    kernel: int = 5  # cnn only
    activation: Literal["relu", "tanh"] = "relu"
    embedding: int | None = None  # language models: size of a token's vector; 96 for words, 128 for characters
    cells: int | None = None  # language models: size of a recurrent layer; 670 for words, 256 for characters
    layers: int | None = None  # language models: recurrent layers; 1 for words, 3 for characters
    seed: int = 0  # seed of the initial weights, which are public

    def __post_init__(self) -> None:
        require(len(self.inputs) >= 1, "model", "inputs", "at least one field", self.inputs)
        _check_classes(self.classes)
        for name in ("hidden", "channels"):
            sizes = getattr(self, name)
            require(all(size >= 1 for size in sizes), "model", name, "sizes of at least 1", sizes)
        if self.kind == "cnn":
            require(len(self.hidden) == 1, "model", "hidden", "one size for a cnn", self.hidden)
            require(len(self.channels) >= 1, "model", "channels", "at least one size", self.channels)
        for name in ("embedding", "cells", "layers"):
            size = getattr(self, name)
            require(size is None or size >= 1, "model", name, "at least 1", size)
        require(self.kernel >= 1, "model", "kernel", "at least 1", self.kernel)
        require(abs(self.seed) < 2**63, "model", "seed", "a number of at most 63 bits", self.seed)

    @property
    def is_language(self) -> bool:
        """Whether this is a language model."""
        return self.kind in ("word_lm", "char_lm")


def _check_classes(classes: int | tuple[str, ...] | None) -> None:
    if isinstance(classes, tuple):
        fine = 2 <= len(classes) == len(set(classes)) and all(name.strip() and name.isprintable() for name in classes)
        require(fine, "model", "classes", "a number, or at least two different names", list(classes))
    elif classes is not None:
        require(2 <= classes <= 1_000_000, "model", "classes", "names, or a number from 2 to 1,000,000", classes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """[text]: how clients' text becomes tokens of a language model."""

    vocabulary: str | None = None  # a file of words (.txt, .json), the name of public data, or "private" to release one
    vocabulary_size: int = 10_000  # upper limit, four special tokens included
    vocabulary_options: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])  # of the public data
    vocabulary_epsilon: float = 1.0  # private: its share of [privacy] epsilon
    candidates: str | None = None  # private: a public file of words to choose from; default: discover words
    field: str = "text"  # field that holds the text
    case: Literal["lower", "keep"] = "lower"
    sentences: int = 200  # upper limit per client; for a char_lm also of unknown words
    length: int = 20  # tokens of a sentence, or bytes of a word; longer ones are cut off

    def __post_init__(self) -> None:
        size, length = self.vocabulary_size, self.length
        require(4 < size <= 10_000_000, "text", "vocabulary_size", "more than 4, the special tokens", size)
        require(self.vocabulary_epsilon > 0, "text", "vocabulary_epsilon", "positive", self.vocabulary_epsilon)
        require(self.sentences >= 1, "text", "sentences", "at least 1", self.sentences)
        require(1 <= length <= 10_000, "text", "length", "between 1 and 10,000", length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanSettings:
    """[gan]: a model of kind "gan" (Triastcyn and Faltings 2022); [server] configures its critic's optimiser."""

    network: Literal["selu", "compact"] = "selu"  # the paper's, or one with a smaller critic of leaky ReLUs
    channels: tuple[int, ...] = (16, 32, 64)  # of the critic's convolutions
    hidden: int = 64  # selu: size of the critic's dense layer
    latents: int = 64
    classes: bool = True  # whether both networks are given the class, [model] label
    penalty: float = 0.0  # gradient penalty: 0 for WGAN, usually 10 for WGAN-GP
    weight_clip: float | None = None  # WGAN: bound on the critic's weights
    fakes: int = 64  # synthetic examples, or batches of them, per round
    critic_rounds: int = 1  # rounds per update of the generator
    generator_learning_rate: float = 1e-4  # of Adam
    generator_batch_size: int = 64
    generator_steps: int = 1
    average: float = 0.0  # decay of the moving average of generators: a memory of 1 / (1 - average) steps
    samples: int = 100  # drawn at the end

    def __post_init__(self) -> None:
        counts = ("hidden", "latents", "fakes", "critic_rounds", "generator_batch_size", "generator_steps", "samples")
        for name in counts:
            require(getattr(self, name) >= 1, "gan", name, "at least 1", getattr(self, name))
        require(len(self.channels) >= 1, "gan", "channels", "at least one size", self.channels)
        require(all(size >= 1 for size in self.channels), "gan", "channels", "sizes of at least 1", self.channels)
        require(self.penalty >= 0, "gan", "penalty", "0 or more", self.penalty)
        bound = self.weight_clip
        require(bound is None or bound > 0, "gan", "weight_clip", "positive", bound)
        rate = self.generator_learning_rate
        require(rate > 0, "gan", "generator_learning_rate", "positive", rate)
        require(0 <= self.average < 1, "gan", "average", "in [0, 1)", self.average)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianSettings:
    """[bayesian]: a Bayesian accountant beside the classical one. It sees data without noise: simulation_only."""

    pairs: int = 16  # pairs of neighbouring batches per round
    delta: float = 1e-10

    def __post_init__(self) -> None:
        require(self.pairs >= 2, "bayesian", "pairs", "at least 2", self.pairs)
        require(0 < self.delta < 1, "bayesian", "delta", "between 0 and 1", self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """[client]: local training on a client in a round."""

    learning_rate: float = 0.1
    batch_size: int = 10
    epochs: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"  # of losses and gradients; updates and sums are float32

    def __post_init__(self) -> None:
        require(0 < self.learning_rate < math.inf, "client", "learning_rate", "positive", self.learning_rate)
        require(self.batch_size >= 1, "client", "batch_size", "at least 1", self.batch_size)
        require(self.epochs >= 1, "client", "epochs", "at least 1", self.epochs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """[server]: how the server applies the mean update."""

    optimizer: Literal["sgd", "nesterov", "adam"] = "sgd"
    learning_rate: float = 1.0
    momentum: float = 0.9  # nesterov only

    def __post_init__(self) -> None:
        require(0 < self.learning_rate < math.inf, "server", "learning_rate", "positive", self.learning_rate)
        require(0 <= self.momentum < 1, "server", "momentum", "in [0, 1)", self.momentum)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """[privacy]: the guarantee. Give `epsilon`, and the noise is solved for; `noise_multiplier`; or `none = true`."""

    cohort: float
    rounds: int
    delta: float | None = None  # required unless none = true
    epsilon: float | None = None
    noise_multiplier: float | None = None
    none: bool = False  # no clip, no noise, no guarantee
    clip: float = 1.0
    adaptive_clip: float | None = None  # quantile of update norms that the clip follows
    participation: Literal["poisson", "fixed", "full", "unproven"] = "poisson"
    max_participations: int | None = None
    unit: Literal["client", "example"] = "client"
    sampler: Literal["exact", "float"] = "exact"

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "noise_multiplier") if getattr(self, name) is not None]
        given += ["none"] if self.none else []
        if len(given) != 1:
            names = " and ".join(given) or "none of them"
            raise InvalidInput(f"[privacy] needs one of epsilon, noise_multiplier or none = true, got {names}")
        if self.delta is None and not self.none:
            raise InvalidInput("[privacy] needs a delta: well below one over the number of clients, e.g. delta = 1e-6")
        require(self.rounds >= 1, "privacy", "rounds", "at least 1", self.rounds)
        require(self.cohort > 0, "privacy", "cohort", "positive", self.cohort)
        require(self.clip > 0, "privacy", "clip", "positive", self.clip)
        for name in ("delta", "adaptive_clip"):
            value = getattr(self, name)
            require(value is None or 0 < value < 1, "privacy", name, "between 0 and 1", value)
        require(self.epsilon is None or self.epsilon > 0, "privacy", "epsilon", "positive", self.epsilon)
        noise, most = self.noise_multiplier, self.max_participations
        require(noise is None or noise > 0, "privacy", "noise_multiplier", "positive (or write none = true)", noise)
        require(most is None or most >= 1, "privacy", "max_participations", "at least 1", most)
        if most is not None and self.participation != "unproven":
            raise InvalidInput('[privacy] max_participations is for participation = "unproven": leave it out')
        if self.none and self.adaptive_clip is not None:
            raise InvalidInput("[privacy] none = true clips nothing: leave adaptive_clip out")
        if self.participation == "fixed":
            require(self.cohort == int(self.cohort), "privacy", "cohort", "a whole number", self.cohort)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """[training]: how often to evaluate and to save."""

    evaluate_every: int = 0  # rounds; 0: only at the end
    checkpoint_every: int = 50  # rounds, at most a tenth of all; they are also paid for as a block
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        require(self.evaluate_every >= 0, "training", "evaluate_every", "0 or more", self.evaluate_every)
        require(self.checkpoint_every >= 1, "training", "checkpoint_every", "at least 1", self.checkpoint_every)
        require(self.checkpoint_seconds > 0, "training", "checkpoint_seconds", "positive", self.checkpoint_seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """[audit]: synthetic clients planted beside the real ones, which `blindsight audit` looks for afterwards."""

    canaries: bool = True  # language models: random phrases, shared by clients
    clients: tuple[int, ...] = (1, 4, 16)  # canaries: clients that share one
    copies: tuple[int, ...] = (1, 14, 200)  # canaries: copies of it that each of them holds
    repeats: int = 3  # canaries: number for every pair of clients and copies
    words: int = 5  # length of a canary; in letters for a char_lm
    prefix: int = 2  # canaries: number of these words that the attacker knows
    rate: float = 0.575  # canaries: share of rounds that their clients take part in
    public: str = "forum"  # canaries: public data; its sentences fill up their clients
    public_options: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    one_run: int = 0  # clients included or left out by fair coins, each with its own canary
    directions: int = 0  # the same for clients that send a fixed random vector
    examples: int = 20  # one_run, classifiers: copies of its canary per client

    def __post_init__(self) -> None:
        for name in ("clients", "copies"):
            counts = getattr(self, name)
            fine = len(counts) >= 1 and all(count >= 1 for count in counts)
            require(fine, "audit", name, "numbers of at least 1", counts)
        for name in ("repeats", "words", "prefix", "examples"):
            require(getattr(self, name) >= 1, "audit", name, "at least 1", getattr(self, name))
        require(self.prefix < self.words, "audit", "prefix", "fewer than words", self.prefix)
        require(0 < self.rate <= 1, "audit", "rate", "a probability above 0", self.rate)
        for name in ("one_run", "directions"):
            require(getattr(self, name) >= 0, "audit", name, "0 or more", getattr(self, name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """[tune]: the grid of `blindsight train RUN.toml --tune-on PUBLIC`, which uses public data only."""

    client_learning_rate: tuple[float, ...] = ()  # default: the run's own, and a third of it
    server_learning_rate: tuple[float, ...] = ()  # default: the run's own, and half of it
    momentum: tuple[float, ...] = ()  # nesterov only; default: the run's own
    clip: tuple[float, ...] = ()  # default: the run's own, and a third of it
    cohort: int = 50  # public clients per round; the noise on the mean is that of the run
    rounds: int = 50
    clients: int | None = None  # number that will train, to solve for the noise; default: count them

    def __post_init__(self) -> None:
        for name in ("client_learning_rate", "server_learning_rate", "clip"):
            values = getattr(self, name)
            require(all(value > 0 for value in values), "tune", name, "positive", values)
        require(all(0 <= value < 1 for value in self.momentum), "tune", "momentum", "in [0, 1)", self.momentum)
        for name in ("cohort", "rounds", "clients"):
            number = getattr(self, name)
            require(number is None or number >= 1, "tune", name, "at least 1", number)
