"""`contrast`: what differs between arms of clients whose data nobody may look at, and which fault explains it.

Two releases at most. If arms are quarters of clients by accuracy, where the quarters begin is released first. Then one
round over all clients measures every arm at once: moments, from which synthetic samples are made; cues, whose
differences are tested; votes for the fault that repairs the primary model. All of it together costs (epsilon, delta).
Every release is written into the run directory as it is made, so that an inspection which a spent budget or a crash
has stopped goes on from there, and nothing is paid for twice.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import checkpoints, keys, runs
from blindsight.accounting.assumptions import CLASSES_LISTED
from blindsight.accounting.events import Composed, Event, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, known_as
from blindsight.accounting.so_far import spent_so_far
from blindsight.backends import Backend, Simulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring
from blindsight.inspection.contrast.asking import Asked, Training, check_reference, observe, parts_of
from blindsight.inspection.contrast.reading import notes, read, samples, views
from blindsight.inspection.contrast.training import train_arms
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.model_cost import cost_of, with_model
from blindsight.inspection.report import Report
from blindsight.keys import Key
from blindsight.models.primary import Primary, primary
from blindsight.runs import Run
from blindsight.selection import ASSUMED, FORMINGS, Arms, Criterion, Forming, by_accuracy

__all__ = ["Quarters", "contrast"]

_THRESHOLDS = "thresholds.json"


@dataclasses.dataclass(frozen=True)
class Quarters:
    """Clients below the `low` and above the `high` quantile of accuracy (T4); where these lie is found with privacy."""

    low: float = 0.25
    high: float = 0.75


def contrast(
    clients: Population,
    arms: Arms | Mapping[str, Criterion] | Quarters,
    *,
    epsilon: float,
    delta: float,
    model: Any = None,
    reference: Population | None = None,
    inputs: str | Sequence[str] = "image",
    label: str = "label",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    suspects: Sequence[str] | None = None,
    shares: Mapping[str, float] | None = None,
    forming: Forming = "zero_fill",
    training: Training | None = None,
    per_class: int = 8,
    task: str = "contrast",
    title: str = "What differs",
    question: str = "",
    population: str | None = None,
    backend: Callable[[Population], Backend] = Simulation,
    ledger: Ledger | None = None,
    key: Key | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
) -> Report:
    """Measure every arm in one private round, compare them, name the fault that explains the first, show samples.

    `model` is the primary model: a function, a classifier, an ONNX file or a `Primary`; without one, nobody can vote.
    `reference` are public data of the same kind, in which nothing is wrong: what arms look like there is expected.
    `ranges` are the public ranges of the numbers among `inputs`, without which no rows are made. `suspects` are the
    faults to vote on, all that fit if left out. With `training`, samples come from a GAN that is trained on the clients
    of every arm, and not from moments. `population` is the clients' name in the ledger.

    **Guarantee**: everything in the report, and in the run directory `out` less what is marked `simulation_only`, is
    (epsilon, delta)-DP for each client. A model that was trained on the same clients adds its own (epsilon, delta).
    """
    check_reference(clients, reference)
    checked, ledger = None if model is None else primary(model), ledger or Ledger()
    paying: dict[str, Any] = {"population": known_as(clients, population), "ledger": ledger}
    ledger.check_names(paying["population"])
    cost_of(checked, population or clients.name)  # refused now, before a run begins
    run = _begin(out, clients, arms, epsilon, delta, forming, checked, suspects, training, task)
    with run.alone(), run.taken_back_if_refused(lambda: _has_released(run)):
        root = key or keys.root()
        progress("running the model on every client's examples", 0, 4)
        known = ranges or {}
        look = functools.partial(observe, model=checked, inputs=inputs, label=label, suspects=suspects, ranges=known)
        normal = None if reference is None else look(reference, is_public=True)
        observed = look(clients)
        asked = Asked(observed, normal, inputs, label, known, epsilon, delta, forming, shares, training)
        said = (task, _exact(arms))
        root = root.bound_to(lambda: [*said, asked.facts()])
        paid_by = {**paying, "run": f"{run.path.name} {run.read('run.json')['id']}"}
        spent, releases = list[Event](), list[Mapping[str, Any]]()
        if isinstance(arms, Quarters):
            progress("finding where the quarters begin", 1, 4)
            arms, event, row = _quarters(run, asked, arms, backend, root, paid_by)
            spent.append(event)
            releases.append(row)
        fitted = (arms if isinstance(arms, Arms) else Arms(arms)).fit(observed)
        progress("measuring everyone in one round", 2, 4)
        measured, parts = _measure(run, asked, fitted, bool(spent), backend, root, paid_by)
        spent.append(measured.event)
        releases.extend(measured.releases)
        made, labels = [{} for _ in fitted], None
        if training is not None:
            doing = functools.partial(progress, "training generators")
            about: dict[str, Any] = {"per_class": per_class, "run": run, "backend": backend, "progress": doing}
            about["model"] = "" if checked is None else checked.digest
            secret = root.derive("training")
            made, labels, costs = train_arms(asked, training, fitted, spent, key=secret, **about, **paying)
            spent.extend(costs)
        guarantee = with_model(_promise(asked, spent, fitted), checked, paying["population"])
        run.write("guarantee.json", guarantee.to_dict())
        # from here on there is nothing but what was released
        if "moments" in parts:
            doing = functools.partial(progress, "fitting the generator")
            made, labels = samples(measured, parts["moments"], per_class, root, doing)
        listed, diagnoses = read(measured, parts, fitted, normal)
        report = Report(
            title=title,
            task=task,
            question=question or f"What differs between {' and '.join(fitted)}?",
            arms=views(measured, parts["cues"], made, labels),
            findings=tuple(listed),
            diagnoses=tuple(diagnoses),
            guarantee=guarantee,
            releases=tuple(releases),
            population=_public(str(paying["population"]), clients, label),
            notes=notes(fitted, guarantee, normal),
            ledger=spent_so_far(ledger, paying["population"], delta),
        )
        _save(report, run)
        return report


def _has_released(run: Run) -> bool:
    return checkpoints.newest(run.path) is not None or (run.path / _THRESHOLDS).exists()


def _promise(asked: Asked, spent: Sequence[Event], arms: Arms) -> Guarantee:
    """What everything that was spent amounts to, with who took part in words.

    Names of classes are in the report as they are. Those of embedded clients come from no data; those of others may
    have been read off the clients' by a loader, and nobody but who brought them knows whether anyone could know them.
    """
    words = f"full: all {asked.clients.size:,}, {FORMINGS[asked.forming]}"
    if asked.training is not None:
        words += f"; training: poisson, {asked.training.cohort:,.0f} expected in a round"
    looked_at = (*asked.fields, asked.label, *arms.fields)
    is_listed = not asked.clients.synthetic and any(field in asked.clients.classes for field in looked_at)
    return certify(
        spent[0] if len(spent) == 1 else Composed(tuple(spent)),
        delta=asked.delta,
        participation=words,
        assumptions=((ASSUMED,) if asked.forming == "eligible" else ()) + ((CLASSES_LISTED,) if is_listed else ()),
    )


def _save(report: Report, run: Run) -> None:
    report.save(run.path / "report.html")
    report.save_json(run.path / "report.json")
    if any(view.samples is not None or view.rows is not None for view in report.arms):
        report.save_samples(run.path / "samples")


def _public(name: str, clients: Population, label: str) -> dict[str, Any]:
    """What may be said of the clients without a release."""
    return {"name": name, "clients": clients.size, "classes": list(clients.classes.get(label, ()))}


def _exact(arms: Arms | Mapping[str, Criterion] | Quarters) -> str:
    return f"{arms}" if isinstance(arms, Quarters) else (arms if isinstance(arms, Arms) else Arms(arms)).exact


def _begin(
    out: str | Path | None,
    clients: Population,
    arms: Any,
    epsilon: float,
    delta: float,
    forming: Forming,
    model: Primary | None,
    suspects: Sequence[str] | None,
    training: Training | None,
    task: str,
) -> Run:
    """The run directory; one that another inspection has begun is refused."""
    if forming not in FORMINGS:
        raise InvalidInput(f"arms are formed by {' or '.join(FORMINGS)}, got {forming!r}")
    rule = _exact(arms)
    settings = {"task": task, "population": clients.name, "clients": clients.size, "arms": rule, "epsilon": epsilon}
    settings |= {"delta": delta, "forming": forming, "suspects": list(suspects) if suspects else None}
    settings |= {"training": dataclasses.asdict(training) if training else None}
    settings |= {"simulation_only": {"data": clients.fingerprint}}
    settings |= {"model": None if model is None else {"name": model.name, "digest": model.digest}}
    return runs.create(task, settings) if out is None else runs.begin(out, task, settings)


def _quarters(
    run: Run,
    asked: Asked,
    arms: Quarters,
    backend: Callable[[Population], Backend],
    root: Key,
    paying: Mapping[str, Any],
) -> tuple[Arms, Event, Mapping[str, Any]]:
    """The arms, from where the quarters begin: released now, or as this run has released it before."""
    if not (run.path / _THRESHOLDS).exists():
        population = asked.clients
        if "is_correct" not in population.fields:
            raise InvalidInput(
                f"quarters of accuracy need a primary model and labels: {population.name} has no {asked.label!r}, or "
                f"no model was named"
            )
        everything = parts_of(population, asked, ("failing", "healthy"), disjoint_by_client=True)
        mechanism = asked.mechanisms(everything, with_thresholds=True)["thresholds"]
        found = measuring.thresholds(
            backend(population),
            clients=population.size,
            epsilon=certify(mechanism.event_for(measuring.CELLS), delta=asked.delta).epsilon,
            delta=asked.delta,
            key=root,
            probabilities=(arms.low, arms.high),
            **paying,
        )
        low, high = found.low.value, max(found.low.value, found.high.value)
        row = {"what": "thresholds", "epsilon": found.guarantee.epsilon, "coordinates": measuring.CELLS}
        row["noise_std"] = mechanism.noise_multiplier * np.sqrt(measuring.LEVELS)
        about = {
            "event": to_json(found.event),
            "release": row,
            "ledger": measuring.witness(paying["ledger"], paying["population"]),
        }
        run.write(_THRESHOLDS, {"low": low, "high": high, **about})
    kept = run.read(_THRESHOLDS)
    paying["ledger"].verify(kept["ledger"]).raise_if_broken()
    return by_accuracy(kept["low"], kept["high"]), from_json(kept["event"]), kept["release"]


def _measure(
    run: Run,
    asked: Asked,
    arms: Arms,
    with_thresholds: bool,
    backend: Callable[[Population], Backend],
    root: Key,
    paying: Mapping[str, Any],
) -> tuple[Measurement, dict[str, Any]]:
    """The one round, made now, or as this run has made it before."""
    population = asked.clients if asked.forming == "zero_fill" else arms.eligible(asked.clients)
    parts = parts_of(population, asked, tuple(arms), disjoint_by_client=arms.disjoint_by_client)
    by_name = {part.name: part for part in parts}
    like = {part.name: np.zeros(part.coordinates) for part in parts}
    if (path := checkpoints.newest(run.path)) is not None:
        kept = checkpoints.load(path, like)
        paying["ledger"].verify(kept.facts["ledger"]).raise_if_broken()  # what is read again was paid for there
        released = {name: Measured(np.array(kept.tree[name]), **kept.facts["parts"][name]) for name in like}
        event = from_json(kept.facts["event"])
        again = Measurement(released, tuple(arms), kept.facts["clients"], event, certify(event, delta=asked.delta))
        return again, by_name
    mechanisms = asked.mechanisms(parts, with_thresholds=with_thresholds)
    measured = measuring.measure(
        backend(population),
        arms,
        parts,
        {name: mechanism for name, mechanism in mechanisms.items() if name in by_name},
        clients=population.size,
        delta=asked.delta,
        key=root.derive("measure"),
        forming=asked.forming,
        note=arms.rule,
        **paying,
    )
    facts: dict[str, Any] = {"clients": measured.clients, "event": to_json(measured.event)}
    facts["ledger"] = measuring.witness(paying["ledger"], paying["population"])
    facts["parts"] = {name: {"noise_std": m.noise_std, "epsilon": m.epsilon} for name, m in measured.parts.items()}
    checkpoints.write(run.path, 1, {name: part.sums for name, part in measured.parts.items()}, facts)
    return measured, by_name
