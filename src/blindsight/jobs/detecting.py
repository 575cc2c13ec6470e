"""`blindsight plan --detect` on the asker's own public data: would an inspection find the fault?"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from blindsight.backends import use_cores
from blindsight.data import faults
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.data.sources import source
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.bias.comparison import confirming_half, learning_half
from blindsight.inspection.contrast.foresight import Foresight
from blindsight.inspection.contrast.outlook import Chance, Outlook
from blindsight.inspection.contrast.question import Comparing, Mistakes, Sanity, Slices
from blindsight.inspection.question import Public, complete, identity_of
from blindsight.inspection.unknowns.foresight import WordForesight
from blindsight.jobs.inspecting import only_input, range_of
from blindsight.jobs.models import public_model, read_model
from blindsight.jobs.public import other_clients
from blindsight.jobs.tables import is_private_table, read_clients, schema_of
from blindsight.models.primary import Primary, in_order

__all__ = ["DetectRequest", "run_detect"]

_REFERENCE_CLIENTS = 300  # of an embedded population
_PLANTED = 300  # public clients that the fault is planted in
_POPULATIONS = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectRequest:
    """The fault, the clients that would be asked, and the public data and model to simulate them with."""

    fault: str
    fraction: float
    clients: int
    epsilon: float
    delta: float
    reference: str
    model: str | Path | None = None
    client: str | None = None
    inputs: Sequence[str] = ()
    label: str = "label"
    types: Sequence[str] = ()
    schema: str | Path | None = None
    ranges: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InvalidInput(
                f"the fraction of clients with the fault must be above 0 and at most 1, got {self.fraction}"
            )
        if not self.clients >= 2:
            raise InvalidInput(f"a population has at least two clients, got {self.clients}")
        if any(one.fraction < 1 and one.by == "client" for one in faults.parse(self.fault)):
            raise InvalidInput(f"give the share of clients with --fraction, not in the fault {self.fault!r}")


def run_detect(request: DetectRequest) -> Outlook:
    """The chances of finding the fault by every inspection that the data and the model allow."""
    use_cores()
    reference, schema = _read(request)
    inputs = tuple(request.inputs or (only_input(reference, request.label, "text" in reference.fields),))
    faults.apply(reference, request.fault)  # refuses a fault that does not fit
    model, held_out = _model(request, reference, inputs)
    ranges = schema.ranges | dict(map(range_of, request.ranges))
    given = Schema({name: Field("number", *ends) for name, ends in ranges.items()}, inputs, request.label)
    chances = tuple(_by_arms(request, held_out, given, model))
    if all(reference.fields[name][0] == TEXT for name in inputs):
        chances += (_by_words(request, reference, inputs[0]),)
    described = f" and {model.name}" if model is not None else ""
    return Outlook(
        fault=request.fault,
        fraction=request.fraction,
        clients=request.clients,
        epsilon=request.epsilon,
        delta=request.delta,
        chances=chances,
        about=f"{held_out.size:,} clients of {held_out.name}{described}",
    )


def _read(request: DetectRequest) -> tuple[Population, Schema]:
    """The public data, with the types that the schema gives, and the schema."""
    name, schema = request.reference, schema_of(request.schema, request.types)
    options: dict[str, Any] = other_clients(name, _REFERENCE_CLIENTS)
    if request.client and name not in POPULATIONS:
        options = {"client": request.client}
    population = source(name, options)
    if not schema.fields or not is_private_table(name):
        return population, schema
    needed = dict.fromkeys(population.fields)
    return read_clients(name, client=request.client, needed=needed, schema=schema, public=population), schema


def _model(request: DetectRequest, reference: Population, inputs: Sequence[str]) -> tuple[Primary | None, Population]:
    """The model, and the public clients that it was not trained on: as an inspection would choose them."""
    label = request.label
    if request.model is not None:
        return in_order(read_model(request.model), reference.classes.get(label, ())), reference
    is_text = any(reference.fields[name][0] == TEXT for name in inputs if name in reference.fields)
    if is_text or label not in reference.classes:
        return None, reference
    return public_model(learning_half(reference), inputs, label), confirming_half(reference)


def _by_arms(request: DetectRequest, reference: Population, given: Schema, model: Primary | None) -> Iterator[Chance]:
    kinds: list[type[Comparing]] = [Sanity, *([Mistakes, Slices] if model is not None else [])]
    for kind in kinds:
        question = kind(
            schema=complete(given, reference),
            clients=request.clients,
            epsilon=request.epsilon,
            delta=request.delta,
            model=identity_of(model),
            reference=identity_of(reference),
        )
        sight = Foresight(question, Public(model=model, reference=reference), planted=_PLANTED)
        simulation = sight.simulation(shares=(request.fraction,), populations=_POPULATIONS)
        sent = None if simulation is None else sight.planter.sent(request.fault, sight.round, simulation.parts)
        if simulation is None or sent is None:
            raise InvalidInput(f"{reference.name} has too few clients for a simulation: use more public data")
        (limit,) = sight.limits(among=[request.fault])
        yield Chance(question.task, float(simulation.power(sent)[0]), limit.smallest)


def _by_words(request: DetectRequest, reference: Population, field: str) -> Chance:
    vocabulary = Vocabulary.most_frequent(reference, 10_000, field=field)
    sight = WordForesight(
        reference,
        vocabulary,
        field=field,
        clients=request.clients,
        epsilon=request.epsilon,
        delta=request.delta,
    )
    return Chance("unknowns", sight.power(request.fault, request.fraction), sight.smallest(request.fault))
