"""The route table: written by control, followed by all gateways."""

import logging
import os
from enum import StrEnum
from pathlib import Path

import msgspec

from sagehen.base.clock import Clock
from sagehen.frame.offline_results.definition import OfflineResults

__all__ = [
    "DEFAULT_SLOTS",
    "INFLIGHT_COLUMNS",
    "AsyncPlan",
    "ContainerAddress",
    "ContainerRoute",
    "ExecutionMode",
    "InstanceRoute",
    "NodeRoute",
    "OfflineRoute",
    "OnDemandRoute",
    "Route",
    "RouteFileReader",
    "RouteTable",
    "RoutingStrategy",
    "VariantRoute",
]

log = logging.getLogger(__name__)

INFLIGHT_COLUMNS = 4096
"""the most instances in the shared in-flight table; far more than a machine runs"""

DEFAULT_SLOTS = 256
"""slots, if the container does not say; more than most use, so that requests queue there as in
SageMaker"""


class RoutingStrategy(StrEnum):
    """`RoutingConfig.RoutingStrategy`."""

    RANDOM = "RANDOM"
    LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"


class ExecutionMode(StrEnum):
    """`InferenceExecutionConfig.Mode`."""

    SERIAL = "Serial"
    """an inference pipeline: all containers in turn"""
    DIRECT = "Direct"
    """the container that TargetContainerHostname names"""


class AsyncPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """AsyncInferenceConfig of an endpoint config."""

    output_path: str
    """`s3://bucket/prefix` or an https URL of S3, as given"""
    failure_path: str | None = None
    success_topic: str | None = None
    error_topic: str | None = None
    include_response_in: tuple[str, ...] = ()
    """`SUCCESS_NOTIFICATION_TOPIC`, `ERROR_NOTIFICATION_TOPIC`"""
    max_concurrency: int | None = None
    """MaxConcurrentInvocationsPerInstance"""


class ContainerRoute(msgspec.Struct, frozen=True, omit_defaults=True):
    hostname: str
    multi_model: bool = False


class ContainerAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several containers of an instance.

    `slots` and `inflight_column` count in Direct mode only: a pipeline uses the instance's.
    """

    address: str
    slots: int = DEFAULT_SLOTS
    inflight_column: int | None = msgspec.field(default=None, name="board_column")


class InstanceRoute(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: str
    address: str
    """`link:/path` or `tcp:127.0.0.1:port`, of the first container"""
    inflight_column: int | None = msgspec.field(default=None, name="board_column")
    """in the shared in-flight table, fixed while routed; None: each gateway counts for itself"""
    slots: int = DEFAULT_SLOTS
    """requests at once; more wait in the gateways"""
    run_id: str = ""
    """changes at each start, which ends the sessions of the previous run"""
    containers: tuple[ContainerAddress, ...] = ()
    """empty with one container; else in the variant's order"""
    node_id: str = ""
    """the node that runs it; empty: this machine"""


class NodeRoute(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A machine of a cluster."""

    peer_address: str
    """`host:port`, where its gateways take requests for its instances"""
    control_address: str = ""
    """the same for requests to the control that leads, where that is on the machine"""
    agent_address: str = ""
    """the same for other nodes' agents"""


class OfflineRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The store of a variant's offline results."""

    file: str
    """in the home's folder of offline results; a newer store has another name"""
    results: OfflineResults


class OnDemandRoute(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A variant whose calls start instances."""

    max_concurrency: int | None = None
    """of a serverless variant: the most requests at once"""
    provisioned_concurrency: int = 0
    inflight_column: int | None = None
    """of all requests to a serverless variant, wherever they are"""
    start_failure: str | None = None
    """why an instance did not start; it is tried again"""


class VariantRoute(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    weight: float
    """gets `weight / sum of weights`; with 0, only requests with TargetVariant. A shadow's own
    weight is not in the sum; it gets copies of everything at most."""
    instances: tuple[InstanceRoute, ...]
    strategy: RoutingStrategy = RoutingStrategy.RANDOM
    multi_model: bool = False
    """one of its containers holds many models"""
    containers: tuple[ContainerRoute, ...] = ()
    mode: ExecutionMode = ExecutionMode.SERIAL
    offline_results: OfflineRoute | None = None
    """answers while no instance can"""
    on_demand: OnDemandRoute | None = None
    """if set, calls wait while an instance starts"""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A serving endpoint."""

    endpoint_name: str
    """case-sensitive in InvokeEndpoint"""
    variants: tuple[VariantRoute, ...]
    shadow: VariantRoute | None = None
    asynchronous: AsyncPlan | None = None
    """if set, the endpoint takes only InvokeEndpointAsync"""

    @property
    def all_variants(self) -> tuple[VariantRoute, ...]:
        return self.variants if self.shadow is None else (*self.variants, self.shadow)


class RouteTable(msgspec.Struct, frozen=True, kw_only=True):
    routes: dict[str, Route]
    version: int = 0
    """grows with each change, for logs and tests"""
    leader: str | None = None
    """host and home of another control that holds the lease; this server has no routes then"""
    leader_address: str | None = None
    """`tcp:host:port` of the leader's gateways, if they can be reached and have the same keys"""
    leaving: dict[str, tuple[int, ...]] = {}
    """the columns of instances that have left the routes and finish their requests, by id"""
    nodes: dict[str, NodeRoute] = {}
    """by node id; empty on one machine"""


FRESH_SECONDS = 0.001
"""seconds between looks at the file (2 µs each), so that changes show at once"""


class RouteFileReader:
    """Keeps the last table while the file is missing or invalid."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._looked_at: float | None = None
        self._file_version: tuple[int, int, int] | None = None
        self.is_read = False
        """False: `table` is still empty"""
        self.table = RouteTable(routes={})

    def refresh_if_old(self) -> bool:
        now = self._clock.monotonic()
        if self._looked_at is not None and now - self._looked_at <= FRESH_SECONDS:
            return False
        return self.refresh()

    def refresh(self) -> bool:
        """Returns whether `table` is new."""
        self._looked_at = self._clock.monotonic()
        try:
            status = os.stat(self._file)
            file_version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if file_version == self._file_version:
                return False
            # Do not read or log an invalid file again before it is replaced.
            self._file_version = file_version
            self.table = msgspec.json.decode(self._file.read_bytes(), type=RouteTable)
            self.is_read = True
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError) as error:
            log.warning("The route table cannot be read and the last one stays: %s", error)
            return False
        return True
