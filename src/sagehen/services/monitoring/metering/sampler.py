"""The loop that samples gauges, writes all metrics and prunes old ones."""

import asyncio
import logging
import math
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from sagehen.base.clock import Clock
from sagehen.base.errors import SagehenError
from sagehen.base.settings import Settings
from sagehen.frame.statistics import Statistics, of_values
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
from sagehen.services.monitoring.prometheus.gateway_totals import (
    InFlightTotals,
    Observations,
    VariantKey,
    VariantPresence,
)
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
CONCURRENCY = "ConcurrentRequestsPerModel"
NOTHING = InFlightTotals()
QUIET_HOSTS_SECONDS = 45
"""the part of a minute in which the hosts of quiet endpoints are read"""
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
        self._active: set[VariantKey] = set()
        """with requests in flight in that minute"""
        self._quiet: set[VariantKey] = set()
        """Those without requests in all of the minute before, and since: what they have in a minute
        is written once, when it is over, and their hosts are read once. So a thousand of them cost
        little."""
        self._awake: set[str] = set()
        """endpoints with other variants than those, as of the last look"""
        self._looks = 0
        """in that minute, at the requests in flight"""
        self._hosts_read: set[str] = set()
        """endpoints of `_quiet` whose hosts were read in that minute"""
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
        self._wake(set(self._quiet))
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
            self._wake(set(self._quiet))
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
        present = self._observations.present().keys()
        if ended is not None:
            for key in present - self._invoked:
                if key[0] not in self._asynchronous:
                    for name in IDLE_METRICS:
                        self._recorder.put_into(ended, name, _dimensions(key), _zeros(1))
            for key in self._quiet if self._looks else ():
                zeros = _zeros(self._looks)
                self._recorder.put_into(ended, CONCURRENCY, _dimensions(key), zeros)
            self._quiet = present - self._active - self._invoked - self._serverless().keys()
        self._minute, self._invoked, self._active = minute, set(), set()
        self._looks, self._hosts_read = 0, set()

    def _wake(self, keys: set[VariantKey]) -> None:
        """Ends the quiet of variants in the middle of a minute."""
        self._quiet -= keys
        self._active |= keys
        if self._minute is not None and self._looks:
            for key in keys:
                zeros = _zeros(self._looks)
                self._recorder.put_into(self._minute, CONCURRENCY, _dimensions(key), zeros)

    def _take_invocations(self) -> None:
        taken = self._observations.take()
        present = self._observations.present()
        self._quiet &= present.keys()
        busy = {key for key in self._quiet if present[key].in_flight != NOTHING}
        self._wake(busy | self._quiet.intersection((each.endpoint, each.variant) for each in taken))
        for key, counts in taken.items():
            dimensions = dimensions_of(key)
            if counts.invocations:
                self._invoked.add((key.endpoint, key.variant))
            if counts.invocations_per_instance and not key.container:
                instances = counts.invocations / counts.invocations_per_instance
                self._instances[key.endpoint, key.variant] = max(1.0, instances)
            for name, statistics in samples_of(counts, bool(key.container)):
                self._recorder.put(name, dimensions, statistics)
        self._instances = {key: self._instances[key] for key in self._instances.keys() & present}
        self._take_concurrency(present)

    def _take_concurrency(self, present: Mapping[VariantKey, VariantPresence]) -> None:
        serverless = self._serverless()
        self._shares = []
        self._looks += 1
        self._awake = {endpoint for endpoint, _ in present.keys() - self._quiet}
        for key, presence in present.items():
            dimensions, in_flight = _dimensions(key), presence.in_flight
            if key in self._quiet:
                self._recorder.put_tens(CONCURRENCY, dimensions, _zeros(1))
                continue
            if in_flight != NOTHING:
                self._active.add(key)
            # Each instance has a copy of the model, among which requests are shared out.
            instances = self._instances.get(key, 1.0)
            self._recorder.put_fine(CONCURRENCY, dimensions, concurrency(in_flight, instances))
            if (limits := serverless.get(key)) is not None:
                for name, statistics in serverless_samples(in_flight, limits):
                    self._recorder.put(name, dimensions, statistics)
                    self._shares.append((name, key, statistics.maximum))

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
        skipped = self._hosts_to_skip()
        read = [each for each in samples if each.endpoint not in skipped]
        for reading in (*instance_gauges(read), *job_gauges(of_hosts)):
            self._recorder.record_gauge(*reading)

    def _hosts_to_skip(self) -> set[str]:
        """Returns the quiet endpoints whose hosts are not to be read now: each is read once in a
        minute, some in each turn."""
        quiet = {endpoint for endpoint, _ in self._quiet} - self._awake
        second = self._clock.now() % 60
        due = {each for each in quiet - self._hosts_read if _second_of(each) <= second}
        self._hosts_read |= due
        return quiet - due

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


def _dimensions(key: VariantKey) -> dict[str, str]:
    endpoint, variant = key
    return {"EndpointName": endpoint, "VariantName": variant}


def _zeros(count: int) -> Statistics:
    return of_values({0.0: count})


def _second_of(endpoint: str) -> int:
    """Returns the second of a minute from which on the hosts of a quiet endpoint are read."""
    return zlib.crc32(endpoint.encode()) % QUIET_HOSTS_SECONDS
