"""Keeps the gateways' reports of calls to variants that start on demand; in memory only, as they
are repeated."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from sagehen.base.clock import Clock
from sagehen.services.sagemaker.hosting.records import ServerlessPlan

__all__ = ["NO_USE", "CallDemand", "StartRequests", "VariantUse", "WaitingCalls"]

WAITING_SECONDS = 2.0
"""how long calls count as waiting after the last message that they do; gateways repeat it sooner"""
HINT_SECONDS = 1.0
"""between looks of the loop for the same calls"""
SILENT_SECONDS = 10.0
"""after which a gateway is considered dead, with no requests"""
MAX_GATEWAYS = 2048
MAX_VARIANTS = 20_000
_PEAK_PERIODS = 30
"""parts of the idle time for which the most requests at once are kept"""

VariantName = tuple[str, str]
"""endpoint name, variant name"""


class WaitingCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a gateway holds, as the variant has no free slot."""

    endpoint: str
    variant: str
    calls: int
    instances: int = 0
    """that the gateway knows of, all of them full"""


class StartRequests(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's message: calls wait, so instances should start. Repeated while they wait."""

    waiting: tuple[WaitingCalls, ...]


@dataclass(frozen=True, kw_only=True)
class VariantUse:
    """The calls to one variant."""

    waiting: int = 0
    """calls without a slot; 0 if there are none now"""
    full_instances: int = 0
    """that have no slot for them"""
    last_used_at: float = 0.0
    """seconds since the epoch"""
    peak: int = 0
    """the most requests at once within the idle time"""
    since: float = 0.0
    """when the calls began to be watched; seconds since the epoch"""


NO_USE = VariantUse()


class CallsInFlight(Protocol):
    @property
    def now(self) -> int: ...

    @property
    def highest(self) -> int: ...


class VariantReport(Protocol):
    """A gateway's counters of one variant."""

    @property
    def endpoint(self) -> str: ...

    @property
    def variant(self) -> str: ...

    @property
    def invocations(self) -> int: ...

    @property
    def in_flight(self) -> CallsInFlight: ...


class _Peaks:
    """The most requests at once, by periods of the idle time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._periods: deque[tuple[int, int]] = deque(maxlen=_PEAK_PERIODS + 1)

    def add(self, now: float, requests: int) -> None:
        period = int(now / self._seconds)
        if self._periods and self._periods[-1][0] == period:
            requests = max(requests, self._periods.pop()[1])
        self._periods.append((period, requests))

    def highest(self, now: float) -> int:
        earliest = int(now / self._seconds) - _PEAK_PERIODS
        return max((peak for period, peak in self._periods if period >= earliest), default=0)


class _GatewayUse(msgspec.Struct, frozen=True):
    """A gateway's last report of a variant, over all its containers."""

    invocations: int = 0
    """since the gateway began"""
    in_flight: int = 0
    highest: int = 0
    """requests at once in the last 10 s"""
    at: float = 0.0


@dataclass(slots=True)
class _Use:
    """The use of a variant; monotonic seconds."""

    peaks: _Peaks
    since: float
    last_used_at: float
    waiting: int = 0
    full_instances: int = 0
    waiting_at: float = -math.inf
    gateways: dict[str, _GatewayUse] = field(default_factory=dict)

    def reporting(self, now: float) -> Iterable[_GatewayUse]:
        return (report for report in self.gateways.values() if now - report.at < SILENT_SECONDS)


class CallDemand:
    """The use of all variants that start on demand; safe from any thread.

    Its own times are monotonic: a step of the clock must not stop instances that are in use.

    Args:
        hint: wakes the reconcile loop.
    """

    def __init__(
        self, clock: Clock, idle_seconds: float, hint: Callable[[], None] = lambda: None
    ) -> None:
        self.hint = hint
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._began_at = clock.monotonic()
        self._lock = threading.Lock()
        self._uses: dict[VariantName, _Use] = {}
        self._hinted_at: dict[VariantName, float] = {}
        self._followed: Mapping[VariantName, ServerlessPlan | None] = {}

    def begin(self) -> None:
        """Forgets all uses but calls that wait now, as if this object were new: while another
        control has led, gateways have reported to that one."""
        now = self._clock.monotonic()
        with self._lock:
            self._began_at = now
            self._hinted_at.clear()
            self._uses = {
                name: replace(self._new_use(now), waiting=use.waiting, waiting_at=use.waiting_at)
                for name, use in self._uses.items()
                if now - use.waiting_at < WAITING_SECONDS
            }

    def follow(self, variants: Mapping[VariantName, ServerlessPlan | None]) -> None:
        """Keeps the use of these variants only."""
        self._followed = variants
        with self._lock:
            for name in self._uses.keys() - self._followed:
                del self._uses[name]

    @property
    def serverless(self) -> Mapping[VariantName, ServerlessPlan]:
        """The serverless variants among those followed."""
        return {name: plan for name, plan in self._followed.items() if plan is not None}

    def note_waiting(self, requests: StartRequests) -> None:
        """Notes calls that wait, and wakes the loop."""
        now = self._clock.monotonic()
        with self._lock:
            for waiting in requests.waiting:
                use = self._use((waiting.endpoint, waiting.variant), now)
                use.waiting, use.full_instances = waiting.calls, waiting.instances
                use.waiting_at = now
                use.last_used_at = now
            # Repeated messages need no look each: what else matters wakes the loop by itself.
            is_due = any(
                now - self._hinted_at.get((each.endpoint, each.variant), -math.inf) >= HINT_SECONDS
                for each in requests.waiting
            )
            if is_due:
                self._hinted_at = {(each.endpoint, each.variant): now for each in requests.waiting}
        if is_due:
            self.hint()

    def note_report(self, gateway: str, variants: Iterable[VariantReport]) -> None:
        """Notes a gateway's counters, which it sends at most a second after each call."""
        if not self._followed:
            return
        now = self._clock.monotonic()
        with self._lock:
            for name, report in self._sums(variants, now).items():
                self._note(gateway, name, report, now)

    def _sums(
        self, variants: Iterable[VariantReport], now: float
    ) -> Mapping[VariantName, _GatewayUse]:
        sums: dict[VariantName, _GatewayUse] = {}
        for report in variants:
            name = (report.endpoint, report.variant)
            if name in self._followed:
                before, in_flight = sums.get(name, _GatewayUse()), report.in_flight
                sums[name] = _GatewayUse(
                    before.invocations + report.invocations,
                    before.in_flight + in_flight.now,
                    before.highest + in_flight.highest,
                    now,
                )
        return sums

    def _note(self, gateway: str, name: VariantName, report: _GatewayUse, now: float) -> None:
        use = self._use(name, now)
        before = use.gateways.pop(gateway, None)
        if report.in_flight or report.invocations != (before.invocations if before else 0):
            use.last_used_at = now
        use.gateways[gateway] = report
        if len(use.gateways) > MAX_GATEWAYS:
            del use.gateways[next(iter(use.gateways))]
        use.peaks.add(now, sum(each.highest for each in use.reporting(now)))

    def of_endpoint(self, endpoint: str, variants: Iterable[str]) -> Mapping[str, VariantUse]:
        """Returns the use by variant name; of a variant never heard of, since this began."""
        now = self._clock.monotonic()
        with self._lock:
            return {variant: self._describe((endpoint, variant), now) for variant in variants}

    def queued(self, requests: int) -> VariantUse:
        """Returns the use of a variant for which asynchronous requests wait."""
        return VariantUse(waiting=requests, last_used_at=self._clock.now(), peak=requests)

    def _describe(self, name: VariantName, now: float) -> VariantUse:
        use, epoch = self._uses.get(name), self._clock.now() - now
        if use is None:
            began_at = epoch + self._began_at
            return VariantUse(last_used_at=began_at, since=began_at)
        is_waiting = now - use.waiting_at < WAITING_SECONDS
        is_used = any(report.in_flight for report in use.reporting(now))
        return VariantUse(
            waiting=use.waiting if is_waiting else 0,
            full_instances=use.full_instances,
            last_used_at=epoch + (now if is_used else use.last_used_at),
            peak=use.peaks.highest(now),
            since=epoch + use.since,
        )

    def _use(self, name: VariantName, now: float) -> _Use:
        use = self._uses.get(name)
        if use is None:
            if len(self._uses) >= MAX_VARIANTS:
                del self._uses[next(iter(self._uses))]
            use = self._uses[name] = self._new_use(now)
        return use

    def _new_use(self, now: float) -> _Use:
        return _Use(_Peaks(self._idle_seconds / _PEAK_PERIODS), now, self._began_at)
