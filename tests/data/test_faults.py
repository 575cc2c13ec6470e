"""Faults hit whom they say, change what they say, and are undone exactly where that can be."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight import data
from blindsight.data import faults
from blindsight.data.faults import FAULTS, Fault
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population, as_text
from blindsight.errors import InvalidInput

IMAGE = [name for name, damage in FAULTS.items() if damage.kind == "image"]
UNDONE = [
    "invert",
    "rotate90:turns=3",
    "flip:axis=vertical",
    "shift:right=-3:down=2:wrap=yes",
    "byte_swap",
    "label_swap",
]
UNDONE_ELSEWHERE = [
    "channel_swap",
    "unit_change:0.5:factor=60",
    "time_shift:0.5:add=3600",
    "column_swap:0.5:a=age:b=hours",
    "html_entities:0.5",
    "comma_for_point:0.5",
    "invert:0.3:by=example",
    "column_swap:0.3:by=example",
]


def people(name: str) -> Population:
    """A population to which the fault can happen."""
    first = re.split("[:+]", name)[0]
    if first == "channel_swap":
        return coloured(data.embedded("handwriting", clients=40, examples=(3, 12)))
    kinds = {"image": "handwriting", "label": "handwriting", "text": "forum", "number": "forum", "row": "tabular"}
    return data.embedded(kinds[FAULTS[first].kind], clients=40, examples=(3, 12))


def coloured(grey: Population) -> Population:
    """The same images on coloured paper."""
    tint = np.array([1.0, 0.8, 0.5])

    def paint(_: np.ndarray, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return columns | {"image": np.rint(columns["image"][..., None] * tint).astype(np.uint8)}

    return grey.transform(paint, name=grey.name, recipe=("paint",))


SPARING = ("label_swap", "lost_category", "encoding_damage", "html_entities", "comma_for_point", "repeated_rows")
"""Faults that spare clients without such a class, sign or number, or with one row."""
WIDE = {"column_swap": 2, "repeated_rows": 8}
"""Fields that change, where it is not one."""


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_those_it_hits_and_nobody_else(name):
    healthy = people(name)
    sick = faults.apply(healthy, f"{name}:0.5", seed=3)
    hit = faults.affected(healthy, f"{name}:0.5", seed=3)
    assert isinstance(sick, GeneratedPopulation)
    assert not sick._columns
    assert 5 < hit.sum() < 35
    for client in range(healthy.size):
        before, after = healthy[client], sick[client]
        unchanged = [same(before[field], after[field]) for field in before]
        assert [len(column) for column in after.values()] == [len(column) for column in before.values()]
        assert [column.dtype for column in after.values()] == [column.dtype for column in before.values()]
        if not hit[client]:
            assert all(unchanged)
        elif name not in SPARING:
            assert unchanged.count(False) == WIDE.get(name, 1)
    changed = [not np.array_equal(healthy.columns[field], sick.columns[field]) for field in healthy.columns]
    assert changed.count(True) == WIDE.get(name, 1)
    assert sick.name == f"{healthy.name} with {name}:0.5"
    assert sick.classes == healthy.classes
    assert np.array_equal(sick.sizes, healthy.sizes)


@pytest.mark.parametrize("name", FAULTS)
def test_by_example_it_hits_a_fraction_of_everybodys(name):
    healthy = people(name)
    sick = faults.apply(healthy, f"{name}:0.4:by=example")
    hit = faults.affected_examples(healthy, f"{name}:0.4:by=example")
    touched = np.zeros(healthy.n_examples, bool)
    for field, column in healthy.columns.items():
        touched |= (column != sick.columns[field]).reshape(healthy.n_examples, -1).any(axis=1)
    assert not np.any(touched & ~hit)
    assert 0.3 < hit.mean() < 0.5
    assert touched[hit].mean() > 0.15
    assert faults.affected(healthy, f"{name}:0.4:by=example").sum() > 30


@pytest.mark.parametrize("by", ["client", "example"])
@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_fraction_is_the_one_asked_for_and_no_other(by, fraction):
    healthy = Population({}, sizes=np.ones(20_000, int), name="many")
    rate = faults.affected(healthy, f"invert:{fraction}:by={by}").mean()
    z = lambda claimed: abs(rate - claimed) / np.sqrt(claimed * (1 - claimed) / 20_000)  # noqa: E731
    assert z(fraction) < 4
    assert z(fraction * 2 / 3) > 4
    assert z(min(0.99, fraction * 3 / 2)) > 4


def test_who_is_hit_follows_from_seed_and_client_alone():
    few, many = (Population({}, sizes=np.full(n, 2), name="some") for n in (50, 5000))
    hit = faults.affected(many, "invert:0.3", seed=1)
    assert np.array_equal(faults.affected(few, "invert:0.3", seed=1), hit[:50])
    assert not np.array_equal(faults.affected(many, "invert:0.3", seed=2), hit)
    assert not np.array_equal(faults.affected(many, "blur:0.3", seed=1), hit)
    more = faults.affected(many, "invert:0.6", seed=1)
    assert np.all(more[hit])  # whoever is hit at a small fraction is hit at a large one
    assert not faults.affected(many, "invert:0").any()
    assert faults.affected(many, "invert").all()


@given(st.lists(st.integers(0, 39), min_size=1, max_size=5))
@settings(max_examples=20)
def test_draws_of_a_few_clients_show_what_all_show(clients):
    sick = faults.apply(people("invert"), "invert:0.5+shift:0.3:by=example")
    few, everyone = sick.examples(np.array(clients)), faults.apply(people("invert"), "invert:0.5+shift:0.3:by=example")
    rows = everyone.rows(np.array(clients))
    assert same(few["image"], everyone.columns["image"][rows])


@pytest.mark.parametrize("spelling", [*UNDONE, *UNDONE_ELSEWHERE, "+".join(UNDONE)])
def test_undo_restores_every_bit(spelling):
    healthy = people(spelling)
    restored = faults.undo(faults.apply(healthy, spelling, seed=5), spelling, seed=5)
    assert restored.name == healthy.name
    assert all(same(restored.columns[field], healthy.columns[field]) for field in healthy.columns)


@pytest.mark.parametrize("name", [n for n, damage in FAULTS.items() if damage.restore is None or n == "shift"])
def test_what_is_lost_cannot_be_undone(name):
    with pytest.raises(InvalidInput, match=f"{name} cannot be undone: .*(gone|lost)|became the same"):
        faults.undo(people(name), name)


def test_several_faults_happen_one_after_the_other():
    healthy = people("invert")
    at_once = faults.apply(healthy, "invert:0.5+flip:0.5")
    in_turn = faults.apply(faults.apply(healthy, "invert:0.5"), "flip:0.5")
    assert same(at_once.columns["image"], in_turn.columns["image"])
    one, two = faults.affected(healthy, "invert:0.5"), faults.affected(healthy, "flip:0.5")
    assert np.array_equal(faults.affected(healthy, "invert:0.5+flip:0.5"), one | two)
    twice = faults.apply(healthy, "rotate90+rotate90")
    assert same(twice.columns["image"], np.rot90(healthy.columns["image"], 2, axes=(1, 2)))


def test_a_fault_can_be_planted_in_an_embedded_population():
    sick = data.embedded("handwriting", clients=6, seed=9, fault="invert:0.5")
    by_hand = faults.apply(data.embedded("handwriting", clients=6, seed=9), "invert:0.5", seed=9)
    assert same(sick.columns["image"], by_hand.columns["image"])
    assert sick.name == "handwriting with invert:0.5"


# --- what each one does


def image(rows: list[list[int]], dtype: Any = np.uint8) -> np.ndarray:
    return np.array([rows], dtype=dtype)


CLOSED = {
    "invert": ([[0, 255], [5, 100]], [[255, 0], [250, 155]]),
    "rotate90": ([[1, 2], [3, 4]], [[2, 4], [1, 3]]),
    "rotate90:turns=2": ([[1, 2, 3]], [[3, 2, 1]]),
    "flip": ([[1, 2], [3, 4]], [[2, 1], [4, 3]]),
    "flip:axis=vertical": ([[1, 2], [3, 4]], [[3, 4], [1, 2]]),
    "shift:right=1": ([[1, 2, 3]], [[0, 1, 2]]),
    "shift:right=-1:down=1": ([[1, 2], [3, 4]], [[0, 0], [2, 0]]),
    "shift:right=1:wrap=yes": ([[1, 2, 3]], [[3, 1, 2]]),
    "crop:margin=0.25": (
        [[9, 9, 9, 9], [9, 1, 2, 9], [9, 3, 4, 9], [9, 9, 9, 9]],
        [[1, 1, 2, 2]] * 2 + [[3, 3, 4, 4]] * 2,
    ),
    "crop:margin=0.17": ([[9, 1, 2, 3, 4, 9]], [[1, 2, 2, 3, 4, 4]]),
    "blur:radius=1": ([[0, 0, 0, 0]] + [[0, 9, 0, 0]] + [[0, 0, 0, 0]] * 2, [[1, 1, 1, 0]] * 3 + [[0, 0, 0, 0]]),
    "gamma:exponent=2": ([[0, 51, 255]], [[0, 10, 255]]),
    "constant:value=0.2": ([[0, 9, 200]], [[51, 51, 51]]),
    "occlude": ([[1, 2], [3, 4], [5, 6], [7, 8]], [[0, 0], [0, 0], [5, 6], [7, 8]]),
    "occlude:side=right:share=0.25": ([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 0], [5, 6, 7, 0]]),
    "byte_swap": ([[1, 2, 3], [4, 5, 6], [7, 8, 9]], [[2, 1, 4], [3, 6, 5], [8, 7, 9]]),
    "zoom:factor=0.5": ([[1, 1, 2, 2]] * 2 + [[3, 3, 4, 4]] * 2, [[0] * 4, [0, 1, 2, 0], [0, 3, 4, 0], [0] * 4]),
    "zoom:factor=2": (
        [[9, 9, 9, 9], [9, 1, 2, 9], [9, 3, 4, 9], [9, 9, 9, 9]],
        [[1, 1, 2, 2]] * 2 + [[3, 3, 4, 4]] * 2,
    ),
    "block_noise:share=1": ([[1, 2], [3, 4]], [[255, 255], [255, 255]]),
}


@pytest.mark.parametrize("spelling", CLOSED)
def test_images(spelling):
    before, after = CLOSED[spelling]
    sick = faults.apply(Population({"image": image(before)}, sizes=[1], name="one"), spelling)
    assert sick.columns["image"].tolist() == [after]


@pytest.mark.parametrize("name", IMAGE)
def test_images_may_be_fractions_and_have_colours(name):
    grey = data.embedded("digits").columns["image"][:9]
    colour = np.repeat(grey[..., None], 3, axis=3) * np.array([1, 0.5, 0.25])
    for pixels in (grey, colour.astype(np.float32))[name == "channel_swap" :]:
        whole = Population({"image": pixels}, sizes=[9], name="nine")
        sick = faults.apply(whole, name).columns["image"]
        assert sick.shape == pixels.shape
        assert sick.dtype == np.float32
        assert not np.array_equal(sick, pixels)
        if name != "byte_swap":
            assert sick.min() >= 0
            assert sick.max() <= 1


TEXTS = {
    "token_join": ("Good day to you. How are you?\nok then", "Goodday to you. Howare you?\nokthen"),
    "token_join:glue=_": ("Good day to you.", "Good_day to you."),
    "token_join:where=all": ("Good day to you. How are", "Gooddaytoyou. Howare"),
    "case": ("Ab c", "AB C"),
    "case:to=lower": ("Ab C", "ab c"),
    "case:to=swapped": ("Ab C", "aB c"),
    "truncation:characters=3": ("Ab cd", "Ab "),
    "token_join:where=middle": ("We have a cat. I do not know.\nHe is it", "We have acat. I do notknow.\nHe is it"),
    "html_entities": ("a <b> & 'c'", "a &lt;b&gt; &amp; &#x27;c&#x27;"),
    "comma_for_point": ("3.14 of 1,000. 2, 3", "3,14 of 1.000. 2, 3"),
    "encoding_damage": ('don\'t say "ü"...', "donâ€™t say â€œÃ¼â€\ufffdâ€¦"),
}


@pytest.mark.parametrize("spelling", TEXTS)
def test_texts(spelling):
    before, after = TEXTS[spelling]
    sick = faults.apply(Population({"text": as_text([before, ""])}, sizes=[2], name="one"), spelling)
    assert sick.columns["text"].tolist() == [after, ""]


def table(**columns: Any) -> Population:
    arrays = {field: np.array(column) for field, column in columns.items()}
    return Population(
        arrays, sizes=[len(next(iter(arrays.values())))], name="table", classes={"label": ("a", "b", "c")}
    )


def test_labels_and_numbers():
    rows = table(label=[0, 1, 2], hours=np.array([5, 40, 7], np.int16), share=[0.5, 1.5, 2.0])
    assert faults.apply(rows, "label_swap").columns["label"].tolist() == [1, 0, 2]
    assert faults.apply(rows, "label_swap:a=c:b=a").columns["label"].tolist() == [2, 1, 0]
    assert faults.apply(rows, "unit_change:field=hours:factor=60").columns["hours"].tolist() == [300, 2400, 420]
    assert faults.apply(rows, "unit_change:field=share:factor=0.5").columns["share"].tolist() == [0.25, 0.75, 1.0]
    assert faults.apply(rows, "missing_fill:field=hours").columns["hours"].tolist() == [-1] * 3
    assert faults.apply(rows, "missing_fill:field=share:value=99").columns["share"].tolist() == [99.0] * 3
    assert faults.apply(rows, "lost_category:which=c:instead=b").columns["label"].tolist() == [0, 1, 1]
    assert faults.apply(rows, "time_shift:field=hours:add=20:wrap=24").columns["hours"].tolist() == [1, 12, 3]
    assert faults.apply(rows, "field_cut:field=hours").columns["hours"].tolist() == [5, 4, 7]
    assert faults.apply(rows, "decimal_comma:field=share").columns["share"].tolist() == [5.0, 15.0, 2.0]
    thousands = table(label=[0, 1], hours=np.array([12_345, 999], np.int32))
    assert faults.apply(thousands, "decimal_comma").columns["hours"].tolist() == [12, 999]


def test_whole_rows():
    arrays = {"a": np.array([1, 2, 3, 4]), "b": np.array([5, 6, 7, 8]), "c": np.array([0.5, 0.6, 0.7, 0.8])}
    rows = Population(arrays, sizes=[3, 1], name="rows")
    swapped = faults.apply(rows, "column_swap").columns
    assert (swapped["a"].tolist(), swapped["b"].tolist()) == ([5, 6, 7, 8], [1, 2, 3, 4])
    repeated = faults.apply(rows, "repeated_rows").columns  # never a row of another client
    assert (repeated["a"].tolist(), repeated["c"].tolist()) == ([1, 1, 3, 4], [0.5, 0.5, 0.7, 0.8])


def test_blocks_differ_between_images_and_not_between_runs():
    images = data.embedded("handwriting", clients=2, examples=(3, 4))
    lost = faults.apply(images, "block_noise").columns["image"] == 255
    assert np.array_equal(faults.apply(images, "block_noise").columns["image"] == 255, lost)
    assert 0.03 < lost.mean() < 0.4
    assert not np.array_equal(lost[0], lost[1])


REFUSED: dict[str, tuple[str, str]] = {
    "nearest": ("inverts:0.5", "did you mean 'invert'"),
    "no such": ("zebra", "there are invert, rotate90"),
    "fraction above 1": ("invert:1.5", "between 0 and 1"),
    "fraction nan": ("invert:nan", "between 0 and 1"),
    "fraction a word": ("invert:half", "not a number"),
    "two fractions": ("invert:0.5:0.6", "is written name:fraction"),
    "by": ("invert:by=week", "by=client or by=example"),
    "parameter": ("shift:rigth=3", "did you mean 'right'"),
    "no parameters": ("invert:strength=2", "there are by, field"),
    "whole number": ("shift:right=0.5", "a whole number, got '0.5'"),
    "number": ("gamma:exponent=big", "a number"),
    "infinite": ("gamma:exponent=inf", "a number"),
    "choice": ("flip:axis=diagonal", "horizontal or vertical"),
    "yes or no": ("shift:wrap=maybe", "yes or no"),
    "class": ("label_swap:a=z", "no class 'z'"),
    "does not fit": ("case", "text fields, and table has none; these apply: .*label_swap"),
    "which number": ("unit_change", "field=hours, field=share"),
    "wrong field": ("unit_change:field=label", "can affect hours or share"),
    "margin": ("crop:margin=0.5", "below 0.5"),
    "not square": ("rotate90", "turns=2"),
    "swap of two types": ("column_swap:a=hours:b=share", "two fields of the same type"),
    "rows have no field": ("repeated_rows:field=hours", "leave out field=hours"),
    "grey": ("channel_swap", "these apply"),
    "zoom": ("zoom:factor=0", "above 0"),
    "blocks": ("block_noise:share=2", "at most 1"),
    "digits": ("field_cut:field=hours:digits=0", "at least one digit"),
    "no room": ("unit_change:field=hours", "cannot hold its values"),
    "no room for missing": ("missing_fill:field=hours:value=1e9", "cannot hold its values"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_a_sentence(case):
    spelling, words = REFUSED[case]
    rows = table(
        label=[0, 1], hours=np.array([5, 400], np.int16), share=[0.5, 1.5], image=np.zeros((2, 2, 3), dtype=np.uint8)
    )
    with pytest.raises(InvalidInput, match=words):
        faults.apply(rows, spelling)


def test_what_does_not_fit_is_refused_before_anything_is_drawn():
    wide = GeneratedPopulation(
        lambda some: {"image": np.zeros((len(some), 2, 3), np.uint8), "age": np.arange(1, 1 + len(some))},
        sizes=np.ones(5, int),
        name="wide",
    )
    with pytest.raises(InvalidInput, match="turns=2"):
        faults.apply(wide, "rotate90")
    with pytest.raises(InvalidInput, match="integers were rounded"):
        faults.undo(wide, "unit_change:factor=0.3")
    with pytest.raises(InvalidInput, match="cannot hold its values"):
        faults.apply(wide, "unit_change:factor=1e300")


@given(
    name=st.sampled_from(sorted(FAULTS)),
    fraction=st.sampled_from([0.0, 0.125, 0.5, 1.0]),
    by=st.sampled_from(["client", "example"]),
    field=st.sampled_from([None, "image"]),
    chosen=st.data(),
)
def test_a_fault_is_spelled_as_it_is_read(name, fraction, by, field, chosen):
    known = FAULTS[name].parameters
    values: dict[str, Any] = {}
    for parameter in chosen.draw(st.sets(st.sampled_from(sorted(known)))) if known else set[str]():
        default = known[parameter]
        values[parameter] = default[-1] if isinstance(default, tuple) else "b" if default is None else default
    fault = Fault(name=name, fraction=fraction, by=by, field=field, parameters=values)
    assert faults.parse(str(fault)) == (fault,)
    assert faults.parse([fault, fault]) == faults.parse(f"{fault}+{fault}")
    assert faults.parse(fault) == (fault,)
    assert hash(fault) == hash(faults.parse(str(fault))[0])


def test_every_fault_says_what_it_does():
    assert len(FAULTS) == 28
    for name, damage in FAULTS.items():
        assert damage.description, name
        assert "\n" not in damage.description
        assert (damage.restore is None) == bool(damage.lost), name
        assert damage.kind in ("image", "text", "label", "number", "row")
    grey = [name for name in IMAGE if name != "channel_swap"]
    assert faults.fitting(people("invert")) == [*grey, "label_swap", "lost_category", "repeated_rows"]
    assert faults.fitting(people("channel_swap")) == [*IMAGE, "label_swap", "lost_category", "repeated_rows"]


def test_every_fault_and_parameter_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    for name, damage in FAULTS.items():
        row = re.search(rf"^\| `{name}` \| {damage.kind} \| {re.escape(damage.description)} \|.*$", page, re.MULTILINE)
        assert row, name
        assert all(f"`{parameter}" in row[0] for parameter in damage.parameters), name
