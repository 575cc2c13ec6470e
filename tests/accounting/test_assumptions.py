"""docs/privacy.md lists every assumption that a guarantee can list, in its own words, and no other."""

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

from blindsight.accounting import assumptions

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "blindsight"
HOME = SOURCE / "accounting" / "assumptions.py"
FILLED = {
    "unit": "client",
    "split": "NAME",
    "rule": "RULE",
    "population": "POPULATION",
    "model": "MODEL",
    "weights": "N",
    "sites": "N",
    "fewest": "N",
    "colluding": "C",
}


def sentences() -> list[str]:
    """All assumptions of the code, filled in as the page does."""
    return [getattr(assumptions, name).format(**FILLED) for name in assumptions.__all__]


def rows() -> list[str]:
    """The first column of the page's table."""
    page = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    table = page.split("| assumption |")[1].split("\n\n")[0].splitlines()[2:]
    return [line.split(" | ")[0].removeprefix("| ") for line in table]


def test_every_assumption_has_one_row_and_every_row_is_an_assumption():
    assert len(set(rows())) == len(rows()) == len(sentences())
    for row in rows():
        assert [one for one in sentences() if one.startswith(row)], f"no guarantee lists {row!r}"
    for sentence in sentences():
        assert len([row for row in rows() if sentence.startswith(row)]) == 1, f"docs/privacy.md lacks {sentence!r}"


def test_all_that_is_there_is_exported():
    own = [name for name in vars(assumptions) if name.isupper()]
    assert sorted(own) == sorted(assumptions.__all__)
    fields = {field for name in own for _, field, _, _ in string.Formatter().parse(getattr(assumptions, name)) if field}
    assert fields == set(FILLED)


def assumed(tree: ast.AST) -> Iterator[ast.AST]:
    """Whatever ends up among assumptions: given by that keyword, or kept or computed under such a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "assumptions":
            yield node.value
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value and re.search("assum", " ".join(map(ast.unparse, targets)), re.IGNORECASE):
                yield node.value
        elif isinstance(node, ast.Call) and re.match(r"\w*assum\w*\.(append|extend)$", ast.unparse(node.func)):
            yield from node.args
        elif isinstance(node, ast.FunctionDef) and "assum" in node.name:
            yield from node.body[1:]  # less its docstring


def worded(tree: ast.Module) -> Iterator[str]:
    """The sentences among them that a module words itself: a name of a field or a sampler has no space in it."""
    kept = {ast.unparse(one.targets[0]): one.value for one in tree.body if isinstance(one, ast.Assign)}
    parts = [*assumed(tree)]
    parts += [kept[one.id] for part in parts for one in ast.walk(part) if isinstance(one, ast.Name) and one.id in kept]
    for part in parts:
        refused = {one for wrong in ast.walk(part) if isinstance(wrong, ast.Raise) for one in ast.walk(wrong)}
        for one in set(ast.walk(part)) - refused:
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and " " in one.value.strip():
                yield one.value


def test_no_assumption_is_worded_anywhere_else():
    found = list[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        if path != HOME:
            said = worded(ast.parse(path.read_text(encoding="utf-8")))
            found += [f"{path.relative_to(SOURCE)}: {words}" for words in said]
    assert found == []
