"""How a process logs, and every metric by name, unit and dimensions."""

import json
import logging
import sys
import time
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["METRICS", "Kind", "LineFormatter", "Metric", "configure_logging", "shown"]


class Kind(StrEnum):
    """What can be done with a metric's values."""

    COUNTER = "counter"
    """Only grows; adds up over gateways and instances."""
    GAUGE = "gauge"
    """What is so now."""
    TIMING = "timing"
    """A growing sum of microseconds and the number of times: told as `<name>Sum`, `<name>Count`;
    where there is a sketch of it, its percentiles as `<name>P50`, `P90`, `P99`."""


@dataclass(frozen=True)
class Metric:
    """One metric: SageMaker's name where it has one, and what it is called for Prometheus."""

    name: str
    exposed_as: str
    """A counter's gets `_total` at its end, a timing's `_sum` and `_count`; its percentiles have
    the label `quantile`."""
    kind: Kind
    unit: str
    """CloudWatch's word for it."""
    help: str
    dimensions: tuple[str, ...]
    namespace: str = "AWS/SageMaker"
    """CloudWatch's, of a metric that SageMaker has; `Sagehen` for those that are our own."""


_OWN = "Sagehen"
_VARIANT = ("endpoint", "variant")
_CONTAINER = ("endpoint", "variant", "container")
_INSTANCE = ("endpoint", "variant", "instance")

_TABLE = (
    Metric(
        "Invocations",
        "sagehen_invocations",
        Kind.COUNTER,
        "None",
        "Requests to a variant, whatever came of them.",
        _VARIANT,
    ),
    Metric(
        "InvocationsPerInstance",
        "sagehen_invocations_per_instance",
        Kind.COUNTER,
        "None",
        "Requests to a variant, each counted as 1/N where the variant had N instances then.",
        _VARIANT,
    ),
    Metric(
        "ConcurrentRequestsPerModelMaximum",
        "sagehen_concurrent_requests_max",
        Kind.GAUGE,
        "None",
        "The most requests that were worked on at once in the last 10 s.",
        _VARIANT,
    ),
    Metric(
        "ConcurrentRequestsPerModelMinimum",
        "sagehen_concurrent_requests_min",
        Kind.GAUGE,
        "None",
        "The fewest requests that were worked on at once in the last 10 s.",
        _VARIANT,
    ),
    Metric(
        "QueuedRequests",
        "sagehen_queued_requests",
        Kind.GAUGE,
        "None",
        "Requests that wait in the gateways for a free slot.",
        _VARIANT,
        _OWN,
    ),
    Metric(
        "QueuedRequestsMaximum",
        "sagehen_queued_requests_max",
        Kind.GAUGE,
        "None",
        "The most requests that waited for a free slot at once in the last 10 s.",
        _VARIANT,
        _OWN,
    ),
    Metric(
        "Invocation4XXErrors",
        "sagehen_invocation_4xx_errors",
        Kind.COUNTER,
        "None",
        "Invocations that were answered with a 4xx status.",
        _VARIANT,
    ),
    Metric(
        "Invocation5XXErrors",
        "sagehen_invocation_5xx_errors",
        Kind.COUNTER,
        "None",
        "Invocations that were answered with a 5xx status.",
        _VARIANT,
    ),
    Metric(
        "InvocationModelErrors",
        "sagehen_invocation_model_errors",
        Kind.COUNTER,
        "None",
        "Invocations whose container gave no 2xx answer: another status, none, or too late.",
        _VARIANT,
    ),
    Metric(
        "ModelLatency",
        "sagehen_model_latency_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What containers took to answer, with the way to them and back.",
        _VARIANT,
    ),
    Metric(
        "OverheadLatency",
        "sagehen_overhead_latency_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What everything but the container took, from the whole request to the whole answer.",
        _VARIANT,
    ),
    Metric(
        "ContainerLatency",
        "sagehen_container_latency_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What one of several containers took to answer, with the way to it and back.",
        _CONTAINER,
    ),
    Metric(
        "ContainerOverheadLatency",
        "sagehen_container_overhead_latency_microseconds",
        Kind.TIMING,
        "Microseconds",
        "OverheadLatency of a container that is invoked directly.",
        _CONTAINER,
    ),
    Metric(
        "ContainerInvocations",
        "sagehen_container_invocations",
        Kind.COUNTER,
        "None",
        "Invocations of one of several containers: what it was named for, or got in a pipeline.",
        _CONTAINER,
    ),
    Metric(
        "ContainerInvocation4XXErrors",
        "sagehen_container_invocation_4xx_errors",
        Kind.COUNTER,
        "None",
        "Invocations of one of several containers that it answered with a 4xx status.",
        _CONTAINER,
    ),
    Metric(
        "ContainerInvocation5XXErrors",
        "sagehen_container_invocation_5xx_errors",
        Kind.COUNTER,
        "None",
        "Invocations of one of several containers that it answered with a 5xx status, or not.",
        _CONTAINER,
    ),
    Metric(
        "ModelCacheHit",
        "sagehen_model_cache_hits",
        Kind.COUNTER,
        "None",
        "Invocations of a multi-model endpoint that found their model loaded.",
        _VARIANT,
    ),
    Metric(
        "ModelCacheHitSamples",
        "sagehen_model_cache_lookups",
        Kind.COUNTER,
        "None",
        "Invocations of a multi-model endpoint that asked for a model: ModelCacheHit's samples.",
        _VARIANT,
        _OWN,
    ),
    Metric(
        "ShadowCopiesDropped",
        "sagehen_shadow_copies_dropped",
        Kind.COUNTER,
        "None",
        "Requests that a shadow variant was to get a copy of, and did not.",
        _VARIANT,
        _OWN,
    ),
    Metric(
        "ModelLoadingWaitTime",
        "sagehen_model_loading_wait_time_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What invocations waited for their model to be fetched and loaded.",
        _VARIANT,
    ),
    Metric(
        "ModelLoadingTime",
        "sagehen_model_loading_time_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What containers took to load a model.",
        _INSTANCE,
    ),
    Metric(
        "ModelDownloadingTime",
        "sagehen_model_downloading_time_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What it took to fetch a model from the object store and unpack it.",
        _INSTANCE,
    ),
    Metric(
        "ModelUnloadingTime",
        "sagehen_model_unloading_time_microseconds",
        Kind.TIMING,
        "Microseconds",
        "What containers took to unload a model.",
        _INSTANCE,
    ),
    Metric(
        "LoadedModelCount",
        "sagehen_loaded_model_count",
        Kind.GAUGE,
        "None",
        "Models that an instance holds in memory.",
        _INSTANCE,
        "/aws/sagemaker/Endpoints",
    ),
    Metric(
        "LoadedModelBytes",
        "sagehen_loaded_model_bytes",
        Kind.GAUGE,
        "Bytes",
        "Memory that an instance's loaded models are booked with.",
        _INSTANCE,
        _OWN,
    ),
    Metric(
        "InstanceMemoryBytes",
        "sagehen_instance_memory_bytes",
        Kind.GAUGE,
        "Bytes",
        "Memory that an instance's processes hold.",
        _INSTANCE,
        _OWN,
    ),
    Metric(
        "InstanceLimitHits",
        "sagehen_instance_limit_hits",
        Kind.COUNTER,
        "None",
        "How often an instance met a limit.",
        (*_INSTANCE, "limit"),
    ),
    Metric(
        "LimitHits",
        "sagehen_limit_hits",
        Kind.COUNTER,
        "None",
        "How often a limit of the gateways was met.",
        ("limit",),
        _OWN,
    ),
    Metric(
        "EndpointStatus",
        "sagehen_endpoint_status",
        Kind.GAUGE,
        "None",
        "1 for the status that an endpoint has.",
        ("endpoint", "status"),
        _OWN,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
"""Every metric, by SageMaker's name of it."""

_PLAIN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LONGEST_VALUE = 2000


class LineFormatter(logging.Formatter):
    """One line: time, level, role, logger, the fixed sentence, then each `extra` as `key=value`.

    What came from outside is quoted where it could be taken for more than one value or line.
    """

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        when = f"{seconds}.{record.msecs:03.0f}Z"
        sentence = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        parts = [when, record.levelname, self._role, f"{record.name}: {sentence}"]
        extras = {key: value for key, value in vars(record).items() if key not in _PLAIN_FIELDS}
        parts += [f"{key}={shown(value)}" for key, value in extras.items() if value is not None]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def shown(value: object) -> str:
    """`value` as it stands in a line: quoted where it could be taken for more than one."""
    text = str(value)
    if len(text) > _LONGEST_VALUE:
        text = text[:_LONGEST_VALUE] + "…"
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


def configure_logging(level: str, role: str) -> None:
    """Have this process log to stderr, from `level` on; `role` stands in every line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(role))
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(level)
    # Their INFO and DEBUG are about themselves, line upon line.
    for chatty in ("alembic", "asyncio", "botocore", "urllib3", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
