"""The learned model is the simulation's: to the last bit with shared randomness, and in distribution without."""

import asyncio
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from blindsight.algorithms.draw_and_discard import average, client_update, discard, draw, initial_instances
from blindsight.keys import reproducible
from blindsight.service import memory, randomness, redis_store, snapshots
from blindsight.service.protocol import encode
from blindsight.service.store import Record

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SEED = reproducible(5)
STEPS = 150


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_service_and_pure_functions_agree_to_the_last_bit(make_task, tmp_path, monkeypatch, request, store):
    """Twenty instances and noise: the service is given the indices of `draw` and `discard`, and the same start.

    The start is a snapshot, as any service finds one. Indices can only be given by changing the code, as here.
    """
    task = make_task(epsilon=4.0, learning_rate=0.05, instances=20)
    instances = initial_instances(task, key=SEED.derive("start"))
    snapshots.write(tmp_path / "kept", Record(task=task), [encode(row) for row in instances])
    keys = [SEED.derive(purpose, step) for step in range(STEPS) for purpose in ("draw", "discard")]
    given = iter(keys)
    for module in (memory, redis_store):
        monkeypatch.setattr(module, "random_index", lambda count: int(next(given).stream().below(count, 1)[0]))
    server = request.getfixturevalue("redis_server") if store == "redis" else None
    talk = request.getfixturevalue("serving")(task, store=server.address if server else "memory", batch=1)
    random = np.random.default_rng(0)
    for step in range(STEPS):
        rows = [{"length": int(random.integers(100)), "https": bool(step % 3), "phishing": bool(random.integers(2))}]
        weights = draw(instances, key=keys[2 * step])
        update = client_update(task, weights, *task.encode(rows), key=SEED.derive("noise", step))
        instances = discard(instances, update, key=keys[2 * step + 1])
        drawn = talk.draw()
        assert drawn.content == encode(weights), step
        assert talk.update(drawn, encode(update)).status_code == 202
    found = np.array(talk.admin.get("/v1/admin/models/phishing/average").json()["weights"], np.float32)
    assert found.tobytes() == encode(average(instances))
    assert (talk.statistics()["taken"], talk.statistics()["spam"]) == (STEPS, 0)
    assert len({row.tobytes() for row in instances}) > 10
    if store == "memory":
        kept, _ = asyncio.run(talk.service.registry.store.instances(talk.service.registry.pools["phishing"].record))
        assert kept == [encode(row) for row in instances]


@pytest.fixture(scope="module")
def experiment():
    """The module of the experiment that compares service and simulation."""
    if not EXPERIMENTS.exists():
        pytest.skip("the experiments are not part of this installation")
    for name in ("draw_and_discard_simulation", "draw_and_discard_service"):
        spec = importlib.util.spec_from_file_location(name, EXPERIMENTS / f"{name}.py")
        assert spec
        assert spec.loader
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    yield sys.modules["draw_and_discard_service"]
    del sys.modules["draw_and_discard_simulation"], sys.modules["draw_and_discard_service"]


RUNS, UPDATES, LEVEL = 24, 100, 1e-5  # of chance: once in 100,000 this fails by itself


@pytest.fixture(scope="module")
def simulated(experiment):
    """A problem, and two samples of what the simulation makes of it."""
    problem = experiment.make_problem(UPDATES)
    return problem, *(experiment.in_simulation(problem, 400, seed=seed) for seed in (1, 2))


def test_what_the_service_learns_is_distributed_as_what_the_simulation_does(experiment, simulated):
    """Nothing is replaced: secret randomness on both sides of a socket, the spam check on, k = 20, noise."""
    problem, beside, reference = simulated
    assert memory.random_index is randomness.random_index
    with experiment.served() as service:
        found = experiment.in_service(problem, service, RUNS)
    assert found.refused <= 5
    assert experiment.p_value(problem, found, beside, reference) > LEVEL


@pytest.mark.parametrize("what", ["no spread at the start", "the drawn instance is overwritten", "twice the noise"])
def test_the_comparison_rejects_what_is_wrong(experiment, simulated, what):
    problem, beside, reference = simulated
    wrong = experiment.wrong_variants(problem) | {"twice the noise": {"noise": 2 * problem.task.scale}}
    found = experiment.in_simulation(problem, RUNS, seed=9, **wrong[what])
    assert experiment.p_value(problem, found, beside, reference) < LEVEL / 10


def test_the_comparison_rejects_a_service_that_overwrites_what_was_drawn(experiment, simulated):
    problem, beside, reference = simulated
    with experiment.broken(), experiment.served() as service:
        found = experiment.in_service(problem, service, 8)
    assert experiment.p_value(problem, found, beside, reference) < LEVEL
    assert memory.random_index is randomness.random_index  # and it is whole again


def test_the_comparison_accepts_the_simulation_itself(experiment, simulated):
    problem, beside, reference = simulated
    found = experiment.in_simulation(problem, RUNS, seed=10)
    assert experiment.p_value(problem, found, beside, reference) > 0.01
