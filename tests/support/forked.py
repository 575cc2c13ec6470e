"""Commands as processes of their own, forked from one that has imported everything: ten sites for one site's imports.

As a program it reads lines of JSON, [ACTION, ARGUMENTS], and answers each with one. `Forked` is its other end.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

__all__ = ["Forked"]


class Forked:
    """Starts `blindsight` commands, says how they ended, and kills what is left when it is closed."""

    def __init__(self) -> None:
        import blindsight

        paths = [str(Path(next(iter(blindsight.__path__))).parent)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
            "OMP_NUM_THREADS": "1",
        }
        words, pipe = [sys.executable, __file__], subprocess.PIPE
        self._process = subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def start(self, out: Path, *arguments: str) -> int:
        """The id of a process that runs `blindsight` with these arguments and writes what it prints to two files."""
        return int(self._do("start", str(out), *arguments))

    def code(self, pid: int) -> int | None:
        """The exit code of a process; None if it still runs."""
        return self._do("code", pid)

    def _do(self, *line: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def main() -> None:
    """Answer until the end of the input."""
    for name in ("cli", "asking", "fleet.asking", "jobs.ask", "jobs.fleet_training", "jobs.site", "jobs.train"):
        importlib.import_module(f"blindsight.{name}")  # once, for all commands
    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        action, *arguments = json.loads(line)
        if action == "start":
            if (pid := os.fork()) == 0:
                _become(*arguments)
            codes[pid], answer = None, pid
        else:
            answer = codes[arguments[0]] = _code(arguments[0], codes[arguments[0]])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid, code in codes.items():
        if _code(pid, code) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _code(pid: int, known: int | None) -> int | None:
    if known is not None:
        return known
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def _become(out: str, *arguments: str) -> None:
    """This process is the command from here on."""
    code = 70
    try:
        for number, name in ((1, out), (2, f"{out}.err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["blindsight", *arguments]
        from blindsight import cli

        cli.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
