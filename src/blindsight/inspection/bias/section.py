"""What a report shows of a comparison with public data: shares on both sides, kinds of examples, words, phrases.

All of it was released, or computed from releases and public data. It is read without JAX.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from blindsight.inspection.unknowns.section import Rate
from blindsight.samples import as_json

__all__ = ["Bias", "Compared", "Kind", "Verdict", "Word"]

Verdict = Literal["more", "less", "alike"]
"""Whether serving has more of it than training, or less, or no difference was found."""


@dataclasses.dataclass(frozen=True)
class Compared:
    """One share on both sides with 95 % intervals; `about` says what is divided: class, habit, kind, likelihood ..."""

    about: str
    name: str
    serving: Rate
    training: Rate
    verdict: Verdict


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """Synthetic examples that resemble each other and are denser in serving; how many there are is in `compared`.

    `ratio` is the typical ratio of densities, serving to training, by the discriminator; `samples` are bytes.
    """

    compared: Compared
    ratio: float
    samples: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; pictures as PNG in base64."""
        pictures = as_json.pictures_to(self.samples)
        return {"compared": dataclasses.asdict(self.compared), "ratio": self.ratio, "samples": pictures}


class Word(NamedTuple):
    """A word of unlikely sentences: the noisy number of clients who use it there, and as many of public ones would."""

    word: str
    clients: float
    expected: float


@dataclasses.dataclass(frozen=True, eq=False)
class Bias:
    """Serving against training: `reference` are public data of so many `clients`."""

    reference: str
    clients: int
    compared: tuple[Compared, ...]
    kinds: tuple[Kind, ...] = ()
    words: tuple[Word, ...] | None = None
    phrases: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, from which `from_dict` makes the same."""
        return {
            "reference": self.reference,
            "clients": self.clients,
            "compared": [dataclasses.asdict(one) for one in self.compared],
            "kinds": [kind.to_dict() for kind in self.kinds],
            "words": None if self.words is None else [list(word) for word in self.words],
            "phrases": None if self.phrases is None else list(self.phrases),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Bias":
        """What `to_dict` was called on."""
        words, phrases = value["words"], value["phrases"]
        return cls(
            reference=value["reference"],
            clients=value["clients"],
            compared=tuple(map(_compared, value["compared"])),
            kinds=tuple(
                Kind(_compared(kind["compared"]), kind["ratio"], _pictures(kind["samples"])) for kind in value["kinds"]
            ),
            words=None if words is None else tuple(Word(*word) for word in words),
            phrases=None if phrases is None else tuple(phrases),
        )


def _pictures(value: Any) -> np.ndarray:
    found = as_json.pictures_from(value)
    return np.zeros((0, 1, 1), np.uint8) if found is None else found


def _compared(value: Mapping[str, Any]) -> Compared:
    sides = {side: Rate(*value[side]) for side in ("serving", "training")}
    return Compared(value["about"], value["name"], verdict=value["verdict"], **sides)
