"""Fleets in real processes, with a real NATS server and mutual TLS: what the commands print, and who has paid."""

import collections
import contextlib
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from fleet_processes import Processes
from forked import Forked
from waiting import until

from blindsight.fleet.job import digest_of_job


@pytest.fixture
def forked() -> Iterator[Forked]:
    with Forked() as one:
        yield one


@pytest.mark.parametrize("silent", [(), pytest.param(("site-8",), marks=pytest.mark.slow)])  # waited for in vain
def test_ten_sites_answer_although_some_of_them_cannot(
    tmp_path: Path, forked: Forked, spawn: Callable[..., Any], silent: tuple[str, ...]
):
    names = [f"site-{place}" for place in range(10)]
    one = Processes(tmp_path, names, forked, spawn)
    until(lambda: one.here() == set(names))
    text = (one.place("site-3") / "SITE.toml").read_text(encoding="utf-8")
    one.kill(one.agents["site-3"])
    (one.place("site-3") / "SITE.toml").write_text(text.replace("years", "alter"), encoding="utf-8")
    one.start("site-3")
    (one.place("site-5") / "clients.csv").unlink()
    until(lambda: one.here() == set(names))
    for name in silent:
        one.kill(one.agents[name])
    asked = one.ask("run")
    assert one.ended(asked) == 0, one.errors("run")
    report = one.printed("run")
    missing = {"site-3": "wrong_columns", "site-5": "no_data", **dict.fromkeys(silent, "silent")}
    answering = [name for name in names if name not in missing]
    assert any(f"{', '.join(missing)} took no part" in note for note in report["notes"])
    noted = json.loads((one.folder / "run/fleet.json").read_text(encoding="utf-8"))["missed"]
    assert list(noted.values()) == [missing]
    assert any("no column 'alter'" in line for line in one.diary("site-3"))
    assert [one.paid(name) for name in answering] == [1] * len(answering)
    assert one.paid("site-3") == one.paid("site-5") == 0
    assert one.paid_here() == 1
    there = np.concatenate([one.ages[name] for name in answering])
    clients = sum(len(ages) for ages in one.ages.values())
    assert report["guarantee"]["epsilon"] <= 8.0
    assert str(clients) in report["guarantee"]["participation"]
    assert there.size < clients


NAMES = ("north", "south", "west", "east")


def kill_at(one: Processes, what: str, run: str, wait_s: float) -> bool:
    """Begin to ask, and SIGKILL a process after `wait_s` seconds; what was killed is started again. Was it answered?"""
    asked = one.ask(run)
    time.sleep(wait_s)
    if what == "coordinator":
        if one.forked.code(asked) is None:
            one.kill(asked)
        asked = one.ask(run)
    elif what == "server":
        with contextlib.suppress(ProcessLookupError):  # it was killed before, and is not up again
            os.kill(one.up.servers[-1], signal.SIGKILL)  # `fleet up` starts another
    else:
        one.kill(one.agents[what])
        one.start(what)
    code = one.ended(asked)
    check(one, run, code)
    return code == 0


def check(one: Processes, run: str, code: int) -> None:
    """The run was answered from sums that all who are in them have paid for, or refused in words."""
    report = one.folder / run / "report.json"
    if code != 0:
        assert not report.exists()
        assert "Traceback" not in one.errors(run)
        assert re.search("sites|cannot connect", one.errors(run))
        return
    facts = json.loads((one.folder / run / "fleet.json").read_text(encoding="utf-8"))
    job, missed = facts["job"], facts["missed"]
    assert len(missed) == 1
    unpaid = {name for name in one.agents if one.paid(name, job) == 0}
    assert unpaid <= {site for sites in missed.values() for site in sites}
    assert one.paid_here(run) >= 1
    error = abs(mean_of(report) - np.mean(np.concatenate(list(one.ages.values()))))
    assert error < 60, "a sum whose masks were not all removed is off by thousands"


def mean_of(report: Path) -> float:
    found = re.search(r'"(?:mean|estimate|value)": (-?[0-9.]+)', report.read_text(encoding="utf-8"))
    assert found is not None, report.read_text(encoding="utf-8")[:2000]
    return float(found[1])


@pytest.mark.slow
@pytest.mark.parametrize(("points", "seed"), [(3, 1), (100, 2)])  # the quick forms, in one process, are in test_faults
def test_what_is_killed_at_any_point_never_makes_a_wrong_or_unpaid_answer(
    tmp_path: Path, artefacts: Path, forked: Forked, spawn: Callable[..., Any], points: int, seed: int
):
    one, dice = Processes(tmp_path, NAMES, forked, spawn), random.Random(seed)
    until(lambda: one.here() == set(NAMES))
    begin = time.monotonic()
    assert one.ended(one.ask("warm")) == 0, one.errors("warm")
    whole_s, seen = time.monotonic() - begin, collections.Counter[tuple[str, str]]()
    check(one, "warm", 0)
    for point in range(points):
        what = ("coordinator", "server", dice.choice(NAMES))[point % 3]
        is_answered = kill_at(one, what, f"run{point}", dice.uniform(0, whole_s))
        killed = "site" if what in NAMES else what
        seen[killed, "answered" if is_answered else "refused"] += 1
        facts = {"points": point + 1, "wrong or unpaid": 0, "runs": {" ".join(key): n for key, n in seen.items()}}
        (artefacts / "fleet_faults.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        until(lambda: one.here() == set(NAMES))


# --- training

ROUNDS, KILLS = 20, 3  # sites allow a fifth more sums than rounds: one for each kill, and one to spare
RUN_TOML = f"""
name = "small"
seed = 7

[data]
population = "public.csv"
options = {{ client = "client" }}
types = {{ age = "whole:0:120" }}

[model]
kind = "logistic"
inputs = ["age"]
label = "age"

[client]
batch_size = 8
learning_rate = 0.1

[server]
optimizer = "sgd"
learning_rate = 1.0

[privacy]
epsilon = 8.0
delta = 1e-4
rounds = {ROUNDS}
cohort = 10
clip = 1.0

[training]
checkpoint_every = 1
"""


def killed_while_training(one: Processes, settings: Path, run: str, dice: random.Random, whole_s: float) -> int:
    """Train to the end, with `KILLS` kills at random points of any process; what was killed is started again.

    Returns how often the command ran.
    """
    asked, left, attempts = one.train(run, settings), KILLS, 1
    while True:
        if left:
            time.sleep(dice.uniform(0, whole_s / KILLS))
            what, left = dice.choice(("coordinator", "server", *one.agents)), left - 1
            if what == "server":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.up.servers[-1], signal.SIGKILL)
            elif what != "coordinator":
                one.kill(one.agents[what])
                one.start(what)
            elif one.forked.code(asked) is None:
                one.kill(asked)
        if left and one.forked.code(asked) is None:
            continue
        code = one.ended(asked)
        assert "Traceback" not in one.errors(run)
        if code == 0 and not left:
            return attempts
        until(lambda: one.here() == set(one.agents))
        asked, attempts = one.train(run, settings), attempts + 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("runs", "seed"), [(1, 1), (12, 2)])
def test_training_resumes_to_the_same_model_whatever_is_killed(
    tmp_path: Path, artefacts: Path, forked: Forked, spawn: Callable[..., Any], runs: int, seed: int
):
    one, dice = Processes(tmp_path, NAMES[:3], forked, spawn, "reproducible = true"), random.Random(seed)
    (tmp_path / "public.csv").write_text("client,age\na,20\nb,40\nc,60\n", encoding="utf-8")
    settings = tmp_path / "RUN.toml"
    settings.write_text(RUN_TOML.replace("public.csv", str(tmp_path / "public.csv")), encoding="utf-8")
    until(lambda: one.here() == set(one.agents))
    begin = time.monotonic()
    assert one.ended(one.train("whole", settings)) == 0, one.errors("whole")
    whole_s, expected = time.monotonic() - begin, model_of(tmp_path / "whole")
    attempts = 0
    for number in range(runs):
        run = f"run{number}"
        attempts += killed_while_training(one, settings, run, dice, whole_s)
        assert model_of(tmp_path / run) == expected
        job = json.loads((tmp_path / run / "fleet.json").read_text(encoding="utf-8"))
        assert one.paid_here(f"{run} ") >= ROUNDS
        for name in one.agents:
            (sums,) = [
                len(path.read_bytes()) for path in (one.place(name) / "state/jobs").glob(f"{digest_of_job(job)}/sums")
            ]
            assert ROUNDS <= sums <= job["content"]["sums"]
            assert one.paid(name, digest_of_job(job)) == 1, "once for all sums, however often it was killed"
        done = number + 1
        facts = {"runs": done, "kills": done * KILLS, "other models": 0, "unpaid": 0, "attempts": attempts}
        (artefacts / "fleet_training_faults.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def model_of(run: Path) -> dict[str, list[float]]:
    """The weights in the newest checkpoint of a run."""
    newest = max(run.glob("checkpoint-*.safetensors"), key=lambda path: path.name)
    return {name: values.ravel().tolist() for name, values in safetensors.numpy.load_file(newest).items()}
