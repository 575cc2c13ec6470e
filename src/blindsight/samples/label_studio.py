"""Synthetic sets for Label Studio: tasks with their pictures inside, proposed labels with scores, and a set of keys."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from blindsight.samples.synthetic_set import BY_GENERATOR, Sample, SyntheticSet

__all__ = ["CONTROL", "as_text", "config", "result", "tasks"]

CONTROL = "label"  # the name of the choice that people make
_KEYS = "1234567890qwertyuiopasdfghjklzxcvbnm"


def tasks(
    made: SyntheticSet, annotations: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
) -> list[dict[str, Any]]:
    """One task for every sample, in the JSON that Label Studio imports; `annotations` by sample, where there are any.

    Pictures are inside, so that no file has to be served, and every task says which set it is of and what protects it.
    """
    found: list[dict[str, Any]] = []
    for sample in made.samples:
        about = {"sample_id": sample.sample_id, "set": made.identity, "source": "synthetic"}
        about["guarantee"] = str(made.guarantee)
        task: dict[str, Any] = {"data": {**_shown(made, sample), **about}, "predictions": _proposals(made, sample)}
        if annotations and sample.sample_id in annotations:
            task["annotations"] = list(annotations[sample.sample_id])
        found.append(task)
    return found


def as_text(tasks: Sequence[Mapping[str, Any]]) -> str:
    """The tasks as the file that is imported."""
    return json.dumps(tasks, indent=1, allow_nan=False) + "\n"


def config(made: SyntheticSet, classes: Sequence[str] | None = None) -> str:
    """The labelling interface in Label Studio's XML: the example, the guarantee, and a key for every class."""
    shown = {
        "image": '<Image name="image" value="$image" zoom="true" width="100%" maxWidth="420px"/>',
        "text": '<Text name="text" value="$text"/>',
        "row": '<Table name="row" value="$row"/>',
    }[_kind(made)]
    choices = "".join(
        f"    <Choice value={quoteattr(name)}{f' hotkey={quoteattr(key)}' if key else ''}/>\n"
        for name, key in zip(classes or made.classes, _hotkeys(classes or made.classes), strict=True)
    )
    return (
        "<View>\n"
        '  <Header size="5" value="Synthetic. $guarantee"/>\n'
        f"  {shown}\n"
        f'  <Choices name="{CONTROL}" toName="{_kind(made)}" choice="single" showInLine="true">\n'
        f"{choices}  </Choices>\n"
        "</View>\n"
    )


def result(made: SyntheticSet, label: str) -> list[dict[str, Any]]:
    """A label as Label Studio writes it."""
    return [{"from_name": CONTROL, "to_name": _kind(made), "type": "choices", "value": {"choices": [label]}}]


def _kind(made: SyntheticSet) -> str:
    if made.samples[0].picture is not None:
        return "image"
    return "text" if list(made.samples[0].row or ()) == ["text"] else "row"


def _shown(made: SyntheticSet, sample: Sample) -> dict[str, Any]:
    if sample.picture is not None:
        return {"image": "data:image/png;base64," + base64.b64encode(sample.picture).decode("ascii")}
    row = made.said(sample.row or {})
    return {"text": row["text"]} if _kind(made) == "text" else {"row": row}


def _proposals(made: SyntheticSet, sample: Sample) -> list[dict[str, Any]]:
    """What the model says, with its score, and the class that the generator was asked for."""
    said: list[dict[str, Any]] = []
    if sample.proposed is not None:
        one: dict[str, Any] = {"model_version": made.proposer, "result": result(made, sample.proposed)}
        said.append(one if sample.score is None else {**one, "score": sample.score})
    if sample.own is not None and made.proposer != BY_GENERATOR:
        said.append({"model_version": BY_GENERATOR, "result": result(made, sample.own)})
    return said


def _hotkeys(classes: Sequence[str]) -> list[str]:
    """A key for each class: its own name where that is one sign and all are, else one after the other, then none."""
    if all(len(name) == 1 and name.isascii() and name.isalnum() for name in classes) and len(
        {name.lower() for name in classes}
    ) == len(classes):
        return [name.lower() for name in classes]
    return [_KEYS[place] if place < len(_KEYS) else "" for place in range(len(classes))]
