"""The nodes of a cluster as a control shows them, and a node that leaves, by their answers."""

from types import SimpleNamespace

import pytest

from sagehen.base.errors import NotFound, Unavailable
from sagehen.frame.nodes import Resources
from sagehen.frame.own_paths.routes import OwnPathRequest
from sagehen.placement import store
from sagehen.placement.own_paths import NodePaths
from support.clock import SteppedClock
from support.node_agents import FakeNode, node_record, variant_spec


class NoFleet:
    """Of a control that does not lead."""

    nodes = ()
    waiting = ()

    def other_problems(self):
        return ()


class Leaving:
    def __init__(self, database):
        self.database = database
        self.agents = {}
        self.paths = NodePaths(
            database, NoFleet(), lambda record, epoch: self.agents[record.node_id], "own"
        )

    def add(self, node_id):
        self.agents[node_id] = agent = FakeNode(node_id, SteppedClock())
        with self.database.write() as connection:
            store.put(connection, node_record(node_id))
        return agent

    def row(self, node_id):
        with self.database.read() as connection:
            return next(one for one in store.list_nodes(connection) if one.node_id == node_id)

    async def serve(self, node_id="own"):
        return await self.paths._serve(OwnPathRequest("PUT", {"id": node_id}, {}, b""))

    async def leave(self, node_id="own"):
        return await self.paths._leave(OwnPathRequest("PUT", {"id": node_id}, {}, b""))


@pytest.fixture
def leaving(database):
    leaving = Leaving(database)
    leaving.add("own").has(variant_spec("i-1"))
    return leaving


async def test_a_lone_node_may_stop_at_once(leaving):
    assert await leaving.leave() == {"id": "own", "instances": 1, "can_move": False}
    assert not leaving.row("own").is_leaving


async def test_instances_move_where_another_node_answers(leaving):
    leaving.add("other")
    assert await leaving.leave() == {"id": "own", "instances": 1, "can_move": True}
    assert leaving.row("own").is_leaving
    leaving.agents["own"].end_instance("i-1")
    assert (await leaving.leave())["instances"] == 0


@pytest.mark.parametrize("away", ["own", "other"])
async def test_an_answer_that_does_not_come_is_asked_for_again(leaving, away):
    """A node that loads the instances which move may be slow: leaving does not end with that."""
    leaving.add("other")
    leaving.agents[away].die()
    with pytest.raises(Unavailable):
        await leaving.leave()


async def test_an_unknown_node_is_refused(leaving):
    for ask in (leaving.leave, leaving.serve):
        with pytest.raises(NotFound, match="cluster status"):
            await ask("nobody")


@pytest.mark.parametrize("others", [0, 1])
async def test_a_node_that_left_and_did_not_stop_takes_work_again(leaving, others):
    for _ in range(others):
        leaving.add("other")
    await leaving.leave()
    assert leaving.paths.is_leaving
    assert await leaving.serve() == {"id": "own", "draining": False}
    assert leaving.row("own").takes_work
    assert not leaving.paths.is_leaving


async def test_another_control_may_be_asked_to_let_it_take_work_again(leaving):
    leaving.add("other")
    leaving.paths.follow_own(leaving.row("own"))  # read before it leaves
    await leaving.leave()
    leaving.paths.follow_own(leaving.row("own"))
    assert leaving.paths.is_leaving
    await leaving.leave("other")
    await leaving.serve("other")
    assert leaving.paths.is_leaving, "it was not meant"
    elsewhere = NodePaths(leaving.database, NoFleet(), lambda *_: None, "other")
    await elsewhere._serve(OwnPathRequest("PUT", {"id": "own"}, {}, b""))
    leaving.paths.follow_own(leaving.row("own"))
    assert not leaving.paths.is_leaving


async def test_a_row_that_was_read_before_it_leaves_does_not_undo_that(leaving):
    leaving.add("other")
    before = leaving.row("own")
    await leaving.leave()
    leaving.paths.follow_own(before)
    assert leaving.paths.is_leaving


def fleet_of(*node_ids, refusal=""):
    """Of a control that leads."""
    nodes = [
        SimpleNamespace(
            node_id=node_id, is_alive=not refusal, heartbeat=SimpleNamespace(refusal=refusal)
        )
        for node_id in node_ids
    ]
    return SimpleNamespace(
        nodes=nodes,
        waiting=[{"id": "i-9", "reason": "no room"}],
        reserved=lambda node_id: Resources(cpus=2, memory_bytes=8 * 2**30),
        without_room=lambda node_id: 1,
        other_problems=lambda: ["Ray cannot be used."],
    )


@pytest.mark.parametrize(("refusal", "state"), [("", "ready"), ("speaks 7", "other version")])
async def test_the_leader_says_what_waits_and_which_node_is_of_another_version(
    leaving, refusal, state
):
    leaving.paths._fleet, leaving.paths.may_grow = fleet_of("own", refusal=refusal), True
    shown = await leaving.paths.status(OwnPathRequest("GET", {}, {}, b""))
    assert [node["state"] for node in shown["nodes"]] == [state]
    assert shown["waiting"] == [{"id": "i-9", "reason": "no room"}]
    assert shown["problems"] == ["Ray cannot be used."]
    assert (shown["of_leader"], shown["may_grow"]) == (True, True)
    (node,) = shown["nodes"]
    assert (node["leader"], node["without_room"]) == (True, 1)
    assert node["capacity"] == {"cpus": 64, "memory_gib": 256, "gpus": 0}
    assert node["reserved"] == {"cpus": 2, "memory_gib": 8, "gpus": 0}


async def test_a_standby_says_that_it_does_not_know_what_waits(leaving):
    shown = await leaving.paths.status(OwnPathRequest("GET", {}, {}, b""))
    assert [node["state"] for node in shown["nodes"]] == ["ready"]
    assert not shown["of_leader"]
    assert "reserved" not in shown["nodes"][0]
