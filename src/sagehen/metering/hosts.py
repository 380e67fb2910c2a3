"""What agents tell of what runs there, as samples.

Of instances, those of a variant, as SageMaker tells of all together; of jobs, those of a host.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from sagehen.api.exposition import InstanceSample
from sagehen.domain.statistics import Statistics, of_values
from sagehen.metrics import METRICS, OWN, Kind

__all__ = ["Hosts", "JobSample", "of_jobs"]

_Place = tuple[str, ...]
"""A metric's name, endpoint, variant, instance."""
_Recorded = tuple[str, dict[str, str], Statistics]


class JobSample(Protocol):
    """One number about one host of a training job, by SageMaker's name, as its agent tells it."""

    @property
    def name(self) -> str: ...

    @property
    def job(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def value(self) -> float: ...


class Hosts:
    """Remembers what it was told last, for what only grows."""

    def __init__(self) -> None:
        self._before: dict[_Place, float] = {}

    def samples_of(self, samples: Iterable[InstanceSample]) -> Iterator[_Recorded]:
        """Metric, dimensions by CloudWatch's names, and values: gauges, and times that came in."""
        growing: dict[_Place, float] = {}
        for one in samples:
            metric = METRICS.get(one.name)
            if metric is None:
                growing[one.name, one.endpoint, one.variant, one.instance] = one.value
            elif metric.kind is Kind.GAUGE and metric.namespace != OWN:
                yield one.name, _dimensions(one.endpoint, one.variant), of_values({one.value: 1})
        yield from self._times(growing)
        self._before = growing

    def _times(self, growing: dict[_Place, float]) -> Iterator[_Recorded]:
        for (name, *whose), now in growing.items():
            timing = name.removesuffix("Count")
            if timing == name or timing not in METRICS:
                continue
            count = self._added((name, *whose), now)
            total = self._added(
                (timing + "Sum", *whose), growing.get((timing + "Sum", *whose), 0.0)
            )
            if count > 0:
                yield timing, _dimensions(*whose[:2]), of_values({total / count: count})

    def _added(self, place: tuple[str, ...], now: float) -> float:
        """Of an instance that is new, or counts anew, all of it."""
        before = self._before.get(place, 0.0)
        return now - before if before <= now else now


def _dimensions(endpoint: str, variant: str) -> dict[str, str]:
    return {"EndpointName": endpoint, "VariantName": variant}


def of_jobs(samples: Iterable[JobSample]) -> Iterator[_Recorded]:
    """As `Hosts.samples_of`; CloudWatch's `Host` is the job's name and the host's."""
    for one in samples:
        name = "Job" + one.name
        if name in METRICS:
            yield name, {"Host": f"{one.job}/{one.host}"}, of_values({one.value: 1})
