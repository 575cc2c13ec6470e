"""Opening a job: slow sites are waited for, silent ones are not, and what makes no sense ends no agent."""

import threading
import time
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fleets import write_sites

from blindsight.errors import BlindsightError
from blindsight.fleet import wire
from blindsight.fleet.carriers.carrier import COORDINATOR
from blindsight.fleet.carriers.in_process import Exchange
from blindsight.fleet.certificates import party_of
from blindsight.fleet.clients import Fleet
from blindsight.fleet.codes import Code
from blindsight.fleet.job import Job
from blindsight.fleet.opening import open_job
from blindsight.fleet.site.settings import SiteSettings
from blindsight.fleet.sites import Patience, Sites
from blindsight.jobs.site import Desk, agent_of

SILENCE_S = 2.0
CLIENTS = {"a": 5, "b": 6, "c": 7}
JOB = Job(
    kind="question",
    run="run",
    content={},
    clients=CLIENTS,
    noise="sites",
    fewest=3,
    colluding=1,
    epsilon=1.0,
    delta=1e-6,
)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    """Three agents at work, and the coordinator's lines to them."""
    roster = write_sites(tmp_path, {name: (clients, 'population = "digits"') for name, clients in CLIENTS.items()})
    exchange = Exchange()
    agents = [agent_of(SiteSettings.read(tmp_path / name / "SITE.toml"), exchange.connect(name)) for name in roster]
    threads = [threading.Thread(target=agent.serve) for agent in agents]
    for thread in threads:
        thread.start()
    parties = [party_of(certificate) for certificate in roster.values()]
    yield Sites(exchange.connect(COORDINATOR), parties, Patience(again_s=60, silence_s=SILENCE_S))
    for agent in agents:
        agent.stop()
    for thread in threads:
        thread.join()


def test_a_site_that_takes_long_to_decide_is_waited_for(sites: Sites, monkeypatch: pytest.MonkeyPatch):
    def slowly(self: Desk, job: Job, *_: Any) -> tuple[str, Code | None]:
        time.sleep(2 * SILENCE_S)
        return "approved", None

    monkeypatch.setattr(Desk, "decide", slowly)
    heard: list[dict[str, str]] = []
    assert open_job(sites, JOB, {}, wait_s=120.0, heard=lambda said: heard.append(dict(said))) == {}
    assert heard[0] == dict.fromkeys(CLIENTS, "silent")
    assert heard[-1] == dict.fromkeys(CLIENTS, "approved")
    assert any("deciding" in said.values() for said in heard)


def test_a_job_without_a_time_or_a_question_is_malformed_and_the_agent_goes_on(sites: Sites):
    for sent_at in ("yesterday", None):
        sites.send("a", wire.encode({"kind": "job", "job": JOB.to_dict(), "sent_at": sent_at}))
        assert answer_of(sites, "a") == {"kind": "job", "id": JOB.digest, "state": "refused", "code": "malformed"}
    with pytest.raises(BlindsightError, match="0 of 3 sites take part, 3 are needed"):
        open_job(sites, JOB, {}, wait_s=120.0)
    assert set(sites.roll_call()) == set(CLIENTS)


@pytest.mark.parametrize("said", [10**12, 0, -1, True, 2.0, "5", None])
def test_a_number_of_clients_that_nobody_can_have_counts_as_none(said: Any):
    heads = {"a": {"clients": said}, "b": {"clients": 6}, "c": {"clients": 7}}
    lines: Any = types.SimpleNamespace(roll_call=lambda: heads)
    given: dict[str, Any] = {"connect": lambda: lines, "sites": tuple(CLIENTS), "fewest": 3, "colluding": 1}
    known, unknown = (Fleet(name="f", noise="sites", declared=one, **given) for one in ({"a": 5}, {}))
    assert known.counts == CLIENTS
    with pytest.raises(BlindsightError, match="a never answered"):
        _ = unknown.counts


def answer_of(sites: Sites, name: str) -> Mapping[str, Any]:
    """The site's next answer that is final."""
    while True:
        answer = sites.listen(60.0)
        assert answer is not None
        if answer.site == name and answer.head.get("state") != "deciding":
            return answer.head
