"""What clients are compared by: everything that follows from the question and public data, before any client is asked.

The reference is divided, once: models are trained on one half of its clients and compared with the other. Clients then
derive the same fields from their own examples (`Comparison.observe`), each on its own.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from blindsight.data import text
from blindsight.data.population import TEXT, Population
from blindsight.data.reading import as_classes
from blindsight.errors import InvalidInput
from blindsight.inspection.bias import text as unlikely_text
from blindsight.inspection.bias.measures import HALF, Division, Limits, client_means, coins, look, with_halves
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.bias.text import LIKELY, SURPRISE, Filter
from blindsight.inspection.contrast import cues
from blindsight.inspection.question import Public
from blindsight.models.primary import Primary, gather
from blindsight.selection import coded
from blindsight.selection import observe as observe_primary

__all__ = ["Comparison", "compare_with", "confirming_half", "learning_half"]

LEAST = 40
"""So many public clients are needed: half of them to learn from, and half to compare with."""

_SURE = "sure"
_UNSURE = 0.1  # of public examples count as those that a model is unsure of
_TAKEN = ("class", "habit", "kind", "likelihood", "model")  # words with a meaning of their own in a report
_MOST_CLASSES = 100  # of a field whose classes nobody has listed: more are rather names, dates or texts


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The reference with all derived fields, what examples are divided by, and the limits of styles.

    `names` are the classes that fields are numbered by, `least` the confidence from which the model counts as sure.
    """

    question: Bias
    model: Primary | None
    names: dict[str, tuple[str, ...]]
    likely: Filter | None
    least: float | None
    reference: Population
    divisions: tuple[Division, ...]
    limits: tuple[Limits, ...]
    classes: tuple[str, ...]
    seed: bytes

    def observe(self, clients: Population) -> Population:
        """The clients with all derived fields, each from its own examples and its own id."""
        looked = _aligned(self.question, clients, self.names)
        if self.likely is not None:
            looked = self.likely.observe(looked)
        elif self.model is not None:
            looked = _with_sure(_judged(self.question, self.model, looked, is_public=False), self.least or 0.0)
        return with_halves(_with_cues(self.question, looked), self.seed, coins)

    @property
    def fields(self) -> tuple[str, ...]:
        """What is looked at."""
        return ("text",) if self.likely is not None else self.question.inputs

    @functools.cached_property
    def learning(self) -> Population:
        """Public clients that models are trained on."""
        return learning_half(self.reference)

    @functools.cached_property
    def confirming(self) -> Population:
        """Public clients that no model has seen: what models say is compared with these."""
        return confirming_half(self.reference)

    @property
    def image(self) -> str | None:
        """The field of images, if that is what is looked at."""
        return self.fields[0] if len(self.reference.fields[self.fields[0]][1]) >= 2 else None

    @property
    def label(self) -> str | None:
        """The field of the classes, given or predicted."""
        known = (self.question.schema.label, "predicted")
        return next((field for field in known if field in self.reference.fields and self._clients_have(field)), None)

    def _clients_have(self, field: str) -> bool:
        return field in self.question.schema.fields or (field == "predicted" and self.model is not None)


def learning_half(reference: Population) -> Population:
    """Half of the public clients, always the same: train models that examples are scored by on these."""
    return _half(reference, 0)


def confirming_half(reference: Population) -> Population:
    """The other half, which nothing is learnt from."""
    return _half(reference, 1)


def _half(reference: Population, half: int) -> Population:
    split = reference if HALF in reference.fields else with_halves(reference, b"public")
    first = np.minimum(split.offsets[:-1], max(split.n_examples - 1, 0))
    return split.select((split.columns[HALF][first] == half) & (split.sizes > 0))


def compare_with(question: Bias, public: Public) -> Comparison:
    """Everything that follows from the question and public data."""
    reference = public.reference
    if reference is None:
        raise InvalidInput("bias compares clients with public data: name a reference, such as the training data")
    _check(question, reference)
    names = _names(question, reference)
    divisions = list[Division]()
    if question.by:
        divisions.append(Division(question.by, names[question.by], _about(question.by)))
    label = question.schema.label
    if label in names:
        divisions.append(Division(label, names[label], "class"))
    looked = _aligned(question, reference, names)
    likely, least, classes = None, None, names.get(label, ())
    if _is_text(question):
        halves = with_halves(looked, b"public")
        settings = question.language
        likely = unlikely_text.learn(
            learning_half(halves), confirming_half(halves), size=settings.vocabulary_size, case=settings.case
        )
        looked = likely.observe(looked)
        divisions.append(Division(LIKELY, ("unlikely", "usual"), "likelihood", is_learnt=True))
    elif public.model is not None:
        looked = _judged(question, public.model, looked, is_public=True)
        usual = confirming_half(with_halves(looked, b"public")).columns["confidence"]
        least = float(np.quantile(usual, _UNSURE))
        looked = _with_sure(looked, least)
        divisions.append(Division(_SURE, ("unsure", "sure"), "model", is_learnt=True))
        if not classes:
            classes = _predicted(question, public.model, reference)
            divisions += [Division("predicted", classes, "predicted class", is_learnt=True)] if classes else []
    public_clients = with_halves(_with_cues(question, looked), b"public")
    return Comparison(
        question=question,
        model=public.model,
        names=names,
        likely=likely,
        least=least,
        reference=public_clients,
        divisions=tuple(divisions),
        limits=_limits(public_clients),
        classes=classes,
        seed=public.seed,
    )


def _about(field: str) -> str:
    return f"field {field}" if field in _TAKEN else field


def _check(question: Bias, reference: Population) -> None:
    """Refuse what cannot be compared."""
    ours = question.schema.population()
    for field in question.inputs:
        if field not in reference.fields:
            raise InvalidInput(
                f"there is no {field!r} in {reference.name}, which has {', '.join(reference.fields)}: name another"
            )
        (dtype, shape), (theirs, other) = ours.fields[field], reference.fields[field]
        if shape != other or dtype.kind != theirs.kind:
            raise InvalidInput(
                f"{field} of the clients is {_spell(dtype, shape)} and that of {reference.name} is "
                f"{_spell(theirs, other)}: bring both into one form"
            )
    if question.by and not (question.by in question.schema.fields and question.by in reference.fields):
        raise InvalidInput(f"clients and {reference.name} are divided by a field of both, which {question.by!r} is not")
    there = int(np.sum(reference.sizes > 0))
    if there < LEAST:
        raise InvalidInput(
            f"{reference.name} has {there:,} clients with examples and {LEAST} are needed, because how much clients "
            f"differ is part of every interval: name the column holding the client id, or more public data"
        )
    language = question.language
    if not _is_text(question) and (language.discover or language.training):
        raise InvalidInput("words are discovered and language models trained on text: name one text as the input")


def _spell(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{'text' if dtype == TEXT else dtype}{list(shape) if shape else ''}"


def _names(question: Bias, reference: Population) -> dict[str, tuple[str, ...]]:
    """The classes that fields are numbered by: those that the question names, or those of the reference.

    The clients' own list is not read: a loader may have read it off their data, where one example of one client makes a
    class, whose name would be in the report and whose place would move the numbers of all others.
    """
    schema = question.schema
    wanted: dict[str, Sequence[str]] = {
        field: () for field in question.inputs if field in reference.classes or field in schema.classes
    }
    if question.by:
        wanted[question.by] = question.values
    if schema.label in schema.fields and schema.label in reference.fields:
        wanted[schema.label] = question.classes
    names: dict[str, tuple[str, ...]] = {}
    for field, given in wanted.items():
        if field == question.by and given and reference.fields[field][0] == TEXT:
            names[field] = (*given, "other")
            continue
        names[field] = tuple(given) or _numbered(reference, field)[1]
        if len(names[field]) > _MOST_CLASSES and not given and field not in reference.classes:
            raise InvalidInput(
                f"{field!r} has {len(names[field]):,} different values in {reference.name}: name those to compare, or "
                f"another field"
            )
    return names


def _aligned(question: Bias, one: Population, names: dict[str, tuple[str, ...]]) -> Population:
    """The population with fields of classes numbered as `names` says, and texts cut into sentences."""
    for field, whole in names.items():
        is_coded = field == question.by and bool(question.values) and one.fields[field][0] == TEXT
        one = coded(one, field, question.values) if is_coded else _in_classes(one, field, whole)
    if not _is_text(question):
        return one
    (field,) = question.inputs
    sentences = text.split_sentences(one, field=field)
    return sentences.replace({**sentences.columns, "text": sentences.columns[field]})


def _is_text(question: Bias) -> bool:
    """Whether one text is compared, sentence by sentence."""
    return len(question.inputs) == 1 and question.schema.fields[question.inputs[0]].kind == "text"


def _in_classes(one: Population, field: str, whole: tuple[str, ...]) -> Population:
    codes, known = _numbered(one, field)
    places = {name: place for place, name in enumerate(whole)}
    place = np.array([places.get(name, -1) for name in known] + [-1], np.int32)
    codes = np.where((codes >= 0) & (codes < len(known)), codes, len(known))
    changed = one.replace({**one.columns, field: place[codes]})
    changed.classes[field] = whole
    return changed


def _numbered(one: Population, field: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """What `field` holds as numbers of classes, and their names: texts and whole numbers are their own names."""
    if field in one.classes:
        return one.columns[field].astype(np.int64), one.classes[field]
    dtype, shape = one.fields[field]
    if shape or dtype.kind not in "biuT":
        raise InvalidInput(
            f"{field} is {_spell(dtype, shape)} in {one.name}, and classes are texts or whole numbers: name another"
        )
    return as_classes(one.columns[field], one.name)


def _judged(question: Bias, model: Primary, one: Population, *, is_public: bool) -> Population:
    return observe_primary(one, model, inputs=question.inputs, label="", is_public=is_public)


def _with_sure(one: Population, least: float) -> Population:
    return one.replace({**one.columns, _SURE: (one.columns["confidence"] >= least).astype(np.int32)})


def _predicted(question: Bias, model: Primary, reference: Population) -> tuple[str, ...]:
    """The names of the classes that the model predicts: the reference's, or numbers where nobody has names."""
    label = question.schema.label
    if classes := reference.classes.get(label, ()):
        return classes
    if label in reference.fields and reference.fields[label][0].kind not in "iu":
        return ()
    one = gather(reference.columns, question.inputs)[:1]
    return tuple(map(str, range(model.scores(one).shape[1])))


def _with_cues(question: Bias, one: Population) -> Population:
    """The population with cues of its inputs, and of texts the surprise of a model beside them."""
    is_text = SURPRISE in one.fields
    found = cues.observe(one, ("text",) if is_text else question.inputs, question.ranges)
    if is_text:
        values = np.concatenate([found.columns[cues.FIELD], cues.in_steps(found.columns[SURPRISE][:, None])], axis=1)
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
