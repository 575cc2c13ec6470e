"""Faults of images as strangers would cause them: written here, without the package's own library of faults."""

from collections.abc import Callable
from typing import Any

import numpy as np


def _zoomed(image: np.ndarray, by: float = 1.4) -> np.ndarray:
    side = image.shape[1]
    places = np.clip(np.rint((np.arange(side) - side / 2) / by + side / 2), 0, side - 1).astype(int)
    return image[:, places][:, :, places]


def _blurred(image: np.ndarray) -> np.ndarray:
    padded = np.pad(image.astype(np.float64), ((0, 0), (2, 2), (2, 2)), mode="edge")
    side = image.shape[1]
    total = sum(padded[:, i : i + side, j : j + side] for i in range(5) for j in range(5))
    return np.rint(np.asarray(total) / 25).astype(image.dtype)


def _moved(image: np.ndarray) -> np.ndarray:
    moved = np.zeros_like(image)
    moved[:, :, 4:] = image[:, :, :-4]
    return moved


def _checkered(image: np.ndarray) -> np.ndarray:
    board = np.add.outer(np.arange(28) // 4, np.arange(28) // 4) % 2 == 1
    return np.where(board, 255 - image, image)


def _erased(image: np.ndarray) -> np.ndarray:
    erased = image.copy()
    erased[:, :14] = 0
    return erased


def _speckled(image: np.ndarray) -> np.ndarray:
    blocks = np.random.default_rng(5).random((len(image), 7, 7)) < 0.15
    return np.where(np.kron(blocks, np.ones((1, 4, 4), bool)), 255, image).astype(image.dtype)


PICTURES: dict[str, tuple[Any, str]] = {
    "inverted": (lambda x: 255 - x, "invert"),
    "upside down": (lambda x: x[:, ::-1, ::-1], "rotate90:turns=2"),
    "on its side": (lambda x: x.transpose(0, 2, 1)[:, ::-1], "rotate90"),
    "mirrored": (lambda x: x[:, :, ::-1], "flip"),
    "moved right by 4": (_moved, "shift:right=4"),
    "too dark": (lambda x: np.rint((x / 255.0) ** 3 * 255).astype(np.uint8), "gamma"),
    "out of focus": (_blurred, "blur"),
    "black": (lambda x: np.zeros_like(x), "constant"),
    "checkerboard": (_checkered, ""),
    "zoomed": (_zoomed, "crop"),
    "top half erased": (_erased, "occlude"),
    "white blocks": (_speckled, "block_noise"),
}
"""What others did, and the fault of the library that it is; nothing if it is none."""


def _striped(images: np.ndarray) -> np.ndarray:
    striped = images.copy()
    striped[:, ::4] = 255
    return striped


def _rippled(images: np.ndarray) -> np.ndarray:
    steps = np.rint(3 * np.sin(np.arange(images.shape[1]) / 3)).astype(int).tolist()
    return np.stack([np.roll(images[:, row], step, axis=1) for row, step in enumerate(steps)], axis=1)


def _peppered(images: np.ndarray) -> np.ndarray:
    dice = np.random.default_rng(6).random(images.shape)
    return np.where(dice < 0.05, 0, np.where(dice > 0.95, 255, images)).astype(images.dtype)


def _framed(images: np.ndarray) -> np.ndarray:
    framed = np.full_like(images, 255)
    framed[:, 2:-2, 2:-2] = images[:, 2:-2, 2:-2]
    return framed


MORE_PICTURES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "with every fourth row white": _striped,
    "rippled": _rippled,
    "with salt and pepper": _peppered,
    "in a white frame": _framed,
    "four times, each a quarter": lambda x: np.tile(x[:, ::2, ::2], (1, 2, 2)),
    "in four grey levels": lambda x: (x // 64 * 85).astype(x.dtype),
    "in a quarter of the pixels": lambda x: np.repeat(np.repeat(x[:, ::4, ::4], 4, axis=1), 4, axis=2),
    "its left half, mirrored": lambda x: np.concatenate([x[:, :, :14], x[:, :, :14][:, :, ::-1]], axis=2),
}
"""Faults that the library lacks; no setting of inspections without a model was chosen by them."""
