"""Text faults, and how a client approximately undoes each so that words are in the vocabulary again.

A mend guesses the original sentence from the words of a vocabulary. A correct guess turns unknown words into known
ones, so clients use it to vote on which fault explains their unknown words (`inspection.unknowns.words`).
"""

import bisect
import dataclasses
import functools
import html
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from blindsight.data.damage import Damage
from blindsight.data.text import Case, Vocabulary, tokens

__all__ = ["TEXT_FAULTS", "KnownWords", "mend"]

_JOINT = "\u00a0"  # words joined by a no-break space are one token
_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2026": "...", "\u2013": "-"})
_COMMON = 200  # words of one or two letters must be this common: "ed" and "la" would split anything


@dataclasses.dataclass(frozen=True)
class KnownWords:
    """The words of a vocabulary, with the look-ups that a mend needs."""

    vocabulary: Vocabulary
    case: Case = "lower"

    def __contains__(self, word: str) -> bool:
        return (word.lower() if self.case == "lower" else word) in self.vocabulary

    @functools.cached_property
    def _common(self) -> frozenset[str]:
        return frozenset(self.vocabulary.words[:_COMMON])

    def is_part(self, piece: str) -> bool:
        """Whether a longer word may consist of this one and others."""
        if piece not in self or not piece.replace("'", "").isalpha():
            return False
        return len(piece) > 2 or (piece.lower() if self.case == "lower" else piece) in self._common

    @functools.cached_property
    def _ordered(self) -> list[str]:
        return sorted(self.vocabulary.words)

    def completed(self, beginning: str) -> str | None:
        """A longer known word with this beginning, if there is one."""
        start = beginning.lower() if self.case == "lower" else beginning
        place = bisect.bisect_right(self._ordered, start)
        word = self._ordered[place] if place < len(self._ordered) else ""
        return word if word.startswith(start) else None

    def parts(self, word: str, *, most: int) -> list[str]:
        """The word split into known words, between two and `most` of them; empty if it cannot be."""
        return _parts(self, word, most) if len(word) <= 80 else []

    def unknown(self, text: str) -> int:
        """Number of unknown words in the text."""
        return sum(word not in self for word in tokens(text, case="keep"))


def mend(text: str, fault: str, known: KnownWords, settings: Mapping[str, Any] | None = None) -> str:
    """A guess of the text before the fault of that name with these settings."""
    repair = TEXT_FAULTS[fault].mend
    return text if repair is None else repair(text, known, **(settings or {}))


def _parts(known: KnownWords, word: str, most: int) -> list[str]:
    """The word split into the fewest known words."""
    fewest: list[list[str] | None] = [[]]  # for every prefix
    for end in range(1, len(word) + 1):
        ways = [
            [*before, word[begin:end]]
            for begin, before in enumerate(fewest)
            if before is not None and end - begin < len(word) and known.is_part(word[begin:end])
        ]
        fewest.append(min(ways, key=len, default=None))
    pieces = fewest[-1]
    return pieces if pieces and len(pieces) <= most else []


def _mend_joined(text: str, known: KnownWords, where: str = "first", glue: str = "") -> str:
    """Unknown words split: the first of the sentence into two, or every one that consists of three words or more.

    Elsewhere, an unknown word that splits into two is as often a compound.
    """

    def apart(word: str, fewest: int, most: int) -> str:
        if word in known:
            return word
        pieces = word.split(_JOINT) if _JOINT in word else known.parts(word, most=most)
        return " ".join(pieces) if fewest <= len(pieces) <= most else word

    words = tokens(text, case="keep")
    if where == "first":
        first = [word for word in words if word[0].isalnum()][:1]
        return _put(text, first, [apart(word, 2, 2) for word in first])
    return _put(text, words, [apart(word, 3, 99) for word in words])


def _mend_case(text: str, known: KnownWords, to: str = "lower") -> str:
    """Unknown words in another case if that makes them known."""
    words = tokens(text, case="keep")
    ways = (str, str.lower, str.capitalize, str.upper, str.swapcase)
    return _put(text, words, [next((other for way in ways if (other := way(word)) in known), word) for word in words])


def _mend_truncated(text: str, known: KnownWords, characters: int = 0) -> str:
    """The text with its last word completed, if it ends in the middle of one."""
    words = tokens(text, case="keep")
    if not words or words[-1] in known or not text.endswith(words[-1]):
        return text
    whole = known.completed(words[-1])
    return text if whole is None else text[: -len(words[-1])] + whole


def _mend_encoding(text: str, known: KnownWords) -> str:
    """Non-ASCII runs decoded again as UTF-8, and typographic characters made plain."""

    def again(run: re.Match[str]) -> str:
        try:
            return run[0].encode("cp1252").decode("utf-8")
        except UnicodeError:
            return run[0]

    return re.sub(r"[^\x00-\x7f]+", again, text).translate(_STRAIGHT)


def _put(text: str, words: list[str], instead: list[str]) -> str:
    """The text with these tokens replaced, in order; everything between them stays."""
    pieces, at = list[str](), 0
    for word, other in zip(words, instead, strict=True):
        begin = text.index(word, at)
        pieces += [text[at:begin], other]
        at = begin + len(word)
    return "".join([*pieces, text[at:]])


# --- the faults


def _each(text: np.ndarray, change: Callable[[str], str]) -> np.ndarray:
    return np.array([change(one) for one in text.ravel().tolist()], dtype=text.dtype).reshape(text.shape)


_middle_gap = re.compile(r"((?:^|(?<=[.!?\n]))\s*(?:[^\s.!?]+[^\S\n]+){2}[^\s.!?]*\w)[^\S\n]+(?=\w)")
"""The third and fourth word of a sentence."""


def _token_join(text: np.ndarray, where: str, glue: str) -> np.ndarray:
    glue = "\u00a0" if glue == "space" else glue  # no-break: two words become one token
    first_gap = re.compile(r"(^|[.!?]\s+|\n)([^\s.!?]+)[^\S\n]+(?=\w)")
    if where == "middle":
        return _each(text, lambda one: _middle_gap.sub(lambda match: match[1] + glue, one))
    if where == "all":
        return _each(text, lambda one: re.sub(r"(?<=\w)[^\S\n]+(?=\w)", lambda _: glue, one))
    return _each(text, lambda one: first_gap.sub(lambda match: match[1] + match[2] + glue, one))


def _case(text: np.ndarray, to: str) -> np.ndarray:
    return _each(text, {"upper": str.upper, "lower": str.lower, "title": str.title, "swapped": str.swapcase}[to])


def _truncation(text: np.ndarray, characters: int) -> np.ndarray:
    return _each(text, lambda one: one[:characters])


def _encoding_damage(text: np.ndarray) -> np.ndarray:
    """Quotes, dashes and dots become typographic, as on a phone's keyboard, and UTF-8 is decoded as Windows-1252."""
    smart = [(r"(?<=\w)'|'(?=\w)", "\u2019"), (r'(^|(?<=\s))"', "\u201c"), (r'"', "\u201d"), (r"\.\.\.", "\u2026")]
    smart += [(r"(?<=\s)--?(?=\s)", "\u2013")]

    def damage(one: str) -> str:
        for pattern, sign in smart:
            one = re.sub(pattern, sign, one)
        return "".join(bytes([byte]).decode("cp1252", "replace") for byte in one.encode())

    return _each(text, damage)


def _other_locale(text: str) -> str:
    return re.sub(r"(?<=\d)[.,](?=\d)", lambda sign: "," if sign[0] == "." else ".", text)


TEXT_FAULTS: dict[str, Damage] = {
    "token_join": Damage(
        "text",
        "words run together: the first two of each sentence (where=first), two further on (where=middle) or all; "
        "glue=space keeps a space in the joined word",
        _token_join,
        lost="where words ended is gone",
        parameters={"where": ("first", "middle", "all"), "glue": ""},
        variants=lambda field: ("", "where=middle", "where=all"),
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
        variants=lambda field: ("",),
        mend=_mend_encoding,
        explains={"": "text is read in the wrong encoding"},
        varies=True,
    ),
    "truncation": Damage(
        "text",
        "truncated after a number of characters",
        _truncation,
        lost="the ends are gone",
        parameters={"characters": 24},
        variants=lambda field: [f"characters={limit}" for limit in (24, 50, 100, 140, 255)],
        graded=("characters",),
        mend=_mend_truncated,
        explains={"": "sentences are cut off"},
        varies=True,
    ),
    "case": Damage(
        "text",
        "letters changed to=upper, lower, title or swapped",
        _case,
        lost="which letters were capitals is gone",
        parameters={"to": ("upper", "lower", "title", "swapped")},
        variants=lambda field: [f"to={case}" for case in ("upper", "lower", "title")],
        mend=_mend_case,
        explains={"": "words have another case"},
    ),
    "html_entities": Damage(
        "text",
        "signs are escaped as in HTML: quotes, ampersands, less-than and greater-than signs",
        lambda text: _each(text, html.escape),
        lambda text: _each(text, html.unescape),
        variants=lambda field: ("",),
    ),
    "comma_for_point": Damage(
        "text",
        "numbers are written in another locale: 3.14 becomes 3,14, and 1,000 becomes 1.000",
        lambda text: _each(text, _other_locale),
        lambda text: _each(text, _other_locale),
        variants=lambda field: ("",),
    ),
}
"""Every text fault by name; clients vote for the first of equally good explanations."""
