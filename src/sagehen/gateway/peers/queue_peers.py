"""The other nodes that a queue's requests may go to, and the slots that are reserved there."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from sagehen.frame.routes import RoutingStrategy
from sagehen.frame.routing import Random, choose_instance
from sagehen.gateway.peers.credits import (
    NodeCredits,
    Reservations,
    choose_node,
    choose_nodes_to_reserve,
)
from sagehen.gateway.peers.remote_instance import RemoteInstance, RemotePool
from sagehen.gateway.routing.instance import RoutedInstance

if TYPE_CHECKING:
    from sagehen.gateway.peers.nodes import Peers
    from sagehen.gateway.routing.slot_queue import SlotQueue, SlotWaiter

__all__ = ["QueuePeers"]

MAX_CANDIDATES = 64
"""waiters, from the first on, to choose from"""


class QueuePeers:
    """The pools of one queue, one for each other node that has instances for it."""

    def __init__(self, queue: "SlotQueue", peers: "Peers", random: Random) -> None:
        self._queue = queue
        self._peers = peers
        self._random = random
        self._monotonic = peers.clock.monotonic
        self._reservations: Reservations[SlotWaiter, RemotePool] = Reservations()
        self.pools: list[RemotePool] = []
        self.next_pools: list[RemotePool] = []
        """of a route table that does not apply yet"""

    def update(self) -> None:
        """Continues with a new route table."""
        gone = [pool for pool in self.pools if pool not in self.next_pools]
        self.pools = self.next_pools
        for pool in gone:
            self.lost(pool)
        self.reserve_for_all()

    def can_serve(self, placement: "SlotWaiter") -> bool:
        """Whether an instance here, or a node that answers, may take the request."""
        instances = self._queue.variant.local
        if any(map(placement.can_use, instances)):
            return True
        return any(not pool.node.is_lost for pool in self._usable(placement))

    def choose(
        self, tried: Sequence[RoutedInstance], strategy: RoutingStrategy, needs_instance: bool
    ) -> RoutedInstance | None:
        """Returns an instance for a request that need not wait."""
        free = [each for each in self._queue.variant.local if each.is_free and each not in tried]
        nodes: list[NodeCredits] = [
            pool for pool in self.pools if pool.any_instance not in tried and pool.instances
        ]
        if free:
            nodes.append(_LocalCredits(free))
        chosen = choose_node(nodes, strategy, self._random, self._monotonic())
        if isinstance(chosen, RemotePool):
            if needs_instance:
                instances = tuple(chosen.instances_by_id.values())
                return instances[int(self._random() * len(instances))]
            return chosen.any_instance
        return choose_instance(free, strategy, self._random) if free else None

    def must_ask_for(self, target_model: str, answered: Callable[[], None]) -> bool:
        """Whether it is asked which nodes have a model, and `answered` follows."""
        prefix = self._queue.variant.route.models_url
        models = self._peers.model_nodes
        return bool(prefix) and models is not None and models.ask(prefix + target_model, answered)

    def by_model(
        self, target_model: str, instances: Sequence[RoutedInstance]
    ) -> Sequence[RoutedInstance]:
        """Puts the instances first whose nodes have the model on disk."""
        models = self._peers.model_nodes
        url = self._queue.variant.route.models_url + target_model
        nodes = models.find(url) if models is not None else frozenset()
        if not nodes:
            return instances
        return sorted(instances, key=lambda each: self._node_of(each) not in nodes)

    def _node_of(self, instance: RoutedInstance) -> str:
        if isinstance(instance, RemoteInstance):
            return instance.pool.node.node_id
        return self._peers.own_id

    # Called by the queue

    def reserve(self, waiter: "SlotWaiter") -> None:
        """Reserves slots at a few nodes for a request that waits; it may have some already."""
        pinned = waiter.pinned_instance
        reserved = self._reservations.nodes(waiter)
        pools = [pool for pool in self._usable(waiter) if pool not in reserved]
        for pool in choose_nodes_to_reserve(pools, self._random, len(reserved)):
            assert isinstance(pool, RemotePool)
            number = self._peers.next_number()
            self._reservations.add(waiter, pool, number)
            pool.node.reservations[number] = (self, pool)
            instance_id = "" if pinned is None else pinned.instance_id
            pool.request_reservation(number, waiter, instance_id)

    def reserve_for_all(self) -> None:
        """Reserves slots at nodes that are new, or are back."""
        for waiter in self._queue.waiters():
            if not waiter.is_of_other_node:
                self.reserve(waiter)

    def left(self, waiter: "SlotWaiter") -> None:
        """Releases the reservations of a request that waits no more."""
        for number, pool in self._reservations.remove(waiter):
            pool.node.release_reservation(number)

    def _usable(self, waiter: "SlotWaiter") -> list[RemotePool]:
        pinned = waiter.pinned_instance
        if pinned is not None:
            return [pinned.pool] if isinstance(pinned, RemoteInstance) else []
        return [pool for pool in self.pools if pool.instances and waiter.can_use(pool.any_instance)]

    # Called by the nodes

    def granted(self, pool: RemotePool, number: int, instance_id: str) -> None:
        waiter = self._reservations.granted(number)
        if waiter is None:
            return  # its release is on the way
        chosen = waiter
        if waiter.is_plain:
            for oldest in islice(self._queue.waiters(), MAX_CANDIDATES):
                if oldest is waiter:
                    break
                if oldest.is_plain and oldest.can_use(pool.any_instance):
                    self._reservations.exchange(waiter, oldest)
                    chosen = oldest
                    break
        instance = pool.instances_by_id.get(instance_id, pool.any_instance)
        pool.reservation = number
        self._queue.hand_over(chosen, instance)

    def released(self, number: int) -> None:
        """The node has no instance for a reservation, and no other is tried for it."""
        self._reservations.granted(number)

    def lost(self, pool: RemotePool) -> None:
        """Those that waited for the node wait elsewhere, if there is any other."""
        for waiter in self._reservations.lost(pool):
            self.reserve(waiter)
        self._queue.reject_unservable()


class _LocalCredits(NodeCredits):
    """This machine's instances in comparison with other nodes."""

    __slots__ = ("_free_instances",)

    def __init__(self, free: Sequence[RoutedInstance]) -> None:
        super().__init__(len(free), 0)
        self._free_instances = free

    def believed_free(self, now: float) -> int:
        return len(self._free_instances)

    def load(self, now: float) -> float:
        return min(instance.outstanding for instance in self._free_instances)
