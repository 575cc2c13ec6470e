"""`blindsight export`: what a run has trained, in onnxruntime; and the guarantee and words that the file brings."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from command import run

from blindsight import config
from blindsight.jobs import load_trained, run_export, run_training

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

PRIVACY = {"noise_multiplier": 1.0, "delta": 1e-3, "cohort": 3, "rounds": 1, "sampler": "float"}


def trained(tmp_path: Path, **tables: Any) -> Path:
    settings = config.parse({"name": "run", "privacy": PRIVACY, "seed": 1} | tables)
    return run_training(settings, out=tmp_path / "run").path


def session(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_a_classifier_of_rows(tmp_path):
    table = ["client,x,y,label", *(f"c{n % 6},{n},{n * n / 9},{['no', 'yes'][n % 2]}" for n in range(24))]
    (tmp_path / "t.csv").write_text("\n".join(table))
    model = {"kind": "mlp", "inputs": ["x", "y"], "hidden": [4], "classes": ["no", "yes"]}
    folder = trained(tmp_path, data={"population": str(tmp_path / "t.csv"), "held_out": 0}, model=model)
    done = run("export", str(folder), str(tmp_path / "m.onnx"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'm.onnx'}: mlp, from input to scores\n"
    rows = np.array([[1.0, 2.0], [3.0, -4.0]], np.float32)
    (scores,) = session(tmp_path / "m.onnx").run(None, {"input": rows})
    np.testing.assert_allclose(scores, load_trained(folder).model(jnp.asarray(rows)), atol=1e-4, rtol=1e-4)


def test_a_language_model_brings_its_words_and_its_guarantee(tmp_path):
    (tmp_path / "words.txt").write_text("we\nhave\na\ncat\n")
    (tmp_path / "t.csv").write_text(
        "\n".join(["client,text", *(f"c{n},we have a cat. a cat have we." for n in range(6))])
    )
    model = {"kind": "word_lm", "embedding": 3, "cells": 3}
    text = {"vocabulary": str(tmp_path / "words.txt"), "length": 5}
    folder = trained(tmp_path, data={"population": str(tmp_path / "t.csv"), "held_out": 0}, model=model, text=text)
    exported = run_export(folder, tmp_path / "m.onnx")
    assert exported.inputs == ("tokens",)
    opened, tokens = session(tmp_path / "m.onnx"), np.array([[1, 4, 5, 6]])
    about = opened.get_modelmeta().custom_metadata_map
    assert json.loads(about["vocabulary"]) == ["we", "have", "a", "cat"]
    assert json.loads(about["guarantee"]) == json.loads((folder / "guarantee.json").read_text()) == exported.guarantee
    (logits,) = opened.run(None, {"tokens": tokens})
    expected = load_trained(folder).model(jnp.asarray(tokens, jnp.int32))
    np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cnn", "char_lm", "gan"])
def test_the_other_kinds(tmp_path, kind):
    (tmp_path / "words.txt").write_text("the\na\n")
    text = {"vocabulary": str(tmp_path / "words.txt"), "length": 8, "field": "text"}
    made = {"network": "compact", "latents": 2, "channels": [2, 2, 2]}
    of = {"cnn": {"channels": [2], "hidden": 4}, "char_lm": {"embedding": 3, "cells": 3}, "gan": {}}[kind]
    more = {"cnn": {}, "char_lm": {"text": text}, "gan": {"gan": made}}[kind]
    people = {"population": "forum" if kind == "char_lm" else "digits", "options": {"clients": 12}, "held_out": 0}
    folder = trained(tmp_path, data=people, model={"kind": kind, **of}, **more)
    assert run_export(folder, tmp_path / "m.onnx").kind == kind
    dice, model = np.random.default_rng(0), load_trained(folder).model
    if kind == "gan":
        inputs: dict[str, Any] = {"latents": dice.normal(size=(3, 2)).astype(np.float32), "labels": np.arange(3)}
        expected = model.decode(jnp.asarray(inputs["latents"]), jnp.arange(3))
    elif kind == "cnn":
        inputs = {"input": dice.uniform(size=(3, 8, 8)).astype(np.float32)}
        expected = model(jnp.asarray(inputs["input"]))
    else:
        inputs = {"tokens": dice.integers(0, 99, (2, 5))}
        expected = model(jnp.asarray(inputs["tokens"], jnp.int32))
    (found,) = session(tmp_path / "m.onnx").run(None, inputs)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["nowhere", "m.onnx"], "nowhere is not a run"),
        (["nowhere", "m.pt"], "name the file to write, such as model.onnx"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, monkeypatch, words, refusal):
    monkeypatch.chdir(tmp_path)
    done = run("export", *words)
    assert done.returncode == 2
    assert refusal in done.stderr
