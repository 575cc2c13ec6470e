"""Students of labelled synthetic sets: whose labels, which classes, what is inherited, and what stays marked."""

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from blindsight import jobs, runs
from blindsight.accounting.events import Gaussian
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger, LedgerName
from blindsight.data import embedded
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.jobs.student import read_student
from blindsight.jobs.tables import content_of_table
from blindsight.samples.export import save_set
from blindsight.samples.synthetic_set import read_set
from blindsight.samples.views import ArmView
from blindsight.students import Student
from blindsight.studio.labels import Decision, Labels
from blindsight.wording import percent, span

PROMISE = Guarantee(epsilon=3.0, delta=1e-6, accountant="PLD", participation="full: all 200", releases=1)
DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A set of real digits that passes for synthetic: 400 of them, each proposed as what it is."""
    folder = tmp_path_factory.mktemp("digits") / "samples"
    found = embedded("digits").columns
    image, label = np.rint(255 * found["image"][:400]).astype(np.uint8), found["label"][:400]
    view = ArmView("everyone", samples=image, labels=(label + 1) % 10)
    extra = {"pred": label.astype(np.int64)}
    save_set([view], folder, title="Digits to label", guarantee=PROMISE, classes=DIGITS, extra=extra)
    return read_set(folder)


@pytest.fixture(scope="module")
def student(digits, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("students") / "student"
    return jobs.run_student(digits.folder, model="logistic", steps=1000, test="digits", out=out)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Students as they begin, for tests of what they would learn from."""

    def fresh(examples: np.ndarray, labels: np.ndarray, *, model: Any, guarantee: Guarantee, **_: Any) -> Student:
        assert len(examples) == len(labels)
        return Student(model, guarantee)

    monkeypatch.setattr("blindsight.jobs.student.train_student", fresh)


def test_it_learns_inherits_the_guarantee_and_its_accuracy_stays_marked(student):
    assert student.guarantee == PROMISE
    assert (student.labels, student.examples, student.unlabelled) == ("pre", 400, 0)
    assert student.simulation_only["examples"] == 1797
    assert student.simulation_only["accuracy"] > 0.75
    assert Guarantee.from_dict(runs.open_run(student.path).read("guarantee.json")) == PROMISE
    accuracy = student.simulation_only["accuracy"]
    page = (student.path / "report.html").read_text()
    assert "<i>epsilon</i> ≤ 3<" in page
    assert page.count('data-label="class"') == page.count('data-label="examples"') == 10  # headings where columns stack
    for file in ("report.html", "report.json", "run.json", "student.json"):
        text = (student.path / file).read_text()
        assert "simulation_only" not in text
        assert not [told for told in (f"{100 * accuracy:.1f}", percent(accuracy, 3), str(accuracy)) if told in text]
    assert json.loads((student.path / "simulation_only.json").read_text())["name"] == "digits"


def test_its_page_shows_which_classes_it_confuses_and_examples_that_it_misreads(digits, tmp_path):
    found = jobs.run_student(digits.folder, model="logistic", steps=60, public="digits", out=tmp_path / "student")
    assert found.public is not None
    confusion = np.array(found.public["confusion"])
    assert confusion.shape == (10, 10)
    assert confusion.sum() == found.public["examples"] == 1797
    assert np.trace(confusion) / 1797 == pytest.approx(found.public["accuracy"])
    assert all(one.truth != one.predicted and one.png for one in found.misread)
    page = (tmp_path / "student" / "report.html").read_text()
    assert len(re.findall(r'<td class="shade-\d right">', page)) == 10
    assert [int(x.replace(",", "")) for x in re.findall(r'<td class="shade-\d[^>]*>([\d,]+)</td>', page)] == [
        *confusion.ravel()
    ]
    assert page.count('alt="public example of') == len(found.misread) > 5
    right, total = int(confusion[3, 3]), int(confusion[3].sum())
    low, high = stats.binomtest(right, total).proportion_ci(method="wilson")
    assert f"{percent(right / total)} <small>({span(low, high)})</small>" in page
    stored = json.loads((tmp_path / "student" / "report.json").read_text())
    assert stored["public"]["confusion"] == confusion.tolist()


def test_an_exported_student_computes_the_same(student, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    exported = jobs.run_export(student.path, tmp_path / "m.onnx")
    assert (exported.kind, Guarantee.from_dict(exported.guarantee)) == ("logistic", PROMISE)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8)).astype(np.uint8)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"input": images.astype(np.float32) / 255})
    expected = read_student(student.path)[0](images)
    np.testing.assert_allclose(scores, expected, atol=1e-4, rtol=1e-4)


def test_a_page_without_public_data_is_not_green(student):
    page = (student.path / "report.html").read_text()
    assert '<section class="verdict unmeasured"' in page
    assert "Confusion matrix" not in page


def test_it_can_be_inspected(student):
    judge = jobs.load_model(student.path)
    people = embedded("digits")
    judge.check(people)
    found, _ = judge.predict(people.columns["image"])
    assert np.mean(found == people.columns["label"]) == pytest.approx(student.simulation_only["accuracy"])


@pytest.mark.usefixtures("untrained")
def test_the_majority_of_raters_is_learnt_and_what_is_left_out_is_counted(digits, tmp_path):
    place = tmp_path / "set"
    place.mkdir()
    (place / "samples.parquet").write_bytes((digits.folder / "samples.parquet").read_bytes())
    labels = Labels(read_set(place))
    said = [(n, rater, "1" if n % 2 else "0") for n in range(40) for rater in ("anna", "ben", "cleo")]
    said += [(40, "anna", "1"), (40, "ben", "0"), (41, "anna", None)]  # a tie, and a skip
    labels.add([Decision(f"everyone/{n:05d}", rater, label, 1.0, "now") for n, rater, label in said])
    found = jobs.run_student(place, model="logistic", steps=5, out=tmp_path / "student")
    assert (found.labels, found.raters) == ("raters", ("anna", "ben", "cleo"))
    assert (found.counts["0"], found.counts["1"], found.examples) == (20, 20, 40)
    assert (found.ties, found.unlabelled) == (1, 359)
    own = jobs.run_student(place, labels="own", model="logistic", steps=5, out=tmp_path / "own")
    assert own.counts["1"] == sum(sample.proposed == "0" for sample in labels.dataset.samples)


@pytest.mark.usefixtures("untrained")
def test_rows_are_brought_to_one_scale(make_set, tmp_path):
    made = make_set("rows", count=30)
    found = jobs.run_student(made.folder, steps=5, out=tmp_path / "student")
    assert found.model == "mlp"
    judge = jobs.load_model(tmp_path / "student")
    rows = np.stack([made.columns[name].astype(np.float32) for name in ("age", "work", "pay")], axis=-1)
    rows[0, 2] = np.nan  # missing: it lies in the middle
    assert np.isfinite(judge.scores(rows)).all()
    assert judge.scores(rows).shape == (30, 3)


def test_public_data_are_not_those_that_the_set_protects(make_set, tmp_path):
    """Whatever the clients are called in the ledger, and wherever a copy of their table lies."""
    made, ledger = make_set("rows", folder=tmp_path / "run" / "samples", count=30), Ledger(tmp_path / "l.db")
    rows = {"who": ["a", "b", "c"], "age": [31, 50, 44], "work": [0, 1, 1], "pay": [0.5, 1.5, 0.1], "label": [0, 1, 1]}
    pq.write_table(pa.table(rows), tmp_path / "people.parquet")
    pq.write_table(pa.table({name: column[::-1] for name, column in rows.items()}), tmp_path / "copy.parquet")
    data = content_of_table(str(tmp_path / "people.parquet"), {"client": "who"})
    ledger.record(Gaussian(1.0, rounded=True), population=LedgerName("some clinic", data))
    runs.begin(tmp_path / "run", "labelling", {"population": ["some clinic"]})
    asked: dict[str, Any] = {"public": str(tmp_path / "copy.parquet"), "client": "who", "out": tmp_path / "student"}
    with pytest.raises(PrivacyError, match="are the clients that the set protects"):
        jobs.run_student(made.folder, steps=1, ledger=ledger, **asked)
    with pytest.raises(InvalidInput, match="knows nothing of some clinic"):
        jobs.run_student(made.folder, steps=1, ledger=Ledger(tmp_path / "other.db"), **asked)
    assert not (tmp_path / "student").exists()


def test_bad_requests_are_one_sentence(digits, make_set, tmp_path):
    text, few = make_set("text", folder=tmp_path / "text"), make_set(folder=tmp_path / "few", count=1)
    bare = make_set(folder=tmp_path / "bare", classes=(), proposed=False)
    rows = make_set("rows", folder=tmp_path / "rows")
    with_label = pa.table({"client": ["a", "b"], "age": [1, 2], "work": [0, 1], "pay": [0.5, 1.5], "label": [7, 1]})
    pq.write_table(with_label, tmp_path / "people.parquet")
    asked: list[tuple[Any, dict[str, Any], str]] = [
        (tmp_path / "nowhere", {}, "there is no folder"),
        (text.folder, {}, "is text"),
        (few.folder, {}, "fewer than two classes"),
        (bare.folder, {}, "have no proposed labels"),
        (bare.folder, {"labels": "raters"}, "list them with --classes"),
        (digits.folder, {"labels": "raters"}, "nobody has labelled"),
        (rows.folder, {"model": "cnn"}, "a cnn reads images"),
        (rows.folder, {"test": "digits"}, "has no field 'age'"),
        (digits.folder, {"test": "no such data"}, "neither a file nor a population"),
        (rows.folder, {"test": str(tmp_path / "people.parquet")}, "more than the 3 classes of the student"),
    ]
    for folder, settings, words in asked:
        with pytest.raises(InvalidInput, match=words) as refusal:
            jobs.run_student(folder, steps=1, out=tmp_path / "student", **settings)
        assert "\n" not in str(refusal.value)
        assert not (tmp_path / "student").exists()


@pytest.mark.usefixtures("untrained")
def test_public_labels_may_be_texts_and_may_be_missing(make_set, tmp_path):
    made = make_set("rows", count=30)
    labels = ["owl", "dog", None, "cat"]
    columns = {
        "who": ["a", "b", "b", "c"],
        "age": [31, None, 50, 44],
        "work": [0, 1, 1, 0],
        "pay": [0.5, 1.5, 0.1, -1.0],
    }
    coded = {"owl": 2, "dog": 1, "cat": 0}
    found = dict[str, Any]()
    for name, column in {"text": labels, "codes": [coded.get(label or "", 1) for label in labels]}.items():
        pq.write_table(pa.table({**columns, "label": column}), tmp_path / f"{name}.parquet")
        public = str(tmp_path / f"{name}.parquet")
        student = jobs.run_student(made.folder, steps=5, public=public, client="who", out=tmp_path / name)
        found[name] = student.public
    assert found["text"]["examples"] == 3
    assert found["codes"]["examples"] == 4
    pq.write_table(pa.table({**columns, "label": ["emu", *labels[1:]]}), tmp_path / "odd.parquet")
    with pytest.raises(InvalidInput, match="has the class 'emu'"):
        jobs.run_student(made.folder, public=str(tmp_path / "odd.parquet"), client="who", out=tmp_path / "odd")
    pq.write_table(pa.table({**columns, "label": [0.5, 1.0, 2.0, 0.0]}), tmp_path / "float.parquet")
    with pytest.raises(InvalidInput, match="name the field of the class"):
        jobs.run_student(made.folder, public=str(tmp_path / "float.parquet"), client="who", out=tmp_path / "float")


def test_data_with_strange_classes_are_refused(make_set, tmp_path):
    made = make_set(classes=("cat", "dog"))
    with pytest.raises(InvalidInput, match="has the class '0', which the student was not trained on"):
        jobs.run_student(made.folder, test="digits", steps=1, out=tmp_path / "student")
