"""Rules of the house that no linter knows."""

import ast
import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Written in pieces, so that this file keeps the rules too.
HOSTS = ["py" + "pi.org", "files.python" + "hosted", "registry.npm" + "js"]
FOREIGN = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/|" + "|".join(re.escape(host) for host in HOSTS))
LONGEST = 400  # lines of a module
VAGUE = re.compile(r"(^|_)(utils?|common|managers?|handlers?|helpers?|base)(_|$)")


@functools.cache
def text_files() -> dict[str, str]:
    """Every text file that is part of the project or would be with the next commit."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    return {name: data.decode(errors="replace") for name, data in contents.items() if b"\0" not in data}


@functools.cache
def modules() -> dict[str, ast.Module]:
    paths = sorted((ROOT / "src").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_no_file_names_a_machine_or_a_registry():
    files = text_files()
    assert "pyproject.toml" in files
    found = [
        f"{name}:{number} {line.strip()[:80]}"
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_registry_would_be_noticed(host: str):
    assert FOREIGN.search(f"--index-url https://{host}/simple")


@pytest.mark.parametrize("folder", ["work", "root", "home", "Users"])
def test_a_machine_path_would_be_noticed(folder: str):
    assert FOREIGN.search(f"open('/{folder}/someone/data.csv')")
    assert not FOREIGN.search(f"https://example.com/{folder}/data.csv")
    assert not FOREIGN.search(f"../{folder}/data.csv")


def test_the_lock_has_a_hash_for_every_pin_and_no_address():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pins = re.split(r"\n(?=[a-z0-9])", lock.strip())
    assert [pin.split()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []


def test_src_checks_its_input_without_assert():
    found = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_modules_have_names_that_say_something():
    assert [name for name in modules() if any(VAGUE.search(part) for part in Path(name).with_suffix("").parts)] == []


def test_no_module_is_too_long_to_read():
    sources = {name: text for name, text in text_files().items() if re.match(r"src/.*\.pyi?$", name)}
    assert {name: text.count("\n") for name, text in sources.items() if text.count("\n") > LONGEST} == {}


def named_twice(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Public classes and type aliases whose name is used for another one elsewhere."""
    places = dict[str, list[str]]()
    for path, tree in trees.items():
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        assigned = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
        aliases = [one.id for one in assigned if isinstance(one, ast.Name) and re.fullmatch("[A-Z][a-z]\\w*", one.id)]
        for name in (*classes, *aliases):
            places.setdefault(name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1 and not name.startswith("_")}


def test_one_name_stands_for_one_thing():
    assert named_twice(modules()) == {}


def test_a_second_thing_of_the_same_name_would_be_noticed():
    trees = {"a.py": ast.parse("class Pair: ...\nclass _Own: ..."), "b.py": ast.parse("Pair = tuple\nclass _Own: ...")}
    assert named_twice(trees) == {"Pair": ["a.py", "b.py"]}


# In the accounting a bound is rounded up and what is left is rounded down, which the formatter does not do.
ROUNDED = ("src/blindsight/accounting/guarantee.py", "src/blindsight/accounting/statement.py")
PERCENT = re.compile(r"\{[^{}]*\b100 \*[^{}]*\} ?%|\{[^{}]*:\.?\d*%\}")


def test_shares_are_written_by_one_formatter():
    sources = {name: text for name, text in text_files().items() if name.startswith("src/") and name.endswith(".py")}
    found = [name for name, text in sources.items() if PERCENT.search(text)]
    assert sorted(found) == [name for name in ROUNDED if PERCENT.search(sources[name])]


@pytest.mark.parametrize("written", ["{100 * share:.0f} %", "{share:.0%}", "{share:%}", "{math.floor(100 * share)}%"])
def test_another_formatter_would_be_noticed(written: str):
    assert PERCENT.search(f'f"{written} of clients"')


# Constructions that read as translated, each found in this project once.
TRANSLATED = re.compile(
    r"\b(?:for|of|by|from|to) who (?:has|have|is|are|may|can|knows|reads|asks|wants|adds)\b|\bwhose it is\b"
    r"|\bat least so many\b|\b(?:it|all|everything) hangs on\b|\bin vain\b|\bwho knows of it\b"
)
PROSE = re.compile(r"(?:src|docs|clients|experiments|benchmarks)/.*\.(?:py|md|html|js|ts)|[A-Z]+\.md")


def test_prose_is_plain_english():
    texts = {name: " ".join(text.split()) for name, text in text_files().items() if PROSE.fullmatch(name)}
    assert len(texts) > 500
    found = {name: match[0] for name, text in texts.items() if (match := TRANSLATED.search(text))}
    assert found == {}


@pytest.mark.parametrize(
    "written",
    ["has to be named by who knows of it", "clients with at least so many examples", "for who has it in memory"],
)
def test_a_translated_sentence_would_be_noticed(written: str):
    assert TRANSLATED.search(written)


# --- signatures and lengths

MOST_PARAMETERS, MOST_LINES, DOCUMENTED_FROM = 12, 60, 6
OWN_PAGE = ("src/blindsight/cli/",)  # options have their help

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def is_public(function: Function) -> bool:
    return not function.name.startswith("_") or function.name == "__init__"


def parameters(function: Function) -> list[str]:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def crowded(tree: ast.Module) -> list[str]:
    """Public functions with more parameters than a reader can hold."""
    return [one.name for one in functions(tree) if is_public(one) and len(parameters(one)) > MOST_PARAMETERS]


def long_bodies(tree: ast.Module) -> list[str]:
    """Functions with too many lines, signature and docstring not counted."""

    def lines(function: Function) -> int:
        body = function.body[1:] if ast.get_docstring(function) is not None else function.body
        return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0

    return [one.name for one in functions(tree) if lines(one) > MOST_LINES]


def anything_goes(tree: ast.Module) -> list[str]:
    """Public functions that take keywords of any name and type; a private class may override a library's method."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name.startswith("_")]
    private = {id(method) for one in classes for method in one.body}
    public = [one for one in functions(tree) if is_public(one) and id(one) not in private]
    catching = [one for one in public if one.args.kwarg is not None]
    types = [(one.name, one.args.kwarg and one.args.kwarg.annotation) for one in catching]
    return [name for name, kind in types if kind is None or ast.unparse(kind) == "Any"]


def undocumented(tree: ast.Module) -> list[str]:
    """Parameters of exported functions with many of them that have no line under `Args:`."""
    lists = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "__all__"
        and isinstance(node.value, ast.List)
    ]
    exported = [one for one in tree.body if isinstance(one, Function) and lists and one.name in lists[0]]
    return [
        f"{one.name}({name})"
        for one in exported
        if len(parameters(one)) >= DOCUMENTED_FROM
        for name in parameters(one)
        if not re.search(rf"^ +{name}: \S", (ast.get_docstring(one) or "").partition("Args:\n")[2], re.MULTILINE)
    ]


@pytest.mark.parametrize("rule", [crowded, long_bodies, anything_goes, undocumented])
def test_src_keeps_the_rule(rule: Callable[[ast.Module], list[str]]):
    found = {name: rule(tree) for name, tree in modules().items()}
    if rule is undocumented:
        found = {name: broken for name, broken in found.items() if not name.startswith(OWN_PAGE)}
    assert {name: broken for name, broken in found.items() if broken} == {}


_MANY = ", ".join(f"p{number}" for number in range(13))
_SIX = "def f(a, b, c, d, e, g):\n    '''What it does.\n\n    Args:\n        "
BROKEN = {
    "crowded": (crowded, f"def f({_MANY}): ...", ["f"]),
    "crowded, a class": (crowded, f"class C:\n    def __init__(self, {_MANY}): ...", ["__init__"]),
    "not crowded": (crowded, f"def _f({_MANY}): ...\nclass C:\n    def f(self, {_MANY[4:]}): ...", []),
    "long": (long_bodies, "def _f():\n" + "    x = 1\n" * 61, ["_f"]),
    "not long": (long_bodies, "def f():\n    '''One.\n\n    Two.'''\n" + "    x = 1\n" * 60, []),
    "anything": (anything_goes, "def f(**options: Any): ...\ndef g(**options): ...", ["f", "g"]),
    "not anything": (anything_goes, "def _f(**options: Any): ...\ndef g(**counts: int): ...", []),
    "anything, a class": (anything_goes, "class C:\n    def f(self, **options: Any): ...", ["f"]),
    "not anything, a private class": (anything_goes, "class _C:\n    def f(self, **options: Any): ...", []),
    "undocumented": (undocumented, f"__all__ = ['f']\n{_SIX}a: A.\n        b: B.\n        c: C.'''", ["d", "e", "g"]),
    "documented": (
        undocumented,
        f"__all__ = ['f']\n{_SIX}" + "\n        ".join(f"{n}: Words." for n in "abcdeg") + "'''",
        [],
    ),
    "not exported": (undocumented, f"__all__ = []\n{_SIX}'''", []),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_would_be_noticed(case: str):
    rule, source, found = BROKEN[case]
    assert rule(ast.parse(source)) == [f"f({name})" if rule is undocumented else name for name in found]
