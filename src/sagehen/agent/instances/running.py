"""A started container: its health checks, slots and end."""

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from sagehen.agent.errors import CannotStart
from sagehen.agent.instances.container_plan import (
    ContainerPaths,
    choose_address,
    choose_port,
    plan_image,
    plan_launch,
    plan_network,
)
from sagehen.agent.instances.failures import explain
from sagehen.agent.instances.process_tree import open_connections
from sagehen.agent.launchers.launcher import IMAGE_BASE, Process
from sagehen.agent.multimodel.container_client import ContainerClient
from sagehen.agent.node import Node, Pace
from sagehen.base.container_exits import WILL_NOT_LOAD
from sagehen.base.errors import Unavailable
from sagehen.base.retry import Backoff
from sagehen.frame.images import find_launch
from sagehen.http1.call import call_once

__all__ = ["RunningContainer", "cause_of_end", "start_container"]

SLOTS_HEADER = "x-sagehen-slots"
SLOTS_VARIABLE = "SAGEHEN_SLOTS"
KILL_SECONDS = 10.0
"""more than the kernel ever takes"""
_ANSWERS_INTERVAL_SECONDS = 0.1
_MAX_PROBED_PORTS = 8
_SLOTS = re.compile("[1-9][0-9]{0,5}")


@dataclass(eq=False)
class RunningContainer:
    """A container that has been started."""

    paths: ContainerPaths
    address: str
    process: Process
    exited: asyncio.Task[int]
    pace: Pace
    is_ours: bool = False
    """our model server runs in it"""
    base: Path | None = None
    """`paths.base` as the container sees it, if not by its path on this machine"""
    reported_slots: str | None = None
    """from the last `/ping`"""
    ping_problem: str = ""
    """how the last `/ping` was answered, if wrongly"""

    @property
    def slots(self) -> int | None:
        """Most concurrent requests: the user's value, or else the container's."""
        values = (self.paths.container.environment.get(SLOTS_VARIABLE), self.reported_slots)
        return next((int(value) for value in values if value and _SLOTS.fullmatch(value)), None)

    async def wait_until_healthy(self) -> None:
        """Polls until the container is healthy. How long that may take is the caller's decision."""
        pace = self.pace
        # Callers may wait for this start: the interval is a twentieth of its time so far.
        backoff = Backoff(
            pace.first_ping_interval_seconds, pace.longest_ping_interval_seconds, factor=1.05
        )
        loop = asyncio.get_running_loop()
        hint_at: float | None = loop.time() + pace.port_hint_seconds
        while not await self.is_healthy():
            if hint_at is not None and loop.time() >= hint_at:
                hint_at = None
                if hint := await self.describe_ports() or self._describe_ping():
                    # A full disk must not fail a container that is loading.
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(self.process.note, hint)
            await asyncio.sleep(backoff.next_seconds())

    def _describe_ping(self) -> str:
        return f"/ping has not answered 200 yet: {self.ping_problem}" if self.ping_problem else ""

    async def _answers_ping(self, port: int) -> bool:
        try:
            async with self.process.reach(port) as address:
                answer = await call_once(
                    address, "GET", "/ping", timeout_seconds=self.pace.ping_timeout_seconds
                )
        except (OSError, Unavailable):
            return False
        return answer.status == 200

    async def is_healthy(self) -> bool:
        """Whether `/ping`, and `/models` of a multi-model container, answer in time."""
        try:
            # Kept until the next one is answered: time may be up meanwhile.
            self.ping_problem = await self._ping()
        except Unavailable as error:
            late = isinstance(error.__cause__, TimeoutError)
            seconds = self.pace.ping_timeout_seconds
            self.ping_problem = f"it did not answer within {seconds:g} s" if late else ""
            return False
        return not self.ping_problem

    async def _ping(self) -> str:
        """Returns what was wrong with the answer. Raises Unavailable."""
        seconds = self.pace.ping_timeout_seconds
        answer = await call_once(self.address, "GET", "/ping", timeout_seconds=seconds)
        if answer.status != 200:
            return f"it answered {answer.status}"
        self.reported_slots = answer.headers.get(SLOTS_HEADER)
        if not self.paths.container.multi_model:
            return ""
        client = ContainerClient(self.address)
        return "" if await client.is_multi_model() else "GET /models did not answer 200"

    async def describe_unhealthy(self) -> str:
        details = (await self.describe_ports() or self.ping_problem, self.describe_end())
        return "; ".join(filter(None, details))

    async def end(self, grace_seconds: float, answer_seconds: float = 0) -> None:
        """SIGTERM, and SIGKILL after `grace_seconds`; before, a command may finish its requests for
        `answer_seconds` of these, as its server may know no SIGTERM."""
        grace_seconds -= await self._wait_for_answers(min(answer_seconds, grace_seconds))
        if grace_seconds > 0:
            self.process.terminate()
            await asyncio.wait({self.exited}, timeout=grace_seconds)
        self.process.kill()
        await asyncio.wait({self.exited}, timeout=KILL_SECONDS)
        with contextlib.suppress(OSError):
            self.paths.socket.unlink(missing_ok=True)
            self.paths.socket.parent.rmdir()

    async def _wait_for_answers(self, most_seconds: float) -> float:
        """Returns the seconds that the container's last requests took. The gateways have closed
        their idle connections: the instance is in no route."""
        port = choose_port(self.address)
        if port is None or self.process.address is not None:
            return 0
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (
            (waited := loop.time() - began) < most_seconds
            and not self.exited.done()
            and await asyncio.to_thread(open_connections, self.process.pid, port) > 0
        ):
            await asyncio.wait({self.exited}, timeout=_ANSWERS_INTERVAL_SECONDS)
        return waited

    async def describe_ports(self) -> str:
        """Says where the container listens if not on its own port; else ""."""
        port = choose_port(self.address)
        if port is None:
            return ""
        listening = await self.process.listening_ports()
        if port in listening:
            return ""
        # In an image, the port is SageMaker's own.
        variable = " (SAGEMAKER_BIND_TO_PORT)" if self.process.address is None else ""
        hint = f"nothing listens on port {port}{variable}"
        if listening:
            ports = ", ".join(map(str, listening))
            hint += f"; the container's processes listen on {ports}"
        probed = sorted(listening)[:_MAX_PROBED_PORTS]
        # All at once, as they may hang while the container becomes healthy.
        answers = await asyncio.gather(*map(self._answers_ping, probed))
        # No more than a hint: exporters of metrics answer 200 on every path.
        if answering := [str(other) for other, is_ok in zip(probed, answers, strict=True) if is_ok]:
            hint += f", and /ping is answered on {', '.join(answering)}"
        return hint

    @property
    def will_not_load(self) -> bool:
        """A restart would not help."""
        return self.is_ours and self.exited.done() and self.exited.result() == WILL_NOT_LOAD

    @property
    def hostname(self) -> str:
        return self.paths.container.hostname

    def describe_end(self) -> str:
        reason = explain(self.process.last_lines()) or "it logged nothing"
        if not self.exited.done():
            return reason
        if self.process.ended_because is not None:
            return f"{self.process.ended_because}; {reason}"
        if self.will_not_load:
            return reason
        status = self.exited.result()
        ending = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"{reason}; {ending}"


def cause_of_end(containers: Iterable[RunningContainer]) -> str | None:
    """Returns why the first of those that have ended did so, if that is known."""
    ended = (running.process.ended_because for running in containers if running.exited.done())
    cause = next(filter(None, ended), None)
    if cause is not None and cause.startswith("it "):
        return "the container " + cause.removeprefix("it ")
    return cause


async def start_container(
    paths: ContainerPaths,
    node: Node,
    gpus: tuple[str, ...] | None = None,
    may_fork: bool = True,
) -> RunningContainer:
    """The container's folder must exist.

    Args:
        gpus: as in LaunchPlan; so is `may_fork`.

    Raises:
        CannotStart: the image is unknown, or its command cannot be run.
    """
    settings = node.settings
    launch = find_launch(paths.container.image, settings.images, settings.launcher)
    if launch is None:
        raise CannotStart(f"the image {paths.container.image} is not known")
    if launch.docker:
        plan = plan_image(paths, node.settings)
        process = await node.launcher.start(replace(plan, gpus=gpus))
        assert process.address is not None
        exited = asyncio.create_task(process.wait())
        return RunningContainer(paths, process.address, process, exited, node.pace, base=IMAGE_BASE)
    ports = node.ports.take()
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(node.ports.release, ports)
        network = plan_network(paths, launch, node.networks, node.settings)
        address = choose_address(paths, launch, ports, network)
        python = node.image_environments.python(paths.container.image)
        plan = plan_launch(paths, launch, address, ports, node.settings, network, python)
        process = await node.launcher.start(replace(plan, gpus=gpus, may_fork=may_fork))
        on_failure.pop_all()
    exited = asyncio.create_task(process.wait())
    exited.add_done_callback(lambda _: node.ports.release(ports))
    is_ours = launch.adapter is not None
    return RunningContainer(paths, address, process, exited, node.pace, is_ours)
