"""Which gateway of a cluster gets a free slot of a node: decisions without I/O or clocks, which
the simulation in benchmarks/routing_remote.py uses too.

A gateway believes of each node that it has free slots or none. It sends a request at once to a node
that it believes free; a node that has no free slot refuses it before it begins. A request that
finds no slot waits in its gateway, which reserves a slot at a few nodes (`FAN_OUT`). A node grants
a slot that becomes free to the reservation that is oldest, whichever gateway it is of, and the
gateway uses the grant for the oldest request that waits there.

While a granted slot waits for its request, nobody uses it. So a node with a long queue grants a
slot before it is free, as many as become free in the time that a grant takes (`EarlyGrants`).
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from sagehen.frame.routes import RoutingStrategy
from sagehen.frame.routing import Random

__all__ = [
    "FAN_OUT",
    "EarlyGrants",
    "NodeCredits",
    "Reservation",
    "Reservations",
    "choose_node",
    "choose_nodes_to_reserve",
]

FAN_OUT = 4
"""nodes at which a waiting request reserves a slot: bounds the messages of a request"""
FRESH_SECONDS = 0.02
"""for which a node's word on its free slots counts; then it may be tried again"""
MAX_EARLY_PER_SLOT = 0.5
"""grants before a slot is free, as part of all slots"""
GRANT_SECONDS = 0.0005
"""from a grant to its request, before that was measured"""
EARLY_AGE, EARLY_AGE_OF_ONE_SLOT = 1.0, 4.0
"""what requests must have waited before slots are granted early, in times between two ends; where
there is one slot, a granted request is stuck behind one other, which may take long"""
SMOOTHING = 0.05
"""weight of the last measurement in a moving average"""

W = TypeVar("W")
N = TypeVar("N")


class NodeCredits:
    """A gateway's knowledge, which may be old, of one node's slots for one variant."""

    __slots__ = ("_free", "_reported_at", "instances", "is_away", "outstanding", "slots")

    def __init__(self, instances: int, slots: int) -> None:
        self.instances = instances
        self.slots = slots
        """of all instances together"""
        self.outstanding = 0
        """requests of this gateway at the node"""
        self.is_away = False
        """the node does not answer"""
        self._free = slots
        self._reported_at: float | None = None

    def report(self, free: int, now: float) -> None:
        """The node says how many slots it has for a request that it did not reserve."""
        self._free = free
        self._reported_at = now

    def send(self) -> None:
        self.outstanding += 1
        self._free -= 1

    def end(self) -> None:
        self.outstanding -= 1

    def believed_free(self, now: float) -> int:
        """Returns the slots that may be free; a node of which nothing is known may have some."""
        if self.is_away:
            return 0
        if self._reported_at is not None and now - self._reported_at <= FRESH_SECONDS:
            return max(0, self._free)
        return max(0, self.slots - self.outstanding)

    def load(self, now: float) -> float:
        """Returns the requests per instance, as far as known."""
        return (self.slots - self.believed_free(now)) / self.instances


def choose_node(
    nodes: Sequence[NodeCredits], strategy: RoutingStrategy, random: Random, now: float
) -> NodeCredits | None:
    """Returns a node for a request that need not wait, or None: then it waits.

    With LEAST_OUTSTANDING_REQUESTS the better of two is taken: what gateways know is old, and all
    would send to the one that was the least busy.
    """
    free = [node for node in nodes if node.believed_free(now) > 0]
    if not free:
        return None
    chosen = _choose(free, random)
    if strategy is RoutingStrategy.LEAST_OUTSTANDING_REQUESTS and len(free) > 1:
        other = _choose(free, random)
        if other.load(now) < chosen.load(now):
            return other
    return chosen


def choose_nodes_to_reserve(
    nodes: Sequence[NodeCredits], random: Random, reserved: int = 0
) -> list[NodeCredits]:
    """Returns up to FAN_OUT different nodes, those with many instances more often.

    `reserved`: nodes that were chosen before.
    """
    left = [node for node in nodes if not node.is_away]
    if len(left) <= FAN_OUT - reserved:
        return left
    chosen = []
    for _ in range(FAN_OUT - reserved):
        node = _choose(left, random)
        left.remove(node)
        chosen.append(node)
    return chosen


def _choose(nodes: Sequence[NodeCredits], random: Random) -> NodeCredits:
    """Chooses as if one of all instances were chosen at random."""
    if len(nodes) == 1:
        return nodes[0]
    left = random() * sum(node.instances for node in nodes)
    for node in nodes:
        left -= node.instances
        if left < 0:
            return node
    return nodes[-1]


class Reservation(NamedTuple, Generic[N]):
    """A gateway's place in the queue of a node."""

    number: int
    node: N


class Reservations(Generic[W, N]):
    """The reservations of one gateway for the requests that wait there."""

    def __init__(self) -> None:
        self._waiters: dict[int, W] = {}
        """by number"""
        self._of: dict[W, dict[int, N]] = {}
        """nodes by number, by waiter"""

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, waiter: W) -> bool:
        return bool(self._of.get(waiter))

    def nodes(self, waiter: W) -> list[N]:
        """Returns where the waiter has reservations."""
        return list(self._of.get(waiter, {}).values())

    def add(self, waiter: W, node: N, number: int) -> None:
        """`number`: no other reservation's."""
        self._waiters[number] = waiter
        self._of.setdefault(waiter, {})[number] = node

    def remove(self, waiter: W) -> list[Reservation[N]]:
        """Forgets a waiter; returns the reservations to be released."""
        own = self._of.pop(waiter, {})
        for number in own:
            del self._waiters[number]
        return [Reservation(number, node) for number, node in own.items()]

    def granted(self, number: int) -> W | None:
        """Uses up a reservation; returns the waiter it was for, None if that has left."""
        waiter = self._waiters.pop(number, None)
        if waiter is not None:
            del self._of[waiter][number]
        return waiter

    def exchange(self, one: W, other: W) -> None:
        """`one` was granted a slot, which `other`, who has waited longer, takes: `one` waits on
        with the reservations of `other`."""
        self._of[one], self._of[other] = self._of.get(other, {}), self._of.get(one, {})
        for waiter in (one, other):
            for number in self._of[waiter]:
                self._waiters[number] = waiter

    def lost(self, node: N) -> list[W]:
        """Forgets the reservations at a node that is lost; returns the waiters that had some."""
        waiters = []
        for waiter, own in self._of.items():
            numbers = [number for number, each in own.items() if each is node]
            for number in numbers:
                del own[number], self._waiters[number]
            if numbers:
                waiters.append(waiter)
        return waiters


class EarlyGrants:
    """How many slots a node grants before they are free.

    A request that was granted a slot early waits at the node, and cannot go to another node that is
    free sooner. That costs nothing as long as it is short beside what requests wait anyway.
    """

    __slots__ = ("_ended_at", "_seconds_between_ends", "_seconds_to_request")

    def __init__(self) -> None:
        self._seconds_between_ends: float | None = None
        """while requests wait"""
        self._ended_at: float | None = None
        self._seconds_to_request = GRANT_SECONDS

    def ended(self, now: float, waiting: int) -> None:
        """A request has ended, and `waiting` others wait."""
        before, self._ended_at = self._ended_at, now if waiting else None
        if before is None:
            return
        self._seconds_between_ends = _averaged(self._seconds_between_ends, now - before)

    def used(self, seconds: float) -> None:
        """A grant's request came after `seconds`."""
        self._seconds_to_request = _averaged(self._seconds_to_request, seconds)

    def allowed(self, oldest_age: float, slots: int) -> int:
        """`oldest_age`: seconds that the oldest reservation without a grant has waited."""
        between = self._seconds_between_ends
        age = EARLY_AGE if slots > 1 else EARLY_AGE_OF_ONE_SLOT
        if between is None or oldest_age < age * between:
            return 0
        needed = 1 + int(2 * self._seconds_to_request / between) if between > 0 else slots
        return min(needed, max(1, int(slots * MAX_EARLY_PER_SLOT)))


def _averaged(before: float | None, value: float) -> float:
    return value if before is None else before + SMOOTHING * (value - before)
