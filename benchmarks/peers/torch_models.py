"""Both tasks' models for the contestants on PyTorch, and the way between their parameters and the tasks' own."""

import math
from collections.abc import Mapping

import numpy as np
import tasks
import torch
from torch import nn
from torch.nn import functional

_POOLED = ((tasks.SIDE - 4) // 2, (tasks.SIDE - 4) // 2, 64)  # what the dense layer sees: height, width, channels


class Cnn(nn.Module):
    """Two convolutions, a pool, two dense layers; images come with channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(tasks.CHANNELS, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dense = nn.Linear(math.prod(_POOLED), 128)
        self.output = nn.Linear(128, tasks.CLASSES)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy of a batch."""
        hidden = torch.relu(self.conv2(torch.relu(self.conv1(images))))
        hidden = functional.max_pool2d(hidden, 2).flatten(1)
        return functional.cross_entropy(self.output(torch.relu(self.dense(hidden))), labels)

    def metrics(self, *_: torch.Tensor) -> dict[str, float]:
        """Nothing; pfl asks for the method."""
        return {}


class LanguageModel(nn.Module):
    """An embedding that is also the output, around one projected LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tasks.VOCABULARY, tasks.EMBEDDING)
        self.lstm = nn.LSTM(tasks.EMBEDDING, tasks.CELLS, proj_size=tasks.EMBEDDING, batch_first=True)
        nn.init.zeros_(self.lstm.bias_hh_l0).requires_grad_(False)  # one bias is enough; two would learn twice as fast

    def loss(self, words: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy of a batch, per word."""
        states, _ = self.lstm(self.embedding(words))
        logits = functional.linear(states, self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten())

    metrics = Cnn.metrics


NAMES = {
    "cnn": {
        layer + ours: f"{layer}.{theirs}"
        for layer in ("conv1", "conv2", "dense", "output")
        for ours, theirs in (("", "weight"), ("_bias", "bias"))
    },
    "lm": {
        "embedding": "embedding.weight",
        "input": "lstm.weight_ih_l0",
        "recurrent": "lstm.weight_hh_l0",
        "bias": "lstm.bias_ih_l0",
        "projection": "lstm.weight_hr_l0",
    },
}


def build(task: tasks.Task, device: str) -> nn.Module:
    """The task's model with the task's first parameters."""
    torch.set_float32_matmul_precision("high")  # TF32, which costs no parity and is what a GPU is fast at
    model = Cnn() if task.name == "cnn" else LanguageModel()
    write(task, model, tasks.parameters(task))
    return model.to(device)


def population(task: tasks.Task, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Everyone's data, on the device from the start."""
    inputs, targets = (torch.as_tensor(part).to(device) for part in tasks.population(task))
    if task.name == "cnn":  # a view: on a CPU, convolutions are at least as fast if memory has the channels last
        inputs = inputs.permute(0, 1, 4, 2, 3)
    return inputs.contiguous() if device == "cuda" else inputs, targets


def batches(task: tasks.Task, inputs: torch.Tensor, targets: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One client's batches, in order."""
    return list(zip(inputs.split(task.batch), targets.split(task.batch), strict=True))


def write(task: tasks.Task, model: nn.Module, values: tasks.Parameters) -> None:
    """Set a model's parameters."""
    state = {theirs: torch.tensor(_turn(name, values[name])) for name, theirs in NAMES[task.name].items()}
    model.load_state_dict(state, strict=False)  # the second bias of the LSTM stays zero


def read(task: tasks.Task, state: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """A model's parameters, as the tasks lay them out."""
    return {name: _turn_back(name, state[theirs].cpu().numpy()) for name, theirs in NAMES[task.name].items()}


def _turn(name: str, value: np.ndarray) -> np.ndarray:
    if name in ("conv1", "conv2"):
        return value.transpose(3, 2, 0, 1)  # height, width, in, out -> out, in, height, width
    if name == "dense":
        return value.reshape(*_POOLED, 128).transpose(3, 2, 0, 1).reshape(128, -1)
    return value.T if name == "output" else value


def _turn_back(name: str, value: np.ndarray) -> np.ndarray:
    if name in ("conv1", "conv2"):
        return value.transpose(2, 3, 1, 0)
    if name == "dense":
        return value.reshape(128, _POOLED[2], *_POOLED[:2]).transpose(2, 3, 1, 0).reshape(-1, 128)
    return value.T if name == "output" else value


def device_name(device: str) -> str:
    """What PyTorch calls the device."""
    return "cuda" if device == "gpu" else "cpu"


def finish(device: str) -> None:
    """Wait until the device has done all it was asked."""
    if device == "cuda":
        torch.cuda.synchronize()
