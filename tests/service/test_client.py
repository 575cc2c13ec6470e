"""The Python clients: one update, paid for first, sent at most once, whatever the network does."""

import asyncio
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from blindsight.algorithms.draw_and_discard import Budget
from blindsight.codings.specs import CategoryField, FeatureSpec, NumberField, Response
from blindsight.errors import BudgetExceeded, InvalidInput, PrivacyError
from blindsight.service import AsyncClient, Client
from blindsight.service.client import ServiceError, UpdateLost, UpdateWaiting
from blindsight.service.protocol import decode, encode

TOKEN = "the clients of the tests"
ROWS = [{"length": 30, "https": True, "phishing": False}]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("blindsight.service.conversation._FIRST_WAIT_S", 0.0)


class Network:
    """A service in a few lines that loses, delays and repeats as told."""

    def __init__(self, task, *faults) -> None:
        self.task, self.faults, self.seen, self.used = task, list(faults), [], set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        action = request.url.path.rsplit("/", 1)[1]
        self.seen.append((action, request.content))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lost":
            raise httpx.ConnectError("no route")
        if isinstance(fault, tuple):
            status, headers = fault
            return httpx.Response(status, json={"error": "told to"}, headers=headers)
        if isinstance(fault, int):
            return httpx.Response(fault, json={"error": "told to"})
        answer = self.answer(action, request)
        if fault == "answer lost":
            raise httpx.ReadTimeout("silence")
        return answer

    def answer(self, action: str, request: httpx.Request) -> httpx.Response:
        if action == "task":
            return httpx.Response(200, json=self.task.to_dict())
        if action == "draw":
            headers = {"Blindsight-Ticket": f"{len(self.seen)}", "Blindsight-Version": self.task.version}
            return httpx.Response(200, content=encode(np.zeros(self.task.weights)), headers=headers)
        ticket = request.headers["Blindsight-Ticket"]
        if ticket in self.used:
            return httpx.Response(410, json={"error": "used", "cause": "ticket_used"})
        self.used.add(ticket)
        return httpx.Response(202, json={})

    def client(self, budget=None, **more) -> Client:
        transport = httpx.MockTransport(self)
        given: dict[str, Any] = {"unprotected": budget is None} | more
        return Client("http://service", "phishing", TOKEN, budget=budget, http={"transport": transport}, **given)


def test_a_client_trains_the_model_of_a_service(serving, make_task, tmp_path):
    talk = serving(batch=1)
    budget = Budget(tmp_path / "budget.db", epsilon=100.0)
    with Client(talk.address, "phishing", TOKEN, budget=budget) as client:
        assert client.task() == make_task()
        sent = client.train(ROWS)
        assert sent.shape == (3,)
        assert talk.statistics()["taken"] == 1
        assert encode(sent) in {talk.draw().content for _ in range(400)}
    assert budget.spent == (2.0, 0.0)


def test_many_clients_at_once(talk):
    async def train():
        async with AsyncClient(talk.address, "phishing", TOKEN, unprotected=True) as client:
            assert (await client.task()).model == "phishing"
            await asyncio.gather(*(client.train(ROWS) for _ in range(40)))

    asyncio.run(train())
    assert talk.statistics()["taken"] == 40


def test_what_gets_lost_is_sent_again_and_taken_once(make_task):
    network = Network(make_task(), "lost", 503, None, 429, None, "answer lost", "lost", None)
    sent = network.client().train(ROWS)
    updates = [content for action, content in network.seen if action == "update"]
    assert len(network.used) == 1
    assert updates == [encode(sent)] * 3  # the same noise: a second one could be averaged with the first


def test_a_budget_is_spent_before_anything_is_sent_and_stops_the_client(make_task, tmp_path):
    budget = Budget(tmp_path / "budget.db", epsilon=5.0)
    network = Network(make_task())
    client = network.client(budget)
    client.train(ROWS)
    client.train(ROWS)
    with pytest.raises(BudgetExceeded):
        client.train(ROWS)
    assert [action for action, _ in network.seen] == ["task", "draw", "update", "draw", "update", "draw"]
    broken = Network(make_task(), None, None, *["lost"] * 5).client(Budget(tmp_path / "b.db", epsilon=5.0))
    with pytest.raises(ServiceError, match="after 5 attempts"):
        broken.train(ROWS)
    assert Budget(tmp_path / "b.db", epsilon=5.0).spent == (2.0, 0.0)  # it may have arrived


def test_a_new_version_of_the_task_is_fetched(make_task):
    network = Network(make_task())
    client = network.client()
    client.train(ROWS)
    network.task = make_task(epsilon=1.0)
    client.train(ROWS)
    assert [action for action, _ in network.seen][3:] == ["draw", "task", "draw", "update"]


@pytest.mark.parametrize("status", [401, 404, 409, 410, 423])
def test_what_is_refused_is_not_repeated(make_task, status):
    network = Network(make_task(), None, None, status)
    with pytest.raises(ServiceError, match="told to") as found:
        network.client().train(ROWS)
    assert found.value.status == status
    assert len(network.seen) == 3


def test_a_service_that_sends_nonsense_gets_nothing(make_task, tmp_path):
    class Liar(Network):
        weights = b""

        def answer(self, action, request):
            found = super().answer(action, request)
            if action == "draw":
                return httpx.Response(200, content=self.weights, headers=found.headers | {"content-length": "0"})
            return found

    for weights in (b"", bytes(8), np.full(3, np.nan, "<f4").tobytes()):
        liar = Liar(make_task())
        liar.weights = weights
        budget = Budget(tmp_path / "budget.db", epsilon=5.0)
        with pytest.raises(ServiceError, match="service sent"):
            liar.client(budget).train(ROWS)
        assert "update" not in [action for action, _ in liar.seen]
        assert budget.spent == (0.0, 0.0)
    for nonsense in (b"not JSON", b"{}", b'{"model": "phishing", "noise": {"kind": "none"}, "epsilon": 1}'):
        talk = httpx.MockTransport(lambda _, body=nonsense: httpx.Response(200, content=body))
        with pytest.raises(ServiceError, match="invalid task"):
            Client("http://service", "phishing", TOKEN, unprotected=True, http={"transport": talk}).train(ROWS)
    other = Network(make_task(model="other"))
    with pytest.raises(ServiceError, match="a model other than phishing"):
        other.client().train(ROWS)


def test_any_update_can_be_sent(make_task):
    network = Network(make_task())
    sent = network.client().contribute(lambda task, weights: weights + task.scale)
    assert decode(network.seen[-1][1]) == pytest.approx(sent)


DIAGNOSIS = {"family": "multinomial", "features": FeatureSpec((NumberField("age", 0, 100),)), "epsilon": 2.0**-12}
UNREADABLE = [
    [{"age": 40, "diagnosis": "flu"}],
    [{"age": 40, "diagnosis": "what no server lists"}],
    [{"age": 40, "diagnosis": None}],
    [{"age": 40, "diagnosis": 7.5}],
    [{"age": 40, "diagnosis": 10**5000}],
    [{"age": 40}],
    [{"age": None, "diagnosis": "flu"}],
    [{"age": float("nan"), "diagnosis": "flu"}],
    [{"age": "forty", "diagnosis": "flu"}, {"age": 40, "diagnosis": "flu"}],
    [None],
    [],
    {"age": [40, None], "diagnosis": ["flu", "cold"]},
]


@pytest.mark.parametrize("rows", UNREADABLE, ids=range(len(UNREADABLE)))
def test_no_value_of_a_client_keeps_it_from_sending(make_task, tmp_path, rows):
    """A server that leaves a category out of its list would otherwise read it off the silence of those who have it."""
    response = Response(CategoryField("diagnosis", ("flu", "cold")))
    network = Network(make_task(response=response, **DIAGNOSIS))
    budget = Budget(tmp_path / "budget.db", epsilon=1.0)
    sent = network.client(budget).train(rows)
    assert [action for action, _ in network.seen] == ["task", "draw", "update"]
    assert sent.all()
    assert budget.spent == (2.0**-12, 0.0)


def test_a_table_without_a_column_costs_nothing_and_draws_nothing(make_task, tmp_path):
    network = Network(make_task())
    budget = Budget(tmp_path / "budget.db", epsilon=5.0)
    for table in ({"length": [1], "phishing": [True]}, {"length": [1, 2], "https": [True], "phishing": [True]}):
        with pytest.raises(InvalidInput, match=r"no field 'https'|same number of rows"):
            network.client(budget).train(table)
    assert {action for action, _ in network.seen} == {"task"}
    assert budget.spent == (0.0, 0.0)


def test_a_client_without_a_budget_says_so(make_task):
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidInput, match="unprotected=True"):
            kind("http://service", "phishing", TOKEN)
        with pytest.raises(InvalidInput, match="unprotected=True"):
            kind("http://service", "phishing", TOKEN, budget=None)


def test_a_task_without_noise_is_answered_by_name_only(make_task, tmp_path):
    bare = {"epsilon": float("inf"), "noise": "none"}
    network = Network(make_task(**bare))
    for budget in (Budget(tmp_path / "a.db", epsilon=1.0), Budget(tmp_path / "b.db", epsilon=float("inf"))):
        with pytest.raises(PrivacyError, match="has no noise"):
            network.client(budget).train(ROWS)
    assert {action for action, _ in network.seen} == {"task"}
    assert network.client(unprotected=True).train(ROWS).any()
    changed = Network(make_task())  # nor when the noise goes away later
    client = changed.client(Budget(tmp_path / "c.db", epsilon=float("inf")))
    client.train(ROWS)
    changed.task = make_task(**bare)
    with pytest.raises(PrivacyError, match="has no noise"):
        client.train(ROWS)
    assert [action for action, _ in changed.seen][3:] == ["draw", "task"]


def test_a_client_waits_as_long_as_the_service_asks(make_task, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr("blindsight.service.client.time.sleep", waited.append)
    later = [{"Retry-After": "7"}, {"Retry-After": "99999"}, {"Retry-After": "soon"}, {}]
    network = Network(make_task(), *((503, headers) for headers in later), None)
    network.client().train(ROWS)
    assert waited == [7, 60, 0, 0]


@pytest.mark.parametrize("status", [401, 404, 409, 410])
def test_a_paid_update_that_is_refused_is_reported_with_its_price(make_task, tmp_path, status):
    budget, outbox = Budget(tmp_path / "budget.db", epsilon=5.0), tmp_path / "outbox.json"
    for more in ({}, {"outbox": outbox}):
        network = Network(make_task(), None, None, status)
        with pytest.raises(UpdateLost, match=r"cost \(2, 0\) is lost") as lost:
            network.client(budget, **more).train(ROWS)
        assert (lost.value.epsilon, lost.value.delta, lost.value.status) == (2.0, 0.0, status)
        assert not outbox.exists()


@pytest.mark.parametrize("fault", ["lost", 503, 423])
def test_a_paid_update_waits_in_the_outbox_and_survives_a_restart(make_task, tmp_path, fault):
    budget, outbox = Budget(tmp_path / "budget.db", epsilon=5.0), tmp_path / "outbox.json"
    network = Network(make_task(), None, None, *[fault] * 5)
    with pytest.raises(UpdateWaiting, match=r"outbox\.json"):
        network.client(budget, outbox=outbox).train(ROWS)
    assert outbox.stat().st_mode & 0o777 == 0o600
    network.faults.clear()
    again = network.client(budget, outbox=outbox)  # the app has started anew
    assert again.deliver()
    assert not again.deliver()
    updates = {content for action, content in network.seen if action == "update"}
    assert (len(updates), len(network.used)) == (1, 1)
    assert budget.spent == (2.0, 0.0)


def test_an_update_that_arrived_before_the_restart_is_not_lost(make_task, tmp_path):
    outbox = tmp_path / "outbox.json"
    network = Network(make_task(), None, None, *["answer lost"] * 1, *["lost"] * 4)
    with pytest.raises(UpdateWaiting):
        network.client(outbox=outbox).train(ROWS)
    assert network.client(outbox=outbox).deliver()
    assert len(network.used) == 1


def test_the_next_contribution_sends_what_waits_first(make_task, tmp_path):
    outbox = tmp_path / "outbox.json"
    network = Network(make_task(), None, None, 423)
    with pytest.raises(UpdateWaiting):
        network.client(outbox=outbox).train(ROWS)
    network.client(outbox=outbox).train(ROWS)
    assert [action for action, _ in network.seen] == ["task", "draw", "update", "update", "task", "draw", "update"]
    outbox.write_text('{"model": "m", "ticket": "", "version": "", "epsilon": 1, "delta": 0, "body": ""}')
    with pytest.raises(InvalidInput, match="one outbox for each model"):
        network.client(outbox=outbox).deliver()
    outbox.write_text("{")
    with pytest.raises(InvalidInput, match="cannot be read"):
        network.client(outbox=outbox).deliver()


def test_a_frozen_model_takes_the_update_once_it_trains_again(serving, make_task, tmp_path):
    talk = serving()
    with Client(talk.address, "phishing", TOKEN, unprotected=True, outbox=tmp_path / "outbox.json") as client:

        def freeze(task, weights):  # between the draw and the update
            talk.admin.post("/v1/admin/models/phishing/freeze")
            return weights

        with pytest.raises(UpdateWaiting, match="frozen"):
            client.contribute(freeze)
        assert talk.statistics()["taken"] == 0
        talk.admin.post("/v1/admin/models/phishing/thaw")
        assert client.deliver()
    assert talk.statistics()["taken"] == 1


def test_a_flooder_of_a_shared_token_makes_nobody_pay_for_nothing(serving, tmp_path):
    """Draws are limited, and nothing that a draw led to: whoever paid is admitted."""
    talk = serving(rate_per_s=5.0)
    tickets = [talk.draw() for _ in range(5)]  # half of the burst
    assert [one.status_code for one in tickets] == [200] * 5
    budget = Budget(tmp_path / "budget.db", epsilon=1000.0)
    with Client(talk.address, "phishing", TOKEN, budget=budget, retries=0) as client:
        client.task()
        paid = 0
        for _ in range(10):
            for _ in range(50):  # the flooder takes all there is; where draws are slow, there is always more
                if talk.draw().status_code == 429:
                    break
            try:
                client.train(ROWS)
            except UpdateLost:
                pytest.fail("an update was paid for and refused")
            except ServiceError:
                pass
            else:
                paid += 1
    assert budget.spent == (2.0 * paid, 0.0)

    assert all(talk.update(one).status_code == 202 for one in tickets)
