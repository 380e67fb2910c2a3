"""Gauges of asynchronous endpoints' queues."""

from collections import Counter
from collections.abc import Iterator

from sqlalchemy import Connection

from sagehen.frame.container_specs import InstanceState
from sagehen.services.monitoring.metering.sampler import Gauge
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)

__all__ = ["backlogs"]


def backlogs(connection: Connection, now: float) -> Iterator[Gauge]:
    configured = [
        endpoint
        for endpoint in endpoints.all(connection)
        if endpoint.current and endpoint.current.asynchronous
    ]
    if not configured:
        return
    serving = Counter(
        instance.endpoint_name
        for instance in instances.all(connection)
        if instance.state is InstanceState.IN_SERVICE
    )
    for endpoint in configured:
        name = endpoint.name
        queued, leased = async_requests.backlog(connection, name)
        oldest = async_requests.oldest_received_at(connection, name) if queued + leased else None
        size, count = queued + leased, serving[name]
        yield "ApproximateBacklogSize", name, size
        # Without instances the whole backlog: scaling by this number must be able to leave zero.
        yield "ApproximateBacklogSizePerInstance", name, size / max(count, 1)
        yield "ApproximateAgeOfOldestRequest", name, max(0.0, now - oldest) if oldest else 0.0
        yield "HasBacklogWithoutCapacity", name, float(queued > 0 and count == 0)
