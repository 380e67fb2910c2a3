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
    "RouteChanges",
    "RouteFileReader",
    "RouteTable",
    "RoutingStrategy",
    "TableText",
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
    models_url: str = ""
    """below which its models are, with the last `/`; empty where there is not just one such
    place"""
    containers: tuple[ContainerRoute, ...] = ()
    mode: ExecutionMode = ExecutionMode.SERIAL
    offline_results: OfflineRoute | None = None
    """answers while no instance can"""
    on_demand: OnDemandRoute | None = None
    """if set, calls wait while an instance starts"""
    not_serving: str = ""
    """why no instance serves, for callers; empty where one does, or where that is not known"""


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


class _TableHead(msgspec.Struct, frozen=True, kw_only=True):
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


class RouteTable(_TableHead, frozen=True, kw_only=True):
    routes: dict[str, Route]


class _EncodedTable(_TableHead, frozen=True, kw_only=True):
    """Reads each route as the JSON that it is: only those that changed are parsed."""

    routes: dict[str, msgspec.Raw]


class RouteChanges(_TableHead, frozen=True, kw_only=True):
    """A route table, by what is different from that of the version `base`. The members of the head
    are whole."""

    base: int
    routes: dict[str, Route]
    """of endpoints that are new or different"""
    gone: tuple[str, ...] = ()
    """endpoints without a route"""


class _EncodedChanges(_TableHead, frozen=True, kw_only=True):
    base: int
    routes: dict[str, msgspec.Raw]
    gone: tuple[str, ...] = ()


class TableText:
    """A route table as JSON, which can be told by its changes since another one."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._parsed: tuple[_TableHead, dict[str, bytes]] | None = None
        self._changes: tuple[TableText, bytes | None] | None = None
        """those that were computed last: most nodes have the same table"""

    def changes_since(self, before: "TableText") -> bytes | None:
        """Returns RouteChanges as JSON; None where the whole table is not much longer."""
        if self._changes is None or self._changes[0] is not before:
            self._changes = before, self._compare(before)
        return self._changes[1]

    def after(self, changes: bytes) -> "TableText":
        """Returns the table with these changes. Raises DecodeError."""
        found = msgspec.json.decode(changes, type=_EncodedChanges)
        _, routes = self._parse()
        routes = {name: route for name, route in routes.items() if name not in found.gone}
        routes.update((name, bytes(route)) for name, route in found.routes.items())
        return TableText(_encoded(found, routes))

    def _compare(self, before: "TableText") -> bytes | None:
        try:
            head, routes = self._parse()
            base, known = before._parse()
        except msgspec.DecodeError:
            return None
        changed = {name: route for name, route in routes.items() if known.get(name) != route}
        if 2 * len(changed) > len(routes):
            return None
        gone = [name for name in known if name not in routes]
        return _encoded(head, changed, base=base.version, gone=gone)

    def _parse(self) -> tuple[_TableHead, dict[str, bytes]]:
        """Raises DecodeError."""
        if self._parsed is None:
            found = msgspec.json.decode(self.content, type=_EncodedTable)
            self._parsed = found, {name: bytes(route) for name, route in found.routes.items()}
        return self._parsed


def _encoded(head: _TableHead, routes: dict[str, bytes], **more: object) -> bytes:
    values = {name: getattr(head, name) for name in _TableHead.__struct_fields__}
    texts = {name: msgspec.Raw(route) for name, route in routes.items()}
    return msgspec.json.encode({**values, **more, "routes": texts})


FRESH_SECONDS = 0.001
"""seconds between looks at the file (2 µs each), so that changes show at once"""


class RouteFileReader:
    """Keeps the last table while the file is missing or invalid. A route that stays the same stays
    the same object in the next table."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._looked_at: float | None = None
        self._file_version: tuple[int, int, int] | None = None
        self.is_read = False
        """False: `table` is still empty"""
        self.table = RouteTable(routes={})
        self._encoded: dict[str, bytes] = {}

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
            self._parse(self._file.read_bytes())
            self.is_read = True
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError) as error:
            log.warning("The route table cannot be read and the last one stays: %s", error)
            return False
        return True

    def _parse(self, content: bytes) -> None:
        """Raises DecodeError, and then changes nothing."""
        found = msgspec.json.decode(content, type=_EncodedTable)
        encoded = {name: bytes(route) for name, route in found.routes.items()}
        before, known = self._encoded, self.table.routes
        routes = {
            name: known[name]
            if route == before.get(name)
            else msgspec.json.decode(route, type=Route)
            for name, route in encoded.items()
        }
        head = {name: getattr(found, name) for name in _TableHead.__struct_fields__}
        self._encoded, self.table = encoded, RouteTable(routes=routes, **head)
