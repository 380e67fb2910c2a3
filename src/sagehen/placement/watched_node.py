"""One node as the leading control sees it: its heartbeat, its reports, its route table."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeVar

import msgspec

from sagehen.agent.messages import InstanceList, JobSample, Sample
from sagehen.base.clock import Clock
from sagehen.base.concurrency import first_of
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.retry import Backoff
from sagehen.frame.container_specs import InstanceReport, InstanceSpec
from sagehen.frame.gpus import GpuList
from sagehen.frame.job_specs import JobList, JobReport, JobSpec, StopRequest
from sagehen.frame.nodes import (
    LeaseAnswer,
    LeaseRequest,
    ModelList,
    NodeDescription,
    NodeRequests,
    RunningSpecs,
)
from sagehen.frame.routes import TableText
from sagehen.frame.state_watch import Versioned
from sagehen.placement.heartbeat import Heartbeat
from sagehen.placement.records import NodeRecord

__all__ = ["NodeAgent", "WatchedNode"]

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 5.0
FIRST_AWAY_SECONDS = 0.05
LONGEST_AWAY_SECONDS = 0.5
READ_MODELS_SECONDS = 5.0
"""at least between two readings"""

Answer = TypeVar("Answer", bound=Versioned)
T = TypeVar("T")


class NodeAgent(Protocol):
    """The methods of a node's agent; all raise Unavailable while it does not answer."""

    async def describe(self) -> NodeDescription: ...
    async def specs(self) -> RunningSpecs: ...
    async def renew_lease(self, request: LeaseRequest, timeout_seconds: float) -> LeaseAnswer: ...
    async def models(self) -> ModelList: ...
    async def put_routes(self, table: bytes) -> None: ...
    async def change_routes(self, changes: bytes) -> bool: ...
    async def read_logs(self, request: bytes) -> bytes: ...
    async def instances(
        self, since: int | None = None, wait_seconds: float = 0
    ) -> InstanceList: ...
    async def put_instance(self, spec: InstanceSpec) -> None: ...
    async def delete_instance(self, instance_id: str) -> None: ...
    async def keep_warm(self, images: Sequence[str]) -> None: ...
    async def jobs(self, since: int | None = None, wait_seconds: float = 0) -> JobList: ...
    async def put_job(self, spec: JobSpec) -> None: ...
    async def stop_job(self, attempt_id: str, request: StopRequest | None = None) -> None: ...
    async def delete_job(self, attempt_id: str) -> None: ...
    async def job_samples(self) -> list[JobSample]: ...
    async def metrics(self) -> list[Sample]: ...
    async def problems(self) -> list[str]: ...
    async def gpus(self) -> GpuList: ...
    async def missing_walls(self) -> list[str]: ...
    def close(self) -> None: ...


class WatchedNode:
    """Follows a node until `close`.

    Args:
        is_known: whether the fleet knows the spec of an instance or attempt.
        learn: tells the fleet the specs of what runs on the node.
        on_change: called when the node has come or gone, or has reported for the first time.
        on_reports: called with the ids of instances or attempts whose reports are different.
    """

    def __init__(
        self,
        record: NodeRecord,
        agent: NodeAgent,
        clock: Clock,
        is_known: Callable[[str], bool],
        learn: Callable[[RunningSpecs], None],
        on_change: Callable[[], None],
        on_reports: Callable[[Set[str]], None],
    ) -> None:
        self.record = record
        self.agent = agent
        self.heartbeat = Heartbeat(record.node_id, self._renew_lease, clock, self._on_heartbeat)
        self.has_settled = False
        """it has reported everything, or was lost, since control leads"""
        self.models: frozenset[str] = frozenset()
        """the model data that it has on disk, as `model_version` names it"""
        self._models_version = ("", 0)
        """and the agent's run"""
        self._models_changed = asyncio.Event()
        self._clock = clock
        self._is_known = is_known
        self._learn = learn
        self._on_change = on_change
        self._on_reports = on_reports
        self._instances: Mapping[str, InstanceReport] | None = None
        self._jobs: Mapping[str, JobReport] | None = None
        self._run_id = ""
        self._lost = asyncio.Event()
        self._outdated = asyncio.Event()
        self._routes: TableText | None = None
        self._routes_changed = asyncio.Event()
        self._tasks = [
            asyncio.create_task(work)
            for work in (
                self.heartbeat.run(),
                self._follow(agent.instances, self._store_instances, lambda: self._instances),
                self._follow(agent.jobs, self._store_jobs, lambda: self._jobs),
                self._push_routes(),
                self._follow_models(),
            )
        ]

    @property
    def node_id(self) -> str:
        return self.record.node_id

    @property
    def is_alive(self) -> bool:
        """Whether the node answers, and what it reports is new."""
        reports = self._instances is not None and self._jobs is not None
        return self.heartbeat.is_alive and reports

    @property
    def instances(self) -> Mapping[str, InstanceReport]:
        return self._instances or {}

    @property
    def jobs(self) -> Mapping[str, JobReport]:
        """Attempts that run here as far as is known: those of a lost node may, until it is
        fenced."""
        return self._jobs or {}

    @property
    def requests(self) -> NodeRequests:
        return self.heartbeat.requests

    @property
    def may_run_jobs(self) -> bool:
        """Whether attempts that control has not heard of may run here."""
        return not self.is_alive and not self.heartbeat.is_fenced

    async def call(self, request: Coroutine[Any, Any, T]) -> T:
        """Waits for the agent, but not for longer than it takes to notice that it is lost. Raises
        Unavailable."""
        done, _ = await first_of(request, self._lost.wait())
        if done is None:
            raise Unavailable(f"The node {self.node_id} does not answer.")
        answer: T = done.result()
        return answer

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.agent.close()

    def set_routes(self, table: TableText) -> None:
        self._routes = table
        self._routes_changed.set()

    async def _renew_lease(self, request: LeaseRequest, timeout_seconds: float) -> LeaseAnswer:
        answer = await self.agent.renew_lease(request, timeout_seconds)
        models = (answer.run_id, answer.models_version)
        if answer.models_version and models != self._models_version:
            self._models_version = models
            self._models_changed.set()
        return answer

    def _on_heartbeat(self) -> None:
        heartbeat = self.heartbeat
        if heartbeat.is_lost:
            self.has_settled = True
            self._instances = None
            self._lost.set()
        else:
            self._lost.clear()
        is_another = self._run_id not in ("", heartbeat.run_id)
        if heartbeat.is_fenced or is_another:
            self._jobs = None
            self._instances = None
        self._run_id = heartbeat.run_id
        # What is forgotten is read anew, and not after the long poll.
        self._outdated.set()
        self._outdated = asyncio.Event()
        self._routes_changed.set()
        self._on_change()

    async def _follow(
        self,
        poll: Callable[[int | None, float], Coroutine[Any, Any, Answer]],
        store: Callable[[Answer], Awaitable[None]],
        stored: Callable[[], object | None],
    ) -> None:
        """Keeps a list of reports new. After an error it is read anew as a whole."""
        version: int | None = None
        backoff = Backoff(FIRST_AWAY_SECONDS, LONGEST_AWAY_SECONDS)
        while True:
            if stored() is None:
                version = None
            try:
                seconds = 0 if version is None else LONG_POLL_SECONDS
                done, _ = await first_of(poll(version, seconds), self._outdated.wait())
                if done is None:
                    continue
                answer = done.result()
                if answer.version != version:
                    await store(answer)
                version = answer.version
            except Exception as error:
                if not isinstance(error, SagehenError):
                    about = {"action": "watch_failed", "node": self.node_id}
                    log.exception("Watching a node failed and is tried again.", extra=about)
                version = None
                await self._clock.sleep(backoff.next_seconds())
            else:
                backoff.reset()

    async def _store_instances(self, answer: InstanceList) -> None:
        await self._learn_of(report.instance_id for report in answer.instances)
        before = self._instances
        self._instances = {
            report.instance_id: msgspec.structs.replace(report, node_id=self.node_id)
            for report in answer.instances
        }
        self._note_reports(before, self._instances)

    async def _store_jobs(self, answer: JobList) -> None:
        await self._learn_of(job.attempt_id for job in answer.jobs if job.outcome is None)
        before = self._jobs
        self._jobs = {job.attempt_id: job for job in answer.jobs}
        self._note_reports(before, self._jobs)

    async def _learn_of(self, ids: Iterable[str]) -> None:
        if not all(map(self._is_known, ids)):
            self._learn(await self.agent.specs())

    def _note_reports(
        self, before: Mapping[str, object] | None, after: Mapping[str, object]
    ) -> None:
        had_settled, self.has_settled = self.has_settled, self.has_settled or self.is_alive
        if before is None or not had_settled:
            self._on_change()
            return
        different = {key for key, report in after.items() if before.get(key) != report}
        self._on_reports(different | (before.keys() - after.keys()))

    async def _follow_models(self) -> None:
        while True:
            await self._models_changed.wait()
            self._models_changed.clear()
            try:
                self.models = frozenset((await self.agent.models()).models)
            except Exception as error:
                about = {"action": "read_models", "node": self.node_id, "reason": str(error)}
                log.warning("A node did not say which models it has.", extra=about)
                self._models_changed.set()
            # Models of multi-model endpoints come and go often.
            await self._clock.sleep(READ_MODELS_SECONDS)

    async def _push_routes(self) -> None:
        """Sends each route table, and to each new agent the last one: its node may have been
        started anew."""
        sent: TableText | None = None
        sent_to = ""
        backoff = Backoff(FIRST_AWAY_SECONDS, LONGEST_AWAY_SECONDS)
        while True:
            await self._routes_changed.wait()
            self._routes_changed.clear()
            table, run_id = self._routes, self._run_id
            before = sent if sent_to == run_id else None
            if table is None or not self.heartbeat.is_alive or table is before:
                continue
            try:
                await self._send_routes(table, before)
                sent, sent_to = table, run_id
                backoff.reset()
            except Exception as error:
                about = {"action": "push_routes", "node": self.node_id, "reason": str(error)}
                log.warning("A node did not take the route table.", extra=about)
                await self._clock.sleep(backoff.next_seconds())
                self._routes_changed.set()

    async def _send_routes(self, table: TableText, before: TableText | None) -> None:
        """Sends the changes where they are enough."""
        changes = None if before is None else table.changes_since(before)
        if changes is None or not await self.agent.change_routes(changes):
            await self.agent.put_routes(table.content)
