"""Route tables for the nodes of a cluster, and how gateways reach these nodes."""

import msgspec

from sagehen.frame.routes import NodeRoute, RouteTable


async def test_every_other_node_gets_each_route_table_also_after_it_was_away(cluster):
    cluster.routes_file.write_bytes(b"one")
    await cluster.begin("a", "b", "c")
    cluster.fleet.hint_routes()
    await cluster.settle()
    cluster.agents["c"].die()
    cluster.routes_file.write_bytes(b"two")
    cluster.fleet.hint_routes()
    await cluster.settle()
    assert cluster.agents["b"].tables == [b"one", b"two"]
    assert cluster.agents["a"].tables == [], "control writes its own"
    await cluster.pass_time(5)
    cluster.agents["c"].restart()
    await cluster.pass_time(3)
    assert cluster.agents["c"].tables == [b"one", b"two"]
    assert cluster.fleet.node_routes["a"] == NodeRoute(
        peer_address="a:2", control_address="a:4", agent_address="a:1"
    )
    assert cluster.fleet.node_routes["b"] == NodeRoute(peer_address="b:2", agent_address="b:1")


def route_table(version, *names):
    routes = {name: {"endpoint_name": name, "variants": []} for name in names}
    return msgspec.json.encode({"version": version, "routes": routes})


async def test_nodes_get_what_has_changed_in_the_route_table_or_all_of_it(cluster):
    async def publish(version, *names):
        cluster.routes_file.write_bytes(route_table(version, *names))
        cluster.fleet.hint_routes()
        await cluster.settle()

    def got(name):
        calls = [call for call, _ in cluster.agents[name].calls if call.startswith("route")]
        decoded = msgspec.json.decode(cluster.agents[name].tables[-1], type=RouteTable)
        cluster.agents[name].calls.clear()
        return calls, sorted(decoded.routes)

    await cluster.begin("a", "b", "c")
    cluster.agents["c"].takes_changes = False  # it is of the release before
    await publish(1, "one", "two", "three")
    assert got("b") == (["routes"], ["one", "three", "two"])
    await publish(2, "one", "two", "three", "four")
    assert got("b") == (["route changes"], ["four", "one", "three", "two"])
    assert got("c")[0] == ["routes", "route changes", "routes"]
    await publish(3, "one", "two", "four")
    assert got("b") == (["route changes"], ["four", "one", "two"])
    assert got("c")[1] == ["four", "one", "two"]
    cluster.agents["b"].restart()
    await cluster.pass_time(2)
    assert got("b") == (["routes"], ["four", "one", "two"])


async def test_a_new_leader_sends_no_table_before_its_own(cluster):
    """Its file may be older than what the nodes have from the last leader."""
    cluster.routes_file.write_bytes(b"old")
    await cluster.begin("a", "b")
    await cluster.begin("c")
    assert [agent.tables for agent in cluster.agents.values()] == [[], [], []]
    cluster.routes_file.write_bytes(b"new")
    cluster.fleet.hint_routes()
    await cluster.settle()
    await cluster.begin("d")
    assert cluster.agents["b"].tables == cluster.agents["d"].tables == [b"new"]
    await cluster.fleet.stand_down()
    cluster.fleet.hint_routes()  # of a pass that has not heard of it
    await cluster.settle()
    await cluster.begin("a", "b")
    assert cluster.agents["b"].tables == [b"new"]


async def test_no_agent_is_sent_to_a_node_that_is_lost(cluster):
    changes = []
    await cluster.begin("a", "b")
    cluster.fleet.on_nodes = lambda: changes.append(cluster.fleet.node_routes["b"].agent_address)
    cluster.agents["b"].die()
    await cluster.pass_time(5)
    assert changes == [""]
    cluster.agents["b"].restart()
    await cluster.pass_time(3)
    assert changes[-1] == "b:1"
