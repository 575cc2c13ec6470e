"""Loaders of folders: images sorted by client, and data sets saved by Hugging Face's `datasets`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.frames import dataset_population
from blindsight.data.pictures import stack
from blindsight.data.population import Columns, Population
from blindsight.data.reading import as_classes, existing, need, one_split
from blindsight.data.whole import known_as_whole
from blindsight.errors import InvalidInput

__all__ = ["chosen_split", "hugging_face", "image_folder", "saved_splits"]


def image_folder(path: str | Path, *, name: str | None = None) -> Population:
    """The population of a folder `CLIENT/image.png` or `CLIENT/LABEL/image.png`, in alphabetical order.

    All images must have one size and one mode: grey ones become (height, width), others (height, width, channels).
    Hidden files are ignored; any other file that is not an image is refused.
    """
    folder = existing(path)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder: it needs one for each client, with images")
    clients = _folders_in(folder)
    if not clients:
        raise InvalidInput(f"{folder} holds no folders: it needs one for each client, with images or folders of labels")
    labelled = any(_folders_in(client) for client in clients)
    files: list[Path] = []
    labels: list[str] = []
    sizes: list[int] = []
    for client in clients:
        groups = _folders_in(client) if labelled else [client]
        if labelled:
            _refuse_files(client, "the other clients have one folder for each label")
        images = [(image, group.name) for group in groups for image in _images_in(group)]
        files += [image for image, _ in images]
        labels += [label for _, label in images]
        sizes.append(len(images))
    if not files:
        raise InvalidInput(
            f"{folder} holds no images: put them in {folder.name}/CLIENT/ or {folder.name}/CLIENT/LABEL/"
        )
    columns: Columns = {"image": stack([(str(file), file) for file in files])}
    classes: dict[str, tuple[str, ...]] = {}
    if labelled:
        columns["label"], classes["label"] = as_classes(np.array(labels), f"{folder}, field 'label'")
    ids = [client.name for client in clients]
    whole = Population(columns, sizes=sizes, ids=ids, name=name or folder.resolve().name, classes=classes)
    return whole.with_types_of(True)


@known_as_whole
def hugging_face(
    path: str | Path,
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    split: str | None = None,
    name: str | None = None,
) -> Population:
    """The population in a folder written by `save_to_disk` of Hugging Face's `datasets`.

    Images are decoded, and a `ClassLabel` becomes int32 with its names in `Population.classes`. A folder with several
    splits needs `split="train"` or another.
    """
    data, folder = chosen_split(saved_splits(path), split, path), existing(path)
    return dataset_population(data, folder, client=client, fields=fields, name=name or folder.resolve().name)


def saved_splits(path: str | Path) -> dict[str, Any]:
    """The splits of a folder written by `save_to_disk`; one without a name if it has none."""
    datasets = need("datasets", "hf", "a Hugging Face data set")
    folder = existing(path)
    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # the library may raise almost anything
        raise InvalidInput(f"{folder} is not a data set saved by save_to_disk, or it is damaged: {error}") from error
    return dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"": loaded}


def chosen_split(splits: Mapping[str, Any], split: str | None, path: str | Path) -> Any:
    """The requested one of the `splits` of a saved data set; a set without splits has nothing to choose."""
    return splits[""] if list(splits) == [""] else splits[one_split(split, list(splits), path)]


def _folders_in(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _images_in(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    for file in files:
        if file.is_dir():
            raise InvalidInput(
                f"{file} is a folder among images: images belong in CLIENT/ or in CLIENT/LABEL/, no deeper"
            )
    return files


def _refuse_files(folder: Path, why: str) -> None:
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.startswith("."):
            raise InvalidInput(f"{file} is outside a label's folder: {why}, so move it into one")
