"""What a gateway knows of each endpoint: written by control, read by every gateway.

Follows the route table, the file that control writes: for all who read it.
"""

import logging
import os
from enum import StrEnum
from pathlib import Path

import msgspec

from sagehen.base.clock import Clock

__all__ = [
    "BOARD_COLUMNS",
    "DEFAULT_SLOTS",
    "AsyncPlan",
    "ContainerAddress",
    "ContainerRoute",
    "ExecutionMode",
    "InstanceRoute",
    "Route",
    "RouteFileReader",
    "RouteTable",
    "RoutingStrategy",
    "VariantRoute",
]

log = logging.getLogger(__name__)

BOARD_COLUMNS = 4096
"""Instances that the gateways' board has room for: far more than one machine runs."""

DEFAULT_SLOTS = 256
"""Of an instance whose container does not say. More than most work on at once, so that the queue is
theirs as it would be in SageMaker; a bound all the same."""


class RoutingStrategy(StrEnum):
    """How an instance is chosen inside a variant (`RoutingConfig.RoutingStrategy`)."""

    RANDOM = "RANDOM"
    LEAST_OUTSTANDING_REQUESTS = "LEAST_OUTSTANDING_REQUESTS"


class ExecutionMode(StrEnum):
    """Which of several containers work on a request (`InferenceExecutionConfig.Mode`)."""

    SERIAL = "Serial"
    """All, one after the other: an inference pipeline."""
    DIRECT = "Direct"
    """The one that the request names by TargetContainerHostname."""


class AsyncPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an endpoint config says in AsyncInferenceConfig."""

    output_path: str
    """`s3://bucket/prefix` or an https URL of S3, as it was given."""
    failure_path: str | None = None
    success_topic: str | None = None
    error_topic: str | None = None
    include_response_in: tuple[str, ...] = ()
    """`SUCCESS_NOTIFICATION_TOPIC`, `ERROR_NOTIFICATION_TOPIC`."""
    max_concurrency: int | None = None
    """MaxConcurrentInvocationsPerInstance."""


class ContainerRoute(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the several containers that each instance of a variant has."""

    hostname: str
    multi_model: bool = False


class ContainerAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where that container of one instance is; `board_column` and `slots` as an instance's own.

    They count in Direct mode only: in a pipeline a request has one slot of the instance.
    """

    address: str
    slots: int = DEFAULT_SLOTS
    board_column: int | None = None


class InstanceRoute(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: str
    address: str
    """`unix:/path` or `tcp:127.0.0.1:port`; the first container's, where there are several."""
    board_column: int | None = None
    """Where the gateways share its count of outstanding requests; each counts for itself where it
    is None. Stays the same for as long as the instance is routed."""
    slots: int = DEFAULT_SLOTS
    """How many requests it may work on at once; more wait in the gateways."""
    run_id: str = ""
    """Another one each time it is started again, so that no session of its last life goes on."""
    containers: tuple[ContainerAddress, ...] = ()
    """Where there are several: one for each of the variant's, in their order."""


class VariantRoute(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    weight: float
    """A share: the variant gets `weight / sum of weights`; 0 is reached by TargetVariant only. A
    shadow gets copies of as much, its own weight not in the sum, and of everything at most."""
    instances: tuple[InstanceRoute, ...]
    strategy: RoutingStrategy = RoutingStrategy.RANDOM
    multi_model: bool = False
    """One of its containers holds many models."""
    containers: tuple[ContainerRoute, ...] = ()
    """Where there are several, in their order."""
    mode: ExecutionMode = ExecutionMode.SERIAL


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint that serves."""

    endpoint_name: str
    """With its case: InvokeEndpoint must use the same."""
    variants: tuple[VariantRoute, ...]
    """Those that answer."""
    shadow: VariantRoute | None = None
    """The one that gets copies of requests, where there is one."""
    asynchronous: AsyncPlan | None = None
    """Where it takes requests by InvokeEndpointAsync, and no others."""

    @property
    def all_variants(self) -> tuple[VariantRoute, ...]:
        """All that have instances."""
        return self.variants if self.shadow is None else (*self.variants, self.shadow)


class RouteTable(msgspec.Struct, frozen=True, kw_only=True):
    """Every endpoint that serves, by its name."""

    routes: dict[str, Route]
    version: int = 0
    """Grows with each change, for logs and tests."""
    leader: str | None = None
    """The control that works on the endpoints, by host and home, where it is another one than that
    of this server: a server that stands by has no routes."""


FRESH_SECONDS = 0.001
"""How old what is known of the file may be. Looking costs some 2 µs; whoever was told that an
endpoint is in service, or has another weight, finds it so at once."""


class RouteFileReader:
    """The table as it was read last; it stays in force while the file is away or makes no sense."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._looked_at: float | None = None
        self._seen: tuple[int, int, int] | None = None
        self.is_read = False
        """Whether there was a table yet; until then `table` is an empty one."""
        self.table = RouteTable(routes={})

    def refresh_if_old(self) -> bool:
        """As `refresh`, unless that was done a moment ago."""
        now = self._clock.monotonic()
        if self._looked_at is not None and now - self._looked_at <= FRESH_SECONDS:
            return False
        return self.refresh()

    def refresh(self) -> bool:
        """Read the file if it has changed; whether `table` is another one now."""
        self._looked_at = self._clock.monotonic()
        try:
            status = os.stat(self._file)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return False
            # A file that makes no sense is not looked at again, or told of, until it is replaced.
            self._seen = seen
            self.table = msgspec.json.decode(self._file.read_bytes(), type=RouteTable)
            self.is_read = True
        except FileNotFoundError:
            return False
        except (OSError, msgspec.DecodeError) as error:
            log.warning("The route table cannot be read and the last one stays: %s", error)
            return False
        return True
