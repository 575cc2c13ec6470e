"""Import from and export to Label Studio: its full JSON export, and the short form (JSON-MIN)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from blindsight.errors import InvalidInput
from blindsight.samples import label_studio
from blindsight.samples.synthetic_set import SyntheticSet
from blindsight.studio.labels import Decision, Labels, now

__all__ = ["export_annotations", "import_annotations"]


def import_annotations(labels: Labels, path: str | Path) -> int:
    """Import annotations from Label Studio; returns the number of decisions.

    Either the whole file is imported or, if a sample or a class does not belong to this set, nothing. Raters keep their
    Label Studio names; a rater's earlier label of a sample is replaced, and identical labels are left unchanged.
    """
    try:
        tasks = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}): export JSON or JSON-MIN in Label Studio") from error
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: export JSON or JSON-MIN in Label Studio") from error
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InvalidInput(f"{path} is not a Label Studio export, which is a list of tasks: export JSON or JSON-MIN")
    decisions = [
        one for place, task in enumerate(tasks, 1) for one in _decisions(task, f"task {place} of {path}", labels)
    ]
    if not decisions:
        raise InvalidInput(f"{path} has no annotations: label some tasks in Label Studio first")
    new = [one for one in decisions if not _is_there(labels, one)]
    if new:
        labels.add(new)
    return len(new)


def export_annotations(labels: Labels, path: str | Path) -> Path:
    """Write the set with all labels as Label Studio tasks; returns the path."""
    from blindsight.runs import write_whole

    by_sample: dict[str, list[dict[str, Any]]] = {}
    for rater in labels.raters:
        for one in labels.standing(rater).values():
            result = [] if one.label is None else label_studio.result(labels.dataset, one.label)
            annotation = {"result": result, "was_cancelled": one.label is None, "lead_time": one.seconds}
            by_sample.setdefault(one.sample_id, []).append({**annotation, "created_at": one.at, "rater": rater})
    return write_whole(path, label_studio.as_text(label_studio.tasks(labels.dataset, by_sample)))


def _decisions(task: Mapping[str, Any], where: str, labels: Labels) -> Iterator[Decision]:
    """The decisions in a task, in the full or the short form."""
    data = task["data"] if isinstance(task.get("data"), dict) else task
    _check_set(data, where, labels.dataset)
    sample = data["sample_id"]
    if "annotations" in task:
        for note in task["annotations"]:
            if not isinstance(note, dict):
                raise InvalidInput(f"{where} has an invalid annotation: export it again")
            label = None if note.get("was_cancelled") else _chosen(note.get("result"), where)
            yield _decision(sample, label, note.get("rater") or note.get("completed_by"), note)
    elif label_studio.CONTROL in task:
        choice = task[label_studio.CONTROL]
        choice = choice.get("choices") if isinstance(choice, dict) else choice
        yield _decision(sample, _one(choice, where), task.get("annotator"), task)


def _check_set(data: Mapping[str, Any], where: str, dataset: SyntheticSet) -> None:
    if data.get("sample_id") not in dataset.by_id:
        named = str(data.get("sample_id"))[:60]
        raise InvalidInput(
            f"{where} refers to {named!r}, which is not a sample of {dataset.folder}: import labels of this set"
        )
    if data.get("set") != dataset.identity:  # sample ids repeat across sets
        raise InvalidInput(
            f"{where} does not belong to {dataset.folder}, or does not name its set: import labels of this set"
        )


def _decision(sample: str, label: str | None, rater: Any, annotation: Mapping[str, Any]) -> Decision:
    if isinstance(rater, dict):  # some versions write a whole user object
        rater = rater.get("email") or rater.get("username") or rater.get("id")
    name = str(rater) if isinstance(rater, str) else f"label studio {rater or 'rater'}"
    seconds = annotation.get("lead_time")
    at = annotation.get("created_at") or annotation.get("updated_at")
    return Decision(sample, name, label, seconds if isinstance(seconds, int | float) else 0.0, str(at or now()))


def _chosen(result: Any, where: str) -> str | None:
    """The one choice of a full annotation; none is a skip."""
    choices = [
        choice
        for part in (result if isinstance(result, list) else [])
        if isinstance(part, dict) and part.get("type") == "choices"
        for choice in part.get("value", {}).get("choices", [])
    ]
    return _one(choices, where) if choices else None


def _one(choice: Any, where: str) -> str:
    choices = choice if isinstance(choice, list) else [choice]
    if len(choices) != 1 or not isinstance(choices[0], str):
        raise InvalidInput(f'{where} has {len(choices)} labels: each example has one, so use choice="single"')
    return choices[0]


def _is_there(labels: Labels, one: Decision) -> bool:
    stands = labels.standing(one.rater).get(one.sample_id)
    return stands is not None and stands.label == one.label
