"""Synthetic examples for people to label (T5 of Augenstein et al. 2020): nobody's own example is ever looked at.

One private round measures moments of all clients, a generator is fitted to them, and people label what it draws. Where
clients have no labels, each asks the primary model about its own examples, and the moments are of the classes that it
sees: what leaves the client is the same bounded sum. Labels are then proposed by the primary model, which is asked
about synthetic examples alone, and that costs nothing.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import runs
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.asking import Training, check_reference
from blindsight.inspection.contrast.task import contrast
from blindsight.inspection.model_cost import cost_of, with_model
from blindsight.inspection.report import Report
from blindsight.models.primary import Primary, gather, primary
from blindsight.runs import write_whole
from blindsight.samples import label_studio
from blindsight.samples.export import save_set
from blindsight.samples.synthetic_set import BY_GENERATOR, read_set
from blindsight.samples.views import ArmView
from blindsight.selection import Arms, everything

__all__ = ["labelling"]

_SHARES = {"moments": 0.9, "cues": 0.1}  # samples are what was asked for
_LABELS = "labels.jsonl"  # what people have said about a set lies beside it


def labelling(
    clients: Population,
    *,
    epsilon: float,
    delta: float,
    samples: int = 500,
    model: Any = None,
    reference: Population | None = None,
    inputs: str | Sequence[str] = "image",
    label: str = "label",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    train: bool = False,
    out: str | Path | None = None,
    **settings: Any,
) -> Report:
    """Synthetic examples of all clients, at least `samples` and equally many of every class, with proposed labels.

    `out` (else `runs/labelling-NAME`) gets the report, the set in `samples/`, and `label_studio.json` beside
    `label_studio.xml`. `model` proposes labels, and says what the classes are where clients have none; without it, the
    class that the generator was asked for is proposed. With `train`, samples come from a GAN that is trained on the
    clients. The other settings are those of `contrast`.

    **Guarantee**: everything in `out` less what is marked `simulation_only` is (epsilon, delta)-DP for each client. A
    model that was trained on the same clients adds its own (epsilon, delta).
    """
    folder = Path(out) if out is not None else Path("runs") / f"labelling-{runs.file_name(clients.name)}"
    if (folder / "samples" / _LABELS).exists():
        raise InvalidInput(f"{folder} has labels, which new samples would leave without theirs: choose another folder")
    if samples < 1:
        raise InvalidInput(f"ask for one sample at least, got {samples}")
    fields = [inputs] if isinstance(inputs, str) else list(inputs)
    _check_can_be_shown(clients, fields, ranges or {})
    check_reference(clients, reference)
    judge = None if model is None else primary(model)
    cost_of(judge, settings.get("population") or clients.name)  # refused now, before anything is spent
    judged = clients if judge is None else _with_classes(clients, judge, reference, inputs, label)
    classes = judged.classes.get(label, ()) if label in judged.fields else ()
    report = contrast(
        judged,
        Arms({"everyone": everything()}),
        epsilon=epsilon,
        delta=delta,
        reference=reference,
        inputs=inputs,
        label=label,
        ranges=ranges,
        shares=_SHARES,
        training=Training() if train else None,
        per_class=-(-samples // max(len(classes), 1)),
        task="labelling",
        title=f"Examples of {clients.name} to label",
        question=f"What do the data of {clients.name} look like, so that people can label them?",
        out=folder,
        **settings,
    )
    # from here on there is nothing but what was released
    (made,) = report.arms
    if made.samples is None and made.rows is None:
        raise InvalidInput("there are too few clients at this epsilon to make samples of: raise epsilon, or ask more")
    return _save(report, made, judge, fields, {field: clients.classes.get(field, ()) for field in fields}, folder)


def _check_can_be_shown(clients: Population, fields: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse what no generator makes, before anything is spent."""
    for field in fields:
        if field not in clients.fields:
            raise InvalidInput(f"{clients.name} has no field {field!r}: it has {', '.join(clients.fields)}")
        dtype, shape = clients.fields[field]
        if dtype == TEXT or (len(shape) < 2 and field not in clients.classes and field not in ranges):
            raise InvalidInput(
                f"no samples are made of {field!r} of {clients.name}: only images, fields with named classes and "
                f"numbers with a public range (--range {field}=0:100) can be labelled"
            )


def _with_classes(
    clients: Population, judge: Primary, reference: Population | None, inputs: str | Sequence[str], label: str
) -> Population:
    """The clients with labels: their own, or what the model says to each of them about its own examples."""
    judge.check(clients, inputs, label)
    if label in clients.fields:
        return clients
    found, _ = judge.predict_by_client(gather(clients.columns, inputs), clients.sizes)
    known = reference.classes.get(label) if reference is not None else None
    count = judge.scores(np.zeros_like(gather(clients.columns, inputs)[:1])).shape[1]  # public: the model's own
    judged = clients.replace({**clients.columns, label: found})
    judged.classes[label] = known if known and len(known) == count else tuple(map(str, range(count)))
    return judged


def _save(
    report: Report,
    made: ArmView,
    judge: Primary | None,
    fields: Sequence[str],
    names: Mapping[str, Sequence[str]],
    folder: Path,
) -> Report:
    """The set with its proposed labels, what Label Studio imports, and the report that says how many there are."""
    columns = {fields[0]: made.samples} if made.samples is not None else dict(made.rows or {})
    count = len(next(iter(columns.values())))
    proposed, scores, proposer = made.labels, None, BY_GENERATOR
    if judge is not None:
        proposed, scores = judge.predict(gather(columns, fields))
        proposer = judge.name
    extra: dict[str, Any] = {} if proposed is None else {"pred": proposed.astype(np.int64)}
    extra |= {} if scores is None else {"score": np.round(np.nan_to_num(scores.astype(np.float64)), 4)}
    about = {"proposer": proposer, "names": {field: list(said) for field, said in names.items() if said}}
    by = f", with labels proposed by {proposer}" if proposed is not None else ""
    answer = f"{count:,} synthetic examples for people to label{by}."
    promise = with_model(report.guarantee, judge, report.population["name"])  # what it says is in the set
    report = dataclasses.replace(report, answer=answer, guarantee=promise)
    runs.open_run(folder).write("guarantee.json", promise.to_dict())
    report.save(folder / "report.html")
    report.save_json(folder / "report.json")
    save_set(
        [made],
        folder / "samples",
        title=report.title,
        guarantee=report.guarantee,
        classes=report.class_names,
        question=report.question,
        extra=extra,
        about=about,
        created=report.created,
    )
    written = read_set(folder)
    write_whole(folder / "label_studio.json", label_studio.as_text(label_studio.tasks(written)))
    write_whole(folder / "label_studio.xml", label_studio.config(written))
    return report
