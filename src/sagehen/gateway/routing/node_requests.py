"""The requests in flight on the instances of one node of a cluster, for control.

An instance's own node alone knows them all: requests of other nodes come through its door, and are
counted in its in-flight table like those of its own gateways.
"""

from collections.abc import Callable

from sagehen.frame.nodes import NodeRequests
from sagehen.frame.routes import InstanceRoute, RouteFileReader

__all__ = ["count_requests"]


def count_requests(
    routes: RouteFileReader, node_id: str, outstanding: Callable[[int], int]
) -> NodeRequests:
    """Args:
    routes: the table that the node's gateways follow.
    outstanding: counts the requests in a column of the node's in-flight table.
    """
    routes.refresh_if_old()
    table = routes.table
    of_instances = {
        instance.instance_id: sum(map(outstanding, _columns(instance)))
        for route in table.routes.values()
        for variant in route.all_variants
        for instance in variant.instances
        if instance.node_id == node_id
    }
    return NodeRequests(
        called=tuple(key for key, requests in of_instances.items() if requests > 0),
        leaving={key: sum(map(outstanding, columns)) for key, columns in table.leaving.items()},
    )


def _columns(instance: InstanceRoute) -> tuple[int, ...]:
    columns = (instance.inflight_column, *(each.inflight_column for each in instance.containers))
    return tuple(column for column in columns if column is not None)
