"""The documentation as a site in `site/`: the pages of docs/, every public function, figures and benchmarks.

    python .ci/website.py        which is `make site`

Pages are copied; links to files beside docs/ become links to the repository. The build fails at a broken link or anchor
and at a page that would load anything from elsewhere.
"""

import importlib
import inspect
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK, OUT = ROOT / "site" / "source", ROOT / "site" / "html"
RESULTS = ROOT / "experiments" / "results"
REPOSITORY = "https://github.com/blindsight-ml/blindsight"
LINK = re.compile(r"(\]\()(\.\./)+(?!docs/)([^)#\s]+)")

PAGES: dict[str, list[str]] = {
    "Tutorials": ["tutorials/modeller", "tutorials/privacy-officer", "tutorials/site-operator", "tutorials/researcher"],
    "How-to": [
        *("guide", "data", "inspection", "asking", "rows", "unknowns", "bias", "labelling", "training", "language"),
        *("audit", "synthesis", "bayesian-gans", "heterogeneous", "fleet", "site", "draw-and-discard", "service"),
        *("deployment", "browser", "studio"),
    ],
    "Explanations": ["epsilon", "privacy", "architecture", "tables", "mutants"],
    "Evidence": ["gallery", "peers"],
}
PACKAGES = (
    *("", "accounting", "asking", "audit", "backends", "config", "data", "data.text", "data.faults", "errors"),
    *("evaluation", "fidelity", "fleet", "inspect", "inspection", "jobs", "keys", "mechanisms", "models"),
    *("participation", "privacy", "runs", "selection", "service", "students", "studio", "synthesizing", "training"),
    "trees",
    *("algorithms", "algorithms.draw_and_discard", "algorithms.set_union", "algorithms.synthesis", "models.generation"),
)


def main() -> None:
    """Write the sources, build them strictly, and look at what came out."""
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    shutil.copytree(ROOT / "docs", WORK)
    for page in WORK.rglob("*.md"):
        page.write_text(_relinked(page.read_text(encoding="utf-8")), encoding="utf-8")
    _fill(WORK / "gallery.md", "figures", _figures())
    _fill(WORK / "gallery.md", "tables", _tables())
    _fill(WORK / "peers.md", "benchmarks", _benchmarks())
    names = [_reference(package) for package in PACKAGES]
    settings = ROOT / "site" / "mkdocs.yml"  # JSON is YAML
    settings.write_text(json.dumps(_settings(names), indent=1), encoding="utf-8")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(settings)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, check=False, env=environment, capture_output=True, text=True)
    if done.returncode != 0:  # with --quiet it would count no warnings
        sys.exit(done.stdout + done.stderr)
    if strange := list(_strangers()):
        sys.exit("pages load what lies elsewhere:\n" + "\n".join(strange))
    place = OUT.relative_to(ROOT)
    print(f"{sum(1 for _ in OUT.rglob('*.html'))} pages in {place}; to read: python -m http.server --directory {place}")


def _relinked(text: str) -> str:
    """Links to files that are not pages lead to the repository; experiments' figures are copied instead."""
    text = re.sub(r"\]\(\.\./experiments/results/([\w-]+\.png)\)", r"](figures/\1)", text)
    return LINK.sub(rf"\1{REPOSITORY}/blob/main/\3", text)


def _fill(page: Path, marker: str, lines: Iterator[str]) -> None:
    """Put lines in place of what a page says where it is not on the site."""
    told = rf"<!-- {marker}:.*?<!-- end -->"
    text, count = re.subn(told, lambda _: "\n".join(lines), page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert count == 1, (page, marker)
    page.write_text(text, encoding="utf-8")


def _figures() -> Iterator[str]:
    """Every figure of an experiment with the first paragraph of the script that draws it."""
    (WORK / "figures").mkdir()
    for figure in sorted(RESULTS.glob("*.png")):
        shutil.copy(figure, WORK / "figures")
        told, command = _experiment(figure.stem)
        name = figure.stem.replace("_", " ")
        yield f"### {name}\n\n{told}\n\n![{name}](figures/{figure.name})\n\n```\n{command}\n```\n"


def _tables() -> Iterator[str]:
    """Every result of an experiment that has no figure: what it measured, its rows if it has some, and its file."""
    for file in sorted(RESULTS.glob("*.json")):
        if file.with_suffix(".png").exists():
            continue
        told, command = _experiment(file.stem)
        place = f"[{file.name}]({REPOSITORY}/blob/main/experiments/results/{file.name})"
        yield f"### {file.stem.replace('_', ' ')}\n\n{told}\n\nThe numbers are in {place}.\n"
        yield from _as_table(json.loads(file.read_text(encoding="utf-8")))
        yield f"```\n{command}\n```\n"


def _experiment(name: str) -> tuple[str, str]:
    """What the script of a result says first, and the command that made it, or how to run the script."""
    scripts = {path.stem: path for path in (ROOT / "experiments").glob("*.py")}
    file = RESULTS / f"{name}.json"
    ran = str(json.loads(file.read_text(encoding="utf-8")).get("command", "")) if file.exists() else ""
    named = re.search(r"(\w+)\.py", ran)
    script = named[1] if named and named[1] in scripts else max(sorted(scripts), key=lambda one: _common(one, name))
    told = (inspect.cleandoc(_docstring(scripts[script])) + "\n").split("\n\n")
    command = next((line.strip() for line in told[1].splitlines() if line.strip().startswith("python")), "")
    return " ".join(told[0].split()), ran or re.split(r"  +", command)[0]


def _as_table(result: dict[str, Any]) -> Iterator[str]:
    """The rows of a result, or its summary, if they are plain values and not too many to read."""
    summary, rows = result.get("summary"), result.get("rows")
    if isinstance(summary, dict):
        rows = [{"": name, **row} for name, row in summary.items()]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return
    columns = [name for row in rows for name, value in row.items() if not isinstance(value, dict | list)]
    names = list(dict.fromkeys(columns))
    if not rows or len(rows) > 40 or len(names) > 12:
        return
    yield f"| {' | '.join(names)} |\n|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(_cell(row.get(name, '')) for name in names)} |"
    yield ""


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _common(one: str, other: str) -> int:
    """How many letters two names begin with alike."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _docstring(path: Path) -> str:
    import ast

    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _benchmarks() -> Iterator[str]:
    """The best setting of every peer in every file of measurements, and how they compare with Blindsight."""
    for file in sorted((ROOT / "benchmarks" / "results").glob("simulation_*.json")):
        measured: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for task in dict.fromkeys(run["task"] for run in measured["runs"]):
            for private in (False, True):
                yield from _compared(file.name, measured["machine"], task, private, measured["runs"])


def _compared(file: str, machine: str, task: str, private: bool, runs: list[dict[str, Any]]) -> Iterator[str]:
    best: dict[str, dict[str, Any]] = {}
    for run in runs:
        is_meant = (run["task"], run["private"]) == (task, private)
        if is_meant and (run.get("clients_per_s") or 0) > best.get(run["peer"], {"clients_per_s": 0})["clients_per_s"]:
            best[run["peer"]] = run
    if len(best) < 2 or "blindsight" not in best:
        return
    name = {"cnn": "a convolutional network", "lm": "a language model"}.get(task, task)
    cohort = next(iter(best.values()))["cohort"]
    yield f"### {name[0].upper()}{name[1:]}{' with privacy' if private else ''}, cohort {cohort}\n"
    yield f"{machine} (`benchmarks/results/{file}`)\n"
    yield "| system | clients/s | Blindsight is | peak memory, MiB |\n|---|---:|---:|---:|"
    ours = best["blindsight"]["clients_per_s"]
    for run in sorted(best.values(), key=lambda one: -one["clients_per_s"]):
        ratio = "" if run["peer"] == "blindsight" else f"{ours / run['clients_per_s']:.2f} times as fast"
        yield f"| {run['version']} | {run['clients_per_s']:,.1f} | {ratio} | {run['peak_memory_mib']:,.0f} |"
    yield ""


def _reference(package: str) -> str:
    """Write the page of one package: each public name with its signature and docstring."""
    full = f"blindsight.{package}".rstrip(".")
    module = importlib.import_module(full)
    lines = [f"# {full}\n", _prose(inspect.getdoc(module) or "")]
    for name in sorted(module.__all__):
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            continue
        lines += [f"## {name}\n", *_described(name, thing)]
    place = WORK / "reference" / f"{full}.md"
    place.parent.mkdir(exist_ok=True)
    place.write_text("\n".join(lines), encoding="utf-8")
    return full


def _described(name: str, thing: Any) -> Iterator[str]:
    if not callable(thing):
        yield f"```python\n{name} = {_short(thing)}\n```\n"
        return
    kind = "class " if inspect.isclass(thing) else ""
    yield f"```python\n{kind}{name}{_signature(thing)}\n```\n"
    yield _prose(inspect.getdoc(thing) or "")
    if not inspect.isclass(thing):
        return
    for member, value in vars(thing).items():
        if member.startswith("_") or not (told := inspect.getdoc(value)):
            continue
        if isinstance(value, property):
            yield f"**`{member}`** {_prose(told)}"
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            yield f"**`{member}`**\n\n```python\n{member}{_signature(getattr(thing, member))}\n```\n\n{_prose(told)}"


def _signature(thing: Any) -> str:
    """The arguments, one a line where they are many."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    whole = _without_addresses(str(signature))
    if len(whole) <= 80 or not signature.parameters:
        return whole
    returned = whole.rpartition(") -> ")[2] if ") -> " in whole else ""
    lines, starred = list[str](), False
    for one in signature.parameters.values():
        starred = starred or one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not starred:
            lines, starred = [*lines, "*"], True
        lines.append(_without_addresses(str(one)))
    return "(\n" + "".join(f"    {line},\n" for line in lines) + ")" + (f" -> {returned}" if returned else "")


def _short(thing: Any) -> str:
    return text if len(text := _without_addresses(repr(thing))) < 200 else text[:200] + " ..."


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _prose(docstring: str) -> str:
    """A docstring as Markdown: arguments as a list, examples and tables as code."""
    blocks = list[str]()
    for block in re.split(r"\n\n+", docstring.replace("::\n", ":\n")):
        lines = block.splitlines()
        if lines and lines[0].rstrip() in ("Args:", "Returns:", "Raises:"):
            blocks += [f"**{lines[0].rstrip(':')}**", _listed(inspect.cleandoc("\n" + "\n".join(lines[1:])))]
        elif block.lstrip().startswith(">>>"):
            blocks.append(f"```pycon\n{inspect.cleandoc(block)}\n```")
        elif lines and all(line.startswith("    ") for line in lines):
            blocks.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            blocks.append(re.sub(r"\[([^\]]+)\]\(", r"\\[\1](", block))
    return "\n\n".join(blocks) + "\n"


def _listed(text: str) -> str:
    return re.sub(r"^(\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)


def _settings(reference: list[str]) -> dict[str, Any]:
    nav: list[dict[str, Any]] = [{"Home": "index.md"}]
    nav += [{title: [f"{page}.md" for page in pages]} for title, pages in PAGES.items()]
    decisions = [f"decisions/{path.name}" for path in sorted((WORK / "decisions").glob("*.md"))]
    nav.append({"Decisions": decisions[-1:] + decisions[:-1]})
    nav.insert(3, {"Reference": ["command-line.md", *({name: f"reference/{name}.md"} for name in reference)]})
    features = ["navigation.tabs", "navigation.top", "navigation.indexes", "search.suggest", "search.highlight"]
    palette = [
        {
            "media": f"(prefers-color-scheme: {name})",
            "scheme": scheme,
            "primary": "blue grey",
            "accent": "indigo",
            "toggle": {"icon": f"material/{icon}", "name": f"Switch to {other} colours"},
        }
        for name, other, scheme, icon in (
            ("light", "dark", "default", "weather-night"),
            ("dark", "light", "slate", "weather-sunny"),
        )
    ]
    return {
        "site_name": "Blindsight",
        "docs_dir": str(WORK),
        "site_dir": str(OUT),
        "use_directory_urls": False,  # so that links work in a folder too
        "theme": {"name": "material", "font": False, "features": features, "palette": palette, "language": "en"},
        "plugins": ["search"],  # in a folder too it would need a script from elsewhere
        "markdown_extensions": ["admonition", "tables", "pymdownx.superfences", "pymdownx.highlight", "toc"],
        "validation": dict.fromkeys(("absolute_links", "unrecognized_links", "anchors"), "warn")
        | {"omitted_files": "warn"},
        "nav": nav,
    }


def _strangers() -> Iterator[str]:
    """What pages would fetch from another machine: scripts, styles, fonts and images."""
    for page in OUT.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for found in re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//[^\s\">]+", text):
            yield f"{page.relative_to(OUT)}: {found}"
        for found in re.findall(r"<link[^>]+(?:stylesheet|preconnect|icon)[^>]+href=\"?(?:https?:)?//[^\s\">]+", text):
            yield f"{page.relative_to(OUT)}: {found}"
    for sheet in OUT.rglob("*.css"):
        yield from re.findall(r"url\([\"']?https?://[^)]+", sheet.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
