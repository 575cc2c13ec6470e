"""Two populations that differ in one client look the same from outside, whatever that client holds.

Every entry (a command, a task, a function of Python) is run on both neighbours in a world without chance, where
mechanisms release noise alone (`leaving.blind`). All that leaves must then be equal: files of the run and what they
hold, pages, terminal, exit code, messages, the ledger's entries, and which sums, rounds and releases are made in which
order and of how many numbers. The last stands for time: how long they take is the machine's business. Left out is what
is marked `simulation_only`, and a run's folder `secret`.
"""

import inspect as signatures
import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from entries import ENTRIES, WITHOUT_CLIENTS
from leaving import blind, everything_that_leaves
from neighbours import KINDS, PLAIN, TOGETHER, Kind, neighbours, write_public

from blindsight import cli, inspection

CHEAP = "unknowns"


@pytest.fixture(autouse=True)
def without_chance() -> Iterator[None]:
    with blind():
        yield


def attack(tmp_path: Path, entry: str, kind: Kind, patch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """What the usual neighbour's run gives back, and all that differs in the other's."""
    found = list[dict[str, Any]]()
    for odd in (False, True):
        folder = tmp_path / "here"  # one name for both: paths are printed
        folder.mkdir()
        patch.chdir(folder)
        write_public(folder)
        neighbours(folder, kind, odd=odd)
        found.append(everything_that_leaves(folder, ENTRIES[entry].run))
        os.rename(folder, tmp_path / f"{odd}")
    return found[0]["returned"], list(differences(*found))


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two values differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            yield from differences(one.get(name), other.get(name), f"{place}/{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}/{number}")
    elif one != other:
        yield f"{place}: {str(one)[:300]} | {str(other)[:300]}"


def went_well(returned: Any) -> bool:
    """Whether all commands of an entry ended with 0, or a function returned: two equal failures would show nothing."""
    if isinstance(returned, dict) and "exit code" in returned:
        return returned["exit code"] == 0
    return all(went_well(one) for one in returned if isinstance(one, dict)) if isinstance(returned, list) else True


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_says_anything_about_one_client(tmp_path, entry, monkeypatch):
    returned, differing = attack(tmp_path, entry, PLAIN if ENTRIES[entry].guesses_types else TOGETHER, monkeypatch)
    assert went_well(returned), returned
    assert not differing
