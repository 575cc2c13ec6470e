"""Laws of the cohort's sum: every backend gives what a plain loop gives, and no client can exceed its bound."""

import subprocess
import sys
import warnings
from pathlib import Path

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from blindsight import keys, trees
from blindsight.backends import Debug, Examples, Simulation, placement
from blindsight.backends import simulation as simulation_module
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population
from blindsight.errors import BlindsightError, InvalidInput, UnboundedContribution

KEY = keys.reproducible(3)


def ragged(sizes: list[int], seed: int = 0) -> Population:
    generator = np.random.default_rng(seed)
    total = sum(sizes)
    columns = {
        "x": generator.normal(size=(total, 3)).astype(np.float32),
        "label": generator.integers(0, 5, total).astype(np.int32),
    }
    return Population(columns, sizes=sizes, name="ragged")


def features(broadcast: jax.Array, examples: Examples, key: jax.Array) -> jax.Array:
    """Weighs the examples batch by batch in shuffled order, so that masks, order and key all matter."""
    order = examples.order(4, key=key)

    def on_batch(number, total):
        batch = examples.batch(order, number, 4)
        place = jnp.asarray(number, jnp.float32) + 1
        return total * 0.9 + place * jnp.sum(batch["x"] * batch.weight[:, None], axis=0) * batch.mean(
            batch["label"].astype(jnp.float32)
        )

    return broadcast + jax.lax.fori_loop(0, examples.batches(4), on_batch, jnp.zeros(3))


def total(backend, clients, update=features, broadcast=None, **settings):
    cohort = backend.cohort(np.asarray(clients, np.int64), n_expected=7.0, key=KEY)
    start = jnp.float32(0.1) * jnp.ones(3) if broadcast is None else broadcast
    return cohort.sum(update, start, **{"l2_bound": 1.5, **settings}), cohort


@settings(max_examples=4)
@given(
    st.lists(st.sampled_from([0, 1, 4, 5, 11]), min_size=1, max_size=6),  # every size is compiled for, by the loop
    st.sampled_from([1, 2, 5]),
    st.sampled_from([None, 2.0**-20]),
    st.data(),
)
def test_stacked_and_plain_sums_agree_on_ragged_populations(sizes, chunk, grid, data):
    population = ragged(sizes)
    clients = data.draw(st.lists(st.integers(0, len(sizes) - 1), unique=True))
    fast, _ = total(Simulation(population, chunk=chunk), clients, grid=grid)
    plain, _ = total(Debug(population), clients, grid=grid)
    assert (fast.l2_bound, fast.n_expected, fast.grid) == (plain.l2_bound, plain.n_expected, plain.grid)
    np.testing.assert_allclose(fast.value, plain.value, rtol=1e-4, atol=1e-5 if grid is None else 2 * len(sizes))


def test_the_sum_is_that_of_a_loop_written_out():
    population = ragged([3, 0, 9])
    expected = jnp.zeros(3)
    for client in range(3):
        key = jax.random.fold_in(KEY.jax(), client)
        expected += trees.clip(features(0.1 * jnp.ones(3), Examples.of(population[client]), key), 1.5)
    found, _ = total(Simulation(population), [0, 1, 2])
    np.testing.assert_allclose(found.value, expected, rtol=1e-5)


def test_whoever_is_in_the_cohort_with_whom_does_not_matter():
    population = ragged([5, 2, 7, 1, 4])
    alone = sum(np.asarray(total(Simulation(population), [client])[0].value) for client in (0, 2, 3))
    together, _ = total(Simulation(population, chunk=2), [3, 0, 2])
    np.testing.assert_allclose(alone, together.value, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("grid", [None, 2.0**-16])
def test_no_client_moves_the_sum_by_more_than_its_bound(chunk, grid):
    """NaN, infinity, enormous and tiny updates beside ordinary ones: leaving any client out stays within the bound."""
    sizes = [1, 2, 3, 4, 5, 0]
    population = ragged(sizes)
    wild = jnp.array([jnp.nan, jnp.inf, 1e38, 1e6, 1e-30, 0.5])

    def update(broadcast, examples, key):
        del broadcast, key
        return jnp.ones(3) * wild[examples.count % 6]

    backend = Simulation(population, chunk=chunk)
    step = 1.0 if grid is None else grid
    whole, cohort = total(backend, range(6), update=update, grid=grid)
    assert cohort.simulation_only["not_finite"] == 2
    for client in range(6):
        rest, _ = total(backend, [c for c in range(6) if c != client], update=update, grid=grid)
        difference = (np.asarray(whole.value, np.float64) - np.asarray(rest.value, np.float64)) * step
        assert np.linalg.norm(difference) <= 1.5 * (1 + 1e-6)


def test_odd_clients_are_counted_for_the_simulation():
    population = ragged([0, 1, 20, 20])

    def update(broadcast, examples, key):
        del broadcast, key
        return jnp.where(examples.count == 1, jnp.nan, examples.count.astype(jnp.float32)) * jnp.ones(3)

    _, cohort = total(Simulation(population), range(4), update=update)
    assert cohort.simulation_only == {"dropped_out": 0, "clients": 4, "empty": 1, "not_finite": 1, "clipped": 2}


def test_half_of_the_cohort_drops_out_and_contributes_nothing():
    population = ragged([1] * 400)
    backend = Simulation(population, dropout=0.5)
    ones = lambda broadcast, examples, key: jnp.ones(3) * 0.1  # noqa: E731
    found, cohort = total(backend, range(400), update=ones)
    counts = cohort.simulation_only
    assert int(counts["clients"]) + counts["dropped_out"] == 400
    assert 140 < counts["dropped_out"] < 260
    assert found.n_expected == 7.0  # what was expected, whoever came
    np.testing.assert_allclose(found.value, 0.1 * int(counts["clients"]) * np.ones(3), rtol=1e-4)


def test_a_cohort_of_nobody_is_a_sum_of_zeros():
    for backend in (Simulation(ragged([2, 3])), Debug(ragged([2, 3]))):
        found, _ = total(backend, [])
        assert found.value.tolist() == [0, 0, 0]


def test_an_update_in_parts_has_a_bound_for_each():
    population = ragged([2, 3])

    def update(broadcast, examples, key):
        del broadcast, key
        return {"a": jnp.array([30.0, 40.0]), "b": jnp.ones(1) * examples.count.astype(jnp.float32)}

    for backend in (Simulation(population), Debug(population)):
        found, _ = total(backend, [0, 1], update=update, l2_bound={"a": 5.0, "b": 2.5}, grid={"a": None, "b": 2.0**-10})
        np.testing.assert_allclose(found["a"].value, [6, 8], rtol=1e-5)
        assert (found["a"].l2_bound, found["b"].l2_bound, found["a"].grid, found["b"].grid) == (5.0, 2.5, None, 2**-10)
        assert 4.5 * 2**10 - 2 <= found["b"].value[0] <= 4.5 * 2**10
    with pytest.raises(InvalidInput, match="the update has different ones"):
        total(Simulation(population), [0], update=update, l2_bound={"a": 1.0})


def test_whole_numbers_do_not_overflow_where_32_bits_would():
    """300 clients of up to 2^24 steps each: 5e9, beyond int32."""
    population = ragged([1] * 300)
    largest = lambda broadcast, examples, key: jnp.ones(1) * 2.0**24 * jnp.where(examples.start % 3 == 0, -1.0, 1.0)  # noqa: E731
    found, _ = total(Simulation(population, chunk=7), range(300), update=largest, l2_bound=2.0**24, grid=1.0)
    assert found.value.dtype == np.int64
    expected = 100 * 2**24
    assert abs(found.value[0] - expected) <= 300 * 2**24 * 3e-6  # clipping leaves a little room below the bound


def test_a_population_that_does_not_fit_is_gathered_cohort_by_cohort(monkeypatch):
    population = ragged([4, 0, 6, 2, 9, 1])
    resident, _ = total(Simulation(population), [5, 1, 4])
    monkeypatch.setattr(placement, "room", lambda: 0)
    backend = Simulation(population)
    for clients in ([5, 1, 4], [1], [0, 1, 2, 3, 4, 5], [5, 1, 4]):
        gathered, _ = total(backend, clients)
    np.testing.assert_allclose(resident.value, gathered.value, rtol=1e-6)


def test_only_the_cohort_is_drawn_from_a_population_that_does_not_fit(monkeypatch):
    drawn: list[int] = []

    def draw(clients):
        drawn.extend(clients.tolist())
        return {"x": np.repeat(clients, 2)[:, None].astype(np.float32) * np.ones((1, 3), np.float32)}

    population = GeneratedPopulation(draw, sizes=np.full(1_000_000, 2), name="large")
    monkeypatch.setattr(placement, "room", lambda: 0)
    first = lambda broadcast, examples, key: examples.batch(examples.order(1, key=None), 0, 1)["x"][0] * 1e-7  # noqa: E731
    found, _ = total(Simulation(population), [3, 999_999], update=first)
    np.testing.assert_allclose(found.value, np.ones(3) * 1_000_002e-7, rtol=1e-5)
    assert set(drawn) == {0, 3, 999_999}  # 0 only to learn the fields


def test_clients_see_nobody_elses_examples():
    """A batch that is filled up holds copies of the client's own last example, weightless."""
    population = Population({"x": np.arange(10.0, dtype=np.float32)}, sizes=[3, 7], name="two")
    seen = lambda broadcast, examples, key: examples.batch(examples.order(8, key=key), 0, 8)["x"]  # noqa: E731
    found, _ = total(Simulation(population), [0], update=seen, l2_bound=100.0)
    assert set(np.asarray(found.value).tolist()) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize(("start", "count"), [(0, 3), (3, 7), (9, 0)])
def test_the_whole_client_is_one_batch_of_its_own_examples_in_order(start, count):
    columns = {"x": jnp.arange(10.0)}
    batch = Examples(columns, jnp.int32(start), jnp.int32(count), None, 8).whole()
    own = np.arange(start, start + count)
    assert np.asarray(batch["x"])[np.asarray(batch.weight) > 0].tolist() == own.tolist()
    assert set(np.asarray(batch["x"]).tolist()) <= {*own.tolist(), float(start)}  # nobody else's, not even weightless


def test_a_shuffle_is_a_permutation_of_the_clients_own_examples():
    examples = Examples({"x": jnp.arange(50.0)}, jnp.int32(10), jnp.int32(7), None, 30)
    orders = [examples.order(4, key=jax.random.key(seed)) for seed in range(20)]
    for order in orders:
        assert sorted(np.asarray(order[:7]).tolist()) == list(range(7))
    assert len({tuple(np.asarray(order[:7]).tolist()) for order in orders}) > 15
    batches = [examples.batch(orders[0], number, 4) for number in range(2)]
    assert float(sum(jnp.sum(batch["x"] * batch.weight) for batch in batches)) == sum(range(10, 17))


def test_equal_clients_get_loops_of_fixed_length():
    """With as many examples on every client no mask and no dynamic loop is compiled, and the sum is the same."""
    equal, lengths = ragged([8] * 6), []

    def update(broadcast, examples, key):
        lengths.append(examples.batches(4))
        return features(broadcast, examples, key)

    fast, _ = total(Simulation(equal, chunk=3), range(6), update=update)
    plain, _ = total(Debug(equal), range(6))
    assert type(lengths[0]) is int
    assert lengths[0] == 2
    np.testing.assert_allclose(fast.value, plain.value, rtol=1e-5)


def test_a_cohort_that_outgrows_memory_is_split_into_smaller_chunks(monkeypatch):
    backend = Simulation(ragged([2] * 8), chunk=8)
    real, asked = simulation_module.sum_everywhere, []

    def scarce(*arguments):
        asked.append(arguments[5].shape[2])
        if asked[-1] > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return real(*arguments)

    monkeypatch.setattr(simulation_module, "sum_everywhere", scarce)
    found, _ = total(backend, range(8))
    assert asked == [7, 4, 2]
    plain, _ = total(Debug(ragged([2] * 8)), range(8))
    np.testing.assert_allclose(found.value, plain.value, rtol=1e-5)


def test_the_debug_backend_names_client_stage_and_shapes():
    population = Population({"x": np.zeros((3, 2), np.float32)}, sizes=[1, 2], ids=["ann", "bob"], name="two")

    def fails(broadcast, examples, key):
        if examples.capacity == 2:
            raise ZeroDivisionError("no reason")
        return jnp.ones(3)

    with pytest.raises(
        BlindsightError,
        match=r"client 'bob' failed in client_update with ZeroDivisionError: no reason "
        r"\(its examples: x float32\[2, 2\]\)",
    ):
        total(Debug(population), [0, 1], update=fails)
    not_a_number = lambda broadcast, examples, key: jnp.log(-jnp.ones(3))  # noqa: E731
    with pytest.raises(BlindsightError, match="client 'ann' failed in clipping the update"):
        total(Debug(population), [0], update=not_a_number)


def test_a_bound_so_large_that_sums_could_overflow_is_refused():
    """Sums are not looked at again, because clipped contributions below 2^64 cannot add up to infinity."""
    huge = lambda broadcast, examples, key: jnp.full(3, 1e38)  # noqa: E731
    found, _ = total(Simulation(ragged([1] * 50)), range(50), update=huge, l2_bound=2.0**64)
    assert np.all(np.isfinite(found.value))
    with pytest.raises(UnboundedContribution, match="bounds nothing"):
        total(Simulation(ragged([1])), [0], update=huge, l2_bound=2.0**65)


@pytest.mark.parametrize("mistake", [{"chunk": 0}, {"dropout": -0.1}, {"dropout": 1.5}])
def test_settings_that_make_no_sense_are_refused(mistake):
    with pytest.raises(InvalidInput):
        Simulation(ragged([1]), **mistake)


def test_loops_of_known_length_give_the_same_sum():
    """What is compiled for an accelerator, whose host would wait for a loop of unknown length."""
    population = ragged([3, 0, 5, 4, 2, 4, 5])
    backend = Simulation(population, chunk=3)
    backend.is_cpu = False
    for clients in (range(7), [1], [], range(5)):
        fast, _ = total(backend, clients)
        plain, _ = total(Debug(population), clients)
        np.testing.assert_allclose(fast.value, plain.value, rtol=1e-5)


@pytest.mark.parametrize("backend", [Simulation, Debug])
@pytest.mark.parametrize("clients", [[3], [-1], [0, 99]])
def test_clients_that_are_not_there_are_refused(backend, clients):
    """A guarantee for a larger population than there is would count on chances that nobody has."""
    with pytest.raises(InvalidInput, match="so set population in Privacy to that"):
        total(backend(ragged([1, 1, 1])), clients)


@pytest.mark.parametrize("backend", [Simulation, Debug])
def test_a_cohort_whose_sum_could_overflow_is_refused(backend):
    """A sum that wraps around moves by far more than one client's bound when one client comes."""
    with pytest.raises(InvalidInput, match=r"at most 262,144 clients: expect fewer$"):
        total(backend(ragged([1])), np.zeros(2**18 + 1, np.int64))


def test_buckets_cover_every_size():
    """A few giants among small clients: the sums agree, whatever bucket a client falls into."""
    sizes = [100, 20, 10] + [1] * 7
    backend = Simulation(ragged(sizes), chunk=4)
    assert backend.capacities == (100, 12, 2)
    fast, _ = total(backend, range(10))
    plain, _ = total(Debug(ragged(sizes)), range(10))
    np.testing.assert_allclose(fast.value, plain.value, rtol=2e-4)


def test_one_compilation_serves_cohorts_of_every_size():
    backend, traced = Simulation(ragged([3] * 50)), []

    def update(broadcast, examples, key):
        traced.append(1)
        return features(broadcast, examples, key)

    for clients in (range(3), range(20), [], range(11)):
        cohort = backend.cohort(np.asarray(clients, np.int64), n_expected=10.0, key=KEY)
        cohort.sum(update, jnp.zeros(3), l2_bound=1.0)
    assert len(traced) == len(backend.capacities)  # for the shapes and the loop together


def test_several_devices_share_the_cohort():
    """In a process of its own, because JAX has as many devices as it began with: three cores, each its own clients."""
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from blindsight.backends import use_cores
use_cores(3)
import jax, numpy as np, jax.numpy as jnp
import test_cohort as laws
from blindsight.backends import Debug, Simulation
assert len(jax.devices()) == 3
sizes = [3, 0, 5, 3, 1, 40, 5, 1]
for chunk, grid, cohorts in ((1, None, (range(8), [])), (2, 2.0**-20, ([1, 5],))):
    backend = Simulation(laws.ragged(sizes), chunk=chunk)
    for clients in cohorts:
        fast, cohort = laws.total(backend, clients, grid=grid)
        plain, _ = laws.total(Debug(laws.ragged(sizes)), clients, grid=grid)
        np.testing.assert_allclose(fast.value, plain.value, rtol=1e-4, atol=1e-5 if grid is None else 16)
        assert int(cohort.simulation_only["clients"]) == len(clients)
        assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(fast.value) if isinstance(leaf, jax.Array))
use_cores(2)  # too late, and nothing happens
assert len(jax.devices()) == 3
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def reads(field):
    def update(broadcast, examples, key):
        return examples.batch(examples.order(1, key=None), 0, 1)[field][0].astype(jnp.float32) * jnp.ones(3)

    return update


def test_text_stays_where_it_is():
    columns = {"x": np.ones((2, 3), np.float32), "note": np.array(["a", "b"]), "year": np.array([1, 2])}
    population = Population(columns, sizes=[1, 1], name="mixed")
    for backend in (Simulation, Debug):
        assert total(backend(population), [1], update=reads("year"), l2_bound=9.0)[0].value.tolist() == [2, 2, 2]
        with pytest.raises(BlindsightError, match="clients have no numeric field 'note'"):
            total(backend(population), [0], update=reads("note"))


@pytest.mark.parametrize("odd", [2**31, -(2**63)])
@pytest.mark.parametrize("backend", [Simulation, Debug])
def test_a_number_beyond_32_bits_moves_its_own_client_alone_and_only_to_the_bound(backend, odd):
    """A refusal would tell of one client's value, and the lower half of the number would be another number."""

    def people(value):
        return Population({"x": np.array([1, value, 3])}, sizes=[1, 1, 1], name="people")

    def sums(value, clients):
        return total(backend(people(value)), clients, update=reads("x"), l2_bound=6.0)[0].value.tolist()

    assert sums(odd, [0, 2]) == sums(2, [0, 2]) == [4, 4, 4]
    alone = np.array(sums(odd, [1]))
    np.testing.assert_allclose(alone, np.full(3, np.sign(odd) * 6 / np.sqrt(3)), rtol=1e-4)  # clipped


def test_a_float_beyond_32_bits_is_its_own_clients_alone_and_nobody_is_warned():
    """A warning on stderr would tell of one client's value. `Debug` names the client."""

    def sums(value: float) -> list[float]:
        people = Population({"x": np.array([1.0, value, 3.0])}, sizes=[1, 1, 1], name="people")
        return total(Simulation(people), [0, 1, 2], update=reads("x"), l2_bound=6.0)[0].value.tolist()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert sums(1e300) == sums(float("inf")) == sums(0.0) == [4, 4, 4]
    assert not told
