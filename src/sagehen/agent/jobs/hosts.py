"""The containers of a job: one for each of its hosts, started, watched and ended together."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sagehen.agent.faults import CannotStart
from sagehen.agent.jobs.failures import JobFailed, cannot_run, out_of_memory, script_failed
from sagehen.agent.jobs.orders import Orders
from sagehen.agent.jobs.place import HostPlace
from sagehen.agent.jobs.plan import plan_job_launch
from sagehen.agent.jobs.surroundings import JobSurroundings
from sagehen.agent.launcher import Process

__all__ = ["Host", "Hosts"]


@dataclass(frozen=True)
class Host:
    """A container that was started."""

    place: HostPlace
    process: Process
    exited: asyncio.Task[int]

    @property
    def status(self) -> int | None:
        """None while it runs."""
        return self.exited.result() if self.exited.done() else None

    def say_failure(self) -> str:
        """Why it did not end well. Reads the beginning of a file."""
        status, cause = self.exited.result(), self.process.ended_because
        failure = self.place.failure
        if cause is not None:
            return out_of_memory(cause, status)
        return script_failed(failure, self.process.last_lines(), status)


class Hosts:
    """
    Args:
        places: where each is to run.
    """

    def __init__(self, places: Sequence[HostPlace], around: JobSurroundings) -> None:
        self._places = places
        self._around = around
        self._hosts: list[Host] = []

    @property
    def all(self) -> Sequence[Host]:
        """Those that were started, in the order of their numbers."""
        return self._hosts

    @property
    def failed(self) -> Host | None:
        """The first of those that have ended badly."""
        return next((host for host in self._hosts if host.status), None)

    async def start(self) -> None:
        """Start all. Whoever calls sees to the end of those that were, whatever is raised.

        Raises:
            JobFailed: nothing says what to run, or that cannot be run.
        """
        for place in self._places:
            launcher = self._around.launcher
            plan = plan_job_launch(place, self._around.settings, launcher.seen_base(place.base))
            try:
                process = await launcher.start(plan)
            except CannotStart as error:
                raise JobFailed(cannot_run(str(error))) from error
            self._hosts.append(Host(place, process, asyncio.create_task(process.wait())))

    async def wait(self) -> None:
        """Until all have ended, or one has ended badly."""
        while self.failed is None and (left := self._running()):
            await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)

    async def end(self, orders: Orders) -> None:
        """Ask those that run to end, and end them when `orders` has no more patience."""
        for host in self._hosts:
            host.process.terminate()
        while self._running() and orders.grace_left() > 0:
            await orders.wait_or(self._running())
        await self.kill()

    async def kill(self) -> None:
        """End those that run, at once."""
        for host in self._hosts:
            host.process.kill()
        await asyncio.gather(*(host.exited for host in self._hosts))

    def _running(self) -> list[asyncio.Task[int]]:
        return [host.exited for host in self._hosts if not host.exited.done()]
