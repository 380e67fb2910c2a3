"""kill -9 of a gateway and of an instance under load: only what was under way there fails."""

import contextlib
import http.client
import itertools
import json
import os
import select
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from support.processes import CONTAINER_NAME, container_pid

CALLERS = 6
SCRIPT = (
    CONTAINER_NAME
    + """
import time

def model_fn(model_dir): return None

def predict_fn(number, model):
    time.sleep(0.005)
    return [number, container_name()]
"""
)
LOST = "Amazon SageMaker could not get a response from the steady endpoint."


@dataclass(frozen=True)
class Call:
    """One call and how it ended."""

    number: int
    started: float
    port: int
    """The caller's own: it tells which gateway had the call."""
    status: int | None
    """None: the connection was lost."""
    answer: bytes = b""

    @property
    def is_right(self) -> bool:
        return self.status == 200 and json.loads(self.answer)[0] == self.number

    @property
    def instance(self) -> str:
        return str(json.loads(self.answer)[1])


class Caller(threading.Thread):
    """Calls without a pause, on one connection for as long as that lives."""

    def __init__(self, load: "Load") -> None:
        super().__init__()
        self._load = load
        address = urlsplit(load.url)
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)

    def run(self) -> None:
        with contextlib.closing(self._connection):
            while not self._load.ending.is_set():
                self._load.calls.append(self._call(next(self._load.numbers)))

    def _call(self, number: int) -> Call:
        connection = self._connection
        body = json.dumps(number).encode()
        headers = self._load.signed(body)
        # Before the connection is looked at: it may end between that look and the request.
        started = time.monotonic()
        self._connect()
        port = connection.sock.getsockname()[1]
        try:
            connection.request("POST", self._load.path, body, headers)
            answer = connection.getresponse()
            return Call(number, started, port, answer.status, answer.read())
        except (OSError, http.client.HTTPException):
            connection.close()
            return Call(number, started, port, None)

    def _connect(self) -> None:
        """Not on a connection that has ended already: no SDK would use one."""
        connection = self._connection
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        if connection.sock is None:
            connection.connect()


class Load:
    """All calls of all callers, from the start of the `with` block to its end."""

    path = "/endpoints/steady/invocations"

    def __init__(self, server) -> None:
        self.url = server.url
        self._keys = Credentials(
            server.env["AWS_ACCESS_KEY_ID"], server.env["AWS_SECRET_ACCESS_KEY"]
        )
        self.numbers = itertools.count()
        self.calls: list[Call] = []
        self.ending = threading.Event()

    def signed(self, body: bytes) -> dict[str, str]:
        request = AWSRequest(
            "POST", self.url + self.path, {"Content-Type": "application/json"}, body
        )
        SigV4Auth(self._keys, "sagemaker", "us-east-1").add_auth(request)
        return dict(request.headers)

    def __enter__(self) -> "Load":
        self._callers = [Caller(self) for _ in range(CALLERS)]
        for caller in self._callers:
            caller.start()
        return self

    def __exit__(self, *_) -> None:
        self.ending.set()
        for caller in self._callers:
            caller.join()

    @property
    def failed(self) -> list[Call]:
        return [call for call in list(self.calls) if not call.is_right]

    def right_since(self, moment: float) -> list[Call]:
        return [call for call in list(self.calls) if call.started > moment and call.is_right]


@pytest.fixture(scope="module")
def steady(two_gateways):
    """Two gateways before two instances."""
    made = two_gateways.endpoint("steady", SCRIPT, InitialInstanceCount=2)
    assert made["EndpointStatus"] == "InService"
    yield two_gateways
    two_gateways.sagemaker.delete_endpoint(EndpointName="steady")


@pytest.fixture
def load(steady, wait_until):
    """Running, and every caller has had an answer."""
    with Load(steady.server) as load:
        wait_until(lambda: len(load.calls) > 20 * CALLERS)
        yield load


def kill(pid: int, wait_until) -> float:
    """kill -9; when it was over."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(pid))
    return time.monotonic()


def has_ended(pid: int) -> bool:
    """With all its threads: the last of them closes the connections."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(list((process / "task").iterdir())) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def routed(steady) -> set[tuple[str, str]]:
    """The instances that are routed, and which life of theirs it is."""
    table = json.loads((steady.server.home / "run" / "routes.json").read_bytes())
    (variant,) = table["routes"]["steady"]["variants"]
    return {(one["instance_id"], one["run_id"]) for one in variant["instances"]}


def counted(steady) -> int:
    """The gateways' cells that are not 0: no request may be in flight or waiting."""
    cells = memoryview((steady.server.home / "run" / "board").read_bytes()).cast("q")
    assert min(cells) >= 0
    return sum(cell != 0 for cell in cells)


def callers_of(pid: int) -> set[int]:
    """The ports of those that are connected to a gateway."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {one.raddr.port for one in connections if one.raddr}


def test_a_killed_gateway_loses_what_was_under_way_there(steady, load, wait_until):
    gateways = steady.server.gateway_pids()
    victim = max(gateways, key=lambda pid: len(callers_of(pid)))
    theirs = callers_of(victim)
    died_at = kill(victim, wait_until)
    wait_until(lambda: len(steady.server.gateway_pids() - {victim}) == 2)
    back_at = time.monotonic()
    wait_until(lambda: len(load.right_since(back_at)) > 20 * CALLERS)
    load.__exit__()
    for call in load.failed:
        assert (call.status, call.started < died_at, call.port in theirs) == (None, True, True)
    assert len(load.failed) <= len(theirs)
    wait_until(lambda: counted(steady) == 0)


def test_a_killed_instance_loses_what_was_under_way_there(steady, load, wait_until):
    victim = load.right_since(0)[-1].instance
    before = routed(steady)
    died_at = kill(container_pid(victim), wait_until)
    wait_until(lambda: len(routed(steady)) == 2 and routed(steady) != before)
    back_at = time.monotonic()
    wait_until(lambda: len({call.instance for call in load.right_since(back_at)}) == 2)
    load.__exit__()
    for call in load.failed:
        assert (call.status, call.started < died_at) == (424, True)
        told = json.loads(call.answer)
        assert (told["OriginalStatusCode"], told["ErrorCode"]) == (0, "INTERNAL_FAILURE_FROM_MODEL")
        assert told["OriginalMessage"].startswith(LOST)
    assert victim not in {call.instance for call in load.right_since(died_at)}
    wait_until(lambda: counted(steady) == 0)
