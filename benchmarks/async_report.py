"""Prints the measurements of async_inference.py as tables, and whether they meet the targets."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from async_backlog import AT_ONCE, STEPS, Level
from frame import heading, row_of
from machine import describe_machine
from other_load import OtherLoad
from peer_results import Result, verdict

CONNECTIONS = (1, 8, 64)
ENQUEUES_PER_SECOND = 2000
MAX_ROWS = 1_000_000
DISK_MIB = 1e9 / 2**20
MEMORY_MIB = 200e6 / 2**20
FLAT_TIMES = 1.5
PACKAGES = ("sagehen", "uvloop", "httptools", "sqlalchemy")


@dataclass
class Queue(Result):
    """The figures of one queue. For a server, the rates at which requests were enqueued, by number
    of connections."""

    durable: str = ""
    through: dict[str, list[float]] = field(default_factory=dict)
    """Requests a second, from the first task enqueued to the last answer, by kind of input."""


def render(queues: Sequence[Queue], levels: Sequence[Level], other_load: OtherLoad) -> str:
    lines = [
        *heading("Asynchronous inference"),
        *describe_machine(PACKAGES),
        other_load.describe(),
        *enqueue_table([queue for queue in queues if queue.measured]),
        *through_table([queue for queue in queues if queue.through]),
        *(backlog_table(levels) if levels else []),
        "",
        "## Targets",
        "",
        *targets(queues, levels),
        *(f"- {queue.name} failed: {queue.failure}" for queue in queues if queue.failure),
    ]
    return "\n".join([*lines, ""])


def enqueue_table(queues: Sequence[Queue]) -> list[str]:
    if not queues:
        return []
    columns = "".join(f" {count}: put in/s | p50 | p99 |" for count in CONNECTIONS)
    return [
        "",
        "## Putting requests in, nobody taking them out",
        "",
        "By the number of connections, or of the client's threads; latencies in milliseconds.",
        "",
        f"| queue | version | on disk by |{columns}",
        f"|{'---|' * (3 + 3 * len(CONNECTIONS))}",
        *(row_of([queue.name, queue.version, queue.durable, *put_in(queue)]) for queue in queues),
    ]


def put_in(queue: Queue) -> list[str]:
    cells = []
    for count in CONNECTIONS:
        cells.append(f"{queue.rate(count):,.0f}")
        cells += [f"{queue.middle(count, key):.2f}" for key in ("p50_ms", "p99_ms")]
    return cells


def through_table(queues: Sequence[Queue]) -> list[str]:
    if not queues:
        return []
    return [
        "",
        "## From the first put in to the last answer",
        "",
        "| queue | requests/s |",
        "|---|---|",
        *(
            row_of([", ".join(filter(None, (queue.name, input_kind))), f"{middle:,.0f}"])
            for queue in queues
            for input_kind, middle in middles(queue)
        ),
    ]


def middles(queue: Queue) -> list[tuple[str, float]]:
    return [(input_kind, statistics.median(rates)) for input_kind, rates in queue.through.items()]


def backlog_table(levels: Sequence[Level]) -> list[str]:
    steps = " | ".join(f"{step}, ms" for step in STEPS)
    return [
        "",
        "## As the queue grows, SQLite",
        "",
        f"Of {AT_ONCE} requests in one transaction (the size: of asking for it), its wait for the "
        "disk included, and in brackets without; memory is control's, resident, after requests "
        "came in through the gateway for a while.",
        "",
        f"| waiting | {steps} | disk, MiB | through the gateway, put in/s | memory, MiB |",
        f"|{'---|' * (4 + len(STEPS))}",
        *(row_of(level_cells(level)) for level in levels),
    ]


def level_cells(level: Level) -> list[str]:
    spent = level.milliseconds
    asked, memory = level.through_server, level.memory_mib
    return [
        f"{level.rows:,}",
        *(f"{spent[step]:.2f} ({spent[f'{step} alone']:.2f})" for step in STEPS),
        f"{level.disk_mib:,.0f}",
        f"{asked['requests_per_second']:,.0f}" if asked else "",
        f"{memory['control']:.0f}" if memory else "",
    ]


def targets(queues: Sequence[Queue], levels: Sequence[Level]) -> list[str]:
    """A line of Markdown for each that the run can tell something about."""
    ours = [queue for queue in queues if queue.key == "sagehen" and queue.measured]
    lines = [enqueue_target(queue) for queue in ours]
    if levels:
        lines += [flat(levels, step) for step in STEPS]
    if levels and levels[-1].rows >= MAX_ROWS:
        lines += size_targets(levels[0], levels[-1])
    return lines or ["- The run tells nothing about them."]


def enqueue_target(ours: Queue) -> str:
    rate = ours.rate(64)
    return verdict(
        rate >= ENQUEUES_PER_SECOND,
        f"at least {ENQUEUES_PER_SECOND:,} durable enqueues/s at 64 connections, SQLite: "
        f"{rate:,.0f}/s",
    )


def flat(levels: Sequence[Level], step: str) -> str:
    """Both with the wait for the disk, which may hide the rest, and without."""
    times = max(
        max(values) / min(values)
        for key in (step, f"{step} alone")
        for values in [[level.milliseconds[key] for level in levels]]
    )
    span = f"{levels[0].rows:,} to {levels[-1].rows:,} waiting"
    return verdict(
        times <= FLAT_TIMES, f"{step}, {span}, within {FLAT_TIMES} times: {times:.2f} times"
    )


def size_targets(first: Level, last: Level) -> list[str]:
    disk, memory = last.disk_mib, last.memory_mib["control"]
    more = memory - first.memory_mib["control"]
    return [
        verdict(disk < DISK_MIB, f"{last.rows:,} waiting below 1 GB of disk: {disk:,.0f} MiB"),
        verdict(
            memory < MEMORY_MIB,
            f"{last.rows:,} waiting below 200 MB of memory: control has {memory:.0f} MiB in all, "
            f"{more:+.0f} to {first.rows:,} waiting",
        ),
    ]
