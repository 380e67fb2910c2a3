"""A line in the log for each invocation, on demand; written in batches, beside the requests."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from sagehen.clock import Clock
from sagehen.gateway.limits import Limit, LimitHits
from sagehen.telemetry import shown

__all__ = ["CLIENT_GONE", "CUT_OFF", "MOST_WAITING", "AccessLog", "Ended"]

MOST_WAITING = 16_384
"""Lines that wait to be written; more are dropped, and their number is told. Not set: no disk
that serves is so far behind."""
CLIENT_GONE = "gone"
"""Stands for the status where the caller left before the answer was whole."""
CUT_OFF = "cut"
"""Stands for the status where an answer that had begun broke."""

_START = "INFO gateway sagehen.gateway.access_log:"


class Ended(NamedTuple):
    """What is known of an invocation at its end; what it never got to is None."""

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
    """`write` takes text and may block: it is called in a thread."""

    def __init__(self, write: Callable[[str], object], clock: Clock, limit_hits: LimitHits) -> None:
        self._write = write
        self._clock = clock
        self._limit_hits = limit_hits
        self._waiting: list[tuple[float, Ended]] = []
        self._dropped = 0
        self._writing: asyncio.Future[None] | None = None

    def note(self, ended: Ended) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((self._clock.now(), ended))
        else:
            self._dropped += 1
            self._limit_hits[Limit.ACCESS_LOG] += 1

    async def flush(self) -> None:
        """Write what waits. To be called several times a second."""
        if self._writing is not None or not (self._waiting or self._dropped):
            return
        waiting, self._waiting = self._waiting, []
        dropped, self._dropped = self._dropped, 0
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write_out, waiting, dropped))
        try:
            # Shielded: who is cancelled here must not let go of lines half written.
            await asyncio.shield(self._writing)
        finally:
            if self._writing.done():
                self._writing = None

    async def close(self) -> None:
        """Write what waits, after what is being written already."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing = None
        await self.flush()

    def _write_out(self, waiting: list[tuple[float, Ended]], dropped: int) -> None:
        lines = [_line(at, ended) for at, ended in waiting]
        if dropped:
            at = _time(self._clock.now())
            lines.append(f"{at} {_START} Lines were dropped, as too many waited. dropped={dropped}")
        self._write("\n".join(lines) + "\n")


def _line(at: float, ended: Ended) -> str:
    fields = ended._asdict()
    fields["request_id"] = ended.request_id.decode()
    pairs = " ".join(f"{key}={shown(value)}" for key, value in fields.items() if value is not None)
    return f"{_time(at)} {_START} An invocation ended. {pairs}"


def _time(at: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{seconds}.{int(at % 1 * 1000):03d}Z"
