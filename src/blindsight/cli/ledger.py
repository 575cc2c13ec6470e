"""`blindsight ledger`: what has been spent on which population, and the budgets that limit it."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from blindsight.cli.printing import AsJson, LedgerPath, flag, print_json, print_value
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.accounting.ledger import Ledger

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="What each run has spent, and on which population.",
    no_args_is_help=True,
    epilog="Example:  blindsight ledger show",
)
budget_app = typer.Typer(
    help="Limits that no release may exceed.",
    no_args_is_help=True,
    epilog="Example:  blindsight ledger budget set clinic --epsilon 4 --delta 1e-6",
)
ledger_app.add_typer(budget_app, name="budget")


@ledger_app.command("show", epilog="Example:  blindsight ledger show --population clinic --entries")
def show(
    population: Annotated[str | None, typer.Option(help="Show only this population.")] = None,
    delta: Annotated[float, typer.Option(help="Delta for populations without a budget.")] = 1e-6,
    entries: Annotated[bool, flag("--entries", "List every entry.")] = False,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """What every population has spent over all runs, and its budget."""
    from blindsight.accounting.statement import Statement

    statement = Statement.of(_ledger(ledger), population=population, delta=delta, with_entries=entries or as_json)
    print_value(statement, as_json=as_json)


@ledger_app.command("verify", epilog="Example:  blindsight ledger verify --head 3f5a...")
def verify(
    head: Annotated[str | None, typer.Option(help="Hash noted earlier that must occur in the chain.")] = None,
    export: Annotated[Path | None, typer.Option("--export", help="Verify this exported file instead.")] = None,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """Find any entry that was edited, removed or reordered; exit code 3 if there is one."""
    from blindsight.accounting.ledger import verify_export

    if export is None:
        result = _existing(_ledger(ledger)).verify(witness=head)
    else:
        result = verify_export(_lines(export), witness=head)
    if as_json:
        print_json(dataclasses.asdict(result))
    else:
        Console(highlight=False).print(str(result), soft_wrap=True, markup=False)
    if not result.ok:
        raise typer.Exit(3)


@ledger_app.command("export", epilog="Example:  blindsight ledger export --output ledger.jsonl")
def export(
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="File. Default: standard output.")] = None,
    ledger: LedgerPath = None,
    as_json: Annotated[bool, flag("--json", "Write one JSON array instead of a line per entry.")] = False,
) -> None:
    """Every entry as one line of JSON, hashes included; `verify --export` checks such a file."""
    from blindsight.runs import write_whole

    lines = list(_existing(_ledger(ledger)).export())
    text = "[" + ",\n".join(lines) + "]\n" if as_json else "".join(line + "\n" for line in lines)
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text)


@budget_app.command("set", epilog="Example:  blindsight ledger budget set clinic --epsilon 4 --delta 1e-6")
def budget_set(
    population: Annotated[str, typer.Argument(help="Name of the population.")],
    epsilon: Annotated[float, typer.Option(help="Largest epsilon that may be spent.")],
    delta: Annotated[float, typer.Option(help="Delta of the guarantee.")],
    note: Annotated[str, typer.Option(help="Reason, kept in the entry.")] = "",
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """Set a population's budget. The change is an entry of the ledger like any other."""
    from blindsight.accounting.statement import account

    _ledger(ledger).set_budget(population, epsilon=epsilon, delta=delta, note=note)
    result = account(_ledger(ledger), population)
    if as_json:
        print_json(result.to_dict())
    else:
        Console(highlight=False).print(str(result), soft_wrap=True, markup=False)


def _ledger(path: Path | None) -> "Ledger":
    from blindsight.accounting.ledger import Ledger

    return Ledger(path)


def _existing(ledger: "Ledger") -> "Ledger":
    """The ledger, refused if its file does not exist: a mistyped path must not verify as an intact ledger."""
    if not ledger.path.exists():
        raise InvalidInput(
            f"there is no ledger {ledger.path}: name it with --ledger; the first release or budget creates one"
        )
    return ledger


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise InvalidInput(f"there is no file {path}: make one with blindsight ledger export --output {path}")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not text: name a file written by blindsight ledger export") from error
