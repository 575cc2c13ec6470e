"""Who reads a run's folder and knows every client but one cannot try guesses of that one against it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight import asking, inspect
from blindsight.accounting.ledger import Ledger
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, LedgerTampered


def people(last: float) -> Population:
    ages = np.append(np.arange(20.0, 31.0), last)
    return Population({"age": ages}, sizes=np.ones(12, int), name="people")


def ask(clients: Population, folder: Path, ledger: Path) -> Any:
    session = inspect.Session(out=folder, ledger=Ledger(ledger), even_if_blind=True)
    return asking.ask(clients, [asking.Mean("age")], epsilon=1, ranges={"age": (0, 100)}, session=session)


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_guess_of_a_client_can_be_checked_against_a_run(tmp_path: Path):
    run, ledger = tmp_path / "run", tmp_path / "l.db"
    first = ask(people(44.0), run, ledger)
    left = everything_in(run)
    assert people(44.0).fingerprint.encode() not in left
    assert people(44.0).content.encode() not in left
    header = json.loads((run / "run.json").read_text())
    kept = header["settings"]["simulation_only"]["data"]

    # the folder is still that of these data and of this ledger alone
    assert ask(people(44.0), run, ledger).statistics == first.statistics
    assert len([one for one in Ledger(ledger).entries() if one.kind == "release"]) == 1
    with pytest.raises(InvalidInput, match="other settings"):
        ask(people(45.0), run, ledger)
    with pytest.raises(LedgerTampered, match="begun with another ledger"):
        ask(people(44.0), run, tmp_path / "other.db")

    # what older versions left is sealed when the question is asked again
    header["settings"]["simulation_only"]["data"] = people(44.0).fingerprint
    (run / "run.json").write_text(json.dumps(header))
    assert ask(people(44.0), run, ledger).statistics == first.statistics
    assert json.loads((run / "run.json").read_text())["settings"]["simulation_only"]["data"] == kept
