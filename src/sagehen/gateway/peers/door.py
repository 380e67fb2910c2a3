"""Takes requests of other nodes' gateways for the instances of this node."""

from typing import TYPE_CHECKING

from sagehen.gateway.invocation.context import InvocationContext
from sagehen.gateway.peers.door_connection import DoorConnection
from sagehen.gateway.peers.messages import PeerRoute

if TYPE_CHECKING:
    from sagehen.gateway.routing.routes import Endpoint, Routes, Variant

__all__ = ["Door"]


class Door:
    """All links from gateways of other nodes."""

    def __init__(self, context: InvocationContext, routes: "Routes") -> None:
        self.context = context
        self.is_draining = False
        self.connections: set[DoorConnection] = set()
        self._routes = routes

    def make_connection(self) -> "DoorConnection":
        return DoorConnection(self)

    def find(self, route: PeerRoute) -> "tuple[Endpoint, Variant] | None":
        endpoint = self._routes.get(route.endpoint)
        variant = None if endpoint is None else _variant(endpoint, route)
        return None if endpoint is None or variant is None else (endpoint, variant)

    def look(self) -> None:
        """Call once a second."""
        for connection in tuple(self.connections):
            connection.look()

    @property
    def has_requests(self) -> bool:
        return any(connection.has_requests for connection in self.connections)

    def drain(self) -> None:
        """Takes no more requests; links end with their last one."""
        self.is_draining = True
        for connection in tuple(self.connections):
            connection.close_if_done()

    def abort(self) -> None:
        for connection in tuple(self.connections):
            connection.abort()


def _variant(endpoint: "Endpoint", route: PeerRoute) -> "Variant | None":
    variant = endpoint.shadow if route.shadow else endpoint.variant(route.variant)
    if variant is None or variant.route.name != route.variant or not route.container:
        return variant
    return (variant.direct or {}).get(route.container)
