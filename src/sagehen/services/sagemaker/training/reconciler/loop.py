"""The loop that runs training jobs.

wake (an operation's commit · agent's report · time) → hold the lease → pass: rows → ask the agent
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from sagehen.base.clock import Clock, ClockJumps
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import Invalid, NotFound, SagehenError
from sagehen.frame.arns import ArnMaker
from sagehen.frame.job_specs import JobList, JobReport, JobSpec, StopRequest
from sagehen.frame.leased_loop import LONGEST_REST_SECONDS, LeasedLoop
from sagehen.frame.state_watch import StateWatch
from sagehen.services.sagemaker.job_tables import JobStage
from sagehen.services.sagemaker.training.reconciler.agent_view import AgentView
from sagehen.services.sagemaker.training.reconciler.jobs import (
    AttemptRequests,
    JobLimits,
    JobPass,
    OnEnd,
)
from sagehen.services.sagemaker.training.store import JOBS_CHANGED
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership

__all__ = ["LEASE_NAME", "JobAgent", "JobLoop"]

log = logging.getLogger(__name__)

LEASE_NAME = "jobs"


class JobAgent(Protocol):
    """The agent's methods for jobs; all raise Unavailable while it is away."""

    async def jobs(self, since: int | None = None, wait_seconds: float = 0) -> JobList: ...

    async def put_job(self, spec: JobSpec) -> None: ...

    async def stop_job(self, attempt_id: str, request: StopRequest | None = None) -> None: ...

    async def delete_job(self, attempt_id: str) -> None: ...


class JobLoop(LeasedLoop):
    """Changes training jobs and asks the agent to run them."""

    def __init__(
        self,
        database: Database,
        agent: JobAgent,
        clock: Clock,
        leadership: Leadership,
        arns: ArnMaker,
        limits: JobLimits,
        on_end: Sequence[OnEnd] = (),
    ) -> None:
        """Args:
        on_end: called once for each job, in the transaction of its final status. If it raises,
            only this job ends later.
        """
        super().__init__(database, clock, LEASE_NAME, leadership)
        self._agent = agent
        self._pass = JobPass(database, self._lease.lease, arns, limits, on_end)
        self._jumps = ClockJumps(clock)
        self._view = AgentView()
        self._watch: StateWatch[JobList, JobReport] = StateWatch(
            agent.jobs, _by_id, clock, self._on_reports, quiet=True
        )
        self._was_away = False
        database.listen(JOBS_CHANGED, lambda _: self.hint())

    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._watch.run()]

    def measured(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Returns Prometheus metrics by dimensions; none while another control runs jobs."""
        if not self._lease.is_ours:
            return {}
        counts, restarts = self._pass.counts, self._pass.restarts
        by_status: Counter[tuple[str, ...]] = Counter()
        by_stage: Counter[JobStage] = Counter()
        for (status, stage), count in counts.items():
            by_status[status.value,] += count
            by_stage[stage] += count
        return {
            "TrainingJobs": dict(by_status),
            "PendingTrainingJobs": {(): by_stage[JobStage.WAITING]},
            "RunningTrainingJobs": {(): by_stage[JobStage.ACTIVE]},
            "TrainingJobRestarts": {(cause.value,): n for cause, n in restarts.items()},
        }

    def _on_reports(self) -> None:
        # Another agent may answer before the next step looks, with no attempts yet.
        self._was_away |= self._watch.reports is None
        self._wake.set()

    def _look(self) -> None:
        if self._was_away:
            self._was_away = False
            self._view.look(None)
        self._view.look(self._watch.reports)

    async def stand_by(self) -> None:
        """Deletes this agent's attempts: the other control restarts their jobs on its own agent."""
        if not self.owns_agent:
            return
        self._look()
        if self._view.reported:
            requests = await in_thread(lambda: self._pass.leftovers(self._view))
            self._view.forget_all_but(requests.newest)
            await self._send_all(requests)

    async def step(self) -> float | None:
        self._look()
        if (jump := self._jumps.look()) is not None:
            await in_thread(lambda: self._pass.shift_clock(jump))
        now = self._clock.now()
        requests = await in_thread(lambda: self._pass.run(self._view, now))
        self._view.forget_all_but(requests.newest)
        await self._send_all(requests)
        if requests.again:
            return 0
        if requests.settled:
            return None
        if requests.gives_up_at is None:
            return LONGEST_REST_SECONDS
        return max(0.0, requests.gives_up_at - self._clock.now())

    async def _send_all(self, requests: AttemptRequests) -> None:
        """Sends all requests to the agent. Failed ones are repeated by the next pass."""
        asking = [
            *(self._put(spec) for spec in requests.put),
            *(self._send("stop", attempt_id, self._agent.stop_job) for attempt_id in requests.stop),
            *(
                self._send("delete", attempt_id, self._agent.delete_job)
                for attempt_id in requests.delete
            ),
        ]
        if not asking:
            return
        for error in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(error, SagehenError):
                about = {"action": "ask_agent", "reason": str(error)}
                log.warning("The agent did not take what it was asked.", extra=about)
            elif error is not None:
                raise error

    async def _put(self, spec: JobSpec) -> None:
        try:
            await self._agent.put_job(spec)
            self._view.note_accepted(spec.attempt_id)
        except Invalid as error:
            self._view.note_refused(spec.attempt_id, str(error))
            self._wake.set()
        except SagehenError:
            self._view.note_unconfirmed(spec.attempt_id)
            raise

    async def _send(
        self, verb: str, attempt_id: str, send: Callable[[str], Awaitable[None]]
    ) -> None:
        try:
            await send(attempt_id)
        except NotFound:
            # A reported attempt disappears with the next report.
            self._view.note_absent(attempt_id)
            return
        self._view.note_requested(verb, attempt_id)


def _by_id(answer: JobList) -> dict[str, JobReport]:
    return {job.attempt_id: job for job in answer.jobs}
