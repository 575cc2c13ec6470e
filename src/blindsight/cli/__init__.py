"""The command line: parse, one library call, print. Whatever takes time to import is imported by its command."""

import dataclasses
import io
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.audit import audit
from blindsight.cli.data import data_app
from blindsight.cli.inspect import inspect
from blindsight.cli.label import label
from blindsight.cli.printing import AsJson, flag, print_json, progress_bar, steps_bar, working
from blindsight.cli.serve import serve
from blindsight.cli.train import train_app
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.version import __version__

if TYPE_CHECKING:
    from blindsight.accounting.ledger import Ledger
    from blindsight.privacy import Plan

__all__ = ["app", "main"]

app = typer.Typer(
    name="blindsight",
    help="Machine learning on data nobody may look at. Start with: blindsight demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example:  blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9",
)
ledger_app = typer.Typer(
    help="What has been spent, on whom, by which run.", no_args_is_help=True, epilog="Example:  blindsight ledger show"
)
budget_app = typer.Typer(
    help="Limits that no release may exceed.",
    no_args_is_help=True,
    epilog="Example:  blindsight ledger budget set clinic --epsilon 4 --delta 1e-6",
)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")
app.add_typer(train_app, name="train")
ledger_app.add_typer(budget_app, name="budget")
app.command(
    "inspect", epilog="Example:  blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9"
)(inspect)
app.command("label", epilog="Example:  blindsight label runs/labelling-handwriting --rater anna")(label)
app.command("serve", epilog="Example:  blindsight serve --port 8752 --data service")(serve)
app.command("audit", epilog="Example:  blindsight audit runs/keyboard")(audit)


def main() -> None:
    """Run the command line; every expected failure is one sentence on stderr and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a command that prints and then serves is read through pipes too
    try:
        code = app(prog_name="blindsight", standalone_mode=False)
        print(end="", flush=True)  # a full disk is found here, not while Python shuts down
    except BlindsightError as error:
        _refuse(str(error), error.exit_code)
    except _Misuse as error:
        _refuse(_in_one_line(error), 2)
    except BrokenPipeError:  # whoever reads the output has read enough
        sys.stdout = None
        sys.exit(1)
    except OSError as error:
        sys.stdout = None  # it may be what cannot be written to
        where = f" with {error.filename}" if error.filename else ""
        why = error.strerror or error
        _refuse(f"cannot go on{where} ({why}): check the path, whose it is, and the space that is left", 2)
    else:
        sys.exit(code)


_Misuse: type[Exception] = typer.BadParameter.__mro__[1]
"""An option or argument that there is not, is missing or is wrong."""


def _in_one_line(error: Any) -> str:
    """What is wrong with the arguments and where to look it up; nothing where help was shown instead."""
    message = " ".join(error.format_message().split()).rstrip(".")
    where = error.ctx.command_path if error.ctx else "blindsight"
    return f"{message[:1].lower()}{message[1:]} (see {where} --help)" if message else ""


def _refuse(sentence: str, code: int) -> NoReturn:
    if sentence:
        Console(stderr=True, highlight=False).print("[red]error:[/]", escape(sentence), soft_wrap=True)
    sys.exit(code)


# --- values as people write them


def whole_number(text: str) -> int:
    """`250000`, `250_000`, `250,000`, `2.5e5`, `250k`, `4M`."""
    factor = {"k": 1e3, "K": 1e3, "M": 1e6}.get(text[-1:], 1.0)
    try:
        value = float((text[:-1] if factor > 1 else text).replace(",", "").replace("_", "")) * factor
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number") from error
    if not math.isfinite(value) or abs(value - round(value)) > 1e-6 or value < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number of at least 1")
    return round(value)


def delta_value(text: str, population: int) -> float:
    """`1e-6`, `1/N`, `N^-1.1`, with N the population."""
    try:
        if text.startswith("N^"):
            return float(population) ** float(text[2:])
        if text.endswith("/N"):
            return float(text[:-2]) / population
        return float(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"delta must be a number, 1/N or N^-1.1, got {text!r}") from error


WholeNumber = Annotated[int | None, typer.Option(parser=whole_number, metavar="N")]


# --- plan and tables

_USUAL_FRACTION = 0.05


@app.command(
    epilog="Example:  blindsight plan --population 250000 --cohort 1000 --noise-multiplier 1 --rounds 1000 --delta 4e-8"
)
def plan(
    population: Annotated[int, typer.Option(parser=whole_number, help="Clients in all (250000, 250k, 4M).")],
    cohort: Annotated[
        int | None, typer.Option(parser=whole_number, help="Clients per round, expected or exact.")
    ] = None,
    delta: Annotated[str, typer.Option(help="Failure probability: a number, 1/N or N^-1.1.")] = "N^-1.1",
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over clip; leave out to solve for it.")] = None,
    rounds: Annotated[
        int | None, typer.Option(parser=whole_number, help="Rounds; leave out to solve for them.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target; noise or rounds are solved for.")] = None,
    participation: Annotated[str, typer.Option(help="poisson, fixed, full or unproven.")] = "poisson",
    max_participations: Annotated[
        int | None, typer.Option(parser=whole_number, help="Most rounds a client can be in (unproven).")
    ] = None,
    as_published: Annotated[bool, flag("--as-published", "Add the papers' own number.")] = False,
    group: Annotated[int, typer.Option(min=1, help="What it means for a group of so many clients.")] = 1,
    adaptive_clipping: Annotated[
        bool, flag("--adaptive-clipping", "How to split the noise with the clip's own estimate.")
    ] = False,
    explain: Annotated[bool, flag("--explain", "Say in plain words what is promised.")] = False,
    detect: Annotated[str | None, typer.Option(help="A fault: would one inspection at --epsilon find it?")] = None,
    fraction: Annotated[
        float | None, typer.Option(help="The share of clients that the fault hits (--detect; 0.05).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Privacy arithmetic: epsilon from noise and rounds, noise from epsilon, rounds from epsilon.

    Give two of --noise-multiplier, --rounds and --epsilon; the third is solved for. With --detect FAULT: whether an
    inspection of all clients at --epsilon could show that fault, before anything is spent.
    """
    if detect is not None:
        share = _USUAL_FRACTION if fraction is None else fraction
        _print_prediction(detect, share, population, epsilon, delta_value(delta, population), as_json)
        return
    if fraction is not None:
        raise InvalidInput("--fraction is the share of clients that a fault hits: name the fault with --detect FAULT")
    if cohort is None:
        raise InvalidInput("say how many clients take part in a round with --cohort")
    given = [value is not None for value in (noise_multiplier, rounds, epsilon)]
    if sum(given) != 2:
        raise InvalidInput("give exactly two of --noise-multiplier, --rounds and --epsilon; the third is solved for")
    from blindsight.accounting.planning import split_noise
    from blindsight.privacy import Privacy
    from blindsight.privacy import plan as make_plan

    failure = delta_value(delta, population)
    privacy = Privacy(
        population=population,
        cohort=cohort,
        rounds=rounds or 1,
        noise_multiplier=noise_multiplier,
        participation=participation,  # pyright: ignore[reportArgumentType]  (Privacy refuses what it does not know)
        max_participations=max_participations,
    )
    with working("computing privacy losses"):
        if epsilon is not None and rounds is None:
            privacy = privacy.calibrate_rounds(epsilon=epsilon, delta=failure)
        elif epsilon is not None:
            privacy = privacy.calibrate(epsilon=epsilon, delta=failure)
        found = make_plan(privacy, delta=failure, as_published=as_published, group=group)
    split = split_noise(privacy.noise_multiplier or 0.0, cohort) if adaptive_clipping else None
    if as_json:
        adaptive = {"adaptive_clipping": {"noise_multiplier": split[0], "count_std": split[1]}} if split else {}
        print_json(found.to_dict() | adaptive)
    else:
        _print_plan(found, epsilon, split, explain)


def _print_prediction(
    fault: str, fraction: float, population: int, epsilon: float | None, delta: float, as_json: bool
) -> None:
    from blindsight.inspection.contrast.power import embedded_yardstick, predict

    if epsilon is None:
        raise InvalidInput("say what the inspection may spend with --epsilon")
    found = predict(embedded_yardstick(), fault, fraction, clients=population, epsilon=epsilon, delta=delta)
    if as_json:
        print_json(found.to_dict())
    else:
        Console(highlight=False).print(found)


def _print_plan(found: "Plan", target: float | None, split: tuple[float, float] | None, explain: bool) -> None:
    console = Console(highlight=False)
    if target is not None:
        privacy = found.privacy
        console.print(
            f"noise multiplier [bold]{privacy.noise_multiplier:.5g}[/] over [bold]{privacy.rounds:,}[/] rounds "
            f"keeps epsilon within {target:g}:"
        )
    console.print(found)
    if split is not None:
        console.print(
            f"\nAdaptive clipping: noise the updates at {split[0]:.7g} and the count with standard deviation "
            f"{split[1]:g}; together they cost one release at {found.privacy.noise_multiplier:g}."
        )
    if explain:
        console.print("\n" + found.guarantee.explain(), markup=False)


@app.command(epilog="Example:  blindsight tables 000 --markdown > tables.md")
def tables(
    paper: Annotated[str | None, typer.Argument(help="000, 001, 002 or 003; all of them if left out.")] = None,
    markdown: Annotated[bool, flag("--markdown", "Print markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every privacy number the papers print: as published, as reproduced, and what is true."""
    from blindsight.accounting import tables as published

    built: list[published.Table] = []
    console = Console(highlight=False)
    for name in [paper] if paper else list(published.PAPERS):
        with progress_bar(f"computing table {name}") as progress:
            built.append(published.build(name, progress))
        if markdown:
            sys.stdout.write(built[-1].to_markdown() + "\n")
        elif not as_json:
            console.print(built[-1])
            console.print()
    if as_json:
        print_json([table.to_dict() for table in built])


@app.command(epilog="Example:  blindsight demo --folder runs")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the run directory goes.")] = Path("runs"),
) -> None:
    """The main job on embedded data: find out what is wrong with data that nobody may look at."""
    from blindsight.demo import demo as show

    console = Console(highlight=False)
    with steps_bar(console) as progress:
        for part in show(folder=folder, progress=progress):
            console.print(part)


# --- ledger

LedgerPath = Annotated[
    Path | None, typer.Option("--ledger", help="The file; else $BLINDSIGHT_LEDGER, else .blindsight/ledger.db.")
]


@ledger_app.command("show", epilog="Example:  blindsight ledger show --population clinic --entries")
def ledger_show(
    population: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    delta: Annotated[float, typer.Option(help="Delta for populations without a budget.")] = 1e-6,
    entries: Annotated[bool, flag("--entries", "List every entry.")] = False,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """What every population has spent, over all runs, beside its budget."""
    from blindsight.accounting.statement import Statement

    found = Statement.of(_ledger(ledger), population=population, delta=delta, with_entries=entries or as_json)
    if as_json:
        print_json(found.to_dict())
    else:
        Console(highlight=False).print(found)


@ledger_app.command("verify", epilog="Example:  blindsight ledger verify --head 3f5a...")
def ledger_verify(
    head: Annotated[str | None, typer.Option(help="A hash noted earlier that must occur in the chain.")] = None,
    export: Annotated[Path | None, typer.Option("--export", help="Verify an exported file instead.")] = None,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """Find any entry that was edited, removed or reordered; exit code 3 if there is one."""
    from blindsight.accounting.ledger import verify_export

    if export is not None:
        if not export.is_file():
            raise InvalidInput(f"there is no file {export}: make one with blindsight ledger export --output {export}")
        try:
            lines = export.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{export} is no text: name a file that blindsight ledger export has written") from error
        found = verify_export(lines, witness=head)
    else:
        found = _begun(_ledger(ledger)).verify(witness=head)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        Console(highlight=False).print(str(found), soft_wrap=True, markup=False)
    if not found.ok:
        raise typer.Exit(3)


@ledger_app.command("export", epilog="Example:  blindsight ledger export --output ledger.jsonl")
def ledger_export(
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="A file; standard output if left out.")] = None,
    ledger: LedgerPath = None,
    as_json: Annotated[bool, flag("--json", "One JSON array instead of a line per entry.")] = False,
) -> None:
    """Every entry as one line of JSON, hashes included; `verify --export` checks such a file."""
    from blindsight.runs import write_whole

    lines = list(_begun(_ledger(ledger)).export())
    text = "[" + ",\n".join(lines) + "]\n" if as_json else "".join(line + "\n" for line in lines)
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text)


@budget_app.command("set", epilog="Example:  blindsight ledger budget set clinic --epsilon 4 --delta 1e-6")
def budget_set(
    population: Annotated[str, typer.Argument(help="The population's name.")],
    epsilon: Annotated[float, typer.Option(help="Most that may be spent.")],
    delta: Annotated[float, typer.Option(help="At this delta.")],
    note: Annotated[str, typer.Option(help="Why; goes into the entry.")] = "",
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """Set a population's budget. The change is an entry of the ledger like any other."""
    from blindsight.accounting.statement import account

    _ledger(ledger).set_budget(population, epsilon=epsilon, delta=delta, note=note)
    found = account(_ledger(ledger), population)
    if as_json:
        print_json(found.to_dict())
    else:
        Console(highlight=False).print(str(found), soft_wrap=True, markup=False)


def _ledger(path: Path | None) -> "Ledger":
    from blindsight.accounting.ledger import Ledger

    return Ledger(path)


def _begun(ledger: "Ledger") -> "Ledger":
    """The ledger, if there is one: that a mistyped path holds nothing wrong would be taken for good news."""
    if not ledger.path.exists():
        raise InvalidInput(
            f"there is no ledger {ledger.path}: name it with --ledger; the first release or budget begins one"
        )
    return ledger


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"blindsight {__version__}\n")
        raise typer.Exit()


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None: ...
