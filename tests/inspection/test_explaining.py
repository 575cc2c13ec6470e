"""Laws of explanations: the planted fault is named with its share; what is not in the library is called unknown."""

import numpy as np
import pytest

from blindsight.inspection.contrast import explaining
from blindsight.inspection.contrast.explained import (
    ANYTHING,
    FACELESS,
    SEVERAL,
    UNKNOWN,
    Explanation,
    FaultShare,
    statement_of,
    verdict_on,
)
from blindsight.inspection.contrast.explaining import explain
from blindsight.inspection.contrast.predicting import Evidence
from blindsight.inspection.contrast.quick_look import Quick, likeliest, likeliest_together

CLIENTS, PUBLIC, SIZE = 300, 120, 12


def people(dice: np.random.Generator, count: int) -> np.ndarray:
    """Correlated, skewed contributions."""
    own = dice.gamma(2.0, 0.1, (count, 3))
    return own @ MIXING + 0.05 * dice.standard_normal((count, SIZE))


MIXING = np.random.default_rng(0).normal(0, 1, (3, SIZE))
MOVES = {name: np.random.default_rng(seed).normal(0, 0.6, SIZE) for seed, name in enumerate(("a", "b", "c"), 5)}


def asked(dice: np.random.Generator, fault: str, share: float, *, known: tuple[str, ...] = ("a", "b")):
    """What explains a release in which `share` of the clients have the fault."""
    private, public = people(dice, CLIENTS), people(dice, PUBLIC)
    hit = dice.random(CLIENTS) < share
    private[hit] += MOVES[fault] * dice.uniform(0.8, 1.2, (int(hit.sum()), 1))
    std = np.full(SIZE, 2.0)
    evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(SIZE), std, CLIENTS, public)
    rows = np.arange(60)
    moved = lambda name: public[rows] + MOVES[name] * dice.uniform(0.8, 1.2, (60, 1))  # noqa: E731
    return explain(evidence, {name: (rows, moved(name)) for name in known})


def test_the_planted_fault_is_named_and_its_interval_covers_its_share():
    dice, right, covered, runs = np.random.default_rng(1), 0, 0, 25
    for _ in range(runs):
        fault, close = verdict_on(asked(dice, "a", 0.2))
        right += fault == "a"
        covered += bool(close) and close[0].low <= 0.2 <= close[0].high
    assert right / runs >= 0.9
    assert covered / max(right, 1) >= 0.88  # who is hit varies too, as the interval says


def test_intervals_are_no_narrower_than_populations_with_public_clients_drawn_anew(monkeypatch):
    """A covariance that few public clients estimate is too small where it is weighed most."""
    dice, rows, std = np.random.default_rng(13), np.arange(20), np.full(SIZE, 2.0)
    private, public = people(dice, CLIENTS), people(dice, 20)
    private[dice.random(CLIENTS) < 0.2] += MOVES["a"]
    evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(SIZE), std, CLIENTS, public)
    planted = {"a": (rows, public + MOVES["a"] * dice.uniform(0.5, 1.5, (20, 1)))}
    wide = explain(evidence, planted)[0]
    monkeypatch.setattr(explaining, "_TESTED", 0)  # no candidate is simulated
    narrow = explain(evidence, planted)[0]
    assert wide.share == narrow.share
    assert wide.low <= narrow.low < narrow.high <= wide.high
    assert wide.high - wide.low > 1.1 * (narrow.high - narrow.low)


def test_what_is_not_in_the_library_is_unknown():
    dice, runs = np.random.default_rng(2), 20
    assert sum(verdict_on(asked(dice, "c", 0.2))[0] == UNKNOWN for _ in range(runs)) / runs >= 0.9


def test_a_hundred_public_clients_leave_much_of_a_covariance_open():
    """Many coordinates, little noise: with the covariance taken as known, a sixth of true faults did not fit."""
    dice, size, runs, clients = np.random.default_rng(4), 40, 30, 1000
    mixing, move = dice.normal(0, 0.3, (5, size)), dice.normal(0, 0.5, size)
    fits, rows, std = 0, np.arange(60), np.ones(size)
    for _ in range(runs):
        private, public = (
            dice.gamma(2.0, 0.5, (count, 5)) @ mixing + 0.1 * dice.standard_normal((count, size))
            for count in (clients, 100)
        )
        private[dice.random(clients) < 0.2] += move
        evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(size), std, clients, public)
        tried = explain(evidence, {"a": (rows, public[rows] + move)})[0]
        fits += tried.p_value is not None and tried.p_value >= 0.08
    assert fits / runs >= 0.9


def test_the_second_of_two_faults_is_found_though_many_candidates_predict_more_alone():
    """Ten candidates that resemble the first fault are all likelier alone than the second one."""
    dice = np.random.default_rng(7)
    first, second = 3 * MOVES["a"], np.roll(MOVES["b"], 3) * 0.7
    moves = {f"like a, {k}": first + dice.normal(0, 0.5, SIZE) for k in range(10)} | {"a": first, "b": second}
    rows, std, named, runs = np.arange(60), np.full(SIZE, 2.0), 0, 5
    for _ in range(runs):
        private, public = people(dice, 1000), people(dice, PUBLIC)
        who = dice.random(1000)
        private[who < 0.3] += first
        private[who > 0.7] += second
        evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(SIZE), std, 1000, public)
        planted = {name: (rows, public[rows] + move) for name, move in moves.items()}
        tried = explain(evidence, planted)
        best, _ = verdict_on(tried)
        assert "b" not in [fault for _, fault in likeliest(evidence, planted)[:8]]  # of single faults
        named += set(best.split(" + ")) == {"a", "b"}
        assert set(likeliest_together(evidence, planted)) >= {"a", "b"}  # so the model runs on both
    assert named >= runs - 1


def test_a_second_fault_is_not_tried_for_what_it_mends_by_chance():
    """Among hundreds of pairs one is always somewhat better than the best single fault; this misfit none can mend."""
    dice, runs, pairs = np.random.default_rng(8), 4, 0
    others = {f"other {k}": np.r_[0, dice.normal(0, 0.6, SIZE - 1)] for k in range(25)}
    rows, std, moves = np.arange(60), np.full(SIZE, 2.0), others | {"a": np.r_[0, MOVES["a"][1:]]}
    for _ in range(runs):
        private, public = people(dice, CLIENTS), people(dice, PUBLIC)
        private[dice.random(CLIENTS) < 0.3] += moves["a"]
        sums = private.sum(axis=0) + std * dice.standard_normal(SIZE)
        sums[0] += 6 * np.sqrt(std[0] ** 2 + CLIENTS * public[:, 0].var())
        planted = {name: (rows, public[rows] + move) for name, move in moves.items()}
        tried = explain(Evidence(sums, std, CLIENTS, public), planted)
        assert not any(one.fits for one in tried)
        pairs += any(" + " in one.fault for one in tried)
    assert pairs <= 1  # of four; without regard to chance all four


def differently(fault: str, moves: dict[str, np.ndarray], by: float) -> tuple[float, float]:
    """Two in five clients have a fault that somebody implemented differently: how often it is named, and its share."""
    dice, runs, alone, covered = np.random.default_rng(9), 3, 0, 0
    rows, std = np.arange(60), np.full(SIZE, 2.0)
    other = dice.standard_normal(SIZE)
    other = moves[fault] + by * np.linalg.norm(moves[fault]) * other / np.linalg.norm(other)
    for _ in range(runs):
        private, public = (dice.normal(0.4, 0.1, (count, SIZE)) for count in (700, PUBLIC))
        private[dice.random(700) < 0.4] += other
        evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(SIZE), std, 700, public)
        tried = explain(evidence, {name: (rows, public[rows] + move) for name, move in moves.items()})
        named, close = verdict_on(tried)
        alone += named == fault
        covered += named == fault and close[0].low <= 0.4 <= close[0].high
        assert fault == "invert" or " + " not in named
    return alone / runs, covered / max(alone, 1)


def test_a_fault_that_others_implement_differently_is_named_and_nothing_beside_it():
    """Whoever enlarges an image may round to other pixels; whoever inverts it does what everybody does."""
    dice = np.random.default_rng(3)
    moves = {name: dice.normal(0, 0.6, SIZE) for name in ("flip", "rotate90", "shift:right=4", "shift:down=4")}
    moves |= dict.fromkeys(("crop", "invert"), MOVES["a"])
    crop, invert = ({n: move for n, move in moves.items() if n != other} for other in ("invert", "crop"))
    assert differently("crop", crop, 0.12) == (1.0, 1.0)
    assert differently("invert", invert, 0.12) == (0.0, 0.0)
    assert differently("crop", crop, 0.8)[0] == 0.0  # that is another fault


def test_the_interval_of_a_fault_that_varies_includes_that_others_make_it_weaker():
    """A weaker fault on more clients sends the same: nothing in the release tells one from the other."""
    dice, rows, std = np.random.default_rng(12), np.arange(60), np.full(SIZE, 2.0)
    move, covered = 3 * MOVES["a"], dict[str, bool]()
    private, public = (dice.normal(0.4, 0.1, (count, SIZE)) for count in (700, PUBLIC))
    private[:280] += 0.85 * move
    evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(SIZE), std, 700, public)
    for fault in ("crop", "encoding_damage", "invert"):
        best = explain(evidence, {fault: (rows, public[rows] + move)})[0]
        covered[fault] = best.low <= 0.4 <= best.high
        assert best.share == pytest.approx(0.85 * 0.4, rel=0.1)
    assert covered == {"crop": True, "encoding_damage": True, "invert": False}


def test_a_second_name_needs_more_than_a_misfit_it_mends():
    """Something else moved one coordinate, and one candidate moves only that."""
    dice, rows, std = np.random.default_rng(10), np.arange(60), np.full(SIZE, 2.0)
    moves = {"a": np.r_[0, MOVES["a"][1:]], "b": np.r_[1.0, np.zeros(SIZE - 1)]}
    for _ in range(3):
        private, public = (dice.normal(0.4, 0.1, (count, SIZE)) for count in (CLIENTS, PUBLIC))
        private[dice.random(CLIENTS) < 0.3] += moves["a"]
        sums = private.sum(axis=0) + std * dice.standard_normal(SIZE)
        error = np.sqrt(std[0] ** 2 + CLIENTS * public[:, 0].var() * (1 + CLIENTS / PUBLIC))
        sums[0] = CLIENTS * public[:, 0].mean() + 4.3 * error
        tried = explain(Evidence(sums, std, CLIENTS, public), {n: (rows, public[rows] + m) for n, m in moves.items()})
        assert not any(" + " in one.fault for one in tried)


def test_what_else_it_could_be_includes_clients_that_fail_without_a_signature():
    dice, rows, std = np.random.default_rng(11), np.arange(60), np.full(SIZE, 2.0)
    private, public = people(dice, CLIENTS), people(dice, PUBLIC)
    failing = np.r_[3.0, np.zeros(SIZE - 1)]
    private[dice.random(CLIENTS) < 0.4] += failing + 0.2 * np.r_[0.0, MOVES["c"][1:]]
    evidence = Evidence(private.sum(axis=0) + std * dice.standard_normal(SIZE), std, CLIENTS, public)
    moves = {name: failing + move for name, move in MOVES.items() if name != "c"}
    planted = {name: (rows, public[rows] + move) for name, move in moves.items()}
    both = [planted | {name: (rows, public[rows] + failing)} for name in ("some fault", FACELESS)]
    without, with_them = (Quick.of(evidence, some).anything().deviance for some in both)
    assert with_them < without - 5
    assert FACELESS in [one.fault for one in explain(evidence, both[1])]  # compared however far it is


def test_without_a_fault_no_candidate_has_a_share():
    dice = np.random.default_rng(3)
    assert sum(verdict_on(asked(dice, "a", 0.0))[0] == UNKNOWN for _ in range(20)) >= 18


def one(
    fault: str, deviance: float, p_value: float | None = 0.5, low: float = 0.1, parts: tuple[str, ...] = ()
) -> Explanation:
    return Explanation(fault, 0.2, low, 0.3, deviance, p_value, tuple(FaultShare(p, 0.1, 0.05, 0.15) for p in parts))


@pytest.mark.parametrize(
    ("tried", "verdict"),
    [
        ((one("a", 0), one("b", 50)), "a"),
        ((one("a", 0), one("b", 5)), SEVERAL),  # nobody can tell
        ((one("a", 0), one("b", 5, 0.001)), "a"),  # as likely, but it does not fit
        ((one("a", 0, 0.001), one("b", 50, 0.001)), UNKNOWN),
        ((one("a", 0, low=0.0),), UNKNOWN),  # no headline whose interval touches zero
        ((one("a", 0, None),), UNKNOWN),  # nobody has tried
        ((one("a", 0), one(FACELESS, 5)), UNKNOWN),  # clients fail, and nothing of the fault is needed to say so
        ((one("a", 0), one(FACELESS, 30)), "a"),
        ((one(f"a + {FACELESS}", 0, parts=("a", FACELESS)),), UNKNOWN),  # half of it is no signature
        ((one("crop", 0), one(ANYTHING, 15, None)), "crop"),
        ((one("crop", 0), one(ANYTHING, 15, None), one(FACELESS, 90)), "crop"),  # by accuracy too
        ((one("crop", 0), one(ANYTHING, 8, None)), UNKNOWN),
        ((), UNKNOWN),
    ],
)
def test_a_name_is_given_only_to_the_one_candidate_that_fits(tried, verdict):
    assert verdict_on(tried)[0] == verdict


def test_statements_say_who_is_affected():
    assert statement_of((one("invert", 0),)) == "invert, 20 % of clients (95 %: 10–30)."
    assert statement_of(()).startswith("An unknown fault")
    assert statement_of((one("a", 0), one("b", 1))).startswith("One of these: a, 20 % of clients (95 %: 10–30); b, ")
