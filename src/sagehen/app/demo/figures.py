"""Reads the endpoint's metrics, computes AWS's prices and renders tables."""

import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from prometheus_client.parser import text_string_to_metric_families
from rich import box
from rich.table import Column, Table

from sagehen.app.demo.deployment import INSTANCE_COUNT

__all__ = [
    "PRICE_SOURCE",
    "CohortResult",
    "EndpointFigures",
    "cohort_table",
    "fetch_when_counted",
    "monthly_usd",
    "read_figures",
    "summary_table",
]

# Gateways report once a second.
_LONGEST_WAIT_SECONDS = 30
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class EndpointFigures:
    """Sums over an endpoint's instances."""

    models_loaded: int
    cache_hits: int
    cache_lookups: int
    memory_bytes: int

    @property
    def hit_ratio(self) -> float:
        """The share of requests whose model was loaded; 0 before the first."""
        return self.cache_hits / self.cache_lookups if self.cache_lookups else 0.0


def fetch_when_counted(url: str, endpoint_name: str, lookups: int) -> EndpointFigures:
    """Returns figures once `lookups` requests are counted, or after 30 s."""
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while True:
        figures = read_figures(_fetch(f"{url}/_sagehen/metrics"), endpoint_name)
        if figures.cache_lookups >= lookups or time.monotonic() > deadline:
            return figures
        time.sleep(_POLL_SECONDS)


def read_figures(exposition: str, endpoint_name: str) -> EndpointFigures:
    """Reads an endpoint's figures; missing samples count as 0."""
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
    # no proxy: the server is local
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return str(answer.read().decode())


_USD_PER_INSTANCE_HOUR = 0.119
_INSTANCES_PER_ENDPOINT = 2
_HOURS_PER_MONTH = 720

PRICE_SOURCE = (
    "USD: what AWS would charge for hosting these models there. You do not pay it here. "
    f"An endpoint is {_INSTANCES_PER_ENDPOINT} × ml.c5.large × {_HOURS_PER_MONTH} h × "
    f"{_USD_PER_INSTANCE_HOUR} USD."
)


def monthly_usd(endpoints: int) -> float:
    """Prices endpoints of two ml.c5.large: 1000 cost 171,360 USD a month."""
    return endpoints * _INSTANCES_PER_ENDPOINT * _HOURS_PER_MONTH * _USD_PER_INSTANCE_HOUR


_MIB = 2**20


@dataclass(frozen=True)
class CohortResult:
    """Results of one cohort's model."""

    target: str
    trained_on: int
    held_out: int
    mean_error: float
    baseline_error: float
    milliseconds: float


def cohort_table(results: Sequence[CohortResult]) -> Table:
    table = Table(
        title="Predicting how far diabetes goes in a year, for patients held out of the training",
        caption="error: the mean absolute error of the endpoint's answers (diabetes goes 25 to 346 "
        "far); average: the error of always answering the training patients' average",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("target model", no_wrap=True)
    for name in ("train", "held out", "error", "average", "cold ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in (*results, _overall(results)):
        table.add_row(
            result.target,
            str(result.trained_on),
            str(result.held_out),
            f"{result.mean_error:.1f}",
            f"{result.baseline_error:.1f}",
            f"{result.milliseconds:.1f}",
        )
    return table


def _overall(results: Sequence[CohortResult]) -> CohortResult:
    held_out = sum(result.held_out for result in results)
    return CohortResult(
        target="all",
        trained_on=sum(result.trained_on for result in results),
        held_out=held_out,
        mean_error=sum(result.mean_error * result.held_out for result in results) / held_out,
        baseline_error=sum(result.baseline_error * result.held_out for result in results)
        / held_out,
        milliseconds=median(result.milliseconds for result in results),
    )


def summary_table(
    models: int, figures: EndpointFigures, cold: Sequence[float], warm: Sequence[float]
) -> Table:
    """Takes milliseconds, as the client waited."""
    separate_usd, shared_usd = monthly_usd(models), monthly_usd(1)
    table = Table(
        "",
        Column(justify="right"),
        title=f"One endpoint, {INSTANCE_COUNT} instances, {models} models",
        show_header=False,
        caption=PRICE_SOURCE,
        box=box.SIMPLE_HEAD,
    )
    table.add_row("models loaded", f"{figures.models_loaded} of {models}")
    table.add_row(
        "cache hit ratio",
        f"{figures.hit_ratio:.1%} ({figures.cache_hits} of {figures.cache_lookups} requests)",
    )
    table.add_row("memory, both instances", f"{figures.memory_bytes / _MIB:.0f} MiB")
    table.add_row("first call of a model, p50", f"{median(cold):.1f} ms")
    table.add_row("later calls, p50 / p90", f"{median(warm):.1f} / {_p90(warm):.1f} ms")
    table.add_row(f"{models} endpoints on AWS, a month", f"{separate_usd:,.2f} USD")
    table.add_row("1 multi-model endpoint on AWS, a month", f"{shared_usd:,.2f} USD")
    table.add_row(
        "saved on AWS, a month",
        f"{separate_usd - shared_usd:,.2f} USD ({1 - shared_usd / separate_usd:.0%})",
    )
    table.add_row("to pay for Sagehen", "nothing")
    return table


def _p90(values: Sequence[float]) -> float:
    return quantiles(values, n=10)[-1]
