"""The other nodes of the cluster as a gateway knows them: their links, and whether they answer."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from sagehen.base.clock import Clock
from sagehen.frame.routes import InstanceRoute, NodeRoute
from sagehen.frame.routing import Random
from sagehen.gateway.peers.messages import PeerRoute
from sagehen.gateway.peers.model_nodes import ModelNodes
from sagehen.gateway.peers.peer_link import PING_REQUEST, PeerCall, PeerClient, PeerTls
from sagehen.gateway.peers.queue_peers import QueuePeers
from sagehen.gateway.peers.remote_instance import RemoteInstance, RemotePool
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.link.client import LinkWaiter
from sagehen.link.frames import PING, RELEASE, RESERVE, ROUTE, SESSION, encode_frame

if TYPE_CHECKING:
    from sagehen.gateway.routing.slot_queue import SlotQueue

__all__ = ["LOOK_SECONDS", "PeerNode", "Peers"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""between looks at whether a node has sent anything"""
SUSPECTED_AFTER, LOST_AFTER = 2, 3
"""silent looks, from which no new request is sent to the node, and its link is cut"""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 2.0
RESERVE_AGAIN_SECONDS = 0.05
"""after a node had no instance for a reservation: its route table may be older than ours"""


class PeerNode:
    """One other node, while it is in the route table with the same address."""

    def __init__(self, node_id: str, address: str, tls: PeerTls | None, clock: Clock) -> None:
        self.node_id = node_id
        self.address = address
        self.clock = clock
        self.is_lost = False
        """it is silent or cannot be reached: requests that only it can take are refused"""
        self.reservations: dict[int, tuple[QueuePeers, RemotePool]] = {}
        self.pools: dict[int, RemotePool] = {}
        """by route"""
        self._queues: dict[int, QueuePeers] = {}
        self._routes: dict[int, bytes] = {}
        self._silent_looks = 0
        self._opened_at: float | None = None
        """when the link was opened, while it is open"""
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        host, _, port = address.rpartition(":")
        self._client = PeerClient(self, host.strip("[]"), int(port), tls, clock)
        self._client.open()

    def add(self, pool: RemotePool, route: PeerRoute, queue: QueuePeers) -> None:
        self.pools[pool.route] = pool
        self._queues[pool.route] = queue
        self._routes[pool.route] = encode_frame(ROUTE, pool.route, body=msgspec.json.encode(route))
        pool.is_away = self._client.stream is None
        if (stream := self._client.stream) is not None:
            stream.send(self._routes[pool.route])

    def remove(self, pool: RemotePool) -> None:
        for known in (self.pools, self._queues, self._routes):
            known.pop(pool.route, None)

    def close(self) -> None:
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._client.close()

    def abort(self) -> None:
        self.close()
        self._client.abort()

    # Called by pools

    def take(self, waiter: LinkWaiter) -> PeerCall | None:
        call = self._client.take(waiter)
        assert call is None or isinstance(call, PeerCall)
        return call

    def forget(self, waiter: LinkWaiter) -> None:
        self._client.forget(waiter)

    def send(self, frame: bytes) -> None:
        if (stream := self._client.stream) is not None:
            stream.send(frame)

    def send_reservation(self, number: int, head: bytes) -> None:
        self.send(encode_frame(RESERVE, number, head))

    def release_reservation(self, number: int) -> None:
        self.reservations.pop(number, None)
        self.send(encode_frame(RELEASE, number))

    # Called by the link

    def opened(self) -> None:
        self.is_lost = False
        self._silent_looks = 0
        self._opened_at = self.clock.monotonic()
        self._retry_seconds = FIRST_RETRY_SECONDS
        stream = self._client.stream
        assert stream is not None
        for route in self._routes.values():
            stream.send(route)
        self._set_away(False)

    def lost(self) -> None:
        """The link broke, or cannot be opened."""
        # It ends with one of the node's gateways; another may take the next link at once.
        may_open = self._has_lasted() and self._silent_looks < LOST_AFTER
        self._opened_at = None
        self.is_lost = not may_open
        self._set_away(True)
        self.reservations.clear()
        for route, queue in list(self._queues.items()):
            queue.lost(self.pools[route])
        if not self._is_closed and self._retry is None:
            loop = asyncio.get_running_loop()
            if may_open:
                self._retry = loop.call_later(0, self._open_again)
                return
            self._retry = loop.call_later(self._retry_seconds, self._open_again)
            self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)

    def _has_lasted(self) -> bool:
        """Whether a link is lost that was open for a while: others are not tried again at once."""
        opened_at, now = self._opened_at, self.clock.monotonic()
        return opened_at is not None and now - opened_at >= FIRST_RETRY_SECONDS

    def _open_again(self) -> None:
        self._retry = None
        self._client.open()

    def _set_away(self, is_away: bool) -> None:
        for pool in self.pools.values():
            pool.is_away = is_away
        if not is_away:
            for queue in list(self._queues.values()):
                queue.reserve_for_all()

    def granted(self, number: int, instance_id: str) -> None:
        known = self.reservations.pop(number, None)
        if known is not None:
            queue, pool = known
            queue.granted(pool, number, instance_id)

    def released(self, number: int) -> None:
        known = self.reservations.pop(number, None)
        if known is not None:
            queue, _ = known
            queue.released(number)
            loop = asyncio.get_running_loop()
            loop.call_later(RESERVE_AGAIN_SECONDS, queue.reserve_for_all)

    def reported_free(self, route: int, free: int) -> None:
        pool = self.pools.get(route)
        if pool is not None:
            pool.report(free, self.clock.monotonic())

    # Called once a second

    def look(self) -> None:
        """Asks a silent node for an answer; cuts it off in the end."""
        stream = self._client.stream
        if stream is None:
            return
        if stream.is_heard:
            stream.is_heard = False
            if self._silent_looks >= SUSPECTED_AFTER:
                self._set_away(False)
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks >= LOST_AFTER:
            log.warning("The node %s at %s does not answer.", self.node_id, self.address)
            stream.abort()
            return
        stream.send(encode_frame(PING, PING_REQUEST))
        if self._silent_looks >= SUSPECTED_AFTER:
            self._set_away(True)


class Peers:
    """All other nodes of the route table.

    Args:
        own_id: this node's; empty where there is no cluster.
        tls: for the node with this id.
    """

    def __init__(
        self,
        own_id: str,
        tls: Callable[[str], PeerTls | None],
        clock: Clock,
        inflight: InflightTable,
        random: Random,
    ) -> None:
        self.own_id = own_id
        self.model_nodes: ModelNodes | None = None
        self._tls = tls
        self.clock = clock
        self._inflight = inflight
        self._random = random
        self._nodes: dict[str, PeerNode] = {}
        self._routes = count(1)
        self._numbers = count(1)

    def next_number(self) -> int:
        """Returns the number of a reservation."""
        return next(self._numbers) & 0xFFFFFFFF

    def is_remote(self, route: InstanceRoute) -> bool:
        return bool(route.node_id) and route.node_id != self.own_id

    def update(self, nodes: Mapping[str, NodeRoute]) -> None:
        """Continues with the nodes of a new route table."""
        for node_id, node in list(self._nodes.items()):
            route = nodes.get(node_id)
            if route is None or route.peer_address != node.address:
                del self._nodes[node_id]
                node.close()
        for node_id, route in nodes.items():
            if node_id != self.own_id and node_id not in self._nodes:
                self._nodes[node_id] = PeerNode(
                    node_id, route.peer_address, self._tls(node_id), self.clock
                )

    def instances(
        self, routes: Iterable[InstanceRoute], route: PeerRoute, queue: "SlotQueue"
    ) -> list[RemoteInstance]:
        """Returns the instances of other nodes for a queue, which gets their pools."""
        by_node: dict[str, list[InstanceRoute]] = {}
        for each in routes:
            if self.is_remote(each) and each.node_id in self._nodes:
                by_node.setdefault(each.node_id, []).append(each)
        if not by_node and queue.remote is None:
            return []
        if queue.remote is None:
            queue.remote = QueuePeers(queue, self, self._random)
        before = {pool.node: pool for pool in queue.remote.pools}
        pools = []
        for node_id, of_node in by_node.items():
            node = self._nodes[node_id]
            pool = before.pop(node, None)
            if pool is None:
                pool = RemotePool(node, next(self._routes), self._inflight)
                node.add(pool, route, queue.remote)
            pool.update([self._instance(each, pool) for each in of_node])
            pools.append(pool)
        for pool in before.values():
            pool.node.remove(pool)
        queue.remote.next_pools = pools
        return [each for pool in pools for each in pool.instances_by_id.values()]

    def _instance(self, route: InstanceRoute, pool: RemotePool) -> RemoteInstance:
        known = pool.instances_by_id.get(route.instance_id)
        if known is not None and (known.run_id, known.column) == (
            route.run_id,
            route.inflight_column,
        ):
            known.update_slots(route.slots)
            return known
        return RemoteInstance(route, pool, self._inflight)

    def share_session(self, name: str, content: bytes) -> None:
        """Tells all nodes that are reached of a session: its next request may come to any."""
        frame = encode_frame(SESSION, 0, name.encode(), content)
        for node in self._nodes.values():
            node.send(frame)

    def look(self) -> None:
        for node in self._nodes.values():
            node.look()

    def abort(self) -> None:
        if self.model_nodes is not None:
            self.model_nodes.abort()
        for node in self._nodes.values():
            node.abort()
