"""Examples that were drawn once are read the next time, unless anything that they depend on has changed."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight.data import kept
from blindsight.data.embedded import embedded
from blindsight.data.generated import GeneratedPopulation


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept, "_LEAST", 0)
    return tmp_path / "blindsight" / "generated"


class Draws:
    """People who can be drawn, and how often they were."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, clients: np.ndarray) -> dict[str, np.ndarray]:
        self.times += len(clients) > 1  # one client alone tells the fields
        return {"x": np.repeat(clients, 2).astype(np.float32), "y": np.ones((2 * len(clients), 3), np.int8)}

    def people(self, **changes: Any) -> GeneratedPopulation:
        settings: dict[str, Any] = {"sizes": np.full(5, 2), "name": "few", "recipe": ("few", 1), "keep": True}
        return GeneratedPopulation(self, **settings | changes)


def test_what_was_drawn_is_read_the_next_time(cache):
    first, later = Draws(), Draws()
    drawn, read = first.people().columns, later.people().columns
    assert (first.times, later.times) == (1, 0)
    for name, column in drawn.items():
        assert read[name].dtype == column.dtype
        assert np.array_equal(read[name], column)
        assert not read[name].flags.writeable
    assert first.people().fingerprint == later.people().fingerprint
    assert [path.name for path in cache.iterdir() if path.name.startswith("part-")] == []


@pytest.mark.parametrize("changes", [{"recipe": ("few", 2)}, {"recipe": None}, {"keep": False}])
def test_another_recipe_or_none_is_drawn(changes):
    Draws().people().columns  # noqa: B018
    other = Draws()
    other.people(**changes).columns  # noqa: B018
    assert other.times == 1


def test_selected_clients_are_kept_as_such():
    Draws().people().columns  # noqa: B018
    for times in (1, 0):
        some = Draws()
        assert some.people().select([1, 3]).columns["x"].tolist() == [1, 1, 3, 3]
        assert some.times == times


def test_changed_code_draws_again(monkeypatch: pytest.MonkeyPatch):
    Draws().people().columns  # noqa: B018
    for code in ("other", ""):  # "": it cannot be read
        monkeypatch.setattr(kept, "_code", lambda code=code: code)
        later = Draws()
        later.people().columns  # noqa: B018
        assert later.times == 1


@pytest.mark.parametrize("damage", ["shorter", "other", "gone", "facts"])
def test_what_is_damaged_is_drawn_again_and_kept_again(cache, damage):
    expected = Draws().people().columns
    (folder,) = cache.iterdir()
    file = folder / ("columns.json" if damage == "facts" else "0.npy")
    whole = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes({"shorter": whole[:-4], "other": whole[:-1] + b"\x7f", "facts": b"{"}[damage])
    for times in (1, 0):
        later = Draws()
        assert np.array_equal(later.people().columns["x"], expected["x"])
        assert later.times == times


def test_a_cache_that_cannot_be_written_is_none(cache):
    cache.parent.mkdir(parents=True)
    cache.write_text("in the way")
    assert Draws().people().columns["x"].size == 10


def test_little_is_not_kept_nor_texts(cache, monkeypatch: pytest.MonkeyPatch):
    embedded("forum", clients=3).columns  # noqa: B018
    words = {"w": np.array(["a"] * 10, dtype=np.dtypes.StringDType())}
    assert kept.kept_or_drawn("words", 1, lambda: words) is words
    monkeypatch.undo()
    assert not cache.exists()
    assert kept._LEAST == 48 << 20
    assert kept.kept_or_drawn("huge", 2 << 30, lambda: {"x": np.zeros(1)})["x"].size == 1
    assert not cache.exists()


def test_the_folder_used_longest_ago_makes_room(cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "_ALL", 1000)
    for number in range(4):
        columns = {"x": np.full(80, number, np.int32)}  # and half a kilobyte with what belongs to them
        kept.kept_or_drawn(number, 1, lambda columns=columns: columns)
        for folder in cache.iterdir():
            os.utime(folder, (folder.stat().st_atime, folder.stat().st_mtime - 100))
    assert len(list(cache.iterdir())) == 2
    assert kept.kept_or_drawn(3, 1, dict)["x"].tolist() == [3] * 80


def test_handwriting_is_kept(cache):
    one = embedded("handwriting", clients=3).columns
    assert np.array_equal(embedded("handwriting", clients=3).columns["image"], one["image"])
    assert len(list(cache.iterdir())) == 1


def test_what_is_in_memory_is_not_drawn_again():
    draws = Draws()
    people = draws.people(keep=False)
    people.columns  # noqa: B018
    assert people.select([0, 2]).columns["x"].tolist() == [0, 0, 2, 2]
    assert people.transform(lambda clients, columns: columns, name="same").columns["y"].shape == (10, 3)
    assert draws.times == 1
