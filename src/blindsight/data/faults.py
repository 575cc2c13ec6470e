"""Faults: things that go wrong in pipelines, planted on purpose in a simulation so that they can be looked for.

A fault is spelled `name[:fraction][:by=client|example][:parameter=value...]`, several are joined with `+`:
`invert:0.5`, `shift:0.1:right=3`, `token_join:0.1:by=example+case:0.2:to=upper`. Who is hit depends on the seed and the
client alone, so that a population keeps being drawn on demand, and whoever is hit at fraction 0.1 is hit at 0.5 too.

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

from blindsight.data.damage import DAMAGES, Damage
from blindsight.data.dice import Dice
from blindsight.data.population import TEXT, Columns, Population, ranges
from blindsight.data.text_faults import TEXT_FAULTS
from blindsight.errors import InvalidInput

__all__ = ["FAULTS", "Fault", "affected", "affected_examples", "apply", "fitting", "parse", "undo"]


FAULTS: dict[str, Damage] = {**DAMAGES, **TEXT_FAULTS}
"""Every fault by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: what goes wrong, for which fraction of clients (or of examples), in which field, how.

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
            raise InvalidInput(f"a fault hits a fraction between 0 and 1, got {self.fraction}")
        if self.by not in ("client", "example"):
            raise InvalidInput(f"faults hit by=client or by=example, got by={self.by}")
        known = self.damage.parameters
        for parameter in self.parameters:
            if parameter not in known:
                hint = _nearest(parameter, [*known, "by", "field"])
                raise InvalidInput(f"{self.name} has no parameter {parameter!r}: {hint}")
        values = {p: _value(self.name, p, known[p], self.parameters[p]) for p in known if p in self.parameters}
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
        """What it does."""
        return FAULTS[self.name]

    @property
    def settings(self) -> dict[str, Any]:
        """All parameters, the defaults included."""
        defaults = {p: d[0] if isinstance(d, tuple) else d for p, d in self.damage.parameters.items()}
        return defaults | dict(self.parameters)


Spelling = str | Fault | Iterable[Fault]


def parse(fault: Spelling) -> tuple[Fault, ...]:
    """The faults of a spelling, in the order in which they happen.

    >>> parse("invert:0.5+shift:right=2")[1].fraction
    1.0
    """
    if isinstance(fault, Fault):
        return (fault,)
    if not isinstance(fault, str):
        return tuple(fault)
    return tuple(_parse_one(words) for words in fault.split("+"))


def apply(population: Population, fault: Spelling, *, seed: int = 0) -> Population:
    """The population with the faults in it; those who are not hit keep every bit. Drawn on demand if it was before."""
    faults = parse(fault)
    befallen = [_Befallen(one, number, _targets(population, one)) for one, number in _numbered(faults)]
    change = functools.partial(_happen, befallen, population.sizes, seed)
    name = f"{population.name} with {_joined(faults)}"
    return population.transform(change, name=name, recipe=("apply", faults, seed))


def undo(population: Population, fault: Spelling, *, seed: int = 0) -> Population:
    """The population as it was before `apply` with the same fault and seed; refused where information was lost."""
    faults = parse(fault)
    for one in faults:
        if why := one.damage.why_not_undone(one.settings):
            raise InvalidInput(f"{one.name} cannot be undone: {why}")
    befallen = [_Befallen(one, number, _targets(population, one, back=True), True) for one, number in _numbered(faults)]
    change = functools.partial(_happen, befallen[::-1], population.sizes, seed)
    name = population.name.removesuffix(f" with {_joined(faults)}")
    return population.transform(change, name=name, recipe=("undo", faults, seed))


def affected(population: Population, fault: Spelling, *, seed: int = 0) -> np.ndarray:
    """Which clients a fault hits in at least one example: the truth, which only a simulation knows."""
    hit = np.flatnonzero(affected_examples(population, fault, seed=seed))
    client = np.searchsorted(population.offsets, hit, side="right") - 1
    return np.bincount(client, minlength=population.size) > 0


def affected_examples(population: Population, fault: Spelling, *, seed: int = 0) -> np.ndarray:
    """Which examples a fault hits, client after client."""
    everyone = np.arange(population.size)
    hits = [_hit(one, number, seed, everyone, population.sizes) for one, number in _numbered(parse(fault))]
    return np.any(hits, axis=0)


def fitting(population: Population) -> list[str]:
    """The names of the faults that can happen to a population with such fields."""
    kinds = set(_kinds(population).values())
    return [name for name, damage in FAULTS.items() if damage.kind in kinds]


class _Befallen(NamedTuple):
    """A fault, how many of its name came before, and what it does to which fields of a population."""

    fault: Fault
    number: int
    targets: dict[str, dict[str, Any]]  # field to the parameters there
    back: bool = False


def _happen(befallen: list[_Befallen], sizes: np.ndarray, seed: int, clients: np.ndarray, columns: Columns) -> Columns:
    """The columns of these clients after all faults, one after the other."""
    columns = dict(columns)
    for fault, number, targets, back in befallen:
        hit = np.flatnonzero(_hit(fault, number, seed, clients, sizes[clients]))
        change = fault.damage.restore if back else fault.damage.change
        if not hit.size or change is None:
            continue
        for field, settings in targets.items():
            changed = columns[field].copy()
            changed[hit] = change(columns[field][hit], **settings)
            columns[field] = changed
    return columns


def _hit(fault: Fault, number: int, seed: int, clients: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Which examples of these clients the fault hits."""
    dice = Dice(seed, "faults")
    if fault.by == "client":
        return np.repeat(dice.uniform(f"{fault.name} client", clients, number) < fault.fraction, sizes)
    example = ranges(np.zeros_like(sizes), sizes)
    return dice.uniform(f"{fault.name} example", np.repeat(clients, sizes), example, number) < fault.fraction


def _numbered(faults: tuple[Fault, ...]) -> list[tuple[Fault, int]]:
    """Each fault and how many of its name came before: one after the other hits as one joined spelling does."""
    names = [fault.name for fault in faults]
    return [(fault, names[:place].count(fault.name)) for place, fault in enumerate(faults)]


def _kinds(population: Population) -> dict[str, str]:
    """The kind of each field."""
    kinds: dict[str, str] = {}
    for field, (dtype, shape) in population.fields.items():
        if dtype == TEXT:
            kinds[field] = "text"
        elif field in population.classes:
            kinds[field] = "label"
        else:
            kinds[field] = "image" if len(shape) >= 2 else "number"
    return kinds


def _fields(population: Population, fault: Fault) -> list[str]:
    """The fields that a fault befalls: all images or texts, one label or number."""
    kinds = _kinds(population)
    kind = fault.damage.kind
    fields = [field for field, its in kinds.items() if its == kind]
    if not fields:
        fits = ", ".join(fitting(population))
        raise InvalidInput(f"{fault.name} happens to {kind} fields and {population.name} has none: {fits} would fit")
    if fault.field is not None:
        if fault.field not in fields:
            raise InvalidInput(f"{fault.name} happens to {' or '.join(fields)}, not to {fault.field!r}")
        return [fault.field]
    if kind == "label" and "label" in fields:
        return ["label"]
    if kind in ("label", "number") and len(fields) > 1:
        raise InvalidInput(f"{population.name} has several {kind}s: say which with field={', field='.join(fields)}")
    return fields


def _targets(population: Population, fault: Fault, *, back: bool = False) -> dict[str, dict[str, Any]]:
    """The fields that a fault befalls with its parameters there; what cannot be is refused now, on one example."""
    fields, settings = _fields(population, fault), fault.settings
    if fault.name == "label_swap":
        names = population.classes[fields[0]]
        for place, which in enumerate("ab"):
            chosen = names[place] if settings[which] is None else str(settings[which])
            if chosen not in names:
                raise InvalidInput(f"{fields[0]} has no class {chosen!r}: {_nearest(chosen, names)}")
            settings[which] = names.index(chosen)
    some = population[int(np.argmax(population.sizes > 0))]
    change = fault.damage.restore if back else fault.damage.change
    for field in fields:
        if change is not None and len(some[field]):
            change(some[field][:1], **settings)
    return dict.fromkeys(fields, settings)


def _parse_one(words: str) -> Fault:
    name, *rest = words.strip().split(":")
    values = dict(word.split("=", 1) for word in rest if "=" in word)
    plain = [word for word in rest if "=" not in word]
    if len(plain) > 1:
        raise InvalidInput(f"a fault is spelled name:fraction:by=client:parameter=value, got {words!r}")
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
        raise InvalidInput(f"{parameter} of {name} is {wanted}, got {given!r}") from None


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _joined(faults: tuple[Fault, ...]) -> str:
    return "+".join(map(str, faults))


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
