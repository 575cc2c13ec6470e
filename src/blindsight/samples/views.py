"""What a report shows of one arm: its share of the clients, and synthetic samples of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput
from blindsight.samples import as_json, clarity, gallery

__all__ = ["ArmView"]


@dataclasses.dataclass(frozen=True, eq=False)
class ArmView:
    """The samples of one arm and its share of clients.

    `share` is the released share of clients in it. `samples` are synthetic images (n, height, width[, channels]) of
    bytes with their `labels`, or `rows` synthetic rows or texts, column by column; sample i of every arm has the same
    latent and class. `mean`, in [0, 1], is the mean over classes of the samples' mean images unless it is given.
    `signal_to_noise` is that of the release that the samples were drawn from (`clarity`).
    """

    name: str
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    samples: np.ndarray | None = None
    labels: np.ndarray | None = None
    mean: np.ndarray | None = None
    rows: Mapping[str, np.ndarray] | None = None
    signal_to_noise: float | None = None

    def __post_init__(self) -> None:
        arm = f"the arm {self.name!r}"
        for name in ("samples", "labels", "mean"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, np.asarray(value))
        if self.samples is not None:
            self._check_samples(arm, self.samples)
        if self.labels is not None and self.labels.dtype.kind not in "iu":
            raise InvalidInput(f"labels of {arm} must be whole numbers, got {self.labels.dtype}")
        if self.rows is not None:
            object.__setattr__(self, "rows", {str(name): _column(name, values) for name, values in self.rows.items()})
        lengths = {len(column) for column in (self.rows or {}).values()}
        counts = lengths | ({len(self.samples)} if self.samples is not None else set())
        counts |= {len(self.labels)} if self.labels is not None else set()
        if len(counts) > 1:
            raise InvalidInput(f"{arm} has columns, labels or samples of different lengths: {sorted(counts)}")
        if self.mean is None and self.samples is not None:
            object.__setattr__(self, "mean", gallery.class_mean(self.samples, self.labels))
        if self.mean is not None and not (np.all(self.mean >= 0) and np.all(self.mean <= 1)):
            raise InvalidInput(f"the mean image of {arm} must lie in [0, 1]: divide bytes by 255")

    @property
    def warning(self) -> str:
        """The warning to show if the samples are mostly noise; empty otherwise."""
        return clarity.warning(self.signal_to_noise) if self.samples is not None or self.rows is not None else ""

    @staticmethod
    def _check_samples(arm: str, samples: np.ndarray) -> None:
        fits = samples.ndim == 3 or (samples.ndim == 4 and samples.shape[3] in (1, 3, 4))
        if samples.dtype != np.uint8 or not fits or samples.size == 0:
            raise InvalidInput(
                f"samples of {arm} must be uint8 of shape (n, height, width) or (n, height, width, 1, 3 or 4), "
                f"got {samples.dtype} {samples.shape}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; images as PNG in base64."""
        return {
            "name": self.name,
            "share": self.share,
            "share_low": self.share_low,
            "share_high": self.share_high,
            "samples": as_json.pictures_to(self.samples),
            "labels": as_json.array_to(self.labels),
            "mean": as_json.array_to(self.mean),
            "rows": None if self.rows is None else {name: as_json.array_to(rows) for name, rows in self.rows.items()},
            "signal_to_noise": as_json.plain(self.signal_to_noise),
            "warning": self.warning,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ArmView":
        """The view that `to_dict` was called on."""
        fields = {name: item for name, item in value.items() if name != "warning"}  # it follows from the rest
        fields["samples"] = as_json.pictures_from(value["samples"])
        fields["labels"], fields["mean"] = as_json.array_from(value["labels"]), as_json.array_from(value["mean"])
        if value.get("signal_to_noise") is not None:
            fields["signal_to_noise"] = float(value["signal_to_noise"])  # infinity is a name in JSON
        if value["rows"] is not None:
            fields["rows"] = {name: as_json.array_from(column) for name, column in value["rows"].items()}
        return cls(**fields)


def _column(name: Any, values: Any) -> np.ndarray:
    column = np.asarray(values)
    if column.dtype.kind in "OU":
        column = np.array([str(value) for value in column], dtype=as_json.TEXT)
    if column.dtype.kind not in "biufT" or column.ndim != 1:
        raise InvalidInput(f"the column {name!r} of sample rows must hold numbers, booleans or text, one per row")
    return column
