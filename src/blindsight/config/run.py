"""A whole RUN.toml, and what its tables must agree on."""

import dataclasses
from pathlib import Path
from typing import Any

from blindsight.config.tables import (
    AuditSettings,
    BayesianSettings,
    ClientSettings,
    DataSettings,
    GanSettings,
    ModelSettings,
    PrivacySettings,
    ServerSettings,
    TextSettings,
    TrainingSettings,
    TuneSettings,
    require,
)
from blindsight.errors import InvalidInput

__all__ = ["Config"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a training run."""

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
    bayesian: BayesianSettings | None = None  # a second accountant, if given
    audit: AuditSettings | None = None  # plants canaries, if given
    seed: int | None = None  # makes the run reproducible, and its guarantee says so

    def __post_init__(self) -> None:
        if not self.name or Path(self.name).name != self.name or self.name.startswith("."):
            raise InvalidInput(f"name must not be empty, contain slashes or start with a dot, got {self.name!r}")
        if self.model.is_language:
            _check_text(self.text, self.privacy)
        if self.model.kind == "gan":
            _check_gan(self)
        if self.bayesian is not None:
            _check_bayesian(self.privacy, is_audited=self.audit is not None)
        if self.audit is not None:
            _check_audit(self.audit, self)

    def to_dict(self) -> dict[str, Any]:
        """The settings as saved in `run.json`."""
        return dataclasses.asdict(self)


def _check_text(text: TextSettings, privacy: PrivacySettings) -> None:
    """Refuse text settings that do not fit the privacy settings."""
    if text.vocabulary is None:
        raise InvalidInput(
            '[text] needs a vocabulary: a file of words, the name of public data, or "private" to release one'
        )
    if privacy.unit == "example":
        raise InvalidInput('[privacy] unit = "example" is for classifiers: language models protect whole clients')
    if text.vocabulary != "private":
        if text.candidates is not None:
            raise InvalidInput('[text] candidates are for vocabulary = "private": leave them out')
        return
    if privacy.none or privacy.participation == "fixed":
        raise InvalidInput(
            '[text] vocabulary = "private" needs a [privacy] delta and a participation other than "fixed": set both, '
            "or name a file or public data"
        )
    if privacy.epsilon is not None and not text.vocabulary_epsilon < privacy.epsilon:
        raise InvalidInput(
            f"[text] vocabulary_epsilon {text.vocabulary_epsilon:g} leaves nothing of [privacy] epsilon "
            f"{privacy.epsilon:g} for training: lower it"
        )


def _check_gan(config: Config) -> None:
    """Refuse settings that a GAN does not support."""
    if config.privacy.adaptive_clip is not None:
        raise InvalidInput(
            "[privacy] adaptive_clip is not for a gan: its synthetic half needs the same clip. Leave it out"
        )
    if config.audit is not None:
        raise InvalidInput("[audit] is for classifiers and language models: a gan is audited from Python")
    if config.client.epochs != 1:
        raise InvalidInput("[client] epochs must be 1 for a gan: a client sends one gradient in a round")


def _check_bayesian(privacy: PrivacySettings, *, is_audited: bool) -> None:
    """Refuse settings that the Bayesian accountant does not support."""
    if privacy.none or privacy.participation != "poisson" or privacy.adaptive_clip is not None or is_audited:
        raise InvalidInput(
            "[bayesian] needs poisson participation, noise, a fixed clip and no [audit]: leave it out otherwise"
        )


def _check_audit(audit: AuditSettings, config: Config) -> None:
    """Refuse canaries that do not fit the run."""
    by_coins, text, privacy = audit.one_run or audit.directions, config.text, config.privacy
    if config.model.is_language:
        require(audit.words < text.length, "audit", "words", "fewer than [text] length", audit.words)
        if audit.canaries:
            most = max(audit.copies)
            require(most <= text.sentences, "audit", "copies", "at most [text] sentences", audit.copies)
    if not (by_coins or (audit.canaries and config.model.is_language)):
        raise InvalidInput("[audit] plants no clients: give one_run or directions a number, such as 200")
    if audit.directions and privacy.none:
        raise InvalidInput(
            "[audit] directions have the length of the clip, and none = true has no clip: leave them out"
        )
    if by_coins and privacy.max_participations is not None:
        raise InvalidInput(
            "[audit] one_run and directions join rounds by coin flips, without max_participations: leave that out"
        )
