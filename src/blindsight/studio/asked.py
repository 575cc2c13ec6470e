"""Questions that were asked from the studio: each is a separate process, which continues if the studio stops.

What it prints goes to a file in a hidden folder beside the runs. A question that was stopped is resumed by asking it
again under the same name, and pays nothing twice.
"""

import dataclasses
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.studio.composing import ComposedQuestion

__all__ = ["AskedQuestion", "AskedQuestions"]

COMMAND = (sys.executable, "-m", "blindsight")
_NAME = re.compile(r"[\w][\w.-]{0,79}")
_KEPT_BYTES = 60_000  # of what it printed: the end


@dataclasses.dataclass(frozen=True)
class AskedQuestion:
    """One question under way or done."""

    number: str
    name: str
    words: tuple[str, ...]
    log: Path
    process: "subprocess.Popen[bytes]"

    @property
    def state(self) -> str:
        """running, finished, or refused."""
        code = self.process.poll()
        return "running" if code is None else "finished" if code == 0 else "refused"

    @property
    def lines(self) -> list[str]:
        """The last lines that it printed."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _KEPT_BYTES))
                return file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return []


class AskedQuestions:
    """The questions that this studio asked."""

    def __init__(self, folder: Path, ledger: Path | None) -> None:
        self._folder, self._ledger = folder, ledger
        self._asked: dict[str, AskedQuestion] = {}
        self._lock = threading.Lock()

    def all(self) -> list[AskedQuestion]:
        """Every question, the newest first."""
        return list(reversed(self._asked.values()))

    def find(self, number: str) -> AskedQuestion:
        """The question of that number."""
        if number not in self._asked:
            raise InvalidInput("there is no such question: it was asked from another studio, or before this one began")
        return self._asked[number]

    def ask(self, question: ComposedQuestion, name: str) -> AskedQuestion:
        """Begin to ask it; its run is called `name`."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"a run's name is one word of letters, digits, dots and hyphens, got {name[:40]!r}")
        with self._lock:
            if any(one.name == name and one.state == "running" for one in self._asked.values()):
                raise BlindsightError(f"{name} is being asked already: wait for it, or choose another name")
            number = secrets.token_hex(8)
            folder = self._folder / ".studio"
            folder.mkdir(parents=True, exist_ok=True)
            log = folder / f"{number}.log"
            words = [*question.words, f"--out={self._folder / name}"]
            words += [] if self._ledger is None else [f"--ledger={self._ledger}"]
            with open(log, "wb") as out:
                process = subprocess.Popen(
                    [*COMMAND, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=_environment(os.environ),
                    start_new_session=True,  # Ctrl-C is for the studio
                )
            self._asked[number] = AskedQuestion(number, name, tuple(words), log, process)
            return self._asked[number]

    def stop(self, number: str) -> AskedQuestion:
        """End a question; asked again under the same name, it resumes.

        Not by SIGINT: a studio that was started in the background of a shell ignores it, and so do its processes.
        """
        one = self.find(number)
        if one.state != "running":
            raise BlindsightError("it has ended already")
        one.process.terminate()
        return one


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    return {**given, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
