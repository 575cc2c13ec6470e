"""The report of an inspection: a guarantee and a list of sections, with a JSON, a terminal and an HTML form.

The library returns it, the command line prints it, a notebook shows it, `save` writes it as one HTML file that opens
offline, `save_json` as JSON, `save_samples` as Parquet. Everything in it was released under the guarantee or computed
from such releases; values computed from data without noise (`simulation_only`) are refused.
"""

import dataclasses
import datetime
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Unpack

from markupsafe import Markup
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape

from blindsight import pages
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.accounting.privacy_bar import privacy_bar
from blindsight.accounting.so_far import SpentSoFar
from blindsight.errors import InvalidInput
from blindsight.inspection import advice, simulation_only
from blindsight.inspection.asking.section import Statistics
from blindsight.inspection.bias.section import BiasSection
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.sections import Section
from blindsight.inspection.sections.detection import Detection
from blindsight.inspection.sections.evidence import MEASURED, Findings, VotesSection
from blindsight.inspection.sections.explanation import ExplanationSection
from blindsight.inspection.sections.privacy import Releases
from blindsight.inspection.sections.registry import ALWAYS, SECTIONS, Parts, assemble
from blindsight.inspection.sections.remarks import NextSteps, Notes
from blindsight.inspection.sections.samples import Samples
from blindsight.inspection.unknowns.section import UnknownsSection
from blindsight.inspection.verdict import Outcome, heading, outcome_of, verdict_of
from blindsight.runs import write_whole
from blindsight.samples import as_json, export
from blindsight.samples.views import ArmView
from blindsight.wording import counted

__all__ = ["ArmView", "Report"]

FORMAT = 1
_COLOURS = {"fault": "red", "difference": "yellow", "nothing": "green", "unmeasured": "white"}

_Section = TypeVar("_Section", bound=Section)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Report:
    """The answer of an inspection, and its privacy cost.

    **Guarantee**: `guarantee` covers the whole report: every number and image is a release or computed from releases.
    `population` holds public facts on the clients: `name`, `clients`, `classes`. `ledger` quotes the ledger's total
    over all runs when the report was created; `guarantee` covers this run alone. `answer` is set by tasks that ask for
    something other than differences. `arms`, `findings`, `diagnoses`, `releases`, `notes`, `unknowns`, `bias`,
    `explanation`, `detection` and `statistics` make one section each, or replace the one in `sections`.
    """

    title: str
    task: str
    question: str
    guarantee: Guarantee
    population: Mapping[str, Any]
    sections: tuple[Section, ...]
    ledger: tuple[SpentSoFar, ...]
    answer: str
    created: str

    def __init__(
        self,
        *,
        title: str,
        task: str,
        question: str,
        guarantee: Guarantee,
        population: Mapping[str, Any],
        sections: Iterable[Section] = (),
        ledger: Iterable[SpentSoFar] = (),
        answer: str = "",
        created: str = "",
        **parts: Unpack[Parts],
    ) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        stored, spent = tuple(sections), tuple(ledger)
        fields: dict[str, Any] = {"title": title, "task": task, "question": question, "population": population}
        fields |= {"guarantee": guarantee, "ledger": spent, "answer": answer, "created": created or now}
        simulation_only.refuse({**fields, "sections": stored, **parts}, "the report")
        fields |= {"sections": assemble(stored, {**parts}), "population": as_json.plain(population)}
        simulation_only.refuse(fields["sections"], "the report")  # iterators are consumed only now
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def arms(self) -> tuple[ArmView, ...]:
        """What is shown of each arm."""
        return self._section(Samples).arms

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All tests and measurements."""
        return self._section(Findings).findings

    @property
    def ranked(self) -> tuple[Finding, ...]:
        """The findings, the clearest difference first."""
        return self._section(Findings).ranked

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What the clients of each arm voted for."""
        return self._section(VotesSection).diagnoses

    @property
    def named(self) -> tuple[Diagnosis, ...]:
        """The fault that explains the findings; without public data, those that clients voted for, largest first."""
        if self.explanation is not None:
            return self.explanation.named
        voted = [one for one in self.diagnoses if one.fault != "none"]
        failing = {one.fault for one in voted if one.arm == "failing"}
        # what repairs the model is more frequent where it fails: healthy clients alone are not the headline
        voted = [one for one in voted if one.arm != "healthy" or one.fault in failing]
        return tuple(sorted(voted, key=lambda one: (one.arm == "healthy", -one.share)))

    @property
    def explanation(self) -> ExplanationSection | None:
        """Which candidate predicts everything that was released, if something was detected against public data."""
        return next((one for one in self.sections if isinstance(one, ExplanationSection)), None)

    @property
    def detection(self) -> Detection | None:
        """On how many clients each fault would have been found, if there are public data to tell."""
        return next((one for one in self.sections if isinstance(one, Detection)), None)

    @property
    def releases(self) -> tuple[Mapping[str, Any], ...]:
        """Each release with its own epsilon, noise and number of coordinates."""
        return self._section(Releases).releases

    @property
    def notes(self) -> tuple[str, ...]:
        """Further notes for the reader."""
        return self._section(Notes).notes

    @property
    def unknowns(self) -> UnknownsSection | None:
        """Unknown words before and after a change, for the task `unknowns`."""
        return next((one for one in self.sections if isinstance(one, UnknownsSection)), None)

    @property
    def bias(self) -> BiasSection | None:
        """Clients compared with public data, for the task `bias`."""
        return next((one for one in self.sections if isinstance(one, BiasSection)), None)

    @property
    def statistics(self) -> Statistics | None:
        """Statistics of fields, for the task `ask`."""
        return next((one for one in self.sections if isinstance(one, Statistics)), None)

    def _section(self, section_type: type[_Section]) -> _Section:
        return next(one for one in self.sections if isinstance(one, section_type))

    @property
    def outcome(self) -> Outcome:
        """Whether a fault was named, or a difference was detected that no candidate explains, or neither."""
        return outcome_of(self)

    @property
    def verdict(self) -> str:
        """The answer in one sentence, followed by the clearest finding if there is one."""
        parts = [self.answer, "" if self.answer and self.outcome == "nothing" else verdict_of(self)]
        return " ".join(filter(None, parts))

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What to do with the answer."""
        return advice.next_steps(self)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, if the population lists them."""
        classes = self.population.get("classes") or ()
        if isinstance(classes, Mapping):
            classes = classes.get("label") or next(iter(classes.values()), ())
        return tuple(map(str, classes)) if isinstance(classes, list | tuple) else ()

    def class_name(self, label: int) -> str:
        """The name of class `label`, or its number."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)

    @property
    def coverage(self) -> tuple[str, ...]:
        """Sentences on what the guarantee covers and on the ledger's total over all runs."""
        own = f"The guarantee covers only this run ({counted(self.guarantee.releases, 'release')})."
        return (*((own,) if self.guarantee.is_private else ()), *map(str, self.ledger))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, from which `from_dict` makes the same report."""
        return {
            "format": FORMAT,
            "title": self.title,
            "task": self.task,
            "question": self.question,
            "outcome": self.outcome,
            "tone": self._tone,
            "verdict": self.verdict,
            "guarantee": as_json.plain(self.guarantee.to_dict()),
            "population": self.population,
            "ledger": [one.to_dict() for one in self.ledger],
            "answer": self.answer,
            "created": self.created,
            **{section.key: as_json.plain(section.to_dict()) for section in self._shown},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Report":
        """The report that `to_dict` was called on."""
        try:
            if value["format"] != FORMAT:
                raise InvalidInput("this report was written by a newer version of Blindsight: update to read it")
            written = [one for one in SECTIONS if one in ALWAYS or value.get(one.key) is not None]
            return cls(
                title=value["title"],
                task=value["task"],
                question=value["question"],
                guarantee=Guarantee.from_dict(value["guarantee"]),
                population=dict(value["population"]),
                sections=[one.from_dict(value[one.key]) for one in written],
                ledger=map(SpentSoFar.from_dict, value.get("ledger", ())),
                answer=value.get("answer", ""),
                created=value["created"],
            )
        except InvalidInput:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"not the JSON of a report, or damaged: {error!r}") from error

    @property
    def _shown(self) -> tuple[Section, ...]:
        """All sections in the order of the page: those stored, and the next steps, which follow from them."""
        place = self.sections.index(self._section(Releases))
        return (*self.sections[:place], NextSteps(self.next_steps), *self.sections[place:])

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file that loads nothing else and opens anywhere; return the path."""
        return write_whole(path, self.to_html())

    def save_json(self, path: str | Path) -> Path:
        """Write the report as JSON; return the path."""
        return write_whole(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def save_samples(self, folder: str | Path) -> Path:
        """Write the synthetic samples as `samples.parquet`, which `datasets` reads, with a card; return the folder."""
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
        bar = privacy_bar(self.guarantee)
        bar.facts += [("all runs", f"≤ {round_up(one.epsilon)}") for one in self.ledger if math.isfinite(one.epsilon)]
        shown = self._shown
        if is_null := self.outcome == "nothing" and not self.answer:  # the tests are the answer, the rest is folded
            shown = sorted(shown, key=lambda section: not isinstance(section, Findings))
        parts = list[Markup]()
        for section in shown:
            if (values := section.values(self)) is not None:
                part = pages.part(section.template, **values)
                is_open = not is_null or isinstance(section, Findings | NextSteps | Notes)
                parts.append(part if is_open else pages.part("folded.html", section=part))
        return pages.render(
            "report.html",
            report=self,
            title=self.title,
            created=self.created,
            bar=bar,
            coverage=self.coverage,
            heading=heading(self),
            population=_in_short(self.population, len(self.class_names)),
            tone=self._tone,
            sections=parts,
        )

    @property
    def _tone(self) -> str:
        """The outcome; or that the answer is no verdict, nothing was tested, or a fault could not have been found."""
        tested = [one for one in self.findings if one.kind not in MEASURED]
        detection = self.detection
        limits = (one.smallest for one in ([] if detection is None else detection.limits))
        is_blind = all(one.smallest is None for one in tested) if detection is None else None in limits
        return "unmeasured" if self.outcome == "nothing" and (self.answer or not tested or is_blind) else self.outcome

    def __repr__(self) -> str:
        return f"<Report {self.title!r}: {self.verdict}>"

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=120, color_system=None)
        with console.capture() as printed:
            console.print(self)
        return printed.get()

    def _repr_html_(self) -> str:
        return pages.embed(self.to_html(), title=self.title)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield f"[bold]{escape(self.title)}[/]  [dim]{escape(self.task)}[/]"
        yield f"{escape(self.question)}\n"
        yield f"[bold {_COLOURS[self._tone]}]{escape(self.verdict)}[/]"
        for section in self.sections:
            for place, line in enumerate(section.lines(self, console)):
                yield from ("", line) if place == 0 else (line,)
        is_private = self.guarantee.is_private
        yield f"\n[green]{escape(str(self.guarantee))}[/]" if is_private else "\n[red]epsilon = inf[/]"
        yield from map(escape, self.coverage)


def _in_short(population: Mapping[str, Any], classes: int) -> str:
    """The population in a few words, all of them public."""
    name, clients = population.get("name"), population.get("clients")
    parts = [str(name)] if name else []
    parts += [counted(clients, "client") if isinstance(clients, int) else f"{clients} clients"] if clients else []
    parts += [counted(classes, "class", "classes")] if classes else []
    return " · ".join(parts)
