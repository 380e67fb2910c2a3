"""Counts an invocation's times and result, and writes the access log."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.base.telemetry import shown
from sagehen.base.user_code_errors import without_traceback
from sagehen.gateway.admission.admission import AdmissionRequest, Admitted
from sagehen.gateway.admission.params import read_target
from sagehen.gateway.client.limits import Limit, LimitHits
from sagehen.gateway.metrics.counters import LONGEST_ERROR, LastError, VariantCounters

__all__ = [
    "CLIENT_GONE",
    "CUT_OFF",
    "MAX_WAITING_LINES",
    "AccessLog",
    "AccessLogEntry",
    "RequestMetrics",
]

MAX_WAITING_LINES = 16_384
"""further lines are dropped and counted. Not a setting: no working disk is so far behind"""
CLIENT_GONE = "gone"
"""status in the log, if the caller left early"""
CUT_OFF = "cut"
"""status in the log, if a begun answer broke"""

_START = "INFO gateway sagehen.gateway.metrics.request_metrics:"


class AccessLogEntry(NamedTuple):
    """An invocation that ended; None for steps never reached. The names are those in the log."""

    request_id: bytes
    endpoint: str
    variant: str | None
    instance: str | None
    status: int | str
    request_bytes: int
    answer_bytes: int
    model_us: int | None
    """as in the metric ModelLatency"""
    overhead_us: int
    """as in the metric OverheadLatency"""


class AccessLog:
    """Logs in batches; `write` may block, as it runs in a thread."""

    def __init__(self, write: Callable[[str], object], clock: Clock, limit_hits: LimitHits) -> None:
        self._write = write
        self._clock = clock
        self._limit_hits = limit_hits
        self._waiting: list[tuple[float, AccessLogEntry]] = []
        self._dropped = 0
        self._writing: asyncio.Future[None] | None = None

    def add(self, entry: AccessLogEntry) -> None:
        if len(self._waiting) < MAX_WAITING_LINES:
            self._waiting.append((self._clock.now(), entry))
        else:
            self._dropped += 1
            self._limit_hits[Limit.ACCESS_LOG] += 1

    async def flush(self) -> None:
        """Call several times a second."""
        if self._writing is not None or not (self._waiting or self._dropped):
            return
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write_out, waiting, dropped))
        try:
            # Cancellation must not lose half-written lines.
            await asyncio.shield(self._writing)
        finally:
            if self._writing.done():
                self._writing = None

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing = None
        await self.flush()

    def _write_out(self, waiting: list[tuple[float, AccessLogEntry]], dropped: int) -> None:
        lines = [_line(at, entry) for at, entry in waiting]
        if dropped:
            at = _time(self._clock.now())
            lines.append(f"{at} {_START} Lines were dropped, as too many waited. dropped={dropped}")
        self._write("\n".join(lines) + "\n")


def _line(at: float, entry: AccessLogEntry) -> str:
    fields = entry._asdict()
    fields["request_id"] = entry.request_id.decode()
    pairs = " ".join(f"{key}={shown(value)}" for key, value in fields.items() if value is not None)
    return f"{_time(at)} {_START} An invocation ended. {pairs}"


def _time(at: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{seconds}.{int(at % 1 * 1000):03d}Z"


class RequestMetrics:
    """One invocation's times, in monotonic seconds: the source of its metrics and its log line."""

    __slots__ = (
        "_access_log",
        "_answered_at",
        "_counters",
        "_is_cache_hit",
        "_is_logged",
        "_model_us",
        "_monotonic",
        "_overhead_us",
        "_variant_name",
        "instance_id",
        "received_at",
        "sent_at",
    )

    _counters: VariantCounters
    """of the variant; set when admitted, before anything is counted"""

    def __init__(self, monotonic: Callable[[], float], access_log: AccessLog | None) -> None:
        self._monotonic = monotonic
        self._access_log = access_log
        self._is_logged = False
        self._model_us: int | None = None
        """None if never sent"""
        self._overhead_us: int | None = None
        """None until both are measured"""
        self._answered_at = 0.0
        self._variant_name: str | None = None
        self._is_cache_hit: bool | None = None
        """whether the model was loaded already; None before the look-up"""
        self.received_at = 0.0
        """request complete"""
        self.sent_at: float | None = None
        """to an instance, the last time; None if never"""
        self.instance_id: str | None = None

    def admit(self, admitted: Admitted) -> None:
        variant = admitted.variant
        self._variant_name = variant.route.name
        self._counters = counters = variant.counters
        counters.invocations += 1
        counters.invocations_per_instance += variant.instance_share

    def send(self, instance_id: str, earlier_seconds: float = 0.0) -> float:
        """Returns the time. `earlier_seconds`: spent in a pipeline's earlier containers, which
        count as the model's time."""
        now = self._monotonic()
        self.sent_at = now - earlier_seconds
        self.instance_id = instance_id
        return now

    def answer(self) -> None:
        self._answered_at = self._monotonic()

    def note_look_up(self, hit: bool) -> None:
        """Notes whether the model was loaded already; the last call counts."""
        self._is_cache_hit = hit

    def count_look_up(self) -> None:
        """Counts the look-up once."""
        hit, self._is_cache_hit = self._is_cache_hit, None
        if hit is not None:
            self._counters.cache_samples += 1
            self._counters.cache_hits += hit

    def count_loading_wait(self, seconds: float) -> None:
        self._counters.loading_waits += 1
        self._counters.loading_wait_us += round(seconds * 1e6)

    def count_offline_result(self) -> None:
        self._counters.offline_results += 1

    def fail(self, status: int) -> None:
        """Counts an error of the model, or a missing answer."""
        counters = self._counters
        counters.model_errors += 1
        if 400 <= status < 500:
            counters.errors_4xx += 1
        else:
            counters.errors_5xx += 1
        self._count_latencies(self._monotonic())

    def note_error(self, at: float, status: int, message: str) -> None:
        """Keeps the error for `sagehen status`, without the traceback, which is in the log."""
        text = without_traceback(message)[:LONGEST_ERROR]
        self._counters.last_error = LastError(at, status, text)

    def succeed(self) -> None:
        self._count_latencies(self._answered_at)

    def _count_latencies(self, now: float) -> None:
        overhead_us = self._measure(now)
        if self._model_us is not None:
            self._counters.model_latency.recent.append(self._model_us)
            self._counters.overhead_latency.recent.append(overhead_us)

    def _measure(self, now: float) -> int:
        """Takes both durations, once, so that the metrics and the log have the same. Returns the
        overhead."""
        sent_at, answered_at = self.sent_at, self._answered_at
        if sent_at is not None:
            ended_at = answered_at if answered_at >= sent_at else now
            self._model_us = int((ended_at - sent_at) * 1e6)
        received_at = self.received_at or now
        self._overhead_us = overhead_us = int((now - received_at) * 1e6) - (self._model_us or 0)
        return overhead_us

    def log(
        self,
        status: int | str,
        request: AdmissionRequest,
        request_bytes: int,
        answer_bytes: int,
    ) -> None:
        """Logs the first call only."""
        if self._access_log is None or self._is_logged:
            return
        self._is_logged = True
        overhead_us = self._overhead_us
        if overhead_us is None:
            overhead_us = self._measure(self._monotonic())
        self._access_log.add(
            AccessLogEntry(
                request_id=request.request_id,
                endpoint=read_target(request.target).endpoint,
                variant=self._variant_name,
                instance=self.instance_id,
                status=status,
                request_bytes=request_bytes,
                answer_bytes=answer_bytes,
                model_us=self._model_us,
                overhead_us=overhead_us,
            )
        )
