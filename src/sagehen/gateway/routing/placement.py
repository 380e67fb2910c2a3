"""Chooses an invocation's instance, waits for a slot, and tries others if one refuses."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from sagehen.frame.routing import Random, choose_by_affinity, choose_free
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.multimodel.model_leases import ModelLeases
from sagehen.gateway.routing.instance import RoutedInstance
from sagehen.gateway.routing.slot_queue import SlotQueue

if TYPE_CHECKING:
    from sagehen.gateway.peers.queue_peers import QueuePeers
    from sagehen.gateway.peers.remote_instance import RemoteInstance

__all__ = ["Placement", "PlacementCallbacks"]

BUSY_FROM = 32
"""requests per instance holding a model, from which another gets a copy; SageMaker's threshold is
not published"""


class PlacementCallbacks(Protocol):
    """Callbacks to the request that is placed."""

    def placed(self, instance: RoutedInstance) -> None: ...

    def no_instance_left(self) -> None:
        """No instance is left to try."""

    def instance_started(self) -> None:
        """The wait for a start is over: `placed` follows."""


class _Released:
    """Replaces the owner of a released placement."""

    def placed(self, instance: RoutedInstance) -> None: ...

    def no_instance_left(self) -> None: ...

    def instance_started(self) -> None: ...


_RELEASED = _Released()


class _State(IntEnum):
    IDLE = 0
    QUEUED = 1
    PLACED = 2
    WAITING_FOR_START = 3
    """as QUEUED, while the variant has no instance"""


# Bound here, as `_State.IDLE` takes 0.1 µs in Python 3.11.
_IDLE, _QUEUED, _PLACED, _WAITING_FOR_START = _State


class Placement:
    """One invocation's slot, or wait for one.

    `waiting_since`: monotonic seconds; the earliest is served first.
    """

    is_of_other_node: ClassVar[bool] = False

    __slots__ = (
        "_admitted",
        "_had_slot",
        "_models",
        "_owner",
        "_random",
        "_state",
        "_tried",
        "instance",
        "waiting_since",
    )

    instance: RoutedInstance
    """the last one placed on; counts this request while PLACED"""

    def __init__(
        self,
        admitted: Admitted,
        owner: PlacementCallbacks,
        models: ModelLeases,
        random: Random,
        waiting_since: float,
    ) -> None:
        self._admitted = admitted
        self._owner: PlacementCallbacks = owner
        self._models = models
        self._random = random
        self._tried: list[RoutedInstance] = []
        self._had_slot = False
        self._state = _IDLE
        self.waiting_since = waiting_since

    def find(self) -> None:
        """Calls the owner at once, or when a slot is free."""
        instances = self._untried()
        if not instances:
            self._owner.no_instance_left()
            return
        queue = self._admitted.variant.slot_queue
        if queue.remote is None:
            instance = None if queue.must_queue else self._choose(instances)
        elif self._asks_for_nodes(queue.remote, instances):
            return  # `find` is called again
        elif queue.remote.can_serve(self):
            instance = None if queue.must_queue else self._choose_of_all(queue.remote, instances)
        else:
            self._owner.no_instance_left()
            return
        if instance is None:
            self._wait_in_queue()
        else:
            self._take(instance)

    def _asks_for_nodes(self, remote: "QueuePeers", instances: Sequence[RoutedInstance]) -> bool:
        """Whether it must be found out first which nodes have the model on disk."""
        target_model = self._admitted.target_model
        if target_model is None or len(instances) == 1:
            return False
        if any(self._models.holds(each.model_holder_id, target_model) for each in instances):
            return False
        return remote.must_ask_for(target_model, self._nodes_known)

    def _nodes_known(self) -> None:
        if self._owner is not _RELEASED and self._state is _IDLE:
            self.find()

    def _wait_in_queue(self) -> None:
        self._begin_wait()
        self._admitted.variant.slot_queue.add(self, at_front=self._had_slot)

    def _begin_wait(self) -> None:
        self._state = _QUEUED
        self._admitted.variant.counters.queued.enter()

    @property
    def slot_queue(self) -> SlotQueue:
        return self._admitted.variant.slot_queue

    @property
    def has_slot(self) -> bool:
        return self._state is _PLACED

    @property
    def can_wait_for_start(self) -> bool:
        """Whether an instance that calls start may answer. One that is there and refused would
        refuse again."""
        queue = self._admitted.variant.slot_queue
        return (
            queue.starts is not None
            and self._admitted.instance is None
            and all(instance.is_retired for instance in self._tried)
        )

    def wait_for_start(self) -> None:
        """Waits in the queue; calls the owner's `instance_started`, and then `placed`."""
        self._state = _WAITING_FOR_START
        self._admitted.variant.counters.queued.enter()
        self._admitted.variant.slot_queue.add(self, at_front=self._had_slot)

    def find_again(self) -> None:
        """Releases the slot and looks for one, which may be the same."""
        self._release_slot()
        self.find()

    def find_another(self) -> None:
        """Tries another instance, as this one provably did not begin."""
        instance = self.instance
        if not instance.is_remote:
            self._tried.append(instance)
        else:
            pool = cast("RemoteInstance", instance).pool
            if pool.take_busy():
                self._release_slot()
                self._wait_in_queue()
                return
            self._tried += pool.all_instances
        self.find_again()

    def release(self) -> None:
        """Releases everything; stops calling the owner."""
        # Breaks the reference cycle: pauses of the garbage collector are long.
        self._owner = _RELEASED
        if self._state is _PLACED:
            self._release_slot()
        elif self._state is not _IDLE:
            self._admitted.variant.slot_queue.remove(self)
            self._leave_queue()

    def _release_slot(self) -> None:
        self._state = _IDLE
        self.instance.release_slot()
        target_model = self._admitted.target_model
        if target_model is not None and not self.instance.is_remote:
            self._models.end(self.instance.model_holder_id, target_model)
        self._admitted.variant.slot_queue.wake()

    # Called by the slot queue

    def can_use(self, instance: RoutedInstance) -> bool:
        session_holder = self._admitted.instance
        return instance not in self._tried and session_holder in (None, instance)

    def prefers(self, instance: RoutedInstance) -> bool:
        target_model = self._admitted.target_model
        if target_model is None:
            return True
        first = self._admitted.variant.slot_queue.variant.ranked(target_model)[0]
        return instance is first or self._models.holds(instance.model_holder_id, target_model)

    @property
    def waits_for_start(self) -> bool:
        return self._state is _WAITING_FOR_START

    @property
    def target_model(self) -> str | None:
        return self._admitted.target_model

    @property
    def pinned_instance(self) -> RoutedInstance | None:
        return self._admitted.instance

    @property
    def needs_instance(self) -> bool:
        return self._admitted.session_id is not None

    @property
    def is_plain(self) -> bool:
        admitted = self._admitted
        return admitted.target_model is None and admitted.session_id is None

    def slot_granted(self, instance: RoutedInstance) -> None:
        if self._state is _WAITING_FOR_START:
            self._owner.instance_started()
        self._leave_queue()
        self._take(instance)

    def slot_available(self) -> None:
        instances = self._untried()
        if self._admitted.variant.slot_queue.remote is not None:
            instances = [instance for instance in instances if not instance.is_remote]
        instance = self._choose(instances)
        if instance is None:
            # Another gateway has just taken the slot.
            self._admitted.variant.slot_queue.add(self, at_front=True)
        else:
            if self._state is _WAITING_FOR_START:
                self._owner.instance_started()
            self._leave_queue()
            self._take(instance)

    def no_usable_instance(self) -> None:
        self._leave_queue()
        self._owner.no_instance_left()

    def _leave_queue(self) -> None:
        self._state = _IDLE
        self._admitted.variant.counters.queued.leave()

    def _take(self, instance: RoutedInstance) -> None:
        self.instance = instance
        self._state = _PLACED
        self._had_slot = True
        instance.acquire_slot()
        if instance.is_remote:
            cast("RemoteInstance", instance).prepare(self)
        elif (target_model := self._admitted.target_model) is not None:
            self._models.begin(instance.model_holder_id, target_model)
        self._owner.placed(instance)

    def _untried(self) -> Sequence[RoutedInstance]:
        """Returns instances in order of preference for the model, if any."""
        variant = self._admitted.variant.slot_queue.variant
        target_model = self._admitted.target_model
        if (holder := self._admitted.instance) is not None:
            return () if holder in self._tried or holder.is_retired else (holder,)
        instances: Sequence[RoutedInstance] = variant.instances
        if target_model is not None and len(instances) > 1:
            instances = variant.ranked(target_model)
        if self._tried:
            instances = [instance for instance in instances if instance not in self._tried]
        return instances

    def _choose_of_all(
        self, remote: "QueuePeers", instances: Sequence[RoutedInstance]
    ) -> RoutedInstance | None:
        """Chooses among the instances of all nodes."""
        admitted = self._admitted
        if admitted.target_model is not None:
            return self._choose(remote.by_model(admitted.target_model, instances))
        if admitted.instance is not None:
            return self._choose(instances)
        return remote.choose(self._tried, admitted.variant.route.strategy, self.needs_instance)

    def _choose(self, instances: Sequence[RoutedInstance]) -> RoutedInstance | None:
        target_model = self._admitted.target_model
        if target_model is not None:
            if len(instances) == 1:
                return instances[0] if instances[0].is_free else None
            models = self._models
            holds = [models.holds(each.model_holder_id, target_model) for each in instances]
            return choose_by_affinity(instances, holds, BUSY_FROM)
        return choose_free(instances, self._admitted.variant.route.strategy, self._random)
