"""Drawings: everything is where its value says, and no name becomes part of them."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from blindsight.pages import svg

HOSTILE = '"><script>alert(1)</script>'


def test_an_interval_is_drawn_where_it_is():
    source = svg.interval(0.5, 0.25, 1.0, limit=1.0, detected=True)
    assert re.search(r'class="dot" cx="117.0"', source)
    assert 'x1="98.5" y1="10" x2="154.0"' in source
    assert svg.interval(float("nan"), 0.0, 1.0, limit=1.0, detected=True) == ""


def test_a_bar_never_leaves_its_track():
    assert 'width="0.0"' in svg.bar(-0.2, kind="other")
    assert 'width="200.0"' in svg.bar(3.0, kind="other")
    assert 'x1="140.0" y1="8" x2="180.0"' in svg.bar(0.8, kind="other", low=0.7, high=0.9)


def test_a_histogram_steps_from_bin_to_bin_in_its_arm_s_colour():
    source = svg.line_chart([("b", 1, np.array([0.25, 0.75]))], label="x", ends=("low", "high"))
    (points,) = re.findall(r'class="area arm-1" points="([^"]+)"', source)
    top = 150 - 142 / 3
    assert [tuple(map(float, point.split(","))) for point in points.split()] == [
        (0, 150),
        (0, pytest.approx(top, abs=0.1)),
        (210, pytest.approx(top, abs=0.1)),
        (210, 8),
        (420, 8),
        (420, 150),
    ]


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
        svg.line_chart([(HOSTILE, 0, np.ones(2))], label=HOSTILE, ends=(HOSTILE, HOSTILE)),
        svg.grouped_bars({HOSTILE: [(0.1, 0.0, 0.2)]}, [HOSTILE], label=HOSTILE, dots={HOSTILE: [0.1]}),
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
