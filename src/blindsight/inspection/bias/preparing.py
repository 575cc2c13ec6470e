"""What a comparison with public data is about: both populations after they were looked at in the same way."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.data import text
from blindsight.data.population import TEXT, Population
from blindsight.data.reading import as_classes
from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspection.bias import text as bias_text
from blindsight.inspection.bias.measures import HALF, Division, Limits, client_means, coins, look, with_halves
from blindsight.inspection.bias.text import LIKELY, SURPRISE, Filter
from blindsight.inspection.contrast import cues
from blindsight.inspection.contrast.asking import check_reference
from blindsight.models.primary import Primary, gather
from blindsight.selection import coded
from blindsight.selection import observe as observe_primary

__all__ = ["Prepared", "confirming_half", "learning_half", "prepare"]

LEAST = 40
"""So many public clients are needed: half of them to learn from, and half to compare with."""

_SURE = "sure"
_UNSURE = 0.1  # of public examples count as those that a model is unsure of
_TAKEN = ("class", "habit", "kind", "likelihood", "model")  # words with a meaning of their own in a report
_MOST_CLASSES = 100  # of a field whose classes nobody has listed: more are rather names, dates or texts


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Both populations with the same derived fields, what their examples are divided by, and limits of habits."""

    clients: Population
    reference: Population
    fields: tuple[str, ...]
    divisions: tuple[Division, ...]
    limits: tuple[Limits, ...]
    classes: tuple[str, ...]
    label: str | None  # the field of the classes, said or predicted
    likely: Filter | None

    @property
    def learning(self) -> Population:
        """Public clients that models are trained on."""
        return learning_half(self.reference)

    @property
    def confirming(self) -> Population:
        """Public clients that no model has seen: what models say is compared with these."""
        return confirming_half(self.reference)

    @property
    def image(self) -> str | None:
        """The field of pictures, if that is what is looked at."""
        return self.fields[0] if len(self.reference.fields[self.fields[0]][1]) >= 2 else None


def learning_half(reference: Population) -> Population:
    """Half of the public clients, always the same: train models that are to judge on these."""
    return _half(reference, 0)


def confirming_half(reference: Population) -> Population:
    """The other half, which nothing is learnt from."""
    return _half(reference, 1)


def _half(reference: Population, half: int) -> Population:
    split = reference if HALF in reference.fields else with_halves(reference, b"public")
    first = np.minimum(split.offsets[:-1], max(split.n_examples - 1, 0))
    return split.select((split.columns[HALF][first] == half) & (split.sizes > 0))


def prepare(
    clients: Population,
    reference: Population,
    *,
    inputs: str | Sequence[str],
    label: str,
    by: str | None,
    values: Sequence[str] | None,
    classes: Sequence[str] | None,
    ranges: Mapping[str, tuple[float, float]],
    model: Primary | None,
    case: Case,
    vocabulary_size: int,
    seed: bytes,
) -> Prepared:
    """Both populations looked at in the same way; `seed` draws the halves of the clients."""
    fields = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    _check(clients, reference, fields)
    both, divisions = [clients, reference], list[Division]()
    for field in fields:
        if any(field in one.classes for one in both):
            both, _ = _classed(both, field, None)
    if by is not None:
        both, names = _divided(both, by, values)
        divisions.append(Division(by, names, f"field {by}" if by in _TAKEN else by))
    named: tuple[str, ...] = ()
    if all(label in one.fields for one in both):
        both, named = _classed(both, label, classes)
        divisions.append(Division(label, named, "class"))
    likely, is_text = None, clients.fields[fields[0]][0] == TEXT and len(fields) == 1
    if is_text:
        both = [_sentences(one, fields[0]) for one in both]
        fields = ("text",)
        reading = with_halves(both[1], b"public")
        halves = learning_half(reading), confirming_half(reading)
        likely = bias_text.learn(*halves, size=vocabulary_size, case=case)
        both = [likely.observe(one) for one in both]
        divisions.append(Division(LIKELY, ("unlikely", "usual"), "likelihood", is_learnt=True))
    elif model is not None:
        both, more, named = _judged(both, model, fields, label, named)
        divisions += more
    derived = [_with_cues(one, fields, ranges) for one in both]
    public = with_halves(derived[1], b"public")
    return Prepared(
        clients=with_halves(derived[0], seed, coins),
        reference=public,
        fields=fields,
        divisions=tuple(divisions),
        limits=_limits(public),
        classes=named,
        label=label if label in derived[0].fields else "predicted" if "predicted" in derived[0].fields else None,
        likely=likely,
    )


def _check(clients: Population, reference: Population, fields: tuple[str, ...]) -> None:
    """Refuses what cannot be compared, and private data in the place of public ones."""
    check_reference(clients, reference)
    for one in (clients, reference):
        for field in fields:
            if field not in one.fields:
                raise InvalidInput(
                    f"there is no {field!r} in {one.name}, which has {', '.join(one.fields)}: name another"
                )
    for field in fields:
        (ours, shape), (theirs, other) = clients.fields[field], reference.fields[field]
        if shape != other or ours.kind != theirs.kind:
            raise InvalidInput(
                f"{field} is {_spell(ours, shape)} in {clients.name} and {_spell(theirs, other)} in {reference.name}: "
                f"bring both into one form"
            )
    there = int(np.sum(reference.sizes > 0))
    if there < LEAST:
        raise InvalidInput(
            f"{reference.name} has {there:,} clients with examples and {LEAST} are needed, for how much they differ "
            f"from each other is part of every interval: name the column that says whose a row is, or more public data"
        )


def _spell(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{'text' if dtype == TEXT else dtype}{list(shape) if shape else ''}"


def _divided(both: list[Population], by: str, values: Sequence[str] | None) -> tuple[list[Population], tuple[str, ...]]:
    """Both populations with `by` as classes of the same names."""
    for one in both:
        if by not in one.fields:
            raise InvalidInput(f"there is no {by!r} in {one.name} to divide it by: it has {', '.join(one.fields)}")
    if values and all(one.fields[by][0] == TEXT for one in both):
        both = [coded(one, by, values) for one in both]
        return both, both[0].classes[by]
    return _classed(both, by, values)


def _classed(
    both: list[Population], field: str, names: Sequence[str] | None
) -> tuple[list[Population], tuple[str, ...]]:
    """Both populations with the classes of `field` numbered alike: those that are named, or those of the reference.

    The clients' own list is not read: a loader may have read it off their data, where one example of one client makes a
    class, whose name would be in the report and whose place would move the numbers of all others.
    """
    own = [_named(one, field) for one in both]
    whole = tuple(names or own[1][1])
    if len(whole) > _MOST_CLASSES and not names and field not in both[1].classes:
        raise InvalidInput(
            f"{field!r} has {len(whole):,} different values in {both[1].name}: name those to compare, or another field"
        )
    found, places = list[Population](), {name: place for place, name in enumerate(whole)}
    for one, (codes, known) in zip(both, own, strict=True):
        place = np.array([places.get(name, -1) for name in known] + [-1], np.int32)
        codes = np.where((codes >= 0) & (codes < len(known)), codes, len(known))
        changed = one.replace({**one.columns, field: place[codes]})
        changed.classes[field] = whole
        found.append(changed)
    return found, whole


def _named(one: Population, field: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """What `field` holds as numbers of classes, and their names: texts and whole numbers are their own names."""
    if field in one.classes:
        return one.columns[field].astype(np.int64), one.classes[field]
    dtype, shape = one.fields[field]
    if shape or dtype.kind not in "biuT":
        raise InvalidInput(
            f"{field} is {_spell(dtype, shape)} in {one.name}, and classes are texts or whole numbers: name another"
        )
    return as_classes(one.columns[field], one.name)


def _sentences(population: Population, field: str) -> Population:
    found = text.split_sentences(population, field=field)
    return found.replace({**found.columns, "text": found.columns[field]})


def _judged(
    both: list[Population], model: Primary, fields: tuple[str, ...], label: str, named: tuple[str, ...]
) -> tuple[list[Population], list[Division], tuple[str, ...]]:
    """Both populations with what the model says: whether it is sure, and the class where clients do not know it."""
    inputs = fields[0] if len(fields) == 1 else fields
    looked = [observe_primary(one, model, inputs=inputs, label="", is_public=one is both[1]) for one in both]
    usual = confirming_half(with_halves(looked[1], b"public")).columns["confidence"]
    least = float(np.quantile(usual, _UNSURE))
    looked = [
        one.replace({**one.columns, _SURE: (one.columns["confidence"] >= least).astype(np.int32)}) for one in looked
    ]
    divisions = [Division(_SURE, ("unsure", "sure"), "model", is_learnt=True)]
    classes = both[1].classes.get(label, ())
    if not named and not classes and (label not in both[1].fields or both[1].fields[label][0].kind in "iu"):
        one = gather(both[1].columns, inputs)[:1]
        classes = tuple(map(str, range(model.scores(one).shape[1])))  # classes of a file have numbers and no names
    if not named and classes:
        divisions.append(Division("predicted", classes, "predicted class", is_learnt=True))
    return looked, divisions, named or classes


def _with_cues(
    population: Population, fields: tuple[str, ...], ranges: Mapping[str, tuple[float, float]]
) -> Population:
    """The population with cues of its inputs, and of texts the surprise of a model beside them."""
    found = cues.observe(population, fields, ranges)
    if SURPRISE in found.fields:
        values = np.concatenate([found.columns[cues.FIELD], found.columns[SURPRISE][:, None]], axis=1)
        names = (*found.classes[cues.FIELD], SURPRISE)
        found = found.replace({**found.columns, cues.FIELD: values})
        found.classes[cues.FIELD] = names
    return look(found)


def _limits(public: Population) -> tuple[Limits, ...]:
    """Limits of every cue among public clients; none if hardly any of them has enough examples."""
    means, unseen = client_means(public, cues.FIELD), client_means(confirming_half(public), cues.FIELD)
    if len(unseen) < LEAST // 2:
        return ()
    names = public.classes[cues.FIELD]
    return tuple(
        Limits.of(name, (unseen if name == SURPRISE else means)[:, column]) for column, name in enumerate(names)
    )
