"""The public inputs of a question as bytes, by name, and back: what sites need besides the question itself."""

import json
from collections.abc import Mapping
from pathlib import Path

from blindsight.data import packing
from blindsight.data.population import Population, open_population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.question import Public
from blindsight.models import portable

__all__ = ["pack", "unpack", "vocabulary_from"]


def pack(public: Public) -> dict[str, bytes]:
    """Model, reference and vocabulary, as far as there are any."""
    packed: dict[str, bytes] = {}
    if public.model is not None:
        packed["model"] = portable.pack(public.model)
    if public.reference is not None:
        packed["reference"] = packing.pack(public.reference)
    if public.vocabulary is not None:
        packed["vocabulary"] = json.dumps(public.vocabulary.words).encode()
    return packed


def unpack(inputs: Mapping[str, bytes], folder: Path, *, seed: bytes) -> Public:
    """The public inputs that were packed; the reference is kept in `folder`, or is there from an earlier start."""
    return Public(
        model=portable.unpack(inputs["model"]) if "model" in inputs else None,
        reference=_reference(inputs["reference"], folder) if "reference" in inputs else None,
        vocabulary=vocabulary_from(inputs["vocabulary"]) if "vocabulary" in inputs else None,
        seed=seed,
    )


def _reference(data: bytes, folder: Path) -> Population:
    return open_population(folder) if (folder / "population.json").exists() else packing.unpack(data, folder)


def vocabulary_from(data: bytes) -> Vocabulary:
    """The vocabulary that was packed; anything else is refused."""
    try:
        words = json.loads(data)
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidInput("a vocabulary is sent as a JSON list of words")
    return Vocabulary(tuple(words))
