"""Laws of evaluation: the plain mean over all examples, however they are batched and whoever's they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from blindsight.backends import Batch
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.evaluation import by_client, evaluator, jackknife, relative_change
from blindsight.models.cifg_lstm import recall, word_model
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
    with pytest.raises(InvalidInput, match="the held-out clients of nobody have no examples"):
        evaluator(uneven([0, 0], name="nobody"), METRICS)


# --- of clients, with intervals


def words(clients=60, seed=0):
    """Clients with 0 to 4 rows of tokens each."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 5, clients)
    rows = random.integers(2, 9, (sizes.sum(), 6))
    rows[:, 0] = 1
    return Population({"tokens": rows.astype(np.int32)}, sizes=sizes, name="words")


def test_totals_of_clients_are_those_of_their_examples_alone():
    population, model = words(), word_model(9, embedding=3, cells=4, key=jax.random.key(0))
    metric = recall(top=2)
    found = by_client(population, {"recall": metric}, batch_size=7)(model)["recall"]
    alone = jax.jit(lambda model, rows: metric(model, Batch({"tokens": rows}, jnp.ones(len(rows))), jax.random.key(0)))
    right, counted = (np.asarray(part) for part in alone(model, jnp.asarray(population.columns["tokens"])))
    for client in range(population.size):
        own = slice(population.offsets[client], population.offsets[client + 1])
        assert found[client].tolist() == [right[own].sum(), counted[own].sum()]
    whole = evaluator(population, {"recall": metric}, batch_size=11)(model)["recall"]
    assert whole == pytest.approx(right.sum() / counted.sum(), rel=1e-6)  # of all words, not the mean of examples


def test_the_jackknife_of_a_mean_is_its_textbook_interval():
    values = np.random.default_rng(1).normal(3, 2, 40)
    found = jackknife(np.stack([values, np.ones(40)], axis=1), buckets=40)
    reach = stats.t.ppf(0.975, 39) * values.std(ddof=1) / np.sqrt(40)
    assert (found.value, found.low, found.high) == pytest.approx(
        (values.mean(), values.mean() - reach, values.mean() + reach)
    )


def test_intervals_hold_the_truth_as_often_as_they_say():
    random, held = np.random.default_rng(2), 0
    for _ in range(400):
        sizes = random.poisson(20, 300) + 1
        rates = random.beta(2, 6, 300)  # clients differ
        clients = np.stack([random.binomial(sizes, rates), sizes], axis=1).astype(float)
        interval = jackknife(clients)
        held += interval.low <= 0.25 <= interval.high
    assert 0.92 <= held / 400 <= 0.98  # and so would not with half the width (about 0.70)


def test_relative_change_pairs_the_clients():
    random = np.random.default_rng(3)
    sizes = np.full(200, 50.0)
    rates = random.beta(2, 6, 200)
    baseline = np.stack([50 * rates, sizes], axis=1)
    ours = np.stack([55 * rates, sizes], axis=1)
    found = relative_change(ours, baseline)
    assert found.value == pytest.approx(0.1)
    assert found.high - found.low < 1e-9  # the same clients: what differs between them cancels


def test_too_few_clients_for_an_interval_are_refused():
    with pytest.raises(InvalidInput, match="between 2 and 5 buckets"):
        jackknife(np.ones((5, 2)))
