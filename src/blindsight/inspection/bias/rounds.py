"""The rounds of a comparison with public data: what is measured, what it costs, and what it says.

Every release is written into the run directory as it is made, so that a comparison that was stopped goes on, and
nothing is paid for twice. What is computed between two rounds follows from the first and from public numbers alone: it
comes out the same again.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from blindsight import checkpoints
from blindsight.accounting.events import Composed, Event, from_json, to_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import moments
from blindsight.algorithms.moments import Moments, MomentsPart
from blindsight.algorithms.vocabulary import discover_words, own_words
from blindsight.backends import Backend
from blindsight.codings import features
from blindsight.data.population import Population
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection import measuring
from blindsight.inspection.bias import findings as bias_findings
from blindsight.inspection.bias import images as bias_images
from blindsight.inspection.bias import measures as bias_measures
from blindsight.inspection.bias import text as bias_text
from blindsight.inspection.bias.findings import Tested
from blindsight.inspection.bias.images import KINDS, Discriminator, FirstArm
from blindsight.inspection.bias.measures import ARMS, HALF, Division, Habits, Limits, ReadShares, Shares
from blindsight.inspection.bias.preparing import Prepared
from blindsight.inspection.bias.section import Word
from blindsight.inspection.contrast import cues
from blindsight.inspection.measuring import Measured, Part, Priced
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism
from blindsight.runs import Run
from blindsight.selection import FORMINGS, Arms, where

__all__ = ["SHARES", "Rounds", "kinds_of", "price_of_words"]

SHARES = {"shares": 0.15, "habits": 0.25, "moments": 0.35, "kinds": 0.15, "ratios": 0.1, "words": 0.5}
"""How the precision is divided, among those that are asked for."""

_HALVES = Arms({name: where(HALF, number, by_client=True) for number, name in enumerate(ARMS)})
_KIND, _RATIO, _ENOUGH, _LISTED = "kind", "ratio", 5000, 20
_CELLS = 17 * 2**17  # of words that are discovered: at most so many at each of their bytes
_ROUNDING = 1e-4  # of an epsilon, lost on the way from noise to epsilon and back


@dataclasses.dataclass(frozen=True)
class _Priced:
    """Something that takes a share of the precision and is not yet known."""

    name: str
    coordinates: int


@dataclasses.dataclass
class Rounds:
    """One question as it is being answered: what has been spent on it so far, and what for."""

    run: Run
    asked: Prepared
    epsilon: float
    delta: float
    discovers: bool
    steps: int
    public: Key  # of what is computed from releases and public data
    backend: Callable[[Population], Backend]
    root: Key
    spent: list[Event] = dataclasses.field(default_factory=list[Event])
    releases: list[Mapping[str, Any]] = dataclasses.field(default_factory=list[Mapping[str, Any]])

    def pays(self, ledger: Ledger, population: str, progress: Callable[[str, int, int], None]) -> None:
        """Who pays, and where it is written down."""
        self.ledger, self.population, self.progress = ledger, population, progress
        run = f"{self.run.path.name} {self.run.read('run.json')['id']}"
        self.paying: dict[str, Any] = {"population": population, "ledger": ledger, "run": run}
        shares = Shares(self.asked.divisions) if self.asked.divisions else None
        habits = Habits(cues.FIELD, self.asked.limits) if self.asked.limits else None
        first: list[Part] = [part for part in (shares, habits) if part is not None]
        later: list[Priced] = []
        if self.asked.image:
            first.append(FirstArm(self._moments(first)))
            later = [_Priced("kinds", Shares((kinds_of(()),)).coordinates), _Priced("ratios", 3)]
        if self.discovers:
            later.append(_Priced("words", _CELLS))
        if not first:
            raise InvalidInput(
                f"nothing of {self.asked.clients.name} can be compared: name classes, a field to divide by, or public "
                f"data whose clients have {bias_measures.LOOKS} examples each"
            )
        self.first, self.mechanisms = first, self._noise([*first, *later])

    def _noise(self, parts: Sequence[Priced]) -> dict[str, GaussianMechanism]:
        shares = {part.name: SHARES[part.name] for part in parts}
        return measuring.noise_for(parts, epsilon=self.epsilon, delta=self.delta, shares=shares)

    def _moments(self, others: Sequence[Priced]) -> MomentsPart:
        """Moments of pictures, by class where there are classes; public numbers decide how many frequencies."""
        field = str(self.asked.image)
        shape = self.asked.clients.fields[field][1]
        classes = self.asked.classes or ("all",)
        asked = [*others, *(_Priced(name, 1) for name in ("moments", "kinds", "ratios"))]
        noise = self._noise(asked)["moments"].noise_multiplier
        size: dict[str, Any] = {"clients": self.asked.clients.size / 2, "classes": len(classes)}
        frequencies = moments.frequencies_for(noise, channels=shape[2] if len(shape) == 3 else 1, **size)
        public = self.asked.learning.columns[field][:_ENOUGH]
        chosen = features.images(shape, frequencies=frequencies, reference=public, field=field)
        return MomentsPart(chosen, ARMS[:1], classes, self.asked.label if self.asked.classes else None)

    def measure(self, number: int, observed: Population, parts: Sequence[Part]) -> dict[str, Measured]:
        """A round, made now, or as this run has made it before."""
        folder = self.run.path / f"round-{number}"
        if (path := checkpoints.newest(folder)) is None:
            measured = measuring.measure(
                self.backend(observed),
                _HALVES.fit(observed),
                parts,
                {part.name: self.mechanisms[part.name] for part in parts},
                clients=observed.size,
                delta=self.delta,
                key=self.root.derive("measure", number),
                note="serving against public data: " + ", ".join(part.name for part in parts),
                **self.paying,
            )
            facts: dict[str, Any] = {"event": to_json(measured.event)}
            facts["ledger"] = measuring.witness(self.ledger, self.population)
            facts |= {name: {"noise_std": m.noise_std, "epsilon": m.epsilon} for name, m in measured.parts.items()}
            folder.mkdir(exist_ok=True)
            path = checkpoints.write(folder, 1, {name: m.sums for name, m in measured.parts.items()}, facts)
        kept = checkpoints.load(path, {part.name: np.zeros(part.coordinates) for part in parts})
        self.ledger.verify(kept.facts["ledger"]).raise_if_broken()  # what is read again was paid for there
        released = {part.name: Measured(np.array(kept.tree[part.name]), **kept.facts[part.name]) for part in parts}
        self.spent.append(from_json(kept.facts["event"]))
        self.releases += [part.to_dict(name) for name, part in released.items()]
        return released

    def first_round(self) -> list[Tested]:
        """Shares, habits, and of pictures the moments of one half of the clients."""
        self.progress("measuring everyone in one round", 1, 4)
        self.measured = self.measure(1, self.asked.clients, self.first)
        tested = list[Tested]()
        for part in self.first:
            if isinstance(part, Shares):
                tested += self._shares(part, self.measured["shares"])
            elif isinstance(part, Habits):
                tested += bias_findings.compare_habits(self.measured["habits"], part, "habit")
        return tested

    def _shares(self, part: Shares, measured: Measured) -> list[Tested]:
        whole, unseen = (
            bias_measures.client_shares(p, part.divisions) for p in (self.asked.reference, self.asked.confirming)
        )
        tested = list[Tested]()
        for place, (division, serving) in enumerate(zip(part.divisions, part.read(measured), strict=True)):
            training = unseen[place] if division.is_learnt else whole[place]
            # of two that make up everything one says it all
            names = division.names[:1] if len(division.names) == 2 and division.is_learnt else division.names
            tested += bias_findings.compare_shares(serving, training, division, names, measured.epsilon)
        return tested

    def second_round(self, tested: list[Tested]) -> Discriminator:
        """What a discriminator has learnt from the first half of the clients, confirmed on the second."""
        self.progress("learning what serving has more of", 2, 4)
        (part,) = (one.part for one in self.first if isinstance(one, FirstArm))
        released = part.read(self.measured["moments"].sums, self.measured["moments"].noise_std)
        about: dict[str, Any] = {"steps": self.steps, "key": self.public.derive("discriminator")}
        doing = lambda done, total: self.progress("fitting generators", done, total)  # noqa: E731
        found = bias_images.learn(
            released, part, self.usual(part, released), self.asked.confirming, progress=doing, **about
        )
        serving, training = (
            _scored(one, str(self.asked.image), found) for one in (self.asked.clients, self.asked.confirming)
        )
        division = kinds_of([found.describe(kind, self.asked.classes) for kind in range(KINDS)])
        ratios = bias_measures.client_means(training, _RATIO)[:, 0]
        limits = (Limits.of("resemblance to serving", ratios),) if len(ratios) else ()
        kinds, habits = Shares((division,), (1,), "kinds"), Habits(_RATIO, limits, (1,), "ratios")
        self.progress("confirming it on the other half", 3, 4)
        measured = self.measure(2, serving, [kinds, habits] if limits else [kinds])
        tested += _kinds_tested(kinds, measured["kinds"], training)
        if limits:
            both = bias_findings.compare_habits(measured["ratios"], habits, "habit")
            tested += both[1:]  # who resembles serving less than public clients do has nothing that they lack
        return found

    def usual(self, part: MomentsPart, released: Moments) -> Moments:
        """Moments of public pictures, with noise like that of the released ones."""
        return bias_images.public_moments(part, self.asked.learning, released, self.public.derive("usual"))

    def discover(self) -> tuple[Word, ...]:
        """Words of unlikely sentences that many clients use and public ones do not; now, or as found before."""
        self.progress("discovering words", 2, 4)
        case = self._likely.case
        common, shares = bias_text.expected_words(bias_text.unlikely(self.asked.confirming), case)
        if not (self.run.path / "words.json").exists():
            own = own_words(bias_text.unlikely(self.asked.clients), case=case, known=common)
            about = {
                "epsilon": price_of_words(self.mechanisms["words"], self.delta),
                "delta": self.delta,
                "key": self.root.derive("words"),
            }
            found = discover_words(own, backend=self.backend, **about, **self.paying)
            release = {"what": "words", "epsilon": found.guarantee.epsilon, "noise_std": found.noise_std}
            words = [(word, float(count)) for word, count in zip(found.words, found.counts, strict=True)]
            kept = {"words": words[:_LISTED], "event": to_json(found.event), "release": release}
            self.run.write("words.json", kept | {"ledger": measuring.witness(self.ledger, self.population)})
        kept = self.run.read("words.json")
        self.ledger.verify(kept["ledger"]).raise_if_broken()
        self.spent.append(from_json(kept["event"]))
        self.releases.append(kept["release"])
        everyone = self.asked.clients.size
        return tuple(Word(word, count, everyone * shares.get(word, 0.0)) for word, count in kept["words"])

    def train(self, training: WordTraining, epsilon: float, words: tuple[Word, ...] | None) -> tuple[str, ...]:
        """What a second model says that was trained on unlikely sentences; it knows discovered words."""
        self.progress("training the second model", 2, 4)
        new = tuple(one.word for one in words or () if one.word not in self._likely.vocabulary)
        known = Vocabulary((*self._likely.vocabulary.words, *new))
        about: dict[str, Any] = {"epsilon": epsilon, "delta": self.delta, "spent": self.spent, "run": self.run}
        about |= {"case": self._likely.case, "backend": self.backend, "key": self.root.derive("training")}
        about |= {"ledger": self.ledger, "population": self.population}
        sentences = bias_text.unlikely(self.asked.clients)
        model, first, cost = bias_text.train_words(sentences, self.asked.learning, known, training, **about)
        self.spent.append(cost)
        price = certify(cost, delta=self.delta).epsilon
        self.releases.append({"what": f"model of unlikely sentences, {training.rounds} rounds", "epsilon": price})
        return bias_text.phrases(model, first, known, training)

    @property
    def _likely(self) -> bias_text.Filter:
        if self.asked.likely is None:
            raise InvalidInput("words are discovered and models of words trained on text: name one as the input")
        return self.asked.likely

    def promise(self, training: WordTraining | None) -> Guarantee:
        """What everything that was spent amounts to."""
        words = f"full: all {self.asked.clients.size:,}, {FORMINGS['zero_fill']}"
        if training is not None:
            words += f"; training: poisson, {training.cohort:,.0f} expected in a round"
        whole = self.spent[0] if len(self.spent) == 1 else Composed(tuple(self.spent))
        return certify(whole, delta=self.delta, participation=words)


def price_of_words(mechanism: GaussianMechanism, delta: float) -> float:
    """The epsilon at which discovering words costs no more than a release by `mechanism` does."""
    return (1 - _ROUNDING) * certify(mechanism.event_for(_CELLS), delta=delta).epsilon


def _scored(population: Population, field: str, found: Discriminator) -> Population:
    """The population after every client has asked the discriminator about its own pictures."""
    kinds, ratios = found.score(population.columns[field])
    columns = {name: column for name, column in population.columns.items() if name in (HALF, bias_measures.LOOKED)}
    return population.replace({**columns, _KIND: kinds, _RATIO: ratios.astype(np.float32)[:, None]})


def kinds_of(described: Sequence[str]) -> Division:
    """Kinds by number, with what they mostly are."""
    words = [*described, *[""] * (KINDS - len(described))]
    names = [f"{kind + 1}, {word}" if word else f"{kind + 1}" for kind, word in enumerate(words)]
    return Division(_KIND, (*names, "as in training"), "kind", is_learnt=True)


def _kinds_tested(part: Shares, measured: Measured, training: Population) -> list[Tested]:
    """Every kind, and all of them together: what is left is as in training."""
    (division,) = part.divisions
    (serving,), (usual,) = part.read(measured), bias_measures.client_shares(training, part.divisions)
    tested = bias_findings.compare_shares(serving, usual, division, division.names[:-1], measured.epsilon)

    def rest(one: ReadShares) -> ReadShares:
        return ReadShares(1 - one.mean[-1:], one.spread[-1:], one.counted, one.noise_std)

    whole = Division(_KIND, ("denser in serving",), bias_findings.REGION)
    return [*tested, *bias_findings.compare_shares(rest(serving), rest(usual), whole, whole.names, measured.epsilon)]
