"""Questions asked with flat keywords, as tests vary them: grouped here into a schema and a session."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from blindsight import inspect
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.inspection.bias.comparison import Comparison, compare_with
from blindsight.inspection.report import Report

_SESSION = ("out", "ledger", "population", "key", "backend", "progress", "dry_run", "even_if_blind")
_LANGUAGE = ("case", "vocabulary_size", "discover", "train")


def grouped(**flat: Any) -> dict[str, Any]:
    """The same keywords with inputs, label and ranges in a schema, and what is about the run in a session."""
    given = {name: value for name, value in flat.items() if value is not None}
    given.setdefault("even_if_blind", True)  # few clients are quick, and most tests are not about what they find
    session = inspect.Session(**{name: given.pop(name) for name in _SESSION if name in given})
    inputs, label, ranges = given.pop("inputs", ()), given.pop("label", "label"), given.pop("ranges", {})
    fields = {name: Field("number", *ends) for name, ends in ranges.items()}
    inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    return given | {"schema": Schema(fields, inputs, label), "session": session}


def ask(question: Callable[..., Report], *populations: Any, **flat: Any) -> Report:
    """The report of a question about arms."""
    given = grouped(**flat)
    if given.pop("train", False):
        given["training"] = inspect.Training()
    if question is not inspect.contrast:
        given.pop("per_class", None)
    if "low" in given or "high" in given:
        given["thresholds"] = (given.pop("low"), given.pop("high"))
    return question(*populations, **given)


def ask_unknowns(before: Any, after: Any, **flat: Any) -> Report:
    """The report of `unknowns`."""
    given = grouped(**flat)
    given.pop("schema")
    train = given.pop("train", False)
    training = inspect.WordTraining() if train is True else train or None
    return inspect.unknowns(before, after, training=training, **given)


def ask_bias(clients: Any, **flat: Any) -> Report:
    """The report of `bias`."""
    given = grouped(**flat)
    language = {name: given.pop(name) for name in _LANGUAGE if name in given}
    train = language.pop("train", False)
    language["training"] = inspect.WordTraining() if train is True else train or None
    return inspect.bias(clients, language=inspect.Language(**language), **given)


def compared(clients: Any, public: Any, *, seed: bytes = b"x" * 32, **flat: Any) -> tuple[Comparison, Population]:
    """What follows from a question of `bias` and public data, and the clients after they have looked at themselves."""

    class Stop(Exception):
        pass

    def stop(self: Any, question: Any, clients: Any, public: Any, **_: Any) -> Any:
        raise Stop(question, public)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect.Session, "ask", stop)
        with pytest.raises(Stop) as stopped:
            ask_bias(clients, reference=public, **{"epsilon": 8.0, "delta": 1e-6} | flat)
    question, things = stopped.value.args
    made = compare_with(question, dataclasses.replace(things, seed=seed))
    return made, made.observe(clients)
