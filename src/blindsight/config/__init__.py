"""RUN.toml: a training run as a file. Every table is a frozen dataclass, every key one of its fields.

::

    tables   the keys of each table
    run      the whole file, and what its tables must agree on
    files    reading and writing
    json_schema   the same keys for editors

A configuration is valid or does not exist: unknown tables and keys, wrong types and invalid values are refused with
their place and, for a misspelt key, the nearest known one.
"""

from blindsight.config.files import as_toml, from_table, load, parse, read_toml, without_nulls
from blindsight.config.json_schema import json_schema
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
__all__ += ["as_toml", "from_table", "json_schema", "load", "parse", "read_toml", "without_nulls"]
