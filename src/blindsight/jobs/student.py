"""A student trained on a labelled synthetic set: what `blindsight train student` does. It reads no client's data."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.backends import use_cores
from blindsight.data.population import TEXT, Population
from blindsight.data.reading import as_classes
from blindsight.data.sources import check_public, source
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.jobs.public import other_clients, public_options
from blindsight.jobs.student_evaluation import evaluate_student, misread
from blindsight.jobs.tables import content_of_clients
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.primary import Learnt, Primary, gather, primary
from blindsight.models.scaling import Scaling
from blindsight.samples.synthetic_set import LABELS, SyntheticSet, read_set
from blindsight.students import Augmentation, train_student
from blindsight.studio.agreeing import Majority, majority
from blindsight.studio.labels import Labels
from blindsight.studio.student_report import StudentReport

__all__ = ["StudentInputs", "load_student", "read_student", "run_student"]

Architecture = Literal["cnn", "mlp", "logistic"]
Source = Literal["raters", "pre", "own"]

FACTS = "student.json"
_PUBLIC_CLIENTS = 150


def run_student(
    folder: str | Path,
    *,
    labels: Source | None = None,
    model: Architecture | None = None,
    steps: int = 1000,
    test: str | None = None,
    public: str | None = None,
    label: str = "label",
    client: str | None = None,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> StudentReport:
    """Train a classifier on the labelled synthetic set in `folder`; the report and the model are saved in `out`.

    **Guarantee**: the set's own, since nothing else is read to train. The evaluation on `test` is `simulation_only`.

    Args:
        folder: Folder of the synthetic set.
        labels: Majority of the `raters` (the default if there are labels), the proposed ones (`pre`), or the
            classes that the generator was given (`own`).
        model: Type of the classifier; chosen by the type of the data by default.
        steps: Number of training steps.
        test: Real data to evaluate on, in simulations.
        public: Public data to evaluate on.
        label: Field holding the class in `test` and `public`.
        client: Column holding the client id in `test` and `public`, if they are tables.
        out: Folder of the report and the model; a new one by default.
        ledger: The ledger that the set was paid from, which knows its clients; the default ledger if None.
        progress: Called with the steps done and their total.
    """
    use_cores()
    samples = read_set(folder)
    chosen, classes, votes = _labelled(samples, labels)
    rows = [row for row, sample in enumerate(samples.samples) if sample.sample_id in votes.labels]
    truth = [votes.labels[samples.samples[row].sample_id] for row in rows]
    if len(set(truth)) < 2:
        raise InvalidInput(f"{folder} has labelled examples of fewer than two classes: label some more first")
    columns = {name: column[rows] for name, column in samples.columns.items()}
    reading = StudentInputs.of(columns, model, classes)
    test_data, public_data = (
        _evaluation_data(name, reading, label, client) if name else None for name in (test, public)
    )
    if public and public_data:
        _refuse_protected(samples, public_data, public, client, ledger or Ledger())
    run = runs.begin(_folder(samples, out), "student", {"set": samples.identity, **reading.settings, "labels": chosen})
    with run.taken_back_if_refused(lambda: (run.path / "report.json").exists()):
        target = np.array([classes.index(name) for name in truth], np.int32)
        student = _train(run, samples, reading, columns, target, steps, progress)
        report = StudentReport(
            title=f"A student from {samples.title[:1].lower()}{samples.title[1:]}",
            model=reading.kind,
            labels=chosen,
            counts={name: truth.count(name) for name in classes},
            raters=votes.raters,
            ties=votes.ties,
            unlabelled=votes.unlabelled,
            guarantee=samples.guarantee,
            public=evaluate_student(student, public_data, reading, label) if public_data else None,
            simulation_only=evaluate_student(student, test_data, reading, label) if test_data else None,
            misread=misread(student, public_data, reading, label) if public_data else (),
            path=run.path,
        )
        _save(report, run)
    return report


def _train(
    run: runs.Run,
    samples: SyntheticSet,
    reading: "StudentInputs",
    columns: Mapping[str, np.ndarray],
    target: np.ndarray,
    steps: int,
    progress: Callable[[int, int], None],
) -> Primary:
    """Train the student and save it in the run's folder; what is returned is what `load_student` reads there."""
    augmentation = None
    if reading.is_image:  # synthetic images are few and alike, so every batch of them is varied
        augmentation = Augmentation(noise=0.1, shift=0.05 * reading.shape[0], turn=0.1, zoom=0.1)
    trained = train_student(
        reading.numbers(columns),
        target,
        model=reading.fresh(),
        steps=steps,
        key=keys.root(),
        augmentation=augmentation,
        guarantee=samples.guarantee,
        progress=progress,
    )
    run.write("guarantee.json", samples.guarantee.to_dict())
    checkpoints.write(run.path, 1, eqx.filter(trained.model, eqx.is_array), {})
    run.write(FACTS, dataclasses.asdict(reading))
    return load_student(run.path)


def _save(report: StudentReport, run: runs.Run) -> None:
    """Save the report without `simulation_only`, which goes to a file of that name."""
    report.save(run.path / "report.html")
    run.write("report.json", {name: value for name, value in report.to_dict().items() if name != "simulation_only"})
    if report.simulation_only is not None:
        run.write("simulation_only.json", dict(report.simulation_only))


def load_student(folder: str | Path) -> Primary:
    """The student that `blindsight train student` left in `folder`, as the primary model of an inspection."""
    trained, reading, run = read_student(folder)
    learnt, name = Learnt(guarantee=run.read("guarantee.json")), f"the student {run.path.name}"
    # a set does not say which clients it is about
    if reading.is_image:
        student = primary(trained, name=name, shape=reading.shape, learnt=learnt)
    else:
        student = reading.scaling.before(trained, name=name, learnt=learnt)
    return dataclasses.replace(student, classes=reading.classes)


def read_student(folder: str | Path) -> tuple[Any, "StudentInputs", runs.Run]:
    """The classifier that `blindsight train student` left in `folder`, how it reads examples, and its run."""
    run = runs.open_run(folder)
    reading, path = StudentInputs.from_dict(run.read(FACTS)), checkpoints.newest(run.path)
    if path is None:
        raise InvalidInput(f"{folder} has no student yet: run blindsight train student again")
    fresh = reading.fresh()
    arrays = checkpoints.load(path, eqx.filter(fresh, eqx.is_array)).tree
    return eqx.combine(arrays, fresh), reading, run


@dataclasses.dataclass(frozen=True)
class StudentInputs:
    """How a student reads examples: the fields, and for rows the mean and spread of each number in the set."""

    kind: Architecture
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    inputs: tuple[str, ...]
    middle: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, columns: Mapping[str, np.ndarray], kind: Architecture | None, classes: tuple[str, ...]
    ) -> "StudentInputs":
        """How to read the set's `columns`; by default a CNN reads images, and an MLP reads rows."""
        inputs = tuple(columns)
        if strange := [name for name, column in columns.items() if column.dtype.kind not in "biuf"]:
            raise InvalidInput(
                f"students read images and numbers, and {strange[0]!r} is text: choose a set of images or numbers"
            )
        if columns[inputs[0]].ndim > 1:
            return cls(kind or "cnn", columns[inputs[0]].shape[1:], classes, inputs)
        if kind == "cnn":
            raise InvalidInput("a cnn reads images, and this set has rows: use --model mlp or logistic")
        scaling = Scaling.of(np.stack([columns[name] for name in inputs], axis=-1))
        return cls(kind or "mlp", (len(inputs),), classes, inputs, scaling.middle, scaling.spread)

    @property
    def is_image(self) -> bool:
        """Whether it reads one image, and not a row of numbers."""
        return not self.middle

    @property
    def settings(self) -> dict[str, Any]:
        """What the run folder stores of it."""
        return {"model": self.kind, "classes": list(self.classes), "inputs": list(self.inputs)}

    def fresh(self) -> Any:
        """The untrained model."""
        make: Any = {"cnn": CNN, "mlp": MLP, "logistic": Logistic}[self.kind]
        return make(self.shape, len(self.classes), key=jax.random.key(0))

    def numbers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Examples as the model reads them."""
        examples = gather(columns, self.inputs)
        return examples if self.is_image else self.scaling(examples)

    @property
    def scaling(self) -> Scaling:
        """The scaling of rows to the set's mean and spread."""
        return Scaling(self.middle, self.spread)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "StudentInputs":
        """The inputs from their fields in JSON."""
        fields: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
        return cls(**fields)


def _labelled(samples: SyntheticSet, labels: Source | None) -> tuple[Source, tuple[str, ...], Majority]:
    """Which labels are used, the classes, and the label of each sample with the number left out."""
    if labels == "raters" or (labels is None and (samples.folder / LABELS).exists()):
        given = Labels(samples)
        if not given.raters:
            raise InvalidInput(
                f"nobody has labelled {samples.folder} yet: run blindsight label {samples.folder}, or use --labels pre"
            )
        return "raters", given.classes, majority(given)
    chosen: Source = labels or "pre"
    proposed = {s.sample_id: s.proposed if chosen == "pre" else s.own for s in samples.samples}
    named = {sample: name for sample, name in proposed.items() if name is not None}
    if not named:
        raise InvalidInput(
            f"the examples of {samples.folder} have no proposed labels: label them with blindsight label"
        )
    classes = samples.classes or tuple(sorted(set(named.values())))
    return chosen, classes, Majority(named, 0, len(proposed) - len(named), ())


def _folder(samples: SyntheticSet, out: str | Path | None) -> Path:
    name = samples.folder.resolve().parent.name if samples.folder.name == "samples" else samples.folder.resolve().name
    return Path(out) if out is not None else Path("runs") / f"student-{runs.file_name(name)}"


def _evaluation_data(name: str, reading: StudentInputs, label: str, client: str | None) -> Population:
    """The population to evaluate on, checked against the student's inputs and classes before it is trained."""
    clients = source(name, public_options(name, _PUBLIC_CLIENTS, client))
    if missing := [field for field in (*reading.inputs, label) if field not in clients.fields]:
        raise InvalidInput(f"{name} has no field {missing[0]!r}, which the student needs: name other data")
    dtype, shape = clients.fields[label]
    if shape or dtype.kind not in "biuT":
        raise InvalidInput(f"{label!r} of {name} holds {dtype}{list(shape)}: name the field of the class with --label")
    names = clients.classes.get(label, ())
    if dtype == TEXT:
        names = as_classes(clients.columns[label], name)[1]
    if strange := [one for one in names if one not in reading.classes]:
        raise InvalidInput(
            f"{name} has the class {strange[0]!r}, which the student was not trained on: its classes are "
            f"{', '.join(reading.classes)}"
        )
    if not names and not 0 <= int(clients.columns[label].max(initial=0)) < len(reading.classes):
        raise InvalidInput(f"{name} has more than the {len(reading.classes)} classes of the student: name other data")
    return clients


def _refuse_protected(samples: SyntheticSet, public: Population, name: str, client: str | None, ledger: Ledger) -> None:
    """Refuse as public data the clients that the set is about, by name and by what the ledger knows of their data."""
    run = samples.folder.parent if samples.folder.name == "samples" else samples.folder
    if not (run / "run.json").is_file():
        return
    content = content_of_clients(name, {"client": client}, public)
    for protected in runs.open_run(run).read("run.json").get("settings", {}).get("population", ()):
        check_public(name, other_clients(name), protected, {}, what="--public")
        paid = ledger.entries(protected)
        if content and not paid:
            raise InvalidInput(
                f"the ledger {ledger.path} knows nothing of {protected}, so whether --public {name} are the clients "
                "that the set protects cannot be told: name the ledger that the set was paid from with --ledger"
            )
        known = [entry.event for entry in paid if entry.kind == "data"]
        if content and known and ledger.seal.sealed(content, begin=False) in known:
            raise PrivacyError(f"--public {name} are the clients that the set protects: evaluate on them with --test")
