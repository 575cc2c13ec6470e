"""The rounds of a comparison with public data: what clients are asked, and how the answers are read.

The first round measures shares by class and slice, styles, and for images the moments of one half of the clients. A
discriminator learns from these (`images`), and the second round confirms it on the other half. Everything computed
between the rounds follows from the first release and public numbers, so a resumed run computes the same.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from blindsight.algorithms import moments
from blindsight.algorithms.moments import MomentsPart
from blindsight.algorithms.vocabulary import WORD_CELLS
from blindsight.codings import features
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring
from blindsight.inspection.answering import Dialogue, Round
from blindsight.inspection.bias import findings, images, measures
from blindsight.inspection.bias.comparison import Comparison, compare_with
from blindsight.inspection.bias.findings import Tested
from blindsight.inspection.bias.images import GROUPS, Discriminator, FirstArm
from blindsight.inspection.bias.measures import ARMS, HALF, Division, Limits, ReadShares, Shares, Styles
from blindsight.inspection.bias.question import Bias
from blindsight.inspection.contrast import cues
from blindsight.inspection.measuring import Measured, Measurement, Part, Priced, PricedRelease
from blindsight.inspection.question import Public, ReleasePlan
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism
from blindsight.progress import Progress, quiet
from blindsight.samples import clarity
from blindsight.selection import Arms, where

__all__ = ["SHARES", "Answers", "first_round", "groups_of", "learn", "mechanisms", "plan", "read_first", "read_second"]
__all__ += ["rounds", "second_round", "signal_of"]

SHARES = {"shares": 0.15, "styles": 0.25, "moments": 0.35, "groups": 0.15, "ratios": 0.1, "words": 0.5}
"""How the precision is divided among the requested parts."""

_HALVES = Arms({name: where(HALF, number, by_client=True) for number, name in enumerate(ARMS)})
_GROUP, _RATIO, _ENOUGH = "group", "ratio", 5000


def mechanisms(compared: Comparison, parts: Sequence[Priced]) -> dict[str, GaussianMechanism]:
    """The noise of the first round's `parts`, and of all that is asked for later."""
    return _noise(compared, [*parts, *_later(compared)])


def plan(compared: Comparison) -> ReleasePlan:
    """What all rounds release."""
    parts = first_round(compared).parts
    noise = mechanisms(compared, parts)
    # what `is_measurable` needs of shares and of styles
    stds = {part.name: noise[part.name].noise_multiplier * part.bound for part in parts}
    least = min(factor * stds[name] for name, factor in (("shares", 10), ("styles", 10)) if name in stds)
    return ReleasePlan([*parts, *_later(compared)], noise, least=least, rounds=2 if compared.image else 1)


def _later(compared: Comparison) -> list[Priced]:
    """What is asked for after the first round."""
    later: list[Priced] = []
    if compared.image:
        later = [PricedRelease("groups", Shares((groups_of(()),)).coordinates), PricedRelease("ratios", 3)]
    if compared.question.language.discover:
        later.append(PricedRelease("words", WORD_CELLS))
    return later


def _noise(compared: Comparison, parts: Sequence[Priced]) -> dict[str, GaussianMechanism]:
    question = compared.question
    training = question.language.training
    left = question.epsilon * (1 - training.share) if training else question.epsilon
    shares = {part.name: SHARES[part.name] for part in parts}
    return measuring.noise_for(parts, epsilon=left, delta=question.delta, shares=shares)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers:
    """The results of both rounds: comparisons before correction, and for images the discriminator learnt in between.

    `signal` is that of the moments that samples are drawn from, in standard deviations of their noise.
    """

    compared: Comparison
    first: Round
    tested: Sequence[Tested]
    learnt: Discriminator | None = None
    signal: float | None = None


def rounds(question: Bias, public: Public, progress: Progress = quiet) -> Dialogue[Answers]:
    """The first round, and for images the second one, which confirms what was learnt from the first."""
    progress("looking at every client's examples", 0, 4)
    compared = compare_with(question, public)
    first = first_round(compared)
    progress("measuring everyone in one round", 1, 4)
    measured = yield first
    tested = read_first(compared, first, measured)
    if not compared.image:
        return Answers(compared=compared, first=first, tested=tested)
    progress("learning what serving has more of", 2, 4)
    key = Key(public.seed, is_reproducible=True)  # post-processing of releases and public data
    learnt = learn(compared, first, measured, key, functools.partial(progress, "fitting generators"))
    second = second_round(compared, learnt)
    progress("confirming it on the other half", 3, 4)
    tested += read_second(compared, learnt, second, (yield second))
    signal = signal_of(first, measured)
    return Answers(compared=compared, first=first, tested=tested, learnt=learnt, signal=signal)


def first_round(compared: Comparison) -> Round:
    """Shares, styles, and for images the moments of one half of the clients."""
    shares = Shares(compared.divisions) if compared.divisions else None
    styles = Styles(cues.FIELD, compared.limits) if compared.limits else None
    parts: list[Part] = [part for part in (shares, styles) if part is not None]
    if compared.image:
        parts.append(FirstArm(_moments(compared, compared.image, parts)))
    if not parts:
        raise InvalidInput(
            "nothing to compare: name classes, a field to divide by, or public data with "
            f"{measures.STYLE_EXAMPLES} examples per client"
        )
    return _round(compared, "first", parts, mechanisms(compared, parts))


def _round(
    compared: Comparison,
    name: str,
    parts: Sequence[Part],
    noise: Mapping[str, GaussianMechanism],
    derive: Callable[[Population], Population] | None = None,
) -> Round:
    return Round(
        name=name,
        schema=compared.question.schema,
        observe=compared.observe,
        derive=derive,
        arms=_HALVES,
        parts=tuple(parts),
        mechanisms={part.name: noise[part.name] for part in parts},
        note="serving against public data: " + ", ".join(part.name for part in parts),
    )


def _moments(compared: Comparison, field: str, others: Sequence[Priced]) -> MomentsPart:
    """Moments of images, by class if there are classes; public numbers decide how many frequencies."""
    shape = compared.reference.fields[field][1]
    classes = compared.classes or ("all",)
    noise = _noise(compared, [*others, *(PricedRelease(name, 1) for name in ("moments", "groups", "ratios"))])
    frequencies = moments.frequencies_for(
        noise["moments"].noise_multiplier,
        clients=compared.question.clients / 2,
        classes=len(classes),
        channels=shape[2] if len(shape) == 3 else 1,
    )
    public = compared.learning.columns[field][:_ENOUGH]
    chosen = features.images(shape, frequencies=frequencies, reference=public, field=field)
    return MomentsPart(chosen, ARMS[:1], classes, compared.label if compared.classes else None)


def read_first(compared: Comparison, one: Round, measured: Measurement) -> list[Tested]:
    """The comparisons of the first round, before correction."""
    tested = list[Tested]()
    for part in one.parts:
        if isinstance(part, Shares):
            tested += _shares_tested(compared, part, measured["shares"])
        elif isinstance(part, Styles):
            tested += findings.compare_styles(measured["styles"], part, "style")
    return tested


def _shares_tested(compared: Comparison, part: Shares, measured: Measured) -> list[Tested]:
    public = compared.reference, compared.confirming
    whole, unseen = (measures.client_shares(one, part.divisions) for one in public)
    tested = list[Tested]()
    for place, (division, serving) in enumerate(zip(part.divisions, part.read(measured), strict=True)):
        training = unseen[place] if division.is_learnt else whole[place]
        # with two categories, the first determines the second
        names = division.names[:1] if len(division.names) == 2 and division.is_learnt else division.names
        tested += findings.compare_shares(serving, training, division, names, measured.epsilon)
    return tested


def learn(
    compared: Comparison, one: Round, measured: Measurement, key: Key, progress: Callable[[int, int], None]
) -> Discriminator:
    """A discriminator of the first half of the clients from public images; it is computed from a release."""
    part = one.by_name["moments"].part
    released = part.read(measured["moments"].sums, measured["moments"].noise_std)
    usual = images.public_moments(part, compared.learning, released, key.derive("usual"))
    return images.learn(
        released,
        part,
        usual,
        compared.confirming,
        steps=compared.question.steps,
        key=key.derive("discriminator"),
        progress=progress,
    )


def signal_of(one: Round, measured: Measurement) -> float:
    """The signal of the moments that samples are drawn from, in standard deviations of their noise."""
    released = one.by_name["moments"].part.read(measured["moments"].sums, measured["moments"].noise_std)
    return clarity.signal_to_noise(released.of_means, released.noise_std)


def second_round(compared: Comparison, learnt: Discriminator) -> Round:
    """The discriminator's output on the images of the other half of the clients."""
    division = groups_of([learnt.describe(group, compared.classes) for group in range(GROUPS)])
    limits = _ratio_limits(compared, learnt)
    parts: list[Part] = [Shares((division,), (1,), "groups")]
    if limits:
        parts.append(Styles(_RATIO, limits, (1,), "ratios"))
    noise = mechanisms(compared, first_round(compared).parts)
    return _round(compared, "second", parts, noise, functools.partial(_scored, str(compared.image), learnt))


def _ratio_limits(compared: Comparison, learnt: Discriminator) -> tuple[Limits, ...]:
    training = _scored(str(compared.image), learnt, compared.confirming)
    ratios = measures.client_means(training, _RATIO)[:, 0]
    return (Limits.of("resemblance to serving", ratios),) if len(ratios) else ()


def read_second(compared: Comparison, learnt: Discriminator, one: Round, measured: Measurement) -> list[Tested]:
    """The comparisons of the second round, before correction together with the first."""
    training = _scored(str(compared.image), learnt, compared.confirming)
    tested = _groups_tested(one.by_name["groups"], measured["groups"], training)
    if "ratios" in one.by_name:
        both = findings.compare_styles(measured["ratios"], one.by_name["ratios"], "style")
        tested += both[1:]  # one-sided: less resemblance to serving is nothing that training lacks
    return tested


def _scored(field: str, learnt: Discriminator, population: Population) -> Population:
    """The population after every client has applied the discriminator to its own images."""
    groups, ratios = learnt.score(population.columns[field])
    columns = {name: column for name, column in population.columns.items() if name in (HALF, measures.STYLE_FIELD)}
    return population.replace({**columns, _GROUP: groups, _RATIO: cues.in_steps(ratios.astype(np.float32)[:, None])})


def groups_of(described: Sequence[str]) -> Division:
    """Groups of images by number, with their majority class."""
    words = [*described, *[""] * (GROUPS - len(described))]
    names = [f"{group + 1}, {word}" if word else f"{group + 1}" for group, word in enumerate(words)]
    return Division(_GROUP, (*names, "as in training"), "group", is_learnt=True)


def _groups_tested(part: Shares, measured: Measured, training: Population) -> list[Tested]:
    """Every group, and all of them together: the last category is "as in training"."""
    (division,) = part.divisions
    (serving,), (usual,) = part.read(measured), measures.client_shares(training, part.divisions)
    tested = findings.compare_shares(serving, usual, division, division.names[:-1], measured.epsilon)

    def rest(one: ReadShares) -> ReadShares:
        return ReadShares(1 - one.mean[-1:], one.spread[-1:], one.counted, one.noise_std, one.upper[-1:])

    whole = Division(_GROUP, ("denser in serving",), findings.REGION)
    return [*tested, *findings.compare_shares(rest(serving), rest(usual), whole, whole.names, measured.epsilon)]
