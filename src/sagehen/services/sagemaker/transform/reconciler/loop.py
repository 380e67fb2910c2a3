"""The loop that runs transform jobs.

wake (an operation's commit · agent's report · runner's message · time) → hold the lease
→ pass: rows → ask the agent and the runners
"""

import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.base.settings import Settings
from sagehen.frame.arns import ArnMaker
from sagehen.frame.container_relay import LOCAL_ACCESS, ContainerAccess, locate_report
from sagehen.frame.container_specs import InstanceOwner
from sagehen.frame.leased_loop import LONGEST_REST_SECONDS, LeasedLoop
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.agent_instances import AgentInstances, InstanceAgent
from sagehen.services.sagemaker.hosting.reconciler.plan import Reports
from sagehen.services.sagemaker.transform import store as transform_jobs
from sagehen.services.sagemaker.transform.data_log import JobDataLog
from sagehen.services.sagemaker.transform.job_records import TransformJobRecord, TransformProgress
from sagehen.services.sagemaker.transform.metrics import measure_jobs
from sagehen.services.sagemaker.transform.reconciler.jobs import JobRequests, TransformPass
from sagehen.services.sagemaker.transform.reconciler.left_uploads import LeftUploads
from sagehen.services.sagemaker.transform.reconciler.plan import RunnerFacts
from sagehen.services.sagemaker.transform.reconciler.runner_process import (
    MakeProcess,
    RunnerCommand,
    RunnerProcess,
)
from sagehen.services.sagemaker.transform.reconciler.runners import Runners
from sagehen.services.sagemaker.transform.runner_messages import RunnerSpec, S3Access
from sagehen.services.sagemaker.transform.runner_spec import make_runner_spec
from sagehen.services.sagemaker.transform.store import TRANSFORMS_CHANGED
from sagehen.state.database import Database
from sagehen.state.leadership import Leadership
from sagehen.state.leases import LeaseLost

__all__ = ["LEASE_NAME", "TransformLoop"]

log = logging.getLogger(__name__)

LEASE_NAME = "transform-jobs"


class TransformLoop(LeasedLoop):
    """Changes transform jobs, asks the agent for their instances, and keeps their runners alive."""

    def __init__(
        self,
        database: Database,
        agent: InstanceAgent,
        clock: Clock,
        leadership: Leadership,
        arns: ArnMaker,
        settings: Settings,
        *,
        objects: ObjectStore,
        data_log: JobDataLog,
        runner_command: RunnerCommand,
        s3: S3Access,
        make_process: MakeProcess = RunnerProcess,
        access: ContainerAccess = LOCAL_ACCESS,
    ) -> None:
        super().__init__(database, clock, LEASE_NAME, leadership)
        self._database = database
        self._own_node_id = access.own_node_id
        self._data_log = data_log
        self._left_uploads = LeftUploads(database, objects)
        self._pass = TransformPass(database, self._lease.lease, arns, settings)
        self._runners = Runners(
            runner_command,
            lambda job, progress: self._prepare_runner(job, progress, s3),
            clock,
            self._wake.set,
            make_process,
            access.nodes,
        )
        self._instances = AgentInstances(
            agent, InstanceOwner.TRANSFORM_JOB, clock, self._wake.set, quiet=True
        )
        database.listen(TRANSFORMS_CHANGED, lambda _: self.hint())

    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._instances.watch()]

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self._runners.close()

    def measured(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Returns Prometheus metrics by dimensions; none while another control runs jobs."""
        if not self._lease.is_ours:
            return {}
        return measure_jobs(self._pass.counts, self._pass.active, self._runners.restarts)

    async def stand_by(self) -> None:
        """Ends this control's runners and instances: another restarts the jobs on its agent."""
        await self._runners.close()
        if self.owns_agent:
            await self._instances.stop_all()

    async def step(self) -> float | None:
        reports, facts = self._located_reports(), self._runners.facts()
        requests = await self._take_pass(reports, facts)
        await self._instances.request(requests.start, requests.stop)
        await self._runners.perform(requests.steps)
        await self._end_uploads(requests)
        if requests.settled and not self._left_uploads.may_exist:
            return None
        return min(self._rests(requests), default=LONGEST_REST_SECONDS)

    def _located_reports(self) -> Reports | None:
        reports, own = self._instances.reports, self._own_node_id
        if reports is None or not own:
            return reports
        return {key: locate_report(report, own) for key, report in reports.items()}

    async def _take_pass(
        self, reports: Reports | None, facts: Mapping[str, RunnerFacts]
    ) -> JobRequests:
        now = self._clock.now()
        try:
            requests = await in_thread(lambda: self._pass.run(reports, facts, now))
        except LeaseLost:
            await self._runners.close()
            raise
        # Stored: a runner's messages count once.
        self._runners.forget(facts)
        await in_thread(lambda: self._write_logs(requests, facts))
        return requests

    def _prepare_runner(
        self, job: TransformJobRecord, progress: TransformProgress, s3: S3Access
    ) -> RunnerSpec:
        """Ends what earlier runners of the job have left. Blocks."""
        self._left_uploads.abort_of(job.job_id)
        with self._database.read() as connection:
            finished = transform_jobs.finished_objects(connection, job.job_id)
        return make_runner_spec(job, progress, s3, finished)

    async def _end_uploads(self, requests: JobRequests) -> None:
        """Ends uploads of jobs that have ended; their runners are gone."""
        uploads = self._left_uploads
        uploads.may_exist |= any(step.job.status.is_final for step in requests.steps)
        if uploads.may_exist:
            await in_thread(uploads.abort_all)

    def _write_logs(self, requests: JobRequests, facts: Mapping[str, RunnerFacts]) -> None:
        for step in requests.steps:
            of_job = facts.get(step.job.job_id)
            if of_job is not None and of_job.messages:
                self._data_log.write(step.job, of_job.messages)

    def _rests(self, requests: JobRequests) -> list[float]:
        waits = []
        if requests.wake_at is not None:
            waits.append(max(0.0, requests.wake_at - self._clock.now()))
        if self._runners.wake_at is not None:
            waits.append(max(0.0, self._runners.wake_at - self._clock.monotonic()))
        return waits
