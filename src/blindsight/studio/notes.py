"""Notes and tags that people keep with a run: `studio.json` in its folder, which nothing else reads."""

import dataclasses
import re
from collections.abc import Sequence

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.runs import Run

__all__ = ["FILE", "RunNotes", "read_notes", "save_notes"]

FILE = "studio.json"
_LONGEST, _MOST_TAGS = 10_000, 20
_TAG = re.compile(r"[^\s,]{1,40}")


@dataclasses.dataclass(frozen=True)
class RunNotes:
    """A note in plain text, and tags."""

    text: str = ""
    tags: tuple[str, ...] = ()


def read_notes(run: Run) -> RunNotes:
    """The notes of a run; none if the file is missing or was damaged."""
    if not (run.path / FILE).exists():
        return RunNotes()
    try:
        stored = run.read(FILE)
        tags = stored.get("tags", [])
        return RunNotes(str(stored.get("note", "")), tuple(map(str, tags)) if isinstance(tags, list) else ())
    except (BlindsightError, AttributeError, OSError, UnicodeDecodeError):
        return RunNotes()


def save_notes(run: Run, text: str, tags: Sequence[str]) -> RunNotes:
    """Keep these notes and return them; tags are words, each once."""
    text = text.replace("\r\n", "\n").strip()
    if len(text) > _LONGEST:
        raise InvalidInput(f"a note has at most {_LONGEST:,} characters, got {len(text):,}: shorten it")
    chosen = tuple(dict.fromkeys(tags))
    if len(chosen) > _MOST_TAGS or not all(_TAG.fullmatch(tag) and tag.isprintable() for tag in chosen):
        raise InvalidInput(f"tags are at most {_MOST_TAGS} words of up to 40 characters, without commas")
    run.write(FILE, {"note": text, "tags": list(chosen)})
    return RunNotes(text, chosen)
