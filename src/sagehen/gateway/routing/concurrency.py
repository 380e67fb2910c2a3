"""The requests to a serverless variant, counted over all gateways of the machine, and their
limits."""

from sagehen.frame.routes import INFLIGHT_COLUMNS, OnDemandRoute
from sagehen.gateway.admission.errors import throttled, too_large_for_serverless
from sagehen.gateway.client.limits import Limit, LimitHits
from sagehen.gateway.metrics.counters import VariantCounters
from sagehen.gateway.routing.inflight import InflightTable

__all__ = ["MAX_SERVERLESS_BODY_BYTES", "Concurrency"]

MAX_SERVERLESS_BODY_BYTES = 4 * 2**20
"""SageMaker's limit"""


class Concurrency:
    """The same object while the variant is in the route table. It stands in for the variant's
    counter of requests in flight, so that a request that is over is counted down in both."""

    __slots__ = ("_column", "_counters", "_inflight", "_limit_hits", "_own", "_route")

    _route: OnDemandRoute

    def __init__(
        self, counters: VariantCounters, inflight: InflightTable, limit_hits: LimitHits
    ) -> None:
        self._counters = counters
        self._inflight = inflight
        self._limit_hits = limit_hits
        self._column: int | None = None
        self._own = 0
        """requests of this process"""

    def update(self, route: OnDemandRoute) -> None:
        """Continues with a new route table."""
        self._route = route
        column = route.inflight_column
        self._move(column if column is not None and 0 <= column < INFLIGHT_COLUMNS else None)

    def retire(self) -> None:
        """The column may be another's now."""
        self._move(None)

    def _move(self, column: int | None) -> None:
        if column == self._column:
            return
        for changed, requests in ((self._column, -self._own), (column, self._own)):
            if changed is not None:
                self._inflight.decrement(changed, -requests)
        self._column = column

    @property
    def outstanding(self) -> int:
        column = self._column
        return self._own if column is None else self._inflight.outstanding(column)

    def admit(self, body_bytes: int) -> None:
        """Counts a request, until `leave`. Raises AwsError over a limit."""
        if body_bytes > MAX_SERVERLESS_BODY_BYTES:
            self._limit_hits[Limit.BODY_SIZE] += 1
            raise too_large_for_serverless(body_bytes, MAX_SERVERLESS_BODY_BYTES)
        # Counted first: of two gateways that count at once, none exceeds the limit.
        self._add(1)
        outstanding, most = self.outstanding, self._route.max_concurrency
        if most is not None and outstanding > most:
            self._add(-1)
            self._limit_hits[Limit.CONCURRENCY] += 1
            raise throttled()
        provisioned = self._route.provisioned_concurrency
        if provisioned:
            if outstanding <= provisioned:
                self._counters.provisioned_invocations += 1
            else:
                self._counters.spillover_invocations += 1

    def _add(self, requests: int) -> None:
        self._own += requests
        if self._column is not None:
            self._inflight.decrement(self._column, -requests)

    # As of the counter

    def enter(self) -> None:
        self._counters.in_flight.enter()

    def leave(self) -> None:
        self._counters.in_flight.leave()
        self._add(-1)
