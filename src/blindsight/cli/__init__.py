"""The command line: parse, one library call, print. Each command imports what is slow to import when it runs.

::

    plan, tables, demo, init, ledger, data, ask, synthesize,
    inspect, label, studio, train, runs, export, audit,
    serve, issuer, fleet, site                            one module for each command or group
    completing                                            what a shell completes
    expanding, requests                                   options as fields of a dataclass
    groups                                                short and older spellings
    printing                                              shared options, JSON, progress
"""

import io
import shutil
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.ask import ask
from blindsight.cli.audit import audit
from blindsight.cli.data import data_app
from blindsight.cli.demo import demo
from blindsight.cli.export import export
from blindsight.cli.fleet import fleet_app
from blindsight.cli.groups import Misuse
from blindsight.cli.init import init
from blindsight.cli.inspect import inspect_app
from blindsight.cli.issuer import issuer_app
from blindsight.cli.label import label
from blindsight.cli.ledger import ledger_app
from blindsight.cli.plan import plan
from blindsight.cli.runs import runs_app
from blindsight.cli.serve import serve
from blindsight.cli.site import site_app
from blindsight.cli.studio import studio
from blindsight.cli.synthesize import synthesize
from blindsight.cli.tables import tables
from blindsight.cli.train import train_app
from blindsight.errors import BlindsightError
from blindsight.version import __version__

__all__ = ["app", "main"]

_NARROW = shutil.get_terminal_size().columns < 80  # columns side by side would cut off the names of options

app = typer.Typer(
    name="blindsight",
    help="Machine learning on data nobody may look at. Start with: blindsight demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None if _NARROW else "markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example:  blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9",
)
_START, _ASK, _TRAIN = "Start here", "Ask questions", "Train and audit"
_PRIVACY, _WHERE, _SEE = "Privacy costs", "Fleet and service", "Results"


def _add(panel: str, name: str, command: Callable[..., None], example: str) -> None:
    app.command(name, rich_help_panel=panel, epilog=f"Example:  blindsight {example}")(command)


_add(_START, "demo", demo, "demo --folder runs")
_add(_START, "init", init, "init")
app.add_typer(data_app, name="data", rich_help_panel=_START)
app.add_typer(inspect_app, name="inspect", rich_help_panel=_ASK)
_add(_ASK, "ask", ask, "ask tabular age education --by sex --epsilon 1")
_add(_ASK, "synthesize", synthesize, "synthesize tabular --epsilon 1 --rows 20000")
_add(_ASK, "label", label, "label runs/labelling-handwriting --rater anna")
app.add_typer(train_app, name="train", rich_help_panel=_TRAIN)
_add(_TRAIN, "export", export, "export runs/keyboard keyboard.onnx")
_add(_TRAIN, "audit", audit, "audit runs/keyboard")
_add(
    _PRIVACY,
    "plan",
    plan,
    "plan --population 250000 --cohort 1000 --noise-multiplier 1 --rounds 1000 --delta 4e-8",
)
_add(_PRIVACY, "tables", tables, "tables 000 --markdown > tables.md")
app.add_typer(ledger_app, name="ledger", rich_help_panel=_PRIVACY)
_add(_SEE, "studio", studio, "studio runs --write")
app.add_typer(runs_app, name="runs", rich_help_panel=_SEE)
app.add_typer(fleet_app, name="fleet", rich_help_panel=_WHERE)
app.add_typer(site_app, name="site", rich_help_panel=_WHERE)
_add(_WHERE, "serve", serve, "serve --port 8752 --data service")
app.add_typer(issuer_app, name="issuer", rich_help_panel=_WHERE)


def main() -> None:
    """Run the command line; every expected failure is one sentence on stderr and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that a pipe sees what a serving command prints
    try:
        code = app(prog_name="blindsight", standalone_mode=False)
        print(end="", flush=True)  # so that a full disk is noticed here, not while Python shuts down
    except BlindsightError as error:
        _refuse(str(error), error.exit_code)
    except Misuse as error:
        _refuse(_in_one_line(error), 2)
    except BrokenPipeError:  # the reader of the output has read enough
        sys.stdout = None
        sys.exit(1)
    except MemoryError:  # what it says may be of clients' data
        _refuse("not enough memory: choose fewer clients, smaller images or models, or a larger machine", 2)
    except OSError as error:
        sys.stdout = None  # the error may be about stdout itself
        where = f" on {error.filename}" if error.filename else ""
        _refuse(f"I/O error{where} ({error.strerror or error}): check path, permissions and free space", 2)
    else:
        sys.exit(code)


def _in_one_line(error: Any) -> str:
    """What is wrong with the arguments, and where to look it up; empty if help was shown instead."""
    message = " ".join(error.format_message().split()).rstrip(".")
    where = error.ctx.command_path if error.ctx else "blindsight"
    return f"{message[:1].lower()}{message[1:]} (see {where} --help)" if message else ""


def _refuse(sentence: str, code: int) -> NoReturn:
    if sentence:
        Console(stderr=True, highlight=False).print("[red]error:[/]", escape(sentence), soft_wrap=True)
    sys.exit(code)


def _version(is_given: bool) -> None:
    if is_given:
        sys.stdout.write(f"blindsight {__version__}\n")
        raise typer.Exit()


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None: ...
