"""The training jobs' attempts of this node, by id: those that run, and those that have ended."""

import asyncio
import logging
import re

from sagehen.agent.changes import Changes
from sagehen.agent.jobs.job import Job
from sagehen.agent.jobs.place import check_spec
from sagehen.agent.jobs.reports import EndedReports
from sagehen.agent.jobs.surroundings import JobSurroundings
from sagehen.domain.jobs import JobList, JobReport, JobSpec, Outcome, StopRequest
from sagehen.errors import Invalid, NotFound, Unavailable

__all__ = ["Jobs"]

log = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,99}")


class Jobs:
    """Starts, ends and reports attempts.

    Only the reports of those that have ended are on disk: what runs is lost with the agent.
    """

    def __init__(self, around: JobSurroundings) -> None:
        self._around = around
        self._changes = Changes(around.clock)
        self._reports = EndedReports(around.home.ended_jobs)
        self._running: dict[str, Job] = {}
        self._ended: dict[str, JobReport] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._kills: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def start(self) -> None:
        """Take up what an earlier agent had to tell."""
        left = await asyncio.to_thread(self._reports.open)
        self._ended = {report.attempt_id: report for report in left}

    async def close(self) -> None:
        """Interrupt every attempt, and wait until their checkpoints are saved, or too long."""
        self._stopping = True
        self._changes.close()
        self.interrupt(None, self._around.pace.shutdown_grace_seconds)
        lives = list(self._lives.values())
        if lives:
            await asyncio.wait(lives, timeout=self._around.pace.shutdown_seconds)
        for job in self._running.values():
            job.kill()
        await asyncio.gather(*lives, *self._kills, return_exceptions=True)
        self._around.threads.close()

    def list(self) -> JobList:
        running = (job.report for job in self._running.values())
        return JobList(version=self._changes.version, jobs=(*self._ended.values(), *running))

    async def wait_for_change(self, since: int, seconds: float) -> JobList:
        """The list, as soon as its version is not `since`, or after `seconds`."""
        await self._changes.wait(since, seconds)
        return self.list()

    def put(self, spec: JobSpec) -> None:
        """Begin an attempt. Nothing is done where its id is known, ended or not.

        Raises:
            Invalid: a name in it cannot be a file's, or it makes no sense otherwise.
            Unavailable: the agent is stopping.
        """
        if self._stopping:
            raise Unavailable("The agent is stopping.")
        if not _ID.fullmatch(spec.attempt_id):
            raise Invalid(f"{spec.attempt_id[:100]!r} cannot be an id: letters, digits, hyphens.")
        check_spec(spec)
        if spec.attempt_id in self._running or spec.attempt_id in self._ended:
            return
        job = Job(spec, self._around, self._reports, self._changes.announce)
        self._running[spec.attempt_id] = job
        life = self._lives[spec.attempt_id] = asyncio.create_task(self._live(job))
        life.add_done_callback(lambda _: self._lives.pop(spec.attempt_id))
        self._changes.announce()

    def stop(self, attempt_id: str, request: StopRequest) -> None:
        """Have an attempt end. Nothing happens where it has.

        Raises:
            NotFound: there is none of that id.
            Invalid: that is no way to end.
        """
        if request.outcome not in (Outcome.STOPPED, Outcome.INTERRUPTED):
            raise Invalid(f"An attempt cannot be told to end as {request.outcome}.")
        job = self._running.get(attempt_id)
        if job is not None:
            job.stop(request)
        elif attempt_id not in self._ended:
            raise NotFound(f"There is no attempt {attempt_id}.")

    def interrupt(self, most: int | None, grace_seconds: float | None = None) -> tuple[str, ...]:
        """Have so many attempts, or all, give their capacity back; which.

        Those that began last are the first: they lose least.
        """
        if most is not None and most < 0:
            raise Invalid(f"{most} jobs cannot be interrupted.")
        can = [name for name, job in self._running.items() if job.can_be_interrupted]
        chosen = tuple(reversed(can))[:most]
        for name in chosen:
            request = StopRequest(outcome=Outcome.INTERRUPTED, grace_seconds=grace_seconds)
            self._running[name].stop(request)
        return chosen

    def delete(self, attempt_id: str) -> None:
        """Forget an attempt, which is killed if it runs; it leaves the list when that is done.

        Raises:
            NotFound: there is none of that id.
        """
        if attempt_id in self._running:
            task = asyncio.create_task(self._kill(attempt_id))
            self._kills.add(task)
            task.add_done_callback(self._kills.discard)
        elif self._ended.pop(attempt_id, None) is not None:
            self._reports.forget(attempt_id)
            self._changes.announce()
        else:
            raise NotFound(f"There is no attempt {attempt_id}.")

    async def _live(self, job: Job) -> None:
        await job.live()
        del self._running[job.spec.attempt_id]
        if job.report.outcome is not None:
            self._ended[job.spec.attempt_id] = job.report
        self._changes.announce()

    async def _kill(self, attempt_id: str) -> None:
        life = self._lives[attempt_id]
        self._running[attempt_id].kill()
        await asyncio.wait({life})
        if self._ended.pop(attempt_id, None) is not None:
            self._reports.forget(attempt_id)
            self._changes.announce()
