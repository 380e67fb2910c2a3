"""The nodes of the table become those of the fleet."""

from types import SimpleNamespace

import msgspec
import pytest

from sagehen.base.errors import Unavailable
from sagehen.frame.nodes import Resources
from sagehen.placement import store
from sagehen.placement.node_loop import FORGET_MARGIN_SECONDS, NodeLoop
from support.clock import SteppedClock
from support.node_agents import node_record


class Fleet:
    """Notes what it is told; all nodes answer but those in `silent`."""

    def __init__(self):
        self.records = None
        self.stood_down = 0
        self.silent = set()
        self.ended = set()
        """of the silent ones"""

    async def set_nodes(self, records):
        self.records = {record.node_id: record for record in records}

    async def stand_down(self):
        self.records = None
        self.stood_down += 1

    @property
    def nodes(self):
        return [Node(each, each not in self.silent, each in self.ended) for each in self.records]


class Node:
    def __init__(self, node_id, is_alive, has_ended):
        self.node_id = node_id
        self.is_alive = is_alive
        self.heartbeat = SimpleNamespace(has_ended=has_ended)


class House:
    def __init__(self, database):
        self.database = database
        self.clock = SteppedClock(now=1e6)
        self.fleet = Fleet()
        self.epoch = 3
        self.own = node_record("own", has_control=True, ray_id="r1")
        self.found = []
        self.loop = NodeLoop(
            database, self.fleet, lambda: self.epoch, self.describe, 600, self.clock, self
        )

    async def describe(self):
        return self.own

    async def update(self, records):
        """As a source of nodes."""
        known = {record.node_id for record in records}
        return [each for each in self.found if each.node_id not in known]

    def rows(self):
        with self.database.read() as connection:
            return {each.node_id: each for each in store.list_nodes(connection)}

    def change(self, action, *given):
        with self.database.write() as connection:
            action(connection, *given)


@pytest.fixture
def house(database):
    return House(database)


async def test_each_control_keeps_its_own_row(house):
    house.epoch = None
    await house.loop.turn()
    assert set(house.rows()) == {"own"}
    assert house.fleet.records is None, "another control leads"
    house.change(store.set_draining, "own")
    house.own = msgspec.structs.replace(house.own, resources=Resources(cpus=1))
    house.clock.advance(11)
    await house.loop.turn()
    row = house.rows()["own"]
    assert (row.resources.cpus, row.is_draining) == (1, True)
    house.change(store.forget, "own")
    await house.loop.turn()
    assert "own" in house.rows()


async def test_a_control_that_starts_again_leaves_its_node_drained(house):
    await house.loop.turn()
    house.change(store.set_draining, "own")
    house.change(store.set_leaving, "own")
    again = House(house.database)
    again.own = msgspec.structs.replace(again.own, agent_address="127.0.0.1:7")
    await again.loop.turn()
    row = again.rows()["own"]
    assert (row.agent_address, row.is_draining, row.is_leaving) == ("127.0.0.1:7", True, False)
    assert again.fleet.records["own"].is_draining
    assert not row.takes_work


async def test_each_turn_shows_the_own_row_as_it_was_read(house):
    shown = []
    house.loop.on_own = lambda row: shown.append(row.is_leaving)
    await house.loop.turn()
    house.change(store.set_leaving, "own")
    await house.loop.turn()
    house.change(store.set_serving, "own")
    await house.loop.turn()
    assert shown == [False, True, False]


async def test_a_server_that_is_back_before_ray_has_the_room_that_it_had(house):
    house.own = msgspec.structs.replace(house.own, resources=Resources(cpus=64))
    await house.loop.turn()
    again = House(house.database)
    again.own = msgspec.structs.replace(again.own, ray_id="", resources=Resources(cpus=2))
    await again.loop.turn()
    assert again.fleet.records["own"].resources.cpus == 64
    again.own = msgspec.structs.replace(again.own, ray_id="r2", resources=Resources(cpus=32))
    again.clock.advance(1)
    await again.loop.turn()
    row = again.rows()["own"]
    assert (row.resources.cpus, row.ray_id) == (32, "r2")


async def test_the_leader_follows_the_table_until_it_leads_no_more(house):
    house.change(store.put, node_record("a"))
    await house.loop.turn()
    assert set(house.fleet.records) == {"own", "a"}
    assert house.rows()["a"].epoch == 3
    house.change(store.set_draining, "a")
    await house.loop.turn()
    assert house.fleet.records["a"].is_draining
    house.epoch = None
    await house.loop.turn()
    assert house.fleet.records is None


async def test_found_nodes_get_rows(house):
    house.found = [node_record("ray-1", ray_id="abc")]
    await house.loop.turn()
    assert set(house.fleet.records) == set(house.rows()) == {"own", "ray-1"}


async def test_a_node_is_forgotten_when_its_instances_have_stopped_for_sure(house):
    house.change(store.put, node_record("a", seen_at=house.clock.now()))
    house.fleet.silent = {"a"}
    await house.loop.turn()
    house.clock.advance(600 + FORGET_MARGIN_SECONDS - 1)
    await house.loop.turn()
    assert "a" in house.rows()
    house.clock.advance(31)
    await house.loop.turn()
    assert set(house.rows()) == {"own"}
    await house.loop.turn()
    assert set(house.fleet.records) == {"own"}


async def test_a_leader_whose_clock_is_ahead_forgets_no_node_that_it_has_not_asked(house):
    house.change(store.put, node_record("a", seen_at=house.clock.now() - 3600))
    house.fleet.silent = {"a", "own"}
    await house.loop.turn()
    assert set(house.rows()) == {"own", "a"}
    house.epoch = None
    await house.loop.turn()
    house.clock.advance(3600)  # for which another control has led
    house.epoch = 5
    await house.loop.turn()
    assert set(house.rows()) == {"own", "a"}


async def test_an_outage_of_the_database_is_no_silence_of_a_node(house, monkeypatch):
    house.change(store.put, node_record("a"))
    house.fleet.silent = {"a"}
    await house.loop.turn()
    house.epoch = None  # the lease has run out

    def away():
        raise Unavailable("The database is away.")

    with monkeypatch.context() as patch:
        patch.setattr(house.loop, "_read", away)
        for _ in range(1200):
            house.clock.advance(1)
            with pytest.raises(Unavailable):
                await house.loop.turn()
    house.epoch = 3
    await house.loop.turn()
    assert set(house.rows()) == {"own", "a"}


async def test_a_new_leader_asks_its_nodes_before_the_source(house):
    """Ray may have died with the last leader; jobs end when nobody renews their lease for 8 s."""
    asked = []

    async def away(records):
        asked.append(set(house.fleet.records or ()))
        return ()

    house.update = away
    house.change(store.put, node_record("a"))
    await house.loop.turn()
    assert asked == [{"own", "a"}]


async def test_a_source_that_is_away_ends_no_turn_for_good(house):
    async def away(records):
        raise Unavailable("Ray is away")

    house.update = away
    with pytest.raises(Unavailable):
        await house.loop.turn()
    del house.update
    await house.loop.turn()
    assert set(house.fleet.records) == {"own"}


async def test_the_epoch_of_a_new_leader_is_written_before_agents_hear_it(house, monkeypatch):
    house.change(store.put, node_record("a"))
    heard = []
    set_nodes = house.fleet.set_nodes

    async def noted(records):
        heard.append({row.epoch for row in house.rows().values()})
        await set_nodes(records)

    monkeypatch.setattr(house.fleet, "set_nodes", noted)
    house.fleet.silent = {"a", "own"}
    await house.loop.turn()
    assert heard[0] == {3}
    house.change(store.note_seen, ["a"], 2, 1e6)
    assert house.rows()["a"].epoch == 3, "an earlier leader, which was stopped for a while"


@pytest.mark.parametrize(
    ("changes", "is_gone"),
    [
        ({}, True),
        ({"ray_id": ""}, False),
        ({"has_control": True}, False),
        ({"agent_address": "10.0.0.8:1"}, False),
    ],
)
async def test_an_agent_in_whose_place_a_server_runs_is_forgotten_when_it_has_ended(
    house, changes, is_gone
):
    house.own = msgspec.structs.replace(house.own, agent_address="10.0.0.7:5")
    fields = {"ray_id": "r1", "agent_address": "10.0.0.7:1"} | changes
    house.change(store.put, node_record("node-10-0-0-7", **fields))
    await house.loop.turn()
    house.fleet.silent = {"node-10-0-0-7"}
    await house.loop.turn()
    assert "node-10-0-0-7" in house.rows(), "it may hang, or run jobs"
    house.fleet.ended = {"node-10-0-0-7"}
    await house.loop.turn()
    assert ("node-10-0-0-7" not in house.rows()) == is_gone


async def test_beside_a_server_that_does_not_answer_nothing_is_forgotten_at_once(house):
    house.change(
        store.put, node_record("server", has_control=True, agent_address="10.0.0.7:5", ray_id="r7")
    )
    house.change(store.put, node_record("agent", ray_id="r7", agent_address="10.0.0.7:1"))
    house.fleet.silent = {"server", "agent"}
    house.fleet.ended = {"agent"}
    await house.loop.turn()
    assert {"server", "agent"} <= set(house.rows()), "its machine may be cut off"


async def test_a_control_that_leads_anew_forgets_what_it_knew(house):
    """Another has led meanwhile, if only for a moment between two turns."""
    await house.loop.turn()
    before = house.fleet.stood_down
    await house.loop.turn()
    assert house.fleet.stood_down == before
    house.epoch += 2
    await house.loop.turn()
    assert house.fleet.stood_down == before + 1
    assert "own" in house.fleet.records
