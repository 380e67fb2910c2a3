"""The loop that makes instances match the endpoints' rows.

wake (api's hint · agent's report · time) → hold the lease → pass: rows, then routes → ask the agent
"""

import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from sagehen.base.clock import Clock
from sagehen.base.concurrency import in_thread
from sagehen.base.errors import SagehenError, Unavailable
from sagehen.base.home import Home
from sagehen.frame.container_specs import (
    InstanceOwner,
    InstanceReport,
    InstanceSpec,
    InstanceState,
)
from sagehen.frame.leased_loop import LONGEST_REST_SECONDS, LeasedLoop
from sagehen.frame.state_watch import StateWatch, Versioned
from sagehen.services.sagemaker.hosting.reconciler.endpoints import EndpointPass, InstanceRequests
from sagehen.services.sagemaker.hosting.reconciler.plan import Reports
from sagehen.services.sagemaker.hosting.reconciler.routes import RouteFile
from sagehen.services.sagemaker.offline_results.stores import StoreRequest, StoreStates
from sagehen.state.database import Database

__all__ = [
    "LEASE_NAME",
    "EndpointLoop",
    "InstanceAgent",
    "InstanceReports",
    "ResultStores",
    "new_instance_id",
]

log = logging.getLogger(__name__)

LEASE_NAME = "endpoints"
LONGEST_REASON = 1024
"""characters; from SageMaker's model"""


def new_instance_id(source: random.Random) -> str:
    """Returns an id like EC2's: `i-` and 17 hexadecimal digits."""
    return f"i-{source.getrandbits(68):017x}"


class InstanceReports(Versioned, Protocol):
    """The agent's answer about instances."""

    @property
    def instances(self) -> Sequence[InstanceReport]: ...


class InstanceAgent(Protocol):
    """The agent's methods for instances; all raise Unavailable while it is away."""

    async def instances(
        self, since: int | None = None, wait_seconds: float = 0
    ) -> InstanceReports: ...

    async def put_instance(self, spec: InstanceSpec) -> None: ...

    async def delete_instance(self, instance_id: str) -> None: ...


class ResultStores(Protocol):
    """The stores of offline results."""

    @property
    def states(self) -> StoreStates: ...

    def require(self, requests: Sequence[StoreRequest], routed: StoreStates) -> None:
        """Builds what is missing and removes the rest, in the background."""

    async def run(self) -> None:
        """Runs beside the loop."""


class EndpointLoop(LeasedLoop):
    """Changes endpoints' instances and writes the route table."""

    def __init__(
        self,
        database: Database,
        agent: InstanceAgent,
        stores: ResultStores,
        home: Home,
        clock: Clock,
        holder: str,
        source: random.Random | None = None,
        busy: Callable[[], frozenset[str]] = frozenset,
        on_routes: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        busy: ids of instances that finish their work before they are stopped, unless their
            endpoint is deleted.
        on_routes: called after the route table changes, from any thread.
        """
        super().__init__(database, clock, LEASE_NAME, holder)
        chosen = source or random.SystemRandom()
        self._agent = agent
        self._stores = stores
        self._busy = busy
        self._pass = EndpointPass(
            database,
            RouteFile(home.routes),
            self._lease.lease,
            lambda: new_instance_id(chosen),
            on_routes,
        )
        self._watch: StateWatch[InstanceReports, InstanceReport] = StateWatch(
            agent.instances, _by_id, clock, self._wake.set
        )
        self._refused: dict[str, InstanceReport] = {}

    def companions(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [self._watch.run(), self._stores.run()]

    async def step(self) -> float | None:
        reports, busy, stores = self._reports(), self._busy(), self._stores.states
        requests = await in_thread(lambda: self._pass.run(reports, self._clock.now(), busy, stores))
        self._stores.require(requests.stores, stores)
        await self._send(requests)
        if requests.wake_at is not None:
            return max(0.0, requests.wake_at - self._clock.now())
        return None if requests.settled and reports is not None else LONGEST_REST_SECONDS

    async def stand_by(self) -> None:
        leader = await in_thread(self._lease.other_holder)
        if leader is not None:
            await in_thread(lambda: self._pass.stand_by(leader))

    async def _send(self, requests: InstanceRequests) -> None:
        """Sends requests to the agent; the next pass repeats failed ones."""
        try:
            for spec in requests.start:
                await self._start(spec)
            for instance_id in requests.stop:
                await self._agent.delete_instance(instance_id)
                if self._refused.pop(instance_id, None):
                    self._wake.set()  # the agent will not report it
        except Unavailable as error:
            about = {"action": "ask_agent", "reason": str(error)}
            log.warning("The agent did not take what it was asked.", extra=about)

    async def _start(self, spec: InstanceSpec) -> None:
        try:
            await self._agent.put_instance(spec)
            self._refused.pop(spec.instance_id, None)
        except Unavailable:
            raise
        except SagehenError as error:
            # Counts as a failed instance; otherwise it would be requested forever.
            self._refused[spec.instance_id] = InstanceReport(
                instance_id=spec.instance_id,
                state=InstanceState.FAILED,
                failure_reason=str(error)[:LONGEST_REASON],
            )
            self._wake.set()

    def _reports(self) -> Reports | None:
        reports = self._watch.reports
        return reports if reports is None or not self._refused else {**self._refused, **reports}


def _by_id(answer: InstanceReports) -> dict[str, InstanceReport]:
    """Instances of transform jobs have a reconciler of their own."""
    return {
        report.instance_id: report
        for report in answer.instances
        if report.owner is InstanceOwner.ENDPOINT
    }
