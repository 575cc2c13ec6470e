"""Synthetic samples as Parquet for `datasets`, with a card that states their guarantee.

`synthetic_set.read_set` reads them back.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.samples import gallery
from blindsight.samples.views import ArmView

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["save_set"]

OURS = ("sample_id", "latent", "population", "class", "source")


def save_set(
    arms: Sequence[ArmView],
    folder: Path,
    *,
    title: str,
    guarantee: Guarantee,
    classes: Sequence[str] = (),
    question: str = "",
    extra: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    created: str | None = None,
) -> Path:
    """Write `samples.parquet` and `README.md` into `folder`; return the folder.

    One row per sample: `sample_id`, `latent` (equal numbers in two arms are a pair), `population` (the
    arm), `class`, `source` (always "synthetic"), then columns of `extra`, then `image` or the columns of the rows.

    Args:
        arms: Arms and their samples.
        folder: Folder to write into.
        title: Title of the README.
        guarantee: Guarantee of the samples.
        classes: Names of the classes.
        question: Question that the samples answer.
        extra: Further columns, one value per sample.
        facts: Facts for the file's metadata, beside the guarantee.
        created: Time of creation; now by default.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    shown = [arm for arm in arms if arm.samples is not None or arm.rows is not None]
    if not shown:
        raise InvalidInput("the report has no samples to save: sample images, or numbers with public ranges")
    table = pa.concat_tables([_table(arm, extra or {}) for arm in shown], promote_options="default")
    ours = {"source": gallery.WORD, "title": title, "guarantee": guarantee.to_dict(), "classes": list(classes)}
    ours |= {"fields": [name for name in table.column_names if name not in OURS and name not in (extra or {})]}
    metadata = {
        "huggingface": {"info": {"features": _features(shown, table, classes)}},
        "blindsight": {**ours, **(facts or {})},
    }
    table = table.replace_schema_metadata({name: json.dumps(value) for name, value in metadata.items()})
    when = created or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "samples.parquet")
        card = _card(table, arms, title, guarantee, question, when)
        (folder / "README.md").write_text(card, encoding="utf-8")
    except OSError as error:
        raise BlindsightError(f"cannot write to {folder} ({error.strerror}): choose another folder") from error
    return folder


def _table(arm: ArmView, extra: Mapping[str, Any]) -> "pa.Table":
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
        **{name: pa.array(values) for name, values in extra.items()},
    }
    if arm.samples is not None:
        pictures = [{"bytes": gallery.png(image), "path": None} for image in arm.samples]
        columns["image"] = pa.array(pictures, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    for name, values in (arm.rows or {}).items():
        field = name
        while field in columns:  # a data column may have one of these names
            field += "_"
        columns[field] = pa.array(values.tolist(), pa.string()) if values.dtype.kind == "T" else pa.array(values)
    return pa.table(columns)


def _features(arms: Sequence[ArmView], table: "pa.Table", classes: Sequence[str]) -> dict[str, Any]:
    """The feature types for `datasets`."""
    import pyarrow as pa

    features: dict[str, Any] = {}
    for field in table.schema:
        name = "float64" if field.type == pa.float64() else "float32" if field.type == pa.float32() else str(field.type)
        features[field.name] = {"dtype": name, "_type": "Value"}
    if any(arm.samples is not None for arm in arms):
        features["image"] = {"_type": "Image"}
    labels = [arm.labels for arm in arms if arm.labels is not None]
    fits = labels and all(int(label.min()) >= 0 and int(label.max()) < len(classes) for label in labels)
    if fits and len(set(classes)) == len(classes):
        features["class"] = {"names": list(classes), "_type": "ClassLabel"}
    return features


def _card(
    table: "pa.Table", arms: Sequence[ArmView], title: str, promise: Guarantee, question: str, created: str
) -> str:
    """The dataset card: what the set is, and its guarantee."""
    line = " ".join(title.split())
    front = [
        "---",
        f"pretty_name: {json.dumps(line)}",
        "tags:\n- synthetic\n- differential-privacy",
        "configs:\n- config_name: default\n  data_files: samples.parquet",
        "---",
    ]
    kept = " This guarantee holds whatever is done with them." if promise.is_private else ""
    facts = {
        "epsilon": round_up(promise.epsilon),
        "delta": f"{promise.delta:.3g}",
        "unit": promise.unit,
        "neighbours": promise.relation.in_words,
        "releases": f"{promise.releases:,}",
        "accountant": promise.accountant,
        "participation": promise.participation,
        "arms": ", ".join(arm.name for arm in arms),
        "created": created,
    }
    assumptions = [f"- {_escaped(assumption)}" for assumption in promise.assumptions]
    warnings = [f"**{_escaped(f'{arm.name}: {arm.warning}')}**" for arm in arms if arm.warning]
    return "\n".join(
        [
            *front,
            f"# {_escaped(line)}",
            "",
            f"{table.num_rows:,} **synthetic** samples, drawn from a generator fitted to sums over clients.{kept}",
            "",
            *(part for words in warnings for part in (words, "")),
            "| | |",
            "|---|---|",
            *(f"| {name} | {_escaped(value)} |" for name, value in facts.items()),
            "",
            _escaped(promise.explain().partition(" This holds if: ")[0]),
            "",
            *(["It holds if:", "", *assumptions, ""] if assumptions else []),
            *([f"Question: {_escaped(question)}", ""] if question else []),
            f"Columns: {_escaped(', '.join(table.column_names))}. Samples of two arms with the same "
            "`latent` are a pair: they were drawn from the same latent.",
            "",
        ]
    )


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    plain = " ".join(text.split())
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|!" else sign for sign in plain)
