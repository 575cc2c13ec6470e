"""`blindsight inspect unknowns` from its options: two sides of a change, and the words that count as known."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from blindsight import runs
from blindsight.accounting.ledger import Known
from blindsight.backends import use_cores
from blindsight.data import faults, text
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.data.sources import check_public, source
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspect import Session, WordTraining, unknowns
from blindsight.inspection.report import Report
from blindsight.jobs.language import PUBLIC
from blindsight.jobs.tables import content_of_clients, header, read_clients, schema_of

__all__ = ["run_unknowns"]

_PUBLIC = {**PUBLIC, "clients": 1000}  # many, for their words are the vocabulary


def run_unknowns(
    data: str,
    *,
    before: str | None = None,
    side: str | None = None,
    values: Sequence[str] | None = None,
    fault: str | None = None,
    vocabulary: str | Path | None = None,
    vocabulary_size: int = 10_000,
    reference: str | None = None,
    clients: int | None = None,
    client: str | None = None,
    inputs: Sequence[str] | None = None,
    schema: str | Path | None = None,
    types: Sequence[str] | None = None,
    case: str = "lower",
    population: str | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
    **settings: Any,
) -> tuple[Report, Path]:
    """Ask about the unknown words of `data` after a change; the report, and the folder it lies in.

    What was before is the population `before`, or the examples of `data` with the first of two `values` in the field
    `side`, or `data` without the `fault` that is planted. Known are the words of the file `vocabulary`, or the most
    frequent ones of `reference`, which is public; of an embedded population, of other clients.
    """
    use_cores()
    if case not in get_args(Case):
        raise InvalidInput(f"case is lower or keep, got {case!r}")
    said = schema_of(schema, types)
    chosen = _named(data, client, inputs, said)
    needed: dict[str, Field | None] = {field: Field("text") for field in (*(chosen or ()), side) if field}
    read = functools.partial(read_clients, client=client, needed=needed, schema=said)
    people = read(data, clients=clients)
    field = _field(people, chosen)
    sides = _sides(
        people, None if before is None else (lambda: read(before, clients=clients)), side, values, fault, field
    )
    asked = [data] if before is None else [data, before]
    known = _vocabulary(asked, vocabulary, vocabulary_size, reference, field, cast(Case, case))
    folder = Path(out) if out is not None else Path("runs") / f"unknowns-{runs.file_name(sides[1].name)}"
    one = population or (None if before is not None else people.name)  # two collections pay under two names
    one = one and Known(one, content_of_clients(data, {"client": client}, people))
    about: dict[str, Any] = {"vocabulary": known, "field": field, "case": case}
    session = Session(out=folder, progress=progress, population=one, ledger=settings.pop("ledger", None))
    training = WordTraining() if settings.pop("train", False) else None
    suspects = settings.pop("suspects", None) or ()
    return unknowns(*sides, **about, suspects=suspects, training=training, session=session, **settings), folder


def _named(data: str, client: str | None, inputs: Sequence[str] | None, schema: Schema) -> Sequence[str] | None:
    """The text that is named, or in a table the column called text, which nobody has to look into."""
    names = header(data, client, schema)
    if names is None or inputs:
        return inputs
    if "text" not in names:
        listed = f": {', '.join(names)}" if names else ""
        raise InvalidInput(f"say which text of {data} is read, --input FIELD{listed}")
    return ["text"]


def _field(people: Population, inputs: Sequence[str] | None) -> str:
    """The text that is read: the one that is named, or the only one, or `text`."""
    texts = [field for field, (dtype, _) in people.fields.items() if dtype == TEXT]
    chosen = list(inputs or (["text"] if "text" in texts else texts))
    if len(chosen) != 1 or chosen[0] not in texts:
        raise InvalidInput(
            f"say which text of {people.name} is read, --input FIELD: {', '.join(texts) or 'it has none'}"
        )
    return chosen[0]


def _sides(
    people: Population,
    before: Callable[[], Population] | None,
    side: str | None,
    values: Sequence[str] | None,
    fault: str | None,
    field: str,
) -> tuple[Population, Population]:
    """What was before the change, and what came after."""
    if (before is not None) + (side is not None) + (fault is not None) != 1:
        raise InvalidInput(
            "say what was before the change, in one way: --before DATA, --side FIELD --value OLD --value NEW, or "
            "--fault token_join:0.1:by=example to plant a change"
        )
    if before is not None:
        return before(), people
    if fault is not None:
        sentences = text.split_sentences(people, field=field)  # so that by=example is by sentence
        return sentences, faults.apply(sentences, fault)
    if side not in people.columns:
        raise InvalidInput(f"--side names a field of {people.name} with two values, which {side!r} is not")
    column = people.columns[side]
    named = _two_values(people, column, side, values)
    first, second = (_where(people, column == value, field) for value in named)
    return first, second


def _two_values(people: Population, column: np.ndarray, side: str, values: Sequence[str] | None) -> Sequence[Any]:
    """The value before the change and the one after it: public, and read off no data but synthetic ones."""
    if values:
        if len(set(values)) != 2:
            raise InvalidInput(f"--side {side} has two values, the one before the change first, got {list(values)}")
        return list(values) if column.dtype == TEXT else [_number(value) for value in values]
    found = np.unique(column) if people.synthetic else np.zeros(0)
    if len(found) != 2:
        raise InvalidInput(
            f"--side names a field with two values: say the one before the change and then the other, "
            f"--side {side} --value OLD --value NEW"
        )
    return found.tolist()


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidInput(f"--value of a number is a number, got {value!r}") from None


def _where(people: Population, is_in: np.ndarray, field: str) -> Population:
    """The same clients with these examples alone."""
    owner = np.repeat(np.arange(people.size), people.sizes)
    sizes = np.bincount(owner[is_in], minlength=people.size)
    about: dict[str, Any] = {"ids": people.ids, "synthetic": people.synthetic}
    return Population({field: people.columns[field][is_in]}, sizes=sizes, name=people.name, **about)


def _vocabulary(
    asked: Sequence[str], path: str | Path | None, size: int, reference: str | None, field: str, case: Case
) -> Vocabulary:
    """The words that count as known: public ones, never those of the clients."""
    if path is not None:
        return Vocabulary.load(path)
    if reference is None and asked[0] not in POPULATIONS:
        raise InvalidInput(
            "say which words are known: --vocabulary FILE, one on each line, or --reference DATA, the most frequent "
            "words of public data"
        )
    name = reference or asked[0]
    options = _PUBLIC if name in POPULATIONS else {}
    for protected in asked:
        check_public(name, options, protected, {}, what="--reference")
    public = source(name, **options)
    return Vocabulary.most_frequent(public, size, field=field, case=case)
