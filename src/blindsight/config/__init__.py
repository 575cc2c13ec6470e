"""RUN.toml: a training run as a file. Every table is a frozen dataclass, every key one of its fields.

::

    tables   the keys of each table
    run      the whole file, and what its tables must agree on
    files    reading and writing

A configuration is valid or does not exist: unknown tables and keys, wrong types and invalid values are refused with
their place and, for a misspelt key, the nearest known one.
"""

from blindsight.config.files import as_toml, load, parse, read_toml, without_nulls
from blindsight.config.run import Config
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
)

__all__ = ["AuditSettings", "BayesianSettings", "ClientSettings", "Config", "DataSettings", "GanSettings"]
__all__ += ["ModelSettings", "PrivacySettings", "ServerSettings", "TextSettings", "TrainingSettings", "TuneSettings"]
__all__ += ["as_toml", "load", "parse", "read_toml", "without_nulls"]
