"""`blindsight demo`: a model on 3,400 phones starts to fail, and nobody may look at the data."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape

from blindsight import data, inspect, runs
from blindsight.accounting.ledger import Ledger
from blindsight.backends import use_cores
from blindsight.data import Population, faults
from blindsight.inspection.report import Report
from blindsight.models.classifiers import CNN
from blindsight.models.equinox_models import fit
from blindsight.models.primary import Primary, primary
from blindsight.progress import Progress, quiet
from blindsight.samples import gallery
from blindsight.wording import percent

__all__ = ["demo"]

EPSILON, DELTA = 8.0, 1e-6
FAULT = "invert:0.5"
LOW, HIGH = 0.5, 0.9  # fixed in advance: wrong more often than right, and as good as before
EXAMPLES = (16, 32)  # characters on each phone


def demo(
    *,
    folder: str | Path = "runs",
    clients: int = 3400,
    progress: Progress = quiet,
) -> Iterator[RenderableType]:
    """Run the demonstration and yield what to print; leaves a run directory in `folder`."""
    use_cores()
    yield f"[bold]1. A model.[/] It reads handwriting on {clients:,} phones, and was trained on other, public writers."
    progress("training on public writers", 0, 1)
    public = data.embedded("handwriting", clients=300, seed=1, examples=EXAMPLES)
    model = _train(public)
    phones = data.embedded("handwriting", clients=clients, examples=EXAMPLES)
    before = _accuracy(model, phones)

    yield "[bold]2. An update.[/] Since last night, users correct the model's output far more often:"
    progress("the update goes out", 0, 1)
    updated = faults.apply(phones, FAULT)
    after = _accuracy(model, updated)
    yield (
        f"   {percent(1 - before)} of characters were corrected before, {percent(1 - after)} are now "
        f"[yellow](simulation_only: the phones' own counts)[/]."
    )
    yield "   Why? The characters stay on the phones, and nobody may look at them.\n"

    yield "[bold]3. One private round.[/] Every phone computes three bounded vectors from its own characters:"
    yield "   moments, cues, and a vote for the fault whose removal repairs the model. Noise is added to the sums."
    out, _ = runs.new_folder("demo", folder)
    ledger = Ledger(out / "ledger.db")
    ledger.set_budget("phones", epsilon=EPSILON, delta=DELTA)
    report = inspect.slices(
        updated,
        thresholds=(LOW, HIGH),
        model=model,
        reference=data.embedded("handwriting", clients=150, seed=2, examples=EXAMPLES),  # not what it was trained on
        epsilon=EPSILON,
        delta=DELTA,
        session=inspect.Session(out=out, ledger=ledger, population="phones", progress=progress),
    )
    yield _MeanDigits(report)
    yield "   Mean synthetic image of each digit: healthy phones above, failing phones below.\n"
    yield f"[bold]4. The diagnosis.[/] [bold red]{escape(report.verdict)}[/]"
    for finding in [one for one in report.ranked if one.kind == "cue" and one.verdict == "detected"][:3]:
        yield f"   {escape(finding.statement)}"
    yield f"\n   [green]{escape(str(report.guarantee))}[/]"
    yield f"   [dim]{escape(report.guarantee.explain())}[/]"
    verified = ledger.verify().raise_if_broken()
    yield f"   The ledger has {verified.entries} entries, its chain is intact, and the phones' budget is spent.\n"
    yield "[bold]5. Next steps.[/]"
    for number, step in enumerate(report.next_steps, 1):
        yield f"   {number}. {escape(step)}"
    yield f"\nThe report is [bold]{escape(str(out / 'report.html'))}[/]: open it in any browser."
    studio = f"blindsight studio {folder} --ledger {out / 'ledger.db'}"
    yield f"On one page with other runs:  [bold]{escape(studio)}[/]"
    yield "Inspect your own data:  [bold]blindsight inspect slices FILE --client COLUMN --model MODEL.onnx[/]"


def _train(public: Population) -> Primary:
    columns, classes = public.columns, len(public.classes["label"])
    model = CNN(columns["image"].shape[1:], classes, key=jax.random.key(0))
    trained = fit(model, columns["image"], columns["label"], epochs=4, key=jax.random.key(1))
    return primary(trained, name="the keyboard's model", shape=columns["image"].shape[1:])


def _accuracy(model: Primary, people: Population) -> float:
    """Accuracy on everyone's characters, without noise: available in a simulation only."""
    return float(np.mean(model.predict(people.columns["image"])[0] == people.columns["label"]))


@dataclasses.dataclass(frozen=True)
class _MeanDigits:
    """The mean image of every class, one row per arm, at half size, as many as fit the terminal."""

    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = 1 if console.color_system else 2
        rows: list[np.ndarray] = []
        for arm in self.report.arms:
            if arm.samples is not None:
                means = [mean[4:24:2, 4:24:2] for mean in gallery.class_means(arm.samples, arm.labels).values()]
                fit = max(1, options.max_width // (columns * 11))
                rows.append(np.concatenate([np.pad(mean, ((0, 1), (0, 1))) for mean in means[:fit]], axis=1))
        if rows:
            yield gallery.Pixels(np.concatenate(rows))
