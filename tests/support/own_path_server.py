"""Own paths over a state, with an agent in memory."""

import json
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sagehen.app.api.own_paths import OwnPaths
from sagehen.base.clock import SYSTEM
from sagehen.base.errors import Unavailable
from sagehen.frame.gpus import GpuList
from sagehen.services.monitoring.prometheus.gateway_totals import Observations
from sagehen.services.sagemaker.hosting import (
    endpoint_store as endpoints,
)
from sagehen.services.sagemaker.hosting import (
    instance_store as instances,
)
from sagehen.state.database import Database
from support.fleet import NAME

__all__ = ["REPORT", "Answer", "MemoryAgent", "Sample", "Server"]


REPORT: dict[str, Any] = {
    "gateway": 4711,
    "variants": [
        {
            "endpoint": NAME,
            "variant": "a",
            "Invocations": 10,
            "Invocation4XXErrors": 2,
            "ModelCacheHit": 6,
            "ModelCacheHitSamples": 8,
            "InvocationsPerInstance": 2.5,
            "ConcurrentRequestsPerModel": {"now": 5, "lowest": 1, "highest": 7},
            "QueuedRequests": {"now": 3, "lowest": 0, "highest": 4},
            # Nine of some 1 ms, one of some 41 ms.
            "ModelLatency": {"count": 10, "sum": 50_000, "buckets": {"346": 9, "531": 1}},
            "ShadowCopiesDropped": 3,
            "ModelLoadingWaitTimeSum": 900,
            "ModelLoadingWaitTimeCount": 2,
        },
        {"endpoint": "Gone", "variant": "a", "Invocations": 99},
    ],
    "limit_hits": {"queue": 3, "head": 0},
}


@dataclass(frozen=True)
class Sample:
    name: str
    value: float
    endpoint: str = NAME
    variant: str = "a"
    instance: str = "i1"
    detail: str | None = None


@dataclass
class MemoryAgent:
    away: bool = False
    samples: list[Sample] = field(default_factory=list)
    gpu_list: GpuList = field(default_factory=GpuList)

    async def problems(self) -> list[str]:
        await self.check_health()
        return ["No image can be run."]

    async def check_health(self) -> None:
        if self.away:
            raise Unavailable("The agent is away.")

    async def metrics(self) -> list[Sample]:
        await self.check_health()
        return self.samples

    async def gpus(self) -> GpuList:
        await self.check_health()
        return self.gpu_list

    async def missing_walls(self) -> list[str]:
        await self.check_health()
        return ["etc (refused): containers share /etc"]


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.agent = MemoryAgent()
        self.app = OwnPaths(Observations(SYSTEM), database, self.agent).app

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answer:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
        }
        told: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            told.append(message)

        await self.app(scope, receive, send)
        return Answer(told[0]["status"], b"".join(one.get("body", b"") for one in told))

    async def report(self, body: object) -> Answer:
        return await self.ask("POST", "/_sagehen/internal/gateway", json.dumps(body).encode())

    async def figures(self) -> dict[tuple[str, ...], float]:
        """Those of endpoints, by sample name and label values."""
        own = ("sagehen_build_info", "sagehen_database_")
        return {
            key: value
            for key, value in (await self.all_figures()).items()
            if not key[0].startswith(own)
        }

    async def all_figures(self) -> dict[tuple[str, ...], float]:
        text = (await self.ask("GET", "/_sagehen/metrics")).body.decode()
        order = (
            "endpoint",
            "variant",
            "container",
            "instance",
            "status",
            "limit",
            "quantile",
            "version",
        )
        return {
            (sample.name, *(sample.labels[one] for one in order if one in sample.labels)): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def add(self, record: Any, *rows: Any) -> None:
        with self.database.write() as connection:
            endpoints.insert(connection, record)
            for row in rows:
                instances.insert(connection, row)
