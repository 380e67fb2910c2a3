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
    """One cohort's model, judged on patients it was not trained on, by the endpoint's answers."""

    target: str
    trained_on: int
    held_out: int
    mean_error: float
    error_of_guessing: float
    milliseconds: float


def cohort_table(lines: Sequence[CohortLine]) -> Table:
    """The errors are mean absolute ones; "guess" is that of always saying the training mean."""
    table = Table(title="How far diabetes goes in a year: real patients, not trained on")
    table.add_column("target model", no_wrap=True)
    for name in ("trained", "held out", "error", "guess", "cold, ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in (*lines, _together(lines)):
        table.add_row(
            line.target,
            str(line.trained_on),
            str(line.held_out),
            f"{line.mean_error:.1f}",
            f"{line.error_of_guessing:.1f}",
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
        error_of_guessing=sum(line.error_of_guessing * line.held_out for line in lines) / held_out,
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
    table.add_row(f"{models} endpoints, a month", f"{many:,.2f} USD")
    table.add_row("1 endpoint, a month", f"{one:,.2f} USD")
    table.add_row(
        f"1 endpoint instead of {models} saves", f"{many - one:,.2f} USD ({1 - one / many:.0%})"
    )
    return table


def _p90(values: Sequence[float]) -> float:
    return quantiles(values, n=10)[-1]
