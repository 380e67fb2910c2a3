"""Questions about logs to the nodes of a cluster."""

import json
from types import SimpleNamespace

import msgspec
import pytest

from sagehen.base.errors import Invalid
from sagehen.frame.own_paths.routes import OwnPathRequest
from sagehen.placement import store
from sagehen.placement.log_nodes import ClusterLogs
from sagehen.services.monitoring.logs.node_requests import NodeAnswer, NodeRequest
from support.clock import SteppedClock
from support.node_agents import FakeNode, node_record

REQUEST = NodeRequest(kind="groups", params={})


class Watched:
    """As much of a WatchedNode as counts here."""

    def __init__(self, agent, is_alive=True):
        self.node_id, self.agent, self.is_alive = agent.node_id, agent, is_alive

    async def call(self, request):
        return await request


@pytest.fixture
def asked():
    """The names of the nodes that were asked, with the parameters."""
    return []


@pytest.fixture
def agents(asked):
    made = {name: FakeNode(name, SteppedClock()) for name in ("a", "b", "c")}
    for name, agent in made.items():
        agent.answer_logs = lambda request, name=name: (
            asked.append((name, request["params"]))
            or msgspec.to_builtins(NodeAnswer(result={"of": name}))
        )
    return made


@pytest.fixture
def make(database, agents):
    def make(*watched):
        epochs = []

        def connect(record, epoch):
            epochs.append(epoch)
            return agents[record.node_id]

        logs = ClusterLogs(database, lambda: watched, connect)
        return SimpleNamespace(logs=logs, epochs=epochs)

    return make


def write(database, *records):
    with database.write() as connection:
        for record in records:
            store.put(connection, record)


def results(answers):
    return {name: answer.result["of"] for name, answer in answers.by_node.items()}


async def test_the_leader_asks_the_nodes_that_it_watches(make, agents):
    made = make(Watched(agents["a"]), Watched(agents["b"], is_alive=False), Watched(agents["c"]))
    agents["c"].die()
    answers = await made.logs.ask(REQUEST)
    assert (results(answers), answers.missing) == ({"a": "a"}, ("b", "c"))
    assert agents["b"].calls == made.epochs == []
    assert results(await made.logs.ask(REQUEST, "a")) == {"a": "a"}


async def test_one_that_stands_by_asks_all_nodes_of_the_table(make, agents, database):
    write(
        database,
        node_record("a", epoch=4, seen_at=100.0),
        node_record("b", epoch=4, seen_at=100.0),
        node_record("c", epoch=3, seen_at=50.0),
    )
    made = make()
    agents["b"].die()
    answers = await made.logs.ask(REQUEST)
    assert (results(answers), answers.missing) == ({"a": "a", "c": "c"}, ("b",))
    assert set(made.epochs) == {4}, "an older epoch is refused"
    assert all(agent.closed for agent in agents.values())


async def test_a_page_goes_on_where_that_of_each_node_has_ended(make, agents, asked, database):
    write(database, node_record("a"), node_record("b"))
    logs = make(Watched(agents["a"]), Watched(agents["b"])).logs

    async def ask(body):
        request = OwnPathRequest("POST", {}, {}, json.dumps(body).encode())
        return await logs._tail(request)

    first = await ask({"request": {"name": "house", "lines": 5}, "positions": None})
    assert first == {"nodes": {"a": {"of": "a"}, "b": {"of": "b"}}, "missing": ()}
    await ask({"request": {"name": "house"}, "positions": {"a": {"x.log": 7}}})
    positions = sorted(((name, params["positions"]) for name, params in asked[2:]))
    assert positions == [("a", {"x.log": 7}), ("b", {})]
    assert [params["positions"] for _, params in asked[:2]] == [None, None]
    with pytest.raises(Invalid, match="no request for logs"):
        await ask({"request": {}})
