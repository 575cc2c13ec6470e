"""Laws of a session: a dry run checks everything, asks nobody and leaves nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import ask, ask_bias, ask_unknowns

from blindsight import data, inspect, keys
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Simulation
from blindsight.data import Population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection import Inquiry, Public
from blindsight.inspection.tasks import question_from
from blindsight.inspection.unknowns.words import joined
from blindsight.models.primary import primary

SEEN: list[int] = []
WORDS = Vocabulary(("a", "the"))


def counting(images: np.ndarray) -> np.ndarray:
    """A model that remembers how many real examples it was asked about."""
    SEEN.append(int(np.any(images, axis=(1, 2)).sum()))
    return np.tile(np.arange(10, dtype=np.float32), (len(images), 1))


def nobody(population: Population) -> Any:
    raise AssertionError("a client was asked")


def writers(seed: int, clients: int = 60) -> Population:
    return data.embedded("handwriting", clients=clients, seed=seed, examples=(10, 12))


def talk(seed: int) -> Population:
    return data.embedded("forum", clients=60, seed=seed, examples=(3, 5))


QUESTIONS = {
    "slices": lambda **about: ask(inspect.slices, writers(0), model=primary(counting), **about),
    "labelling": lambda **about: ask(inspect.labelling, writers(0), samples=10, **about),
    "bias": lambda **about: ask_bias(writers(0), reference=writers(1), **about),
    "unknowns": lambda **about: ask_unknowns(talk(0), talk(1), vocabulary=WORDS, **about),
}


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    "name",
    [name if name in ("slices", "unknowns") else pytest.param(name, marks=pytest.mark.slow) for name in QUESTIONS],
)
def test_a_dry_run_says_what_asking_costs_and_asks_nobody(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    SEEN.clear()
    about: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "ledger": Ledger(tmp_path / "ledger.db"), "backend": nobody}
    planned = QUESTIONS[name](**about, dry_run=True)
    assert sum(SEEN) == 0
    assert list(tmp_path.iterdir()) == []
    assert 2.9 < planned.guarantee.epsilon <= 3.0
    assert "nothing was spent" in str(planned)
    asked = QUESTIONS[name](**about | {"backend": Simulation}, out=Path("run"))
    assert {row["what"] for row in planned.releases} == {row["what"] for row in asked.releases}
    for row, other in zip(
        *(sorted(one.releases, key=lambda row: row["what"]) for one in (planned, asked)), strict=True
    ):
        assert row["coordinates"] == other["coordinates"]
        assert row["epsilon"] == pytest.approx(other["epsilon"])


def test_a_question_read_from_json_is_asked_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    about: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "key": keys.reproducible(0)}
    asked = ask_unknowns(talk(0), talk(1), vocabulary=WORDS, out="first", ledger=Ledger("first.db"), **about)
    question = question_from(json.loads(Path("first", "run.json").read_text())["settings"]["question"])
    session = inspect.Session(key=about["key"], out="second", ledger=Ledger("second.db"))
    clients, public = joined(talk(0), talk(1)), Public(vocabulary=WORDS)
    again = session.ask(question, clients, public)
    assert [finding.p_value for finding in again.findings] == [finding.p_value for finding in asked.findings]
    assert again.guarantee.epsilon == asked.guarantee.epsilon


def test_a_dry_run_refuses_what_asking_would(tmp_path):
    about: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "ledger": Ledger(tmp_path / "l.db"), "dry_run": True}
    with pytest.raises(InvalidInput, match="primary model and labels"):
        ask(inspect.slices, writers(0), **about)
    with pytest.raises(InvalidInput, match="40 are needed"):
        ask_bias(writers(0), reference=writers(1, 20), **about)


def roots(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The root keys of inquiries, as they are when their reports are made."""
    seen, promise = list[bytes](), Inquiry.promise

    def noted(self: Inquiry, *words: Any) -> Any:
        seen.append(self.root.secret)
        return promise(self, *words)

    monkeypatch.setattr(Inquiry, "promise", noted)
    return seen


def test_a_run_that_goes_on_has_the_key_that_it_began_with(tmp_path, monkeypatch):
    """Rounds that are read again would else leave training with another key: paid for twice, and noised anew."""
    seen = roots(monkeypatch)
    for _ in range(2):
        about: dict[str, Any] = {"out": tmp_path / "run", "key": keys.reproducible(1)}
        about["ledger"] = Ledger(tmp_path / "l.db")
        ask_unknowns(talk(0), talk(1), vocabulary=Vocabulary(("a",)), epsilon=3.0, delta=1e-6, **about)
    assert seen[0] == seen[1]


def test_discovered_words_are_read_again_only_beside_their_own_payment(tmp_path):
    """Each side pays under a name of its own: an entry about the other side proves nothing."""
    ledger = Ledger(tmp_path / "l.db")
    before, after = (
        talk(seed).replace(talk(seed).columns, name=name) for seed, name in enumerate(("spring", "autumn"))
    )
    about: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "ledger": ledger, "out": tmp_path / "run"}
    ask_unknowns(before, after, vocabulary=Vocabulary(("a",)), discover=True, **about)
    for side, payer in (("before", "spring"), ("after", "autumn")):
        kept = json.loads((tmp_path / "run" / f"words-{side}.json").read_text())["ledger"]
        paid = [entry.hash for entry in ledger.entries(payer) if entry.note.startswith("byte ")]
        assert kept == paid[-1]
