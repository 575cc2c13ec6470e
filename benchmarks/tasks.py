"""The work that every contestant does, in numpy alone: sizes, data, first parameters, cohorts, the loss to agree on.

Two tasks. `cnn` is the image benchmark of pfl-research (CIFAR10, 1000 clients of 50 images) and its network without the
dropout, because no two libraries draw the same. `lm` is a word model of the size of McMahan et al. 2018
(arXiv:1710.06963): 10,000 words, an embedding of 96 shared with the output, one LSTM of 670 projected to 96.

The data are synthetic, of the real shapes, and can be learned. Parameters have names and layouts of their own (images
and kernels with channels last, gates in the order input, forget, cell, output); each contestant translates.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

SEED = 20180222
PARITY_ROUNDS = 3  # the loss is compared after each of these; only the later rounds are timed

Parameters = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The sizes and rates of one task."""

    name: str
    clients: int
    examples: int  # per client
    batch: int
    cohort: int
    client_rate: float
    server_rate: float = 1.0
    clip: float  # the bound on the L2 norm of a client's update, in private runs
    noise_multiplier: float = 3e-4  # noise costs the same at any size; so little leaves the losses comparable


TASKS = {
    "cnn": Task(name="cnn", clients=1000, examples=50, batch=10, cohort=50, client_rate=0.1, clip=0.4),
    "lm": Task(name="lm", clients=1000, examples=200, batch=50, cohort=100, client_rate=0.5, clip=0.1),
}

SIDE, CHANNELS, CLASSES = 32, 3, 10
VOCABULARY, LENGTH, EMBEDDING, CELLS = 10_000, 20, 96, 670


def population(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of all clients; the first axis counts clients, the second their examples."""
    shape = (task.clients, task.examples)
    return _images(shape, _random(task, 0)) if task.name == "cnn" else _sentences(shape, _random(task, 0))


def evaluation(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and targets, of no client, on which losses are compared."""
    draw = _images if task.name == "cnn" else _sentences
    inputs, targets = draw((1, 100), _random(task, 1))
    return inputs[0], targets[0]


def cohort(task: Task, round_number: int, size: int) -> list[int]:
    """Who takes part in a round, in order."""
    return _random(task, 2, round_number).choice(task.clients, size, replace=False).tolist()


def parameters(task: Task) -> dict[str, np.ndarray]:
    """The first parameters: Glorot's uniform for the network, a small uniform for the word model."""
    random = _random(task, 3)
    if task.name == "cnn":
        pooled = (SIDE - 4) // 2
        return {
            "conv1": _glorot(random, 3, 3, CHANNELS, 32),
            "conv1_bias": np.zeros(32, np.float32),
            "conv2": _glorot(random, 3, 3, 32, 64),
            "conv2_bias": np.zeros(64, np.float32),
            "dense": _glorot(random, pooled * pooled * 64, 128),
            "dense_bias": np.zeros(128, np.float32),
            "output": _glorot(random, 128, CLASSES),
            "output_bias": np.zeros(CLASSES, np.float32),
        }
    bound = 1 / math.sqrt(CELLS)
    shapes = {
        "input": (4 * CELLS, EMBEDDING),
        "recurrent": (4 * CELLS, EMBEDDING),
        "bias": (4 * CELLS,),
        "projection": (EMBEDDING, CELLS),
    }
    embedding = random.uniform(-0.3, 0.3, (VOCABULARY, EMBEDDING)).astype(np.float32)
    return {"embedding": embedding} | {
        name: random.uniform(-bound, bound, shape).astype(np.float32) for name, shape in shapes.items()
    }


def loss(task: Task, values: Parameters) -> float:
    """The mean cross-entropy of the evaluation set, computed here so that one judge serves all contestants."""
    inputs, targets = evaluation(task)
    logits = _cnn_logits(values, inputs) if task.name == "cnn" else _lm_logits(values, inputs)
    logits -= logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return float(np.mean(np.log(np.exp(logits).sum(-1, dtype=np.float64)) - chosen))


def _random(task: Task, *purpose: int) -> np.random.Generator:
    return np.random.default_rng([SEED, list(TASKS).index(task.name), *purpose])


def _glorot(random: np.random.Generator, *shape: int) -> np.ndarray:
    bound = math.sqrt(6 / (math.prod(shape[:-1]) + math.prod(shape[:-2]) * shape[-1]))
    return random.uniform(-bound, bound, shape).astype(np.float32)


def _images(shape: tuple[int, int], random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Each class a coarse coloured pattern, under noise twice as large."""
    patterns = np.random.default_rng(SEED).uniform(-0.25, 0.25, (CLASSES, 8, 8, CHANNELS)).astype(np.float32)
    patterns = patterns.repeat(SIDE // 8, 1).repeat(SIDE // 8, 2)
    labels = random.integers(0, CLASSES, shape)
    images = np.empty((*shape, SIDE, SIDE, CHANNELS), np.float32)
    for client, own in enumerate(labels):
        noise = random.integers(0, 256, images.shape[1:], dtype=np.uint8)
        np.divide(noise, np.float32(255), out=images[client])
        images[client] += patterns[own] - np.float32(0.5)
    return images, labels


def _sentences(shape: tuple[int, int], random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Words by Zipf's law, half of them instead the fixed successor of the word before."""
    successor = np.random.default_rng(SEED).permutation(VOCABULARY)
    mass = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    words = np.searchsorted(mass, random.uniform(0, mass[-1], (*shape, LENGTH + 1)))
    follows = random.random(words.shape) < 0.5
    for place in range(1, LENGTH + 1):
        words[..., place] = np.where(follows[..., place], successor[words[..., place - 1]], words[..., place])
    return words[..., :-1], words[..., 1:]


def _cnn_logits(values: Parameters, images: np.ndarray) -> np.ndarray:
    hidden = images
    for layer in ("conv1", "conv2"):
        patches = sliding_window_view(hidden, (3, 3), axis=(1, 2))  # image, row, column, channel, 3, 3
        kernel = values[layer].transpose(2, 0, 1, 3)
        hidden = np.maximum(np.tensordot(patches, kernel, 3) + values[f"{layer}_bias"], 0)
    pooled = hidden[:, ::2, ::2]
    for row, column in ((0, 1), (1, 0), (1, 1)):
        pooled = np.maximum(pooled, hidden[:, row::2, column::2])
    dense = np.maximum(pooled.reshape(len(images), -1) @ values["dense"] + values["dense_bias"], 0)
    return dense @ values["output"] + values["output_bias"]


def _lm_logits(values: Parameters, words: np.ndarray) -> np.ndarray:
    state, cell = np.zeros((len(words), EMBEDDING), np.float32), np.zeros((len(words), CELLS), np.float32)
    states = []
    for place in range(LENGTH):
        drive = values["embedding"][words[:, place]] @ values["input"].T + state @ values["recurrent"].T
        enter, keep, new, leave = np.split(drive + values["bias"], 4, axis=1)
        cell = _sigmoid(keep) * cell + _sigmoid(enter) * np.tanh(new)
        state = (_sigmoid(leave) * np.tanh(cell)) @ values["projection"].T
        states.append(state)
    return np.stack(states, 1) @ values["embedding"].T


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + 1)
