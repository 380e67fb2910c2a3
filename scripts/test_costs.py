"""Prints what tests cost: seconds of a processor, with those of the processes that they start.

    .venv/bin/python scripts/test_costs.py [--lines N] [PYTEST'S ARGUMENTS ...]

Without arguments, all tests. Unlike the time that passes, these seconds hardly change with what
else runs on the machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = ("-m", "pytest", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
TITLES = {
    "files": "files",
    "fixtures": "set-up of shared fixtures, which the file that comes first has in its figure too",
    "tests": "tests",
    "waits": "tests that wait, also for a processor: seconds of a clock beyond those above",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=40, help="the longest list printed")
    given, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "costs.json")
        command = [sys.executable, *RUN, f"--costs={path}", *arguments]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if path.exists():
            print_costs(json.loads(path.read_text()), given.lines)
    return status


def print_costs(costs: Mapping[str, Mapping[str, float]], lines: int) -> None:
    tests = Counter(name.partition("::")[0] for name in costs["tests"])
    print(
        f"\n{sum(costs['files'].values()):.0f} s in {tests.total()} tests of {len(tests)} files, "
        f"{sum(costs['servers'].values()):.0f} starts of servers"
    )
    for kind, title in TITLES.items():
        print(f"\n{title}")
        dearest = sorted(costs[kind].items(), key=lambda named: -named[1])
        for name, seconds in dearest[:lines]:
            count = f"  ({tests[name]} tests)" if name in tests else ""
            print(f"{seconds:8.2f} s  {name}{count}")


if __name__ == "__main__":
    sys.exit(main())
