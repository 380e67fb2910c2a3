"""Which instances of a cluster have requests, as the leading control knows it."""

from dataclasses import dataclass, field

import msgspec
import pytest

from sagehen.frame.nodes import NodeRequests
from sagehen.frame.routes import RouteFileReader, RouteTable
from sagehen.placement.requests_in_flight import RequestsInFlight
from support.clock import HandClock


@dataclass
class Node:
    """As much of a WatchedNode as counts here."""

    instances: tuple[str, ...]
    requests: NodeRequests = field(default_factory=NodeRequests)
    is_alive: bool = True


@pytest.fixture
def make(tmp_path):
    def make(*nodes, leaving=()):
        table = RouteTable(routes={}, leaving=dict.fromkeys(leaving, (1,)))
        (tmp_path / "routes.json").write_bytes(msgspec.json.encode(table))
        reader = RouteFileReader(tmp_path / "routes.json", HandClock())
        return RequestsInFlight(lambda: nodes, reader)

    return make


def test_each_node_tells_of_its_own_instances(make):
    first = Node(("i-1", "i-2"), NodeRequests(called=("i-1",)))
    second = Node(("i-3",), NodeRequests(called=("i-3", "i-9")))
    assert make(first, second).called({"i-1", "i-2", "i-3"}) == {"i-1", "i-3"}


def test_one_that_leaves_is_waited_for_until_its_node_says_that_it_has_none(make):
    """Until then the node may follow an older route table, by which requests still come."""
    node = Node(("i-1",))
    other = Node(("i-2",), NodeRequests(leaving={"i-1": 0}))
    requests = make(node, other, leaving=["i-1"])
    assert requests.called({"i-1"}) == {"i-1"}, "its node has not said"
    node.requests = NodeRequests(leaving={"i-1": 2})
    assert requests.called({"i-1"}) == {"i-1"}
    node.requests = NodeRequests(leaving={"i-1": 0})
    assert requests.called({"i-1"}) == frozenset()


def test_nothing_is_waited_for_on_a_node_that_is_lost(make):
    lost = Node((), NodeRequests(called=("i-2",), leaving={"i-1": 3}), is_alive=False)
    assert make(lost, leaving=["i-1"]).called({"i-1", "i-2"}) == frozenset()


def test_only_what_was_asked_for_is_answered(make):
    node = Node(("i-1", "i-2"), NodeRequests(called=("i-1", "i-2")))
    requests = make(node, leaving=["i-2"])
    assert requests.called({"i-1": (1,)}.keys()) == {"i-1"}
