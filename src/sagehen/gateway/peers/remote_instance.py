"""Instances of another node as a gateway uses them: their slots are credits of the node."""

from typing import TYPE_CHECKING

from sagehen.frame.routes import InstanceRoute
from sagehen.gateway.peers.credits import NodeCredits
from sagehen.gateway.peers.messages import encode_head
from sagehen.gateway.peers.peer_link import PeerCall
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.link.call import LinkCall
from sagehen.link.upstream import Upstream, UpstreamWaiter

if TYPE_CHECKING:
    from sagehen.gateway.peers.nodes import PeerNode
    from sagehen.gateway.routing.slot_queue import SlotWaiter

__all__ = ["RemoteInstance", "RemotePool"]


class RemotePool(NodeCredits):
    """The instances of one queue on one node. Its upstreams are calls over the node's link."""

    __slots__ = (
        "_connecting",
        "_monotonic",
        "_prepared",
        "any_instance",
        "instances_by_id",
        "node",
        "reservation",
        "route",
        "was_busy",
    )

    def __init__(self, node: "PeerNode", route: int, inflight: InflightTable) -> None:
        super().__init__(0, 0)
        self.node = node
        self.route = route
        """the number of the queue on the node's link"""
        self._monotonic = node.clock.monotonic
        self._prepared = b""
        """head of the request that takes its slot now"""
        self._connecting: dict[UpstreamWaiter, _Connecting] = {}
        self.reservation = 0
        """whose slot the next request takes; 0: none"""
        self.was_busy = False
        """the last request was refused for want of a slot"""
        self.instances_by_id: dict[str, RemoteInstance] = {}
        route_of_any = InstanceRoute(instance_id=node.node_id, address="")
        self.any_instance = RemoteInstance(route_of_any, self, inflight)
        """stands for the instance that the node chooses"""

    def update(self, instances: list["RemoteInstance"]) -> None:
        """Continues with a new route table."""
        self.instances_by_id = {each.instance_id: each for each in instances}
        self.instances = len(instances)
        self.slots = sum(each.slots for each in instances)

    @property
    def all_instances(self) -> list["RemoteInstance"]:
        return [self.any_instance, *self.instances_by_id.values()]

    @property
    def is_free_now(self) -> bool:
        return self.believed_free(self._monotonic()) > 0

    def request_reservation(self, number: int, request: "SlotWaiter", instance_id: str) -> None:
        age = self._monotonic() - request.waiting_since
        head = encode_head(self.route, 0, age, instance_id, request.target_model)
        self.node.send_reservation(number, head)

    def prepare(self, request: "SlotWaiter", instance_id: str) -> None:
        """Called before `take`, when the slot is taken."""
        number, self.reservation = self.reservation, 0
        age = self._monotonic() - request.waiting_since
        self._prepared = encode_head(self.route, number, age, instance_id, request.target_model)

    def take_busy(self) -> bool:
        """Returns, once, whether a request was refused for want of a slot only."""
        was_busy, self.was_busy = self.was_busy, False
        return was_busy

    # As of Upstreams

    def take(self, waiter: UpstreamWaiter) -> Upstream | None:
        connecting = _Connecting(self, waiter, self._prepared)
        call = self.node.take(connecting)
        if call is None:
            self._connecting[waiter] = connecting
            return None
        call.begin(self, connecting.head)
        return call

    def forget(self, waiter: UpstreamWaiter) -> None:
        connecting = self._connecting.pop(waiter, None)
        if connecting is not None:
            self.node.forget(connecting)

    def connected(self, connecting: "_Connecting") -> None:
        self._connecting.pop(connecting.waiter, None)

    # The link is the node's: it stays when an instance goes.

    def close_idle(self, now: float) -> None: ...

    def close(self) -> None: ...

    @property
    def is_done(self) -> bool:
        return True

    def abort(self) -> None: ...


class _Connecting:
    """A request that waits for the link."""

    __slots__ = ("_pool", "head", "waiter")

    def __init__(self, pool: RemotePool, waiter: UpstreamWaiter, head: bytes) -> None:
        self._pool = pool
        self.waiter = waiter
        self.head = head

    def connected(self, upstream: LinkCall) -> None:
        assert isinstance(upstream, PeerCall)
        self._pool.connected(self)
        upstream.begin(self._pool, self.head)
        self.waiter.connected(upstream)

    def refused(self) -> None:
        self._pool.connected(self)
        self.waiter.refused()


class RemoteInstance(RoutedInstance):
    """An instance of another node, or any of its instances for a queue.

    Its node holds its models, sessions and containers: requests are placed there.
    """

    __slots__ = ("pool",)

    def __init__(self, route: InstanceRoute, pool: RemotePool, inflight: InflightTable) -> None:
        super().__init__(route, pool.node.clock, inflight, upstreams=pool)
        self.pool = pool

    @property
    def key(self) -> tuple[str, str, tuple[str, ...], int | None]:
        """Identifies the instance in the route table, for one queue."""
        queue = (self.pool.node.node_id, str(self.pool.route))
        return self.instance_id, self.run_id, queue, self.column

    @property
    def is_free(self) -> bool:
        return self.pool.is_free_now

    def acquire_slot(self) -> None:
        super().acquire_slot()
        self.pool.send()

    def release_slot(self) -> None:
        super().release_slot()
        self.pool.end()

    def prepare(self, request: "SlotWaiter") -> None:
        instance_id = self.instance_id if request.needs_instance else ""
        self.pool.prepare(request, instance_id)
