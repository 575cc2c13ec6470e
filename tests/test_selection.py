"""Laws of selection: arms share no example, ineligible clients are all zeros, what nobody can be in is refused."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight import selection
from blindsight.backends import Batch
from blindsight.data import embedded
from blindsight.data.missing import MISSING, UNLISTED
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.question import Quarters, Slices
from blindsight.models.primary import primary
from blindsight.selection import Arms, by_accuracy, by_correctness, coded, correct, everything, mistakes, where


def batch_of(right, region=None, fill: int = 0) -> Batch:
    right = np.asarray(right, bool)
    region = np.zeros(len(right), np.int32) if region is None else np.asarray(region, np.int32)
    weight = np.concatenate([np.ones(len(right)), np.zeros(fill)]).astype(np.float32)
    # what fills up repeats the last example, as the backends do
    pad = np.minimum(np.arange(len(right) + fill), max(len(right) - 1, 0))
    fields = {"is_correct": right[pad], "region": region[pad]} if len(right) else {}
    if not fields:
        fields = {"is_correct": np.zeros(fill, bool), "region": np.zeros(fill, np.int32)}
    return Batch({name: jnp.asarray(value) for name, value in fields.items()}, jnp.asarray(weight))


CRITERIA = st.recursive(
    st.one_of(
        st.just(everything()),
        st.integers(1, 6).map(mistakes),
        st.integers(1, 6).map(correct),
        st.sampled_from([criterion for low in (0.3, 0.8) for criterion in by_accuracy(low, 0.9).values()]),
        st.builds(lambda value, by: where("region", value, by_client=by), st.integers(0, 2), st.booleans()),
    ),
    lambda inner: st.one_of(st.builds(lambda a, b: a & b, inner, inner), inner.map(lambda a: ~a)),
    max_leaves=3,
)


def arms_of(criteria) -> Arms:
    """The arms, less those that the constructor rightly refuses."""
    kept: list = []
    for criterion in criteria:
        if not any(criterion == other or other == everything() for other in kept):
            kept.append(criterion)
    return Arms({f"arm {number}": criterion for number, criterion in enumerate(kept)})


@settings(max_examples=25)
@given(
    st.lists(CRITERIA, min_size=1, max_size=4),
    st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=0, max_size=9),
)
def test_no_example_is_in_two_arms_and_nothing_that_fills_up_is_in_any(criteria, examples):
    arms, fill = arms_of(criteria), 10 - len(examples)  # one shape: compiling is what takes time
    batch = batch_of([right for right, _ in examples], [region for _, region in examples], fill)
    masks = np.asarray(arms.masks(batch))
    assert masks.shape == (len(arms), len(examples) + fill)
    assert set(np.unique(masks)) <= {0.0, 1.0}
    assert masks.sum(axis=0).max() <= 1
    assert not masks[:, len(examples) :].any()
    if arms.disjoint_by_client:
        assert (masks.sum(axis=1) > 0).sum() <= 1
    if all(criterion.by_client for criterion in arms.values()):
        assert all(total in (0, len(examples)) for total in masks.sum(axis=1))


BY_CLIENT = [
    everything(),
    by_accuracy(0.6, 0.9)["failing"],
    by_accuracy(0.3, 0.4)["healthy"],
    where("region", 1, by_client=True),
    ~where("region", 0, by_client=True),
]
MIXED = [*BY_CLIENT, mistakes(1), correct(1), where("region", 1), mistakes(1) & by_accuracy(0.6, 0.9)["failing"]]
PEOPLE = [
    batch_of(right, region)
    for right in ([1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 1])
    for region in ([1, 1, 1, 1], [0, 1, 2, 1], [0, 0, 0, 0])
]


def test_where_arms_pay_in_parallel_every_client_is_in_one_of_them():
    """All pairs of criteria by client, by example and mixed; both as they are measured and as they are trained."""
    parallel, shared = set[str](), set[str]()
    for pair in itertools.permutations(MIXED, 2):
        if pair[0] == everything():
            continue  # it leaves nobody to the second arm, and is refused
        arms = Arms(dict(zip(("first", "second"), pair, strict=True)))
        for batch in PEOPLE:
            masks = np.asarray(arms.masks(batch))
            alone = np.stack([np.asarray(arms.alone(name).mask(batch)) for name in arms])
            np.testing.assert_array_equal(masks, alone)
            if (masks.sum(axis=1) > 0).sum() > 1:
                shared.add(arms.exact)
        if arms.disjoint_by_client:
            parallel.add(arms.exact)
    assert not parallel & shared
    assert len(parallel) == len(BY_CLIENT) * (len(BY_CLIENT) - 1) - 4
    assert len(shared) > 10  # and these clients do tell


def test_the_first_arm_that_fits_takes_the_example():
    arms = Arms({"wrong": mistakes(1), "all": everything()})
    assert arms.masks(batch_of([True, False, True])).tolist() == [[0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("wrong", [4, 5, 6])
def test_clients_with_too_few_mistakes_add_nothing(wrong):
    masks = by_correctness(5).masks(batch_of([False] * wrong + [True] * 9))
    assert masks[0].sum() == (wrong if wrong >= 5 else 0)
    assert masks[1].sum() == 9


@pytest.mark.parametrize(
    ("right", "arm"), [(6, "failing"), (7, None), (8, None), (9, "healthy"), (10, "healthy"), (0, "failing")]
)
def test_clients_fall_below_low_or_reach_high(right, arm):
    arms = by_accuracy(0.7, 0.9)
    masks = arms.masks(batch_of([True] * right + [False] * (10 - right), fill=3))
    assert dict(zip(arms, masks.sum(axis=1).tolist(), strict=True)) == {
        name: 10 if name == arm else 0 for name in ("failing", "healthy")
    }


def test_a_client_without_examples_is_in_no_arm():
    for arms in (by_accuracy(0.7, 0.9), by_correctness(1), Arms({"all": everything()})):
        assert not np.asarray(arms.masks(batch_of([], fill=4))).any()
        assert not np.asarray(Arms({"rest": ~next(iter(arms.values()))}).masks(batch_of([], fill=4))).any()


def test_clients_of_a_region_have_all_their_examples_there():
    here = Arms({"here": where("region", 1, by_client=True)})
    assert here.masks(batch_of([True] * 3, [1, 1, 1])).sum() == 3
    assert here.masks(batch_of([True] * 3, [1, 0, 1])).sum() == 0
    assert here.disjoint_by_client
    assert not Arms({"a": where("region", 1), "b": where("region", 2)}).disjoint_by_client


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Arms({"all": everything(), "wrong": mistakes()}), "no client can be in the arm 'wrong'"),
        (lambda: Arms({"a": mistakes(5), "b": mistakes(5)}), "no client can be in the arm 'b'"),
        (lambda: Arms({}), "at least one arm"),
        (lambda: by_accuracy(0.0, 0.9), "no client can be in the arm 'failing'"),
        (lambda: by_accuracy(0.5, 1.1), "no client can be in the arm 'healthy'"),
        (lambda: by_accuracy(0.9, 0.8), "both arms"),
        (lambda: by_accuracy(float("nan"), 0.8), "failing"),
        (lambda: mistakes(0), "at least 1"),
    ],
)
def test_arms_that_make_no_sense_are_refused(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def people(**columns) -> Population:
    plain = {"x": np.arange(6, dtype=np.float32)} | columns
    classes = {name: ("no", "yes") for name in columns if name in ("label", "region")}
    return Population(plain, sizes=[2, 1, 3], name="three people", classes=classes)


def test_what_a_population_cannot_answer_is_refused_with_its_name():
    with pytest.raises(InvalidInput, match="needs labels and a primary model, and three people"):
        by_correctness().fit(people())
    with pytest.raises(InvalidInput, match="three people has no 'region'"):
        Arms({"here": where("region", 1)}).fit(people())
    region = people(region=np.array([0, 0, 1, 1, 1, 0], np.int32))
    with pytest.raises(InvalidInput, match="no client can match examples with region maybe: region has no, yes"):
        Arms({"here": where("region", "maybe")}).fit(region)
    with pytest.raises(InvalidInput, match="goes from 0 to 1"):
        Arms({"here": where("region", 2)}).fit(region)
    with pytest.raises(InvalidInput, match="is text"):
        Arms({"here": where("said", "hi")}).fit(people(said=np.array(["hi"] * 6)))
    assert Arms({"here": where("region", "yes") & everything()}).fit(region).fields == ("region",)


def test_texts_are_selected_by_once_their_public_values_are_named():
    said = coded(people(said=np.array(["hi", "ho", "hi", "hm", "ho", "ho"])), "said", ["ho", "hi"])
    assert said.classes["said"] == ("ho", "hi", "other")
    assert said.columns["said"].tolist() == [1, 0, 1, 2, 0, 0]
    assert Arms({"greeted": where("said", "hi")}).fit(said)["greeted"] == where("said", 1)
    with pytest.raises(InvalidInput, match="is not text: said"):
        coded(people(said=np.array(["hi"] * 6)), "weather", ["rain"])
    for names in ([], ["hi", "hi"]):
        with pytest.raises(InvalidInput, match="all different"):
            coded(people(said=np.array(["hi"] * 6)), "said", names)
    others = coded(people(said=np.array(["other", "ho", "hi", "hm", "ho", "other"])), "said", ["other", "hi"])
    assert others.classes["said"] == ("other", "hi", "(other)")
    assert others.columns["said"].tolist() == [0, 2, 1, 2, 2, 0]
    assert coded(others, "said", ["hi"]) is others
    with pytest.raises(InvalidInput, match="'said' is never 'ho': choose from its values, other, hi"):
        coded(others, "said", ["hi", "ho"])


def test_slices_by_a_listed_category_leave_out_who_has_none_of_its_values():
    """A missing value, one that is not listed and one that is not compared are in no arm, whatever a client holds."""
    schema = Schema({"region": Field("category", values=("north", "south", "west"))}, inputs=("region",))
    asked = Slices(schema=schema, by="region", values=("south", "north"), clients=9, epsilon=1.0, delta=1e-6)
    codes = np.array([1, MISSING, UNLISTED, 0, 2, MISSING], np.int32)
    held = asked.prepare(schema.population({"region": codes}), None, None)
    for examples, rows in ((codes, [[0], [3]]), (codes[[1, 2, 4]], [[], []])):
        assert not isinstance(asked.compared, Quarters)
        masks = asked.compared.fit(held).masks(Batch({"region": jnp.asarray(examples)}, jnp.ones(len(examples))))
        assert [np.flatnonzero(mask).tolist() for mask in masks] == rows
    with pytest.raises(InvalidInput, match="'region' is never 'atlantis'"):
        dataclasses.replace(asked, values=("north", "atlantis")).prepare(held, None, None)


def test_members_and_eligible_clients_are_those_of_the_masks():
    region = people(region=np.array([0, 0, 1, 1, 1, 0], np.int32))
    arms = Arms({"yes": where("region", "yes"), "all no": where("region", "no", by_client=True)})
    assert arms.members(region).tolist() == [[False, True, True], [True, False, False]]
    assert Arms({"yes": where("region", "yes")}).eligible(region).ids.tolist() == ["1", "2"]
    with pytest.raises(InvalidInput, match="no client of three people is in any arm"):
        (Arms({"b": where("region", "yes") & where("region", "no")})).eligible(region)


def test_observing_adds_what_the_model_says_and_keeps_the_rest():
    digits = embedded("digits")
    always_three = primary(lambda images: np.eye(10)[np.full(len(images), 3)] * 5, name="three")
    seen = selection.observe(digits, always_three)
    assert set(seen.columns) == {"image", "label", "predicted", "confidence", "is_correct"}
    assert seen.columns["predicted"].dtype == np.int32
    assert seen.columns["confidence"].dtype == np.float32
    np.testing.assert_array_equal(seen.columns["is_correct"], digits.columns["label"] == 3)
    np.testing.assert_allclose(seen.columns["confidence"], np.exp(5) / (np.exp(5) + 9), rtol=1e-5)
    unlabelled = digits.replace({"image": digits.columns["image"]})
    assert "is_correct" not in selection.observe(unlabelled, always_three).columns


def test_accuracies_are_each_clients_own():
    right = np.array([True, False, True, True, True, False])
    seen = Population({"is_correct": right}, sizes=[2, 0, 3, 1], name="four people")
    assert selection.accuracies(seen).tolist() == [0.5, 1.0, 1.0, 0.0]
    with pytest.raises(InvalidInput, match="observe three people with both first"):
        selection.accuracies(people())
