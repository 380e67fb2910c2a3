"""The requests on the instances of a node, as its agent tells control."""

import msgspec
import pytest

from sagehen.frame.nodes import NodeRequests
from sagehen.frame.routes import (
    ContainerAddress,
    InstanceRoute,
    Route,
    RouteFileReader,
    RouteTable,
    VariantRoute,
)
from sagehen.gateway.routing.inflight import (
    InflightSums,
    create_inflight_table,
    open_inflight_table,
)
from sagehen.gateway.routing.node_requests import count_requests
from support.clock import HandClock


def instance(instance_id, node_id, column=None, *containers):
    addresses = tuple(ContainerAddress("link:/x", inflight_column=each) for each in containers)
    return InstanceRoute(
        instance_id=instance_id,
        address="link:/x",
        node_id=node_id,
        inflight_column=column,
        containers=addresses,
    )


@pytest.fixture
def table(tmp_path):
    """The in-flight table of two gateways."""
    create_inflight_table(tmp_path / "board", 2)
    return [open_inflight_table(tmp_path / "board", row) for row in range(2)]


@pytest.fixture
def count(tmp_path):
    """Writes the route table, and counts as the agent of the node `here` does."""
    clock = HandClock()
    reader = RouteFileReader(tmp_path / "routes.json", clock)
    outstanding = InflightSums(tmp_path / "board").outstanding

    def write_and_count(*instances, leaving=None):
        clock.seconds += 1
        variant = VariantRoute(name="v", weight=1, instances=instances)
        route = Route(endpoint_name="e", variants=(variant,))
        routes = RouteTable(routes={"e": route}, leaving=leaving or {})
        draft = tmp_path / "new"
        draft.write_bytes(msgspec.json.encode(routes))
        draft.replace(tmp_path / "routes.json")
        return count_requests(reader, "here", outstanding)

    return write_and_count


def test_the_requests_of_all_gateways_count(table, count):
    table[0].increment(1)
    table[1].increment(1)
    table[1].increment(4)
    told = count(
        instance("i-idle", "here", 0),
        instance("i-busy", "here", 1),
        instance("i-direct", "here", None, 3, 4),
        instance("i-uncounted", "here"),
    )
    assert told == NodeRequests(called=("i-busy", "i-direct"))


def test_only_the_node_of_an_instance_knows_its_requests(table, count):
    """What this node's gateways have on another node's instance is in this table, too."""
    table[0].increment(1)
    assert count(instance("i-there", "there", 1)) == NodeRequests()


def test_instances_that_leave_are_named_until_control_takes_them_out(table, count):
    table[0].increment(5)
    leaving = {"i-1": (5, 6), "i-2": (7,)}
    assert count(leaving=leaving) == NodeRequests(leaving={"i-1": 1, "i-2": 0})
    table[0].decrement(5)
    assert count(leaving=leaving).leaving == {"i-1": 0, "i-2": 0}
    assert count() == NodeRequests()


def test_there_is_nothing_before_the_first_route_table(tmp_path):
    reader = RouteFileReader(tmp_path / "routes.json", HandClock())
    outstanding = InflightSums(tmp_path / "board").outstanding
    assert count_requests(reader, "here", outstanding) == NodeRequests()
