"""Agents of a cluster's nodes, in memory, by a clock that the test moves."""

import asyncio
import itertools

import msgspec

from sagehen.agent.messages import InstanceList
from sagehen.base.errors import Invalid, NotFound, NotLeading, Unavailable
from sagehen.frame.container_specs import InstanceReport, InstanceSpec, InstanceState
from sagehen.frame.gpus import GpuList
from sagehen.frame.job_specs import JobList, JobReport, JobSpec
from sagehen.frame.nodes import LeaseAnswer, ModelList, NodeDescription, Resources, RunningSpecs
from sagehen.frame.routes import TableText
from sagehen.placement.records import NodeRecord
from support.clock import SteppedClock
from support.fleet import CONTAINERS

VERSIONS = itertools.count(1)
LARGE = Resources(cpus=64, memory_bytes=256 * 2**30, gpus=0)


class FakeNode:
    """The agent of one node, and its client."""

    def __init__(self, node_id: str, clock: SteppedClock) -> None:
        self.node_id = node_id
        self.clock = clock
        self.run_id = f"{node_id}-1"
        self.instance_specs: dict[str, InstanceSpec] = {}
        self.states: dict[str, InstanceState] = {}
        self.job_specs: dict[str, JobSpec] = {}
        self.job_reports: dict[str, JobReport] = {}
        self.tables: list[bytes] = []
        self.takes_changes = True
        self.leases: list[tuple[float, object]] = []
        self.calls: list[tuple[str, str]] = []
        self.refuses: str | None = None
        """Why puts are refused."""
        self.is_leading = True
        """Whether control has its lease; without it, a client asks nothing."""
        self.held_models: list[str] = []
        self.answer_logs = lambda request: {}
        self.closed = False
        self._version = next(VERSIONS)
        self._changed = asyncio.Event()
        self._awake = asyncio.Event()
        self._awake.set()
        self._is_dead = False

    # What the test does

    def die(self) -> None:
        """Every call fails at once, also those that wait."""
        self._is_dead = True
        self._change()

    def restart(self) -> None:
        """Another agent, with nothing."""
        self._is_dead = False
        self.run_id += "'"
        self.instance_specs, self.states, self.job_specs, self.job_reports = {}, {}, {}, {}
        self._change()

    def hang(self) -> None:
        self._awake.clear()

    def go_on(self) -> None:
        self._awake.set()

    def set_state(self, instance_id: str, state: InstanceState) -> None:
        self.states[instance_id] = state
        self._change()

    def end_instance(self, instance_id: str) -> None:
        del self.instance_specs[instance_id], self.states[instance_id]
        self._change()

    def set_job(self, report: JobReport) -> None:
        self.job_reports[report.attempt_id] = report
        self._change()

    def has(self, spec: InstanceSpec, state: InstanceState = InstanceState.IN_SERVICE) -> None:
        self.instance_specs[spec.instance_id] = spec
        self.set_state(spec.instance_id, state)

    def _change(self) -> None:
        self._version = next(VERSIONS)
        self._changed.set()
        self._changed = asyncio.Event()

    # The client

    async def _call(self, name: str, about: str = "") -> None:
        if not self.is_leading:
            raise NotLeading
        await self._awake.wait()
        if self._is_dead:
            raise Unavailable(f"{self.node_id} is dead.")
        self.calls.append((name, about))

    async def _changes(self, since, wait_seconds) -> None:
        await self._call("poll")
        if since == self._version and wait_seconds:
            await self._changed.wait()
            await self._call("poll")

    async def describe(self) -> NodeDescription:
        await self._call("describe")
        return NodeDescription(node_id=self.node_id, run_id=self.run_id, resources=LARGE)

    async def specs(self) -> RunningSpecs:
        await self._call("specs")
        return RunningSpecs(
            instances=tuple(self.instance_specs.values()), jobs=tuple(self.job_specs.values())
        )

    async def renew_lease(self, request, timeout_seconds) -> LeaseAnswer:
        waiting = asyncio.ensure_future(self._call("lease"))
        tiring = asyncio.ensure_future(self.clock.sleep(timeout_seconds))
        try:
            await asyncio.wait({waiting, tiring}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise Unavailable("not answered in time")
            waiting.result()
        finally:
            waiting.cancel()
            tiring.cancel()
        self.leases.append((self.clock.monotonic(), request.answered_at))
        return LeaseAnswer(
            run_id=self.run_id,
            answered_at=self.clock.monotonic(),
            models_version=len(self.held_models),
        )

    async def models(self) -> ModelList:
        await self._call("models")
        return ModelList(version=len(self.held_models), models=tuple(self.held_models))

    async def put_routes(self, table) -> None:
        await self._call("routes")
        self.tables.append(table)

    async def change_routes(self, changes) -> bool:
        await self._call("route changes")
        if not self.takes_changes:
            return False
        self.tables.append(TableText(self.tables[-1]).after(changes).content)
        return True

    async def read_logs(self, request) -> bytes:
        await self._call("logs")
        return msgspec.json.encode(self.answer_logs(msgspec.json.decode(request)))

    async def instances(self, since=None, wait_seconds=0) -> InstanceList:
        await self._changes(since, wait_seconds)
        return InstanceList(
            version=self._version,
            instances=tuple(
                InstanceReport(instance_id=key, state=state, owner=self.instance_specs[key].owner)
                for key, state in self.states.items()
            ),
        )

    async def put_instance(self, spec) -> None:
        await self._call("put", spec.instance_id)
        if self.refuses:
            raise Invalid(self.refuses)
        if spec.instance_id not in self.states:
            self.has(spec, InstanceState.STARTING)

    async def delete_instance(self, instance_id) -> None:
        await self._call("delete", instance_id)
        if instance_id in self.states:
            self.set_state(instance_id, InstanceState.STOPPING)

    async def keep_warm(self, images) -> None:
        await self._call("warm", *images)

    async def jobs(self, since=None, wait_seconds=0) -> JobList:
        await self._changes(since, wait_seconds)
        return JobList(version=self._version, jobs=tuple(self.job_reports.values()))

    async def put_job(self, spec) -> None:
        await self._call("put", spec.attempt_id)
        self.job_specs[spec.attempt_id] = spec
        self.set_job(JobReport(attempt_id=spec.attempt_id))

    async def stop_job(self, attempt_id, request=None) -> None:
        await self._call("stop", attempt_id)
        if attempt_id not in self.job_reports:
            raise NotFound("no such attempt")

    async def delete_job(self, attempt_id) -> None:
        await self._call("delete", attempt_id)
        self.job_specs.pop(attempt_id, None)
        if self.job_reports.pop(attempt_id, None):
            self._change()

    async def job_samples(self):
        await self._call("job_samples")
        return []

    async def metrics(self):
        await self._call("metrics")
        return [self.node_id]

    async def problems(self):
        await self._call("problems")
        return ["It is too warm."]

    async def gpus(self):
        await self._call("gpus")
        return GpuList(problem=f"{self.node_id} has none")

    async def missing_walls(self):
        await self._call("walls")
        return ["network"]

    def close(self) -> None:
        self.closed = True


def node_record(node_id: str, **members) -> NodeRecord:
    return NodeRecord(
        **{
            "node_id": node_id,
            "agent_address": f"{node_id}:1",
            "peer_address": f"{node_id}:2",
            "gateway_address": f"{node_id}:3",
            "resources": LARGE,
            **members,
        }
    )


def variant_spec(instance_id: str, endpoint: str = "houses", **members) -> InstanceSpec:
    """An instance of ml.m5.large: 2 vCPUs, 8 GiB."""
    spec = InstanceSpec(
        instance_id=instance_id,
        endpoint_name=endpoint,
        variant_name="a",
        instance_type="ml.m5.large",
        containers=CONTAINERS,
    )
    return msgspec.structs.replace(spec, **members)


def attempt_spec(attempt_id: str, **members) -> JobSpec:
    usual = {
        "attempt_id": attempt_id,
        "job_name": "count",
        "job_arn": "arn:aws:sagemaker:us-east-1:000000000000:training-job/count",
        "image": "anything",
        "instance_type": "ml.m5.large",
        "output_uri": "s3://bucket/out",
        "runtime_seconds": 3600,
    }
    return JobSpec(**usual | members)
