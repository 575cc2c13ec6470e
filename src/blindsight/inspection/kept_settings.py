"""The settings in a question's folder, by which the same question about the same data finds its releases there.

A digest of the data is as secret as the data: someone who knows every client but one could compare guesses of that one
with it. So the folder holds it under the ledger's own key (`accounting.names.Seal`), which is never in the folder.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.data.population import Population
from blindsight.errors import LedgerTampered
from blindsight.inspection.question import Question
from blindsight.runs import Run

__all__ = ["check_kept", "sealed", "settings_of"]


def sealed(population: Population, ledger: Ledger) -> str:
    """The digest of these data under the ledger's key: the same for the same data, and nothing to anyone without it."""
    return ledger.seal.sealed(population.fingerprint, begin=True) or ""


def settings_of(question: Question, clients: Population, payers: Payers, ledger: Ledger) -> dict[str, Any]:
    """What a folder must share to be the folder of this question about these clients."""
    marked = {"data": sealed(clients, ledger)}
    return {"question": question.to_dict(), "population": names_of(payers), "simulation_only": marked}


def check_kept(folder: str | Path, settings: Mapping[str, Any], clients: Population, ledger: Ledger) -> None:
    """Refuse a folder that was begun with another ledger; a digest from before they were sealed is sealed now."""
    run, now = Run(Path(folder)), settings["simulation_only"]["data"]
    if not (run.path / "run.json").exists():
        return
    header = run.read("run.json")
    try:
        kept = header["settings"]["simulation_only"]["data"]
        key = None if kept == clients.fingerprint else json.loads(kept)["key"]
    except (LookupError, TypeError, ValueError):  # another run: `runs.begin` says how it differs
        return
    if key is None:
        header["settings"]["simulation_only"]["data"] = now
        run.write("run.json", header)
    elif key != json.loads(now)["key"] and header["settings"].get("population") == [*settings["population"]]:
        raise LedgerTampered(
            f"{run.path} was begun with another ledger than {ledger.path}: name that one with --ledger, or another "
            "folder with --out"
        )
