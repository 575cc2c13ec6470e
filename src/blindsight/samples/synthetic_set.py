"""A synthetic set on disk: `samples.parquet` and its card, read back with its guarantee."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.accounting.guarantee import Guarantee
from blindsight.errors import InvalidInput
from blindsight.samples import gallery

__all__ = ["Sample", "SyntheticSet", "find_set", "read_set"]

FILE = "samples.parquet"
LABELS = "labels.jsonl"  # beside it: people's labels
BY_GENERATOR = "the generator"  # the proposer without a model: the class it was conditioned on


@dataclasses.dataclass(frozen=True)
class Sample:
    """One synthetic example: an image (PNG) or a row, the class it was generated for, and the proposed label."""

    sample_id: str
    picture: bytes | None
    row: Mapping[str, Any] | None
    own: str | None = None
    proposed: str | None = None
    score: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class SyntheticSet:
    """Synthetic samples, and the guarantee that covers them and everything computed from them.

    `identity` is unique to a set. `proposer` is the source of proposed labels: a model, or the generator, which
    proposes the class it was conditioned on. `names` maps numbers in a column of the rows to names.
    """

    folder: Path
    title: str
    guarantee: Guarantee
    classes: tuple[str, ...]
    identity: str
    samples: tuple[Sample, ...]
    proposer: str = BY_GENERATOR
    names: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict[str, tuple[str, ...]])

    @functools.cached_property
    def by_id(self) -> dict[str, Sample]:
        """Every sample by its id."""
        return {sample.sample_id: sample for sample in self.samples}

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """The samples as columns: the images as bytes under `image`, or the fields of the rows."""
        if self.samples[0].picture is not None:
            return {"image": np.stack([gallery.from_png(sample.picture or b"") for sample in self.samples])}
        rows = [sample.row or {} for sample in self.samples]
        return {field: np.array([row[field] for row in rows]) for field in rows[0]}

    def in_words(self, row: Mapping[str, Any]) -> dict[str, str]:
        """A row as text, with names instead of numbers where the set lists them."""
        return {field: _cell(value, self.names.get(field, ())) for field, value in row.items()}


def find_set(folder: str | Path) -> Path:
    """The folder of the set: `folder` itself, or `samples` in the folder of a run."""
    for place in (Path(folder), Path(folder) / "samples"):
        if (place / FILE).is_file():
            return place
    if not Path(folder).is_dir():
        raise InvalidInput(
            f"there is no folder {folder}: create one with blindsight inspect labelling DATA --out {folder}"
        )
    raise InvalidInput(
        f"{folder} is not a synthetic set: it has no {FILE}. Create one with blindsight inspect labelling"
    )


def read_set(folder: str | Path) -> SyntheticSet:
    """The synthetic set in `folder`, or in the folder `samples` of a run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = find_set(folder)
    path = place / FILE
    try:
        table = pq.read_table(path)
        facts = json.loads((table.schema.metadata or {})[b"blindsight"])
        guarantee = Guarantee.from_dict(facts["guarantee"])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path} is not a synthetic set of Blindsight: it states no guarantee. Create one with blindsight inspect "
            f"labelling"
        ) from error
    sources = table.column("source").unique().to_pylist() if "source" in table.column_names else []
    if sources != [gallery.WORD]:
        raise InvalidInput(
            f"{path} holds samples that are not marked synthetic: only synthetic samples can be labelled"
        )
    classes = tuple(facts.get("classes") or ())
    return SyntheticSet(
        folder=place,
        title=str(facts.get("title", "")),
        guarantee=guarantee,
        classes=classes,
        identity=hashlib.sha256(path.read_bytes()).hexdigest()[:32],
        samples=_samples(table, classes, facts),
        proposer=str(facts.get("proposer") or BY_GENERATOR),
        names={field: tuple(names) for field, names in facts.get("names", {}).items()},
    )


def _samples(table: Any, classes: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Sample, ...]:
    fields = [field for field in facts.get("fields", ()) if field != "image"]

    def name(number: int | None) -> str | None:
        return None if number is None else classes[number] if 0 <= number < len(classes) else str(number)

    return tuple(
        Sample(
            sample_id=row["sample_id"],
            picture=(row.get("image") or {}).get("bytes"),
            row={field: row[field] for field in fields} or None,
            own=name(row["class"]),
            proposed=name(row.get("pred", row["class"])),
            score=row.get("score"),
        )
        for row in table.to_pylist()
    )


def _cell(value: Any, names: tuple[str, ...]) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    if value is None or value != value:  # NaN: a missing value
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
