"""Finds real data sets on this machine, or downloads them from their publishers.

A data set is a few prepared files in one folder. If `$BLINDSIGHT_DATA` is set, only that folder is searched; otherwise
`data` and `shared/data` in the current folder and in every folder above it, then the cache, where `get` puts them.
"""

import dataclasses
import difflib
import functools
import inspect
import lzma
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from blindsight.data import shards
from blindsight.data.catalogue import DATASETS, Dataset
from blindsight.data.downloads import Retries, alone, check_address, fetch
from blindsight.data.population import Population
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.keys import reproducible

__all__ = ["cache_folder", "dataset", "find", "get", "how_to_get", "named", "read_dataset"]


def dataset(
    name: str,
    *,
    split: str | None = None,
    invert: bool | None = None,
    unit: str | None = None,
    matched: bool | None = None,
    clients: int | None = None,
    alpha: float | None = None,
    seed: int | None = None,
) -> Population:
    """The population of a real data set, from its files on this machine; unsupported options are refused.

    fashion_mnist, adult and phishing have no clients, so each example is its own client unless `clients` is given.

    Args:
        name: Name of the data set, as in `blindsight data list`.
        split: "train" (default), "test" or "all", for mnist, fashion_mnist and adult.
        invert: Use bright ink on black, as in MNIST, for femnist.
        unit: What one example is: "post" or "sentence" for stackexchange, "speech" or "line" for shakespeare.
        matched: Keep only sources from the same period, for phishing.
        clients: Number of clients to split a data set without clients into.
        alpha: Dirichlet parameter of a split by label; i.i.d. by default.
        seed: Seed of the split (default 0).
    """
    given = {"split": split, "invert": invert, "unit": unit, "matched": matched}
    given |= {"clients": clients, "alpha": alpha, "seed": seed}
    return read_dataset(name, {option: value for option, value in given.items() if value is not None})


def read_dataset(name: str, options: Mapping[str, Any]) -> Population:
    """As `dataset`, with unchecked options from a file or a command line."""
    wanted = named(name)
    supported = [*inspect.signature(wanted.read).parameters][1:] + (
        [] if wanted.has_clients else ["clients", "alpha", "seed"]
    )
    for option in options:
        if option not in supported:
            raise InvalidInput(f"{name} has no option {option!r}: it has {', '.join(supported)}")
    dealing = {option: options[option] for option in ("clients", "alpha", "seed") if option in options}
    reading = {option: value for option, value in options.items() if option not in dealing}
    folder = find(name)
    if folder is None:
        raise InvalidInput(f"{name} is not on this machine: {how_to_get(wanted)}")
    try:
        population = wanted.read(folder, **reading)
    except InvalidInput:
        raise
    except (OSError, EOFError, KeyError, ValueError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidInput(
            f"{' or '.join(wanted.files)} in {folder} is damaged ({error}): remove it and download {name} again"
        ) from error
    return _dealt(population, **dealing) if dealing else population


def _dealt(
    population: Population, *, clients: int | None = None, alpha: float | None = None, seed: int = 0
) -> Population:
    if clients is None:
        raise InvalidInput(
            f"give the number of clients to split the examples of {population.name} into, such as clients=100"
        )
    columns, key = population.columns, reproducible(seed)
    if alpha is None:
        dealt = shards.iid(columns, clients, key=key, name=population.name)
    else:
        dealt = shards.dirichlet(columns, "label", clients, alpha, key=key, name=population.name)
    dealt.classes = population.classes
    return dealt


def named(name: str) -> Dataset:
    """The data set of that name."""
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.5)
        raise InvalidInput(
            f"there is no data set {name!r}: "
            + (f"did you mean {near[0]!r}?" if near else f"have {', '.join(DATASETS)}")
        )
    return DATASETS[name]


def find(name: str) -> Path | None:
    """The folder that contains every file of the data set, or None."""
    wanted = named(name)
    return next((folder for folder in _folders() if _holds(folder, wanted)), None)


def cache_folder() -> Path:
    """Default folder of `get`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "blindsight"


def how_to_get(wanted: Dataset) -> str:
    """How to obtain the data set, worded to follow a colon."""
    if wanted.public:
        return f"blindsight data get {wanted.name} downloads it"
    files = " and ".join(wanted.files)
    return (
        f"it has no public download in this form ({wanted.origin}), so put {files} into a folder named by "
        f"$BLINDSIGHT_DATA, or get it from a mirror with blindsight data get {wanted.name} --from URL"
    )


def get(
    name: str,
    *,
    to: Path | None = None,
    mirror: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    patience: Retries | None = None,
) -> Path:
    """Download, verify and prepare a data set, unless this machine has it; returns its folder.

    `to` defaults to `$BLINDSIGHT_DATA`, then to the cache. `mirror` is a URL with the published files in a folder NAME,
    used instead of their origins; it defaults to `$BLINDSIGHT_DATA_URL`.
    """
    wanted = named(name)
    if to is not None and _holds(to, wanted):
        return to
    if to is None and (here := find(name)):
        return here
    mirror = mirror or os.environ.get("BLINDSIGHT_DATA_URL")
    if not mirror and not wanted.public:
        raise InvalidInput(f"{name} cannot be downloaded: {how_to_get(wanted)}")
    if mirror:
        check_address(mirror)  # before a folder is created
    folder = to or Path(os.environ.get("BLINDSIGHT_DATA") or cache_folder())
    unfinished = folder / f"{name}.download"
    with alone(unfinished):
        _fetch_all(wanted, unfinished, mirror, progress, patience)
        try:
            wanted.prepare(unfinished, folder)
            shutil.rmtree(unfinished)
        except OSError as error:
            raise BlindsightError(f"cannot write {name} into {folder} ({error.strerror}): choose another") from error
    return folder


def _fetch_all(
    wanted: Dataset,
    folder: Path,
    mirror: str | None,
    progress: Callable[[int, int], None],
    patience: Retries | None,
) -> None:
    """Download every file into `folder`, with a single progress over all of them."""
    expected = sum(file.size or 0 for file in wanted.downloads)
    before = 0
    for file in wanted.downloads:
        if mirror:
            file = dataclasses.replace(file, urls=(f"{mirror.rstrip('/')}/{wanted.name}/{file.name}",))
        done = functools.partial(_report, progress, before, expected)
        before += fetch(file, folder, progress=done, patience=patience).stat().st_size


def _report(progress: Callable[[int, int], None], before: int, expected: int, done: int, total: int | None) -> None:
    progress(before + done, max(expected, before + done))


def _holds(folder: Path, wanted: Dataset) -> bool:
    return all((folder / file).is_file() for file in wanted.files)


def _folders() -> list[Path]:
    if folder := os.environ.get("BLINDSIGHT_DATA"):
        return [Path(folder)]
    here = Path.cwd()
    return [parent / name for parent in (here, *here.parents) for name in ("data", "shared/data")] + [cache_folder()]
