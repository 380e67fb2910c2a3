"""Control's process: APIs, reconcilers and the dispatcher of asynchronous requests."""

import asyncio
import contextlib
import signal
from collections.abc import Container, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
from sqlalchemy import Connection

from sagehen.agent.client import AgentClient
from sagehen.app.api.application import OPERATIONS, Application
from sagehen.app.api.own_paths import OwnPaths
from sagehen.app.cluster import lease_holder
from sagehen.app.offline_results import StoreBuilder
from sagehen.app.roles.common import Start, end_after_error, run, serve_on, start_role
from sagehen.app.roles.control_scaling import Scaling
from sagehen.app.roles.control_services import AlarmParts, Inference, Notices, runner_command
from sagehen.base.clock import SYSTEM
from sagehen.base.concurrency import in_thread
from sagehen.base.credentials import Credentials, load_credentials, load_token
from sagehen.frame.arns import ArnMaker
from sagehen.frame.asgi import BodyBudget
from sagehen.frame.container_relay import LOCAL_ACCESS
from sagehen.frame.context import RequestContext
from sagehen.frame.image_versions import MATCH, describe_versions
from sagehen.frame.leased_loop import keep_sweeping
from sagehen.frame.own_paths.access import Guard, Metrics, OwnSite
from sagehen.gateway.routing.inflight import InflightSums
from sagehen.services.messaging.sns.signing import certificate_route
from sagehen.services.messaging.sqs.message_store import MESSAGES_SENT
from sagehen.services.monitoring.alarms.actions import PolicyTrigger
from sagehen.services.monitoring.metering.hosts import ServerlessLimits
from sagehen.services.monitoring.metering.recorder import Recorder
from sagehen.services.monitoring.metering.sampler import LEASE_NAME as SAMPLING
from sagehen.services.monitoring.metering.sampler import Sampler
from sagehen.services.monitoring.prometheus.exposition import Measured, merged
from sagehen.services.monitoring.prometheus.gateway_totals import Observations
from sagehen.services.s3.storage import open_object_store
from sagehen.services.sagemaker.async_inference.dispatch.assembly import make_dispatcher
from sagehen.services.sagemaker.async_inference.dispatch.sweeps import Sweeps
from sagehen.services.sagemaker.async_inference.intake import AsyncIntake
from sagehen.services.sagemaker.async_inference.invocations import AsyncInvocations
from sagehen.services.sagemaker.async_inference.metrics import Backlogs
from sagehen.services.sagemaker.async_inference.own_paths import AsyncPaths
from sagehen.services.sagemaker.async_inference.queues import AsyncQueues
from sagehen.services.sagemaker.hosting.demand import CallDemand
from sagehen.services.sagemaker.hosting.endpoint_store import first_variant
from sagehen.services.sagemaker.hosting.own_paths import start_route
from sagehen.services.sagemaker.hosting.reconciler.calls import OnDemand
from sagehen.services.sagemaker.hosting.reconciler.draining import Draining
from sagehen.services.sagemaker.hosting.reconciler.loop import EndpointLoop
from sagehen.services.sagemaker.offline_results.builds import StoreBuilds
from sagehen.services.sagemaker.offline_results.own_paths import OfflineResultPaths
from sagehen.services.sagemaker.training.own_paths import JobPaths
from sagehen.services.sagemaker.training.reconciler.interrupts import Interrupts
from sagehen.services.sagemaker.training.reconciler.jobs import JobLimits
from sagehen.services.sagemaker.training.reconciler.loop import JobLoop
from sagehen.services.sagemaker.transform.data_log import JobDataLog
from sagehen.services.sagemaker.transform.own_paths import TransformPaths
from sagehen.services.sagemaker.transform.reconciler.loop import TransformLoop
from sagehen.services.sagemaker.transform.runner_messages import S3Access
from sagehen.services.stacks.own_paths import stack_routes
from sagehen.state.database import Database
from sagehen.state.group_commit import GroupCommit
from sagehen.state.leadership import LEADERSHIP_CHANGED, Leadership
from sagehen.state.remote_hints import RemoteHints
from sagehen.wire.signatures.sigv4 import Verifier

if TYPE_CHECKING:
    from sagehen.app.roles.control_cluster import ClusterParts

__all__: list[str] = []

SWEEP_FILES_SECONDS = 3600.0
# Channels of notifications
ENDPOINTS_CHANGED = "endpoints"
REQUESTS_QUEUED = "async-requests"
FIRST_LOOK_SECONDS = 5.0
"""the longest wait at start for the first look at the endpoints"""


class _Control:
    """Control's objects, which must be created in its event loop."""

    def __init__(self, start: Start) -> None:
        self._settings = settings = start.settings
        self._database = Database(settings.state_url, by_control=True)
        self._writes = GroupCommit(self._database)
        self.objects = open_object_store(settings, start.home, self._database, SYSTEM, self._writes)
        holder = lease_holder(settings, start.home)
        self._leadership = leadership = Leadership(self._database, SYSTEM, holder)
        self._cluster = self._make_cluster(start)
        self._agent = self._cluster.fleet if self._cluster else AgentClient(start.home.agent_socket)
        self._remote_hints = RemoteHints(self._database, SYSTEM, self._is_wanted_elsewhere)
        recorder = Recorder(SYSTEM, self._database, settings.max_metric_series, first_variant)
        store = (self._database, self._writes, self.objects)
        self._access = self._cluster.access if self._cluster else LOCAL_ACCESS
        self._dispatcher = make_dispatcher(
            settings, start.home, *store, recorder.record, SYSTEM, leadership, self._access
        )
        self._builds = StoreBuilds(start.home.offline_results, StoreBuilder(settings).build, SYSTEM)
        self._demand = CallDemand(SYSTEM, settings.serverless_idle_seconds)
        in_flight = InflightSums(start.home.inflight_table)
        on_nodes = self._cluster.requests.called if self._cluster else None
        self._draining = Draining(settings.drain_seconds, in_flight.outstanding, on_nodes)
        self._loop = self._make_loop(start, recorder)
        self._observations = Observations(SYSTEM)
        self._sampler = self._make_sampler(recorder)
        self.notices = Notices(
            start,
            self._database,
            self._writes,
            recorder.record,
            leadership,
            lambda: self._remote_hints.is_heard,
        )
        self._alarms = AlarmParts(settings, self._database, leadership, self._invoke_policy)
        self._scaling = Scaling(
            self._database,
            ArnMaker.of(settings),
            self._make_call,
            self._alarms.managed,
            SYSTEM,
            leadership,
            self._hint_endpoints,
        )
        self._bodies = BodyBudget(settings.max_held_control_body_bytes)
        self._site = OwnSite(settings.public_url, settings.allowed_hosts)
        self.inference = Inference(settings, *store, self._site, self._bodies)
        self._jobs = self._make_job_loop()
        keys = load_credentials(start.home.credentials)
        self._transforms = self._make_transform_loop(start, keys)
        self._token = load_token(start.home.token)
        self._verifier = Verifier({keys.access_key: keys.secret_key}, SYSTEM, settings.region)
        self._connect_hints()

    def _connect_hints(self) -> None:
        for loop in (self._loop, self._jobs, self._transforms):
            loop.owns_agent = self._cluster is None
        if self._cluster is not None:
            self._leadership.on_change(self._sampler.change_leader)
            self._cluster.fleet.on_nodes = self._loop.hint
            self._cluster.on_relay_nodes = self._transforms.hint
            self._leadership.on_change(self._cluster.hint)
        self._database.listen(ENDPOINTS_CHANGED, lambda _: self._loop.hint())
        self._database.listen(REQUESTS_QUEUED, lambda _: self._dispatcher.hint())
        self._demand.hint = self._loop.hint
        self._builds.on_change = self._loop.hint
        self._dispatcher.on_idle = self._loop.hint

    def _make_cluster(self, start: Start) -> "ClusterParts | None":
        if start.settings.cluster is None:
            return None
        # Not imported on a machine of its own.
        from sagehen.app.roles.control_cluster import ClusterParts

        return ClusterParts(start, self._database, self._leadership)

    def _on_routes(self) -> None:
        self._dispatcher.hint()
        if self._cluster is not None:
            self._cluster.fleet.hint_routes()

    def _invoke_policy(
        self, connection: Connection, trigger: PolicyTrigger, now: datetime
    ) -> str | None:
        # Alarms and scaling need each other.
        return self._scaling.invoke(connection, trigger, now)

    def _make_loop(self, start: Start, recorder: Recorder) -> EndpointLoop:
        on_demand = OnDemand(
            demand=self._demand,
            idle_seconds=self._settings.serverless_idle_seconds,
            max_instances=self._settings.max_endpoint_instances,
            free_memory=lambda: psutil.virtual_memory().available,
            record=recorder.record,
        )
        return EndpointLoop(
            self._database,
            self._agent,
            self._builds,
            start.home,
            SYSTEM,
            self._leadership,
            busy=lambda: self._dispatcher.busy,
            on_routes=self._on_routes,
            on_demand=on_demand,
            draining=self._draining,
            cluster=self._cluster.nodes if self._cluster is not None else None,
        )

    def _serverless_limits(self) -> dict[tuple[str, str], ServerlessLimits]:
        return {
            name: ServerlessLimits(plan.max_concurrency, plan.provisioned_concurrency or 0)
            for name, plan in self._demand.serverless.items()
        }

    def _make_sampler(self, recorder: Recorder) -> Sampler:
        return Sampler(
            self._settings,
            self._database,
            recorder,
            self._observations,
            self._agent,
            SYSTEM,
            self._leadership.lease(SAMPLING),
            Backlogs().read,
            self._serverless_limits,
        )

    def _make_transform_loop(self, start: Start, keys: Credentials) -> TransformLoop:
        settings = self._settings
        return TransformLoop(
            self._database,
            self._agent,
            SYSTEM,
            self._leadership,
            ArnMaker.of(settings),
            settings,
            objects=self.objects,
            data_log=JobDataLog(start.home, settings.container_log_bytes, SYSTEM),
            runner_command=partial(runner_command, settings.transform_runner_memory_bytes),
            s3=S3Access(
                address=f"unix:{start.home.control_socket}",
                access_key=keys.access_key,
                secret_key=keys.secret_key,
                region=settings.region,
            ),
            access=self._access,
        )

    def _make_job_loop(self) -> JobLoop:
        settings = self._settings
        return JobLoop(
            self._database,
            self._agent,
            SYSTEM,
            self._leadership,
            ArnMaker.of(settings),
            JobLimits.of(settings),
            on_end=[self.inference.on_end],
        )

    def app(self) -> Application:
        account_id = self._settings.account_id
        intake = AsyncIntake(self._writes, account_id, self._hint_dispatcher)
        return Application(
            self._cluster.operations if self._cluster else OPERATIONS,
            self._verifier,
            self._make_call,
            self._own_paths(),
            AsyncInvocations(self._verifier, intake, SYSTEM, self._bodies),
            self.inference.answers,
            self._site,
            self._bodies,
        )

    def _own_paths(self) -> Guard:
        queues = AsyncPaths(AsyncQueues(self._database, SYSTEM, self._hint_dispatcher))
        jobs = JobPaths(Interrupts(self._database, self._agent))
        transforms = TransformPaths(self._database, SYSTEM)
        results = OfflineResultPaths(self._database, self._builds, self._hint_endpoints, SYSTEM)
        of_cluster = () if self._cluster is None else (self._cluster.paths,)
        own = (queues, jobs, transforms, results, *of_cluster)
        internal = (start_route(self._demand), certificate_route(self.notices.signer))
        of_parts = (route for paths in own for route in paths.routes)
        stacks = stack_routes(self._database, SYSTEM)
        other_routes = [*of_parts, *stacks, *self.inference.routes(), *internal]

        def measured(endpoints: Container[str]) -> Measured:
            of_jobs = merged(self._jobs.measured(), self._transforms.measured())
            combined = merged(self.inference.measured(), of_jobs)
            for limit, counter in (("control_bodies", self._bodies), ("drain", self._draining)):
                combined = merged(combined, {"LimitHits": {(limit,): counter.hits}})
            combined = merged(combined, self.objects.measured())
            if self._cluster is not None:
                combined = merged(combined, self._cluster.measured())
            return merged(self._sampler.measured(endpoints), combined)

        paths = OwnPaths(
            self._observations,
            self._database,
            self._agent,
            measured,
            other_routes,
            self._site,
            self._settings.inference_service,
            self._describe_image,
            lambda report: self._demand.note_report(str(report.gateway), report.variants),
            lambda: self._cluster is not None and self._cluster.paths.is_leaving,
        )
        metrics = Metrics(self._settings.host, self._settings.open_metrics)
        guards = (self._verifier, self._token, self._site, metrics, self._bodies)
        return Guard(self._cluster.relay.wrap(paths.app) if self._cluster else paths.app, *guards)

    def _describe_image(self, image: str) -> str | None:
        settings = self._settings
        mode = settings.image_versions
        text, differs = describe_versions(image, mode, settings.images, settings.launcher)
        return text if differs or mode == MATCH else None

    def _hint_dispatcher(self, _: str) -> None:
        self._database.announce(REQUESTS_QUEUED)

    def _hint_endpoints(self) -> None:
        self._database.announce(ENDPOINTS_CHANGED)

    def _is_wanted_elsewhere(self, channel: str) -> bool:
        """The leader's loops are here; long polls may be anywhere."""
        return not self._leadership.is_leader or channel in (MESSAGES_SENT, LEADERSHIP_CHANGED)

    def _make_call(self, request_id: str) -> RequestContext:
        return RequestContext(
            settings=self._settings,
            database=self._database,
            writes=self._writes,
            objects=self.objects,
            clock=SYSTEM,
            arns=ArnMaker.of(self._settings),
            request_id=request_id,
            hint=self._hint_endpoints,
            seal=self.notices.seal,
            arrivals=self.notices.arrivals,
            alarms=self._alarms.changes,
            autoscaling=self._scaling.autoscaler,
        )

    def duties(self) -> list[Coroutine[Any, Any, object]]:
        history = self._settings.async_history_seconds
        return [
            self._loop.run(),
            self._jobs.run(),
            self._transforms.run(),
            self._dispatcher.run(),
            self._sampler.run(),
            *self.notices.duties(),
            *self._alarms.duties(),
            *self._scaling.duties(),
            *self.inference.duties(),
            *(self._cluster.duties() if self._cluster is not None else ()),
            Sweeps(self._writes, SYSTEM, history).run(),
            keep_sweeping(self._sweep_files, SWEEP_FILES_SECONDS, SYSTEM, "files of objects"),
        ]

    async def _sweep_files(self) -> None:
        await in_thread(self.objects.sweep)

    def serving_cluster(self) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._cluster is None else self._cluster.serving()

    async def first_look(self) -> None:
        await self._loop.first_look.wait()

    async def lead(self) -> None:
        """Runs beside the duties; another control takes over when it is cancelled."""
        hinting = asyncio.create_task(self._remote_hints.run())
        try:
            await self._leadership.run()
            await hinting
        finally:
            await self._leadership.let_go()
            hinting.cancel()
            await asyncio.gather(hinting, return_exceptions=True)

    async def close(self) -> None:
        await self.notices.close()
        self._writes.close()
        self._database.close()


async def _main(start: Start) -> None:
    control = _Control(start)
    await asyncio.to_thread(control.objects.recover)
    await asyncio.to_thread(control.inference.begin)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, control.notices.arrivals.close)
    leading = asyncio.create_task(control.lead())
    leading.add_done_callback(end_after_error)
    duties = [asyncio.create_task(duty) for duty in control.duties()]
    try:
        # A server that reports ready should know its endpoints.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await control.first_look()
        async with control.serving_cluster():
            await serve_on(start.home.control_socket, control.app())
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        await control.close()


if __name__ == "__main__":
    run(_main(start_role("control")))
