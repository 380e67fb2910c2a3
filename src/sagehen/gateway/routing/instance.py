"""An instance as a gateway uses it: slots, requests in flight, and connections."""

from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.frame.routes import INFLIGHT_COLUMNS, InstanceRoute
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.inflight import InflightTable
from sagehen.link.upstream import Upstreams, open_upstreams

__all__ = ["RoutedInstance", "Stage"]


class Stage(NamedTuple):
    """One container of a pipeline."""

    hostname: str
    upstreams: Upstreams
    multi_model: bool
    counters: VariantCounters
    """over all instances of the variant"""


class RoutedInstance:
    """An instance, or a container of it that is invoked directly; the same object while in the
    route table.

    Args:
        hostname: of a container invoked directly.
        stages: a pipeline's containers; else empty.
        upstreams: of an instance of another node.
    """

    __slots__ = (
        "_inflight",
        "_own_outstanding",
        "_reported_slots",
        "address",
        "column",
        "instance_id",
        "is_remote",
        "is_retired",
        "model_holder_id",
        "run_id",
        "slots",
        "stages",
        "upstreams",
    )

    def __init__(
        self,
        route: InstanceRoute,
        clock: Clock,
        inflight: InflightTable,
        hostname: str = "",
        stages: tuple[Stage, ...] = (),
        upstreams: Upstreams | None = None,
    ) -> None:
        self.instance_id = route.instance_id
        self.run_id = route.run_id
        self.address = route.address
        self.stages = stages
        self.upstreams = upstreams or (
            stages[0].upstreams
            if stages
            else open_upstreams(route.address, clock, self._report_slots)
        )
        self.model_holder_id = (
            f"{route.instance_id}/containers/{hostname}" if hostname else self.instance_id
        )
        """the agent's id for the container that holds models"""
        self._inflight = inflight
        column = route.inflight_column
        self.column = column if column is not None and 0 <= column < INFLIGHT_COLUMNS else None
        """in the in-flight table, if any"""
        self._reported_slots: int | None = None
        self.slots = max(1, route.slots)
        self._own_outstanding = 0
        """of this process"""
        self.is_remote = upstreams is not None
        """runs on another node"""
        self.is_retired = False
        """removed from the route table"""

    @property
    def all_upstreams(self) -> tuple[Upstreams, ...]:
        """of each container"""
        return tuple(stage.upstreams for stage in self.stages) or (self.upstreams,)

    @property
    def outstanding(self) -> int:
        """Requests in flight, of all gateways if there is a column."""
        column = self.column
        return self._own_outstanding if column is None else self._inflight.outstanding(column)

    @property
    def is_free(self) -> bool:
        return self.outstanding < self.slots

    def update_slots(self, routed: int) -> None:
        """`routed`: as in the route table, which is older than what the container itself says."""
        self.slots = max(1, self._reported_slots or routed)

    def _report_slots(self, slots: int) -> None:
        self._reported_slots = slots
        self.slots = max(1, slots)

    def acquire_slot(self) -> None:
        self._own_outstanding += 1
        if self.column is not None:
            self._inflight.increment(self.column)

    def release_slot(self) -> None:
        self._own_outstanding -= 1
        if self.column is not None:
            self._inflight.decrement(self.column)

    def retire(self) -> None:
        """Closes connections when their last requests have ended. Control waits for these, so they
        are still counted in the column."""
        self.is_retired = True
        for upstreams in self.all_upstreams:
            upstreams.close()

    def leave_column(self) -> None:
        """Counts the remaining requests in this process only: the column may be another instance's
        now."""
        if self.column is not None:
            self._inflight.decrement(self.column, self._own_outstanding)
            self.column = None
