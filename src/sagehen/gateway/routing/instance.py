"""One instance as a gateway uses it: what it works on, and the connections to its containers."""

from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.frame.routes import BOARD_COLUMNS, InstanceRoute
from sagehen.gateway.container.pool import Pool
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.inflight import InflightTable

__all__ = ["RoutedInstance", "Stage"]


class Stage(NamedTuple):
    """One container of an instance whose containers work one after the other."""

    hostname: str
    pool: Pool
    multi_model: bool
    counters: VariantCounters
    """Of the container, over all instances of the variant."""


class RoutedInstance:
    """One instance; it stays the same object for as long as it is in the table.

    Where containers are invoked directly, each of them is one of these.

    Args:
        hostname: the container's, where the instance has others beside it.
        stages: all containers of a pipeline; empty where there is only one to send to.
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
        """By what its agent knows who holds models."""
        self._board = board
        column = route.board_column
        self.column = column if column is not None and 0 <= column < BOARD_COLUMNS else None
        """Of the board; None where it has none, or not any more."""
        self.slots = max(1, route.slots)
        self._own = 0
        """Requests of this process that it works on."""
        self.has_left = False
        """It is in no table any more."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(stage.pool for stage in self.stages) or (self.pool,)

    @property
    def outstanding(self) -> int:
        """Requests that it works on: of all gateways, where it has a column of the board."""
        column = self.column
        return self._own if column is None else self._board.outstanding(column)

    @property
    def is_free(self) -> bool:
        """It may get one more request."""
        return self.outstanding < self.slots

    def take(self) -> None:
        """It gets one more request."""
        self._own += 1
        if self.column is not None:
            self._board.take(self.column)

    def give(self) -> None:
        """It has done with a request."""
        self._own -= 1
        if self.column is not None:
            self._board.give(self.column)

    def leave(self) -> None:
        """It is in no table any more. What it still works on goes on, counted here alone: its
        column may be another instance's now."""
        self.has_left = True
        if self.column is not None:
            self._board.give(self.column, self._own)
            self.column = None
        for pool in self.pools:
            pool.close()
