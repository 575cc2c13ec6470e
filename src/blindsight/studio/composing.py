"""A question as a form: its fields, what they become on the command line, and dry runs in a separate process."""

import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from blindsight.errors import InvalidInput

__all__ = ["COMMAND", "FIELDS", "QUESTIONS", "ComposedQuestion", "DryRuns", "composed", "option_of"]

QUESTIONS = {
    "ask": "Histograms, means, quantiles and missing rates of fields",
    "sanity": "Do the data look right?",
    "mistakes": "What does the model get wrong?",
    "slices": "On which clients does the model fail?",
    "labelling": "Synthetic examples for people to label",
    "bias": "What do clients have that public data lack?",
    "unknowns": "Which words does the vocabulary lack after a change?",
    "synthesize": "Synthetic rows of a table, to train a model on",
}
_ALL = ("data", "fleet", "asker", "reference", "client", "types", "clients", "fault", "population", "epsilon", "delta")
_LOCAL = ("data", "client", "clients", "fault")  # what a question to a fleet does not have
_OF_MODELS = ("inputs", "label", "model")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "ask": (*_ALL, "fields", "by"),
    "sanity": (*_ALL, *_OF_MODELS),
    "mistakes": (*_ALL, *_OF_MODELS),
    "slices": (*_ALL, *_OF_MODELS, "low", "high", "by"),
    "labelling": (*_ALL, *_OF_MODELS, "samples"),
    "bias": (*_ALL, *_OF_MODELS, "by"),
    "unknowns": (*_ALL, "before", "vocabulary_size"),
    "synthesize": (*_ALL, "fields", "label", "rows"),
}
USUAL_EPSILON = {"ask": 1.0, "synthesize": 1.0}
"""Where it is not 8, as on the command line."""
_WHOLE, _REAL = ("clients", "samples", "rows", "vocabulary_size"), ("epsilon", "delta", "low", "high")
_NUMBERS: Mapping[str, type[int] | type[float]] = dict.fromkeys(_WHOLE, int) | dict.fromkeys(_REAL, float)
_LISTS = {"inputs": ",", "fields": ",", "types": ";"}
_PLAIN = ("data", "fields")  # arguments without an option
_SPELLED = {"inputs": "--input", "types": "--type", "vocabulary_size": "--vocabulary-size"}
_MOST_KEPT = 64
COMMAND = (sys.executable, "-m", "blindsight.jobs.rehearsing")
"""The module that answers dry runs; it is above this package and needs JAX."""


@dataclasses.dataclass(frozen=True)
class ComposedQuestion:
    """A task and its fields, checked as far as no data are needed."""

    task: str
    fields: Mapping[str, Any]

    @property
    def words(self) -> list[str]:
        """The command that asks it, after `blindsight`."""
        given = [(name, value) for name, value in self.fields.items() if name not in _PLAIN]
        listed = [(name, one) for name, value in given for one in (value if isinstance(value, list) else [value])]
        options = [f"{option_of(name)}={value}" for name, value in listed]
        plain = [one for name in _PLAIN for one in _as_list(self.fields.get(name))]
        return [*([] if self.task in USUAL_EPSILON else ["inspect"]), self.task, *plain, *options]

    @property
    def payer(self) -> str:
        """The clients' name in the ledger, if nothing but the question decides it."""
        from blindsight.data.catalogue import DATASETS
        from blindsight.data.embedded import POPULATIONS
        from blindsight.data.reading import table_name

        if "fleet" in self.fields:
            return str(self.fields.get("population") or _name_of_fleet(self.fields["fleet"]))
        name = str(self.fields["data"])
        name = name if name in (*POPULATIONS, *DATASETS) else table_name(name)
        fault = self.fields.get("fault")
        return str(self.fields.get("population") or (f"{name} with {fault}" if fault else name))


def composed(given: Mapping[str, str]) -> ComposedQuestion:
    """The question of a form; empty fields have their defaults."""
    task = given.get("task", "")
    if task not in QUESTIONS:
        raise InvalidInput(f"choose a question: {', '.join(QUESTIONS)}")
    fields: dict[str, Any] = {}
    is_local = not given.get("fleet", "").strip()
    for name in FIELDS[task]:
        text = given.get(name, "").strip()
        if not text or name in (("asker",) if is_local else _LOCAL):
            continue
        if text.startswith("-") or not text.isprintable() or len(text) > 300:
            raise InvalidInput(f"{name} must be one line that does not begin with a hyphen, got {text[:40]!r}")
        fields[name] = _number(name, text) if name in _NUMBERS else _listed(name, text) if name in _LISTS else text
    if is_local and "data" not in fields:
        raise InvalidInput("name the clients' data: an embedded population, a file or a folder")
    return ComposedQuestion(task, fields)


def option_of(field: str) -> str:
    """The option of the command line for a field.

    >>> option_of("inputs"), option_of("epsilon")
    ('--input', '--epsilon')
    """
    return _SPELLED.get(field, f"--{field}")


def _listed(name: str, text: str) -> list[str]:
    found = [one.strip() for one in text.split(_LISTS[name]) if one.strip()]
    if any(one.startswith("-") for one in found):
        raise InvalidInput(f"{name} must not begin with a hyphen, got {text[:40]!r}")
    return found


def _as_list(value: Any) -> list[str]:
    return [] if value is None else value if isinstance(value, list) else [str(value)]


def _name_of_fleet(folder: str) -> str:
    from blindsight.fleet.folder import FleetFolder

    return FleetFolder.read(folder, to_ask=False).settings.name


def _number(name: str, text: str) -> float | int:
    try:
        return _NUMBERS[name](text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, got {text[:40]!r}") from None


class DryRuns:
    """Dry runs in one other process, the newest question first; answers are kept.

    The process begins with the first question and ends with this one.
    """

    def __init__(self, ledger: Path | None) -> None:
        self._ledger = ledger
        self._lock = threading.Condition()
        self._kept: dict[str, dict[str, Any]] = {}
        self._wanted: str | None = None
        self._asking: str | None = None
        self._doing: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def look(self, question: ComposedQuestion) -> dict[str, Any]:
        """The answer, `{"report"}` or `{"error"}`, or its progress; starts the dry run if nobody has."""
        asked = self._line(question)
        with self._lock:
            if asked in self._kept:
                return self._kept[asked]
            if asked != self._asking:
                self._wanted = asked  # an older question that has not begun is dropped
                self._lock.notify()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="blindsight studio dry runs", daemon=True)
                self._thread.start()
            return {"doing": "waiting", **(self._doing if asked == self._asking else {})}

    def _line(self, question: ComposedQuestion) -> str:
        fields = {**question.fields, **({} if self._ledger is None else {"ledger": str(self._ledger)})}
        return json.dumps({"task": question.task, "fields": fields}, sort_keys=True)

    def _work(self) -> None:
        while True:
            with self._lock:
                while self._wanted is None:
                    self._lock.wait()
                self._asking, self._wanted, self._doing = self._wanted, None, {"doing": "starting"}
            answer = self._answer(self._asking)
            with self._lock:
                self._kept[self._asking] = answer
                while len(self._kept) > _MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._asking = None

    def _answer(self, asked: str) -> dict[str, Any]:
        """The other process's final answer; if the process died, the next question starts it again."""
        try:
            lines, answers = self._pipes()
            lines.write(asked + "\n")
            lines.flush()
            for line in answers:
                said = json.loads(line)
                if "doing" not in said:
                    return said
                with self._lock:
                    self._doing = said
        except (OSError, ValueError):
            pass
        self.close()
        return {"error": "the dry run ended without an answer: change something, or ask again"}

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        lines, answers = self._process.stdin, self._process.stdout
        if lines is None or answers is None:
            raise OSError("the process has no pipes")
        return lines, answers

    def close(self) -> None:
        """End the other process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:  # waits, and closes its pipes
                pass
