"""Values computed from data without noise are marked `simulation_only`; no report with a guarantee may hold one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.errors import PrivacyError

__all__ = ["MARK", "refuse"]

MARK = "simulation_only"


def refuse(value: Any, where: str) -> None:
    """Raise a `PrivacyError` if `value` or any part of it is marked, at any depth; `where` names it in the message."""
    if isinstance(value, str):
        marked = MARK in value
    else:
        marked = not isinstance(value, np.ndarray) and bool(getattr(value, MARK, False))
    if marked:
        raise PrivacyError(
            f"{where} is marked {MARK}: it was computed without noise, and no guarantee covers it. Leave it out"
        )
    if dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        parts = [pair for name, item in value.items() for pair in ((str(name), str(name)), (str(name), item))]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [(str(number), item) for number, item in enumerate(value)]
    else:
        parts = []
    for name, part in parts:
        refuse(part, f"{where}, {name.replace(MARK, '...')}")
