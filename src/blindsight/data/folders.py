"""Loaders of folders: images sorted by client, and data sets saved by Hugging Face's `datasets`."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.arrow import arrow_population
from blindsight.data.population import Columns, Population
from blindsight.data.reading import FileRows, as_classes, existing, need, one_split, wanted_columns
from blindsight.errors import InvalidInput

__all__ = ["IMAGE_SUFFIXES", "MODES", "hugging_face", "image_folder"]

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

MODES = ("1", "L", "LA", "RGB", "RGBA", "I;16", "I", "F")  # a palette's numbers are not colours


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
    columns: Columns = {"image": _stack([(str(file), file) for file in files])}
    classes: dict[str, tuple[str, ...]] = {}
    if labelled:
        columns["label"], classes["label"] = as_classes(np.array(labels), f"{folder}, field 'label'")
    ids = [client.name for client in clients]
    return Population(columns, sizes=sizes, ids=ids, name=name or folder.resolve().name, classes=classes)


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
    datasets = need("datasets", "hf", "a Hugging Face data set")
    folder = existing(path)
    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # the library raises what its many parts raise
        raise InvalidInput(f"{folder} is not a data set saved by save_to_disk, or it is damaged: {error}") from error
    data = loaded[one_split(split, list(loaded), folder)] if isinstance(loaded, datasets.DatasetDict) else loaded
    wanted = wanted_columns(data.column_names, client, fields, (), folder)
    table = data.with_format("arrow")[:]
    rows = FileRows([folder], [len(table)])
    pictures: Columns = {}
    classes: dict[str, tuple[str, ...]] = {}
    for field in wanted:
        feature = data.features[field]
        if isinstance(feature, datasets.Image):
            pictures[field] = _stored_images(table.column(field), rows, field)
        elif isinstance(feature, datasets.ClassLabel):
            classes[field] = tuple(feature.names)
    plain = [field for field in wanted if field not in pictures]
    return arrow_population(
        table.select([client, *plain]),
        rows,
        client,
        name=name or folder.resolve().name,
        named=classes,
        pictures=pictures,
    )


def _stored_images(column: Any, rows: FileRows, field: str) -> np.ndarray:
    sources: list[tuple[str, Any]] = []
    for row, value in enumerate(column.to_pylist()):
        where = rows.at(row, field)
        if not value or not (value.get("bytes") or value.get("path")):
            raise InvalidInput(f"{where}: the image is missing; fill it in or leave the row out")
        sources.append((where, io.BytesIO(value["bytes"]) if value.get("bytes") else existing(value["path"])))
    return _stack(sources)


def _stack(sources: Sequence[tuple[str, Any]]) -> np.ndarray:
    """One array of all images, given as (location, file); all must have the same size and mode."""
    from PIL import Image

    stacked: Any = None
    first = ("", ("", (0, 0)))
    for row, (where, source) in enumerate(sources):
        try:
            with warnings.catch_warnings(action="error"), Image.open(source) as image:
                form = (image.mode, image.size)
                pixels = np.asarray(image)
        except Exception as error:  # a damaged image makes Pillow raise almost anything
            raise InvalidInput(f"{where} is not an image, or it is damaged ({error}): replace it") from error
        if form[0] not in MODES:
            raise InvalidInput(f"{where} has mode {form[0]}: convert it to grey (L) or colour (RGB)")
        if stacked is None:
            first = (where, form)
            stacked = np.empty((len(sources), *pixels.shape), pixels.dtype)
        if form != first[1]:
            raise InvalidInput(
                f"{where} is {_picture(*form)}, but {first[0]} is {_picture(*first[1])}: make them alike"
            )
        stacked[row] = pixels
    return stacked


def _picture(mode: str, size: tuple[int, int]) -> str:
    return f"{mode} of {size[0]}x{size[1]} pixels"


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
