"""Rows that one client, c7, may have, and what is left of an answer without chance and time."""

from typing import Any

import jax
import numpy as np
from neighbours import USUAL

from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum

STRANGE: dict[str, list[str]] = {
    "a fraction among whole numbers": [USUAL.replace(",31,", ",30.5,")],
    "no number at all": [USUAL.replace(",31,", ",n/a,")],
    "a huge number": [USUAL.replace(",31,", ",1000000000000,")],
    "a number beyond all bounds": [USUAL.replace("1200.5", "1e400")],
    "a missing value": [USUAL.replace(",31,", ",,")],
    "a new category": [USUAL.replace("north", "atlantis")],
    "a new class": [USUAL.replace("yes", "perhaps")],
    "a third side": [USUAL.replace("old", "ancient")],
    "one side only": [USUAL, USUAL],
    "a broken line": ["c7,31"],
    "an open quotation mark": [USUAL.replace("north", '"north'), f'"{USUAL}', f'{USUAL} and "more'],
    "an open quotation mark, and a second line": [USUAL.replace("we", '"we'), "have it"],
    "too many cells": [f"{USUAL},more,and more"],
    "strange letters": [USUAL.replace("a cat here", "ein \udcff ßtrange ' word")],
    "nothing": ["c7,,,,,,"],
    "one more row": [USUAL, USUAL.replace("31", "44")],
}
TOGETHER = [line for lines in STRANGE.values() for line in lines]


def released(self: GaussianMechanism, total: BoundedSum, *, key: Any) -> Release[Any]:
    """The same numbers for everyone, of a size that reports can be made of."""
    del key

    def fixed(leaf: Any) -> np.ndarray:
        return np.full(np.shape(leaf), 0.3 * total.l2_bound, np.float32)

    noise_std = self.noise_multiplier * total.l2_bound / total.n_expected
    return Release(jax.tree.map(fixed, total.value), self.event(total), noise_std)


def public(value: Any) -> Any:
    """JSON without what is marked, and without the time and the names of a run."""
    if isinstance(value, dict):
        own = ("simulation_only", "created", "id", "began", "ledger", "identity")
        return {name: public(item) for name, item in value.items() if name not in own}
    return [public(item) for item in value] if isinstance(value, list) else value
