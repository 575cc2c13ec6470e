"""How clients are compared: everything that follows from the question and public data, before any client is asked.

The reference is split once: models are trained on one half of its clients and compared with the other. Each client then
derives the same fields from its own examples (`Comparison.observe`).
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
from blindsight.inspection.bias.measures import (
    HALF,
    Division,
    Limits,
    client_means,
    coins,
    mark_style_examples,
    with_halves,
)
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.bias.text import LIKELY, SURPRISE, Filter
from blindsight.inspection.contrast import cues
from blindsight.inspection.question import Public, reading
from blindsight.models.primary import Primary, gather
from blindsight.selection import coded
from blindsight.selection import observe as observe_primary
from blindsight.selection.observing import with_other

__all__ = ["Comparison", "compare_with", "confirming_half", "learning_half"]

LEAST = 40
"""The minimum number of public clients: half to learn from and half to compare with."""

_SURE = "sure"
_UNSURE = 0.1  # share of public examples that count as unsure
_TAKEN = ("class", "group", "style", "likelihood", "model")  # subjects with a fixed meaning in a report
_MOST_CLASSES = 100  # values of a field without a list of classes; with more, it probably holds names or texts


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The reference with all derived fields, the divisions of examples, and the limits of styles.

    `names` are the classes that number each field, `least` the confidence from which the model counts as sure.
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
            looked = _with_sure(_predicted_by(self.question, self.model, looked, is_public=False), self.least or 0.0)
        return with_halves(_with_cues(self.question, looked), self.seed, coins)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are compared."""
        return ("text",) if self.likely is not None else self.question.inputs

    @functools.cached_property
    def learning(self) -> Population:
        """The public clients that models are trained on."""
        return learning_half(self.reference)

    @functools.cached_property
    def confirming(self) -> Population:
        """The held-out public clients: model outputs are compared with these."""
        return confirming_half(self.reference)

    @property
    def image(self) -> str | None:
        """The image field, if images are compared."""
        return self.fields[0] if len(self.reference.fields[self.fields[0]][1]) >= 2 else None

    @property
    def label(self) -> str | None:
        """The field that holds classes, given or predicted."""
        labels = (self.question.schema.label, "predicted")
        return next((field for field in labels if field in self.reference.fields and self._clients_have(field)), None)

    def _clients_have(self, field: str) -> bool:
        return field in self.question.schema.fields or (field == "predicted" and self.model is not None)


def learning_half(reference: Population) -> Population:
    """Half of the public clients, always the same one: train models that score examples on this half."""
    return _half(reference, 0)


def confirming_half(reference: Population) -> Population:
    """The other half, held out from training."""
    return _half(reference, 1)


def _half(reference: Population, half: int) -> Population:
    split = reference if HALF in reference.fields else with_halves(reference, b"public")
    first = np.minimum(split.offsets[:-1], max(split.n_examples - 1, 0))
    return reference.select((split.columns[HALF][first] == half) & (split.sizes > 0))


def compare_with(question: Bias, public: Public) -> Comparison:
    """Everything that follows from the question and public data."""
    reference = public.reference
    if reference is None:
        raise InvalidInput("bias compares clients with public data: pass a reference, such as the training data")
    _check(question, reference)
    names = _names(question, reference)
    divisions = list[Division]()
    if question.by:
        divisions.append(Division(question.by, names[question.by], _subject(question.by)))
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
        looked = _predicted_by(question, public.model, looked, is_public=True)
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


def _subject(field: str) -> str:
    return f"field {field}" if field in _TAKEN else field


def _check(question: Bias, reference: Population) -> None:
    """Refuse data that cannot be compared."""
    ours = question.schema.population()
    for field in question.inputs:
        if field not in reference.fields:
            raise InvalidInput(f"{reference.name} has no field {field!r}: choose one of {', '.join(reference.fields)}")
        (dtype, shape), (theirs, other) = ours.fields[field], reference.fields[field]
        if shape != other or dtype.kind != theirs.kind:
            raise InvalidInput(
                f"{field} is {_spell(dtype, shape)} on clients and {_spell(theirs, other)} in {reference.name}: "
                f"convert both to one type and shape"
            )
    if question.by and not (question.by in question.schema.fields and question.by in reference.fields):
        raise InvalidInput(
            f"{question.by!r} is not a field of both the clients and {reference.name}: divide by another"
        )
    there = int(np.sum(reference.sizes > 0))
    if there < LEAST:
        raise InvalidInput(
            f"{reference.name} has {there:,} clients with examples, and {LEAST} are needed: intervals use the variance "
            f"between clients. Name the column holding the client id, or add public data"
        )
    language = question.language
    if not _is_text(question) and (language.discover or language.training):
        raise InvalidInput("discovering words and training language models need one text field as the input")


def _spell(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{'text' if dtype == TEXT else dtype}{list(shape) if shape else ''}"


def _names(question: Bias, reference: Population) -> dict[str, tuple[str, ...]]:
    """The classes that number each field: those in the question, or those of the reference.

    The clients' own list is not read. A loader may have derived it from their data, so that one example of one client
    could add a class: its name would appear in the report, and its position would renumber all others.
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
            names[field] = with_other(given)
            continue
        names[field] = tuple(given) or _numbered(reference, field)[1]
        if len(names[field]) > _MOST_CLASSES and not given and field not in reference.classes:
            raise InvalidInput(
                f"{field!r} has {len(names[field]):,} different values in {reference.name}: list the ones to compare, "
                f"or choose another field"
            )
    return names


def _aligned(question: Bias, one: Population, names: dict[str, tuple[str, ...]]) -> Population:
    """The population with class fields numbered as in `names`, and texts split into sentences."""
    for field, whole in names.items():
        is_coded = field == question.by and bool(question.values) and one.fields[field][0] == TEXT
        one = coded(one, field, question.values) if is_coded else _in_classes(one, field, whole)
    if not _is_text(question):
        return one
    (field,) = question.inputs
    sentences = text.split_sentences(one, field=field)
    return sentences.replace({**sentences.columns, "text": sentences.columns[field]})


def _is_text(question: Bias) -> bool:
    """Whether one text field is compared, sentence by sentence."""
    return len(question.inputs) == 1 and question.schema.fields[question.inputs[0]].kind == "text"


def _in_classes(one: Population, field: str, whole: tuple[str, ...]) -> Population:
    codes, classes = _numbered(one, field)
    places = {name: place for place, name in enumerate(whole)}
    place = np.array([places.get(name, -1) for name in classes] + [-1], np.int32)
    codes = np.where((codes >= 0) & (codes < len(classes)), codes, len(classes))
    changed = one.replace({**one.columns, field: place[codes]})
    changed.classes[field] = whole
    return changed


def _numbered(one: Population, field: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The values of `field` as class numbers, and the class names: texts and whole numbers are their own names."""
    if field in one.classes:
        return one.columns[field].astype(np.int64), one.classes[field]
    dtype, shape = one.fields[field]
    if shape or dtype.kind not in "biuT":
        raise InvalidInput(
            f"{field} is {_spell(dtype, shape)} in {one.name}, but classes are texts or whole numbers: choose another"
        )
    return as_classes(one.columns[field], one.name)


def _predicted_by(question: Bias, model: Primary, one: Population, *, is_public: bool) -> Population:
    reader = reading(model, question.schema)
    return observe_primary(one, reader, inputs=question.inputs, label="", is_public=is_public)


def _with_sure(one: Population, least: float) -> Population:
    return one.replace({**one.columns, _SURE: (one.columns["confidence"] >= least).astype(np.int32)})


def _predicted(question: Bias, model: Primary, reference: Population) -> tuple[str, ...]:
    """The names of the classes that the model predicts: those of the reference, or numbers."""
    label = question.schema.label
    if classes := reference.classes.get(label, ()):
        return classes
    if label in reference.fields and reference.fields[label][0].kind not in "iu":
        return ()
    one = gather(reference.columns, question.inputs)[:1]
    return tuple(map(str, range(model.scores(one).shape[1])))


def _with_cues(question: Bias, one: Population) -> Population:
    """The population with the cues of its inputs; for text, the surprise of the language model is one more cue."""
    is_text = SURPRISE in one.fields
    observed = cues.settled(cues.observe(one, ("text",) if is_text else question.inputs, question.ranges))
    if is_text:
        surprise = cues.in_steps(observed.columns[SURPRISE][:, None])
        names = (*observed.classes[cues.FIELD], SURPRISE)
        values = np.concatenate([observed.columns[cues.FIELD], surprise], axis=1)
        observed = observed.replace({**observed.columns, cues.FIELD: values})
        observed.classes[cues.FIELD] = names
    return mark_style_examples(observed)


def _limits(public: Population) -> tuple[Limits, ...]:
    """The limits of every cue among public clients; none if too few of them have enough examples."""
    means, unseen = client_means(public, cues.FIELD), client_means(confirming_half(public), cues.FIELD)
    if len(unseen) < LEAST // 2:
        return ()
    names = public.classes[cues.FIELD]
    return tuple(
        Limits.of(name, (unseen if name == SURPRISE else means)[:, column]) for column, name in enumerate(names)
    )
