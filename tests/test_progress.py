"""Progress: with the time left in a terminal, one line a step without; and help that names every option in full."""

import dataclasses
import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from blindsight import round_bar
from blindsight.accounting.guarantee import round_up
from blindsight.cli.printing import steps_bar


def test_a_step_is_one_line_without_a_terminal():
    out = io.StringIO()
    with steps_bar(Console(file=out)) as show:
        for doing, done, total in [("reading", 0, 1), ("asking", 0, 3), ("asking", 1, 3), ("writing", 2, 3)]:
            show(doing, done, total)
    assert out.getvalue().splitlines() == ["reading", "asking (1 of 3)", "writing (3 of 3)"]
    with steps_bar(Console(file=out), quiet=True) as show:
        show("more", 0, 1)
    assert "more" not in out.getvalue()


def test_a_terminal_shows_how_far_it_is_and_the_time_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one cannot move its cursor
    out = io.StringIO()
    with steps_bar(Console(file=out, force_terminal=True, width=100)) as show:
        show("asking", 1, 4)
        show("asking", 2, 4)
    assert "2/4" in out.getvalue()
    assert "left" in out.getvalue()


@dataclasses.dataclass
class Loop:
    round: int
    clients_per_s: float = 1234.0

    def epsilon_so_far(self) -> float:
        return self.round / 10


@pytest.mark.parametrize("rounds", [3, 100, 1000])
def test_a_run_writes_at_most_twenty_lines_without_a_terminal(capsys, rounds):
    with round_bar.round_bar(rounds, 0, 2.0, shown=True) as show:
        for number in range(1, rounds + 1):
            show(Loop(number))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == min(rounds, 20)
    assert lines[0].endswith(f"epsilon <= {round_up(min(2.0, -(-rounds // 20) / 10))}")
    assert lines[-1] == f"round {rounds:,} of {rounds:,}, 1,234 clients/s, epsilon 2"  # known before the first round


HELP = """
import typer
from blindsight.cli import app

def commands(command, path):
    yield command, path
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, f"{path} {name}")

for command, path in commands(typer.main.get_command(app), "blindsight"):
    words = command.get_help(typer.Context(command, info_name=path)).split()
    shown = [item for item in command.params if not getattr(item, "hidden", False)]
    names = [one for item in shown for one in item.opts if one.startswith("--")]
    print(path, [one for one in names if one not in words and one + "," not in words], "in full")
"""


def test_help_names_every_option_in_full_at_60_columns():
    """In a process of its own: how wide the terminal is, is asked once."""
    done = subprocess.run(
        [sys.executable, "-c", HELP], env={**os.environ, "COLUMNS": "60"}, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) > 20
    assert [line for line in lines if " [] " not in line] == []
