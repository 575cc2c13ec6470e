"""`forum`: short technical posts by synthetic authors, from a grammar and each author's style.

Each author has preferred topics, a typical length, a style of greeting, punctuation and typos, favourite tools, and
names that no other author uses. Tools and people have invented names with a long-tailed distribution, and each month
every topic has a new tool that many authors mention. No post was written by a person.
"""

import functools
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from blindsight.data.dice import Dice
from blindsight.data.embedded import grammar
from blindsight.data.embedded.author import Author, meet, put, slip
from blindsight.data.embedded.grammar import CompiledSentence, compile_sentence, expand, pick, ranked
from blindsight.data.embedded.phrases import PLANS, SENTENCES
from blindsight.data.embedded.sizes import Range, least_and_most, skewed_sizes
from blindsight.data.embedded.topics import ADJECTIVES, TOPICS
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import TEXT, Columns, as_text

__all__ = ["forum"]

START = 1_640_995_200  # 2022-01-01
YEAR, MONTH, SPAN = 31_557_600, 2_629_800, 2  # seconds, and the number of years covered
TOPIC_NAMES = tuple(TOPICS)
WHEN = ["yesterday", "last week", "two days ago", "in spring", "over the weekend", "last year", "on Friday"]
WHEN2 = ["Monday", "the weekend", "my holiday", "the exam", "winter", "the next release"]


def forum(clients: int = 1000, *, seed: int = 0, examples: Range = (3, 60)) -> GeneratedPopulation:
    """Authors and their short technical posts: `text`, `topic` and `time` (seconds since 1970, in order).

    `examples` are the minimum and maximum number of posts per author. Synthetic.
    """
    span = least_and_most(examples)
    dice = Dice(seed, "forum")
    everyone = np.arange(clients)
    return GeneratedPopulation(
        functools.partial(_draw, dice, span),
        sizes=skewed_sizes(dice, span, everyone),
        ids=np.strings.add("author-", as_text(everyone)),
        name="forum",
        recipe=("forum", dice.seed, span),
        classes={"topic": TOPIC_NAMES},
        synthetic=True,
    )


def _draw(dice: Dice, examples: Range, clients: np.ndarray) -> Columns:
    """The posts of these clients. All of an author's posts follow from one throw that depends only on the author."""
    words = dice.words("author", clients).tolist()
    texts: list[str] = []
    topics: list[int] = []
    times: list[int] = []
    for word, size in zip(words, skewed_sizes(dice, examples, clients).tolist(), strict=True):
        random = Random(word)
        author = meet(random, dice.seed)
        since = random.random() * 0.8 * SPAN
        for time in sorted(START + int(YEAR * (since + random.random() * (SPAN - since))) for _ in range(size)):
            topic = ranked(random, author.topics) if random.random() < 0.88 else pick(random, TOPIC_NAMES)
            texts.append(_Post(random, dice.seed, author, topic, time).text())
            topics.append(TOPIC_NAMES.index(topic))
            times.append(time)
    return {
        "text": np.array(texts, dtype=TEXT),
        "topic": np.array(topics, dtype=np.int32),
        "time": np.array(times, dtype=np.int64),
    }


class _Post:
    """A post about one subject: the same tools and the same thing throughout."""

    def __init__(self, random: Random, seed: int, author: Author, topic: str, time: int) -> None:
        self.random, self.seed, self.author, self.topic, self.time = random, seed, author, topic, time
        self.done = ""
        thing, tool = self._word("things"), self._tool()
        self.matter = {
            "tool": tool,
            "other": self._another(tool, self._tool),
            "version": f"{int(1 + 6 * random.random() ** 2)}.{int(10 * random.random())}",
            "thing": thing,
            "things": grammar.plural(thing),
        }

    def text(self) -> str:
        random, author = self.random, self.author
        plan = _plans()[int(1000 * random.random())]
        kinds = [kind for kind, optional in plan if not optional or random.random() < author.thorough]
        sentences = [put(random, author, self._sentence(kind)) for kind in kinds]
        if random.random() < author.greets:
            greeting = _sentences("greeting")[author.taste % len(SENTENCES["greeting"])]
            sentences[0] = (
                expand(greeting, random, self._slot).capitalize() + pick(random, [",\n", "! "]) + sentences[0]
            )
        if random.random() < author.signs:
            farewell = _sentences("signoff")[author.taste % len(SENTENCES["signoff"])]
            sentences.append(expand(farewell, random, self._slot).capitalize())
        text = " ".join(sentences)
        for vowel in "aeio":
            text = text.replace(f" a {vowel}", f" an {vowel}")
        return slip(random, author, text)

    def _sentence(self, kind: str) -> str:
        """Half of the time a sentence that the author prefers, otherwise any."""
        choices, throw = _sentences(kind), 2 * self.random.random()
        liked = self.author.taste + int(len(choices) ** throw)
        place = liked if throw < 1 else int(len(choices) * (throw - 1))
        sentence = expand(choices[place % len(choices)], self.random, self._slot)
        if sentence[-1] not in "?!" and self.random.random() < 0.13:
            sentence += ", " + expand(pick(self.random, _sentences("aside")), self.random, self._slot)
        return sentence

    def _slot(self, name: str) -> str:
        if name in self.matter:
            return self.matter[name]
        random, author = self.random, self.author
        match name:
            case "act" | "act2":
                self.done = self._another(self.done, lambda: self._word("acts"))
                return self.done
            case "thing2":
                return self._qualified(self._word("things"))
            case "things2":
                return grammar.plural(self._word("things"))
            case "fails":
                return self._word("fails")
            case "error":
                return self._word("errors")
            case "place":
                return self._word("places")
            case "adjective":
                return ranked(random, _adjectives())
            case "term" | "term2":
                return ranked(random, grammar.terms(self.topic))
            case "few":
                return str(2 + int(11 * random.random() ** 2))
            case "number":
                return str(2 + int(10 ** (3 * random.random() ** 1.5)))
            case "when":
                return pick(random, WHEN)
            case "when2":
                return pick(random, WHEN2)
            case "own":
                return pick(random, author.own)
            case "friend":
                return pick(random, author.friends)
            case "town":
                return author.town
            case _:  # "self"
                return author.name

    def _word(self, kind: str) -> str:
        return expand(ranked(self.random, _words(self.topic, kind)), self.random, self._slot)

    def _another(self, than: str, draw: Callable[[], str]) -> str:
        """A draw that nearly always differs from `than`."""
        drawn = draw()
        return draw() if drawn == than else drawn

    def _qualified(self, thing: str) -> str:
        """The thing, sometimes qualified by a technical term, an adjective or a tool."""
        throw = self.random.random()
        if throw < 0.22:
            return f"{self._slot('term')} {thing}"
        if throw < 0.36:
            return f"{self._slot('adjective')} {thing}"
        return f"{self._tool()} {thing}" if throw < 0.46 else thing

    def _tool(self) -> str:
        """Often one of the author's favourites; otherwise any, or a recent new one."""
        throw = self.random.random()
        if throw < 0.55:
            rank = pick(self.random, self.author.tools)
        elif throw < 0.85:
            rank = int(20_000 ** self.random.random())
        else:
            rank = -1 - max(0, (self.time - START) // MONTH - int(3 * self.random.random() ** 2))
        return grammar.tool(self.seed, self.topic, rank)


@functools.cache
def _sentences(kind: str) -> list[CompiledSentence]:
    return [compile_sentence(sentence) for sentence in SENTENCES[kind]]


@functools.cache
def _words(topic: str, kind: str) -> list[CompiledSentence]:
    separator = ", " if kind == "things" else "; "
    return [compile_sentence(word) for word in TOPICS[topic][kind].split(separator)]


@functools.cache
def _adjectives() -> Sequence[str]:
    return ADJECTIVES.split()


@functools.cache
def _plans() -> list[list[tuple[str, bool]]]:
    """A thousand plans with the types of post in proportion: types of sentences, and whether each is optional."""
    plans: list[list[tuple[str, bool]]] = []
    for share, plan in PLANS.values():
        plans += [[(word.rstrip("?"), word.endswith("?")) for word in plan.split()]] * round(1000 * share)
    return plans
