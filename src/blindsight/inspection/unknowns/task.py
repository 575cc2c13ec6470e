"""`unknowns` (T3): more words are missing from a vocabulary; which ones, and why?

There are two collections of sentences, before a change and after it. One round over all clients measures on both what
the unknown words are like and which candidate fault explains the new ones (`words`, `findings`). On request, words that
many clients use are discovered (`algorithms.vocabulary`), and language models of both sides are trained (`models`). A
client may be on both sides and take part in all of it: all costs add up, and everything together is (epsilon,
delta)-DP.
"""

import functools
import itertools
from collections.abc import Mapping

import numpy as np

from blindsight.algorithms.vocabulary import WORD_CELLS, own_words
from blindsight.data import text
from blindsight.data.population import Population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring
from blindsight.inspection.answering import Dialogue, Round
from blindsight.inspection.measuring import Measured, Measurement, Part, Priced, PricedRelease
from blindsight.inspection.question import Public, ReleasePlan
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry, Words
from blindsight.inspection.unknowns import findings, models
from blindsight.inspection.unknowns import words as on_clients
from blindsight.inspection.unknowns.findings import NONE, Reading
from blindsight.inspection.unknowns.question import Unknowns
from blindsight.inspection.unknowns.section import Generated, Side, UnknownsSection
from blindsight.inspection.unknowns.words import ARMS, LENGTHS, PLACES, SIDES, TRAITS, Rates, SideVotes, Signs, sides_of
from blindsight.mechanisms import GaussianMechanism
from blindsight.progress import Progress, quiet
from blindsight.samples.views import ArmView
from blindsight.selection import FORMINGS
from blindsight.wording import percent

__all__ = ["SHARES", "conduct", "plan", "rounds"]

SHARES = {"rates": 0.4, "signs": 0.3, "votes": 0.3}
"""How the precision of the round is divided."""

DISCOVERY = 0.4
"""The share of the precision for discovered words, if requested."""

NOTES = (
    "Each client contributes the same number of sentences from both sides, the first ones; clients with sentences on "
    "only one side add zeros. Without a change the two sides are exchangeable, and the tests rely on that.",
    "An unknown word is one that the public vocabulary lacks.",
)
RARE = "On both sides, the rate of unknown words cannot be distinguished from zero at this epsilon."
MODELLED = (
    "Generated text is shown, not tested: tests use the released sums. Probabilities are those of the models, which "
    "the report's guarantee covers."
)


def rounds(question: Unknowns, public: Public, progress: Progress = quiet) -> Dialogue[tuple[Measurement, Round]]:
    """The only round, with its release."""
    progress("looking for unknown words on every client", 0, 3)
    parts: tuple[Part, ...] = (Rates(), Signs(), SideVotes(_labels(question)))
    noise = _mechanisms(question, parts)
    one = Round(
        name="measure",
        schema=question.schema,
        observe=functools.partial(_observe, question, _vocabulary(public)),
        arms=ARMS,
        parts=parts,
        mechanisms={part.name: noise[part.name] for part in parts},
        note="unknown words before and after a change",
    )
    progress("measuring everyone in one round", 1, 3)
    return (yield one), one


def plan(question: Unknowns, public: Public) -> ReleasePlan:
    """What the round and both discoveries release."""
    _vocabulary(public)
    parts: tuple[Part, ...] = (Rates(), Signs(), SideVotes(_labels(question)))
    noise = _mechanisms(question, parts)
    least = 5 * noise["rates"].noise_multiplier * parts[0].bound  # what `Reading.is_measurable` needs
    return ReleasePlan([*parts, *_discoveries(question)], noise, notes=_limits(question, parts, noise), least=least)


def _limits(question: Unknowns, parts: tuple[Part, ...], noise: Mapping[str, GaussianMechanism]) -> list[str]:
    """What could be found if nothing had changed so far and every client had sentences on both sides."""
    sums = {part.name: np.zeros(part.coordinates) for part in parts}
    sums["rates"][-1] = question.clients
    stds = {part.name: noise[part.name].noise_multiplier * part.bound for part in parts}
    rates, signs, votes = (Measured(sums[name], stds[name], 0.0) for name in ("rates", "signs", "votes"))
    tested = findings.compare(findings.read(rates, signs, votes, _labels(question)))[0]
    limits = [one.smallest for one in tested if one.kind == "votes" and one.smallest is not None]
    if not limits:
        return ["No change could be detected, even on all clients."]
    return [f"A fault would be named with 90 % power if at least {percent(max(limits), 2)} of clients vote for it."]


def _observe(question: Unknowns, vocabulary: Vocabulary, population: Population) -> Population:
    """The fields that every client derives from its own sentences of both sides."""
    before, after = sides_of(population)
    sentences = on_clients.paired(before, after, most=question.most)
    suspects = on_clients.suspects_of(question.suspects, question.case)
    return on_clients.observe(sentences, vocabulary, suspects, question.case)


def _vocabulary(public: Public) -> Vocabulary:
    if public.vocabulary is None:
        raise InvalidInput("unknown words need a public vocabulary: pass one")
    return public.vocabulary


def _labels(question: Unknowns) -> tuple[str, ...]:
    return (*map(str, on_clients.suspects_of(question.suspects, question.case)), NONE)


def _discoveries(question: Unknowns) -> list[PricedRelease]:
    """The discovery of words on each side, if requested."""
    return [PricedRelease(f"words {side}", WORD_CELLS) for side in SIDES] if question.discover else []


def _mechanisms(question: Unknowns, parts: tuple[Part, ...]) -> dict[str, GaussianMechanism]:
    """The noise of each part and of both discoveries, so that everything but training costs its share of epsilon."""
    left = question.epsilon * (1 - question.training.share) if question.training else question.epsilon
    discovered = _discoveries(question)
    priced: list[Priced] = [*parts, *discovered]
    rest = 1 - DISCOVERY if discovered else 1.0
    shares = {part.name: rest * SHARES[part.name] for part in parts}
    shares |= {one.name: DISCOVERY / len(SIDES) for one in discovered}
    return measuring.noise_for(priced, epsilon=left, delta=question.delta, shares=shares)


def conduct(question: Unknowns, inquiry: Inquiry) -> Report:
    """Ask the round, discover and train if requested, and read the releases."""
    paying = [inquiry.payers] * 2 if isinstance(inquiry.payers, str) else inquiry.payers
    payers: dict[str, str] = dict(zip(SIDES, paying, strict=True))
    vocabulary, training = _vocabulary(inquiry.public), question.training
    measured, one = inquiry.ask(rounds(question, inquiry.public, inquiry.progress))
    reading = findings.read(measured["rates"], measured["signs"], measured["votes"], _labels(question))
    sentences = _sentences(question, inquiry.clients) if question.discover or training else {}
    listed = _discovered(question, inquiry, sentences, payers, one) if question.discover else {}
    generated = models.train_models(question, training, inquiry, sentences, payers) if training else {}
    tested, diagnoses = findings.compare(reading)
    clients = inquiry.observed(one).size
    words = f"full: all {clients:,}, {FORMINGS['zero_fill']}"
    if training is not None:
        words += f"; training four models: poisson, {training.cohort:,.0f} expected in a round"
    return Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=_views(reading, clients),
        findings=tuple(tested),
        diagnoses=tuple(diagnoses),
        guarantee=inquiry.promise(words),
        releases=tuple(inquiry.releases),
        population={"name": inquiry.name, "clients": clients},
        notes=(*NOTES, *([RARE] if reading.is_rare else []), *([MODELLED] if generated else [])),
        ledger=inquiry.so_far(),
        unknowns=_section(reading, len(vocabulary.words), generated, listed),
    )


def _sentences(question: Unknowns, clients: Population) -> dict[str, Population]:
    """The sentences of each side, for discovery and models."""
    split = functools.partial(text.split_sentences, field="text", most=question.most)
    return {side: split(one) for side, one in zip(SIDES, sides_of(clients), strict=True)}


def _discovered(
    question: Unknowns,
    inquiry: Inquiry,
    sentences: Mapping[str, Population],
    payers: Mapping[str, str],
    one: Round,
) -> dict[str, Words]:
    """Words of each side that many clients use."""
    listed, noise = dict[str, Words](), _mechanisms(question, one.parts)
    for number, side in enumerate(SIDES):
        inquiry.progress(f"discovering words {side} the change", number, 2)
        own = own_words(sentences[side], case=question.case, known=_vocabulary(inquiry.public))
        words = inquiry.discover(f"words {side}", own, noise[f"words {side}"], payers=payers[side])
        listed[side] = tuple((word.replace("\u00a0", " "), count) for word, count in words)
    return listed


def _views(reading: Reading, clients: int) -> tuple[ArmView, ...]:
    """Both sides, with the share of clients that have sentences on both."""
    deviation = 1.96 * reading.noise_std["rates"]
    ends = (reading.counted, reading.counted - deviation, reading.counted + deviation)
    share, low, high = (float(np.clip(end / clients, 0, 1)) for end in ends)
    return tuple(ArmView(side, share, low, high) for side in SIDES)


def _section(
    reading: Reading, vocabulary: int, generated: Mapping[str, Generated], listed: Mapping[str, Words]
) -> UnknownsSection:
    sides = list[Side]()
    for number, name in enumerate(SIDES):
        rate, *rates = reading.rates(number)
        ends = itertools.pairwise(itertools.accumulate(map(len, (PLACES, TRAITS, LENGTHS)), initial=0))
        places, traits, lengths = (tuple(rates[begin:end]) for begin, end in ends)
        sides.append(Side(name, rate, places, traits, lengths, generated.get(name), listed.get(name)))
    return UnknownsSection(vocabulary, PLACES, TRAITS, LENGTHS, *sides)
