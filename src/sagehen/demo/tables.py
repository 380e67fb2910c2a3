"""The two tables that the demo prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from rich.table import Column, Table

from sagehen.demo.deployment import INSTANCE_COUNT
from sagehen.demo.figures import EndpointFigures
from sagehen.demo.savings import PRICE_SOURCE, monthly_usd

__all__ = ["CohortLine", "cohort_table", "summary_table"]

_MIB = 2**20


@dataclass(frozen=True)
class CohortLine:
    """One cohort's model: the endpoint's answers for patients that it was not trained on."""

    target: str
    trained_on: int
    held_out: int
    mean_error: float
    baseline_error: float
    milliseconds: float


def cohort_table(lines: Sequence[CohortLine]) -> Table:
    """Errors are mean absolute ones."""
    table = Table(
        title="Predicting how far diabetes goes in a year, for patients held out of the training",
        caption="error: the mean absolute error of the endpoint's answers (diabetes goes 25 to 346 "
        "far); average: the error of always answering the training patients' average",
    )
    table.add_column("target model", no_wrap=True)
    for name in ("train", "held out", "error", "average", "cold ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in (*lines, _together(lines)):
        table.add_row(
            line.target,
            str(line.trained_on),
            str(line.held_out),
            f"{line.mean_error:.1f}",
            f"{line.baseline_error:.1f}",
            f"{line.milliseconds:.1f}",
        )
    return table


def _together(lines: Sequence[CohortLine]) -> CohortLine:
    held_out = sum(line.held_out for line in lines)
    return CohortLine(
        target="all",
        trained_on=sum(line.trained_on for line in lines),
        held_out=held_out,
        mean_error=sum(line.mean_error * line.held_out for line in lines) / held_out,
        baseline_error=sum(line.baseline_error * line.held_out for line in lines) / held_out,
        milliseconds=median(line.milliseconds for line in lines),
    )


def summary_table(
    models: int, figures: EndpointFigures, cold: Sequence[float], warm: Sequence[float]
) -> Table:
    """`cold` and `warm` are milliseconds, as the client waited."""
    many, one = monthly_usd(models), monthly_usd(1)
    table = Table(
        "",
        Column(justify="right"),
        title=f"One endpoint, {INSTANCE_COUNT} instances, {models} models",
        show_header=False,
        caption=PRICE_SOURCE,
    )
    table.add_row("models loaded", f"{figures.models_loaded} of {models}")
    table.add_row(
        "cache hit ratio",
        f"{figures.hit_ratio:.1%} ({figures.cache_hits} of {figures.cache_lookups} requests)",
    )
    table.add_row("memory, both instances", f"{figures.memory_bytes / _MIB:.0f} MiB")
    table.add_row("first call of a model, p50", f"{median(cold):.1f} ms")
    table.add_row("later calls, p50 / p90", f"{median(warm):.1f} / {_p90(warm):.1f} ms")
    table.add_row(f"{models} endpoints on AWS, a month", f"{many:,.2f} USD")
    table.add_row("1 multi-model endpoint on AWS, a month", f"{one:,.2f} USD")
    table.add_row("saved on AWS, a month", f"{many - one:,.2f} USD ({1 - one / many:.0%})")
    table.add_row("to pay for Sagehen", "nothing")
    return table


def _p90(values: Sequence[float]) -> float:
    return quantiles(values, n=10)[-1]
