"""The walks of docs/architecture.md: what a newcomer adds by opening one or two files, or by a question and a task."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.accounting.ledger import Ledger
from blindsight.backends import Batch
from blindsight.data import Population
from blindsight.data.schema import Field, Schema
from blindsight.inspection import Inquiry, Public, Question, Report, Round, Session
from blindsight.inspection.measuring import noise_for
from blindsight.inspection.question import ReleasePlan
from blindsight.samples.views import ArmView
from blindsight.selection import Arms, everything

PACKAGE = Path(__file__).parents[1] / "src" / "blindsight"
CUE = ('        "spaces": share(str.isspace),\n', '        "exclamation marks": share(lambda sign: sign == "!"),\n')
IMAGE_FAULT = (
    "DAMAGES: dict[str, Damage] = {\n",
    '    "dim": Damage("image", "darker", lambda image: image // 2, lambda image: image * 2, suspects=_always),\n',
)
TEXT_FAULT = (
    "TEXT_FAULTS: dict[str, Damage] = {\n",
    """    "stutter": Damage(
        "text",
        "a letter is added to every word",
        lambda text: _each(text, lambda one: " ".join(word + "q" for word in one.split())),
        lost="nothing, but who knows",
        mend=lambda text, known: " ".join(word.removesuffix("q") for word in text.split()),
        explains={"": "words have a q too many"},
    ),
""",
)
MODEL = (
    '    "logistic": _logistic,\n',
    '    "linear": lambda sizes, shape, classes, key: Logistic(shape, classes, key=key),\n',
)
KIND = ('    kind: Literal["logistic", ', '"linear", ')
ASKED = """
import numpy as np
from blindsight import data, inspect
from blindsight.data import Population, faults
from blindsight.data.population import TEXT
from blindsight.data.schema import Schema
from blindsight.data.text import Vocabulary
from blindsight.inspection.contrast import cues
"""
WALKS = {
    "a cue": (
        {"inspection/contrast/cues.py": CUE},
        """
texts = np.array(["yes!", "no"] * 60, dtype=TEXT)
people = Population({"text": texts}, sizes=[2] * 60, name="people")
schema = Schema(inputs=("text",))
measured = cues.observe(people).classes[cues.FIELD]
assert "exclamation marks" in measured, measured
report = inspect.sanity(people, epsilon=8, delta=1e-6, schema=schema)
assert [row["coordinates"] for row in report.releases] == [2 * len(measured) + 1]
""",
    ),
    "a fault of images": (
        {"data/damage.py": IMAGE_FAULT},
        """
from blindsight.inspection.contrast.votes import candidates
people = data.embedded("handwriting", clients=4)
assert "dim" in [str(one) for one in candidates(people)]
hit = faults.apply(people, "dim")
assert int(faults.undo(hit, "dim").columns["image"].max()) >= 254 > int(hit.columns["image"].max())
""",
    ),
    "a fault of texts": (
        {"data/text_faults.py": TEXT_FAULT},
        """
lines = np.array(["we have a cat now ."] * 240, dtype=TEXT)
before = Population({"text": lines}, sizes=[4] * 60, name="before")
after = faults.apply(before, "stutter")
known = Vocabulary(("we", "have", "a", "cat", "now", "."))
report = inspect.unknowns(before, after, vocabulary=known, epsilon=40, delta=1e-6)
assert report.named[0].fault == "stutter", report
assert "a q too many" in report.verdict
""",
    ),
    "a model": (
        {"models/classifiers.py": MODEL, "config/tables.py": KIND},
        """
from blindsight import Ledger, config, jobs
settings = config.parse(
    {
        "name": "linear",
        "data": {"population": "handwriting", "options": {"clients": 20, "examples": [3, 5]}, "held_out": 0},
        "model": {"kind": "linear"},
        "privacy": {"noise_multiplier": 1.0, "delta": 1e-3, "cohort": 10, "rounds": 1},
    }
)
trained = jobs.run_training(settings, out="run", ledger=Ledger("ledger.db"))
assert (trained.rounds, trained.stopped) == (1, "finished"), trained
""",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS)
def test_these_files_are_opened_and_no_others(tmp_path, walk):
    opened, script = WALKS[walk]
    copy = tmp_path / "src" / "blindsight"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, (place, added) in opened.items():
        text = (copy / file).read_text(encoding="utf-8")
        assert text.count(place) == 1
        (copy / file).write_text(text.replace(place, place + added), encoding="utf-8")
    environment = {"PYTHONPATH": str(tmp_path / "src"), "PATH": "", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", ASKED + script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- a task: its question, what clients send, and what becomes of it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crowding(Question):
    """How many clients have at least `least` examples?"""

    least: int = 3

    task: ClassVar[str] = "crowding"
    server: ClassVar[str] = __name__


@dataclasses.dataclass(frozen=True)
class HasEnough:
    """A one from every client with enough examples."""

    least: int
    name: str = "enough"
    coordinates: int = 1
    bound: float = 1.0

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        return (jnp.sum(batch.weight) >= self.least).astype(jnp.float32)[None]


def plan(question: Crowding, public: Public) -> ReleasePlan:
    """What the server half would release."""
    part = HasEnough(question.least)
    return ReleasePlan([part], noise_for([part], epsilon=question.epsilon, delta=question.delta))


def conduct(question: Crowding, inquiry: Inquiry) -> Report:
    """The server half: one round, and one number in the report."""
    part = HasEnough(question.least)
    one = Round(
        name="count",
        schema=question.schema,
        observe=lambda clients: clients,
        arms=Arms({"everyone": everything()}),
        parts=(part,),
        mechanisms=plan(question, inquiry.public).mechanisms,
    )
    counted = float(inquiry.measure(one)["enough"].sums[0])
    return Report(
        title="Crowding",
        task=question.task,
        question=f"How many clients have {question.least} examples?",
        arms=(ArmView("everyone"),),
        findings=(),
        diagnoses=(),
        guarantee=inquiry.promise(f"full: all {question.clients:,}"),
        releases=tuple(inquiry.releases),
        population={"name": inquiry.name, "clients": question.clients},
        answer=f"About {counted:.0f} clients.",
    )


def test_a_task_is_a_question_and_its_server_half(tmp_path):
    sizes = np.tile([1, 5], 100)
    people = Population({"x": np.zeros(sizes.sum(), np.float32)}, sizes=sizes, name="people")
    schema = Schema({"x": Field("number")}, ("x",))
    question = Crowding(schema=schema, clients=people.size, epsilon=4.0, delta=1e-6)
    assert Crowding.from_dict(question.to_dict()) == question
    ledger, released = Ledger(tmp_path / "ledger.db"), list[Any]()
    dry = Session(ledger=ledger, dry_run=True).ask(question, people, Public())
    assert dry.answer.startswith("Dry run: asking would cost epsilon 4")
    for _ in range(2):  # the second time it is read again, and costs nothing
        session = Session(out=tmp_path / "run", ledger=ledger)
        report = session.ask(question, people, Public())
        released.append(report.verdict)
        assert 3.9 < report.guarantee.epsilon <= 4.0
    assert released[0] == released[1]
    assert abs(int(released[0].split()[1]) - 100) < 15
    assert [entry.kind for entry in ledger.entries("people")].count("release") == 1
    assert (tmp_path / "run" / "report.html").exists()
