"""The nodes of a cluster as metrics."""

from sagehen.base.telemetry import METRICS
from sagehen.placement.metrics import NODE_STATES, measure_nodes
from support.fleet_cluster import SMALL
from support.node_agents import variant_spec


async def test_nodes_their_room_and_the_leader_are_measured(cluster):
    await cluster.begin("a", "b", "c", resources=SMALL)
    await cluster.put(*(variant_spec(f"i-{number}") for number in range(3)))
    await cluster.change("c", resources=SMALL, is_draining=True)
    cluster.agents["b"].die()
    await cluster.pass_time(5)
    for number in range(3, 6):
        await cluster.fleet.put_instance(variant_spec(f"i-{number}", "many"))
    measured = measure_nodes(cluster.fleet, "a", 7)
    states = {state: count for (state,), count in measured["Nodes"].items()}
    assert states == dict.fromkeys(NODE_STATES, 0) | {"ready": 1, "draining": 1, "lost": 1}
    assert measured["NodeUp"] == {("a",): 1, ("b",): 0, ("c",): 1}
    assert measured["NodeCpus"]["a",] == measured["NodeCpusReserved"]["a",] == 4
    assert measured["NodeMemory"]["a",] == measured["NodeMemoryReserved"]["a",] == 16 * 2**30
    assert measured["ClusterLeader"] == {("a",): 1}
    assert measured["ClusterLeaderEpoch"] == {(): 7}
    assert measured["InstancesWaitingForRoom"] == {(): 2}
    for name, values in measured.items():
        assert {len(key) for key in values} == {len(METRICS[name].dimensions)}
    assert measure_nodes(cluster.fleet, "a", None) == {}, "another control leads"
