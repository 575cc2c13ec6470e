"""What a reference cannot support is said: too few public clients, and models that may have been trained on them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import ask, ask_bias

from blindsight import inspect as questions
from blindsight import keys, selection
from blindsight.accounting.ledger import Ledger
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import cautions, reading
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.released import ArmCues
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.contrast.votes import VotesPart
from blindsight.inspection.measuring import Measured
from blindsight.inspection.report import Report
from blindsight.models.primary import Learnt, Primary, primary

BETTER = "far better on the reference"
pytestmark = pytest.mark.usefixtures("few_steps")


def noisy_rows(clients: int, seed: int, right: float = 0.7) -> Population:
    """Clients with two numbers, what a model would make of them, and one candidate fault that repairs little."""
    random = np.random.default_rng(seed)
    rows = 12 * clients
    cues = random.beta(2, 5, (rows, 2)) * random.gamma(2, 0.2, (clients, 1)).repeat(12, axis=0)
    is_correct = random.random(rows) < right
    columns = {
        "cues": np.clip(cues, 0, 1).astype(np.float32),
        "is_correct": is_correct,
        "repaired": (random.random((rows, 2)) < 0.4) & ~is_correct[:, None],
        "tried": ~is_correct,
    }
    return Population(columns, sizes=np.full(clients, 12), name="rows", classes={"cues": ("size", "tone")})


@pytest.mark.parametrize("public_clients", [5, 10, 40])
@pytest.mark.parametrize("task", ["sanity", "mistakes", "slices"])
def test_a_tiny_reference_names_nothing_and_says_what_it_cannot_tell(task, public_clients):
    arms = {
        "sanity": selection.Arms({"everyone": selection.everything()}),
        "mistakes": selection.by_correctness(2),
        "slices": selection.by_accuracy(0.6, 0.8),
    }[task]
    named, disjoint = tuple(arms), arms.disjoint_by_client
    parts: dict[str, Any] = {
        "cues": Cues(("size", "tone"), named, disjoint),
        "votes": VotesPart(("flip", "invert", "none"), named, disjoint),
    }
    pool = noisy_rows(600, seed=1)
    sent = client_vectors(pool, arms, list(parts.values()))
    alarms = 0
    for run in range(20):
        order = np.random.default_rng(run).permutation(600)
        own, clients = order[:public_clients], order[public_clients : public_clients + 200]
        released = {name: Measured(rows[clients].sum(axis=0), 0.5, 1.0) for name, rows in sent.items()}
        measured: Any = _Released(released, 200)
        block = parts["cues"].block
        exact = {name: rows[own] for name, rows in sent.items()}
        members = {arm: int((exact["cues"][:, (j + 1) * block - 1] > 0).sum()) for j, arm in enumerate(arms)}
        findings, diagnoses = reading.read(measured, parts, arms, reading.Usual(exact, members, exact))
        alarms += any(one.verdict == "detected" for one in findings) or any(one.fault != "none" for one in diagnoses)
        if public_clients < cautions.LEAST:
            assert all(one.p_value == 1 and one.smallest is None for one in findings if one.kind == "cue")
    assert alarms <= 3  # 1 of 20 expected at most
    (said,) = cautions.resolution(public_clients)
    assert said.startswith(f"{public_clients} public clients cannot tell ")
    assert ("Cues are not tested" in said) == (public_clients < cautions.LEAST)


class _Released(dict[str, Measured]):
    """The fields of a measurement that are read."""

    def __init__(self, parts: dict[str, Measured], clients: int) -> None:
        super().__init__(parts)
        self.clients = clients


def test_enough_public_clients_tell_five_per_cent():
    assert cautions.resolution(59) == () == cautions.resolution(1000)
    assert "7.2 %" in cautions.resolution(40)[0]
    assert "45 %" in cautions.resolution(5)[0]


def images(clients: int, seed: int) -> Population:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, clients * 12).astype(np.int32)
    shown = random.integers(0, 255, (clients * 12, 8, 8)).astype(np.uint8)
    return Population(
        {"image": shown, "label": labels},
        sizes=np.full(clients, 12),
        name="noise",
        classes={"label": ("below", "above")},
        synthetic=True,
    )


def memorising(reference: Population, learnt: Learnt | None = None) -> Primary:
    """A model that knows every image of the reference by heart, and guesses the others."""
    known = {x.tobytes(): int(y) for x, y in zip(reference.columns["image"], reference.columns["label"], strict=True)}

    def scores(shown: np.ndarray) -> np.ndarray:
        guesses = [known.get(one.tobytes(), int(one[0, 0]) % 2) for one in shown]
        return np.eye(2)[guesses] if guesses else np.zeros((0, 2))

    return primary(scores, name="memory", shape=(8, 8), learnt=learnt)


def slices(tmp_path: Path, model: Primary, reference: Population) -> Report:
    about: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "model": model, "suspects": ("invert",)}
    about |= {"reference": reference, "low": 0.7, "high": 0.9, "ledger": Ledger(tmp_path / "ledger.db")}
    return ask(questions.slices, images(150, seed=1), **about, key=keys.reproducible(3), out=tmp_path / "run")


def test_a_model_trained_on_its_own_reference_is_warned_about_everywhere(tmp_path):
    reference = images(60, seed=2)
    report = slices(tmp_path, memorising(reference), reference)
    (warning,) = [note for note in report.notes if BETTER in note]
    assert "but 0 % of public ones" in warning
    assert "trained on the reference" in warning
    assert BETTER in " ".join(str(report).split())
    assert BETTER in report.to_html()
    assert BETTER in json.dumps(report.to_dict())


def test_a_model_that_does_as_well_on_clients_is_not_warned_about(tmp_path):
    report = slices(tmp_path, memorising(images(60, seed=3)), images(60, seed=2))
    assert not [note for note in report.notes if BETTER in note]


def test_mistakes_are_compared_with_public_clients_and_our_own_models_were_never_trained_on_them():
    arms = selection.by_correctness(5)
    empty = np.zeros(1)
    seen = {arm: ArmCues(arm, ("tone",), 80.0, 3.0, empty, empty) for arm in arms}
    about: dict[str, Any] = {"clients": 100, "public_clients": 60}
    few, many = {"mistakes": 1, "correct": 60}, {"mistakes": 46, "correct": 60}
    model, ours = primary(lambda x: x), primary(lambda x: x, learnt=Learnt())
    (warning,) = cautions.overfitting(seen, arms, few, **about, model=model)
    assert "80 % of clients, but 1.7 % of public ones, have 5 or more misclassified examples" in warning
    assert not cautions.overfitting(seen, arms, many, **about, model=model)
    assert not cautions.overfitting(seen, arms, few, **about, model=ours)
    assert not cautions.overfitting(seen, arms, few, **about, model=None)
    alone = selection.Arms({"everyone": selection.everything()})
    assert not cautions.overfitting({"everyone": seen["mistakes"]}, alone, {"everyone": 60}, **about, model=model)


def test_bias_warns_of_a_model_that_is_surer_of_the_reference_than_of_clients():
    model, ours = primary(lambda x: x), primary(lambda x: x, learnt=Learnt())
    (warning,) = cautions.overconfidence(model, is_unsure=True)
    assert "trained on the reference" in warning
    assert not cautions.overconfidence(model, is_unsure=False)
    assert not cautions.overconfidence(ours, is_unsure=True)
    assert not cautions.overconfidence(None, is_unsure=True)


def test_bias_refuses_a_reference_of_fewer_than_forty_clients_and_says_what_forty_cannot_tell(tmp_path):
    about: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "inputs": "tone", "ranges": {"tone": (0.0, 1.0)}}
    about |= {"ledger": Ledger(tmp_path / "ledger.db"), "key": keys.reproducible(3)}
    for public_clients in (5, 10):
        with pytest.raises(InvalidInput, match=f"{public_clients} clients with examples, and 40 are needed"):
            ask_bias(tones(100, seed=1), reference=tones(public_clients, seed=2), out=tmp_path / "no", **about)
    report = ask_bias(tones(100, seed=1), reference=tones(40, seed=2), out=tmp_path / "run", **about)
    assert not [one for one in report.findings if one.verdict == "detected"]
    assert any(note.startswith("40 public clients cannot tell 7.2 %") for note in report.notes)


def tones(clients: int, seed: int) -> Population:
    random = np.random.default_rng(seed)
    columns = {"tone": random.random(clients * 12).astype(np.float32), "label": random.integers(0, 2, clients * 12)}
    sizes = np.full(clients, 12)
    return Population(columns, sizes=sizes, name=f"tones {seed}", classes={"label": ("a", "b")}, synthetic=True)
