"""An instance as a gateway uses it: slots, requests in flight, and connections."""

from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.frame.routes import BOARD_COLUMNS, InstanceRoute
from sagehen.gateway.container.pool import Pool
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.inflight import InflightTable

__all__ = ["RoutedInstance", "Stage"]


class Stage(NamedTuple):
    """One container of a pipeline."""

    hostname: str
    pool: Pool
    multi_model: bool
    counters: VariantCounters
    """over all instances of the variant"""


class RoutedInstance:
    """An instance, or a container of it that is invoked directly; the same object while in the
    route table.

    Args:
        hostname: of a container invoked directly.
        stages: a pipeline's containers; else empty.
    """

    __slots__ = (
        "_board",
        "_own",
        "address",
        "column",
        "has_left",
        "holder",
        "instance_id",
        "pool",
        "run_id",
        "slots",
        "stages",
    )

    def __init__(
        self,
        route: InstanceRoute,
        clock: Clock,
        board: InflightTable,
        hostname: str = "",
        stages: tuple[Stage, ...] = (),
    ) -> None:
        self.instance_id = route.instance_id
        self.run_id = route.run_id
        self.address = route.address
        self.stages = stages
        self.pool = stages[0].pool if stages else Pool(route.address, clock)
        self.holder = f"{route.instance_id}/containers/{hostname}" if hostname else self.instance_id
        """the agent's id for what holds models"""
        self._board = board
        column = route.board_column
        self.column = column if column is not None and 0 <= column < BOARD_COLUMNS else None
        """in the in-flight table, if any"""
        self.slots = max(1, route.slots)
        self._own = 0
        """in flight, of this process"""
        self.has_left = False
        """removed from the route table"""

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(stage.pool for stage in self.stages) or (self.pool,)

    @property
    def outstanding(self) -> int:
        """Requests in flight, of all gateways if there is a column."""
        column = self.column
        return self._own if column is None else self._board.outstanding(column)

    @property
    def is_free(self) -> bool:
        return self.outstanding < self.slots

    def take(self) -> None:
        self._own += 1
        if self.column is not None:
            self._board.take(self.column)

    def give(self) -> None:
        self._own -= 1
        if self.column is not None:
            self._board.give(self.column)

    def leave(self) -> None:
        """Counts the remaining requests in this process only: the column may be another instance's
        now."""
        self.has_left = True
        if self.column is not None:
            self._board.give(self.column, self._own)
            self.column = None
        for pool in self.pools:
            pool.close()
