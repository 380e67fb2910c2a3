"""The runners of this control: one process for each running job, started again when it dies."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.base.retry import AWAY, Backoff
from sagehen.frame.container_relay import RelayNodes
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.services.sagemaker.transform.progress import RunnerMessage
from sagehen.services.sagemaker.transform.reconciler.plan import (
    JobStep,
    RunnerAction,
    RunnerFacts,
)
from sagehen.services.sagemaker.transform.reconciler.runner_process import (
    MakeProcess,
    RunnerCommand,
    RunnerProcess,
)
from sagehen.services.sagemaker.transform.runner_messages import (
    Done,
    FailedObject,
    Progress,
    RunnerEnded,
    RunnerSpec,
)

__all__ = ["Runners"]

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 10.0

MakeSpec = Callable[[TransformJobRecord, TransformProgress], RunnerSpec]
"""blocks"""


@dataclass
class _JobRunner:
    """The runners of one job, one after another."""

    process: RunnerProcess | None = None
    is_stopping: bool = False
    """its end is no death"""
    deaths: int = 0
    """in a row, without progress"""
    most_records: int = 0
    """that any runner has reported"""
    starts_at: float = 0.0
    """monotonic: when the next may start"""
    messages: list[RunnerMessage] = field(default_factory=list)
    """of earlier processes, not stored yet"""
    backoff: Backoff = field(
        default_factory=lambda: Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
    )

    @property
    def unstored(self) -> tuple[RunnerMessage, ...]:
        return (*self.messages, *(self.process.messages if self.process else ()))

    def forget(self, count: int) -> None:
        """Removes the first `count` of `unstored`."""
        of_earlier = min(count, len(self.messages))
        del self.messages[:of_earlier]
        if self.process is not None:
            del self.process.messages[: count - of_earlier]

    def note_progress(self) -> None:
        """Resets the back-off when a runner got further than any before it."""
        for message in self.unstored:
            if isinstance(message, FailedObject) or (isinstance(message, Done) and message.keys):
                self._advance()
            elif isinstance(message, Progress) and message.records > self.most_records:
                self.most_records = message.records
                self._advance()

    def _advance(self) -> None:
        self.deaths = 0
        self.backoff.reset()


class Runners:
    """All methods are called in the event loop.

    `nodes` returns how runners reach instances of other machines; None on one machine.
    """

    def __init__(
        self,
        command: RunnerCommand,
        make_spec: MakeSpec,
        clock: Clock,
        on_change: Callable[[], None],
        make_process: MakeProcess = RunnerProcess,
        nodes: Callable[[], RelayNodes | None] = lambda: None,
    ) -> None:
        self._nodes = nodes
        self._command = command
        self._make_spec = make_spec
        self._clock = clock
        self._on_change = on_change
        self._make_process = make_process
        self._jobs: dict[str, _JobRunner] = {}
        self.restarts = 0

    def facts(self) -> dict[str, RunnerFacts]:
        """Returns what is known, by job id; `forget` the messages once they are stored."""
        facts = {}
        for job_id, runner in self._jobs.items():
            runner.note_progress()
            self._bury(job_id, runner)
            facts[job_id] = RunnerFacts(
                is_running=runner.process is not None and runner.process.has_job,
                deaths=runner.deaths,
                messages=runner.unstored,
            )
        return facts

    def forget(self, facts: Mapping[str, RunnerFacts]) -> None:
        for job_id, of_job in facts.items():
            if job_id in self._jobs:
                self._jobs[job_id].forget(len(of_job.messages))

    async def perform(self, steps: Iterable[JobStep]) -> None:
        """Starts, informs, stops and removes runners; removes those of unknown jobs, too."""
        known = {step.job.job_id: step for step in steps}
        gone = [
            job_id
            for job_id in self._jobs
            if job_id not in known or known[job_id].runner is RunnerAction.REMOVE
        ]
        await self._remove(gone)
        for job_id, step in known.items():
            if step.runner is not RunnerAction.REMOVE:
                await self._perform_one(job_id, step)

    async def close(self) -> None:
        await self._remove(list(self._jobs))

    @property
    def wake_at(self) -> float | None:
        """Monotonic: when a runner's back-off ends."""
        now = self._clock.monotonic()
        times = [
            runner.starts_at
            for runner in self._jobs.values()
            if runner.process is None and runner.starts_at > now
        ]
        return min(times, default=None)

    async def _perform_one(self, job_id: str, step: JobStep) -> None:
        runner = self._jobs.get(job_id)
        if step.runner in (RunnerAction.PREPARE, RunnerAction.RUN):
            runner = self._jobs.setdefault(job_id, _JobRunner())
            if runner.process is None and self._clock.monotonic() >= runner.starts_at:
                await self._start(runner, step.job)
        if runner is None or runner.process is None:
            return
        if step.runner is RunnerAction.RUN and not runner.process.has_job:
            await self._begin(runner.process, step)
        if not runner.process.has_job:
            return
        if step.runner is RunnerAction.STOP:
            runner.is_stopping = True
            runner.process.stop()
        elif step.instances is not None:
            runner.process.set_instances(step.instances, self._nodes())

    async def _begin(self, process: RunnerProcess, step: JobStep) -> None:
        try:
            spec = await in_thread(lambda: self._make_spec(step.job, step.progress))
        except AWAY as error:
            log.warning("The runner of %s has to wait: %s", step.job.name, error)
            return
        process.begin(spec)

    async def _start(self, runner: _JobRunner, job: TransformJobRecord) -> None:
        process = self._make_process(self._on_change)
        try:
            await process.start(self._command())
        except OSError as error:
            # A lack of memory, descriptors or processes may pass.
            log.warning("A runner of %s cannot be started: %s", job.name, error)
            self._note_death(runner)
            return
        runner.process = process

    def _bury(self, job_id: str, runner: _JobRunner) -> None:
        """Notes a process that ended without saying so."""
        process = runner.process
        if process is None or not process.has_exited:
            return
        if any(isinstance(message, RunnerEnded) for message in process.messages):
            return
        runner.messages += process.messages
        runner.process = None
        if runner.is_stopping:
            return
        self._note_death(runner)
        self.restarts += 1
        about = {"action": "runner_died", "job_id": job_id, "deaths": runner.deaths}
        log.warning("A runner of a transform job died and is started again.", extra=about)

    def _note_death(self, runner: _JobRunner) -> None:
        runner.deaths += 1
        runner.starts_at = self._clock.monotonic() + runner.backoff.next_seconds()

    async def _remove(self, job_ids: Iterable[str]) -> None:
        processes = [self._jobs.pop(job_id).process for job_id in job_ids]
        await asyncio.gather(*(process.kill() for process in processes if process is not None))
