"""Synthetic samples as Parquet that `datasets` reads, beside a card that says under which guarantee they were made."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blindsight.accounting.guarantee import round_up
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.inspection import gallery

if TYPE_CHECKING:
    import pyarrow as pa

    from blindsight.inspection.report import ArmView, Report

__all__ = ["save_samples"]

OURS = ("sample_id", "latent", "population", "class", "source")


def save_samples(report: "Report", folder: Path) -> Path:
    """Write `samples.parquet` and `README.md` into `folder`; the folder.

    One row per sample: `sample_id`, `latent` (equal numbers of two arms belong beside each other), `population` (the
    arm), `class`, `source` (always "synthetic"), then `image` or the columns of the rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arms = [arm for arm in report.arms if arm.samples is not None or arm.rows is not None]
    if not arms:
        raise InvalidInput("the report has no samples to save: inspect with a generator to have some")
    table = pa.concat_tables([_table(arm) for arm in arms], promote_options="default")
    about = {
        "huggingface": {"info": {"features": _features(report, table)}},
        "blindsight": {"source": gallery.WORD, "title": report.title, "guarantee": report.guarantee.to_dict()},
    }
    table = table.replace_schema_metadata({name: json.dumps(value) for name, value in about.items()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "samples.parquet")
        (folder / "README.md").write_text(_card(report, table), encoding="utf-8")
    except OSError as error:
        raise BlindsightError(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
    return folder


def _table(arm: "ArmView") -> "pa.Table":
    import pyarrow as pa

    count = len(arm.samples) if arm.samples is not None else len(next(iter((arm.rows or {}).values())))
    ids = [f"{arm.name}/{number:05d}" for number in range(count)]
    labels = pa.nulls(count, pa.int64()) if arm.labels is None else pa.array(arm.labels.astype(np.int64))
    columns: dict[str, Any] = {
        "sample_id": pa.array(ids, pa.string()),
        "latent": pa.array(np.arange(count)),
        "population": pa.array([arm.name] * count, pa.string()),
        "class": labels,
        "source": pa.array([gallery.WORD] * count, pa.string()),
    }
    if arm.samples is not None:
        pictures = [{"bytes": gallery.png(image), "path": None} for image in arm.samples]
        columns["image"] = pa.array(pictures, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    for name, values in (arm.rows or {}).items():
        field = name
        while field in columns:  # a column of the data may have one of our names
            field += "_"
        columns[field] = pa.array(values.tolist(), pa.string()) if values.dtype.kind == "T" else pa.array(values)
    return pa.table(columns)


def _features(report: "Report", table: "pa.Table") -> dict[str, Any]:
    """What `datasets` should take each column for."""
    import pyarrow as pa

    features: dict[str, Any] = {}
    for field in table.schema:
        kind = "float64" if field.type == pa.float64() else "float32" if field.type == pa.float32() else str(field.type)
        features[field.name] = {"dtype": kind, "_type": "Value"}
    if any(arm.samples is not None for arm in report.arms):
        features["image"] = {"_type": "Image"}
    names = report.class_names
    labels = [arm.labels for arm in report.arms if arm.labels is not None]
    known = labels and all(int(label.min()) >= 0 and int(label.max()) < len(names) for label in labels)
    if known and len(set(names)) == len(names):
        features["class"] = {"names": list(names), "_type": "ClassLabel"}
    return features


def _card(report: "Report", table: "pa.Table") -> str:
    """The dataset card: what this is, and what protects whom."""
    promise, line = report.guarantee, " ".join(report.title.split())
    front = [
        "---",
        f"pretty_name: {json.dumps(line)}",
        "tags:\n- synthetic\n- differential-privacy",
        "configs:\n- config_name: default\n  data_files: samples.parquet",
        "---",
    ]
    kept = " They keep this guarantee whatever is done with them." if promise.is_private else ""
    facts = {
        "epsilon": round_up(promise.epsilon),
        "delta": f"{promise.delta:.3g}",
        "unit": promise.unit,
        "neighbours": promise.relation.in_words,
        "releases": f"{promise.releases:,}",
        "accountant": promise.accountant,
        "participation": promise.participation,
        "arms": ", ".join(arm.name for arm in report.arms),
        "made": report.created,
    }
    assumptions = [f"- {_escaped(assumption)}" for assumption in promise.assumptions]
    return "\n".join(
        [
            *front,
            f"# {_escaped(line)}",
            "",
            f"{table.num_rows:,} **synthetic** samples, drawn from a generator fitted to sums over clients.{kept}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {_escaped(value)} |" for name, value in facts.items()),
            "",
            _escaped(promise.explain().partition(" This holds if: ")[0]),
            "",
            *(["It holds if:", "", *assumptions, ""] if assumptions else []),
            f"Question asked: {_escaped(report.question)}",
            "",
            f"Columns: {_escaped(', '.join(table.column_names))}. Samples of two arms with the same "
            "`latent` were drawn alike and belong beside each other.",
            "",
        ]
    )


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    plain = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|!" else sign for sign in plain)
