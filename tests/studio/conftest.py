"""Synthetic sets of every kind, made without any generator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight.accounting.guarantee import Guarantee
from blindsight.inspection.export import save_set
from blindsight.inspection.report import ArmView
from blindsight.inspection.synthetic_set import BY_GENERATOR, SyntheticSet, read_set

PROMISE = Guarantee(epsilon=2.0, delta=1e-6, accountant="PLD", participation="full: all 300", releases=1)


@pytest.fixture
def make_set(tmp_path: Path) -> Callable[..., SyntheticSet]:
    def make(
        folder: Path | None = None,
        kind: str = "images",
        count: int = 12,
        classes: tuple[str, ...] = ("cat", "dog", "owl"),
        proposed: bool = True,
        seed: int = 0,
    ) -> SyntheticSet:
        dice = np.random.default_rng(seed)
        labels = np.arange(count) % len(classes) if classes else None
        given: dict[str, Any] = {
            "images": {"samples": dice.integers(0, 256, (count, 8, 8), np.uint8)},
            "rows": {
                "rows": {
                    "age": dice.integers(20, 90, count),
                    "work": dice.integers(0, 2, count),
                    "pay": dice.normal(size=count),
                }
            },
            "text": {"rows": {"text": np.array([f"line {number}\nand <b>more</b>" for number in range(count)])}},
        }[kind]
        extra = (
            {"pred": (np.arange(count) + 1) % len(classes), "score": np.linspace(0.5, 1.0, count)} if proposed else {}
        )
        about = {"proposer": "a model" if proposed else BY_GENERATOR, "names": {"work": ["office", "field"]}}
        place = folder or tmp_path / "set"
        view = ArmView("everyone", labels=labels, **given)
        save_set([view], place, title="Pets to label", guarantee=PROMISE, classes=classes, extra=extra, about=about)
        return read_set(place)

    return make
