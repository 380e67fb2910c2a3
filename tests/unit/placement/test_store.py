"""The rows of nodes."""

import msgspec
import pytest

from sagehen.frame.nodes import Resources
from sagehen.placement import store
from support.node_agents import node_record


@pytest.fixture
def records(database):
    """`records()` reads all nodes."""

    def read():
        with database.read() as connection:
            return store.list_nodes(connection)

    return read


def test_nodes_are_kept_and_forgotten(database, records):
    first = node_record("b", resources=Resources(cpus=1.5, memory_bytes=2**40, gpus=0.5))
    with database.write() as connection:
        store.put(connection, first)
        store.put(connection, node_record("a", ray_id="f" * 56))
    assert records() == [node_record("a", ray_id="f" * 56), first]
    moved = msgspec.structs.replace(first, agent_address="elsewhere:1")
    with database.write() as connection:
        store.put(connection, moved)
        store.note_seen(connection, ["a", "b"], 7, 1e9)
        assert store.forget(connection, "a")
        assert not store.forget(connection, "a")
    assert records() == [msgspec.structs.replace(moved, epoch=7, seen_at=1e9)]


def test_a_node_stays_drained_when_it_starts_again_but_does_not_leave(database, records):
    with database.write() as connection:
        store.put(connection, node_record("a"))
        assert store.set_draining(connection, "a")
        assert not store.set_draining(connection, "b")
        assert store.set_leaving(connection, "a")
        assert not store.set_leaving(connection, "b")
    assert records()[0].is_draining
    assert records()[0].is_leaving
    with database.write() as connection:
        store.put(connection, node_record("a"))
    assert records()[0].is_draining
    assert not records()[0].is_leaving
    with database.write() as connection:
        assert store.set_leaving(connection, "a")
        assert store.set_serving(connection, "a")
        assert not store.set_serving(connection, "b")
    assert records()[0].takes_work


def test_a_state_belongs_to_the_first_cluster(database):
    with database.write() as connection:
        assert store.authority_of(connection, "one") == "one"
        assert store.authority_of(connection, "two") == "one"
