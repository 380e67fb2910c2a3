"""All nodes of a cluster, seen as one agent."""

import asyncio

import msgspec
import pytest

from sagehen.base.errors import Invalid, Unavailable
from sagehen.frame.container_specs import InstanceOwner, InstanceState
from support.fleet import CONTAINERS
from support.fleet_cluster import SMALL
from support.node_agents import FakeNode, attempt_spec, variant_spec


async def test_nothing_is_known_before_every_node_has_reported_or_is_lost(cluster):
    with pytest.raises(Unavailable):
        await cluster.fleet.instances()
    cluster.agents["b"] = FakeNode("b", cluster.clock)
    cluster.agents["b"].die()
    await cluster.begin("a", "b")
    for call in (cluster.fleet.instances(), cluster.fleet.put_instance(variant_spec("i-1"))):
        with pytest.raises(Unavailable, match="Not every node"):
            await call
    await cluster.pass_time(4.5)
    assert await cluster.reports() == {}
    with pytest.raises(Unavailable, match="may still run"):
        await cluster.fleet.jobs()
    await cluster.pass_time(5)
    assert await cluster.attempts() == {}


async def test_instances_are_spread_and_reported_with_their_nodes(cluster):
    await cluster.begin("a", "b", "c")
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3)))
    places = await cluster.places()
    assert set(places.values()) == {"a", "b", "c"}
    # A put that is repeated goes to the same node.
    await cluster.put(variant_spec("i-1"))
    assert cluster.where("i-1") == {places["i-1"]}
    await cluster.fleet.delete_instance("i-1")
    await cluster.settle()
    assert (await cluster.reports())["i-1"].state is InstanceState.STOPPING
    cluster.agents[places["i-1"]].end_instance("i-1")
    await cluster.settle()
    assert set(await cluster.places()) == {"i-0", "i-2"}
    await cluster.fleet.delete_instance("i-1")


async def test_what_is_reserved_and_what_finds_no_room_elsewhere_is_known(cluster):
    await cluster.begin("a", "b", resources=SMALL)
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(4)))
    await cluster.fleet.put_instance(variant_spec("i-next", "other"))
    assert cluster.fleet.reserved("a") == SMALL
    assert cluster.fleet.without_room("a") == 0, "another endpoint's instance waits"
    assert cluster.fleet.reserved("unknown").cpus == 0
    await cluster.change("a", resources=SMALL, is_leaving=True)
    await cluster.fleet.put_instance(variant_spec("i-moved"))
    assert cluster.fleet.without_room("a") == 1


async def test_all_nodes_that_answer_prepare_for_starts(cluster):
    await cluster.begin("a", "b")
    cluster.agents["b"].die()
    await cluster.pass_time(10)
    await cluster.fleet.keep_warm(["python"])
    assert ("warm", "python") in cluster.agents["a"].calls
    assert ("warm", "python") not in cluster.agents["b"].calls


async def test_a_long_poll_ends_with_a_change_and_not_without(cluster):
    await cluster.begin("a")
    listed = await cluster.fleet.instances()
    polling = asyncio.create_task(cluster.fleet.instances(listed.version, 30))
    await cluster.pass_time(3)
    assert not polling.done(), "time and beats change nothing"
    await cluster.put(variant_spec("i-1"))
    assert [each.instance_id for each in (await polling).instances] == ["i-1"]


@pytest.mark.parametrize("fault", ["die", "hang"])
async def test_the_instances_of_a_lost_node_vanish_and_are_placed_elsewhere(cluster, fault):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    places = await cluster.places()
    lost = places["i-1"]
    getattr(cluster.agents[lost], fault)()
    await cluster.pass_time(2)
    assert await cluster.places() == places, "it may be slow"
    await cluster.pass_time(3)
    assert await cluster.places() == {"i-2": places["i-2"]}
    await cluster.put(variant_spec("i-1"))
    assert (await cluster.places())["i-1"] == places["i-2"]


@pytest.mark.parametrize("seconds", [5, 30, 120, 600])
async def test_no_instance_moves_when_control_has_its_lease_again(cluster, seconds):
    """As in an outage of the database, in which control may ask no node."""
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    places = await cluster.places()
    for agent in cluster.agents.values():
        agent.is_leading = False
    for _ in range(seconds):
        await cluster.pass_time(1)
        assert await cluster.places() == places
    for agent in cluster.agents.values():
        agent.is_leading = True
        agent.calls.clear()
    for _ in range(20):
        assert await cluster.places() == places
        await cluster.pass_time(0.25)
    asked = {call for agent in cluster.agents.values() for call, _ in agent.calls}
    assert not asked & {"put", "delete"}


async def test_a_node_that_died_in_an_outage_is_lost_a_while_after_it(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    places = await cluster.places()
    dead = places["i-1"]
    for agent in cluster.agents.values():
        agent.is_leading = False
    cluster.agents[dead].die()
    await cluster.pass_time(30)
    for agent in cluster.agents.values():
        agent.is_leading = True
    await cluster.pass_time(3)
    assert await cluster.places() == places
    await cluster.pass_time(2)
    assert await cluster.places() == {"i-2": places["i-2"]}


async def test_a_lost_node_stays_lost_while_control_has_no_lease(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    lost = (await cluster.places())["i-1"]
    cluster.agents[lost].hang()
    await cluster.pass_time(5)
    assert "i-1" not in await cluster.places()
    for agent in cluster.agents.values():
        agent.is_leading = False
    await cluster.pass_time(30)
    assert "i-1" not in await cluster.places()


async def test_containers_of_a_lost_node_are_not_reached(cluster):
    assert cluster.fleet.reached == {}
    await cluster.begin("a", "b")
    reached = {name: cluster.records[name].agent_address for name in ("a", "b")}
    assert cluster.fleet.reached == reached
    cluster.agents["b"].hang()
    await cluster.pass_time(5)
    assert cluster.fleet.reached == {"a": reached["a"]}
    await cluster.fleet.stand_down()
    assert cluster.fleet.reached == {}


async def test_a_call_does_not_wait_for_a_node_that_is_lost(cluster):
    await cluster.begin("a")
    await cluster.put(variant_spec("i-1"))
    cluster.agents["a"].hang()
    deleting = asyncio.create_task(cluster.fleet.delete_instance("i-1"))
    await cluster.pass_time(5)
    with pytest.raises(Unavailable, match="node a does not answer"):
        await deleting


async def test_of_two_copies_the_assigned_one_stays(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"))
    first = (await cluster.places())["i-1"]
    cluster.agents[first].hang()
    await cluster.pass_time(5)
    await cluster.put(variant_spec("i-1"))
    second = (await cluster.places())["i-1"]
    assert second != first
    cluster.agents[first].go_on()
    await cluster.pass_time(2)
    assert await cluster.places() == {"i-1": second}
    assert cluster.agents[first].states == {"i-1": InstanceState.STOPPING}
    assert ("delete", "i-1") not in cluster.agents[second].calls


async def test_a_node_that_returns_in_time_keeps_its_instances(cluster):
    await cluster.begin("a")
    await cluster.put(variant_spec("i-1"))
    cluster.agents["a"].hang()
    await cluster.pass_time(6)
    assert await cluster.reports() == {}
    await cluster.put(variant_spec("i-1"))
    assert (await cluster.reports())["i-1"].failure_reason, "it waits for a node"
    cluster.agents["a"].go_on()
    await cluster.pass_time(2)
    assert await cluster.places() == {"i-1": "a"}
    assert cluster.agents["a"].states == {"i-1": InstanceState.STARTING}


async def test_another_agent_on_the_node_begins_without_instances(cluster):
    await cluster.begin("a")
    await cluster.put(variant_spec("i-1"))
    cluster.agents["a"].restart()
    await cluster.pass_time(2)
    assert await cluster.reports() == {}
    await cluster.put(variant_spec("i-1"))
    assert await cluster.places() == {"i-1": "a"}


async def test_what_does_not_fit_waits_with_sagemakers_words_until_there_is_room(cluster):
    await cluster.begin("a", resources=SMALL)
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3)))
    waiting = (await cluster.reports())["i-2"]
    assert waiting.state is InstanceState.STARTING
    assert waiting.failure_reason.startswith(
        "CapacityError: Unable to provision requested ML compute capacity due to "
        "InsufficientInstanceCapacity error."
    )
    assert "2 vCPUs, 8 GiB of memory, which no node" in waiting.failure_reason
    assert set(cluster.agents["a"].states) == {"i-0", "i-1"}
    await cluster.begin("b", resources=SMALL)
    await cluster.pass_time(1)
    assert (await cluster.places())["i-2"] == "b"
    # Room that has become free is used, too.
    await cluster.put(variant_spec("i-3"), variant_spec("i-4"))
    await cluster.fleet.delete_instance("i-0")
    cluster.agents["a"].end_instance("i-0")
    await cluster.settle()
    assert (await cluster.places())["i-4"] == "a"


async def test_an_instance_that_waited_for_too_long_has_failed(cluster):
    await cluster.begin("a", resources=SMALL)
    spec = variant_spec("i-1", instance_type="ml.p4d.24xlarge")
    await cluster.put(spec)
    await cluster.pass_time(99)
    assert (await cluster.reports())["i-1"].state is InstanceState.STARTING
    await cluster.pass_time(2)
    failed = (await cluster.reports())["i-1"]
    assert failed.state is InstanceState.FAILED
    assert "none of the cluster's 1 nodes is that large" in failed.failure_reason
    await cluster.put(spec)
    assert (await cluster.reports())["i-1"].state is InstanceState.STARTING
    await cluster.fleet.delete_instance("i-1")
    assert await cluster.reports() == {}


async def test_a_refused_instance_takes_no_room(cluster):
    await cluster.begin("a", resources=SMALL)
    cluster.agents["a"].refuses = "The name cannot be a name."
    for number in range(3):
        with pytest.raises(Invalid, match="cannot be a name"):
            await cluster.fleet.put_instance(variant_spec(f"i-{number}"))
    cluster.agents["a"].refuses = None
    await cluster.put(variant_spec("i-3"))
    assert await cluster.places() == {"i-3": "a"}


async def test_a_new_leader_learns_what_runs_where_and_what_it_takes(cluster):
    await cluster.begin("a", resources=SMALL)
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    await cluster.fleet.put_job(attempt_spec("j-1"))
    await cluster.fleet.stand_down()
    with pytest.raises(Unavailable):
        await cluster.fleet.instances()
    cluster.fleet = cluster.make_fleet()
    await cluster.begin("b", resources=SMALL)
    assert await cluster.places() == {"i-1": "a", "i-2": "a"}
    await cluster.put(variant_spec("i-3"), variant_spec("i-4"), variant_spec("i-5"))
    places = await cluster.places()
    assert (places["i-3"], places["i-4"], places["i-5"]) == ("b", "b", "")


async def test_a_node_that_is_drained_gets_nothing_new(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2", owner=InstanceOwner.TRANSFORM_JOB))
    told = []
    cluster.fleet.on_nodes = lambda: told.append(cluster.fleet.leaving)
    drained = (await cluster.places())["i-1"]
    await cluster.change(drained, is_draining=True)
    assert told == [frozenset({"i-1"})]
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3, 6)))
    places = await cluster.places()
    assert {places[f"i-{number}"] for number in range(3, 6)} == {"a", "b"} - {drained}
    assert places["i-1"] == drained
    # A failed instance is started again where it is not drained.
    cluster.agents[drained].end_instance("i-1")
    await cluster.settle()
    await cluster.put(variant_spec("i-1"))
    assert (await cluster.places())["i-1"] != drained


async def test_what_nodes_say_is_put_together(cluster):
    await cluster.begin("a", "b", "c")
    cluster.agents["c"].die()
    assert await cluster.fleet.metrics() == ["a", "b"]
    assert await cluster.fleet.problems() == [
        "Node a: It is too warm.",
        "Node b: It is too warm.",
    ]
    assert await cluster.fleet.missing_walls() == ["network"]
    assert (await cluster.fleet.gpus()).problem == "a has none"
    assert set(await cluster.fleet.descriptions()) == {"a", "b"}
    await cluster.fleet.check_health()
    for agent in cluster.agents.values():
        agent.die()
    await cluster.pass_time(5)
    with pytest.raises(Unavailable, match="No node of the cluster answers"):
        await cluster.fleet.check_health()


async def test_a_node_that_is_forgotten_takes_its_instances_along(cluster):
    await cluster.begin("a", "b")
    await cluster.put(variant_spec("i-1"), variant_spec("i-2"))
    places = await cluster.places()
    del cluster.records["b"]
    await cluster.set_nodes()
    await cluster.settle()
    assert await cluster.places() == {key: place for key, place in places.items() if place == "a"}
    assert cluster.agents["b"].closed


async def test_a_node_that_has_the_model_on_disk_is_preferred(cluster):
    await cluster.begin("a", "b", "c")
    cluster.agents["b"].held_models = ["s3://models/x#1", "s3://many/"]
    await cluster.pass_time(2)
    single = with_model(model_data_url="s3://models/x", model_data_etag="1")
    await cluster.put(variant_spec("i-1", "one", containers=single))
    assert cluster.where("i-1") == {"b"}
    many = with_model(model_data_url="https://s3.amazonaws.com/many/", multi_model=True)
    await cluster.put(variant_spec("i-2", "many", containers=many))
    assert cluster.where("i-2") == {"b"}
    # It is evicted, and another version is not the same.
    cluster.agents["b"].held_models = ["s3://models/x#2"]
    cluster.agents["c"].held_models = ["s3://models/x#1", "s3://else", "s3://more"]
    await cluster.pass_time(7)
    await cluster.fleet.delete_instance("i-1")
    cluster.agents["b"].end_instance("i-1")
    await cluster.settle()
    await cluster.put(variant_spec("i-3", "three", containers=single))
    assert cluster.where("i-3") == {"c"}


def with_model(**members):
    return (msgspec.structs.replace(CONTAINERS[0], **members),)
