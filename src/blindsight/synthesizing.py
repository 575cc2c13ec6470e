"""`bs.synthesize`: synthetic rows of a table, from released tables of all pairs of its fields.

>>> import blindsight as bs
>>> clients, dry = bs.data.embedded("tabular", clients=300), bs.inspect.Session(dry_run=True)
>>> schema = bs.inspect.Schema(inputs=("sex", "education"))
>>> bs.synthesize(clients, schema=schema, epsilon=1, session=dry).answer
'Dry run: asking would cost epsilon 1 at delta 1e-06.'
"""

import dataclasses
from collections.abc import Mapping

from blindsight.data.population import Population
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput
from blindsight.inspection.question import Public, complete
from blindsight.inspection.report import Report
from blindsight.inspection.session import Session
from blindsight.inspection.synthesizing.question import CODED, NUMBERS, Synthesize

__all__ = ["synthesize"]


def synthesize(
    clients: Population,
    *,
    epsilon: float,
    delta: float = 1e-6,
    schema: Schema | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    rows: int = 10_000,
    session: Session | None = None,
) -> Report:
    """Synthetic rows with the fields and the label of clients' rows, to train a model on or to look at.

    The run folder gets all rows as `rows.csv`, the set with its card in `samples/`, and the report, which shows some.
    Asking the same question there again costs nothing, even for another number of rows.

    **Guarantee**: everything in the report and in the run folder is (epsilon, delta)-DP for each client. With one row
    on each client that protects every row.

    Args:
        clients: the protected population.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        schema: the fields of a row (`inputs`, default all numbers and categories), the `label`, and public ranges of
            numbers. If clients have no such label, rows have none.
        ranges: public range of every number, never inferred from clients; beside those of the schema.
        rows: how many rows to draw.
        session: ledger, folder, population name, key, backend and progress.
    """
    given = schema or Schema()
    own = Schema.of(clients).fields
    fitting = tuple(name for name, field in own.items() if field.kind in (*NUMBERS, *CODED) and name != given.label)
    declared = complete(given, clients, fitting)
    for name, (low, high) in (ranges or {}).items():
        if name not in declared.fields:
            raise InvalidInput(f"{name!r} has a range but is not a field of the rows: {', '.join(declared.fields)}")
        ranged = {name: dataclasses.replace(declared.fields[name], low=low, high=high)}
        declared = dataclasses.replace(declared, fields={**declared.fields, **ranged})
    question = Synthesize(schema=declared, clients=clients.size, epsilon=epsilon, delta=delta, rows=rows)
    return (session or Session()).ask(question, clients, Public())
