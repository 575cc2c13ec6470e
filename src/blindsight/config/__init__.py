"""RUN.toml: a training run as a file. Every table is a frozen dataclass, every key one of its fields.

::

    tables   what may stand in each table
    run      the whole, whose tables must agree
    files    reading and writing

A configuration is valid or does not exist: unknown tables and keys, wrong types and impossible values are refused with
the place and, for a misspelt key, the nearest one that is known.
"""

from blindsight.config.files import as_toml, load, parse, read_toml, said
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
__all__ += ["as_toml", "load", "parse", "read_toml", "said"]
