"""The process that feeds one transform job; control starts it and speaks to it over its pipes."""

import argparse
import os
import resource
import sys

from sagehen.app.roles.common import run
from sagehen.base.processes import die_with_parent
from sagehen.base.telemetry import configure_logging
from sagehen.services.sagemaker.transform.runner.main import run_job

__all__: list[str] = []


def _start() -> tuple[int, int]:
    """Returns the descriptors of both pipes."""
    parser = argparse.ArgumentParser(prog="sagehen.app.roles.transform_runner")
    parser.add_argument("--parent", type=int)
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--memory-bytes", type=int)
    arguments = parser.parse_args()
    if arguments.memory_bytes is not None:
        limits = (arguments.memory_bytes, arguments.memory_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    if arguments.parent is not None:
        die_with_parent(arguments.parent)
    configure_logging(arguments.log_level, "transform-runner")
    # What any library prints must not stand between the messages.
    output = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    # libuv aborts when it closes a descriptor that has a standard stream's number.
    commands = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return commands, output


if __name__ == "__main__":
    run(run_job(*_start()))
