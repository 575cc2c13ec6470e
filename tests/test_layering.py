"""Imports go strictly downward and never in a ring; the package itself imports nothing until it is used."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

LAYERS = """
    __main__
    cli
    demo
    jobs
    studio  service  inspect  asking  synthesizing
    inspection  audit
    samples
    training
    algorithms  evaluation  fidelity  students
    fleet
    backends
    privacy
    mechanisms  selection  participation  round_bar
    accounting  checkpoints  config  data  models  runs
    codings
    kernels
    trees  keys  pages
    errors  progress  protobuf  version  wording
"""
HEIGHT = {unit: -row for row, units in enumerate(LAYERS.split("\n")) for unit in units.split()}


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The line and full name of everything imported anywhere in `tree`, a module of `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else ()
            origin = [*parent, node.module] if node.module else parent
            yield from ((node.lineno, ".".join([*origin, alias.name])) for alias in node.names)


def eager(tree: ast.Module) -> ast.Module:
    """The part of `tree` that runs on import: no function bodies, nothing under `if TYPE_CHECKING`."""

    class Prune(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None: ...

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Prune().visit(tree)


def violations(src: Path) -> list[str]:
    """Every import under `src/blindsight` that does not go strictly downward, in words."""
    found: list[str] = []
    for path in sorted((src / "blindsight").rglob("*.py")):
        module = path.relative_to(src).with_suffix("").parts
        tree, package, unit = ast.parse(path.read_text(encoding="utf-8")), module[:-1], module[1]
        if unit == "__init__":
            found += [
                f"{path}:{line} is eager: {name}"
                for line, name in imported(eager(tree), package)
                if name != "blindsight.version.__version__"
                and name.partition(".")[0] not in {"lazy_loader", *sys.stdlib_module_names}
            ]
        elif unit not in HEIGHT:
            found.append(f"{path} has no layer: {unit}")
        else:
            for line, name in imported(tree, package):
                root, target, *_ = *name.split("."), ""
                if root != "blindsight" or target == unit:
                    continue
                if target not in HEIGHT or HEIGHT[target] >= HEIGHT[unit]:
                    found.append(f"{path}:{line} {unit} may not import {name}")
    return found


def test_every_import_goes_strictly_downward():
    assert violations(SRC) == []


ALLOWED = {
    "trees.py": "import jax\nfrom .errors import PrivacyError",
    "accounting/__init__.py": "from . import events\nfrom .events import Event",
    "accounting/events.py": "import blindsight.keys\nfrom blindsight import errors, version\nfrom .. import trees",
    "mechanisms/votes.py": "from ..accounting.events import Event\nfrom .gaussian import gaussian",
    "cli.py": "def plan():\n    from .accounting import planning",
    "__main__.py": "from .cli import main",
    "__init__.py": "import sys\nif TYPE_CHECKING:\n    from . import cli\ndef later():\n    from . import cli",
}
FORBIDDEN = {
    "sideways": ("accounting/events.py", "from blindsight.data import population"),
    "upward": ("errors.py", "import blindsight.trees"),
    "upward, relative": ("accounting/events.py", "from ..mechanisms import gaussian"),
    "upward, relative and bare": ("accounting/events.py", "from .. import participation"),
    "upward, in a function": ("keys.py", "def f():\n    from .cli import main"),
    "upward, for types only": ("trees.py", "if TYPE_CHECKING:\n    from . import training"),
    "second name of several": ("runs.py", "from . import errors, cli"),
    "the package itself": ("selection.py", "import blindsight"),
    "a name of the package": ("selection.py", "from blindsight import Privacy"),
    "a unit without a layer": ("utils.py", ""),
    "an eager package": ("__init__.py", "from .accounting import Guarantee"),
    "an eager package, third party": ("__init__.py", "try:\n    import numpy\nexcept ImportError:\n    pass"),
}


def write(src: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = src / "blindsight" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return src


def test_what_the_layers_allow_passes(tmp_path: Path):
    assert violations(write(tmp_path, ALLOWED)) == []


@pytest.mark.parametrize("case", FORBIDDEN)
def test_what_the_layers_forbid_is_found(case: str, tmp_path: Path):
    name, text = FORBIDDEN[case]
    assert len(violations(write(tmp_path, ALLOWED | {name: text}))) == 1


# --- rings of modules


def dependencies(src: Path) -> dict[str, set[str]]:
    """Every module under `src/blindsight` with the modules it imports: anywhere in it, in stubs, and for types only.

    A name that a package re-exports counts as an import of the module that defines it, where a stub says so.
    """
    found: dict[str, set[str]] = {}
    for path in sorted([*(src / "blindsight").rglob("*.py"), *(src / "blindsight").rglob("*.pyi")]):
        module = path.relative_to(src).with_suffix("").parts
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = ".".join(module).removesuffix(".__init__")
        found.setdefault(name, set()).update(name for _, name in imported(tree, module[:-1]))
    exports = {
        f"{package}.{target.rpartition('.')[2]}": target
        for package in found
        if (src / Path(*package.split(".")) / "__init__.pyi").exists()
        for target in found[package]
    }

    def module_of(name: str) -> str:
        name = exports.get(name, name)
        while name and name not in found:
            name = name.rpartition(".")[0]
        return name

    return {module: {module_of(name) for name in names} - {module, ""} for module, names in found.items()}


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other (strongly connected components of two or more)."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, pending = set[str](), [start]
        while pending:
            new = graph[pending.pop()] - seen
            seen |= new
            pending += new
        reached[start] = seen
    groups = {tuple(sorted(other for other in reached[one] if one in reached[other])) for one in graph}
    return sorted(list(group) for group in groups if group)


def test_no_modules_import_each_other_in_a_ring():
    assert rings(dependencies(SRC)) == []


IN_A_RING = {
    "two modules": {"trees.py": "from . import keys", "keys.py": "from . import trees"},
    "in a function": {"trees.py": "from . import keys", "keys.py": "def f():\n    from blindsight.trees import clip"},
    "for types only": {"trees.py": "if TYPE_CHECKING:\n    import blindsight.keys", "keys.py": "from . import trees"},
    "a module and its package": {"data/__init__.py": "from .faults import apply", "data/faults.py": "from . import x"},
    "through a stub": {
        "data/__init__.pyi": "from .faults import apply as apply",
        "data/tables.py": "from blindsight.data import apply",
        "data/faults.py": "from . import tables",
    },
    "three modules": {"a.py": "from . import b", "b.py": "from .c import x", "c.py": "import blindsight.a"},
}


@pytest.mark.parametrize("case", IN_A_RING)
def test_a_ring_is_found(case: str, tmp_path: Path):
    files = {"__init__.py": "", "data/__init__.py": "", "other.py": "from . import trees"} | IN_A_RING[case]
    assert len(rings(dependencies(write(tmp_path, files)))) == 1


def test_a_name_of_a_stub_is_no_import_of_the_whole_package(tmp_path: Path):
    stub = "from .tables import csv as csv\nfrom .faults import apply as apply"
    files = {"data/__init__.pyi": stub, "data/tables.py": "from blindsight.data import apply", "data/faults.py": ""}
    assert rings(dependencies(write(tmp_path, files))) == []
