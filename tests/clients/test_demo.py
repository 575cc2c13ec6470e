"""The demo's parts: what is looked at in an address, what is made up, who the crowd is, and that its model learns."""

import asyncio
import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindsight.algorithms.draw_and_discard import average, client_update, discard, draw, guarantee, initial_instances
from blindsight.errors import InvalidInput
from blindsight.keys import reproducible
from blindsight.models import glm
from blindsight.service import addresses as demo_addresses
from blindsight.service.addresses import Addresses, collect, describe, make_task
from blindsight.service.crowd import Crowd
from blindsight.service.demo import demo
from blindsight.service.made_up import make_up
from blindsight.service.run import running
from blindsight.service.settings import Settings
from blindsight.service.watch import Watch, _without_privacy

PAGE = Path(demo_addresses.__file__).parent / "page"
ODD = [
    "",
    "example.com",
    "HTTPS://WWW.Example.COM/Login",
    "http://203.0.113.7:8080",
    "http://203.0.113.7/a?b=1#c",
    "ftp://user@example.net/x/y/z",
    "https://müller.example/grün?x=😀",
    "//example.org/only",
    "?",
    "http:///",
    "https://a.b.c.d-e-f.xyz/wp-content/verify account\nsecond line",
]


@pytest.fixture(scope="module")
def made_up() -> Addresses:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_addresses, "find", lambda _: None)
        return collect(make_task(), count=3000, public=1000)


def test_the_browser_looks_at_the_same_things(node):
    random = np.random.default_rng(5)
    texts = ODD + [make_up(random)[0] for _ in range(200)]
    script = f"""
        const {{ describe }} = await import({(PAGE / "addresses.js").as_uri()!r});
        let text = ""; for await (const part of process.stdin) text += part;
        console.log(JSON.stringify(JSON.parse(text).map(describe)));
    """
    run = subprocess.run(
        [node, "--input-type=module", "-e", script], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    assert found == [describe(text) for text in texts]
    assert [list(one) for one in found] == [list(describe(text)) for text in texts]


def test_every_address_can_be_encoded():
    task = make_task()
    x, y = task.encode([describe(text) | {"phishing": False} for text in ODD])
    assert x.shape == (len(ODD), task.weights)
    assert not y.any()


def test_made_up_addresses_are_seeded_and_told_apart_well_but_not_perfectly(made_up):
    one, other = ([make_up(np.random.default_rng(seed)) for _ in range(3)] for seed in (1, 1))
    assert one == other
    best = _without_privacy(made_up)
    right = np.mean((made_up.public_x @ best > 0) == made_up.public_y)
    assert 0.9 < right < 0.98
    assert 0.2 < made_up.y.mean() < 0.4


def test_addresses_say_where_they_come_from_and_the_public_ones_are_apart(made_up):
    assert "made-up" in made_up.origin
    assert len(made_up.x) == 3000
    assert len(made_up.public_x) == len(made_up.questions) == 1000
    if demo_addresses.find("phishing") is not None:
        assert "real" in collect(make_task(), count=100, public=10).origin


def test_one_contribution_is_worth_what_the_page_says():
    task = make_task()
    promise = guarantee(task, 1)
    assert 1.999 < promise.epsilon <= task.epsilon == 2.0
    assert promise.delta == task.delta == 1e-6
    assert task.unit == "model"


@pytest.mark.slow
def test_the_model_of_the_demo_learns_under_its_noise(made_up):
    task, key, random = make_task(), reproducible(3), np.random.default_rng(3)
    instances = initial_instances(task, key=key.derive("start"))
    for step in range(5000):
        held = random.integers(len(made_up.x), size=50)
        drawn = draw(instances, key=key.derive("draw", step))
        update = client_update(task, drawn, made_up.x[held], made_up.y[held], key=key.derive("update", step))
        instances = discard(instances, update, key=key.derive("discard", step))
    guessing = float(np.mean(made_up.public_y))
    before = -guessing * np.log(guessing) - (1 - guessing) * np.log(1 - guessing)
    after = glm.loss(task.family, average(instances), made_up.public_x, made_up.public_y)
    assert after < 0.8 * before


def test_the_crowd_trains_and_its_spam_is_turned_away(made_up, tmp_path, monkeypatch):
    token, task = "t" * 20, make_task()
    crowd = Crowd(task, made_up, per_s=200.0, spam_share=0.3)

    async def for_a_moment(address: str) -> None:
        working = asyncio.create_task(crowd.take_part(address, token))
        while crowd.spam < 25:
            await asyncio.sleep(0.05)
            assert not working.done()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    monkeypatch.setenv("BLINDSIGHT_MODEL_TOKENS", f"{task.model}={token}")
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task.to_dict()))
    with running(Settings(port=0, data=None, tasks=(path,))) as service:
        asyncio.run(for_a_moment(service.address))
        pool = service.service.registry.pools[task.model]
        taken, spam = pool.taken, pool.spam
    assert taken > 20
    # turned signs are no spam while all weights are near zero; a few updates are under way when it ends
    assert 5 <= spam <= crowd.spam + 8


def test_the_history_is_thinned_and_keeps_its_ends(made_up):
    watch = Watch(make_task(), made_up, per_s=1.0)
    for count in range(2000):
        watch.note(np.zeros(watch.task.weights), {"taken": count, "spam": 0, "spread": 0.1})
    updates = [point["updates"] for point in watch.history]
    assert len(updates) <= 900
    assert updates == sorted(updates)
    assert (updates[0], updates[-1]) == (0, 1999)


def test_tls_is_refused_rather_than_dropped(made_up, tmp_path):
    settings = Settings(port=0, certificate=tmp_path / "chain.pem", private_key=tmp_path / "key.pem")
    with pytest.raises(InvalidInput, match="plain HTTP"), demo(settings, addresses=made_up):
        pass


def test_the_state_is_what_the_page_needs(made_up):
    with demo(Settings(port=0), per_s=50.0, addresses=made_up) as address:
        with urllib.request.urlopen(f"{address}/demo/visit") as answer:
            visit = json.load(answer)
        state: dict[str, Any] = {"history": []}
        while not state["history"]:
            with urllib.request.urlopen(f"{address}/demo/state") as answer:
                state = json.load(answer)
    assert len(state["names"]) == len(state["weights"]) == len(state["deviations"]) == state["task"]["weights"]
    assert {"seconds", "updates", "loss", "accuracy", "spread", "rejected", "spam"} == set(state["history"][0])
    assert state["simulation_only"]["loss"] < state["guessing"]["loss"]
    kinds = [question["phishing"] for question in visit["questions"]]
    assert {True, False} == set(kinds)
    assert not any("@" in question["address"] for question in visit["questions"])
    assert visit["epsilon"] == state["task"]["participations"] * state["task"]["epsilon"]
