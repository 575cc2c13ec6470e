"""Laws of the joint round: bounds hold for anyone, it costs what was paid, and it is paid for before any noise."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight import keys, selection
from blindsight.accounting.events import Gaussian, from_json
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Batch, Examples, Simulation
from blindsight.data.population import Population
from blindsight.errors import BudgetExceeded, InvalidInput, PrivacyError
from blindsight.inspection import measuring
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.rounds import AccuracyCells
from blindsight.inspection.contrast.votes import VotesPart
from blindsight.mechanisms import GaussianMechanism, gaussian, quantile
from blindsight.selection import Arms, by_accuracy, by_correctness, everything

KEY = keys.reproducible(4)
LABELS = ("invert", "flip", "none")


def population(sizes=(3, 0, 7, 1, 5, 9, 2, 4), seed: int = 0) -> Population:
    """Clients with what observing would have given them; some of it is impossible."""
    generator, total = np.random.default_rng(seed), int(np.sum(sizes))
    cues = generator.uniform(size=(total, 4)).astype(np.float32)
    cues.ravel()[:4] = np.nan, np.inf, -1e30, 7.0
    columns = {
        "cues": cues,
        "is_correct": generator.uniform(size=total) < 0.5,
        "repaired": generator.uniform(size=(total, 2)) < 0.6,
        "tried": generator.uniform(size=total) < 0.7,
    }
    classes = {"cues": ("a", "b", "c", "d"), "repaired": LABELS[:2]}
    return Population(columns, sizes=np.asarray(sizes), name="people", classes=classes)


def parts_for(arms: Arms) -> tuple[Cues, VotesPart]:
    names, whole = tuple(arms), arms.disjoint_by_client
    return Cues(("a", "b", "c", "d"), names, whole), VotesPart(LABELS, names, whole)


def sums(people: Population, clients, arms: Arms) -> dict[str, np.ndarray]:
    parts = parts_for(arms)
    cohort = Simulation(people).cohort(np.asarray(clients, np.int64), n_expected=8.0, key=KEY)
    bounds = {part.name: part.bound for part in parts}
    update = measuring.client_update(arms, parts)
    return {name: np.asarray(total.value) for name, total in cohort.sum(update, jnp.zeros(()), l2_bound=bounds).items()}


ARMS = [by_accuracy(0.4, 0.6), by_correctness(1), Arms({"all": everything()})]


@pytest.mark.parametrize("arms", ARMS, ids=lambda arms: "-".join(arms))
def test_no_client_can_make_a_part_longer_than_its_bound(arms):
    """Before any clipping: the bound is a property of what clients compute, and clipping never bites."""
    extreme = [0.0, 1.0, 0.5, np.nan, np.inf, -np.inf, 1e38, -3.0]
    for value in extreme:
        for size in (1, 2, 9):
            right = np.arange(size) % 3 == 0
            fields = {
                "cues": np.full((10, 4), value, np.float32),
                "is_correct": np.pad(right, (0, 10 - size)),
                "repaired": np.ones((10, 2), bool) & np.array([True, size > 1]),
                "tried": np.ones(10, bool),
            }
            weight = np.pad(np.ones(size, np.float32), (0, 10 - size))
            batch = Batch({name: jnp.asarray(field) for name, field in fields.items()}, jnp.asarray(weight))
            for part in parts_for(arms):
                sent = np.asarray(part.client_part(batch, arms.masks(batch), jax.random.key(0)), np.float64)
                assert sent.shape == (part.coordinates,)
                assert np.linalg.norm(sent) <= part.bound + 1e-6


def test_the_bounds_are_reached():
    """A bound that nobody reaches would cost noise for nothing."""
    batch = Batch(
        {
            "cues": jnp.ones((2, 4)),
            "is_correct": jnp.array([False, True]),
            "repaired": jnp.zeros((2, 2), bool),
            "tried": jnp.array([True, False]),
        },
        jnp.ones(2),
    )
    for arms in (by_correctness(1), Arms({"all": everything()})):
        for part in parts_for(arms):
            sent = part.client_part(batch, arms.masks(batch), jax.random.key(0))
            np.testing.assert_allclose(np.linalg.norm(sent), part.bound, rtol=1e-6)


@pytest.mark.parametrize("arms", ARMS, ids=lambda arms: "-".join(arms))
def test_leaving_a_client_out_moves_the_sums_by_at_most_the_bounds(arms):
    people = population()
    whole = sums(people, range(people.size), arms)
    for client in range(people.size):
        rest = sums(people, [c for c in range(people.size) if c != client], arms)
        for part in parts_for(arms):
            assert np.linalg.norm(whole[part.name] - rest[part.name]) <= part.bound * (1 + 1e-5)


def test_clients_in_no_arm_add_exact_zeros():
    people = population()
    arms = by_accuracy(0.01, 1.0)
    outside = np.flatnonzero(~arms.members(people).any(axis=0))
    assert len(outside) >= 3
    assert all(not total.any() for total in sums(people, outside, arms).values())


def measure(people=None, arms=ARMS[0], epsilon=1.0, ledger=None, key=KEY, parts=None, **more):
    people = population() if people is None else people
    parts = parts_for(arms) if parts is None else parts
    made = measuring.noise_for(
        parts, epsilon=epsilon, delta=1e-5, shares={p.name: 1.0 + n for n, p in enumerate(parts)}
    )
    about: dict[str, Any] = {
        "clients": people.size,
        "population": "people",
        "delta": 1e-5,
        "ledger": ledger or Ledger(),
        "key": key,
    }
    return measuring.measure(Simulation(people), arms, parts, made, **(about | more)), made


def test_what_was_paid_is_the_event_of_all_releases_together(ledger_path):
    found, made = measure()
    (entry,) = Ledger(ledger_path).entries("people")
    assert from_json(entry.event) == found.event
    (noise,) = {event.noise_multiplier for event in _gaussians(found.event)}
    assert noise**-2 == pytest.approx(sum(one.noise_multiplier**-2 for one in made.values()))
    assert (made["cues"].noise_multiplier / made["votes"].noise_multiplier) ** 2 == pytest.approx(2.0)
    assert found.guarantee.epsilon <= 1.0
    assert found.guarantee.epsilon == pytest.approx(1.0, rel=1e-3)
    assert all(part.epsilon < 1 for part in found.parts.values())
    assert found["votes"].noise_std == pytest.approx(made["votes"].noise_multiplier)
    assert found["cues"].noise_std == pytest.approx(made["cues"].noise_multiplier * parts_for(ARMS[0])[0].bound)
    assert [row["coordinates"] for row in found.releases] == [18, 6]
    assert "nobody who sees a release knows the seed" in " ".join(found.guarantee.assumptions)


def _gaussians(event) -> list[Gaussian]:
    inner = getattr(event, "event", None)
    return [event] if isinstance(event, Gaussian) else _gaussians(inner)


def test_the_entry_is_in_the_ledger_before_noise_is_drawn(monkeypatch, ledger_path):
    seen: list[int] = []
    release = GaussianMechanism.release

    def watched(self, total, *, key):
        seen.append(len(Ledger(ledger_path).entries("people")))
        return release(self, total, key=key)

    monkeypatch.setattr(GaussianMechanism, "release", watched)
    measure()
    assert seen == [1, 1]


def test_an_exhausted_budget_refuses_the_round_before_any_noise_and_a_larger_one_lets_it_on(monkeypatch, ledger_path):
    ledger = Ledger(ledger_path)
    ledger.set_budget("people", epsilon=0.5, delta=1e-5)
    drawn: list[int] = []
    release = GaussianMechanism.release
    monkeypatch.setattr(GaussianMechanism, "release", lambda *a, **k: drawn.append(1) or release(*a, **k))
    with pytest.raises(BudgetExceeded):
        measure(ledger=ledger)
    assert drawn == []
    assert all(entry.kind == "budget" for entry in ledger.entries("people"))
    ledger.set_budget("people", epsilon=1.0, delta=1e-5)
    measure(ledger=ledger)
    assert drawn == [1, 1]


def test_a_part_that_is_longer_than_it_says_is_refused_before_it_is_paid_for(ledger_path):
    @dataclasses.dataclass(frozen=True)
    class Longer(VotesPart):
        @property
        def coordinates(self) -> int:
            return super().coordinates - 1

    part = Longer(LABELS, tuple(ARMS[0]), True)
    with pytest.raises(PrivacyError, match="votes has 6 coordinates, but 5 were to be paid for"):
        measure(parts=(part,))
    assert Ledger(ledger_path).entries("people") == []


def test_the_guarantee_says_how_arms_were_formed():
    people = population()
    filled, _ = measure(people)
    assert "arm sizes stay private" in filled.guarantee.participation
    some = ARMS[0].eligible(people)
    chosen, _ = measure(some, forming="eligible", key=keys.reproducible(5))
    assert "only clients in an arm take part" in chosen.guarantee.participation
    assert "which clients are eligible for an arm, and how many they are, is public" in chosen.guarantee.assumptions
    assert chosen.clients == some.size < people.size


def test_sums_are_those_of_the_clients_and_noise_is_as_wide_as_it_says():
    people, arms = population(), ARMS[0]
    truth = sums(people, range(people.size), arms)
    draws = [measure(people, key=keys.reproducible(seed))[0] for seed in range(12)]
    for name, clean in truth.items():
        noise = np.concatenate([draw[name].sums - clean for draw in draws]) / draws[0][name].noise_std
        assert abs(noise.mean()) < 5 / math.sqrt(noise.size)
        assert 0.67 < noise.std() < 1.5


def test_noise_needs_parts_and_shares_that_make_sense():
    parts = parts_for(ARMS[0])
    with pytest.raises(InvalidInput, match="one share of the precision"):
        measuring.noise_for(parts, epsilon=1, delta=1e-5, shares={"cues": 1.0})
    with pytest.raises(InvalidInput, match="positive"):
        measuring.noise_for(parts, epsilon=1, delta=1e-5, shares={"cues": 1.0, "votes": 0.0})
    with pytest.raises(InvalidInput, match="its own name"):
        measuring.noise_for((parts[0], parts[0]), epsilon=1, delta=1e-5)
    with pytest.raises(InvalidInput, match="a mechanism each"):
        measuring.measure(
            Simulation(population()),
            ARMS[0],
            parts,
            {},
            clients=8,
            population="p",
            delta=1e-5,
            ledger=Ledger(),
            key=KEY,
        )


def test_thresholds_cover_the_quantiles(ledger_path):
    generator = np.random.default_rng(0)
    sizes = generator.integers(0, 30, 2000)
    skill = np.repeat(generator.beta(9, 1, 2000), sizes)
    people = Population({"is_correct": generator.uniform(size=len(skill)) < skill}, sizes=sizes, name="people")
    accuracies, part = selection.accuracies(people)[sizes > 0], AccuracyCells()
    noise = measuring.noise_for([part], epsilon=2.0, delta=1e-6)
    everyone = Arms({"everyone": selection.everything()})
    about: dict[str, Any] = {"clients": 2000, "population": "people", "delta": 1e-6, "key": KEY}
    found = measuring.measure(Simulation(people), everyone, [part], noise, ledger=Ledger(ledger_path), **about)
    assert 1.98 < found.guarantee.epsilon <= 2.0
    for probability in (0.25, 0.75):
        estimate = part.read(found["thresholds"], probability)
        truth = np.quantile(accuracies, probability)
        assert estimate.low <= truth <= estimate.high
        assert estimate.high - estimate.low < 0.15


@pytest.mark.parametrize("right", [[], [0], [1], [1, 0, 1], [1] * 9 + [0]])
def test_the_cell_of_an_accuracy_is_that_of_the_quantile(right):
    examples = Examples.of({"is_correct": np.array(right, bool)})
    batch = examples.whole()
    sent = np.asarray(AccuracyCells().client_part(batch, batch.weight[None], jax.random.key(0)))
    poll = quantile(0.5, low=0.0, high=1.0, mechanism=gaussian(1.0), levels=8)
    expected = poll.parts(np.array([np.mean(right)]))[0] if right else np.zeros(510)
    np.testing.assert_array_equal(sent, expected)
    assert np.linalg.norm(sent) <= poll.l2_bound


def test_one_secret_key_measures_twice_with_different_noise():
    """With the same noise the difference of two measurements would be exact."""
    key = keys.root()
    (one, _), (other, _) = measure(key=key), measure(key=key)
    for name in one.parts:
        assert not np.allclose(one[name].sums, other[name].sums)
