"""Experiments and benchmarks call the package as it is now: what they import exists, and takes what they pass.

They are too dear to run here, so that a name that moved or an argument that left would break them unseen.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("experiments", "benchmarks")
SCRIPTS = sorted(str(path.relative_to(ROOT)) for part in PARTS for path in ROOT.glob(f"{part}/*.py"))
ABSENT = object()


def resolved(module: str, name: str = "") -> Any:
    """What `from module import name`, or `import module`, binds; `ABSENT` if there is no such thing."""
    try:
        found = importlib.import_module(module)
        if not name:
            return found
        return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("blindsight"):
            pytest.skip(f"{error.name} is not installed")
        return ABSENT


def imports(tree: ast.AST) -> Iterator[tuple[int, str, str, Any]]:
    """Line, local name, full name and value of everything that a script imports from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "blindsight":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, alias.asname or alias.name, full, resolved(str(node.module), alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "blindsight":
                    yield node.lineno, alias.asname or alias.name, alias.name, resolved(alias.name)


def value_of(node: ast.expr, names: dict[str, Any]) -> Any:
    """What an expression such as `bs.data.embedded` stands for; None if it is not of the package."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, names)
        if isinstance(owner, ModuleType) and owner.__name__.partition(".")[0] == "blindsight":
            return getattr(owner, node.attr, None) or resolved(owner.__name__, node.attr)
        if inspect.isclass(owner):
            return getattr(owner, node.attr, None)
    return None


def misfit(call: ast.Call, value: Any) -> str:
    """Why `value` cannot be called like this; empty if it can, or if that depends on what is unpacked."""
    if not callable(value):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    unpacks = any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)
    given = [one for one in call.args if not isinstance(one, ast.Starred)]
    named = {str(one.arg): one for one in call.keywords if one.arg is not None}
    try:
        (signature.bind_partial if unpacks else signature.bind)(*given, **named)
    except TypeError as error:
        return str(error)
    return ""


def faults(source: str) -> list[str]:
    """What a script says of the package that is not so."""
    tree = ast.parse(source)
    listed, names = list[str](), dict[str, Any]()
    for line, name, full, value in imports(tree):
        names[name] = value
        if value is ABSENT:
            listed.append(f"{line}: there is no {full}")
    bound = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    bound |= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    names = {name: value for name, value in names.items() if name not in bound and value is not ABSENT}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and value_of(node, names) is ABSENT:
            listed.append(f"{node.lineno}: there is no {ast.unparse(node)}")
        if isinstance(node, ast.Call) and (why := misfit(node, value_of(node.func, names))):
            listed.append(f"{node.lineno}: {ast.unparse(node.func)}: {why}")
    return listed


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_uses_the_package_as_it_is(script):
    assert faults((ROOT / script).read_text(encoding="utf-8")) == []


BROKEN = {
    "a name that moved": "from blindsight.training import Terms",
    "a module that moved": "from blindsight.diagnosis import name",
    "an attribute that left": "import blindsight as bs\nbs.training.resume()",
    "an argument that left": "import blindsight as bs\nbs.data.embedded('forum', users=3)",
    "an argument that came": "from blindsight.data.text import Vocabulary\nVocabulary.most_frequent()",
    "too many arguments": "from blindsight import trees\ntrees.sub(1, 2, 3)",
}
SOUND = """
    import blindsight as bs
    from blindsight import trees
    rows = {"clients": 3}
    bs.data.embedded("forum", **rows)
    trees.sub(*[1, 2])

    def later(bs):
        return bs.anything(1)
"""


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_script_is_noticed(case):
    assert len(faults(BROKEN[case])) == 1


def test_a_sound_script_passes():
    assert faults(textwrap.dedent(SOUND)) == []
