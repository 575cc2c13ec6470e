"""The rounds that compare arms: at most two, both determined without reading any client.

If arms are quarters of clients by accuracy, the thresholds are released first. Then one round measures every arm at
once: moments, from which synthetic samples are generated; cues, whose differences are tested; and votes for the fault
whose removal repairs the primary model.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.algorithms import moments
from blindsight.algorithms.moments import MomentsPart
from blindsight.backends import Batch
from blindsight.codings import features
from blindsight.codings.features import Features
from blindsight.codings.images_and_rows import Category, Number
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring
from blindsight.inspection.answering import Dialogue, Round
from blindsight.inspection.contrast import cues, votes
from blindsight.inspection.contrast.question import SHARES, Comparing, Quarters
from blindsight.inspection.measuring import Measured, Measurement, Part, PricedRelease
from blindsight.inspection.question import Public, ReleasePlan, reading
from blindsight.mechanisms import GaussianMechanism, QuantileEstimate, quantile
from blindsight.progress import Progress, quiet
from blindsight.selection import Arms, by_accuracy, everything
from blindsight.selection import observe as observe_primary

__all__ = ["AccuracyCells", "features_of", "observe", "plan", "rounds"]

MEASURE, THRESHOLDS = "measure", "thresholds"
_ENOUGH = 5000  # public images, to estimate the strength of each frequency
_QUARTERS = ("failing", "healthy")


def rounds(question: Comparing, public: Public, progress: Progress = quiet) -> Dialogue[tuple[Measurement, Round]]:
    """The round that measures, with its release; before it the round of thresholds, if arms are quarters."""
    progress("running the model on every client's examples", 0, 4)
    look = functools.partial(observe, question, public)
    empty, arms = look(question.schema.population()), question.compared
    is_quarters = isinstance(arms, Quarters)
    if isinstance(arms, Quarters):
        _check_judged(empty)
        parts = _parts(question, public, empty, _QUARTERS, disjoint_by_client=True)
        progress("estimating the thresholds of accuracy", 1, 4)
        released = yield Round(
            name=THRESHOLDS,
            schema=question.schema,
            observe=look,
            arms=Arms({"everyone": everything()}),
            parts=(AccuracyCells(),),
            mechanisms={THRESHOLDS: _mechanisms(question, parts, with_thresholds=True)[THRESHOLDS]},
            note="thresholds of accuracy",
        )
        arms = _quarters(arms, released[THRESHOLDS])
    fitted = arms.fit(empty)
    parts = _parts(question, public, empty, tuple(fitted), disjoint_by_client=fitted.disjoint_by_client)
    noise = _mechanisms(question, parts, with_thresholds=is_quarters)
    one = Round(
        name=MEASURE,
        schema=question.schema,
        observe=look,
        arms=fitted,
        parts=tuple(parts),
        mechanisms={part.name: noise[part.name] for part in parts},
        forming=question.forming,
        note=fitted.rule,
    )
    progress("measuring everyone in one round", 2, 4)
    return (yield one), one


def _check_judged(empty: Population) -> None:
    if "is_correct" not in empty.fields:
        raise InvalidInput("quarters by accuracy need a primary model and labels: pass both, or choose other arms")


def plan(question: Comparing, public: Public) -> ReleasePlan:
    """What all rounds release."""
    arms, empty = question.compared, observe(question, public, question.schema.population())
    is_quarters = isinstance(arms, Quarters)
    if is_quarters:
        _check_judged(empty)
    fitted = (by_accuracy(0.5, 0.5) if isinstance(arms, Quarters) else arms).fit(empty)
    parts = _parts(question, public, empty, tuple(fitted), disjoint_by_client=fitted.disjoint_by_client)
    noise = _mechanisms(question, parts, with_thresholds=is_quarters)
    is_tested, is_divided = question.asks_for_votes, len(fitted) > 1 and fitted.disjoint_by_client
    least = _least(parts, noise, is_divided=is_divided) if is_tested else _least_shown(parts, noise)
    if is_quarters:
        return ReleasePlan([AccuracyCells(), *parts], noise, least=least, rounds=2)
    return ReleasePlan(parts, noise, least=least)


def _least(parts: Sequence[Part], noise: Mapping[str, GaussianMechanism], *, is_divided: bool) -> float:
    """Clients below which no arm is read, wherever they are: cues need five deviations of noise, votes four."""
    stds = {part.name: noise[part.name].noise_multiplier * part.bound for part in parts}
    least = 5 * stds["cues"] * (2 if is_divided else 1)
    for part in parts:
        if isinstance(part, votes.VotesPart):
            least = min(least, 4 * stds["votes"] * math.sqrt(len(part.labels)))
    return least


def observe(question: Comparing, public: Public, population: Population, *, is_public: bool = False) -> Population:
    """The population after every client has run the model, undone every suspect, and computed its cues."""
    model = None if public.model is None else reading(public.model, question.schema)
    inputs = question.inputs
    population = question.prepare(population, model, public.reference)
    label = question.schema.label
    if model is not None and question.asks_for_votes:
        population = observe_primary(population, model, inputs=inputs, label=label, is_public=is_public)
        if label in population.fields:
            faults = question.suspects or votes.candidates(population, inputs, label)
            population = votes.observe(population, model, faults, inputs=inputs, label=label)
    return cues.observe(population, inputs, question.ranges, public.reference)


def _parts(
    question: Comparing, public: Public, empty: Population, arms: tuple[str, ...], *, disjoint_by_client: bool
) -> list[Part]:
    """The parts: cues always, votes with a model and labels, moments of images and of rows."""
    usual = _public_cues(question, public)
    parts: list[Part] = [cues.cues_part(empty, arms, disjoint_by_client=disjoint_by_client, public=usual)]
    if votes.FIELD in empty.fields:
        parts.append(votes.votes_part(empty, arms, disjoint_by_client=disjoint_by_client))
    chosen = features_of(question, public, empty, len(arms))
    if chosen is not None:
        label = question.schema.label
        classes = empty.classes.get(label, ()) if label in empty.fields else ()
        per_client = 1 if disjoint_by_client else len(arms)
        parts.append(MomentsPart(chosen, arms, classes or ("all",), label if classes else None, per_client))
    return parts


def _public_cues(question: Comparing, public: Public) -> Population | None:
    """The cues of public data, from which clients learn what is usual; images are never missing."""
    is_image = any(question.schema.fields[field].kind == "image" for field in question.inputs)
    if public.reference is None or is_image:
        return None
    return cues.observe(public.reference, question.inputs, question.ranges, public.reference)


def _mechanisms(question: Comparing, parts: Sequence[Part], *, with_thresholds: bool) -> dict[str, GaussianMechanism]:
    """The noise of each part and of the thresholds, so that everything together costs (epsilon, delta)."""
    priced = [*([AccuracyCells()] if with_thresholds else []), *parts]
    given = {**SHARES, **question.shares}
    shares = {part.name: given[part.name] for part in priced}
    left = question.epsilon * (1 - question.training.share) if question.training else question.epsilon
    return measuring.noise_for(priced, epsilon=left, delta=question.delta, shares=shares)


def features_of(question: Comparing, public: Public, empty: Population, arms: int) -> Features | None:
    """What moments are measured of: images, or rows with public ranges; texts are compared by cues alone."""
    if question.training:
        return None
    first = question.inputs[0]
    shape = empty.fields[first][1]
    if len(shape) >= 2:
        classes = len(empty.classes.get(question.schema.label, ())) or 1
        frequencies = moments.frequencies_for(
            _usual_noise(question.epsilon, question.delta),
            clients=question.clients,
            classes=classes,
            arms=arms,
            channels=shape[2] if len(shape) == 3 else 1,
        )
        images = None if public.reference is None else public.reference.columns[first][:_ENOUGH]
        return features.images(shape, frequencies=frequencies, reference=images, field=first)
    columns = list[Number | Category]()
    for field in question.inputs:
        dtype, shape = empty.fields[field]
        if field in empty.classes:
            columns.append(Category(field, len(empty.classes[field])))
        elif field in question.ranges and dtype != TEXT and not shape:
            low, high = question.ranges[field]
            is_whole = question.schema.fields[field].kind == "whole"
            columns.append(Number(field, low, high, can_miss=dtype.kind == "f", whole=is_whole))
        else:
            return None
    return features.rows(columns)


@functools.cache
def _usual_noise(epsilon: float, delta: float) -> float:
    """The noise multiplier of moments when all parts are measured: public, so it may decide what is measured."""
    parts = [PricedRelease(name, 1) for name in SHARES]
    return measuring.noise_for(parts, epsilon=epsilon, delta=delta, shares=SHARES)["moments"].noise_multiplier


def _least_shown(parts: Sequence[Part], noise: Mapping[str, GaussianMechanism]) -> float:
    """Clients below which no sample is drawn, where samples are all that is asked for."""
    counts = [
        moments.fewest_seen(noise[part.name].noise_multiplier * part.bound) for part in parts if part.name == "moments"
    ]
    return max(counts, default=0.0)


# --- thresholds of accuracy


@dataclasses.dataclass(frozen=True)
class AccuracyCells:
    """The part from which quantiles of clients' accuracies are estimated: see `mechanisms.quantiles`.

    Each client marks the cell of its accuracy in histograms of 2, 4, ..., 2^levels cells; a client without examples
    marks none.
    """

    levels: int = 8
    name: str = THRESHOLDS

    @property
    def coordinates(self) -> int:
        """The cells of all histograms."""
        return 2 ** (self.levels + 1) - 2

    @property
    def bound(self) -> float:
        """One cell in each histogram."""
        return math.sqrt(self.levels)

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The cells of the client's accuracy."""
        del masks, key
        accuracy = batch.mean(batch["is_correct"].astype(jnp.float32))
        finest = jnp.clip(jnp.floor(accuracy * 2**self.levels), 0, 2**self.levels - 1).astype(jnp.int32)
        rows = [jax.nn.one_hot(finest >> (self.levels - level), 2**level) for level in range(1, self.levels + 1)]
        return jnp.concatenate(rows) * (jnp.sum(batch.weight) > 0).astype(jnp.float32)

    def read(self, measured: Measured, probability: float) -> QuantileEstimate:
        """The estimated quantile, with its interval."""
        mechanism = GaussianMechanism(1.0)  # only its estimate is used: the noise has been drawn
        estimator = quantile(probability, low=0.0, high=1.0, mechanism=mechanism, levels=self.levels)
        return estimator.estimate(np.asarray(measured.sums, np.float64), measured.noise_std)


def _quarters(quarters: Quarters, released: Measured) -> Arms:
    low, high = (AccuracyCells().read(released, chosen).value for chosen in (quarters.low, quarters.high))
    return by_accuracy(low, max(low, high))
