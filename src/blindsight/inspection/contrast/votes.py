"""Diagnosis by votes: every client undoes each candidate fault on its own failing examples and votes for the best one.

The best candidate is the one whose removal repairs the primary model most. A vote is one of the candidates or "none",
so an arm's votes are one noisy histogram. Each client runs the primary model on its examples once for each candidate
and keeps, per example, which candidates would correct the prediction (`repaired`). This stays on the client, like every
output of the primary model.

**When a client votes "none".** In an arm, let r_k be the share of the client's tried failing examples that undoing
fault k corrects, and `failing` the share of all the client's examples that fail and are in the arm. Undoing k would
raise the client's accuracy by roughly failing * r_k. The client votes for the k with the largest gain, if it corrects
at least half of the failures (r_k >= 1/2) and raises the accuracy by at least `margin`. Ties and smaller gains count as
"none". A healthy client makes few mistakes, so no candidate can gain that much by chance.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data import faults
from blindsight.data.faults import Fault
from blindsight.data.missing import is_missing
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.released import NONE, ArmVotes
from blindsight.inspection.measuring import Measured
from blindsight.models.primary import Primary, gather

__all__ = ["FIELD", "NONE", "ArmVotes", "VotesPart", "candidates", "observe", "votes_part"]

FIELD, TRIED = "repaired", "tried"


@dataclasses.dataclass(frozen=True)
class VotesPart:
    """The part of a measurement that holds votes: a one-hot row for each arm."""

    labels: tuple[str, ...]  # the candidates, then "none"
    arms: tuple[str, ...]
    disjoint_by_client: bool
    margin: float = 0.15
    name: str = "votes"

    def __post_init__(self) -> None:
        if not 0 < self.margin <= 1:
            raise InvalidInput(f"the margin of a vote must be a share of examples, got {self.margin}")

    @property
    def coordinates(self) -> int:
        """One for each candidate of each arm, "none" included."""
        return len(self.labels) * len(self.arms)

    @property
    def bound(self) -> float:
        """One vote; one in each arm for clients that can be in several."""
        return 1.0 if self.disjoint_by_client else math.sqrt(len(self.arms))

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The client's vote in each arm; zeros for arms without examples."""
        del key
        repaired, tried = batch[FIELD].astype(jnp.float32), batch[TRIED].astype(jnp.float32)
        wrong = 1 - batch["is_correct"].astype(jnp.float32)
        tries = jnp.sum(masks * tried[None, :], axis=1, keepdims=True)
        fixed = (masks * tried[None, :]) @ repaired / jnp.maximum(tries, 1.0)  # (arms, candidates)
        failing = jnp.sum(masks * wrong[None, :], axis=1) / jnp.maximum(jnp.sum(batch.weight), 1.0)
        best, ordered = jnp.argmax(fixed, axis=1), jnp.sort(fixed, axis=1)
        lead = ordered[:, -1] - (ordered[:, -2] if fixed.shape[1] > 1 else 0.0)
        enough = (ordered[:, -1] >= 0.5) & (ordered[:, -1] * failing >= self.margin) & (lead > 1e-6)
        choice = jnp.where(enough, best, len(self.labels) - 1)
        votes = jax.nn.one_hot(choice, len(self.labels), dtype=jnp.float32)
        is_in = jnp.any(masks > 0, axis=1)
        return jnp.where(is_in[:, None], votes, jnp.zeros_like(votes)).ravel()

    def read(self, measured: Measured) -> dict[str, ArmVotes]:
        """The noisy tally of each arm."""
        counts = np.asarray(measured.sums, np.float64).reshape(len(self.arms), len(self.labels))
        rows = zip(self.arms, counts, strict=True)
        return {arm: ArmVotes(arm, self.labels, row, measured.noise_std) for arm, row in rows}


def candidates(
    population: Population, inputs: str | Sequence[str] = "image", label: str = "label"
) -> tuple[Fault, ...]:
    """The faults that fit the primary model's inputs and can be undone, at least approximately.

    Each fault says itself which of its parameters are suspects (`data.damage`). Labels are suspected of being swapped
    where there are more than two classes.
    """
    fields = _several(inputs)
    spelled = list[str]()
    for field in fields:
        if field not in population.fields:
            raise InvalidInput(
                f"{population.name} has no field {field!r}: choose one of {', '.join(population.fields)} as the input"
            )
        dtype, shape = population.fields[field]
        if len(shape) >= 2:
            spelled += _suspects("image", dtype, shape)
        elif dtype.kind in "iuf" and not shape and field not in population.classes:
            spelled += _suspects("number", dtype, shape, field)
    if len(population.classes.get(label, ())) > 2:  # of two, a swap undoes every mistake, whatever made it
        spelled += _suspects("label", np.dtype(np.int32), (), "" if label == "label" else label)
    if not spelled:
        raise InvalidInput(f"no fault that can be undone fits {', '.join(fields)} of {population.name}: use cues")
    return tuple(fault for words in spelled for fault in faults.parse(words))


def _suspects(kind: str, dtype: np.dtype[Any], shape: tuple[int, ...], field: str = "") -> list[str]:
    """The faults of that type of field that clients vote on by default, as one spells them."""
    named = [f"field={field}"] if field else []
    return [
        ":".join([name, *named, *([parameters] if parameters else [])])
        for name, damage in faults.FAULTS.items()
        if damage.kind == kind and damage.undo is not None and damage.suspects is not None
        for parameters in damage.suspects(dtype, shape)
    ]


def observe(
    population: Population,
    primary: Primary,
    suspects: Sequence[Fault | str],
    *,
    inputs: str | Sequence[str] = "image",
    label: str = "label",
    most: int = 8,
) -> Population:
    """The population with `repaired`: whether undoing each candidate corrects the prediction of each failing example.

    Needs `selection.observe` first.

    Args:
        population: Clients after they have run the model.
        primary: The primary model.
        suspects: The faults to undo.
        inputs: Fields that the model reads.
        label: Field holding the true class.
        most: Try this many failing examples of each client, the first complete ones (`tried`).
    """
    columns = dict(population.columns)
    if "is_correct" not in columns:
        raise InvalidInput(
            f"votes need the primary model's mistakes: call selection.observe on {population.name}, with labels, first"
        )
    chosen = _as_faults(suspects)
    tried = _first_failing(population, most, _several(inputs))
    rows = np.flatnonzero(tried)
    sizes = np.bincount(np.repeat(np.arange(population.size), population.sizes)[rows], minlength=population.size)
    repaired = np.zeros((population.n_examples, len(chosen)), bool)
    for number, fault in enumerate(chosen):
        some = {field: column[rows] for field, column in columns.items() if field in (label, *_several(inputs))}
        undone = _undo(population, fault, some, (*_several(inputs), label))
        predicted, _ = primary.predict_by_client(gather(undone, inputs), sizes)
        repaired[rows, number] = predicted == undone[label]
    observed = population.replace({**columns, FIELD: repaired, TRIED: tried})
    observed.classes[FIELD] = tuple(str(fault) for fault in chosen)
    return observed


def votes_part(
    population: Population,
    arms: tuple[str, ...],
    *,
    disjoint_by_client: bool,
    margin: float | None = None,
) -> VotesPart:
    """The part that counts the votes of `population`, which `observe` has prepared.

    The margin is 15 % of a client's examples if arms consist of whole clients, and 8 % if they consist of examples: a
    fault may then affect only some of a client's examples.
    """
    if FIELD not in population.fields:
        raise InvalidInput(f"{population.name} has no votes: pass the population that votes.observe returns")
    gain = (0.15 if disjoint_by_client else 0.08) if margin is None else margin
    return VotesPart((*population.classes[FIELD], NONE), tuple(arms), disjoint_by_client, gain)


def _as_faults(suspects: Sequence[Fault | str]) -> tuple[Fault, ...]:
    chosen = tuple(fault for suspect in suspects for fault in faults.parse(suspect))
    if not chosen or len(set(map(str, chosen))) < len(chosen):
        raise InvalidInput(f"list one or more different faults to vote on, got {[str(fault) for fault in chosen]}")
    for fault in chosen:
        if fault.damage.undo is None:
            raise InvalidInput(f"{fault.name} cannot be undone, so clients cannot vote for it: {fault.damage.lost}")
    return chosen


def _first_failing(population: Population, most: int, inputs: Sequence[str]) -> np.ndarray:
    """The first `most` examples of each client that the primary model gets wrong although no input is missing."""
    wrong = ~population.columns["is_correct"].astype(bool)
    for field in inputs:  # what is missing cannot be undone
        if population.columns[field].ndim == 1:
            wrong &= ~is_missing(population.columns[field], has_classes=field in population.classes)
    before = np.concatenate([[0], np.cumsum(wrong)])
    place = before[:-1] - np.repeat(before[population.offsets[:-1]], population.sizes)
    return wrong & (place < most)


def _undo(
    population: Population, fault: Fault, columns: dict[str, np.ndarray], read: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """These columns with the fault undone as far as possible: shifted-out pixels and grey levels stay lost."""
    change, settings, kind = fault.damage.undo or fault.damage.change, fault.settings, fault.damage.kind
    if kind == "label":
        names = population.classes[read[-1]]
        wanted = [settings[which] for which in "ab"]
        settings = {
            w: p if v is None else names.index(str(v)) for p, (w, v) in enumerate(zip("ab", wanted, strict=True))
        }
    if kind == "row":
        return {**columns, **change(columns, np.zeros(len(columns[read[0]]), np.int64), **settings)}
    undone = dict(columns)
    for field in read[:-1] if kind != "label" else read[-1:]:
        fits = len(population.fields[field][1]) >= 2 if kind == "image" else True
        if fits and fault.field in (None, field) and len(columns[field]):
            undone[field] = change(columns[field], **settings)
    return undone


def _several(inputs: str | Sequence[str]) -> tuple[str, ...]:
    return (inputs,) if isinstance(inputs, str) else tuple(inputs)
