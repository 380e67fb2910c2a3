"""Starts a container by a fork server: as `spawn`, without a new program."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

from sagehen.agent.launchers.fork_messages import ForkRequest
from sagehen.agent.launchers.fork_servers import ForkServer
from sagehen.agent.launchers.forkable import search_of
from sagehen.agent.launchers.helper_process import read_report
from sagehen.agent.launchers.launcher import LaunchPlan
from sagehen.agent.launchers.orphans import Orphans
from sagehen.agent.launchers.spawn import MainProcess, failure_in, kill_group, started_as
from sagehen.agent.launchers.walls import NO_WALLS, Walls, view_environment, view_options

__all__ = ["AdoptedProcess", "fork_container"]

FORK_SECONDS = 10.0
"""for what takes some ten milliseconds; then the container is started in the ordinary way"""


class AdoptedProcess:
    """A child of this process that another one has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status


async def fork_container(
    server: ForkServer,
    plan: LaunchPlan,
    output: int,
    procs: Path | None,
    orphans: Orphans,
    *,
    walls: Walls = NO_WALLS,
    umask: int = -1,
) -> MainProcess:
    """Starts a process for `plan`, which must be of the server's kind; see `spawn`.

    Raises:
        OSError: the server or a step has failed; nothing of the container is left.
        ValueError: a variable cannot be handed over.
    """
    options = [f"cgroup={procs}"] if procs else []
    options += view_options(plan, walls)
    request = ForkRequest(
        options=options,
        folder=str(plan.folder),
        variables=list(view_environment(plan, walls).items()),
        search=search_of(plan),
        umask=umask,
    )
    with orphans.starting():
        text = await _request(server, request, output, orphans)
        pids = _numbers_after("forked", text)
        if not pids:
            raise OSError(errno.ECHILD, "the fork server has forked nothing")
        orphans.expect(pids[0])
        process = started_as(AdoptedProcess(pids[0]), text, orphans)
    if (error := failure_in(text)) is not None:
        process.give_up()
        raise error
    return process


async def _request(
    server: ForkServer, request: ForkRequest, output: int, orphans: Orphans
) -> bytearray:
    report, report_end = os.pipe2(os.O_CLOEXEC)
    try:
        server.request(request, report_end, output)
    except (OSError, ValueError):
        os.close(report)
        raise
    finally:
        os.close(report_end)
    text = bytearray()
    try:
        async with asyncio.timeout(FORK_SECONDS):
            await read_report(report, text)
    except TimeoutError:
        _give_up(text, orphans)
        reason = f"the container was not forked within {FORK_SECONDS:g} s"
        raise OSError(errno.ETIMEDOUT, reason) from None
    except asyncio.CancelledError:
        _give_up(text, orphans)
        raise
    return text


def _give_up(text: bytearray, orphans: Orphans) -> None:
    if pids := _numbers_after("forked", text):
        kill_group(pids[0])
        started_as(AdoptedProcess(pids[0]), text, orphans).give_up()
    # A process that is adopted later ends by itself: nobody reads its report.
    orphans.end()


def _numbers_after(word: str, text: bytearray) -> Sequence[int]:
    lines = (line.split() for line in text.decode().splitlines())
    return next(([int(each) for each in rest] for first, *rest in lines if first == word), ())
