"""Names of faults in tables, texts and images, by the whole inspection: what is planted is named, or called unknown."""

import dataclasses
import json

import numpy as np
import pytest

from blindsight import inspect, keys
from blindsight.data import embedded, faults
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.inspection import Session
from blindsight.inspection.contrast.changed import Unknown, changed_statistics, share_with_it
from blindsight.inspection.contrast.explained import (
    ANYTHING,
    NAMELESS,
    SEVERAL,
    UNKNOWN,
    Explanation,
    FaultShare,
    group_of,
    verdict_on,
)
from blindsight.inspection.contrast.findings import diagnose, share_of_clients
from blindsight.inspection.contrast.nameless import nameless
from blindsight.inspection.contrast.planting import candidates, worth_running
from blindsight.inspection.contrast.predicting import Evidence
from blindsight.inspection.contrast.released import ArmCues, ArmVotes
from blindsight.inspection.finding import Finding
from blindsight.inspection.report import Report

FIELDS = {"age": Field("whole", 0, 100), "hours": Field("whole", 0, 80), "savings": Field("whole", 0, 50_000)}
TEXT_FAULTS = ("case:0.3:to=lower", "token_join:0.3:where=all")
TABLE = Schema(FIELDS, ("age", "hours", "savings"))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def people(kind: str, *, clients: int, seed: int) -> Population:
    some = embedded(kind, clients=clients, seed=seed, examples=(8, 16))
    return some.replace(some.columns)


def session() -> Session:
    return Session(key=keys.reproducible(3))


def asked(kind: str, schema: Schema, fault: str, *, clients: int = 600) -> Report:
    private, public = people(kind, clients=clients, seed=1), people(kind, clients=100, seed=2)
    changed = faults.apply(private, fault, seed=5)
    return inspect.sanity(changed, reference=public, epsilon=20, delta=1e-6, schema=schema, session=session())


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("column_swap:0.3:a=age:b=savings", marks=pytest.mark.slow),
        pytest.param("unit_change:0.3:field=hours:factor=2.54", marks=pytest.mark.slow),
        pytest.param("missing_fill:0.3:field=age:value=-1", marks=pytest.mark.slow),
        pytest.param("repeated_rows:0.4", marks=pytest.mark.slow),
    ],
)
def test_faults_of_tables_are_named_with_their_share(fault, few_steps):
    report = asked("tabular", TABLE, fault)
    planted, said = faults.parse(fault)[0], report.named[0]
    assert group_of(said.fault).startswith(group_of(str(dataclasses.replace(planted, fraction=1.0, parameters={}))))
    assert said.low <= planted.fraction <= said.high
    assert said.fault in report.verdict


@pytest.mark.parametrize(
    "fault", ["truncation:0.3", *(pytest.param(one, marks=pytest.mark.slow) for one in TEXT_FAULTS)]
)
def test_faults_of_texts_are_named(fault):
    report = asked("forum", Schema(inputs=("text",)), fault)
    name = fault.partition(":")[0]
    assert [one.fault.partition(":")[0] for one in report.named] == [name]


def test_an_unknown_fault_is_described_in_terminal_page_and_json(tmp_path, few_steps):
    private, public = people("tabular", clients=600, seed=1), people("tabular", clients=100, seed=2)
    rows, hit = dict(private.columns), np.repeat(np.arange(600) % 3 == 0, private.sizes)
    rounded = 10 * (rows["age"] // 10)
    rows["age"] = np.where(hit, rounded, rows["age"])
    rows["hours"] = np.where(hit, 80 - rows["hours"] // 2, rows["hours"])
    private = private.replace(rows)
    report = inspect.sanity(private, reference=public, epsilon=20, delta=1e-6, schema=TABLE, session=session())
    assert report.explanation is not None
    assert report.explanation.fault == UNKNOWN
    assert report.verdict.startswith("An unknown fault in about ")
    assert "hours: middle half lower" in report.verdict
    report.save(tmp_path / "page.html")
    report.save_json(tmp_path / "report.json")
    page, stored = (tmp_path / "page.html").read_text(), json.loads((tmp_path / "report.json").read_text())
    assert "An unknown fault in about" in page
    unknown = stored["explanation"]["unknown"]
    assert unknown["low"] <= unknown["share"] <= unknown["high"]
    assert unknown["low"] <= 1 / 3 <= unknown["high"]
    assert "hours: middle half lower" in unknown["changed"]
    again = Report.from_dict(stored)
    assert again.verdict == report.verdict


# --- laws


def test_every_field_has_candidates():
    names = candidates(
        people("tabular", clients=3, seed=0), ("age", "hours", "region"), "label", ranges={"age": (0, 99)}
    )
    assert {"column_swap:a=age:b=hours", "missing_fill:field=hours:value=999", "repeated_rows"} <= set(names)
    assert any(name.startswith("lost_category:field=region") for name in names)
    assert not any("field=label" in name for name in names)
    texts = candidates(people("forum", clients=3, seed=0), ("text",), "label")
    assert {"html_entities", "case:to=lower", "token_join:where=middle", "repeated_rows"} <= set(texts)
    hours = Population({"hour": np.arange(24)}, sizes=[24], name="day")
    shifts = candidates(hours, ("hour",), "label", ranges={"hour": (0.0, 23.0)})
    assert {"time_shift:field=hour:add=1:wrap=24", "time_shift:field=hour:add=-5:wrap=24"} <= set(shifts)


def one(fault: str, deviance: float, *, p_value: float | None = 0.5, low: float = 0.1) -> Explanation:
    return Explanation(fault, 0.2, low, 0.3, deviance, p_value)


def test_a_name_must_beat_anything_else():
    assert verdict_on((one("invert", 0), one(ANYTHING, 50, p_value=None)))[0] == "invert"
    assert verdict_on((one("invert", 0), one(ANYTHING, 3, p_value=None)))[0] == UNKNOWN
    pair = Explanation.of([FaultShare("invert", 0.1, 0.05, 0.15), FaultShare("flip", 0.1, 0.05, 0.15)], 0.0)
    pair = dataclasses.replace(pair, p_value=0.5)
    assert verdict_on((pair, one(ANYTHING, 50, p_value=None)))[0] == "invert + flip"
    assert verdict_on((pair, one(ANYTHING, 15, p_value=None)))[0] == UNKNOWN  # two faults can mimic more
    touching = dataclasses.replace(pair, parts=(pair.parts[0], FaultShare("flip", 0.1, 0.0, 0.2)))
    assert verdict_on((touching, one(ANYTHING, 50, p_value=None)))[0] == UNKNOWN


def test_degrees_of_one_fault_are_one_name():
    crops = (one("crop:margin=0.15", 0), one("crop", 2))
    assert verdict_on(crops)[0] == "crop:margin=0.15"
    assert verdict_on((*crops, one("zoom", 3)))[0] == SEVERAL
    assert group_of("unit_change:field=age:factor=60") == group_of("unit_change:field=age:factor=100")
    assert group_of("unit_change:field=age:factor=60") != group_of("unit_change:field=hours:factor=60")
    assert group_of("rotate90:turns=3") != group_of("rotate90")


def test_the_share_of_an_unknown_fault_is_in_its_interval():
    covered = 0
    for seed in range(30):
        dice = np.random.default_rng(seed)
        public = dice.normal(0.4, 0.05, (300, 3))
        private = dice.normal(0.4, 0.05, (800, 3)) + 0.3 * (dice.random((800, 1)) < 0.2)
        std = 1.0
        mean, normal = private.mean(axis=0) + std * dice.standard_normal(3) / 800, public.mean(axis=0)
        noise = std * np.sqrt(1 + 4 * (mean - 0.5) ** 2) / 800
        spread = np.sqrt(private.var(axis=0) + 1.64 * noise + noise * dice.standard_normal(3))
        seen = ArmCues("everyone", ("a", "b", "c"), 800.0, std, mean, spread)
        share = share_with_it(seen, ArmCues("public", seen.names, 300.0, 0.0, normal, public.std(axis=0)), 800)
        assert share is not None
        middle, low, high = share
        assert 0 <= low <= middle <= high <= 1
        covered += low <= 0.2 <= high
    assert covered >= 26
    still = ArmCues("everyone", ("a",), 800.0, 1.0, np.array([0.4]), np.array([0.05]))
    assert share_with_it(still, dataclasses.replace(still, noise_std=0.0), 800) is None


def test_statistics_are_listed_in_words():
    def cue(name: str, effect: float) -> Finding:
        ends = (effect - 0.01, effect + 0.01)
        return Finding("cue", name, "", effect, *ends, 0.001, "detected", 1.0, None, ("everyone", "reference"))

    listed = changed_statistics(
        [cue("ink", 0.1), cue("centroid y", 0.2), cue("constant rows", 0.3), cue("age: zero", -0.05)]
    )
    assert listed == ("more rows empty", "centroid lower", "ink higher", "age: zero lower")
    words = str(Unknown(listed[:3], 0.2, 0.15, 0.25))
    assert words.startswith("An unknown fault in about 20 % of clients (95 %: 15–25): more rows empty, centroid lower")


@pytest.mark.parametrize("share", [0.0, 0.03, 0.08, 0.2, 0.9])
def test_no_vote_is_a_headline_if_its_interval_touches_the_background(share):
    dice = np.random.default_rng(0)
    for _ in range(40):
        counts = np.array([share, 0.02, 0.98 - share]) * 200 + 8 * dice.standard_normal(3)
        votes = ArmVotes("failing", ("invert", "flip", "none"), counts, 8.0)
        for label in votes.labels:
            middle, low, high = share_of_clients(votes, label)
            assert 0 <= low <= middle <= high <= 1
        named, _ = diagnose(votes, epsilon=1.0, clients=800)
        assert named.fault == "none" or named.low > 0.05
        assert all(0 <= value <= 1 for value in named.tally.values())


def test_a_name_must_beat_plain_changes_of_the_same_field():
    name = Explanation("unit_change:field=age:factor=2.54", 0.3, 0.2, 0.4, 100.0, p_value=0.5)
    rival = Explanation(f"{NAMELESS}age moved by +1 standard deviations", 0.4, 0.3, 0.5, 101.0)
    far = dataclasses.replace(rival, deviance=120.0)
    assert verdict_on([name, rival]) == (UNKNOWN, ())
    assert verdict_on([name, far]) == (name.fault, (name,))
    assert verdict_on([dataclasses.replace(far, p_value=0.5)]) == (UNKNOWN, ())  # it is no name itself


@pytest.mark.parametrize(("dtype", "shape"), [(np.uint8, (12, 9)), (np.float32, (8, 8, 3))])
def test_images_have_rivals_of_every_name_too(dtype, shape):
    dice = np.random.default_rng(0)
    image = (dice.random((6, *shape)) * (255 if dtype == np.uint8 else 1)).astype(dtype)
    population = Population({"photo": image, "age": np.arange(6.0)}, sizes=[6], name="photos")
    changed = {name: change(population) for name, change in nameless(population, ("photo",)).items()}
    assert len(changed) >= 10
    looks = {one.columns["photo"].tobytes() for one in changed.values()} | {image.tobytes()}
    assert len(looks) == len(changed) + 1  # each differs from the others and from what was there
    for name, one in changed.items():
        assert name.startswith(f"{NAMELESS}photo ")
        after = one.columns["photo"]
        assert (after.dtype, after.shape) == (image.dtype, image.shape)
        assert after.min() >= 0
        assert after.max() <= (255 if dtype == np.uint8 else 1)
        np.testing.assert_array_equal(one.columns["age"], np.arange(6.0))


@pytest.mark.slow
def test_a_shift_without_a_name_is_called_unknown(few_steps):
    private, public = people("tabular", clients=600, seed=1), people("tabular", clients=100, seed=2)
    hit = np.repeat(np.arange(private.size) % 2 == 0, private.sizes)
    age = private.columns["age"]
    moved = private.replace({**private.columns, "age": (age + np.where(hit, -12, 0)).astype(age.dtype)})
    report = inspect.sanity(moved, reference=public, epsilon=8, delta=1e-6, schema=TABLE, session=session())
    assert report.explanation is not None
    assert report.detection is not None
    assert report.explanation.fault == UNKNOWN
    assert NAMELESS not in str(report.detection.to_dict())


def test_the_model_runs_on_every_plain_change_of_an_image():
    """Clients on which the model does not fail are in another arm: by cues alone, the best rival may look hopeless."""
    dice = np.random.default_rng(0)
    public, rows = dice.normal(0, 0.1, (40, 6)), np.arange(20)
    moves = {f"{NAMELESS}image {k}": dice.normal(0, 1, 6) for k in range(12)}
    moves |= {f"crop:margin={k}": dice.normal(0, 1, 6) for k in range(12)} | {"invert": dice.normal(0, 1, 6)}
    evidence = Evidence(40 * public.mean(axis=0) + 12 * moves["invert"], np.ones(6), 40, public)
    planted = {name: (rows, public[rows] + move) for name, move in moves.items()}
    listed = worth_running(evidence, planted, ("flip", "shift:right=4", "none"), np.array([[0.0, 9.0, 30.0]]))
    assert {name for name in moves if name.startswith(NAMELESS)} <= set(listed)
    assert {"invert", "shift:right=4"} <= set(listed)
    assert sum(name.startswith("crop") for name in listed) <= 5
    assert len(listed) == len(set(listed))
