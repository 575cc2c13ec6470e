"""The report of an audit: its verdicts, its three faces, and nothing in it that could run or be mistaken."""

import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight.accounting.guarantee import Guarantee, round_down, round_up
from blindsight.audit.one_run import LowerBound
from blindsight.audit.report import AuditReport, CanaryFate
from blindsight.errors import BlindsightError


def promise(epsilon: float = 2.0) -> Guarantee:
    about: Any = {"accountant": "PLD", "participation": "full: all 20", "releases": 5}
    return Guarantee(epsilon=epsilon, delta=1e-5, **about)


def bound(epsilon: float) -> LowerBound:
    return LowerBound(epsilon, 1e-5, 0.975, 200, 104, 100, 90, 4.2)


def report(epsilon: float = 2.0, **changes: Any) -> AuditReport:
    fates = [
        CanaryFate(f"one two <b>{clients}</b>", clients, copies, 10.0 * clients * copies, rank, 3.0, rank == 1)
        for clients, copies, rank in [(16, 1, 7), (1, 14, 900), (1, 1, 40), (1, 1, 5), (16, 1, 1)]
    ]
    settings: dict[str, Any] = {
        "run": "try <me>",
        "model": "word_lm on forum",
        "guarantee": promise(epsilon),
        "rounds": 10,
        "canaries": tuple(fates),
        "references": 1000,
        "width": 5,
        "prefix": 2,
        "rate": 0.5,
        "bounds": {"clients": bound(0.4), "directions": bound(1.25)},
    }
    return AuditReport(**(settings | changes))


def test_a_bound_above_the_claim_breaks_it_and_one_below_proves_nothing():
    assert report(1.2).outcome == "broken"
    assert "implementation or the claim is broken: epsilon is at least 1.25 " in report(1.2).verdict
    fine = report(1.3)
    assert fine.outcome == "consistent"
    assert "does not prove it either" in fine.verdict
    assert report(math.inf).outcome == "no claim"
    assert "not put to the test" in report(bounds={}).verdict
    assert "no better than chance" in report(bounds={"clients": bound(0.0)}).verdict


def test_rounding_never_accuses():
    """A claim of 1.25000 and a bound of 1.2499996 agree, and the page does not print them as equal the wrong way."""
    assert report(1.25).outcome == "consistent"


def test_the_rows_are_those_of_table_4():
    rows = report().configurations
    assert [(row.clients, row.copies, row.ranks, row.extracted) for row in rows] == [
        (1, 1, (5, 40), 0),
        (1, 14, (900,), 0),
        (16, 1, (1, 7), 1),
    ]
    assert rows[1].times_seen == 140


def test_the_json_has_everything_and_no_infinity(tmp_path: Path):
    written = report(math.inf).save_json(tmp_path / "deep" / "audit.json")
    found = json.loads(written.read_text())
    assert found["outcome"] == "no claim"
    assert found["bounds"]["directions"]["correct"] == 90
    assert found["configurations"][2]["ranks"] == [1, 7]
    assert found["guarantee"]["epsilon"] == "inf"
    assert set(found) >= {field.name for field in dataclasses.fields(AuditReport)}


def test_the_terminal_shows_the_verdict_and_both_tables():
    shown = str(report(1.2))
    assert "broken" in shown
    assert re.search(r"directions +104 / 200 +90 / 100 +1.25", shown)
    assert re.search(r"16 +1 +160 +1, 7 +1 / 2", shown)
    assert repr(report(1.2)).startswith("<AuditReport 'try <me>'")


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("changes", [{}, {"canaries": ()}, {"bounds": {}}, {"notes": ("a <note>",)}])
def test_the_page_runs_nothing_and_asks_for_nothing(tmp_path: Path, changes: dict[str, Any]):
    page = report(**changes).save(tmp_path / "audit.html").read_text()
    parser = _Parser()
    parser.feed(page)
    assert not {"script", "b>", "iframe", "form"} & set(parser.tags)
    assert not [name for name, _ in parser.attributes if name == "style" or name.startswith("on")]
    assert not re.search(r"(href|src)=\"(?!data:|#)", page)
    (policy,) = (value for _, value in parser.attributes if value and "default-src" in value)
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "try <me>" in parser.text
    assert not re.search(r"\{\{|\{%", page)
    if "canaries" not in changes:
        assert parser.tags.count("circle") == 5
        assert "one two <b>16</b>" in parser.text


def test_ranks_are_drawn_on_a_log_axis():
    page = report().to_html()
    heights = [float(one) for one in re.findall(r'<circle class="arm-\d" cx="[\d.]+" cy="([\d.]+)"', page)]
    expected = 14 + 250 * np.log([5, 40, 900, 1, 7]) / np.log(1001)
    assert heights == pytest.approx(expected, abs=0.1)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BlindsightError, match="choose another file"):
        report().save(tmp_path / "file" / "audit.html")


def test_the_chart_says_what_the_text_says(tmp_path: Path):
    """It said 2.32 where the text said 2.311."""
    page = report().to_html()
    drawing = page[page.index('class="plot"') : page.index("</svg>", page.index('class="plot"'))]
    bound = next(iter(report().bounds.values()))
    assert f">{round_down(bound.epsilon)}<" in drawing
    assert f"claimed {round_up(report().guarantee.epsilon)}" in drawing
    assert page.count(round_up(report().guarantee.epsilon)) >= 3
