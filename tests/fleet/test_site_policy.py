"""Whether a site answers: every limit of its policy, and who approves what is within them."""

import dataclasses
import datetime
from typing import Any

import pytest
from site_folder import NOW, asked

from blindsight.errors import InvalidInput
from blindsight.fleet.codes import Code
from blindsight.fleet.site.policy import Asked, AskerLimit, EpsilonTotals, Leaf, Policy, Ruling, Standing, decide

POLICY = Policy(tasks=("slices", "sanity"), epsilon_per_question=2.0, epsilon_total=4.0, delta=1e-6)
FREE = EpsilonTotals(total_after=1.0, asker_after=1.0)


def ruled(question: Asked, spent: EpsilonTotals = FREE, *, approved: bool = False, **policy: Any) -> Ruling:
    site = dataclasses.replace(POLICY, **policy)
    return decide(site, question, clients=40, spent=spent, now=NOW, approved=approved)


def test_a_question_within_the_limits_waits_for_the_officer_and_is_answered_then():
    waits = ruled(asked())
    assert (waits.state, waits.code) == (Standing.PENDING, Code.pending)
    assert ruled(asked(), approved=True).state is Standing.APPROVED
    assert ruled(asked(), approve="automatically").state is Standing.APPROVED


LATER = NOW + datetime.timedelta(minutes=61)
OVER: dict[str, tuple[Code, dict[str, Any], dict[str, Any]]] = {
    "task": (Code.task, {"task": "mistakes"}, {}),
    "no tasks": (Code.task, {}, {"tasks": ()}),
    "epsilon": (Code.policy, {"epsilon": 2.01}, {}),
    "delta": (Code.policy, {"delta": 1.1e-6}, {}),
    "asker": (Code.policy, {"asker": "eve"}, {"askers": {"anna": AskerLimit(epsilon_total=1.0)}}),
    "clients": (Code.too_few_clients, {}, {"least_clients": 41}),
    "their clock is early": (Code.clock, {"received_at": LATER}, {}),
    "their clock is late": (Code.clock, {"sent_at": LATER}, {}),
}


@pytest.mark.parametrize("case", OVER)
@pytest.mark.parametrize("approval", [{"approved": True}, {"approve": "automatically"}, {}])
def test_nobody_can_approve_what_is_over_a_limit(case: str, approval: dict[str, Any]):
    code, question, policy = OVER[case]
    answer = ruled(asked(**question), **approval, **policy)
    assert (answer.state, answer.code) == (Standing.DENIED, code)
    assert ruled(asked(), **approval).state is not Standing.DENIED


def test_limits_are_reached_and_not_only_approached():
    at_all_of_them = asked(epsilon=2.0, received_at=NOW + datetime.timedelta(minutes=5))
    full = EpsilonTotals(total=3.0, asker=3.0, total_after=4.0, asker_after=4.0)
    assert ruled(at_all_of_them, full, approved=True, least_clients=40).state is Standing.APPROVED


@pytest.mark.parametrize(("total", "asker"), [(4.001, 1.0), (1.0, 1.501)])
def test_a_question_that_would_exceed_a_budget_is_denied(total: float, asker: float):
    askers = {"anna": AskerLimit(epsilon_total=1.5), "bert": AskerLimit(epsilon_total=9.0)}
    spent = EpsilonTotals(total_after=total, asker_after=asker)
    answer = ruled(asked(), spent, approved=True, askers=askers)
    assert (answer.state, answer.code) == (Standing.DENIED, Code.budget)
    if total < 4:
        assert ruled(asked(asker="bert"), spent, approved=True, askers=askers).state is Standing.APPROVED


@pytest.mark.parametrize(
    ("hours", "open_at", "closed_at"),
    [("08:00-18:00", ["08:00", "17:59"], ["07:59", "18:00", "00:00"]), ("22:00-06:00", ["22:00", "05:59"], ["06:00"])],
)
def test_outside_the_hours_an_approved_question_waits(hours: str, open_at: list[str], closed_at: list[str]):
    policy = dataclasses.replace(POLICY, hours=hours)
    for times, state in ((open_at, Standing.APPROVED), (closed_at, Standing.PENDING)):
        for time in times:
            now = datetime.datetime.combine(NOW.date(), datetime.time.fromisoformat(time), NOW.tzinfo)
            assert decide(policy, asked(), clients=40, spent=FREE, now=now, approved=True).state is state, time


def test_all_tasks_can_be_allowed():
    assert ruled(asked(task="anything"), tasks=("all",), approved=True).state is Standing.APPROVED


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon_per_question": 0.0},
        {"epsilon_total": float("inf")},
        {"delta": 1.0},
        {"least_clients": 0},
        {"hours": "8-18"},
        {"hours": "08:00-24:00"},
        {"hours": "08:00-08:00"},
        {"askers": {"an\x1bna": AskerLimit(epsilon_total=1.0)}},
    ],
)
def test_a_policy_is_valid_or_does_not_exist(wrong: dict[str, Any]):
    with pytest.raises(InvalidInput, match=r"\[policy\]"):
        dataclasses.replace(POLICY, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": "not a digest"},
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"delta": 0.0},
        {"rounds": 0},
        {"leaves": ()},
        {"leaves": (Leaf("cues", 3, float("inf")),)},
        {"unit": "phone"},
        {"asker": ""},
        {"sentence": "Nothing.\x1b[2K\rApproved."},  # would rewrite what the officer's terminal shows
        {"asker": "anna\u202e"},
        {"noise": "x" * 2001},
        {"sent_at": datetime.datetime(2026, 3, 2, 12, 0)},
    ],
)
def test_a_question_is_readable_or_does_not_exist(wrong: dict[str, Any]):
    with pytest.raises(InvalidInput):
        asked(**wrong)


def test_a_question_survives_json():
    question = asked(kind="training", rounds=100, leaves=(("parameters", 1_300_000, 0.5),))
    assert Asked.from_dict(question.to_dict()) == question
    assert question.leaves[0].coordinates == 1_300_000


def test_every_code_has_one_sentence_for_people():
    for code in Code:
        assert code.value == code.name
        assert code.meaning.endswith(".")
        assert ". " not in code.meaning
