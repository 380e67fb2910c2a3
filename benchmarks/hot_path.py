"""The processor time of a request, by process, by user and kernel, and by function.

    .venv/bin/python benchmarks/hot_path.py [--connections 64] [--seconds 6] [--functions 25]
    .venv/bin/python benchmarks/hot_path.py --before TREE      beside another checkout's server

A server with one XGBoost model, one CSV row a request, takes `connections` at once. Processor time
is what the kernel says of each process, divided by the requests. With py-spy (`pip install py-spy`,
as root) there is a second turn, with 200 samples a second of what holds the interpreter's lock: the
share of each function in it, without that of the functions it calls. The event loop's own work and
the kernel's are not in it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from frame import generator, heading, keep, options, put_under_load, row_of
from house import check, make_model
from machine import describe_machine
from sides import Failed, Side, sagehen, two_trees

SAMPLES_PER_SECOND = 200
PROFILER_START_SECONDS = 2.0
PROGRAMS = {
    "gateway": "sagehen.app.roles.gateway",
    "model server": "sagehen.containers.modelserver",
}


class Cost(NamedTuple):
    """The processor time of one process for a request."""

    user: float
    """µs"""
    kernel: float
    """µs"""
    functions: Counter[str]
    """samples by function; empty without py-spy"""

    @property
    def total(self) -> float:
        return self.user + self.kernel

    def by_function(self, most: int) -> list[tuple[str, float]]:
        """The µs in user mode of the costliest functions, by their share of the samples."""
        samples = self.functions.total()
        return [
            (name, self.user * count / samples) for name, count in self.functions.most_common(most)
        ]


def main() -> None:
    parser = options(__doc__, seconds=6, choice_of_generator=True)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--functions", type=int, default=25)
    parser.add_argument("--before", type=Path, help="a checkout to be measured beside this one")
    arguments = parser.parse_args()
    # Of two gateways each would have a part of the requests.
    os.environ["SAGEHEN_GATEWAYS"] = "1"
    with tempfile.TemporaryDirectory(prefix="sgh-") as name, ExitStack() as stack:
        folder = Path(name)
        model, rows, expected = make_model(folder)
        if arguments.before:
            before = arguments.before.resolve()
            sides = stack.enter_context(two_trees(model, folder, before))
        else:
            sides = [stack.enter_context(sagehen(model, folder, "Sagehen"))]
        parts = [
            "\n".join(
                [*heading("Processor time of a request"), *describe_machine(), generator(), ""]
            )
        ]
        for side in sides:
            check(side, rows, expected)
            put_under_load(side, rows, arguments.connections, 1.0)
            rate, costs = measure(side, rows, arguments.connections, arguments.seconds)
            parts.append(render(side.name, arguments.connections, rate, costs, arguments.functions))
    report = "\n".join(parts)
    print(report)
    if arguments.save:
        keep(report, "hot-path")


def measure(
    side: Side, rows: Sequence[str], connections: int, seconds: float
) -> tuple[float, dict[str, Cost]]:
    """Returns the requests per second, and the costs by process."""
    if side.home is None:
        raise Failed(f"{side.name} is no Sagehen.")
    processes = {name: find(side.home, program) for name, program in PROGRAMS.items()}
    before = {name: process.cpu_times() for name, process in processes.items()}
    load = put_under_load(side, rows, connections, seconds)
    now = {name: process.cpu_times() for name, process in processes.items()}
    samples = sample(side, rows, connections, seconds, processes)
    costs = {}
    for name in processes:
        user = (now[name].user - before[name].user) / load["answers"] * 1e6
        kernel = (now[name].system - before[name].system) / load["answers"] * 1e6
        costs[name] = Cost(user, kernel, samples[name])
    return load["requests_per_second"], costs


def sample(
    side: Side,
    rows: Sequence[str],
    connections: int,
    seconds: float,
    processes: dict[str, psutil.Process],
) -> dict[str, Counter[str]]:
    """Puts the side under load once more, as the profiler slows it down."""
    with tempfile.TemporaryDirectory(prefix="sgh-") as folder, ExitStack() as stack:
        samples = {
            name: stack.enter_context(sampled(process.pid, Path(folder) / name, seconds))
            for name, process in processes.items()
        }
        put_under_load(side, rows, connections, seconds + PROFILER_START_SECONDS)
    return samples


def find(home: Path, program: str) -> psutil.Process:
    for process in psutil.process_iter():
        try:
            if program not in process.cmdline():
                continue
            files = [mapped.path for mapped in process.memory_maps()]
            if any(str(home) in text for text in (*files, *process.environ().values())):
                return process
        except psutil.Error:
            continue
    raise Failed(f"No process of {program} is there.")


@contextmanager
def sampled(pid: int, file: Path, seconds: float) -> Iterator[Counter[str]]:
    """Yields a counter that has the samples of each function when the block has ended."""
    samples: Counter[str] = Counter()
    profiler = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if profiler is None:
        yield samples
        return
    words = [profiler, "record", "--pid", str(pid), "--format", "raw", "--output", str(file)]
    words += ["--rate", str(SAMPLES_PER_SECOND), "--duration", str(max(1, int(seconds))), "--gil"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        yield samples
        running.wait()
    for line in file.read_text().splitlines() if file.exists() else ():
        stack, _, count = line.rpartition(" ")
        samples[short(stack.rpartition(";")[2])] += int(count)


def short(frame: str) -> str:
    """`name (path:line)` without line and the path of the installation."""
    name, _, where = frame.partition(" (")
    path = where.rpartition(":")[0] or where.rstrip(")")
    return f"{name} ({path.rpartition('src/sagehen/')[2].rpartition('site-packages/')[2]})"


def render(side: str, connections: int, rate: float, costs: dict[str, Cost], functions: int) -> str:
    lines = [
        f"## {side}: {connections} connections, {rate:.0f} requests/s",
        "",
        "| process | µs a request | in user mode | in the kernel |",
        "|---|---|---|---|",
    ]
    for name, cost in costs.items():
        numbers = (f"{number:.1f}" for number in (cost.total, cost.user, cost.kernel))
        lines.append(row_of((name, *numbers)))
    for name, cost in costs.items():
        if cost.functions:
            lines += ["", f"| {name}: function | µs |", "|---|---|"]
            lines += [row_of((each, f"{us:.1f}")) for each, us in cost.by_function(functions)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
