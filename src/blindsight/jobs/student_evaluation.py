"""How well a student classifies examples that are public, or in simulations real: accuracy, confusion, mistakes."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from blindsight.data.missing import coded_as
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.models.primary import Primary, gather
from blindsight.samples import gallery
from blindsight.studio.student_report import Misread
from blindsight.wording import number

__all__ = ["evaluate_student", "misread"]

_SHOWN = 24  # misread examples on the page


class InputsOfStudent(Protocol):
    """What the evaluation needs to know of how a student reads examples."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def is_image(self) -> bool: ...


def evaluate_student(student: Primary, clients: Population, reading: InputsOfStudent, label: str) -> dict[str, Any]:
    """The student's accuracy on these clients' examples, and how often it takes each class for each other."""
    truth, predicted, _ = _read(student, clients, reading, label)
    confusion = np.zeros((len(reading.classes),) * 2, np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    accuracy = float(np.mean(truth == predicted))
    return {"name": clients.name, "examples": len(truth), "accuracy": accuracy, "confusion": confusion.tolist()}


def misread(student: Primary, clients: Population, reading: InputsOfStudent, label: str) -> tuple[Misread, ...]:
    """Examples of public clients that the student gets wrong: of each class its surest mistakes, class by class."""
    truth, predicted, scores = _read(student, clients, reading, label)
    rows = np.flatnonzero(_truth(clients, label, reading.classes) >= 0)
    wrong = np.flatnonzero(truth != predicted)
    wrong = wrong[np.argsort(-scores[wrong], kind="stable")]
    each = max(1, _SHOWN // max(1, len(np.unique(truth[wrong]))))
    chosen = [one for name in range(len(reading.classes)) for one in wrong[truth[wrong] == name][:each]][:_SHOWN]
    shown = list[Misread]()
    for one in chosen:
        example = {name: clients.columns[name][rows[one]] for name in reading.inputs}
        names = reading.classes[truth[one]], reading.classes[predicted[one]], float(scores[one])
        if reading.is_image:
            shown.append(Misread(*names, png=gallery.png(_picture(example[reading.inputs[0]]))))
        else:
            shown.append(Misread(*names, row=tuple((name, number(float(x), 4)) for name, x in example.items())))
    return tuple(shown)


def _read(
    student: Primary, clients: Population, reading: InputsOfStudent, label: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True class, predicted class and its score, of every example that has a label."""
    examples = gather(clients.columns, reading.inputs)
    student.check(clients, reading.inputs, None)
    truth = _truth(clients, label, reading.classes)
    is_labelled = truth >= 0
    if not is_labelled.any():
        raise InvalidInput(f"no example of {clients.name} has a label in {label!r}: name other data, or another field")
    predicted, scores = student.predict(examples)
    return truth[is_labelled], predicted[is_labelled], scores[is_labelled]


def _picture(image: np.ndarray) -> np.ndarray:
    """An image as bytes, without the axis of a single channel."""
    picture = gallery.as_bytes(image)
    return picture[..., 0] if picture.shape[2:] == (1,) else picture


def _truth(clients: Population, label: str, classes: Sequence[str]) -> np.ndarray:
    """The class numbers of these clients' examples; -1 where the label is missing.

    Texts and named classes go by their names. Numbers without names are class numbers.
    """
    column, names = clients.columns[label], clients.classes.get(label)
    return coded_as(column, classes, names if names or column.dtype == TEXT else classes)
