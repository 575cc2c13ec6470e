"""Everything that left the clients: each release with its epsilon and its noise."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.console import Console, RenderableType

from blindsight.accounting.guarantee import round_up
from blindsight.inspection.sections import Facts
from blindsight.samples import as_json
from blindsight.wording import number

__all__ = ["Releases"]

TITLES = {
    "what": "release",
    "epsilon": "epsilon of this release",
    "noise_std": "noise (std)",
    "coordinates": "coordinates",
}


@dataclasses.dataclass(frozen=True)
class Releases:
    """All releases, each with its own epsilon, noise and number of coordinates."""

    key: ClassVar[str] = "releases"
    template: ClassVar[str] = "sections/releases.html"
    releases: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(as_json.plain(release) for release in self.releases))

    def to_dict(self) -> list[Any]:
        """Plain values for JSON."""
        return list(self.releases)

    @classmethod
    def from_dict(cls, value: Sequence[Mapping[str, Any]]) -> "Releases":
        """The section that `to_dict` was called on."""
        return cls(tuple(value))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """Nothing: the terminal shows their total."""
        yield from ()

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """A table with a column for each fact of any release."""
        if not self.releases:
            return None
        names = dict.fromkeys([*TITLES, *(name for release in self.releases for name in release)])
        names = [name for name in names if any(release.get(name) is not None for release in self.releases)]
        return {
            "is_private": report.guarantee.is_private,
            "coverage": report.coverage,
            "columns": [{"title": TITLES.get(name, name), "is_number": self._is_number(name)} for name in names],
            "rows": [[_cell(name, release.get(name)) for name in names] for release in self.releases],
        }

    def _is_number(self, name: str) -> bool:
        values = [release.get(name) for release in self.releases]
        return not any(isinstance(value, str | list | dict) for value in values)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name == "epsilon":
        return round_up(value)
    return f"{value:,}" if isinstance(value, int) else number(value, 4)
