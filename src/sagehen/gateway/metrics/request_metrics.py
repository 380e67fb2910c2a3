"""Counts an invocation's times and result, and writes the access log."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from sagehen.base.clock import Clock
from sagehen.base.telemetry import shown
from sagehen.gateway.admission.admission import Admitted
from sagehen.gateway.client.limits import Limit, LimitHits

__all__ = ["CLIENT_GONE", "CUT_OFF", "MOST_WAITING", "AccessLog", "Account", "EndedRequest"]

MOST_WAITING = 16_384
"""lines; more are dropped and counted. Not a setting: no working disk is so far behind"""
CLIENT_GONE = "gone"
"""status if the caller left early"""
CUT_OFF = "cut"
"""status if a begun answer broke"""

_START = "INFO gateway sagehen.gateway.metrics.request_metrics:"


class EndedRequest(NamedTuple):
    """An access log line; None for steps never reached."""

    request_id: bytes
    endpoint: str
    variant: str | None
    instance: str | None
    status: int | str
    request_bytes: int
    answer_bytes: int
    model_us: int | None
    overhead_us: int


class AccessLog:
    """Logs in batches; `write` may block, as it runs in a thread."""

    def __init__(self, write: Callable[[str], object], clock: Clock, limit_hits: LimitHits) -> None:
        self._write = write
        self._clock = clock
        self._limit_hits = limit_hits
        self._waiting: list[tuple[float, EndedRequest]] = []
        self._dropped = 0
        self._writing: asyncio.Future[None] | None = None

    def note(self, ended: EndedRequest) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((self._clock.now(), ended))
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

    def _write_out(self, waiting: list[tuple[float, EndedRequest]], dropped: int) -> None:
        lines = [_line(at, ended) for at, ended in waiting]
        if dropped:
            at = _time(self._clock.now())
            lines.append(f"{at} {_START} Lines were dropped, as too many waited. dropped={dropped}")
        self._write("\n".join(lines) + "\n")


def _line(at: float, ended: EndedRequest) -> str:
    fields = ended._asdict()
    fields["request_id"] = ended.request_id.decode()
    pairs = " ".join(f"{key}={shown(value)}" for key, value in fields.items() if value is not None)
    return f"{_time(at)} {_START} An invocation ended. {pairs}"


def _time(at: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{seconds}.{int(at % 1 * 1000):03d}Z"


class Account:
    """One invocation's times, in monotonic seconds, and their counting."""

    __slots__ = (
        "_access_log",
        "_answered_at",
        "_hit",
        "_monotonic",
        "_noted",
        "admitted",
        "instance_id",
        "received_at",
        "sent_at",
    )

    def __init__(self, monotonic: Callable[[], float], access_log: AccessLog | None) -> None:
        self._monotonic = monotonic
        self._access_log = access_log
        self._noted = False
        self._answered_at = 0.0
        self.admitted: Admitted | None = None
        self._hit: bool | None = None
        """already loaded; None before the look-up"""
        self.received_at = 0.0
        """request complete"""
        self.sent_at: float | None = None
        """to an instance, the last time"""
        self.instance_id: str | None = None

    def admit(self, admitted: Admitted) -> None:
        self.admitted = admitted
        variant = admitted.variant
        variant.counters.invocations += 1
        variant.counters.invocations_per_instance += variant.instance_share

    def send(self, instance_id: str) -> None:
        self.sent_at = self._monotonic()
        self.instance_id = instance_id

    def answer(self) -> None:
        self._answered_at = self._monotonic()

    def look_up(self, hit: bool) -> None:
        """The last call counts."""
        self._hit = hit

    def count_look_up(self) -> None:
        """Counts the look-up once."""
        hit, self._hit = self._hit, None
        if hit is not None:
            assert self.admitted is not None
            counters = self.admitted.variant.counters
            counters.cache_samples += 1
            counters.cache_hits += hit

    def wait_for_model(self, seconds: float) -> None:
        assert self.admitted is not None
        counters = self.admitted.variant.counters
        counters.loading_waits += 1
        counters.loading_wait_us += round(seconds * 1e6)

    def fail(self, status: int) -> None:
        """Counts an error of the model, or a missing answer."""
        assert self.admitted is not None
        counters = self.admitted.variant.counters
        counters.model_errors += 1
        if 400 <= status < 500:
            counters.errors_4xx += 1
        else:
            counters.errors_5xx += 1
        self.end()

    def end(self) -> None:
        assert self.admitted is not None
        counters = self.admitted.variant.counters
        if self.sent_at is not None:
            now = self._answered_at
            if now < self.sent_at:
                now = self._monotonic()  # not answered
            model_us = int((now - self.sent_at) * 1e6)
            counters.model_latency.seen.append(model_us)
            counters.overhead_latency.seen.append(int((now - self.received_at) * 1e6) - model_us)

    def note(
        self,
        status: int | str,
        request_id: bytes,
        endpoint: str,
        request_bytes: int,
        answer_bytes: int,
    ) -> None:
        """Logs the first call only."""
        if self._access_log is None or self._noted:
            return
        self._noted = True
        now = self._monotonic()
        model_us = None if self.sent_at is None else int((now - self.sent_at) * 1e6)
        since_us = int((now - self.received_at) * 1e6) if self.received_at else 0
        self._access_log.note(
            EndedRequest(
                request_id=request_id,
                endpoint=endpoint,
                variant=self.admitted.variant.route.name if self.admitted else None,
                instance=self.instance_id,
                status=status,
                request_bytes=request_bytes,
                answer_bytes=answer_bytes,
                model_us=model_us,
                overhead_us=since_us - (model_us or 0),
            )
        )
