"""The report of a simulation: a table of changes, two plots and the cost, as lines of text."""

import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagehen.services.autoscaling.simulation import Simulation, SimulationResult

__all__ = ["plot", "report"]

PLOT_ROWS = 8
_LABEL_COLUMNS = 10
_BARS = " ▁▂▃▄▅▆▇█"


def report(simulation: "Simulation", result: "SimulationResult") -> Iterator[str]:
    columns = max(20, min(110, shutil.get_terminal_size((80, 24)).columns) - _LABEL_COLUMNS - 1)
    yield from _changes(result)
    minutes = result.minutes
    yield from ("", "Load of each minute")
    yield from plot([moment.load for moment in minutes], columns)
    yield from ("", "Running instances")
    yield from plot([float(moment.running) for moment in minutes], columns)
    yield from ("", *_costs(simulation, result))


def _changes(result: "SimulationResult") -> Iterator[str]:
    changes = [moment for moment in result.moments if moment.event is not None]
    if not changes:
        yield "Nothing was scaled."
        return
    yield f"{'Time':>8}  {'Load':>10}  {'Each':>10}  {'Running':>7}  Change"
    for moment in changes:
        hours, seconds = divmod(moment.seconds, 3600)
        time = f"{hours:d}:{seconds // 60:02d}:{seconds % 60:02d}"
        yield (
            f"{time:>8}  {moment.load:>10g}  {moment.metric:>10.4g}  {moment.running:>7d}  "
            f"{moment.event}"
        )


def _costs(simulation: "Simulation", result: "SimulationResult") -> Iterator[str]:
    hours = result.instance_seconds / 3600
    fixed = simulation.maximum * len(simulation.loads) / 60
    yield (
        f"Instance hours: {hours:.2f}; {fixed:.2f} with {simulation.maximum} instances all the "
        f"time ({hours / fixed:.0%})"
    )
    yield f"Changes of the desired count: {result.changes}"
    highest = max(moment.metric for moment in result.minutes)
    yield f"Highest load of one instance in a minute: {highest:g}"
    for policy in simulation.policies:
        target = getattr(policy.configuration, "target_value", None)
        if target is not None:
            above = sum(moment.metric > target for moment in result.minutes)
            yield (
                f"Minutes above the target {target:g} of policy {policy.name}: {above} of "
                f"{len(result.minutes)}"
            )


def plot(values: Sequence[float], columns: int) -> Iterator[str]:
    """Draws bars, each the highest of the values that share its column."""
    width = min(columns, len(values))
    bars = [
        max(values[start * len(values) // width : (start + 1) * len(values) // width])
        for start in range(width)
    ]
    top = max(bars) or 1.0
    eighths = [round(bar / top * PLOT_ROWS * 8) for bar in bars]
    for row in reversed(range(PLOT_ROWS)):
        label = f"{top:g}" if row == PLOT_ROWS - 1 else "0" if row == 0 else ""
        cells = "".join(_BARS[min(8, max(0, eighth - 8 * row))] for eighth in eighths)
        yield f"{label:>{_LABEL_COLUMNS}.{_LABEL_COLUMNS}} {cells}".rstrip()
