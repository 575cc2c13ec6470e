"""What a rater still has to label, in the rater's own order, and the keys of the classes."""

import base64
import functools
import hashlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

from blindsight.errors import InvalidInput
from blindsight.samples import gallery
from blindsight.samples.synthetic_set import Sample
from blindsight.studio.agreeing import agreement
from blindsight.studio.labels import Decision, Labels, check_rater, now

__all__ = ["Queue", "check_keys", "default_keys"]

_WIDTH = 392  # of the image on the page, in pixels
_SPARE = "1234567890" + string.ascii_lowercase + string.ascii_uppercase
_SKIP, _UNDO = ("s", "-", "/"), ("u", "=", "\\")  # the first key that is not a class name


class Queue:
    """The samples of a set in the order of one rater.

    Each rater has a different order, so raters who stop early cover different samples. It is derived from the name, so
    it is the same after a crash. Other raters' labels stay hidden until the queue is empty.
    """

    def __init__(self, labels: Labels, rater: str, *, shows_proposals: bool = True) -> None:
        check_rater(rater)
        self._shows_proposals = shows_proposals
        self.labels, self.rater = labels, rater
        self._order = sorted(labels.dataset.samples, key=self._place)
        self.keys = labels.keys.get(rater) or default_keys(labels.classes)
        if check_keys(self.keys, labels.classes) is not None:  # the classes have changed since the keys were stored
            self.keys = default_keys(labels.classes)

    def _place(self, sample: Sample) -> bytes:
        return hashlib.sha256(f"{self.labels.dataset.identity}\n{self.rater}\n{sample.sample_id}".encode()).digest()

    @property
    def left(self) -> list[Sample]:
        """What is still to be labelled, in order."""
        stands = self.labels.standing(self.rater)
        return [sample for sample in self._order if sample.sample_id not in stands]

    @property
    def next(self) -> Sample | None:
        """The next sample, or None if nothing is left."""
        stands = self.labels.standing(self.rater)
        return next((sample for sample in self._order if sample.sample_id not in stands), None)

    def decide(self, sample_id: str, label: str | None, seconds: float) -> None:
        """Label or skip (None) a sample; on disk when this returns."""
        if sample_id in self.labels.standing(self.rater):
            raise InvalidInput("this example is already labelled, perhaps in another window: continue with the next")
        self.labels.add([Decision(sample_id, self.rater, label, seconds, now())])

    def undo(self) -> None:
        """Undo the last decision, from any window; does nothing if there is none."""
        stands = self.labels.standing(self.rater)
        if stands:
            last = stands[next(reversed(stands))]
            self.labels.add([Decision(last.sample_id, self.rater, last.label, 0.0, now(), undone=True)])

    def remap(self, keys: Any) -> None:
        """Use other keys, and remember them."""
        if (wrong := check_keys(keys, self.labels.classes)) is not None:
            raise InvalidInput(wrong)
        self.keys = keys
        self.labels.remember(self.rater, keys)

    def state(self) -> dict[str, Any]:
        """The state that the page shows."""
        dataset, stands, sample = self.labels.dataset, self.labels.standing(self.rater), self.next
        counts = dict.fromkeys(self.labels.classes, 0)
        for one in stands.values():
            if one.label is not None:
                counts[one.label] += 1
        skipped = sum(one.label is None for one in stands.values())
        fields: dict[str, Any] = {
            "title": dataset.title,
            "rater": self.rater,
            "guarantee": str(dataset.guarantee),
            "explained": dataset.guarantee.explain(),
            "is_private": dataset.guarantee.is_private,
            "instructions": self.labels.instructions,
            "classes": list(self.labels.classes),
            "keys": self.keys,
            "total": len(dataset.samples),
            "labelled": len(stands) - skipped,
            "skipped": skipped,
            "counts": counts,
            "sample": None if sample is None else self._shown(sample),
        }
        if sample is None:
            fields["agreement"] = agreement(Labels(dataset, self.labels.classes)).to_dict()  # as it is now
        return fields

    def _shown(self, sample: Sample) -> dict[str, Any]:
        dataset = self.labels.dataset
        return {
            "id": sample.sample_id,
            "picture": None if sample.picture is None else _stamped(sample.picture),
            "row": None if sample.row is None else dataset.in_words(sample.row),
            "proposed": sample.proposed if self._shows_proposals else None,
            "score": sample.score if self._shows_proposals else None,
            "proposer": dataset.proposer,
        }


@functools.lru_cache(maxsize=64)
def _stamped(picture: bytes) -> str:
    """The image, enlarged, with the word "synthetic" below as part of it, so that copies carry it."""
    large = gallery.png(gallery.stamped(gallery.from_png(picture), width=_WIDTH))
    return "data:image/png;base64," + base64.b64encode(large).decode("ascii")


def default_keys(classes: Sequence[str]) -> dict[str, Any]:
    """A key for every class: its name if that is one character, otherwise digits, then letters, then none."""
    own = {name for name in classes if _is_key(name)}
    skip, undo = (next(key for key in keys if key not in own) for keys in (_SKIP, _UNDO))
    spare = iter(key for key in _SPARE if key not in own and key not in (skip, undo))
    return {"classes": {name: name if name in own else next(spare, "") for name in classes}, "skip": skip, "undo": undo}


def check_keys(keys: Any, classes: Sequence[str]) -> str | None:
    """The problem with these keys, if any."""
    if not isinstance(keys, Mapping) or set(keys) != {"classes", "skip", "undo"}:
        return "give keys for classes, skip and undo"
    by_class = keys["classes"]
    if not isinstance(by_class, Mapping) or set(by_class) != set(classes):
        return "every class needs a key, and nothing else may have one"
    used = [*(key for key in by_class.values() if key != ""), keys["skip"], keys["undo"]]
    if not all(_is_key(key) for key in used):
        return "a key must be one printable character other than a space or a question mark"
    return None if len(set(used)) == len(used) else "one key cannot have two meanings"


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and len(key) == 1 and key.isprintable() and key not in " ?"
