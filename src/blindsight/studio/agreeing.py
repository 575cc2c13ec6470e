"""Agreement of raters about a synthetic set, and majority labels."""

import dataclasses
import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from blindsight.studio.labels import Labels
from blindsight.wording import percent

__all__ = ["Agreement", "Majority", "Pair", "Rater", "agreement", "majority"]


@dataclasses.dataclass(frozen=True)
class Rater:
    """Progress of one rater; `as_proposed` is the share of labels equal to the proposed ones."""

    name: str
    labelled: int
    skipped: int
    seconds: float | None
    as_proposed: float | None


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two raters on the samples both have labelled: the share of equal labels, and Cohen's kappa."""

    raters: tuple[str, str]
    samples: int
    same: float
    kappa: float | None


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Agreement of raters: pairwise, and of all (Fleiss' kappa, on the samples that everyone has labelled).

    Kappa is 1 for perfect agreement and 0 for chance; it is None if everyone used a single class, where chance would
    agree as well.
    """

    raters: tuple[Rater, ...]
    pairs: tuple[Pair, ...]
    samples: int
    everybody: int
    fleiss: float | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight label --agreement --json`."""
        return dataclasses.asdict(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.raters:
            yield "Nobody has labelled anything yet."
            return
        done = Table(box=None, pad_edge=False)
        for heading in ("rater", "labelled", "skipped", "seconds each", "as proposed"):
            done.add_column(heading, justify="left" if heading == "rater" else "right")
        for one in self.raters:
            numbers = [f"{one.labelled:,} of {self.samples:,}", f"{one.skipped:,}", _said(one.seconds, ".1f")]
            done.add_row(escape(one.name), *numbers, _share(one.as_proposed))
        yield done
        if len(self.raters) < 2:
            yield "\nAgreement needs a second rater: label with another --rater."
            return
        yield ""
        both = Table(box=None, pad_edge=False)
        for heading in ("raters", "both labelled", "same label", "Cohen's kappa"):
            both.add_column(heading, justify="left" if heading == "raters" else "right")
        for pair in self.pairs:
            names = escape(" and ".join(pair.raters))
            both.add_row(names, f"{pair.samples:,}", _share(pair.same), _said(pair.kappa, ".3f"))
        yield both
        if len(self.raters) > 2:
            yield f"\nFleiss' kappa of all on {self.everybody:,} samples: {_said(self.fleiss, '.3f')}"


@dataclasses.dataclass(frozen=True)
class Majority:
    """The majority label of each sample; ties and unlabelled samples are counted."""

    labels: Mapping[str, str]
    ties: int
    unlabelled: int
    raters: tuple[str, ...]


def agreement(labels: Labels) -> Agreement:
    """The agreement of a set's raters; skips are ignored."""
    by_rater = {rater: {s: d.label for s, d in labels.standing(rater).items() if d.label} for rater in labels.raters}
    raters = tuple(_rater(labels, rater) for rater in labels.raters)
    pairs = tuple(_pairs(by_rater))
    shared = [sample for sample in labels.dataset.by_id if by_rater and all(sample in one for one in by_rater.values())]
    rows = [Counter(one[sample] for one in by_rater.values()) for sample in shared]
    return Agreement(raters, pairs, len(labels.dataset.samples), len(shared), _fleiss(rows))


def majority(labels: Labels) -> Majority:
    """The majority label of every sample, ignoring skips."""
    winners, ties, unlabelled = dict[str, str](), 0, 0
    for sample in labels.dataset.by_id:
        votes = [labels.standing(rater).get(sample) for rater in labels.raters]
        counts = Counter(vote.label for vote in votes if vote is not None and vote.label is not None).most_common(2)
        if not counts:
            unlabelled += 1
        elif len(counts) == 2 and counts[0][1] == counts[1][1]:
            ties += 1
        else:
            winners[sample] = counts[0][0]
    return Majority(winners, ties, unlabelled, labels.raters)


def _rater(labels: Labels, name: str) -> Rater:
    stands = labels.standing(name).values()
    labelled = [one for one in stands if one.label is not None]
    proposed = [labels.dataset.by_id[one.sample_id].proposed == one.label for one in labelled]
    has_proposals = any(sample.proposed is not None for sample in labels.dataset.samples)
    return Rater(
        name,
        len(labelled),
        len(stands) - len(labelled),
        statistics.median(one.seconds for one in stands) if stands else None,
        statistics.fmean(proposed) if has_proposals and proposed else None,
    )


def _pairs(by_rater: Mapping[str, Mapping[str, str]]) -> Iterator[Pair]:
    for one, other in itertools.combinations(by_rater, 2):
        both = [
            (by_rater[one][sample], by_rater[other][sample]) for sample in by_rater[one] if sample in by_rater[other]
        ]
        if both:
            yield Pair((one, other), len(both), statistics.fmean(a == b for a, b in both), _cohen(both))


def _cohen(both: list[tuple[str, str]]) -> float | None:
    if len({label for pair in both for label in pair}) < 2:
        return None
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(*map(list, zip(*both, strict=True))))


def _fleiss(rows: list[Counter[str]]) -> float | None:
    """Fleiss 1971: how much more often two raters of a sample agree than two labels drawn at random from all."""
    used = sum(rows, Counter[str]())
    raters = rows[0].total() if rows else 0
    if len(used) < 2 or raters < 2:
        return None
    agreed = statistics.fmean(sum(n * (n - 1) for n in row.values()) / (raters * (raters - 1)) for row in rows)
    by_chance = sum((n / used.total()) ** 2 for n in used.values())
    return (agreed - by_chance) / (1 - by_chance)


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value, 3)


def _said(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
