"""The command line in this process, which spares the seconds that a process of its own takes to import everything."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest

from blindsight import cli

__all__ = ["run"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`blindsight` with these arguments: exit code and all that it prints, as from a real process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["blindsight", *arguments])
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
