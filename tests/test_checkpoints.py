"""Laws of checkpoints: what comes back is what was written, bit for bit, or it is refused in a sentence."""

import errno
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from blindsight import checkpoints
from blindsight.errors import BlindsightError, InvalidInput

FACTS = {"round": 3, "run": "a b", "settings": {"clip": 0.1, "unit": "client", "none": None, "list": [1, "ä"]}}


class State(NamedTuple):
    params: Any
    count: Any


def tree() -> Any:
    """Every dtype and shape that a run's state may have, nested every way."""
    return {
        "state": State({"w": jnp.asarray(np.arange(6.0, dtype=np.float32).reshape(2, 3)), "b": jnp.float32(0.1)}, None),
        "list": [jnp.int32(-7), (jnp.asarray(True), jnp.zeros((0, 4)))],
        "odd": {"with.dots and 'quotes'": jnp.asarray(np.array([np.nan, np.inf, -0.0, 1e-45], np.float32))},
        "half": jnp.asarray(np.arange(5), jnp.bfloat16),
        "bytes": jnp.asarray(np.arange(256), jnp.uint8),
        "participated": np.arange(4, dtype=np.int64) + 2**40,
        "double": np.float64(0.1),
        "plain": 3,
    }


def bits(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tobytes()


def test_nested_trees_come_back_bit_for_bit(tmp_path):
    written = tree()
    path = checkpoints.write(tmp_path, 3, written, FACTS)
    zeros = lambda leaf: (jnp if isinstance(leaf, jax.Array) else np).zeros_like(leaf)  # noqa: E731
    found = checkpoints.load(path, jax.tree.map(zeros, tree()))
    assert found.facts == FACTS
    assert jax.tree.structure(found.tree) == jax.tree.structure(written)
    for before, after in zip(jax.tree.leaves(written), jax.tree.leaves(found.tree), strict=True):
        assert bits(before) == bits(after)
        assert isinstance(after, jax.Array) == isinstance(before, jax.Array)


def test_a_single_array_is_a_tree_too(tmp_path):
    path = checkpoints.write(tmp_path, 0, jnp.float32(2.5), {})
    assert float(checkpoints.load(path, jnp.float32(0)).tree) == 2.5


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int8, np.int32, np.int64, np.uint32, np.bool_, np.float16]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none() | st.booleans()),
)
def test_any_array_and_any_facts_come_back(tmp_path_factory, array, facts):
    path = checkpoints.write(tmp_path_factory.mktemp("any"), 1, {"a": array, "turned": array.T}, facts)
    found = checkpoints.load(path, {"a": np.empty_like(array), "turned": np.empty_like(array.T)})
    assert bits(found.tree["a"]) == bits(array)
    assert bits(found.tree["turned"]) == bits(array.T)
    assert found.facts == facts


def test_only_the_last_two_are_kept_and_the_newest_is_found(tmp_path):
    assert checkpoints.newest(tmp_path) is None
    for number in (1, 2, 9, 10, 100):
        path = checkpoints.write(tmp_path, number, {"a": np.arange(3)}, {"round": number})
        assert checkpoints.newest(tmp_path) == path
    assert [file.name for file in sorted(tmp_path.iterdir())] == [
        "checkpoint-00000010.safetensors",
        "checkpoint-00000100.safetensors",
    ]


def test_writing_one_again_replaces_it(tmp_path):
    checkpoints.write(tmp_path, 5, {"a": np.zeros(3)}, {"attempt": 1})
    path = checkpoints.write(tmp_path, 5, {"a": np.ones(3)}, {"attempt": 2})
    assert checkpoints.load(path, {"a": np.zeros(3)}).facts == {"attempt": 2}
    assert len(list(tmp_path.iterdir())) == 1


# --- what is refused


def refusal(path: Path, like: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        checkpoints.load(path, like)
    text = str(refused.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    like = {"a": np.arange(50.0), "b": np.int32(1)}
    path = checkpoints.write(tmp_path, 1, like, FACTS)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert "is damaged" in refusal(path, like)
        assert "resumes from the previous checkpoint" in refusal(path, like)
    path.write_bytes(whole + b"more")
    refusal(path, like)


def test_one_changed_bit_anywhere_is_noticed(tmp_path):
    """In an array, in the facts, in a name or in the digest: the model that goes on is the one that was saved."""
    like = {"a": np.arange(20.0), "b": np.int32(1)}
    path = checkpoints.write(tmp_path, 1, like, FACTS)
    whole = path.read_bytes()
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        refusal(path, like)


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 100, b"PK\x03\x04 a zip file", os.urandom(300)])
def test_files_that_are_no_checkpoints_are_refused(tmp_path, content):
    path = tmp_path / "checkpoint-00000001.safetensors"
    path.write_bytes(content)
    assert "is damaged" in refusal(path, {"a": np.zeros(3)})


def test_somebody_elses_safetensors_are_refused(tmp_path):
    path = tmp_path / "checkpoint-00000001.safetensors"
    save_file({"['a']": np.zeros(3)}, path)
    refusal(path, {"a": np.zeros(3)})
    refusal(tmp_path / "checkpoint-00000002.safetensors", {"a": np.zeros(3)})  # and one that is not there


@pytest.mark.parametrize(
    ("like", "words"),
    [
        ({"a": np.zeros(4, np.float32)}, "has float32[3] for ['a'], but this run needs float32[4]"),
        ({"a": np.zeros((3, 1), np.float32)}, "needs float32[3, 1]"),
        ({"a": np.zeros(3, np.int32)}, "needs int32[3]"),
        ({"b": np.zeros(3, np.float32)}, "has nothing for ['b']"),
        ({"a": {"c": np.zeros(3, np.float32)}}, "has nothing for ['a']['c']"),
    ],
)
def test_another_models_checkpoint_is_refused(tmp_path, like, words):
    path = checkpoints.write(tmp_path, 1, {"a": np.zeros(3, np.float32)}, {})
    text = refusal(path, like)
    assert words in text
    assert "settings the run was started with" in text


# --- what a full disk does


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_full_disk_leaves_the_checkpoint_before_and_no_scraps(tmp_path, monkeypatch, fails):
    like = {"a": np.zeros(3)}
    first = checkpoints.write(tmp_path, 1, like, {"round": 1})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, full)
        with pytest.raises(BlindsightError, match=r"No space left on device.*free some space and run again to resume"):
            checkpoints.write(tmp_path, 2, {"a": np.ones(3)}, {"round": 2})
    assert [file.name for file in tmp_path.iterdir()] == [first.name]
    assert checkpoints.load(first, like).facts == {"round": 1}
    second = checkpoints.write(tmp_path, 2, {"a": np.ones(3)}, {"round": 2})  # once there is room again
    assert checkpoints.newest(tmp_path) == second


def test_a_folder_that_is_gone_is_one_sentence(tmp_path):
    with pytest.raises(BlindsightError, match="cannot write"):
        checkpoints.write(tmp_path / "gone", 1, {"a": np.zeros(3)}, {})


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    (tmp_path / "checkpoint-00000007.4242").write_bytes(b"half a checkpoint")
    assert checkpoints.newest(tmp_path) is None
    checkpoints.write(tmp_path, 8, {"a": np.zeros(3)}, {})
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint-00000008.safetensors"]
