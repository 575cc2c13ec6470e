"""`synthesize`: two rounds, each paid for first; the model, its rows and every file are post-processing."""

import dataclasses
import functools
import io
from collections.abc import Mapping

import numpy as np

from blindsight.accounting.assumptions import CLASSES_LISTED
from blindsight.inspection import measuring
from blindsight.inspection.answering import Dialogue, Round
from blindsight.inspection.asking.tables import FieldTable, observe
from blindsight.inspection.measuring import Measured, Part
from blindsight.inspection.question import Public, ReleasePlan
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.inspection.synthesizing import reading
from blindsight.inspection.synthesizing.question import Synthesize
from blindsight.inspection.synthesizing.tables import PAIRS, Pairs, columns_of, size_of
from blindsight.mechanisms import GaussianMechanism
from blindsight.progress import Progress, quiet
from blindsight.runs import write_whole
from blindsight.samples import clarity
from blindsight.samples.export import save_set
from blindsight.samples.views import ArmView
from blindsight.selection import Arms, everything
from blindsight.wording import counted

__all__ = ["conduct", "plan", "rounds"]

NOTES = (
    "Rows are synthetic: they are drawn from a model of released tables, which has no access to clients' rows. They "
    "inherit the guarantee, because post-processing costs no privacy.",
    "Each client counts once: its examples share its weight equally.",
    "The tables hold every pair of fields with the label. What depends on three fields or more at once, or on values "
    "that a group of values joins, is not in the rows.",
    "Tests on synthetic rows ignore the noise of the release: use `blindsight ask` for numbers with intervals.",
)
_SHARE = 0.4  # of the precision for tables of single fields; the rest is for pairs
_SHOWN = 500  # rows in the report; all are in the files
FILE = "rows.csv"


def rounds(
    question: Synthesize, public: Public, progress: Progress = quiet
) -> Dialogue[tuple[Pairs, dict[str, Measured]]]:
    """The tables of single fields, which decide the groups, then those of pairs; returns pairs and all releases."""
    del public
    tables, fields = columns_of(question), question.schema.fields
    ask = functools.partial(_round, question, tables, _mechanisms(question, tables))
    progress("asking everyone", 0, 4)
    columns = yield ask("columns", tables)
    groups = tuple(reading.group_cells(table, columns[table.name], fields[table.field]) for table in tables)
    pairs = Pairs(tables, groups, len(question.labels))
    progress("asking everyone about pairs of fields", 1, 4)
    of_pairs = yield ask(PAIRS, (pairs,))
    return pairs, {**columns.parts, **of_pairs.parts}


def _round(
    question: Synthesize,
    tables: tuple[FieldTable, ...],
    noise: Mapping[str, GaussianMechanism],
    name: str,
    parts: tuple[Part, ...],
) -> Round:
    return Round(
        name=name,
        schema=question.schema,
        observe=functools.partial(observe, tables, question.schema),
        arms=Arms({"everyone": everything()}),
        parts=parts,
        mechanisms={part.name: noise[part.name] for part in parts},
        note="tables for synthetic rows",
    )


def _mechanisms(question: Synthesize, tables: tuple[FieldTable, ...]) -> dict[str, GaussianMechanism]:
    """The noise of every part, so that both rounds together cost (epsilon, delta)."""
    shares = {table.name: _SHARE / len(tables) for table in tables} | {PAIRS: 1 - _SHARE}
    parts = [*tables, _unknown(question, tables)]
    return measuring.noise_for(parts, epsilon=question.epsilon, delta=question.delta, shares=shares)


def _unknown(question: Synthesize, tables: tuple[FieldTable, ...]) -> Pairs:
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
    return ReleasePlan([*tables, pairs], noise, notes=[note], rounds=2)


def conduct(question: Synthesize, inquiry: Inquiry) -> Report:
    """Ask both rounds, fit the model, draw rows and write them into the run's folder."""
    pairs, released = inquiry.ask(rounds(question, inquiry.public, inquiry.progress))
    assumed = (CLASSES_LISTED,) if question.schema.classes and not inquiry.clients.synthetic else ()
    guarantee = inquiry.promise(f"full: all {question.clients:,}, in both rounds", assumed)
    # everything below is post-processing of releases
    dice = np.random.default_rng(list(inquiry.public.seed))
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
