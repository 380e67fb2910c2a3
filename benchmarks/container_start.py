"""How long a container takes to start as a process, with each set of walls: in turns, in one run.

    .venv/bin/python benchmarks/container_start.py [--starts 50]

A start ends when the command runs: /bin/true, which is waited for outside of the measured time.
"""

import argparse
import asyncio
import platform
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sagehen.agent.launchers.launcher import LaunchPlan, View
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.process import ProcessLauncher
from sagehen.agent.launchers.wall_probe import describe_missing, find_walls
from sagehen.agent.launchers.walls import NO_WALLS, Wall, Walls

SIDES: dict[str, Walls] = {
    "no walls": NO_WALLS,
    "files": frozenset({Wall.FILES}),
    "files, etc": frozenset({Wall.FILES, Wall.ETC}),
    "all": frozenset(Wall),
}


async def start_once(home: Path, walls: Walls) -> tuple[float, float]:
    """Returns milliseconds until the start, and of processor time of all its processes."""
    with tempfile.TemporaryDirectory(dir=home) as name:
        own = Path(name)
        (own / "ml").mkdir()
        plan = LaunchPlan(
            instance_id="i-1",
            name="primary",
            command=("true",),
            environment={"PATH": "/usr/bin:/bin"},
            folder=own,
            log=own / "log",
            log_bytes=2**20,
            base=own / "ml",
            own_folder=own,
            view=View(hidden=(home / "state.db", own), emptied=(Path.home() / ".ssh",)),
        )
        began, before = time.perf_counter(), processor_seconds()
        process = await ProcessLauncher(walls=walls).start(plan)
        took = time.perf_counter() - began
        await process.wait()
    return took * 1000, (processor_seconds() - before) * 1000


def processor_seconds() -> float:
    """Processor time of children that were waited for, which depends less on the load."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


async def measure(starts: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        missing = await find_walls(frozenset(Wall), home, Orphans())
        for line in describe_missing(missing):
            print(f"missing: {line}")
        times: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for _ in range(starts):
            for side, walls in SIDES.items():
                if walls.isdisjoint(missing):
                    times[side].append(await start_once(home, walls))
    print(f"Python {platform.python_version()}, Linux {platform.release()}, {starts} starts each")
    print(f"{'walls':12} {'least ms':>9} {'median ms':>10} {'p90 ms':>8} {'median CPU ms':>14}")
    for side, took in times.items():
        if took:
            waited, processor = (sorted(column) for column in zip(*took, strict=True))
            p90 = waited[int(len(waited) * 0.9)]
            print(
                f"{side:12} {waited[0]:9.1f} {statistics.median(waited):10.1f} {p90:8.1f} "
                f"{statistics.median(processor):14.1f}"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=50)
    asyncio.run(measure(parser.parse_args().starts))
    sys.exit(0)
