"""Laws of rounds that are computed together: each releases what it would by itself, and is paid for before it draws."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import training_child as child

from blindsight import checkpoints, keys, runs
from blindsight.accounting.events import from_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import Algorithm, bayesian_gan, dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Debug, Simulation, placement
from blindsight.codings.images_and_rows import Images
from blindsight.data.population import Population
from blindsight.errors import PrivacyError
from blindsight.mechanisms import ahead, gaussian, rounded_gaussian
from blindsight.models.gan import compact_gan
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, Evaluation, Trained, blocks, train
from blindsight.training.blocks import Blocks, blocks_for
from blindsight.trees import BoundedSum

ROUNDS, TOGETHER = 23, 8


def paid_rounds(ledger: Ledger) -> int:
    events: list[Any] = [from_json(entry.event) for entry in ledger.entries() if entry.kind == "release"]
    return sum(event.count for event in events)


def singly(algorithm: Algorithm) -> Algorithm:
    """The same algorithm with a step of which nothing is known: every round is computed by itself."""
    return dataclasses.replace(algorithm, step=lambda state, cohort, *, key: algorithm.step(state, cohort, key=key))


def go(folder: Path, algorithm: Algorithm, privacy: Privacy, seed: int | None = 7, **more: Any) -> Trained:
    folder.mkdir(exist_ok=True)
    about: dict[str, Any] = {"population": child.POPULATION, "delta": 1e-5}
    about |= {"run": runs.begin(folder / "run", "blocks", {}), "ledger": Ledger(folder / "ledger.db")}
    about["key"] = keys.root() if seed is None else keys.reproducible(seed)
    about |= {"checkpointing": Checkpointing(every_rounds=TOGETHER)}
    backend = more.pop("backend", None) or Simulation(child.population(), dropout=0.3)
    return train(algorithm, backend, privacy, **about | more)


def rows_of(trained: Trained) -> list[Any]:
    rows = runs.open_run(trained.path).rows("metrics.jsonl")
    for row in rows:
        del row["simulation_only"]["seconds"]
    return rows


@pytest.fixture(autouse=True)
def few_rounds_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of few rounds saves and pays every other round: here the interval is what it says."""
    monkeypatch.setattr(Checkpointing, "rounds_of", lambda self, rounds: self.every_rounds)


@dataclasses.dataclass
class Seen:
    """The noise that was drawn, by its secret, and how many rounds were computed and paid for with every block."""

    secrets: list[bytes] = dataclasses.field(default_factory=list[bytes])
    rows: list[np.ndarray] = dataclasses.field(default_factory=list[np.ndarray])
    paid: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])


def watch(monkeypatch: pytest.MonkeyPatch, ledger: Path) -> Seen:
    found, inner, rounds = Seen(), ahead.rounded_gaussians, Blocks.compute

    def drawn(bits: int, count: int, secrets: Any) -> np.ndarray:
        noise = inner(bits, count, secrets)
        found.secrets += secrets
        found.rows += list(noise.astype(np.int32))
        return noise

    def counted(self: Any, state: Any, block: blocks.Block) -> Any:
        before = found.paid[-1][0] if found.paid else 0
        found.paid.append((before + len(block.cohorts), paid_rounds(Ledger(ledger))))
        return rounds(self, state, block)

    monkeypatch.setattr(ahead, "rounded_gaussians", drawn)
    monkeypatch.setattr(Blocks, "compute", counted)
    return found


@contextlib.contextmanager
def killed_after(computed: int) -> Generator[None]:
    """The process dies when it has computed that many blocks, with the next ones drawn."""
    inner, left = Blocks.compute, [computed]

    def compute(self: Any, *given: Any) -> Any:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return inner(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blocks, "compute", compute)
        yield


class Killed(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


# --- the same releases


SAMPLINGS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "fixed": {"participation": "fixed"},
    "full": {"participation": "full", "cohort": 12},
    "unproven": {"participation": "unproven", "max_participations": 9},
}


@pytest.mark.parametrize(
    "sampling", ["poisson", *(pytest.param(name, marks=pytest.mark.slow) for name in SAMPLINGS if name != "poisson")]
)
def test_rounds_together_are_the_rounds_one_by_one_bit_for_bit(tmp_path: Path, sampling: str):
    """Weights, the state of Adam, the adaptive clip, and what is told of every round, dropouts and metrics included."""
    privacy = child.privacy(ROUNDS, **SAMPLINGS[sampling])
    algorithm = child.algorithm(privacy, server_optimizer=optax.adam(0.1))
    size = lambda model: {"size": float(np.sum(np.abs(model)))}  # noqa: E731
    with jax.numpy_dtype_promotion("standard"):  # required by Optax
        together, alone = (
            go(tmp_path / name, one, privacy, evaluation=Evaluation(function=size, every=5))
            for name, one in (("together", algorithm), ("alone", singly(algorithm)))
        )
    assert rows_of(together) == rows_of(alone)
    assert [row["round"] for row in rows_of(together)] == list(range(1, ROUNDS + 1))
    like = {"state": algorithm.init()}
    saved = [checkpoints.load(checkpoints.newest(one.path), like).tree for one in (together, alone)]  # pyright: ignore[reportArgumentType]
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, saved), strict=True))


def small_gan(make: Any, privacy: Privacy, **settings: Any) -> Algorithm:
    adam = optax.adam(1e-3)
    gan = compact_gan(Images(8, 8), latents=4, channels=(2, 2), width=16, key=jax.random.key(0))
    generator = GeneratorSteps(optimizer=adam, batch_size=2, steps=1, critic_rounds=2, average=0.9)
    return make(gan, privacy, critic_optimizer=adam, generator=generator, **settings)


def rounds_of(backend: Simulation, sampling: Any, count: int) -> tuple[list[Any], list[keys.Key]]:
    """Cohorts of successive rounds, and the keys of their steps."""
    root, cohorts = keys.reproducible(3), list[Any]()
    for number in range(count):
        clients = sampling.draw(key=root.derive("cohort", number))
        key = root.derive("clients", number)
        cohorts.append(backend.cohort(clients, n_expected=sampling.n_expected, key=key))
    return cohorts, [root.derive("noise", number) for number in range(count)]


def in_blocks(chosen: Blocks, cohorts: list[Any], secrets: list[keys.Key], cuts: tuple[int, ...]) -> list[Any]:
    """The leaves of the state after these rounds, computed in blocks that begin at the cuts."""
    state = chosen.algorithm.init()
    for first, last in itertools.pairwise(cuts):
        state, told = chosen.compute(state, chosen.draw(cohorts[first:last], secrets[first:last]))
        assert [int(one.counts["clients"]) for one in told] == [len(one.clients) for one in cohorts[first:last]]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def one_by_one(algorithm: Algorithm, cohorts: list[Any], secrets: list[keys.Key]) -> list[Any]:
    state = algorithm.init()
    for cohort, key in zip(cohorts, secrets, strict=True):
        state, _ = algorithm.step(state, cohort, key=key)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("make", ["dp_fedavg_gan", "bayesian_gan"])
def test_a_gan_is_the_same_wherever_its_blocks_begin(make: str):
    """To the last bit; computed by another program, as rounds one by one are, to the rounding of Adam's averages."""
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    backend = Simulation(Population({"image": images}, sizes=[2] * 12, name="images"))
    privacy = child.privacy(7)
    if make == "dp_fedavg_gan":
        algorithm = small_gan(dp_fedavg_gan.dp_fedavg_gan, privacy, critic_rate=0.01, batch_size=2)
    else:
        algorithm = small_gan(bayesian_gan.bayesian_gan, privacy, fakes=2, penalty=10.0)
    cohorts, secrets = rounds_of(backend, privacy.sampling, 7)
    chosen = Blocks(algorithm, backend, privacy.sampling, TOGETHER)
    whole = in_blocks(chosen, cohorts, secrets, (0, 7))
    assert same(whole, in_blocks(chosen, cohorts, secrets, tuple(range(8))))
    assert same(whole, in_blocks(chosen, cohorts, secrets, (0, 3, 7)))
    for leaf, by_itself in zip(whole, one_by_one(algorithm, cohorts, secrets), strict=True):
        np.testing.assert_allclose(leaf, by_itself, atol=1e-6)


@pytest.mark.parametrize("backend", ["gpu", pytest.param("cpu", marks=pytest.mark.slow)])
def test_where_a_block_begins_and_what_computes_it_changes_nothing(monkeypatch: pytest.MonkeyPatch, backend: str):
    """On an accelerator clients are stacked and noise is drawn where it is used; here a CPU stands in for one."""
    monkeypatch.setattr(placement, "keep_compiled_code", lambda: None)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(ahead, "_WORTH_A_LAUNCH", 2)
    privacy = child.privacy(7)
    algorithm, simulation = child.algorithm(privacy, adaptive_clip=None), Simulation(child.population())
    cohorts, secrets = rounds_of(simulation, privacy.sampling, 7)
    alone = one_by_one(algorithm, cohorts, secrets)
    several = [(TOGETHER, (0, 1, 4, 7)), (TOGETHER, (0, 5, 7)), (1, tuple(range(8)))]
    for room, cuts in several if backend == "cpu" else several[:1]:
        assert same(alone, in_blocks(Blocks(algorithm, simulation, privacy.sampling, room), cohorts, secrets, cuts))


def test_a_reproducible_run_that_is_killed_in_a_block_resumes_to_the_same_bits(tmp_path: Path):
    """Also each client's count of rounds, which the next cohorts depend on: what was drawn and lost is not in it."""
    privacy = child.privacy(ROUNDS, **SAMPLINGS["unproven"])
    algorithm = child.algorithm(privacy)
    whole = go(tmp_path / "whole", algorithm, privacy)
    often = Checkpointing(every_rounds=TOGETHER, every_seconds=1e-9)
    with killed_after(5), pytest.raises(Killed):
        go(tmp_path / "cut", algorithm, privacy, checkpointing=often)
    resumed = go(tmp_path / "cut", algorithm, privacy)
    assert np.array_equal(whole.model, resumed.model)
    assert rows_of(resumed) == rows_of(whole)


@pytest.mark.parametrize("sampling", ["poisson", "unproven"])
def test_rounds_that_do_not_wait_for_a_disk_save_counts_of_participation_and_the_last_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: str
):
    """The disk is never done: whoever would be counted too low could take part too often."""
    privacy = child.privacy(ROUNDS, **SAMPLINGS[sampling])
    saved, write, seen = list[int](), checkpoints.write, watch(monkeypatch, tmp_path / "ledger.db")

    def noted(folder: Path, number: int, *rest: Any, **more: Any) -> Path:
        saved.append(number)
        return write(folder, number, *rest, **more)

    monkeypatch.setattr(checkpoints, "write", noted)
    monkeypatch.setattr(checkpoints.Writer, "is_idle", False)
    always = Checkpointing(every_rounds=TOGETHER, every_seconds=1e-9)
    go(tmp_path, child.algorithm(privacy), privacy, checkpointing=always)
    after_each_block = {computed for computed, _ in seen.paid}
    assert set(saved) == ({ROUNDS} if sampling == "poisson" else after_each_block)
    assert len(after_each_block) > 1


# --- noise and payments


def test_every_block_is_paid_for_before_it_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Blocks are drawn ahead, across payments too, and what is drawn stays in memory."""
    privacy = child.privacy(ROUNDS)
    seen = watch(monkeypatch, tmp_path / "ledger.db")
    go(tmp_path, child.algorithm(privacy), privacy)
    assert [computed for computed, _ in seen.paid][-1] == ROUNDS
    assert any(later - earlier > 1 for (earlier, _), (later, _) in itertools.pairwise(seen.paid))
    assert all(computed <= paid for computed, paid in seen.paid)
    assert max(paid - computed for computed, paid in seen.paid) < TOGETHER  # and not for more than the next checkpoint


def test_a_block_that_the_budget_no_longer_allows_is_cut_and_released_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It was drawn before anyone knew: what is paid for is drawn again, with the keys of its rounds."""
    privacy = child.privacy(ROUNDS)
    algorithm = child.algorithm(privacy)
    whole = go(tmp_path / "whole", algorithm, privacy)
    affordable = whole.guarantee.epsilon
    (tmp_path / "cut").mkdir()
    ledger = Ledger(tmp_path / "cut" / "ledger.db")
    ledger.set_budget(child.POPULATION, epsilon=0.8 * affordable, delta=1e-5)
    seen = watch(monkeypatch, tmp_path / "cut" / "ledger.db")
    cut = go(tmp_path / "cut", algorithm, privacy, ledger=ledger)
    assert cut.stopped == "budget"
    assert 0 < cut.rounds < ROUNDS
    assert cut.rounds % TOGETHER
    assert all(computed <= paid for computed, paid in seen.paid)
    assert paid_rounds(ledger) == cut.rounds
    fewer = go(tmp_path / "fewer", algorithm, dataclasses.replace(privacy, rounds=cut.rounds))
    assert np.array_equal(cut.model, fewer.model)


def test_no_noise_of_a_killed_block_is_drawn_again_or_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What was drawn for rounds that nobody computed is lost, and the rounds are paid for again."""
    privacy = child.privacy(ROUNDS)
    algorithm, seen = child.algorithm(privacy), watch(monkeypatch, tmp_path / "ledger.db")
    with killed_after(5), pytest.raises(Killed):
        go(tmp_path, algorithm, privacy, seed=None)
    lost = len(seen.secrets)
    go(tmp_path, algorithm, privacy, seed=None)
    assert len(seen.secrets) > lost > 0
    assert len(set(seen.secrets)) == len(seen.secrets)
    assert len({row.tobytes() for row in seen.rows}) == len(seen.rows)
    assert all(computed <= paid for computed, paid in seen.paid)
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(row.tobytes() in files for row in seen.rows if row.size > 1)
    assert not any(secret in files for secret in seen.secrets)


def test_each_rounds_noise_is_what_its_own_key_draws(monkeypatch: pytest.MonkeyPatch):
    """Also where every coordinate has to be decided again, and as many rows of zeros as make room."""
    roots, path = [keys.reproducible(seed) for seed in range(5)], (("update", ()), ("noise", (3,)))
    own = [root.derive("update").derive("noise", 3).secret for root in roots]
    expected = [rounded_gaussian.rounded_gaussian(22, 21, secret) for secret in own]
    want = ahead.Want(path, 21, 22)
    for epsilon, chunk in ((2.0**-53, 1 << 12), (1.0, 2)):  # two blocks of the stream at once: rows are cut
        monkeypatch.setattr(rounded_gaussian, "_EPSILON", epsilon)
        monkeypatch.setattr(rounded_gaussian, "_CHUNK_BLOCKS", chunk)
        drawn = ahead.begin([want], roots, 7).decided()[want]
        assert np.array_equal(drawn, [*expected, np.zeros(21), np.zeros(21)])
    monkeypatch.setattr(ahead, "WORTH_COMPILING", 0)
    assert np.array_equal(ahead.begin([want], roots, 5).decided()[want], expected)


def test_a_step_may_not_release_two_sums_with_one_keys_noise():
    total = BoundedSum(np.zeros(3, np.int64), 1.0, 1.0, grid=gaussian(1.0).step(1.0))
    release = functools.partial(gaussian(1.0).release, total)
    twice = lambda key: [release(key=key.derive("update")).value for _ in range(2)]  # noqa: E731
    with pytest.raises(PrivacyError, match="derive a key for each"):
        ahead.listed(twice)
    apart = lambda key: [release(key=key.derive("update", number)).value for number in range(2)]  # noqa: E731
    assert len(ahead.listed(apart)) == 2


def test_the_noise_of_a_block_is_for_one_state():
    privacy = child.privacy(2)
    algorithm, simulation = child.algorithm(privacy), Simulation(child.population())
    chosen = Blocks(algorithm, simulation, privacy.sampling, TOGETHER)
    block = chosen.draw(*rounds_of(simulation, privacy.sampling, 2))
    chosen.compute(algorithm.init(), block)
    with pytest.raises(PrivacyError, match="draw it again"):
        chosen.compute(algorithm.init()._replace(params=np.ones(4, np.float32)), block)


def test_nothing_can_be_drawn_from_the_stand_in_of_a_key():
    key = ahead.PlannedKey(lambda want: jnp.zeros(want.size))
    for hidden in ("secret", "stream", "for_one_release", "bound_to"):
        assert not hasattr(key, hidden)


def test_a_step_that_releases_something_else_is_refused_before_its_noise_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    privacy = child.privacy(ROUNDS)
    honest: Any = child.algorithm(privacy)

    def careless(state: Any, cohort: Any, *, key: Any) -> Any:
        after, event = honest.step(state, cohort, key=key)
        return after, dataclasses.replace(event, noise_multiplier=event.noise_multiplier / 2)

    seen = watch(monkeypatch, tmp_path / "ledger.db")
    with pytest.raises(PrivacyError, match="was paid for"):
        go(tmp_path, dataclasses.replace(honest, step=type(honest.step)(careless)), privacy)
    assert not seen.secrets


# --- when rounds are computed together


def test_rounds_are_computed_together_only_where_that_is_known_to_be_the_same(monkeypatch: pytest.MonkeyPatch):
    privacy = child.privacy(ROUNDS)
    algorithm, clients = child.algorithm(privacy), Simulation(child.population())
    chosen = functools.partial(blocks_for, sampling=privacy.sampling, most=50)
    assert chosen(algorithm, clients) is not None
    assert chosen(singly(algorithm), clients) is None  # it may do anything
    assert chosen(algorithm, Debug(child.population())) is None
    at_sites = dataclasses.replace(algorithm, event=dataclasses.replace(algorithm.event, sites=3, fewest=2))
    assert chosen(at_sites, clients) is None
    assert blocks_for(algorithm, clients, privacy.sampling, 2) is None  # not worth it
    monkeypatch.setattr(blocks, "_SMALL", 1)
    assert chosen(algorithm, clients) is None
    monkeypatch.undo()
    monkeypatch.setattr(placement, "room", lambda: 0.0)
    assert chosen(algorithm, Simulation(child.population())) is None


def test_a_block_becomes_longer_until_it_takes_a_while(monkeypatch: pytest.MonkeyPatch):
    privacy = child.privacy(ROUNDS)
    chosen: Any = Blocks(child.algorithm(privacy), Simulation(child.population()), privacy.sampling, 6)
    widths = list[int]()
    for seconds in (0.1, 0.1, 0.1, 0.1, 1.0, 3.0, 3.0, 3.0):
        chosen._pace(seconds)
        widths.append(chosen.width)
    assert widths == [2, 4, 6, 6, 6, 3, 1, 1]
