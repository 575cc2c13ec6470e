"""Words that many clients use, as part of a question: paid for, kept in the run's folder, and read with intervals."""

import dataclasses
from typing import Any

import numpy as np
from scipy import special

from blindsight.accounting.events import to_json
from blindsight.accounting.guarantee import certify
from blindsight.algorithms.set_union import CHANCE, join_words, places_of
from blindsight.algorithms.vocabulary import own_words
from blindsight.inspection.asking.items import Item, Top
from blindsight.inspection.asking.question import Ask
from blindsight.inspection.asking.section import NamedEstimate, Slice, Statistic
from blindsight.inspection.session import Inquiry
from blindsight.mechanisms import GaussianMechanism

__all__ = ["Listing", "find_words", "listings_of"]

NOTE = (
    "Every client that uses a word adds 1/√n to its weight, where n, at most {most}, is the number of its words that "
    "count. So at least as many clients use a word as the lower end of its interval says."
)


@dataclasses.dataclass(frozen=True)
class Listing:
    """The list of words of one field, which takes a share of the precision."""

    item: Top
    coordinates: int

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"words of {self.item.field}"


def listings_of(question: Ask) -> tuple[Listing, ...]:
    """The lists of words that are asked for."""
    size = places_of(question.clients, question.most) if any(is_words(question, one) for one in question.items) else 0
    return tuple(Listing(one, size) for one in question.items if isinstance(one, Top) and is_words(question, one))


def is_words(question: Ask, item: Item) -> bool:
    """Whether the item is a list of words."""
    return isinstance(item, Top) and question.schema.fields[item.field].kind == "text"


def chance_of(question: Ask) -> float:
    """The delta of releasing a word that only one client has, over all lists."""
    return CHANCE * question.delta * len(listings_of(question))


def find_words(
    question: Ask, listing: Listing, mechanism: GaussianMechanism, inquiry: Inquiry, confidence: float
) -> Statistic:
    """One list of words: released now, or read from this run's folder."""
    file = f"words-{question.items.index(listing.item) + 1}.json"  # fields may have any name, and similar ones
    kept = inquiry.once(file, lambda: _released(question, listing, mechanism, inquiry), payers=inquiry.payers)
    # all words that clients could have had count: which of them are listed depends on their noise
    chance = -np.expm1(np.log(confidence) / listing.coordinates)
    wide = -float(special.ndtri(chance / 2)) * kept["release"]["noise_std"]
    rows = [
        NamedEstimate(
            word.replace("\u00a0", " "), weight, max(weight - wide, 0.0), min(weight + wide, float(question.clients))
        )
        for word, weight in kept["words"][: listing.item.k]
    ]
    return Statistic(
        "top", listing.item.field, "", "weight", (Slice("", tuple(rows)),), NOTE.format(most=question.most)
    )


def _released(question: Ask, listing: Listing, mechanism: GaussianMechanism, inquiry: Inquiry) -> dict[str, Any]:
    own = own_words(inquiry.clients, field=listing.item.field, case=question.case, known=inquiry.public.vocabulary)
    joined = join_words(
        own,
        mechanism,
        most=question.most,
        chance=CHANCE * question.delta,
        key=inquiry.root.derive(f"ask {listing.name}"),
        ledger=inquiry.ledger,
        population=inquiry.payers,
        run=inquiry.run_id,
    )
    release = {
        "what": listing.name,
        "epsilon": certify(joined.event, delta=question.delta).epsilon,
        "noise_std": joined.noise_std,
        "coordinates": listing.coordinates,
        "threshold": joined.threshold,
    }
    pairs = zip(joined.words, joined.weights.tolist(), strict=True)
    return {
        "words": [list(pair) for pair in pairs],
        "event": to_json(joined.event),
        "release": release,
    }
