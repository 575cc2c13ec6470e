"""A report on the terminal: the verdict, the mean images, what was found, and the guarantee."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from blindsight.accounting.guarantee import round_up
from blindsight.samples import gallery

if TYPE_CHECKING:
    from blindsight.inspection.bias.section import Bias
    from blindsight.inspection.contrast.findings import Diagnosis, Finding
    from blindsight.inspection.report import Report
    from blindsight.inspection.unknowns.section import Unknowns

__all__ = ["lines"]

COLOURS = {"fault": "red", "difference": "yellow", "nothing": "green"}
LISTED = 10  # generated words on each side
QUIET = 4  # findings that were not found and are listed all the same
WIDE = 110  # columns of a terminal in which numbers have room beside the statements, which say most of them too


def lines(report: "Report", console: Console) -> Iterator[RenderableType]:
    """What the console prints, in order."""
    yield f"[bold]{escape(report.title)}[/]  [dim]{escape(report.task)}[/]"
    yield f"{escape(report.question)}\n"
    yield f"[bold {COLOURS[report.outcome]}]{escape(report.verdict)}[/]\n"
    yield from _means(report, console)
    if report.findings:
        yield _findings(report, wide=console.width >= WIDE)
    if report.unknowns is not None:
        yield from _unknowns(report.unknowns)
    if report.bias is not None:
        yield from _bias(report.bias)
    for diagnosis in report.diagnoses:
        yield f"\nVotes of {escape(diagnosis.arm)}: {escape(_tally(diagnosis))}"
    yield f"\n[green]{escape(str(report.guarantee))}[/]" if report.guarantee.is_private else "\n[red]epsilon = inf[/]"
    for sentence in report.coverage:
        yield escape(sentence)
    for note in report.notes:
        yield f"[dim]{escape(note)}[/]"


def _means(report: "Report", console: Console) -> Iterator[RenderableType]:
    """The arms' mean images and the difference of the first two, where they fit."""
    shown = [(arm.name, arm.mean) for arm in report.arms if arm.mean is not None]
    if not shown or any(mean.shape != shown[0][1].shape for _, mean in shown):
        return
    pictures, names = [mean for _, mean in shown], [name for name, _ in shown]
    if len(shown) > 1:
        signed = gallery.luminance((pictures[1] - pictures[0])[None])[0]
        pictures.append(gallery.diverging(signed, max(0.05, float(np.abs(signed).max()))))
        names.append(f"{names[1]} − {names[0]} (red is brighter, blue darker)")
    row = gallery.side_by_side(pictures)
    if row.shape[1] > console.width or console.color_system is None:
        return
    yield gallery.Pixels(row)
    yield f"[dim]synthetic means: {escape(', '.join(names))}[/]\n"


def _findings(report: "Report", *, wide: bool) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "finding", "epsilon", *(("effect", "95 %", "could not see less than") if wide else ())):
        table.add_column(heading, justify="left" if heading in ("finding", "") else "right", overflow="fold")
    found = [one for one in report.ranked if one.verdict == "found"]
    quiet = [one for one in report.ranked if one.verdict != "found"]
    for one in [*found, *quiet[:QUIET]]:
        table.add_row(*_cells(one, wide), style="" if one.verdict == "found" else "dim")
    if len(quiet) > QUIET:
        table.add_row("", f"and {len(quiet) - QUIET} more not found", style="dim")
    return table


def _cells(one: "Finding", wide: bool) -> list[str]:
    verdict = "[red]found[/]" if one.verdict == "found" else "not found"
    smallest = (
        "-" if one.smallest is None else f"{100 * one.smallest:.2g} %{'' if one.kind == 'share' else ' of clients'}"
    )
    numbers = [f"{one.effect:+.3g}", f"{one.low:+.3g} to {one.high:+.3g}", smallest] if wide else []
    return [verdict, escape(one.statement), round_up(one.epsilon), *numbers]


def _unknowns(found: "Unknowns") -> Iterator[RenderableType]:
    """Rates by position, and the words that models generate, side by side."""
    table = Table(box=None, pad_edge=False, title="Unknown words by position, % of sentences", title_justify="left")
    heads = ["", "all words", *(name.removeprefix("position ") for name in found.places[:-1]), "later"]
    for heading in heads:
        table.add_column(heading, justify="left" if heading == "" else "right")
    for side in found.sides:
        table.add_row(side.name, *(f"{100 * rate.value:.1f}" for rate in (side.rate, *side.places)))
        if side.generated is not None:
            made = (side.generated.rate, *side.generated.places)
            table.add_row(f"{side.name}, generated", *(f"{100 * rate:.1f}" for rate in made), style="dim")
    yield ""
    yield table
    for side in found.sides:
        if side.generated is not None:
            pairs = zip(side.generated.listed.words[:LISTED], side.generated.listed.probabilities, strict=False)
            yield f"Generated {escape(side.name)}: " + escape(", ".join(f"{w} {1000 * p:.2f}" for w, p in pairs))
        if side.discovered:
            pairs = ", ".join(f"{word} {count:,.0f}" for word, count in side.discovered[:LISTED])
            yield f"Discovered {escape(side.name)}, with clients: {escape(pairs)}"


def _bias(found: "Bias") -> Iterator[RenderableType]:
    """Kinds of pictures, words of unlikely sentences, and what the second model says of them."""
    for kind in found.kinds:
        serving, training = (f"{100 * rate.value:.1f} %" for rate in (kind.compared.serving, kind.compared.training))
        said = {"more": "confirmed", "less": "less in serving", "alike": "not confirmed"}[kind.compared.verdict]
        yield f"Kind {escape(kind.compared.name)}: {serving} of serving, {training} of training, {said}"
    if found.words is not None:
        pairs = ", ".join(f"{one.word} {one.clients:,.0f} ({one.expected:,.0f})" for one in found.words[:LISTED])
        yield f"Words of unlikely sentences, with clients (as in training): {escape(pairs) or 'none stands out'}"
    for phrase in (found.phrases or ())[:LISTED]:
        yield f"[dim]Said by the second model:[/] {escape(phrase)}"


def _tally(diagnosis: "Diagnosis") -> str:
    ranked = sorted(diagnosis.tally.items(), key=lambda pair: -pair[1])[:5]
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ranked)
