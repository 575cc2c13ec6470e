"""Inspection: what is wrong with data that nobody may look at, asked and answered in a private round or two.

::

    question     what is asked, as data: JSON in and out
    answering    `answer`, the client half: one client's own examples to named vectors of bounded length
    measuring    one round over all clients, every part noised, paid for before any noise is drawn
    session      the server half, the same for all tasks: pay, measure, train, promise, save, resume
    lessons      models trained on clients as part of a question
    report       everything on one page
    contrast/    arms of clients measured, compared, diagnosed and shown: sanity, mistakes, slices
    unknowns/    words that a vocabulary lacks, before and after a change
    bias/        clients compared with public data
    labelling/   synthetic examples for people to label

The functions that ask are in `blindsight.inspect`. Nothing is imported before it is used: a report is read without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.inspection.answering import Round, answer
    from blindsight.inspection.question import Public, Question
    from blindsight.inspection.report import Report
    from blindsight.inspection.session import Inquiry, Session

__all__ = ["Inquiry", "Public", "Question", "Report", "Round", "Session", "answer"]

_HOMES = {
    "Inquiry": "session",
    "Public": "question",
    "Question": "question",
    "Report": "report",
    "Round": "answering",
    "Session": "session",
    "answer": "answering",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.inspection.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.inspection' has no attribute {name!r}")
