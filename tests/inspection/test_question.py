"""Questions are data: they come back from JSON unchanged, differ in their digest, and are valid or do not exist."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspection.asking.items import Cross, Histogram, Mean, Missing, Quantiles, Top
from blindsight.inspection.asking.question import Ask
from blindsight.inspection.bias.question import Bias, Language
from blindsight.inspection.contrast.question import Contrast, Mistakes, Quarters, Sanity, Slices, Training
from blindsight.inspection.labelling.question import Labelling
from blindsight.inspection.question import Question
from blindsight.inspection.synthesizing.question import Synthesize
from blindsight.inspection.tasks import TASKS, question_from
from blindsight.inspection.typed import misfit
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.inspection.unknowns.question import Unknowns
from blindsight.selection import Arms, by_accuracy, correct, everything, mistakes, where

NAMES = st.text("abcdefgh", min_size=1, max_size=6)
SHARES = st.floats(0.01, 0.99)
FIELDS = st.one_of(
    st.builds(lambda low, wide: Field("number", low, low + wide), st.floats(-100, 100), st.floats(0.1, 50)),
    st.lists(NAMES, min_size=2, max_size=4, unique=True).map(lambda names: Field("category", values=tuple(names))),
    st.just(Field("image", shape=(8, 8))),
)
TEXTS = Schema({"text": Field("text"), "side": Field("category", values=("before", "after"))}, ("text",))
TRAININGS = st.none() | st.builds(Training, rounds=st.integers(1, 9), share=SHARES)
WORDS = st.none() | st.builds(WordTraining, rounds=st.integers(1, 9), share=SHARES)
CRITERIA = st.recursive(
    st.sampled_from([correct(2), mistakes(3), where("label", 1), where("x", "a", by_client=True)]),
    lambda inner: st.builds(lambda one, other: one & ~other, inner, inner),
    max_leaves=4,
)
ARMS = st.one_of(
    st.builds(Quarters, st.floats(0.1, 0.4), st.floats(0.5, 0.9)),
    st.just(by_accuracy(0.882, 0.939)),
    CRITERIA.map(lambda one: Arms({"first": one, "rest": everything()})),
)


PEOPLE = Schema({"age": Field("whole", 0, 120), "sex": Field("category", values=("f", "m")), "text": Field("text")})
ITEMS = st.lists(
    st.one_of(
        st.builds(Histogram, st.just("age"), st.sampled_from(["", "sex"]), st.integers(2, 99)),
        st.builds(Mean, st.just("age"), st.sampled_from(["", "sex"])),
        st.builds(Quantiles, st.just("age"), levels=st.lists(SHARES, min_size=1, max_size=3).map(tuple)),
        st.builds(Missing, st.sampled_from(["age", "sex", "text"])),
        st.builds(Top, st.sampled_from(["sex", "text"]), k=st.integers(1, 99)),
        st.builds(Cross, st.just("sex"), st.just("age"), st.integers(2, 9)),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda item: (type(item), item.field, item.by),
).map(tuple)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    fields = draw(st.dictionaries(NAMES, FIELDS, min_size=1, max_size=3))
    return Schema(fields, tuple(fields), draw(st.sampled_from(("label", *fields))))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    task = draw(st.sampled_from(list(TASKS)))
    common: dict[str, Any] = {"epsilon": draw(st.floats(0.1, 50)), "delta": draw(st.floats(1e-9, 0.1))}
    common |= {"clients": draw(st.integers(1, 10**6)), "model": draw(st.sampled_from(["", "cnn [ab12]"]))}
    common |= {"schema": draw(schemas()), "reference": draw(st.sampled_from(["", "public [9f]"]))}
    arms: dict[str, Any] = {"forming": draw(st.sampled_from(["zero_fill", "eligible"])), "training": draw(TRAININGS)}
    arms |= {"shares": draw(st.sampled_from([{}, {"cues": 0.25}])), "per_class": draw(st.integers(1, 9))}
    if task == "unknowns":
        common |= {"schema": TEXTS, "vocabulary": "ab", "words": 3, "training": draw(WORDS)}
        return Unknowns(**common, case=draw(st.sampled_from(["lower", "keep"])), discover=draw(st.booleans()))
    if task == "ask":
        common["schema"] = PEOPLE
        return Ask(**common, items=draw(ITEMS), most=draw(st.integers(1, 99)))
    if task == "synthesize":
        fields = {"age": Field("whole", low=0, high=99), "pay": Field("number", low=0, high=9)}
        fields["label"] = Field("category", values=("no", "yes"))
        common["schema"] = Schema(fields, ("age", "pay"), "label")
        return Synthesize(**common, rows=draw(st.integers(1, 10**6)))
    if task == "bias":
        language = Language(vocabulary_size=draw(st.integers(1, 99)), training=draw(WORDS))
        common["reference"] = "public [9f]"
        return Bias(**common, language=language, classes=draw(st.just(("a", "b"))))
    made: dict[str, Any] = {
        "sanity": lambda: Sanity(**common, **arms),
        "mistakes": lambda: Mistakes(**common, **arms, minimum=draw(st.integers(1, 9))),
        "slices": lambda: Slices(**common, **arms, thresholds=draw(st.none() | st.just((0.1, 0.9)))),
        "contrast": lambda: Contrast(**common, **arms, arms=draw(ARMS)),
        "labelling": lambda: Labelling(**common, **arms, samples=draw(st.integers(1, 999)), population="p"),
    }
    return made[task]()


@given(questions())
def test_a_question_comes_back_from_json_unchanged(question):
    again = question_from(json.loads(json.dumps(question.to_dict(), allow_nan=False)))
    assert again == question
    assert again.digest == question.digest
    assert type(again) is type(question)


@given(questions())
def test_another_price_is_another_question(question):
    assert dataclasses.replace(question, epsilon=question.epsilon * 2).digest != question.digest


SANITY: dict[str, Any] = {"schema": Schema({"x": Field("number", 0, 1)}, ("x",)), "clients": 5}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": float("nan")}, "epsilon must be positive"),
        ({"delta": 1.0}, "delta must lie between 0 and 1"),
        ({"clients": 0}, "at least one client"),
        ({"schema": Schema({"x": Field("text")}, ("y",))}, "no field 'y'"),
        ({"suspects": ("invert",)}, "repairs the primary model"),
        ({"forming": "anyhow"}, "forming must be"),
        ({"shares": {"luck": 1.0}}, "not luck"),
    ],
)
def test_a_question_that_makes_no_sense_does_not_exist(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        Sanity(**SANITY | {"epsilon": 1.0, "delta": 1e-6} | wrong)


@pytest.mark.parametrize("damaged", [{}, {"task": "weather"}, {"task": "sanity"}, {"task": "sanity", "luck": 1}])
def test_what_is_no_question_is_refused_in_one_sentence(damaged):
    with pytest.raises(InvalidInput) as refused:
        question_from(damaged)
    assert "\n" not in str(refused.value)


JUNK = [None, True, -1, 0, 1.5, math.nan, math.inf, 1e300, "", "x", "\ud800", [], [1], [[[]]], {}, {"a": 1}, 10**30]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a value of JSON holds others, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(deeper for key, part in pairs for deeper in places(part, (*path, key)))]


@given(questions(), st.data())
def test_a_strangers_json_is_a_sound_question_or_is_refused(question, data):
    """A site reads the questions of others: no value of another type gets past it, and none ends it."""
    value = json.loads(json.dumps(question.to_dict()))
    *path, last = data.draw(st.sampled_from(places(value)))
    holder = value
    for key in path:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(JUNK))
    try:
        read = question_from(value)
    except InvalidInput:
        return
    assert question_from(json.loads(json.dumps(read.to_dict(), allow_nan=False))) == read
    assert misfit(read, type(read)) == ""


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("suspects", 5),
        ("model", ["cnn"]),
        ("clients", 5.5),
        ("clients", True),
        ("shares", "x"),
        ("suspects", [[["invert"]]]),
        ("per_class", "8"),
        ("per_class", 0),
        ("training", {"rounds": "many"}),
        ("training", {"rounds": 0}),
        ("schema", {"fields": {"x": {"kind": "category", "values": [1, 2]}}, "inputs": ["x"]}),
    ],
)
def test_a_value_of_another_type_is_refused(place, value):
    sound = Sanity(**SANITY, epsilon=1.0, delta=1e-6).to_dict()
    with pytest.raises(InvalidInput):
        question_from(sound | {place: value})
