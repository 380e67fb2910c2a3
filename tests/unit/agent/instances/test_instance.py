import asyncio
import errno
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sagehen.agent.artifacts.fetch import ModelData
from sagehen.agent.instances import running as running_container
from sagehen.agent.instances.instance import Instance
from sagehen.agent.instances.process_tree import open_connections, tree_listening_ports
from sagehen.agent.instances.running import RunningContainer
from sagehen.agent.node import Node, Pace
from sagehen.base.clock import SystemClock
from sagehen.base.errors import Unavailable
from sagehen.frame.container_specs import InstanceSpec, InstanceState
from sagehen.frame.s3_locations import parse_location
from sagehen.http1.call import call_once

MakeSpec = Callable[..., InstanceSpec]
URL = "s3://bucket/model.tar.gz"


class Watched:
    """An instance whose reports can be waited for."""

    def __init__(self, spec: InstanceSpec, node: Node) -> None:
        self.seen: asyncio.Queue[InstanceState] = asyncio.Queue()
        self.instance = Instance(spec, node, self._note)

    def _note(self) -> None:
        self.seen.put_nowait(self.instance.report.state)

    async def reaches(self, state: InstanceState) -> None:
        while await self.seen.get() is not state:
            pass


@asynccontextmanager
async def running(spec: InstanceSpec, node: Node) -> AsyncIterator[Watched]:
    watched = Watched(spec, node)
    watched.instance.start()
    try:
        yield watched
    finally:
        await watched.instance.stop()


def containers(node: Node) -> list[psutil.Process]:
    """The processes that run for a home: other tests of this process may have children too."""
    home = str(node.home.path)
    return [one for one in psutil.Process().children(recursive=True) if home in _base_dir(one)]


def _base_dir(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("SAGEMAKER_BASE_DIR", ""))
    except psutil.Error:
        return ""


async def test_an_instance_gets_into_service_and_leaves_nothing(
    node: Node, make_spec: MakeSpec
) -> None:
    async with running(make_spec(), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        address = watched.instance.report.address
        assert address is not None
        assert (await call_once(address, "GET", "/ping", timeout_seconds=60)).status == 200
        memory = next(iter(await watched.instance.samples()))
        assert (memory.name, memory.endpoint) == ("InstanceMemoryBytes", "houses")
        assert memory.value > 2**20
    assert watched.instance.report.state is InstanceState.STOPPING
    assert containers(node) == []
    assert list(node.home.instances.iterdir()) == []


async def test_a_start_says_what_it_waits_for(
    node: Node,
    make_spec: MakeSpec,
    reader: Any,
    make_archive: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader.objects[URL] = make_archive(("model.json", b"{}"))
    reader.gate = asyncio.Event()
    installs, go_on = asyncio.Event(), asyncio.Event()

    async def acquire(image: str) -> None:
        installs.set()
        await go_on.wait()

    monkeypatch.setattr(node.image_environments, "acquire", acquire)
    clock = StandingClock()
    late = replace(node, clock=clock)
    async with running(make_spec(model_data_url=URL), late) as watched:
        await reader.reading.wait()
        assert watched.instance.waits_for == ""
        clock.seconds = 40.0
        assert watched.instance.waits_for == (
            "houses, instance i-1: its model data is fetched and unpacked, for 40 s so far."
        )
        reader.gate.set()
        await installs.wait()
        clock.seconds = 190.0
        assert watched.instance.waits_for == (
            "houses, instance i-1: libraries of the image fake are installed (logs/agent.log), for "
            "150 s so far."
        )
        go_on.set()
        await watched.reaches(InstanceState.IN_SERVICE)
        assert watched.instance.waits_for == ""


class StandingClock(SystemClock):
    """Goes on when it is told to; sleeps as the system's does."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def test_model_data_is_where_the_container_looks(
    node: Node, make_spec: MakeSpec, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("model.json", b"{}"))
    async with running(make_spec(model_data_url=URL), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        base = node.home.instances / "i-1" / "primary" / "ml"
        assert (base / "model" / "model.json").read_bytes() == b"{}"


async def test_code_that_comes_apart_from_the_model_is_there_or_the_reason(
    node: Node, make_spec: MakeSpec, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    given = {"SAGEMAKER_SUBMIT_DIRECTORY": f"{URL}.code"}
    spec = make_spec(image="sagehen-python:1", environment=given)
    async with running(spec, node) as watched:
        await watched.reaches(InstanceState.FAILED)
        assert f"{URL}.code" in str(watched.instance.report.failure_reason)
    reader.objects[f"{URL}.code"] = make_archive(("inference.py", b"raise ValueError('was run')"))
    async with running(spec, node) as watched:
        await watched.reaches(InstanceState.FAILED)
        assert "ValueError: was run" in str(watched.instance.report.failure_reason)


@pytest.mark.parametrize(
    ("times", "state"), [(1, InstanceState.IN_SERVICE), (2, InstanceState.FAILED)]
)
async def test_a_full_disk_is_cleared_of_what_nobody_uses_before_that_is_said(
    node: Node,
    make_spec: MakeSpec,
    reader: Any,
    make_archive: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    state: InstanceState,
) -> None:
    reader.objects[URL] = reader.objects[f"{URL}.old"] = make_archive(("model.json", b"{}"))
    unused = await node.artifacts.acquire(ModelData(parse_location(f"{URL}.old")))
    await node.artifacts.release(unused)
    copy, full = shutil.copytree, iter(range(times))

    def copy_later(*paths: Path, **how: bool) -> Path:
        for _ in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return copy(*paths, **how)

    monkeypatch.setattr(shutil, "copytree", copy_later)
    async with running(make_spec(model_data_url=URL), node) as watched:
        await watched.reaches(state)
        reason = watched.instance.report.failure_reason
    assert not unused.folder.exists()
    assert (reason is None) == (state is InstanceState.IN_SERVICE)
    assert reason is None or "No space left on device" in reason


async def test_the_environment_is_clean_and_the_users(
    node: Node, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-server's-own")
    spec = make_spec(environment={"MINE": "1"})
    async with running(spec, node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
    log = node.home.logs / "endpoints" / "houses" / "AllTraffic" / "i-1" / "primary.log"
    said = log.read_text()
    assert "'MINE'" in said
    assert "'SM_MODEL_DIR'" in said
    assert "AWS_SECRET_ACCESS_KEY" not in said


async def test_missing_model_data_fails_with_sagemakers_sentence(
    node: Node, make_spec: MakeSpec
) -> None:
    async with running(make_spec(model_data_url=URL), node) as watched:
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
    assert reason is not None
    assert reason.startswith(
        f'Failed to download model data for container "container_1" from URL: "{URL}". '
    )


async def test_a_bad_archive_fails_with_sagemakers_sentence_and_the_reason(
    node: Node, make_spec: MakeSpec, reader: Any, make_archive: Callable[..., bytes]
) -> None:
    reader.objects[URL] = make_archive(("../evil", b"x"))
    async with running(make_spec(model_data_url=URL), node) as watched:
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
    assert reason is not None
    assert 'Failed to extract model data archive for container "container_1"' in reason
    assert "leads out of its folder" in reason


async def test_one_that_ends_before_it_is_healthy_fails_at_the_second_try(
    node: Node, make_spec: MakeSpec, short_path: Path
) -> None:
    async with running(make_spec(environment={"FAKE_EXIT": "1"}), node) as watched:
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
    assert reason is not None
    sentence, _, cause = reason.partition(" (")
    assert sentence == (
        "The primary container for production variant AllTraffic did not pass the ping health "
        "check. Please check CloudWatch logs for this endpoint."
    )
    place = r"\(fake_container\.py, line \d+\)"
    assert re.fullmatch(rf"ImportError: No module named 'houses' {place}; exit status 1\)", cause)
    assert (short_path / "started").read_text() == "xx"


async def test_one_that_ends_only_once_gets_into_service(
    node: Node, make_spec: MakeSpec, short_path: Path
) -> None:
    async with running(make_spec(environment={"FAKE_EXIT_ONCE": "1"}), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        assert watched.instance.report.failure_reason is None
    assert (short_path / "started").read_text() == "xx"


async def test_one_that_is_never_healthy_fails_when_its_time_is_up(
    node: Node, make_spec: MakeSpec
) -> None:
    spec = make_spec(environment={"FAKE_UNHEALTHY": "1"}, startup_timeout_seconds=0.5)
    async with running(spec, node) as watched:
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
        assert reason is not None
        # It may not listen yet on a busy machine.
        assert re.search("/ping did not answer 200 within 0.5 s; (it answered|nothing)", reason)
    assert containers(node) == []


async def test_one_whose_health_cannot_be_checked_is_not_in_service(
    node: Node, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: RunningContainer) -> None:
        raise ValueError("a fault of the check")

    monkeypatch.setattr(RunningContainer, "wait_until_healthy", fail)
    async with running(make_spec(), node) as watched:
        assert await watched.seen.get() is InstanceState.FAILED
        assert watched.instance.report.failure_reason is not None
        assert "a fault of the check" in watched.instance.report.failure_reason


async def test_one_that_listens_elsewhere_is_told_where(
    node: Node, make_spec: MakeSpec, short_path: Path
) -> None:
    """As the containers do that have SageMaker's 8080 written in."""
    # A container on a busy machine takes seconds before it listens, and the log has the first look.
    node = replace(node, pace=replace(node.pace, port_hint_seconds=4))
    spec = make_spec(environment={"FAKE_OTHER_PORT": "1"}, startup_timeout_seconds=6)
    async with running(spec, node) as watched:
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
    port = (short_path / "port").read_text()
    hint = (
        r"nothing listens on port \d+ \(SAGEMAKER_BIND_TO_PORT\); "
        f"the container's processes listen on {port}, and /ping is answered on {port}"
    )
    assert reason is not None
    assert re.search(f"within 6 s; {hint}; ", reason)
    (log,) = node.home.logs.rglob("*.log")
    assert len(re.findall(f"^sagehen: {hint}$", log.read_text(), re.M)) == 1


def slow_to_load(gate: Path) -> bytes:
    return (
        "import pathlib, time\ndef model_fn(d):\n"
        f"    while not pathlib.Path({str(gate)!r}).exists():\n        time.sleep(0.01)\n"
        "def predict_fn(data, model):\n    return data\n"
    ).encode()


async def first_ping(socket: Path) -> int:
    """Its status, once somebody listens there."""
    while True:
        try:
            return (await call_once(f"unix:{socket}", "GET", "/ping", timeout_seconds=60)).status
        except Unavailable:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_model_may_take_as_long_to_load_as_the_health_check_allows(
    node: Node,
    make_spec: MakeSpec,
    reader: Any,
    make_archive: Callable[..., bytes],
    short_path: Path,
    in_time: bool,
) -> None:
    gate = short_path / "go"
    reader.objects[URL] = make_archive(("code/inference.py", slow_to_load(gate)))
    window = 60 if in_time else 1.5
    spec = make_spec(image="sagehen-python:1", model_data_url=URL, startup_timeout_seconds=window)
    async with running(spec, node) as watched:
        if in_time:
            assert await first_ping(node.home.run / "i-1" / "http.sock") == 503
            assert watched.instance.report.state is InstanceState.STARTING
            gate.touch()
            await watched.reaches(InstanceState.IN_SERVICE)
            return
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
        assert reason is not None
        sentence, _, cause = reason.partition(" (")
        assert sentence == (
            "The primary container for production variant AllTraffic did not pass the ping "
            "health check. Please check CloudWatch logs for this endpoint."
        )
        # On a busy machine it does not listen yet.
        told = r"/ping did not answer 200 within 1\.5 s; (it answered 503; )?it logged nothing\)"
        assert re.fullmatch(told, cause)
    assert containers(node) == []


@pytest.mark.parametrize("image", ["broken", "unheard-of"])
async def test_what_cannot_be_started_fails(node: Node, make_spec: MakeSpec, image: str) -> None:
    async with running(make_spec(image=image), node) as watched:
        await watched.reaches(InstanceState.FAILED)
        reason = watched.instance.report.failure_reason
    assert reason is not None
    assert reason.startswith("CannotStartContainerError.")


async def test_one_that_dies_in_service_is_started_again(node: Node, make_spec: MakeSpec) -> None:
    pids = []
    async with running(make_spec(), node) as watched:
        for _ in range(2):
            await watched.reaches(InstanceState.IN_SERVICE)
            (container,) = containers(node)
            pids.append(container.pid)
            container.kill()
        await watched.reaches(InstanceState.STARTING)
        await watched.reaches(InstanceState.IN_SERVICE)
        pids += [one.pid for one in containers(node)]
    assert len(set(pids)) == len(pids) == 3


async def test_each_life_of_its_containers_has_an_id_of_its_own(
    node: Node, make_spec: MakeSpec
) -> None:
    async with running(make_spec(), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        first = watched.instance.report.run_id
        containers(node)[0].kill()
        await watched.reaches(InstanceState.STARTING)
        await watched.reaches(InstanceState.IN_SERVICE)
        assert first
        assert watched.instance.report.run_id not in ("", first)


class SteppingClock:
    """Its time goes on only when a test says so; remembers what was slept."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.elapsed

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_only_one_that_dies_again_and_again_has_to_wait(
    node: Node, make_spec: MakeSpec
) -> None:
    clock = SteppingClock()
    async with running(make_spec(), replace(node, clock=clock, pace=Pace())) as watched:
        for served_seconds in (0, 0, 11, 0):
            await watched.reaches(InstanceState.IN_SERVICE)
            clock.elapsed += served_seconds
            containers(node)[0].kill()
        await watched.reaches(InstanceState.IN_SERVICE)
    assert clock.slept == [0.2, 0.4, 0.2, 0.4]


async def test_one_that_stops_answering_pings_is_started_again(
    node: Node, make_spec: MakeSpec, short_path: Path
) -> None:
    async with running(make_spec(), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        (short_path / "unhealthy").touch()
        await watched.reaches(InstanceState.STARTING)
        (short_path / "unhealthy").unlink()
        await watched.reaches(InstanceState.IN_SERVICE)
        assert (short_path / "started").read_text() == "xx"


async def test_its_command_is_not_asked_to_end_while_it_has_requests(
    node: Node, make_spec: MakeSpec, monkeypatch
) -> None:
    """Servers that know no SIGTERM end by it at once."""
    counts: list[int] = []

    def count(pid: int, port: int) -> int:
        counts.append(open_connections(pid, port))
        return counts[-1]

    monkeypatch.setattr(running_container, "open_connections", count)
    async with running(make_spec(), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        (container,) = containers(node)
        (port,) = tree_listening_ports(container.pid)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        stopping = asyncio.create_task(watched.instance.stop())
        while len(counts) < 3:
            assert not stopping.done()
            await asyncio.sleep(0.01)
        assert container.status() != psutil.STATUS_ZOMBIE
        assert all(counts)
        writer.close()
        await stopping
    assert containers(node) == []


async def test_it_can_be_stopped_while_it_starts(node: Node, make_spec: MakeSpec) -> None:
    async with running(make_spec(environment={"FAKE_UNHEALTHY": "1"}), node):
        await asyncio.sleep(0)
    assert containers(node) == []
    assert list(node.home.instances.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "slots"),
    [
        ({}, None),
        ({"FAKE_SLOTS": "3"}, 3),
        ({"FAKE_SLOTS": "3", "SAGEHEN_SLOTS": "12"}, 12),
        ({"FAKE_SLOTS": "3", "SAGEHEN_SLOTS": "many"}, 3),
        ({"FAKE_SLOTS": "0"}, None),
        ({"FAKE_SLOTS": "99999999999999"}, None),
    ],
)
async def test_slots_are_the_users_word_or_else_the_containers(
    node: Node, make_spec: MakeSpec, environment: dict[str, str], slots: int | None
) -> None:
    async with running(make_spec(environment=environment), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        assert watched.instance.report.slots == slots


async def test_what_the_container_says_anew_of_its_slots_is_told(
    node: Node, make_spec: MakeSpec
) -> None:
    async with running(make_spec(environment={"FAKE_SLOTS": "2"}), node) as watched:
        await watched.reaches(InstanceState.IN_SERVICE)
        said = node.home.path.parent / "slots"
        said.with_suffix(".new").write_text("16")
        said.with_suffix(".new").rename(said)
        async with asyncio.timeout(120):
            while watched.instance.report.slots != 16:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert watched.instance.report.state is InstanceState.IN_SERVICE
