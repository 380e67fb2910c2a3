"""The cost of an idle server: memory, processor time, syncs and wake-ups.

    python3 benchmarks/idle.py [--endpoints 0,1,5] [--seconds 60] [--before ENV] [--save]

One server is started, rests, and is measured; then with one XGBoost endpoint, and with five. Syncs
are counted by strace (where it is installed) in a span of its own, as strace itself takes time.
With `--before`, an environment that has another version, its server is measured first. It must be
an environment of its own: instances take their code from the one that they are started in.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from frame import heading, keep, numbers, options, row_of
from house import make_model
from inside import Inside
from machine import describe_machine
from other_load import foreign_seconds
from peer_results import verdict
from sides import TOOLS, Server, deploy, server

SETTLE_SECONDS = 30.0
"""after a start or a deployment, until its work has ended"""
SYNC_CALLS = "fsync,fdatasync,msync,sync_file_range"
TICKS = os.sysconf("SC_CLK_TCK")
MAX_CPU_PERCENT = 0.5
MAX_SYNCS = 0.1
MAX_PSS_MIB = 150
INSTANCES = "instances"


@dataclass(frozen=True)
class Usage:
    """Resources used since each process began; memory is the present one."""

    processes: int
    cpu_seconds: float
    wakeups: int
    """Voluntary context switches: each is a wait that ended."""
    written_bytes: int
    pss_mib: float


@dataclass(frozen=True)
class Idle:
    """Measurements of one role over a while, or of all together."""

    role: str
    processes: int
    pss_mib: float
    cpu_percent: float
    wakeups: float
    written_bytes: float
    """These two a second."""


@dataclass(frozen=True)
class Result:
    side: str
    endpoints: int
    roles: list[Idle]
    syncs: float | None
    """A second; None where strace is not installed."""
    others_cores: float

    @property
    def all(self) -> Idle:
        return next(usage for usage in self.roles if usage.role == ALL)


ALL = "all"


def main() -> None:
    arguments = parse_arguments()
    sides = [("now", TOOLS)]
    if arguments.before is not None:
        sides.insert(0, ("before", arguments.before / "bin"))
    results = [
        result
        for side, tools in sides
        for result in measure_side(side, tools, arguments.endpoints, arguments.seconds)
    ]
    report = render(results, arguments.seconds)
    print(report)
    if arguments.save:
        keep(report, "idle")


def parse_arguments() -> argparse.Namespace:
    parser = options(__doc__, seconds=60)
    parser.add_argument("--endpoints", type=numbers, default=[0, 1, 5])
    parser.add_argument("--before", type=Path, help="an environment with another version")
    return parser.parse_args()


def measure_side(
    side: str, tools: Path, endpoints: Sequence[int], seconds: float
) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder:
        model = make_model(Path(folder)).model
        with server(Path(folder), tools) as running:
            deployed = 0
            for target in endpoints:
                for number in range(deployed, target):
                    deploy(model, running, name=f"house-{number}")
                deployed = max(deployed, target)
                time.sleep(SETTLE_SECONDS)
                result = measure(side, deployed, running, seconds)
                print(row_of(cells(result)), file=sys.stderr)
                yield result


def measure(side: str, endpoints: int, running: Server, seconds: float) -> Result:
    foreign = foreign_seconds()
    before = usage_by_role(running)
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    after = usage_by_role(running)
    roles = [idle(role, before[role], after[role], took) for role in after if role in before]
    other_cores = (foreign_seconds() - foreign) / took
    return Result(side, endpoints, roles, syncs(running, seconds), max(0.0, other_cores))


def idle(role: str, before: Usage, after: Usage, seconds: float) -> Idle:
    return Idle(
        role=role,
        processes=after.processes,
        pss_mib=after.pss_mib,
        cpu_percent=100 * (after.cpu_seconds - before.cpu_seconds) / seconds,
        wakeups=(after.wakeups - before.wakeups) / seconds,
        written_bytes=(after.written_bytes - before.written_bytes) / seconds,
    )


def usage_by_role(running: Server) -> dict[str, Usage]:
    """Returns a row for each role, one for all instances, and one for everything."""
    inside = Inside(running)
    by_role = defaultdict(list)
    for role, pid in (
        *inside.roles().items(),
        *((INSTANCES, instance_pid) for instance_pid in instances(inside)),
    ):
        usage = usage_of(pid)
        by_role[role].append(usage)
        by_role[ALL].append(usage)
    return {role: total_usage(usages) for role, usages in by_role.items()}


def instances(inside: Inside) -> list[int]:
    return list(inside.instances().values())


def total_usage(usages: Sequence[Usage]) -> Usage:
    return Usage(
        processes=sum(usage.processes for usage in usages),
        cpu_seconds=sum(usage.cpu_seconds for usage in usages),
        wakeups=sum(usage.wakeups for usage in usages),
        written_bytes=sum(usage.written_bytes for usage in usages),
        pss_mib=sum(usage.pss_mib for usage in usages),
    )


def usage_of(pid: int) -> Usage:
    folder = Path(f"/proc/{pid}")
    # After the name, which may have blanks and brackets in it.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    wakeups = sum(
        number(task / "status", "voluntary_ctxt_switches") for task in folder.glob("task/*")
    )
    return Usage(
        processes=1,
        cpu_seconds=(user + system) / TICKS,
        wakeups=wakeups,
        written_bytes=number(folder / "io", "wchar"),
        pss_mib=number(folder / "smaps_rollup", "Pss") / 1024,
    )


def number(path: Path, name: str) -> int:
    """The number on the line of that name in a file of /proc; 0 where the thread has ended."""
    try:
        match = re.search(rf"^{name}:\s+(\d+)", path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def syncs(running: Server, seconds: float) -> float | None:
    """Returns the syncs a second of the server's processes."""
    if shutil.which("strace") is None:
        return None
    inside = Inside(running)
    pids = (*inside.roles().values(), *instances(inside))
    with tempfile.NamedTemporaryFile("r") as log:
        command = ["strace", "-f", "-qq", "-e", f"trace={SYNC_CALLS}", "-e", "signal=none"]
        command += ["-o", log.name, *(f"--attach={pid}" for pid in pids)]
        tracing = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        tracing.send_signal(signal.SIGINT)
        tracing.wait()
        # A call that waits is written in two lines: where it begins, and where it is resumed.
        calls = [line for line in log if "resumed>" not in line and "(" in line]
    return len(calls) / seconds


def render(results: Sequence[Result], seconds: float) -> str:
    busiest = max(result.others_cores for result in results)
    columns = "PSS MiB | CPU % of a core | wake-ups/s | written B/s | syncs/s"
    lines = [
        *heading("A server at rest"),
        *describe_machine(load=False),
        f"- Other processes used up to {busiest:.2f} cores meanwhile.",
        f"- Over {seconds:.0f} s, {SETTLE_SECONDS:.0f} s after the last deployment; syncs over as "
        "long again.",
        "",
        f"| side | endpoints | processes | {columns} |",
        "|---|---|---|---|---|---|---|---|",
        *(row_of(cells(result)) for result in results),
        "",
        "## By role",
        "",
        "| side | endpoints | role | PSS MiB | CPU % of a core | wake-ups/s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        row_of(
            [
                result.side,
                str(result.endpoints),
                f"{role.role}" if role.processes == 1 else f"{role.role} ({role.processes})",
                f"{role.pss_mib:.0f}",
                f"{role.cpu_percent:.2f}",
                f"{role.wakeups:.1f}",
            ]
        )
        for result in results
        for role in result.roles
        if role.role != ALL
    ]
    return "\n".join([*lines, "", "## Targets", "", *targets(results), ""])


def cells(result: Result) -> list[str]:
    whole = result.all
    return [
        result.side,
        str(result.endpoints),
        str(whole.processes),
        f"{whole.pss_mib:.0f}",
        f"{whole.cpu_percent:.2f}",
        f"{whole.wakeups:.1f}",
        f"{whole.written_bytes:,.0f}",
        "not counted" if result.syncs is None else f"{result.syncs:.2f}",
    ]


def targets(results: Sequence[Result]) -> list[str]:
    """for a server without endpoints"""
    bare = next(
        (result for result in results if result.side == "now" and result.endpoints == 0), None
    )
    if bare is None:
        return ["- Not measured without endpoints."]
    whole = bare.all
    lines = [
        verdict(
            whole.cpu_percent <= MAX_CPU_PERCENT,
            f"at most {MAX_CPU_PERCENT} % of a core: {whole.cpu_percent:.2f} %",
        ),
        verdict(
            whole.pss_mib <= MAX_PSS_MIB, f"at most {MAX_PSS_MIB} MiB: {whole.pss_mib:.0f} MiB"
        ),
    ]
    if bare.syncs is not None:
        lines.append(
            verdict(
                bare.syncs <= MAX_SYNCS, f"at most {MAX_SYNCS} syncs a second: {bare.syncs:.2f}"
            )
        )
    return lines


if __name__ == "__main__":
    main()
