"""`unknowns` (T3): more words are missing from a vocabulary; which ones, and why?"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspection.question import Question
from blindsight.inspection.unknowns.models import WordTraining

__all__ = ["Unknowns"]


def _training(value: Mapping[str, Any] | None) -> WordTraining | None:
    return None if value is None else WordTraining(**value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unknowns(Question):
    """Which words does the vocabulary with this digest lack after a change, and why?

    On each side at most `most` sentences of a client count. `discover` lists unknown words that many clients use;
    `training` trains language models of both sides, which generate sentences and unknown words.
    """

    vocabulary: str
    words: int
    case: Case = "lower"
    most: int = 200
    discover: bool = False
    training: WordTraining | None = None

    task: ClassVar[str] = "unknowns"
    server: ClassVar[str] = "blindsight.inspection.unknowns.task"
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"training": _training}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.case not in ("lower", "keep"):
            raise InvalidInput(f"case must be lower or keep, got {self.case!r}")
        if self.most < 1:
            raise InvalidInput(f"most must be at least one sentence, got {self.most}")

    @property
    def title(self) -> str:
        return "What are these unknown words?"

    def sentence(self, name: str) -> str:
        return f"Which words of {name} does a vocabulary of {self.words:,} words lack after the change, and why?"
