"""The tasks: the question type of each, to read questions from JSON.

A new task is a question, its rounds, and a function that conducts them, in a new folder, and one entry here.
"""

from collections.abc import Mapping
from typing import Any

from blindsight.errors import InvalidInput
from blindsight.inspection.asking.question import Ask
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.contrast.question import Contrast, Mistakes, Sanity, Slices
from blindsight.inspection.labelling.question import Labelling
from blindsight.inspection.question import Question
from blindsight.inspection.synthesizing.question import Synthesize
from blindsight.inspection.unknowns.question import Unknowns

__all__ = ["TASKS", "question_from"]

TASKS: dict[str, type[Question]] = {
    question.task: question
    for question in (Sanity, Mistakes, Unknowns, Slices, Labelling, Bias, Contrast, Ask, Synthesize)
}
"""Every task by its name."""


def question_from(value: Mapping[str, Any]) -> Question:
    """The question that `to_dict` was called on, of any task."""
    task = value.get("task")
    if not isinstance(task, str) or task not in TASKS:
        raise InvalidInput(f"the task of a question must be one of {', '.join(TASKS)}, got {task!r}")
    return TASKS[task].from_dict(value)
