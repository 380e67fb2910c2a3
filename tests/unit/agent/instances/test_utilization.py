"""How much an instance uses of what it may."""

import shutil
import subprocess
import sys

import pytest

from sagehen.agent.instances.limits import NO_LIMITS, Limits, Utilization
from sagehen.agent.instances.process_tree import machine_memory_bytes, tree_cpu_seconds
from support.clock import HandClock


@pytest.fixture
def clock():
    return HandClock(1000.0)


def test_the_processor_is_what_was_used_since_last_asked(clock, tmp_path):
    used = Utilization(NO_LIMITS, tmp_path, clock)
    told = []
    for seconds, total in ((10, 5.0), (10, 25.0), (0.1, 26.0), (9.9, 26.0), (10, 1.0)):
        clock.seconds += seconds
        told.append(used.read(0, total)["CPUUtilization"])
    # After 0.1 s it is too soon; then a container began anew.
    assert told == [50, 200, 200, 10, 10]


def test_memory_is_a_share_of_the_instances(clock, tmp_path):
    limited = Utilization(Limits(memory_bytes=2**30), tmp_path, clock)
    assert limited.read(2**28, 0)["MemoryUtilization"] == 25
    whole = Utilization(NO_LIMITS, tmp_path, clock)
    assert whole.read(machine_memory_bytes() // 2, 0)["MemoryUtilization"] == pytest.approx(50)


def test_the_disk_is_that_of_the_home(clock, tmp_path):
    share = Utilization(NO_LIMITS, tmp_path, clock).read(0, 0)["DiskUtilization"]
    usage = shutil.disk_usage(tmp_path)
    assert share == pytest.approx(100 * usage.used / usage.total, abs=5)


BUSY = """
import os, sys, time
if os.fork() == 0:
    while time.process_time() < 0.25:
        pass
    os._exit(0)
os.wait()
print("done", flush=True)
sys.stdin.read()
"""


def test_a_trees_time_has_that_of_children_that_have_ended():
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        done = process.stdout.readline()
        used = tree_cpu_seconds(process.pid)
        process.communicate()
    assert done == b"done\n"
    assert 0.2 <= used < 5
    assert tree_cpu_seconds(process.pid) == 0
