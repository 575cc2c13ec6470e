"""Privacy bugs that the laws must catch, as `planted.toml` lists them: what changes where, and who must notice."""

import dataclasses
import tomllib
from pathlib import Path

__all__ = ["Plant", "Uprooted", "listed"]

LIST = Path(__file__).with_name("planted.toml")


class Uprooted(Exception):
    """The text that a bug is planted in is not in its file, or not once."""


@dataclasses.dataclass(frozen=True)
class Plant:
    """A bug: what changes in a file, and the test that must fail then."""

    name: str
    file: str
    law: str
    changes: tuple[tuple[str, str], ...]

    def planted(self, source: str) -> str:
        """The source with the bug in it."""
        for old, new in self.changes:
            if (count := source.count(old)) != 1:
                raise Uprooted(
                    f"{self.name!r} replaces a text that occurs {count} times in {self.file}, not once: {old!r}. Plant "
                    f"the same bug in what stands there now: see {LIST.name}"
                )
            source = source.replace(old, new)
        return source


def listed() -> list[Plant]:
    """All plants, in the order of the list."""
    found = tomllib.loads(LIST.read_text(encoding="utf-8"))["plant"]
    return [
        Plant(one["name"], one["file"], one["law"], tuple((edit["old"], edit["new"]) for edit in one["change"]))
        for one in found
    ]
