"""Sums the gateways' counters into totals that do not decrease when a gateway restarts."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from sagehen.base.clock import Clock
from sagehen.frame.statistics import Latencies

__all__ = [
    "ContainerKey",
    "CountsKey",
    "GatewayReport",
    "InFlightTotals",
    "LastError",
    "LimitHits",
    "Observations",
    "VariantCounts",
    "VariantKey",
    "VariantPresence",
]

MAX_GATEWAYS = 2048
MAX_VARIANTS = 20_000
MAX_LIMITS = 100
SILENT_SECONDS = 10.0
"""a gateway silent for longer is considered dead, with no requests"""

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Share = Annotated[float, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]

_K = TypeVar("_K")

VariantKey = tuple[str, str]
"""endpoint name, variant name"""
ContainerKey = tuple[str, str, str]
"""endpoint name, variant name, container hostname"""


class CountsKey(NamedTuple):
    """Identifies the variant or container that counts belong to."""

    endpoint: str
    variant: str
    container: str
    """empty for the variant's own counts"""
    is_stage: bool
    """also contained in the variant's counts"""


LimitHits = dict[_Name, _Count]
"""hits by name of the limit"""


class VariantCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counters named as in METRICS; times in microseconds."""

    invocations: _Count = msgspec.field(default=0, name="Invocations")
    invocations_per_instance: _Share = msgspec.field(default=0.0, name="InvocationsPerInstance")
    errors_4xx: _Count = msgspec.field(default=0, name="Invocation4XXErrors")
    errors_5xx: _Count = msgspec.field(default=0, name="Invocation5XXErrors")
    model_errors: _Count = msgspec.field(default=0, name="InvocationModelErrors")
    cache_hits: _Count = msgspec.field(default=0, name="ModelCacheHit")
    cache_lookups: _Count = msgspec.field(default=0, name="ModelCacheHitSamples")
    model_latency: Latencies = msgspec.field(default=Latencies(), name="ModelLatency")
    overhead_latency: Latencies = msgspec.field(default=Latencies(), name="OverheadLatency")
    shadow_copies_dropped: _Count = msgspec.field(default=0, name="ShadowCopiesDropped")
    offline_results: _Count = msgspec.field(default=0, name="OfflineResults")
    provisioned_invocations: _Count = msgspec.field(
        default=0, name="ServerlessProvisionedConcurrencyInvocations"
    )
    spillover_invocations: _Count = msgspec.field(
        default=0, name="ServerlessProvisionedConcurrencySpilloverInvocations"
    )
    loading_wait_sum: _Count = msgspec.field(default=0, name="ModelLoadingWaitTimeSum")
    loading_wait_count: _Count = msgspec.field(default=0, name="ModelLoadingWaitTimeCount")

    def __add__(self, other: "VariantCounts") -> "VariantCounts":
        return VariantCounts(
            **{
                field: getattr(self, field) + getattr(other, field)
                for field in VariantCounts.__struct_fields__
            }
        )

    def __sub__(self, before: "VariantCounts") -> "VariantCounts":
        """Returns the increase since `before`, of the same counters."""
        return VariantCounts(
            **{
                field: getattr(self, field) - getattr(before, field)
                for field in VariantCounts.__struct_fields__
            }
        )

    def is_before(self, other: "VariantCounts") -> bool:
        """Tells whether `other` can be a later state: no counter is lower."""
        fields = VariantCounts.__struct_fields__
        return all(getattr(self, field) <= getattr(other, field) for field in fields)


NO_COUNTS = VariantCounts()


class InFlightTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Current requests, and the least and most at once in the last 10 s."""

    now: _Count = 0
    lowest: _Count = 0
    highest: _Count = 0

    def __add__(self, other: "InFlightTotals") -> "InFlightTotals":
        return InFlightTotals(
            now=self.now + other.now,
            lowest=self.lowest + other.lowest,
            highest=self.highest + other.highest,
        )


class LastError(msgspec.Struct, frozen=True):
    """The last error of a variant's container that a caller got."""

    at: Annotated[float, msgspec.Meta(ge=0)]
    """seconds since the epoch"""
    status: int
    message: Annotated[str, msgspec.Meta(max_length=1000)]


class VariantPresence(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight and queued for one variant."""

    in_flight: InFlightTotals = InFlightTotals()
    """includes queued requests"""
    queued: InFlightTotals = InFlightTotals()
    """waiting for a free slot"""

    def __add__(self, other: "VariantPresence") -> "VariantPresence":
        return VariantPresence(
            in_flight=self.in_flight + other.in_flight, queued=self.queued + other.queued
        )


class _VariantReport(VariantCounts, frozen=True, kw_only=True):
    endpoint: _Name
    variant: _Name
    container: Annotated[str, msgspec.Meta(max_length=63)] = ""
    is_stage: bool = False
    in_flight: InFlightTotals = msgspec.field(
        default=InFlightTotals(), name="ConcurrentRequestsPerModel"
    )
    queued: InFlightTotals = msgspec.field(default=InFlightTotals(), name="QueuedRequests")
    last_error: LastError | None = msgspec.field(default=None, name="LastError")

    @property
    def key(self) -> CountsKey:
        return CountsKey(self.endpoint, self.variant, self.container, self.is_stage)

    @property
    def presence(self) -> VariantPresence:
        return VariantPresence(in_flight=self.in_flight, queued=self.queued)

    def counts(self) -> VariantCounts:
        return VariantCounts(
            **{field: getattr(self, field) for field in VariantCounts.__struct_fields__}
        )


class GatewayReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one gateway has counted since it started."""

    gateway: _Name | int
    """identifies the process"""
    was_reported: bool = False
    """whether a control has read an earlier report of this gateway"""
    variants: Annotated[tuple[_VariantReport, ...], msgspec.Meta(max_length=MAX_VARIANTS)]
    limit_hits: Annotated[LimitHits, msgspec.Meta(max_length=MAX_LIMITS)] = {}


class Observations:
    """The last report of each gateway, and the sums of dead ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Forgets everything, as if this object were new: another control has taken what gateways
        have counted until now."""
        self._fresh: dict[CountsKey, VariantCounts] = {}
        """increases not yet taken"""
        self._gateways: OrderedDict[str, dict[CountsKey, VariantCounts]] = OrderedDict()
        """last reporter last; dead gateways stay, as their counts still count"""
        self._ended: dict[CountsKey, VariantCounts] = {}
        self._limit_hits: Counter[str] = Counter()
        """over all gateways, also dead ones"""
        self._last_limit_hits: dict[str, LimitHits] = {}
        """by gateway, the part contained in `_limit_hits`"""
        self._reports: dict[str, dict[CountsKey, _VariantReport]] = {}
        """the last report of each gateway that is not silent"""
        self._present: dict[str, tuple[float, dict[CountsKey, VariantPresence]]] = {}
        """by gateway, with the report's time"""

    def record(self, report: GatewayReport) -> None:
        """Replaces a gateway's last report."""
        identity = str(report.gateway)
        before = self._gateways.get(identity, {})
        known = self._reports.get(identity, {})
        self._reports = {each: self._reports.get(each, {}) for each, _ in self._reporting()}
        self._reports[identity] = {variant.key: variant for variant in report.variants}
        now = {
            # Most are as they were: to compare is much quicker than to convert.
            key: before[key] if key in before and known.get(key) == variant else variant.counts()
            for key, variant in self._reports[identity].items()
        }
        self._add_fresh(report, now)
        self._gateways.pop(identity, None)
        for key, counts in before.items():
            if key not in now:
                # Gateways forget a variant with its route, when its endpoint is deleted. A new
                # endpoint of that name starts at zero.
                self._ended.pop(key, None)
            elif counts is not now[key] and not counts.is_before(now[key]):
                self._end(key, counts)
        self._gateways[identity] = now
        self._add_limit_hits(identity, report.limit_hits)
        self._present = dict(self._reporting())
        self._present[identity] = (
            self._clock.monotonic(),
            {variant.key: variant.presence for variant in report.variants},
        )
        if len(self._gateways) > MAX_GATEWAYS:
            forgotten, oldest = self._gateways.popitem(last=False)
            self._last_limit_hits.pop(forgotten, None)
            for key, counts in oldest.items():
                self._end(key, counts)

    def take(self) -> dict[CountsKey, VariantCounts]:
        """Returns increases since the last call. What a gateway has reported to another control was
        taken by that one: it counts from its first report to this one."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def _add_fresh(self, report: GatewayReport, now: dict[CountsKey, VariantCounts]) -> None:
        before = self._gateways.get(str(report.gateway))
        if before is None and report.was_reported:
            return
        for key, counts in now.items():
            old = (before or {}).get(key, NO_COUNTS)
            if old is counts:
                continue
            added = counts - old if old.is_before(counts) else counts
            if added != NO_COUNTS:
                self._fresh[key] = self._fresh.get(key, NO_COUNTS) + added
            if len(self._fresh) > MAX_VARIANTS:
                del self._fresh[next(iter(self._fresh))]

    def totals(self) -> dict[VariantKey, VariantCounts]:
        """Totals by endpoint and variant over all gateways, also dead ones."""
        # With direct invocation only containers are counted: each request belongs to one.
        return _sums(
            ((key.endpoint, key.variant), counts)
            for key, counts in self._counts()
            if not key.is_stage
        )

    def containers(self) -> dict[ContainerKey, VariantCounts]:
        """Totals by container, for variants with several."""
        return _sums(
            ((key.endpoint, key.variant, key.container), counts)
            for key, counts in self._counts()
            if key.container
        )

    def _counts(self) -> Iterator[tuple[CountsKey, VariantCounts]]:
        yield from self._ended.items()
        for gateway in self._gateways.values():
            yield from gateway.items()

    def limit_hits(self) -> LimitHits:
        """Hits of each limit over all gateways, also dead ones."""
        return dict(self._limit_hits)

    def present(self) -> dict[VariantKey, VariantPresence]:
        """Sums over live gateways, as if their extremes coincided."""
        sums: dict[VariantKey, VariantPresence] = {}
        for _, (_, variants) in self._reporting():
            for key, presence in variants.items():
                variant_key = (key.endpoint, key.variant)
                known = sums.get(variant_key)
                sums[variant_key] = presence if known is None else known + presence
        return sums

    def last_errors(self) -> dict[VariantKey, LastError]:
        """The last error of each variant that gateways still know."""
        last: dict[VariantKey, LastError] = {}
        for variants in self._reports.values():
            for key, report in variants.items():
                variant_key = (key.endpoint, key.variant)
                error, known = report.last_error, last.get(variant_key)
                if error is not None and (known is None or known.at < error.at):
                    last[variant_key] = error
        return last

    def _reporting(self) -> Iterator[tuple[str, tuple[float, dict[CountsKey, VariantPresence]]]]:
        earliest = self._clock.monotonic() - SILENT_SECONDS
        return (item for item in self._present.items() if item[1][0] >= earliest)

    def _add_limit_hits(self, gateway: str, now: LimitHits) -> None:
        before = self._last_limit_hits.get(gateway, {})
        if any(now.get(limit, 0) < hits for limit, hits in before.items()):
            before = {}  # another process with this id, starting at zero
        for limit, hits in now.items():
            self._limit_hits[limit] += hits - before.get(limit, 0)
        self._last_limit_hits[gateway] = now

    def _end(self, key: CountsKey, counts: VariantCounts) -> None:
        self._ended[key] = self._ended.pop(key, NO_COUNTS) + counts
        if len(self._ended) > MAX_VARIANTS:
            del self._ended[next(iter(self._ended))]


def _sums(counts: Iterable[tuple[_K, VariantCounts]]) -> dict[_K, VariantCounts]:
    sums: dict[_K, VariantCounts] = {}
    for key, added in counts:
        sums[key] = sums[key] + added if key in sums else added
    return sums
