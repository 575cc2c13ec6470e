"""Agreement by hand-sized examples, and the majority with what is left out."""

import pytest
from rich.console import Console

from blindsight.studio.agreeing import agreement, majority
from blindsight.studio.labels import Decision, Labels

FLEISS = [
    *[(0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1)],
    *[(7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7)],
]


def labelled(make_set, words: dict[str, str], **about) -> Labels:
    """Labels of raters as strings: c(at), d(og), o(wl), - for a skip, a space for nothing."""
    labels = Labels(make_set(**about))
    names = {"c": "cat", "d": "dog", "o": "owl", "-": None}
    for rater, letters in words.items():
        said = [(f"everyone/{n:05d}", names[letter]) for n, letter in enumerate(letters) if letter != " "]
        labels.add([Decision(sample, rater, label, 2.0, "now") for sample, label in said])
    return labels


def test_percent_and_cohen_s_kappa_by_hand(make_set):
    found = agreement(labelled(make_set, {"anna": "ccccdddd--", "ben": "cccdcddd c"}))
    (pair,) = found.pairs
    assert (pair.raters, pair.samples, pair.same) == (("anna", "ben"), 8, 0.75)
    assert pair.kappa == pytest.approx(0.5)  # 6 of 8 alike, 4 of 8 by chance
    assert [(one.name, one.labelled, one.skipped, one.seconds) for one in found.raters] == [
        ("anna", 8, 2, 2.0),
        ("ben", 9, 0, 2.0),
    ]


def test_fleiss_kappa_is_that_of_his_textbook_example():
    from collections import Counter

    from blindsight.studio.agreeing import _fleiss

    rows = [Counter({str(label): count for label, count in enumerate(row)}) for row in FLEISS]
    assert _fleiss(rows) == pytest.approx(0.210, abs=5e-4)


def test_where_one_class_is_used_kappa_says_nothing(make_set):
    found = agreement(labelled(make_set, {"anna": "ccc", "ben": "ccc", "cleo": "ccc"}))
    assert [pair.kappa for pair in found.pairs] == [None] * 3
    assert (found.fleiss, found.everybody) == (None, 3)
    assert all(pair.same == 1 for pair in found.pairs)


def test_how_often_people_say_what_was_proposed(make_set):
    found = agreement(labelled(make_set, {"anna": "dodo"}))  # proposed are d, o, c, d
    assert found.raters[0].as_proposed == 0.5


def test_the_majority_leaves_out_ties_and_what_nobody_labelled(make_set):
    words = {"anna": "ccd- c", "ben": "cdd-o ", "cleo": "dc --d"}
    found = majority(labelled(make_set, words, count=6))
    assert found.labels == {
        "everyone/00000": "cat",
        "everyone/00001": "cat",
        "everyone/00002": "dog",
        "everyone/00004": "owl",
    }
    assert (found.ties, found.unlabelled, found.raters) == (1, 1, ("anna", "ben", "cleo"))


def test_it_prints_for_none_one_and_several(make_set, capsys):
    for words, expected in [
        ({}, "Nobody"),
        ({"anna": "c"}, "needs a second rater"),
        ({"a": "cd", "b": "cc", "c": "cd"}, "Fleiss"),
    ]:
        made = labelled(make_set, words, seed=len(words))
        Console(width=100).print(agreement(made))
        assert expected in capsys.readouterr().out
        (made.dataset.folder / "labels.jsonl").unlink(missing_ok=True)
        (made.dataset.folder / "labelling.json").unlink(missing_ok=True)
