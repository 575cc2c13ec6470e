"""Populations that differ in one client: tables of a few people, in which one of them has whatever rows it likes.

How many clients there are is public, so every client of one neighbour is in the other, be it with rows of no use.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

__all__ = ["KINDS", "ODD", "TOGETHER", "USUAL", "Kind", "neighbours", "places", "rows", "write", "write_public"]

ODD = "c7"
"""The client that differs."""

HEADER = "who,age,income,region,label,version,text"
USUAL = "c7,31,1200.5,north,yes,old,we have a cat here."
USELESS = "c7,,,,,,"
GAPS = "c7,,nan,,yes,old,"
KNOWN_WORDS = USUAL.replace(" here", "")
ONE_WORD = USUAL.replace("we have a cat here", "cat")
WORDS = ("we", "have", "a", "cat", "and", "the", "dog", "is", "here", "now")
KNOWN = WORDS[:8]
CLIENTS = 28
SCHEMA = {"fields": {"age": {"kind": "whole"}, "region": {"kind": "category", "values": ["north", "south"]}}}


@dataclasses.dataclass(frozen=True)
class Kind:
    """What one client has in the two neighbours, and everybody else if not rows of their own."""

    odd: tuple[str, ...]
    usual: tuple[str, ...] = (USUAL, USUAL)
    others: str | None = None


def _instead(*changes: tuple[str, str]) -> tuple[str, ...]:
    """The client's usual rows, the last with other values."""
    row = USUAL
    for old, new in changes:
        assert old in row
        row = row.replace(old, new)
    return (USUAL, row)


KINDS: dict[str, Kind] = {
    "one more row": Kind((USUAL, USUAL, USUAL.replace("31", "44"))),
    "a fraction among whole numbers": Kind(_instead((",31,", ",30.5,"))),
    "no number": Kind(_instead((",31,", ",n/a,"))),
    "a huge number": Kind(_instead((",31,", f",{2**31 + 1},"))),
    "beyond all numbers": Kind(_instead(("1200.5", "1e400"))),
    "not a number": Kind(_instead(("1200.5", "nan"))),
    "infinite": Kind(_instead(("1200.5", "-inf"))),
    "a missing value": Kind(_instead((",31,", ",,"))),
    "an empty category": Kind(_instead((",north,", ",,"))),
    "an empty text": Kind(_instead(("we have a cat here.", ""))),
    "an empty label": Kind(_instead((",yes,", ",,"))),
    "spaces for a value": Kind(_instead((",31,", ",  ,"), (",north,", ",  ,"))),
    "nothing but missing values": Kind(
        _instead((",31,1200.5,north,yes,", ",nan,NaN,,yes,"), ("we have a cat here.", ""))
    ),
    "a new category": Kind(_instead(("north", "atlantis"))),
    "a new class": Kind(_instead(("yes", "perhaps"))),
    "a third side": Kind(_instead(("old", "ancient"))),
    "a rare word": Kind(_instead(("a cat", "the pneumonoultramicroscopic"))),
    "strange letters": Kind(_instead(("a cat here", "ein \udcff ßtrange ' word"))),
    "a carriage return": Kind(_instead(("a cat", "a\rcat, and"))),
    "a line end in a text": Kind((*_instead(("a cat", "a\ncat")),)),
    "a zero byte": Kind(_instead(("a cat", "a\0cat"), (",31,", ",3\0001,"))),
    "separators of other alphabets": Kind(_instead(("a cat", "a\u2028\x85\x0b\x1ccat"), ("north", "\ufeffnorth"))),
    "numbers in other spellings": Kind(_instead((",31,", ",0x1F,"), ("1200.5", "1_200.5"))),
    "a client in both arms": Kind(_instead(("north", "south"), ("old", "new"), ("yes", "no"))),
    "a broken line": Kind((USUAL, "c7,31")),
    "an open quotation mark": Kind(_instead(("north", '"north'))),
    "a quotation mark before all": Kind((USUAL, f'"{USUAL}')),
    "a quotation mark after all": Kind((USUAL, f'{USUAL} and "more')),
    "an open quotation mark, and a second line": Kind((*_instead(("we", '"we')), "have it")),
    "too many cells": Kind((USUAL, f"{USUAL},more,and more")),
    "an empty client": Kind((USELESS,)),
    "the only one with a missing value": Kind((USUAL, GAPS), others=USUAL),
    "the only one without missing values": Kind((USUAL, USUAL), usual=(GAPS, GAPS), others=GAPS),
    "the only one with anything": Kind((USELESS,), others=USELESS),
    "the only one on both sides": Kind(_instead(("old", "new")), usual=(USELESS,), others=USELESS),
    "the only one with an unknown word": Kind((USUAL,), usual=(KNOWN_WORDS,), others=KNOWN_WORDS),
    "the only one with a sentence": Kind((USUAL,), usual=(ONE_WORD,), others=ONE_WORD),
}

TOGETHER = Kind(tuple(dict.fromkeys(row for kind in KINDS.values() for row in kind.odd)))
"""One client with all of it."""


def neighbours(folder: Path, kind: Kind, *, odd: bool, by_example: bool = False) -> Path:
    """The table `people.csv` in `folder`: one of two neighbours, beside what is public.

    By example, the client has equally many rows in both, some of them of no use: how many there are is public then.
    """
    others = [row for row in rows(0, "c", CLIENTS) if not row.startswith(f"{ODD},")]
    if kind.others is not None:
        others = [kind.others.replace(ODD, row.split(",")[0], 1) for row in others]
    own = kind.odd if odd else kind.usual
    if by_example:
        own = (*own, *[USELESS] * max(0, places(kind.usual if odd else kind.odd) - places(own)))
    write(folder / "people.csv", [*others[:20], *own, *others[20:]])
    return folder / "people.csv"


def places(rows: tuple[str, ...]) -> int:
    """How many of the lines are rows, be they broken: one without a comma goes on where the last one ended."""
    return sum("," in row for row in rows)


def write_public(folder: Path) -> None:
    """What anybody may know: other people's rows, a schema, and a list of words."""
    write(folder / "public.csv", rows(2, "p", 40))
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    (folder / "words.txt").write_text("\n".join([*KNOWN, ""]), encoding="utf-8")


def rows(seed: int, prefix: str, clients: int) -> list[str]:
    """Four rows of each of some clients who have nothing odd."""
    dice = np.random.default_rng(seed)
    found = list[str]()
    for client in range(clients):
        for number in range(4):
            age, income = int(dice.integers(20, 60)), dice.uniform(500, 3000)
            region, label = dice.choice(["north", "south"]), "yes" if age > 40 else "no"
            said = " ".join(dice.choice(WORDS, 5))
            found.append(f"{prefix}{client},{age},{income:.1f},{region},{label},{['old', 'new'][number % 2]},{said}.")
    return found


def write(path: Path, lines: list[str]) -> None:
    """A table of these rows, whatever bytes they hold."""
    path.write_bytes("\n".join([HEADER, *lines, ""]).encode("utf-8", "surrogateescape"))
