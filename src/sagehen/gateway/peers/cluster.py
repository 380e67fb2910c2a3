"""A gateway's part in a cluster: its links to other nodes, and its door for theirs."""

import asyncio
import socket
import ssl

from sagehen.base.clock import Clock
from sagehen.base.cluster_certificates import client_context, server_context, server_name
from sagehen.base.home import Home
from sagehen.frame.routing import Random
from sagehen.gateway.invocation.context import InvocationContext
from sagehen.gateway.peers.door import Door
from sagehen.gateway.peers.model_nodes import ModelNodes
from sagehen.gateway.peers.nodes import LOOK_SECONDS, Peers
from sagehen.gateway.peers.peer_link import PeerTls
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.gateway.routing.routes import Routes
from sagehen.http1.pool import Pool

__all__ = ["LOOK_SECONDS", "Cluster", "join_cluster"]

HANDSHAKE_SECONDS = 5.0
BACKLOG = 1024


class Cluster:
    """Args:
    server_tls: for links from other nodes; None leaves them open to read, for measurements.
    """

    def __init__(self, peers: Peers, server_tls: ssl.SSLContext | None) -> None:
        self.peers = peers
        self._server_tls = server_tls
        self._door: Door
        self._listening: asyncio.Server | None = None

    def open_door(self, context: InvocationContext, routes: Routes) -> None:
        """`context`, `routes`: of the gateway."""
        self._door = Door(context, routes)
        context.sessions.on_change = self.peers.share_session

    async def listen(self, listener: socket.socket) -> None:
        """Takes links of other nodes' gateways. Several processes may share the listener."""
        tls = self._server_tls
        self._listening = await asyncio.get_running_loop().create_server(
            self._door.make_connection,
            sock=listener,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
        )

    def stop_listening(self) -> None:
        """Takes no more links and requests; those that have begun are answered."""
        if self._listening is not None:
            self._listening.close()
        self._door.drain()

    @property
    def is_serving(self) -> bool:
        return self._door.has_requests

    async def look(self) -> None:
        """Looks for nodes that do not answer; call once a second."""
        self.peers.look()
        self._door.look()

    def abort(self) -> None:
        self.peers.abort()
        self._door.abort()


def join_cluster(
    home: Home, clock: Clock, inflight: InflightTable, random: Random
) -> Cluster | None:
    """Returns None on a machine of its own. Raises HomeError if the certificate is unusable."""
    try:
        own_id = home.node_id.read_text().strip()
    except FileNotFoundError:
        return None
    client = client_context(home.cluster)

    def tls(node_id: str) -> PeerTls:
        return PeerTls(client, server_name(node_id))

    peers = Peers(own_id, tls, clock, inflight, random)
    peers.model_nodes = ModelNodes(Pool(f"unix:{home.agent_socket}", clock), clock)
    return Cluster(peers, server_context(home.cluster))
