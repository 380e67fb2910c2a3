"""What is counted for each variant.

While a request is answered, numbers are added or put on a list and nothing else; what is made of
them is made several times a second, beside the requests.
"""

from collections import Counter, deque
from typing import Any

import msgspec

from sagehen.frame.statistics import add_to_buckets
from sagehen.gateway.client.limits import no_hits

__all__ = ["Counters", "InFlightCounter", "Times", "VariantCounters"]

GONE_VARIANTS_KEPT = 200
WINDOW_REPORTS = 10
"""Reports, one a second, over which the least and the most requests at once are told."""


class Times:
    """One kind of time: what has been seen since the last `digest`, and the sketch of the rest."""

    __slots__ = ("_buckets", "_count", "_encoded", "_sum", "seen")

    def __init__(self) -> None:
        self.seen: list[int] = []
        """Microseconds. It grows until `digest`, which is called several times a second."""
        self._count = 0
        self._sum = 0
        self._buckets: dict[int, int] = {}
        self._encoded: msgspec.Raw | None = None

    def digest(self) -> None:
        """Put what has been seen into the sketch."""
        if self.seen:
            seen, self.seen = self.seen, []
            self._count += len(seen)
            self._sum += sum(seen)
            # Counted first: most times are seen often, and each costs a logarithm.
            add_to_buckets(self._buckets, Counter(seen).items())
            self._encoded = None

    def report(self) -> msgspec.Raw:
        """Latencies as JSON; made anew only where something was added."""
        if self._encoded is None:
            latencies = {"count": self._count, "sum": self._sum, "buckets": self._buckets}
            self._encoded = msgspec.Raw(msgspec.json.encode(latencies))
        return self._encoded


class InFlightCounter:
    """How many requests are somewhere, and the most and the least at once in the last 10 s."""

    __slots__ = ("_earlier", "_highest", "_lowest", "now")

    def __init__(self) -> None:
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

    def report(self) -> dict[str, int]:
        """To be called once a second: each call ends one second of the window."""
        self._earlier.append((self._lowest, self._highest))
        self._lowest = self._highest = self.now
        return {
            "now": self.now,
            "lowest": min(lowest for lowest, _ in self._earlier),
            "highest": max(highest for _, highest in self._earlier),
        }


class VariantCounters(msgspec.Struct, kw_only=True):
    """One variant's counts since this process began; named as they are told to control."""

    endpoint: str
    variant: str
    container: str = ""
    """Its hostname, where this is one of several containers of the variant."""
    is_stage: bool = False
    """Of a pipeline: what is counted here is a part of what is counted for the variant."""
    invocations: int = msgspec.field(default=0, name="Invocations")
    invocations_per_instance: float = msgspec.field(default=0.0, name="InvocationsPerInstance")
    """Each adds 1/N, of N instances that the variant had then."""
    errors_4xx: int = msgspec.field(default=0, name="Invocation4XXErrors")
    errors_5xx: int = msgspec.field(default=0, name="Invocation5XXErrors")
    model_errors: int = msgspec.field(default=0, name="InvocationModelErrors")
    """Any answer but 2xx, a lost connection, a time-out."""
    cache_hits: int = msgspec.field(default=0, name="ModelCacheHit")
    cache_samples: int = msgspec.field(default=0, name="ModelCacheHitSamples")
    model_latency: Times = msgspec.field(default_factory=Times, name="ModelLatency")
    """What containers took, with the way there and back."""
    overhead_latency: Times = msgspec.field(default_factory=Times, name="OverheadLatency")
    """Everything else, from the whole request to the whole answer."""
    shadow_copies_dropped: int = msgspec.field(default=0, name="ShadowCopiesDropped")
    """Of a shadow: copies that were never sent."""
    loading_wait_us: int = msgspec.field(default=0, name="ModelLoadingWaitTimeSum")
    loading_waits: int = msgspec.field(default=0, name="ModelLoadingWaitTimeCount")
    in_flight: InFlightCounter = msgspec.field(
        default_factory=InFlightCounter, name="ConcurrentRequestsPerModel"
    )
    queued: InFlightCounter = msgspec.field(default_factory=InFlightCounter, name="QueuedRequests")
    """Those of them that wait for a free slot."""

    def digest(self) -> None:
        self.model_latency.digest()
        self.overhead_latency.digest()


class Counters:
    """Every variant's, which outlive changes of the routes, and those of the limits."""

    def __init__(self, gateway: str, began_at: float = 0.0) -> None:
        """`began_at`: when this process did, in seconds since the epoch."""
        self.limit_hits = no_hits()
        self._gateway = gateway
        self._began_at = began_at
        self._variants: dict[tuple[str, str, str, bool], VariantCounters] = {}

    def of(
        self, endpoint: str, variant: str, container: str = "", is_stage: bool = False
    ) -> VariantCounters:
        """The same object for the same variant or container, for as long as it is kept."""
        key = (endpoint, variant, container, is_stage)
        counters = self._variants.get(key)
        if counters is None:
            counters = self._variants[key] = VariantCounters(
                endpoint=endpoint, variant=variant, container=container, is_stage=is_stage
            )
        return counters

    def keep_only(self, present: set[tuple[str, str]]) -> None:
        """Forget variants that are gone, once there are many: what they counted has been told."""
        if len(self._variants) > GONE_VARIANTS_KEPT + len(present):
            self._variants = {key: one for key, one in self._variants.items() if key[:2] in present}

    def digest(self) -> None:
        """Make sketches of the times seen. To be called several times a second, as they pile up."""
        for counters in self._variants.values():
            counters.digest()

    def report(self) -> bytes:
        """JSON for control: this process and all its counts. To be called once a second."""
        self.digest()
        report = {
            "gateway": self._gateway,
            "began_at": self._began_at,
            "variants": list(self._variants.values()),
            "limit_hits": self.limit_hits,
        }
        return msgspec.json.encode(report, enc_hook=_reported)


def _reported(counted: Any) -> Any:
    return counted.report()
