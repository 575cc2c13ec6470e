"""Laws of noise: every release has its own, and a reproducible key draws it for one question alone."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import flat
import lighter
import numpy as np
import pytest

from blindsight import inspect, keys
from blindsight.accounting.events import Event, Gaussian, Thresholded, flatten
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import moments
from blindsight.algorithms.parties.generators import OneShot
from blindsight.algorithms.parties.party import PartySession, VotingParty
from blindsight.algorithms.parties.voters import OnRawData, PrivateLinear
from blindsight.algorithms.synthetic_votes import NoisyVotes, aggregate
from blindsight.algorithms.vocabulary import count_words, discover_words, own_words
from blindsight.asking import Mean, Missing, Top, ask
from blindsight.codings import features
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Vocabulary
from blindsight.errors import BudgetExceeded
from blindsight.mechanisms import GaussianMechanism, gaussian, publish
from blindsight.synthesizing import synthesize
from blindsight.trees import BoundedSum

DELTA = 1e-6
PRICE: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA}
WORDS = ("we", "see", "it", "now", "here", ".")


@dataclasses.dataclass(frozen=True)
class Draw:
    """One draw of noise: after how many payments, with which key, on which sum, how much, and the noise."""

    paid: int
    key: bytes
    sum: bytes
    noise_multiplier: float
    noise: np.ndarray


@contextlib.contextmanager
def watching() -> Generator[tuple[list[Draw], list[Event]]]:
    """Every draw of Gaussian noise, and every event that a ledger records, in order."""
    drawn, paid = list[Draw](), list[Event]()
    release, record = GaussianMechanism.release, Ledger.record

    def spied(self: GaussianMechanism, total: BoundedSum, *, key: keys.Key, **more: Any) -> Any:
        released = release(self, total, key=key, **more)
        exact = np.asarray(total.value, np.float64) * (total.grid or 1.0)
        noise = np.asarray(released.value, np.float64) * total.n_expected - exact
        about = (len(paid), key.secret, np.asarray(total.value).tobytes())
        drawn.append(Draw(*about, self.noise_multiplier, noise.ravel()))
        return released

    def counted(self: Ledger, event: Event, **more: Any) -> Any:
        entry = record(self, event, **more)
        paid.append(event)
        return entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GaussianMechanism, "release", spied)
        patch.setattr(Ledger, "record", counted)
        yield drawn, paid


@pytest.fixture
def draws() -> Generator[list[Draw]]:
    """Every draw of Gaussian noise while the test runs."""
    with watching() as (drawn, _):
        yield drawn


# --- questions, each in two versions that differ in one client's data or in one setting


def pictures(change: bool = False, clients: int = 50) -> Population:
    """Small images whose bright half says the class; with `change`, one pixel of one client is another."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, clients * 4).astype(np.int32)
    images = random.integers(0, 60, (clients * 4, 8, 8)).astype(np.uint8)
    for label, half in ((0, slice(4, 8)), (1, slice(0, 4))):
        images[labels == label, half] += 150
    images[5, 0, 0] = 255 if change else 0
    about: dict[str, Any] = {"classes": {"label": ("below", "above")}, "synthetic": True}
    return Population({"image": images, "label": labels}, sizes=[4] * clients, name="pictures", **about)


def talk(seed: int, change: bool = False, clients: int = 60) -> Population:
    """Sentences of known words and a few of everyone's own; with `change`, one client says one more."""
    rows = np.random.default_rng(seed).choice(WORDS[:-1], (clients * 12, 4)).tolist()
    lines = [f"{' '.join(row)} zorg ." if number % 5 == 0 else f"{' '.join(row)} ." for number, row in enumerate(rows)]
    lines[7] = "we see blip now ." if change else lines[7]
    return Population({"text": np.array(lines, dtype=TEXT)}, sizes=[12] * clients, name=f"talk {seed}")


def rows(change: bool = False, clients: int = 50) -> Population:
    """Two numbers and a class; with `change`, one number of one client is another."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, clients * 4)).astype(np.float32)
    label = ((x > 0) ^ (random.random(clients * 4) < 0.3)).astype(np.int32)
    x[5] += 3.0 * change
    about: dict[str, Any] = {"classes": {"label": ("below", "above")}, "synthetic": True}
    return Population({"x": x, "y": y, "label": label}, sizes=[4] * clients, name="rows", **about)


def by_sign(sign: float, inputs: np.ndarray) -> np.ndarray:
    return np.stack([-sign * inputs[:, 0], sign * inputs[:, 0]], axis=1)


def contrasts(folder: Path, key: keys.Key, other: bool, *, ask: Callable[..., Any], **more: Any) -> Guarantee:
    about: dict[str, Any] = {"inputs": ["x", "y"], "out": folder / "run", "ledger": Ledger(folder / "ledger.db")}
    return flat.ask(ask, rows(other), key=key, **PRICE, **about, **more).guarantee


def by_model(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    """The same clients and settings, and a function that nobody can tell from another by its name."""
    model = functools.partial(by_sign, -1.0 if other else 1.0)
    return contrasts(folder, key, False, ask=inspect.slices, model=lambda inputs: model(inputs))


def by_threshold(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    model = functools.partial(by_sign, 1.0)
    return contrasts(folder, key, False, ask=inspect.slices, model=model, low=0.5 + other * 1e-12, high=0.9)


def ask_labelling(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    about: dict[str, Any] = {"samples": 2, "key": key, "out": folder / "run", "ledger": Ledger(folder / "ledger.db")}
    return flat.ask(inspect.labelling, pictures(other), **PRICE, **about).guarantee


def ask_unknowns(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    about: dict[str, Any] = {"vocabulary": Vocabulary(WORDS), "suspects": ("token_join",), "discover": True}
    about |= {"ledger": Ledger(folder / "ledger.db"), "out": folder / "run", "key": key}
    return flat.ask_unknowns(talk(0), talk(1, other), **PRICE, **about).guarantee


def ask_bias(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    about: dict[str, Any] = {"reference": talk(2), "inputs": "text", "discover": True, "key": key}
    return flat.ask_bias(
        talk(0, other), ledger=Ledger(folder / "ledger.db"), out=folder / "run", **PRICE, **about
    ).guarantee


def ask_words(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    listed = ("zorg", "blip") if other else ("zorg", "quux")
    return count_words(own_words(talk(0)), listed, key=key, ledger=Ledger(folder / "ledger.db"), **PRICE).guarantee


def find_words(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    about: dict[str, Any] = {"key": key, "ledger": Ledger(folder / "ledger.db"), "length": 6}
    return discover_words(own_words(talk(0, other)), **PRICE, **about).guarantee


def ask_statistics(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    """A mean, a missing rate, and words that nobody listed; with `other`, one client says one more."""
    spoken = talk(0, other, clients=40)
    mood = np.random.default_rng(1).random(spoken.n_examples)
    clients = spoken.replace({"text": spoken.columns["text"], "mood": mood})
    session = inspect.Session(out=folder / "run", ledger=Ledger(folder / "ledger.db"), key=key)
    items = (Mean("mood"), Missing("text"), Top("text"))
    return ask(clients, items, ranges={"mood": (0.0, 1.0)}, session=session, **PRICE).guarantee


def ask_rows(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    """Synthetic rows, from a round of fields and one of pairs; with `other`, one client has another number."""
    session = inspect.Session(out=folder / "run", ledger=Ledger(folder / "ledger.db"), key=key)
    ranges = {"x": (-3.0, 3.0), "y": (-3.0, 3.0)}
    return synthesize(rows(other), ranges=ranges, rows=5, session=session, **PRICE).guarantee


def ask_moments(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    part = features.images((8, 8), frequencies=4 + other)
    found = moments.measure(pictures(), part, key=key, ledger=Ledger(folder / "ledger.db"), **PRICE).guarantee
    assert found is not None
    return found


def party(folder: Path, other: bool, **changes: Any) -> VotingParty:
    inputs, labels = (pictures().columns[field] for field in ("image", "label"))
    about: dict[str, Any] = {"name": "clinic", "classes": ("below", "above"), "shape": (8, 8), "examples": 200}
    about |= {"data": lambda: (inputs, labels), "ledger": folder / "ledger.db", "seed": 3}
    shown = features.images((8, 8), frequencies=4 + other)
    about |= {"generator": OneShot(features=shown, noise_multiplier=2.0, steps=0)}
    about |= {"voter": PrivateLinear(noise_multiplier=2.0, steps=3)}
    return VotingParty(**about | changes)


def ask_party(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    session = PartySession(party(folder, other))
    made = session.samples(4)
    session.votes(made, cost=None, unprotected=False)
    return session.guarantee(DELTA)


class _Constant:
    """A voter who says the same of everything."""

    def __init__(self, said: int) -> None:
        self.said = said

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.full(len(inputs), self.said)


def ask_votes(folder: Path, key: keys.Key, other: bool) -> Guarantee:
    """The same questions and other votes."""
    said = [0, 0, int(other)]
    own = [lambda inputs, labels, one=one: _Constant(one) for one in said]
    parties = [
        party(folder, False, name=f"clinic {n}", ledger=folder / f"{n}.db", voter=OnRawData(estimator=fit))
        for n, fit in enumerate(own)
    ]
    about: dict[str, Any] = {"classes": ("below", "above"), "shape": (8, 8), "samples": 4, "margin": 0}
    votes = NoisyVotes(epsilon=3.0, delta=DELTA)
    about |= {"train": lambda x, y: None, "delta": DELTA, "key": key, "votes": votes, "processes": False}
    return aggregate(parties, **about).guarantee


QUESTIONS: dict[str, Callable[[Path, keys.Key, bool], Guarantee]] = {
    "sanity": functools.partial(contrasts, ask=inspect.sanity),
    "mistakes": functools.partial(contrasts, ask=inspect.mistakes, model=functools.partial(by_sign, 1.0), minimum=1),
    "slices by another model": by_model,
    "slices by another threshold": by_threshold,
    "labelling": ask_labelling,
    "unknowns": ask_unknowns,
    "bias": ask_bias,
    "words": ask_words,
    "discovered words": find_words,
    "statistics": ask_statistics,
    "synthetic rows": ask_rows,
    "moments": ask_moments,
    "party": ask_party,
    "votes": ask_votes,
}
ANEW = ("bias",)  # its halves are drawn for each run, so asked again it is another question


DISCOVER = ("unknowns", "bias", "discovered words")  # levels that are not needed are planned for and not made
AT_THE_TABLE = ("votes",)  # noise on the sum over parties, which each of them pays for
WITHOUT_A_PRICE = ("party", "votes")  # nobody asks them for an epsilon


@dataclasses.dataclass(frozen=True)
class Answered:
    """A question that was asked once, on a fresh ledger, with a key that nothing but its purposes tells apart."""

    name: str
    draws: list[Draw]
    paid: list[Event]
    promise: Guarantee
    ledgers: list[Ledger]


@pytest.fixture(scope="module", params=QUESTIONS)
def answered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answered:
    folder = tmp_path_factory.mktemp("answered")
    with lighter.few_steps(), watching() as (drawn, paid):
        promise = QUESTIONS[request.param](folder, keys.reproducible(7), False)
    return Answered(request.param, drawn, paid, promise, [Ledger(path) for path in sorted(folder.glob("*.db"))])


def test_every_release_has_noise_of_its_own(answered: Answered):
    """As many distinct keys as releases, each paid for before it is drawn, and no key on two sums."""
    drawn = {(draw.key, draw.sum) for draw in answered.draws}
    assert len({key for key, _ in drawn}) == len(drawn) > 0
    by_payment: dict[int, set[bytes]] = {}
    for draw in answered.draws:
        by_payment.setdefault(draw.paid, set()).add(draw.key)
    assert 0 not in by_payment
    if answered.name not in AT_THE_TABLE:
        assert sorted(by_payment) == list(range(1, len(answered.paid) + 1))
    together = [key for keys_of in by_payment.values() for key in keys_of]
    assert len(set(together)) == len(together)


def precision(event: Event) -> float:
    """What Gaussian releases tell in all, as 1 / noise_multiplier^2: it adds up, whatever they are about."""
    parts = ((leaf.event if isinstance(leaf, Thresholded) else leaf, count) for leaf, count in flatten(event).items())
    leaves = list(parts)
    assert all(isinstance(leaf, Gaussian) for leaf, _ in leaves)
    return math.fsum(count / leaf.noise_multiplier**2 for leaf, count in leaves if isinstance(leaf, Gaussian))


@pytest.mark.parametrize("answered", [name for name in QUESTIONS if name not in AT_THE_TABLE], indirect=True)
def test_every_payment_is_for_just_what_is_drawn_after_it(answered: Answered):
    """The same noise on the same sum is one release; a sum with noise of a second key is a second one."""
    for number, event in enumerate(answered.paid, 1):
        drawn = {(draw.key, draw.sum): draw.noise_multiplier**-2 for draw in answered.draws if draw.paid == number}
        assert math.fsum(drawn.values()) == pytest.approx(precision(event), rel=1e-9)


def test_on_a_fresh_ledger_there_is_what_the_report_promises_and_no_more(answered: Answered):
    """A promise below the ledger was not kept; one that is far above it was not what was asked for."""
    spent = [one.spent(name, DELTA).epsilon for one in answered.ledgers for name in one.populations()]
    promised = answered.promise.epsilon
    assert 0 < max(spent) <= promised * (1 + 1e-9)
    if answered.name not in DISCOVER:
        assert max(spent) == pytest.approx(promised, rel=0.01)
    if answered.name not in WITHOUT_A_PRICE:
        assert 0.96 * PRICE["epsilon"] <= promised <= PRICE["epsilon"]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("name", QUESTIONS)
def test_two_questions_with_one_reproducible_key_share_no_noise(tmp_path, draws, name):
    """Else the difference of two answers would be exact; the same question asked again is the same answer."""
    drawn = list[list[Draw]]()
    for number, other in enumerate((False, True, False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        QUESTIONS[name](folder, keys.reproducible(11), other)
        drawn.append(draws.copy())
        draws.clear()
    one, another, again = drawn
    assert one
    assert one[-1].key != another[-1].key
    drawn_before = {draw.key: draw for draw in one}
    for beside in another:
        draw = drawn_before.get(beside.key, one[-1])
        if (draw.key, draw.sum) == (beside.key, beside.sum):  # what both questions have in common is one release
            continue
        assert draw.key != beside.key
        size = min(draw.noise.size, beside.noise.size)
        assert not np.allclose(draw.noise[:size], beside.noise[:size], rtol=0.05)
    if name not in ANEW:
        assert [draw.key for draw in again] == [draw.key for draw in one]
        assert all(np.array_equal(a.noise, b.noise) for a, b in zip(one, again, strict=True))


@pytest.mark.parametrize("name", ["sanity", "statistics", "words", "moments"])
@pytest.mark.usefixtures("few_steps")
def test_two_questions_with_one_secret_key_share_no_noise(tmp_path, draws, name):
    """A session is for many questions, and so is its key; no ledger could tell that secret noise was drawn before."""
    key = keys.root()
    for number, other in enumerate((False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        QUESTIONS[name](folder, key, other)
    assert len({draw.key for draw in draws}) == len(draws) > 1


# --- what slips through is counted


def sums(*values: float) -> BoundedSum:
    return BoundedSum(np.array(values, np.float32), l2_bound=1.0, n_expected=1.0)


@pytest.mark.parametrize(
    ("second", "noise"), [(sums(1.0, 2.5), 2.0), (sums(1.0, 2.0), 3.0)], ids=["another sum", "another scale"]
)
def test_the_same_reproducible_noise_on_another_sum_is_counted_as_not_private(ledger_path, second, noise):
    ledger, key = Ledger(ledger_path), keys.reproducible(1)
    about: dict[str, Any] = {"key": key, "ledger": ledger}
    mechanism = gaussian(2.0, sampler="float")
    publish(mechanism, sums(1.0, 2.0), population="phones", **about)
    again = publish(mechanism, sums(1.0, 2.0), population="phones", **about)
    assert ledger.spent("phones", DELTA).is_private  # the same release once more
    assert again.event == publish(mechanism, sums(1.0, 2.0), population="phones", **about).event
    found = publish(gaussian(noise, sampler="float"), second, population="tablets", **about)
    assert found.event.name == "non_private"
    for name in ("phones", "tablets"):  # each gives the other's noise away
        assert not ledger.spent(name, DELTA).is_private


def test_a_budget_refuses_the_same_noise_on_another_sum(ledger_path, draws):
    ledger = Ledger(ledger_path)
    about: dict[str, Any] = {"population": "phones", "key": keys.reproducible(1)}
    ledger.set_budget("phones", epsilon=100.0, delta=DELTA)
    mechanism = gaussian(2.0, sampler="float")
    publish(mechanism, sums(1.0, 2.0), ledger=ledger, **about)
    with pytest.raises(BudgetExceeded):
        publish(mechanism, sums(1.0, 2.5), ledger=ledger, **about)
    assert len(draws) == 1


def test_one_secret_key_on_two_sums_draws_noise_for_each(ledger_path, draws):
    """With the same noise their difference would be exact, and no ledger could tell: secret noise leaves no trace."""
    about: dict[str, Any] = {"key": keys.root(), "ledger": Ledger(ledger_path), "population": "phones"}
    mechanism = gaussian(2.0, sampler="float")
    for second in (sums(1.0, 2.5), sums(1.0, 2.0)):
        publish(mechanism, sums(1.0, 2.0), **about)
        publish(mechanism, second, **about)
    assert len({draw.key for draw in draws}) == len(draws) == 4
    assert len({draw.noise.tobytes() for draw in draws}) == 4


def test_secret_noise_leaves_no_trace_in_the_ledger(ledger_path):
    ledger = Ledger(ledger_path)
    for value in (1.0, 2.0):
        publish(
            gaussian(2.0, sampler="float"), sums(value), key=keys.root(), ledger=ledger, population="phones", note="x"
        )
    assert {entry.note for entry in ledger.entries()} == {"x"}
    assert ledger.spent("phones", DELTA).is_private
