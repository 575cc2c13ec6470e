"""The laws of named randomness: one path, one stream; nothing shown; exactly uniform, and a test that would notice."""

import dataclasses
import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys
from blindsight.errors import InvalidInput
from blindsight.keys import Key, Stream

laws = settings(derandomize=True, deadline=None, max_examples=200)

SEED = keys.reproducible(2024)
ACCEPT, REJECT = 1e-3, 1e-9  # p-values: what is right lies above the first, what is wrong below the second


def fit(counts: Any, probabilities: Any = None) -> float:
    """The p-value of the chi-square test that `counts` come from `probabilities`, by default all alike."""
    counts = np.asarray(counts, np.float64)
    expected = None if probabilities is None else counts.sum() * np.asarray(probabilities)
    return float(stats.chisquare(counts, expected).pvalue)


class Scripted(Stream):
    """A stream whose words are written down beforehand."""

    def __init__(self, script: Iterable[int]) -> None:
        super().__init__(SEED)
        self._script = iter(script)

    def words(self, count: int) -> np.ndarray:
        return np.array(list(itertools.islice(self._script, count)), dtype=np.uint64)


# Keys.


indices = st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple)
paths = st.tuples(st.text(min_size=1, max_size=12), indices)


def encodes(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@laws
@given(left=paths, right=paths)
@example(left=("a", (1,)), right=("a1", ()))
@example(left=("a", (1, 2)), right=("a", (12,)))
@example(left=("a", (1, 2)), right=("a", (2, 1)))
@example(left=("a", (1,)), right=("a\x01\0\0\0\0\0\0\0", ()))
@example(left=("a", (0,)), right=("a", ()))
@example(left=("a", (0,)), right=("a", (0, 0)))
@example(left=("a", (1 << 32,)), right=("a", (0, 1)))
@example(left=("a", (2**64 - 1,)), right=("a", (2**64 - 1, 2**64 - 1)))
@example(left=("é", ()), right=("é", ()))
@example(left=("\x01", ()), right=("\x01\0", ()))
def test_two_paths_lead_to_two_keys_and_one_path_to_one(left, right):
    if encodes(left[0]) and encodes(right[0]):
        first, second = (SEED.derive(purpose, *at) for purpose, at in (left, right))
        assert (first == second) == (left == right)
        assert (first.secret == second.secret) == (left == right)
        assert first == SEED.derive(left[0], *left[1])


def test_no_two_short_paths_meet():
    words = ["a", "b", "ab", "a1", "a\0", "a\x01", "1", "\0", "noise", "noise1", "nois"]
    numbers = [(), (0,), (1,), (2,), (12,), (256,), (0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (1, 2, 0), (97,)]
    direct = [SEED.derive(word, *at) for word in words for at in numbers]
    nested = [SEED.derive(first).derive(then) for first in words for then in words]
    longer = [SEED.derive("a", 1).derive("b", 2), SEED.derive("a").derive("b", 1, 2), SEED.derive("b", 21)]
    secrets = {key.secret for key in [SEED, *direct, *nested, *longer]}
    assert len(secrets) == 1 + len(direct) + len(nested) + len(longer)


def test_a_derived_key_by_hand():
    path = (5).to_bytes(8, "little") + b"noise" + (3).to_bytes(8, "little") + (2**64 - 1).to_bytes(8, "little")
    expected = hashlib.blake2b(path, key=SEED.secret, digest_size=32).digest()
    assert SEED.derive("noise", 3, 2**64 - 1).secret == expected


def test_another_root_gives_another_key():
    other = keys.reproducible(2025)
    assert SEED.derive("noise", 3) != other.derive("noise", 3)
    assert len({keys.reproducible(seed).secret for seed in range(-50, 50)}) == 100


def test_indices_of_numpy_are_numbers_too():
    three: Any = np.int64(3)
    assert SEED.derive("client", three, int(three)) == SEED.derive("client", 3, 3)


def test_roots_are_fresh_and_reproducible_only_when_asked():
    roots = [keys.root() for _ in range(100)]
    assert len({key.secret for key in roots}) == 100
    assert {len(key.secret) for key in roots} == {32}
    assert not any(key.is_reproducible or key.derive("a", 1).derive("b").is_reproducible for key in roots)
    assert keys.reproducible(1) == keys.reproducible(1)
    assert len(keys.reproducible(1).secret) == 32
    assert keys.reproducible(1).is_reproducible
    assert keys.reproducible(1).derive("a", 1).derive("b").is_reproducible
    assert Key(keys.reproducible(1).secret) != keys.reproducible(1)  # how a key came about is part of it


def shown(thing: Any) -> str:
    return f"{thing}{thing!r}{thing!s}{[thing]}{ {'key': thing} }"


@pytest.mark.parametrize("secret", [bytes(range(65, 97)), b"correct horse battery staple 123"])
@pytest.mark.parametrize("is_reproducible", [True, False])
def test_a_key_shows_nothing_of_itself(secret, is_reproducible):
    key = Key(secret, is_reproducible)
    text = shown(key) + shown(key.stream()) + shown(key.derive("a"))
    for refused in (lambda: key.derive(""), lambda: key.stream().below(0, 1), lambda: Key(secret + b"!")):
        with pytest.raises(InvalidInput) as caught:
            refused()
        text += shown(caught.value)
    pieces = [secret.decode()[i : i + 6] for i in range(27)] + [secret.hex()[i : i + 8] for i in range(57)]
    assert [piece for piece in pieces if piece in text] == []
    assert repr(key) == ("Key(reproducible)" if is_reproducible else "Key(secret)")


def test_a_key_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SEED.secret = bytes(32)  # type: ignore[misc]


BAD_SECRETS: list[Any] = [b"", bytes(31), bytes(33), "x" * 32, [0] * 32, bytearray(32), np.zeros(32), None, 32]


@pytest.mark.parametrize("secret", BAD_SECRETS)
def test_a_key_has_32_bytes(secret):
    with pytest.raises(InvalidInput, match="a key must have 32 bytes"):
        Key(secret)


BAD_PATHS: list[tuple[Any, ...]] = [
    ("",),
    (b"noise",),
    (None,),
    (3,),
    ("\ud800",),
    ("noise", -1),
    ("noise", 1 << 64),
    ("noise", 0, -5),
    ("noise", 1.0),
    ("noise", math.nan),
    ("noise", "1"),
    ("noise", None),
    ("noise", np.int64(-1)),
]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_is_a_word_and_whole_numbers(path):
    with pytest.raises(InvalidInput, match="a purpose and whole-number indices"):
        SEED.derive(*path)


def test_jax_keys_differ_wherever_keys_do():
    derived = [SEED, *(SEED.derive(word, i) for word in ("noise", "init") for i in range(100))]
    data = {tuple(jax.random.key_data(key.jax()).tolist()) for key in derived}
    assert len(data) == len(derived)
    again = SEED.derive("noise", 7).jax()
    assert jax.random.key_data(again).tolist() == jax.random.key_data(SEED.derive("noise", 7).jax()).tolist()
    assert (str(again.dtype), again.shape) == ("key<fry>", ())
    one, other = (jax.random.normal(SEED.derive("noise", i).jax(), (1000,)) for i in range(2))
    assert abs(float(np.corrcoef(np.asarray(one), np.asarray(other))[0, 1])) < 0.15


# Words.


BLOCK = Stream._BLOCK_WORDS


def by_hand(key: Key, count: int) -> np.ndarray:
    """The naive twin: whole blocks of SHAKE-256 over the secret and a counter."""
    blocks = -(-count // BLOCK)
    digests = [hashlib.shake_256(key.secret + n.to_bytes(8, "little")).digest(8 * BLOCK) for n in range(blocks)]
    return np.frombuffer(b"".join(digests), dtype="<u8")[:count]


@laws
@given(chunks=st.lists(st.one_of(st.integers(0, 9), st.sampled_from([64, 100, BLOCK - 1, BLOCK, 3 * BLOCK]))))
def test_words_do_not_depend_on_how_they_are_asked_for(chunks):
    stream = SEED.derive("words").stream()
    parts = [stream.words(count) for count in chunks]
    assert [len(part) for part in parts] == chunks
    assert all(part.dtype == np.uint64 for part in parts)
    together = np.concatenate([*parts, np.empty(0, np.uint64)])
    assert np.array_equal(together, by_hand(SEED.derive("words"), sum(chunks)))


def test_writing_into_drawn_words_leaves_the_next_ones_alone():
    stream = SEED.stream()
    for _ in range(5):
        stream.words(BLOCK // 2 + 7)[:] = 0
    assert np.array_equal(stream.words(10), by_hand(SEED, 5 * (BLOCK // 2 + 7) + 10)[-10:])


def test_streams_of_one_key_agree_and_of_two_keys_do_not():
    assert np.array_equal(SEED.stream().words(5000), SEED.stream().words(5000))
    one, other = (SEED.derive("noise", i).stream().words(5000) for i in range(2))
    assert not np.any(one == other)
    assert len(set(one.tolist())) == 5000


def test_words_are_uniform():
    words = SEED.derive("uniform").stream().words(200_000)

    def tests(sample: np.ndarray) -> list[float]:
        high, low = sample >> np.uint64(56), sample & np.uint64(255)
        ones = np.array([np.count_nonzero(sample >> np.uint64(bit) & np.uint64(1)) for bit in range(64)])
        z = (ones - len(sample) / 2) / math.sqrt(len(sample) / 4)
        pairs = (sample[:-1] >> np.uint64(60)) * np.uint64(16) + (sample[1:] >> np.uint64(60))
        return [
            fit(np.bincount(high.astype(np.int64), minlength=256)),
            fit(np.bincount(low.astype(np.int64), minlength=256)),
            fit(np.bincount(pairs.astype(np.int64), minlength=256)),
            float(stats.chi2.sf(np.sum(z**2), 64)),
        ]

    assert min(tests(words)) > ACCEPT
    lazy = np.random.default_rng(0).random(words.size) < 0.04
    high, low = np.uint64(1 << 63), np.uint64(1)
    assert tests(np.where(lazy, words | high, words))[0] < REJECT  # the first bit shows 2 % too often
    assert tests(np.where(lazy, words & ~low, words))[1] < REJECT  # the last one 2 % too seldom
    repeated = words.copy()
    repeated[1:][lazy[1:]] = words[:-1][lazy[1:]]  # 4 % of words are the one before
    assert tests(repeated)[2] < REJECT
    assert tests(np.where(lazy, words | np.uint64(1 << 31), words))[3] < REJECT


@pytest.mark.parametrize("count", [-1, -(2**40), math.nan])
def test_fewer_than_no_words_are_refused(count):
    stream = SEED.stream()
    stream.words(5)
    with pytest.raises(InvalidInput, match="0 or more"):
        stream.words(count)


# Whole numbers below a bound.


AWKWARD = {3 << 61: 3, 5 << 60: 5, 7 << 59: 7}  # and into how many equal parts the range falls


@pytest.mark.parametrize("bound", AWKWARD)
def test_numbers_below_an_awkward_bound_are_uniform(bound):
    parts, count = AWKWARD[bound], 60_000

    def spread(sample: np.ndarray) -> float:
        return fit(np.bincount(np.asarray(sample) // (bound // parts), minlength=parts))

    drawn = SEED.derive("below").stream().below(bound, count)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 0
    assert drawn.max() < bound
    assert spread(drawn) > ACCEPT
    naive = (SEED.derive("below").stream().words(count) % np.uint64(bound)).astype(np.int64)
    assert spread(naive) < REJECT


@pytest.mark.parametrize("bound", [2, 3, 7, 8, 10, 100, 128])
def test_numbers_below_a_small_bound_are_uniform(bound):
    drawn = SEED.derive("small", bound).stream().below(bound, 50_000)
    counts = np.bincount(drawn, minlength=bound)
    assert len(counts) == bound
    assert fit(counts) > ACCEPT
    off_by_one = SEED.derive("small", bound).stream().below(bound + 1, 50_000) % bound
    assert fit(np.bincount(off_by_one, minlength=bound)) < REJECT


@laws
@given(bound=st.one_of(st.integers(1, 2**63), st.integers(0, 63).map(lambda p: 1 << p), st.integers(1, 50)))
@example(bound=2**63 - 1)
@example(bound=(1 << 62) + 1)
def test_every_remainder_is_reached_by_equally_many_words(bound):
    """The accepted words are 0, 1, ..., k bound - 1 for the largest k there is: exactly uniform."""
    accepted = (1 << 64) // bound * bound
    for word in (0, 1, bound - 1, bound, accepted - 2, accepted - 1, accepted, accepted + 1, 2**64 - 1):
        if word < 1 << 64:
            drawn = Scripted([word, 12345]).below(bound, 1).tolist()
            assert drawn == [word % bound if word < accepted else 12345 % bound]


def test_rejected_words_are_drawn_again_and_the_others_kept():
    too_large = 2**64 - 1
    assert Scripted([4, too_large, 5, too_large, too_large, 7, 8]).below(3, 4).tolist() == [1, 8 % 3, 2, 7 % 3]
    assert SEED.stream().below(3, 0).tolist() == []
    assert SEED.stream().below(1, 4).tolist() == [0] * 4
    assert SEED.stream().below(1 << 63, 1000).min() >= 0
    assert SEED.stream().below(np.int64(10), 5).tolist() == SEED.stream().below(10, 5).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [0, -1, (1 << 63) + 1, 1 << 64])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(InvalidInput, match="bound must lie between 1 and 2"):
        SEED.stream().below(bound, 3)


@pytest.mark.parametrize("bound", [2.5, 2.0, math.nan, None, "3"])
def test_a_bound_that_is_no_whole_number_is_refused(bound):
    with pytest.raises(TypeError):
        SEED.stream().below(bound, 3)


# Coins.


@pytest.mark.parametrize("probability", [0.01, 0.3, 0.5, 0.9])
def test_coins_show_true_with_their_probability(probability):
    coins = SEED.derive("coins").stream().bernoulli(probability, 1_000_000)
    assert coins.dtype == bool
    heads = int(np.count_nonzero(coins))

    def plausible(p: float) -> float:
        return float(stats.binomtest(heads, coins.size, min(p, 1.0)).pvalue)

    assert plausible(probability) > ACCEPT
    assert plausible(probability * 0.9) < REJECT
    assert plausible(probability * 1.1) < REJECT


def test_coins_that_cannot_fall_otherwise():
    assert not np.any(SEED.stream().bernoulli(0.0, 1000))
    assert np.all(SEED.stream().bernoulli(1.0, 1000))
    assert len(SEED.stream().bernoulli(1.0, 17)) == len(SEED.stream().bernoulli(0.2, 17)) == 17
    assert Scripted([0] * 3).bernoulli(0.0, 3).tolist() == [False] * 3
    assert Scripted([2**64 - 1] * 3).bernoulli(1.0, 3).tolist() == [True] * 3


@laws
@given(probability=st.one_of(st.floats(0, 1), st.floats(-80, 0).map(lambda p: 2.0**p)))
@example(probability=2.0**-64)
@example(probability=2.0**-65)
@example(probability=math.nextafter(1.0, 0.0))
@example(probability=5e-324)
def test_a_probability_is_never_rounded_up(probability):
    """Exactly the words below p 2^64, rounded down, show True."""
    numerator, denominator = probability.as_integer_ratio()
    heads = (numerator << 64) // denominator
    words = [word for word in (0, heads - 1, heads, heads + 1, 2**64 - 1) if 0 <= word < 2**64]
    assert Scripted(words).bernoulli(probability, len(words)).tolist() == [word < heads for word in words]


@pytest.mark.parametrize("probability", [-1e-9, 1 + 1e-9, math.nan, math.inf, -math.inf])
def test_a_probability_that_is_none_is_refused(probability):
    with pytest.raises(InvalidInput, match="a probability must lie between 0 and 1"):
        SEED.stream().bernoulli(probability, 3)


# Subsets.


@pytest.mark.parametrize(("size", "count"), [(5, 2), (5, 3), (6, 1), (4, 3)])
def test_every_subset_is_equally_likely(size, count):
    everything, draws = list(itertools.combinations(range(size), count)), 8000

    def spread(samples: Iterable[Iterable[int]]) -> float:
        tally = Counter(tuple(sorted(sample)) for sample in samples)
        assert set(tally) <= set(everything)
        return fit([tally[subset] for subset in everything])

    stream = SEED.derive("subset", size, count).stream()
    assert spread(stream.subset(size, count).tolist() for _ in range(draws)) > ACCEPT

    def careless() -> Iterable[int]:
        """Orders by three bits of each word: ties go to whoever comes first."""
        return np.argsort(stream.words(size) & np.uint64(7), stable=True)[:count].tolist()

    assert spread(careless() for _ in range(draws)) < REJECT


@laws
@given(size=st.integers(0, 300), data=st.data())
def test_a_subset_has_no_member_twice(size, data):
    count = data.draw(st.integers(0, size))
    chosen = SEED.derive("all different", size, count).stream().subset(size, count).tolist()
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(range(size))


def test_a_subset_is_that_of_the_smallest_words():
    assert sorted(Scripted([50, 10, 40, 20, 30]).subset(5, 2).tolist()) == [1, 3]
    assert sorted(Scripted([50, 10, 40, 20, 30]).subset(5, 4).tolist()) == [1, 2, 3, 4]


@pytest.mark.parametrize(("size", "count"), [(5, -1), (5, 6), (0, 1), (-1, 0), (5, math.nan)])
def test_a_subset_larger_than_the_whole_is_refused(size, count):
    with pytest.raises(InvalidInput, match="a subset of"):
        SEED.stream().subset(size, count)


def test_a_key_bound_to_functions_with_other_arguments_is_another():
    """A model or an optimiser may be a function with some arguments filled in: they decide what is released."""
    root = keys.reproducible(7)
    same, again, other = (root.bound_to(lambda by=by: {"step": functools.partial(pow, by)}).secret for by in (2, 2, 3))
    assert same == again != other
