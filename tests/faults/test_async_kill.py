"""kill -9 of whatever works on asynchronous requests: each that got its 202 ends once."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from support.async_bench import AsyncBench, Called
from support.server import eventually

CALLERS = 4
ROUNDS = ["control", "instance", "control", "agent", "gateway"]


@pytest.fixture(scope="module")
def bench(make_server, make_deployer) -> AsyncBench:
    made = AsyncBench(make_deployer(make_server()))
    assert made.endpoint("killed")["EndpointStatus"] == "InService"
    return made


class Callers:
    """Threads that call without a pause, and keep what got its 202."""

    def __init__(self, bench: AsyncBench) -> None:
        self.accepted: list[tuple[int, Called]] = []
        self._bench = bench
        self._location = {n: bench.put(json.dumps({"number": n}).encode()) for n in range(50)}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        while not self._stop.is_set():
            for number, location in self._location.items():
                if self._stop.wait(0.05):
                    return
                try:
                    called = self._bench.call("killed", location)
                except (ClientError, BotoCoreError):
                    continue
                self.accepted.append((number, called))


def kill(bench: AsyncBench, what: str) -> None:
    """Kill one process and wait until there is another in its place."""
    pids = bench.server.pids()
    if what == "instance":
        victim = instance_pids(pids["agent"])[0]
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: victim not in instance_pids(bench.server.pids()["agent"]))
        return
    os.kill(pids[what], signal.SIGKILL)
    eventually(lambda: bench.server.pids().get(what, pids[what]) != pids[what])


def instance_pids(agent: int) -> list[int]:
    children = Path(f"/proc/{agent}/task").glob("*/children")
    return [int(pid) for listed in children for pid in listed.read_text().split()]


def test_each_accepted_request_ends_once(bench: AsyncBench) -> None:
    with Callers(bench) as callers:
        for what in ROUNDS:
            count = len(callers.accepted)
            eventually(lambda count=count: len(callers.accepted) > count + 5)
            kill(bench, what)
    assert len(callers.accepted) > 5 * len(ROUNDS)
    for number, called in callers.accepted:
        eventually(lambda called=called: called.has_ended, 60)
        output, failure = called.objects()
        if output is not None:
            assert json.loads(output["Body"]) == {"number": number}
        else:
            # Its instance was lost each time that it was sent.
            assert failure is not None
            assert b"Connection reset by peer" in failure["Body"]
        assert len(bench.notices(called)) == 1, "one id, however often it is told"
