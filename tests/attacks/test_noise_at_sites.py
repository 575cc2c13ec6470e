"""A coordinator cannot make a site add noise that it knows, nor choose the site's cohort, unless the site agreed.

Nor can it see sums without noise, or train a model that protects less than a client.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import site_folder
from fleets import SITE_TOML, embedded, fleet_in_process

import blindsight as bs
from blindsight import keys
from blindsight.accounting.ledger import Ledger
from blindsight.asking import Histogram
from blindsight.data.schema import Schema, read_field
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet import wire
from blindsight.fleet.backend import FleetCohort
from blindsight.fleet.carriers.in_process import InProcess
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.job import Job
from blindsight.fleet.secure_sum.messages import Kind, Message
from blindsight.fleet.site.policy import EpsilonTotals, Policy, Standing, decide
from blindsight.fleet.summing import SiteSum
from blindsight.inspect import Session
from blindsight.inspection.asking.question import Ask
from blindsight.jobs.fleet_settings import ready
from blindsight.jobs.site import _noise_in_words, _question
from blindsight.jobs.site_questions import keys_of

SIZES = {"a": 3, "b": 3, "c": 3}
RANGES = Schema({"age": read_field("number:0:100")})
SECRET = Job(
    kind="question", run="r", content={}, clients=SIZES, noise="sites", fewest=3, colluding=1, epsilon=1.0, delta=1e-6
)
OPEN = dataclasses.replace(SECRET, reproducible=True)
KNOWN = keys.reproducible(1)
HEAD = {"client_key": KNOWN.secret.hex(), "noise_key": KNOWN.secret.hex()}


@pytest.mark.parametrize("head", [HEAD, {"client_key": KNOWN.secret.hex(), "cohort": [4]}])
def test_noise_and_cohorts_are_taken_from_nobody(head: dict[str, Any]):
    """Whoever knows a site's noise subtracts it, and whoever chooses its cohort chooses one client."""
    with pytest.raises(Declined) as refused:
        keys_of(SECRET, head)
    assert refused.value.code is Code.policy
    assert not keys_of(SECRET, {"client_key": KNOWN.secret.hex()}).noise.is_reproducible


def test_a_job_says_that_its_noise_is_known_and_a_policy_has_to_allow_it():
    assert keys_of(OPEN, HEAD).noise == KNOWN
    assert OPEN.digest != SECRET.digest
    assert Job.from_dict(OPEN.to_dict()) == OPEN
    with pytest.raises(InvalidInput, match="reproducible"):
        Job.from_dict(OPEN.to_dict() | {"reproducible": 1})
    assert "it hides nothing" in _noise_in_words(OPEN)
    policy = Policy(tasks=("all",), epsilon_per_question=9.0, epsilon_total=9.0, delta=1e-3, approve="automatically")
    question = dataclasses.replace(site_folder.asked(), reproducible=True)
    given: dict[str, Any] = {"clients": 9, "spent": EpsilonTotals(), "now": site_folder.NOW}
    ruling = decide(policy, question, **given, approved=True)
    assert (ruling.state, ruling.code) == (Standing.DENIED, Code.policy)
    assert decide(dataclasses.replace(policy, reproducible=True), question, **given).state is Standing.APPROVED


@pytest.mark.parametrize("is_said", [True, False])
def test_sites_that_protect_people_refuse_noise_that_the_coordinator_knows(tmp_path: Path, monkeypatch, is_said):
    """Whether the job says so or the message alone: nothing is summed, and no site pays."""
    drawn = FleetCohort._drawn
    monkeypatch.setattr(FleetCohort, "_drawn", lambda self: drawn(self) | {"noise_key": KNOWN.secret.hex()})
    data, like = embedded("tabular", SIZES)
    template = SITE_TOML.replace("reproducible = true", "")
    with fleet_in_process(tmp_path / "sites", data, template=template) as fleet:
        session = Session(
            out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"), key=KNOWN if is_said else None, even_if_blind=True
        )
        with pytest.raises(BlindsightError, match="policy"):
            inspect_ages(fleet.clients(like), session)
    for site in SIZES:
        assert not Ledger(tmp_path / "sites" / site / "state" / "ledger.db").entries(site)


def test_a_policy_says_whether_the_coordinator_may_see_sums_without_noise():
    """Automatic approval is no consent to that: the guarantee would rest on somebody whom the site does not trust."""
    policy = Policy(tasks=("all",), epsilon_per_question=9.0, epsilon_total=9.0, delta=1e-3, approve="automatically")
    given: dict[str, Any] = {"clients": 9, "spent": EpsilonTotals(), "now": site_folder.NOW}
    for told in ({"is_seen": True, "colluding": 0}, {"colluding": 0}):
        ruling = decide(policy, dataclasses.replace(site_folder.asked(), **told), **given, approved=True)
        assert (ruling.state, ruling.code) == (Standing.DENIED, Code.policy)
    seen = dataclasses.replace(site_folder.asked(), is_seen=True, colluding=0)
    for allowed, question in (({"noise": "coordinator"}, seen), ({"colluding": 0}, site_folder.asked(colluding=0))):
        assert decide(dataclasses.replace(policy, **allowed), question, **given).state is Standing.APPROVED


def test_an_officer_reads_who_sees_sums_without_noise():
    """What is not masked is seen on its way, too; nothing says that it is masked."""
    masked, seen = site_folder.asked(), dataclasses.replace(site_folder.asked(), is_seen=True)
    assert (masked.sum_in_words, "masked" in seen.sum_in_words) == ("in a masked sum over all sites", False)
    alone = dataclasses.replace(SECRET, clients={"a": 3}, noise="coordinator", fewest=1, colluding=0)
    assert "whoever runs the server" in _noise_in_words(alone)
    assert "the exact sum over all sites" in _noise_in_words(dataclasses.replace(SECRET, noise="coordinator"))


@pytest.mark.parametrize("sizes", [SIZES, {"a": 3}])
def test_no_site_shows_its_sums_to_a_coordinator_that_it_does_not_trust(tmp_path: Path, sizes):
    """All sites together, or one that has nobody to hide among: nothing is summed, and no site pays."""
    data, like = embedded("tabular", sizes)
    template = SITE_TOML.replace('noise = "{noise}"', "")
    with fleet_in_process(tmp_path / "sites", data, noise="coordinator", template=template) as fleet:
        session = Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"), even_if_blind=True)
        with pytest.raises(BlindsightError, match="policy"):
            inspect_ages(fleet.clients(like), session)
    for site in sizes:
        assert not Ledger(tmp_path / "sites" / site / "state" / "ledger.db").entries(site)


def test_everybody_has_paid_before_anything_leaves(tmp_path: Path, monkeypatch):
    """A site before its masked numbers go out, the coordinator before their sum is unmasked."""
    paid, send, total = dict[str, int](), InProcess.send, SiteSum.total

    def entries(name: str, ledger: Path) -> int:
        return sum(entry.kind == "release" for entry in Ledger(ledger).entries(name))

    def sent(self: InProcess, receiver: str, data: bytes) -> None:
        if any(blob[:4] == b"BSS1" and Message.decoded(blob).kind is Kind.MASKED for blob in wire.decode(data)[1]):
            paid[self.name] = entries(self.name, tmp_path / "sites" / self.name / "state" / "ledger.db")
        send(self, receiver, data)

    def unmasked(self: SiteSum) -> Any:
        paid["hospitals"] = entries("hospitals", tmp_path / "l.db")
        return total(self)

    monkeypatch.setattr(InProcess, "send", sent)
    monkeypatch.setattr(SiteSum, "total", unmasked)
    data, like = embedded("tabular", SIZES)
    with fleet_in_process(tmp_path / "sites", data) as fleet:
        inspect_ages(
            fleet.clients(like), Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"), even_if_blind=True)
        )
    assert paid == {"hospitals": 1, **dict.fromkeys(SIZES, 1)}


@pytest.mark.parametrize(
    ("reading", "read"),
    [({}, "age, region"), ({"text": "notes of nurses", "side": "year", "values": ["1", "2"]}, "notes of nurses, year")],
)
def test_an_officer_reads_which_columns_a_job_reads(reading: dict[str, Any], read: str):
    """They are the coordinator's choice, and no part of the question's own words."""
    fields = {"age": read_field("number:0:100"), "region": read_field("category:north,south")}
    items = (Histogram("age", by="region"),)
    question = Ask(schema=Schema(fields), clients=9, epsilon=1.0, delta=1e-6, items=items)
    job = dataclasses.replace(SECRET, content=question.to_dict(), reading=reading, seed=bytes(32).hex())
    assert _question(job, {}, Path())["sentence"].endswith(f". It reads {read}.")


def test_a_site_trains_nothing_that_protects_less_than_a_client():
    """Its officer reads, and its ledger records, what a model costs each client, whatever the settings protect."""
    clients = embedded("tabular", SIZES)[1]
    settings = a_run(clients)
    whole = dataclasses.replace(SECRET, kind="training", content={"run": settings})
    by_example = settings | {"privacy": settings["privacy"] | {"unit": "example"}}
    assert ready(whole, clients, None)[2].cohort == 5
    with pytest.raises(InvalidInput, match='unit must be "client"'):
        ready(dataclasses.replace(whole, content={"run": by_example}), clients, None)


def test_a_site_builds_no_model_from_the_classes_that_its_clients_have():
    """Whether the model that is sent then fits, and so whether the site refuses, would tell who has the last class."""
    clients = embedded("tabular", SIZES)[1]
    settings = a_run(clients)
    unlisted = settings | {"model": {"kind": "logistic", "inputs": ["age"], "label": "label"}}
    with pytest.raises(InvalidInput, match="no site counts those of its clients"):
        ready(dataclasses.replace(SECRET, kind="training", content={"run": unlisted}), clients, None)


def a_run(clients: Any) -> dict[str, Any]:
    """The settings of a training run."""
    return {
        "name": "small",
        "data": {"population": "tabular"},
        "model": {"kind": "logistic", "inputs": ["age"], "label": "label", "classes": list(clients.classes["label"])},
        "privacy": {"epsilon": 5.0, "delta": 1e-5, "rounds": 3, "cohort": 5, "clip": 1.0},
    }


def inspect_ages(clients: Any, session: Session) -> Any:
    return bs.ask(clients, [Histogram("age")], epsilon=8.0, delta=1e-6, schema=RANGES, session=session)
