"""What a client makes of a damaged sentence: mends give words back that the fault took, and leave sound text alone."""

from typing import Any

import numpy as np
import pytest

from blindsight.data import faults
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Vocabulary
from blindsight.data.text_faults import TEXT_FAULTS, KnownWords, mend

WORDS = ("the", "i", "a", "have", "is", "don't", "cat", "problem", "here", "box", "text", "with", "my", ",", ".")
KNOWN = KnownWords(Vocabulary(WORDS))


def damaged(text: str, fault: str) -> str:
    one = Population({"text": np.array([text], dtype=TEXT)}, sizes=[1], name="one")
    return faults.apply(one, fault).columns["text"][0]


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "token_join": ("I have a cat.", "Ihave a cat.", {}),
    "token_join:glue=space": ("I have a cat.", "I\u00a0have a cat.", {}),
    "token_join:where=all": ("I have a cat, here.", "Ihaveacat, here.", {"where": "all"}),
    "truncation:characters=11": ("I have a problem", "I have a pr", {}),
    "encoding_damage": ("I don't have a cat.", "I donâ€™t have a cat.", {}),
}


@pytest.mark.parametrize("fault", CASES)
def test_a_mend_makes_words_known_that_the_fault_made_unknown(fault):
    whole, broken, settings = CASES[fault]
    assert damaged(whole, fault) == broken
    assert KNOWN.unknown(broken) > KNOWN.unknown(whole) == 0
    assert mend(broken, fault.partition(":")[0], KNOWN, settings).lower() == whole.lower()


def test_case_is_mended_where_case_counts():
    strict = KnownWords(Vocabulary(("i", "I", "have", "Cat")), case="keep")
    assert mend("I HAVE cAT", "case", strict) == "I have Cat"


@pytest.mark.parametrize("name", TEXT_FAULTS)
def test_what_is_known_stays_as_it_is(name):
    assert mend("The cat is here, with my box.", name, KNOWN) == "The cat is here, with my box."
    assert mend("", name, KNOWN) == ""


def test_each_join_is_told_from_the_other():
    assert mend("Here is a textbox", "token_join", KNOWN) == "Here is a textbox"  # a compound is no join of the first
    assert mend("Here is a textbox", "token_join", KNOWN, {"where": "all"}) == "Here is a textbox"
    assert mend("Ihave a cat", "token_join", KNOWN, {"where": "all"}) == "Ihave a cat"  # two: the other's business
    assert mend('"Ihave a cat', "token_join", KNOWN) == '"I have a cat'  # signs before the first word do not count


def test_short_words_take_part_only_if_they_are_common():
    words = (*WORDS, *(f"w{number}" for number in range(300)), "ed", "la")
    assert KnownWords(Vocabulary(words)).parts("boxed", most=5) == []
    assert KnownWords(Vocabulary((*WORDS, "ed"))).parts("boxed", most=5) == ["box", "ed"]


def test_a_long_run_of_letters_is_given_up_quickly():
    assert KNOWN.parts("a" * 81, most=99) == []
    assert len(KNOWN.parts("have" * 20, most=99)) == 20
