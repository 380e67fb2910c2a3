"""Kills random machines of a cluster of three, again and again, while it does everything.

    .venv/bin/python benchmarks/machine_kills.py [--rounds 50] [--seed N] [--back-seconds 5]
        [--save]

It runs tests/faults/test_machine_kills.py, whose exit status it has: 1 when anything was lost, done
twice or away for longer than `--back-seconds`. It needs the group dev, and PostgreSQL.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import describe_machine

HERE = Path(__file__).parent
TEST = "tests/faults/test_machine_kills.py"


def main() -> int:
    arguments = read_arguments()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.md"
        environment = {
            "MACHINE_KILL_ROUNDS": str(arguments.rounds),
            "MACHINE_KILL_SEED": str(arguments.seed),
            "MACHINE_KILL_BACK_SECONDS": str(arguments.back_seconds),
            "MACHINE_KILL_REPORT": str(report),
        }
        command = [sys.executable, "-m", "pytest", TEST, "-s", "-x"]
        status = subprocess.run(command, cwd=HERE.parent, env=os.environ | environment).returncode
        if not report.exists():
            return status or 1
        lines = [
            f"# Machines of a cluster that are killed, {datetime.date.today().isoformat()}",
            "",
            *describe_machine(("sagehen", "ray", "uvloop")),
            f"- Load average before: {load:.2f}.",
            report.read_text(),
        ]
    if arguments.save:
        name = f"{datetime.date.today().isoformat()}-machine-kills.md"
        (HERE / "results" / name).write_text("\n".join(lines))
    return status


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="0: any")
    parser.add_argument("--back-seconds", type=float, default=5.0, help="for synchronous requests")
    parser.add_argument("--save", action="store_true", help="keep the report in results/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
