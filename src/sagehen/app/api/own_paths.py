"""Answers the paths below `/_sagehen/`: health, metrics, status, and gateways' reports."""

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sagehen import __version__
from sagehen.app.api.status import (
    JobCounts,
    ServiceStatus,
    Snapshot,
    count_instances,
    cpu_variants,
    describe_status,
    read_job_counts,
    read_transform_counts,
)
from sagehen.base.errors import Invalid, SagehenError, StateError, Unavailable
from sagehen.base.settings.inference_service import InferenceServiceSettings
from sagehen.frame.gpus import GpuList
from sagehen.frame.own_paths.access import OwnSite
from sagehen.frame.own_paths.routes import json_answer, whole_body
from sagehen.services.autoscaling.status import ScalingStatus, read_scaling
from sagehen.services.monitoring.prometheus.exposition import (
    InstanceSample,
    Measured,
    expose,
    measure,
    merged,
)
from sagehen.services.monitoring.prometheus.gateway_totals import (
    GatewayReport,
    Observations,
    VariantKey,
)
from sagehen.services.sagemaker.async_inference import request_store as async_requests
from sagehen.services.sagemaker.async_inference.records import EndpointQueue
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.services.sagemaker.hosting.records import EndpointRecord, InstanceRecord
from sagehen.state.database import Database, describe_outage

__all__ = ["ObservedAgent", "OwnPaths"]

log = logging.getLogger(__name__)

AGENT_TIMEOUT_SECONDS = 3.0
LARGEST_REPORT_BYTES = 16 * 2**20


class ObservedAgent(Protocol):
    """The agent; each call raises Unavailable while it is away."""

    async def check_health(self) -> None: ...

    async def metrics(self) -> Sequence[InstanceSample]: ...

    async def problems(self) -> list[str]: ...

    async def gpus(self) -> GpuList: ...

    async def missing_walls(self) -> Sequence[str]: ...


MeasureOthers = Callable[[Container[str]], Measured]
"""takes the names of the existing endpoints"""


class OwnPaths:
    """Answers `/_sagehen/…`, after `access.Guard` has authorized the request.

    Only this machine's gateways reach `/_sagehen/internal/`.
    """

    def __init__(
        self,
        observations: Observations,
        database: Database,
        agent: ObservedAgent,
        measure_others: MeasureOthers = lambda _: {},
        other_routes: Sequence[Route] = (),
        site: OwnSite | None = None,
        own_service: InferenceServiceSettings | None = None,
        describe_image: Callable[[str], str | None] = lambda image: None,
        on_report: Callable[[GatewayReport], None] = lambda report: None,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_leaving` tells whether this server leaves its cluster."""
        self._is_leaving = is_leaving
        self._on_report = on_report
        self._describe_image = describe_image
        self._own_service = own_service or InferenceServiceSettings.model_validate({})
        self._observations = observations
        self._measure_others = measure_others
        self._database = database
        self._agent = agent
        self._site = site or OwnSite()
        self.app = Starlette(
            routes=[
                Route("/_sagehen/health", self.health),
                Route("/_sagehen/metrics", self.metrics),
                Route("/_sagehen/status", self.status),
                Route("/_sagehen/internal/gateway", self.take_report, methods=["POST"]),
                *other_routes,
                # Below those of a cluster's control
                Route("/_sagehen/cluster", _not_in_cluster),
                Route("/_sagehen/cluster/nodes/{id}/{verb}", _not_in_cluster, methods=["PUT"]),
            ],
            exception_handlers={HTTPException: _refused, OperationalError: _state_is_away},
        )

    async def health(self, request: Request) -> Response:
        """Answers 200, or 503 with the fault; a foreign host (DNS rebinding) does not learn the
        fault. A server that leaves its cluster still serves, but load balancers should look
        elsewhere."""
        state, agent = await asyncio.gather(
            _fault(lambda: asyncio.to_thread(self._check_state)),
            _fault(self._agent.check_health),
        )
        leaving = self._is_leaving()
        ready = not (state or agent or leaving)
        body = {"ready": ready, "state": state or "ok", "agent": agent or "ok"}
        if leaving:
            body["cluster"] = "This server leaves the cluster."
        if self._site.foreign_host(request.headers) is not None:
            body = {"ready": body["ready"]}
        return json_answer(body, 200 if body["ready"] else 503)

    async def metrics(self, _: Request) -> Response:
        """Returns Prometheus metrics, without the agent's while it is away, and the server's own
        alone while the database is."""
        try:
            seconds = await asyncio.to_thread(self._query_seconds)
            measured = merged((await self._observe()).measured, _measure_server(seconds))
        except (OperationalError, Unavailable):  # Unavailable: all connections wait for it
            measured = _measure_server(None)
        return Response(expose(measured), media_type=CONTENT_TYPE_LATEST)

    async def status(self, _: Request) -> Response:
        server = {"version": __version__, "state": self._database.damage or "ok"}
        snapshot, walls, gpus, problems = await asyncio.gather(
            self._observe(), self._missing_walls(), self._gpus(), self._problems()
        )
        described = describe_status(snapshot)
        if gpus.uses_cpu:
            problems = [*problems, *cpu_variants(described["endpoints"])]
        containers = {
            "missing_walls": walls,
            "gpus": msgspec.to_builtins(gpus),
            "problems": problems,
        }
        return json_answer({**server, **described, **containers})

    async def take_report(self, request: Request) -> Response:
        try:
            report = msgspec.json.decode(
                await whole_body(request, LARGEST_REPORT_BYTES), type=GatewayReport
            )
        except ValueError as error:
            return json_answer({"message": f"This is not a gateway's report: {error}"}, 400)
        except Invalid as error:
            return json_answer({"message": str(error)}, 413)
        except ClientDisconnect:
            return Response(status_code=400)
        self._observations.record(report)
        self._on_report(report)
        return Response(status_code=204)

    async def _observe(self) -> Snapshot:
        read, samples = await asyncio.gather(asyncio.to_thread(self._read), self._samples())
        records, instance_records, queues, (jobs, services), transforms, scaling = read
        observations = self._observations
        totals = observations.totals()
        statuses = {record.name: record.status.value for record in records}
        measured = measure(
            statuses,
            totals,
            observations.present(),
            observations.containers(),
            observations.limit_hits(),
            samples,
        )
        measured = merged(measured, count_instances(records, instance_records))
        measured = merged(measured, self._measure_others({record.name for record in records}))
        return Snapshot(
            endpoints=records,
            instances=instance_records,
            totals=totals,
            last_errors=observations.last_errors(),
            measured=measured,
            queues=queues,
            jobs=jobs,
            transforms=transforms,
            services=services,
            scaling=scaling,
            describe_image=self._describe_image,
        )

    async def _problems(self) -> list[str]:
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_SECONDS):
                return await self._agent.problems()
        except (SagehenError, TimeoutError):
            return []

    async def _gpus(self) -> GpuList:
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_SECONDS):
                return await self._agent.gpus()
        except (SagehenError, TimeoutError):
            return GpuList()

    async def _missing_walls(self) -> Sequence[str]:
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_SECONDS):
                return await self._agent.missing_walls()
        except (SagehenError, TimeoutError):
            return ()

    async def _samples(self) -> Sequence[InstanceSample]:
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_SECONDS):
                return await self._agent.metrics()
        except (SagehenError, TimeoutError):
            return ()

    def _read(
        self,
    ) -> tuple[
        list[EndpointRecord],
        list[InstanceRecord],
        dict[str, EndpointQueue],
        tuple[JobCounts, list[ServiceStatus]],
        JobCounts,
        dict[VariantKey, list[ScalingStatus]],
    ]:
        with self._database.read() as connection:
            queues = async_requests.endpoint_queues(connection)
            by_name = {queue.endpoint_name: queue for queue in queues}
            jobs = read_job_counts(connection, self._own_service)
            transforms = read_transform_counts(connection)
            records = endpoints.all(connection), instances.all(connection)
            return *records, by_name, jobs, transforms, read_scaling(connection)

    def _query_seconds(self) -> float:
        began = time.perf_counter()
        with self._database.read() as connection:
            connection.execute(text("SELECT 1"))
        return time.perf_counter() - began

    def _check_state(self) -> None:
        with self._database.read() as connection:
            connection.execute(text("SELECT 1"))
        if self._database.damage is not None:
            raise StateError(self._database.damage)


def _measure_server(query_seconds: float | None) -> Measured:
    """`query_seconds`: None while the database does not answer."""
    measured: dict[str, dict[tuple[str, ...], float]] = {
        "BuildInfo": {(__version__, platform.python_version()): 1},
        "DatabaseUp": {(): float(query_seconds is not None)},
    }
    if query_seconds is not None:
        measured["DatabaseResponseTime"] = {(): query_seconds}
    return measured


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}"
    answer = json_answer({"message": message}, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _state_is_away(request: Request, error: Exception) -> Response:
    assert isinstance(error, OperationalError)
    log.warning("The state is away: %s", error.orig, extra={"action": "state_away"})
    return json_answer({"message": describe_outage(error)}, 503)


async def _not_in_cluster(_: Request) -> Response:
    message = (
        "This server is not in a cluster. Start one: sagehen up --cluster state "
        "(docs/howto/cluster.md)."
    )
    return json_answer({"message": message}, 404)


async def _fault(check: Callable[[], Awaitable[None]]) -> str | None:
    try:
        async with asyncio.timeout(AGENT_TIMEOUT_SECONDS):
            await check()
    except TimeoutError:
        return f"It did not answer within {AGENT_TIMEOUT_SECONDS:g} s."
    except SQLAlchemyError as error:
        # Anybody may ask for the health: not everybody should learn the database's address.
        log.warning("The state is away: %s", error, extra={"action": "state_away"})
        return "It cannot be reached now; the log of control says why."
    except SagehenError as error:
        return str(error)
    return None
