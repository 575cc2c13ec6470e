"""Detection power of a population, before anything is spent on it.

Everything that a round releases is a sum over clients plus noise. Its expectation follows from the mean contribution of
a healthy client and of a client with the fault. Both can be measured on public data: a `Yardstick`. The expected sums
of a population with a given fraction of faulty clients are then read exactly like real ones, and the tests of
`findings` say how far beyond their thresholds they lie.

The yardstick that comes with Blindsight was measured on embedded handwriting with a small convolutional network
(`experiments/power_study.py`, which also compares predictions with simulated rounds).
"""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from scipy import stats

from blindsight.data import faults
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import cues
from blindsight.inspection.contrast import votes as diagnosis
from blindsight.inspection.contrast.counting import Background
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.outlook import Forecast
from blindsight.inspection.contrast.released import ArmCues, ArmVotes, difference_of_cues
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.contrast.votes import VotesPart
from blindsight.inspection.finding import ALPHA, CAUTION, POWER
from blindsight.inspection.measuring import Measured, noise_for
from blindsight.models.primary import Primary
from blindsight.selection import Arms, everything
from blindsight.selection import observe as observe_primary
from blindsight.wording import percent

__all__ = ["FAMILIES", "HEALTHY", "Prediction", "Yardstick", "embedded_yardstick", "measure_yardstick", "predict"]

HEALTHY = "healthy"
FAMILIES = 2 * CAUTION
"""Cues are one family of tests, counts of clients the other."""


@dataclasses.dataclass(frozen=True)
class Yardstick:
    """The mean contribution of a client to each part, healthy and under each fault, measured on public data.

    `clients` is the number of public clients; `about` describes them and the primary model.
    """

    cues: Cues
    votes: VotesPart
    means: Mapping[str, Mapping[str, np.ndarray]]  # healthy or a fault's spelling, then the part
    clients: int
    about: str

    @property
    def faults(self) -> list[str]:
        """The faults that were measured."""
        return [name for name in self.means if name != HEALTHY]

    @functools.cached_property
    def expected(self) -> tuple[ArmCues, ArmCues]:
        """The first two arms of public data, which findings compare with."""
        sums = np.asarray(self.means[HEALTHY]["cues"], np.float64) * self.clients
        arms = self.cues.read(Measured(sums, 0.0, math.inf))
        return arms[self.cues.arms[0]], arms[self.cues.arms[1]]

    @functools.cached_property
    def reference(self) -> ArmCues:
        """All public clients together: the comparison of a sanity check."""
        sums = np.asarray(self.means[HEALTHY]["cues"], np.float64) * self.clients
        return dataclasses.replace(self.cues.everyone(Measured(sums, 0.0, math.inf)), arm="public reference")

    @functools.cached_property
    def usual_votes(self) -> ArmVotes:
        """The votes of the first arm's public clients, where nothing is wrong."""
        sums = np.asarray(self.means[HEALTHY]["votes"], np.float64) * self.clients
        return self.votes.read(Measured(sums, 0.0, math.inf))[self.votes.arms[0]]

    def answer(self, fault: str) -> str | None:
        """The candidate that clients with `fault` should vote for; None if no candidate is of its type."""
        (name,) = {one.name for one in faults.parse(fault)}
        shares = np.asarray(self.means[fault]["votes"], np.float64)[: len(self.votes.labels)]
        fitting = [k for k, label in enumerate(self.votes.labels) if label.partition(":")[0] == name]
        return self.votes.labels[max(fitting, key=lambda k: shares[k])] if fitting else None

    def save(self, path: str | Path) -> None:
        """Write the yardstick as JSON, one line per fault."""
        header = {"about": self.about, "clients": self.clients, "arms": list(self.cues.arms)}
        header |= {"disjoint_by_client": self.cues.disjoint_by_client, "cues": list(self.cues.names)}
        header |= {"labels": list(self.votes.labels), "margin": self.votes.margin}
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in header.items()]
        means = [
            f"{json.dumps(name)}: {json.dumps({part: np.round(v, 6).tolist() for part, v in parts.items()})}"
            for name, parts in self.means.items()
        ]
        lines.append('"means": {\n' + ",\n".join(means) + "\n}")
        Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Any) -> "Yardstick":
        """The yardstick that `save` wrote."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        arms, disjoint = tuple(stored["arms"]), stored["disjoint_by_client"]
        return cls(
            Cues(tuple(stored["cues"]), arms, disjoint),
            VotesPart(tuple(stored["labels"]), arms, disjoint, stored["margin"]),
            {n: {part: np.asarray(v) for part, v in parts.items()} for n, parts in stored["means"].items()},
            stored["clients"],
            stored["about"],
        )


def embedded_yardstick() -> Yardstick:
    """The yardstick that comes with Blindsight: embedded handwriting, arms by accuracy."""
    return Yardstick.load(resources.files("blindsight.inspection") / "yardstick.json")


def measure_yardstick(
    population: Population,
    primary: Primary,
    arms: Arms,
    spellings: Sequence[str],
    *,
    inputs: str | Sequence[str] = "image",
    label: str = "label",
    most: int = 8,
    hit: int | None = None,
    about: str = "",
) -> Yardstick:
    """A yardstick from public data on which the primary model makes mistakes: not its training data.

    Args:
        population: Public clients.
        primary: The primary model.
        arms: Two arms of whole clients; clients in neither form a third, so that the arms cover everyone.
        spellings: The faults to plant, such as `invert`.
        inputs: Fields that the model reads.
        label: Field holding the true class.
        most: Failing examples of each client that suspects are tried on.
        hit: Plant faults in this many clients, the first ones; by default in all.
        about: A description for the record.
    """
    if len(arms) != 2 or not arms.disjoint_by_client:
        raise InvalidInput("a yardstick compares two arms of whole clients: use selection.by_accuracy, for example")
    arms = Arms([*arms.criteria, ("others", everything())])
    chosen = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    suspects = diagnosis.candidates(population, inputs, label)
    means: dict[str, dict[str, np.ndarray]] = {}
    parts: Any = ()
    for name in (HEALTHY, *spellings):
        damaged = (
            population if name == HEALTHY else faults.apply(population.select(np.arange(population.size)[:hit]), name)
        )
        seen = observe_primary(damaged, primary, inputs=inputs, label=label)
        seen = diagnosis.observe(seen, primary, suspects, inputs=inputs, label=label, most=most)
        seen = cues.observe(seen, chosen)
        parts = (
            cues.cues_part(seen, tuple(arms), disjoint_by_client=True),
            diagnosis.votes_part(seen, tuple(arms), disjoint_by_client=True),
        )
        vectors = client_vectors(seen, arms, parts)
        means[name] = {part: vector.mean(axis=0, dtype=np.float64) for part, vector in vectors.items()}
    measured_cues, counted_votes = parts
    return Yardstick(measured_cues, counted_votes, means, population.size, about)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction(Forecast):
    """The probability of detecting and naming a fault on a fraction of clients, and the smallest detectable fraction.

    `by_sanity` is the probability that the cues of everyone differ from public ones (T1), `by_cues` that those of
    failing and healthy clients differ beyond what public data show (T4), `by_votes` that failing clients name the
    fault. `cue` is the strongest cue, `named` the candidate that clients would vote for, None if no candidate undoes
    the fault. `smallest_*` are the fractions detected with 90 % power, None if there is none.
    """

    by_sanity: float
    by_cues: float
    by_votes: float
    cue: str
    named: str | None
    smallest_by_sanity: float | None
    smallest_by_cues: float | None
    smallest_by_votes: float | None
    about: str

    @property
    def best(self) -> float:
        return max(self.by_sanity, self.by_cues, self.by_votes)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.headline
        table = Table(box=None, pad_edge=False)
        for heading in ("test", "power", "90 % power above"):
            table.add_column(heading)
        table.add_row("cues: all clients versus public data", percent(self.by_sanity), _least(self.smallest_by_sanity))
        table.add_row("cues: failing versus healthy clients", percent(self.by_cues), _least(self.smallest_by_cues))
        if self.named is not None:
            table.add_row("votes of failing clients", percent(self.by_votes), _least(self.smallest_by_votes))
        yield table
        vote = "nothing, because it cannot be undone" if self.named is None else self.named
        yield f"Strongest cue: {escape(self.cue)}. Clients would vote for: {escape(vote)}."
        yield f"[dim]Measured on {escape(self.about)}.[/]"


def predict(
    yardstick: Yardstick,
    fault: str,
    fraction: float,
    *,
    clients: int,
    epsilon: float,
    delta: float,
    shares: Mapping[str, float] | None = None,
) -> Prediction:
    """The power of a round at (epsilon, delta) to detect and name `fault` on `fraction` of `clients`.

    Args:
        yardstick: What healthy and hit clients send, measured on public data.
        fault: One of `yardstick.faults`.
        fraction: Share of the clients that the fault hits.
        clients: Number of clients.
        epsilon: What the inspection may cost.
        delta: Delta of the guarantee.
        shares: How cues and votes share the precision; equally by default.
    """
    if fault not in yardstick.faults:
        faults.parse(fault)  # an unknown name is refused here
        raise InvalidInput(f"the yardstick has no measurement of {fault}: choose one of {', '.join(yardstick.faults)}")
    if not 0 < fraction <= 1:
        raise InvalidInput(f"the fraction of clients with the fault must be above 0 and at most 1, got {fraction}")
    if not clients >= 2:
        raise InvalidInput(f"a population has at least two clients, got {clients}")
    noise = noise_for((yardstick.cues, yardstick.votes), epsilon=epsilon, delta=delta, shares=shares, sampler="float")
    stds = {part.name: noise[part.name].noise_multiplier * part.bound for part in (yardstick.cues, yardstick.votes)}

    def sanity(share: float) -> np.ndarray:
        sums = _expected(yardstick, fault, share, clients, "cues")
        std = stds["cues"] / math.sqrt(len(yardstick.cues.arms))  # a round with one arm, not the sum of all arms
        seen, true = (yardstick.cues.everyone(Measured(sums, noise, math.inf)) for noise in (std, 0.0))
        return _cue_power((seen, yardstick.reference), (true.spread, yardstick.reference.spread))

    def contrast(share: float) -> np.ndarray:
        sums = _expected(yardstick, fault, share, clients, "cues")
        seen, true = (yardstick.cues.read(Measured(sums, noise, math.inf)) for noise in (stds["cues"], 0.0))
        first, second, *_ = yardstick.cues.arms
        spreads = true[first].spread, true[second].spread
        return _cue_power((seen[first], seen[second]), spreads, yardstick.expected)

    def votes(share: float) -> float:
        return _vote_power(yardstick, fault, share, clients, stds["votes"])

    best = np.maximum(sanity(fraction), contrast(fraction))
    return Prediction(
        fault=fault,
        fraction=fraction,
        clients=clients,
        epsilon=epsilon,
        delta=delta,
        by_sanity=_any(sanity(fraction)),
        by_cues=_any(contrast(fraction)),
        by_votes=votes(fraction),
        cue=yardstick.cues.names[int(np.argmax(best))],
        named=yardstick.answer(fault),
        smallest_by_sanity=_smallest(lambda share: _any(sanity(share))),
        smallest_by_cues=_smallest(lambda share: _any(contrast(share))),
        smallest_by_votes=_smallest(votes),
        about=yardstick.about,
    )


def _cue_power(
    arms: tuple[ArmCues, ArmCues],
    spreads: tuple[np.ndarray, np.ndarray],
    expected: tuple[ArmCues, ArmCues] | None = None,
) -> np.ndarray:
    """For each cue, the probability that its difference between two arms exceeds its threshold.

    A finding overestimates the error slightly, because it must estimate the variance between clients; `spreads` are the
    true values.
    """
    difference, stated = difference_of_cues(*arms, expected=expected, is_pooled=expected is None)
    first, second = (dataclasses.replace(arm, spread=spread) for arm, spread in zip(arms, spreads, strict=True))
    true = difference_of_cues(first, second, expected=expected)[1]
    threshold = stats.norm.isf(ALPHA / 2 / (FAMILIES * len(first.names))) * stated
    powers = stats.norm.sf((threshold - difference) / true) + stats.norm.sf((threshold + difference) / true)
    enough = [stats.norm.cdf((arm.counted - 5 * arm.noise_std) / max(arm.noise_std, 1e-9)) for arm in arms]
    return powers * float(np.prod(enough))


def _vote_power(yardstick: Yardstick, fault: str, fraction: float, clients: int, noise_std: float) -> float:
    """The probability that the first arm names the fault."""
    part, answer = yardstick.votes, yardstick.answer(fault)
    if answer is None:
        return 0.0
    sums = _expected(yardstick, fault, fraction, clients, part.name)
    votes = part.read(Measured(sums, noise_std, math.inf))[part.arms[0]]
    if votes.voters <= 0:
        return 0.0
    enough = float(stats.norm.cdf(votes.voters / votes.voters_std - 4))
    place = part.labels.index(answer)
    count = float(votes.counts[place])
    public = float(yardstick.usual_votes.counts[place])
    background = Background(public, yardstick.clients, clients, noise_std)
    looks = FAMILIES * len(part.arms)  # votes of both arms, and the share of clients in the first
    least = background.fewest_detected(ALPHA / (looks * (len(part.labels) - 1)))
    deviation = math.sqrt(noise_std**2 + max(count * (1 - count / clients), 0.0))
    return enough * float(stats.norm.cdf((count - least) / deviation))


def _expected(yardstick: Yardstick, fault: str, fraction: float, clients: int, part: str) -> np.ndarray:
    healthy, hit = (np.asarray(yardstick.means[name][part], np.float64) for name in (HEALTHY, fault))
    return clients * ((1 - fraction) * healthy + fraction * hit)


def _any(powers: np.ndarray) -> float:
    """The probability that at least one cue is detected: their noise is independent."""
    return float(1 - np.prod(1 - np.clip(powers, 0.0, 1.0)))


def _smallest(power: Any) -> float | None:
    """The smallest fraction detected with 90 % power, to three digits."""
    if power(1.0) < POWER:
        # power can fall again: if the fault is on all clients, none is left to compare them with
        grid = [share for share in np.geomspace(1e-3, 1.0, 25).tolist() if power(share) >= POWER]
        if not grid:
            return None
        high = grid[0]
    else:
        high = 1.0
    low = 0.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return float(f"{high:.3g}")


def _least(fraction: float | None) -> str:
    return "no fraction" if fraction is None else f"{percent(fraction, 3)} of clients"
