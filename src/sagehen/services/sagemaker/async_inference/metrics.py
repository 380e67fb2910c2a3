"""Gauges of asynchronous endpoints' queues."""

from collections import Counter
from collections.abc import Iterator

from sqlalchemy import Connection

from sagehen.frame.container_specs import InstanceState
from sagehen.services.monitoring.metering.sampler import Gauge
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.endpoint_values import MAX_READ_ALONE, EndpointValues
from sagehen.services.sagemaker.hosting.records import EndpointRecord

__all__ = ["Backlogs"]


class Backlogs:
    """Reads the gauges of all queues; of other endpoints, only those that have changed."""

    def __init__(self) -> None:
        self._are_asynchronous = EndpointValues(_is_asynchronous)

    def read(self, connection: Connection, now: float) -> Iterator[Gauge]:
        found = self._are_asynchronous.read(connection)
        configured = [name for name, is_asynchronous in found.items() if is_asynchronous]
        if not configured:
            return
        few = len(configured) <= MAX_READ_ALONE
        serving = Counter(
            instance.endpoint_name
            for instance in (
                instances.of_endpoints(connection, configured) if few else instances.all(connection)
            )
            if instance.state is InstanceState.IN_SERVICE
        )
        for name in configured:
            yield from _gauges(connection, name, serving[name], now)


def _is_asynchronous(endpoint: EndpointRecord) -> bool:
    return endpoint.current is not None and endpoint.current.asynchronous is not None


def _gauges(connection: Connection, name: str, count: int, now: float) -> Iterator[Gauge]:
    queued, leased = async_requests.backlog(connection, name)
    oldest = async_requests.oldest_received_at(connection, name) if queued + leased else None
    size = queued + leased
    yield "ApproximateBacklogSize", name, size
    # Without instances the whole backlog: scaling by this number must be able to leave zero.
    yield "ApproximateBacklogSizePerInstance", name, size / max(count, 1)
    yield "ApproximateAgeOfOldestRequest", name, max(0.0, now - oldest) if oldest else 0.0
    yield "HasBacklogWithoutCapacity", name, float(queued > 0 and count == 0)
