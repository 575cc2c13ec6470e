"""`bias` (T6): what has the population that a model serves which its public training data lack?

One round over all clients measures shares by class and slice, habits, and of pictures the moments of one half of the
clients (`bias_measures`). What a discriminator learns from these (`bias_images`) a second round confirms on the other
half. Of texts, a model of public text says which sentences are unlikely (`bias_text`). Everything is compared with
public data whose own draw counts too (`bias_findings`). All rounds together are (epsilon, delta)-DP for each client.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.ledger import Ledger, known_as
from blindsight.accounting.so_far import spent_so_far
from blindsight.backends import Backend, Simulation
from blindsight.data.population import Population
from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspection.bias import findings as bias_findings
from blindsight.inspection.bias.images import KINDS, Discriminator
from blindsight.inspection.bias.preparing import Prepared, prepare
from blindsight.inspection.bias.rounds import Rounds, kinds_of
from blindsight.inspection.bias.section import Bias, Compared, Kind
from blindsight.inspection.model_cost import cost_of, with_model
from blindsight.inspection.report import Report
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.keys import Key
from blindsight.models.primary import Primary, primary
from blindsight.samples.views import ArmView

__all__ = ["bias"]

NOTES = (
    "Tests are on released sums, whose noise is known, never on samples. They count the draw of the private clients "
    "and that of the public ones, and are corrected together (Holm).",
    "A habit is a mean over ten of a client's examples; who has fewer has none.",
)
LEARNT = (
    "What a model says is compared with the half of the public clients that it was not trained on. A model of your own "
    "must not have been trained on the reference, or it will be surer of it than of anything else."
)
CONFIRMED = (
    "Samples are synthetic, from a generator that knows half of the clients by what was released. Kinds are fixed "
    "before the other half of the clients says how many of its own pictures are of each: shares are of these.",
)


def bias(
    clients: Population,
    *,
    reference: Population | None,
    epsilon: float,
    delta: float,
    model: Any = None,
    inputs: str | Sequence[str] = "image",
    label: str = "label",
    by: str | None = None,
    values: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    case: Case = "lower",
    vocabulary_size: int = 10_000,
    discover: bool = False,
    train: bool | WordTraining = False,
    steps: int = 200,
    population: str | None = None,
    backend: Callable[[Population], Backend] = Simulation,
    ledger: Ledger | None = None,
    key: Key | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
) -> Report:
    """What have `clients` that the public `reference` lacks: classes, slices, habits, kinds of pictures, sentences?

    `inputs` are pictures, one text, or numbers and categories. Where clients have labels their `classes` are compared,
    those of the reference if left out (one that it does not list has to be named); else what `model` predicts, and of
    how much it is unsure. `by` names a public field to divide by, with its `values` if it is a text. Of texts,
    `discover` finds words of unlikely sentences and `train` a second model that says some, each for its part of the
    epsilon. `steps` refine generators of pictures.

    **Guarantee**: everything in the report, and in the run directory `out` less what is marked `simulation_only`, is
    (epsilon, delta)-DP for each client; the reference is read as it is, for it is public.
    """
    if reference is None:
        raise InvalidInput("bias is a comparison with public data: name those that the model was trained on, reference")
    training = WordTraining() if train is True else train or None
    settings: dict[str, Any] = {"task": "bias", "population": population or clients.name, "clients": clients.size}
    settings |= {"reference": reference.name, "reference_data": reference.fingerprint, "epsilon": epsilon}
    settings |= {"delta": delta, "inputs": inputs, "label": label, "by": by, "values": list(values or ())}
    settings |= {"classes": list(classes or ()), "case": case, "vocabulary_size": vocabulary_size, "steps": steps}
    settings |= {"discover": discover, "train": dataclasses.asdict(training) if training else None}
    judge = model if model is None or isinstance(model, Primary) else primary(model)
    settings |= {"model": judge and judge.name, "ranges": {field: list(ends) for field, ends in (ranges or {}).items()}}
    settings |= {"simulation_only": {"data": clients.fingerprint}}
    cost_of(judge, population or clients.name)  # refused now, before a run begins
    run = runs.create("bias", settings) if out is None else runs.begin(out, "bias", settings)
    has_released = lambda: checkpoints.newest(run.path / "round-1") is not None  # noqa: E731
    with run.alone(), run.taken_back_if_refused(has_released):
        ledger, name = ledger or Ledger(), known_as(clients, population)
        ledger.check_names(name)
        seed = hashlib.blake2b(run.read("run.json")["id"].encode(), digest_size=32).digest()  # public, and no data
        progress("looking at every client's examples", 0, 4)
        asked: dict[str, Any] = {"inputs": inputs, "label": label, "by": by, "values": values, "classes": classes}
        asked |= {"ranges": ranges or {}, "model": judge, "case": case, "vocabulary_size": vocabulary_size}
        prepared = prepare(clients, reference, seed=seed, **asked)
        if prepared.likely is None and (discover or training):
            raise InvalidInput("words are discovered and models of words trained on text: name one as the input")
        left = epsilon * (1 - training.share) if training else epsilon
        both = (prepared.clients, prepared.reference)
        root = (key or keys.root()).bound_to(lambda: [settings, *(one.fingerprint for one in both)])
        public = Key(seed, is_reproducible=True)
        question = Rounds(run, prepared, left, delta, discover, steps, public, backend, root)
        question.pays(ledger, name, progress)
        tested = question.first_round()
        learnt = question.second_round(tested) if prepared.image else None
        words = question.discover() if discover else None
        said = question.train(training, epsilon, words) if training else None
        findings, compared = bias_findings.conclude(tested)
        report = Report(
            title="What do the training data lack?",
            task="bias",
            question=f"What has {name} that {reference.name}, which is public, has not?",
            arms=_views(learnt),
            findings=tuple(findings),
            diagnoses=(),
            guarantee=with_model(question.promise(training), judge, name),
            releases=tuple(question.releases),
            population={"name": name, "clients": clients.size, "classes": list(prepared.classes)},
            notes=_notes(prepared, learnt),
            ledger=spent_so_far(question.ledger, name, delta),
            bias=Bias(
                reference.name, reference.size, tuple(compared), _kinds(learnt, compared, prepared.classes), words, said
            ),
        )
        run.write("guarantee.json", report.guarantee.to_dict())
        report.save(run.path / "report.html")
        report.save_json(run.path / "report.json")
        if any(arm.samples is not None for arm in report.arms):
            report.save_samples(run.path / "samples")
        return report


def _kinds(found: Discriminator | None, compared: Sequence[Compared], classes: tuple[str, ...]) -> tuple[Kind, ...]:
    """The kinds as they are shown, those with the largest difference first."""
    if found is None:
        return ()
    lines = {one.name: one for one in compared if one.about == "kind"}
    names = kinds_of([found.describe(kind, classes) for kind in range(KINDS)]).names[:-1]
    kinds = [Kind(lines[name], found.ratio(kind), found.shown(kind)) for kind, name in enumerate(names)]
    return tuple(
        sorted(
            (kind for kind in kinds if len(kind.samples)),
            key=lambda kind: kind.compared.training.value - kind.compared.serving.value,
        )
    )


def _views(found: Discriminator | None) -> tuple[ArmView, ...]:
    """Samples of both sides, equally many; without pictures the two are only named."""
    if found is None:
        return (ArmView("training"), ArmView("serving"))
    more = np.concatenate([found.shown(kind) for kind in range(KINDS)])
    usual = np.flatnonzero(found.kind == KINDS)
    usual = usual[np.argsort(np.abs(found.log_ratios[usual]), kind="stable")]
    count = min(len(more), len(usual))
    if not count:
        return (ArmView("training"), ArmView("serving"))
    return (
        ArmView("as in training", samples=found.samples[usual[:count]]),
        ArmView("more in serving", samples=more[:count]),
    )


def _notes(asked: Prepared, found: Discriminator | None) -> tuple[str, ...]:
    is_learnt = any(one.is_learnt for one in asked.divisions)
    habits = () if asked.limits else ("Too few public clients have ten examples for habits to be compared.",)
    return (*NOTES, *habits, *((LEARNT,) if is_learnt else ()), *(CONFIRMED if found is not None else ()))
