"""`bias` (T6): what does the population that a model serves have that its public training data lack?

One round over all clients measures shares by class and slice, styles, and of images the moments of one half of the
clients (`measures`). What a discriminator learns from these (`images`) a second round confirms on the other half. Of
texts, a model of public text says which sentences are unlikely (`text`). Everything is compared with public data whose
own draw counts too (`findings`). All rounds together are (epsilon, delta)-DP for each client.
"""

import functools
from collections.abc import Sequence

import numpy as np

from blindsight.algorithms.vocabulary import own_words
from blindsight.errors import InvalidInput
from blindsight.inspection.answering import Round
from blindsight.inspection.bias import findings, rounds
from blindsight.inspection.bias import text as unlikely_text
from blindsight.inspection.bias.comparison import Comparison, compare_with
from blindsight.inspection.bias.images import KINDS, Discriminator
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.bias.section import Bias as Section
from blindsight.inspection.bias.section import Compared, Kind, Word
from blindsight.inspection.bias.text import Filter
from blindsight.inspection.question import check_reference
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.keys import Key
from blindsight.samples.views import ArmView
from blindsight.selection import FORMINGS

__all__ = ["find_bias"]

NOTES = (
    "Tests are on released sums, whose noise is known, never on samples. They count the draw of the private clients "
    "and that of the public ones, and are corrected together (Holm).",
    "A style is a mean over ten of a client's examples; clients with fewer have none.",
)
LEARNT = (
    "What a model says is compared with the half of the public clients that it was not trained on. A model of your own "
    "must not have been trained on the reference, or it will be surer of it than of anything else."
)
CONFIRMED = (
    "Samples are synthetic, from a generator that knows half of the clients by what was released. Groups are fixed "
    "before the other half of the clients reports which share of its own images falls into each: shares are of these.",
)


def find_bias(question: Bias, inquiry: Inquiry) -> Report:
    """Ask both rounds, discover and train if asked to, and read what was released."""
    check_reference(inquiry.clients, inquiry.public.reference)
    inquiry.progress("looking at every client's examples", 0, 4)
    compared = compare_with(question, inquiry.public)
    first = rounds.first_round(compared)
    inquiry.progress("measuring everyone in one round", 1, 4)
    measured = inquiry.measure(first)
    tested = rounds.read_first(compared, first, measured)
    learnt = None
    if compared.image:
        inquiry.progress("learning what serving has more of", 2, 4)
        key = Key(inquiry.public.seed, is_reproducible=True)  # of what is computed from releases and public data
        doing = functools.partial(inquiry.progress, "fitting generators")
        learnt = rounds.learn(compared, first, measured, key, doing)
        second = rounds.second_round(compared, learnt)
        inquiry.progress("confirming it on the other half", 3, 4)
        tested += rounds.read_second(compared, learnt, second, inquiry.measure(second))
    words = _discovered(compared, inquiry, first) if question.language.discover else None
    phrases = _generated(compared, inquiry, first, words) if question.language.training else None
    concluded, lines = findings.conclude(tested)
    report = Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=_views(learnt),
        findings=tuple(concluded),
        diagnoses=(),
        guarantee=inquiry.promise(_participation(question)),
        releases=tuple(inquiry.releases),
        population={"name": inquiry.name, "clients": question.clients, "classes": list(compared.classes)},
        notes=_notes(compared, learnt),
        ledger=inquiry.so_far(),
        bias=Section(
            compared.reference.name,
            compared.reference.size,
            tuple(lines),
            _kinds(learnt, lines, compared.classes),
            words,
            phrases,
        ),
    )
    if any(arm.samples is not None for arm in report.arms):
        report.save_samples(inquiry.run.path / "samples")
    return report


def _participation(question: Bias) -> str:
    words = f"full: all {question.clients:,}, {FORMINGS['zero_fill']}"
    training = question.language.training
    return words if training is None else f"{words}; training: poisson, {training.cohort:,.0f} expected in a round"


def _filter(compared: Comparison) -> Filter:
    if compared.likely is None:
        raise InvalidInput("words are discovered and language models trained on text: name one text as the input")
    return compared.likely


def _discovered(compared: Comparison, inquiry: Inquiry, first: Round) -> tuple[Word, ...]:
    """Words of unlikely sentences that many clients use and public ones do not."""
    inquiry.progress("discovering words", 2, 4)
    case, unlikely = _filter(compared).case, unlikely_text.unlikely
    common, shares = unlikely_text.expected_words(unlikely(compared.confirming), case)
    own = own_words(unlikely(inquiry.observed(first)), case=case, known=common)
    noise = rounds.mechanisms(compared, first.parts)["words"]
    listed = inquiry.discover("words", own, noise, payers=inquiry.payers)
    return tuple(Word(word, count, inquiry.clients.size * shares.get(word, 0.0)) for word, count in listed)


def _generated(compared: Comparison, inquiry: Inquiry, first: Round, words: tuple[Word, ...] | None) -> tuple[str, ...]:
    """What a second model says that was trained on unlikely sentences; it knows discovered words."""
    training = compared.question.language.training
    if training is None:
        raise AssertionError("a model is trained where training is asked for")
    sentences = unlikely_text.unlikely(inquiry.observed(first))
    discovered = tuple(one.word for one in words or ())
    model = unlikely_text.SecondModel(_filter(compared), compared.learning, discovered, training)
    (trained,) = inquiry.train([model.lesson(sentences, inquiry.payers)], "training the second model")
    return model.phrases(trained)


def _kinds(learnt: Discriminator | None, lines: Sequence[Compared], classes: tuple[str, ...]) -> tuple[Kind, ...]:
    """The groups of images as they are shown, those with the largest difference first."""
    if learnt is None:
        return ()
    by_name = {one.name: one for one in lines if one.about == "kind"}
    names = rounds.kinds_of([learnt.describe(kind, classes) for kind in range(KINDS)]).names[:-1]
    kinds = [Kind(by_name[name], learnt.ratio(kind), learnt.shown(kind)) for kind, name in enumerate(names)]
    return tuple(
        sorted(
            (kind for kind in kinds if len(kind.samples)),
            key=lambda kind: kind.compared.training.value - kind.compared.serving.value,
        )
    )


def _views(learnt: Discriminator | None) -> tuple[ArmView, ...]:
    """Samples of both sides, equally many; without images the two are only named."""
    if learnt is None:
        return (ArmView("training"), ArmView("serving"))
    more = np.concatenate([learnt.shown(kind) for kind in range(KINDS)])
    usual = np.flatnonzero(learnt.kind == KINDS)
    usual = usual[np.argsort(np.abs(learnt.log_ratios[usual]), kind="stable")]
    count = min(len(more), len(usual))
    if not count:
        return (ArmView("training"), ArmView("serving"))
    return (
        ArmView("as in training", samples=learnt.samples[usual[:count]]),
        ArmView("more in serving", samples=more[:count]),
    )


def _notes(compared: Comparison, learnt: Discriminator | None) -> tuple[str, ...]:
    is_learnt = any(one.is_learnt for one in compared.divisions)
    styles = () if compared.limits else ("Too few public clients have ten examples for styles to be compared.",)
    return (*NOTES, *styles, *((LEARNT,) if is_learnt else ()), *(CONFIRMED if learnt is not None else ()))
