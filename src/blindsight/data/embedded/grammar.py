"""Sentences with `{slots}` and `[alternatives|of them|]`, and invented names to fill them with."""

import functools
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from blindsight.data.embedded.topics import PREFIXES, STEMS

__all__ = ["compile_sentence", "expand", "person", "pick", "plural", "pseudoword", "ranked", "terms", "tool"]

CompiledSentence = tuple[Any, ...]
"""A compiled sentence: even places are text, odd ones the name of a slot or a list of alternatives."""

Choice = TypeVar("Choice")


def compile_sentence(sentence: str) -> CompiledSentence:
    """The sentence in parts, as input to `expand`.

    >>> compile_sentence("a [b|{c}] d")
    ('a ', [('b',), ('', 'c', '')], ' d')
    """
    parts: list[Any] = re.split(r"(\{\w+\}|\[[^\]]*\])", sentence)
    for place in range(1, len(parts), 2):
        inner = parts[place][1:-1]
        parts[place] = [compile_sentence(part) for part in inner.split("|")] if parts[place][0] == "[" else inner
    return tuple(parts)


def expand(parts: CompiledSentence, random: Random, slot: Callable[[str], str]) -> str:
    """The sentence with its slots filled by `slot` and a random choice from each list of alternatives."""
    sentence = parts[0]
    for place in range(1, len(parts), 2):
        part = parts[place]
        sentence += slot(part) if isinstance(part, str) else expand(pick(random, part), random, slot)
        sentence += parts[place + 1]
    return sentence


def pick(random: Random, items: Sequence[Choice]) -> Choice:
    """A uniformly random item. Only `Random.random` is the same in every version of Python."""
    return items[int(len(items) * random.random())]


def ranked(random: Random, items: Sequence[Choice]) -> Choice:
    """A random item, the r-th about 1/r as likely as the first: Zipf's law."""
    return items[int((len(items) + 1) ** random.random()) - 1]


def plural(word: str) -> str:
    """The plural of an English noun.

    >>> plural("query"), plural("index"), plural("key")
    ('queries', 'indexes', 'keys')
    """
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    return word[:-1] + "ies" if re.search("[^aeiou]y$", word) else word + "s"


ONSETS = "b br c cl d dr f fl g gr h j k kl l m n p pr qu r s sk st t tr v w x z th sh"
VOWELS = "a e i o u a e i o u ai ea io oo y"
CODAS = "- - - l n r s x t m rk nd sh lt"  # "-" for none


def pseudoword(random: Random) -> str:
    """An invented word of two or three syllables."""
    return "".join(_syllable(random) for _ in range(2 + (random.random() < 0.3)))


def _syllable(random: Random) -> str:
    return "".join(pick(random, sounds) for sounds in _sounds())


@functools.cache
def _sounds() -> Sequence[Sequence[str]]:
    return [sounds.replace("-", "").split(" ") for sounds in (ONSETS, VOWELS, CODAS)]


@functools.cache
def terms(topic: str) -> list[str]:
    """The technical terms, ordered by their rank in that topic."""
    words = [prefix + stem for prefix in PREFIXES.split() for stem in STEMS.split()]
    return sorted(words, key=lambda word: Random(f"term {topic} {word}").random())


@functools.lru_cache(maxsize=1 << 16)
def tool(seed: int, topic: str, rank: int) -> str:
    """The name of the tool of that rank in a topic; negative ranks are each month's new tools."""
    random = Random(f"tool {seed} {topic} {rank}")
    name = pseudoword(random) + pick(random, ["", "", "", "", "db", "ly", "kit", "ctl", "io", "sync", "lab", "-ng"])
    style = pick(random, ["capital"] * 5 + ["small"] * 3 + ["lib", "py", "upper"])
    if style == "upper":
        return name[:4].upper()
    return {"capital": name.capitalize(), "small": name}.get(style, style + name)


@functools.lru_cache(maxsize=1 << 14)
def person(seed: int, rank: int) -> str:
    """The name of a person; some have an accent."""
    random = Random(f"person {seed} {rank}")
    name = _syllable(random) + pick(random, ["a", "o", "e", "i", ""])
    if random.random() < 0.12:
        name = name.translate(str.maketrans("aeou", "áéöü"))
    return name.capitalize()
