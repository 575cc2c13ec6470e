"""The authors of the `forum`: their writing styles, applied to sentences."""

import re
from random import Random
from typing import NamedTuple

from blindsight.data.embedded.grammar import person, pick, pseudoword
from blindsight.data.embedded.topics import TOPICS

__all__ = ["Author", "meet", "put", "slip"]

FILLERS = ["basically,", "tbh", "also", "anyway,", "by the way,", "imho", "so", "ok,", "actually", "in short:", "hm,"]
EMOTICONS = [":)", ";)", ":(", ":D", "^^", ":/", "xD"]
CONTRACTIONS = {
    "do not": "don't",
    "does not": "doesn't",
    "did not": "didn't",
    "cannot": "can't",
    "is not": "isn't",
    "was never": "wasn't ever",
    "I am": "I'm",
    "it is": "it's",
    "that is": "that's",
    "I would": "I'd",
    "I will": "I'll",
    "should not": "shouldn't",
}
CONTRACTIBLE = re.compile("|".join(rf"\b{words}\b" for words in CONTRACTIONS) + "|I have(?= been| tried)")


class Author(NamedTuple):
    """An author's style, the same in all their posts."""

    name: str
    town: str
    friends: list[str]
    topics: list[str]  # the favourite first
    tools: list[int]  # ranks of their favourite tools, in any topic
    own: list[str]  # names of their machines and scripts, used by nobody else
    taste: int  # which sentences they prefer
    thorough: float  # fraction of optional sentences they write
    greets: float
    signs: float
    filler: str
    fills: float
    emoticon: str
    smiles: float
    case: str
    stop: str
    exclaims: float
    contracts: bool
    apostrophe: str
    typos: float  # per word


def meet(random: Random, seed: int) -> Author:
    """A random author; authors of the same `seed` share tools and people."""
    throw = random.random
    return Author(
        name=person(seed, int(3000 ** throw())),
        town=pseudoword(random).capitalize() + pick(random, ["burg", "ford", "ville", "stad", "haven", ""]),
        friends=[person(seed, int(3000 ** throw())) for _ in range(4)],
        topics=[pick(random, list(TOPICS)) for _ in range(1 + int(3 * throw()))],
        tools=[int(20_000 ** throw()) for _ in range(4)],
        own=[pseudoword(random) + pick(random, ["", "", "-box", "", "2", "_old"]) for _ in range(3)],
        taste=int(1000 * throw()),
        thorough=throw(),
        greets=max(0.0, throw() - 0.4),
        signs=max(0.0, throw() - 0.5),
        filler=pick(random, FILLERS),
        fills=0.25 * throw() ** 3,
        emoticon=pick(random, EMOTICONS),
        smiles=max(0.0, 0.5 * throw() - 0.3),
        case=pick(random, ["kept"] * 14 + ["lower"] * 5 + ["careless"] * 3),
        stop=pick(random, ["."] * 14 + [""] * 4 + ["..."] * 2),
        exclaims=0.3 * throw() ** 4,
        contracts=throw() < 0.75,
        apostrophe=pick(random, ["'"] * 7 + ["\u2019"] * 2 + [""] * 2),
        typos=0.04 * throw() ** 3,
    )


def put(random: Random, author: Author, sentence: str) -> str:
    """A sentence in this author's style."""
    if random.random() < author.fills:
        sentence = f"{author.filler} {sentence}"
    if author.contracts:
        sentence = CONTRACTIBLE.sub(lambda match: CONTRACTIONS.get(match[0], "I've"), sentence)
    if author.case == "kept":
        sentence = sentence[0].upper() + sentence[1:]
    if sentence[-1] not in "?!":
        sentence += "!" if random.random() < author.exclaims else author.stop or pick(random, ["", ",", ""])
    return f"{sentence} {author.emoticon}" if random.random() < author.smiles else sentence


def slip(random: Random, author: Author, text: str) -> str:
    """The text with the author's capitalisation, apostrophes and typos."""
    if author.case == "lower":
        text = text.lower()
    text = text.replace("'", author.apostrophe)
    words = text.split(" ")
    for _ in range(int(author.typos * len(words) + random.random())):
        place = int(random.random() * len(words))
        words[place] = _mistyped(random, words[place])
    return " ".join(words)


def _mistyped(random: Random, word: str) -> str:
    """The word with two letters swapped, or one dropped or doubled."""
    if len(word) < 4 or not word.isalpha():
        return word
    at = 1 + int(random.random() * (len(word) - 2))
    before, letter, after, rest = word[:at], word[at], word[at + 1], word[at + 2 :]
    return before + pick(random, [after + letter, after, letter + letter + after]) + rest
