"""Text faults undone as well as a client can: not exactly, for some is lost, but so that words are known again.

`damage` says what each fault does to a text; a mend guesses what one sentence was before, from the words that a
vocabulary knows. A right guess makes unknown words known, and that is what clients vote by when they are asked which
fault explains their unknown words (`inspection.unknown_words`).
"""

import bisect
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

from blindsight.data.text import Case, Vocabulary, tokens

__all__ = ["MENDS", "Known", "mend"]

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


def mend(
    text: str,
    fault: str,
    known: Known,
    *,
    where: str | None = None,
    glue: str | None = None,
    to: str | None = None,
    characters: int | None = None,
) -> str:
    """The text as it may have been before the fault of that name, whose settings follow.

    Args:
        text: One sentence.
        fault: Name of the fault, one of `MENDS`.
        known: The words of the vocabulary.
        where: Which tokens were joined, "first" or "all", for token_join.
        glue: What was put between joined tokens, for token_join.
        to: The case that words were brought to, for case.
        characters: The length that texts were cut to, for truncation.
    """
    settings: dict[str, Any] = {"where": where, "glue": glue, "to": to, "characters": characters}
    return MENDS[fault](text, known, **{name: value for name, value in settings.items() if value is not None})


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


def _token_join(text: str, known: Known, where: str = "first", glue: str = "") -> str:
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


def _case(text: str, known: Known, to: str = "lower") -> str:
    """Words in another case where they are unknown in this one."""
    words = tokens(text, case="keep")
    ways = (str, str.lower, str.capitalize, str.upper, str.swapcase)
    return _put(text, words, [next((other for way in ways if (other := way(word)) in known), word) for word in words])


def _truncation(text: str, known: Known, characters: int = 0) -> str:
    """The last word completed, if the text ends in the middle of one."""
    words = tokens(text, case="keep")
    if not words or words[-1] in known or not text.endswith(words[-1]):
        return text
    whole = known.completed(words[-1])
    return text if whole is None else text[: -len(words[-1])] + whole


def _encoding_damage(text: str, known: Known) -> str:
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


MENDS: dict[str, Callable[..., str]] = {
    "token_join": _token_join,
    "case": _case,
    "truncation": _truncation,
    "encoding_damage": _encoding_damage,
}
"""How each text fault is undone, as far as it can be."""
