"""Two populations that differ in one client look the same from outside, whatever that client holds.

Every entry (a command, a task, a function of Python) is run on both neighbours in a world without chance, where
mechanisms release noise alone (`leaving.blind`). No sum may differ by more than the noise is made for, and all that
leaves must be equal: files of the run and what they hold, pages, terminal, exit code, messages, the ledger's entries,
and which sums, rounds and releases are made in which order and of how many numbers. The last stands for time: how long
they take is the machine's business. Left out is what is marked `simulation_only`, and a run's folder `secret`.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from entries import BEHIND, ENTRIES, WITHOUT_CLIENTS
from leaving import blind, everything_that_leaves, sums_before_noise
from neighbours import KINDS, TOGETHER, Kind, neighbours, places, write_public

import blindsight
from blindsight import cli
from blindsight.accounting import assumptions

CHEAP = "bias"
LISTED = [re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(getattr(assumptions, name)))) for name in assumptions.__all__]
OF_EXAMPLES = {"parties in Python"}  # whose noise is made for one example, and the odd client has many
QUICK = [name for name, entry in ENTRIES.items() if not entry.slow]


@pytest.fixture(autouse=True)
def without_chance() -> Iterator[None]:
    with blind():
        yield


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What was seen of usual neighbours, which most kinds share; and the one place where all are run."""
    return {"place": tmp_path_factory.mktemp("attacks") / "here"}  # paths are printed


def leaves(here: Path, entry: str, kind: Kind, *, odd: bool) -> tuple[dict[str, Any], list[np.ndarray]]:
    """All that leaves when the entry is run on one of two neighbours, and the sums that noise would have hidden."""
    here.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        write_public(here)
        neighbours(here, kind, odd=odd, by_example=ENTRIES[entry].by_example)
        ENTRIES[entry].store()
        found = everything_that_leaves(here, ENTRIES[entry].run)
    shutil.rmtree(here)
    return found, sums_before_noise()


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two values differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            yield from differences(one.get(name), other.get(name), f"{place}/{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}/{number}")
    elif one != other:
        one, other = str(one), str(other)
        alike = next((letter for letter, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
        start = max(0, alike - 100)  # pages are long, and begin alike
        yield f"{place} from {start}: {one[start : start + 300]} | {other[start : start + 300]}"


def failures(returned: Any) -> list[Any]:
    """The commands of an entry that did not end with 0: two neighbours that fail alike would show nothing."""
    parts = returned if isinstance(returned, list) else [returned]
    return [part for part in parts if isinstance(part, dict) and part.get("exit code", 0) != 0]


def unlisted(value: Any) -> Iterator[str]:
    """Assumptions of guarantees, wherever they stand, that docs/privacy.md does not list."""
    if isinstance(value, dict):
        for sentence in value.get("assumptions") or ():
            if not any(pattern.fullmatch(sentence) for pattern in LISTED):
                yield sentence
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from unlisted(one)


def attack(entry: str, kind: Kind, usual: dict[Any, Any]) -> None:
    known = (entry, kind.usual, kind.others, places(kind.odd) if ENTRIES[entry].by_example else None)
    if known not in usual:
        usual[known] = leaves(usual["place"], entry, kind, odd=False)
    (found, sums), (other, moved) = usual[known], leaves(usual["place"], entry, kind, odd=True)
    assert kind.others or not failures(found["returned"])
    assert not list(unlisted(found))
    assert list(differences(found, other)) == []
    is_of_clients = not ENTRIES[entry].by_example and entry not in OF_EXAMPLES
    if is_of_clients:  # one client takes the place of another: out with one part, in with the other
        assert all(np.linalg.norm(one - two) <= 2.0001 for one, two in zip(sums, moved, strict=True))


@pytest.mark.parametrize("entry", QUICK)
def test_no_entry_says_anything_about_one_client(entry, usual):
    attack(entry, TOGETHER, usual)


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_client_is_told_from_another(kind, usual):
    attack(CHEAP, KINDS[kind], usual)


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.others])
@pytest.mark.parametrize("entry", ["moments in Python", "parties in Python", "unknowns in Python"])
def test_whether_anybody_has_anything_is_not_told_of_data_in_memory(entry, kind, usual):
    attack(entry, KINDS[kind], usual)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_says_anything_about_any_kind_of_client(entry, kind, usual):
    attack(entry, KINDS[kind], usual)


# --- nothing is left out


def commands(command: Any, path: str = "") -> Iterator[str]:
    """All commands and sub-commands."""
    if hasattr(command, "commands"):
        for name, sub in command.commands.items():
            yield from commands(sub, f"{path} {name}".strip())
    else:
        yield path


def test_every_command_is_attacked():
    through = {name for entry in ENTRIES.values() for name in entry.through}
    known = set(commands(typer.main.get_command(cli.app)))
    assert known - through == set(WITHOUT_CLIENTS)
    assert WITHOUT_CLIENTS.keys().isdisjoint(through)


SOURCES = Path(blindsight.__file__).parent
READERS = {"spent", "spent_afterwards", "spent_so_far", "totals", "witness", "studio"}  # of a ledger
OF_ITS_KEY = {"check_kept", "run_student", "sealed", "settings_of"}
# no client is read by `rehearse`; a party's messages in `answer` are those of `aggregate`
NO_RELEASE = READERS | OF_ITS_KEY | {"rehearse", "answer"}


def payers(file: Path) -> Iterator[str]:
    """The public functions of a module that take a ledger to pay into, or a session, which has one."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    public = {
        name.value
        for one in tree.body
        if isinstance(one, ast.Assign | ast.AugAssign) and "__all__" in ast.unparse(one).partition("=")[0]
        for name in ast.walk(one.value)
        if isinstance(name, ast.Constant)
    }
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and one.name in public:
            given = {argument.arg for argument in (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)}
            if {"ledger", "session"} & given:
                yield one.name


def test_every_function_that_pays_for_a_release_is_attacked():
    """Functions of Python, wherever they are: the tasks, `ask`, `synthesize`, training, and every algorithm."""
    found = {name for file in SOURCES.rglob("*.py") for name in payers(file)}
    found |= {"aggregate"}  # its ledgers are parties'
    through = {name.removeprefix("inspect ") for entry in ENTRIES.values() for name in entry.through}
    assert found - through - BEHIND.keys() == NO_RELEASE
    assert set(BEHIND.values()) <= through
    assert BEHIND.keys() <= found
    assert {"sanity", "contrast", "ask", "synthesize", "synthesise", "discover_words", "measure", "train"} <= found
