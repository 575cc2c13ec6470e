"""`synthesize`: two rounds, each paid for first; the model, its rows and every file are post-processing."""

import dataclasses
import functools
import io

import numpy as np

from blindsight.accounting.assumptions import CLASSES_LISTED
from blindsight.inspection import measuring
from blindsight.inspection.answering import Round
from blindsight.inspection.asking.tables import Table, observe
from blindsight.inspection.question import Public, ReleasePlan
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.inspection.synthesizing import reading
from blindsight.inspection.synthesizing.question import Synthesize
from blindsight.inspection.synthesizing.tables import PAIRS, Pairs, columns_of, size_of
from blindsight.mechanisms import GaussianMechanism
from blindsight.runs import write_whole
from blindsight.samples import clarity
from blindsight.samples.export import save_set
from blindsight.samples.views import ArmView
from blindsight.selection import Arms, everything
from blindsight.wording import counted

__all__ = ["conduct", "next_round", "plan"]

NOTES = (
    "Rows are synthetic: they are drawn from a model of released tables, which has no access to clients' rows. They "
    "inherit the guarantee, because post-processing costs no privacy.",
    "Each client counts once: its examples share its weight equally.",
    "The tables hold every pair of fields with the label. What depends on three fields or more at once, or on values "
    "that a group of values joins, is not in the rows.",
    "Tests on synthetic rows ignore the noise of the release: use `blindsight ask` for numbers with intervals.",
)
_COLUMNS = "columns"
_SHARE = 0.4  # of the precision for tables of single fields; the rest is for pairs
_SHOWN = 500  # rows in the report; all are in the files
FILE = "rows.csv"


def next_round(question: Synthesize, public: Public) -> Round | None:
    """The tables of single fields, then those of pairs of the groups that they decide; None after both."""
    if PAIRS in public.released:
        return None
    tables = columns_of(question)
    noise = _mechanisms(question, tables)
    parts: tuple[Table, ...] | tuple[Pairs] = tables
    if _COLUMNS in public.released:
        parts = (_pairs(question, public),)
    return Round(
        name=PAIRS if _COLUMNS in public.released else _COLUMNS,
        schema=question.schema,
        observe=functools.partial(observe, tables, question.schema),
        arms=Arms({"everyone": everything()}),
        parts=parts,
        mechanisms={part.name: noise[part.name] for part in parts},
        note="tables for synthetic rows",
    )


def _pairs(question: Synthesize, public: Public) -> Pairs:
    tables, released = columns_of(question), public.released[_COLUMNS].parts
    fields = question.schema.fields
    groups = tuple(reading.group_cells(table, released[table.name], fields[table.field]) for table in tables)
    return Pairs(tables, groups, len(question.labels))


def _mechanisms(question: Synthesize, tables: tuple[Table, ...]) -> dict[str, GaussianMechanism]:
    """The noise of every part, so that both rounds together cost (epsilon, delta)."""
    shares = {table.name: _SHARE / len(tables) for table in tables} | {PAIRS: 1 - _SHARE}
    parts = [*tables, _unknown(question, tables)]
    return measuring.noise_for(parts, epsilon=question.epsilon, delta=question.delta, shares=shares)


def _unknown(question: Synthesize, tables: tuple[Table, ...]) -> Pairs:
    """The pairs before groups are known: they release as many numbers whatever the groups are."""
    one = tuple((*[0] * table.axis.size, size_of(table) - 1) for table in tables)
    return Pairs(tables, one, len(question.labels))


def plan(question: Synthesize, public: Public) -> ReleasePlan:
    """What both rounds release, and how much of a pair's cell would be noise."""
    del public
    tables = columns_of(question)
    noise, pairs = _mechanisms(question, tables), _unknown(question, tables)
    std = noise[PAIRS].noise_multiplier * pairs.bound
    cells = pairs.coordinates / max(len(tables) * (len(tables) - 1) / 2, 1)
    note = (
        f"A cell of a pair would have noise of standard deviation {std:.3g}, and if rows were spread evenly a weight "
        f"of {question.clients / cells:.3g} clients."
    )
    return ReleasePlan([*tables, pairs], noise, notes=[note])


def conduct(question: Synthesize, inquiry: Inquiry) -> Report:
    """Ask both rounds, fit the model, draw rows and write them into the run's folder."""
    for done in range(2):
        one = next_round(question, inquiry.public)
        if one is None:
            raise AssertionError("both rounds are asked exactly once")
        inquiry.progress("asking everyone about pairs of fields" if done else "asking everyone", done, 4)
        inquiry.measure(one)
    assumed = (CLASSES_LISTED,) if question.schema.classes and not inquiry.clients.synthetic else ()
    guarantee = inquiry.promise(f"full: all {question.clients:,}, in both rounds", assumed)
    # everything below is post-processing of releases
    released = {name: part for done in inquiry.public.released.values() for name, part in done.parts.items()}
    pairs, dice = _pairs(question, inquiry.public), np.random.default_rng(list(inquiry.public.seed))
    fitting = functools.partial(inquiry.progress, "fitting the model of rows")
    model = reading.model_of(question, pairs, released, dice, fitting)
    labels, columns = model.draw(question.rows, dice)
    if question.label is not None:
        columns[question.label] = np.array(question.labels, dtype=np.dtypes.StringDType())[labels]
    whole = ArmView(
        "everyone",
        rows=columns,
        labels=None if question.label is None else labels,
        signal_to_noise=clarity.signal_to_noise(released[PAIRS].sums, released[PAIRS].noise_std),
    )
    report = Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=(_first(whole),),
        guarantee=guarantee,
        releases=tuple(inquiry.releases),
        population={"name": inquiry.name, "clients": question.clients, "classes": list(question.labels)},
        notes=NOTES,
        ledger=inquiry.so_far(),
        answer=f"{counted(question.rows, 'synthetic row')} with {counted(len(columns), 'field')}.",
    )
    _write(whole, report, inquiry)
    return report


def _first(whole: ArmView) -> ArmView:
    rows = {name: column[:_SHOWN] for name, column in (whole.rows or {}).items()}
    return dataclasses.replace(whole, rows=rows, labels=None if whole.labels is None else whole.labels[:_SHOWN])


def _write(whole: ArmView, report: Report, inquiry: Inquiry) -> None:
    """All rows as CSV, and as a set with its guarantee."""
    import pyarrow as pa
    from pyarrow import csv

    folder = inquiry.run.path
    columns = {name: column.tolist() for name, column in (whole.rows or {}).items()}
    text = io.BytesIO()
    csv.write_csv(pa.table(columns), text)
    write_whole(folder / FILE, text.getvalue().decode())
    save_set(
        [whole],
        folder / "samples",
        title=report.title,
        guarantee=report.guarantee,
        classes=report.class_names,
        question=report.question,
        created=report.created,
    )
