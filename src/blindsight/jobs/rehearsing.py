"""Dry runs for a form: `python -m blindsight.jobs.rehearsing` reads one question a line and answers it in JSON.

It is a separate process, so that the form stays responsive and later dry runs reuse compiled code. A line is
`{"task": "slices", "fields": {"data": "handwriting", "epsilon": 2.0}}`, with the fields of the task's request. Answers
are `{"doing", "done", "total"}` while it works, then `{"report"}` or `{"error"}`. It ends with its standard input.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from blindsight import jobs
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.jobs.request import (
    AskRequest,
    BiasRequest,
    LabellingRequest,
    MistakesRequest,
    Request,
    SanityRequest,
    SlicesRequest,
    SynthesizeRequest,
    UnknownsRequest,
)

__all__ = ["TASKS", "answer_lines", "request_of"]

TASKS: Mapping[str, type[Request]] = {
    "ask": AskRequest,
    "sanity": SanityRequest,
    "mistakes": MistakesRequest,
    "slices": SlicesRequest,
    "unknowns": UnknownsRequest,
    "labelling": LabellingRequest,
    "bias": BiasRequest,
    "synthesize": SynthesizeRequest,
}


def request_of(task: str, fields: Mapping[str, Any]) -> Request:
    """The request of a dry run; fields that this task does not have are refused."""
    if task not in TASKS:
        raise InvalidInput(f"{task!r} is not one of {', '.join(TASKS)}")
    options = {field.name for field in dataclasses.fields(TASKS[task])}
    if strange := sorted(fields.keys() - options):
        raise InvalidInput(f"{', '.join(strange)}: not an option of {task}")
    given: dict[str, Any] = {**fields, "dry_run": True}
    return TASKS[task](**given)


def answer_lines(questions: TextIO, answers: TextIO) -> None:
    """Answer every line of `questions` until they end."""

    def say(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    for line in questions:
        question = json.loads(line)
        try:
            request = request_of(question["task"], question["fields"])
            report, _ = getattr(jobs, f"run_{question['task']}")(
                request, progress=lambda doing, done, total: say({"doing": doing, "done": done, "total": total})
            )
            full = report.to_dict()
            say({"report": {name: full.get(name) for name in ("verdict", "detection", "ledger", "notes", "guarantee")}})
        except (BlindsightError, OSError) as error:
            say({"error": str(error)})


if __name__ == "__main__":
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed along the way is not an answer
    answer_lines(sys.stdin, replies)
