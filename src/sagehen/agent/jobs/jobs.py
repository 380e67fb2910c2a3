"""This node's attempts at training jobs, running and ended."""

import asyncio
import logging
import re
from collections.abc import Coroutine
from typing import Any

from sagehen.agent.changes import Changes
from sagehen.agent.instances.leftovers import prune_job_logs
from sagehen.agent.jobs.context import EndedReports, JobContext
from sagehen.agent.jobs.host_folders import check_spec
from sagehen.agent.jobs.job import JobAttempt
from sagehen.agent.jobs.slots import JobSlots
from sagehen.agent.messages import JobSample
from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.job_specs import JobList, JobOutcome, JobReport, JobSpec, StopRequest

__all__ = ["JobAttempts"]

PRUNE_EVERY = 100
"""jobs: scanning all logs takes longer than a short job"""

log = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,99}")


class JobAttempts:
    """Runs attempts. Only reports of ended ones are on disk: the rest is lost with the agent."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._changes = Changes(context.clock)
        self._slots = JobSlots(context.settings.running_jobs)
        self._reports = EndedReports(context.home.ended_jobs)
        self._running: dict[str, JobAttempt] = {}
        self._ended: dict[str, JobReport] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._side_tasks: set[asyncio.Task[None]] = set()
        self._started_count = 0
        self._stopping = False

    async def start(self) -> None:
        reports = await asyncio.to_thread(self._reports.open)
        self._ended = {report.attempt_id: report for report in reports}

    async def close(self) -> None:
        """Interrupts every attempt and waits for checkpoints, up to a bound."""
        self._stopping = True
        self._changes.close()
        request = StopRequest(
            outcome=JobOutcome.INTERRUPTED,
            grace_seconds=self._context.pace.shutdown_grace_seconds,
        )
        for job in self._running.values():
            if job.can_be_interrupted:
                job.stop(request)
            job.stop_waiting_for_disk()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._context.pace.shutdown_seconds)
        for job in self._running.values():
            job.kill()
        await asyncio.gather(*tasks, *self._side_tasks, return_exceptions=True)
        self._context.threads.close()

    def list(self) -> JobList:
        running = (job.report for job in self._running.values())
        return JobList(version=self._changes.version, jobs=(*self._ended.values(), *running))

    async def wait_for_change(self, since: int, seconds: float) -> JobList:
        """Returns once the version is not `since`, or after `seconds`."""
        await self._changes.wait(since, seconds)
        return self.list()

    def put(self, spec: JobSpec) -> None:
        """Does nothing if the id is known.

        Raises:
            Invalid: the spec is invalid.
            Unavailable: the agent is stopping, or has no lease of control's.
        """
        if self._stopping:
            raise Unavailable("The agent is stopping.")
        self._context.check_lease()
        if not _ID.fullmatch(spec.attempt_id):
            raise Invalid(f"{spec.attempt_id[:100]!r} cannot be an id: letters, digits, hyphens.")
        check_spec(spec)
        if spec.attempt_id in self._running or spec.attempt_id in self._ended:
            return
        log.info("Attempt %s of the training job %s begins.", spec.attempt_id, spec.job_name)
        job = JobAttempt(spec, self._context, self._reports, self._changes, self._slots.take())
        self._running[spec.attempt_id] = job
        if self._started_count % PRUNE_EVERY == 0:
            self._spawn(self._prune_logs())
        self._started_count += 1
        task = self._tasks[spec.attempt_id] = asyncio.create_task(self._run(job))
        task.add_done_callback(lambda _: self._tasks.pop(spec.attempt_id))
        self._changes.announce_soon()

    def stop(self, attempt_id: str, request: StopRequest) -> None:
        """Does nothing if the attempt has ended. Raises NotFound or Invalid."""
        if request.outcome not in (JobOutcome.STOPPED, JobOutcome.INTERRUPTED):
            raise Invalid(f"An attempt cannot be stopped with the outcome {request.outcome}.")
        job = self._running.get(attempt_id)
        if job is not None:
            job.stop(request)
        elif attempt_id not in self._ended:
            raise NotFound(f"There is no attempt {attempt_id}.")

    def delete(self, attempt_id: str) -> None:
        """Kills a running attempt. Raises NotFound."""
        if (job := self._running.get(attempt_id)) is not None:
            job.kill()
            self._spawn(self._forget_after(self._tasks[attempt_id], attempt_id))
        elif self._ended.pop(attempt_id, None) is not None:
            self._reports.forget(attempt_id)
            self._changes.announce_soon()
        else:
            raise NotFound(f"There is no attempt {attempt_id}.")

    def kill_all(self) -> None:
        """Ends every attempt at once, without an outcome: control has started others by now."""
        for job in self._running.values():
            job.kill()

    def specs(self) -> tuple[JobSpec, ...]:
        return tuple(job.spec for job in self._running.values())

    async def samples(self) -> tuple[JobSample, ...]:
        by_job = await asyncio.gather(*(job.samples() for job in self._running.values()))
        return tuple(sample for samples in by_job for sample in samples)

    async def _prune_logs(self) -> None:
        running = frozenset(job.spec.job_name for job in self._running.values())
        most = self._context.settings.max_job_logs
        folder = self._context.home.logs / "training-jobs"
        await asyncio.to_thread(prune_job_logs, folder, running, most)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    async def _run(self, job: JobAttempt) -> None:
        try:
            await job.run()
        except Exception:
            # Control starts another attempt.
            about = {"action": "job_lost", "attempt": job.spec.attempt_id}
            log.exception("An attempt failed unexpectedly.", extra=about)
        finally:
            del self._running[job.spec.attempt_id]
            if job.report.outcome is not None:
                self._ended[job.spec.attempt_id] = job.report  # announced already
            else:
                self._changes.announce()

    async def _forget_after(self, task: asyncio.Task[None], attempt_id: str) -> None:
        await asyncio.wait({task})
        if self._ended.pop(attempt_id, None) is not None:
            self._reports.forget(attempt_id)
            self._changes.announce_soon()
