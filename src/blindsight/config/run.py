"""A whole RUN.toml: what its tables must agree on."""

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
        require(audit.words < text.length, "audit", "words", "fewer than [text] length", audit.words)
        if audit.canaries:
            most = max(audit.copies)
            require(most <= text.sentences, "audit", "copies", "at most [text] sentences", audit.copies)
    if not (by_coins or (audit.canaries and config.model.is_language)):
        raise InvalidInput("[audit] plants nobody: give one_run or directions a number, such as 200")
    if audit.directions and privacy.none:
        raise InvalidInput("[audit] directions are as long as the clip, and none = true has none: leave them out")
    if by_coins and privacy.max_participations is not None:
        raise InvalidInput(
            "[audit] one_run and directions take part by coins, which know no max_participations: leave that out"
        )
