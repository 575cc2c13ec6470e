"""A student from a labelled synthetic set: what `blindsight train student` does, without reading any client."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.backends import use_cores
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import Population
from blindsight.data.sources import check_public, source
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.jobs.language import PUBLIC
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.primary import Learnt, Primary, gather, primary
from blindsight.samples.synthetic_set import SyntheticSet, read_set
from blindsight.students import train_student
from blindsight.studio.agreeing import Majority, majority
from blindsight.studio.labels import FILE as LABELS
from blindsight.studio.labels import Labels
from blindsight.studio.student_report import StudentReport

__all__ = ["load_student", "run_student"]

Kind = Literal["cnn", "mlp", "logistic"]
Whose = Literal["raters", "pre", "own"]

FACTS = "student.json"


def run_student(
    folder: str | Path,
    *,
    labels: Whose | None = None,
    model: Kind | None = None,
    steps: int = 1000,
    test: str | None = None,
    public: str | None = None,
    label: str = "label",
    out: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> StudentReport:
    """Train a classifier on the labelled synthetic set in `folder`; the report, which lies in `out` with the model.

    `labels` are the majority of the `raters` (if anybody has labelled), or those that were proposed (`pre`), or the
    classes that the generator was asked for (`own`). `public` data measure it for anyone to know; real ones (`test`)
    only in a simulation.

    **Guarantee**: the set's own, for nothing else is read to train it. What `test` says is `simulation_only`.
    """
    use_cores()
    made = read_set(folder)
    chosen, classes, about = _labelled(made, labels)
    held = [place for place, sample in enumerate(made.samples) if sample.sample_id in about.labels]
    truth = [about.labels[made.samples[place].sample_id] for place in held]
    if len(set(truth)) < 2:
        raise InvalidInput(f"{folder} has examples of fewer than two classes with a label: label some more first")
    columns = {name: column[held] for name, column in made.columns.items()}
    reading = _Reading.of(columns, model, classes)
    asked = {"test": test, "public": public}
    measured = {name: _measurable(where, reading, label) for name, where in asked.items() if where}
    if public is not None:
        _refuse_protected(made, measured["public"], public)
    run = runs.begin(_place(made, out), "student", {"set": made.identity, **reading.settings, "labels": chosen})
    trained = train_student(
        reading.numbers(columns),
        np.array([classes.index(name) for name in truth], np.int32),
        model=reading.fresh(),
        steps=steps,
        key=keys.root(),
        guarantee=made.guarantee,
        progress=progress,
        **reading.changes,
    )
    run.write("guarantee.json", made.guarantee.to_dict())
    checkpoints.write(run.path, 1, eqx.filter(trained.model, eqx.is_array), {})
    run.write(FACTS, dataclasses.asdict(reading))
    judge = load_student(run.path)
    found = {name: _measure(judge, people, reading, label) for name, people in measured.items()}
    report = StudentReport(
        title=f"A student from {made.title[:1].lower()}{made.title[1:]}",
        model=reading.kind,
        labels=chosen,
        counts={name: truth.count(name) for name in classes},
        raters=about.raters,
        ties=about.ties,
        unlabelled=about.unlabelled,
        guarantee=made.guarantee,
        public=found.get("public"),
        simulation_only=found.get("test"),
        path=run.path,
    )
    _save(report, run)
    return report


def _save(report: StudentReport, run: runs.Run) -> None:
    """The report without what is marked `simulation_only`, which lies in a file of that name."""
    report.save(run.path / "report.html")
    run.write("report.json", {name: value for name, value in report.to_dict().items() if name != "simulation_only"})
    if report.simulation_only is not None:
        run.write("simulation_only.json", dict(report.simulation_only))


def load_student(folder: str | Path) -> Primary:
    """The student that `blindsight train student` left in `folder`, as the primary model of an inspection."""
    run = runs.open_run(folder)
    reading, path = _Reading.from_dict(run.read(FACTS)), checkpoints.newest(run.path)
    if path is None:
        raise InvalidInput(f"{folder} has no student yet: run blindsight train student again")
    fresh = reading.fresh()
    arrays = checkpoints.load(path, eqx.filter(fresh, eqx.is_array)).tree
    trained, name = primary(eqx.combine(arrays, fresh)), f"the student {run.path.name}"
    learnt = Learnt(guarantee=run.read("guarantee.json"))  # of samples whose clients nobody has named
    if reading.is_image:
        return primary(eqx.combine(arrays, fresh), name=name, shape=reading.shape, learnt=learnt)
    judge = primary(lambda rows: trained.scores(reading.scaled(rows)), name=name, learnt=learnt)
    return dataclasses.replace(judge, by_row=True)  # both steps are


@dataclasses.dataclass(frozen=True)
class _Reading:
    """How a student reads examples: which fields, and for rows where each number lies in what it learnt from."""

    kind: Kind
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    inputs: tuple[str, ...]
    middle: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray], kind: Kind | None, classes: tuple[str, ...]) -> "_Reading":
        inputs = tuple(columns)
        if strange := [name for name, column in columns.items() if column.dtype.kind not in "biuf"]:
            raise InvalidInput(
                f"students read images and numbers, and {strange[0]!r} is text: leave this set to people"
            )
        if columns[inputs[0]].ndim > 1:
            return cls(kind or "cnn", columns[inputs[0]].shape[1:], classes, inputs)
        if kind == "cnn":
            raise InvalidInput("a cnn reads images and these are rows: use --model mlp or logistic")
        rows = np.stack([columns[name].astype(np.float64) for name in inputs], axis=-1)
        middle, spread = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0) + 1e-6
        return cls(kind or "mlp", (len(inputs),), classes, inputs, tuple(middle.tolist()), tuple(spread.tolist()))

    @property
    def is_image(self) -> bool:
        return not self.middle

    @property
    def settings(self) -> dict[str, Any]:
        return {"model": self.kind, "classes": list(self.classes), "inputs": list(self.inputs)}

    @property
    def changes(self) -> dict[str, Any]:
        """How every batch of images is changed, for synthetic ones are few and alike: moved by a twentieth, say."""
        return {"noise": 0.1, "shift": 0.05 * self.shape[0], "turn": 0.1, "zoom": 0.1} if self.is_image else {}

    def fresh(self) -> Any:
        """The model before it has learnt anything."""
        make: Any = {"cnn": CNN, "mlp": MLP, "logistic": Logistic}[self.kind]
        return make(self.shape, len(self.classes), key=jax.random.key(0))

    def numbers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Examples as the model reads them."""
        found = gather(columns, self.inputs)
        return found if self.is_image else self.scaled(found)

    def scaled(self, rows: np.ndarray) -> np.ndarray:
        """Rows with every number on the scale that it has in the set; what is missing lies in the middle."""
        rows = rows.reshape(len(rows), -1).astype(np.float64)
        return np.nan_to_num((rows - np.array(self.middle)) / np.array(self.spread)).astype(np.float32)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "_Reading":
        fields: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
        return cls(**fields)


def _labelled(made: SyntheticSet, labels: Whose | None) -> tuple[Whose, tuple[str, ...], Majority]:
    """Whose labels are used, the classes, and the labels by sample with what is left out."""
    if labels == "raters" or (labels is None and (made.folder / LABELS).exists()):
        said = Labels(made)
        if not said.raters:
            raise InvalidInput(
                f"nobody has labelled {made.folder} yet: blindsight label {made.folder}, or --labels pre"
            )
        return "raters", said.classes, majority(said)
    chosen: Whose = labels or "pre"
    found = {s.sample_id: s.proposed if chosen == "pre" else s.own for s in made.samples}
    known = {sample: name for sample, name in found.items() if name is not None}
    if not known:
        raise InvalidInput(f"nothing was proposed for the examples of {made.folder}: label them with blindsight label")
    return chosen, made.classes or tuple(sorted(set(known.values()))), Majority(known, 0, len(found) - len(known), ())


def _place(made: SyntheticSet, out: str | Path | None) -> Path:
    name = made.folder.resolve().parent.name if made.folder.name == "samples" else made.folder.resolve().name
    return Path(out) if out is not None else Path("runs") / f"student-{runs.file_name(name)}"


def _measurable(where: str, reading: _Reading, label: str) -> Population:
    """The population to measure on, checked against what the student reads before it is trained."""
    people = source(where, **(PUBLIC if where in POPULATIONS and where != "digits" else {}))
    if missing := [field for field in (*reading.inputs, label) if field not in people.fields]:
        raise InvalidInput(f"{where} has no {missing[0]!r}, which the student reads or is measured by: name other data")
    names = people.classes.get(label, ())
    if strange := [name for name in names if name not in reading.classes]:
        raise InvalidInput(
            f"{where} has the class {strange[0]!r}, which the student does not know: it was labelled with "
            f"{', '.join(reading.classes)}"
        )
    if not names and int(people.columns[label].max(initial=0)) >= len(reading.classes):
        raise InvalidInput(f"{where} has more classes than the student knows, {len(reading.classes)}: name other data")
    return people


def _refuse_protected(made: SyntheticSet, public: Population, where: str) -> None:
    """Refuse data as public that are the clients whom the set is about."""
    run = made.folder.parent if made.folder.name == "samples" else made.folder
    if not (run / "run.json").is_file():
        return
    settings = runs.open_run(run).read("run.json").get("settings", {})
    chosen = PUBLIC if where in POPULATIONS and where != "digits" else {}
    check_public(where, chosen, settings.get("population", ""), {}, what="--public")
    if settings.get("simulation_only", {}).get("data") == public.fingerprint:
        raise PrivacyError(f"--public {where} are the clients that the set protects: measure on them with --test")


def _measure(judge: Primary, people: Population, reading: _Reading, label: str) -> dict[str, Any]:
    """The share of the examples that the student names as they are."""
    examples = gather(people.columns, reading.inputs)
    judge.check(people, reading.inputs, None)
    names = people.classes.get(label) or reading.classes  # without names, classes are numbered as here
    truth = np.array([reading.classes.index(name) for name in names])[people.columns[label].astype(np.int64)]
    return {
        "name": people.name,
        "examples": len(truth),
        "accuracy": float(np.mean(judge.predict(examples)[0] == truth)),
    }
