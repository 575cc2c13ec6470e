"""Pages: nothing that is passed to a template becomes part of the page, and no page may load or run anything else."""

import base64
import hashlib
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from blindsight import pages, wording
from blindsight.pages import filters
from blindsight.pages.bars import Bar, BarTable, Row, one_scale, share_bar

TEMPLATES = Path(str(files("blindsight.pages"))) / "templates"
IN_NOTEBOOKS = {"card.html", "embed.html"}  # a notebook shows these: it has neither our policy nor our stylesheet


def test_values_are_escaped_unless_they_are_markup():
    page = pages.render("sections/notes.html", notes=["<b>", Markup("<i>x</i>")])
    assert "<li>&lt;b&gt;</li>" in page
    assert type(page) is str  # so that what is added to it is not escaped
    part = pages.part("sections/notes.html", notes=["<b>"])
    assert "{}".format(Markup("{}").format(part)) == part


def test_a_value_that_a_template_lacks_is_refused():
    with pytest.raises(UndefinedError, match="steps"):
        pages.render("sections/next_steps.html")


def test_no_template_switches_escaping_off():
    for path in TEMPLATES.rglob("*.html"):
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", path.read_text(encoding="utf-8")), path.name


def test_templates_load_nothing_and_style_nothing_inline():
    for path in TEMPLATES.rglob("*.html"):
        own = (
            r"|/|#|\{\{ address" if path.parent.name == "studio" else r"|\{\{ back \}\}" if path.stem == "label" else ""
        )
        text = path.read_text(encoding="utf-8")
        assert not re.search(rf"(src|href|action)=\"(?!data:|#|\{{\{{ png\|data_uri{own})", text), path.name
        assert not re.search(r"=\"//", text), path.name
        assert not re.search(r"\son\w+=", text), path.name
        if path.name not in IN_NOTEBOOKS:
            assert not re.search(r"\sstyle=", text), path.name
            assert not re.search(rf"\b({'|'.join(IN_NOTEBOOKS)})\b", text), f"{path.name} would be styled inline"


def test_the_policy_admits_style_and_script_by_their_hashes():
    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    rules = dict(rule.split(" ", 1) for rule in pages.policy("a {}", "b()").split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["style-src"] == f"'sha256-{digest('a {}')}'"
    assert rules["script-src"] == f"'sha256-{digest('b()')}'"
    assert "connect-src" not in rules
    assert "script-src" not in pages.policy("a {}")
    assert pages.policy("a {}", "b()", connects=True).count("connect-src 'self'") == 1


def test_pages_know_no_report_and_need_no_jax():
    code = (
        "import sys; from blindsight.pages import bars, filters, svg; "
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('blindsight.')}; "
        "assert rooms == {'pages', 'version', 'wording'}, rooms; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.81, "81 %"),
        (0.0995, "10 %"),
        (0.0994, "9.9 %"),
        (0.021, "2.1 %"),
        (0.0, "0 %"),
        (-0.006, "−0.6 %"),
        (1.0, "100 %"),
        (0.0004, "0.0 %"),
        (-0.0004, "0.0 %"),
    ],
)
def test_shares_in_words(share, text):
    assert wording.percent(share) == text


def test_there_is_one_way_to_write_a_share():
    """A second formatter is how the same share once had nine forms."""
    sources = {path: path.read_text(encoding="utf-8") for path in Path(str(files("blindsight"))).rglob("*.py")}
    assert [path.name for path, text in sources.items() if re.search(r"def _?percent\b", text)] == ["wording.py"]


def test_numbers_in_words():
    assert wording.number(58147.2) == "58,147"
    assert wording.number(-0.25) == "−0.25"
    assert wording.signed(-0.5) == "−0.5"
    assert wording.span(0.74, 0.88) == "74–88"
    assert wording.span(0.01, 0.052) == "1.0–5.2"
    assert wording.span(0.498, 0.502) == "49.8–50.2"
    assert filters.prose("run `a<b` now") == "run <code>a&lt;b</code> now"
    assert filters.unbroken("<5 %") == "&lt;5&nbsp;%"
    assert filters.p_value(1e-9) == "p < 0.0001"


def test_a_table_of_bars_has_one_scale():
    rows = [Row("a", [share_bar(0.2, 0, 0.1, 0.4)]), Row("b", [Bar(0.3, "other", "")])]
    assert BarTable(rows).largest == 0.4
    assert BarTable(rows).ticks == ["0 %", "20 %", "40 %"]
    assert BarTable([Row("a", [Bar(33.0, "other", "")])], unit="hours").ticks == ["0", "20", "40"]
    assert BarTable([Row("a", [Bar(3.0, "other", "")])], unit="degrees", start=-1.0).ticks == ["−1", "0.5", "2"]
    first, second = one_scale([BarTable(rows), BarTable([Row("c", [share_bar(0.9, 0)])])])
    assert first.ticks == second.ticks
    assert BarTable(rows, least=1.0).largest == 1.0
    assert BarTable([]).largest > 0
    assert share_bar(0.2, 7, 0.1, 0.4).note == "10–40"
    assert share_bar(0.2, None).kind == "other"
