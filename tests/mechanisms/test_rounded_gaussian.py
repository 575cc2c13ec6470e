"""The noise is the rounding of real normals, whatever computes it; where that is in doubt it is decided again."""

import functools
import itertools
import math
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys, trees
from blindsight.backends import Simulation, placement
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.mechanisms import chacha, gaussian, rounded_gaussian
from blindsight.mechanisms.rounded_gaussian import decide
from blindsight.trees import BoundedSum

SECRET = keys.reproducible(7).derive("noise").secret
DRAW_COMPILED: Any = rounded_gaussian._draw_on_cpu
draw = rounded_gaussian.rounded_gaussian


def with_noise(tree: Any, bits: int, factor: float, secret: bytes) -> Any:
    return rounded_gaussian.begin(trees.size(tree), bits, secret, on_device=False).added_to(tree, factor)


# ChaCha20: key, nonce, counter and key stream of RFC 8439, sections 2.3.2, 2.4.2 and A.1.

VECTORS = [
    (
        bytes(range(32)),
        "000000090000004a00000000",
        1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        bytes(range(32)),
        "000000000000004a00000000",
        1,
        "224f51f3401bd9e12fde276fb8631ded8c131f823d2c06e27e4fcaec9ef3cf78"
        "8a3b0aa372600a92b57974cded2b9334794cba40c63e34cdea212c4cf07d41b7",
    ),
    (
        bytes(32),
        "000000000000000000000000",
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        bytes(31) + b"\x01",
        "000000000000000000000000",
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        b"\x00\xff" + bytes(30),
        "000000000000000000000000",
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
]


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(("key", "nonce", "counter", "stream"), VECTORS)
def test_the_key_stream_is_that_of_the_standard(array: Any, key: bytes, nonce: str, counter: int, stream: str):
    words = chacha.blocks(
        chacha.key_words(key), np.frombuffer(bytes.fromhex(nonce), "<u4"), array(np.array([counter], np.uint32))
    )
    assert len(words) == chacha.BLOCK_WORDS
    assert b"".join(int(word[0]).to_bytes(4, "little") for word in words).hex() == stream


# The bound on the error.


def normals(u: int, v: int, bits: int, more: int) -> list[Any]:
    """Both normals as real numbers, for u and v with 64 bits and `more` of 0 or 1 of the last one."""
    with mp.workdps(60):
        radius = mp.sqrt(-2 * mp.log((mp.mpf(u) + more) / 2**64)) * 2**bits
        angle = 2 * mp.pi * (mp.mpf(v) + more) / 2**64
        return [radius * mp.cos(angle), radius * mp.sin(angle)]


@functools.partial(jax.jit, static_argnums=1)
def compiled(words: Any, bits: int) -> Any:
    return rounded_gaussian._normals(words, bits, jnp)


def computed(numbers: list[tuple[int, int]], bits: int, *, on_jax: bool) -> tuple[np.ndarray, np.ndarray]:
    halves = [
        np.array([pair[i] >> shift & 0xFFFFFFFF for pair in numbers], np.uint32) for i in (0, 1) for shift in (32, 0)
    ]
    if not on_jax:
        return rounded_gaussian._normals(halves, bits, np)
    with jax.enable_x64(True):
        found, margin = compiled(halves, bits)
    return np.asarray(found), np.asarray(margin)


def check_bound(numbers: list[tuple[int, int]], bits: int) -> np.ndarray:
    for on_jax in (False, True):
        found, margin = computed(numbers, bits, on_jax=on_jax)
        assert found.dtype == np.float64
        for place, (u, v) in enumerate(numbers):
            for more in (0, 1):
                if math.isinf(margin[0, place]) or (u == 0 and more == 0):
                    continue
                for axis, exact in enumerate(normals(u, v, bits, more)):
                    assert abs(exact - mp.mpf(float(found[axis, place]))) <= margin[0, place]
    return margin[0]


whole = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(whole, whole), min_size=10, max_size=10), st.sampled_from([1, 12, 24]))
def test_the_error_is_below_its_bound(numbers: list[tuple[int, int]], bits: int):
    check_bound(numbers, bits)


def test_the_error_is_below_its_bound_where_it_could_be_large():
    around = lambda value: [max(0, min(2**64 - 1, value + shift)) for shift in (-1, 0, 1)]  # noqa: E731
    root = int(mp.sqrt(mp.mpf(0.5)) * 2**64)
    lengths = [number for power in (0, 1, 8, 20, 31, 32, 33, 40, 52, 53, 54, 62, 63, 64) for number in around(2**power)]
    lengths += [number for shift in (0, 1, 5, 30) for number in around(root >> shift)]
    lengths += [2**64 - 2**power for power in (1, 10, 11, 12, 20, 40)]
    turns = [number for eighth in range(9) for number in around(eighth << 61)]
    turns += [(eighth << 61) + 2**power for eighth in range(8) for power in (7, 8, 9, 52, 60)]
    margins = check_bound(list(itertools.product(lengths[::3], turns)), 24)
    assert np.isinf(margins).any()  # the smallest u tells nothing
    check_bound(list(itertools.product(lengths, turns[::7])), 24)


def test_the_error_is_below_what_is_proved_with_room_to_spare():
    """The proof's own bound, without the slack that the code adds to it, against numbers with eleven more bits."""
    random, more = np.random.default_rng(1), np.longdouble
    if np.finfo(more).nmant < 63:
        pytest.skip("no longer floating-point numbers on this machine")
    near = [2.0**64 * math.sqrt(0.5) / 2.0 ** random.integers(0, 40, 2**15) * random.uniform(0.999, 1.001, 2**15)]
    near += [2.0**64 * (1 - 2.0 ** -random.uniform(1, 40, 2**15)), 2.0 ** random.uniform(20, 63, 2**15)]
    u = np.concatenate([random.integers(0, 2**64, 2**16, np.uint64), *(part.astype(np.uint64) for part in near)])
    v = random.integers(0, 2**64, u.size, np.uint64)
    v[::2] |= random.integers(0, 2**64, u[::2].size, np.uint64) | np.uint64(0xFFFF << 44)  # near the ends of an eighth
    for on_jax in (False, True):
        found, margin = computed(list(zip(u.tolist(), v.tolist(), strict=True)), 24, on_jax=on_jax)
        uniform = (u.astype(more) + 0.5) * more(2) ** -64
        length = -np.log(uniform)
        radius = np.sqrt(2 * length) * 2**24
        eighth, inside = (v >> np.uint64(61)).astype(int), (v & np.uint64(2**61 - 1)).astype(more) + 0.5
        angle = (inside * more(2) ** -61 + eighth) * (more(math.pi) + more(1.2246467991473532e-16)) / 4
        exact = radius * np.array([np.cos(angle), np.sin(angle)])
        proved = radius * ((9 + 1.8 / length) * 2.0**-53 + 0.51 * 2.0**-65 / (uniform * length))
        share = (np.abs(exact - found) / proved)[:, np.isfinite(margin[0])]
        assert share.shape[1] > 0.9 * u.size
        assert 0.2 < share.max() < 0.7
        spare = (margin[0] - 2 * proved) / (radius * 2.0**-53)  # h may be computed twice, with different roundings
        assert np.all(spare[np.isfinite(margin[0])] > 13.9)


FAST_MATH = """
import jax, jax.numpy as jnp, numpy as np
from blindsight.mechanisms import rounded_gaussian

def reordered(**options):
    x = np.random.default_rng(0).uniform(size=100)
    with jax.enable_x64(True):
        return bool(jnp.any(jax.jit(lambda x, y: (x + y) - y, **options)(x, 1e17 * x) != (x + 1e17 * x) - 1e17 * x))

print(reordered(), reordered(compiler_options=rounded_gaussian._AS_WRITTEN))
"""


def test_no_flag_makes_the_compiler_reorder_the_sums():
    """`XLA_FLAGS` of whoever starts the process would void the proof: the flag works, but not here."""
    flags = {**os.environ, "XLA_FLAGS": "--xla_cpu_enable_fast_math=true", "JAX_PLATFORMS": "cpu"}
    told = subprocess.run([sys.executable, "-c", FAST_MATH], env=flags, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("backend", ["tpu", "METAL"])
def test_only_hardware_with_float64_draws_compiled(backend: str, monkeypatch: pytest.MonkeyPatch):
    """Elsewhere float64 is emulated or missing, and NumPy draws the same noise on the host."""
    expected = draw(24, 200, SECRET)
    monkeypatch.setattr(rounded_gaussian, "WORTH_COMPILING", 0)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)

    def refuse(*_: Any) -> None:
        raise AssertionError("noise is drawn with float64 that may be emulated")

    for name in ("_draw_on_cpu", "_draw_on_gpu"):
        monkeypatch.setattr(rounded_gaussian, name, refuse)
    begun = rounded_gaussian.begin(200, 24, SECRET, on_device=True)
    assert np.array_equal(begun.added_to(np.zeros(200, np.int64), 1.0), expected.astype(np.float32))


def test_the_bound_is_no_exaggeration():
    numbers = [(int(u), int(v)) for u, v in np.random.default_rng(0).integers(0, 2**64, (300, 2), dtype=np.uint64)]
    found, margin = computed(numbers, 24, on_jax=False)
    errors = [
        abs(exact - mp.mpf(float(found[axis, place]))) / margin[0, place]
        for place, (u, v) in enumerate(numbers)
        for axis, exact in enumerate(normals(u, v, 24, 0))
    ]
    assert 1 / 50 < max(errors) < 1


def test_hardly_anything_is_decided_again():
    noise, unsure = rounded_gaussian._approximate(chacha.key_words(SECRET), np.arange(2**17, dtype=np.uint32), 24)
    assert noise.size == 2**20
    assert unsure.sum() <= 3  # 0.2 are expected


# What is in doubt.


def test_each_coordinate_is_the_rounding_of_a_real_number():
    drawn = draw(24, 64, SECRET)
    assert [decide(SECRET, index, 24) for index in range(64)] == drawn.tolist()
    words = chacha.blocks(chacha.key_words(SECRET), (np.uint32(0),) * 3, np.arange(8, dtype=np.uint32))
    for index in range(64):
        block, pair, is_sine = index // 8, index % 4, index % 8 >= 4
        u, v = (int(words[i + pair][block]) << 32 | int(words[i + 4 + pair][block]) for i in (0, 8))
        assert abs(normals(u, v, 24, 0)[is_sine] - int(drawn[index])) < 0.51


@pytest.mark.parametrize("epsilon", [2.0**-30, 2.0**-26, 1.0])
def test_deciding_again_changes_nothing(epsilon: float, monkeypatch: pytest.MonkeyPatch):
    """A larger bound sends more coordinates, in the end all of them, through the slow computation."""
    expected = draw(24, 200, SECRET)
    monkeypatch.setattr(rounded_gaussian, "_EPSILON", epsilon)
    again, inner = list[int](), decide
    monkeypatch.setattr(
        rounded_gaussian, "decide", lambda secret, index, bits: (again.append(index), inner(secret, index, bits))[1]
    )
    assert np.array_equal(draw(24, 200, SECRET), expected)
    assert len(again) > 2
    again.clear()
    monkeypatch.setattr(rounded_gaussian, "WORTH_COMPILING", 0)
    DRAW_COMPILED.clear_cache()
    noised = with_noise([np.zeros(150, np.int64), np.zeros((5, 10), np.int64)], 24, 1.0, SECRET)
    assert np.array_equal(np.concatenate([np.ravel(leaf) for leaf in noised]), expected.astype(np.float32))
    assert len(again) > 2
    DRAW_COMPILED.clear_cache()


def test_more_bits_are_read_until_they_suffice(monkeypatch: pytest.MonkeyPatch):
    """64 zeros say only that u is small: the next 256 bits decide, or those after them."""
    inner, read = chacha.blocks, list[tuple[int, ...]]()

    def starved(key: Any, nonce: Any, counters: Any) -> Any:
        words = inner(key, nonce, counters)
        read.append((int(nonce[0]), int(nonce[1]), int(counters[0])))
        poor = int(nonce[0]) == 0 or int(counters[0]) == 0
        return tuple(word * np.uint32(0) if poor and place % 16 < 8 else word for place, word in enumerate(words))

    monkeypatch.setattr(chacha, "blocks", starved)
    found = decide(SECRET, 3, 24)
    assert read == [(0, 0, 0), (1, 3, 0), (1, 3, 1)]  # purpose, pair, block
    length = abs(found) / 2**24
    assert length < math.sqrt(2 * 576 * math.log(2))
    noise, unsure = rounded_gaussian._approximate(chacha.key_words(SECRET), np.zeros(1, np.uint32), 24)
    assert unsure.all()
    assert noise.shape == (8,)


# Where and in which pieces it is drawn.


@pytest.mark.parametrize("count", [1, 7, 8, 32_767, 32_768, 32_769, 40_001])
def test_a_coordinate_does_not_depend_on_what_else_is_drawn(count: int):
    drawn = draw(20, count, SECRET)
    assert np.array_equal(drawn, draw(20, 2 * count + 50, SECRET)[:count])
    assert drawn[-1] == decide(SECRET, count - 1, 20)


def test_compiled_noise_is_the_same_noise(monkeypatch: pytest.MonkeyPatch):
    tree = {"w": np.arange(70_000).reshape(7, 10_000) * 1000, "b": np.array([5, -3]), "s": np.array(2**40)}
    plain = with_noise(tree, 22, 2.0**-22, SECRET)
    monkeypatch.setattr(rounded_gaussian, "WORTH_COMPILING", 0)
    fast = with_noise(tree, 22, 2.0**-22, SECRET)
    for name, leaf in tree.items():
        assert fast[name].dtype == plain[name].dtype == np.float32
        assert fast[name].shape == leaf.shape
        assert np.array_equal(fast[name], plain[name])
    assert isinstance(fast["w"], jax.Array)


def test_noise_drawn_alone_is_that_of_its_key_however_it_is_computed(monkeypatch: pytest.MonkeyPatch):
    for worth in (1 << 17, 0):  # NumPy, compiled
        monkeypatch.setattr(rounded_gaussian, "WORTH_COMPILING", worth)
        assert np.array_equal(rounded_gaussian.drawn(22, 40_003, SECRET), draw(22, 40_003, SECRET))
        begun = rounded_gaussian.begin(3, 22, SECRET, on_device=False)
        begun.numbers()
        with pytest.raises(PrivacyError, match="another sum"):
            begun.added_to(np.zeros(3), 1.0)
        with pytest.raises(InvalidInput, match="scale"):
            rounded_gaussian.drawn(25, 3, SECRET)


def test_keys_have_noise_of_their_own_and_an_empty_sum_has_none():
    others = [keys.reproducible(seed).derive("noise").secret for seed in range(3)]
    drawn = [draw(24, 1000, secret) for secret in others]
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.2
        assert not np.intersect1d(one, other).size > 2
    assert with_noise({}, 24, 1.0, SECRET) == {}
    assert with_noise({"count": 5}, 24, 1.0, SECRET)["count"] == np.float32(5 + draw(24, 1, SECRET)[0])
    assert draw(24, 0, SECRET).size == 0


def test_noise_begun_before_the_sum_is_that_of_its_key_and_is_used_once(monkeypatch: pytest.MonkeyPatch):
    mechanism, key = gaussian(1.0), keys.reproducible(3)
    total = BoundedSum({"w": np.arange(300), "b": np.array(7)}, 1.0, 10.0, grid=mechanism.grid(1.0))
    expected = mechanism.release(total, key=key).value
    for worth in (1000, 0):  # NumPy, compiled
        monkeypatch.setattr(rounded_gaussian, "WORTH_COMPILING", worth)
        begun = mechanism.begin(total.value, key=key)
        for name, leaf in mechanism.release(total, key=key, begun=begun).value.items():
            assert np.array_equal(leaf, expected[name])
        with pytest.raises(PrivacyError, match="another sum"):
            mechanism.release(total, key=key, begun=begun)
        for other, scale in ((keys.reproducible(4), 1.0), (key, 0.4)):
            with pytest.raises(PrivacyError, match="another key or scale"):
                mechanism.release(total, key=key, begun=gaussian(scale).begin(total.value, key=other))
        with pytest.raises(InvalidInput, match="coordinates"):
            mechanism.release(total, key=key, begun=mechanism.begin(np.zeros(300), key=key))


def test_on_an_accelerator_sum_and_noise_stay_there_and_are_those_of_a_processor(monkeypatch: pytest.MonkeyPatch):
    mechanism, key = gaussian(1.0), keys.reproducible(1)
    people = Population({"x": np.arange(40, dtype=np.float32) / 64}, sizes=np.full(20, 2), name="p")
    shapes = {"w": jnp.zeros(300), "b": jnp.zeros(())}

    def update(broadcast: Any, examples: Any, key: Any) -> Any:  # exact, however clients are stacked
        return jax.tree.map(lambda leaf: leaf + jnp.sum(examples.whole()["x"]), broadcast)

    def released() -> tuple[Any, Any]:
        cohort = Simulation(people).cohort(np.arange(0, 20, 2), n_expected=10.0, key=key)
        begun = mechanism.begin(shapes, key=key)
        total = cohort.sum(update, shapes, l2_bound=16.0, grid=mechanism.grid(16.0))
        return total.value, mechanism.release(total, key=key, begun=begun).value

    _, expected = released()
    monkeypatch.setattr(placement, "keep_compiled_code", lambda: None)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    total, found = released()
    for name, leaf in expected.items():
        assert total[name].dtype == np.int64
        assert isinstance(total[name], jax.Array)
        assert isinstance(found[name], jax.Array)
        assert np.array_equal(found[name], leaf)


@pytest.mark.parametrize(("bits", "count"), [(0, 1), (25, 1), (24, -1), (24, 2**35 + 1)])
def test_what_cannot_be_drawn_is_refused(bits: int, count: int):
    with pytest.raises(InvalidInput):
        draw(bits, count, SECRET)


# The law.


@pytest.mark.parametrize("bits", [1, 3])
def test_its_law_is_that_of_a_rounded_gaussian_and_of_no_other(bits: int):
    drawn = draw(bits, 400_000, SECRET)
    reach = np.arange(-4 * 2**bits, 4 * 2**bits + 1)
    seen = np.array([np.sum(drawn == x) for x in reach])

    def p_value(scale: float, *, discrete: bool = False) -> float:
        edges = np.array([reach - 0.5, reach + 0.5])
        chances = stats.norm.cdf(edges[1] / scale) - stats.norm.cdf(edges[0] / scale)
        if discrete:
            chances = np.exp(-(reach**2) / (2 * scale**2)) / np.sum(
                np.exp(-(np.arange(-99, 100) ** 2) / (2 * scale**2))
            )
        expected = np.append(chances, 1 - chances.sum()) * drawn.size
        return float(stats.chisquare(np.append(seen, drawn.size - seen.sum()), expected).pvalue)

    assert p_value(2.0**bits) > 1e-3
    assert p_value(2.0**bits * 2 / 3) < 1e-9
    assert p_value(2.0**bits * 3 / 2) < 1e-9
    if bits == 1:
        assert p_value(2.0**bits, discrete=True) < 1e-9


def test_neighbours_are_independent():
    drawn = draw(24, 2**18, SECRET) / 2.0**24
    for lag in (1, 3, 4, 5, 8, 32, 4096, 32_768):
        for left, right in ((drawn[:-lag], drawn[lag:]), (drawn[:-lag] ** 2, drawn[lag:] ** 2)):
            assert abs(np.corrcoef(left, right)[0, 1]) < 5 / math.sqrt(left.size)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
