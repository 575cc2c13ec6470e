"""Faults of texts: what each does, and how a client undoes it as well as it can, so that words are known again.

A mend guesses what one sentence was before, from the words that a
vocabulary knows. A right guess makes unknown words known, and that is what clients vote by when they are asked which
fault explains their unknown words (`inspection.unknowns.words`).
"""

import bisect
import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from blindsight.data.damage import Damage
from blindsight.data.text import Case, Vocabulary, tokens

__all__ = ["TEXT_FAULTS", "Known", "mend"]

_JOINT = "\u00a0"  # a no-break space is part of a word: what it joins is one token
_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2026": "...", "\u2013": "-"})
_COMMON = 200  # words of one or two letters must be among so many first ones: "ed" and "la" would split anything


@dataclasses.dataclass(frozen=True)
class Known:
    """The words of a vocabulary as a mend asks for them."""

    vocabulary: Vocabulary
    case: Case = "lower"

    def __contains__(self, word: str) -> bool:
        return (word.lower() if self.case == "lower" else word) in self.vocabulary

    @functools.cached_property
    def _common(self) -> frozenset[str]:
        return frozenset(self.vocabulary.words[:_COMMON])

    def is_part(self, piece: str) -> bool:
        """Whether a longer word may be made of this one and others."""
        if piece not in self or not piece.replace("'", "").isalpha():
            return False
        return len(piece) > 2 or (piece.lower() if self.case == "lower" else piece) in self._common

    @functools.cached_property
    def _ordered(self) -> list[str]:
        return sorted(self.vocabulary.words)

    def completed(self, beginning: str) -> str | None:
        """A known word that begins so and goes on, if there is one."""
        start = beginning.lower() if self.case == "lower" else beginning
        place = bisect.bisect_right(self._ordered, start)
        found = self._ordered[place] if place < len(self._ordered) else ""
        return found if found.startswith(start) else None

    def parts(self, word: str, *, most: int) -> list[str]:
        """The word as several known words in a row, two at least and `most` at most; none where it is not such."""
        return _parts(self, word, most) if len(word) <= 80 else []

    def unknown(self, text: str) -> int:
        """How many words of the text are not known."""
        return sum(word not in self for word in tokens(text, case="keep"))


def mend(text: str, fault: str, known: Known, settings: Mapping[str, Any] | None = None) -> str:
    """The text as it may have been before the fault of that name with these settings."""
    repair = TEXT_FAULTS[fault].mend
    return text if repair is None else repair(text, known, **(settings or {}))


def _parts(known: Known, word: str, most: int) -> list[str]:
    """The fewest known words that the word is made of."""
    fewest: list[list[str] | None] = [[]]  # of every beginning
    for end in range(1, len(word) + 1):
        ways = [
            [*before, word[begin:end]]
            for begin, before in enumerate(fewest)
            if before is not None and end - begin < len(word) and known.is_part(word[begin:end])
        ]
        fewest.append(min(ways, key=len, default=None))
    found = fewest[-1]
    return found if found and len(found) <= most else []


def _mend_joined(text: str, known: Known, where: str = "first", glue: str = "") -> str:
    """Unknown words taken apart: the first of the sentence into two, or every one that holds three words or more.

    Elsewhere than at the beginning two words in one are a compound as often as not.
    """

    def apart(word: str, fewest: int, most: int) -> str:
        if word in known:
            return word
        found = word.split(_JOINT) if _JOINT in word else known.parts(word, most=most)
        return " ".join(found) if fewest <= len(found) <= most else word

    words = tokens(text, case="keep")
    if where == "first":
        first = [word for word in words if word[0].isalnum()][:1]
        return _put(text, first, [apart(word, 2, 2) for word in first])
    return _put(text, words, [apart(word, 3, 99) for word in words])


def _mend_case(text: str, known: Known, to: str = "lower") -> str:
    """Words in another case where they are unknown in this one."""
    words = tokens(text, case="keep")
    ways = (str, str.lower, str.capitalize, str.upper, str.swapcase)
    return _put(text, words, [next((other for way in ways if (other := way(word)) in known), word) for word in words])


def _mend_truncated(text: str, known: Known, characters: int = 0) -> str:
    """The last word completed, if the text ends in the middle of one."""
    words = tokens(text, case="keep")
    if not words or words[-1] in known or not text.endswith(words[-1]):
        return text
    whole = known.completed(words[-1])
    return text if whole is None else text[: -len(words[-1])] + whole


def _mend_encoding(text: str, known: Known) -> str:
    """Runs of strange signs read again as UTF-8, and typographic signs made straight."""

    def again(run: re.Match[str]) -> str:
        try:
            return run[0].encode("cp1252").decode("utf-8")
        except UnicodeError:
            return run[0]

    return re.sub(r"[^\x00-\x7f]+", again, text).translate(_STRAIGHT)


def _put(text: str, words: list[str], instead: list[str]) -> str:
    """The text with these tokens of it, in order, replaced; what lies between stays."""
    pieces, at = list[str](), 0
    for word, other in zip(words, instead, strict=True):
        begin = text.index(word, at)
        pieces += [text[at:begin], other]
        at = begin + len(word)
    return "".join([*pieces, text[at:]])


# --- what each does


def _each(text: np.ndarray, change: Callable[[str], str]) -> np.ndarray:
    return np.array([change(one) for one in text.ravel().tolist()], dtype=text.dtype).reshape(text.shape)


def _token_join(text: np.ndarray, where: str, glue: str) -> np.ndarray:
    glue = "\u00a0" if glue == "space" else glue  # no-break: two words stay two, and are one token
    first_gap = re.compile(r"(^|[.!?]\s+|\n)([^\s.!?]+)[^\S\n]+(?=\w)")
    if where == "all":
        return _each(text, lambda one: re.sub(r"(?<=\w)[^\S\n]+(?=\w)", lambda _: glue, one))
    return _each(text, lambda one: first_gap.sub(lambda found: found[1] + found[2] + glue, one))


def _case(text: np.ndarray, to: str) -> np.ndarray:
    return _each(text, {"upper": str.upper, "lower": str.lower, "title": str.title, "swapped": str.swapcase}[to])


def _truncation(text: np.ndarray, characters: int) -> np.ndarray:
    return _each(text, lambda one: one[:characters])


def _encoding_damage(text: np.ndarray) -> np.ndarray:
    """A keyboard makes quotes, dashes and dots typographic; a reader takes the UTF-8 for Windows-1252."""
    smart = [(r"(?<=\w)'|'(?=\w)", "\u2019"), (r'(^|(?<=\s))"', "\u201c"), (r'"', "\u201d"), (r"\.\.\.", "\u2026")]
    smart += [(r"(?<=\s)--?(?=\s)", "\u2013")]

    def damage(one: str) -> str:
        for pattern, sign in smart:
            one = re.sub(pattern, sign, one)
        return "".join(bytes([byte]).decode("cp1252", "replace") for byte in one.encode())

    return _each(text, damage)


TEXT_FAULTS: dict[str, Damage] = {
    "token_join": Damage(
        "text",
        "words run together: the first two of each sentence (where=first) or all; glue=space keeps a space in it",
        _token_join,
        lost="where words ended is gone",
        parameters={"where": ("first", "all"), "glue": ""},
        mend=_mend_joined,
        explains={
            "": "the first two words of sentences are joined",
            "where=all": "words are joined all through sentences",
        },
    ),
    "encoding_damage": Damage(
        "text",
        "typographic signs and accents read in the wrong encoding: don't becomes donâ€™t",
        _encoding_damage,
        lost="which quotes were straight is gone",
        mend=_mend_encoding,
        explains={"": "text is read in the wrong encoding"},
    ),
    "truncation": Damage(
        "text",
        "truncated after a number of characters",
        _truncation,
        lost="the ends are gone",
        parameters={"characters": 24},
        mend=_mend_truncated,
        explains={"": "sentences are cut off"},
    ),
    "case": Damage(
        "text",
        "letters changed to=upper, lower, title or swapped",
        _case,
        lost="which letters were capitals is gone",
        parameters={"to": ("upper", "lower", "title", "swapped")},
        mend=_mend_case,
        explains={"": "words have another case"},
    ),
}
"""Every fault of texts by name; of equally good explanations clients vote for the first."""
