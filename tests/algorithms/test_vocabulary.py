"""Laws of words that are counted and discovered: what a client may add, what is paid, what is found."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import vocabulary
from blindsight.algorithms.vocabulary import count_words, discover_words, own_words, release_words
from blindsight.backends import Debug, Simulation
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Vocabulary
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.mechanisms import GaussianMechanism

DELTA = 1e-6


def people(*texts: list[str]) -> Population:
    flat = [text for own in texts for text in own]
    return Population({"text": np.array(flat, dtype=TEXT)}, sizes=[len(own) for own in texts], name="letters")


def crowd(clients: int, shared: dict[str, float], seed: int = 0) -> Population:
    """Clients who each use a shared word with its probability, and two words that nobody else has."""
    random = np.random.default_rng(seed)
    return people(
        *[
            [" ".join([*(w for w, p in shared.items() if random.random() < p), f"own{client}", f"x{client}y"])]
            for client in range(clients)
        ]
    )


def test_own_words_are_distinct_and_stay_with_their_client() -> None:
    words = own_words(people(["The cat. The CAT!", "a cat"], [], ["dog"]), known=Vocabulary(("a",)))
    assert words.columns["word"].tolist() == ["the", "cat", ".", "!", "dog"]
    assert words.sizes.tolist() == [4, 0, 1]


@pytest.mark.parametrize("backend", [Simulation, Debug])
def test_counts_are_clients_and_not_uses(backend: type) -> None:
    text = people(["the the the the"], ["the cat"], [], ["cat cat", "cat"])
    found = count_words(
        own_words(text), ["cat", "the", "nobody"], epsilon=10, delta=DELTA, key=keys.root(), ledger=Ledger(),
        most=2, backend=backend,
    )  # fmt: skip
    assert set(found.words) == {"cat", "the", "nobody"}
    counts = dict(zip(found.words, found.counts, strict=True))
    for word, true in {"cat": 2, "the": 2, "nobody": 0}.items():
        assert abs(counts[word] - true) < 8 * found.noise_std


class _Spy(GaussianMechanism):
    """The mechanism without its noise, to see what would be noised."""

    def release(self, total, *, key, begun=None):
        from blindsight.mechanisms.release import Release

        whole = np.asarray(total.value) * self.step(total.l2_bound)
        return Release(whole / total.n_expected, self.event(total), 0.0)


WORDS = ["ab", "abc", "b", "ba", "c", "ca", "d", "é"]


@settings(max_examples=15)
@given(extra=st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), most=st.integers(1, 4))
def test_one_client_moves_the_sums_by_at_most_the_bound(extra: list[str], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "gaussian", lambda noise_multiplier: _Spy(noise_multiplier, "exact"))
        sums = []
        for last in ([], [" ".join(extra)]):
            found = count_words(
                own_words(people(["ab b"], ["c d"], last)), WORDS, epsilon=4, delta=DELTA, key=keys.root(),
                ledger=Ledger(), most=most,
            )  # fmt: skip
            sums.append([dict(zip(found.words, found.counts, strict=True))[word] for word in WORDS])
    moved = float(np.linalg.norm(np.subtract(*sums)))
    assert moved <= np.sqrt(most) * (1 + 1e-6)
    assert moved == pytest.approx(np.sqrt(min(most, len(set(extra)))), abs=1e-3)  # and no less than it may


def test_noise_has_the_size_that_is_stated() -> None:
    candidates = [f"w{i}" for i in range(4000)]
    found = count_words(
        own_words(people(["w0"], ["w1"])), candidates, epsilon=1, delta=DELTA, key=keys.root(), ledger=Ledger(), most=9
    )
    rest = np.array([count for word, count in zip(found.words, found.counts, strict=True) if word not in ("w0", "w1")])
    statistic = float(np.sum((rest / found.noise_std) ** 2))
    low, high = stats.chi2.ppf([1e-9, 1 - 1e-9], len(rest))
    assert low < statistic < high
    assert not low < statistic * 1.5**2 < high  # the test would see another deviation
    assert not low < statistic / 1.5**2 < high
    assert found.noise_std == pytest.approx(3 * 4.2247, rel=0.02)  # epsilon 1 alone, by sqrt(most)


def test_what_many_use_is_discovered_and_what_one_has_is_not() -> None:
    text = crowd(600, {"router": 0.9, "rover": 0.8, "caffè": 0.85, "rare": 0.005})
    ledger = Ledger()
    found = discover_words(
        own_words(text), epsilon=8, delta=DELTA, key=keys.root(), ledger=ledger, most=6, length=8
    )  # fmt: skip
    assert set(found.words) == {"router", "rover", "caffè"}
    counts = dict(zip(found.words, found.counts, strict=True))
    assert abs(counts["router"] - 540) < 40 + 8 * found.noise_std
    entries = [entry for entry in ledger.entries("letters") if entry.kind == "release"]
    assert 7 <= len(entries) <= 9  # six bytes and the end; a prefix of mere noise may live a little longer
    # level by level or all at once, the sum differs in its last bits
    assert ledger.spent("letters", delta=DELTA).epsilon <= found.guarantee.epsilon * (1 + 1e-12)
    assert 7.9 < found.guarantee.epsilon <= 8


def test_nothing_is_discovered_where_nothing_is_shared() -> None:
    found = discover_words(
        own_words(crowd(60, {})), epsilon=1, delta=DELTA, key=keys.reproducible(3), ledger=Ledger(), length=6
    )
    assert found.words == ()
    with pytest.raises(InvalidInput, match="stand out from noise"):
        found.vocabulary(10)


def test_a_budget_that_ends_half_way_stops_before_any_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, drawn = Ledger(), []
    ledger.set_budget("letters", epsilon=4, delta=DELTA)
    release = GaussianMechanism.release

    def counting(self, total, *, key):
        drawn.append(1)
        return release(self, total, key=key)

    monkeypatch.setattr(GaussianMechanism, "release", counting)
    text = crowd(600, {"router": 0.9})
    with pytest.raises(BudgetExceeded):
        discover_words(own_words(text), epsilon=8, delta=DELTA, key=keys.root(), ledger=ledger, most=3, length=8)
    paid = [entry for entry in ledger.entries("letters") if entry.kind == "release"]
    assert 0 < len(drawn) == len(paid) < 7


def test_the_most_used_words_make_the_vocabulary() -> None:
    text = crowd(500, {"often": 0.9, "half": 0.5, "never": 0.0})
    found = count_words(
        own_words(text), ["never", "half", "often"], epsilon=8, delta=DELTA, key=keys.root(), ledger=Ledger(), most=5
    )
    assert found.vocabulary(2).words == ("often", "half")
    about: Any = {"epsilon": 8, "delta": DELTA, "key": keys.root(), "ledger": Ledger(), "most": 5}
    assert release_words(text, candidates=["half", "often"], **about).vocabulary(1).words == ("often",)
    assert release_words(text, **about).vocabulary(1).words == ("often",)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"candidates": []}, "at least one candidate"), ({"most": 0}, "must be at least 1"), ({"field": "x"}, "no text")],
)
def test_refusals(wrong: dict, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        count_words(
            own_words(people(["a"]), field=wrong.get("field", "text")), wrong.get("candidates", ["a"]), epsilon=1,
            delta=DELTA, key=keys.root(), ledger=Ledger(), most=wrong.get("most", 3),
        )  # fmt: skip
