"""Laws of what clients send to be compared with public data: bounded whatever they hold, and read as it was sent."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flat import compared

from blindsight.backends import Batch
from blindsight.data import embedded
from blindsight.data.population import Population, as_text
from blindsight.inspection.bias.images import FirstArm
from blindsight.inspection.bias.measures import (
    HALF,
    STYLE_EXAMPLES,
    STYLE_FIELD,
    Division,
    Limits,
    Shares,
    Styles,
    client_means,
    client_shares,
    coins,
    halves,
    mark_style_examples,
    same_clients,
    with_halves,
)
from blindsight.inspection.measuring import Measured

KEY = jax.random.key(0)
DIVISIONS = (Division("label", ("a", "b", "c"), "class"), Division("kind", ("x", "y"), "kind"))
LIMITS = tuple(Limits(f"cue {n}", 0.2, 0.6, 5, 100) for n in range(7))


def batch(count: int = 12, **changed) -> Batch:
    random = np.random.default_rng(count)
    fields = {"label": random.integers(0, 3, count), "kind": random.integers(0, 2, count)}
    fields |= {"cues": random.random((count, 7)), STYLE_FIELD: np.ones(count, np.uint8)}
    fields = {name: jnp.asarray(value) for name, value in (fields | changed).items()}
    return Batch(fields, jnp.ones(count, jnp.float32))


def sent(part, one: Batch, arm: int = 0) -> np.ndarray:
    masks = jnp.zeros((2, len(one.weight))).at[arm].set(one.weight)
    return np.asarray(part.client_part(one, masks, KEY), np.float64)


@pytest.mark.parametrize("labels", [[0] * 12, list(range(12)), [-5] * 12, [2**31 - 1] * 12, [0, 1, 2] * 4], ids=str)
def test_no_division_of_examples_is_longer_than_the_bound(labels):
    part = Shares(DIVISIONS)
    assert np.linalg.norm(sent(part, batch(label=np.array(labels), kind=np.zeros(12, int)))) <= part.bound + 1e-6


def test_the_bound_of_shares_is_reached():
    part = Shares(DIVISIONS)
    assert np.linalg.norm(sent(part, batch(label=np.zeros(12, int), kind=np.ones(12, int)))) == pytest.approx(
        part.bound
    )


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, np.inf, -1e30, 0.4])
def test_nobody_has_more_habits_than_the_bound_allows(value):
    part = Styles("cues", LIMITS)
    assert np.linalg.norm(sent(part, batch(cues=np.full((12, 7), value)))) <= part.bound + 1e-6


def test_the_bound_of_habits_is_that_of_four_of_them():
    part = Styles("cues", LIMITS)
    four = np.where(np.arange(7) < 4, 0.9, 0.4)
    all_seven = sent(part, batch(cues=np.full((12, 7), 0.9)))
    assert np.linalg.norm(sent(part, batch(cues=np.tile(four, (12, 1))))) == pytest.approx(part.bound)
    assert np.linalg.norm(all_seven) == pytest.approx(part.bound)  # each counts for less


def test_nobody_is_both_below_and_above():
    backwards = Styles("cues", tuple(dataclasses.replace(one, low=0.9, high=0.1) for one in LIMITS[:2]))
    assert np.linalg.norm(sent(backwards, batch(cues=np.full((12, 2), 0.5)))) <= backwards.bound + 1e-6


@pytest.mark.parametrize("part", [Shares(DIVISIONS, (1,), "groups"), Styles("cues", LIMITS, (1,), "ratios")])
def test_only_clients_of_the_arm_send_something(part):
    assert not sent(part, batch(), arm=0).any()
    assert sent(part, batch(), arm=1).any()
    assert sent(part, batch(), arm=1).size == part.coordinates


def test_those_who_confirm_add_nothing_to_what_is_learnt():
    class Counts:
        name, coordinates, bound = "moments", 1, 1.0

        def client_part(self, batch, masks, key):
            assert masks.shape[0] == 1
            return jnp.sum(masks, axis=1)

    part = FirstArm(Counts())  # pyright: ignore[reportArgumentType]
    assert (sent(part, batch(), arm=0), sent(part, batch(), arm=1)) == (12, 0)
    assert (part.name, part.coordinates, part.bound) == ("moments", 1, 1.0)


def test_examples_that_only_fill_up_do_not_count():
    one = batch()
    half = Batch(one.fields, one.weight.at[6:].set(0.0))
    alone = Batch({name: value[:6] for name, value in one.fields.items()}, one.weight[:6])
    for part in (Shares(DIVISIONS), Styles("cues", LIMITS)):
        np.testing.assert_allclose(sent(part, half), sent(part, alone), atol=1e-6)
        assert not sent(part, Batch(one.fields, jnp.zeros(12))).any()


def crowd(of: tuple[int, ...] = tuple(range(0, 60, 2))) -> Population:
    random = np.random.default_rng(0)
    sizes = np.array(of)
    columns = {"label": random.integers(0, 3, sizes.sum()), "kind": random.integers(0, 2, sizes.sum())}
    columns["cues"] = random.random((sizes.sum(), 7)).astype(np.float32)
    return mark_style_examples(Population(columns, sizes=sizes, name="crowd"))


def test_what_is_read_from_sums_is_what_public_clients_say():
    population, part = crowd((12, 0) * 15), Shares(DIVISIONS)
    total = np.zeros(part.coordinates)
    for client in population:
        if len(client["label"]):
            weight = jnp.ones(len(client["label"]), jnp.float32)
            total += sent(part, Batch({name: jnp.asarray(c) for name, c in client.items()}, weight))
    for read, exact in zip(part.read(Measured(total, 0.0, 1.0)), client_shares(population, DIVISIONS), strict=True):
        np.testing.assert_allclose(read.mean, exact.mean, atol=1e-5)
        np.testing.assert_allclose(read.spread, exact.spread, rtol=0.05)
        assert read.counted == pytest.approx(exact.counted) == (population.sizes > 0).sum()


def test_ten_examples_are_looked_at_or_none():
    population = crowd()
    owner = np.repeat(np.arange(population.size), population.sizes)
    looked = np.bincount(owner, population.columns[STYLE_FIELD], population.size)
    assert set(looked[population.sizes >= STYLE_EXAMPLES]) == {STYLE_EXAMPLES}
    assert not looked[population.sizes < STYLE_EXAMPLES].any()
    assert client_means(population, "cues").shape == ((population.sizes >= STYLE_EXAMPLES).sum(), 7)


def test_limits_leave_a_twentieth_of_public_clients_beyond():
    means = np.random.default_rng(0).random(200)
    limits = Limits.of("ink", means)
    assert (limits.beyond, limits.clients) == (10, 200)
    assert (means < limits.low).sum() == (means > limits.high).sum() == 9  # whoever the limit is, is not beyond it
    flat = Limits.of("white", np.full(200, 0.3))
    assert flat.low < 0.3 < flat.high  # rounding puts nobody beyond


def names(count: int) -> np.ndarray:
    return as_text(np.arange(count))


def test_halves_are_drawn_without_a_look_at_the_data():
    assert halves(names(101), b"run").sum() == 50
    assert not np.array_equal(halves(names(100), b"one"), halves(names(100), b"other"))
    population = crowd()
    other = population.replace({name: column[::-1] for name, column in population.columns.items()})
    first, second = (with_halves(one, b"run").columns["half"] for one in (population, other))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("gone", [0, 50, 100])
@pytest.mark.parametrize("seed", [b"run", b"another"])
def test_one_client_less_turns_nobody_elses_half_wherever_it_stood(gone, seed):
    everyone, rest = names(101), np.delete(names(101), gone)
    np.testing.assert_array_equal(np.delete(coins(everyone, seed), gone), coins(rest, seed))
    # lots do: they are for public clients
    assert not np.array_equal(np.delete(halves(everyone, seed), gone), halves(rest, seed))


def test_coins_are_fair_and_others_for_every_run():
    tossed = [coins(names(4000), seed).mean() for seed in (b"one", b"other", b"third")]
    assert all(abs(share - 0.5) < 4 * 0.5 / 4000**0.5 for share in tossed)
    assert abs((coins(names(4000), b"one") == coins(names(4000), b"other")).mean() - 0.5) < 0.04


def test_of_protected_clients_one_less_leaves_all_others_in_their_halves():
    people, public = embedded("handwriting", clients=40), embedded("handwriting", clients=45, seed=1)
    neighbours = people, people.select(np.arange(people.size) != 7)
    halved = [compared(one, public, seed=b"run")[1] for one in neighbours]
    first, second = (dict(zip(one.ids.tolist(), client_halves(one).tolist(), strict=True)) for one in halved)
    assert first.keys() - second.keys() == {str(people.ids[7])}
    assert {name: first[name] for name in second} == second
    assert 0 < sum(second.values()) < len(second)


def client_halves(population: Population) -> np.ndarray:
    return population.columns[HALF][population.offsets[:-1]]


def test_clients_without_examples_of_a_kind_are_still_there():
    population = crowd()
    kept = same_clients(population, population.columns["label"] == 0)
    assert kept.size == population.size
    assert set(kept.columns["label"]) == {0}
    np.testing.assert_array_equal(kept.ids, population.ids)
