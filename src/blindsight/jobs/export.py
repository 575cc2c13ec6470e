"""`blindsight export`: a trained model as an ONNX file, with the guarantee that it was trained under."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from blindsight import runs
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.jobs.student import FACTS, read_student
from blindsight.jobs.train import load_trained
from blindsight.models.onnx_export import classifier_onnx, gan_onnx, language_onnx

__all__ = ["Exported", "run_export"]


@dataclasses.dataclass(frozen=True)
class Exported:
    """An ONNX file: what it holds, its inputs and outputs by name, and the guarantee of the model."""

    path: Path
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    guarantee: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "path": str(self.path)}


def run_export(folder: str | Path, path: str | Path) -> Exported:
    """Write the newest model of the run in `folder` as an ONNX file. Nothing is released."""
    target = Path(path)
    if target.suffix.lower() != ".onnx" or target.is_dir():
        raise InvalidInput(f"name the file to write, such as model.onnx, got {path}")
    run = runs.open_run(folder)
    guarantee = run.read("guarantee.json")
    kind, content, inputs, outputs = _student(folder) if (run.path / FACTS).is_file() else _trained(folder, guarantee)
    try:
        target.write_bytes(content)
    except OSError as error:
        raise BlindsightError(f"cannot write {target} ({error.strerror}): choose another file") from error
    return Exported(target, kind, inputs, outputs, guarantee)


_Content = tuple[str, bytes, tuple[str, ...], tuple[str, ...]]


def _student(folder: str | Path) -> _Content:
    model, reading, run = read_student(folder)
    content = classifier_onnx(
        model,
        reading.shape,
        classes=reading.classes,
        scaling=None if reading.is_image else reading.scaling,
        of_bytes=reading.is_image,
        metadata={"inputs": json.dumps(reading.inputs), "guarantee": json.dumps(run.read("guarantee.json"))},
    )
    return reading.kind, content, ("input",), ("scores",)


def _trained(folder: str | Path, guarantee: dict[str, Any]) -> _Content:
    trained = load_trained(folder)
    settings, model = trained.config.model, trained.model
    metadata = {"guarantee": json.dumps(guarantee)}
    if settings.is_language:
        words = () if trained.vocabulary is None else trained.vocabulary.words
        metadata |= {"vocabulary": json.dumps(words), "kind": settings.kind}
        return settings.kind, language_onnx(model, metadata=metadata), ("tokens",), ("logits",)
    if settings.kind == "gan":
        inputs = ("latents", "labels") if model.classes else ("latents",)
        return "gan", gan_onnx(model, metadata=metadata), inputs, ("images",)
    dtype, shape = trained.clients.fields[settings.inputs[0]]
    is_one = len(settings.inputs) == 1
    shape = shape if is_one and len(shape) >= 2 else (math.prod(shape) if is_one else len(settings.inputs),)
    content = classifier_onnx(
        model,
        shape,
        classes=settings.classes if isinstance(settings.classes, tuple) else (),
        of_bytes=is_one and dtype == "uint8",
        metadata=metadata | {"inputs": json.dumps(settings.inputs)},
    )
    return settings.kind, content, ("input",), ("scores",)
