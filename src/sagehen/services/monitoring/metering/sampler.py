"""The loop that samples gauges, writes all metrics and prunes old ones."""

import asyncio
import logging
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError
from sagehen.base.settings import Settings
from sagehen.frame.statistics import of_values
from sagehen.services.monitoring.cloudwatch.sample_store import (
    FINE_RETENTION_SECONDS,
    TENS,
    count_samples,
    prune,
)
from sagehen.services.monitoring.metering.hosts import (
    HostSample,
    HostUsage,
    ServerlessLimits,
    concurrency,
    dimensions_of,
    instance_gauges,
    job_gauges,
    samples_of,
    serverless_samples,
)
from sagehen.services.monitoring.metering.recorder import Recorder
from sagehen.services.monitoring.prometheus.exposition import InstanceSample
from sagehen.services.monitoring.prometheus.gateway_totals import Observations, VariantKey
from sagehen.state.database import Database
from sagehen.state.leases import LoopLease

__all__ = ["Gauge", "Sampler"]

log = logging.getLogger(__name__)

TURN_SECONDS = 5.0
HOST_SECONDS = 10.0
PRUNE_SECONDS = 3600.0
AGENT_TIMEOUT_SECONDS = 5.0
LEASE_NAME = "sampling"
NEW_LEADER_SECONDS = 30.0
"""in which every node has surely told a new leader what its instances have counted before"""
IDLE_METRICS = ("Invocations", "InvocationsPerInstance")
"""0 in minutes without requests"""
PRUNED_AT_ONCE = 100
"""series per transaction, so as not to block others"""


Gauge = tuple[str, str, float]
"""metric name, endpoint, value"""


class MetricsAgent(Protocol):
    async def metrics(self) -> Sequence[InstanceSample]:
        """Raises Unavailable while the agent is away; so does `job_samples`."""

    async def job_samples(self) -> Sequence[HostSample]: ...


class Sampler:
    """Runs a turn every TURN_SECONDS, and a last one at the end."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        recorder: Recorder,
        observations: Observations,
        agent: MetricsAgent,
        clock: Clock,
        lease: LoopLease,
        backlogs: Callable[[Connection, float], Iterable[Gauge]],
        serverless: Callable[[], Mapping[VariantKey, ServerlessLimits]] = dict,
    ) -> None:
        """Args:
        lease: only its holder, of all controls that share a state, samples the queues.
        backlogs: reads the queue gauges of asynchronous endpoints at a time.
        serverless: returns the limits of serverless variants.
        """
        self._serverless = serverless
        self._settings = settings
        self._database = database
        self._recorder = recorder
        self._observations = observations
        self._agent = agent
        self._clock = clock
        self._lease = lease
        self._backlogs = backlogs
        self._hosts_due = self._prune_due = -math.inf
        self._hosts = HostUsage()
        self._counts_new_at = -math.inf
        """monotonic"""
        self._gauges_from = -math.inf
        """seconds since the epoch"""
        self._gauges: list[Gauge] = []
        self._shares: list[tuple[str, VariantKey, float]] = []
        """the concurrency of serverless variants: metric, variant, highest value"""
        self._asynchronous: frozenset[str] = frozenset()
        """endpoints"""
        self._minute: int | None = None
        """of the last turn"""
        self._invoked: set[VariantKey] = set()
        """in that minute"""
        self._instances: dict[VariantKey, float] = {}
        """in the route of a variant, as of its last invocations"""

    def measured(self, endpoints: Container[str]) -> dict[str, dict[tuple[str, ...], float]]:
        """Returns recorded values and the last backlogs for Prometheus."""
        measured = self._recorder.measured(endpoints)
        for name, key, value in self._shares:
            if key[0] in endpoints:
                measured.setdefault(name, {})[key] = value
        for name, endpoint, value in self._gauges:
            if endpoint in endpoints:
                measured.setdefault(name, {})[endpoint,] = value
        if self._recorder.dropped:
            measured["LimitHits"] = {("metric_series",): self._recorder.dropped}
        return measured

    def change_leader(self) -> None:
        """Call it when this control begins to lead a cluster, or ceases to. What it has been told
        counts once; what another control may have counted is not counted again."""
        self._take_invocations()
        self._observations.begin()
        self._hosts = HostUsage()
        self._counts_new_at = self._clock.monotonic() + NEW_LEADER_SECONDS
        # A minute has one sample of a gauge, which the other control may have written.
        self._gauges_from = (self._clock.now() // 60 + 1) * 60

    async def run(self) -> None:
        """Runs until cancelled, then writes what is left."""
        try:
            while True:
                await self._clock.sleep(TURN_SECONDS)
                await self.turn()
        finally:
            self._take_invocations()
            await asyncio.to_thread(self._recorder.flush)
            await self._lease.let_go()

    async def turn(self) -> None:
        """Samples and writes; failures are retried in the next turn."""
        try:
            self._fill_idle_minute()
            self._take_invocations()
            if self._clock.monotonic() >= self._hosts_due:
                self._hosts_due = self._clock.monotonic() + HOST_SECONDS
                await self._sample_hosts()
            await self._sample_backlogs()
            await asyncio.to_thread(self._recorder.flush)
            if self._clock.monotonic() >= self._prune_due:
                self._prune_due = self._clock.monotonic() + PRUNE_SECONDS
                await asyncio.to_thread(self._prune)
        except (SagehenError, SQLAlchemyError) as error:
            extra = {"action": "sample", "error": str(error)[:200]}
            log.warning("Metrics cannot be sampled now.", extra=extra)
        except Exception:
            log.exception("A turn of the sampling loop failed.", extra={"action": "sample"})

    def _fill_idle_minute(self) -> None:
        """Without requests invocations are 0, as in SageMaker, and not unknown: scaling in needs
        datapoints. Asynchronous endpoints have their own metrics."""
        minute, ended = int(self._clock.now() // 60), self._minute
        if minute == ended:
            return
        if ended is not None:
            for endpoint, variant in self._observations.present().keys() - self._invoked:
                if endpoint not in self._asynchronous:
                    dimensions = {"EndpointName": endpoint, "VariantName": variant}
                    for name in IDLE_METRICS:
                        self._recorder.put_into(ended, name, dimensions, of_values({0.0: 1}))
        self._minute, self._invoked = minute, set()

    def _take_invocations(self) -> None:
        for key, counts in self._observations.take().items():
            dimensions = dimensions_of(key)
            if counts.invocations:
                self._invoked.add((key.endpoint, key.variant))
            if counts.invocations_per_instance and not key.container:
                instances = counts.invocations / counts.invocations_per_instance
                self._instances[key.endpoint, key.variant] = max(1.0, instances)
            for name, statistics in samples_of(counts, bool(key.container)):
                self._recorder.put(name, dimensions, statistics)
        serverless = self._serverless()
        self._shares = []
        present = self._observations.present()
        self._instances = {key: self._instances[key] for key in self._instances.keys() & present}
        for (endpoint, variant), presence in present.items():
            dimensions = {"EndpointName": endpoint, "VariantName": variant}
            # Each instance has a copy of the model, among which requests are shared out.
            instances = self._instances.get((endpoint, variant), 1.0)
            self._recorder.put_fine(
                "ConcurrentRequestsPerModel", dimensions, concurrency(presence.in_flight, instances)
            )
            if (limits := serverless.get((endpoint, variant))) is not None:
                for name, statistics in serverless_samples(presence.in_flight, limits):
                    self._recorder.put(name, dimensions, statistics)
                    self._shares.append((name, (endpoint, variant), statistics.maximum))

    async def _sample_hosts(self) -> None:
        try:
            async with asyncio.timeout(AGENT_TIMEOUT_SECONDS):
                samples = await self._agent.metrics()
                of_hosts = await self._agent.job_samples()
        except (SagehenError, TimeoutError):
            return
        counts_new = self._clock.monotonic() >= self._counts_new_at
        for name, dimensions, statistics in self._hosts.samples_of(samples, counts_new):
            self._recorder.put(name, dimensions, statistics)
        if self._clock.now() < self._gauges_from:
            return
        for reading in (*instance_gauges(samples), *job_gauges(of_hosts)):
            self._recorder.record_gauge(*reading)

    async def _sample_backlogs(self) -> None:
        gauges = await asyncio.to_thread(self._read_backlogs)
        self._asynchronous = frozenset(endpoint for _, endpoint, _ in gauges)
        self._gauges = gauges if gauges and await self._lease.hold() else []
        for name, endpoint, value in self._gauges:
            self._recorder.record_gauge(name, {"EndpointName": endpoint}, value)

    def _read_backlogs(self) -> list[Gauge]:
        with self._database.read() as connection:
            return list(self._backlogs(connection, self._clock.now()))

    def _prune(self) -> None:
        """Deletes old samples, sooner if there are more than allowed."""
        with self._database.read() as connection:
            count = count_samples(connection)
        share = min(1.0, self._settings.max_metric_samples / max(count, 1))
        if share < 1:
            extra = {"action": "prune", "samples": count, "kept_share": round(share, 3)}
            log.warning("There are more samples of metrics than max_metric_samples.", extra=extra)
        now = self._clock.now()
        before = int((now - self._settings.metric_retention_seconds * share) // 60)
        before_fine = int((now - FINE_RETENTION_SECONDS) // TENS.seconds)
        after: int | None = 0
        while after is not None:
            with self._database.write() as connection:
                after = prune(connection, before, before_fine, after, PRUNED_AT_ONCE)
