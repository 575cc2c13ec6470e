"""`blindsight inspect bias` from the command line: it answers, refuses in one sentence, and takes no private data."""

import json
from pathlib import Path

import numpy as np
import pytest
from command import run

WORDS = np.array(["we", "have", "a", "cat", "and", "the", "dog", "is", "here", "now"])


def table(path: Path, seed: int, odd: float = 0.0, clients: int = 120) -> Path:
    """Authors of twelve sentences; some of them write of other things."""
    random, lines = np.random.default_rng(seed), ["author,text,region"]
    for author in range(clients):
        own = ["zorg", "quux", "blip"] if random.random() < odd else []
        for _ in range(12):
            region = random.choice(["north", "south"])
            lines.append(f"{path.stem}-{author},{' '.join(random.choice([*WORDS, *3 * own], 7))}.,{region}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def inspected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLINDSIGHT_LEDGER", str(tmp_path / "ledger.db"))
    table(tmp_path / "private.csv", 0, odd=0.4)
    table(tmp_path / "public.csv", 1)

    def call(*options: str):
        return run("inspect", "bias", "private.csv", "--client", "author", *options)

    return call


def test_it_says_what_public_text_lacks(inspected):
    asked = ["--reference", "public.csv", "--input", "text", "--by", "region", "--value", "north", "--value", "south"]
    result = inspected(*asked, "--epsilon", "8", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["task"] == "bias"
    assert report["outcome"] == "difference"
    assert report["guarantee"]["epsilon"] <= 8
    lines = {(one["subject"], one["name"]): one["verdict"] for one in report["bias"]["compared"]}
    assert lines["likelihood", "unlikely"] == "more"
    assert lines["region", "north"] == "alike"
    assert list(Path("runs").glob("bias-*/report.html"))


def test_classes_are_texts_in_files(inspected):
    result = inspected("--reference", "public.csv", "--input", "text", "--label", "region", "--epsilon", "8", "--json")
    assert result.returncode == 0, result.stderr
    compared = json.loads(result.stdout)["bias"]["compared"]
    assert {one["name"] for one in compared if one["subject"] == "class"} == {"north", "south"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--reference DATA"),
        (["--reference", "nowhere.csv"], "nowhere.csv"),
        (["--reference", "public.csv", "--input", "photo"], "there is no 'photo'"),
        (
            ["--reference", "public.csv", "--suspect", "invert"],
            "inspect sanity, mistakes, slices or unknowns: leave it out",
        ),
        (
            ["--reference", "public.csv", "--forming", "eligible"],
            "--forming is for blindsight inspect mistakes or",
        ),
        (["--reference", "public.csv", "--low", "0.5"], "--low is for blindsight inspect slices"),
        (["--reference", "public.csv", "--case", "upper"], "not one of 'lower', 'keep'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(inspected, options, words):
    refused = inspected(*options)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not list(Path("runs").glob("*/run.json"))  # another question may be asked there


def test_private_data_are_not_public(inspected):
    refused = inspected("--reference", "./private.csv")
    assert refused.returncode == 3
    assert "are the protected clients" in refused.stderr


def test_options_of_bias_are_refused_elsewhere():
    refused = run("inspect", "sanity", "handwriting", "--class", "3")
    assert refused.returncode == 2
    assert "--class is for blindsight inspect bias: leave it out" in refused.stderr
