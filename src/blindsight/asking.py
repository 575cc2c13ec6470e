"""`bs.ask`: statistics of clients' fields, several in one question, with intervals that all hold at once.

>>> import blindsight as bs
>>> from blindsight.asking import Mean
>>> clients, dry = bs.data.embedded("tabular", clients=300), bs.inspect.Session(dry_run=True)
>>> bs.ask(clients, [Mean("age", by="sex")], epsilon=1, ranges={"age": (0, 120)}, session=dry).answer
'Dry run: asking would cost epsilon 1 at delta 1e-06.'
"""

import dataclasses
from collections.abc import Mapping, Sequence

from blindsight.algorithms.set_union import MOST_PLACES
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.asking.items import Cross, Histogram, Item, Mean, Missing, Quantiles, Top
from blindsight.inspection.asking.question import Ask, usual_items
from blindsight.inspection.question import Public, vocabulary_digest
from blindsight.inspection.report import Report
from blindsight.inspection.session import Session

__all__ = ["Cross", "Histogram", "Item", "Mean", "Missing", "Quantiles", "Top", "ask"]

_MOST = 100  # words of a client that count, if sums over all clients have room for them


def ask(
    clients: Population,
    items: Sequence[Item | str],
    *,
    epsilon: float,
    delta: float = 1e-6,
    by: str = "",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    schema: Schema | None = None,
    vocabulary: Vocabulary | None = None,
    case: Case = "lower",
    session: Session | None = None,
) -> Report:
    """Histograms, means, quantiles, missing rates, top words and cross-tabs, by slice, for one epsilon.

    Each client counts once: its examples share its weight. All intervals of the report hold at once with a probability
    of 95 %.

    **Guarantee**: everything in the report and in the run folder is (epsilon, delta)-DP for each client.

    Args:
        clients: the protected population.
        items: statistics such as `Mean("age", by="sex")`, or names of fields, which get the statistics that suit their
            type: mean, quantiles, histogram and missing rate of a number, shares of a category, words of a text.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        by: category field that divides statistics given by name into slices.
        ranges: public range of every number, never inferred from clients.
        schema: public types of fields, if they differ from the population's own.
        vocabulary: public words that lists of words leave out.
        case: `lower`, or `keep` to tell words apart by case.
        session: ledger, folder, population name, key, backend and progress.
    """
    declared = _declared(schema, ranges or {}, clients)
    chosen = [
        one for given in items for one in ([given] if isinstance(given, Item) else usual_items(declared, given, by))
    ]
    items_asked = tuple(dict.fromkeys(chosen))
    used = {name for item in items_asked for name in item.fields}
    question = Ask(
        schema=Schema({name: field for name, field in declared.fields.items() if name in used}),
        clients=clients.size,
        epsilon=epsilon,
        delta=delta,
        items=items_asked,
        vocabulary=vocabulary_digest(vocabulary),
        words=0 if vocabulary is None else len(vocabulary.words),
        case=case,
        most=max(1, min(_MOST, MOST_PLACES // clients.size)),
    )
    return (session or Session()).ask(question, clients, Public(vocabulary=vocabulary))


def _declared(schema: Schema | None, ranges: Mapping[str, tuple[float, float]], clients: Population) -> Schema:
    """The fields of the population by their public types and classes, overridden by what the asker gives."""
    own = Schema.of(clients).fields
    given = {} if schema is None else schema.fields
    for name in (*given, *ranges):
        if name not in own:
            raise InvalidInput(f"{clients.name} has no field {name!r}: it has {', '.join(own)}")
    for name, field in given.items():
        if not _holds(own[name], field):
            raise InvalidInput(
                f"{name!r} of {clients.name} holds {_told(own[name])}, and the schema says {_told(field)}"
            )
    fields = {name: given.get(name, field) for name, field in own.items()}
    fields |= {name: dataclasses.replace(fields[name], low=low, high=high) for name, (low, high) in ranges.items()}
    return Schema(fields)


def _holds(own: Field, said: Field) -> bool:
    """Whether a column of type `own` can hold the type `said`: text stays text, and codes keep their names."""
    if "text" in (own.kind, said.kind) or "image" in (own.kind, said.kind):
        return own.kind == said.kind
    return own.kind != "category" or said.kind != "category" or own.values == said.values


def _told(field: Field) -> str:
    return f"{field.kind} ({', '.join(field.values)})" if field.values else field.kind
