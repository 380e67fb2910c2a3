"""Control's process: the API of every service but the runtime's synchronous calls, the loops over
endpoints and training jobs, and the dispatcher of asynchronous requests."""

import asyncio
import signal
import socket
from collections.abc import Container, Coroutine
from typing import Any

from sagehen.agent.client import AgentClient
from sagehen.api.app import Application
from sagehen.api.async_intake import Intake
from sagehen.api.async_invocations import AsyncInvocations
from sagehen.api.async_paths import AsyncPaths
from sagehen.api.async_queues import AsyncQueues
from sagehen.api.call import Call
from sagehen.api.exposition import Measured, merged
from sagehen.api.observations import Observations
from sagehen.api.operations import OPERATIONS
from sagehen.api.own_access import Guard, Metrics
from sagehen.api.own_paths import OwnPaths
from sagehen.api.own_site import OwnSite
from sagehen.api.request_body import BodyBudget
from sagehen.api.sns.certificate import certificate_route
from sagehen.api.stacks import stack_routes
from sagehen.api.training.job_paths import JobPaths
from sagehen.clock import SYSTEM
from sagehen.credentials import load_credentials, load_token
from sagehen.deferred.dispatch.assembly import make_dispatcher
from sagehen.deferred.dispatch.sweeps import Sweeps
from sagehen.deferred.sweeping import keep_sweeping
from sagehen.domain.names import ArnMaker
from sagehen.metering.recorder import Recorder
from sagehen.metering.sampler import Sampler
from sagehen.objects import open_object_store
from sagehen.reconcile.jobs.interrupts import Interrupts
from sagehen.reconcile.jobs.limits import JobLimits
from sagehen.reconcile.jobs.loop import JobLoop
from sagehen.reconcile.loop import EndpointLoop
from sagehen.roles.common import Start, run, serve_on, start_role
from sagehen.roles.inference import Inference
from sagehen.roles.notices import Notices
from sagehen.store.database import Database
from sagehen.store.grouped import GroupedWrites
from sagehen.threads import in_thread
from sagehen.wire.sigv4 import Verifier

__all__: list[str] = []

SWEEP_FILES_SECONDS = 3600.0


class _Control:
    """What the process is made of. Made in the event loop that it runs in."""

    def __init__(self, start: Start) -> None:
        self._settings = settings = start.settings
        self._database = Database(settings.state_url, locks_leases=True)
        self._writes = GroupedWrites(self._database)
        self.objects = open_object_store(settings, start.home, self._database, SYSTEM, self._writes)
        self._agent = AgentClient(start.home.agent_socket)
        # Named by its home, not its process: after a restart it takes its own leases over at once.
        holder = f"{socket.gethostname()}:{start.home.path}"
        recorder = Recorder(SYSTEM, self._database, settings.max_metric_series)
        store = (self._database, self._writes, self.objects)
        self._dispatcher = make_dispatcher(
            settings, start.home, *store, recorder.record, SYSTEM, holder
        )
        self._loop = self._make_loop(start, holder)
        self._dispatcher.on_idle = self._loop.hint
        self.notices = Notices(start, self._database, self._writes, recorder.record, holder)
        self._observations = Observations(SYSTEM)
        self._sampler = Sampler(
            settings, self._database, recorder, self._observations, self._agent, SYSTEM, holder
        )
        self._bodies = BodyBudget(settings.max_held_control_body_bytes)
        self._site = OwnSite(settings.public_url, settings.allowed_hosts)
        about = (self._site, self._bodies)
        store = (self._database, self._writes, self.objects)
        self.inference = Inference(settings, *store, *about)
        self._jobs = self._make_job_loop(holder)
        keys = load_credentials(start.home.credentials)
        self._token = load_token(start.home.token)
        self._verifier = Verifier({keys.access_key: keys.secret_key}, SYSTEM, settings.region)

    def _make_loop(self, start: Start, holder: str) -> EndpointLoop:
        return EndpointLoop(
            self._database,
            self._agent,
            start.home,
            SYSTEM,
            holder,
            busy=lambda: self._dispatcher.busy,
            on_routes=self._dispatcher.hint,
        )

    def _make_job_loop(self, holder: str) -> JobLoop:
        settings = self._settings
        return JobLoop(
            self._database,
            self._agent,
            SYSTEM,
            holder,
            ArnMaker.of(settings),
            JobLimits.of(settings),
            on_end=[self.inference.on_end],
        )

    def app(self) -> Application:
        """What answers every request."""
        account_id = self._settings.account_id
        intake = Intake(self._writes, account_id, self._hint_dispatcher)
        return Application(
            OPERATIONS,
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
        stacks = stack_routes(self._database, SYSTEM)
        jobs = JobPaths(Interrupts(self._database, self._agent))
        services = self.inference.routes()
        routes = [*queues.routes, *jobs.routes, *stacks, *services]
        more = [*routes, certificate_route(self.notices.signer)]

        def measured(endpoints: Container[str]) -> Measured:
            own = merged(self.inference.measured(), self._jobs.measured())
            own = merged(own, {"LimitHits": {("control_bodies",): self._bodies.hits}})
            own = merged(own, self.objects.measured())
            return merged(self._sampler.measured(endpoints), own)

        paths = OwnPaths(
            self._observations, self._database, self._agent, measured, more, self._site
        )
        metrics = Metrics(self._settings.host, self._settings.open_metrics)
        about = (self._verifier, self._token, self._site, metrics, self._bodies)
        return Guard(paths.app, *about)

    def _hint_dispatcher(self, _: str) -> None:
        self._dispatcher.hint()

    def _make_call(self, request_id: str) -> Call:
        return Call(
            settings=self._settings,
            database=self._database,
            writes=self._writes,
            objects=self.objects,
            clock=SYSTEM,
            arns=ArnMaker.of(self._settings),
            request_id=request_id,
            hint=self._loop.hint,
            seal=self.notices.seal,
            arrivals=self.notices.arrivals,
        )

    def duties(self) -> list[Coroutine[Any, Any, object]]:
        """What is done beside answering, until it is cancelled."""
        history = self._settings.async_history_seconds
        return [
            self._loop.run(),
            self._jobs.run(),
            self._dispatcher.run(),
            self._sampler.run(),
            *self.notices.duties(),
            *self.inference.duties(),
            Sweeps(self._writes, SYSTEM, history).run(),
            keep_sweeping(self._sweep_files, SWEEP_FILES_SECONDS, SYSTEM, "files of objects"),
        ]

    async def _sweep_files(self) -> None:
        await in_thread(self.objects.sweep)

    async def close(self) -> None:
        """Once nothing uses it any more."""
        await self.notices.close()
        self._writes.close()
        self._database.close()


async def _main(start: Start) -> None:
    control = _Control(start)
    await asyncio.to_thread(control.objects.recover)
    await asyncio.to_thread(control.inference.begin)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, control.notices.arrivals.close)
    duties = [asyncio.create_task(duty) for duty in control.duties()]
    try:
        await serve_on(start.home.control_socket, control.app())
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        await control.close()


if __name__ == "__main__":
    run(_main(start_role("control")))
