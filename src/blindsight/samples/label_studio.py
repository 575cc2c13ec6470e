"""Synthetic sets for Label Studio: tasks with embedded images, proposed labels with scores, and hotkeys."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from blindsight.samples.synthetic_set import BY_GENERATOR, Sample, SyntheticSet

__all__ = ["CONTROL", "as_text", "config", "result", "tasks"]

CONTROL = "label"  # name of the choice control
_KEYS = "1234567890qwertyuiopasdfghjklzxcvbnm"


def tasks(
    dataset: SyntheticSet, annotations: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
) -> list[dict[str, Any]]:
    """One task for every sample, in the JSON that Label Studio imports, with `annotations` by sample, if any.

    Images are embedded, so no file has to be served. Every task names its set and the guarantee.
    """
    listed: list[dict[str, Any]] = []
    for sample in dataset.samples:
        facts = {"sample_id": sample.sample_id, "set": dataset.identity, "source": "synthetic"}
        facts["guarantee"] = str(dataset.guarantee)
        task: dict[str, Any] = {
            "data": {**_shown(dataset, sample), **facts},
            "predictions": _proposals(dataset, sample),
        }
        if annotations and sample.sample_id in annotations:
            task["annotations"] = list(annotations[sample.sample_id])
        listed.append(task)
    return listed


def as_text(tasks: Sequence[Mapping[str, Any]]) -> str:
    """The tasks as text of the file to import."""
    return json.dumps(tasks, indent=1, allow_nan=False) + "\n"


def config(dataset: SyntheticSet, classes: Sequence[str] | None = None) -> str:
    """The labelling interface in Label Studio's XML: the example, the guarantee, and a key for every class."""
    shown = {
        "image": '<Image name="image" value="$image" zoom="true" width="100%" maxWidth="420px"/>',
        "text": '<Text name="text" value="$text"/>',
        "row": '<Table name="row" value="$row"/>',
    }[_kind(dataset)]
    choices = "".join(
        f"    <Choice value={quoteattr(name)}{f' hotkey={quoteattr(key)}' if key else ''}/>\n"
        for name, key in zip(classes or dataset.classes, _hotkeys(classes or dataset.classes), strict=True)
    )
    return (
        "<View>\n"
        '  <Header size="5" value="Synthetic. $guarantee"/>\n'
        f"  {shown}\n"
        f'  <Choices name="{CONTROL}" toName="{_kind(dataset)}" choice="single" showInLine="true">\n'
        f"{choices}  </Choices>\n"
        "</View>\n"
    )


def result(dataset: SyntheticSet, label: str) -> list[dict[str, Any]]:
    """A label as Label Studio writes it."""
    return [{"from_name": CONTROL, "to_name": _kind(dataset), "type": "choices", "value": {"choices": [label]}}]


def _kind(dataset: SyntheticSet) -> str:
    if dataset.samples[0].picture is not None:
        return "image"
    return "text" if list(dataset.samples[0].row or ()) == ["text"] else "row"


def _shown(dataset: SyntheticSet, sample: Sample) -> dict[str, Any]:
    if sample.picture is not None:
        return {"image": "data:image/png;base64," + base64.b64encode(sample.picture).decode("ascii")}
    row = dataset.in_words(sample.row or {})
    return {"text": row["text"]} if _kind(dataset) == "text" else {"row": row}


def _proposals(dataset: SyntheticSet, sample: Sample) -> list[dict[str, Any]]:
    """The model's prediction with its score, and the class that the generator was conditioned on."""
    proposals: list[dict[str, Any]] = []
    if sample.proposed is not None:
        by_model: dict[str, Any] = {"model_version": dataset.proposer, "result": result(dataset, sample.proposed)}
        proposals.append(by_model if sample.score is None else {**by_model, "score": sample.score})
    if sample.own is not None and dataset.proposer != BY_GENERATOR:
        proposals.append({"model_version": BY_GENERATOR, "result": result(dataset, sample.own)})
    return proposals


def _hotkeys(classes: Sequence[str]) -> list[str]:
    """A key for each class: its name if all names are single characters, otherwise keys in order, then none."""
    if all(len(name) == 1 and name.isascii() and name.isalnum() for name in classes) and len(
        {name.lower() for name in classes}
    ) == len(classes):
        return [name.lower() for name in classes]
    return [_KEYS[place] if place < len(_KEYS) else "" for place in range(len(classes))]
