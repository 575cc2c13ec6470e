"""The section on clients against public data: shares on both sides, groups of images, words and phrases.

All of it was released, or computed from releases and public data. It is read without JAX.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape

from blindsight.inspection.sections import Facts
from blindsight.inspection.unknowns.section import Rate
from blindsight.pages.bars import Bar, BarTable, Row, one_scale, share_bar
from blindsight.pages.filters import arm
from blindsight.samples import as_json, gallery
from blindsight.wording import percent

__all__ = ["BiasSection", "Compared", "Direction", "ImageGroup", "Word"]

Direction = Literal["more", "less", "alike"]
"""Whether its share is larger in serving than in training, or smaller, or no difference was detected."""

TRAINING, SERVING = 0, 1  # places of the two sides among the arms
QUIET = 6  # lines of one table without a difference, before the rest is folded
LISTED = 10  # words and phrases on the terminal
RESULTS = {"more": "confirmed by clients", "less": "less frequent in serving", "alike": "not confirmed by clients"}
_OLD_SUBJECTS = {"habit": "style", "kind": "group", "region of pictures": "region of images"}  # as older reports say
TITLES = {
    "class": "Classes",
    "style": "Styles: clients whose mean lies beyond nearly all training clients",
    "region of images": "Regions of images",
}


@dataclasses.dataclass(frozen=True)
class Compared:
    """One share on both sides with 95 % intervals; `subject` is class, style, group, likelihood, model or a field."""

    subject: str
    name: str
    serving: Rate
    training: Rate
    verdict: Direction


@dataclasses.dataclass(frozen=True, eq=False)
class ImageGroup:
    """A group of similar synthetic images that is over-represented in serving; its share is in `compared`.

    `ratio` is the typical density ratio of serving to training by the discriminator; `samples` are bytes.
    """

    compared: Compared
    ratio: float
    samples: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; images as PNG in base64."""
        images = as_json.pictures_to(self.samples)
        return {"compared": dataclasses.asdict(self.compared), "ratio": self.ratio, "samples": images}


class Word(NamedTuple):
    """A word of unlikely sentences: the noisy number of clients using it there, and that expected from training."""

    word: str
    clients: float
    expected: float


@dataclasses.dataclass(frozen=True, eq=False)
class BiasSection:
    """Serving compared with training; `reference` names the public data, `clients` is their number of clients."""

    key: ClassVar[str] = "bias"
    template: ClassVar[str] = "sections/bias.html"
    reference: str
    clients: int
    compared: tuple[Compared, ...]
    groups: tuple[ImageGroup, ...] = ()
    words: tuple[Word, ...] | None = None
    phrases: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, from which `from_dict` makes the same."""
        return {
            "reference": self.reference,
            "clients": self.clients,
            "compared": [dataclasses.asdict(one) for one in self.compared],
            "groups": [group.to_dict() for group in self.groups],
            "words": None if self.words is None else [list(word) for word in self.words],
            "phrases": None if self.phrases is None else list(self.phrases),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "BiasSection":
        """What `to_dict` was called on."""
        words, phrases = value["words"], value["phrases"]
        return cls(
            reference=value["reference"],
            clients=value["clients"],
            compared=tuple(map(_compared, value["compared"])),
            groups=tuple(
                ImageGroup(_compared(group["compared"]), group["ratio"], _pictures(group["samples"]))
                for group in (value["groups"] if "groups" in value else value["kinds"])  # older reports say kinds
            ),
            words=None if words is None else tuple(Word(*word) for word in words),
            phrases=None if phrases is None else tuple(phrases),
        )

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """Groups of images, words of unlikely sentences, and phrases of the second model."""
        for group in self.groups:
            one = group.compared
            shares = f"{percent(one.serving.value)} of serving, {percent(one.training.value)} of training"
            yield f"Group {escape(one.name)}: {shares}, {RESULTS[one.verdict]}"
        if self.words is not None:
            words = ", ".join(f"{one.word} {one.clients:,.0f} ({one.expected:,.0f})" for one in self.words[:LISTED])
            yield f"Words in unlikely sentences, clients (expected from training): {escape(words) or 'none'}"
        for phrase in (self.phrases or ())[:LISTED]:
            yield f"[dim]Generated by the second model:[/] {escape(phrase)}"

    def values(self, report: Facts) -> Mapping[str, object]:
        """Groups of images, words and phrases, and shares on both sides with what differs first."""
        by_subject: dict[str, list[Compared]] = {}
        for one in self.compared:
            if one.subject != "group":
                by_subject.setdefault(one.subject, []).append(one)
        words = [_word(word) for word in self.words or ()]
        return {
            "groups": _groups(self.groups),
            "words": None if self.words is None else BarTable(words, least=1.0, unit="clients"),
            "phrases": self.phrases,
            "reference": self.reference,
            "clients": self.clients,
            "compared": _panels(by_subject),
            "tests": len(self.compared),
        }


def _groups(groups: Sequence[ImageGroup]) -> list[dict[str, object]]:
    """The groups, their shares on one scale."""
    tables = one_scale([_table([group.compared]) for group in groups])
    return [
        {
            "name": group.compared.name,
            "result": RESULTS[group.compared.verdict],
            "table": table,
            "samples": [gallery.png(gallery.stamped(image)) for image in group.samples],
        }
        for group, table in zip(groups, tables, strict=True)
    ]


def _word(word: Word) -> Row:
    note = f"expected from training: {word.expected:,.0f}"
    return Row(word.word, [Bar(word.clients, arm(SERVING), f"{word.clients:,.0f}", note=note)])


def _panels(by_subject: Mapping[str, Sequence[Compared]]) -> list[dict[str, object]]:
    """A panel of every subject with what differs first and most of what does not folded, all on one scale."""
    parts = list[BarTable]()
    for lines in by_subject.values():
        ordered = sorted(lines, key=lambda one: one.verdict == "alike")
        first = max(QUIET, sum(one.verdict != "alike" for one in ordered))
        parts += [_table(ordered[:first]), _table(ordered[first:])]
    scaled = one_scale(parts)
    shown = zip(by_subject, scaled[::2], scaled[1::2], strict=True)
    return [{"title": TITLES.get(subject, subject), "first": first, "rest": rest} for subject, first, rest in shown]


def _table(lines: Sequence[Compared]) -> BarTable:
    rows = list[Row]()
    for one in lines:
        sides = ((one.serving, SERVING), (one.training, TRAINING))
        bars = [share_bar(rate.value, place, rate.low, rate.high) for rate, place in sides]
        rows.append(Row(one.name, bars, stands_out=one.verdict != "alike"))
    return BarTable(rows, least=0.02)


def _pictures(value: Any) -> np.ndarray:
    images = as_json.pictures_from(value)
    return np.zeros((0, 1, 1), np.uint8) if images is None else images


def _compared(value: Mapping[str, Any]) -> Compared:
    sides = {side: Rate(*value[side]) for side in ("serving", "training")}
    subject: str = value["subject"] if "subject" in value else value["about"]
    if "subject" not in value:
        subject = _OLD_SUBJECTS.get(subject, subject)
    return Compared(subject, value["name"], verdict=value["verdict"], **sides)
