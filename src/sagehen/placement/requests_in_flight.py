"""Which instances have requests, by what the nodes of a cluster tell with each heartbeat."""

from collections.abc import Callable, Collection, Sequence

from sagehen.frame.routes import RouteFileReader
from sagehen.placement.watched_node import WatchedNode

__all__ = ["RequestsInFlight"]


class RequestsInFlight:
    """Args:
    nodes: returns the nodes of the cluster.
    routes: the table that control has written last.
    """

    def __init__(self, nodes: Callable[[], Sequence[WatchedNode]], routes: RouteFileReader) -> None:
        self._nodes = nodes
        self._routes = routes

    def called(self, instance_ids: Collection[str]) -> frozenset[str]:
        """Returns the instances that have requests, or may have some for all that is known. Blocks.

        An instance that leaves has none from the moment on at which its node says so: that node
        then follows a route table without it, and so takes no further request. Until then control
        waits. What was on a lost node is lost.
        """
        self._routes.refresh_if_old()
        leaving = self._routes.table.leaving
        nodes = [node for node in self._nodes() if node.is_alive]
        called = {key for node in nodes for key in node.requests.called}
        for key in leaving.keys() & set(instance_ids):
            for node in nodes:
                if key in node.instances and node.requests.leaving.get(key, 1) > 0:
                    called.add(key)
        return frozenset(called.intersection(instance_ids))
