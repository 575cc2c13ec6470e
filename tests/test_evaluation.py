"""Laws of evaluation: the plain mean over all examples, however they are batched and whoever's they are."""

import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.data.population import GeneratedPopulation, Population
from blindsight.errors import InvalidInput
from blindsight.evaluation import evaluator
from blindsight.models.classifiers import accuracy, cross_entropy


def uneven(sizes, name="uneven") -> Population:
    generator, total = np.random.default_rng(0), sum(sizes)
    columns = {
        "image": generator.normal(size=(total, 3)).astype(np.float32),
        "label": generator.integers(0, 4, total),
        "note": np.array(["x"] * total),
    }
    return Population(columns, sizes=sizes, name=name)


WEIGHT = np.random.default_rng(1).normal(size=(3, 4))


def model(x):
    return x @ jnp.asarray(WEIGHT, jnp.float32)


METRICS = {"accuracy": accuracy(), "loss": cross_entropy()}


@pytest.mark.parametrize("batch_size", [1, 7, 23, 1000])
def test_it_is_the_mean_over_examples_whatever_the_batch_size(batch_size):
    population = uneven([1, 0, 20, 2])
    right, losses = [], []
    for client in population:
        for image, label in zip(client["image"], client["label"], strict=True):
            logits = image.astype(np.float64) @ WEIGHT
            right.append(np.argmax(logits) == label)
            losses.append(np.log(np.exp(logits).sum()) - logits[label])
    found = evaluator(population, METRICS, batch_size=batch_size)(model)
    assert found["accuracy"] == pytest.approx(np.mean(right), rel=1e-5)
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert {type(value) for value in found.values()} == {float}


def test_examples_weigh_the_same_whoever_they_are_from():
    """One client with 1 example of value 1 and one with 9 of value 0: a mean over clients would be 1/2."""
    population = Population({"x": np.array([1.0] + [0.0] * 9, np.float32)}, sizes=[1, 9], name="two")
    value = lambda model, batch, key: batch.mean(batch["x"])  # noqa: E731
    assert evaluator(population, {"x": value}, batch_size=4)(None) == {"x": pytest.approx(0.1)}


def test_it_is_compiled_once_for_models_of_one_shape():
    traced = []

    def metric(model, batch, key):
        traced.append(1)
        return batch.mean(batch["image"][:, 0] * model)

    evaluate = evaluator(uneven([4, 4]), {"x": metric}, batch_size=3)
    one, two = evaluate(jnp.float32(1)), evaluate(jnp.float32(2))
    assert two["x"] == pytest.approx(2 * one["x"], rel=1e-6)
    assert len(traced) == 1


def test_a_generated_population_is_evaluated_like_the_same_one_in_memory():
    plain = uneven([2, 3, 4])
    drawn = GeneratedPopulation(lambda clients: plain.examples(clients), sizes=plain.sizes, name="drawn")
    assert evaluator(drawn, METRICS)(model) == evaluator(plain, METRICS)(model)


def test_nothing_to_evaluate_on_is_one_sentence():
    with pytest.raises(InvalidInput, match="the clients of nobody to evaluate on have no examples"):
        evaluator(uneven([0, 0], name="nobody"), METRICS)
