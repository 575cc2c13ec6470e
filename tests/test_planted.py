"""The list of planted privacy bugs is alive: every text is where it was, every law exists. `make mutants` runs them."""

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LOADER = ROOT / ".ci" / "planted.py"
if not LOADER.exists():
    pytest.skip("the list is not part of this copy", allow_module_level=True)
_spec = importlib.util.spec_from_file_location("planted", LOADER)
assert _spec is not None
assert _spec.loader is not None
planted: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = planted  # dataclasses look their module up
_spec.loader.exec_module(planted)
PLANTS = planted.listed()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_bug_can_be_planted_and_is_code(plant):
    source = (ROOT / plant.file).read_text(encoding="utf-8")
    with_bug = plant.planted(source)
    assert ast.dump(ast.parse(with_bug)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_its_law_exists(plant):
    file, _, name = plant.law.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name.partition("[")[0] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_names_are_different():
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)


@pytest.mark.parametrize("old", ["nowhere", "e"])
def test_a_text_that_is_gone_or_not_the_only_one_is_an_error_that_says_so(old):
    lost = planted.Plant("lost", "src/x.py", "tests/x.py::test_x", ((old, "new"),))
    with pytest.raises(planted.Uprooted, match=r"'lost' replaces a text that occurs \d times in src/x.py, not once"):
        lost.planted("some text, else")
