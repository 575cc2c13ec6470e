"""`bias` (T6): what do clients have that the public training data lack?

One round over all clients measures shares by class and slice, styles, and for images the moments of one half of the
clients (`measures`). A discriminator learns from these (`images`), and a second round confirms it on the other half.
For text, a model of public text decides which sentences are unlikely (`text`). Everything is compared with public data,
and the tests include the sampling error of both sides (`findings`). All rounds together are (epsilon, delta)-DP for
each client.
"""

from collections.abc import Sequence

import numpy as np

from blindsight.algorithms.vocabulary import own_words
from blindsight.errors import InvalidInput
from blindsight.inspection.answering import Round
from blindsight.inspection.bias import findings
from blindsight.inspection.bias import text as unlikely_text
from blindsight.inspection.bias.comparison import Comparison, compare_with
from blindsight.inspection.bias.foresight import BiasForesight
from blindsight.inspection.bias.images import GROUPS, Discriminator
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.bias.rounds import groups_of, mechanisms, rounds
from blindsight.inspection.bias.rounds import plan as plan_of
from blindsight.inspection.bias.section import BiasSection, Compared, ImageGroup, Word
from blindsight.inspection.bias.text import Filter
from blindsight.inspection.contrast import cautions
from blindsight.inspection.question import Public, ReleasePlan
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.samples.views import ArmView
from blindsight.selection import FORMINGS

__all__ = ["conduct", "foresee", "plan", "rounds"]

foresee = BiasForesight

NOTES = (
    "Tests use the released sums, which have known noise, never synthetic samples. They include the sampling error of "
    "private and public clients, and are corrected together (Holm).",
    "A style is a mean over ten of a client's examples; clients with fewer than ten are left out.",
)
LEARNT = (
    "Model outputs on clients are compared with the half of the public clients that the model was not trained on. A "
    "model of your own must not have been trained on the reference: it would be more confident there than elsewhere."
)
CONFIRMED = (
    "Samples are synthetic: the generator is fitted to a release about half of the clients. Groups are fixed before "
    "the other half reports what share of its own images falls into each; shares are those of the other half.",
)


def plan(question: Bias, public: Public) -> ReleasePlan:
    """What all rounds release."""
    return plan_of(compare_with(question, public))


def conduct(question: Bias, inquiry: Inquiry) -> Report:
    """Ask both rounds, discover words and train a model if requested, and read the releases."""
    answers = inquiry.ask(rounds(question, inquiry.public, inquiry.progress))
    compared, learnt = answers.compared, answers.learnt
    words = _discovered(compared, inquiry, answers.first) if question.language.discover else None
    phrases = _generated(compared, inquiry, answers.first, words) if question.language.training else None
    concluded, lines = findings.conclude(answers.tested)
    report = Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=_views(learnt, answers.signal),
        findings=tuple(concluded),
        diagnoses=(),
        guarantee=inquiry.promise(_participation(question)),
        releases=tuple(inquiry.releases),
        population={"name": inquiry.name, "clients": question.clients, "classes": list(compared.classes)},
        notes=_notes(compared, learnt, lines),
        ledger=inquiry.so_far(),
        bias=BiasSection(
            compared.reference.name,
            compared.reference.size,
            tuple(lines),
            _groups(learnt, lines, compared.classes),
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
        raise InvalidInput("discovering words and training language models need one text field as the input")
    return compared.likely


def _discovered(compared: Comparison, inquiry: Inquiry, first: Round) -> tuple[Word, ...]:
    """Words that many clients, but few public ones, use in unlikely sentences."""
    inquiry.progress("discovering words", 2, 4)
    case, unlikely = _filter(compared).case, unlikely_text.unlikely
    common, shares = unlikely_text.expected_words(unlikely(compared.confirming), case)
    own = own_words(unlikely(inquiry.observed(first)), case=case, known=common)
    noise = mechanisms(compared, first.parts)["words"]
    listed = inquiry.discover("words", own, noise, payers=inquiry.payers)
    return tuple(Word(word, count, inquiry.clients.size * shares.get(word, 0.0)) for word, count in listed)


def _generated(compared: Comparison, inquiry: Inquiry, first: Round, words: tuple[Word, ...] | None) -> tuple[str, ...]:
    """Phrases of a second model trained on unlikely sentences; its vocabulary includes the discovered words."""
    training = compared.question.language.training
    if training is None:
        raise AssertionError("a model is trained where training is asked for")
    sentences = unlikely_text.unlikely(inquiry.observed(first))
    discovered = tuple(one.word for one in words or ())
    model = unlikely_text.SecondModel(_filter(compared), compared.learning, discovered, training)
    (trained,) = inquiry.train([model.lesson(sentences, inquiry.payers)], "training the second model")
    return model.phrases(trained)


def _groups(
    learnt: Discriminator | None, lines: Sequence[Compared], classes: tuple[str, ...]
) -> tuple[ImageGroup, ...]:
    """The groups of images to show, largest difference first."""
    if learnt is None:
        return ()
    by_name = {one.name: one for one in lines if one.subject == "group"}
    names = groups_of([learnt.describe(group, classes) for group in range(GROUPS)]).names[:-1]
    groups = [ImageGroup(by_name[name], learnt.ratio(group), learnt.shown(group)) for group, name in enumerate(names)]
    return tuple(
        sorted(
            (group for group in groups if len(group.samples)),
            key=lambda group: group.compared.training.value - group.compared.serving.value,
        )
    )


def _views(learnt: Discriminator | None, signal: float | None) -> tuple[ArmView, ...]:
    """Samples of both sides, equally many; only names if there are no images."""
    if learnt is None:
        return (ArmView("training"), ArmView("serving"))
    more = np.concatenate([learnt.shown(group) for group in range(GROUPS)])
    usual = np.flatnonzero(learnt.group == GROUPS)
    usual = usual[np.argsort(np.abs(learnt.log_ratios[usual]), kind="stable")]
    count = min(len(more), len(usual))
    if not count:
        return (ArmView("training"), ArmView("serving"))
    return (
        ArmView("as in training", samples=learnt.samples[usual[:count]], signal_to_noise=signal),
        ArmView("more frequent in serving", samples=more[:count], signal_to_noise=signal),
    )


def _notes(compared: Comparison, learnt: Discriminator | None, lines: Sequence[Compared]) -> tuple[str, ...]:
    is_learnt = any(one.is_learnt for one in compared.divisions)
    is_unsure = any((one.subject, one.name, one.verdict) == ("model", "unsure", "more") for one in lines)
    warned = cautions.overconfidence(compared.model, is_unsure=is_unsure)
    small = cautions.resolution(compared.reference.size)
    styles = () if compared.limits else ("Styles were not compared: too few public clients have ten examples.",)
    confirmed = CONFIRMED if learnt is not None else ()
    return (*warned, *NOTES, *small, *styles, *((LEARNT,) if is_learnt else ()), *confirmed)
