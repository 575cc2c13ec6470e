"""Imports go strictly downward, and the package itself imports nothing until it is asked."""

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
    studio  service  inspect
    inspection  audit
    samples
    training
    algorithms  evaluation  fidelity  students
    backends
    privacy
    mechanisms  selection  participation
    accounting  checkpoints  config  data  models  runs
    codings
    kernels
    trees  keys  pages
    errors  wording
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
                if name.partition(".")[0] not in sys.stdlib_module_names
            ]
        elif unit not in HEIGHT:
            found.append(f"{path} has no layer: {unit}")
        else:
            for line, name in imported(tree, package):
                root, target, *_ = *name.split("."), ""
                if root != "blindsight" or target in (unit, "__version__"):
                    continue
                if target not in HEIGHT or HEIGHT[target] >= HEIGHT[unit]:
                    found.append(f"{path}:{line} {unit} may not import {name}")
    return found


def test_every_import_goes_strictly_downward():
    assert violations(SRC) == []


ALLOWED = {
    "trees.py": "import jax\nfrom .errors import PrivacyError",
    "accounting/__init__.py": "from . import events\nfrom .events import Event",
    "accounting/events.py": "import blindsight.keys\nfrom blindsight import errors, __version__\nfrom .. import trees",
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
