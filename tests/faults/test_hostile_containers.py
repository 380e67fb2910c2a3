"""A container that takes all it can get hurts only itself: a neighbour keeps answering."""

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.deploy import ROLE
from support.server import eventually

CONTAINER = Path(__file__).with_name("hostile_container.py")
MEMORY_MEBIBYTES = 400
PROCESSES = 150
LOG_BYTES = 2**20
PAUSE_SECONDS = 0.02
LONGEST_ANSWER_SECONDS = 55.0
"""Of the neighbour, on a machine that has other things to do; a client gives up after 60."""
GREEDY = """
def model_fn(folder):
    kept = []
    while True:
        kept.append(bytearray(b"x") * (8 << 20))
"""


class Neighbour(threading.Thread):
    """Calls the other endpoint again and again."""

    def __init__(self, deployer) -> None:
        super().__init__()
        self._deployer = deployer
        self._ending = threading.Event()
        self.took: list[float] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._ending.wait(PAUSE_SECONDS):
            started = time.monotonic()
            try:
                answer = self._deployer.invoke("neighbour")
            except Exception as error:
                answer = repr(error)
            self.took.append(time.monotonic() - started)
            if answer != "[2.0, 4.0]":
                self.wrong.append(answer)

    def end(self) -> None:
        """After it has had a few answers."""
        eventually(lambda: len(self.took) > 5)
        self._ending.set()
        self.join()


@pytest.fixture(scope="module")
def hostile(make_server, make_deployer):
    """A server with two endpoints: `hostile` and its `neighbour`."""
    server = make_server(
        images=json.dumps({"hostile": [sys.executable, str(CONTAINER)]}),
        instance_memory_bytes=str(MEMORY_MEBIBYTES * 2**20),
        max_instance_processes=str(PROCESSES),
        container_log_bytes=str(LOG_BYTES),
    )
    deployer = make_deployer(server)
    assert deployer.endpoint("neighbour")["EndpointStatus"] == "InService"
    deployer.sagemaker.create_model(
        ModelName="hostile", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": "hostile"}
    )
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "hostile",
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    deployer.sagemaker.create_endpoint_config(
        EndpointConfigName="hostile", ProductionVariants=[variant]
    )
    deployer.sagemaker.create_endpoint(EndpointName="hostile", EndpointConfigName="hostile")
    assert deployer.settled("hostile")["EndpointStatus"] == "InService"
    return deployer


@pytest.fixture(autouse=True)
def neighbour(hostile) -> Iterator[Neighbour]:
    """Answers throughout, and in time. The other one serves when a test begins."""
    eventually(lambda: wish(hostile, "nod") == "here")
    neighbour = Neighbour(hostile)
    neighbour.start()
    yield neighbour
    neighbour.end()
    assert neighbour.wrong == []
    assert max(neighbour.took) < LONGEST_ANSWER_SECONDS


def wish(deployer, what: str) -> str:
    """What the hostile container says; empty where it ended, or had ended, before it answered."""
    runtime = deployer.runtime
    try:
        return deployer.invoke("hostile", what)
    except (runtime.exceptions.ModelError, runtime.exceptions.ServiceUnavailable):
        return ""


def ours(word: str) -> list[psutil.Process]:
    """Processes with that word in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if word in " ".join(process.cmdline()) and process.status() != "zombie":
                found.append(process)
    return found


def containers(deployer) -> list[psutil.Process]:
    """The hostile container's processes that this server has started."""
    agent = psutil.Process(deployer.server.pid("agent"))
    return [one for one in agent.children(recursive=True) if one in ours(CONTAINER.name)]


def hits(deployer, limit: str) -> float:
    """How often the hostile instance met a limit, as the metrics have it."""
    pattern = r'sagehen_instance_limit_hits_total\{endpoint="hostile",.*limit="(\w+)".*\} (\S+)'
    told = re.findall(pattern, deployer.server.get("/_sagehen/metrics").decode())
    return {name: float(count) for name, count in told}.get(limit, 0)


def test_one_that_leaks_is_ended_and_started_again(hostile, wait_until):
    before, hits_before = {one.pid for one in containers(hostile)}, hits(hostile, "memory")
    passed = f"passed the {MEMORY_MEBIBYTES} MiB of memory of its instance"
    told = []

    def says_why():
        # Half a second is waited for the agent, which may have other things to do.
        try:
            hostile.invoke("hostile", "leak")
        except hostile.runtime.exceptions.ModelError as error:
            told.append(error.response["OriginalMessage"])
            return f"Here: the container was ended because it {passed}." in told[-1]
        except hostile.runtime.exceptions.ServiceUnavailable:
            return False  # It is not back yet.

    wait_until(says_why)
    wait_until(lambda: containers(hostile) and not before & {c.pid for c in containers(hostile)})
    wait_until(lambda: hits(hostile, "memory") == hits_before + len(told))
    wait_until(lambda: passed in (hostile.server.home / "logs" / "agent.log").read_text())
    wait_until(lambda: wish(hostile, "nod") == "here")


def test_one_that_forks_without_end_does_not_get_far(hostile, wait_until):
    said = wish(hostile, "fork")
    wait_until(lambda: hits(hostile, "processes") >= 1)
    assert said != "no limit"
    # The kernel only refuses; without cgroups the container has been ended.
    wish(hostile, "crash")
    wait_until(lambda: len(containers(hostile)) == 1)
    wait_until(lambda: wish(hostile, "nod") == "here")


def test_one_that_spins_leaves_something_for_others(hostile, neighbour, wait_until):
    spinning = wish(hostile, "spin")
    assert len(ours(spinning)) == 8
    count = len(neighbour.took)
    wait_until(lambda: len(neighbour.took) > count + 20)
    wish(hostile, "crash")
    wait_until(lambda: not ours(spinning))


def test_one_that_prints_without_end_fills_two_files(hostile, wait_until):
    wait_until(lambda: bool(containers(hostile)))
    agent = psutil.Process(hostile.server.pid("agent"))
    before = agent.memory_info().rss
    wait_until(lambda: wish(hostile, "shout") == "said")
    assert agent.memory_info().rss - before < 20 * 2**20
    wait_until(lambda: hits(hostile, "log") > 50)
    wait_until(lambda: len(sizes_of_logs(hostile)) == 2)
    assert max(sizes_of_logs(hostile)) <= LOG_BYTES


def sizes_of_logs(deployer) -> list[int]:
    folder = deployer.server.home / "logs" / "endpoints" / "hostile"
    sizes = []
    for path in folder.glob("*/*/*"):
        with contextlib.suppress(FileNotFoundError):  # It was renamed just now.
            if path.suffix != ".times":
                sizes.append(path.stat().st_size)
    return sizes


def test_what_one_leaves_behind_ends_with_it(hostile, wait_until):
    said = []
    wait_until(lambda: said.append(wish(hostile, "leave")) or said[-1])
    left = said[-1].removeprefix("left ")
    wait_until(lambda: len(ours(left)) >= 2)
    wish(hostile, "crash")
    wait_until(lambda: not ours(left))


def test_one_that_takes_too_much_at_its_start_says_so(hostile):
    described = hostile.endpoint("greedy", GREEDY)
    assert described["EndpointStatus"] == "Failed"
    assert described["FailureReason"].startswith(
        "The primary container for production variant AllTraffic did not pass the ping health check"
    )
    assert f"passed the {MEMORY_MEBIBYTES} MiB of memory" in described["FailureReason"]


def test_one_is_asked_to_end_with_its_server(hostile, neighbour, wait_until):
    wait_until(lambda: wish(hostile, "nod") == "here")
    neighbour.end()
    assert hostile.server.stop() == 0
    folder = hostile.server.home / "logs" / "endpoints" / "hostile"
    (log,) = folder.glob("*/*/primary.log")
    assert log.read_text().endswith("asked to end\n")
