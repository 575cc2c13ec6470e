"""The report of an inspection: one value with many faces, each of which carries its guarantee.

The library returns it, the command line prints it, a notebook shows it, `save` writes it as one HTML file that opens
offline, `save_json` as its twin for machines, `save_samples` as Parquet. All that is in it was released under the
guarantee or computed from such releases; what was read off data without noise (`simulation_only`) is refused.
"""

import dataclasses
import datetime
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult

from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.so_far import SpentSoFar
from blindsight.errors import InvalidInput
from blindsight.inspection import simulation_only
from blindsight.inspection.bias.section import Bias
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.unknowns.section import Unknowns
from blindsight.runs import write_whole
from blindsight.samples import as_json
from blindsight.samples.views import ArmView

__all__ = ["ArmView", "Report"]

FORMAT = 1
_FEW = 0.1  # of an arm's clients: so few votes may be for something that is only like the cause


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Report:
    """Everything an inspection found, and what it cost.

    **Guarantee**: `guarantee` covers all of it, for every number and picture is a release or computed from releases.
    `releases` says of each what it was, its epsilon alone, its noise and its number of coordinates; `population` holds
    what is public of the clients: `name`, `clients`, `classes`. `ledger` is what the ledger said of them over all runs
    when the report was made, for `guarantee` covers this run alone. `unknowns` is what a question about words found,
    `bias` what a comparison with public data did, and `answer` the answer where other things than differences were
    asked for.
    """

    title: str
    task: str
    question: str
    arms: tuple[ArmView, ...]
    findings: tuple[Finding, ...]
    diagnoses: tuple[Diagnosis, ...]
    guarantee: Guarantee
    releases: tuple[Mapping[str, Any], ...]
    population: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    ledger: tuple[SpentSoFar, ...] = ()
    unknowns: Unknowns | None = None
    bias: Bias | None = None
    answer: str = ""
    created: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )

    def __post_init__(self) -> None:
        simulation_only.refuse(self, "the report")
        for name in ("arms", "findings", "diagnoses", "notes", "ledger"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "releases", tuple(as_json.plain(release) for release in self.releases))
        object.__setattr__(self, "population", as_json.plain(self.population))
        _check_arms(self.arms)

    @property
    def named(self) -> tuple[Diagnosis, ...]:
        """The diagnoses that name a fault, the one with most clients first."""
        return tuple(sorted((one for one in self.diagnoses if one.fault != "none"), key=lambda one: -one.share))

    @property
    def outcome(self) -> Literal["fault", "difference", "nothing"]:
        """Whether a fault was named, or the arms differ in some way that no candidate explains, or neither."""
        if self.named:
            return "fault"
        return "difference" if any(_is_difference(one) for one in self.findings) else "nothing"

    @property
    def verdict(self) -> str:
        """The answer in one sentence, and the clearest finding in another where more than that was asked for."""
        if self.answer:
            return self.answer if self.outcome == "nothing" else f"{self.answer} {self._found}"
        return self._found

    @property
    def _found(self) -> str:
        if self.outcome == "fault":
            return self.named[0].statement + self._beside(self.named[0])
        if self.outcome == "difference":
            return self.ranked[0].statement
        missed = [one.smallest for one in self.findings if one.smallest is not None and math.isfinite(one.smallest)]
        if not missed:
            blind = any(one.kind in ("cue", "votes", "share") for one in self.findings)
            why = ", and none could have been: an arm has too few clients at this epsilon" if blind else ""
            return f"No difference was found{why}."
        share = f"{100 * min(missed):.2g} %"
        if self.bias is not None:
            return f"No difference was found. Less than {share} more of anything could not have been seen."
        return f"No difference was found. A fault on fewer than {share} of clients could not have been seen."

    def _beside(self, diagnosis: Diagnosis) -> str:
        """The clearest difference, where few clients voted: the cause may lie outside the library."""
        clearest = next((one for one in self.ranked if _is_difference(one) and one.kind == "cue"), None)
        if clearest is None or diagnosis.share >= _FEW:
            return ""
        return f" The clearest difference: {clearest.statement}"

    @property
    def ranked(self) -> tuple[Finding, ...]:
        """The findings: differences by how far they are from zero in widths of their intervals, then the rest."""

        def place(one: Finding) -> tuple[bool, bool, float]:
            surprise = abs(one.effect) / max(one.high - one.low, 1e-12)
            return not _is_difference(one), one.verdict != "found", -surprise

        return tuple(sorted(self.findings, key=place))

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do with the answer."""
        from blindsight.inspection import advice

        return advice.next_steps(self)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, where the population says them."""
        classes = self.population.get("classes") or ()
        if isinstance(classes, Mapping):
            classes = classes.get("label") or next(iter(classes.values()), ())
        return tuple(map(str, classes)) if isinstance(classes, list | tuple) else ()

    @property
    def coverage(self) -> tuple[str, ...]:
        """What the guarantee covers, and what the ledger says of all runs together: a sentence each."""
        count = self.guarantee.releases
        own = f"The guarantee covers this run's own {count:,} release{'' if count == 1 else 's'}, and no other run's."
        return (*((own,) if self.guarantee.is_private else ()), *map(str, self.ledger))

    def class_name(self, label: int) -> str:
        """The name of class `label`, or its number."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, from which `from_dict` makes the same report."""
        return {
            "format": FORMAT,
            "title": self.title,
            "task": self.task,
            "question": self.question,
            "outcome": self.outcome,
            "verdict": self.verdict,
            "arms": [arm.to_dict() for arm in self.arms],
            "findings": [as_json.plain(finding.to_dict()) for finding in self.findings],
            "diagnoses": [as_json.plain(diagnosis.to_dict()) for diagnosis in self.diagnoses],
            "guarantee": as_json.plain(self.guarantee.to_dict()),
            "releases": list(self.releases),
            "population": self.population,
            "notes": list(self.notes),
            "ledger": [one.to_dict() for one in self.ledger],
            "unknowns": None if self.unknowns is None else as_json.plain(self.unknowns.to_dict()),
            "bias": None if self.bias is None else as_json.plain(self.bias.to_dict()),
            "answer": self.answer,
            "created": self.created,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Report":
        """The report that `to_dict` was called on."""
        try:
            if value["format"] != FORMAT:
                raise InvalidInput("the report was written by a newer Blindsight: update to read it")
            return cls(
                title=value["title"],
                task=value["task"],
                question=value["question"],
                arms=tuple(ArmView.from_dict(arm) for arm in value["arms"]),
                findings=tuple(Finding.from_dict(finding) for finding in value["findings"]),
                diagnoses=tuple(Diagnosis.from_dict(diagnosis) for diagnosis in value["diagnoses"]),
                guarantee=Guarantee.from_dict(value["guarantee"]),
                releases=tuple(value["releases"]),
                population=value["population"],
                notes=tuple(value["notes"]),
                ledger=tuple(SpentSoFar.from_dict(one) for one in value.get("ledger", ())),
                unknowns=Unknowns.from_dict(value["unknowns"]) if value.get("unknowns") else None,
                bias=Bias.from_dict(value["bias"]) if value.get("bias") else None,
                answer=value.get("answer", ""),
                created=value["created"],
            )
        except InvalidInput:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"this is not the JSON of a report, or it is damaged: {error!r}") from error

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file, which asks for nothing else and opens anywhere; the path."""
        return write_whole(path, self.to_html())

    def save_json(self, path: str | Path) -> Path:
        """Write the twin of the report for machines; the path."""
        return write_whole(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def save_samples(self, folder: str | Path) -> Path:
        """Write the synthetic samples as `samples.parquet`, which `datasets` reads, beside a card; the folder."""
        from blindsight.samples import export

        return export.save_set(
            self.arms,
            Path(folder),
            title=self.title,
            guarantee=self.guarantee,
            classes=self.class_names,
            question=self.question,
            created=self.created,
        )

    def to_html(self) -> str:
        """The page that `save` writes."""
        from blindsight.inspection import page

        return page.render(self)

    def __repr__(self) -> str:
        return f"<Report {self.title!r}: {self.verdict}>"

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=120, color_system=None)
        with console.capture() as printed:
            console.print(self)
        return printed.get()

    def _repr_html_(self) -> str:
        from blindsight.inspection import page

        return page.embed(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from blindsight.inspection import terminal

        yield from terminal.lines(self, console)


def _is_difference(one: Finding) -> bool:
    """Whether something was found to differ; a threshold or a fidelity that was measured is no difference."""
    return one.verdict == "found" and one.kind in ("cue", "votes", "share")


def _check_arms(arms: tuple[ArmView, ...]) -> None:
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names):
        raise InvalidInput(f"a report is about one arm or several with names of their own, got {names}")
    shown = [arm for arm in arms if arm.samples is not None]
    if len({None if arm.samples is None else arm.samples.shape for arm in shown}) > 1:
        raise InvalidInput("arms are shown side by side from the same latents: draw equally many samples of one size")
    if any(not _same(arm.labels, shown[0].labels) for arm in shown):
        raise InvalidInput("arms are shown side by side in one order of classes: draw samples with the same labels")


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
