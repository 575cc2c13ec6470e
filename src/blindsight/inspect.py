"""Questions about data that nobody may look at: `bs.inspect.slices(clients, model=..., epsilon=8, delta=1e-6)`.

=============  ==========================================================================================
`sanity`       Do the data look right at all? (T1 of Augenstein et al. 2020)
`mistakes`     What does the model get wrong? (T2)
`unknowns`     Which words does a vocabulary lack after a change, and why? (T3)
`slices`       Which clients does the model fail on? (T4)
`labelling`    Synthetic examples for people to label (T5)
`bias`         What do clients have that public data lack? (T6)
`contrast`     What differs between arms of your own?
=============  ==========================================================================================

**Guarantee** of every function: everything in the report and in the run folder, except values marked `simulation_only`,
is (epsilon, delta)-DP for each client. A model that was trained on the same clients adds its own cost. `reference` and
`vocabulary` are public and read without noise.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight import runs
from blindsight.accounting.ledger import ledger_names
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Schema
from blindsight.data.text import Case, Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.bias.question import Bias, Language, in_public_classes
from blindsight.inspection.contrast.question import Comparing, Contrast, Mistakes, Quarters, Sanity, Slices, Training
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.labelling.question import Labelling
from blindsight.inspection.labelling.task import check_unlabelled
from blindsight.inspection.question import Public, complete, identity_of, vocabulary_digest
from blindsight.inspection.report import Report
from blindsight.inspection.session import Session
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.inspection.unknowns.question import Unknowns
from blindsight.inspection.unknowns.words import joined
from blindsight.models.primary import Primary, in_order, primary
from blindsight.selection import Arms, Criterion, Forming

__all__ = ["Diagnosis", "Finding", "Language", "Quarters", "Report", "Schema", "Session", "Training", "WordTraining"]
__all__ += ["bias", "contrast", "labelling", "mistakes", "sanity", "slices", "unknowns"]

_IMAGE = ("image",)


def __dir__() -> list[str]:
    """The public names alone, for completion."""
    return list(__all__)


def sanity(
    clients: Population,
    *,
    epsilon: float,
    delta: float,
    model: Any = None,
    reference: Population | None = None,
    schema: Schema | None = None,
    suspects: Sequence[str] = (),
    forming: Forming = "zero_fill",
    training: Training | None = None,
    shares: Mapping[str, float] | None = None,
    session: Session | None = None,
) -> Report:
    """Do the data look right at all? Everyone, compared with public data of the same type.

    Args:
        clients: the protected population.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        model: the primary model: a function, a classifier, an ONNX file or a `Primary`. No votes without a model.
        reference: public data of the same type in which nothing is wrong.
        schema: the model's input fields (`inputs`, default `image`), the `label`, and public ranges of numbers.
        suspects: the faults to vote on; by default all that fit.
        forming: `zero_fill`, or `eligible` if membership in arms is public.
        training: trains a GAN on the clients for samples, instead of measuring moments.
        shares: how the precision is divided among `moments`, `cues` and `votes`.
        session: ledger, folder, population name, key, backend and progress.
    """
    common = _common(clients, epsilon, delta, model, reference, schema, suspects)
    return _ask_arms(Sanity(**common.fields, forming=forming, training=training, shares=shares or {}), common, session)


def mistakes(
    clients: Population,
    *,
    epsilon: float,
    delta: float,
    minimum: int = 5,
    model: Any = None,
    reference: Population | None = None,
    schema: Schema | None = None,
    suspects: Sequence[str] = (),
    forming: Forming = "zero_fill",
    training: Training | None = None,
    shares: Mapping[str, float] | None = None,
    session: Session | None = None,
) -> Report:
    """What does the model get wrong? Misclassified examples, compared with correctly classified ones.

    Args:
        clients: the protected population.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        minimum: include only clients with at least this many misclassified examples.
        model: the primary model: a function, a classifier, an ONNX file or a `Primary`.
        reference: public data of the same type; tests are of differences beyond those between its arms.
        schema: the model's input fields (`inputs`, default `image`), the `label`, and public ranges of numbers.
        suspects: the faults to vote on; by default all that fit.
        forming: `zero_fill`, or `eligible` if membership in arms is public.
        training: trains a GAN on the clients of every arm for samples, instead of measuring moments.
        shares: how the precision is divided among `moments`, `cues` and `votes`.
        session: ledger, folder, population name, key, backend and progress.
    """
    common = _common(clients, epsilon, delta, model, reference, schema, suspects)
    return _ask_arms(
        Mistakes(**common.fields, forming=forming, training=training, shares=shares or {}, minimum=minimum),
        common,
        session,
    )


def slices(
    clients: Population,
    *,
    epsilon: float,
    delta: float,
    by: str = "accuracy",
    values: Sequence[str] = (),
    thresholds: tuple[float, float] | None = None,
    model: Any = None,
    reference: Population | None = None,
    schema: Schema | None = None,
    suspects: Sequence[str] = (),
    forming: Forming = "zero_fill",
    session: Session | None = None,
) -> Report:
    """Which clients does the model fail on? Clients with low accuracy, compared with clients with high accuracy.

    Args:
        clients: the protected population.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        by: `accuracy`, or a field with named classes: its first class is compared with each other one.
        values: the public values of a text field to compare.
        thresholds: clients with an accuracy below the first count as failing, clients with at least the second as
            healthy. By default the lowest and highest quarter are compared, with privately estimated thresholds.
        model: the primary model: a function, a classifier, an ONNX file or a `Primary`.
        reference: public data of the same type; tests are of differences beyond those between its arms.
        schema: the model's input fields (`inputs`, default `image`), the `label`, and public ranges of numbers.
        suspects: the faults to vote on; by default all that fit.
        forming: `zero_fill`, or `eligible` if membership in arms is public.
        session: ledger, folder, population name, key, backend and progress.
    """
    common = _common(clients, epsilon, delta, model, reference, schema, suspects, (by,))
    question = Slices(**common.fields, forming=forming, by=by, values=tuple(values), thresholds=thresholds)
    return _ask_arms(question, common, session)


def contrast(
    clients: Population,
    arms: Arms | Mapping[str, Criterion] | Quarters,
    *,
    epsilon: float,
    delta: float,
    model: Any = None,
    reference: Population | None = None,
    schema: Schema | None = None,
    suspects: Sequence[str] = (),
    forming: Forming = "zero_fill",
    training: Training | None = None,
    per_class: int = 8,
    session: Session | None = None,
) -> Report:
    """What differs between arms of your own, and which fault explains the first?

    Args:
        clients: the protected population.
        arms: named criteria (`selection`), or `Quarters` of clients by accuracy; the first is compared with the others.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        model: the primary model: a function, a classifier, an ONNX file or a `Primary`. No votes without a model.
        reference: public data of the same type; tests are of differences beyond those between its arms.
        schema: the model's input fields (`inputs`, default `image`), the `label`, and public ranges of numbers.
        suspects: the faults to vote on; by default all that fit.
        forming: `zero_fill`, or `eligible` if membership in arms is public.
        training: trains a GAN on the clients of every arm for samples, instead of measuring moments.
        per_class: number of samples of each class and arm.
        session: ledger, folder, population name, key, backend and progress.
    """
    chosen = arms if isinstance(arms, Arms | Quarters) else Arms(arms)
    read = () if isinstance(chosen, Quarters) else chosen.fields
    common = _common(clients, epsilon, delta, model, reference, schema, suspects, read)
    question = Contrast(**common.fields, forming=forming, training=training, per_class=per_class, arms=chosen)
    return _ask_arms(question, common, session)


def labelling(
    clients: Population,
    *,
    epsilon: float,
    delta: float,
    samples: int = 500,
    model: Any = None,
    reference: Population | None = None,
    schema: Schema | None = None,
    training: Training | None = None,
    forming: Forming = "zero_fill",
    session: Session | None = None,
) -> Report:
    """Synthetic examples of all clients for people to label, with proposed labels.

    The run folder (`session.out`, default `runs/labelling-NAME`) gets the report, the set in `samples/`, and
    `label_studio.json` and `label_studio.xml`.

    Args:
        clients: the protected population.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        samples: minimum number of samples, equally many of every class.
        model: proposes labels, and predicts classes if clients have none. Without a model, the class that the generator
            was conditioned on is proposed.
        reference: public data of the same type.
        schema: the fields to show (`inputs`, default `image`), the `label`, and public ranges of numbers.
        training: trains a GAN on the clients for samples, instead of measuring moments.
        forming: `zero_fill`, or `eligible` if participation is public.
        session: ledger, folder, population name, key, backend and progress.
    """
    session = session or Session()
    folder = Path(session.out or Path("runs") / f"labelling-{runs.file_name(clients.name)}")
    check_unlabelled(folder)
    common = _common(clients, epsilon, delta, model, reference, schema, ())
    question = Labelling(
        **common.fields,
        forming=forming,
        training=training,
        shares={"moments": 0.9, "cues": 0.1},  # samples matter most here
        samples=samples,
        population=clients.name,
    )
    return dataclasses.replace(session, out=folder).ask(question, clients, common.public)


def unknowns(
    before: Population,
    after: Population,
    *,
    vocabulary: Vocabulary,
    epsilon: float,
    delta: float,
    field: str = "text",
    case: Case = "lower",
    suspects: Sequence[str] = (),
    most: int = 200,
    discover: bool = False,
    training: WordTraining | None = None,
    session: Session | None = None,
) -> Report:
    """Which words does a vocabulary lack after a change, compared with before, and which fault explains them?

    Args:
        before: the texts before the change. Equal ids on both sides mean the same client.
        after: the texts after the change.
        vocabulary: the public vocabulary.
        epsilon: epsilon of the guarantee, for clients with texts on one side or on both.
        delta: delta of the guarantee.
        field: the field that holds the texts.
        case: `lower`, or `keep` if the vocabulary has capitals.
        suspects: the faults to vote on; by default all that can make a word unknown.
        most: maximum number of sentences of a client on each side.
        discover: lists unknown words that many clients use, discovered letter by letter.
        training: trains language models of both sides, which generate sentences and unknown words.
        session: ledger, folder, population name, key, backend and progress. With a population name, both sides are one
            population in the ledger; without, each pays under its own name.
    """
    session = session or Session()
    for one in (before, after):
        if field not in one.fields or one.fields[field][0] != TEXT:
            raise InvalidInput(f"{one.name} has no text {field!r}: it has {', '.join(one.fields)}")
    clients = joined(before, after, field=field)
    question = Unknowns(
        schema=complete(Schema(inputs=("text",)), clients),
        clients=clients.size,
        epsilon=epsilon,
        delta=delta,
        suspects=tuple(map(str, suspects)),
        vocabulary=vocabulary_digest(vocabulary),
        words=len(vocabulary.words),
        case=case,
        most=most,
        discover=discover,
        training=training,
    )
    payers = ledger_names((before, after), session.population)
    return session.ask(question, clients, Public(vocabulary=vocabulary), payers=payers)


def bias(
    clients: Population,
    *,
    reference: Population,
    epsilon: float,
    delta: float,
    model: Any = None,
    schema: Schema | None = None,
    by: str = "",
    values: Sequence[str] = (),
    classes: Sequence[str] = (),
    language: Language | None = None,
    steps: int = 200,
    session: Session | None = None,
) -> Report:
    """What do clients have that the public reference lacks: classes, slices, styles, groups of images, sentences?

    Args:
        clients: the protected population.
        reference: public data, such as the model's training data, of at least 40 clients.
        epsilon: epsilon of the guarantee, for everything that is released.
        delta: delta of the guarantee.
        model: predicts classes if clients have no labels; the share of examples it is unsure of is compared too.
        schema: the fields to compare (`inputs`, default `image`): images, one text, or numbers and categories; the
            `label`; and public ranges of numbers.
        by: a public field to divide by.
        values: the values of `by` to compare, if it is text.
        classes: the classes to compare, default those of the reference. List client-only classes explicitly: which
            classes occur on clients is private.
        language: how texts are compared, and whether words are discovered and a second model is trained.
        steps: number of refinement steps of image generators.
        session: ledger, folder, population name, key, backend and progress.
    """
    common = _common(clients, epsilon, delta, model, reference, schema, (), (by,))
    question = Bias(
        **common.fields,
        by=by,
        values=tuple(values),
        classes=tuple(classes),
        language=language or Language(),
        steps=steps,
    )
    question = dataclasses.replace(question, schema=in_public_classes(question.schema, reference))
    return (session or Session()).ask(question, clients, common.public)


@dataclasses.dataclass(frozen=True)
class _Common:
    """The part that all questions about one population share."""

    clients: Population
    public: Public
    fields: dict[str, Any]


def _common(
    clients: Population,
    epsilon: float,
    delta: float,
    model: Any,
    reference: Population | None,
    schema: Schema | None,
    suspects: Sequence[str],
    also: Sequence[str] = (),
) -> _Common:
    checked: Primary | None = None if model is None else primary(model)
    names = clients.classes.get("label" if schema is None else schema.label, ())
    if checked is not None and set(names) <= set(checked.classes):
        checked = in_order(checked, names)  # by name, where the model and the clients name the same classes
    whole = complete(schema, clients, _IMAGE, also, model=checked, reference=reference)
    fields: dict[str, Any] = {"schema": whole, "clients": clients.size}
    fields |= {"epsilon": epsilon, "delta": delta, "suspects": tuple(map(str, suspects))}
    fields |= {"model": identity_of(checked), "reference": identity_of(reference)}
    return _Common(clients, Public(model=checked, reference=reference), fields)


def _ask_arms(question: Comparing, common: _Common, session: Session | None) -> Report:
    label, fields = question.schema.label, common.clients.fields
    if label not in ("", "label", *fields):  # the default label is optional
        raise InvalidInput(f"{common.clients.name} has no field {label!r}: choose the label from {', '.join(fields)}")
    return (session or Session()).ask(question, common.clients, common.public)
