"""Laws of the means of moments as evidence: they are what clients add to the release, and a name must predict them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.accounting.guarantee import certify
from blindsight.algorithms.moments import MomentsPart
from blindsight.backends import Batch
from blindsight.codings import features
from blindsight.codings.images_and_rows import Category, Number
from blindsight.data import Population, embedded
from blindsight.data.schema import Field, Schema
from blindsight.inspection.contrast.averages import Averages, encoded
from blindsight.inspection.contrast.explained import UNKNOWN, verdict_on
from blindsight.inspection.contrast.foresight import Foresight
from blindsight.inspection.contrast.planting import explanations
from blindsight.inspection.contrast.question import Sanity
from blindsight.inspection.contrast.reading import usual
from blindsight.inspection.contrast.simulating import noise_of
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.question import Public, complete
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.selection import Arms, everything, where

ARMS = Arms({"threes": where("label", "3"), "others": everything()})


def pictures() -> tuple[Population, features.Features]:
    """Writers of few digits, some of them inverted: their moments are clipped."""
    writers = embedded("handwriting", clients=9, examples=(1, 5), seed=4, fault="invert:0.5")
    return writers.replace(writers.columns), features.images((28, 28), frequencies=12)


def rows() -> tuple[Population, features.Features]:
    """Rows with a missing number and a category."""
    dice = np.random.default_rng(0)
    columns = {"age": dice.uniform(0, 90, 40), "region": dice.integers(0, 3, 40).astype(np.int32)}
    columns["age"][3] = np.nan
    columns["label"] = dice.integers(0, 10, 40).astype(np.int32)
    classes = {"region": ("a", "b", "c"), "label": tuple(map(str, range(10)))}
    people = Population(columns, sizes=[5] * 8, classes=classes, name="rows")
    return people, features.rows([Number("age", 0, 100, can_miss=True), Category("region", 3)])


@pytest.mark.parametrize("made", [pictures, rows])
def test_they_are_what_clients_add_to_the_moments_over_all_classes(made: Any):
    population, measured = made()
    arms = ARMS.fit(population)
    part = MomentsPart.of(measured, arms, population)
    whole = np.zeros(part.coordinates)
    for client in range(population.size):
        one = population.select(np.array([client]))
        fields = dict(one.columns.items())
        batch = Batch(fields, jnp.ones(one.n_examples))
        whole += np.asarray(part.client_part(batch, arms.masks(batch), jax.random.key(0)))
    averages = Averages(part)
    sent = client_vectors(encoded(population, measured), arms, [averages])["moments"]
    released = averages.of_release(Measured(whole, 2.0, 1.0))
    assert sent.shape == (population.size, averages.coordinates)
    np.testing.assert_allclose(sent.sum(axis=0), released.sums, atol=1e-5)
    assert np.linalg.norm(sent, axis=1).max() <= averages.bound
    by_hand = whole.reshape(2, 10, -1)[:, :, 1 : 1 + measured.encoding.size].sum(axis=1)
    np.testing.assert_allclose(released.sums, by_hand.ravel(), atol=1e-9)


def test_their_noise_is_that_of_a_sum_over_classes():
    population, measured = pictures()
    part = MomentsPart.of(measured, ARMS.fit(population), population)
    dice = np.random.default_rng(1)
    released = [Averages(part).of_release(Measured(dice.normal(0, 3, part.coordinates), 3.0, 1.0)) for _ in range(300)]
    assert released[0].noise_std == pytest.approx(3 * math.sqrt(10))
    assert np.std([one.sums for one in released]) == pytest.approx(released[0].noise_std, rel=0.05)


def test_a_name_must_predict_the_moments_and_not_only_the_cues():
    """The same cues; once the moments are those of the fault, once those of healthy clients."""
    public = embedded("tabular", clients=60, seed=2)
    schema = complete(Schema({"age": Field("whole", 0, 100)}, ("age",)), public, ("age",))
    asked = Sanity(schema=schema, clients=600, epsilon=8.0, delta=1e-6, reference="r")
    sight = Foresight(asked, Public(reference=public))
    one, healthy = sight.round, sight.planter.healthy
    assert healthy is not None
    fault, names = "missing_fill:field=age:value=-1", ["cues", "moments"]
    sent, planted = usual(one.by_name, one.arms, healthy), sight.planter.sent(fault, one, names)
    assert planted is not None
    well = client_vectors(healthy, one.arms, [Averages(one.by_name["moments"])])["moments"]
    event = joint(*(one.mechanisms[part.name].planned_event for part in one.parts))
    guarantee, verdicts = certify(event, delta=1e-6), list[str]()
    for share in (0.3, 0.0):  # in the moments
        cues = 600 * (0.7 * sent.exact["cues"].mean(axis=0) + 0.3 * planted["cues"].mean(axis=0))
        means = 600 * ((1 - share) * well.mean(axis=0) + share * planted["moments"].mean(axis=0))
        part = one.by_name["moments"]
        moments = np.zeros((len(part.classes), 1 + part.features.dimension))
        moments[0, 1 : 1 + len(means)] = means  # as if all were of one class
        noise = noise_of(one)
        parts = {
            "cues": Measured(cues, noise["cues"], 0.0),
            "moments": Measured(moments.ravel(), noise["moments"], 0.0),
        }
        measured = Measurement(parts, tuple(one.arms), 600, event, guarantee)
        tried = explanations(asked, Public(reference=public), one, measured, dict(sent.exact), sight.planter)
        verdicts.append(verdict_on([one for one in tried if not one.is_nameless])[0])
    assert verdicts == [fault, UNKNOWN]
