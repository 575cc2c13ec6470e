"""Plants pipeline faults in a simulated population, to test whether an inspection detects them.

A fault is written `name[:fraction][:by=client|example][:parameter=value...]`; several are joined with `+`:
`invert:0.5`, `shift:0.1:right=3`, `token_join:0.1:by=example+case:0.2:to=upper`. Whether a client is affected depends
only on the seed and the client, so populations can still be generated on demand, and clients affected at fraction 0.1
are also affected at 0.5.

>>> from blindsight.data import embedded
>>> people = embedded("handwriting", clients=100)
>>> affected(people, "invert:0.5").mean().item()
0.5
>>> undo(apply(people, "invert:0.5"), "invert:0.5").name
'handwriting'
"""

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from blindsight.data.damage import DAMAGES, Damage, FieldFacts
from blindsight.data.dice import Dice
from blindsight.data.population import TEXT, Columns, Population, ranges
from blindsight.data.table_faults import TABLE_FAULTS
from blindsight.data.text_faults import TEXT_FAULTS
from blindsight.errors import InvalidInput

__all__ = ["FAULTS", "Fault", "affected", "affected_examples", "apply", "facts_of", "fitting", "parse", "undo"]


FAULTS: dict[str, Damage] = {**DAMAGES, **TABLE_FAULTS, **TEXT_FAULTS}
"""Every fault by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, the fraction of clients (or of examples) that it affects, its field and its parameters.

    >>> str(Fault(name="shift", fraction=0.1, parameters={"right": 3}))
    'shift:0.1:right=3'
    """

    name: str
    fraction: float = 1.0
    by: str = "client"
    field: str | None = None
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            raise InvalidInput(f"there is no fault {self.name!r}: {_nearest(self.name, FAULTS)}")
        if not 0 <= self.fraction <= 1:
            raise InvalidInput(f"the fraction of a fault must be between 0 and 1, got {self.fraction}")
        if self.by not in ("client", "example"):
            raise InvalidInput(f"a fault is planted by=client or by=example, got by={self.by}")
        allowed = self.damage.parameters
        for parameter in self.parameters:
            if parameter not in allowed:
                hint = _nearest(parameter, [*allowed, "by", "field"])
                raise InvalidInput(f"{self.name} has no parameter {parameter!r}: {hint}")
        values = {p: _value(self.name, p, allowed[p], self.parameters[p]) for p in allowed if p in self.parameters}
        object.__setattr__(self, "parameters", values)

    def __str__(self) -> str:
        words = [self.name, *([] if self.fraction == 1 else [f"{self.fraction:g}"])]
        words += [] if self.by == "client" else [f"by={self.by}"]
        words += [] if self.field is None else [f"field={self.field}"]
        return ":".join([*words, *(f"{p}={_spell(value)}" for p, value in self.parameters.items())])

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def damage(self) -> Damage:
        """The type of damage."""
        return FAULTS[self.name]

    @property
    def settings(self) -> dict[str, Any]:
        """All parameters, including the defaults."""
        defaults = {p: d[0] if isinstance(d, tuple) else d for p, d in self.damage.parameters.items()}
        return defaults | dict(self.parameters)


Spelling = str | Fault | Iterable[Fault]


def parse(fault: Spelling) -> tuple[Fault, ...]:
    """The faults, in the order in which they are applied.

    >>> parse("invert:0.5+shift:right=2")[1].fraction
    1.0
    """
    if isinstance(fault, Fault):
        return (fault,)
    if not isinstance(fault, str):
        return tuple(fault)
    return tuple(_parse_one(words) for words in fault.split("+"))


def apply(population: Population, fault: Spelling, *, seed: int = 0) -> Population:
    """The population with the faults planted; unaffected clients keep every bit. A generated one stays generated."""
    faults = parse(fault)
    planted = [_Planted(one, number, _targets(population, one)) for one, number in _numbered(faults)]
    change = functools.partial(_happen, planted, population.sizes, seed)
    name = f"{population.name} with {_joined(faults)}"
    return population.transform(change, name=name, recipe=("apply", faults, seed))


def undo(population: Population, fault: Spelling, *, seed: int = 0) -> Population:
    """The population as it was before `apply` with the same fault and seed; refused if information was lost."""
    faults = parse(fault)
    for one in faults:
        if why := one.damage.why_not_undone(one.settings):
            raise InvalidInput(f"{one.name} cannot be undone: {why}")
    planted = [_Planted(one, number, _targets(population, one, back=True), True) for one, number in _numbered(faults)]
    change = functools.partial(_happen, planted[::-1], population.sizes, seed)
    name = population.name.removesuffix(f" with {_joined(faults)}")
    return population.transform(change, name=name, recipe=("undo", faults, seed))


def affected(population: Population, fault: Spelling, *, seed: int = 0) -> np.ndarray:
    """Which clients have at least one affected example: ground truth, available only in a simulation."""
    hit = np.flatnonzero(affected_examples(population, fault, seed=seed))
    client = np.searchsorted(population.offsets, hit, side="right") - 1
    return np.bincount(client, minlength=population.size) > 0


def affected_examples(population: Population, fault: Spelling, *, seed: int = 0) -> np.ndarray:
    """Which examples a fault affects, client by client."""
    everyone = np.arange(population.size)
    hits = [_hit(one, number, seed, everyone, population.sizes) for one, number in _numbered(parse(fault))]
    return np.any(hits, axis=0)


def fitting(population: Population) -> list[str]:
    """Names of the faults that apply to at least one field of the population."""
    facts = facts_of(population)

    def fits(damage: Damage) -> bool:
        if damage.kind == "row":
            return bool(damage.planted(facts))
        return any(damage.kind == field.kind and damage.fits(field.dtype, field.shape) for field in facts.values())

    return [name for name, damage in FAULTS.items() if fits(damage)]


def facts_of(
    population: Population, public_ranges: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, FieldFacts]:
    """Public facts about each field, which determine the faults that can affect it; vectors are left out."""
    facts: dict[str, FieldFacts] = {}
    for field, (dtype, shape) in population.fields.items():
        ends, classes = (public_ranges or {}).get(field), population.classes.get(field, ())
        if dtype == TEXT:
            kind = "text"
        elif field in population.classes:
            kind = "label"
        else:
            kind = "image" if len(shape) >= 2 else "number"
        facts[field] = FieldFacts(kind, dtype, shape, ends, classes)
    return facts


class _Planted(NamedTuple):
    """A fault, how many of the same name precede it, and its parameters for each field that it affects."""

    fault: Fault
    number: int
    targets: dict[str, dict[str, Any]]  # field to the parameters there
    back: bool = False


def _happen(planted: list[_Planted], sizes: np.ndarray, seed: int, clients: np.ndarray, columns: Columns) -> Columns:
    """The columns of these clients after applying all faults in order."""
    columns = dict(columns)
    for fault, number, targets, back in planted:
        hit = np.flatnonzero(_hit(fault, number, seed, clients, sizes[clients]))
        change = fault.damage.restore if back else fault.damage.change
        if not hit.size or change is None:
            continue
        if fault.damage.kind == "row":
            owner = np.repeat(np.arange(len(clients)), sizes[clients])[hit]
            for field, column in change({f: c[hit] for f, c in columns.items()}, owner, **fault.settings).items():
                columns[field] = columns[field].copy()
                columns[field][hit] = column
        for field, settings in targets.items():
            changed = columns[field].copy()
            changed[hit] = change(columns[field][hit], **settings)
            columns[field] = changed
    return columns


def _hit(fault: Fault, number: int, seed: int, clients: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Which examples of these clients the fault affects."""
    dice = Dice(seed, "faults")
    if fault.by == "client":
        return np.repeat(dice.uniform(f"{fault.name} client", clients, number) < fault.fraction, sizes)
    example = ranges(np.zeros_like(sizes), sizes)
    return dice.uniform(f"{fault.name} example", np.repeat(clients, sizes), example, number) < fault.fraction


def _numbered(faults: tuple[Fault, ...]) -> list[tuple[Fault, int]]:
    """Each fault and how many of the same name precede it; different faults affect the same clients joined or apart."""
    names = [fault.name for fault in faults]
    return [(fault, names[:place].count(fault.name)) for place, fault in enumerate(faults)]


def _fields(population: Population, fault: Fault) -> list[str]:
    """The fields that a fault affects: all images or texts, one label or number, or whole rows (no field)."""
    kind = fault.damage.kind
    if kind == "row":
        if fault.field is not None:
            raise InvalidInput(f"{fault.name} affects whole rows: leave out field={fault.field}")
        return []
    facts = facts_of(population)
    fields = [f for f, its in facts.items() if its.kind == kind and fault.damage.fits(its.dtype, its.shape)]
    if not fields:
        fits = ", ".join(fitting(population))
        raise InvalidInput(f"{fault.name} affects {kind} fields, and {population.name} has none; these apply: {fits}")
    if fault.field is not None:
        if fault.field not in fields:
            raise InvalidInput(f"{fault.name} can affect {' or '.join(fields)}, not {fault.field!r}")
        return [fault.field]
    if kind == "label" and "label" in fields:
        return ["label"]
    if kind in ("label", "number") and len(fields) > 1:
        raise InvalidInput(f"{population.name} has several {kind}s: choose one with field={', field='.join(fields)}")
    return fields


def _targets(population: Population, fault: Fault, *, back: bool = False) -> dict[str, dict[str, Any]]:
    """The affected fields and the parameters for each; invalid ones are refused now, by a trial on one example."""
    fields, settings = _fields(population, fault), fault.settings
    if fault.damage.kind == "label":  # its parameters are classes
        names = population.classes[fields[0]]
        for place, which in enumerate(fault.damage.parameters):
            chosen = names[place] if settings[which] is None else str(settings[which])
            if chosen not in names:
                raise InvalidInput(f"{fields[0]} has no class {chosen!r}: {_nearest(chosen, names)}")
            settings[which] = names.index(chosen)
    some = population[int(np.argmax(population.sizes > 0))]
    change = fault.damage.restore if back else fault.damage.change
    if fault.damage.kind == "row" and change is not None:
        change({field: column[:1] for field, column in some.items()}, np.zeros(1, int), **settings)
    for field in fields:
        if change is not None and len(some[field]):
            change(some[field][:1], **settings)
    return dict.fromkeys(fields, settings)


def _parse_one(words: str) -> Fault:
    name, *rest = words.strip().split(":")
    values = dict(word.split("=", 1) for word in rest if "=" in word)
    plain = [word for word in rest if "=" not in word]
    if len(plain) > 1:
        raise InvalidInput(f"a fault is written name:fraction:by=client:parameter=value, got {words!r}")
    try:
        fraction = float(plain[0]) if plain else 1.0
    except ValueError:
        raise InvalidInput(f"the fraction in {words!r} is not a number: write {name}:0.5, for example") from None
    by, field = values.pop("by", "client"), values.pop("field", None)
    return Fault(name=name, fraction=fraction, by=by, field=field, parameters=values)


def _value(name: str, parameter: str, default: Any, given: Any) -> Any:
    """A parameter's value in the type of its default."""
    try:
        if isinstance(default, tuple):
            if given not in default:
                raise ValueError
            return given
        if isinstance(default, bool):
            return given if isinstance(given, bool) else {"yes": True, "no": False}[given]
        value = given if default is None else type(default)(given)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value
    except (KeyError, TypeError, ValueError):
        if isinstance(default, (tuple, bool)):
            wanted = " or ".join(default if isinstance(default, tuple) else ("yes", "no"))
        else:
            wanted = "a whole number" if isinstance(default, int) else "a number"
        raise InvalidInput(f"{parameter} of {name} must be {wanted}, got {given!r}") from None


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined(faults: tuple[Fault, ...]) -> str:
    return "+".join(map(str, faults))


def _nearest(name: str, options: Iterable[str]) -> str:
    names = list(options)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
