"""Describes the machine of a measurement: without it, a number means nothing."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("sagehen", "xgboost-cpu", "fastapi", "uvicorn", "uvloop", "httptools")


def describe_machine(packages: Sequence[str] = PACKAGES, load: bool = True) -> list[str]:
    """Lines of Markdown; with `load`, that it came from the same machine."""
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    lines = [
        f"- {cpu_model()}, {len(os.sched_getaffinity(0))} cores; Linux {platform.release()}",
        f"- Python {platform.python_version()}; {versions}",
    ]
    return [*lines, "- The load generator runs on the same machine."] if load else lines


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
