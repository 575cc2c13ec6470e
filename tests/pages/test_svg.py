"""Drawings: everything is where its value says, and no name becomes part of them."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

from blindsight.pages import svg

HOSTILE = '"><script>alert(1)</script>'


def test_an_interval_is_drawn_where_it_is():
    given: dict[str, Any] = {
        "axis": (-1.0, 1.0),
        "usual": 0.0,
        "ticks": ("−1", "0", "1"),
        "detected": True,
        "label": "an effect",
    }
    source = svg.interval(0.5, 0.25, 1.0, **given)
    assert re.search(r'class="dot" cx="127.0"', source)
    assert 'x1="108.5" y1="10" x2="164.0"' in source
    assert re.findall(r">([−\d]+)</text>", source) == ["−1", "1", "0"]
    assert svg.interval(float("nan"), 0.0, 1.0, **given) == ""


def test_numbers_of_an_axis_do_not_touch():
    given: dict[str, Any] = {"axis": (0.0, 1.0), "ticks": ("0 %", "5 %", "100 %"), "detected": False, "label": "votes"}
    assert ">5 %<" not in svg.interval(0.1, 0.0, 0.2, usual=0.05, **given)
    assert ">5 %<" in svg.interval(0.1, 0.0, 0.2, usual=0.5, **given)


def test_a_bar_never_leaves_its_track():
    assert 'width="0.0"' in svg.bar(-0.2, kind="other")
    assert 'width="200.0"' in svg.bar(3.0, kind="other")
    assert 'x1="140.0" y1="8" x2="180.0"' in svg.bar(0.8, kind="other", low=0.7, high=0.9)


def test_a_histogram_steps_from_bin_to_bin_in_its_arm_s_colour():
    source = svg.line_chart([("b", 1, np.array([0.25, 0.75]))], label="x", ends=("low", "high"), across="age")
    (points,) = re.findall(r'class="area arm-1" points="([^"]+)"', source)
    top = 150 * (1 - 0.25 / 0.8)  # the axis ends at 80 %
    assert [tuple(map(float, point.split(","))) for point in points.split()] == [
        (44, 150),
        (44, pytest.approx(top, abs=0.1)),
        (232, pytest.approx(top, abs=0.1)),
        (232, pytest.approx(150 * (1 - 0.75 / 0.8), abs=0.1)),
        (420, pytest.approx(150 * (1 - 0.75 / 0.8), abs=0.1)),
        (420, 150),
    ]


def test_every_plot_has_numbers_and_a_name_on_its_axes():
    rates = {"before": [(0.1, 0.05, 0.15)]}
    plots = {
        "age": svg.line_chart([("b", 1, np.array([0.2, 0.8]))], label="x", ends=("0", "90"), across="age"),
        "hours": svg.bands([("b", 1, [(0.1, 0.0, 0.2)] * 3)], label="x", ends=("0", "80"), across="hours"),
        "position": svg.grouped_bars(rates, ["1"], label="x", dots={}, across="position"),
        "rank": svg.dot_columns([("2 clients", "3", [1, 50])], most=100, label="x"),
        "epsilon": svg.bounds([("clients", 1.0, "1.000", 2.0)], claim=1.5, claimed="claimed 1.500", label="x"),
    }
    for name, source in plots.items():
        words = re.findall(r"<text [^>]*>([^<]*)</text>", source)
        assert name in words
        assert sum(bool(re.match(r"[\d,.]+( %)?$", one)) for one in words) >= 2, (name, words)


def test_charts_beside_one_another_have_one_scale():
    low, high = (
        svg.line_chart([("b", 1, np.array([s, s]))], label="x", ends="ab", across="x", top=0.5) for s in (0.1, 0.5)
    )
    assert re.findall(r">([\d.]+ %)<", low) == re.findall(r">([\d.]+ %)<", high) == ["0 %", "25 %", "50 %"]


def test_grouped_bars_reach_their_values():
    rates = {"before": [(0.1, 0.05, 0.15)], "after": [(0.4, 0.35, 0.45)]}
    source = svg.grouped_bars(rates, ["1"], label="rates", dots={"after": [0.5]})
    assert [float(y) for y in re.findall(r'<rect [^>]*? y="([\d.]+)"', source)] == [176.0, 44.0]  # of 220, to 50 %
    assert 'cy="0.0"' in source
    assert "before, 1: 10 % (5–15)" in source


def test_bounds_above_the_claim_stand_out():
    rows = [("clients", 0.4, "0.400", 4.2), ("directions", 2.5, "2.50", 4.2)]
    source = svg.bounds(rows, claim=2.0, claimed="claimed 2", label="bounds")
    assert re.findall(r'class="(fine|bad)"', source) == ["fine", "bad"]
    assert "claimed 2" not in svg.bounds(rows, claim=None, claimed="claimed 2", label="bounds")


@pytest.mark.parametrize(
    "drawn",
    [
        svg.bar(0.5, kind=HOSTILE),
        svg.line_chart([(HOSTILE, 0, np.ones(2))], label=HOSTILE, ends=(HOSTILE, HOSTILE), across=HOSTILE),
        svg.grouped_bars({HOSTILE: [(0.1, 0.0, 0.2)]}, [HOSTILE], label=HOSTILE, dots={HOSTILE: [0.1]}, across=HOSTILE),
        svg.dot_columns([(HOSTILE, HOSTILE, [1, 5])], most=10, label=HOSTILE),
        svg.bounds([(HOSTILE, 1.0, HOSTILE, 2.0)], claim=1.5, claimed=HOSTILE, label=HOSTILE),
    ],
    ids=["bar", "line chart", "grouped bars", "dot columns", "bounds"],
)
def test_no_name_becomes_part_of_a_drawing(drawn):
    root = ET.fromstring(drawn)
    known = {"svg", "line", "rect", "circle", "text", "title", "polygon"}
    assert {one.tag for one in root.iter()} <= known
    assert HOSTILE in "".join(root.itertext()) + "".join(value for one in root.iter() for value in one.attrib.values())
