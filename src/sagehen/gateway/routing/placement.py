"""Chooses an invocation's instance, waits for a slot, and tries others if one refuses."""

from collections.abc import Sequence
from typing import Protocol

from sagehen.frame.routing import Random, choose_by_affinity, choose_free
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.multimodel.models import LoadedModels
from sagehen.gateway.routing.instance import RoutedInstance

__all__ = ["Placed", "Placement"]

BUSY_FROM = 32
"""requests per instance holding a model, from which another gets a copy; SageMaker's threshold is
not published"""


class Placed(Protocol):
    """Callbacks to the placed request."""

    def placed(self, instance: RoutedInstance) -> None: ...

    def nowhere(self) -> None:
        """No instance is left to try."""


class _Nobody:
    """Replaces an owner that has let go."""

    def placed(self, instance: RoutedInstance) -> None: ...

    def nowhere(self) -> None: ...


_NOBODY = _Nobody()


class Placement:
    """One invocation's slot, or wait for one.

    `waiting_since`: monotonic seconds; the earliest is served first.
    """

    __slots__ = (
        "_admitted",
        "_had_slot",
        "_in_line",
        "_models",
        "_owner",
        "_random",
        "_tried",
        "instance",
        "waiting_since",
    )

    def __init__(
        self,
        admitted: Admitted,
        owner: Placed,
        models: LoadedModels,
        random: Random,
        waiting_since: float,
    ) -> None:
        self._admitted = admitted
        self._owner: Placed = owner
        self._models = models
        self._random = random
        self._tried: list[RoutedInstance] = []
        self._in_line = False
        self._had_slot = False
        self.instance: RoutedInstance | None = None
        """counts this request"""
        self.waiting_since = waiting_since

    def find(self) -> None:
        line = self._admitted.variant.line
        instances = self._untried()
        if not instances:
            self._owner.nowhere()
            return
        instance = None if line.taken else self._choose(instances)
        if instance is None:
            self._in_line = True
            self._admitted.variant.counters.queued.enter()
            line.join(self, again=self._had_slot)
        else:
            self._take(instance)

    def elsewhere(self) -> None:
        """Tries another instance, as this one provably did not begin."""
        self._tried.append(self.leave())
        self.find()

    def leave(self) -> RoutedInstance:
        instance, self.instance = self.instance, None
        assert instance is not None
        instance.give()
        target_model = self._admitted.target_model
        if target_model is not None:
            self._models.end(instance.holder, target_model)
        self._admitted.variant.line.wake()
        return instance

    def let_go(self) -> None:
        """Releases everything; stops calling the owner."""
        # Breaks the reference cycle: pauses of the garbage collector are long.
        self._owner = _NOBODY
        if self._in_line:
            self._admitted.variant.line.leave(self)
            self._left_line()
        if self.instance is not None:
            self.leave()

    # Called by the slot queue

    def may_go_to(self, instance: RoutedInstance) -> bool:
        holder = self._admitted.instance
        return instance not in self._tried and holder in (None, instance)

    def prefers(self, instance: RoutedInstance) -> bool:
        target_model = self._admitted.target_model
        if target_model is None:
            return True
        first = self._admitted.variant.line.variant.ranked(target_model)[0]
        return instance is first or self._models.holds(instance.holder, target_model)

    def slot_free(self) -> None:
        instance = self._choose(self._untried())
        if instance is None:
            # Another gateway has just taken the slot.
            self._admitted.variant.line.join(self, again=True)
        else:
            self._left_line()
            self._take(instance)

    def line_ends(self) -> None:
        self._left_line()
        self._owner.nowhere()

    def _left_line(self) -> None:
        self._in_line = False
        self._admitted.variant.counters.queued.leave()

    def _take(self, instance: RoutedInstance) -> None:
        self.instance = instance
        self._had_slot = True
        instance.take()
        target_model = self._admitted.target_model
        if target_model is not None:
            self._models.begin(instance.holder, target_model)
        self._owner.placed(instance)

    def _untried(self) -> Sequence[RoutedInstance]:
        """In order of preference for the model, if any."""
        variant = self._admitted.variant.line.variant
        target_model = self._admitted.target_model
        if (holder := self._admitted.instance) is not None:
            return () if holder in self._tried or holder.has_left else (holder,)
        instances: Sequence[RoutedInstance] = variant.instances
        if target_model is not None and len(instances) > 1:
            instances = variant.ranked(target_model)
        if self._tried:
            instances = [one for one in instances if one not in self._tried]
        return instances

    def _choose(self, instances: Sequence[RoutedInstance]) -> RoutedInstance | None:
        target_model = self._admitted.target_model
        if target_model is not None:
            if len(instances) == 1:
                return instances[0] if instances[0].is_free else None
            holds = [self._models.holds(one.holder, target_model) for one in instances]
            return choose_by_affinity(instances, holds, BUSY_FROM)
        return choose_free(instances, self._admitted.variant.route.strategy, self._random)
