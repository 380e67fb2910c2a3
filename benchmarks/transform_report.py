"""Prints the measurements of batch_transform.py as tables, and whether they meet the targets."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from frame import heading, row_of
from machine import describe_machine
from other_load import OtherLoad
from peer_results import verdict
from transform_jobs import Times
from transform_watch import Sample, Watch

LOOP_SHARE = 0.9
"""the aim against a loop in one process"""
FLAT_TIMES = 1.15
"""the aim for memory in the second half of a job, against that in the first"""
BUSY_SHARE = 0.5
"""the aim for the processor time of the idlest instance, against that of the busiest"""
SAME_TIMES = 1.15
"""the aim for the cost of an object among many, against that among few"""
ROLES = ("runner", "control", "gateway", "agent", "model server")
MOMENTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""shares of a job's time at which memory is shown"""
PACKAGES = ("sagehen", "xgboost-cpu", "numpy", "uvloop")


@dataclass
class Run:
    """The measurements of one side over the same rows."""

    key: str
    name: str
    rival: str = ""
    """of a loop: the key of the side of Sagehen's that it is compared with"""
    version: str = ""
    times: list[Times] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    """of a server; that of its ended processes too"""
    failure: str = ""

    @property
    def work(self) -> float:
        return statistics.median(times.work for times in self.times)

    @property
    def whole(self) -> float:
        return statistics.median(times.whole for times in self.times)


@dataclass(frozen=True)
class StrategyRun:
    strategy: str
    rows: int
    times: Times


@dataclass(frozen=True)
class Large:
    """One large object on several instances."""

    size: int
    rows: int
    instances: int
    times: Times
    watch: Watch


@dataclass(frozen=True)
class ObjectsCost:
    """A job with so many small objects."""

    objects: int
    times: Times
    processor_seconds: float
    watch: Watch


def render(
    runs: Sequence[Run],
    rows: int,
    strategies: Sequence[StrategyRun],
    large: Large | None,
    costs: Sequence[ObjectsCost],
    other_load: OtherLoad,
) -> str:
    measured = [run for run in runs if run.times]
    lines = [
        *heading("Batch transform"),
        *describe_machine(PACKAGES, load=False),
        other_load.describe(),
        *(rows_table(measured, rows) if measured else []),
        *(strategies_table(strategies) if strategies else []),
        *(large_tables(large) if large else []),
        *(objects_table(costs) if costs else []),
        "",
        "## Targets",
        "",
        *rows_targets(measured),
        *(large_targets(large) if large else []),
        *objects_targets(costs),
        *(f"- {run.name} failed: {run.failure}" for run in runs if run.failure),
    ]
    return "\n".join([*lines, ""])


def rows_table(runs: Sequence[Run], rows: int) -> list[str]:
    used = [
        f"{run.name}: {statistics.median(run.processor_seconds):.1f} s of processor time a job, "
        "all processes."
        for run in runs
        if run.processor_seconds
    ]
    return [
        "",
        f"## {rows:,} rows of CSV",
        "",
        "Work: without the start of processes, imports and clusters; for Sagehen from "
        "TransformStartTime to TransformEndTime. Whole: with them; for Sagehen from "
        "CreateTransformJob to when DescribeTransformJob says Completed. Medians.",
        "",
        "| side | version | work, s | rows/s | whole, s | rows/s |",
        "|---|---|---|---|---|---|",
        *(
            row_of(
                [
                    run.name,
                    run.version,
                    f"{run.work:.2f}",
                    f"{rows / run.work:,.0f}",
                    f"{run.whole:.2f}",
                    f"{rows / run.whole:,.0f}",
                ]
            )
            for run in runs
        ),
        *(["", *used] if used else []),
    ]


def rows_targets(runs: Sequence[Run]) -> list[str]:
    by_key = {run.key: run for run in runs}
    lines = [near(by_key[run.rival], run) for run in runs if run.rival in by_key]
    if ours := by_key.get("sagehen"):
        peers = [run for run in runs if not run.rival and "sagehen" not in run.key]
        lines += [ahead(ours, run) for run in peers]
    return lines


def near(ours: Run, loop: Run) -> str:
    share, whole = loop.work / ours.work, loop.whole / ours.whole
    return verdict(
        share >= LOOP_SHARE,
        f"{ours.name}, at least {LOOP_SHARE:.0%} of the {loop.name}: {share:.0%} of its rows/s "
        f"({whole:.0%} with the start of processes)",
    )


def ahead(ours: Run, peer: Run) -> str:
    return verdict(
        ours.work < peer.work and ours.whole < peer.whole,
        f"{ours.name}, ahead of {peer.name}: {peer.work / ours.work:.1f} times its "
        f"rows/s ({peer.whole / ours.whole:.1f} times with the start of processes)",
    )


def strategies_table(strategies: Sequence[StrategyRun]) -> list[str]:
    return [
        "",
        "## MultiRecord and SingleRecord, one instance",
        "",
        "| strategy | rows | work, s | rows/s |",
        "|---|---|---|---|",
        *(
            row_of(
                [
                    run.strategy,
                    f"{run.rows:,}",
                    f"{run.times.work:.2f}",
                    f"{run.rows / run.times.work:,.0f}",
                ]
            )
            for run in strategies
        ),
    ]


def large_tables(large: Large) -> list[str]:
    seconds = large.times.whole
    moments = " | ".join(f"{moment:.0%}" for moment in MOMENTS)
    return [
        "",
        f"## One object of {large.size / 1e9:.1f} GB on {large.instances} instances",
        "",
        f"{large.rows:,} rows in {large.times.work:.0f} s: {large.rows / large.times.work:,.0f} "
        "rows/s. Memory in MiB, PSS, summed over the processes of a role, at shares of the time.",
        "",
        f"| processes | {moments} | most | most, resident | processor time, s |",
        f"|{'---|' * (4 + len(MOMENTS))}",
        *(
            row_of(
                [
                    role,
                    *(
                        f"{memory_at(large.watch, role, moment * seconds):.0f}"
                        for moment in MOMENTS
                    ),
                    f"{peak(large.watch, role, 0, seconds):.0f}",
                    f"{sum(max(each.rss for each in one) for one in large.watch.of(role)):.0f}",
                    ", ".join(f"{used(one):.0f}" for one in large.watch.of(role)),
                ]
            )
            for role in ROLES
            if large.watch.of(role)
        ),
    ]


def large_targets(large: Large) -> list[str]:
    lines = []
    seconds = large.times.whole
    for role in ROLES:
        if large.watch.of(role):
            first = peak(large.watch, role, 0, seconds / 2)
            second = peak(large.watch, role, seconds / 2, seconds)
            times = second / first if first else 0.0
            lines.append(
                verdict(
                    times <= FLAT_TIMES,
                    f"one large object, memory of {role} in the second half at most {FLAT_TIMES} "
                    f"times that in the first: {second:.0f} and {first:.0f} MiB",
                )
            )
    busy = [used(samples) for samples in large.watch.of("model server")]
    is_busy = len(busy) >= large.instances and min(busy) >= BUSY_SHARE * max(busy)
    text = f"all {large.instances} instances busy: {', '.join(f'{each:.0f}' for each in busy)} s"
    return [*lines, verdict(is_busy, text)]


def memory_at(watch: Watch, role: str, second: float) -> float:
    """Returns the PSS of a role's processes, as of the last look before that."""
    total = 0.0
    for samples in watch.of(role):
        before = [sample for sample in samples if sample.seconds <= second]
        if before and samples[-1].seconds >= second - 2:
            total += before[-1].pss
    return total


def peak(watch: Watch, role: str, start: float, end: float) -> float:
    """Returns the most that each process of a role had meanwhile, added."""
    total = 0.0
    for samples in watch.of(role):
        pss = [sample.pss for sample in samples if start <= sample.seconds <= end]
        total += max(pss, default=0.0)
    return total


def used(samples: Sequence[Sample]) -> float:
    return samples[-1].processor - samples[0].processor


def objects_table(costs: Sequence[ObjectsCost]) -> list[str]:
    base = costs[0]
    return [
        "",
        "## Small objects, one instance",
        "",
        "An object of ten rows costs what the job takes beyond one of a single object, by time and "
        "by processor time of all processes; memory in MiB, PSS, at most.",
        "",
        "| objects | work, s | an object, ms | its processor time, ms | runner | control |",
        "|---|---|---|---|---|---|",
        *(
            row_of(
                [
                    f"{cost.objects:,}",
                    f"{cost.times.work:.1f}",
                    *(f"{each:.2f}" for each in costs_of(cost, base)),
                    *(
                        f"{peak(cost.watch, role, 0, cost.times.whole):.0f}"
                        for role in ("runner", "control")
                    ),
                ]
            )
            for cost in costs
        ),
    ]


def costs_of(cost: ObjectsCost, base: ObjectsCost) -> tuple[float, float]:
    """Returns milliseconds of time and of processor time for each object."""
    more = max(cost.objects - base.objects, 1)
    time = (cost.times.work - base.times.work) / more
    processor = (cost.processor_seconds - base.processor_seconds) / more
    return time * 1000, processor * 1000


def objects_targets(costs: Sequence[ObjectsCost]) -> list[str]:
    if len(costs) < 3:
        return []
    base, few, many = costs[0], costs[1], costs[-1]
    pairs = zip(("time", "processor time"), costs_of(few, base), costs_of(many, base), strict=True)
    return [
        verdict(
            of_many <= SAME_TIMES * of_few,
            f"{kind} of an object among {many.objects:,} at most {SAME_TIMES} times that among "
            f"{few.objects:,}: {of_many:.2f} and {of_few:.2f} ms",
        )
        for kind, of_few, of_many in pairs
    ]
