"""What the server says about an endpoint, read from its Prometheus page."""

import time
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["EndpointFigures", "fetch_when_counted", "read_figures"]

# Gateways report what they counted once a second.
_LONGEST_WAIT_SECONDS = 30
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class EndpointFigures:
    """Sums over an endpoint's instances since it was created."""

    models_loaded: int
    cache_hits: int
    cache_lookups: int
    memory_bytes: int

    @property
    def hit_ratio(self) -> float:
        """The share of requests that found their model loaded; 0 before the first."""
        return self.cache_hits / self.cache_lookups if self.cache_lookups else 0.0


def fetch_when_counted(url: str, endpoint_name: str, lookups: int) -> EndpointFigures:
    """The figures, once the server has counted `lookups` requests, or what it has after 30 s."""
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while True:
        figures = read_figures(_fetch(f"{url}/_sagehen/metrics"), endpoint_name)
        if figures.cache_lookups >= lookups or time.monotonic() > deadline:
            return figures
        time.sleep(_POLL_SECONDS)


def read_figures(exposition: str, endpoint_name: str) -> EndpointFigures:
    """The figures of one endpoint in a Prometheus text; a sample that is missing counts as 0."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.labels.get("endpoint") == endpoint_name:
                sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return EndpointFigures(
        models_loaded=round(sums.get("sagehen_loaded_model_count", 0)),
        cache_hits=round(sums.get("sagehen_model_cache_hits_total", 0)),
        cache_lookups=round(sums.get("sagehen_model_cache_lookups_total", 0)),
        memory_bytes=round(sums.get("sagehen_instance_memory_bytes", 0)),
    )


def _fetch(url: str) -> str:
    # No proxy: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return str(answer.read().decode())
