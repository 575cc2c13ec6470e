"""What could be found, from public data: as often as rounds find it, for every fault, never the easiest alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from blindsight import inspect
from blindsight.accounting.guarantee import certify
from blindsight.accounting.ledger import Ledger
from blindsight.data import Population, embedded, faults
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import reading
from blindsight.inspection.contrast.foresight import Foresight
from blindsight.inspection.contrast.limits import Limit, in_words, is_blind
from blindsight.inspection.contrast.question import Comparing, Sanity, Slices
from blindsight.inspection.contrast.simulating import Thresholds, noise_of
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.question import Public, complete
from blindsight.inspection.sections.evidence import is_difference
from blindsight.inspection.unknowns.foresight import WordForesight
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.models.primary import primary

INPUTS = ("height", "weight", "shoe")
ENDS = {"height": (100.0, 220.0), "weight": (20.0, 160.0), "shoe": (20.0, 60.0)}


def people(seed: int, clients: int) -> Population:
    """Clients with a few rows each: height, weight, shoe size, and whether they are tall."""
    dice = np.random.default_rng(seed)
    rows = 8 * clients
    own = np.repeat(dice.normal(0, 1, clients), 8)
    columns = {
        "height": 165 + 6 * own + dice.normal(0, 8, rows),
        "weight": 70 + 4 * own + dice.normal(0, 12, rows),
        "shoe": 40 + own + dice.normal(0, 2, rows),
    }
    label = (columns["height"] > 165).astype(np.int32)
    return Population(
        {**columns, "label": label}, sizes=[8] * clients, name=f"people {seed}", classes={"label": ("short", "tall")}
    )


def by_height(rows: np.ndarray) -> np.ndarray:
    """A model that works row by row, and says so to nobody."""
    return np.stack([165 - rows[:, 0], rows[:, 0] - 165], axis=1).astype(np.float32)


MODEL = primary(by_height, name="by height")


def question(kind: type[Comparing], clients: int = 400, *, with_ranges: bool = True, **about: Any) -> Comparing:
    fields = {name: Field("number", *ends) for name, ends in ENDS.items()} if with_ranges else {}
    schema = complete(Schema(fields, INPUTS, "label"), people(0, 3))
    given: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "model": "m", "reference": "r"} | about
    return kind(schema=schema, clients=clients, **given)


def sight_of(asked: Comparing, public: int = 100) -> Foresight:
    return Foresight(asked, Public(model=MODEL, reference=people(1, public)))


@pytest.fixture(scope="module")
def slices() -> Foresight:
    return sight_of(question(Slices, thresholds=(0.7, 0.9)))


@pytest.fixture(scope="module")
def sanity() -> Foresight:
    return sight_of(question(Sanity))


@pytest.mark.parametrize("name", ["slices", pytest.param("sanity", marks=pytest.mark.slow)])
def test_the_simulated_tests_are_those_that_read_a_release(name, request):
    """A twin: the same sums, read one by one as an inspection does, with nothing wrong and with a fault."""
    sight = request.getfixturevalue(name)
    one, clients = sight.round, sight.question.clients
    public = reading.usual(one.by_name, one.arms, sight.planter.healthy)
    tests, noise, dice = Thresholds.of(one, public, clients), noise_of(one), np.random.default_rng(3)
    faulty = sight.planter.sent("unit_change:field=height:factor=100", one, list(public.exact))
    sums, verdicts = {part: list[np.ndarray]() for part in public.exact}, list[bool]()
    event = joint(*(one.mechanisms[part.name].planned_event for part in one.parts))
    tested = {part: one.by_name[part] for part in public.exact}
    for share in (0.0, 0.02, 0.04, 0.06, 0.1):
        for _ in range(4):
            hit = int(share * clients)
            for part, sent in public.exact.items():
                clean = sent[dice.integers(0, len(sent), clients - hit)].sum(axis=0)
                clean = clean + faulty[part][dice.integers(0, len(faulty[part]), hit)].sum(axis=0)
                sums[part].append(clean + dice.normal(0, noise[part], clean.shape))
            parts = {part: Measured(rows[-1], noise[part], 1.0) for part, rows in sums.items()}
            measured = Measurement(parts, tuple(one.arms), clients, event, certify(event, delta=1e-6))
            verdicts.append(any(map(is_difference, reading.read(measured, tested, one.arms, public)[0])))
    publics = np.tile(public.vectors["cues"].sum(axis=0), (len(verdicts), 1))
    detected = tests.detected({part: np.stack(rows) for part, rows in sums.items()}, publics)
    assert detected.tolist() == verdicts
    assert 0 < sum(verdicts) < len(verdicts)


def test_more_clients_with_a_fault_are_easier_to_see_and_every_fault_has_its_own_limit(sanity):
    limits = {one.fault: one for one in sanity.detection().limits}
    strong, swap = min(limits.values(), key=lambda one: one.smallest or 1.0), limits["weight and shoe swapped"]
    assert list(strong.power) == sorted(strong.power)
    assert strong.smallest is not None
    assert swap.smallest is not None
    for name in INPUTS:
        assert any(f"field={name}" in fault for fault in limits)
        assert f"{name} moved by one standard deviation" in limits
    hardest = max(one.smallest or 1.0 for one in limits.values())
    assert hardest > 2 * min(one.smallest or 1.0 for one in limits.values())


@pytest.mark.slow
def test_a_swap_of_columns_is_never_contradicted_by_the_easiest_test(tmp_path):
    """Without ranges a swap of similar columns moves little; the sentence must not promise the best test's limit."""
    asked = question(Sanity, with_ranges=False)
    clients, reference = people(2, 400), people(1, 100)
    seen = dict(clients.columns)
    hit = np.repeat(np.arange(400) < 80, 8)
    seen["weight"], seen["shoe"] = (
        np.where(hit, seen["shoe"], seen["weight"]),
        np.where(hit, seen["weight"], seen["shoe"]),
    )
    session = inspect.Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
    report = inspect.sanity(
        clients.replace(seen), reference=reference, schema=Schema({}, INPUTS), epsilon=2.0, delta=1e-6, session=session
    )
    told = report.detection
    assert told is not None
    foreseen = Foresight(dataclasses.replace(asked, epsilon=2.0, model=""), Public(reference=reference)).detection()
    assert foreseen is not None
    swap = next(one for one in foreseen.limits if one.fault == "weight and shoe swapped")
    hardest = max((one.smallest or 1.0) for one in foreseen.limits)
    assert hardest >= (swap.smallest or 1.0)
    if report.outcome == "nothing":  # of 20 % of clients
        assert swap.smallest is None or swap.smallest > 0.15
    else:
        assert swap.power[2] > 0.05
    assert all(name in told.remark for name in INPUTS)
    assert "no public range" in str(report)
    assert "Even the most sensitive" not in report.verdict
    assert asked.ranges == {}


def test_sentences_name_the_range_and_what_is_missed():
    easy, hard = Limit("invert", 0.01, (1.0,) * 5), Limit("blur", 0.4, (0.0, 0.1, 0.3, 1.0, 1.0))
    lost = Limit("gamma", None, (0.0,) * 5)
    words = in_words([hard, lost, easy])
    assert "the easiest (invert) is detected with 90 % power above 1 % of clients" in words
    assert "(blur) above 40 %; gamma would be missed even on all clients" in words
    assert "missed even on all clients" in in_words([lost])
    assert is_blind([lost])
    assert not is_blind([lost, hard])
    dim = Limit("crop", None, (0.0, 0.1, 0.2, 0.6, 0.7))
    assert not is_blind([dim])
    assert "none is detected with 90 % power" in in_words([lost, dim])
    assert "the most visible (crop) is detected in 70 % of cases at best" in in_words([lost, dim])


def test_a_single_fault_is_no_range():
    assert in_words([Limit("blur", 0.4, (0.0, 0.1, 0.3, 1.0, 1.0))]) == (
        "blur, planted in public data, is detected with 90 % power above 40 % of clients."
    )


@pytest.mark.slow
def test_limits_are_those_of_every_fault_even_if_one_was_found(tmp_path):
    clients, reference = people(2, 400), people(1, 60)
    broken = clients.columns["weight"] * np.where(np.repeat(np.arange(400) < 200, 8), 2.2, 1.0)
    session = inspect.Session(out=tmp_path / "run", ledger=tmp_path / "l.db")
    schema = Schema({name: Field("number", *ends) for name, ends in ENDS.items()}, INPUTS)
    about: dict[str, Any] = {"reference": reference, "schema": schema, "epsilon": 8.0, "delta": 1e-6}
    report = inspect.sanity(clients.replace({**clients.columns, "weight": broken}), **about, session=session)
    assert report.outcome == "fault"
    assert Ledger(tmp_path / "l.db").entries()  # a path will do
    assert report.detection is not None
    listed = {one.fault for one in report.detection.limits}
    asked = dataclasses.replace(question(Sanity), model="")
    assert listed >= set(Foresight(asked, Public(reference=reference)).faults())


@pytest.mark.parametrize(("share", "epsilon"), [(0.03, 8.0), (0.06, 4.0), (0.1, 2.0)])
def test_strangers_are_found_as_often_as_predicted(share, epsilon):
    """The prediction knows one reference; the clients are drawn from other people."""
    fault, asked = "missing_fill:field=weight", question(Sanity, 300, epsilon=epsilon)
    sight, others = sight_of(asked, 150), Foresight(asked, Public(model=MODEL, reference=people(7, 600)), planted=600)
    simulation = sight.simulation(shares=(share,), populations=400)
    assert simulation is not None
    one = sight.round
    predicted = simulation.power(sight.planter.sent(fault, one, simulation.parts) or {})[0]
    public = reading.usual(one.by_name, one.arms, sight.planter.healthy)  # pyright: ignore[reportArgumentType]
    strangers = reading.usual(one.by_name, one.arms, others.planter.healthy)  # pyright: ignore[reportArgumentType]
    faulty, tests = others.planter.sent(fault, one, simulation.parts) or {}, Thresholds.of(one, public, 300)
    dice, noise, sums = np.random.default_rng(5), noise_of(one), {part: list[np.ndarray]() for part in public.exact}
    for _ in range(300):
        hit = dice.binomial(300, share)
        for part, sent in strangers.exact.items():
            clean = sent[dice.integers(0, 600, 300 - hit)].sum(axis=0) + faulty[part][dice.integers(0, 600, hit)].sum(
                axis=0
            )
            sums[part].append(clean + dice.normal(0, noise[part], clean.shape))
    publics = np.tile(public.vectors["cues"].sum(axis=0), (300, 1))
    realised = tests.detected({part: np.stack(rows) for part, rows in sums.items()}, publics).mean()
    assert predicted == pytest.approx(realised, abs=0.15)


def test_a_fault_of_a_public_slice_hits_that_slice_alone():
    """A bug of all versions makes no difference between versions; a bug of the first one does."""
    half = np.repeat(np.arange(100) % 2, 8).astype(np.int32)
    reference = people(1, 100)
    reference = reference.replace({**reference.columns, "version": half})
    reference.classes["version"] = ("old", "new")
    schema = complete(
        Schema({name: Field("number", *ends) for name, ends in ENDS.items()}, INPUTS), reference, also=("version",)
    )
    asked = Slices(schema=schema, clients=400, epsilon=8.0, delta=1e-6, reference="r", by="version")
    (limit,) = Foresight(asked, Public(reference=reference)).limits(among=["missing_fill:field=height"])
    assert limit.smallest is not None
    assert limit.smallest < 0.5


def test_a_model_that_reads_whole_batches_is_asked_client_by_client():
    def standardised(rows: np.ndarray) -> np.ndarray:
        return by_height(rows - rows.mean(axis=0) + 165)

    asked = question(Sanity)
    for model, is_by_row in ((MODEL, True), (primary(standardised), False)):
        sight = Foresight(asked, Public(model=model, reference=people(1, 30)))
        assert sight.planter.public.model.by_row is is_by_row  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.slow
def test_two_clients_are_refused_unless_asked_for_by_name(tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    schema = Schema({name: Field("number", *ends) for name, ends in ENDS.items()}, INPUTS, "label")
    about: dict[str, Any] = {
        "epsilon": 8.0,
        "delta": 1e-6,
        "schema": schema,
        "model": MODEL,
        "reference": people(1, 60),
    }
    with pytest.raises(InvalidInput, match=r"2 clients at epsilon 8 cannot give an answer.*--even-if-blind"):
        inspect.sanity(people(3, 2), **about, session=inspect.Session(out=tmp_path / "run", ledger=ledger))
    assert not (tmp_path / "run").exists()
    assert ledger.entries() == []
    anyway = inspect.Session(out=tmp_path / "run", ledger=ledger, even_if_blind=True)
    report = inspect.sanity(people(3, 2), **about, session=anyway)
    assert report.detection is not None
    assert report.detection.is_blind
    assert "missed even on all clients" in report.verdict


def test_the_refusal_depends_on_public_things_alone(tmp_path):
    """Two clients with whatever values: the same words; and many clients are not refused."""
    schema, told = Schema({}, INPUTS), set[str]()
    for seed in (3, 4):
        odd = people(seed, 2)
        odd = odd.replace({**odd.columns, "height": odd.columns["height"] * 10.0**seed})
        with pytest.raises(InvalidInput) as refused:
            inspect.sanity(odd, epsilon=8.0, delta=1e-6, schema=schema, session=inspect.Session(out=tmp_path / "run"))
        told.add(str(refused.value))
    assert len(told) == 1


def test_words_that_run_together_are_foreseen():
    texts = embedded("forum", clients=60, seed=3, examples=(6, 10))
    vocabulary = Vocabulary.most_frequent(embedded("forum", clients=200, seed=4), 2000)
    sight = WordForesight(texts, vocabulary, clients=800, epsilon=4.0, delta=1e-6)
    often, seldom = (sight.power("token_join", share, 20) for share in (0.3, 0.001))
    assert often > 0.9
    assert seldom < 0.3
    assert faults.parse("token_join")


def test_a_dry_run_says_what_could_be_found_and_what_the_ledger_would_say(tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.set_budget("people 2", epsilon=8.0, delta=1e-6)
    schema = Schema({name: Field("number", *ends) for name, ends in ENDS.items()}, INPUTS, "label")
    about: dict[str, Any] = {
        "epsilon": 6.0,
        "delta": 1e-6,
        "schema": schema,
        "model": MODEL,
        "reference": people(1, 60),
    }
    session = inspect.Session(out=tmp_path / "run", ledger=ledger)
    dry = inspect.Session(out=tmp_path / "dry", ledger=ledger, dry_run=True)
    before = inspect.sanity(people(2, 300), **about, session=dry)
    assert before.detection is not None
    assert before.detection.statement in before.answer
    (spent,) = before.ledger
    assert (spent.epsilon, spent.budget) == (0.0, 8.0)
    assert spent.after == pytest.approx(6.0, abs=0.05)
    inspect.sanity(people(2, 300), **about, session=session)
    (after,) = inspect.sanity(people(2, 300), **about, session=dry).ledger
    assert after.epsilon == pytest.approx(6.0, abs=0.05)
    assert after.after is not None
    assert after.after > 7
    assert "over its budget of 8" in after.refused
    assert "After this question: epsilon" in str(after)
    assert len(ledger.entries("people 2")) == len(Ledger(tmp_path / "l.db").entries("people 2"))
    assert not (tmp_path / "dry").exists()
