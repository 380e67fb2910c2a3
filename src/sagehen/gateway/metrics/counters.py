"""Counters of each variant. Requests only add numbers or append to lists; periodic tasks do the
rest."""

from collections import Counter, deque
from typing import Any

import msgspec

from sagehen.frame.statistics import add_to_buckets
from sagehen.gateway.client.limits import no_hits

__all__ = ["Counters", "DurationSketch", "InFlightCounter", "LastError", "VariantCounters"]

MAX_GONE_VARIANTS = 200
WINDOW_REPORTS = 10
"""reports are made once a second"""


class DurationSketch:
    """One kind of duration: the values since the last digest, and a sketch of the earlier ones."""

    __slots__ = ("_buckets", "_count", "_encoded", "_sum", "recent")

    def __init__(self) -> None:
        self.recent: list[int] = []
        """microseconds; grows until `digest`"""
        self._count = 0
        self._sum = 0
        self._buckets: dict[int, int] = {}
        self._encoded: msgspec.Raw | None = None

    def digest(self) -> None:
        if self.recent:
            recent, self.recent = self.recent, []
            self._count += len(recent)
            self._sum += sum(recent)
            # Counted first, as each distinct value costs a logarithm.
            add_to_buckets(self._buckets, Counter(recent).items())
            self._encoded = None

    @property
    def is_reported(self) -> bool:
        """Whether nothing has changed since the last report."""
        return not self.recent and (self._encoded is not None or not self._count)

    def report(self) -> msgspec.Raw:
        """Returns JSON, encoded only after changes."""
        if self._encoded is None:
            latencies = {"count": self._count, "sum": self._sum, "buckets": self._buckets}
            self._encoded = msgspec.Raw(msgspec.json.encode(latencies))
        return self._encoded


class InFlightCounter:
    """A number of requests, with its extremes over 10 s."""

    __slots__ = ("_earlier", "_highest", "_idle_reports", "_lowest", "now")

    def __init__(self) -> None:
        self._idle_reports = 0
        self.now = 0
        self._highest = 0
        self._lowest = 0
        self._earlier: deque[tuple[int, int]] = deque(maxlen=WINDOW_REPORTS)

    def enter(self) -> None:
        self.now += 1
        if self.now > self._highest:
            self._highest = self.now

    def leave(self) -> None:
        self.now -= 1
        if self.now < self._lowest:
            self._lowest = self.now

    @property
    def is_idle(self) -> bool:
        """Whether all reports are zeros until the next request: there need not be any."""
        is_now = not (self.now or self._lowest or self._highest)
        return is_now and self._idle_reports >= WINDOW_REPORTS

    def report(self) -> dict[str, int]:
        """Ends one second of the window: call once a second, unless it is idle."""
        is_idle = not (self.now or self._lowest or self._highest)
        self._idle_reports = self._idle_reports + 1 if is_idle else 0
        self._earlier.append((self._lowest, self._highest))
        self._lowest = self._highest = self.now
        return {
            "now": self.now,
            "lowest": min(lowest for lowest, _ in self._earlier),
            "highest": max(highest for _, highest in self._earlier),
        }


LONGEST_ERROR = 300
"""characters; reports have thousands of variants"""


class LastError(msgspec.Struct, frozen=True):
    """The last error of a variant's container that a caller got."""

    at: float
    """seconds since the epoch"""
    status: int
    """that the container answered; 500 for none"""
    message: str


_Key = tuple[str, str, str, bool]
"""endpoint, variant, container, is a stage"""


class VariantCounters(msgspec.Struct, kw_only=True):
    """A variant's counts since this process began, as reported to control."""

    endpoint: str
    variant: str
    container: str = ""
    """hostname, if invoked directly"""
    is_stage: bool = False
    """a pipeline's container, counted in the variant too"""
    invocations: int = msgspec.field(default=0, name="Invocations")
    invocations_per_instance: float = msgspec.field(default=0.0, name="InvocationsPerInstance")
    """sum of 1/N, for N instances"""
    errors_4xx: int = msgspec.field(default=0, name="Invocation4XXErrors")
    errors_5xx: int = msgspec.field(default=0, name="Invocation5XXErrors")
    model_errors: int = msgspec.field(default=0, name="InvocationModelErrors")
    """any answer but 2xx, a lost connection, a time-out"""
    cache_hits: int = msgspec.field(default=0, name="ModelCacheHit")
    cache_samples: int = msgspec.field(default=0, name="ModelCacheHitSamples")
    model_latency: DurationSketch = msgspec.field(
        default_factory=DurationSketch, name="ModelLatency"
    )
    """of the container, with the way there and back"""
    overhead_latency: DurationSketch = msgspec.field(
        default_factory=DurationSketch, name="OverheadLatency"
    )
    """the rest, from whole request to whole answer"""
    shadow_copies_dropped: int = msgspec.field(default=0, name="ShadowCopiesDropped")
    """never sent"""
    offline_results: int = msgspec.field(default=0, name="OfflineResults")
    """answers from offline results, as no instance could"""
    provisioned_invocations: int = msgspec.field(
        default=0, name="ServerlessProvisionedConcurrencyInvocations"
    )
    spillover_invocations: int = msgspec.field(
        default=0, name="ServerlessProvisionedConcurrencySpilloverInvocations"
    )
    """above the provisioned concurrency"""
    loading_wait_us: int = msgspec.field(default=0, name="ModelLoadingWaitTimeSum")
    loading_waits: int = msgspec.field(default=0, name="ModelLoadingWaitTimeCount")
    in_flight: InFlightCounter = msgspec.field(
        default_factory=InFlightCounter, name="ConcurrentRequestsPerModel"
    )
    queued: InFlightCounter = msgspec.field(default_factory=InFlightCounter, name="QueuedRequests")
    """waiting for a slot"""
    last_error: LastError | None = msgspec.field(default=None, name="LastError")

    def digest(self) -> None:
        self.model_latency.digest()
        self.overhead_latency.digest()

    @property
    def is_idle(self) -> bool:
        """Whether nothing but single counts can be different from the last report."""
        latencies = self.model_latency.is_reported and self.overhead_latency.is_reported
        return self.in_flight.is_idle and self.queued.is_idle and latencies


class Counters:
    """All counters, kept across route changes, and hits of limits."""

    def __init__(self, gateway: str) -> None:
        """`gateway`: unique among all that report to one control."""
        self.was_reported = False
        """whether a control has read an earlier report"""
        self.limit_hits = no_hits()
        self._gateway = gateway
        self._variants: dict[_Key, VariantCounters] = {}
        self._reported: dict[_Key, tuple[tuple[object, ...], msgspec.Raw]] = {}
        """the last report of each variant, and its members then"""

    def variant(
        self, endpoint: str, variant: str, container: str = "", is_stage: bool = False
    ) -> VariantCounters:
        """Returns the same object until the variant is forgotten."""
        key = (endpoint, variant, container, is_stage)
        counters = self._variants.get(key)
        if counters is None:
            counters = self._variants[key] = VariantCounters(
                endpoint=endpoint, variant=variant, container=container, is_stage=is_stage
            )
        return counters

    def keep_only(self, present: set[tuple[str, str]]) -> None:
        """Forgets variants that are not `present`, once there are many."""
        if len(self._variants) > MAX_GONE_VARIANTS + len(present):
            self._variants = {
                key: counters for key, counters in self._variants.items() if key[:2] in present
            }
            self._reported = {
                key: each for key, each in self._reported.items() if key in self._variants
            }

    def digest(self) -> None:
        """Call several times a second, as durations pile up."""
        for counters in self._variants.values():
            counters.digest()

    def report(self) -> bytes:
        """Returns JSON; call once a second."""
        self.digest()
        report = {
            "gateway": self._gateway,
            "was_reported": self.was_reported,
            "variants": [self._report_of(*each) for each in self._variants.items()],
            "limit_hits": self.limit_hits,
        }
        return msgspec.json.encode(report)

    def _report_of(self, key: _Key, counters: VariantCounters) -> msgspec.Raw:
        """Returns JSON. Of thousands of variants most are idle: their last report is the next."""
        values = msgspec.structs.astuple(counters)
        known = self._reported.get(key)
        if known is not None and known[0] == values and counters.is_idle:
            return known[1]
        encoded = msgspec.json.encode(counters, enc_hook=_encode)
        report = msgspec.Raw(encoded)
        self._reported[key] = values, report
        return report


def _encode(counter: Any) -> Any:
    return counter.report()
