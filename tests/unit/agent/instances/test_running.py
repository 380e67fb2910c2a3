"""A started container, by a process that only the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sagehen.agent.instances import running as module
from sagehen.agent.instances.container_plan import ContainerPaths
from sagehen.agent.instances.running import RunningContainer
from sagehen.agent.node import Pace
from sagehen.base.container_exits import WILL_NOT_LOAD
from sagehen.base.errors import Unavailable
from sagehen.base.home import Home
from sagehen.frame.container_specs import InstanceSpec
from sagehen.http1.call import LocalAnswer


class FakeProcess:
    def __init__(self) -> None:
        self.pid = 1
        self.exited = asyncio.get_running_loop().create_future()
        self.signals: list[str] = []
        self.ports: list[int] = []
        self.lines: list[str] = []
        self.ended_because: str | None = None
        self.address: str | None = None

    async def wait(self) -> int:
        return await self.exited

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")
        if not self.exited.done():
            self.exited.set_result(-9)

    def last_lines(self) -> list[str]:
        return self.lines

    async def listening_ports(self) -> list[int]:
        return self.ports

    @asynccontextmanager
    async def reach(self, port: int) -> AsyncIterator[str]:
        yield f"tcp:127.0.0.1:{port}"

    def note(self, line: str) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture
async def make(home: Home, make_spec: Callable[..., InstanceSpec]):
    def make(address: str = "tcp:127.0.0.1:8080", ours: bool = False, **environment: str):
        process = FakeProcess()
        paths = ContainerPaths(home, make_spec(environment=environment), 1)
        exited = asyncio.ensure_future(process.exited)
        return RunningContainer(paths, address, process, exited, Pace(), ours), process

    return make


async def test_the_users_slots_go_before_the_containers(make) -> None:
    container, _ = make()
    assert container.slots is None
    container.reported_slots = "7"
    assert container.slots == 7
    container.reported_slots = "many"
    assert container.slots is None
    container, _ = make(SAGEHEN_SLOTS="3")
    container.reported_slots = "7"
    assert container.slots == 3


async def test_a_ping_that_answers_reports_the_slots(make, monkeypatch) -> None:
    answers = iter([LocalAnswer(200, b"", {"x-sagehen-slots": "5"}), LocalAnswer(500, b"")])

    async def exchange(*_: object, **__: object) -> LocalAnswer:
        if (answer := next(answers, None)) is None:
            raise Unavailable("away")
        return answer

    monkeypatch.setattr(module, "call_once", exchange)
    container, _ = make()
    assert [await container.is_healthy() for _ in range(3)] == [True, False, False]
    assert container.slots == 5


async def test_a_ping_that_is_answered_wrongly_is_described(make, monkeypatch) -> None:
    answers = iter([LocalAnswer(404, b""), Unavailable("late"), Unavailable("refused")])

    async def exchange(*_: object, **__: object) -> LocalAnswer:
        match next(answers, None):
            case None:
                return LocalAnswer(200, b"")
            case Unavailable() as error if str(error) == "late":
                raise error from TimeoutError()
            case Unavailable() as error:
                raise error
            case answer:
                return answer

    monkeypatch.setattr(module, "call_once", exchange)
    container, _ = make()
    problems = []
    while not await container.is_healthy():
        problems.append(container.ping_problem)
    assert problems == ["it answered 404", "it did not answer within 2 s", ""]
    assert container.ping_problem == ""


async def test_the_ports_that_it_listens_on_instead(make, monkeypatch) -> None:
    answering: set[str] = set()

    async def exchange(address: str, *_: object, **__: object) -> LocalAnswer:
        if address in answering:
            return LocalAnswer(200, b"")
        raise Unavailable("refused")

    monkeypatch.setattr(module, "call_once", exchange)
    container, process = make()
    nothing = "nothing listens on port 8080 (SAGEMAKER_BIND_TO_PORT)"
    assert await container.describe_ports() == nothing
    process.ports = [8000, 9000]
    expected = f"{nothing}; the container's processes listen on 8000, 9000"
    assert await container.describe_ports() == expected
    answering.add("tcp:127.0.0.1:9000")
    expected += ", and /ping is answered on 9000"
    assert await container.describe_ports() == expected
    process.ports = [8080]
    assert await container.describe_ports() == ""
    container, _ = make(address="unix:/run/i-1.sock")
    assert await container.describe_ports() == ""


async def test_ports_that_hang_are_probed_at_once(make, monkeypatch) -> None:
    """The container may be healthy by then."""
    all_asked = asyncio.Barrier(8)

    async def exchange(*_: object, **__: object) -> LocalAnswer:
        async with all_asked:
            raise Unavailable("late")

    monkeypatch.setattr(module, "call_once", exchange)
    container, process = make()
    process.ports = [*range(9000, 9008)]
    async with asyncio.timeout(10):
        assert "answered" not in await container.describe_ports()


async def test_full_disk_does_not_end_the_wait_for_a_healthy_container(make, monkeypatch) -> None:
    answers = iter([Unavailable("refused"), LocalAnswer(200, b"")])

    async def exchange(*_: object, **__: object) -> LocalAnswer:
        if isinstance(answer := next(answers), Unavailable):
            raise answer
        return answer

    monkeypatch.setattr(module, "call_once", exchange)
    container, _ = make()
    container.pace = replace(container.pace, port_hint_seconds=0, first_ping_interval_seconds=0)
    await container.wait_until_healthy()


async def test_how_it_ended(make) -> None:
    container, process = make()
    assert container.describe_end() == "it logged nothing"
    process.lines = ["ValueError: bad"]
    process.exited.set_result(-9)
    await container.exited
    assert container.describe_end() == "ValueError: bad; SIGKILL"
    process.ended_because = "it passed a limit"
    assert container.describe_end() == "it passed a limit; ValueError: bad"


@pytest.mark.parametrize("ours", [True, False])
async def test_only_our_model_server_says_that_its_model_never_loads(make, ours: bool) -> None:
    container, process = make(ours=ours)
    process.exited.set_result(WILL_NOT_LOAD)
    await container.exited
    assert container.will_not_load is ours


async def test_its_end_is_a_request_first_unless_there_is_no_time(make) -> None:
    container, process = make()
    await container.end(0)
    assert process.signals == ["KILL"]
    container, process = make()
    await container.end(0.001)
    assert process.signals == ["TERM", "KILL"]


async def test_a_command_finishes_its_requests_before_it_is_asked_to_end(make, monkeypatch) -> None:
    connections = [2, 1, 0]
    monkeypatch.setattr(module, "open_connections", lambda pid, port: connections.pop(0))
    monkeypatch.setattr(module, "_ANSWERS_INTERVAL_SECONDS", 0.001)
    container, process = make()
    process.terminate = lambda: (process.signals.append("TERM"), process.exited.set_result(0))
    await container.end(60, answer_seconds=60)
    assert connections == []
    assert process.signals == ["TERM", "KILL"]


@pytest.mark.parametrize("address", ["unix:/run/i-1.sock", "tcp:127.0.0.1:8080"])
async def test_it_is_asked_at_once_if_there_is_no_time_or_it_is_our_server(
    make, monkeypatch, address: str
) -> None:
    def count(pid: int, port: int) -> int:
        raise AssertionError("not asked")

    monkeypatch.setattr(module, "open_connections", count)
    container, process = make(address=address)
    process.exited.set_result(0)
    await container.end(60, answer_seconds=60 if address.startswith("unix") else 0)
    assert process.signals == ["TERM", "KILL"]
