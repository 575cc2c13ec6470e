"""Cues: between 0 and 1 for any input, moved by the faults they are for, and read back from sums as they went in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Batch
from blindsight.data import embedded, faults
from blindsight.data.missing import MISSING, TRUTH, UNLISTED
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import cues
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured
from blindsight.selection import Arms, everything


@pytest.fixture(scope="module")
def writers() -> Population:
    people = embedded("handwriting", clients=40, seed=3, examples=(8, 12))
    return people.replace(people.columns)


def means(population: Population) -> dict[str, float]:
    seen = cues.observe(population, ("image",))
    return dict(zip(seen.classes["cues"], seen.columns["cues"].mean(axis=0).tolist(), strict=True))


@pytest.fixture(scope="module")
def healthy(writers) -> dict[str, float]:
    return means(writers)


@pytest.fixture(scope="module")
def struck() -> dict[str, dict[str, float]]:
    """What was measured under a fault, for the next cue that it moves."""
    return {}


@pytest.mark.parametrize(
    ("fault", "cue", "least"),
    [
        ("invert", "intensity", 0.5),
        ("invert", "polarity", 0.2),
        ("invert", "ink", 0.5),
        ("invert", "white", 0.5),
        ("invert", "black", -0.5),
        ("rotate90", "edges: vertical strokes", -0.05),
        ("rotate90", "constant rows", 0.1),
        ("rotate90", "constant columns", -0.1),
        ("flip", "edges: slant", -0.05),
        ("shift:right=4", "centroid x", 0.1),
        ("shift:down=-4", "centroid y", -0.1),
        ("crop", "extent", 0.1),
        ("blur", "blur", 0.1),
        ("gamma", "grey levels", -0.1),
        ("byte_swap", "edges: vertical strokes", 0.1),
        ("constant", "contrast", -0.4),
    ],
)
def test_a_fault_moves_its_cue(writers, healthy, struck, fault, cue, least):
    if fault not in struck:
        struck[fault] = means(faults.apply(writers, fault))
    moved = struck[fault][cue] - healthy[cue]
    assert moved * np.sign(least) >= abs(least)


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, np.inf, -5.0, 1e30])
@pytest.mark.parametrize("shape", [(28, 28), (5, 9), (6, 6, 3), (2, 2)])
def test_cues_of_any_image_lie_between_0_and_1(value, shape):
    odd = Population({"image": np.full((3, *shape), value, np.float32)}, sizes=[3], name="odd")
    found = cues.observe(odd).columns["cues"]
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_bytes_and_fractions_give_the_same_cues(writers):
    fractions = writers.replace({"image": (writers.columns["image"] / 255).astype(np.float32)})
    first, second = (cues.observe(one, ("image",)).columns["cues"] for one in (writers, fractions))
    np.testing.assert_allclose(first, second, atol=2e-3)


def test_tables_and_text_have_cues_of_their_own():
    columns = {
        "savings": np.array([1000.0, np.nan, -1.0, 0.0]),
        "region": np.array([0, MISSING, 1, UNLISTED], np.int32),
        "new": np.array([0, MISSING, 1, 1], np.int32),
        "paid": np.array([True, False, False, True]),
        "said": np.array(["Ab 1", "", "Ö", "hello world"]),
    }
    classes = {"region": ("coast", "hills"), "new": TRUTH}
    seen = cues.observe(Population(columns, sizes=[4], name="rows", classes=classes))
    found = dict(zip(seen.classes["cues"], seen.columns["cues"].T, strict=True))
    equal, nan = np.testing.assert_array_equal, np.nan
    equal(found["savings: missing"], [0, 1, 0, 0])
    equal(found["savings: negative"], [0, nan, 1, 0])
    equal(found["savings: zero"], [0, nan, 0, 1])
    equal(found["region: missing"], [0, 1, 0, 0])
    equal(found["region: unlisted"], [0, nan, 0, 1])
    equal(found["region: share of hills"], [0, nan, 1, 0])
    equal(found["new: share of true"], [0, nan, 1, 1])
    equal(found["paid: share of true"], [1, 0, 0, 1])
    equal(found["said: missing"], [0, 1, 0, 0])
    equal(found["said: upper case"], [0.5, nan, 1, 0])
    equal(found["said: digits"], [0.5, nan, 0, 0])
    equal(found["said: not ASCII"], [0, nan, 1, 0])
    equal(found["said: punctuation"], [0, nan, 0, 0])
    equal(found["said: cut off"], [1, nan, 1, 1])
    equal(found["repeated rows"], [0, 0, 0, 0])
    assert found["said: spaces"] == pytest.approx([0.25, nan, 0, 1 / 11], abs=2**-12, nan_ok=True)
    thousand = faults.apply(Population({"x": np.array([5.0, 70.0])}, sizes=[2], name="x"), "unit_change")
    before = cues.observe(Population({"x": np.array([5.0, 70.0])}, sizes=[2], name="x"))
    moved = cues.observe(thousand).columns["cues"][:, 3] - before.columns["cues"][:, 3]
    assert moved == pytest.approx(3 / 8, abs=0.02)


def test_rows_are_repeated_only_within_a_client():
    rows = Population({"x": np.array([1, 1, 1, 2]), "y": np.array([1, 1, 1, 1])}, sizes=[2, 2], name="rows")
    seen = cues.observe(rows)
    assert seen.columns["cues"][:, seen.classes["cues"].index("repeated rows")].tolist() == [0, 1, 0, 0]


def test_a_value_is_compared_with_the_one_before_it_of_the_same_client():
    values = np.array([7.0, 7.0, 7.0, 8.0, np.nan, np.nan, -1.0])
    seen = cues.observe(Population({"x": values}, sizes=[2, 0, 5, 0], name="rows"), ranges={"x": (0.0, 9.0)})
    found = dict(zip(seen.classes["cues"], seen.columns["cues"].T.tolist(), strict=True))
    nan = np.nan
    assert found["same as the one before"] == pytest.approx([nan, 1, nan, 0, nan, nan, nan], nan_ok=True)
    assert found["negative"] == pytest.approx([0, 0, 0, 0, np.nan, np.nan, 1], nan_ok=True)


LOOK_ALIKE = [  # two faults of a number, and the cue that tells them apart
    ("missing_fill:field=age:value=-1", "unit_change:field=age:factor=0.001", "age: negative"),
    ("missing_fill:field=hours:value=999", "unit_change:field=hours:factor=10", "hours: same as the one before"),
]


@pytest.mark.parametrize(("one", "other", "cue"), LOOK_ALIKE)
def test_a_code_for_missing_values_is_told_from_a_change_of_units(one, other, cue):
    people = embedded("tabular", clients=40, seed=4, examples=(15, 25))
    people = people.replace(people.columns)
    ranges = {"age": (16.0, 100.0), "hours": (1.0, 80.0)}
    means = [cues.observe(faults.apply(people, fault), ("age", "hours"), ranges, people) for fault in (one, other)]
    place = means[0].classes["cues"].index(cue)
    coded, scaled = (np.nanmean(seen.columns["cues"][:, place]) for seen in means)
    assert coded - scaled > 0.5


def test_no_client_exceeds_the_bound_whatever_its_numbers():
    values = np.array([-1.0] * 9 + [1e9] * 9 + [np.nan] * 9 + [5.0, 5.0, 7.0])
    seen = cues.observe(Population({"x": values, "y": -values}, sizes=[9, 9, 9, 3], name="rows"), ranges={"x": (0, 9)})
    part = cues.cues_part(seen, ("everyone",), disjoint_by_client=True)
    sent = client_vectors(seen, Arms({"everyone": everything()}), [part])["cues"]
    assert len(part.names) == seen.columns["cues"].shape[1]
    assert np.linalg.norm(sent.astype(np.float64), axis=1).max() <= part.bound


MOVED = {  # every fault of tables and texts moves a cue of the embedded population, per client
    "column_swap:a=age:b=hours": ("hours: middle half", -0.1),
    "repeated_rows": ("repeated rows", 0.4),
    "unit_change:field=age:factor=2.54": ("age: beyond its range", 0.2),
    "missing_fill:field=hours:value=999": ("hours: beyond its range", 0.9),
    "field_cut:field=age": ("age: place in its range", -0.3),
    "decimal_comma:field=savings": ("savings: middle half", 0.2),
    "time_shift:field=hours:add=5": ("hours: middle half", -0.05),
    "lost_category:field=region:which=hills:instead=coast": ("region: share of hills", -0.05),
    "html_entities": ("punctuation", 0.003),
    "token_join:where=middle": ("word length", 0.01),
    "token_join": ("word length", 0.01),
    "case:to=lower": ("upper case", -0.01),
    "truncation": ("cut off", 0.3),
    "encoding_damage": ("not ASCII", 0.0005),
}


@pytest.mark.parametrize("fault", MOVED)
def test_faults_of_tables_and_texts_move_a_cue(fault):
    cue, least = MOVED[fault]
    is_text = faults.parse(fault)[0].damage.kind == "text"
    people = embedded("forum" if is_text else "tabular", clients=60, seed=4)
    people = people.replace(people.columns)
    inputs = ("text",) if is_text else ("age", "hours", "savings", "region")
    ranges = {"age": (0.0, 100.0), "hours": (0.0, 80.0), "savings": (0.0, 5e4)}
    before, after = (cues.observe(p, inputs, ranges, people) for p in (people, faults.apply(people, fault)))
    place = before.classes["cues"].index(cue)
    moved = after.columns["cues"][:, place].mean() - before.columns["cues"][:, place].mean()
    assert moved * np.sign(least) >= abs(least)


def test_a_colour_that_changed_places_is_seen():
    red = np.zeros((4, 6, 6, 3), np.uint8)
    red[..., 0] = 200
    photos = Population({"image": red}, sizes=[4], name="photos")
    seen = [cues.observe(one) for one in (photos, faults.apply(photos, "channel_swap"))]
    place = seen[0].classes["cues"].index("red over blue")
    assert seen[0].columns["cues"][0, place] > 0.8 > 0.2 > seen[1].columns["cues"][0, place]


def test_what_has_no_cues_is_refused(writers):
    with pytest.raises(InvalidInput, match="no field 'picture'"):
        cues.observe(writers, ("picture",))
    with pytest.raises(InvalidInput, match="holds vectors"):
        cues.observe(Population({"x": np.zeros((2, 3))}, sizes=[2], name="v"))
    with pytest.raises(InvalidInput, match="has no cues"):
        cues.cues_part(writers, ("all",), disjoint_by_client=True)
    with pytest.raises(InvalidInput, match="no field"):
        cues.observe(Population({"predicted": np.zeros(2)}, sizes=[2], name="v"))


def test_what_was_summed_is_read_back():
    values = np.random.default_rng(0).beta(2, 5, (500, 3))
    part = Cues(("a", "b", "c"), ("all",), True)
    block = np.concatenate([values - 0.5, (values - 0.5) ** 2, np.ones((500, 1))], axis=1).sum(axis=0)
    arm = part.read(Measured(block, 1e-9, 1.0))["all"]
    np.testing.assert_allclose(arm.mean, values.mean(axis=0))
    np.testing.assert_allclose(arm.spread, values.std(axis=0), rtol=1e-6)
    assert arm.counted == pytest.approx(500)
    assert arm.is_measurable


def test_the_spread_is_seldom_understated():
    """With noise on the squares, the spread is below the true one about once in twenty times, not half the time."""
    generator = np.random.default_rng(1)
    values = generator.beta(2, 5, (800, 5))
    part = Cues(tuple("abcde"), ("all",), True)
    block = np.concatenate([values - 0.5, (values - 0.5) ** 2, np.ones((800, 1))], axis=1).sum(axis=0)
    low = [
        part.read(Measured(block + generator.normal(0, 12, block.shape), 12, 1.0))["all"].spread < values.std(axis=0)
        for _ in range(300)
    ]
    assert 0.02 < np.mean(low) < 0.09


def test_arms_that_leave_nobody_out_are_everyone_together():
    values = np.random.default_rng(0).beta(2, 5, (500, 2))
    blocks = np.concatenate([values - 0.5, (values - 0.5) ** 2, np.ones((500, 1))], axis=1)
    sums = np.concatenate([blocks[:200].sum(axis=0), blocks[200:].sum(axis=0)])
    everyone = Cues(("a", "b"), ("some", "others"), True).everyone(Measured(sums, 3.0, 1.0))
    np.testing.assert_allclose(everyone.mean, values.mean(axis=0))
    assert everyone.counted == 500
    assert everyone.noise_std == pytest.approx(3 * 2**0.5)
    with pytest.raises(InvalidInput, match="count several times"):
        Cues(("a", "b"), ("some", "others"), False).everyone(Measured(sums, 3.0, 1.0))


def test_an_arm_that_is_lost_in_noise_is_not_measurable():
    part = Cues(("a",), ("few",), True)
    assert not part.read(Measured(np.array([3.0, 2.0, 9.0]), 4.0, 1.0))["few"].is_measurable
    assert not part.read(Measured(np.array([3.0, 2.0, -9.0]), 4.0, 1.0))["few"].is_measurable


def test_the_share_of_clients_in_an_arm_has_an_interval_within_0_and_1():
    part = Cues(("a",), ("some", "none"), True)
    arms = part.read(Measured(np.array([3.0, 2.0, 250.0, 0.0, 0.0, -4.0]), 10.0, 1.0))
    assert arms["some"].share(1000) == pytest.approx((0.25, 0.2304, 0.2696))
    assert arms["none"].share(1000) == pytest.approx((0.0, 0.0, 0.0156))


def test_numbers_with_a_public_range_are_looked_at_within_it():
    ages = np.array([20.0, 50.0, 5000.0, np.nan])
    people = Population({"age": ages}, sizes=[4], name="rows")
    seen = cues.observe(people, ("age",), {"age": (0.0, 100.0)})
    found = dict(zip(seen.classes["cues"], seen.columns["cues"].T.tolist(), strict=True))
    assert found["beyond its range"] == pytest.approx([0, 0, 1, np.nan], nan_ok=True)
    assert found["place in its range"] == pytest.approx([0.2, 0.5, 1.0, np.nan], abs=2**-12, nan_ok=True)
    assert found["missing"] == [0, 0, 0, 1]


def sent_by(column: np.ndarray, usual: np.ndarray) -> dict[str, float]:
    """What one client with these numbers sends as the mean of each cue, beside public data with the others."""
    people, public = (Population({"x": values}, sizes=[len(values)], name="x") for values in (column, usual))
    part = cues.cues_part(cues.observe(people), ("all",), disjoint_by_client=True, public=cues.observe(public))
    weight = jnp.ones(len(column), jnp.float32)
    batch = Batch({"cues": jnp.asarray(cues.observe(people).columns["cues"])}, weight)
    sent = np.asarray(part.client_part(batch, weight[None], jax.random.key(0)))
    assert np.linalg.norm(sent) <= part.bound
    return dict(zip(part.names, (sent[: len(part.names)] + 0.5).tolist(), strict=True))


def test_missing_values_move_the_cue_of_missing_values_alone():
    usual = np.array([10.0, 10.0, 10.0, 10.0])
    whole, gaps, empty = (sent_by(np.array(x), usual) for x in ([10.0, 10.0], [10.0, np.nan], [np.nan, np.nan]))
    assert [whole["missing"], gaps["missing"], empty["missing"]] == [0, 0.5, 1]
    for name in set(whole) - {"missing", "repeated rows"}:
        assert whole[name] == gaps[name] == empty[name]
