"""A sampler on a state of its own, by a clock that the test moves."""

import asyncio
from dataclasses import dataclass

import msgspec

from sagehen.base.errors import Unavailable
from sagehen.frame.statistics import Series, add_to_buckets, as_dimensions
from sagehen.services.monitoring.cloudwatch.sample_reads import Window, find, metrics, read
from sagehen.services.monitoring.metering import sampler as module
from sagehen.services.monitoring.metering.recorder import Recorder
from sagehen.services.monitoring.metering.sampler import Sampler
from sagehen.services.monitoring.prometheus.gateway_totals import GatewayReport, Observations
from sagehen.services.sagemaker.async_inference.metrics import Backlogs
from sagehen.services.sagemaker.hosting.endpoint_store import first_variant
from sagehen.state.leadership import Leadership
from support.clock import HandClock
from support.state import settings_of

__all__ = ["START", "VARIANT", "AgentSample", "SamplingWorld", "latencies"]

START = 28_000_000
"""A minute."""
VARIANT = {"EndpointName": "e", "VariantName": "v"}


@dataclass
class AgentSample:
    name: str
    value: float
    instance: str = "i-1"
    endpoint: str = "e"
    variant: str = "v"


class FakeAgent:
    def __init__(self):
        self.told = []
        self.jobs = []
        self.away = False

    async def metrics(self):
        if self.away:
            raise Unavailable("The agent is away.")
        return self.told

    async def job_samples(self):
        return self.jobs


class SamplingWorld:
    def __init__(self, database, home):
        self.clock = HandClock(START * 60.0)
        self.database = database
        self.agent = FakeAgent()
        self.settings = settings_of(home, metric_retention_seconds=3600)
        self.observations = Observations(self.clock)
        self.recorder = Recorder(self.clock, database, 100, first_variant)
        self.sampler = self.another("me")

    def another(self, holder):
        return Sampler(
            self.settings,
            self.database,
            self.recorder,
            self.observations,
            self.agent,
            self.clock,
            Leadership(self.database, self.clock, holder).lease(module.LEASE_NAME),
            Backlogs().read,
        )

    def turn(self, sampler=None):
        asyncio.run((sampler or self.sampler).turn())

    def report(self, gateway="1", was_reported=False, **counts):
        """`was_reported`: to another control."""
        body = {
            "gateway": gateway,
            "was_reported": was_reported,
            "variants": [{"endpoint": "e", "variant": "v", **counts}],
        }
        told = msgspec.json.decode(msgspec.json.encode(body), type=GatewayReport)
        self.observations.record(told)

    def seen(self, name, unit="None", namespace="AWS/SageMaker", dimensions=VARIANT):
        """All values there are, in one."""
        series = Series(namespace, name, as_dimensions(dimensions), unit)
        with self.database.read() as connection:
            ids = list(find(connection, series).values())
            window = Window(START * 60, (START + 10_000) * 60, 600_000)
            found = read(connection, ids, window, True)
        return found[window.start] if found else None

    def numbers(self, *args, **more):
        seen = self.seen(*args, **more)
        return seen and (seen.count, seen.sum, seen.minimum, seen.maximum)

    def names(self):
        with self.database.read() as connection:
            return {one.name for one in metrics(connection, 0, None, None, 0)}


def latencies(*times):
    """(microseconds, count)."""
    buckets: dict[int, int] = {}
    add_to_buckets(buckets, times)
    return {
        "count": sum(count for _, count in times),
        "sum": sum(time * count for time, count in times),
        "buckets": {str(bucket): count for bucket, count in buckets.items()},
    }
